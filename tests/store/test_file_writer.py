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

from spillway.parquet import chunk_bytes, compressed_widths
from spillway.store import file_writer
from spillway.store.blobs import MEMORY, free_memory
from spillway.store.delta_log import data_file
from spillway.store.file_writer import LAST_LETTER, WrittenFile, format_edge, write_file
from spillway.store.files import column_bytes

SEQ = pa.schema([("seq", pa.int64())])


def write(folder: Path | str, rows: pa.Table) -> WrittenFile:
    one = write_file(str(folder), {}, rows.schema, [rows])
    assert one is not None
    return one


def says(one: WrittenFile) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(one.statistics)
    return found


def test_rows_that_come_a_few_at_a_time_lie_in_large_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "ROWS_IN_A_GROUP", 100)
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
    assert compressed_widths(rows) == dict(one.column_bytes)
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
    free_memory(f"{MEMORY}bytes")


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
    assert stated["nullCount"] == {"v": 1, "none": 3, "some": 1}


def test_the_smallest_and_largest_numbers_are_in_the_log_as_they_are(tmp_path: Path) -> None:
    """Delta's readers answer MIN and MAX from the log, so that numbers are never rounded."""
    rows = pa.table(
        {
            "temp": [21.5, None, -3.25],
            "long": [0.1 + 0.2, 5e-324, 1.7976931348623157e308],
            "both": [-0.0, 0.0, 0.0],
            "below": [-0.0, -1.0, -0.0],
            "infinite": [float("-inf"), 1.0, 2.0],
            "narrow": pa.array([0.1, 0.2, None], pa.float32()),
            "empty": pa.nulls(3, pa.float64()),
        }
    )
    stated = says(write(tmp_path, rows))
    narrow = [float(np.float32(one)) for one in (0.1, 0.2)]
    edges = {"temp": [-3.25, 21.5], "long": [5e-324, 1.7976931348623157e308], "narrow": narrow}
    edges |= {"both": [-0.0, 0.0], "below": [-1.0, -0.0], "infinite": [float("-inf"), 2.0]}
    for end, place in (("minValues", 0), ("maxValues", 1)):
        assert {name: float(value).hex() for name, value in stated[end].items()} == {
            name: edge[place].hex() for name, edge in edges.items()
        }
    assert stated["nullCount"]["empty"] == 3


FINITE = some.one_of(some.sampled_from([-0.0, 0.0, float("nan"), float("inf"), None]), some.floats())


@given(some.lists(some.lists(FINITE, min_size=1), min_size=1))
def test_statistics_of_row_groups_bound_every_number_in_the_total_order(groups: list[list[Any]]) -> None:
    log = file_writer.LogStatistics(pa.schema([("v", pa.float64())]))
    for group in groups:
        log.add(pa.table({"v": pa.array(group, pa.float64())}))
    stated = json.loads(log.to_json())
    values = [one for group in groups for one in group if one is not None]
    assert stated["nullCount"]["v"] == sum(map(len, groups)) - len(values)
    if not values or any(one != one for one in values):
        assert stated["minValues"] == stated["maxValues"] == {}
        return
    order = sorted(values, key=lambda one: (one, np.copysign(1.0, one)))
    assert float(stated["minValues"]["v"]).hex() == order[0].hex()
    assert float(stated["maxValues"]["v"]).hex() == order[-1].hex()


def footer_of(folder: Path, one: WrittenFile) -> pq.FileMetaData:
    return pq.ParquetFile(folder / one.path).metadata


MIXED = pa.table({"seq": range(300), "at": pa.array(range(300), pa.timestamp("us", "UTC")), "v": [0.5] * 300})


def test_footer_of_one_row_group_has_no_statistics_and_no_schema_of_arrow(tmp_path: Path) -> None:
    footer = footer_of(tmp_path, write(tmp_path, MIXED))
    assert footer.num_row_groups == 1
    assert [footer.row_group(0).column(i).is_stats_set for i in range(3)] == [False] * 3
    assert footer.metadata is None


@pytest.mark.parametrize("how", ["by size", "apart", "as they come"])
def test_footer_of_several_row_groups_states_edges_of_numbers_and_times(tmp_path: Path, how: str) -> None:
    parts = [MIXED.slice(0, 150), MIXED.slice(150)]
    options: dict[str, dict[str, Any]] = {
        "by size": {"rows_in_a_group": 150},
        "apart": {"apart": "half"},
        "as they come": {"as_they_come": True},
    }
    halves = [part.append_column("half", pa.array([at] * 150)) for at, part in enumerate(parts)]
    one = write_file(str(tmp_path), {}, halves[0].schema, halves, **options[how])
    assert one is not None
    footer = footer_of(tmp_path, one)
    assert footer.num_row_groups == 2
    for group, low in enumerate((0, 150)):
        columns = [footer.row_group(group).column(i) for i in range(4)]
        assert (columns[0].statistics.min, columns[0].statistics.max) == (low, low + 149)
        assert [column.is_stats_set for column in columns] == [True, True, False, True]
    assert footer.metadata is None


def test_size_and_widths_are_those_of_the_file_on_the_disk(tmp_path: Path) -> None:
    one = write_file(str(tmp_path), {}, MIXED.schema, [MIXED], rows_in_a_group=70)
    assert one is not None
    assert one.size == (tmp_path / one.path).stat().st_size
    assert dict(one.column_bytes) == chunk_bytes(footer_of(tmp_path, one))
    assert one.rows == 300


def test_only_the_first_columns_are_in_the_log(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(12)]
    stated = says(write(tmp_path, pa.table({name: [1] for name in names})))
    assert list(stated["minValues"]) == names[: file_writer.INDEXED_COLUMNS]


ANYTHING = some.one_of(
    some.text(some.characters(exclude_categories=["Cs"]), max_size=40),
    some.text(some.sampled_from(["a", LAST_LETTER]), min_size=30, max_size=40),
    some.dates(),
    some.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31, 23, 59, 59)),
    some.integers(-(2**63), 2**63 - 1),
)


@given(ANYTHING)
def test_an_edge_is_never_inside_of_what_it_bounds(value: Any) -> None:
    low, high = format_edge(value, up=False), format_edge(value, up=True)
    if isinstance(value, datetime):
        at, low, high = value, datetime.fromisoformat(low), datetime.fromisoformat(high)
        assert low.replace(tzinfo=None) <= at <= high.replace(tzinfo=None)
        assert high - low <= timedelta(milliseconds=1)
    elif isinstance(value, date):
        assert (low, high) == (value.isoformat(), value.isoformat())
    elif isinstance(value, str):
        assert low <= value <= high
        assert value.startswith(low)
        assert value.encode() <= high.encode()
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
