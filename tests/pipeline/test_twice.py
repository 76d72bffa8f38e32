"""Two runs of one channel at once: nothing is doubled, and who loses says so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

from tests.pipeline.streams import FIRST_DAY, SITES, World, json_lines, sites

from spillway.pipeline.shed import shed_channel
from spillway.settings import Settings
from spillway.store.batches import DONE
from spillway.store.ledger import LedgerRow, write_ledger
from spillway.store.tables import ConcurrentRun, Lake, where


def test_two_runs_of_the_same_batch_at_the_same_time_leave_it_once(world: World, tmp_path: Path) -> None:
    straight = world.copy(tmp_path / "straight")
    straight.contract_becomes(SITES)
    straight.deliver("sites/2020-01-02/d.json", json_lines(sites(710, 150)))
    twice = straight.copy(tmp_path / "twice")
    twice.contract_becomes(SITES)
    straight.shed()
    together = Barrier(2)

    def run(number: int) -> str:
        lake = Lake(twice.lake.spark, twice.settings)
        together.wait()
        try:
            shed_channel(lake, twice.contracts, "narrow", f"run {number}")
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


def test_streams_that_begin_a_table_at_the_same_time_all_write_to_it(spark: Any, settings: Settings) -> None:
    streams = ["a", "b", "c"]
    together = Barrier(len(streams))
    refused = "seq bigint, file string, line bigint, field string, rule string, value string, remedy string, "
    columns = f"stream string, batch bigint, batch_date date, {refused} reason string, original binary"

    def begin(stream: str) -> None:
        lake = Lake(spark, settings)
        row = (stream, 1, FIRST_DAY, 1, "f", 1, "x", "be", "1", "mend", "bad", b"1")
        frame = spark.createDataFrame([row], columns)
        together.wait()
        lake.replace(frame, "rejected", where(stream=stream, batch=[1]))
        together.wait()
        write_ledger(
            lake, stream, [1], "ingest", [LedgerRow(stream, 1, FIRST_DAY, "ingest", "taken in", 1, kept=1)]
        )

    with ThreadPoolExecutor(len(streams)) as pool:
        list(pool.map(begin, streams))
    for table in ("rejected", "ledger"):
        rows = Lake(spark, settings).read(table).select("stream").collect()
        assert sorted(row["stream"] for row in rows) == streams
