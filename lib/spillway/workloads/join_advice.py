"""Advise on a join that is not run here yet, from stored sketches, if there are any, and from a sample.

Sketches summarise all rows that were ever taken in. They give the size of the whole join on equal values, and its heavy
values. The last rows of both streams show the effect of windows, predicates and budgets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from spillway.contracts import Contracts, read_workload
from spillway.contracts.column_names import is_bound
from spillway.contracts.workload import Workload
from spillway.errors import SpillwayError, UsageError
from spillway.levers.protocol import CapacityGroup
from spillway.registry import lever
from spillway.sketches.answers import Answer
from spillway.sketches.kinds.base import LoadedSketch
from spillway.sketches.kinds.frequencies import Frequencies
from spillway.sketches.kinds.near_duplicates import NearDuplicates
from spillway.store.tables import Tables
from spillway.streams.query import WEIGHT, StreamQuery, plan_query, shed_batches
from spillway.streams.stored_sketches import load_sketch
from spillway.workloads.inputs import LoadedRows

MOST_ROWS_READ = 100_000
"""The number of last rows that are read of each stream."""
HEAVY = 5
"""The number of most frequent values that are listed."""


@dataclass(frozen=True)
class JoinRequest:
    """A join to advise on."""

    left: str
    right: str
    settings: Mapping[str, Any]
    """The settings of the lever `joins`, as in a contract."""

    def contract(self) -> Workload:
        """Return the contract that the join would have; raise if the settings are invalid."""
        return read_workload(
            {
                "name": "advice",
                "inputs": [self.left, self.right],
                "window": {"seconds": 1},
                "levers": [{"lever": "joins", **self.settings}],
            },
            "join-advice",
        )


@dataclass(frozen=True)
class JoinAdvice:
    """The advice, and the number of rows that it is based on."""

    left_rows: int
    right_rows: int
    findings: tuple[tuple[str, Answer], ...]
    """What each answer is about, and the answer."""


def advise(
    tables: Tables, contracts: Contracts, asked: JoinRequest, most: int = MOST_ROWS_READ
) -> JoinAdvice:
    """Return the advice on the join, from sketches and from the last `most` rows of each stream."""
    if most < 1:
        raise UsageError(
            f"`rows` must be at least 1, got {most}; leave it out to look at the last {MOST_ROWS_READ:,}"
        )
    contract = asked.contract()
    for stream in contract.inputs:
        contracts.stream(stream)
    found = lever("joins")
    columns = found.columns(contract)
    rows = {stream: _last_rows(tables, contracts, stream, names, most) for stream, names in columns.items()}
    settings = contract.lever_settings("joins")
    findings = list(_from_sketches(tables, contract, settings))
    findings += [
        (f"rows of {stream} that the {table.num_rows:,} kept rows represent", _represented_rows(table))
        for stream, table in rows.items()
        if pc.any(pc.greater(table[WEIGHT], 1.0)).as_py()
    ]
    findings += list(_frequent_values(rows, contract, settings, bool(findings)))
    room = CapacityGroup("advice", contracts, tables)
    inputs = {stream: LoadedRows(one) for stream, one in rows.items()}
    findings += [(one.about, one.answer) for one in found.advice(contract, room, inputs)]
    return JoinAdvice(rows[asked.left].num_rows, rows[asked.right].num_rows, tuple(findings))


def _represented_rows(rows: pa.Table) -> Answer:
    total = float(pc.sum(rows[WEIGHT]).as_py())
    note = "the figures below cover the kept rows only, not the rows that were dropped before"
    return Answer(total, total, total, 1.0, "sum of weights", note=note)


def _last_rows(
    tables: Tables, contracts: Contracts, stream: str, names: Sequence[str], most: int
) -> pa.Table:
    contract = contracts.stream(stream)
    batches = shed_batches(tables, stream)
    if not batches:
        raise UsageError(
            f"`stream` must have rows to be looked at, got none of {stream!r}; take it in: spillway run "
            f"--stream {stream} (with mode: observe nothing of it is shed)"
        )
    last = max(batch.last_seq for batch in batches)
    asked = ["seq", contract.order, *names]
    known = plan_query(tables, contract, StreamQuery(seq=(last - most + 1, last)))
    there = [name for name in dict.fromkeys(asked) if name in known.schema.names]
    parts = list(known.only(there).rows({}))
    found = pa.concat_tables(parts)
    for name in dict.fromkeys(asked):
        if name == WEIGHT:
            weights = found[WEIGHT] if WEIGHT in there else pa.nulls(found.num_rows, pa.float64())
            found = found.drop_columns([WEIGHT] if WEIGHT in there else [])
            found = found.append_column(WEIGHT, pc.fill_null(weights, 1.0))
        elif name not in there:
            if not is_bound(name):
                raise UsageError(
                    f"`on` must be an attribute of {stream} ({', '.join(contract.names)}), got {name!r}; name one"
                )
            found = found.append_column(name, pa.nulls(found.num_rows, pa.float64()))
    return found.sort_by([(contract.order, "ascending"), ("seq", "ascending")])


def _from_sketches(tables: Tables, contract: Workload, settings: Any) -> Iterator[tuple[str, Answer]]:
    """Yield the size of the whole join, without windows, over all rows ever sketched, and its most frequent values.

    Rows match by equal values, or by agreement in several attributes.
    """
    if settings.sets is not None:
        return
    sides = [
        (stream, "+".join(side.joined_by))
        for stream, side in zip(contract.inputs, (settings.left, settings.right), strict=True)
    ]
    alike = len(set(sides)) == 1
    if settings.predicate == "overlap":
        yield from _count_similar_pairs(tables, sides, alike, settings.threshold)
    if settings.predicate != "equality" or len(settings.left.joined_by) > 1:
        return
    sketches = [_sketch(tables, *side, "count_min") for side in sides]
    left, right = (cast(Frequencies | None, one) for one in sketches)
    if left is not None and right is not None:
        with suppress(SpillwayError):  # the sketches have other shapes or seeds: only the sample is used
            yield "pairs of the whole join, without windows", _join_size(left, right, alike)
    for (stream, _), sketch in {sides[0]: left, sides[1]: right}.items():
        if sketch is None:
            continue
        yield f"effective number of values of {stream} (skew)", sketch.skew()
        with suppress(SpillwayError):  # the sketch keeps no keys
            for heavy in sketch.top(HEAVY):
                yield f"rows of {stream} with {', '.join(map(str, heavy.key or ('?',)))}", heavy.answer


def _sketch(tables: Tables, stream: str, name: str, kind: str) -> LoadedSketch | None:
    """Return the stream's sketch of this name and kind; None if it has none."""
    try:
        return load_sketch(tables, stream, name, kind)
    except SpillwayError:
        return None


def _count_similar_pairs(
    tables: Tables, sides: Sequence[tuple[str, str]], alike: bool, threshold: float
) -> Iterator[tuple[str, Answer]]:
    """Yield how many pairs agree in at least `threshold` attributes, if both streams have PairCount sketches."""
    sketches = [_sketch(tables, *side, "pair_count") for side in sides]
    left, right = (cast(NearDuplicates | None, one) for one in sketches)
    if left is None or right is None:
        return
    least = math.ceil(threshold)
    with suppress(SpillwayError):  # the sketches differ in shape or seed, or count no such pairs
        if alike:
            size = left.near_duplicate_pairs(least)
            # a join has either row of a pair on either side
            edges = {name: 2 * getattr(size, name) for name in ("estimate", "low", "high")}
            size = replace(size, **edges)
        else:
            size = left.near_duplicate_join(right, least)
        note = "; ".join(filter(None, [size.note, "nulls agree here, and are no items of a join"]))
        yield "pairs of the whole join, without windows", replace(size, note=note)


def _join_size(left: Frequencies, right: Frequencies, alike: bool) -> Answer:
    """Return the join size by the sketches, without pairs that a join does not have.

    These are pairs of nulls, and of a row with itself: |L x R| - L(null) R(null). For a stream joined with itself: F_2
    - N - (N(null)^2 - N(null)).
    """
    size = left.self_join_size() if alike else left.join_size(right)
    none = [one.frequency(None) for one in (left, right)]
    itself = float(left.rows) if alike else 0.0

    def nulls(first: float, second: float) -> float:
        return first * second - (first if alike else 0.0)

    low = size.low - itself - nulls(none[0].high, none[1].high)
    high = size.high - itself - nulls(none[0].low, none[1].low)
    middle = size.estimate - itself - nulls(none[0].estimate, none[1].estimate)
    return replace(size, estimate=max(0.0, middle), low=max(0.0, low), high=max(0.0, high))


def _frequent_values(
    rows: Mapping[str, pa.Table], contract: Workload, settings: Any, sketched: bool
) -> Iterator[tuple[str, Answer]]:
    """Yield the values on which most pairs of the rows that were read would match."""
    counts, with_itself = [], len(set(contract.inputs)) == 1
    for stream, side in zip(contract.inputs, (settings.left, settings.right), strict=True):
        mine: Counter[Any] = Counter()
        for place, name in enumerate(side.joined_by):
            column = rows[stream][name].drop_null()
            if settings.sets is not None:
                column = pc.list_flatten(pc.split_pattern(column.cast(pa.string()), settings.sets.separator))
            for one in pc.value_counts(column).to_pylist():
                if one["values"] != "":
                    mine[(place, one["values"])] = one["counts"]
        counts.append(mine)
    meets = Counter(
        {
            # a row of a stream that is joined with itself does not meet itself
            value: count * (counts[1][value] - with_itself)
            for value, count in counts[0].items()
            if counts[1][value] > with_itself
        }
    )
    total = sum(meets.values())
    if not total:
        return
    if not sketched:
        squares = sum(count * count for count in meets.values())
        effective = total * total / squares
        yield (
            "effective number of values (skew)",
            Answer(effective, effective, effective, 1.0, "counted in these rows"),
        )
    by = settings.left.joined_by
    for (place, value), count in sorted(meets.items(), key=lambda pair: (-pair[1], str(pair[0])))[:HEAVY]:
        share = 100.0 * count / total
        half = 196.0 * (share / 100 * (1 - share / 100) / min(total, sum(counts[0].values()))) ** 0.5
        yield (
            f"% of pairs with {value if len(by) == 1 else f'{by[place]} {value}'}",
            Answer(share, max(0.0, share - half), min(100.0, share + half), 0.95, "counted in these rows"),
        )
