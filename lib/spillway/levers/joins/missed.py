"""How many pairs were missed, with an interval, from the rows that were compared with everything.

A row of the sample knows how many pairs selecting would have missed of it (d) and how many it has in all (m). Of the
rows that were not sampled, those that were compared selectively miss d on average, those that fell out of the buffer m:

    missed = N' mean(d) + N'' mean(m)

The interval is for what was missed in this window, not for its expectation. Counts of pairs are lumpy (a popular item
makes many at a time), so it is Garwood's interval of a Poisson mean on counts divided by their dispersion
phi = max(1, variance / mean), which is learned over windows and fades with what else is learned: a sample without a
single miss has no dispersion of its own. Chi-square quantiles are Wilson and Hilferty's.

The paper has no such estimate; what these intervals cover is measured in the evidence.

>>> estimate(ComparedRows(rows=50, misses=5, squares=5), Unsampled(selective=450), dispersion=1.0)
Missed(estimate=45.0, low=12.8..., high=108.2...)
>>> estimate(ComparedRows(rows=50, misses=0, squares=0), Unsampled(selective=450), dispersion=1.0).low
0.0
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from statistics import NormalDist

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class ComparedRows:
    """Rows of the sample of one side: how many, their d and m summed, squared and summed."""

    rows: float = 0.0
    misses: float = 0.0
    squares: float = 0.0
    pairs: float = 0.0
    pair_squares: float = 0.0

    def __add__(self, other: ComparedRows) -> ComparedRows:
        return ComparedRows(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def faded(self, memory: float) -> ComparedRows:
        """What is left of it a window later."""
        return ComparedRows(*(getattr(self, one.name) * memory for one in fields(self)))


@dataclass(frozen=True)
class Unsampled:
    """Rows that were compared selectively, and rows that were not compared at all."""

    selective: float = 0.0
    dropped: float = 0.0


@dataclass(frozen=True)
class Missed:
    """Pairs that were missed, and between what and what they lie with 95 % confidence."""

    estimate: float
    low: float
    high: float

    def __add__(self, other: Missed) -> Missed:
        """Of two independent samples: half-widths add up as squares."""
        middle = self.estimate + other.estimate
        below = math.hypot(self.estimate - self.low, other.estimate - other.low)
        above = math.hypot(self.high - self.estimate, other.high - other.estimate)
        return Missed(middle, max(0.0, middle - below), middle + above)


def dispersion(sample: ComparedRows) -> float:
    """phi = variance / mean of what a row misses, at least 1.

    >>> dispersion(ComparedRows(rows=100, misses=10, squares=50)) > 4
    True
    """
    if sample.rows < 2 or sample.misses <= 0:
        return 1.0
    mean = sample.misses / sample.rows
    variance = (sample.squares - sample.rows * mean * mean) / (sample.rows - 1)
    return max(1.0, variance / mean)


def estimate(
    sample: ComparedRows, unsampled: Unsampled, dispersion: float, confidence: float = _CONFIDENCE
) -> Missed:
    """What was missed of one side."""
    if sample.rows <= 0:
        return Missed(0.0, 0.0, math.inf if unsampled.selective + unsampled.dropped > 0 else 0.0)
    d = _scaled(sample.rows, sample.misses, unsampled.selective, dispersion, confidence)
    m = _scaled(sample.rows, sample.pairs, unsampled.dropped, dispersion, confidence)
    # both rest on the same rows: their widths add up
    return Missed(d.estimate + m.estimate, d.low + m.low, d.high + m.high)


def _scaled(rows: float, events: float, others: float, phi: float, confidence: float) -> Missed:
    if others <= 0:
        return Missed(0.0, 0.0, 0.0)
    factor = others / rows
    tail = (1 - confidence) / 2
    low, high = (
        _half_chi_square(tail, events / phi) * phi * factor,
        _half_chi_square(1 - tail, events / phi + 1) * phi * factor,
    )
    middle = events * factor
    # what was not sampled varies too, not only what was
    wider = math.sqrt((others + rows) / others)
    return Missed(middle, max(0.0, middle - (middle - low) * wider), middle + (high - middle) * wider)


def _half_chi_square(share: float, events: float) -> float:
    """Half the quantile of chi square with 2 * events degrees of freedom."""
    if events <= 0:
        return 0.0
    freedom = 2 * events
    part = 2 / (9 * freedom)
    return freedom / 2 * max(0.0, 1 - part + NormalDist().inv_cdf(share) * math.sqrt(part)) ** 3
