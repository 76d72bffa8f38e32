"""Compare six rankings at equal bytes: the least error that an order of attributes reaches in a given capacity.

A ranking treats the attributes in its order. Each attribute is reduced completely before the next one, until the rest
fits. There are two contestants for each order; the better one counts:

- *shed*: the thesis's treatment, keep or shed;
- *all*: every treatment of the plan: kept, rounded, and shed in every precision.

A contestant treats an attribute in the same way in all tuples of a batch, as a plan does. With *sharing*, it takes the
last step for only as many tuples as necessary, so that the capacity is used to the last byte, which no plan does.

There are two cases. *hold*: synopses stay at the source; a shed attribute is absent and counts 100. *send*: a synopsis
is sent and counts against the capacity, with the overhead of its file (`around`); the error is that of the recovered
values. If all synopses together do not fit, they stay at the source in the same order.

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
"""The ratio for a plan with an error if the best ranking has none; figures must be finite numbers."""
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
    """Return the mean loss if this order fills the capacity of the measures.

    `around` is subtracted from the capacity if anything is shed; here everything that is not kept is shed.
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
    """Return `ranking_error` with the treatments that are best for an order."""
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
    """Return the least error of any order of any ranking with any treatments; the best of all random orders counts."""
    return min(
        best_treatments_error(options, order, room_bytes, synopsis, **how)
        for every in ranked.values()
        for order in every
    )


def error_over_best(error: float, best: float) -> float:
    """Return a plan's error over that of the best ranking; 0 over 0 counts as 1.

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
    """Descend each ladder in order, then the ladders on which synopses are not sent."""
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
    """Return the first point of a ladder that fits, or its end; `sharing`: on the line between two points."""
    for (before, had), (after, has) in pairwise(ladder):
        if after <= room:
            share = (before - room) / (before - after) if sharing and before > after else 1.0
            return before - share * (before - after), had + share * (has - had)
    return ladder[-1]


def _ladders(
    options: OptionsByName, synopsis: str, treatments: str, line: Callable[[Sequence[_Point]], list[_Point]]
) -> dict[str, tuple[list[_Point], list[_Point]]]:
    """Return the points of every attribute, with synopses sent (or nothing sent) and with synopses not sent."""
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
    """Return the chosen points after the first point of all: reduction starts from the kept attribute, even if a
    smaller
    treatment loses as little."""
    found = choose(points)
    return found if found[0][0] == points[0][0] else [points[0], *found]


def _hull(points: Sequence[_Point]) -> list[_Point]:
    """Return the lower convex hull, from the most to the fewest bytes."""
    bytes_, losses = np.array([one for one, _ in points]), np.array([one for _, one in points])
    return [points[at] for at in reversed(lower_hull(bytes_, losses))]


def _pareto_front(points: Sequence[_Point]) -> list[_Point]:
    """Return the points that no other point dominates, from the most to the fewest bytes."""
    found: list[_Point] = []
    for size, loss in sorted(points, key=lambda point: (point[1], point[0])):
        if not found or size < found[-1][0]:
            found.append((size, loss))
    return found


def _kept_option(options: Sequence[Option]) -> Option:
    found = of_way(options, "keep")
    assert found is not None, "training measures what keeping takes"
    return found
