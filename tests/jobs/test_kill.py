"""SIGKILL between every pair of steps and inside the writes of a shed run: the rerun ends in the same rows.

Two lakes die at the same time, each several times over: the next life goes on from what the last one left, and dies
one step later. Every death is of driver and JVM together. What `killed.py` cannot reach would not be between steps:
before the first write nothing has happened.
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
from tests.pipeline.streams import ROOT, SITES, World, brought_through, json_lines, sites

from spillway.engine.spark_conf import SHORT_LIVED_JVM
from spillway.intake.take_in import take_in
from spillway.store.batches import DONE, PLANNED, RECORDED, TAKEN_IN

TAKING_IN = (
    ("before", "raw", "1", RECORDED),
    ("within", "raw", "", RECORDED),
    ("before", "rejected", "1", RECORDED),
    ("before", "ledger", "1", RECORDED),
    ("before", "batches", "1", RECORDED),
    ("before", "batches", "2", TAKEN_IN),
)
SHEDDING = (
    ("within", "synopsis", "", PLANNED),
    ("before", "schemes", "1", PLANNED),
    ("before", "ledger", "1", PLANNED),
    ("within", "transmitted", "", PLANNED),
    ("before", "ledger", "2", PLANNED),
    ("before", "batches", "1", PLANNED),
)
"""Manner, table, which write, and what the batch's row says afterwards: how far that life came."""


def run(world: World, *told: str) -> tuple[int, str]:
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
    command = [sys.executable, str(ROOT / "tests" / "jobs" / "killed.py"), *told]
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


def lives(world: World, deaths: tuple[tuple[str, str, str, str], ...]) -> list[str]:
    """How far the newest batch had come after each death."""
    statuses = []
    for *told, _ in deaths:
        code, said = run(world, *filter(None, told))
        assert code == -signal.SIGKILL, said
        statuses.append(world.batches("sites")[-1].status)
    return statuses


@pytest.fixture(scope="module")
def landed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A lake where a file with a bad record has just landed."""
    world = brought_through(spark, lambda: tmp_path_factory.mktemp("world")).copy(
        tmp_path_factory.mktemp("landed")
    )
    world.contract_becomes(SITES)
    bad = b'{"site": "site-1", "at": "2020-01-03T00:00:00Z", "temp": "warm"}\n'
    world.deliver("sites/2020-01-02/d.json", json_lines(sites(710, 150)) + bad)
    return world


@pytest.fixture(scope="module")
def expected(landed: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Every row of a run that nothing disturbed."""
    straight = landed.copy(tmp_path_factory.mktemp("straight"))
    straight.shed()
    rows = straight.everything("sites")
    assert (len(rows["raw/sites"]), len(rows["rejected"])) == (860, 1)
    return rows


def test_whatever_is_killed_is_finished_by_the_next_run_row_for_row(
    landed: World, expected: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    taking_in, shedding = landed.copy(tmp_path / "taking_in"), landed.copy(tmp_path / "shedding")
    take_in(shedding.lake, shedding.contracts.streams["sites"], "run")
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(lives, taking_in, TAKING_IN), pool.submit(lives, shedding, SHEDDING)]
        reached = [one.result() for one in both]
    assert reached == [[death[3] for death in deaths] for deaths in (TAKING_IN, SHEDDING)]
    for broken in (taking_in, shedding):
        broken.shed()
        assert broken.batches("sites")[-1].status == DONE
        found = broken.everything("sites")
        for table, rows in expected.items():
            assert found[table] == rows, table


def test_of_two_processes_at_once_one_wins_and_the_other_says_so(
    landed: World, expected: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    twice = landed.copy(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda _: run(twice, "never"), range(2)))
    silent = [said for code, said in outcomes if code != 0 and "nothing was doubled" not in said]
    assert not silent, "\n\n".join(silent)
    assert 0 in [code for code, _ in outcomes]
    found = twice.everything("sites")
    for table, rows in expected.items():
        assert found[table] == rows, table
