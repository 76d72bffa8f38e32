"""How many pairs were missed, with an interval, from the rows that were compared with everything.

A row of the sample knows how many pairs selecting would have missed of it (d) and how many it has in all (m). Of the
rows that were not sampled, those that were compared selectively miss d on average, those that fell out of the buffer m:

    missed = L' sum(d) / L + W'' sum(m) / W

with L the pairs that selecting can leave out of the sample's at most, L' those of the others; W all that rows of the
sample can have, W'' those of the rows that were passed over. (Where windows fill, rates change, or a burst comes, rows
of different windows leave out differently much: what can be left out is what tells of another.)

The interval is for what was missed in this window, not for its expectation. Counts of pairs are lumpy (a popular item
makes many at a time), so it is Garwood's interval of a Poisson mean on counts divided by their dispersion
phi = variance / mean, of which few rows know little: two rows more count as if they had the variance of a geometric
count, mean + mean^2. Chi-square quantiles are Wilson and Hilferty's, widened as Student's t is for few rows. A
tight budget samples a row or two a window: where there are fewer than `ENOUGH_ROWS`, those of windows before, faded,
count with them, and the interval holds that of the window's own rows besides: it begins at nothing where these saw
nothing missed, and ends, where they are fewer than three, at what all rows can have by their items (`most_pairs`),
which it never passes. So matches that come in a burst, or of one row in hundreds, lie within it; it is wide then.

What rows can have says also how much more others may miss than those of the sample: comparisons left out are counted
as the pairs that they can be (L, L'; W, W''), and the ends allow for rows that all miss alike as well.

Of equal values nothing is estimated: their pairs are counted. The paper has no such estimate; what these intervals
cover, of steady streams and others, is measured in the evidence.

>>> estimate(ComparedRows(rows=50, misses=5, squares=5), Unsampled(selective=450), dispersion=1.0)
Missed(estimate=45.0, low=12.3..., high=110.0...)
>>> estimate(ComparedRows(rows=50, misses=0, squares=0), Unsampled(selective=450), dispersion=1.0).low
0.0
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from statistics import NormalDist

_CONFIDENCE = 0.95
_GUESSED_ROWS = 2
_LEAST_ROWS = 3.0
ENOUGH_ROWS = 30.0


@dataclass(frozen=True)
class ComparedRows:
    """Rows of the sample of one side: how many, their d and m summed, squared and summed."""

    rows: float = 0.0
    misses: float = 0.0
    squares: float = 0.0
    pairs: float = 0.0
    pair_squares: float = 0.0
    left_out: float = 0.0
    """Pairs that selecting can leave out of theirs; where it is not told, rows stand for them."""
    whole: float = 0.0
    """All that they can have."""

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
    left_out: float = 0.0
    """Pairs that can be left out of those of the former."""
    whole: float = 0.0
    """All that the latter can have."""


@dataclass(frozen=True)
class Missed:
    """Pairs that were missed, and between what and what they lie with 95 % confidence."""

    estimate: float
    low: float
    high: float

    def unless(self, own: ComparedRows, others: Unsampled, phi: float) -> Missed:
        """This, of rows of other windows too, as wide as the window's own few rows make it: they may be others now.

        What its own rows have not seen is not taken to be there; where they are fewer than three, nor to be absent.
        """
        mine = estimate(own, others, phi)
        return Missed(self.estimate, min(self.low, mine.low), max(self.high, mine.high))

    def at_most(self, can: float) -> Missed:
        """This, where no more than so many can be missed."""
        return Missed(min(self.estimate, can), min(self.low, can), min(self.high, can))

    def beside(self, other: Missed) -> Missed:
        """Of both sides of a window: what takes one by surprise takes the other, so ends add up."""
        return Missed(self.estimate + other.estimate, self.low + other.low, self.high + other.high)

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
    if sample.rows <= 0 or sample.misses <= 0:
        return 1.0
    mean = sample.misses / sample.rows
    squared = max(0.0, sample.squares - sample.rows * mean * mean)
    guess = mean + mean * mean
    variance = (squared + _GUESSED_ROWS * guess) / max(1.0, sample.rows - 1 + _GUESSED_ROWS)
    return max(1.0, variance / mean)


def estimate(
    sample: ComparedRows, unsampled: Unsampled, dispersion: float, confidence: float = _CONFIDENCE
) -> Missed:
    """What was missed of one side."""
    if unsampled.selective + unsampled.dropped <= 0:
        return Missed(0.0, 0.0, 0.0)
    if sample.rows < _LEAST_ROWS:
        guess = sample.misses / sample.rows * unsampled.selective if sample.rows > 0 else 0.0
        return Missed(guess, 0.0, math.inf)
    alike = unsampled.left_out / sample.left_out if sample.left_out > 0 else None
    d = _scaled(sample.rows, sample.misses, unsampled.selective, dispersion, confidence, alike)
    alike = unsampled.whole / sample.whole if sample.whole > 0 else None
    m = _scaled(sample.rows, sample.pairs, unsampled.dropped, dispersion, confidence, alike)
    # both rest on the same rows: their widths add up
    return Missed(d.estimate + m.estimate, d.low + m.low, d.high + m.high)


def _scaled(
    rows: float, events: float, others: float, phi: float, confidence: float, factor: float | None = None
) -> Missed:
    if others <= 0:
        return Missed(0.0, 0.0, 0.0)
    factor = others / rows if factor is None else factor
    if factor == 0:  # of none of them anything can be left out
        return Missed(0.0, 0.0, 0.0)
    deviations = _student(NormalDist().inv_cdf((1 + confidence) / 2), rows - 1)
    low, high = (
        _half_chi_square(-deviations, events / phi) * phi * factor,
        _half_chi_square(deviations, events / phi + 1) * phi * factor,
    )
    middle = events * factor
    # rows may miss as they can, or all alike
    low *= min(factor, others / rows) / factor
    high *= max(factor, others / rows) / factor
    # what was not sampled varies too, not only what was
    wider = math.sqrt((others + rows) / others)
    return Missed(middle, max(0.0, middle - (middle - low) * wider), middle + (high - middle) * wider)


def _half_chi_square(deviations: float, events: float) -> float:
    """Half of chi square with 2 * events degrees of freedom, so many deviations from its middle."""
    if events <= 0:
        return 0.0
    freedom = 2 * events
    part = 2 / (9 * freedom)
    return freedom / 2 * max(0.0, 1 - part + deviations * math.sqrt(part)) ** 3


def _student(normal: float, freedom: float) -> float:
    """The quantile of Student's t where that of the normal is `normal`."""
    z, n = normal, max(1.0, freedom)
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n * n)
