"""Distribution-free confidence intervals for order statistics of independent rows, and the noise model behind them.

A sketch of d rows answers with the median (or minimum) of d independent residues. Each residue is the true value plus
noise. The counters that a key does not touch show the distribution of this noise (Deng 2007, 4.2.1). So quantiles of
the noise give the interval. With the tail p = Pr[noise > t] in one row:

    Pr[median of d > t] = sum_{j >= ceil(d/2)} C(d,j) p^j (1-p)^(d-j),     Pr[minimum of d > t] = p^d.

Deng 2007 has only the variances. These intervals are our own, and the evidence measures their coverage.

`Noise` computes the distribution of the j-th least of d rows. A counter that a key does not touch is a sample of the
noise in the counters that the key touches (4.2.1). Sort the n pooled counters. The j-th least of d independent samples
is at most the i-th counter with probability

    B_j(i/n) = sum_{m >= j} C(d,m) (i/n)^m (1 - i/n)^(d-m).

So the distribution of every order statistic of the rows is known. Its median is the correction to subtract, its
quantiles give the interval, and its mean absolute deviation is the expected error. CM is j = 1 without correction. CMM
is the middle order with the mean or the median as the correction. `cmm_order`, which is our own, uses the order with
the least deviation. If few keys are heavy, the noise is skewed, and corrected low orders have a much smaller error than
both the minimum and the median.

>>> noise = Noise(np.array([0.0, 0.0, 0.0, 8.0]), depth=3)
>>> noise.quantile(2, 0.5), noise.sharpest()
(0.0, 1)
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from spillway.errors import InvalidValue
from spillway.sketches.types import Floats


def check_confidence(confidence: Any) -> float:
    """Return the confidence as a float; raise `InvalidValue` if it is not between 0 and 1.

    >>> check_confidence("high")
    Traceback (most recent call last):
        ...
    spillway.errors.InvalidValue: `confidence` must lie between 0 and 1, got 'high'; write 0.95 for 95 %
    """
    number = isinstance(confidence, int | float | Decimal) and not isinstance(confidence, bool)
    if not (number and 0.0 < confidence < 1.0):
        raise InvalidValue("confidence", "lie between 0 and 1", confidence, "write 0.95 for 95 %")
    return float(confidence)


def normal_quantile(confidence: float) -> float:
    """Return the two-sided quantile: the number of standard deviations that contain `confidence` of a normal variable.

    >>> round(normal_quantile(0.95), 2)
    1.96
    """
    return NormalDist().inv_cdf(0.5 + check_confidence(confidence) / 2)


@cache
def median_row_tail(depth: int, tail: float) -> float:
    """Return the tail p of one row at which the median of `depth` rows has the tail `tail`.

    The median of an even number of rows is the mean of the middle two. It exceeds t only if at least depth/2 rows do.

    >>> [round(median_row_tail(depth, 0.025), 3) for depth in (1, 2, 4, 5)]
    [0.025, 0.013, 0.068, 0.147]
    """
    needed = (depth + 1) // 2
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        total = sum(
            math.comb(depth, j) * middle**j * (1 - middle) ** (depth - j) for j in range(needed, depth + 1)
        )
        low, high = (middle, high) if total < tail else (low, middle)
    return low


@cache
def median_deviation(depth: int) -> float:
    """Return the standard deviation of the median of `depth` standard normal rows; an even depth counts as one less.

    >>> [round(median_deviation(d) ** 2, 3) for d in (1, 3, 5, 7)]
    [1.0, 0.449, 0.287, 0.21]
    """
    half = (depth - 1) // 2
    x = np.linspace(-8.0, 8.0, 4001)
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in x])
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    weight = (
        math.factorial(2 * half + 1) / math.factorial(half) ** 2 * (below * (1 - below)) ** half * density
    )
    return math.sqrt(float(np.sum(x * x * weight) * (x[1] - x[0])))


_SAMPLE = 1 << 16


class Noise:
    """The pooled noise of a table of `depth` (d) rows."""

    def __init__(self, values: Floats, depth: int) -> None:
        # an evenly spaced sample of a large table has nearly the same distribution
        step = max(values.size // _SAMPLE, 1)
        self.values: Floats = np.sort(values.ravel()[::step])
        self.depth = depth
        self._cumulative: dict[int, Floats] = {}

    def cumulative(self, order: int) -> Floats:
        """Return B_order at each of the sorted values."""
        if order not in self._cumulative:
            x = np.arange(1, self.values.size + 1) / self.values.size
            total = np.zeros(x.size)
            for m in range(order, self.depth + 1):
                total += math.comb(self.depth, m) * x**m * (1.0 - x) ** (self.depth - m)
            self._cumulative[order] = total
        return self._cumulative[order]

    def quantile(self, order: int, share: float) -> float:
        """Return the `share`-quantile of the order-th least of d samples."""
        at = int(np.searchsorted(self.cumulative(order), share))
        return float(self.values[min(at, self.values.size - 1)])

    def deviation(self, order: int) -> float:
        """Return the mean absolute deviation of the order-th least of d samples from its median."""
        weights = np.diff(self.cumulative(order), prepend=0.0)
        return float((weights * np.abs(self.values - self.quantile(order, 0.5))).sum())

    def sharpest(self) -> int:
        """Return the order with the least deviation; of equal ones the lowest."""
        deviations = [self.deviation(order) for order in range(1, self.depth + 1)]
        return 1 + int(np.argmin(np.array(deviations)))
