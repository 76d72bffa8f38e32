"""The engine protocol, and the division of work into groups of consecutive items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa

from spillway.engine.statements import SqlView, Steps
from spillway.engine.task_errors import Failed, Item, JobFailed, Result, caught, raised


class Engine(Protocol):
    """Runs a function on slices of the data, and answers queries."""

    @property
    def cores(self) -> int:
        """The number of slices that the engine processes at the same time."""

    def load(self) -> None:
        """Import the engine's libraries.

        Call this before other threads start: two threads that import modules with a circular import can see a partly
        initialised module.
        """

    def map(self, function: Callable[[Item], Result], items: Sequence[Item], label: str = "") -> list[Result]:
        """Return the function's result for each item, in the order of the items.

        The function and the items are sent to the tasks, and the results are sent back to the driver. All of them must
        be picklable. Results must be small: a task writes large data to storage itself. The error of the first item
        that failed is raised, with its own type. `label`: the step or table, shown in Spark's UI.
        """

    def ask(
        self,
        views: Mapping[str, SqlView],
        steps: Steps,
        most_rows: int,
        most_seconds: float | None = None,
        label: str = "",
    ) -> pa.Table:
        """Run the steps (Spark SQL) and return the result of the last one.

        Raise `InvalidValue` if the result has more than `most_rows` rows or takes more than `most_seconds` seconds.
        """

    def columns(self, views: Mapping[str, SqlView], steps: Steps) -> pa.Schema:
        """Return the columns of the result of `ask` without computing it; refuse statements that are not valid."""


def map_each(
    engine: Engine, function: Callable[[Item], Result], items: Sequence[Item], label: str = ""
) -> list[Result | Exception]:
    """Return for each item the function's result, or its exception.

    If the job itself fails (a task ran out of memory, a worker was killed), it is retried with half of the items, until
    the items that fail alone are found.

    >>> from spillway.engine import ProcessEngine
    >>> map_each(ProcessEngine(), lambda number: 6 // number, [2, 0, 3])
    [3, ZeroDivisionError('integer division or modulo by zero'), 2]
    """
    try:
        found = engine.map(partial(caught, function), items, label)
    except JobFailed as problem:
        if len(items) == 1:
            return [problem]
        middle = len(items) // 2
        halves = (items[:middle], items[middle:])
        return [one for half in halves for one in map_each(engine, function, half, label)]
    return [raised(one) if isinstance(one, Failed) else one for one in found]


def split_evenly(
    items: Sequence[Item], most: int, weight: Callable[[Item], float] = lambda _: 1.0
) -> list[tuple[Item, ...]]:
    """Split the items into at most `most` groups of consecutive items with about the same weight.

    >>> split_evenly([1, 2, 3, 4, 5], 2)
    [(1, 2), (3, 4, 5)]
    >>> split_evenly([9, 1, 1, 1], 2, weight=float)
    [(9,), (1, 1, 1)]
    >>> split_evenly([], 4)
    []
    """
    share = sum(map(weight, items)) / max(most, 1)
    groups: dict[int, list[Item]] = {}
    before = 0.0
    for item in items:
        # the midpoint of an item decides its group
        middle = before + weight(item) / 2
        groups.setdefault(int(middle / share) if share else 0, []).append(item)
        before += weight(item)
    return [tuple(group) for _, group in sorted(groups.items())]
