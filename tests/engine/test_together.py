"""Steps of several streams share their jobs: one job per round, and one fault stays one fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from spillway.engine import ProcessEngine
from spillway.engine.protocol import Step, TaskRequest, run_alone, run_together
from spillway.engine.task_errors import JobFailed


@dataclass(frozen=True)
class Counted(ProcessEngine):
    """Notes the label and the number of items of each job; dies of one item."""

    jobs: list[tuple[str, int]] = field(default_factory=list)
    deadly: Any = None

    def map(self, function: Callable[[Any], Any], items: Sequence[Any], label: str = "") -> list[Any]:
        self.jobs.append((label, len(items)))
        if any(item == self.deadly for _, item in items):
            raise JobFailed("a worker died")
        return super().map(function, items, label)


def halve(number: int) -> float:
    return 6 / number


def halved(*rounds: Sequence[int]) -> Step[list[Any]]:
    """Ask for these items, round after round; an error of a task is an error of the step."""
    found = []
    for items in rounds:
        results = yield TaskRequest(halve, items)
        found += results
        for one in results:
            if isinstance(one, Exception):
                raise one
    return found


def test_a_round_of_all_streams_is_one_job_and_the_longest_step_says_how_many() -> None:
    engine = Counted()
    steps = {"a": halved([1, 2], [3], [6]), "b": halved([]), "c": halved([2], [1]), "d": halved()}
    ended = list(run_together(engine, steps, lambda number: f"draft {number}"))
    assert dict(ended) == {"a": [6, 3, 2, 1], "b": [], "c": [3, 6], "d": []}
    assert [name for name, _ in ended] == ["d", "b", "c", "a"], "each is told when it ends"
    assert engine.jobs == [("draft 1", 3), ("draft 2", 2), ("draft 3", 1)]


def test_a_task_that_fails_ends_its_own_step() -> None:
    found = dict(run_together(ProcessEngine(), {"a": halved([1], [0]), "b": halved([2], [3], [6])}))
    assert found["b"] == [3, 2, 1]
    assert isinstance(found["a"], ZeroDivisionError)


def test_a_task_that_ends_its_job_is_isolated_and_its_step_alone_fails() -> None:
    engine = Counted(deadly=3)
    found = dict(run_together(engine, {"a": halved([1, 2], [6]), "b": halved([3]), "c": halved([6], [1])}))
    assert (found["a"], found["c"]) == ([6, 3, 1], [1, 6])
    assert isinstance(found["b"], JobFailed)


def test_steps_that_wait_when_a_run_is_interrupted_clean_up() -> None:
    cleaned = []

    def step(name: str) -> Step[None]:
        try:
            yield TaskRequest(interrupted, [1])
        finally:
            cleaned.append(name)

    with pytest.raises(KeyboardInterrupt):
        list(run_together(ProcessEngine(), {"a": step("a"), "b": step("b")}))
    assert cleaned == ["a", "b"]


def interrupted(_: int) -> Iterator[None]:
    raise KeyboardInterrupt


def test_a_step_alone_returns_its_result_or_raises() -> None:
    engine = Counted()
    assert run_alone(engine, halved([1, 2]), "recover") == [6, 3]
    assert engine.jobs == [("recover", 2)]
    with pytest.raises(ZeroDivisionError):
        run_alone(engine, halved([0]))
