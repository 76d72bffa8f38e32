"""What an engine is.

Dividing work into pieces, as even as consecutive items allow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from spillway.engine.statements import SqlView, Steps

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """Runs a function over pieces."""

    @property
    def cores(self) -> int:
        """How many pieces it works on at a time."""

    def load(self) -> None:
        """Import what it runs on, before other threads import: two that go around one circle find it half made."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """The function of every item, in the items' order, whatever the order it was worked out in.

        Function and items travel to where they run, and the results come back to the driver: both must pickle, and
        results must be small (what is large is written where it is made). The first error is raised.
        """

    def ask(
        self, views: Mapping[str, SqlView], steps: Steps, most_rows: int, most_seconds: float | None = None
    ) -> pa.Table:
        """What the last of some statements in Spark SQL answers, of at most so many rows, within so many seconds."""

    def columns(self, views: Mapping[str, SqlView], steps: Steps) -> pa.Schema:
        """The columns that it would answer with: refuses what is not understood, and works nothing out."""


def in_pieces(
    items: Sequence[Item], most: int, weight: Callable[[Item], float] = lambda _: 1.0
) -> list[tuple[Item, ...]]:
    """The items in their order, in at most `most` groups of about the same weight.

    >>> in_pieces([1, 2, 3, 4, 5], 2)
    [(1, 2), (3, 4, 5)]
    >>> in_pieces([9, 1, 1, 1], 2, weight=float)
    [(9,), (1, 1, 1)]
    >>> in_pieces([], 4)
    []
    """
    share = sum(map(weight, items)) / max(most, 1)
    groups: dict[int, list[Item]] = {}
    before = 0.0
    for item in items:
        # an item belongs where its middle lies
        middle = before + weight(item) / 2
        groups.setdefault(int(middle / share) if share else 0, []).append(item)
        before += weight(item)
    return [tuple(group) for _, group in sorted(groups.items())]
