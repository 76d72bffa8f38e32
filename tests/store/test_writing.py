"""Files as they are written: rows in large groups, each byte once, and statistics that never say too little."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as some

from spillway.encoding import widths_of
from spillway.store import writing
from spillway.store.blobs import MEMORY, forget
from spillway.store.files import column_bytes
from spillway.store.logs import data_file
from spillway.store.writing import Written, spelled, write_file

SEQ = pa.schema([("seq", pa.int64())])


def write(folder: Path | str, rows: pa.Table) -> Written:
    one = write_file(str(folder), {}, rows.schema, [rows])
    assert one is not None
    return one


def says(one: Written) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(one.statistics)
    return found


def test_rows_that_come_a_few_at_a_time_lie_in_large_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ROWS_IN_A_GROUP", 100)
    one = write_file(
        str(tmp_path), {}, SEQ, [pa.table({"seq": range(start, start + 7)}) for start in range(0, 259, 7)]
    )
    assert one is not None
    written = pq.ParquetFile(tmp_path / one.path)
    assert [written.metadata.row_group(i).num_rows for i in range(written.num_row_groups)] == [100, 100, 59]
    assert written.read()["seq"].to_pylist() == list(range(259))
    assert (one.rows, one.size) == (259, (tmp_path / one.path).stat().st_size)


def test_no_row_is_no_file(tmp_path: Path) -> None:
    assert write_file(str(tmp_path), {"a": "1"}, SEQ, []) is None
    assert write_file(str(tmp_path), {"a": "1"}, SEQ, [pa.table({"seq": pa.array([], pa.int64())})]) is None
    assert list(tmp_path.iterdir()) == []


def test_columns_come_in_any_order_and_what_is_missing_is_null(tmp_path: Path) -> None:
    schema = pa.schema([("seq", pa.int64()), ("v", pa.float64()), ("none", pa.string())])
    one = write_file(str(tmp_path), {}, schema, [pa.table({"v": [1], "seq": pa.array([2], pa.int32())})])
    assert one is not None
    found = pq.ParquetFile(tmp_path / one.path).read()
    assert found.schema.equals(schema)
    assert found.to_pylist() == [{"seq": 2, "v": 1.0, "none": None}]


def test_a_payload_is_written_once(tmp_path: Path) -> None:
    payload = np.random.default_rng(1).bytes(50_000)
    assert write(tmp_path, pa.table({"seq": [1], "payload": [payload]})).size < 55_000


def test_a_width_is_the_bytes_that_are_written(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    rows = pa.table({"seq": range(50_000), "noisy": chance.random(50_000), "constant": [1.0] * 50_000})
    one = write(tmp_path, rows)
    assert widths_of(rows) == dict(one.column_bytes)
    assert one.column_bytes["noisy"] > 50 * one.column_bytes["constant"] > 0
    assert column_bytes([data_file(str(tmp_path), one, rows.schema)], ["noisy"]) == {
        "noisy": one.column_bytes["noisy"]
    }


def test_a_file_in_memory_is_the_same_bytes(tmp_path: Path) -> None:
    rows = pa.table({"seq": range(1000), "text": [f"{i % 7}" for i in range(1000)]})
    on_disk, held = write(tmp_path, rows), write(f"{MEMORY}bytes", rows)
    assert (on_disk.size, on_disk.statistics, on_disk.column_bytes) == (
        held.size,
        held.statistics,
        held.column_bytes,
    )
    forget(f"{MEMORY}bytes")


def test_a_time_that_python_has_none_for_is_written_without_its_edges(tmp_path: Path) -> None:
    until = pa.timestamp("us", "UTC")
    for last in (253_402_300_799_999_999, 253_402_300_800_000_000, -62_135_596_800_000_001, 2**63 - 1):
        rows = pa.table({"seq": [1], "until": pa.array([last], pa.int64()).cast(until)})
        assert says(write(tmp_path, rows)) == {
            "numRecords": 1,
            "minValues": {"seq": 1},
            "maxValues": {"seq": 1},
            "nullCount": {"seq": 0, "until": 0},
        }


def test_statistics_say_nothing_of_numbers_that_may_be_none_of_bytes_and_of_columns_of_columns(
    tmp_path: Path,
) -> None:
    rows = pa.table(
        {
            "v": [1.0, float("nan"), None],
            "payload": [b"a", b"b", None],
            "list": [[1], [], None],
            "none": pa.array([None] * 3, pa.int64()),
            "some": pa.array([3, None, 2], pa.int64()),
        }
    )
    stated = says(write(tmp_path, rows))
    assert stated["minValues"] == {"some": 2}
    assert stated["maxValues"] == {"some": 3}
    assert stated["nullCount"] == {"none": 3, "some": 1}


def test_only_the_first_columns_are_in_the_log(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(12)]
    stated = says(write(tmp_path, pa.table({name: [1] for name in names})))
    assert list(stated["minValues"]) == names[: writing.INDEXED_COLUMNS]


ANYTHING = some.one_of(
    some.text(some.characters(exclude_categories=["Cs"]), max_size=40),
    some.dates(),
    some.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31, 23, 59, 59)),
    some.integers(-(2**63), 2**63 - 1),
)


@given(ANYTHING)
def test_an_edge_is_never_inside_of_what_it_bounds(value: Any) -> None:
    low, high = spelled(value, up=False), spelled(value, up=True)
    if isinstance(value, datetime):
        at, low, high = value, datetime.fromisoformat(low), datetime.fromisoformat(high)
        assert low.replace(tzinfo=None) <= at <= high.replace(tzinfo=None)
        assert high - low <= timedelta(milliseconds=1)
    elif isinstance(value, date):
        assert (low, high) == (value.isoformat(), value.isoformat())
    elif isinstance(value, str):
        assert low <= value
        assert value.startswith(low)
        assert high in (None, value)
    else:
        assert (low, high) == (value, value)


def test_what_the_log_will_say_is_what_was_written(tmp_path: Path) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    rows = pa.table(
        {
            "text": ["b", "a"],
            "day": [date(2026, 1, 2), date(2026, 1, 1)],
            "at": pa.array([noon, noon], pa.timestamp("us", "UTC")),
            "n": [2, 1],
        }
    )
    file = data_file(str(tmp_path), write(tmp_path, rows), rows.schema)
    assert [(file.low(name), file.high(name)) for name in rows.column_names] == [
        ("a", "b"),
        (date(2026, 1, 1), date(2026, 1, 2)),
        (noon, noon),
        (1, 2),
    ]
