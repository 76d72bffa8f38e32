"""The bytes of a commit are known before it is made."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spillway import parquet
from spillway.engine import ProcessEngine
from spillway.settings import Settings
from spillway.store.delta_log import add_bytes, commit_bytes, commit_lines, written_file
from spillway.store.drafts import FileTask
from spillway.store.maintenance import compact
from spillway.store.tables import Table, Tables
from spillway.streams.destination import BatchMetadata, write_metadata

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ATTRIBUTES = [("temp", "double"), ("at", "timestamp"), ('we"ird ß\\', "string"), ("flag", "boolean")]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(
        Settings.from_environment({"SPILLWAY_HOME": str(tmp_path), "SPILLWAY_LAKE": str(tmp_path / "lake")})
    )


def row(batch: int, **more: Any) -> dict[str, Any]:
    day = date(2026, 1, 1)
    values = {"temp": 21.299999999999997, "at": NOON, 'we"ird ß\\': 'a "ß\x07\n\\', "flag": None}
    return {"seq": batch, "batch": batch, "batch_date": day, **values, **more}


def sent(tables: Tables) -> Table:
    return tables.at("transmitted", "s").with_attributes(ATTRIBUTES)


def lines(table: Table, version: int) -> list[bytes]:
    path = Path(table.path) / "_delta_log" / f"{version:020d}.json"
    return path.read_bytes().split(b"\n")


def log_size(table: Table) -> int:
    """The bytes of the last commit."""
    return (Path(table.path) / "_delta_log" / f"{table.version:020d}.json").stat().st_size


def meaning(line: bytes) -> Any:
    """A line without the time at which the commit was made; the order of parameters is not stable in delta-rs."""
    (action,) = json.loads(line).values()
    return {name: value for name, value in action.items() if name not in ("timestamp", "deletionTimestamp")}


def assert_counted(table: Table, version: int, *commit: Any, **more: Any) -> None:
    found, expected = lines(table, version), commit_lines(*commit, **more)
    assert sorted(map(len, found)) == sorted(map(len, expected))
    assert log_size(table) == commit_bytes(*commit, **more)
    for one in expected:
        assert meaning(one) in [meaning(other) for other in found]


def test_bytes_of_a_commit_are_those_of_its_file_in_the_log(tables: Tables) -> None:
    table = sent(tables)
    table.append([row(0)])  # makes the table
    days = [date(2026, 1, 1), date(2026, 1, 2)]
    schema = table.file_schema
    written = [
        one
        for day in days
        for one in table._write(
            pa.Table.from_pylist([row(2, batch_date=day)], schema=table.contract.arrow_schema)
        )
    ]
    table.publish(written, batch=2)
    assert_counted(table, table.version, written, folder=table.path)
    assert schema.names[:2] == ["seq", "batch"]

    gone = table.files(batch=2)
    assert len(gone) == 2
    again = table._write(pa.Table.from_pylist([row(2)], schema=table.contract.arrow_schema))
    table.publish(again, batch=2)
    assert_counted(table, table.version, again, gone, table.path)

    last = table.files(batch=2)
    table.delete(batch=2)
    assert_counted(table, table.version, [], last, table.path)


@pytest.mark.parametrize("stream", ["s", "a b/%25=c", "ß{}[]#|"])
def test_paths_of_partitions_are_counted_as_the_log_spells_them(tables: Tables, stream: str) -> None:
    told = [BatchMetadata(stream, number, b"x" * 40) for number in (1, 20)]
    write_metadata(tables, told[:1])
    table = tables.now().at("destination_metadata")
    (file,) = table.files()
    assert_counted(table, table.version, [written_file(file, table.path)])
    assert file.size + log_size(table) == told[0].size
    write_metadata(tables, told[:1])
    table = tables.now().at("destination_metadata")
    assert_counted(
        table, table.version, [written_file(one, table.path) for one in table.files()], [file], table.path
    )


def test_commit_of_a_compaction_states_no_data_change(tables: Tables) -> None:
    for number in (1, 2):
        sent(tables).append([row(number)])
    table = sent(tables.now())
    gone = table.files()
    compact(table, lambda file: True)
    assert len(table.files()) == 1
    added = [written_file(file, table.path) for file in table.files()]
    assert_counted(table, table.version, added, gone, table.path, same_rows=True)


def test_a_file_of_the_log_is_counted_as_the_file_that_was_written(tables: Tables) -> None:
    table = sent(tables)
    rows = [row(1, at=NOON + timedelta(microseconds=1)), row(2, temp=float("nan"), at=NOON)]
    (one,) = table._write(pa.Table.from_pylist(rows, schema=table.contract.arrow_schema))
    table.publish([one], batch=[1, 2])
    (file,) = table.files()
    assert add_bytes(written_file(file, table.path)) == add_bytes(one)


def test_a_draft_knows_the_bytes_of_its_commit(tables: Tables) -> None:
    table = sent(tables)
    table.append([row(0)])
    pieces = [FileTask({"batch_date": "2026-01-01"}, number, number) for number in (3, 4)]

    def make(number: int, _: dict[str, int]) -> list[pa.Table]:
        chance = np.random.default_rng(number)
        return [pa.table({"seq": range(100), "batch": [number] * 100, "temp": chance.normal(size=100)})]

    draft = table.draft(ProcessEngine(), pieces, make)
    table.publish(draft.written, batch=[3, 4])
    assert 0 <= draft.log_bytes(3) + draft.log_bytes(4) - log_size(table) <= 1, "half a byte each, rounded up"


def test_single_batch_of_ten_attributes_costs_at_most_2_kb_in_addition_to_its_values(
    tables: Tables,
) -> None:
    """Count the footer, page headers and the commit; the rest of the file is the compressed content of pages."""
    measures = [
        "temperature",
        "humidity",
        "pressure",
        "wind_speed",
        "wind_gust",
        "rain_mm",
        "battery_v",
        "rssi",
    ]
    names = [("station", "string"), ("at", "timestamp"), *((name, "double") for name in measures)]
    table = tables.at("transmitted", "s").with_attributes(names, [("scheme", "bigint", "the row's scheme")])
    table.append([{"seq": 0, "batch": 1, "batch_date": date(2026, 1, 1)}])
    count, chance = 900, np.random.default_rng(1)

    def make(_: None, __: dict[str, int]) -> list[pa.Table]:
        at = pa.array([NOON + timedelta(seconds=i) for i in range(count)], pa.timestamp("us", "UTC"))
        stations = [f"st-{i % 30:02}" for i in range(count)]
        columns = {
            "seq": range(count),
            "batch": [2] * count,
            "scheme": [1] * count,
            "station": stations,
            "at": at,
        }
        return [pa.table(columns | {name: chance.normal(20, 5, count).round(2) for name in measures})]

    draft = table.draft(ProcessEngine(), [FileTask({"batch_date": "2026-01-01"}, 2, None)], make)
    (one,) = table.publish(draft.written, batch=2) or draft.written
    path = Path(table.path) / one.path
    file, pages = pq.ParquetFile(path), path.read_bytes()
    group = file.metadata.row_group(0)
    assert group.num_columns == 13
    content = sum(
        page_bytes(pages, chunk.dictionary_page_offset or chunk.data_page_offset, chunk.total_compressed_size)
        for chunk in map(group.column, range(group.num_columns))
    )
    assert 0 < content < one.size
    assert one.size - content + log_size(table) <= 2000


def page_bytes(data: bytes, at: int, size: int) -> int:
    """Return the bytes of the pages of a column without their headers, by the sizes in the page headers."""
    end, found = at + size, 0
    while at < end:
        header = bytearray()
        reader = parquet._Reader(data, at)
        reader.copy_struct(header, {})
        sizes = struct_of(bytes(header))
        at, found = reader.at + sizes[3], found + sizes[3]
    assert at == end
    return found


def struct_of(header: bytes) -> dict[int, int]:
    """Return the integers among the first fields of a page header."""
    reader, found, number = parquet._Reader(header, 0), {}, 0
    while (head := reader._byte()) & 15 == 5:
        number += head >> 4
        found[number] = parquet._signed(reader._number())
    return found
