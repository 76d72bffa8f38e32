"""Reading rows of files: any stretch, in order, whatever order they lie in."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spillway.errors import InvalidValue
from spillway.store.delta_log import data_file
from spillway.store.file_writer import write_file
from spillway.store.files import DataFile, RowReader, batch_bytes, edges_of, read_rows, row_groups, rows_of


def written(folder: Path, name: str, seqs: list[int], **more: list[float]) -> DataFile:
    table = pa.table({"seq": pa.array(seqs, pa.int64()), **more})
    pq.write_table(table, folder / name, row_group_size=40)
    return DataFile(str(folder / name), 1, (), (("seq", min(seqs)),), (("seq", max(seqs)),), len(seqs))


@pytest.mark.parametrize("disorder", ["none", "inside", "between"])
def test_a_reader_gives_the_rows_of_any_stretch_as_reading_it_alone_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disorder: str
) -> None:
    monkeypatch.setattr(RowReader, "AT_A_TIME", 30)
    chance = random.Random(1)
    first = [seq for seq in range(200) if seq % 7]
    second = [seq for seq in range(230, 400) if seq % 11]
    if disorder == "inside":
        second[50:60] = reversed(second[50:60])
    if disorder == "between":
        second[-1] = 150 * 7
        first[-1] = 300 * 11
    files = [
        written(tmp_path, "b.parquet", second, later=[float(seq) for seq in second]),
        written(tmp_path, "a.parquet", first),
    ]
    reader = RowReader(files)
    ranges = [(0, 64), (64, 128), (100, 240), (241, 241), (500, 600), (0, 10)]
    ranges += [(low, low + chance.randrange(90)) for low in (chance.randrange(420) for _ in range(40))]

    for low, high in ranges:
        found, alone = reader(["later"], low, high), read_rows(files, ["later"], low, high)
        assert found.to_pylist() == alone.to_pylist(), (low, high)
        assert found.column_names == alone.column_names


def test_reader_reads_no_row_group_between_two_stretches(tmp_path: Path) -> None:
    """Bytes of the row groups in between are damaged: whoever reads them fails."""
    seqs = list(range(200))
    values = [float(i * 37 % 101) for i in range(200)]
    file, between = (
        written(tmp_path, "a.parquet", seqs, value=values),
        written(tmp_path, "b.parquet", [230, 231]),
    )
    metadata = pq.ParquetFile(file.path).metadata
    content = bytearray(Path(file.path).read_bytes())
    for group in (1, 2, 3):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    Path(file.path).write_bytes(content)
    Path(between.path).write_bytes(b"no file of columns")
    last = written(tmp_path, "c.parquet", [300, 301], value=[1.0, 2.0])
    reader = RowReader([file, between, last])
    for low, high in ((5, 20), (165, 170), (172, 190), (300, 301)):
        assert reader(["value"], low, high)["seq"].to_pylist() == list(range(low, high + 1))
    with pytest.raises(InvalidValue):
        RowReader([file])(["value"], 45, 50)


def stored(folder: Path, rows: pa.Table, **more: Any) -> DataFile:
    one = write_file(str(folder), {}, rows.schema, [rows], **more)
    assert one is not None
    return data_file(str(folder), one, rows.schema)


def test_edges_come_from_the_log_or_the_footer_or_the_column(tmp_path: Path) -> None:
    rows = pa.table({"seq": [5, 3, 9], "none": pa.nulls(3, pa.int64())})
    for number, statistics in enumerate((True, False)):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(rows, path, write_statistics=statistics)
        unknown = DataFile(str(path), 1, ())
        assert edges_of(unknown, "seq") == (3, 9)
        assert edges_of(unknown, "none") is edges_of(unknown, "absent") is None
    assert edges_of(DataFile(str(tmp_path / "gone"), 1, (), (("seq", 1),), (("seq", 2),)), "seq") == (1, 2)


def test_edges_of_a_single_row_group_come_from_the_log(tmp_path: Path) -> None:
    at = pa.array([1_999, 4_001], pa.timestamp("us", "UTC"))
    rows = pa.table({"seq": [7, 8], "at": at, "gap": [1, None], "text": ["a", "b"]})
    file = stored(tmp_path, rows)
    (group,) = row_groups(file, rows.column_names)
    assert group.edges["seq"] == (7, 8)
    low, high = group.edges["at"]
    assert low <= datetime(1970, 1, 1, 0, 0, 0, 1_999, tzinfo=UTC)
    assert high >= datetime(1970, 1, 1, 0, 0, 0, 4_001, tzinfo=UTC)
    assert "gap" not in group.edges
    assert group.records == 2


def test_no_row_group_is_skipped_for_statistics_that_are_missing(tmp_path: Path) -> None:
    rows = pa.table({"seq": range(200), "batch": [1] * 100 + [2] * 100})
    path = tmp_path / "a.parquet"
    pq.write_table(rows, path, row_group_size=50, write_statistics=False)
    file = DataFile(str(path), 1, ())
    assert read_rows([file], ["batch"], 60, 70)["seq"].to_pylist() == list(range(60, 71))
    assert RowReader([file])(["batch"], 60, 70)["seq"].to_pylist() == list(range(60, 71))
    assert sum(part.num_rows for part in rows_of(file, ["seq"], 1000, [("seq", 60, 70)])) == 200
    assert [group.edges for group in row_groups(file, ["seq", "batch"])] == [{}] * 4
    columns, _ = batch_bytes([file], ["seq"], 2)
    both, _ = batch_bytes([file], ["seq"], 1)
    assert abs(columns["seq"] - both["seq"]) <= 0.1 * both["seq"]
