"""Admit batches of queries to a capacity that is too small for all of them (Fiscato 2012, Algorithm 1).

    begin with every batch discarded; repeatedly take the query with the lowest projected sic, and admit its batch of
    the highest sic, until the capacity (`capacity_group`) is used

`admit_fairly` differs from the paper's rule:

- *Projected sic* begins at what the query has reached elsewhere (`reached`): in other nodes, jobs, earlier runs.
- A *weight* is an entitlement to a share: queries are kept level in sic / weight. A *priority* is a strict order: a
  lower one gets what the higher ones leave. A contract can state both.
- The capacity is never exceeded. The paper's last batch may exceed it (erratum D6; see `admit_by_algorithm_1`). Here a
  batch that does not fit is skipped, and the query tries its next one. The batches of a query are ordered by sic per
  cost (for batches of equal size the paper's order), or by `turn` if it is given. Ties are resolved by `tie`. It is
  drawn by seed, so any batch of a source is as likely to be kept as any other, and answers may be scaled up
  (`intervals`).
- Costs may be affine. A group is a window of a query, which the engine answers once. The first admitted batch of a
  group costs the group's fixed cost in addition to its own.
- Batches that must be kept go first. Then each query that has waited long enough gets one batch (`waited`,
  `starve_rounds`), the longest wait first. Then every query is filled to its floor. Then priorities follow in turn.

If some queries are planned again, and the capacity is reduced by what the others were given, they get the same batches:
at each step what was admitted still fits, and what did not fit does not.

Guarantee: no query whose batches still fit ends further below the max-min optimum (`max_min_level`) than one batch, the
largest of any query, in sic / weight. Time: about n + k log n for n batches of which k are admitted.

>>> two = Batches(np.array([0, 0, 1, 1]), np.array([0.5, 0.5, 0.5, 0.5]), np.ones(4))
>>> admit_fairly(two, Entitlements.equal(2), room=2.0).tolist()
[True, False, True, False]
>>> admit_fairly(two, Entitlements.equal(2, reached=np.array([0.0, 0.9])), room=2.0).tolist()
[True, True, False, False]

*Policies* (`admit_by_policy`):

- `fair`: `admit_fairly`, our form of the paper's rule.
- `admit_by_algorithm_1`: the paper's own rule (Fiscato 2012, Algorithm 1). Take the query of the lowest projected sic,
  admit its batch of the highest sic, until the admitted batches fill the capacity. So the last batch may exceed it
  (erratum D6). Priorities, floors and `starve_slices` are ignored; a weight divides a query's sic.
- `random`: batches in random order.
- `round_robin`: a batch of each query in turn, beginning with those that have waited longest (`Entitlements.waited`).
- `priority`: one query after the other, the highest priority first, equal priorities by their number.

All policies first keep the batches that must be kept. All but `admit_by_algorithm_1` skip a batch that does not fit.
Random order is `Batches.tie`, drawn from a seed: the same input gives the same choice.

>>> two = Batches(np.array([0, 0, 0, 1]), np.array([0.3, 0.3, 0.4, 1.0]), np.ones(4))
>>> {name: admit_by_policy(name, two, Entitlements.equal(2), 3.0).tolist() for name in ("round_robin", "priority")}
{'round_robin': [True, False, True, True], 'priority': [True, True, True, False]}
>>> large = Batches(np.array([0, 1, 1]), np.array([1.0, 0.5, 0.5]), np.array([4.0, 1.0, 1.0]))
>>> {name: admit_by_policy(name, large, Entitlements.equal(2), 3.0).tolist() for name in ("fair", "algorithm_1")}
{'fair': [False, True, True], 'algorithm_1': [True, False, False]}

*Max-min optimum* (`max_min_level`): the level that queries could reach if batches were divisible (water-filling). It is
the highest L such that every query reaches min(L * weight, all it has) within the capacity, each by its batches of the
highest sic per cost first. Cost is then a convex, increasing function of sic, so bisection finds L. No admission of
whole batches lifts the poorest query above L; `admit_fairly` ends within one batch of it.

>>> from spillway.levers.quality.admission import Batches, Entitlements
>>> four = Batches(np.array([0, 0, 1, 1]), np.full(4, 0.5), np.array([1.0, 1.0, 2.0, 2.0]))
>>> filled = max_min_level(four, Entitlements.equal(2), room=3.0)
>>> round(filled.level, 6), filled.sic.round(6).tolist()
(0.5, [0.5, 0.5])

*Projection*: what a query has reached before a decision (Fiscato 2012, 5.3).

Earlier windows (`starting_coverage`): fairness covers a few windows, like the paper's source time window of many
intervals. A query begins at the sum of what its last windows reached, so one that got little has precedence the next
time. A query with a shorter history gets the average of the others for the missing windows: it has no claim from before
it existed.

Other jobs or nodes (`own_capacity`): a job that decides only some of the queries of a room leaves to the others what a
joint decision would give them. That is the max-min level of its own batches and of the last load of the others. If
loads are constant, two such jobs reach the same level and fill the capacity together, from any start.

>>> starting_coverage({"a": [0.5, 0.1], "b": [0.4, 0.4]}, ["a", "b", "new"]).round(2).tolist()
[0.6, 0.8, 0.7]

*Evenness* (`coverage_spread`): Jain's index of x_1..x_n is (sum x)^2 / (n sum x^2). It is 1 if all are equal, and 1/n
if one has everything. In addition there are the four figures of Fiscato 2012: mean, standard deviation, interquartile
range (IQR), and Q.95 - Q.05. If queries have different weights, pass sic / weight.

>>> coverage_spread(np.array([1.0, 1.0, 1.0, 1.0])).jain, round(coverage_spread(np.array([1.0, 0.0])).jain, 2)
(1.0, 0.5)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numba import njit

from spillway.errors import InvalidValue
from spillway.levers.quality.settings import ALGORITHM_1, POLICIES

_TIE_BITS = 24
_TIES = (1 << _TIE_BITS) - 1
_STEPS = 1 << 38
_FAR = 1.0e300


@dataclass(frozen=True)
class Batches:
    """The offered batches, one element each: the query, the sic, and the cost of processing."""

    query: np.ndarray
    sic: np.ndarray
    cost: np.ndarray
    tie: np.ndarray | None = None
    """A permutation that orders equal batches of a query; by default the order of the arrays."""
    turn: np.ndarray | None = None
    """The order of the batches of a query, from 0 to 1, the lowest first; by default the highest sic per cost first."""
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
    def with_spread_costs(self) -> Batches:
        """Return the batches without fixed costs: each adds a share of its group's, in proportion to its own cost."""
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
        """Return the batches at these indices; `tie` keeps their order."""
        tie = None if self.tie is None else np.argsort(np.argsort(self.tie[places]))
        turn = None if self.turn is None else self.turn[places]
        group = None if self.group is None else self.group[places]
        return Batches(self.query[places], self.sic[places], self.cost[places], tie, turn, group, self.fixed)


@dataclass(frozen=True)
class Entitlements:
    """The entitlements of queries, one element per query."""

    weight: np.ndarray
    reached: np.ndarray
    """The sic that the query has reached in other nodes, jobs or earlier runs."""
    priority: np.ndarray
    floor: np.ndarray
    """The sic to which the query is filled before any query gets more than its floor."""
    waited: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """The number of rounds without a batch; a query with `starve_rounds - 1` or more gets a batch first."""
    starve_rounds: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """The number of rounds in which a query with batches gets at least one; 0: no guarantee."""

    def __post_init__(self) -> None:
        bad = np.flatnonzero(~(self.weight > 0))
        if len(bad):
            raise InvalidValue(
                "weight",
                "be above 0",
                float(self.weight[bad[0]]),
                "take the query out if it is to get nothing",
            )

    @staticmethod
    def equal(queries: int, reached: np.ndarray | None = None) -> Entitlements:
        """Return equal weights, without priorities and floors."""
        zeros = np.zeros(queries)
        return Entitlements(
            np.ones(queries), zeros if reached is None else reached, np.zeros(queries, np.int64), zeros
        )


def admit_fairly(
    batches: Batches, to: Entitlements, room: float, must_keep: np.ndarray | None = None
) -> np.ndarray:
    """Return which batches are admitted; `must_keep`: the batches that are admitted first."""
    check_capacity(room)
    admitted = np.zeros(len(batches), np.bool_)
    if not len(batches):
        return admitted
    order = _Order(batches, to)
    left = float(room)
    if must_keep is not None and must_keep.any():
        left = order.fill(admitted, left, must_keep)
    if len(to.waited) and len(to.starve_rounds):
        left = _admit_starved(order, admitted, left, to, batches)
    if (to.floor > 0).any():
        left = order.fill(admitted, left, None, to.floor)
    for priority in np.unique(to.priority)[::-1]:
        mine = None if (to.priority == priority).all() else to.priority[batches.query] == priority
        left = order.fill(admitted, left, mine)
    return admitted


def check_capacity(room: float) -> None:
    """Refuse a capacity that is not above 0: nothing would ever be processed."""
    if not room > 0:
        raise InvalidValue("capacity", "be above 0", room, "say how much may be worked on in a slice of time")


class _Order:
    """The arrays that each pass reads, and the state of the passes: `level` and `unpaid`."""

    def __init__(self, batches: Batches, to: Entitlements) -> None:
        self.query = np.ascontiguousarray(batches.query, np.int32)
        self.sic = np.ascontiguousarray(batches.sic, np.float64)
        self.cost = np.ascontiguousarray(batches.cost, np.float64)
        if len(batches) > _TIES:
            raise InvalidValue("batches", f"be at most {_TIES}", len(batches), "plan fewer windows at a time")
        self.tie = np.arange(len(batches)) if batches.tie is None else batches.tie.astype(np.int64)
        self.turn = np.zeros(0) if batches.turn is None else batches.turn.astype(np.float64)
        self.level = to.reached.astype(np.float64).copy()
        self.weight = to.weight.astype(np.float64)
        self.no_cap = np.full(len(self.weight), np.inf)
        self.group, fixed = batches.groups
        self.unpaid = fixed.astype(np.float64).copy()
        """The fixed cost of each group as long as none of its batches is admitted, then 0."""

    def fill(
        self, admitted: np.ndarray, left: float, among: np.ndarray | None, cap: np.ndarray | None = None
    ) -> float:
        """Admit batches `among` (None: all) until queries reach `cap` or nothing fits; return the capacity left."""
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


def _admit_starved(
    order: _Order, admitted: np.ndarray, left: float, to: Entitlements, batches: Batches
) -> float:
    """Admit the cheapest batch of each query that has waited `starve_rounds - 1` rounds; return the capacity left.

    The query that has waited longest comes first. A query that already has an admitted batch is skipped.
    """
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
    """Restore a heap of queries from index `at`: the lowest rank on top, equal ranks by query number."""
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
    # the batches of a query are contiguous; each has an integer key: sic per cost (or turn), then tie
    keys = np.empty(ends[queries], np.int64)
    batch = np.empty(n, np.int64)
    at = ends[:-1].copy()
    scale = _STEPS / densest if densest > 0 else 0.0
    for i in range(n):
        if admitted[i] or not (everybody or among[i]):
            continue
        # batches of one source have the same sic per tuple: rounding removes differences in the last digit
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


def admit_by_policy(
    policy: str, batches: Batches, to: Entitlements, room: float, must_keep: np.ndarray | None = None
) -> np.ndarray:
    """Return which batches a policy admits; `must_keep`: the batches that are admitted first."""
    if policy == "fair":
        return admit_fairly(batches, to, room, must_keep)
    if policy == ALGORITHM_1:
        return admit_by_algorithm_1(batches, to, room, must_keep)
    if policy not in POLICIES:
        raise InvalidValue("policy", f"be one of {', '.join(POLICIES)}", policy, "write fair")
    check_capacity(room)
    tie = np.arange(len(batches)) if batches.tie is None else batches.tie
    # the batches of a query have the order of the fair policy: by turn, or by sic per cost
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
    return _admit_in_order(batches.cost, order, group, fixed.astype(np.float64), float(room))


def admit_by_algorithm_1(
    batches: Batches, to: Entitlements, room: float, must_keep: np.ndarray | None = None
) -> np.ndarray:
    """Return which batches the paper's shedder admits (Fiscato 2012, Algorithm 1).

    Ties between queries are resolved by their number, ties between batches by `tie`; the paper leaves both open.
    """
    check_capacity(room)
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
    """Run lines 10 to 15 of Algorithm 1; return the cost of the admitted batches.

    `order[ends[q]:ends[q + 1]]` are the batches of query q, the highest sic first.
    """
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
    """Return the position of each batch among the batches of its query."""
    order = np.lexsort([tie, -worth, query])
    mine = query[order]
    starts = np.flatnonzero(np.r_[True, mine[1:] != mine[:-1]]) if len(mine) else np.zeros(0, np.int64)
    lengths = np.diff(np.r_[starts, len(mine)])
    turn = np.empty(len(query), np.int64)
    turn[order] = np.arange(len(mine)) - np.repeat(starts, lengths)
    return turn


@njit(cache=True)
def _admit_in_order(
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


_HALVINGS = 60


@dataclass(frozen=True)
class MaxMinLevel:
    """The max-min level, in sic / weight, and the sic of each query at this level."""

    level: float
    sic: np.ndarray


def max_min_level(batches: Batches, to: Entitlements, room: float) -> MaxMinLevel:
    """Return the max-min optimum, without priorities, floors and batches that must be kept."""
    check_capacity(room)
    queries, query = len(to.weight), batches.query.astype(np.int64)
    whole = to.reached + np.bincount(query, batches.sic, queries)
    if batches.cost.sum() <= room:
        return MaxMinLevel(float((whole / to.weight).max(initial=0.0)), whole)
    # batches of a query in the order of sic / cost; `begins`: the sum of sic before each batch
    order = np.lexsort([-batches.sic / np.maximum(batches.cost, 1e-300), query])
    query, sic = query[order], batches.sic[order].astype(np.float64)
    before = np.cumsum(sic) - sic
    first = np.searchsorted(query, query)
    begins = to.reached[query] + before - before[first]
    level = _bisect_level(begins, sic, batches.cost[order].astype(np.float64), to.weight[query], float(room),
                    float((whole / to.weight).max()))  # fmt: skip
    return MaxMinLevel(level, np.minimum(np.maximum(level * to.weight, to.reached), whole))


@njit(cache=True)
def _bisect_level(
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


def starting_coverage(
    reached: Mapping[str, Sequence[float]],
    queries: Sequence[str],
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """Return where each query begins: the sum of what its last windows reached, over the same number of windows.

    A missing window counts as the mean over the queries, by weight.
    """
    weights = np.ones(len(queries)) if weight is None else weight
    longest = max((len(reached.get(query, ())) for query in queries), default=0)
    found = np.array([float(sum(reached.get(query, ()))) for query in queries])
    had = np.array([len(reached.get(query, ())) for query in queries])
    if not longest or not (had > 0).any():
        return np.zeros(len(queries))
    # per window and weight, so that a query of small weight does not look underserved
    usual = float((found[had > 0] / had[had > 0] / weights[had > 0]).mean())
    return np.asarray(found + (longest - had) * usual * weights)


@dataclass(frozen=True)
class OtherQueries:
    """Queries of the room that other jobs decide: the sic, the weight and the last load of each."""

    reached: np.ndarray
    weight: np.ndarray
    sic: np.ndarray
    """The sic that all of its load would add."""
    cost: np.ndarray


def own_capacity(batches: Batches, to: Entitlements, others: OtherQueries, room: float) -> float:
    """Return the capacity that is left for these batches if all queries, `others` included, reach one level.

    >>> mine = Batches(np.zeros(4, np.int64), np.full(4, 0.25), np.full(4, 10.0))
    >>> alike = OtherQueries(np.zeros(1), np.ones(1), np.ones(1), np.array([40.0]))
    >>> round(own_capacity(mine, Entitlements.equal(1), alike, 40.0), 6)
    20.0
    """
    if not len(others.cost) or not len(batches):
        return room
    queries = len(to.weight)
    batches = batches.with_spread_costs
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
    filled = max_min_level(both, together, room)
    gained = np.maximum(0.0, filled.sic[queries:] - others.reached)
    theirs = np.divide(others.cost * gained, others.sic, out=np.zeros(len(gained)), where=others.sic > 0)
    # a rounding error must not cost a batch that fits exactly
    return min(room, max(0.0, room * (1 + 1e-9) - float(theirs.sum())))


@dataclass(frozen=True)
class CoverageSpread:
    """The mean and the spread of the coverage of queries."""

    mean: float
    std: float
    iqr: float
    q95_q05: float
    jain: float


def coverage_spread(sic: np.ndarray) -> CoverageSpread:
    """Return the spread of queries' coverage; if there is no query, or all are 0, Jain's index is 1."""
    if not len(sic):
        return CoverageSpread(1.0, 0.0, 0.0, 0.0, 1.0)
    q05, q25, q75, q95 = np.quantile(sic, [0.05, 0.25, 0.75, 0.95])
    squares = float((sic * sic).sum())
    jain = float(sic.sum()) ** 2 / (len(sic) * squares) if squares else 1.0
    return CoverageSpread(float(sic.mean()), float(sic.std()), float(q75 - q25), float(q95 - q05), jain)
