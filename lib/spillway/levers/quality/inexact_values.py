"""What values that an earlier lever shed or rounded do to the interval of a COUNT, SUM or AVG of them.

A value v that was given back within b per cent of the truth stands for one within

    |v - truth| <= o(v) = |v| b / (100 - b)        (b < 100; zero stands for zero alone)

so that what a batch really adds up to lies between y_i - o_i and y_i + o_i, o_i the sum of o over it. An interval then
reaches from the low end of that of the least (all y_i - o_i) to the high end of that of the most (all y_i + o_i): it
holds the truth wherever the one of exact values would. There is none where this cannot be said: where a value is lost
or bounded by nothing, where an inexact one is reckoned with before it is added up, or where it decides which rows are
counted, or in which group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from spillway.contracts.column_names import BOUND_SUFFIX
from spillway.levers.quality.intervals import Clusters, Estimate, PartlyRead  # noqa: F401 - Clusters in the example
from spillway.levers.quality.sql_text import Measure, PlainAggregate, names_in


def doubtful(of: PlainAggregate, inexact: frozenset[str]) -> frozenset[str]:
    """Of the inexact attributes, those that say which rows are counted, or in which group."""
    return names_in(" ".join([of.where or "", *of.keys])) & inexact


def concerned(of: PlainAggregate, inexact: frozenset[str]) -> frozenset[str]:
    """Of the inexact attributes (in lower case), those that its answer depends on."""
    return doubtful(of, inexact) | (names_in(" ".join(one.of or "" for one in of.measures)) & inexact)


def any_inexact(names: frozenset[str]) -> str:
    """An expression: how many rows have a value of these that was shed or rounded.

    >>> any_inexact(frozenset({"temp"}))
    'count(CASE WHEN temp__bound_pct IS NOT NULL THEN 1 END)'
    """
    either = " OR ".join(f"{name}{BOUND_SUFFIX} IS NOT NULL" for name in sorted(names))
    return f"count(CASE WHEN {either} THEN 1 END)"


@dataclass(frozen=True)
class OffAndUnknown:
    """Expressions for the possible error of a measure's values, and for the number of unknown values."""

    off: str
    """For the sum of all values."""
    unknown: str
    each: str | None = None
    """For one value; None: values that are added up are exact or unknown."""


def off_and_unknown(one: Measure, inexact: frozenset[str]) -> OffAndUnknown | None:
    """Return expressions for the possible error of a measure's values; None: they are exact.

    >>> off_and_unknown(Measure("m", "avg", "wind"), frozenset({"temp"})) is None
    True
    >>> off_and_unknown(Measure("m", "avg", "temp + 1"), frozenset({"temp"})).unknown
    'count(CASE WHEN temp__bound_pct IS NOT NULL THEN 1 END)'
    """
    names = names_in(one.of or "") & inexact
    if not names or one.of is None:
        return None
    if one.of.lower() not in inexact:
        return OffAndUnknown("0.0", any_inexact(names))
    value, bound = one.of, one.of + BOUND_SUFFIX
    if one.kind == "count":
        return OffAndUnknown("0.0", f"count(CASE WHEN {value} IS NULL AND {bound} >= 100 THEN 1 END)")
    each = f"CASE WHEN {bound} < 100 THEN abs({value}) * {bound} / (100 - {bound}) END"
    unknown = f"count(CASE WHEN {bound} >= 100 AND ({value} IS NULL OR {value} <> 0) THEN 1 END)"
    return OffAndUnknown(f"sum({each})", unknown, each)


def widened(
    scale: Callable[[PartlyRead], Estimate | None],
    sample: PartlyRead,
    off: np.ndarray,
    seen_off: np.ndarray | None = None,
) -> Estimate | None:
    """Return the estimate with an interval over all possible true values.

    Where rows have weights, `off` is weighted, and `seen_off` counts every row once.

    >>> read = Clusters(np.ones(2), np.array([4.0, 6.0]), np.ones(2))
    >>> widened(PartlyRead.mean, PartlyRead(read, np.zeros(0)), np.array([0.5, 0.5]))
    Estimate(value=5.0, low=4.5, high=5.5)
    """
    found = scale(sample)
    if found is None or not off.any():
        return found
    least, most = (scale(_moved(sample, sign * off, sign, seen_off)) for sign in (-1, 1))
    assert least is not None
    assert most is not None
    if least.low is None or most.high is None:
        return replace(found, low=None, high=None)
    return replace(found, low=min(least.low, found.value), high=max(most.high, found.value))


def _moved(sample: PartlyRead, off: np.ndarray, sign: int, seen_off: np.ndarray | None) -> PartlyRead:
    """Return the sample with values shifted by `off`, batch by batch."""
    rows = sample.rows
    if rows is not None and seen_off is not None:
        rows = replace(rows, seen=replace(rows.seen, total=rows.seen.total + sign * seen_off))
    return replace(sample, read=replace(sample.read, total=sample.read.total + off), rows=rows)
