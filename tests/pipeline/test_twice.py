"""Two runs of one channel at once: nothing is doubled, and who loses says so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from tests.pipeline.streams import SITES, World, json_lines, sites

from spillway.batch import DONE
from spillway.errors import ConcurrentRun
from spillway.intake.ingest import ingest
from spillway.pipeline.run import run_channel


@pytest.mark.parametrize("starts_with", ["a new file", "a batch that was taken in"])
def test_two_runs_of_the_same_channel_at_the_same_time_leave_it_once(
    world: World, tmp_path: Path, starts_with: str
) -> None:
    straight = world.copy(tmp_path / "straight")
    straight.contract_becomes(SITES)
    straight.deliver("sites/2020-01-02/d.json", json_lines(sites(710, 150)))
    if starts_with != "a new file":
        ingest(straight.tables, straight.engine, straight.contracts.streams["sites"], "run")
    twice = straight.copy(tmp_path / "twice")
    straight.shed()
    together = Barrier(2)

    def run(number: int) -> str:
        tables = twice.tables.now()
        together.wait()
        try:
            run_channel(tables, twice.engine, twice.contracts, "narrow", f"run {number}")
        except ConcurrentRun as problem:
            return str(problem)
        return "done"

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(run, range(2)))
    assert "done" in outcomes
    assert all(outcome == "done" or "nothing was doubled" in outcome for outcome in outcomes)
    assert [b.status for b in twice.batches("sites")] == [DONE] * 4
    expected, found = straight.everything("sites"), twice.everything("sites")
    for table, rows in expected.items():
        assert found[table] == rows, table
