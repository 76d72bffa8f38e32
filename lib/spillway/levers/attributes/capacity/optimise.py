"""Keep, round or shed: the cheapest way into the channel, attribute by attribute (ours).

Every attribute offers ways, each measured (`option`): bytes per tuple on the wire, bytes per tuple kept at the source
(its synopsis), and its loss, the mean error it brings. With w_a the way of a,

    minimise sum rest(w_a) + sum wire(w_a)   subject to   fixed + sum wire(w_a) <= capacity

(`objective="net"`), ties by less loss, then by touching what carries less information. `objective="loss"`
minimises the loss first and the bytes second. When everything fits as it is, everything is kept: nothing is
rounded or shed for its own sake.

Guarantee: with up to twelve attributes of three ways the choice is the best there is (Pareto states, attribute
by attribute: a state no better than another in wire and cost is dropped, which loses no optimum). Beyond, it
is greedy: start from each attribute's cheapest way, take the step that costs least per wire byte saved until
all fits, undo what was not needed, and never do worse than one way for all. A way to shed is no way when its
synopsis is not smaller than the column it stands for. When nothing fits, the least wire is chosen and
`shortfall_bytes` says what is over.

The thesis's choice is `allowed=("keep", "shed")`.

>>> options = {
...     "temp": [Option("temp", "keep", 100), Option("temp", "round", 40, 0, 0.5), Option("temp", "shed", 0, 60, 0.4)],
...     "wind": [Option("wind", "keep", 80), Option("wind", "round", 60, 0, 0.5), Option("wind", "shed", 0, 90, 0.4)],
... }
>>> chosen = choose_ways(options, ["wind", "temp"], capacity_bytes=120)
>>> dict(chosen.ways), chosen.net_bytes
({'temp': 'round', 'wind': 'round'}, 100.0)
>>> print(chosen.reasons["wind"])
round: 60 bytes on the wire instead of 80; shedding does not pay, its synopsis takes 90 bytes
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from spillway.errors import Refused
from spillway.levers.attributes.choices import WAYS
from spillway.levers.attributes.option import Option, of_way

OBJECTIVES = ("net", "loss")
# 3^12: what an exact search may look at
_EXACT_COMBINATIONS = 531_441

_Cost = tuple[float, ...]


@dataclass(frozen=True)
class Ways:
    """The chosen way of every attribute, what it comes to per tuple, and why."""

    ways: Mapping[str, str]
    precisions: Mapping[str, int]
    reasons: Mapping[str, str]
    wire_bytes: float
    net_bytes: float
    loss: float
    shortfall_bytes: float
    exact: bool


def choose_ways(
    options: Mapping[str, Sequence[Option]],
    ranking: Sequence[str],
    capacity_bytes: float,
    fixed_bytes: float = 0.0,
    allowed: Sequence[str] = WAYS,
    objective: str = "net",
    must_pay: bool = True,
) -> Ways:
    """Choose a way for every attribute of `options`; `ranking` is shed first. All bytes are per tuple: `fixed_bytes`,
    which always go, and `capacity_bytes`, into which all must fit.

    `must_pay=False` sheds even where the synopsis is not smaller than the column: the thesis's method, for
    comparison.
    """
    _check(options, ranking, capacity_bytes, fixed_bytes, allowed, objective)
    usable = {name: _usable(ways, allowed, must_pay) for name, ways in options.items()}
    room = capacity_bytes - fixed_bytes
    kept = {name: _kept(ways) for name, ways in options.items()}
    exact = math.prod(len(ways) for ways in usable.values()) <= _EXACT_COMBINATIONS
    least = sum(min(way.wire_bytes_per_tuple for way in ways) for ways in usable.values())

    if sum(way.wire_bytes_per_tuple for way in kept.values()) <= room:
        chosen = kept
    elif least > room:
        chosen = {
            name: min(
                ways,
                key=lambda way: (way.wire_bytes_per_tuple, way.synopsis_bytes_per_tuple, way.mean_error_pct),
            )
            for name, ways in usable.items()
        }
    else:
        costs = _costs(usable, ranking, objective)
        search = _exact if exact else _greedy
        chosen = search(usable, costs, room)
    wire = fixed_bytes + sum(way.wire_bytes_per_tuple for way in chosen.values())
    shortfall = max(wire - capacity_bytes, 0.0)
    return Ways(
        ways={name: chosen[name].way for name in options},
        precisions={name: chosen[name].precision for name in options},
        reasons={name: _reason(options[name], chosen[name], allowed, shortfall > 0) for name in options},
        wire_bytes=float(wire),
        net_bytes=float(fixed_bytes + sum(way.bytes_per_tuple for way in chosen.values())),
        loss=float(sum(way.mean_error_pct for way in chosen.values())),
        shortfall_bytes=float(shortfall),
        exact=exact,
    )


def _usable(ways: Sequence[Option], allowed: Sequence[str], must_pay: bool) -> tuple[Option, ...]:
    kept = _kept(ways)
    return tuple(
        way
        for way in ways
        if way.way == "keep"
        or (
            way.way in allowed
            and not (must_pay and way.way == "shed" and way.bytes_per_tuple >= kept.wire_bytes_per_tuple)
        )
    )


def _kept(ways: Sequence[Option]) -> Option:
    return next(way for way in ways if way.way == "keep")


def _costs(
    usable: Mapping[str, Sequence[Option]], ranking: Sequence[str], objective: str
) -> dict[str, dict[Option, _Cost]]:
    places = {name: place for place, name in enumerate(ranking)}
    costs: dict[str, dict[Option, _Cost]] = {}
    for name, ways in usable.items():
        touched = float(places.get(name, len(places)) + 1)
        costs[name] = {
            way: (
                (way.mean_error_pct, way.bytes_per_tuple)
                if objective == "loss"
                else (way.bytes_per_tuple, way.mean_error_pct)
            )
            + (0.0 if way.way == "keep" else touched,)
            for way in ways
        }
    return costs


def _add(one: _Cost, other: _Cost) -> _Cost:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _exact(
    usable: Mapping[str, Sequence[Option]], costs: Mapping[str, Mapping[Option, _Cost]], room: float
) -> dict[str, Option]:
    names = list(usable)
    # what the attributes still to come take at least: a state that leaves less room is dead
    least = [min(way.wire_bytes_per_tuple for way in usable[name]) for name in names]
    to_come = [*accumulate(reversed(least), initial=0.0)][::-1]
    # sums of floats depend on their order: only the last attribute is held to the room to the last bit
    last, roomy = len(names) - 1, room * (1 + 1e-12)
    states: list[tuple[float, _Cost, tuple[Option, ...]]] = [(0.0, (0.0, 0.0, 0.0), ())]
    for place, name in enumerate(names):
        grown = [
            (wire + way.wire_bytes_per_tuple, _add(cost, costs[name][way]), (*taken, way))
            for wire, cost, taken in states
            for way in usable[name]
            if wire + way.wire_bytes_per_tuple + to_come[place + 1] <= (room if place == last else roomy)
        ]
        grown.sort(key=lambda state: (state[0], state[1]))
        states = []
        for state in grown:
            if not states or state[1] < states[-1][1]:
                states.append(state)
    if not states:
        # the room is the least wire itself, and the sum in this order came out a bit above it
        return {name: min(usable[name], key=lambda way: way.wire_bytes_per_tuple) for name in names}
    best = min(states, key=lambda state: state[1])
    return dict(zip(names, best[2], strict=True))


def _greedy(
    usable: Mapping[str, Sequence[Option]], costs: Mapping[str, Mapping[Option, _Cost]], room: float
) -> dict[str, Option]:
    chosen = {
        name: min(ways, key=lambda way, name=name: costs[name][way])  # type: ignore[misc]
        for name, ways in usable.items()
    }
    wire = sum(way.wire_bytes_per_tuple for way in chosen.values())

    def price(name: str, way: Option) -> tuple[float, float]:
        extra = tuple(a - b for a, b in zip(costs[name][way], costs[name][chosen[name]], strict=True))
        saved = chosen[name].wire_bytes_per_tuple - way.wire_bytes_per_tuple
        return extra[0] / saved, extra[1] / saved

    while wire > room:
        steps = [
            (name, way)
            for name, ways in usable.items()
            for way in ways
            if way.wire_bytes_per_tuple < chosen[name].wire_bytes_per_tuple
        ]
        if not steps:
            # the sum in this order is a last bit above a room that the least wire fills exactly
            break
        name, way = min(steps, key=lambda step: price(*step))
        wire -= chosen[name].wire_bytes_per_tuple - way.wire_bytes_per_tuple
        chosen[name] = way
    for name in chosen:
        for way in sorted(usable[name], key=lambda way, name=name: costs[name][way]):  # type: ignore[misc]
            cheaper = costs[name][way] < costs[name][chosen[name]]
            if cheaper and wire - chosen[name].wire_bytes_per_tuple + way.wire_bytes_per_tuple <= room:
                wire += way.wire_bytes_per_tuple - chosen[name].wire_bytes_per_tuple
                chosen[name] = way

    def total(ways: Mapping[str, Option]) -> list[float]:
        return [sum(part) for part in zip(*(costs[name][way] for name, way in ways.items()), strict=True)]

    return min([chosen, *_single_ways(usable, room)], key=total)


def _single_ways(usable: Mapping[str, Sequence[Option]], room: float) -> list[dict[str, Option]]:
    """One way for all that offer it, the others kept, where that fits."""
    singles = [
        {name: of_way(ways, wanted) or _kept(ways) for name, ways in usable.items()} for wanted in WAYS
    ]
    return [ways for ways in singles if sum(way.wire_bytes_per_tuple for way in ways.values()) <= room]


def _reason(ways: Sequence[Option], chosen: Option, allowed: Sequence[str], over: bool) -> str:
    kept = _kept(ways)
    shed = of_way(ways, "shed")
    wire = f"{chosen.wire_bytes_per_tuple:g} bytes on the wire instead of {kept.wire_bytes_per_tuple:g}"
    if chosen.way == "keep":
        reason = f"keep: {kept.wire_bytes_per_tuple:g} bytes fit or save nothing otherwise"
    elif chosen.way == "round":
        reason = f"round: {wire}"
    else:
        reason = f"shed: {wire}, {chosen.synopsis_bytes_per_tuple:g} bytes of synopsis"
    if chosen.way != "shed" and shed is not None:
        if "shed" not in allowed:
            reason += "; the contract does not allow shedding"
        elif shed.bytes_per_tuple >= kept.wire_bytes_per_tuple:
            reason += f"; shedding does not pay, its synopsis takes {shed.synopsis_bytes_per_tuple:g} bytes"
    return reason + ("; the channel is still exceeded" if over else "")


def _check(
    options: Mapping[str, Sequence[Option]],
    ranking: Sequence[str],
    capacity_bytes: float,
    fixed_bytes: float,
    allowed: Sequence[str],
    objective: str,
) -> None:
    if objective not in OBJECTIVES:
        raise Refused("objective", f"be one of {', '.join(OBJECTIVES)}", objective, "write objective: net")
    if not set(allowed) <= set(WAYS) or "keep" not in allowed:
        raise Refused("ways", "be keep and any of round and shed", list(allowed), "write ways: [keep, shed]")
    if not (capacity_bytes > 0 and math.isfinite(capacity_bytes)):
        raise Refused("capacity_bytes", "be above 0", capacity_bytes, "state the capacity")
    if not (fixed_bytes >= 0 and math.isfinite(fixed_bytes)):
        raise Refused("fixed_bytes", "be 0 or more", fixed_bytes, "measure it again")
    for name, ways in options.items():
        if sum(way.way == "keep" for way in ways) != 1:
            raise Refused(
                f"options.{name}",
                "offer to keep the attribute once",
                [way.way for way in ways],
                "add its measured width",
            )
    unknown = [name for name in ranking if name not in options]
    if unknown:
        raise Refused("ranking", "name attributes with options", ", ".join(unknown), "measure those columns")
