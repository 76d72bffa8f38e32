# ruff: noqa: RUF009 - `rule` is dataclasses.field with a shape; it makes no shared value
"""Define the contract fields of the lever `sifters`: the meaning, the rule and the default of each field.

>>> from spillway.levers.sifters.stated_queries import ReadingQuery
>>> SifterSettings(queries=(ReadingQuery(where="temp > 30"),)).regions
100
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from spillway.contracts.fields import (
    METHODS,
    PERCENT,
    Broken,
    Choice,
    Flag,
    Number,
    OptionalValue,
    Record,
    rule,
    suggest,
)
from spillway.levers.sifters.stated_queries import FRACTION, StatedQueries

if TYPE_CHECKING:
    from spillway.contracts.stream import StreamContract

COLUMNS: tuple[tuple[str, str, str], ...] = (
    (
        "weight",
        "double",
        "number of offered rows that the row represents: 1 / (1 - dropped share of its region)",
    ),
    ("in_sample", "boolean", "whether it belongs to the sample that no filter works on"),
)
"""The columns that the lever adds to rows: name, type, meaning."""
LOSES_ROWS = True
"""Shed rows are lost unless the contract states `keep_at_source`."""
PARTITIONS = (
    "uniform_grid", "data_depth", "query_depth", "flexible_grid", "flexible_depth", "query_data",
    "demand",
)  # fmt: skip
CONSOLIDATIONS = ("sampled", "uniform")
UNQUERIED = ("first", "by_region")
TAKES = ("first", "rest", "cheaper")


@dataclass(frozen=True, kw_only=True)
class SifterSample:
    """The sample from which regions are built, and the marked sample that is always sent."""

    rows: int = rule(
        Number(least=1, most=100_000, whole=True), "number of sampled rows from which regions are built", 4000
    )
    tuples: int = rule(
        Number(least=1, whole=True), "number of the stream's tuples from which the sample is drawn", 100_000
    )
    marked_pct: float = rule(
        PERCENT,
        "share of all rows, in %, that is always sent and marked (`in_sample`), regardless of the filter. The "
        "paper builds filters from these rows; Spillway builds them from `raw`",
        0.0,
    )


@dataclass(frozen=True, kw_only=True)
class Rebuild:
    """The limits of drift at which the filter in use is replaced."""

    throttle: float = rule(
        FRACTION,
        "a new filter is built if the capacity admits more than this additional share of the rows",
        0.05,
    )
    drift: float = rule(
        FRACTION,
        "a new filter is built if more than this share of the rows is in other regions than before, after "
        "subtraction of noise",
        0.1,
    )


@dataclass(frozen=True, kw_only=True)
class SifterSettings(StatedQueries):
    """The settings of the lever: the queries that read the stream, and how rows are shed by the queries' demand."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {
            "regions": 16,
            "partition": "query_data",
            "fairness": 0.5,
            "unqueried": "by_region",
            "consolidation": "uniform",
            "sample": {"rows": 1000, "marked_pct": 1.0},
        }
    }

    method: str = rule(
        Choice(METHODS),
        "default: Spillway's rules; paper: the rules of Gedik, Wu and Yu 2008 (`regions: 16`, `partition: "
        "query_data` (QDPart in the paper), `fairness: 0.5`, `unqueried: by_region`, `consolidation: uniform`, "
        "`sample: {rows: 1000, marked_pct: 1}`); a setting that the contract states takes precedence",
        "default",
    )

    regions: int = rule(
        Number(least=1, most=10_000, whole=True),
        "number of regions into which the data space is partitioned",
        100,
    )
    partition: str = rule(
        Choice(PARTITIONS),
        "partitioning scheme. demand: the rows of a region are read by the same queries; the others are "
        "those of Gedik, Wu and Yu 2008",
        "demand",
    )
    fairness: float = rule(
        FRACTION,
        "fairness threshold: largest difference between the dropped shares of two regions that "
        "queries read; 1: no limit; 0.5: the paper's default",
        1.0,
    )
    consolidation: str = rule(
        Choice(CONSOLIDATIONS),
        "assumed distribution of a query's rows within a region. sampled: as in the sample, if the "
        "sample has rows of the query; uniform: uniform distribution (eq. 5 of the paper)",
        "sampled",
    )
    unqueried: str = rule(
        Choice(UNQUERIED),
        "treatment of rows that no query reads. first: they are dropped before all other rows; by_region: they "
        "are dropped at the rate of their region (use it if the queries are only examples)",
        "first",
        former="unasked",
    )
    rows_per_second: float | None = rule(
        OptionalValue(Number(above=0)),
        "number of rows per second that the server can process; null: only the capacity of the channel limits "
        "the rows",
        None,
    )
    takes: str = rule(
        Choice(TAKES),
        "order of shedding, if other levers follow. first: drop rows before columns are shed; rest: drop rows "
        "only if the batch is still too large after the other levers; cheaper: shed rows or columns, whichever "
        "loses less for the same bytes",
        "first",
    )
    sample: SifterSample = rule(Record(SifterSample), "size of the samples", SifterSample())
    rebuild: Rebuild = rule(Record(Rebuild), "conditions for a new filter", Rebuild())
    keep_at_source: bool = rule(
        Flag(),
        "true: dropped rows are kept at the source, available on request; false: they are lost",
        False,
        former="keep_aside",
    )

    def rules(self) -> Iterator[Broken]:
        weights = [query.weight for query in self.queries if isinstance(query.weight, int | float)]
        if weights and not sum(weights):
            yield "queries", "have weights that sum to more than 0", weights, "give one of them a weight"
        if self.sample.marked_pct == 100:
            yield (
                "sample.marked_pct",
                "be below 100: that sample is every row",
                100,
                "write e.g. 1, or mode: observe",
            )
        whole = [query.title for query in self.queries if query.at_least == 1]
        if whole and self.fairness == 0:
            yield (
                "fairness",
                "be above 0 if a query must have all of its rows; with 0, no row of any query could be dropped",
                self.fairness,
                f"write e.g. fairness: 0.5, or lower at_least of {whole[0]}",
            )
        names = [query.title for query in self.queries]
        for place, name in enumerate(names):
            if name in names[:place]:
                yield f"queries[{place}]", "differ from the other names", name, "remove it, or add a name"

    def stream_rules(self, contract: StreamContract) -> Iterator[Broken]:
        """Yield the rules that these settings break in combination with the rest of the stream's contract."""
        from spillway.levers.sifters.parsed_queries import query_problems

        known = [name for name in contract.names if isinstance(name, str)]
        fine = len(known) == len(contract.names)  # if not, another rule reports it
        for place, stated in enumerate(self.dimensions or ()):
            if stated.attribute not in known:
                fine = False
                where = f"dimensions[{place}].attribute"
                yield (
                    where,
                    "be an attribute of the stream",
                    stated.attribute,
                    suggest(stated.attribute, known),
                )
        if fine and all(isinstance(query.where, str) for query in self.queries):
            yield from query_problems(self, contract)


SETTINGS = SifterSettings
"""The class with which the registry reads a contract's entry."""
