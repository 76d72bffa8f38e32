"""How many pairs were missed, with an interval, from the comparisons that chance drew.

Every comparison that is neither selected nor looked at was drawn with the same probability q, independently
(`drawing`). So of the M pairs that are in none of these, those that were drawn are

    F ~ Binomial(M, q),    estimate F / q,    missed = M - F

whatever the streams are like: in a burst, of one heavy row in hundreds, of a kind that was never there before. Nothing
is assumed of them, and windows are independent of one another given the streams. The interval is Clopper and Pearson's,
for M: every M that would not have made F too rare on either side (2.5 % each), in closed form by chi-square quantiles
(Garwood's Poisson interval, by Wilson and Hilferty), drawn in by sqrt(1 - q) since what was found is not missed. M is
whole, so the ends are too, outwards: within a pair of them, where nearly everything is drawn, the closed form is rough.

Both windows of a join are drawn from with one q, so their finds add up before the interval is made. Windows that follow
have their own q each: of their sum, T = sum F_i / q_i with v = sum F_i / q_i^2, it is Fay and Feuer's for weighted
counts, which for one q is the same as above,

    T between  gamma(T^2 / v) v / T   and   gamma((T + w)^2 / (v + w^2)) (v + w^2) / (T + w),    w = max 1 / q_i

Rows may be lost before the join reads them (sifters). A kept row has the weight w = 1/p. So a pair represents w_l w_r
pairs of the produced rows, times 1/q if it was drawn at random (Horvitz and Thompson, 1952):

    T = sum v w_l w_r over the pairs at hand,    S_l = sum v w_r over those of row l,    S_r likewise
    V = sum_l w_l (w_l - 1) S_l^2 + sum_r w_r (w_r - 1) S_r^2 - sum w_l w_r (w_l - 1) (w_r - 1)

V is an unbiased estimate of the variance of T if rows are kept independently. Sifters keep a fixed number of rows of
each region, which varies less, so V is not too small. The interval is that of Fay and Feuer (1997) for weighted counts,
with V in the place of v. The heaviest possible event, which may be unseen, is a row of the largest weight with the
largest number of partners. So the upper end holds even if a few heavy rows have most of the pairs.

Of equal values nothing is estimated: their pairs are counted (`equals`). The paper has no such estimate; what these
intervals cover is measured in the evidence.

>>> missed_of(found=10, chance=0.1)
Missed(estimate=90.0, low=40.0, high=170.0)
>>> missed_of(found=0, chance=0.01)
Missed(estimate=0.0, low=0.0, high=365.0)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Missed:
    """Pairs that were missed, and between what and what they lie with 95 % confidence."""

    estimate: float
    low: float
    high: float

    def at_most(self, can: float) -> Missed:
        """This, where no more than so many can be missed."""
        return Missed(min(self.estimate, can), min(self.low, can), min(self.high, can))

    def __add__(self, other: Missed) -> Missed:
        """Of two samples that know nothing of one another: half-widths add up as squares."""
        middle = self.estimate + other.estimate
        below = math.hypot(self.estimate - self.low, other.estimate - other.low)
        above = math.hypot(self.high - self.estimate, other.high - other.estimate)
        return Missed(middle, max(0.0, middle - below), middle + above)


def missed_of(found: int, chance: float) -> Missed:
    """What was missed, where chance alone found so many pairs."""
    if chance >= 1:
        return Missed(0.0, 0.0, 0.0)
    if chance <= 0:
        return Missed(0.0, 0.0, math.inf)
    return missed_together([(found, chance)])


def missed_together(samples: Sequence[tuple[float, float]]) -> Missed:
    """What some windows missed, where chance alone found so many pairs of each with its q: samples of (found, q)."""
    found, total = sum(many for many, _ in samples), sum(many / chance for many, chance in samples)
    low, high = pairs_there(samples)
    return Missed(total - found, low - found, high - found)


def weighted_pairs(
    total: float, variance: float, heaviest: float, confidence: float = _CONFIDENCE
) -> tuple[float, float]:
    """Return the ends of the interval of a weighted count (Fay and Feuer, 1997).

    `heaviest`: the largest number of pairs that one more event can represent; 0: nothing is missing, the count is
    exact.

    >>> weighted_pairs(100.0, 100.0, 1.0) == tuple(float(end) for end in (81, 122))
    True
    >>> weighted_pairs(7.0, 0.0, 0.0)
    (7.0, 7.0)
    """
    if heaviest <= 0:
        return total, total
    deviations = NormalDist().inv_cdf((1 + confidence) / 2)
    low = total
    if variance > 0:
        low = _half_chi_square(-deviations, total**2 / variance) * variance / total
    more = total + heaviest, variance + heaviest**2
    high = _half_chi_square(deviations, more[0] ** 2 / more[1]) * more[1] / more[0]
    return float(math.floor(low)), float(math.ceil(high))


def pairs_there(
    samples: Sequence[tuple[float, float]], confidence: float = _CONFIDENCE
) -> tuple[float, float]:
    """Between what and what the sum of all M lies, of which Binomial(M, q) were found: samples of (found, q)."""
    deviations = NormalDist().inv_cdf((1 + confidence) / 2)
    found = sum(many for many, _ in samples)
    total = sum(many / chance for many, chance in samples)
    squares = sum(many / chance**2 for many, chance in samples)
    heaviest = max(1 / chance for _, chance in samples)
    low = 0.0 if found == 0 else _half_chi_square(-deviations, total**2 / squares) * squares / total
    more = total + heaviest, squares + heaviest**2
    high = _half_chi_square(deviations, more[0] ** 2 / more[1]) * more[1] / more[0]
    # what was found is not missed: the variance is (1 - q) of what it would be of a rare event
    unseen = sum((many + 1) * (1 - chance) / chance**2 for many, chance in samples)
    drawn_in = math.sqrt(unseen / sum((many + 1) / chance**2 for many, chance in samples))
    low, high = total - (total - low) * drawn_in, total + (high - total) * drawn_in
    return max(float(found), float(math.floor(low))), float(math.ceil(high))


def _half_chi_square(deviations: float, events: float) -> float:
    """Half of chi square with 2 * events degrees of freedom, so many deviations from its middle."""
    if events <= 0:
        return 0.0
    freedom = 2 * events
    part = 2 / (9 * freedom)
    return freedom / 2 * max(0.0, 1 - part + deviations * math.sqrt(part)) ** 3
