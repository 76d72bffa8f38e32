"""A Delta table's files, read without Spark: footers for widths, columns for kernels and look-ups.

Tasks and the driver read the few columns or rows a kernel needs straight from the table's Parquet files:
shipping a column from Spark to Python costs about as much as writing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

HADOOP_SCHEMES = {"s3a": "s3", "s3n": "s3", "wasbs": "abfs"}


@dataclass(frozen=True)
class DataFile:
    """One Parquet file of a table: where it is, how large, and the partition it belongs to."""

    path: str
    size: int
    partition: tuple[tuple[str, Any], ...]
    minimum: tuple[tuple[str, Any], ...] = ()
    maximum: tuple[tuple[str, Any], ...] = ()
    records: int = 0

    def value(self, column: str) -> Any:
        return dict(self.partition).get(column)

    def low(self, column: str) -> Any:
        return dict(self.minimum).get(column)

    def high(self, column: str) -> Any:
        return dict(self.maximum).get(column)


def delta_table(path: str) -> Any:
    """The table opened by delta-rs, or None where there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(delta_uri(path))
    except TableNotFoundError:
        return None


def read_table(
    path: str, columns: Sequence[str] | None = None, filters: list[Any] | None = None
) -> pa.Table | None:
    """A small table as Arrow, without Spark; None where there is none. `filters` as in pyarrow's DNF."""
    table = delta_table(path)
    if table is None:
        return None
    # Arrow's own file system: that of delta-rs calls back into Python from Arrow's threads, which abort a process
    # that ends soon after
    filesystem, inside = open_filesystem(path)
    return table.to_pyarrow_table(
        columns=list(columns) if columns else None,
        filters=filters,
        filesystem=pafs.SubTreeFileSystem(inside, filesystem),
    )


def data_files(path: str, version: int | None = None) -> list[DataFile]:
    """The table's live files with their partition values and statistics, in path order."""
    table = delta_table(path)
    if table is None:
        return []
    if version is not None:
        table.load_as_version(version)
    actions = pa.table(table.get_add_actions(flatten=True))
    names = actions.column_names
    files = []
    for row in actions.to_pylist():
        files.append(
            DataFile(
                path=f"{path}/{row['path']}",
                size=int(row["size_bytes"]),
                partition=tuple(
                    (n.removeprefix("partition."), row[n]) for n in names if n.startswith("partition.")
                ),
                minimum=tuple((n.removeprefix("min."), row[n]) for n in names if n.startswith("min.")),
                maximum=tuple((n.removeprefix("max."), row[n]) for n in names if n.startswith("max.")),
                records=int(row.get("num_records") or 0),
            )
        )
    return sorted(files, key=lambda file: file.path)


def open_filesystem(path: str) -> tuple[pafs.FileSystem, str]:
    """The Arrow file system of a path or URI, and the path in it."""
    return pafs.FileSystem.from_uri(delta_uri(path)) if "://" in path else (pafs.LocalFileSystem(), path)


def column_bytes(files: Iterable[DataFile], columns: Sequence[str]) -> dict[str, int]:
    """Compressed bytes of each column as written: the one width that plan, capacity check and ledger use.

    Summed over the column chunks in the files' footers; only footers are read.
    """
    totals = dict.fromkeys(columns, 0)
    for file in files:
        filesystem, path = open_filesystem(file.path)
        with filesystem.open_input_file(path) as source:
            metadata = pq.ParquetFile(source).metadata
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            for index in range(metadata.num_columns):
                chunk = row_group.column(index)
                name = chunk.path_in_schema.split(".")[0]
                if name in totals:
                    totals[name] += chunk.total_compressed_size
    return totals


def read_rows(
    files: Sequence[DataFile], columns: Sequence[str], from_seq: int, to_seq: int, order: str = "seq"
) -> pa.Table:
    """The rows with `from_seq <= seq <= to_seq` in seq order: only files and row groups that can hold any.

    `columns` without `seq` gets it all the same. A column that an older file does not have is null there.
    """
    wanted = [order, *(column for column in columns if column != order)]
    parts = []
    for file in files:
        low, high = file.low(order), file.high(order)
        if low is not None and high is not None and (high < from_seq or low > to_seq):
            continue
        filesystem, path = open_filesystem(file.path)
        with filesystem.open_input_file(path) as source:
            parquet = pq.ParquetFile(source)
            groups = _row_groups(parquet.metadata, order, from_seq, to_seq)
            if not groups:
                continue
            have = set(parquet.schema_arrow.names)
            part = parquet.read_row_groups(groups, columns=[name for name in wanted if name in have])
        for name in wanted:
            if name not in have:
                part = part.append_column(name, pa.nulls(part.num_rows))
        keep = pc.and_(pc.greater_equal(part[order], from_seq), pc.less_equal(part[order], to_seq))
        parts.append(part.select(wanted).filter(keep))
    if not parts:
        return pa.table({name: pa.array([], pa.int64() if name == order else pa.null()) for name in wanted})
    table = pa.concat_tables(parts, promote_options="permissive")
    seq = table[order].to_numpy()
    if (seq[1:] < seq[:-1]).any():
        table = table.take(pc.sort_indices(table, [(order, "ascending")]))
    return table


def _row_groups(metadata: Any, order: str, from_seq: int, to_seq: int) -> list[int]:
    index = next(i for i in range(metadata.num_columns) if metadata.schema.column(i).path == order)
    found = []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(index).statistics
        unknown = statistics is None or not statistics.has_min_max
        if unknown or (statistics.max >= from_seq and statistics.min <= to_seq):
            found.append(group)
    return found


def as_date(value: Any) -> date | None:
    """A partition value as a date, however the reader spelled it."""
    return value if isinstance(value, date) or value is None else date.fromisoformat(str(value)[:10])


def delta_uri(path: str) -> str:
    """The path as Arrow and delta-rs spell it."""
    scheme, found, rest = path.partition("://")
    return f"{HADOOP_SCHEMES.get(scheme, scheme)}://{rest}" if found else path
