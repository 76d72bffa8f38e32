"""Plan which portions the queries of a room (a capacity group) are given, slice by slice of event time.

All waiting windows are planned before any is computed. A slice has the length that the capacity states
(`per_seconds`), and a window belongs to the slice in which it begins. So decisions follow from the data and from what
was reached before, never from the time of a run: the same input gives the same plan. Within a slice the coverage of a
query is the mean over its windows there.

Some queries of the room may be computed by another job. What they were given in the slice is subtracted from the
capacity, and what they are likely to be offered is left to them (`admission.own_capacity`). A query that fails gets no
capacity. Its statements are analysed before the capacity is divided; if it fails on its rows, the capacity is divided
again without it. The others then keep its share of that slice. A query that is fixed later, or joins the room later,
gets what they left of past slices; if that is nothing, `explain` says so.

The plan of a slice is not stored, and need not be. If some of the queries that were planned together are planned again
after the others were computed, they get the same portions (`admission`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np

from spillway.contracts.workload import Workload
from spillway.errors import InvalidValue
from spillway.levers.protocol import CapacityGroup
from spillway.levers.quality.admission import (
    Batches,
    Entitlements,
    OtherQueries,
    admit_by_policy,
    own_capacity,
    starting_coverage,
)
from spillway.levers.quality.overload import Overload, RoomHistory, room_history
from spillway.levers.quality.random_order import (
    PortionColumns,
    chance_order,
    is_chosen_by_chance,
    move_late_last,
    portion_turns,
)
from spillway.levers.quality.settings import ALGORITHM_1, QualitySettings, RoomCapacity
from spillway.levers.windows import PLANNED, Portion, Window, WindowWork, duration_micros, micros_of

LEVER_NAME = "quality"


@dataclass(frozen=True)
class WindowShare:
    """The portions that a window was offered and those that it keeps, with their costs and the rules that applied."""

    kept: tuple[Portion, ...]
    offered: tuple[Portion, ...]
    drawn: tuple[int, ...]
    """Indices into `kept` of the portions that chance alone chose, whatever their sizes (`is_chosen_by_chance`)."""
    slice: int
    cost: float
    cost_offered: float
    weight: float
    capacity: float | None
    arrived_first: int | None
    """The number of tuples that had arrived when the window was first computed; None: it is computed first now."""


@dataclass(frozen=True)
class RoomRules:
    """The rules of a room, on which the contracts of its queries agree."""

    queries: Mapping[str, QualitySettings]
    capacity: RoomCapacity | None
    policy: str
    slice_seconds: float
    weights: Mapping[str, float]
    failed: frozenset[str] = frozenset()
    """Queries that cannot be computed because of an error."""
    cost_model: str = "affine"

    def slice_of(self, moment: datetime) -> int:
        """Return the number of the slice that contains a moment."""
        return micros_of(moment) // duration_micros(self.slice_seconds)

    @property
    def room(self) -> float | None:
        """Return the capacity of a slice, in tuples or seconds; None: unlimited."""
        if self.capacity is None:
            return None
        return self.capacity.tuples if self.capacity.tuples is not None else self.capacity.seconds


def room_rules(room: CapacityGroup) -> RoomRules:
    """Return the rules of a room; refuse contracts that contradict one another."""
    members = {
        name: contract
        for name, contract in sorted(room.contracts.queries.items())
        if LEVER_NAME in contract.lever_names and (contract.capacity_group or name) == room.name
    }
    settings = {name: contract.lever_settings(LEVER_NAME) for name, contract in members.items()}
    capacity = _agreed_value(members, {n: s.capacity for n, s in settings.items() if s.capacity}, "capacity")
    policy = _agreed_value(members, {n: s.policy for n, s in settings.items()}, "policy")
    cost_model = _agreed_value(members, {n: s.cost_model for n, s in settings.items()}, "cost_model")
    longest = max(contract.window.seconds for contract in members.values())
    per = capacity.per_seconds if capacity and capacity.per_seconds else longest
    return RoomRules(settings, capacity, policy, per, _weights(settings), room.failed, cost_model)


def _agreed_value(members: Mapping[str, Workload], said: Mapping[str, Any], what: str) -> Any:
    """Return the value that all queries of a room state; refuse different values."""
    different = {repr(value): name for name, value in said.items()}
    if len(different) > 1:
        one, other, *_ = different.values()
        raise InvalidValue(
            what,
            f"be one for all queries of a capacity group, and {one} and {other} differ",
            [str(value) for value in said.values()],
            "write the same in all of them, or in one alone",
            where=", ".join(members),
        )
    return next(iter(said.values()), None)


def _weights(settings: Mapping[str, QualitySettings]) -> dict[str, float]:
    """Return the weight of every query; a team's weight is divided among its queries in proportion to theirs."""
    in_team: dict[str, float] = {}
    for one in settings.values():
        if one.team is not None:
            in_team[one.team] = in_team.get(one.team, 0.0) + one.weight
    return {
        name: one.weight if one.team is None else one.team_weight * one.weight / in_team[one.team]
        for name, one in settings.items()
    }


def plan_room(
    room: CapacityGroup,
    work: Sequence[WindowWork],
    rules: RoomRules | None = None,
    history: RoomHistory | None = None,
) -> dict[tuple[str, int], WindowShare]:
    """Return the portions that each query and window is given."""
    rules = room_rules(room) if rules is None else rules
    slices: dict[int, list[tuple[WindowWork, Window]]] = {}
    for one in work:
        for window in one.windows:
            slices.setdefault(rules.slice_of(window.from_time), []).append((one, window))
    if history is None and slices:
        again = {one.contract.subject: {w.window for w in one.windows} for one in work}
        since, last_slices = _history_range(rules, min(slices))
        history = room_history(
            room.tables, room.name, again, duration_micros(rules.slice_seconds), since, last_slices
        )
    found: dict[tuple[str, int], WindowShare] = {}
    for number in sorted(slices):
        assert history is not None
        found |= _plan_slice(room.name, rules, history, number, slices[number])
    return found


def _history_range(rules: RoomRules, first: int) -> tuple[int, int]:
    """Return the oldest slice that planning from slice `first` needs, and the number of older slices per query."""
    longest = max((max(one.starve_slices, one.remember_slices) for one in rules.queries.values()), default=0)
    smooth = rules.capacity.smooth_slices if rules.capacity else 0
    return first - max(longest, 2 * smooth), longest + 1


@dataclass(frozen=True)
class _OfferedPortions:
    """The portions that a slice is offered."""

    offer: PortionColumns
    batches: Batches
    """The portions as batches of their queries; each window is a group."""
    must_keep: np.ndarray


def _plan_slice(
    room: str,
    rules: RoomRules,
    history: RoomHistory,
    number: int,
    windows: Sequence[tuple[WindowWork, Window]],
) -> dict[tuple[str, int], WindowShare]:
    """Return the portions that each window of a slice is given, and add them to the history."""
    names = list(dict.fromkeys(one.contract.subject for one, _ in windows))
    offered = _offered_portions(room, rules, history, number, names, windows)
    opened = {(one.contract.subject, w.window) for one, w in windows if w.late and w.status == PLANNED}
    before = {place: kept for place, kept in history.kept.items() if place in opened}
    kept = _select_portions(rules, history, number, names, offered, before)
    offer, batches = offered.offer, offered.batches
    drawn = is_chosen_by_chance(batches, offer.window, kept)
    count = len(windows)

    def by_window(values: np.ndarray, some: np.ndarray | slice = slice(None)) -> np.ndarray:
        return np.bincount(offer.window[some], values[some], count)

    fixed = batches.groups[1] if batches.fixed is not None else np.zeros(count)
    here, chosen_here = (np.bincount(offer.window[some], minlength=count) > 0 for some in (slice(None), kept))
    cost_offered = (by_window(batches.cost) + here * fixed).tolist()
    cost = (by_window(batches.cost, kept) + chosen_here * fixed).tolist()
    produced, read = by_window(offer.produced).tolist(), by_window(offer.tuples, kept).tolist()
    ends = np.searchsorted(offer.window, np.arange(count + 1)).tolist()
    shares = {}
    for at, (one, window) in enumerate(windows):
        subject = one.contract.subject
        portions = one.portions.get(window.window, ())
        mine = slice(ends[at], ends[at + 1])
        places = np.flatnonzero(kept[mine])
        shares[subject, window.window] = WindowShare(
            tuple(map(portions.__getitem__, places.tolist())),
            tuple(portions),
            tuple(np.flatnonzero(drawn[mine][places]).tolist()),
            number,
            cost[at],
            cost_offered[at],
            rules.weights[subject],
            rules.room,
            history.arrived_first.get((subject, window.window)),
        )
        sic = read[at] / produced[at] if produced[at] else 1.0
        history.add(subject, number, sic, cost_offered[at], cost[at])
    return shares


def _offered_portions(
    room: str,
    rules: RoomRules,
    history: RoomHistory,
    number: int,
    names: Sequence[str],
    windows: Sequence[tuple[WindowWork, Window]],
) -> _OfferedPortions:
    """Return the portions of the windows as batches, with their sic, cost, and random order.

    The sic of a portion is its share of its input's produced tuples, divided by the inputs and by the windows of the
    query in this slice.
    """
    places = {name: at for at, name in enumerate(names)}
    of_window = np.array([places[one.contract.subject] for one, _ in windows], np.int64)
    now = np.bincount(of_window, minlength=len(names)).tolist()
    in_slice = np.array(
        [
            max(history.windows_in_last_slice(name, number), history.windows_in(name, number) + count)
            for name, count in zip(names, now, strict=True)
        ],
        np.int64,
    )
    offer = PortionColumns.of_windows(
        [
            (one.contract.subject, w.window, one.portions.get(w.window, ()), one.contract.inputs)
            for one, w in windows
        ]
    )
    owner = of_window[offer.window]
    source = offer.window * len(offer.streams) + offer.stream
    produced = np.bincount(source, offer.produced)[source] if len(offer) else np.zeros(0)
    inputs = np.array([len(set(one.contract.inputs)) for one, _ in windows], np.int64)[offer.window]
    sic = offer.tuples / (produced * inputs * in_slice[owner])
    fixed, per_tuple = _costs(rules, history, names)
    must = np.array(
        [[stream in rules.queries[name].must_keep for stream in offer.streams] for name in names], np.bool_
    ).reshape(len(names), len(offer.streams))[owner, offer.stream]
    late = _is_late(offer, windows)
    tie = move_late_last(chance_order(room, number, offer), late)
    turn = np.zeros(len(offer))
    for some in (np.flatnonzero(~late), np.flatnonzero(late)) if late.any() else (np.arange(len(offer)),):
        turn[some] = portion_turns(room, number, offer, tie, some)
    batches = Batches(
        owner,
        sic,
        offer.tuples * per_tuple[owner],
        tie,
        move_late_last(turn, late),
        offer.window,
        fixed[of_window],
    )
    return _OfferedPortions(offer, batches, must)


def _is_late(offer: PortionColumns, windows: Sequence[tuple[WindowWork, Window]]) -> np.ndarray:
    """Return which portions arrived after their window was computed."""
    found = np.zeros(len(offer), np.bool_)
    for at, (_, window) in enumerate(windows):
        if window.late:
            mine = np.flatnonzero(offer.window == at)
            late = set(window.late)
            found[mine] = [
                (offer.streams[stream], batch) in late
                for stream, batch in zip(offer.stream[mine].tolist(), offer.batch[mine].tolist(), strict=True)
            ]
    return found


def _costs(rules: RoomRules, history: RoomHistory, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return by query the fixed cost of a window and the cost per tuple, in the unit of the capacity."""
    if rules.capacity is None or rules.capacity.tuples is not None:
        return np.zeros(len(names)), np.ones(len(names))
    if rules.cost_model == "mean":
        return np.zeros(len(names)), np.full(len(names), history.mean_cost.seconds_per_tuple)
    costs = history.costs(names)
    return np.array([costs[name][0] for name in names]), np.array([costs[name][1] for name in names])


def _select_portions(
    rules: RoomRules,
    history: RoomHistory,
    number: int,
    names: Sequence[str],
    offered: _OfferedPortions,
    before: Mapping[tuple[str, int], int],
) -> np.ndarray:
    """Return which of the offered portions are kept; all, unless the room is overloaded.

    `names`: the queries that are planned now; `before`: the tuples that reopened windows kept the last time.
    """
    everything = np.ones(len(offered.offer), np.bool_)
    if rules.room is None or rules.capacity is None or not len(offered.offer):
        return everything
    load = offered.batches.costs_of(everything)
    if not _is_overloaded(rules, history, number, load):
        return everything
    begin = starting_coverages(rules, history, number)
    to = _entitlements(rules, history, number, names, begin)
    kept = _select_reopened(rules, to, offered, before)
    left = rules.room - _used_capacity(rules, history, number) - offered.batches.costs_of(kept)
    if left > 0:
        _keep_more(rules, history, number, names, offered, to, begin, left, kept)
    _try_oversized(rules, history, number, names, offered, to, kept)
    return kept


def _keep_more(
    rules: RoomRules,
    history: RoomHistory,
    number: int,
    names: Sequence[str],
    offered: _OfferedPortions,
    to: Entitlements,
    begin: Mapping[str, float],
    left: float,
    kept: np.ndarray,
) -> None:
    """Add portions to those that are kept again, by the policy, as far as the remaining capacity allows."""
    now: dict[str, int] = {}
    for at in np.flatnonzero(np.bincount(offered.offer.window)).tolist():
        name = offered.offer.windows[at][0]
        now[name] = now.get(name, 0) + 1
    others = _load_of_other_queries(rules, history, number, names, now, begin)
    batches, rest = offered.batches, np.arange(len(kept))
    if kept.any():
        rest = np.flatnonzero(~kept)
        reached = to.reached + np.bincount(batches.query[kept], batches.sic[kept], len(names))
        group, fixed = batches.groups
        paid = np.zeros(len(fixed), np.bool_)
        paid[group[kept]] = True
        to, batches = (
            replace(to, reached=reached),
            replace(batches.at(rest), fixed=np.where(paid, 0.0, fixed)),
        )
    room = own_capacity(batches, to, others, left)
    if room > 0:
        kept[rest] = admit_by_policy(rules.policy, batches, to, room, offered.must_keep[rest])


def _select_reopened(
    rules: RoomRules, to: Entitlements, offered: _OfferedPortions, before: Mapping[tuple[str, int], int]
) -> np.ndarray:
    """Return the portions that reopened windows keep again, even if the capacity of their slice is used by now.

    Late rows reopen a window. `before`: the tuples that each such window kept the last time. Each window is planned
    alone with this capacity. It gets the same portions, because late portions come last
    (`random_order.move_late_last`).
    """
    again = np.zeros(len(offered.offer), np.bool_)
    for at, place in enumerate(offered.offer.windows):
        if before.get(place):
            mine = np.flatnonzero(offered.offer.window == at)
            if not len(mine):
                continue
            tuples = offered.offer.tuples[mine].astype(np.float64)
            batches = replace(offered.batches.at(mine), cost=tuples, group=None, fixed=None)
            again[mine] = admit_by_policy(
                rules.policy, batches, to, float(before[place]), offered.must_keep[mine]
            )
    return again


def _try_oversized(
    rules: RoomRules,
    history: RoomHistory,
    number: int,
    names: Sequence[str],
    offered: _OfferedPortions,
    to: Entitlements,
    kept: np.ndarray,
) -> None:
    """Keep the cheapest portion of queries whose estimated cost exceeds the whole capacity.

    The estimate may be wrong, because of one slow answer or because costs have changed. Without a new measurement the
    query would never be answered again. So if the estimated cost of the cheapest portion exceeds the whole capacity,
    the query is tried every `starve_slices` slices. If it was measured fewer than `FEW_MEASUREMENTS` times, one such
    query is tried in every slice. Under the policy `priority`, which has no turns, a query that was estimated to fit
    and got nothing is tried, too. A try is in addition to the portions of the other queries. Only costs in seconds are
    estimated; tuples are counted.
    """
    if rules.capacity is None or rules.capacity.seconds is None or rules.policy == ALGORITHM_1:
        return
    assert rules.room is not None
    batches = offered.batches
    group, fixed = batches.groups
    price = batches.cost + fixed[group]
    cheapest = np.full(len(names), np.inf)
    np.minimum.at(cheapest, batches.query, price)
    has = np.bincount(batches.query[kept], minlength=len(names)) > 0
    silent = np.flatnonzero(np.isfinite(cheapest) & ~has)
    late = [q for q in silent.tolist() if 0 < to.starve_rounds[q] <= to.waited[q] + 1]
    shut_out = silent[cheapest[silent] > rules.room]
    owed = [q for q in late if cheapest[q] > rules.room]
    if rules.policy == "priority" and len(owed) < len(late):
        owed.append(max((q for q in late if q not in owed), key=lambda q: (to.waited[q], -q)))
    little = [q for q in shut_out.tolist() if q not in owed and history.has_few_measurements(names[q])]
    if little and not _tried_queries(rules, history, number):
        owed.append(max(little, key=lambda q: (to.waited[q], -q)))
    for query in owed:
        mine = np.flatnonzero(batches.query == query)
        tie = mine if batches.tie is None else batches.tie[mine]
        kept[mine[np.lexsort([tie, price[mine]])[0]]] = True


def _used_capacity(rules: RoomRules, history: RoomHistory, number: int) -> float:
    """Return the capacity that queries of the room used in a slice before; tries (`_try_oversized`) use none."""
    tried = _tried_queries(rules, history, number)
    return sum(history.given.get(name, {}).get(number, 0.0) for name in rules.queries if name not in tried)


def _tried_queries(rules: RoomRules, history: RoomHistory, number: int) -> set[str]:
    """Return the queries that were tried in a slice: they got a share of their offer, at a cost above the capacity."""
    if rules.capacity is None or rules.capacity.seconds is None or rules.policy == ALGORITHM_1:
        return set()
    given, offered = (
        {name: of.get(name, {}).get(number, 0.0) for name in rules.queries}
        for of in (history.given, history.offered)
    )
    return {name for name in rules.queries if rules.capacity.seconds < given[name] < offered[name]}


def _is_overloaded(rules: RoomRules, history: RoomHistory, number: int, load: float) -> bool:
    """Return whether the room is overloaded in a slice with an additional load; the load is smoothed (`Overload`)."""
    assert rules.capacity is not None
    assert rules.room is not None
    node = Overload(last=rules.capacity.smooth_slices)
    for one in range(number - 2 * rules.capacity.smooth_slices, number):
        node = node.after(history.load(one, rules.queries), rules.room)
    return node.after(load + history.load(number, rules.queries), rules.room).on


def starting_coverages(rules: RoomRules, history: RoomHistory, number: int) -> dict[str, float]:
    """Return by query of the room, planned now or not, what it reached in earlier slices (`starting_coverage`)."""
    names = sorted(rules.queries)
    reached = {
        name: history.coverage_by_slice(name, number, rules.queries[name].remember_slices) for name in names
    }
    weight = np.array([rules.weights[name] for name in names])
    return dict(zip(names, starting_coverage(reached, names, weight).tolist(), strict=True))


def _entitlements(
    rules: RoomRules, history: RoomHistory, number: int, names: Sequence[str], every: Mapping[str, float]
) -> Entitlements:
    """Return the entitlements of some queries in a slice; `every`: the result of `starting_coverages`."""
    settings = [rules.queries[name] for name in names]
    weight = np.array([rules.weights[name] for name in names])
    begin = np.array([every[name] for name in names])
    return Entitlements(
        weight,
        begin,
        np.array([one.priority for one in settings]),
        # a floor applies to this slice alone, so it is added to what was reached before
        np.array(
            [start + one.floor if one.floor else 0.0 for start, one in zip(begin, settings, strict=True)]
        ),
        np.array([history.slices_waited(name, number) for name in names]),
        np.array([one.starve_slices for one in settings]),
    )


def _load_of_other_queries(
    rules: RoomRules,
    history: RoomHistory,
    number: int,
    names: Sequence[str],
    now: Mapping[str, int],
    every: Mapping[str, float],
) -> OtherQueries:
    """Return the load that the room is likely to get in this slice in addition, from each query's last load.

    A query that has had no window in the slice counts with its whole last load. A query with some windows counts with
    the share of those that have not closed yet. `now`: windows that are planned now, by query; `every`:
    `starting_coverages`.
    """
    shares: dict[str, float] = {}
    for name in sorted(set(rules.queries) - rules.failed):
        expected = history.windows_in_last_slice(name, number)
        have = history.windows_in(name, number) + now.get(name, 0)
        if expected > have:
            shares[name] = (expected - have) / expected
    weight = np.array([rules.weights[name] for name in shares])
    start = np.array([every[name] for name in shares], np.float64)
    load = [history.last_load(name, number) * share for name, share in shares.items()]
    return OtherQueries(start, weight, np.array(list(shares.values())), np.array(load, np.float64))
