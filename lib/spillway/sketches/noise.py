"""The noise a table shows in its own counters, and what it makes of the least, the median, the j-th least of d rows.

A counter that a key does not touch is a draw of the noise in those it does (4.2.1). With the n pooled counters sorted,
the j-th least of d independent draws is at most the i-th with probability

    B_j(i/n) = sum_{m >= j} C(d,m) (i/n)^m (1 - i/n)^(d-m),

so that every order statistic of the rows has a known distribution: its median is what to subtract, its quantiles are
the interval, its mean absolute deviation is the error to expect. CM is j = 1 with nothing subtracted, CMM the middle
with the mean or median subtracted. The order that deviates least is ours (`cmm_order`): where few keys are heavy the
noise leans to one side, and low orders, corrected, are far sharper than both the minimum and the median.

>>> noise = Noise(np.array([0.0, 0.0, 0.0, 8.0]), depth=3)
>>> noise.quantile(2, 0.5), noise.sharpest()
(0.0, 1)
"""

from __future__ import annotations

import math

import numpy as np

from spillway.sketches.types import Floats

_SAMPLE = 1 << 16


class Noise:
    """The pooled noise of a table of `depth` (d) rows."""

    def __init__(self, values: Floats, depth: int) -> None:
        # an evenly spaced part of a large table tells its distribution as well
        step = max(values.size // _SAMPLE, 1)
        self.values: Floats = np.sort(values.ravel()[::step])
        self.depth = depth
        self._cumulative: dict[int, Floats] = {}

    def cumulative(self, order: int) -> Floats:
        """B_order at each of the sorted values."""
        if order not in self._cumulative:
            x = np.arange(1, self.values.size + 1) / self.values.size
            total = np.zeros(x.size)
            for m in range(order, self.depth + 1):
                total += math.comb(self.depth, m) * x**m * (1.0 - x) ** (self.depth - m)
            self._cumulative[order] = total
        return self._cumulative[order]

    def quantile(self, order: int, share: float) -> float:
        """The least value that the order-th least of d draws is at most with probability `share`."""
        at = int(np.searchsorted(self.cumulative(order), share))
        return float(self.values[min(at, self.values.size - 1)])

    def deviation(self, order: int) -> float:
        """How far the order-th least of d draws lies from its median, on average."""
        weights = np.diff(self.cumulative(order), prepend=0.0)
        return float((weights * np.abs(self.values - self.quantile(order, 0.5))).sum())

    def sharpest(self) -> int:
        """The order that deviates least; the lower of equals."""
        deviations = [self.deviation(order) for order in range(1, self.depth + 1)]
        return 1 + int(np.argmin(np.array(deviations)))
