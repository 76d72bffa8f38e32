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
from numba import njit

from spillway.levers.quality.admission import Batches, Entitlements, refuse_room

_HALVINGS = 60


@dataclass(frozen=True)
class Filled:
    """The level, in sic / weight, and what every query has at it."""

    level: float
    sic: np.ndarray


def fill_level(batches: Batches, to: Entitlements, room: float) -> Filled:
    """Return the level of the max-min optimum, without priorities, floors and rules."""
    refuse_room(room)
    queries, query = len(to.weight), batches.query.astype(np.int64)
    whole = to.reached + np.bincount(query, batches.sic, queries)
    if batches.cost.sum() <= room:
        return Filled(float((whole / to.weight).max(initial=0.0)), whole)
    # batches of a query in the order of sic / cost; `begins`: the sum of sic before each batch
    order = np.lexsort([-batches.sic / np.maximum(batches.cost, 1e-300), query])
    query, sic = query[order], batches.sic[order].astype(np.float64)
    before = np.cumsum(sic) - sic
    first = np.searchsorted(query, query)
    begins = to.reached[query] + before - before[first]
    level = _halved(begins, sic, batches.cost[order].astype(np.float64), to.weight[query], float(room),
                    float((whole / to.weight).max()))  # fmt: skip
    return Filled(level, np.minimum(np.maximum(level * to.weight, to.reached), whole))


@njit(cache=True)
def _halved(
    begins: np.ndarray, sic: np.ndarray, cost: np.ndarray, weight: np.ndarray, room: float, high: float
) -> float:
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        asked = 0.0
        for i in range(len(begins)):
            into = middle * weight[i] - begins[i]
            if into > 0:
                asked += cost[i] * (into / sic[i] if into < sic[i] else 1.0)
        if asked <= room:
            low = middle
        else:
            high = middle
    return low


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
