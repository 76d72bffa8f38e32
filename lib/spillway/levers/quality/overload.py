"""Predict what a query costs, and detect an overload (Fiscato 2012, 5.2 to 5.4).

The paper's tuple cost model, `TupleCost` (`cost_model: mean`), has one cost for all queries of a node:

    C_T = t / n                           n tuples were processed in t seconds          (5.2)
    N_keep = delta / mean of the last C_T                                               (5.3)
    N_discard = buffer - N_keep, where that is above 0                                  (5.1)

The default, `fit_costs` (`cost_model: affine`), has a fixed cost in addition to the cost per tuple, for each query:

    t = F + m n

On Spark, F is seconds, and t / n grows without limit as less is kept. The fit is robust: m is the weighted median of
the slopes between pairs of measurements (Theil 1950, Sen 1968), F the weighted median of t - m n, both at least 0. It
forgets: a measurement weighs half of one that is `HALF_LIFE` windows younger. So neither one slow answer (a cold start)
nor a slow hour that has passed decides what a query costs.

A single large batch is no overload: the offered load is smoothed, and a node that is overloaded stays so until the
smoothed load has fallen below `calm` of its capacity (hysteresis).

>>> cost = TupleCost(last=3).after(0.3, 5000)
>>> cost.keeps(0.25), cost.discards(10_000, 0.25)
(4166, 5834)
>>> for seconds, tuples in [(0.25, 5000), (0.26, 3900), (0.4, 5000)]:
...     cost = cost.after(seconds, tuples)
...     print(cost.keeps(0.25))
4545
4245
3813
>>> measured = Measurements(np.array([100, 300, 200, 100]), np.array([8.0, 0.05, 0.04, 0.03]), np.arange(4)[::-1])
>>> fixed, per_tuple = fit_costs([measured])
>>> fixed.round(6).tolist(), per_tuple.round(6).tolist()
([0.02], [0.0001])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from spillway.errors import Refused

HALF_LIFE = 8.0
"""The number of windows after which a measurement has half its weight."""
FEW_MEASUREMENTS = 3
"""With fewer measurements, a single slow one can decide the fit."""


@dataclass(frozen=True)
class Measurements:
    """Measured answers of one query; one element per answer."""

    tuples: np.ndarray
    """Tuples that were read, above 0."""
    seconds: np.ndarray
    age: np.ndarray
    """The age: the number of later windows of the query, answered or not."""

    def __len__(self) -> int:
        return len(self.tuples)


def fit_costs(queries: Sequence[Measurements]) -> tuple[np.ndarray, np.ndarray]:
    """Return the fixed cost F and the cost per tuple m of each query, from at least one measurement each."""
    ends = np.cumsum([0, *(len(one) for one in queries)])
    fixed, per_tuple = np.zeros(len(queries)), np.zeros(len(queries))
    if len(queries):
        tuples, seconds, age = (
            np.concatenate([getattr(one, name) for one in queries]).astype(np.float64)
            for name in ("tuples", "seconds", "age")
        )
        _fit_all(tuples, seconds, age, ends, fixed, per_tuple)
    return fixed, per_tuple


@njit(cache=True)
def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """Return the smallest value that half of the weight does not exceed."""
    half = weights.sum() / 2.0
    order = np.argsort(values)
    reached = 0.0
    for at in order:
        reached += weights[at]
        if reached >= half:
            return float(values[at])
    return float(values[order[-1]])


@njit(cache=True)
def _fit(tuples: np.ndarray, seconds: np.ndarray, age: np.ndarray) -> tuple[float, float]:
    count = len(tuples)
    weights = np.maximum(0.5 ** ((age - age.min()) / HALF_LIFE), 1e-12)
    slopes, of_pairs = np.empty(count * (count - 1) // 2), np.empty(count * (count - 1) // 2)
    pairs = 0
    for i in range(count):
        for j in range(i):
            apart = tuples[i] - tuples[j]
            if apart != 0.0:
                slopes[pairs] = (seconds[i] - seconds[j]) / apart
                of_pairs[pairs] = weights[i] * weights[j] * abs(apart)
                pairs += 1
    if pairs:
        slope = max(0.0, _weighted_median(slopes[:pairs], of_pairs[:pairs]))
        fixed = _weighted_median(seconds - slope * tuples, weights)
        if fixed >= 0.0:
            return fixed, slope
        # F would be negative: all cost is per tuple
        return 0.0, _weighted_median(seconds / tuples, weights)
    # answers of one size cannot separate F from m n: half each, so that a try costs less than twice the capacity
    whole = _weighted_median(seconds, weights)
    return whole / 2.0, whole / 2.0 / tuples[0]


@njit(cache=True)
def _fit_all(
    tuples: np.ndarray,
    seconds: np.ndarray,
    age: np.ndarray,
    ends: np.ndarray,
    fixed: np.ndarray,
    per_tuple: np.ndarray,
) -> None:
    for at in range(len(fixed)):
        mine = slice(ends[at], ends[at + 1])
        fixed[at], per_tuple[at] = _fit(tuples[mine], seconds[mine], age[mine])


@dataclass(frozen=True)
class TupleCost:
    """The paper's cost of a tuple (eq. 5.2), as the mean of the last few measurements."""

    last: int = 10
    seconds: tuple[float, ...] = ()

    def after(self, seconds: float, tuples: int) -> TupleCost:
        """Add a measurement; an interval without tuples is ignored."""
        if tuples <= 0 or seconds <= 0:
            return self
        return replace(self, seconds=(*self.seconds, seconds / tuples)[-self.last :])

    @property
    def known(self) -> bool:
        return bool(self.seconds)

    @property
    def seconds_per_tuple(self) -> float:
        """The smoothed C_T; 0 before anything was measured."""
        return sum(self.seconds) / len(self.seconds) if self.seconds else 0.0

    def keeps(self, interval_seconds: float) -> int:
        """Return N_keep: how many tuples fit into an interval (eq. 5.3)."""
        if interval_seconds <= 0:
            raise Refused("interval_seconds", "be above 0", interval_seconds, "say how long an interval is")
        if not self.seconds:
            return 2**62
        # what fits exactly fits, whatever the last digit of a quotient says
        return math.floor(interval_seconds / self.seconds_per_tuple * (1 + 1e-12))

    def discards(self, buffer: int, interval_seconds: float) -> int:
        """Return N_discard of a buffer (eq. 5.1)."""
        return max(0, buffer - self.keeps(interval_seconds))


@dataclass(frozen=True)
class Overload:
    """Whether more is offered than can be done, for good and not for a moment."""

    last: int = 4
    calm: float = 0.9
    offered: tuple[float, ...] = ()
    on: bool = False

    def after(self, offered: float, can: float) -> Overload:
        """Add the load of one more interval, and the capacity it had.

        >>> spike = Overload(last=4)
        >>> [(spike := spike.after(load, can=100)).on for load in (50, 50, 50, 220, 50)]
        [False, False, False, False, False]
        >>> lasting = Overload(last=2)
        >>> [(lasting := lasting.after(load, can=100)).on for load in (50, 200, 200, 96, 92, 50)]
        [False, True, True, True, True, False]
        """
        seen = (*self.offered, offered)[-self.last :]
        smoothed = sum(seen) / len(seen)
        return replace(self, offered=seen, on=smoothed > (self.calm if self.on else 1.0) * can)
