"""What a room's queries are given, slice of event time by slice: planned for all that wait, before any is worked out.

A slice is as long as the room's capacity says (`per_seconds`), and a window belongs to the slice it begins in. So what
is decided follows from the data and from what was reached before, never from when a run came by: the same again gives
the same. Within a slice a query's coverage is the mean over its windows there.

Queries of the room that this run does not work out (another job does) are not forgotten: what they were given in the
slice is taken, and what they are likely to be offered is left to them (`projection.own_room`). To one that cannot be
worked out as it stands nothing is left: its statements are analysed before the room is divided, and where it fails on
its rows the room is divided again without it. What a slice had is then given to the others for good: a query that is
mended later, or joins the room later, finds what they left of past slices, and is told where that is nothing.

Nothing pins a slice's plan, and nothing has to: of queries that were planned together, those that are planned again
when others have been worked out get the same again (`admission`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np

from spillway.contracts.workload import Workload
from spillway.errors import Refused
from spillway.levers.protocol import Room
from spillway.levers.quality.admission import Batches, Entitlements
from spillway.levers.quality.drawing import chance_order, drawn_by_chance, late_last, turns
from spillway.levers.quality.history import RoomHistory, room_history
from spillway.levers.quality.overload import Overload
from spillway.levers.quality.policies import chosen
from spillway.levers.quality.projection import Elsewhere, own_room, remembered
from spillway.levers.quality.settings import QualitySettings, RoomCapacity
from spillway.levers.windows import PLANNED, Portion, Window, WindowWork, micros_of, step_of

LEVER_NAME = "quality"


@dataclass(frozen=True)
class WindowShare:
    """What a window is given: the portions that are kept, of those it was offered, and by which rules."""

    kept: tuple[Portion, ...]
    offered: tuple[Portion, ...]
    drawn: tuple[int, ...]
    """Places in `kept` of those that chance alone chose: a drawing that sizes had no part in (`drawn_by_chance`)."""
    slice: int
    cost: float
    cost_offered: float
    weight: float
    capacity: float | None
    arrived_first: int | None
    """Tuples that were here when it was first worked out; None: that is now."""


@dataclass(frozen=True)
class RoomRules:
    """What the contracts of a room's queries agree on."""

    queries: Mapping[str, QualitySettings]
    capacity: RoomCapacity | None
    policy: str
    slice_seconds: float
    weights: Mapping[str, float]
    failed: frozenset[str] = frozenset()
    """Queries that cannot be worked out as they stand."""

    def slice_of(self, moment: datetime) -> int:
        """The slice that a moment lies in."""
        return micros_of(moment) // step_of(self.slice_seconds)

    @property
    def room(self) -> float | None:
        """What may be worked on in a slice; None: everything."""
        if self.capacity is None:
            return None
        return self.capacity.tuples if self.capacity.tuples is not None else self.capacity.seconds


def room_rules(room: Room) -> RoomRules:
    """The rules of a room; refused by name where its queries contradict one another."""
    members = {
        name: contract
        for name, contract in sorted(room.contracts.queries.items())
        if LEVER_NAME in contract.lever_names and (contract.room or name) == room.name
    }
    settings = {name: contract.lever_settings(LEVER_NAME) for name, contract in members.items()}
    capacity = _agreed(members, {n: s.capacity for n, s in settings.items() if s.capacity}, "capacity")
    policy = _agreed(members, {n: s.policy for n, s in settings.items()}, "policy")
    longest = max(contract.window.seconds for contract in members.values())
    per = capacity.per_seconds if capacity and capacity.per_seconds else longest
    return RoomRules(settings, capacity, policy, per, _weights(settings), room.failed)


def _agreed(members: Mapping[str, Workload], said: Mapping[str, Any], what: str) -> Any:
    different = {repr(value): name for name, value in said.items()}
    if len(different) > 1:
        one, other, *_ = different.values()
        raise Refused(
            what,
            f"be one for all queries of a room, as it is its room's, and {one} and {other} differ",
            [str(value) for value in said.values()],
            "write the same in all of them, or in one alone",
            where=", ".join(members),
        )
    return next(iter(said.values()), None)


def _weights(settings: Mapping[str, QualitySettings]) -> dict[str, float]:
    """Every query's entitlement: a team's is divided among its queries by their weights."""
    in_team: dict[str, float] = {}
    for one in settings.values():
        if one.team is not None:
            in_team[one.team] = in_team.get(one.team, 0.0) + one.weight
    return {
        name: one.weight if one.team is None else one.team_weight * one.weight / in_team[one.team]
        for name, one in settings.items()
    }


def plan_room(
    room: Room, work: Sequence[WindowWork], rules: RoomRules | None = None, history: RoomHistory | None = None
) -> dict[tuple[str, int], WindowShare]:
    """By query and window, what it is given."""
    rules = room_rules(room) if rules is None else rules
    if history is None:
        again = {one.contract.subject: {w.window for w in one.windows} for one in work}
        history = room_history(room.tables, room.name, again, rules.slice_of)
    slices: dict[int, list[tuple[WindowWork, Window]]] = {}
    for one in work:
        for window in one.windows:
            slices.setdefault(rules.slice_of(window.from_time), []).append((one, window))
    found: dict[tuple[str, int], WindowShare] = {}
    for number in sorted(slices):
        for place, share in _plan_slice(room.name, rules, history, number, slices[number]).items():
            found[place] = share
            offered = sum(portion.produced for portion in share.offered)
            kept = sum(portion.tuples for portion in share.kept)
            sic = kept / offered if offered else 1.0
            history.add(place[0], number, sic, share.cost_offered, share.cost)
    return found


@dataclass(frozen=True)
class _Offered:
    """What a slice is offered, an element a portion."""

    owner: np.ndarray
    place: list[tuple[str, int, Portion]]
    batches: Batches
    must_keep: np.ndarray


def _plan_slice(
    room: str,
    rules: RoomRules,
    history: RoomHistory,
    number: int,
    windows: Sequence[tuple[WindowWork, Window]],
) -> dict[tuple[str, int], WindowShare]:
    names = list(dict.fromkeys(one.contract.subject for one, _ in windows))
    offered = _offered(room, rules, history, number, names, windows)
    opened = {(one.contract.subject, w.window) for one, w in windows if w.late and w.status == PLANNED}
    before = {place: kept for place, kept in history.kept.items() if place in opened}
    kept = _kept(rules, history, number, names, offered, before)
    shares = {}
    for one, window in windows:
        subject = one.contract.subject
        at = [i for i, (name, w, _) in enumerate(offered.place) if (name, w) == (subject, window.window)]
        mine = [i for i in at if kept[i]]
        shares[subject, window.window] = WindowShare(
            tuple(offered.place[i][2] for i in mine),
            tuple(offered.place[i][2] for i in at),
            drawn_by_chance(at, mine, offered.batches),
            number,
            float(offered.batches.cost[mine].sum()),
            float(offered.batches.cost[at].sum()),
            rules.weights[subject],
            rules.room,
            history.arrived_first.get((subject, window.window)),
        )
    return shares


def _offered(
    room: str,
    rules: RoomRules,
    history: RoomHistory,
    number: int,
    names: Sequence[str],
    windows: Sequence[tuple[WindowWork, Window]],
) -> _Offered:
    in_slice = {
        name: max(
            history.windows_last_time(name, number),
            history.windows_in(name, number) + sum(one.contract.subject == name for one, _ in windows),
        )
        for name in names
    }
    place: list[tuple[str, int, Portion]] = []
    sic: list[float] = []
    for one, window in windows:
        subject, portions = one.contract.subject, one.portions.get(window.window, ())
        sources = list(dict.fromkeys(one.contract.inputs))
        produced = {s: sum(p.produced for p in portions if p.stream == s) for s in sources}
        for portion in portions:
            place.append((subject, window.window, portion))
            sic.append(portion.tuples / (produced[portion.stream] * len(sources) * in_slice[subject]))
    owner = np.array([names.index(name) for name, _, _ in place], np.int64)
    each = np.array([_cost_of_tuple(rules, history, name) for name in names])
    cost = np.array([portion.tuples for _, _, portion in place], np.float64) * each[owner]
    must = np.array([p.stream in rules.queries[name].must_keep for name, _, p in place], np.bool_)
    late_of = {(one.contract.subject, window.window): set(window.late) for one, window in windows}
    late = np.array([(p.stream, p.batch) in late_of[name, w] for name, w, p in place], np.bool_)
    tie = late_last(chance_order(room, number, place), late)
    turn = np.zeros(len(place))
    for some in (np.flatnonzero(~late).tolist(), np.flatnonzero(late).tolist()):
        turn[some] = turns(room, number, [place[at] for at in some], tie[some])
    batches = Batches(owner, np.array(sic), cost, tie, late_last(turn, late))
    return _Offered(owner, place, batches, must)


def _cost_of_tuple(rules: RoomRules, history: RoomHistory, name: str) -> float:
    """In the unit of the capacity: 1 where that is tuples; seconds as measured, of others where it never was."""
    if rules.capacity is None or rules.capacity.tuples is not None:
        return 1.0
    known = {query: cost.seconds_per_tuple for query, cost in history.tuple_cost.items() if cost.known}
    if name in known:
        return known[name]
    return sum(known.values()) / len(known) if known else 0.0


def _kept(
    rules: RoomRules,
    history: RoomHistory,
    number: int,
    names: Sequence[str],
    offered: _Offered,
    before: Mapping[tuple[str, int], int],
) -> np.ndarray:
    everything = np.ones(len(offered.place), np.bool_)
    if rules.room is None or rules.capacity is None or not len(offered.place):
        return everything
    load = float(offered.batches.cost.sum())
    if not _overloaded(rules, history, number, load):
        return everything
    to = _entitlements(rules, history, number, names)
    taken = _taken(rules, history, number)
    again = _kept_again(rules, to, offered, before)
    taken += float(offered.batches.cost[again].sum())
    if taken >= rules.room:
        return again
    now = {name: len({w for n, w, _ in offered.place if n == name}) for name in names}
    others = _elsewhere(rules, history, number, names, now)
    rest = np.flatnonzero(~again)
    reached = to.reached + np.bincount(offered.batches.query[again], offered.batches.sic[again], len(names))
    to, batches = replace(to, reached=reached), offered.batches.at(rest)
    room = own_room(batches, to, others, rules.room - taken)
    if room > 0:
        again[rest] = chosen(rules.policy, batches, to, room, offered.must_keep[rest])
    return again


def _kept_again(
    rules: RoomRules, to: Entitlements, offered: _Offered, before: Mapping[tuple[str, int], int]
) -> np.ndarray:
    """What windows had that late rows open again: it is theirs, whatever their slice has come to since.

    A window alone in the room that it had then is given the same, for what came late comes last (`drawing`).
    """
    again = np.zeros(len(offered.place), np.bool_)
    for place, tuples in before.items():
        mine = np.array([i for i, one in enumerate(offered.place) if one[:2] == place], np.int64)
        if tuples and len(mine):
            each = float(offered.batches.cost[mine[0]]) / max(1, offered.place[mine[0]][2].tuples)
            room = max(tuples * each * (1 + 1e-9), 1e-300)
            again[mine] = chosen(rules.policy, offered.batches.at(mine), to, room, offered.must_keep[mine])
    return again


def _taken(rules: RoomRules, history: RoomHistory, number: int) -> float:
    """What queries of the room were given in a slice before."""
    return sum(history.given.get(query, {}).get(number, 0.0) for query in rules.queries)


def _overloaded(rules: RoomRules, history: RoomHistory, number: int, load: float) -> bool:
    assert rules.capacity is not None
    assert rules.room is not None
    node = Overload(last=rules.capacity.smooth_slices)
    for one in range(number - 2 * rules.capacity.smooth_slices, number):
        node = node.after(history.load(one, rules.queries), rules.room)
    return node.after(load + history.load(number, rules.queries), rules.room).on


def beginnings(rules: RoomRules, history: RoomHistory, number: int) -> dict[str, float]:
    """By query of the room, planned now or not, where it begins in a slice: at what it reached in those before."""
    names = sorted(rules.queries)
    reached = {name: history.reached(name, number, rules.queries[name].remember_slices) for name in names}
    weight = np.array([rules.weights[name] for name in names])
    return dict(zip(names, remembered(reached, names, weight).tolist(), strict=True))


def _entitlements(rules: RoomRules, history: RoomHistory, number: int, names: Sequence[str]) -> Entitlements:
    settings = [rules.queries[name] for name in names]
    weight = np.array([rules.weights[name] for name in names])
    every = beginnings(rules, history, number)
    begin = np.array([every[name] for name in names])
    return Entitlements(
        weight,
        begin,
        np.array([one.priority for one in settings]),
        # a floor is of this slice, whatever was reached before
        np.array(
            [start + one.floor if one.floor else 0.0 for start, one in zip(begin, settings, strict=True)]
        ),
        np.array([history.waited(name, number) for name in names]),
        np.array([one.starve_slices for one in settings]),
    )


def _elsewhere(
    rules: RoomRules, history: RoomHistory, number: int, names: Sequence[str], now: Mapping[str, int]
) -> Elsewhere:
    """What the room is likely to be asked for in this slice beside: by its load the last time.

    Of other queries that have had nothing in it yet all of that, of one's own the windows that have not closed yet.
    """
    shares: dict[str, float] = {}
    for name in sorted(set(rules.queries) - rules.failed):
        expected = history.windows_last_time(name, number)
        have = history.windows_in(name, number) + now.get(name, 0)
        if expected > have:
            shares[name] = (expected - have) / expected
    weight = np.array([rules.weights[name] for name in shares])
    every = beginnings(rules, history, number)
    start = np.array([every[name] for name in shares], np.float64)
    load = [history.last_load(name, number) * share for name, share in shares.items()]
    return Elsewhere(start, weight, np.array(list(shares.values())), np.array(load, np.float64))
