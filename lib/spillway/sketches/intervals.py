"""Intervals around medians and minima of independent rows, without assuming what the rows look like.

A sketch of d rows answers with the median (or minimum) of d independent residues, each the truth plus noise.
The counters that a key does not touch show the distribution of that noise (4.2.1), so quantiles of the noise
give the interval: with tail p = Pr[noise > t] in one row,

    Pr[median of d > t] = sum_{j >= ceil(d/2)} C(d,j) p^j (1-p)^(d-j),     Pr[minimum of d > t] = p^d.

The text stops at the variances; these intervals are ours and the evidence measures what they cover.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from spillway.errors import Refused


def check_confidence(confidence: Any) -> float:
    """

    >>> check_confidence("high")
    Traceback (most recent call last):
        ...
    spillway.errors.Refused: `confidence` must lie between 0 and 1, got 'high'; write 0.95 for 95 %
    """
    number = isinstance(confidence, int | float | Decimal) and not isinstance(confidence, bool)
    if not (number and 0.0 < confidence < 1.0):
        raise Refused("confidence", "lie between 0 and 1", confidence, "write 0.95 for 95 %")
    return float(confidence)


def normal_quantile(confidence: float) -> float:
    """Two-sided: how many standard deviations hold `confidence` of a normal variable.

    >>> round(normal_quantile(0.95), 2)
    1.96
    """
    return NormalDist().inv_cdf(0.5 + check_confidence(confidence) / 2)


@cache
def median_row_tail(depth: int, tail: float) -> float:
    """The tail p of one row at which the median of `depth` rows has `tail`.

    An even number of rows averages the middle two, which exceeds t only when depth/2 rows do.

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
    """Standard deviation of the median of `depth` standard normal rows; an even count is taken as one less.

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
