"""SIGKILL between every pair of steps and inside the writes of a shed run: the rerun ends in the same rows.

Each lake dies several times over: the next life goes on from what the last one left, and dies one step later.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.streams import ROOT, SITES, World, json_lines, sites

from spillway.batch import DONE, INGESTED, PLANNED, RECORDED
from spillway.engine import ProcessEngine
from spillway.engine.spark_conf import SHORT_LIVED_JVM
from spillway.intake.ingest import ingest

Rows = dict[str, list[dict[str, Any]]]
Deaths = tuple[tuple[str, str | None], ...]
TAKING_IN: Deaths = (
    ("before batches 1", DONE),
    ("before raw 1", RECORDED),
    ("within raw", RECORDED),
    ("before rejected 1", RECORDED),
    ("before ledger 1", RECORDED),
    ("before batches 1", RECORDED),
    ("before batches 2", INGESTED),
)
SHEDDING: Deaths = (
    ("within synopsis", PLANNED),
    ("within transmitted", PLANNED),
    ("before synopsis 1", PLANNED),
    ("before schemes 1", PLANNED),
    ("before ledger 1", PLANNED),
    ("before transmitted 1", PLANNED),
    ("before batches 1", PLANNED),
)
MAKING: Deaths = (
    ("made batches", None),
    ("made raw", RECORDED),
    ("made rejected", RECORDED),
    ("made ledger", RECORDED),
)
"""How it dies, and what the newest batch says afterwards: how far that life came."""


def run(world: World, engine: str, told: str) -> tuple[int, str]:
    """One run in a process group of its own: exit code and what it said, once nothing of it is left."""
    settings = world.settings
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")} | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "lib"), str(ROOT)]),
        "SPILLWAY_HOME": settings.home,
        "SPILLWAY_LAKE": settings.lake,
        "SPILLWAY_LANDING": settings.landing,
        "SPILLWAY_BUILD": settings.build,
        "SPILLWAY_SCHEMAS": settings.schemas,
        "SPILLWAY_JAVA_OPTIONS": SHORT_LIVED_JVM,
    }
    command = [sys.executable, str(ROOT / "tests" / "jobs" / "killed.py"), engine, *told.split()]
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        # the JVM holds the same pipe: its end means that nobody lingers
        said, _ = process.communicate(timeout=900)
    return process.returncode, said


def lives(world: World, deaths: Deaths, engine: str = "here") -> list[tuple[str, str | None]]:
    """Each death, and how far the newest batch had come after it."""
    reached: list[tuple[str, str | None]] = []
    for told, _ in deaths:
        code, said = run(world, engine, told)
        assert code == -signal.SIGKILL, said
        known = world.batches("sites")
        reached.append((told, known[-1].status if known else None))
    return reached


def assert_the_same(found: Rows, expected: Rows) -> None:
    for table, rows in expected.items():
        assert found[table] == rows, table


@pytest.fixture(scope="module")
def landed(through: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A lake where a file with a bad record has just landed."""
    world = through.copy(tmp_path_factory.mktemp("landed"))
    world.contract_becomes(SITES)
    bad = b'{"site": "site-1", "at": "2020-01-03T00:00:00Z", "temp": "warm"}\n'
    world.deliver("sites/2020-01-02/d.json", json_lines(sites(710, 150)) + bad)
    return world


@pytest.fixture(scope="module")
def expected(landed: World, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Every row of a run that nothing disturbed."""
    straight = landed.copy(tmp_path_factory.mktemp("straight"))
    straight.shed()
    rows = straight.everything("sites")
    assert (len(rows["raw/sites"]), len(rows["rejected"])) == (860, 1)
    return rows


@pytest.fixture
def ingested(landed: World, tmp_path: Path) -> World:
    """The lake with the file taken in and not shed."""
    world = landed.copy(tmp_path / "ingested")
    ingest(world.tables, world.engine, world.contracts.streams["sites"], "run")
    return world


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.long)])
def test_whatever_is_killed_is_finished_by_the_next_run_row_for_row(
    landed: World, ingested: World, expected: Rows, tmp_path: Path, every: int
) -> None:
    """Every second death by default, and all of them in `make test-long`."""
    fresh_file = landed.copy(tmp_path / "landed")
    taking_in, shedding = TAKING_IN[::every], SHEDDING[::every]
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(lives, fresh_file, taking_in), pool.submit(lives, ingested, shedding)]
        assert [tuple(one.result()) for one in both] == [taking_in, shedding]
    for broken in (fresh_file, ingested):
        broken.shed()
        assert broken.batches("sites")[-1].status == DONE
        assert_the_same(broken.everything("sites"), expected)


@pytest.mark.long
def test_a_spark_job_that_is_killed_within_a_task_is_finished_row_for_row(
    ingested: World, expected: Rows
) -> None:
    (death,) = lives(ingested, (("within transmitted", PLANNED),), "spark")
    assert death == ("within transmitted", PLANNED)
    code, said = run(ingested, "spark", "never")
    assert code == 0, said
    assert_the_same(ingested.everything("sites"), expected)


def test_a_run_that_dies_just_after_it_made_a_table_is_finished_by_the_next_one(tmp_path: Path) -> None:
    begun = World.begin(ProcessEngine(), tmp_path / "begun", SITES)
    begun.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 50)) + b"nonsense\n")
    Path(begun.settings.lake).mkdir()
    straight = begun.copy(tmp_path / "straight")
    straight.shed()
    assert tuple(lives(begun, MAKING)) == MAKING
    begun.shed()
    assert_the_same(begun.everything("sites"), straight.everything("sites"))


def test_of_two_processes_at_once_one_wins_and_the_other_says_so(
    landed: World, expected: Rows, tmp_path: Path
) -> None:
    twice = landed.copy(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda _: run(twice, "here", "never"), range(2)))
    silent = [said for code, said in outcomes if code != 0 and "nothing was doubled" not in said]
    assert not silent, "\n\n".join(silent)
    assert 0 in [code for code, _ in outcomes]
    assert_the_same(twice.everything("sites"), expected)
