"""Policies: which batches are admitted to a room that is too small for all of them.

- `fair`: `admission.admit_fairly`, our form of the paper's rule.
- `algorithm_1`: the paper's own rule (Fiscato 2012, Algorithm 1). Take the query of the lowest projected sic, admit its
  batch of the highest sic, until the admitted batches fill the room. So the last batch may exceed the room (erratum
  D6). Priorities, floors and `starve_slices` are ignored; a weight divides a query's sic.
- `random`: batches in random order.
- `round_robin`: a batch of each query in turn, beginning with those that have waited longest (`Entitlements.waited`).
- `priority`: one query after the other, the most important first, then in the order they come.

All policies first keep the batches that must be kept. All but `algorithm_1` skip a batch that does not fit. Random
order is `Batches.tie`, drawn from a seed: the same input gives the same choice.

>>> two = Batches(np.array([0, 0, 0, 1]), np.array([0.3, 0.3, 0.4, 1.0]), np.ones(4))
>>> {name: chosen(name, two, Entitlements.equal(2), 3.0).tolist() for name in ("round_robin", "priority")}
{'round_robin': [True, False, True, True], 'priority': [True, True, True, False]}
>>> large = Batches(np.array([0, 1, 1]), np.array([1.0, 0.5, 0.5]), np.array([4.0, 1.0, 1.0]))
>>> {name: chosen(name, large, Entitlements.equal(2), 3.0).tolist() for name in ("fair", "algorithm_1")}
{'fair': [False, True, True], 'algorithm_1': [True, False, False]}
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.errors import Refused
from spillway.levers.quality.admission import Batches, Entitlements, _sink, admit_fairly, refuse_room
from spillway.levers.quality.policies_known import ALGORITHM_1, POLICIES


def chosen(
    policy: str, batches: Batches, to: Entitlements, room: float, must_keep: np.ndarray | None = None
) -> np.ndarray:
    """Return which batches a policy admits."""
    if policy == "fair":
        return admit_fairly(batches, to, room, must_keep)
    if policy == ALGORITHM_1:
        return algorithm_1(batches, to, room, must_keep)
    if policy not in POLICIES:
        raise Refused("policy", f"be one of {', '.join(POLICIES)}", policy, "write fair")
    refuse_room(room)
    tie = np.arange(len(batches)) if batches.tie is None else batches.tie
    # a query's own batches go as they do in the fair policy: in their turn, or by what they carry for what they cost
    worth = (
        np.round(batches.sic / np.maximum(batches.cost, 1e-300), 12)
        if batches.turn is None
        else -batches.turn
    )
    if policy == "random":
        order = np.argsort(tie, kind="stable")
    elif policy == "round_robin":
        waited = to.waited[batches.query] if len(to.waited) else np.zeros(len(batches), np.int64)
        order = np.lexsort([batches.query, -waited, _turn(batches.query, worth, tie)])
    else:
        order = np.lexsort([tie, -worth, batches.query, -to.priority[batches.query]])
    if must_keep is not None:
        order = np.concatenate([order[must_keep[order]], order[~must_keep[order]]])
    group, fixed = batches.groups
    return _as_fits(batches.cost, order, group, fixed.astype(np.float64), float(room))


def algorithm_1(
    batches: Batches, to: Entitlements, room: float, must_keep: np.ndarray | None = None
) -> np.ndarray:
    """Return which batches the paper's shedder admits (Fiscato 2012, Algorithm 1).

    Ties between queries are resolved by their number, ties between batches by `tie`; the paper leaves both open.
    """
    refuse_room(room)
    admitted = np.zeros(len(batches), np.bool_)
    tie = np.arange(len(batches)) if batches.tie is None else batches.tie
    group, fixed = batches.groups
    unpaid, level = fixed.astype(np.float64).copy(), to.reached.astype(np.float64).copy()
    order = np.lexsort([tie, -batches.sic, batches.query])
    kept = 0.0
    for among in ([] if must_keep is None else [must_keep]) + [~admitted]:
        mine = order[among[order] & ~admitted[order]]
        ends = np.searchsorted(batches.query[mine], np.arange(len(level) + 1))
        kept = _admit_lowest(
            mine,
            ends,
            batches.sic,
            batches.cost,
            group,
            unpaid,
            level,
            to.weight,
            kept,
            float(room),
            admitted,
        )
    return admitted


@njit(cache=True)
def _admit_lowest(
    order: np.ndarray,
    ends: np.ndarray,
    sic: np.ndarray,
    cost: np.ndarray,
    group: np.ndarray,
    unpaid: np.ndarray,
    level: np.ndarray,
    weight: np.ndarray,
    kept: float,
    room: float,
    admitted: np.ndarray,
) -> float:
    """Lines 10 to 15 of Algorithm 1; `order[ends[q]:ends[q + 1]]` are the batches of query q, the highest sic first."""
    queries = len(level)
    at = ends[:-1].copy()
    poorest, ranks = np.empty(queries, np.int64), np.empty(queries)
    alive = 0
    for q in range(queries):
        if ends[q + 1] > ends[q]:
            poorest[alive], ranks[alive] = q, level[q] / weight[q]
            alive += 1
    for place in range(alive // 2 - 1, -1, -1):
        _sink(poorest, ranks, alive, place)
    while alive and kept < room:
        q = poorest[0]
        best = order[at[q]]
        at[q] += 1
        admitted[best] = True
        kept += cost[best] + unpaid[group[best]]
        unpaid[group[best]] = 0.0
        level[q] += sic[best]
        ranks[0] = level[q] / weight[q]
        if at[q] == ends[q + 1]:
            alive -= 1
            poorest[0], ranks[0] = poorest[alive], ranks[alive]
        if alive:
            _sink(poorest, ranks, alive, 0)
    return kept


def _turn(query: np.ndarray, worth: np.ndarray, tie: np.ndarray) -> np.ndarray:
    """In which turn of its query a batch comes."""
    order = np.lexsort([tie, -worth, query])
    mine = query[order]
    starts = np.flatnonzero(np.r_[True, mine[1:] != mine[:-1]]) if len(mine) else np.zeros(0, np.int64)
    lengths = np.diff(np.r_[starts, len(mine)])
    turn = np.empty(len(query), np.int64)
    turn[order] = np.arange(len(mine)) - np.repeat(starts, lengths)
    return turn


@njit(cache=True)
def _as_fits(
    cost: np.ndarray, order: np.ndarray, group: np.ndarray, fixed: np.ndarray, room: float
) -> np.ndarray:
    """Admit batches in this order; skip each batch that does not fit into the remaining room."""
    admitted, unpaid, left = np.zeros(len(cost), np.bool_), fixed.copy(), room
    for place in order:
        whole = cost[place] + unpaid[group[place]]
        if whole <= left:
            admitted[place] = True
            left -= whole
            unpaid[group[place]] = 0.0
    return admitted
