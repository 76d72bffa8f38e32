"""Compute the drop thresholds that lose least, exactly and without a linear program (IV-C).

    minimise  sum A(S) d(S)    subject to    sum d(S) f(S) = 1 - z,   0 <= d(S) <= u(S),
    and |d(S) - d(S')| <= Delta for regions that some query touches                                       (eq. 10)

A(S) is the worth of region S to the queries, d(S) its drop threshold, f(S) its share of the rows, u(S) the largest
threshold it may have, z the throttler (the share of the rows to keep), and Delta the fairness.

Gedik, Wu and Yu (2008) solve this with an LP solver (150 ms at l = 16 regions, up to 2.7 s at l = 100). The algorithm
here uses the structure of the program:

- Regions that no query touches have no worth and are exempt from Delta. They are dropped first.
- The other thresholds differ by at most Delta exactly if all of them lie in one band [t, t + Delta].
- For a given t, every region drops at least t. The remaining drop is a fractional knapsack: the ranges from t to
  min(t + Delta, u) are filled in order of A/f.
- The minimum cost is convex and piecewise linear in t. So its minimum is at t = 0, where the range of a region meets
  its limit u, or where the knapsack is filled by whole ranges. A binary search over the first two kinds finds the
  pieces, and prefix sums evaluate all points of the third kind within them: O(l log l) in total.

Two errata of the paper: it fills the knapsack in order of A, which is wrong if frequencies differ (B3). It says that
Delta = 0 is random dropping, which is wrong because rows that no query asks for are exempt (B4).

Guarantee: the result is the optimum of the program, to the precision of the sums. Constraints that cannot be met are
refused, and the error names values that can be met.

>>> worths, frequencies, touched = np.array([0.1, 0.5, 0.0]), np.array([0.4, 0.4, 0.2]), np.array([True, True, False])
>>> found = optimal_thresholds(worths, frequencies, touched, throttle=0.5, fairness=0.5)
>>> found.round(3).tolist()
[0.625, 0.125, 1.0]

The throttler is the share of the rows that fits the limits (II-E):

    z = min( rows the server takes in / rows offered,  what the channel carries / what the rows take )

A new filter costs almost no time to configure. But if the filter stays the same, batches are comparable, and the same
rows of the same regions are kept. So the filter stays while three conditions hold: the rows that it keeps fit, not much
more would fit (`rebuild.throttle`), and the rows are distributed over the regions as before (`rebuild.drift`). The
distance of two samples of rows over the regions is the total variation distance:

    distance(f, g) = sum over regions |f - g| / 2

About sum sqrt(f (1 - f) (1/n + 1/m) / (2 pi)) of it is noise between samples of n and m rows.

>>> room = RowCapacity(offered_rows=100.0, row_kbps=0.01, fixed_kbps=0.1, allowed_kbps=0.6, rows_per_second=80.0)
>>> room.share
0.5
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from spillway.errors import InvalidValue
from spillway.levers.sifters.consolidate import RegionWorth

SLACK = 1e-12
"""Rounding tolerance of the share to drop, because sums of floats depend on their order."""


def optimal_thresholds(
    worths: np.ndarray,
    frequencies: np.ndarray,
    touched: np.ndarray,
    throttle: float,
    fairness: float = 1.0,
    most: np.ndarray | None = None,
) -> np.ndarray:
    """Return the optimal thresholds (d) for a throttler (z) and a fairness (Delta).

    `most` is the largest threshold of each region (u). A touched region without rows in the sample gets the lower end
    of the band, so that rows that arrive there later are spared.
    """
    worths, frequencies = np.asarray(worths, float), np.asarray(frequencies, float)
    touched = np.asarray(touched, bool)
    limits = np.ones(len(worths)) if most is None else np.asarray(most, float)
    _check(worths, frequencies, touched, throttle, fairness, limits)
    thresholds = np.zeros(len(worths))
    drop = 1.0 - throttle
    free = ~touched
    spare = float(frequencies[free] @ limits[free])
    if drop <= spare + SLACK:
        thresholds[free] = limits[free] * (min(1.0, drop / spare) if spare > 0 else float(drop > 0))
        return thresholds
    thresholds[free] = limits[free]
    thresholds[touched] = _thresholds_in_band(
        worths[touched], frequencies[touched], limits[touched], drop - spare, fairness, spare
    )
    return thresholds


def least_fairness(frequencies: np.ndarray, most: np.ndarray, drop: float) -> float | None:
    """Return the smallest Delta at which the share `drop` can be dropped; None if no Delta is large enough.

    `most` is the largest threshold of each region (u).

    >>> least_fairness(np.array([0.5, 0.5]), np.array([0.2, 1.0]), 0.35)
    0.3
    """
    order = np.argsort(most, kind="stable")
    f, u = frequencies[order], most[order]
    if float(f @ u) < drop - SLACK:
        return None
    least, whole = u[0], float(f.sum())
    reached, rest = least * whole, whole
    level = least
    for at, limit in enumerate(u):
        step = (limit - level) * rest
        if reached + step >= drop - SLACK:
            return (
                max(0.0, round(float(level + max(0.0, drop - reached) / rest - least), 12)) if rest else 0.0
            )
        reached, level, rest = reached + step, limit, rest - f[at]
    return float(u[-1] - least)


def _thresholds_in_band(
    a: np.ndarray, f: np.ndarray, u: np.ndarray, drop: float, width: float, spare: float
) -> np.ndarray:
    """Return the cheapest thresholds of touched regions, all in one band, that drop the share `drop`."""
    ratios = np.divide(a, f, out=np.full(len(a), math.inf), where=f > 0)
    order = np.argsort(ratios, kind="stable")
    thresholds = np.empty(len(a))
    found = np.empty(len(a))
    if _band(a[order], f[order], u[order], drop, width, found):
        thresholds[order] = found
        return thresholds
    smallest = least_fairness(f, u, drop)
    if smallest is None:
        most = spare + float(f @ u)
        raise InvalidValue(
            "throttle",
            f"be at least {1.0 - most:.6g}: what must be delivered leaves no more to drop",
            round(1.0 - drop - spare, 9),
            "lower what queries must have at least, or make more room",
        )
    raise InvalidValue(
        "fairness",
        f"be at least {smallest:.6g} for so much to be dropped",
        width,
        f"write fairness: {math.ceil(smallest * 1e6) / 1e6:g}, or lower what queries must have at least",
    )


@njit(cache=True, nogil=True)
def _band(
    a: np.ndarray, f: np.ndarray, u: np.ndarray, drop: float, width: float, thresholds: np.ndarray
) -> bool:
    """Fill `thresholds` for regions in order of worth over frequency; return False if `drop` cannot be reached."""
    low, high = _reach(f, u, drop, width)
    if low < 0.0:
        return False
    edges = _edges(u, width, low, high)
    at, behind = 0, len(edges) - 1
    while behind - at > 2:
        middle = (at + behind) // 2
        if _cost(a, f, u, drop, width, edges[middle]) <= _cost(a, f, u, drop, width, edges[middle + 1]):
            behind = middle + 1
        else:
            at = middle
    best, least = edges[at], np.inf
    for place in range(at, behind + 1):
        cost = _cost(a, f, u, drop, width, edges[place])
        if cost < least:
            best, least = edges[place], cost
    for place in range(at, behind):
        t = _whole_fill(a, f, u, drop, width, edges[place], edges[place + 1])
        if t >= 0.0:
            cost = _cost(a, f, u, drop, width, t)
            if cost < least:
                best, least = t, cost
    before, left = 0.0, drop - best * f.sum()
    for place in range(len(a)):
        stretch = max(0.0, min(width, u[place] - best))
        mass = f[place] * stretch
        share = (left - before) / mass if mass > 0.0 else 0.0
        thresholds[place] = best + stretch * min(1.0, max(0.0, share))
        before += mass
    return True


@njit(cache=True, nogil=True)
def _cost(a: np.ndarray, f: np.ndarray, u: np.ndarray, drop: float, width: float, t: float) -> float:
    """Return the cost of the best thresholds for the lower end t: ranges up to min(t + width, u), filled in order."""
    cost, before, left = 0.0, 0.0, drop - t * f.sum()
    for place in range(len(a)):
        stretch = max(0.0, min(width, u[place] - t))
        mass = f[place] * stretch
        share = (left - before) / mass if mass > 0.0 else 0.0
        cost += a[place] * (t + stretch * min(1.0, max(0.0, share)))
        before += mass
    return cost


@njit(cache=True, nogil=True)
def _most(f: np.ndarray, u: np.ndarray, width: float, t: float) -> float:
    """Return the largest share that can be dropped with the lower end t."""
    found = 0.0
    for place in range(len(f)):
        found += f[place] * (t + max(0.0, min(width, u[place] - t)))
    return found


@njit(cache=True, nogil=True)
def _edges(u: np.ndarray, width: float, low: float, high: float) -> np.ndarray:
    """Return the lower ends from low to high at which the range of a region meets its limit."""
    found = np.empty(len(u) + 2)
    found[: len(u)] = u - width
    found[len(u)], found[len(u) + 1] = low, high
    return np.unique(np.minimum(high, np.maximum(low, found)))


@njit(cache=True, nogil=True)
def _reach(f: np.ndarray, u: np.ndarray, drop: float, width: float) -> tuple[float, float]:
    """Return the lowest and the highest lower end of a band that can drop exactly `drop`; (-1, -1) if there is none."""
    top, whole = u.min(), f.sum()
    high = min(top, drop / whole) if whole > 0.0 else top
    if _most(f, u, width, high) < drop - SLACK:
        return -1.0, -1.0
    if _most(f, u, width, 0.0) >= drop - SLACK:
        return 0.0, high
    # the droppable share grows with t, linearly between the points at which a range meets its limit
    edges = _edges(u, width, 0.0, high)
    at, behind = 0, len(edges) - 1
    while behind - at > 1:
        middle = (at + behind) // 2
        if _most(f, u, width, edges[middle]) < drop - SLACK:
            at = middle
        else:
            behind = middle
    low_most, high_most = _most(f, u, width, edges[at]), _most(f, u, width, edges[behind])
    if high_most <= low_most:
        return edges[behind], high
    share = (drop - low_most) / (high_most - low_most)
    return min(high, edges[at] + share * (edges[behind] - edges[at])), high


@njit(cache=True, nogil=True)
def _whole_fill(
    a: np.ndarray, f: np.ndarray, u: np.ndarray, drop: float, width: float, begin: float, end: float
) -> float:
    """Return the best lower end between `begin` and `end` at which the knapsack is filled by whole ranges; -1: none.

    No range meets its limit between `begin` and `end`. If the first k ranges are filled:
    t sum f + sum over the first k of f (c - h t) = drop, with h = 1 if the range ends at u, else 0.
    """
    middle, best, least = (begin + end) / 2.0, -1.0, np.inf
    fill, slope, whole, paid, held = 0.0, f.sum(), a.sum(), 0.0, 0.0
    for place in range(len(a)):
        at_limit = u[place] - width < middle
        c = u[place] if at_limit else width
        fill += f[place] * c
        paid += a[place] * c
        if at_limit:
            slope -= f[place]
            held += a[place]
        if slope > 0.0:
            t = (drop - fill) / slope
            cost = t * whole + paid - t * held
            if begin < t < end and cost < least:
                best, least = t, cost
    return best


def _check(
    a: np.ndarray, f: np.ndarray, touched: np.ndarray, throttle: float, fairness: float, u: np.ndarray
) -> None:
    if not len(a) or not len(a) == len(f) == len(touched) == len(u):
        sizes = [len(a), len(f), len(touched), len(u)]
        raise InvalidValue(
            "regions", "be at least one, all described alike", sizes, "build the regions again"
        )
    for name, value, remedy in (
        ("throttle", throttle, "it is the share of the rows that there is room for"),
        ("fairness", fairness, "1: no limit; 0: the same share of every region that is asked for"),
    ):
        if not (math.isfinite(value) and 0.0 <= value <= 1.0):
            raise InvalidValue(name, "be from 0 to 1", value, remedy)
    for name, values in (("worths", a), ("frequencies", f), ("most", u)):
        if not (values.min() >= 0.0 and math.isfinite(values.sum())):
            raise InvalidValue(
                name, "be finite and 0 or more", values.tolist()[:5], "measure the sample again"
            )
    if np.any(u > 1.0):
        raise InvalidValue(
            "most", "be at most 1", float(u.max()), "a region loses no more than all of its rows"
        )
    can = float(f @ u)
    if can < 1.0 - throttle - SLACK:
        raise InvalidValue(
            "throttle",
            f"be at least {1.0 - can:.6g}: what must be delivered leaves no more to drop",
            throttle,
            "lower what queries must have at least, or make more room",
        )


@dataclass(frozen=True)
class RowCapacity:
    """The rows that are offered to a stage per second, and its limits."""

    offered_rows: float
    row_kbps: float
    """The kbps that one row per second takes when sent."""
    fixed_kbps: float
    allowed_kbps: float
    rows_per_second: float | None = None

    @property
    def rows_share(self) -> float:
        """Return the share of the rows that the server takes in, regardless of their size; at most 1."""
        if self.rows_per_second is None or self.offered_rows <= 0:
            return 1.0
        return max(0.0, min(1.0, self.rows_per_second / self.offered_rows))

    @property
    def share(self) -> float:
        """Return the share of the rows that fits both limits (z), at most 1."""
        whole = self.offered_rows * self.row_kbps
        carried = (self.allowed_kbps - self.fixed_kbps) / whole if whole > 0 else 1.0
        return max(0.0, min(self.rows_share, carried))


@dataclass(frozen=True)
class FilterConfiguration:
    """The thresholds, their predicted result, and the constraints that they could not meet."""

    thresholds: np.ndarray
    kept_share: float
    """The share of all rows that is kept (the resulting z)."""
    quality: float
    fairness: float
    short: float = 0.0
    """The share of all rows that is kept although it does not fit."""


def configure_filter(
    worth: RegionWorth, share: float, must_keep: float, fairness: float, sample_share: float
) -> FilterConfiguration:
    """Return the thresholds that keep `share` of all rows; the filter never drops the share `must_keep`.

    Constraints that cannot be met are not refused here, in the middle of a run. As many rows as possible are dropped,
    and `short` reports the rest. If `fairness` is too small, it is widened by the least necessary amount.
    """
    limits = np.minimum(worth.max_thresholds, 1.0 - sample_share)
    rest = 1.0 - must_keep
    wanted = (share - must_keep) / rest if rest > 0 else 1.0
    least = 1.0 - float(worth.frequencies @ limits)
    throttle = min(1.0, max(wanted, least, 0.0))
    spare = float(worth.frequencies[~worth.touched] @ limits[~worth.touched])
    needed = least_fairness(
        worth.frequencies[worth.touched], limits[worth.touched], max(0.0, 1.0 - throttle - spare)
    )
    width = min(1.0, max(fairness, math.nextafter(needed or 0.0, 2.0) + SLACK if needed else 0.0))
    thresholds = optimal_thresholds(worth.worths, worth.frequencies, worth.touched, throttle, width, limits)
    kept = must_keep + rest * (1.0 - float(thresholds @ worth.frequencies))
    used = fairness if width <= fairness or needed is None or needed <= fairness else needed
    return FilterConfiguration(
        thresholds, kept, worth.overall(thresholds), used, max(0.0, kept - share - 1e-9)
    )


def total_variation(counts: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """Return the total variation distance of two samples, by counts per region, and its expected noise.

    >>> total_variation(np.array([50, 50]), np.array([90, 10]))[0]
    0.4
    """
    n, m = float(np.sum(counts)), float(np.sum(others))
    if not n or not m:
        return 0.0, 0.0
    f, g = np.asarray(counts) / n, np.asarray(others) / m
    pooled = (np.asarray(counts) + np.asarray(others)) / (n + m)
    noise = float(np.sum(np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m) / (2 * math.pi))))
    return round(float(np.abs(f - g).sum() / 2.0), 12), noise
