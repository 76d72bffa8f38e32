"""What a join cannot be by, seen from the types of its inputs' columns alone: before a row is read.

Sets are written in texts; single values are compared with values of their own type, and numbers with numbers. Operands
refuse the same of the rows themselves (`operands.holds_sets`, `operands.are_comparable`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spillway.contracts.fields import Broken
from spillway.contracts.stream import ARROW_TYPES
from spillway.levers.joins.operands import are_comparable, holds_sets
from spillway.levers.joins.settings import JoinSettings, JoinSide


def broken_by_types(
    settings: JoinSettings, inputs: tuple[str, str], types: Mapping[str, Mapping[str, str]]
) -> Iterator[Broken]:
    """What no window of these inputs can be joined by, with fields as they stand in the lever's entry.

    >>> both = JoinSettings(left=JoinSide(attribute="id"), right=JoinSide(attribute="site"))
    >>> types = {"east": {"id": "integer"}, "west": {"site": "string"}}
    >>> [(field, rule, value) for field, rule, value, _ in broken_by_types(both, ("east", "west"), types)]
    [('right.attribute', "be of a type that compares with integer, as east's id is", 'string')]
    """
    sides = (("left", settings.left), ("right", settings.right))
    found = [
        [(_field(name, side, at), stream, one, types[stream][one]) for at, one in enumerate(side.joined_by)]
        for (name, side), stream in zip(sides, inputs, strict=True)
    ]
    if settings.sets is not None:
        for field, stream, name, kind in (one for side in found for one in side):
            if not holds_sets(ARROW_TYPES[kind]):
                yield (
                    field,
                    f"be text where it holds sets, and {name} of {stream} is none",
                    kind,
                    "name an attribute that holds text, or leave sets out and write predicate: equality",
                )
        return
    for (_, first, name, mine), (field, _, _, kind) in zip(*found, strict=True):
        if not are_comparable(ARROW_TYPES[mine], ARROW_TYPES[kind]):
            rule = f"be of a type that compares with {mine}, as {first}'s {name} is"
            yield field, rule, kind, "join by attributes that hold the same"


def _field(name: str, side: JoinSide, at: int) -> str:
    return f"{name}.attributes[{at}]" if side.attributes else f"{name}.attribute"
