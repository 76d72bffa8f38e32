"""The max-min optimum: how level queries could be kept if batches could be cut anywhere (water-filling).

The highest L such that every query reaches min(L * weight, all it has) within the room, each by its batches of highest
sic per cost first: cost as a function of sic is then convex and rises, so L is found by halving. No way of admitting
whole batches lifts the poorest query above it; what `admission` gives ends within one batch of it.

>>> from spillway.levers.quality.admission import Batches, Entitlements
>>> four = Batches(np.array([0, 0, 1, 1]), np.full(4, 0.5), np.array([1.0, 1.0, 2.0, 2.0]))
>>> filled = fill_level(four, Entitlements.equal(2), room=3.0)
>>> round(filled.level, 6), filled.sic.round(6).tolist()
(0.5, [0.5, 0.5])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.levers.quality.admission import Batches, Entitlements, refuse_room

_HALVINGS = 60


@dataclass(frozen=True)
class Filled:
    """The level, in sic / weight, and what every query has at it."""

    level: float
    sic: np.ndarray


def fill_level(batches: Batches, to: Entitlements, room: float) -> Filled:
    """The level of the max-min optimum; priorities, floors and rules set aside."""
    refuse_room(room)
    queries = len(to.weight)
    curves = [_curve(batches, query, float(to.reached[query])) for query in range(queries)]
    whole = np.array([sic[-1] for sic, _ in curves])
    if sum(cost[-1] for _, cost in curves) <= room:
        return Filled(float((whole / to.weight).max(initial=0.0)), whole)
    low, high = 0.0, float((whole / to.weight).max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        asked = sum(
            float(np.interp(middle * w, sic, cost)) for (sic, cost), w in zip(curves, to.weight, strict=True)
        )
        low, high = (middle, high) if asked <= room else (low, middle)
    reached = np.minimum(np.maximum(low * to.weight, to.reached), whole)
    return Filled(low, reached)


def _curve(batches: Batches, query: int, reached: float) -> tuple[np.ndarray, np.ndarray]:
    """What a query's sic costs, at the edges of its batches."""
    mine = np.flatnonzero(batches.query == query)
    sic, cost = batches.sic[mine], batches.cost[mine]
    order = np.argsort(-sic / np.maximum(cost, 1e-300), kind="stable")
    return (
        np.concatenate([[reached], reached + np.cumsum(sic[order])]),
        np.concatenate([[0.0], np.cumsum(cost[order])]),
    )


def batches_short(batches: Batches, to: Entitlements, room: float, admitted: np.ndarray) -> float:
    """By how many batches the worst-off query misses the optimum: 1 at most for what `admit_fairly` gives.

    A batch is the largest of any query, in sic / weight.
    """
    best = fill_level(batches, to, room)
    have = to.reached + np.bincount(
        batches.query[admitted], weights=batches.sic[admitted], minlength=len(to.weight)
    )
    largest = float((batches.sic / to.weight[batches.query]).max(initial=0.0))
    short = float(((best.sic - have) / to.weight).max(initial=0.0))
    return max(0.0, short) / largest if largest else 0.0
