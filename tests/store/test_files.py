"""Reading rows of files: any stretch, in order, whatever order they lie in."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spillway.errors import Refused
from spillway.store.files import DataFile, RowReader, read_rows


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
    with pytest.raises(Refused):
        RowReader([file])(["value"], 45, 50)
