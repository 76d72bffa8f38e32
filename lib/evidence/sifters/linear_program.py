"""Solve equation 10 by an LP solver (scipy's HiGHS), to check `levers.sifters.configure`; generate instances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from spillway.errors import InvalidValue
from spillway.levers.sifters.configure import optimal_thresholds


@dataclass(frozen=True)
class Instance:
    """One configuration problem."""

    worths: np.ndarray
    frequencies: np.ndarray
    touched: np.ndarray
    throttle: float
    fairness: float
    most: np.ndarray


def random_instance(rng: np.random.Generator, regions: int | None = None) -> Instance:
    """Return a random problem, with every edge case now and then: no frequency, no query, extreme z and Delta, ties."""
    count = int(rng.integers(1, 40)) if regions is None else regions
    chances = rng.random(count) ** rng.integers(1, 6)
    chances[rng.random(count) < rng.choice([0.0, 0.0, 0.3])] = 0.0
    chances = chances / chances.sum() if chances.sum() else np.full(count, 1.0 / count)
    rows = int(rng.choice([1, 2, 100, 1000, 5000]))
    frequencies = rng.multinomial(rows, chances) / rows  # as samples have them
    touched = rng.random(count) < rng.choice([1.0, 0.8, 0.5, 0.0])
    worths = np.where(touched, rng.random(count) ** rng.integers(1, 6), 0.0)
    if rng.random() < 0.3:
        worths = np.where(touched, np.round(worths * 4) / 4, 0.0)  # ties
    if rng.random() < 0.5:
        worths[frequencies == 0] = 0.0
    if worths.sum() > 0:
        worths /= worths.sum()
    most = np.ones(count)
    if rng.random() < 0.4:
        most = np.where(rng.random(count) < 0.3, rng.choice([0.0, 0.5, 0.9], count), 1.0)
        most = np.where(touched, most, 1.0)
    throttle = float(rng.choice([0.0, 1.0, rng.random(), rng.random(), rng.random()]))
    fairness = float(rng.choice([0.0, 1.0, rng.random(), rng.random(), 0.1 * rng.random()]))
    return Instance(worths, frequencies, touched, throttle, fairness, most)


def solver_cost(one: Instance) -> float | None:
    """Return the least cost by HiGHS; None if the problem is infeasible."""
    count = len(one.worths)
    # one more variable, the band's lower end t: t <= d <= t + Delta for every touched region
    rows, bounds = [], []
    for region in np.flatnonzero(one.touched):
        above, below = np.zeros(count + 1), np.zeros(count + 1)
        above[region], above[-1] = 1.0, -1.0
        below[region], below[-1] = -1.0, 1.0
        rows += [above, below]
        bounds += [one.fairness, 0.0]
    # frequencies sum to 1 but for a last bit, which the solver would call infeasible
    drop = (
        min(1.0 - one.throttle, float(one.frequencies @ one.most)) if _only_just(one) else 1.0 - one.throttle
    )
    found = linprog(
        np.append(one.worths, 0.0),
        A_ub=np.array(rows) if rows else None,
        b_ub=np.array(bounds) if rows else None,
        A_eq=np.append(one.frequencies, 0.0)[None, :],
        b_eq=[drop],
        bounds=[*((0.0, limit) for limit in one.most), (0.0, 1.0)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return float(found.fun) if found.status == 0 else None


@dataclass(frozen=True)
class SolverComparison:
    """The result of comparing some instances."""

    tried: int
    largest_off: float
    infeasible: int
    disagree: int
    largest_broken: float
    """The largest violation of a constraint by our thresholds."""


def compare(count: int, seed: int) -> SolverComparison:
    """Compare our solution with the solver's over random instances."""
    rng = np.random.default_rng(seed)
    off, broken, infeasible, disagree = 0.0, 0.0, 0, 0
    for _ in range(count):
        one = random_instance(rng)
        peer = solver_cost(one)
        try:
            ours = optimal_thresholds(
                one.worths, one.frequencies, one.touched, one.throttle, one.fairness, one.most
            )
        except InvalidValue:
            infeasible += 1
            disagree += peer is not None
            continue
        if peer is None:
            disagree += 1
            continue
        off = max(off, abs(float(one.worths @ ours) - peer))
        broken = max(broken, violation(one, ours))
    return SolverComparison(count, off, infeasible, disagree, broken)


def violation(one: Instance, thresholds: np.ndarray) -> float:
    """Return the largest violation of a constraint by these thresholds."""
    asked = thresholds[one.touched]
    return float(
        max(
            abs(thresholds @ one.frequencies - (1.0 - one.throttle)),
            np.max(-thresholds),
            np.max(thresholds - one.most),
            (asked.max() - asked.min() - one.fairness) if len(asked) else 0.0,
        )
    )


def _only_just(one: Instance) -> bool:
    return abs(float(one.frequencies @ one.most) - (1.0 - one.throttle)) < 1e-12
