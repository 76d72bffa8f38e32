"""Rank attributes by information, ascending; the first is shed first (Ahuja 2006, section 3.2.3.2).

`rank_by` is one of

- `stddev`: sigma(A) = sqrt(1/n sum (s_i - mean)^2), the population standard deviation of the smoothed attribute over
  the window, as in the thesis (its examples 7, 5, 1 are population figures);
- `relative`: sigma(A) divided by the mean of |s_i|, so that the unit (inches, millibars) has no effect;
- `recoverability` (ours): measured in training, the transmitted bytes that shedding A saves per byte of synopsis and
  per cent of recovery error. The score is the negative, so that the most recoverable attribute is shed first.

Guarantee: the order depends only on the values and the contract. Ties break by contract order. Every score is a finite
number.

Difference from the thesis, which ranks numbers only: a text attribute scores sqrt(1 - sum p_v^2) with p_v the share of
value v. This is its population standard deviation if every distinct value is a unit vector. So a constant scores 0, and
all-distinct values almost 1. Nulls do not count. An attribute without any value has no information, scores 0 and is
shed first. The key, the order attribute and protected attributes are not in `order`, so they are never ranked.

>>> import numpy as np
>>> window = {"a": np.array([0.0, 6.0, 8.0, 14.0]), "b": np.array([6.0, 6.0, 8.0, 8.0])}
>>> [str(ranked) for ranked in rank(window, ["a", "b"], smoothing=Smoothing(kind="none"))]
['b (1)', 'a (5)']
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from spillway.errors import InvalidValue
from spillway.levers.attributes.option import RANK_BY
from spillway.levers.attributes.ranking.smoothing import Smoothing, Values


@dataclass(frozen=True)
class RankedAttribute:
    """An attribute and its score; a lower score is shed earlier."""

    attribute: str
    score: float

    def __str__(self) -> str:
        return f"{self.attribute} ({self.score:g})"


def needs_data(by: str) -> bool:
    """Return whether a ranking depends on a window's values; `recoverability` was measured in training.

    >>> needs_data("stddev"), needs_data("recoverability")
    (True, False)
    """
    return by != "recoverability"


def rank(
    window: Mapping[str, npt.NDArray[Any]],
    order: Sequence[str],
    by: str = "stddev",
    smoothing: Smoothing | None = None,
    recoverability: Mapping[str, float] | None = None,
) -> tuple[RankedAttribute, ...]:
    """Rank the attributes named in `order` (contract order) over one window, shed first."""
    if by not in RANK_BY:
        raise InvalidValue("rank_by", f"be one of {', '.join(RANK_BY)}", by, "write rank_by: stddev")
    if by == "recoverability":
        missing = [a for a in order if recoverability is None or not _is_number(recoverability.get(a))]
        if recoverability is None or missing:
            raise InvalidValue(
                "recoverability",
                f"be known for every attribute that may be shed, also {', '.join(missing)}",
                None,
                "train the stream or write rank_by: stddev",
            )
        return _sort_ascending(order, [-float(recoverability[a]) + 0.0 for a in order])
    missing = [a for a in order if a not in window]
    if missing:
        raise InvalidValue(
            "window",
            "hold every attribute that may be shed",
            sorted(window),
            f"read {', '.join(missing)} too",
        )
    smoother = smoothing or Smoothing()
    return _sort_ascending(order, [score(window[a], smoother, relative=by == "relative") for a in order])


def score(values: npt.NDArray[Any], smoothing: Smoothing, relative: bool = False) -> float:
    """Return the information of one attribute in one window; 0 if it has no values."""
    if values.dtype.kind in "OUS":
        return text_score(values)
    smoothed = smoothing.smooth(values)
    sigma = population_std(smoothed)
    if not relative or sigma == 0.0:
        return sigma
    # sigma > 0 means that some |value| > 0
    return sigma / _mean_magnitude(smoothed)


def population_std(values: Values) -> float:
    """Return the population standard deviation of the finite values; 0 if there are none.

    >>> import numpy as np
    >>> population_std(np.array([0.0, 0.0, 14.0, np.nan, 14.0]))
    7.0
    """
    return float(_population_std(np.ascontiguousarray(values, dtype=np.float64)))


def text_score(values: npt.NDArray[Any]) -> float:
    """Return sqrt(1 - sum p^2) over the values that are not null.

    >>> import numpy as np
    >>> text_score(np.array(["a", "a", None, "a"], dtype=object)), text_score(np.array(["a", "b"]))
    (0.0, 0.7071067811865476)
    """
    counts: dict[Any, int] = {}
    for value in values.tolist():
        if value is not None:
            counts[value] = counts.get(value, 0) + 1
    total = sum(counts.values())
    if total == 0:
        return 0.0
    return math.sqrt((total * total - sum(n * n for n in counts.values())) / (total * total))


def _sort_ascending(order: Sequence[str], scores: Sequence[float]) -> tuple[RankedAttribute, ...]:
    ranked = [RankedAttribute(attribute, value) for attribute, value in zip(order, scores, strict=True)]
    return tuple(sorted(ranked, key=lambda one: one.score))


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


@njit(cache=True)
def _population_std(values: Values) -> float:
    largest = 0.0
    count = 0
    for value in values:
        if np.isfinite(value):
            count += 1
            largest = max(largest, abs(value))
    if count == 0 or largest == 0.0:
        return 0.0
    # scaling by a power of two does not round, and keeps squares of huge or tiny values in range
    scale = math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest > 1e-300 else 1.0
    first = np.nan
    total = 0.0
    for value in values:
        if np.isfinite(value):
            if np.isnan(first):
                first = value / scale
            # deviations from the first value: a constant then scores exactly 0
            total += value / scale - first
    mean = total / count
    squares = 0.0
    for value in values:
        if np.isfinite(value):
            deviation = (value / scale - first) - mean
            squares += deviation * deviation
    return min(math.sqrt(squares / count) * scale, 1.7976931348623157e308)


@njit(cache=True)
def _mean_magnitude(values: Values) -> float:
    total = 0.0
    count = 0
    for value in values:
        if np.isfinite(value):
            count += 1
            total += (abs(value) - total) / count
    return total
