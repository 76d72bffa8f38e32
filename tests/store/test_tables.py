"""The lake's writes: refused when they break the column contract, repeatable, one winner at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from typing import Any

import pytest

from spillway.errors import SpillwayError
from spillway.settings import Settings
from spillway.store.batches import DONE, RECORDED, Batch, LandingFile, load_batches, save_batches
from spillway.store.driver_writes import ConcurrentRun
from spillway.store.files import column_bytes, data_files, read_rows
from spillway.store.tables import Lake, where

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FILE = LandingFile("s/2026-01-01/a.json", 10, "d1", 3, -1, "taken", NOW)


def batch(number: int, stream: str = "s") -> Batch:
    return Batch(
        stream, number, date(2026, 1, 1), RECORDED, (FILE,), 0, 2, "run", NOW, NOW, models={"cycle": 1}
    )


def test_a_batch_comes_back_as_it_was_saved(spark: Any, settings: Settings) -> None:
    lake = Lake(spark, settings)
    save_batches(lake, [batch(1), batch(2)])
    assert load_batches(settings, "s") == [batch(1), batch(2)]


def test_a_write_replaces_its_own_rows_and_no_others(spark: Any, settings: Settings) -> None:
    lake = Lake(spark, settings)
    save_batches(lake, [batch(1), batch(2)])
    save_batches(lake, [batch(1, "other")])
    save_batches(lake, [batch(2).becomes(NOW, status=DONE)])
    save_batches(lake, [batch(2).becomes(NOW, status=DONE)])
    assert [(b.stream, b.batch, b.status) for b in load_batches(settings)] == [
        ("other", 1, RECORDED),
        ("s", 1, RECORDED),
        ("s", 2, DONE),
    ]


def test_a_frame_that_breaks_the_column_contract_is_refused_before_writing(
    spark: Any, settings: Settings
) -> None:
    lake = Lake(spark, settings)
    frame = spark.createDataFrame([(1, "x")], "seq bigint, extra string")
    with pytest.raises(SpillwayError, match=r"`batch` is missing.*`extra` is not in the contract"):
        lake.replace(frame, "raw", "batch = 1", stream="s", attributes=[("v", "double")])
    assert not lake.exists("raw", "s")


def test_an_attribute_gained_later_is_null_in_older_rows_and_one_lost_is_null_in_newer(
    spark: Any, settings: Settings
) -> None:
    lake = Lake(spark, settings)
    day = date(2026, 1, 1)
    both = "seq bigint, batch bigint, batch_date date, "
    old = spark.createDataFrame([(0, 1, day, 1.0)], both + "old double")
    new = spark.createDataFrame([(1, 2, day, 2.0)], both + "new double")
    lake.replace(old, "raw", where(batch_date=str(day), batch=1), stream="s", attributes=[("old", "double")])
    lake.replace(new, "raw", where(batch_date=str(day), batch=2), stream="s", attributes=[("new", "double")])
    rows = lake.read("raw", "s").orderBy("seq").select("seq", "old", "new").collect()
    assert [tuple(row) for row in rows] == [(0, 1.0, None), (1, None, 2.0)]
    table = read_rows(data_files(lake.path("raw", "s")), ["old", "new"], 0, 1)
    assert table.to_pylist() == [{"seq": 0, "old": 1.0, "new": None}, {"seq": 1, "old": None, "new": 2.0}]


def test_small_rows_that_break_the_column_contract_are_refused_before_writing(
    spark: Any, settings: Settings
) -> None:
    lake = Lake(spark, settings)
    with pytest.raises(SpillwayError, match=r"`colour` is not in the contract; `.*` must not be null"):
        lake.replace_rows("batches", [{"stream": "s", "colour": "red"}], "stream = 's'")
    with pytest.raises(SpillwayError, match=r"batches must be written as schemas/tables/batches.yaml says"):
        lake.replace_rows("batches", [{**batch(1).row(), "rows": "many"}], "stream = 's'")
    assert not lake.exists("batches")


def test_two_writers_of_one_batch_leave_one_set_of_rows(spark: Any, settings: Settings) -> None:
    lake = Lake(spark, settings)
    save_batches(lake, [batch(1)])

    def write(number: int) -> str:
        try:
            save_batches(lake, [batch(7).becomes(NOW, run_id=f"run {number}")])
        except ConcurrentRun as problem:
            return str(problem)
        return "won"

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(write, range(4)))
    assert "won" in outcomes
    assert all("nothing was doubled" in outcome for outcome in outcomes if outcome != "won")
    assert [b.batch for b in load_batches(settings, "s")] == [1, 7]


def test_rows_keep_seq_order_and_widths_are_compressed_bytes(spark: Any, settings: Settings) -> None:
    lake = Lake(spark, settings)
    day = date(2026, 1, 1)
    frame = spark.range(0, 50_000, 1, 2).selectExpr(
        "id AS seq", "1L AS batch", f"DATE'{day}' AS batch_date", "rand(7) AS noisy", "1.0D AS constant"
    )
    attributes = [("noisy", "double"), ("constant", "double")]
    lake.replace(frame, "raw", where(batch_date=str(day), batch=1), stream="s", attributes=attributes)
    files = data_files(lake.path("raw", "s"))
    rows = read_rows(files, ["noisy"], 24_990, 25_010)
    assert rows["seq"].to_pylist() == list(range(24_990, 25_011))
    widths = column_bytes(files, ["noisy", "constant"])
    assert widths["noisy"] > 50 * widths["constant"] > 0
