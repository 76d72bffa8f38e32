"""Multiple-choice knapsack: choose one alternative per item at the least cost that fits. Every plan is made with it.

    minimise  sum cost(item, choice of it)   subject to   sum crosses(item, choice of it) <= room

Costs are tuples that are compared lexicographically: the first component decides, the second and third break ties (for
example *loss, number of measures affected, total bytes*). `crosses` is what is sent, in the unit of `room`: bytes, kbps
or another.

Method: dynamic programming over Pareto states. A state is dropped if another state sends no more and costs no more;
this loses no optimum. A lower bound is the linear relaxation: each item's lower convex hull of cost against what is
sent (Sinha and Zoltners, 1979). A state is also dropped if its first cost plus the bound of the remaining items exceeds
the best known choice.

Guarantee: the result is optimal while at most `MOST_STATES` states are alive at a time. Beyond that only the most
promising states are kept; then `exact` is False, and `gap` is an upper bound of the distance to the optimal first cost.
The choice fits. If nothing fits, it is the choice that sends least, and `over` is its excess. A *last resort* is chosen
only if nothing fits without one.

`least_cost_divided` solves the same problem where one item may be divided: a share of it gets one alternative, the rest
another, so that the room is filled. If a divided item needs no extra bytes, the linear relaxation gives the optimum.

>>> a = [Alternative(24, (0, 0, 24)), Alternative(18, (0, 1, 18))]
>>> b = [Alternative(16, (0, 0, 16)), Alternative(12, (0, 1, 12))]
>>> found = least_cost([a, b], room=34)
>>> found.picks, found.crosses, found.cost, found.exact
((1, 0), 34.0, (0.0, 1.0, 34.0), True)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from spillway.errors import InvalidValue

MOST_STATES = 20_000
WORTH_DIVIDING = 0.01
"""Smallest relative saving of cost for which an item is divided."""
_SLACK = 1e-12
"""Relative tolerance on the room: sums of floats depend on their order."""

Cost = tuple[float, float, float]


@dataclass(frozen=True)
class Alternative:
    """One alternative for an item: the amount sent, and its cost. The other fields are for people and decide
    nothing.
    """

    crosses: float
    cost: Cost
    of: str = field(default="", compare=False)
    """What the alternative is for."""
    way: str = field(default="", compare=False)
    """The treatment, in words."""
    lost_pct: float = field(default=0.0, compare=False)
    """The loss per value."""
    values: float = field(default=0.0, compare=False)
    """Number of values per second."""
    last_resort: bool = field(default=False, compare=False)
    """Whether it is chosen only if nothing fits without it."""
    divisible: bool = field(default=False, compare=False)
    """Whether a share of the item may have this alternative, and the rest another one."""


@dataclass(frozen=True)
class DividedSelection:
    """A choice for every item. Of the divided item `place`, the share `share` has the choice `finer` instead."""

    picks: tuple[int, ...]
    place: int
    finer: int
    share: float
    crosses: float
    cost: Cost


@dataclass(frozen=True)
class Selection:
    """A choice for every item, as an index into its alternatives, with its totals."""

    picks: tuple[int, ...]
    crosses: float
    cost: Cost
    over: float = 0.0
    exact: bool = True
    gap: float = 0.0


def least_cost(
    items: Sequence[Sequence[Alternative]], room: float, most_states: int = MOST_STATES
) -> Selection:
    """Return the choice of least cost that fits into `room`; if none fits, the choice that sends least.

    >>> least_cost([[Alternative(5, (0, 0, 5)), Alternative(2, (3, 1, 2))]], room=1).over
    1.0
    >>> gone = Alternative(0, (1, 0, 0), last_resort=True)
    >>> [least_cost([[gone, Alternative(5, (9, 0, 5))]], room).picks for room in (5, 4)]
    [(1,), (0,)]
    """
    _check(items, room)
    found = _least_cost(*_first_resorts(items), room, most_states)
    if found.over and any(one.last_resort for item in items for one in item):
        return _least_cost(items, [range(len(item)) for item in items], room, most_states)
    return found


def least_cost_divided(
    items: Sequence[Sequence[Alternative]],
    room: float,
    whole: Selection,
    dearer: Sequence[float] | None = None,
) -> DividedSelection | None:
    """Return the choice of least first cost with one item divided; None if that saves less than `WORTH_DIVIDING`.

    `whole`: the result of `least_cost` on the same arguments, whose unused room is filled. `dearer`: by item, how much
    more a divided item sends than the weighted mean of its two alternatives.

    >>> temp = [Alternative(4, (0, 0, 4), divisible=True), Alternative(0, (100, 1, 0), divisible=True)]
    >>> found = least_cost_divided([temp], 3.0, least_cost([temp], 3.0))
    >>> found.picks, found.finer, found.share, found.cost[0]
    ((1,), 0, 0.75, 25.0)
    >>> least_cost_divided([temp], 3.0, least_cost([temp], 3.0), dearer=[1.5]).share
    0.5
    """
    if whole.over or whole.cost[0] <= 0 or not all(one.divisible for item in items for one in item):
        return None
    factors = [1.0] * len(items) if dearer is None else dearer
    keeps_to = not any(item[at].last_resort for item, at in zip(items, whole.picks, strict=True))
    offered, places = _first_resorts(items) if keeps_to else (items, [range(len(item)) for item in items])
    bases = [[mine.index(at) for mine, at in zip(places, whole.picks, strict=True)]]
    relaxed = _relaxed_selection(offered, room)
    bases += [] if relaxed is None else [relaxed]
    found: list[tuple[float, DividedSelection]] = []
    for base in bases:
        taken = [item[at] for item, at in zip(offered, base, strict=True)]
        left = room - math.fsum(one.crosses for one in taken)
        picks = tuple(mine[at] for mine, at in zip(places, base, strict=True))
        cost = [math.fsum(one.cost[k] for one in taken) for k in range(3)]
        for place, (item, before, factor) in enumerate(zip(offered, taken, factors, strict=True)):
            for at, after in enumerate(item):
                if after.crosses <= before.crosses or after.cost[0] >= before.cost[0]:
                    continue
                width = after.crosses - before.crosses
                share = min(1.0, ((before.crosses + left) / factor - before.crosses) / width)
                if share <= 0:
                    continue
                first, second, third = (
                    so_far + share * (then - now)
                    for so_far, now, then in zip(cost, before.cost, after.cost, strict=True)
                )
                crosses = room - left - before.crosses + factor * (before.crosses + share * width)
                mixed = DividedSelection(
                    picks, place, places[place][at], share, crosses, (first, second, third)
                )
                found.append((first, mixed))
    best = min(found, key=lambda one: one[0], default=None)
    gains = best is not None and best[0] < whole.cost[0] * (1.0 - WORTH_DIVIDING)
    return best[1] if best is not None and gains else None


def _relaxed_selection(items: Sequence[Sequence[Alternative]], room: float) -> list[int] | None:
    """Return the choice of the linear relaxation without its fractional item; None if no choice fits."""
    hulls = [
        lower_hull(np.array([one.crosses for one in item]), np.array([one.cost[0] for one in item]))
        for item in items
    ]
    picks = [hull[0] for hull in hulls]
    left = room - math.fsum(item[at].crosses for item, at in zip(items, picks, strict=True))
    if left < 0:
        return None
    steps = []
    for place, (item, hull) in enumerate(zip(items, hulls, strict=True)):
        for before, after in pairwise(hull):
            width = item[after].crosses - item[before].crosses
            steps.append(((item[after].cost[0] - item[before].cost[0]) / width, place, after, width))
    for _, place, after, width in sorted(steps):
        if width > left:
            break
        picks[place], left = after, left - width
    return picks


def _first_resorts(
    items: Sequence[Sequence[Alternative]],
) -> tuple[list[list[Alternative]], list[list[int]]]:
    """Return the items without their last resorts, and the original index of each choice.

    An item that has only last resorts keeps them.
    """
    places = [
        [at for at, one in enumerate(item) if not one.last_resort] or list(range(len(item))) for item in items
    ]
    return [[item[at] for at in mine] for item, mine in zip(items, places, strict=True)], places


def _least_cost(
    items: Sequence[Sequence[Alternative]],
    places: Sequence[Sequence[int]],
    room: float,
    most_states: int,
) -> Selection:
    """Return the choice of least cost among these alternatives, by their index among all."""
    found = _least(items, room, most_states)
    return replace(found, picks=tuple(mine[at] for mine, at in zip(places, found.picks, strict=True)))


def _least(items: Sequence[Sequence[Alternative]], room: float, most_states: int) -> Selection:
    crosses = [np.array([one.crosses for one in item]) for item in items]
    costs = [np.array([one.cost for one in item]) for item in items]
    dearest = [_first(cost) for cost in costs]
    if math.fsum(c[i] for c, i in zip(crosses, dearest, strict=True)) <= room:
        return _selection(items, dearest, room)
    least = [_first(np.column_stack([c, cost])) for c, cost in zip(crosses, costs, strict=True)]
    if math.fsum(c[i] for c, i in zip(crosses, least, strict=True)) >= room:
        return _selection(items, least, room)
    hulls = _LowerBound.of_rest(crosses, costs)
    simple = _selection(items, _rounded_selection(crosses, costs, room), room)
    picks, exact = _search(crosses, costs, hulls, room, most_states, simple.cost[0])
    found = _selection(items, picks, room) if picks else simple
    if not exact:
        found = min(found, simple, key=lambda one: one.cost)
    # bound and sum add the same costs in another order: a difference in the last bit is no gap
    gap = 0.0 if exact else max(0.0, found.cost[0] - float(hulls[0].at(np.array([room]))[0]))
    return Selection(found.picks, found.crosses, found.cost, found.over, exact, gap)


def _first(keys: np.ndarray) -> int:
    """Return the index of the smallest row; columns are compared in order."""
    return int(np.lexsort(keys.T[::-1])[0])


def _selection(items: Sequence[Sequence[Alternative]], picks: Sequence[int], room: float) -> Selection:
    taken = [item[at] for item, at in zip(items, picks, strict=True)]
    crosses = math.fsum(one.crosses for one in taken)
    first, second, third = (math.fsum(one.cost[k] for one in taken) for k in range(3))
    over = crosses - room if crosses > room * (1.0 + _SLACK) else 0.0
    return Selection(tuple(int(at) for at in picks), crosses, (first, second, third), over)


@dataclass(frozen=True)
class _LowerBound:
    """Lower bound: the least first cost of some items as a function of the room (linear relaxation).

    It is convex and piecewise linear.
    """

    rooms: np.ndarray
    costs: np.ndarray

    @staticmethod
    def of_rest(crosses: Sequence[np.ndarray], costs: Sequence[np.ndarray]) -> list[_LowerBound]:
        """Return the bounds of all items, of all but the first, and so on to none. Each hull is computed once."""
        narrowest, cheapest = np.zeros(len(crosses) + 1), np.zeros(len(crosses) + 1)
        steps: list[tuple[float, float, float, int]] = []
        for place, (c, cost) in enumerate(zip(crosses, costs, strict=True)):
            hull = lower_hull(c, cost[:, 0])
            narrowest[place], cheapest[place] = c[hull[0]], cost[hull[-1], 0]
            for before, after in pairwise(hull):
                width, fall = c[after] - c[before], cost[before, 0] - cost[after, 0]
                steps.append((-fall / width, width, fall, place))
        rooms, ends = (np.cumsum(one[::-1])[::-1] for one in (narrowest, cheapest))
        _, widths, falls, places = np.array(sorted(steps)).reshape(-1, 4).T
        found = []
        for at in range(len(crosses) + 1):
            mine = places >= at
            # sum from the cheap end: rounding errors of large costs would decide between small ones
            rising = np.cumsum(np.concatenate([[ends[at]], falls[mine][::-1]]))
            found.append(_LowerBound(np.cumsum(np.concatenate([[rooms[at]], widths[mine]])), rising[::-1]))
        return found

    def at(self, room: np.ndarray) -> np.ndarray:
        return np.asarray(np.interp(-room, -self.rooms[::-1], self.costs[::-1]))


def lower_hull(crosses: np.ndarray, cost: np.ndarray) -> list[int]:
    """Return the indices on the lower convex hull, from the one that sends least to the one that costs least.

    >>> lower_hull(np.array([0.0, 1.0, 2.0, 4.0]), np.array([9.0, 7.0, 1.0, 0.0]))
    [0, 2, 3]
    """
    hull: list[int] = []
    for at in np.lexsort((cost, crosses)):
        if hull and cost[at] >= cost[hull[-1]]:
            continue
        while len(hull) > 1:
            (a, b) = hull[-2:]
            # b lies on or above the line from a to this one
            left = (cost[b] - cost[a]) * (crosses[at] - crosses[a])
            right = (cost[at] - cost[a]) * (crosses[b] - crosses[a])
            if left < right:
                break
            hull.pop()
        hull.append(int(at))
    return hull


def _rounded_selection(crosses: Sequence[np.ndarray], costs: Sequence[np.ndarray], room: float) -> list[int]:
    """Return a choice that fits: that of the relaxation without its fractional step."""
    picks = [_first(np.column_stack([c, cost])) for c, cost in zip(crosses, costs, strict=True)]
    used = math.fsum(c[at] for c, at in zip(crosses, picks, strict=True))
    steps = []
    for place, (c, cost) in enumerate(zip(crosses, costs, strict=True)):
        hull = lower_hull(c, cost[:, 0])
        for before, after in pairwise(hull):
            fall = (cost[before, 0] - cost[after, 0]) / (c[after] - c[before])
            steps.append((-fall, place, after))
    for _, place, after in sorted(steps):
        wider = used + crosses[place][after] - crosses[place][picks[place]]
        if wider <= room and costs[place][after, 0] < costs[place][picks[place], 0]:
            used, picks[place] = wider, after
    return picks


def _search(
    crosses: Sequence[np.ndarray],
    costs: Sequence[np.ndarray],
    hulls: Sequence[_LowerBound],
    room: float,
    most_states: int,
    known: float,
) -> tuple[list[int], bool]:
    """Extend Pareto states item by item. Return the best picks, and whether no state was dropped because of the limit.

    The picks are empty if all states that fitted were dropped.
    """
    ceiling = known + abs(known) * 1e-9 + 1e-12
    used, spent = np.zeros(1), np.zeros((1, 3))
    trail: list[tuple[np.ndarray, np.ndarray]] = []
    exact = True
    for place, (c, cost) in enumerate(zip(crosses, costs, strict=True)):
        rest = hulls[place + 1]
        grown = (used[:, None] + c[None, :]).ravel()
        sums = (spent[:, None, :] + cost[None, :, :]).reshape(-1, 3)
        promised = sums[:, 0] + rest.at(room - grown)
        alive = np.flatnonzero((grown + rest.rooms[0] <= room * (1.0 + _SLACK)) & (promised <= ceiling))
        alive = alive[_pareto_states(grown[alive], sums[alive])]
        if len(alive) > most_states:
            exact = False
            alive = np.sort(alive[np.argsort(promised[alive], kind="stable")[:most_states]])
        trail.append((alive // len(c), alive % len(c)))
        used, spent = grown[alive], sums[alive]
        if not len(alive):
            return [], exact
    state = _first(spent)
    picks = []
    for before, pick in reversed(trail):
        picks.append(int(pick[state]))
        state = int(before[state])
    return picks[::-1], exact


def _pareto_states(crosses: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the indices of states that no other state beats or equals in both cost and amount, in ascending order."""
    if len(crosses) < 2:
        return np.arange(len(crosses))
    rank = np.empty(len(crosses), np.int64)
    rank[np.lexsort((crosses, costs[:, 2], costs[:, 1], costs[:, 0]))] = np.arange(len(crosses))
    order = np.lexsort((rank, crosses))
    best = np.minimum.accumulate(rank[order])
    first = np.concatenate([[True], rank[order][1:] < best[:-1]])
    return np.sort(order[first])


def _check(items: Sequence[Sequence[Alternative]], room: float) -> None:
    if not math.isfinite(room):
        raise InvalidValue("room", "be a finite number", room, "state the capacity")
    for place, item in enumerate(items):
        if not item:
            raise InvalidValue(f"items[{place}]", "offer a choice", None, "offer to keep it")
        for one in item:
            if not (one.crosses >= 0 and all(map(math.isfinite, (one.crosses, *one.cost)))):
                raise InvalidValue(f"items[{place}]", "offer finite figures", one, "measure it again")
