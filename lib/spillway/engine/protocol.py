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


class SharedRequest(Protocol):
    """A request of a step that is no work for tasks, such as a commit, and is answered for all streams at once."""

    def answer_all(self, requests: Sequence[Any]) -> list[Any]:
        """Return the answer to each of the requests, or its exception."""


Step = Generator[TaskRequest | SharedRequest, list[Any], Made]
"""The work on one stream: it yields requests. To a `TaskRequest`, it receives the result or the exception of each item;
to a `SharedRequest`, one answer or exception."""


def run_together(
    engine: Engine, steps: Mapping[str, Step[Made]], label: Callable[[int], str] = lambda _: ""
) -> Iterator[tuple[str, Made | Exception]]:
    """Run the steps of several streams, and yield the result or the exception of each step when it ends.

    The steps advance in rounds. In each round, one job of the engine does the tasks that steps wait for. When no step
    waits for tasks any more, the other requests are answered together. So the number of jobs and of commits is that of
    the longest step, and does not grow with the number of streams. If one task or one step fails, the others go on.
    `label`: the label of the job of a round; the first round has the number 1.

    >>> from spillway.engine import ProcessEngine
    >>> def halved(number):
    ...     (half,) = yield TaskRequest(lambda item: item / 2, [number])
    ...     return half
    >>> dict(run_together(ProcessEngine(), {"a": halved(3), "b": halved(8)}))
    {'a': 1.5, 'b': 4.0}
    """
    answers: dict[str, list[Any] | None] = dict.fromkeys(steps)
    waiting: dict[str, TaskRequest | SharedRequest] = {}
    number = 0
    try:
        while answers:
            for name, answer in answers.items():
                try:
                    waiting[name] = next(steps[name]) if answer is None else steps[name].send(answer)
                except StopIteration as ended:
                    yield name, ended.value
                except Exception as problem:
                    yield name, problem
            work = {name: one for name in steps if isinstance(one := waiting.get(name), TaskRequest)}
            if work:
                number += 1
                answers = _answer_tasks(engine, work, label(number))
            else:
                answers = _answer_shared({name: waiting[name] for name in steps if name in waiting})
            waiting = {name: one for name, one in waiting.items() if name not in answers}
    finally:
        for step in steps.values():
            step.close()  # a step that waits removes what it has written


def _answer_tasks(
    engine: Engine, requests: Mapping[str, TaskRequest], label: str
) -> dict[str, list[Any] | None]:
    """Do the tasks of all requests in one job."""
    work = [(request.function, item) for request in requests.values() for item in request.items]
    made = iter(map_each(engine, _call, work, label) if work else ())
    return {name: list(islice(made, len(request.items))) for name, request in requests.items()}


def _answer_shared(requests: Mapping[str, Any]) -> dict[str, list[Any] | None]:
    if not requests:
        return {}
    first, *_ = every = list(requests.values())
    return {name: [one] for name, one in zip(requests, first.answer_all(every), strict=True)}


def results_of(function: Callable[[Item], Result], items: Sequence[Item]) -> Step[list[Result]]:
    """Return the function's result for each item, as a step; raise the error of the first item that failed."""
    results = yield TaskRequest(function, items)
    for one in results:
        if isinstance(one, Exception):
            raise one
    return results


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
