"""Estimates of missed pairs with confidence intervals, and exact counts of pairs of equal values.

**Missed pairs from the sample.** Each remaining comparison (not selected, not examined) is drawn with the same
probability q, independently (`matching`). Let M be the number of pairs among them. Those that are drawn are

    F ~ Binomial(M, q),    estimate F / q,    missed = M - F

whatever the streams are like: bursts, one heavy row in hundreds, types that were never seen before. Nothing is assumed
about the streams, and windows are independent of one another given the streams. The interval is that of Clopper and
Pearson, for M: every M for which F would not be too rare on either side (2.5 % each). It is computed in closed form
from chi-square quantiles (Garwood's Poisson interval, with the approximation of Wilson and Hilferty). It is narrowed by
sqrt(1 - q), since pairs that were found are not missed. M is an integer, so the ends are rounded outwards. If nearly
everything is drawn, the interval is only a pair or two wide and the closed form is rough.

Both windows of a join are sampled with one q, so their finds are added before the interval is computed. Later windows
have their own q. For their sum, T = sum F_i / q_i with v = sum F_i / q_i^2, the interval is that of Fay and Feuer
(1997) for weighted counts, which for a single q equals the above:

    T between  gamma(T^2 / v) v / T   and   gamma((T + w)^2 / (v + w^2)) (v + w^2) / (T + w),    w = max 1 / q_i

**Rows lost before the join** (by sifters). A kept row has the weight w = 1/p. So a pair represents w_l w_r pairs of the
produced rows, times 1/q if it was drawn at random (Horvitz and Thompson, 1952):

    T = sum v w_l w_r over the pairs at hand,    S_l = sum v w_r over those of row l,    S_r likewise
    V = sum_l w_l (w_l - 1) S_l^2 + sum_r w_r (w_r - 1) S_r^2 - sum w_l w_r (w_l - 1) (w_r - 1)

V is an unbiased estimate of the variance of T if rows are kept independently. Sifters keep a fixed number of rows of
each region, which varies less, so V is not too small. The interval is that of Fay and Feuer (1997) for weighted counts,
with V in the place of v. The heaviest possible event, which may be unseen, is a row of the largest weight with the
largest number of partners. So the upper end holds even if a few heavy rows have most of the pairs.

Pairs of equal values are counted, not estimated. Gedik, Wu, Yu and Liu (2007) have no such estimate. The coverage of
these intervals is measured in the evidence.

>>> estimate_missed_pairs(found=10, chance=0.1)
MissedPairs(estimate=90.0, low=40.0, high=170.0)
>>> estimate_missed_pairs(found=0, chance=0.01)
MissedPairs(estimate=0.0, low=0.0, high=365.0)

**Counting pairs of equal values** (`equal_pairs`). No comparison is made. A sweep in the order of time keeps c(v), the
number of rows of the window with value v. A row of value v has exactly c(v) pairs. That costs one pass over the window
(rows enter and leave) and one over the probing rows, where comparing costs the product of both. The same pass builds
chains: from a probing row to the newest row with its value, and from each row to the previous row with the same value.
Sets are compared for equality by a 64-bit hash of their items. The probability that any two different ones of n sets
count as equal is n^2 / 2^65.

**Finding pairs of equal values along chains** (`find_chained_pairs`). It finds what a hash index finds, without
building one (4.2). A pair takes one step, and no list is counted, filled or searched. It serves rows that are compared
with their whole window, without a selection of basic windows. That is the only case that pays if every entry of an
index is a pair. `probe` finds the same pairs with any index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numba import njit

from spillway.levers.joins.matching import SELECTED, FoundPairs, Probing
from spillway.levers.joins.operands import Array, ItemSets, Operand
from spillway.sketches.kernels import mix64

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class MissedPairs:
    """Number of missed pairs: the estimate, and the ends of its 95 % confidence interval."""

    estimate: float
    low: float
    high: float

    def capped_at(self, can: float) -> MissedPairs:
        """Return a copy that is limited to `can`, the largest possible number of missed pairs."""
        return MissedPairs(min(self.estimate, can), min(self.low, can), min(self.high, can))

    def __add__(self, other: MissedPairs) -> MissedPairs:
        """Return the sum of two independent estimates; half-widths add in quadrature."""
        middle = self.estimate + other.estimate
        below = math.hypot(self.estimate - self.low, other.estimate - other.low)
        above = math.hypot(self.high - self.estimate, other.high - other.estimate)
        return MissedPairs(middle, max(0.0, middle - below), middle + above)


def estimate_missed_pairs(found: int, chance: float) -> MissedPairs:
    """Return the missed pairs if a sample with probability `chance` found `found` pairs that nothing else found."""
    if chance >= 1:
        return MissedPairs(0.0, 0.0, 0.0)
    if chance <= 0:
        return MissedPairs(0.0, 0.0, math.inf)
    return estimate_total_missed_pairs([(found, chance)])


def estimate_total_missed_pairs(samples: Sequence[tuple[float, float]]) -> MissedPairs:
    """Return the pairs that several windows missed; `samples`: (found, q) by window."""
    found, total = sum(many for many, _ in samples), sum(many / chance for many, chance in samples)
    low, high = sampled_count_interval(samples)
    return MissedPairs(total - found, low - found, high - found)


def weighted_count_interval(
    total: float, variance: float, heaviest: float, confidence: float = _CONFIDENCE
) -> tuple[float, float]:
    """Return the ends of the interval of a weighted count (Fay and Feuer, 1997).

    `heaviest`: the largest number of pairs that one more event can represent; 0: nothing is missing, the count is
    exact.

    >>> weighted_count_interval(100.0, 100.0, 1.0) == tuple(float(end) for end in (81, 122))
    True
    >>> weighted_count_interval(7.0, 0.0, 0.0)
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


def sampled_count_interval(
    samples: Sequence[tuple[float, float]], confidence: float = _CONFIDENCE
) -> tuple[float, float]:
    """Return the interval of the sum of all M if Binomial(M, q) pairs of each were found; `samples`: (found, q)."""
    deviations = NormalDist().inv_cdf((1 + confidence) / 2)
    found = sum(many for many, _ in samples)
    total = sum(many / chance for many, chance in samples)
    squares = sum(many / chance**2 for many, chance in samples)
    heaviest = max(1 / chance for _, chance in samples)
    low = 0.0 if found == 0 else _half_chi_square(-deviations, total**2 / squares) * squares / total
    more = total + heaviest, squares + heaviest**2
    high = _half_chi_square(deviations, more[0] ** 2 / more[1]) * more[1] / more[0]
    # pairs that were found are not missed: the variance is (1 - q) times that of a rare event
    unseen = sum((many + 1) * (1 - chance) / chance**2 for many, chance in samples)
    drawn_in = math.sqrt(unseen / sum((many + 1) / chance**2 for many, chance in samples))
    low, high = total - (total - low) * drawn_in, total + (high - total) * drawn_in
    return max(float(found), float(math.floor(low))), float(math.ceil(high))


def _half_chi_square(deviations: float, events: float) -> float:
    """Return half of a chi-square quantile with 2 * events degrees of freedom (Wilson and Hilferty).

    `deviations`: the quantile as a number of standard deviations.
    """
    if events <= 0:
        return 0.0
    freedom = 2 * events
    part = 2 / (9 * freedom)
    return freedom / 2 * max(0.0, 1 - part + deviations * math.sqrt(part)) ** 3


_SALT = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Chains:
    """Chains of rows with equal values.

    `equals`: by probing row, the number of rows of its window with its value; `newest`: the newest of them; `previous`:
    by row of the window, the previous row with the same value.
    """

    equals: Array
    newest: Array
    previous: Array

    def cut(self, rows: slice, begin: int, end: int) -> Chains:
        """Return the chains of some probing rows, for a window that consists of the rows `begin..end - 1`."""
        return Chains(self.equals[rows], self.newest[rows] - begin, self.previous[begin:end] - begin)


def equal_pairs(
    probes: Operand, window: Operand, reach: tuple[Array, Array], with_itself: bool = False
) -> Array:
    """Return, by probing row, the number of its pairs with the rows `low..high - 1` of the window."""
    mine, other = _values(probes.sets, window.sets)
    found = chains_of(mine, other, reach).equals
    if with_itself and window.rows:
        found -= _meets_itself(probes, window, mine, other, reach)
    return found


def weighted_sums(
    probes: Operand,
    window: Operand,
    reach: tuple[Array, Array],
    weights: tuple[Array, Array],
    with_itself: bool = False,
) -> tuple[Array, Array]:
    """Return, for each probing row and for each row of the window, the sum of the weights of its partners.

    `weights`: of the probing rows, and of the rows of the window. Rows of equal value are pairs.
    """
    mine, other = (_value_of_row(one) for one in _values(probes.sets, window.sets))
    low, high = reach
    sums = _sums_between(other, weights[1], mine, low, high)
    # row r is within reach of the probing rows from the first with r < high to the last with low <= r
    rows = np.arange(window.rows)
    first, last = np.searchsorted(high, rows, side="right"), np.searchsorted(low, rows, side="right")
    back = _sums_between(mine, weights[0], other, first, np.maximum(first, last))
    if with_itself and window.rows and probes.rows:
        meets = _meets_itself(probes, window, *_values(probes.sets, window.sets), reach) > 0
        order = np.argsort(window.seq, kind="stable")
        place = order[np.minimum(np.searchsorted(window.seq[order], probes.seq), window.rows - 1)]
        sums -= np.where(meets, weights[1][place], 0.0)
        np.subtract.at(back, place[meets], weights[0][meets])
    return sums, back


def heaviest_value_weight(operand: Operand, weights: Array) -> float:
    """Return the largest sum of weights of rows with one value."""
    values = _value_of_row(_values(operand.sets, operand.sets)[0])
    there = values >= 0
    return float(np.bincount(values[there], weights[there]).max()) if there.any() else 0.0


def _value_of_row(sets: ItemSets) -> Array:
    """Return the value of each row; -1: it has none."""
    has = np.diff(sets.first) > 0
    return np.where(has, np.append(sets.items, -1)[np.where(has, sets.first[:-1], -1)], -1)


def _sums_between(values: Array, weights: Array, wanted: Array, low: Array, high: Array) -> Array:
    """Return for each wanted value the sum of weights of the rows `low..high - 1` that have it."""
    rows = len(values) + 1
    keys = values.astype(np.int64) * rows + np.arange(len(values))
    order = np.argsort(keys, kind="stable")
    keys, summed = keys[order], np.concatenate([[0.0], np.cumsum(weights[order])])
    begin, end = (np.searchsorted(keys, wanted.astype(np.int64) * rows + edge) for edge in (low, high))
    found: Array = np.where(wanted >= 0, summed[np.maximum(begin, end)] - summed[begin], 0.0)
    return found


def chains_of(mine: ItemSets, window: ItemSets, reach: tuple[Array, Array]) -> Chains:
    """Return the chains of single values."""
    many = max((int(one.items.max()) + 1 for one in (mine, window) if len(one.items)), default=0)
    return Chains(*_chains(mine.first, mine.items, *reach, window.first, window.items, many))


def _values(mine: ItemSets, other: ItemSets) -> tuple[ItemSets, ItemSets]:
    """Return sets as single values, the same value for equal sets."""
    sizes = [np.diff(one.first) for one in (mine, other)]
    if all((one <= 1).all() for one in sizes):
        return mine, other
    codes = [_code(one.first, one.items)[size > 0] for one, size in zip((mine, other), sizes, strict=True)]
    values = np.unique(np.concatenate(codes), return_inverse=True)[1].astype(np.int64)
    cut = len(codes[0])
    first, second = (
        ItemSets(np.concatenate([[0], np.cumsum(size > 0)]).astype(np.int64), part, np.ones(len(part)))
        for size, part in zip(sizes, (values[:cut], values[cut:]), strict=True)
    )
    return first, second


def _meets_itself(
    probes: Operand, window: Operand, mine: ItemSets, other: ItemSets, reach: tuple[Array, Array]
) -> Array:
    """Return 1 for each row that would be paired with itself, else 0."""
    order = np.argsort(window.seq, kind="stable")
    place = order[np.minimum(np.searchsorted(window.seq[order], probes.seq), window.rows - 1)]
    there = (window.seq[place] == probes.seq) & (place >= reach[0]) & (place < reach[1])
    values = []
    for sets, rows in ((mine, np.arange(probes.rows)), (other, place)):
        has = np.diff(sets.first)[rows] > 0
        values.append(np.where(has, np.append(sets.items, -1)[np.where(has, sets.first[rows], -1)], -1))
    return (there & (values[0] == values[1]) & (values[0] >= 0)).astype(np.int64)


@njit(cache=True)
def _code(first: Array, items: Array) -> Array:
    found = np.zeros(len(first) - 1, np.uint64)
    for k in range(len(first) - 1):
        code = np.uint64(first[k + 1] - first[k])
        for at in range(first[k], first[k + 1]):
            code = mix64(code, mix64(np.uint64(items[at]), _SALT))
        found[k] = code
    return found


@njit(cache=True)
def _chains(p_first, p_items, low, high, o_first, o_items, many):  # type: ignore[no-untyped-def]
    equals, newest = np.zeros(len(low), np.int64), np.full(len(low), -1)
    count, last = np.zeros(many, np.int64), np.full(many, -1)
    previous = np.full(len(o_first) - 1, -1)
    begin, end = 0, 0
    for k in range(len(low)):
        if high[k] <= low[k]:
            continue
        while end < high[k]:
            for at in range(o_first[end], o_first[end + 1]):
                item = o_items[at]
                count[item] += 1
                previous[end], last[item] = last[item], end
            end += 1
        while begin < low[k]:
            for at in range(o_first[begin], o_first[begin + 1]):
                count[o_items[at]] -= 1
            begin += 1
        for at in range(p_first[k], p_first[k + 1]):
            equals[k], newest[k] = count[p_items[at]], last[p_items[at]]
    return equals, newest, previous


def find_chained_pairs(
    mine: Operand, other: Operand, how: Probing, chains: Chains, made: Array, with_itself: bool = False
) -> FoundPairs:
    """Return the pairs of rows that are compared with all of their window; `made`: the size of that window, or 0."""
    room = int(chains.equals[made > 0].sum())
    probes, rows, behind, everything, steps = _find_chained_pairs(
        mine.sets.first, mine.seq, how.low, how.high, how.slots, made, chains.equals, chains.newest,
        chains.previous, other.seq, how.starts, how.first_slot, room, with_itself,
    )  # fmt: skip
    selected = how.take >= how.high - how.low
    return FoundPairs(
        probes,
        rows,
        np.where(selected[probes], SELECTED, behind),
        made,
        np.where(selected, everything, 0),
        everything,
        np.bincount(behind, minlength=len(how.order)),
        0,
        steps,
    )


@njit(cache=True)
def _find_chained_pairs(  # type: ignore[no-untyped-def]
    p_first,
    p_seq,
    low,
    high,
    slots,
    made,
    equals,
    newest,
    previous,
    o_seq,
    starts,
    first_slot,
    room,
    with_itself,
):
    """Return, by pair, the probing row, the row and its basic window; then pairs by probing row, and steps.

    The rows of a probing row's pairs are ascending.
    """
    out_probe, out_row = np.empty(room, np.int64), np.empty(room, np.int64)
    out_behind, everything = np.empty(room, np.int64), np.zeros(len(low), np.int64)
    pairs, steps = 0, 0
    for k in range(len(low)):
        if made[k] <= 0 or p_first[k + 1] == p_first[k]:
            continue
        steps += 1 + equals[k]
        row, slot, ends = newest[k], min(slots[k] - first_slot, len(starts) - 2), pairs + equals[k]
        place = ends
        while row >= low[k]:
            while row < starts[slot]:
                slot -= 1
            if not with_itself or o_seq[row] != p_seq[k]:
                place -= 1
                out_probe[place], out_row[place] = k, row
                out_behind[place] = slots[k] - first_slot - slot
            row = previous[row]
        for moved in range(place, ends if place > pairs else place):  # a row is no pair of its own
            to = moved - (place - pairs)
            out_probe[to], out_row[to], out_behind[to] = out_probe[moved], out_row[moved], out_behind[moved]
        everything[k] = ends - place
        pairs += everything[k]
    return out_probe[:pairs], out_row[:pairs], out_behind[:pairs], everything, steps
