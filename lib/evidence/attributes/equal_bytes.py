"""Six rankings at equal bytes: the least error that going by somebody's order reaches in a given room.

A ranking goes through the attributes in its order. What it does to one is taken to the end before the next is touched,
until what remains fits. Two contestants for each order, of which the better counts:

- *shed*: the thesis's treatment, keep or shed;
- *all*: every treatment that the plan has, kept, rounded and shed in every precision.

Either treats an attribute alike in all tuples of a batch, as a plan does; or, *sharing*, takes the last step for only
as many tuples as are needed, so that all fill the room to the last byte: which no plan does.

What is shed depends on the case. *hold*: its synopsis stays at the source; it is absent, and counts 100. *send*: the
synopsis crosses and counts against the room, with what its file takes beside it (`around`); the error is what comes
back. Where even all synopses are too much, they stay behind in the same order.

>>> options = {
...     "a": [Option("a", "keep", 6), Option("a", "shed", 0, 2, mean_error_pct=1.0)],
...     "b": [Option("b", "keep", 4), Option("b", "round", 2, mean_error_pct=0.5)],
... }
>>> ranking_error(options, ["a", "b"], room_bytes=7, synopsis="hold"), ranking_error(options, ["a", "b"], 7, "send")
(25.0, 0.375)
>>> best_ranking_error(options, {"ab": [["a", "b"]], "ba": [["b", "a"]]}, 8, "hold")
0.25
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from spillway.errors import InvalidValue
from spillway.levers.attributes.loss import ABSENT, option_loss
from spillway.levers.attributes.option import Option, of_way, options_of
from spillway.levers.attributes.policy import OptionsByName
from spillway.levers.knapsack import lower_hull

SYNOPSES = ("hold", "send")
TREATMENTS = ("shed", "all")
_CRUMB = 1e-6
FAR_WORSE = 1e9
"""Of a plan that errs where some ranking does not: a number, for figures are numbers."""
_Point = tuple[float, float]
"""Bytes, and loss."""


def ranking_error(
    options: OptionsByName,
    order: Sequence[str],
    room_bytes: float,
    synopsis: str,
    treatments: str = "shed",
    around: float = 0.0,
    sharing: bool = True,
) -> float:
    """The mean loss when going by this order fills the measures' room.

    `around` is taken off the room where anything was shed, which all is here that is not kept.
    """
    for name, value, known in (("synopsis", synopsis, SYNOPSES), ("treatments", treatments, TREATMENTS)):
        if value not in known:
            raise InvalidValue(name, f"be one of {', '.join(known)}", value, f"write {name}: {known[0]}")
    whole = sum(_kept_option(found).wire_bytes_per_tuple for found in options.values())
    if whole <= room_bytes + _CRUMB:
        return 0.0
    line = partial(_line, _hull if sharing else _pareto_front)
    ways = [(room_bytes - around, _ladders(options, synopsis, treatments, line))]
    if synopsis == "send" and treatments == "all":
        rounds = {name: line(_rounded(found)) for name, found in options.items()}
        ways.append((room_bytes, {name: (ladder, []) for name, ladder in rounds.items()}))
    return min(_fill_by_order(ladders, order, whole - room, sharing) for room, ladders in ways)


def best_treatments_error(
    options: OptionsByName, order: Sequence[str], room_bytes: float, synopsis: str, **how: Any
) -> float:
    """`ranking_error` by whichever treatments serve an order best."""
    return min(
        ranking_error(options, order, room_bytes, synopsis, treatments, **how) for treatments in TREATMENTS
    )


def best_ranking_error(
    options: OptionsByName,
    ranked: Mapping[str, Sequence[Sequence[str]]],
    room_bytes: float,
    synopsis: str,
    **how: Any,
) -> float:
    """The least error that any order of any ranking reaches by any treatments; of random orders the luckiest counts."""
    return min(
        best_treatments_error(options, order, room_bytes, synopsis, **how)
        for every in ranked.values()
        for order in every
    )


def error_over_best(error: float, best: float) -> float:
    """A plan's error over the best ranking's; 0 over 0 counts 1.

    >>> error_over_best(1.0, 4.0), error_over_best(0.0, 0.0), error_over_best(1.0, 0.0)
    (0.25, 1.0, 1000000000.0)
    """
    if best > 0:
        return error / best
    return 1.0 if error <= 0 else FAR_WORSE


def _fill_by_order(
    ladders: Mapping[str, tuple[list[_Point], list[_Point]]],
    order: Sequence[str],
    over: float,
    sharing: bool,
) -> float:
    """Step by step down each ladder in order, then down what is left where synopses stay behind."""
    total = 0.0
    for turn in (0, 1):
        for name in order:
            ladder = ladders[name][turn]
            if len(ladder) < 2:
                continue
            if over <= _CRUMB:
                return total / max(1, len(ladders))
            most, had = ladder[0]
            size, has = _first_fitting(ladder, most - over, sharing)
            total += has - had
            over -= most - size
    if over > _CRUMB:
        return ABSENT  # it does not fit: all of it is gone
    return total / max(1, len(ladders))


def _first_fitting(ladder: Sequence[_Point], room: float, sharing: bool) -> _Point:
    """The first point down a ladder that fits, or its end; `sharing`: on the line between two points."""
    for (before, had), (after, has) in pairwise(ladder):
        if after <= room:
            share = (before - room) / (before - after) if sharing and before > after else 1.0
            return before - share * (before - after), had + share * (has - had)
    return ladder[-1]


def _ladders(
    options: OptionsByName, synopsis: str, treatments: str, line: Callable[[Sequence[_Point]], list[_Point]]
) -> dict[str, tuple[list[_Point], list[_Point]]]:
    """Of every attribute, its points while synopses cross (or nothing is sent), and when they stay behind."""
    found: dict[str, tuple[list[_Point], list[_Point]]] = {}
    for name, mine in options.items():
        kept = _kept_option(mine)
        width = kept.wire_bytes_per_tuple
        points = _rounded(mine) if treatments == "all" else [(width, 0.0)]
        sheds = options_of(mine, "shed")
        gone = min((one.wire_bytes_per_tuple for one in sheds), default=0.0)
        if synopsis == "hold":
            found[name] = (line([*points, (gone, ABSENT)]), [])
            continue
        offered = sheds if treatments == "all" else sheds[-1:]
        points += [(one.bytes_per_tuple, option_loss(one, True)) for one in offered]
        ladder = line([point for point in points if point[0] <= width])
        found[name] = (ladder, [ladder[-1], (gone, ABSENT)])
    return found


def _rounded(options: Sequence[Option]) -> list[_Point]:
    return [(_kept_option(options).wire_bytes_per_tuple, 0.0)] + [
        (one.wire_bytes_per_tuple, one.mean_error_pct) for one in options_of(options, "round")
    ]


def _line(choose: Callable[[Sequence[_Point]], list[_Point]], points: Sequence[_Point]) -> list[_Point]:
    """The chosen points, the first of all before them: what is kept is what bytes are taken off, also where something
    that takes fewer loses as little."""
    found = choose(points)
    return found if found[0][0] == points[0][0] else [points[0], *found]


def _hull(points: Sequence[_Point]) -> list[_Point]:
    """The lower convex hull from what takes most to what takes least."""
    bytes_, losses = np.array([one for one, _ in points]), np.array([one for _, one in points])
    return [points[at] for at in reversed(lower_hull(bytes_, losses))]


def _pareto_front(points: Sequence[_Point]) -> list[_Point]:
    """The points that no other beats, from what takes most to what takes least."""
    found: list[_Point] = []
    for size, loss in sorted(points, key=lambda point: (point[1], point[0])):
        if not found or size < found[-1][0]:
            found.append((size, loss))
    return found


def _kept_option(options: Sequence[Option]) -> Option:
    found = of_way(options, "keep")
    assert found is not None, "training measures what keeping takes"
    return found
