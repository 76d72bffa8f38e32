"""A batch that fails twice while it is shed is set aside by name, and its stream goes on; what is not its own waits."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.levers.failing import lever as failing
from tests.pipeline.streams import METERS, SITES, World, csv_lines, json_lines, meters, sites

from spillway import registry
from spillway.batch import DONE, PLANNED, QUARANTINED, RETIRED, Batch
from spillway.clock import utc_now
from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError, is_own_fault
from spillway.intake.replay import Selection, replay
from spillway.report.status import status
from spillway.settings import Settings
from spillway.store.batches import save_batches
from spillway.store.tables import Tables
from spillway.streams.shed import _is_quarantine_unresolved


@pytest.fixture(autouse=True)
def the_toy_has_its_line() -> Iterator[None]:
    with registry.extra_levers(failing="tests.levers.failing"):
        yield


def poisoned(batch: int | None, at: str = "plan") -> dict[str, Any]:
    """The contract of `sites`, behind a lever that crashes on this batch; on every one; or `nowhere`."""
    return {**SITES, "levers": [{"lever": "failing", "at": at, "batch": batch}, SITES["levers"][0]]}


SOUND = poisoned(None, "nowhere")


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> World:
    """One batch of either stream is through, and one more of `meters` has landed."""
    with registry.extra_levers(failing="tests.levers.failing"):
        world = World.begin(ProcessEngine(), tmp_path_factory.mktemp("ready"), SOUND, METERS)
        world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
        world.deliver("meters/2020-01-01/a.csv", csv_lines(meters(0, 350)))
        world.shed()
        world.train("sites", "meters")
        world.shed()
        world.deliver("meters/2020-01-01/b.csv", csv_lines(meters(350, 90)))
        return world


@pytest.fixture
def world(ready: World, tmp_path: Path) -> World:
    return ready.copy(tmp_path)


def landed(world: World, *batches: int) -> None:
    """These batches of `sites`, of one date; what has landed before a run is one batch."""
    for number in batches:
        world.deliver(f"sites/2020-01-01/{number}.json", json_lines(sites(330 + 130 * (number - 2), 130)))


def failed(world: World) -> str:
    with pytest.raises(SpillwayError) as problem:
        world.shed()
    return str(problem.value)


def fates(world: World, stream: str = "sites") -> list[tuple[str, int]]:
    return [(batch.status, batch.attempts) for batch in world.batches(stream)]


def held(world: World) -> dict[int, Batch]:
    return {batch.batch: batch for batch in world.batches("sites")}


def test_what_fails_twice_is_set_aside_and_what_waited_behind_it_goes_through(world: World) -> None:
    world.contract_becomes(poisoned(2), METERS)
    landed(world, 2)
    assert "ZeroDivisionError: a crash while it should plan" in failed(world)
    assert fates(world) == [(DONE, 0), (PLANNED, 1)]
    assert fates(world, "meters") == [(DONE, 0), (DONE, 0)]
    landed(world, 3)
    said = failed(world)
    assert said.startswith("sites: batch 2 failed a second time and is quarantined: ZeroDivisionError")
    assert said.endswith("; fix the cause, then spillway replay sites --date 2020-01-01")
    assert fates(world) == [(DONE, 0), (QUARANTINED, 2), (DONE, 0)]
    one, two, three = (held(world)[n] for n in (1, 2, 3))
    assert two.frame_origin == one.frame_origin
    assert three.frame_origin == three.first_seq, "no frame goes over what is not sent"
    (trouble,) = [found for found in status(world.tables.now()).shortages if found.kind == "quarantined"]
    assert "batch 2 of 2020-01-01 failed 2 times and is quarantined" in trouble.sentence

    world.shed()  # nothing is left to do, and nothing is red
    world.contract_becomes(SOUND, METERS)
    done = replay(world.tables, world.engine, world.contracts.stream("sites"), Selection(), "again")
    assert done.reopened == (2,)
    world.shed()
    world.validate()
    assert fates(world) == [(DONE, 0)] * 3
    assert all(row["violations"] == 0 for row in world.rows("certificates"))
    raw, given = world.frame("raw", "sites"), world.frame("recovered", "sites")
    assert given["seq"].tolist() == raw["seq"].tolist()
    away = (given["temp"] - raw["temp"]).abs() > 0.0200001 * raw["temp"].abs()
    assert not away.fillna(False).any()


def test_two_in_a_row_are_no_longer_the_fault_of_a_batch(world: World) -> None:
    world.contract_becomes(poisoned(None), METERS)
    for number in (2, 3):
        landed(world, number)
        failed(world)
    assert fates(world) == [(DONE, 0), (QUARANTINED, 2), (PLANNED, 1)]
    for _ in range(3):
        assert "quarantined" not in failed(world)
    assert fates(world) == [(DONE, 0), (QUARANTINED, 2), (PLANNED, 2)]
    world.contract_becomes(SOUND, METERS)
    world.shed()
    assert fates(world) == [(DONE, 0), (QUARANTINED, 2), (DONE, 0)]


@pytest.mark.parametrize(
    "problem",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        ConnectionRefusedError("the gateway is gone"),
        MemoryError("no room"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_a_fault_that_is_not_the_batchs_own_sets_nothing_aside(
    world: World, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    landed(world, 2)

    def breaks(step: str, at: str) -> None:
        if step == "plan":
            raise problem

    with monkeypatch.context() as patch:
        patch.setattr(failing, "reach", breaks)
        for _ in range(3):
            failed(world)
    assert fates(world) == [(DONE, 0), (PLANNED, 0)]
    world.shed()
    assert fates(world) == [(DONE, 0), (DONE, 0)]


def test_a_backfill_that_fails_twice_sets_aside_what_fails_and_brings_the_rest_through(world: World) -> None:
    for number in (2, 3):
        landed(world, number)
        world.shed()
    world.contract_becomes(poisoned(2), METERS)
    day = held(world)[1].batch_date
    with pytest.raises(SpillwayError):
        world.shed(dates=(day, day))
    assert fates(world) == [(DONE, 0), (PLANNED, 1), (PLANNED, 0)]
    assert "quarantined" in failed(world)
    assert fates(world) == [(DONE, 0), (QUARANTINED, 2), (DONE, 0)]


class Py4JJavaError(Exception):
    """As Spark raises it in the driver."""

    __module__ = "py4j.protocol"


STACK = "Traceback (most recent call last):\n  File 'x.py', line 1, in f\n"


@pytest.mark.parametrize(
    ("problem", "own"),
    [
        (Py4JJavaError("Job aborted: ExecutorLostFailure (executor 1 exited)"), False),
        (Py4JJavaError(f"{STACK}ZeroDivisionError: by nothing"), True),
        (Py4JJavaError(f"{STACK}OSError: [Errno 28] Error writing bytes to file"), False),
        (Py4JJavaError(f"{STACK}MemoryError"), False),
        (FileNotFoundError(errno.ENOENT, "No such file"), True),
        (RuntimeError("Generic LocalFileSystem error: (os error 28)"), False),
    ],
)
def test_spark_that_is_gone_is_told_from_a_task_that_failed(problem: Exception, own: bool) -> None:
    wrapped = SpillwayError("it could not be done")
    wrapped.__cause__ = problem
    assert is_own_fault(problem) is own
    assert is_own_fault(wrapped) is own


def test_only_what_went_through_after_a_batch_was_set_aside_says_that_its_stream_is_sound() -> None:
    tables, at = Tables(Settings.in_memory("set-aside")), utc_now()
    hour = timedelta(hours=1)

    def batch(number: int, status: str, when: datetime) -> Batch:
        return Batch("net", number, at.date(), status, (), number, number, "run", at, when, 1, 0, 0)

    assert not _is_quarantine_unresolved(tables, "net"), "none was set aside"
    for one, none_since in (
        (batch(2, QUARANTINED, at), True),
        (batch(1, DONE, at + hour), True),
        (batch(3, DONE, at - hour), True),
        (batch(4, PLANNED, at + hour), True),
        (batch(5, RETIRED, at + hour), False),
    ):
        save_batches(tables.now(), [one])
        assert _is_quarantine_unresolved(tables.now(), "net") is none_since
    tables.forget()
