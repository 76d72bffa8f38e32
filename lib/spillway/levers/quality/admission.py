"""Which batches of which queries are worked on, when there is room for some only (Fiscato 2012, Algorithm 1).

    begin with every batch discarded; again and again take the query with the lowest projected sic, and admit its batch
    of highest sic, until the room is full

Ours, beside the text:

- *Projected* begins at what the query has reached elsewhere (`reached`): in other nodes, jobs, earlier runs.
- *Weights* are entitlements to a share: queries are kept level in sic / weight. A *priority* is a strict order: what
  stands below gets what those above have left. Both are sayable, and mean different things.
- Never over the room: the paper's last batch may pass it (erratum D6; selectable, see `algorithm_1`); here a batch that
  does not fit is passed over, and the query tries its next one. A query's batches go by sic per cost (for batches of
  equal size the paper's order), or as
  `turn` says where it is given; ties by `tie`: drawn by seed, so that of one source any batch is as likely to be kept
  as any other, and answers may be scaled up (see `intervals`).
- Costs may be affine. A group is a window of a query, which the engine answers once. The first admitted batch of a
  group costs the group's fixed cost in addition to its own.
- What must be kept goes first; then the query that has waited longest gets one batch (`waited`, see `entitled`); then
  every query is brought to its floor; then priorities in turn.

Whoever is planned again with what the others were given taken out of the room gets the same again: at every step what
fitted and was admitted still fits, and what did not fit does not.

Guarantee: no query whose batches still fit ends further below the max-min optimum (`max_min`) than one batch, the
largest of any query, in sic / weight. About n + k log n for n batches of which k are admitted.

>>> two = Batches(np.array([0, 0, 1, 1]), np.array([0.5, 0.5, 0.5, 0.5]), np.ones(4))
>>> admit_fairly(two, Entitlements.equal(2), room=2.0).tolist()
[True, False, True, False]
>>> admit_fairly(two, Entitlements.equal(2, reached=np.array([0.0, 0.9])), room=2.0).tolist()
[True, True, False, False]
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numba import njit

from spillway.errors import Refused

_TIE_BITS = 24
_TIES = (1 << _TIE_BITS) - 1
_STEPS = 1 << 38
_FAR = 1.0e300


@dataclass(frozen=True)
class Batches:
    """What is offered, one element a batch: whose it is, what it carries, what working on it costs."""

    query: np.ndarray
    sic: np.ndarray
    cost: np.ndarray
    tie: np.ndarray | None = None
    """A permutation: order among equals of a query; by default as they come."""
    turn: np.ndarray | None = None
    """From 0 to 1: order of a query's own batches, the lowest first; by default by what they carry for their cost."""
    group: np.ndarray | None = None
    """The group of each batch, as an index into `fixed`; None: no batch has a fixed cost."""
    fixed: np.ndarray | None = None
    """The fixed cost of each group: the cost of its first admitted batch in addition to the batch's own."""

    @property
    def groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Return `group` and `fixed`; one group without a fixed cost if there are none."""
        if self.group is None or self.fixed is None:
            return np.zeros(len(self), np.int64), np.zeros(1)
        return self.group, self.fixed

    @property
    def spread(self) -> Batches:
        """Return the batches without fixed costs: each batch bears a share of its group's, in proportion to its own
        cost."""
        if self.group is None or self.fixed is None:
            return self
        own = np.bincount(self.group, self.cost, len(self.fixed))
        alike = np.bincount(self.group, minlength=len(self.fixed))
        share = np.where(
            own[self.group] > 0, self.cost / np.maximum(own[self.group], 1e-300), 1.0 / alike[self.group]
        )
        return Batches(self.query, self.sic, self.cost + share * self.fixed[self.group], self.tie, self.turn)

    def costs_of(self, admitted: np.ndarray) -> float:
        """Return the cost of the admitted batches, with the fixed costs of their groups."""
        group, fixed = self.groups
        opened = np.bincount(group[admitted], minlength=len(fixed)) > 0
        return float(self.cost[admitted].sum() + fixed[opened].sum())

    def __len__(self) -> int:
        return len(self.query)

    def at(self, places: np.ndarray) -> Batches:
        """Some of them, in the same order among themselves."""
        tie = None if self.tie is None else np.argsort(np.argsort(self.tie[places]))
        turn = None if self.turn is None else self.turn[places]
        group = None if self.group is None else self.group[places]
        return Batches(self.query[places], self.sic[places], self.cost[places], tie, turn, group, self.fixed)


@dataclass(frozen=True)
class Entitlements:
    """What every query is entitled to."""

    weight: np.ndarray
    reached: np.ndarray
    """sic that it has reached elsewhere."""
    priority: np.ndarray
    floor: np.ndarray
    """sic it is brought to before others go above theirs."""
    waited: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """Rounds it has had nothing in; those of `starve_rounds - 1` or more get a batch first."""
    starve_rounds: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """A query with batches gets one at least every so many rounds; 0: no such promise."""

    def __post_init__(self) -> None:
        bad = np.flatnonzero(~(self.weight > 0))
        if len(bad):
            raise Refused(
                "weight",
                "be above 0",
                float(self.weight[bad[0]]),
                "take the query out if it is to get nothing",
            )

    @staticmethod
    def equal(queries: int, reached: np.ndarray | None = None) -> Entitlements:
        """All alike."""
        zeros = np.zeros(queries)
        return Entitlements(
            np.ones(queries), zeros if reached is None else reached, np.zeros(queries, np.int64), zeros
        )


def admit_fairly(
    batches: Batches, to: Entitlements, room: float, must_keep: np.ndarray | None = None
) -> np.ndarray:
    """Which batches are admitted."""
    refuse_room(room)
    admitted = np.zeros(len(batches), np.bool_)
    if not len(batches):
        return admitted
    order = _Order(batches, to)
    left = float(room)
    if must_keep is not None and must_keep.any():
        left = order.fill(admitted, left, must_keep)
    if len(to.waited) and len(to.starve_rounds):
        left = _entitled(order, admitted, left, to, batches)
    if (to.floor > 0).any():
        left = order.fill(admitted, left, None, to.floor)
    for priority in np.unique(to.priority)[::-1]:
        mine = None if (to.priority == priority).all() else to.priority[batches.query] == priority
        left = order.fill(admitted, left, mine)
    return admitted


def refuse_room(room: float) -> None:
    """Capacity zero is no capacity: nothing would ever be worked on."""
    if not room > 0:
        raise Refused("capacity", "be above 0", room, "say how much may be worked on in a slice of time")


class _Order:
    """The arrays that every pass goes over."""

    def __init__(self, batches: Batches, to: Entitlements) -> None:
        self.query = np.ascontiguousarray(batches.query, np.int32)
        self.sic = np.ascontiguousarray(batches.sic, np.float64)
        self.cost = np.ascontiguousarray(batches.cost, np.float64)
        if len(batches) > _TIES:
            raise Refused("batches", f"be at most {_TIES}", len(batches), "plan fewer windows at a time")
        self.tie = np.arange(len(batches)) if batches.tie is None else batches.tie.astype(np.int64)
        self.turn = np.zeros(0) if batches.turn is None else batches.turn.astype(np.float64)
        self.level = to.reached.astype(np.float64).copy()
        self.weight = to.weight.astype(np.float64)
        self.no_cap = np.full(len(self.weight), np.inf)
        self.group, fixed = batches.groups
        self.unpaid = fixed.astype(np.float64).copy()
        """Return the fixed cost of each group as long as none of its batches is admitted, then 0."""

    def fill(
        self, admitted: np.ndarray, left: float, among: np.ndarray | None, cap: np.ndarray | None = None
    ) -> float:
        """Admit more of those `among` (None: all) until queries reach `cap` or nothing fits; what is left."""
        mask = np.zeros(0, np.bool_) if among is None else among
        return _fill(
            self.query,
            self.sic,
            self.cost,
            self.tie,
            self.turn,
            self.group,
            self.unpaid,
            self.level,
            self.weight,
            self.no_cap if cap is None else cap.astype(np.float64),
            mask,
            left,
            admitted,
        )


def _entitled(order: _Order, admitted: np.ndarray, left: float, to: Entitlements, batches: Batches) -> float:
    """One batch, its cheapest, to each query that has waited for `starve_rounds - 1` rounds, the longest first."""
    owed = (to.starve_rounds > 0) & (to.waited >= to.starve_rounds - 1)
    waiting = [q for q in np.argsort(-to.waited, kind="stable") if owed[q]]
    has = np.zeros(len(to.weight), np.bool_)
    has[batches.query[admitted]] = True
    for query in waiting:
        mine = np.flatnonzero((batches.query == query) & ~admitted)
        if has[query] or not len(mine):
            continue
        best = mine[np.argmin(batches.cost[mine])]
        cost = float(batches.cost[best] + order.unpaid[order.group[best]])
        if cost <= left:
            admitted[best] = True
            left -= cost
            order.unpaid[order.group[best]] = 0.0
            order.level[query] += batches.sic[best]
    return left


@njit(cache=True)
def _sink(heap: np.ndarray, ranks: np.ndarray, size: int, at: int) -> None:
    """Restore a heap of queries, the lowest rank on top, equals by number."""
    moved, rank = heap[at], ranks[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            ranks[other] < ranks[child] or (ranks[other] == ranks[child] and heap[other] < heap[child])
        ):
            child = other
        if ranks[child] > rank or (ranks[child] == rank and heap[child] > moved):
            break
        heap[at], ranks[at] = heap[child], ranks[child]
        at = child
    heap[at], ranks[at] = moved, rank


@njit(cache=True)
def _fill(
    query: np.ndarray,
    sic: np.ndarray,
    cost: np.ndarray,
    tie: np.ndarray,
    turn: np.ndarray,
    group: np.ndarray,
    unpaid: np.ndarray,
    level: np.ndarray,
    weight: np.ndarray,
    cap: np.ndarray,
    among: np.ndarray,
    left: float,
    admitted: np.ndarray,
) -> float:
    n, queries, everybody = len(query), len(level), len(among) == 0
    ends = np.zeros(queries + 1, np.int64)
    densest, cheapest = 0.0, _FAR
    for i in range(n):
        if admitted[i] or not (everybody or among[i]):
            continue
        ends[query[i] + 1] += 1
        if cost[i] > 0:
            densest = max(densest, sic[i] / cost[i])
        cheapest = min(cheapest, cost[i])
    for q in range(queries):
        ends[q + 1] += ends[q]
    # a query's batches lie together, each one number: what it carries per cost, then its place among equals
    keys = np.empty(ends[queries], np.int64)
    batch = np.empty(n, np.int64)
    at = ends[:-1].copy()
    scale = _STEPS / densest if densest > 0 else 0.0
    for i in range(n):
        if admitted[i] or not (everybody or among[i]):
            continue
        # batches of one source carry the same per tuple, whatever the last digit says
        if len(turn):
            step = int(turn[i] * _STEPS)
        else:
            step = _STEPS - int(sic[i] / cost[i] * scale + 0.5) if cost[i] > 0 else 0
        keys[at[query[i]]] = (step << _TIE_BITS) | tie[i]
        at[query[i]] += 1
        batch[tie[i]] = i
    poorest, ranks = np.empty(queries, np.int64), np.empty(queries)
    alive = 0
    for q in range(queries):
        at[q] = ends[q]
        if ends[q + 1] > ends[q] and level[q] < cap[q]:
            keys[ends[q] : ends[q + 1]].sort()
            poorest[alive], ranks[alive] = q, level[q] / weight[q]
            alive += 1
    for place in range(alive // 2 - 1, -1, -1):
        _sink(poorest, ranks, alive, place)
    while alive and cheapest <= left:
        q = poorest[0]
        best = batch[keys[at[q]] & _TIES]
        at[q] += 1
        whole = cost[best] + unpaid[group[best]]
        if whole <= left:
            admitted[best] = True
            left -= whole
            unpaid[group[best]] = 0.0
            level[q] += sic[best]
            ranks[0] = level[q] / weight[q]
        if at[q] == ends[q + 1] or level[q] >= cap[q]:
            alive -= 1
            poorest[0], ranks[0] = poorest[alive], ranks[alive]
        if alive:
            _sink(poorest, ranks, alive, 0)
    return left
