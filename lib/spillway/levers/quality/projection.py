"""What a query is projected to reach: what it reached earlier and what others do elsewhere, before a decision (5.3).

*Earlier*: fairness is kept over a few windows, as the text keeps it over a source time window of many intervals: a
query begins at the sum of what its last windows reached, so that one that got little is ahead the next time. Who has
less of a past than others begins as far as they on average got: it is owed nothing from before it was there.

*Elsewhere*: whoever works out some of the queries that share a room alone (another job, another node) leaves to the
others what they would get if all were decided together: the max-min level of its own batches and of the load the
others were last offered. When loads stand still, two that do this take the same level and fill the room between them,
whatever they began with.

>>> remembered({"a": [0.5, 0.1], "b": [0.4, 0.4]}, ["a", "b", "new"]).round(2).tolist()
[0.6, 0.8, 0.7]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spillway.levers.quality.admission import Batches, Entitlements
from spillway.levers.quality.max_min import fill_level


def remembered(
    reached: Mapping[str, Sequence[float]],
    queries: Sequence[str],
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """Where every query begins: the sum of what its last windows reached, of which each has the same number."""
    weights = np.ones(len(queries)) if weight is None else weight
    longest = max((len(reached.get(query, ())) for query in queries), default=0)
    found = np.array([float(sum(reached.get(query, ()))) for query in queries])
    had = np.array([len(reached.get(query, ())) for query in queries])
    if not longest or not (had > 0).any():
        return np.zeros(len(queries))
    # per window, and per weight, so that a small entitlement is not taken for a hard time
    usual = float((found[had > 0] / had[had > 0] / weights[had > 0]).mean())
    return np.asarray(found + (longest - had) * usual * weights)


@dataclass(frozen=True)
class Elsewhere:
    """Queries that share the room and are decided by others: where each stands, its entitlement, its last load."""

    reached: np.ndarray
    weight: np.ndarray
    sic: np.ndarray
    """What all of its load would add."""
    cost: np.ndarray


def own_room(batches: Batches, to: Entitlements, others: Elsewhere, room: float) -> float:
    """The part of a room that is one's own when others share it, all brought to one level.

    >>> mine = Batches(np.zeros(4, np.int64), np.full(4, 0.25), np.full(4, 10.0))
    >>> alike = Elsewhere(np.zeros(1), np.ones(1), np.ones(1), np.array([40.0]))
    >>> round(own_room(mine, Entitlements.equal(1), alike, 40.0), 6)
    20.0
    """
    if not len(others.cost) or not len(batches):
        return room
    queries = len(to.weight)
    batches = batches.spread
    both = Batches(
        np.concatenate([batches.query, queries + np.arange(len(others.cost))]),
        np.concatenate([batches.sic, others.sic]),
        np.concatenate([batches.cost, others.cost]),
    )
    together = Entitlements(
        np.concatenate([to.weight, others.weight]),
        np.concatenate([to.reached, others.reached]),
        np.zeros(queries + len(others.cost), np.int64),
        np.zeros(queries + len(others.cost)),
    )
    filled = fill_level(both, together, room)
    gained = np.maximum(0.0, filled.sic[queries:] - others.reached)
    theirs = np.divide(others.cost * gained, others.sic, out=np.zeros(len(gained)), where=others.sic > 0)
    # a rounding error must not cost a batch that fits exactly
    return min(room, max(0.0, room * (1 + 1e-9) - float(theirs.sum())))
