"""Files that tasks write: every reader reads them, no filter misses a row, a commit takes the place of its own only."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spillway.settings import Settings
from spillway.store import tables, task_files
from spillway.store.driver_writes import ConcurrentRun
from spillway.store.files import data_files, read_table
from spillway.store.tables import Lake
from spillway.store.task_files import Piece, write_pieces

DAY = date(2026, 1, 1)
ATTRIBUTES = [("v", "double"), ("at", "timestamp"), ("day", "date"), ("text", "string"), ("flag", "boolean")]
LONG = "a text of more than thirty-two letters, as they come"
NOON = datetime(2026, 1, 1, 12, 0, 0, 1234, tzinfo=UTC)


def rows(batch: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "seq": batch * 100 + i,
            "batch": batch,
            "scheme": 0,
            "v": [1.5, float("nan"), None, float("-inf"), -0.0][i % 5],
            "at": NOON + timedelta(microseconds=i) if i % 3 else None,
            "day": DAY + timedelta(days=i),
            "text": [LONG, "", None, "ß"][i % 4],
            "flag": i % 2 == 0,
        }
        for i in range(count)
    ]


def making(count: int) -> Callable[[int], Iterator[pa.Table]]:
    """A table a few rows long at a time, its columns in an order of their own."""

    def make(batch: int) -> Iterator[pa.Table]:
        made = rows(batch, count)
        for start in range(0, count, 3):
            part = pa.Table.from_pylist(made[start : start + 3])
            yield part.select(sorted(part.column_names))

    return make


def send(lake: Lake, batch: int, count: int, stream: str = "s") -> None:
    lake.replace_in_tasks(
        "transmitted",
        [Piece({"batch_date": str(DAY)}, batch)],
        making(count),
        [batch],
        stream=stream,
        attributes=ATTRIBUTES,
    )


def counted(lake: Lake) -> dict[int, int]:
    table = read_table(lake.path("transmitted", "s"), ["batch"])
    assert table is not None
    return {
        row["batch"]: row["batch_count"]
        for row in table.group_by("batch").aggregate([("batch", "count")]).to_pylist()
    }


@pytest.fixture
def lake(spark: Any, settings: Settings) -> Lake:
    return Lake(spark, settings)


def test_every_reader_reads_every_type(lake: Lake) -> None:
    send(lake, 1, 10)
    wanted = [repr({**row, "batch_date": DAY}) for row in rows(1, 10)]
    path = lake.path("transmitted", "s")
    names = ["seq", "batch", "scheme", "v", "at", "day", "text", "flag", "batch_date"]
    by_delta_rs = DeltaTable(path).to_pyarrow_table().select(names).to_pylist()
    by_spark = lake.read("transmitted", "s").select(*names).toArrow().to_pylist()
    with duckdb.connect() as database:
        database.register("given", DeltaTable(path).to_pyarrow_dataset())
        database.sql("SET TimeZone = 'UTC'")
        by_duckdb = database.sql("SELECT * FROM given").to_arrow_table().select(names).to_pylist()
    for found in (by_delta_rs, by_spark, by_duckdb):
        plain = [
            {**row, "at": row["at"].astimezone(UTC).replace(tzinfo=UTC) if row["at"] else None}
            for row in found
        ]
        assert sorted(repr(row) for row in plain) == sorted(wanted)


@pytest.mark.parametrize(
    "predicate",
    [
        "v = double('NaN')",
        "v > 1e300",
        "v = double('-infinity')",
        "v IS NULL",
        "at > timestamp'2026-01-01 12:00:00.001241Z'",
        "at <= timestamp'2026-01-01 12:00:00.001235Z'",
        "day = date'2026-01-10'",
        "day > date'2026-01-10'",
        f"text = '{LONG}'",
        "text > 'b'",
        "text > 'ß'",
        "NOT flag",
        "seq = 109",
        "seq > 109",
    ],
)
def test_no_filter_misses_a_row_for_what_the_log_says_of_a_file(lake: Lake, predicate: str) -> None:
    send(lake, 1, 10)
    whole = lake.spark.createDataFrame(pa.Table.from_pylist(rows(1, 10)))
    assert lake.read("transmitted", "s", predicate).count() == whole.where(predicate).count()


def test_rows_that_come_a_few_at_a_time_lie_in_large_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_files, "ROWS_IN_A_GROUP", 100)
    schema = pa.schema([("seq", pa.int64())])
    few = [pa.table({"seq": range(start, start + 7)}) for start in range(0, 259, 7)]
    added = task_files.write_file(str(tmp_path), {}, schema, 1, few)
    assert added is not None
    written = pq.ParquetFile(tmp_path / added["add"]["path"])
    assert [written.metadata.row_group(i).num_rows for i in range(written.num_row_groups)] == [100, 100, 59]
    assert written.read()["seq"].to_pylist() == list(range(259))


def test_a_payload_is_written_once(tmp_path: Path) -> None:
    schema = pa.schema([("seq", pa.int64()), ("payload", pa.binary())])
    payload = np.random.default_rng(1).bytes(50_000)
    added = task_files.write_file(
        str(tmp_path), {}, schema, 2, [pa.table({"seq": [1], "payload": [payload]})]
    )
    assert added is not None
    assert added["add"]["size"] < 55_000


def test_a_time_that_python_has_none_for_is_written_without_its_edges(tmp_path: Path) -> None:
    schema = pa.schema([("seq", pa.int64()), ("until", pa.timestamp("us", "UTC"))])
    last = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999
    rows = pa.table({"seq": [1], "until": pa.array([last], pa.int64()).cast(schema.types[1])})
    added = task_files.write_file(str(tmp_path), {}, schema, 2, [rows])
    assert added is not None
    assert json.loads(added["add"]["stats"]) == {
        "numRecords": 1,
        "minValues": {"seq": 1},
        "maxValues": {"seq": 1},
        "nullCount": {"seq": 0, "until": 0},
    }


def test_a_batch_takes_the_place_of_its_own_files_only(lake: Lake) -> None:
    send(lake, 1, 10)
    send(lake, 2, 7)
    (other,) = [f for f in data_files(lake.path("transmitted", "s")) if f.low("batch") == 2]
    send(lake, 1, 4)
    assert counted(lake) == {1: 4, 2: 7}
    assert other in data_files(lake.path("transmitted", "s"))
    send(lake, 1, 0)
    assert counted(lake) == {2: 7}


def test_what_somebody_has_compacted_keeps_the_rows_of_other_batches(lake: Lake) -> None:
    from delta import DeltaTable as SparkTable

    send(lake, 1, 10)
    send(lake, 2, 7)
    send(lake, 3, 5)
    SparkTable.forPath(lake.spark, lake.path("transmitted", "s")).optimize().executeCompaction()
    assert len(data_files(lake.path("transmitted", "s"))) == 1
    send(lake, 2, 8)
    assert counted(lake) == {1: 10, 2: 8, 3: 5}


def test_of_two_who_write_a_batch_the_second_is_told(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    send(lake, 1, 10)

    def overtaken(*given: Any) -> Any:
        monkeypatch.setattr(tables, "write_pieces", write_pieces)
        send(lake, 2, 3)
        return write_pieces(*given)

    monkeypatch.setattr(tables, "write_pieces", overtaken)
    with pytest.raises(ConcurrentRun, match=r"transmitted/s: another run wrote .*batch IN \(2\)"):
        send(lake, 2, 6)
    assert counted(lake) == {1: 10, 2: 3}


def test_streams_that_share_a_table_are_not_in_each_others_way(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = {
        "batch": 1,
        "stage": 1,
        "frame": 0,
        "attribute": "v",
        "first_seq": 0,
        "last_seq": 9,
        "entries": 1,
    }

    def store(stream: str) -> None:
        lake.replace_in_tasks(
            "synopsis",
            [Piece({"stream": stream, "batch_date": str(DAY)}, None)],
            lambda _: [pa.Table.from_pylist([{**block, "shed_values": 9, "payload": b"x"}])],
            [1],
            stream=stream,
        )

    store("a")

    def beside(*given: Any) -> Any:
        monkeypatch.setattr(tables, "write_pieces", write_pieces)
        store("b")
        return write_pieces(*given)

    monkeypatch.setattr(tables, "write_pieces", beside)
    store("a")
    table = read_table(lake.path("synopsis"), ["stream"])
    assert table is not None
    assert sorted(table["stream"].to_pylist()) == ["a", "b"]
