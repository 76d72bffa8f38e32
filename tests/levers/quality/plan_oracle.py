"""Plan a capacity group portion by portion in plain loops: the slow, obvious form of `room_plan`. Not a test.

It takes from the product the hash of a portion, the policies and the history, and nothing that works on columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from spillway.levers.quality.admission import Batches, Entitlements, admit_by_policy, own_capacity
from spillway.levers.quality.overload import RoomHistory
from spillway.levers.quality.random_order import _mixed, _seed
from spillway.levers.quality.room_plan import (
    RoomRules,
    _is_overloaded,
    _load_of_other_queries,
    _used_capacity,
    starting_coverages,
)
from spillway.levers.windows import PLANNED, Portion, Window, WindowWork

Place = tuple[str, int, Portion]
Given = dict[str, object]


def plan_by_loops(
    room: str, work: Sequence[WindowWork], rules: RoomRules, history: RoomHistory
) -> dict[tuple[str, int], Given]:
    """By query and window, what it is given."""
    slices: dict[int, list[tuple[WindowWork, Window]]] = {}
    for one in work:
        for window in one.windows:
            slices.setdefault(rules.slice_of(window.from_time), []).append((one, window))
    found: dict[tuple[str, int], Given] = {}
    for number in sorted(slices):
        found |= _plan_slice(room, rules, history, number, slices[number])
    return found


def _plan_slice(
    room: str,
    rules: RoomRules,
    history: RoomHistory,
    number: int,
    windows: Sequence[tuple[WindowWork, Window]],
) -> dict[tuple[str, int], Given]:
    names = list(dict.fromkeys(one.contract.subject for one, _ in windows))
    costs = _costs(rules, history, names)
    place: list[Place] = []
    sic, group, late = [], [], []
    for at, (one, window) in enumerate(windows):
        subject, portions = one.contract.subject, one.portions.get(window.window, ())
        sources = list(dict.fromkeys(one.contract.inputs))
        in_slice = max(
            history.windows_in_last_slice(subject, number),
            history.windows_in(subject, number) + sum(o.contract.subject == subject for o, _ in windows),
        )
        for portion in portions:
            produced = sum(p.produced for p in portions if p.stream == portion.stream)
            place.append((subject, window.window, portion))
            sic.append(portion.tuples / (produced * len(sources) * in_slice))
            group.append(at)
            late.append((portion.stream, portion.batch) in window.late)
    tie = _late_last(_chance(room, number, place), late)
    turn = {
        **_turns(room, number, place, tie, [i for i in range(len(place)) if not late[i]]),
        **_turns(room, number, place, tie, [i for i in range(len(place)) if late[i]]),
    }
    late_turn = [(turn[i] + late[i]) / 2 if any(late) else turn[i] for i in range(len(place))]
    batches = Batches(
        np.array([names.index(name) for name, _, _ in place], np.int64),
        np.array(sic),
        np.array([p.tuples * costs[name][1] for name, _, p in place], np.float64),
        np.array(tie, np.int64),
        np.array(late_turn, np.float64),
        np.array(group, np.int64),
        np.array([costs[one.contract.subject][0] for one, _ in windows]),
    )
    must = np.array([p.stream in rules.queries[name].must_keep for name, _, p in place], np.bool_)
    opened = {(one.contract.subject, w.window) for one, w in windows if w.late and w.status == PLANNED}
    kept = _kept(rules, history, number, names, place, batches, must, opened)
    shares: dict[tuple[str, int], Given] = {}
    for at, (one, window) in enumerate(windows):
        mine = [i for i in range(len(place)) if group[i] == at]
        chosen_here = [i for i in mine if kept[i]]
        fixed = costs[one.contract.subject][0]
        cost = float(sum(batches.cost[i] for i in chosen_here)) + (fixed if chosen_here else 0.0)
        cost_offered = float(sum(batches.cost[i] for i in mine)) + (fixed if mine else 0.0)
        shares[one.contract.subject, window.window] = {
            "kept": tuple(place[i][2] for i in chosen_here),
            "offered": tuple(place[i][2] for i in mine),
            "drawn": _drawn(mine, chosen_here, late_turn, tie),
            "slice": number,
            "cost": cost,
            "cost_offered": cost_offered,
        }
        made = sum(place[i][2].produced for i in mine)
        reached = sum(place[i][2].tuples for i in chosen_here) / made if made else 1.0
        history.add(one.contract.subject, number, reached, cost_offered, cost)
    return shares


def _costs(rules: RoomRules, history: RoomHistory, names: Sequence[str]) -> Mapping[str, tuple[float, float]]:
    if rules.capacity is None or rules.capacity.tuples is not None:
        return dict.fromkeys(names, (0.0, 1.0))
    return history.costs(names)


def _chance(room: str, number: int, place: Sequence[Place]) -> list[int]:
    drawn = [
        _hash(_hash(_seed(room, number, name, window, p.stream), p.batch), p.from_seq)
        for name, window, p in place
    ]
    order = sorted(range(len(place)), key=drawn.__getitem__)
    return [order.index(i) for i in range(len(place))]


def _hash(state: int, value: int) -> int:
    return int(_mixed(np.uint64(state), value))


def _late_last(order: list[int], late: Sequence[bool]) -> list[int]:
    ranked = sorted(range(len(order)), key=lambda i: (late[i], order[i]))
    return [ranked.index(i) for i in range(len(order))]


def _turns(
    room: str, number: int, place: Sequence[Place], tie: Sequence[int], among: Sequence[int]
) -> dict[int, float]:
    found: dict[int, float] = {}
    inputs: dict[tuple[str, int], dict[str, list[int]]] = {}
    for at in among:
        name, window, portion = place[at]
        inputs.setdefault((name, window), {}).setdefault(portion.stream, []).append(at)
    for (name, window), by_stream in inputs.items():
        stretches = min(len(mine) for mine in by_stream.values())
        seed = _seed(room, number, name, window)
        drawn = [_hash(seed, stretch) for stretch in range(stretches)]
        rank = [sorted(drawn).index(one) for one in drawn]
        for mine in by_stream.values():
            ordered = sorted(mine, key=lambda at: (place[at][2].batch, place[at][2].from_seq))
            for stretch, some in enumerate(np.array_split(np.array(ordered), stretches)):
                turn = sorted(some.tolist(), key=lambda at: tie[at])
                whole = float(sum(place[at][2].tuples for at in turn))
                before = 0.0
                for at in turn:
                    found[at] = (rank[stretch] + before / max(1.0, whole)) / stretches
                    before += place[at][2].tuples
    return found


def _drawn(
    offered: Sequence[int], kept: Sequence[int], turn: Sequence[float], tie: Sequence[int]
) -> tuple[int, ...]:
    found = []
    for one in sorted(offered, key=lambda one: (turn[one], tie[one])):
        if one not in kept:
            break
        found.append(list(kept).index(one))
    return tuple(sorted(found))


def _kept(
    rules: RoomRules,
    history: RoomHistory,
    number: int,
    names: Sequence[str],
    place: Sequence[Place],
    batches: Batches,
    must: np.ndarray,
    opened: set[tuple[str, int]],
) -> np.ndarray:
    everything = np.ones(len(place), np.bool_)
    if rules.room is None or not len(place):
        return everything
    if not _is_overloaded(rules, history, number, batches.costs_of(everything)):
        return everything
    begin = starting_coverages(rules, history, number)
    settings = [rules.queries[name] for name in names]
    to = Entitlements(
        np.array([rules.weights[name] for name in names]),
        np.array([begin[name] for name in names]),
        np.array([one.priority for one in settings]),
        np.array(
            [begin[n] + one.floor if one.floor else 0.0 for n, one in zip(names, settings, strict=True)]
        ),
        np.array([history.slices_waited(name, number) for name in names]),
        np.array([one.starve_slices for one in settings]),
    )
    again = np.zeros(len(place), np.bool_)
    for one, tuples in history.kept.items():
        mine = np.array([i for i, at in enumerate(place) if at[:2] == one and one in opened], np.int64)
        if tuples and len(mine):
            own = Batches(
                batches.query[mine],
                batches.sic[mine],
                np.array([float(place[i][2].tuples) for i in mine]),
                batches.at(mine).tie,
                batches.at(mine).turn,
            )
            again[mine] = admit_by_policy(rules.policy, own, to, float(tuples), must[mine])
    left = rules.room - _used_capacity(rules, history, number) - batches.costs_of(again)
    if left <= 0:
        return again
    now = {name: len({w for n, w, _ in place if n == name}) for name in names}
    others = _load_of_other_queries(rules, history, number, names, now, begin)
    rest = np.flatnonzero(~again)
    group, fixed = batches.groups
    paid = np.isin(np.arange(len(fixed)), group[again])
    some = batches.at(rest)
    reached = to.reached + np.bincount(batches.query[again], batches.sic[again], len(names))
    some = Batches(
        some.query, some.sic, some.cost, some.tie, some.turn, some.group, np.where(paid, 0.0, fixed)
    )
    to = Entitlements(to.weight, reached, to.priority, to.floor, to.waited, to.starve_rounds)
    room = own_capacity(some, to, others, left)
    if room > 0:
        again[rest] = admit_by_policy(rules.policy, some, to, room, must[rest])
    return again
