"""Make the answer of a plain aggregate from sums and counts per portion, with estimates and confidence intervals.

This path is used if portions were left out, rows were dropped, or values are inexact. The engine returns the partial
aggregates of every portion and group (`n`: the number of values, `s`: their sum). Each portion is read once. The answer
adds up these partial aggregates, in the order of its groups. In addition it has an estimate over all rows that were
produced (`<name>__estimate`), with an interval (`__low`, `__high`, see `intervals`) or a reason why there is none
(`__no_interval`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.levers.quality.intervals import (
    RARE,
    UNBOUNDED,
    Clusters,
    ErrorExpressions,
    Estimate,
    SampledRows,
    WindowSample,
    error_expressions,
    row_range,
    widen_estimate,
)
from spillway.levers.quality.room_plan import WindowShare
from spillway.levers.quality.sql_text import Measure, PlainAggregate
from spillway.levers.windows import PORTION, InputLoss

NO_INTERVAL = "__no_interval"
"""Suffix of the column that says why an estimate has no interval."""
PART = "spillway_"
"""Prefix of the names of partial aggregates, so that none is the name of a column."""
_WEIGHT = "coalesce(weight, 1.0)"
Ranges = Mapping[str, tuple[float, float]]
"""The least and the largest value of a column, by its name in lower case."""


def partial_aggregates_sql(of: PlainAggregate, inexact: frozenset[str], weighted: bool = False) -> str:
    """Return the SQL for the sums and counts of all measures, by portion and group.

    `weighted`: rows were dropped before, so Horvitz-Thompson sums are included.

    >>> from spillway.levers.quality.sql_text import plain_aggregate
    >>> query = plain_aggregate("SELECT avg(x) AS m FROM t WHERE x > 2")
    >>> partial_aggregates_sql(query, frozenset()).partition(" FROM ")[0]
    'SELECT spillway_portion, count(x) AS spillway_n0, sum(x) AS spillway_s0'
    """
    # a name may be a reserved word of SQL
    keys = [f"`{name}`" for name in of.keys]
    items = [PORTION, *keys]
    for at, one in enumerate(of.measures):
        items.append(f"count({one.of or '*'}) AS {PART}n{at}")
        if one.kind != "count":
            items.append(f"sum({one.of}) AS {PART}s{at}")
        told = error_expressions(one, inexact)
        if told is not None:
            items += [f"{told.off} AS {PART}o{at}", f"{told.unknown} AS {PART}u{at}"]
        if weighted:
            items += [f"{sql} AS {PART}{name}{at}" for name, sql in _weighted_sums_sql(one, told).items()]
    where = f" WHERE ({of.where})" if of.where else ""
    return f"SELECT {', '.join(items)} FROM `{of.source}`{where} GROUP BY {', '.join([PORTION, *keys])}"


def _weighted_sums_sql(one: Measure, told: ErrorExpressions | None) -> dict[str, str]:
    """Return the expressions for a measure's Horvitz-Thompson sums and variances; a null weight counts as 1.

    `wn`, `ws`, `wo`: the weighted count, the weighted sum, and the weighted sum of the possible errors. `vn`, `vc`,
    `vs`, `vo`: the sums of w (w - 1), and of w (w - 1) times the value, its square, and its squared possible error.
    """
    value = f"({one.of})"
    counted = f"CASE WHEN {value} IS NOT NULL THEN {{}} END" if one.of is not None else "{}"
    spread = f"{_WEIGHT} * ({_WEIGHT} - 1.0)"
    found = {"wn": f"sum({counted.format(_WEIGHT)})", "vn": f"sum({counted.format(spread)})"}
    if one.kind != "count":
        found["ws"] = f"sum({_WEIGHT} * {value})"
        found["vc"] = f"sum({spread} * {value})"
        found["vs"] = f"sum({spread} * {value} * {value})"
        if told is not None and told.each is not None:
            found["wo"] = f"sum({_WEIGHT} * {told.each})"
            found["vo"] = f"sum({spread} * {told.each} * {told.each})"
    return found


@dataclass(frozen=True)
class _PartialAggregates:
    """The partial aggregates of each group, one row per portion."""

    keys: tuple[str, ...]
    groups: Mapping[tuple[Any, ...], Sequence[Mapping[str, Any]]]
    columns: frozenset[str] = frozenset()

    @staticmethod
    def of(parts: pa.Table, keys: Sequence[str]) -> _PartialAggregates:
        names = tuple(_as_named(parts, name) for name in keys)
        groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for row in sorted(parts.to_pylist(), key=lambda row: row[PORTION]):
            # NaN differs from itself: all NaN values belong to one group
            key = tuple(math.nan if row[name] != row[name] else row[name] for name in names)
            groups.setdefault(key, []).append(row)
        if not names:
            groups.setdefault((), [])
        # nulls come first, as the engines order them
        ordered = sorted(groups, key=lambda key: [(one is not None, one != one, one) for one in key])
        return _PartialAggregates(names, {key: groups[key] for key in ordered}, frozenset(parts.column_names))

    def by_portion(self, key: tuple[Any, ...], column: str, portions: int) -> np.ndarray:
        """Return a partial aggregate of a group, one element per portion; 0 if a portion has none."""
        found = np.zeros(portions)
        for row in self.groups[key]:
            found[row[PORTION]] = row.get(column) or 0.0
        return found


def merge_partial_aggregates(of: PlainAggregate, parts: pa.Table) -> pa.Table:
    """Return the answer of the query, added up from the partial aggregates of all portions.

    >>> from spillway.levers.quality.sql_text import plain_aggregate
    >>> parts = {PORTION: [0, 1, 1], "k": ["b", "b", None], PART + "n0": [2, 1, 1], PART + "s0": [3.0, 6.0, 5.0]}
    >>> query = plain_aggregate("SELECT k, avg(x) AS m FROM t GROUP BY k")
    >>> merge_partial_aggregates(query, pa.table(parts)).to_pylist()
    [{'k': None, 'm': 5.0}, {'k': 'b', 'm': 3.0}]
    """
    held = _PartialAggregates.of(parts, of.keys)
    columns: dict[str, pa.Array] = {}
    for at, name in enumerate(held.keys):
        columns[name] = pa.array([key[at] for key in held.groups], parts.schema.field(name).type)
    for at, one in enumerate(of.measures):
        kind = {"count": pa.int64(), "avg": pa.float64()}.get(one.kind)
        kind = parts.schema.field(f"{PART}s{at}").type if kind is None else kind
        columns[one.name] = pa.array([_value(one, at, rows) for rows in held.groups.values()], kind)
    return pa.table(columns)


def _value(one: Measure, at: int, rows: Sequence[Mapping[str, Any]]) -> Any:
    counted = sum(row[f"{PART}n{at}"] for row in rows)
    if one.kind == "count":
        return counted
    total = sum(row[f"{PART}s{at}"] for row in rows if row[f"{PART}s{at}"] is not None)
    if not counted:
        return None
    return total / counted if one.kind == "avg" else total


def add_exact_bounds(found: pa.Table, of: PlainAggregate) -> pa.Table:
    """Add the estimate columns to an exact answer: each value is its own estimate and interval."""
    names = {name.lower(): name for name in found.column_names}
    for one in (one for one in of.measures if one.name.lower() in names):
        column = names[one.name.lower()]
        exact = found[column].cast(pa.float64())
        for part in ("estimate", "low", "high"):
            found = found.append_column(f"{column}__{part}", exact)
        found = found.append_column(column + NO_INTERVAL, pa.nulls(found.num_rows, pa.string()))
    return found


def estimate_answer(
    of: PlainAggregate,
    parts: pa.Table,
    share: WindowShare,
    ranges: Ranges,
    assume_alike: bool = False,
    doubted: bool = False,
    loss: InputLoss | None = None,
) -> pa.Table:
    """Return the answer from its partial aggregates, with an estimate over all rows produced and not refused.

    `loss`: the rows of the window that an earlier lever dropped. `doubted`: it is not certain which rows are counted,
    or in which group, so the answer has no bound.
    """
    found, held = merge_partial_aggregates(of, parts), _PartialAggregates.of(parts, of.keys)
    if loss is not None and f"{PART}wn0" not in parts.column_names:
        # the kept rows do not represent the dropped ones
        loss = replace(loss, unsampled_least=loss.dropped_least, unsampled_most=loss.dropped_most)
    for at, one in enumerate(of.measures):
        made = [*_estimates(held, of, one, at, _WindowFacts(share, ranges, assume_alike, loss))]
        if doubted:
            made = [(e and replace(e, low=None, high=None), UNBOUNDED) for e, _ in made]
        for part, name in (("value", "estimate"), ("low", "low"), ("high", "high")):
            values = [None if e is None else getattr(e, part) for e, _ in made]
            found = found.append_column(f"{one.name}__{name}", pa.array(values, pa.float64()))
        found = found.append_column(one.name + NO_INTERVAL, pa.array([why for _, why in made], pa.string()))
    return found


@dataclass(frozen=True)
class _WindowFacts:
    """What is needed for the estimates of a window in addition to its partial aggregates."""

    share: WindowShare
    ranges: Ranges
    assume_alike: bool
    loss: InputLoss | None

    @property
    def produced_per_row(self) -> float:
        """Return the number of rows taken in, per row that arrived."""
        here = sum(portion.tuples for portion in self.share.offered)
        return (here + self.loss.dropped) / here if self.loss is not None and here else 1.0


def _estimates(
    held: _PartialAggregates, of: PlainAggregate, one: Measure, at: int, known: _WindowFacts
) -> Iterator[tuple[Estimate | None, str | None]]:
    """Yield for each group the estimate of a measure, and the reason if it has no interval."""
    share = known.share
    here = np.array([portion.tuples for portion in share.kept], np.float64)
    kept = set(share.kept)
    left = np.array([portion.tuples for portion in share.offered if portion not in kept], np.float64)
    drawn, reach = np.array(share.drawn, np.int64), row_range(one, of, known.ranges)
    for key in held.groups:

        def part(name: str, key: tuple[Any, ...] = key) -> np.ndarray:
            return held.by_portion(key, f"{PART}{name}{at}", len(here))

        value = "n" if one.kind == "count" else "s"
        seen = Clusters(here, part(value), part("n"))
        if known.loss is None:
            read, off, rows = seen, part("o"), None
        else:
            weighted = f"{PART}wn{at}" in held.columns
            by = "w" if weighted else ""
            read = Clusters(here * known.produced_per_row, part(by + value), part(by + "n"))
            off, rows = part(by + "o"), _sampled_rows(part, one, seen, float(left.sum()), known.loss)
        sample = WindowSample(read, left * known.produced_per_row, drawn, reach, known.assume_alike, rows)
        scale = WindowSample.mean if one.kind == "avg" else WindowSample.total
        made = widen_estimate(scale, sample, off, part("o"))
        why = (sample.certain_bounds_reason if len(left) else None) or sample.no_interval_reason or RARE
        if made is None:
            yield None, None if not len(left) and rows is None else why
        elif part("u").any():
            yield replace(made, low=None, high=None), UNBOUNDED
        else:
            yield made, None if made.low is not None else why


def _sampled_rows(
    part: Callable[[str], np.ndarray], one: Measure, seen: Clusters, left: float, loss: InputLoss
) -> SampledRows:
    """Return the estimate of the dropped rows of a group, from its partial aggregates."""
    counted = float(part("vn").sum())
    squares, cross = (counted, counted) if one.kind == "count" else (part("vs").sum(), part("vc").sum())
    return SampledRows(
        seen,
        float(squares),
        float(cross),
        counted,
        loss.dropped_least,
        loss.dropped_most,
        loss.unsampled_least,
        loss.unsampled_most,
        loss.largest_weight,
        left,
        loss.recovered_rows if left else 0.0,
        float(part("vo").sum()),
    )


def _as_named(rows: pa.Table, name: str) -> str:
    return next(one for one in rows.column_names if one.lower() == name.lower())
