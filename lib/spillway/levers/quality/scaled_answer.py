"""The answer of a plain aggregate of which portions were left out, or values are inexact: made of its portions' parts.

Portions are asked for what their measures are made of (`n`: how many values, `s`: their sum, a line a portion and
group), and nobody reads them twice: the answer is what parts add up to, in the order of its groups. Beside it stands
what it would be over all that arrived (`<name>__estimate`), with an interval (`intervals`: `__low`, `__high`), or
why there is none (`__no_interval`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.levers.quality.inexact_values import off_and_unknown, widened
from spillway.levers.quality.intervals import RARE, UNBOUNDED, Clusters, Estimate, PartlyRead
from spillway.levers.quality.left_out import row_reach
from spillway.levers.quality.room_plan import WindowShare
from spillway.levers.quality.sql_text import Measure, PlainAggregate
from spillway.levers.windows import PORTION

NO_INTERVAL = "__no_interval"
"""Ends the name of the column that says why an estimate has no interval."""
PART = "spillway_"
"""Begins the names of parts, so that none is a column's."""
Ranges = Mapping[str, tuple[float, float]]
"""By column, in lower case, between which values all of it lies."""


def parts_asked(of: PlainAggregate, inexact: frozenset[str]) -> str:
    """For every portion and group, what its measures are made of.

    >>> from spillway.levers.quality.sql_text import plain_aggregate
    >>> parts_asked(plain_aggregate("SELECT avg(x) AS m FROM t WHERE x > 2"), frozenset()).partition(" FROM ")[0]
    'SELECT spillway_portion, count(x) AS spillway_n0, sum(x) AS spillway_s0'
    """
    items = [PORTION, *of.keys]
    for at, one in enumerate(of.measures):
        items.append(f"count({one.of or '*'}) AS {PART}n{at}")
        if one.kind != "count":
            items.append(f"sum({one.of}) AS {PART}s{at}")
        told = off_and_unknown(one, inexact)
        if told is not None:
            items += [f"{told[0]} AS {PART}o{at}", f"{told[1]} AS {PART}u{at}"]
    where = f" WHERE ({of.where})" if of.where else ""
    return f"SELECT {', '.join(items)} FROM {of.source}{where} GROUP BY {', '.join([PORTION, *of.keys])}"


@dataclass(frozen=True)
class _Parts:
    """Of every group, its rows of the parts."""

    keys: tuple[str, ...]
    groups: Mapping[tuple[Any, ...], Sequence[Mapping[str, Any]]]

    @staticmethod
    def of(parts: pa.Table, keys: Sequence[str]) -> _Parts:
        names = tuple(_as_named(parts, name) for name in keys)
        groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for row in sorted(parts.to_pylist(), key=lambda row: row[PORTION]):
            # one value that is no number is as good as another: all are of one group
            key = tuple(math.nan if row[name] != row[name] else row[name] for name in names)
            groups.setdefault(key, []).append(row)
        if not names:
            groups.setdefault((), [])
        # nulls come first, as the engines order them
        ordered = sorted(groups, key=lambda key: [(one is not None, one != one, one) for one in key])
        return _Parts(names, {key: groups[key] for key in ordered})

    def by_portion(self, key: tuple[Any, ...], column: str, portions: int) -> np.ndarray:
        """A part of a group, portion by portion; nothing where there is none."""
        found = np.zeros(portions)
        for row in self.groups[key]:
            found[row[PORTION]] = row.get(column) or 0.0
        return found


def answer_of_parts(of: PlainAggregate, parts: pa.Table) -> pa.Table:
    """The author's answer, of parts that were asked portion by portion.

    >>> from spillway.levers.quality.sql_text import plain_aggregate
    >>> parts = {PORTION: [0, 1, 1], "k": ["b", "b", None], PART + "n0": [2, 1, 1], PART + "s0": [3.0, 6.0, 5.0]}
    >>> answer_of_parts(plain_aggregate("SELECT k, avg(x) AS m FROM t GROUP BY k"), pa.table(parts)).to_pylist()
    [{'k': None, 'm': 5.0}, {'k': 'b', 'm': 3.0}]
    """
    held = _Parts.of(parts, of.keys)
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


def with_exact_bounds(found: pa.Table, of: PlainAggregate) -> pa.Table:
    """An answer to everything, which is its own estimate."""
    names = {name.lower(): name for name in found.column_names}
    for one in (one for one in of.measures if one.name.lower() in names):
        column = names[one.name.lower()]
        exact = found[column].cast(pa.float64())
        for part in ("estimate", "low", "high"):
            found = found.append_column(f"{column}__{part}", exact)
        found = found.append_column(column + NO_INTERVAL, pa.nulls(found.num_rows, pa.string()))
    return found


def with_bounds(
    of: PlainAggregate,
    parts: pa.Table,
    share: WindowShare,
    ranges: Ranges,
    assume_alike: bool = False,
    doubted: bool = False,
) -> pa.Table:
    """The answer that parts add up to, with what it would be over all that arrived.

    `doubted`: which rows are counted, or in which group, is itself inexact: nothing bounds the answer.
    """
    found, held = answer_of_parts(of, parts), _Parts.of(parts, of.keys)
    for at, one in enumerate(of.measures):
        made = [*_estimates(held, of, one, at, share, ranges, assume_alike)]
        if doubted:
            made = [(e and replace(e, low=None, high=None), UNBOUNDED) for e, _ in made]
        for part, name in (("value", "estimate"), ("low", "low"), ("high", "high")):
            values = [None if e is None else getattr(e, part) for e, _ in made]
            found = found.append_column(f"{one.name}__{name}", pa.array(values, pa.float64()))
        found = found.append_column(one.name + NO_INTERVAL, pa.array([why for _, why in made], pa.string()))
    return found


def _estimates(
    held: _Parts,
    of: PlainAggregate,
    one: Measure,
    at: int,
    share: WindowShare,
    ranges: Ranges,
    assume_alike: bool,
) -> Iterator[tuple[Estimate | None, str | None]]:
    """Of every group, and why one has no interval."""
    tuples = np.array([portion.tuples for portion in share.kept], np.float64)
    kept = set(share.kept)
    left = np.array([portion.tuples for portion in share.offered if portion not in kept], np.float64)
    for key in held.groups:
        n, s, off, unknown = (held.by_portion(key, f"{PART}{name}{at}", len(tuples)) for name in "nsou")
        read = Clusters(tuples, n if one.kind == "count" else s, n)
        drawn, reach = np.array(share.drawn, np.int64), row_reach(one, of, ranges)
        sample = PartlyRead(read, left, drawn, reach, assume_alike)
        made = widened(PartlyRead.mean if one.kind == "avg" else PartlyRead.total, sample, off)
        if made is None:
            yield None, None if not len(left) else sample.why or RARE
        elif unknown.any():
            yield replace(made, low=None, high=None), UNBOUNDED
        else:
            yield made, None if made.low is not None else sample.why or RARE


def _as_named(rows: pa.Table, name: str) -> str:
    return next(one for one in rows.column_names if one.lower() == name.lower())
