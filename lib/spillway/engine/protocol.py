"""The engine protocol, and the division of work into groups of consecutive items."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

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


Made = TypeVar("Made")


@dataclass(frozen=True)
class TaskRequest:
    """Work for tasks: `function` is called with each of the items. All of them must be picklable, and results small."""

    function: Callable[[Any], Any]
    items: Sequence[Any]


Step = Generator[TaskRequest, list[Any], Made]
"""The work on one stream: it yields what tasks must do, and receives for each item the result or the exception."""


def run_together(
    engine: Engine, steps: Mapping[str, Step[Made]], label: Callable[[int], str] = lambda _: ""
) -> Iterator[tuple[str, Made | Exception]]:
    """Run the steps of several streams, and yield the result or the exception of each step when it ends.

    The steps advance in rounds. In each round, one job of the engine does the tasks that all steps wait for. So the
    number of jobs is that of the longest step, whatever the number of streams. If one task or one step fails, the
    others go on. `label`: the label of the job of a round; the first round has the number 1.

    >>> from spillway.engine import ProcessEngine
    >>> def halved(number):
    ...     (half,) = yield TaskRequest(lambda item: item / 2, [number])
    ...     return half
    >>> dict(run_together(ProcessEngine(), {"a": halved(3), "b": halved(8)}))
    {'a': 1.5, 'b': 4.0}
    """
    waiting: list[tuple[str, Step[Made], TaskRequest]] = []
    going: list[tuple[str, Step[Made], list[Any] | None]] = [
        (name, step, None) for name, step in steps.items()
    ]
    number = 0
    try:
        while going:
            waiting = []
            for name, step, results in going:
                try:
                    request = next(step) if results is None else step.send(results)
                except StopIteration as ended:
                    yield name, ended.value
                except Exception as problem:
                    yield name, problem
                else:
                    waiting.append((name, step, request))
            number += 1
            work = [(request.function, item) for _, _, request in waiting for item in request.items]
            made = iter(map_each(engine, _call, work, label(number)) if work else ())
            going = [(name, step, list(islice(made, len(request.items)))) for name, step, request in waiting]
    finally:
        for step in steps.values():
            step.close()  # a step that waits removes what it has written


def run_alone(engine: Engine, step: Step[Made], label: str = "") -> Made:
    """Run the step of one stream, and return its result."""
    ((_, made),) = run_together(engine, {"": step}, lambda _: label)
    if isinstance(made, Exception):
        raise made
    return made


def _call(work: tuple[Callable[[Item], Result], Item]) -> Result:
    function, item = work
    return function(item)


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
