"""Ways of choosing what is worked on, by name: fair, and those it is measured against, on the same batches and room.

`random` takes batches as chance has it; `round_robin` a batch of each query in turn, beginning with those that have
waited longest (`Entitlements.waited`); `priority` one query after the other, the most important first (in the order
they come where none is); each passes over what does not fit, as the fair
one does, and keeps what must be kept. Chance is `Batches.tie`, drawn from a seed: the same again gives the same.

>>> two = Batches(np.array([0, 0, 0, 1]), np.array([0.3, 0.3, 0.4, 1.0]), np.ones(4))
>>> {name: chosen(name, two, Entitlements.equal(2), 3.0).tolist() for name in ("round_robin", "priority")}
{'round_robin': [True, False, True, True], 'priority': [True, True, True, False]}
"""

from __future__ import annotations

import numpy as np

from spillway.errors import Refused
from spillway.levers.quality.admission import Batches, Entitlements, admit_fairly, refuse_room
from spillway.levers.quality.policies_known import POLICIES


def chosen(
    policy: str, batches: Batches, to: Entitlements, room: float, must_keep: np.ndarray | None = None
) -> np.ndarray:
    """Which batches are admitted by a policy."""
    if policy == "fair":
        return admit_fairly(batches, to, room, must_keep)
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
    return _as_fits(batches.cost, order, room)


def _turn(query: np.ndarray, worth: np.ndarray, tie: np.ndarray) -> np.ndarray:
    """In which turn of its query a batch comes."""
    order = np.lexsort([tie, -worth, query])
    mine = query[order]
    starts = np.flatnonzero(np.r_[True, mine[1:] != mine[:-1]]) if len(mine) else np.zeros(0, np.int64)
    lengths = np.diff(np.r_[starts, len(mine)])
    turn = np.empty(len(query), np.int64)
    turn[order] = np.arange(len(mine)) - np.repeat(starts, lengths)
    return turn


def _as_fits(cost: np.ndarray, order: np.ndarray, room: float) -> np.ndarray:
    admitted = np.zeros(len(cost), np.bool_)
    left = float(room)
    for place in order:
        if cost[place] <= left:
            admitted[place] = True
            left -= float(cost[place])
    return admitted
