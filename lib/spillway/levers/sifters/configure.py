"""Configuration: the drop thresholds that lose least, exactly, without a linear program (IV-C).

    minimise  sum A(S) d(S)    subject to    sum d(S) f(S) = 1 - z,   0 <= d(S) <= u(S),
    and |d(S) - d(S')| <= Delta for regions that some query touches                                       (eq. 10)

The text hands this to an LP solver (150 ms at l = 16, up to 2.7 s at l = 100). It has more of a shape than that.
Regions that no query touches are worth nothing and not held to Delta: they go first. Of the others, every two lie
within Delta exactly when all lie in one band [t, t + Delta]; at a given t each has t, and what is left to drop is a
fractional knapsack of the stretches from t to min(t + Delta, u), in order of A/f. (The text says in order of A, which
is wrong where frequencies differ: erratum B3; and that Delta = 0 is random dropping, which it is not, since what nobody
asks for is exempt: B4.) The least cost is convex and piecewise linear in t, so its least lies where a piece ends: at 0,
where a region's stretch meets its limit u, or where the knapsack fills up with whole stretches. A binary search over
the first two kinds finds the pieces, and prefix sums all ends of the third kind in them: O(l log l).

Guarantee: the optimum of the program to the precision of its sums; what cannot be met is refused with what can.

>>> found = configured(np.array([0.1, 0.5, 0.0]), np.array([0.4, 0.4, 0.2]), np.array([True, True, False]), 0.5, 0.5)
>>> found.round(3).tolist()
[0.625, 0.125, 1.0]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spillway.errors import Refused

SLACK = 1e-12
"""Sums of floats depend on their order: so much of what is to be dropped is forgiven."""


def configured(
    worths: np.ndarray,
    frequencies: np.ndarray,
    touched: np.ndarray,
    throttle: float,
    fairness: float = 1.0,
    most: np.ndarray | None = None,
) -> np.ndarray:
    """The thresholds (d) at a throttler (z) and a fairness (Delta); `most`: by region, no threshold above (u).

    A touched region without rows in the sample has the band's lower end: its rows, should they come, are spared.
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
    thresholds[touched] = _banded(
        worths[touched], frequencies[touched], limits[touched], drop - spare, fairness, spare
    )
    return thresholds


def least_fairness(frequencies: np.ndarray, most: np.ndarray, drop: float) -> float | None:
    """The smallest Delta at which so much can be dropped of regions with these limits; None: at none.

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


def _banded(
    a: np.ndarray, f: np.ndarray, u: np.ndarray, drop: float, width: float, spare: float
) -> np.ndarray:
    """Thresholds of touched regions, all in one band, that drop so much and cost least."""
    ratios = np.divide(a, f, out=np.full(len(a), math.inf), where=f > 0)
    order = np.argsort(ratios, kind="stable")
    problem = _Band(a[order], f[order], u[order], drop, width)
    low, high = problem.reach()
    if low is None or high is None:
        smallest = least_fairness(f, u, drop)
        if smallest is None:
            most = spare + float(f @ u)
            raise Refused(
                "throttle",
                f"be at least {1.0 - most:.6g}: what must be delivered leaves no more to drop",
                round(1.0 - drop - spare, 9),
                "lower what queries must have at least, or make more room",
            )
        raise Refused(
            "fairness",
            f"be at least {smallest:.6g} for so much to be dropped",
            width,
            f"write fairness: {math.ceil(smallest * 1e6) / 1e6:g}, or lower what queries must have at least",
        )
    thresholds = np.empty(len(a))
    thresholds[order] = problem.thresholds(problem.best(low, high))
    return thresholds


@dataclass(frozen=True)
class _Band:
    """Touched regions in order of worth over frequency."""

    a: np.ndarray
    f: np.ndarray
    u: np.ndarray
    drop: float
    width: float

    def stretches(self, t: float) -> np.ndarray:
        """How far above t each may go."""
        return np.maximum(0.0, np.minimum(self.width, self.u - t))

    def reach(self) -> tuple[float | None, float | None]:
        """The lowest and the highest lower end of a band in which exactly so much can be dropped."""
        top, whole = float(self.u.min()), float(self.f.sum())
        high = min(top, self.drop / whole) if whole > 0 else top

        def most(t: float) -> float:
            return float(self.f @ (t + self.stretches(t)))

        if most(high) < self.drop - SLACK:
            return None, None
        if most(0.0) >= self.drop - SLACK:
            return 0.0, high
        # how much can be dropped grows with t, linearly between the places where a stretch meets its limit
        edges = np.unique(np.clip(np.append(self.u - self.width, [0.0, high]), 0.0, high))
        at, behind = 0, len(edges) - 1
        while behind - at > 1:
            middle = (at + behind) // 2
            at, behind = (middle, behind) if most(edges[middle]) < self.drop - SLACK else (at, middle)
        low_most, high_most = most(edges[at]), most(edges[behind])
        if high_most <= low_most:
            return float(edges[behind]), high
        share = (self.drop - low_most) / (high_most - low_most)
        return float(min(high, edges[at] + share * (edges[behind] - edges[at]))), high

    def cost(self, t: float) -> float:
        """What the best thresholds with this lower end cost."""
        return float(self.a @ self.thresholds(t))

    def thresholds(self, t: float) -> np.ndarray:
        """The best thresholds with this lower end: stretches filled in order."""
        stretches = self.stretches(t)
        masses = self.f * stretches
        filled = np.cumsum(masses)
        before = np.concatenate([[0.0], filled[:-1]])
        left = self.drop - t * float(self.f.sum())
        share = np.divide(left - before, masses, out=np.zeros(len(masses)), where=masses > 0)
        return t + stretches * np.clip(share, 0.0, 1.0)

    def best(self, low: float, high: float) -> float:
        """The lower end that costs least."""
        edges = np.unique(np.clip(np.append(self.u - self.width, [low, high]), low, high))
        at, behind = 0, len(edges) - 1
        while behind - at > 2:
            middle = (at + behind) // 2
            if self.cost(edges[middle]) <= self.cost(edges[middle + 1]):
                behind = middle + 1
            else:
                at = middle
        found = [float(edge) for edge in edges[at : behind + 1]]
        for begin, end in list(pairwise(found)):
            found += self._whole_fills(begin, end)[:2]
        return min(found, key=self.cost)

    def _whole_fills(self, begin: float, end: float) -> list[float]:
        """Within a piece where no stretch meets its limit: the best lower ends at which whole stretches are filled.

        With k filled: t sum f + sum over the first k of f (c - h t) = drop, h = 1 where the stretch ends at u, else 0.
        """
        ends_at_limit = self.u - self.width < (begin + end) / 2.0
        c = np.where(ends_at_limit, self.u, self.width)
        h = ends_at_limit.astype(float)
        fill, slope = np.cumsum(self.f * c), float(self.f.sum()) - np.cumsum(self.f * h)
        t = np.divide(self.drop - fill, slope, out=np.full(len(fill), -1.0), where=slope > 0)
        inside = (t > begin) & (t < end)
        if not inside.any():
            return []
        # the cost with the first k filled, from prefix sums
        cost = t * float(self.a.sum()) + np.cumsum(self.a * c) - t * np.cumsum(self.a * h)
        places = np.flatnonzero(inside)
        return [float(t[place]) for place in places[np.argsort(cost[places], kind="stable")]]


def _check(
    a: np.ndarray, f: np.ndarray, touched: np.ndarray, throttle: float, fairness: float, u: np.ndarray
) -> None:
    if not len(a) or not len(a) == len(f) == len(touched) == len(u):
        sizes = [len(a), len(f), len(touched), len(u)]
        raise Refused("regions", "be at least one, all described alike", sizes, "build the regions again")
    for name, value, remedy in (
        ("throttle", throttle, "it is the share of the rows that there is room for"),
        ("fairness", fairness, "1: no limit; 0: the same share of every region that is asked for"),
    ):
        if not (math.isfinite(value) and 0.0 <= value <= 1.0):
            raise Refused(name, "be from 0 to 1", value, remedy)
    for name, values in (("worths", a), ("frequencies", f), ("most", u)):
        if not np.all(np.isfinite(values)) or np.any(values < 0):
            raise Refused(name, "be finite and 0 or more", values.tolist()[:5], "measure the sample again")
    if np.any(u > 1.0):
        raise Refused("most", "be at most 1", float(u.max()), "a region loses no more than all of its rows")
    can = float(f @ u)
    if can < 1.0 - throttle - SLACK:
        raise Refused(
            "throttle",
            f"be at least {1.0 - can:.6g}: what must be delivered leaves no more to drop",
            throttle,
            "lower what queries must have at least, or make more room",
        )
