"""Write rows as Parquet files, with the statistics of each file for the table's log.

Tasks write Arrow tables as they are, without a Python object per row. A file belongs to no table until its action is
committed. So a file of a task that died, or of a draft that was discarded, is never read.
"""

from __future__ import annotations

import itertools
import json
import math
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spillway.parquet import ROWS_IN_A_GROUP, best_layout, chunk_bytes, group_by_key, parquet_writer
from spillway.store.blobs import open_for_writing, remove

LONGEST_TEXT_IN_STATISTICS = 32
LAST_LETTER = "\U0010ffff"
"""Sorts after every other character: it is appended to the largest value of a column if that is shortened."""
INDEXED_COLUMNS = 8
"""Number of a table's first columns whose smallest and largest value are in its log.

A column takes about 60 bytes in every commit. With eight columns, one batch of ten attributes that is published alone
takes 1.99 kB in addition to its values. Every file states its smallest and largest value of these columns whenever the
log can express them: if a file has none, filters over delta-rs's `to_pyarrow_dataset` lose the file's rows.
"""


@dataclass(frozen=True)
class WrittenFile:
    """A file that was written: its path in the table, its partition, its size, and its statistics for the log."""

    path: str
    partition: Mapping[str, str]
    size: int
    rows: int
    written_at_ms: int
    statistics: str
    column_bytes: Mapping[str, int]


def write_file(
    folder: str,
    partition: Mapping[str, str],
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    apart: str | None = None,
    rows_in_a_group: int | None = None,
    as_they_come: bool = False,
    keys: Sequence[str] = (),
    order_stays: bool = False,
) -> WrittenFile | None:
    """Write the tables as one file below `folder`; return None if there is no row.

    `schema`: the columns without the partition columns.
    `apart`: a column; a new row group starts where its value changes.
    `as_they_come`: if true, each of `tables` also starts a new row group.
    `keys`: columns by which rows are grouped in a row group, if that makes the first one smaller (`best_layout`).
    `order_stays`: if true, they are grouped in any case, so that a compaction does not change the bytes of rows.
    """
    size = rows_in_a_group or ROWS_IN_A_GROUP
    # spelled as in Hive, for readers that take a partition's value from the path
    place = [f"{column}={quote(value, safe='')}" for column, value in partition.items()]
    name = "/".join([*place, f"part-{secrets.token_hex(10)}.parquet"])
    rows = (conform_to_schema(table, schema) for table in tables)
    groups: Iterator[pa.Table]
    if as_they_come:
        groups = (part for table in rows for part in _split_at_changes(table, apart) if part.num_rows)
    else:
        groups = _row_groups(rows, apart, size)
    first = next(groups, None)
    if first is None:
        return None
    # read one group ahead, unless two of the largest groups would be in memory
    second = next(groups, None) if first.num_rows < ROWS_IN_A_GROUP else None
    several = second is not None or first.num_rows > size or first.num_rows >= ROWS_IN_A_GROUP
    others = itertools.chain([] if second is None else [second], groups)
    log, footers = LogStatistics(schema), list[pq.FileMetaData]()
    try:
        chosen, encodings = best_layout(first, keys, order_stays)
        with open_for_writing(f"{folder}/{name}") as sink:
            with parquet_writer(sink, schema, encodings, several, footers, chosen) as writer:
                for group in itertools.chain([first], others):
                    log.add(group)
                    # rows move only within their row group, so that its edges of `seq` do not change
                    for at in range(0, group.num_rows, size):
                        part = group.slice(at, size)
                        writer.write_table(
                            group_by_key(part, chosen) if chosen else part, row_group_size=size
                        )
            file_bytes = int(sink.tell())
    except BaseException:
        remove(f"{folder}/{name}")
        raise
    written_at_ms, bytes_of = int(time.time() * 1000), chunk_bytes(footers[0])
    return WrittenFile(name, dict(partition), file_bytes, log.rows, written_at_ms, log.to_json(), bytes_of)


def _row_groups(tables: Iterable[pa.Table], apart: str | None, size: int) -> Iterator[pa.Table]:
    """Yield the rows in tables of `size` rows, also if the input tables are smaller; each becomes a row group."""
    held: list[pa.Table] = []
    count, last = 0, None
    for part in (part for table in tables for part in _split_at_changes(table, apart)):
        if apart is not None and part.num_rows:
            if count and part[apart][0].as_py() != last:
                yield pa.concat_tables(held)
                held, count = [], 0
            last = part[apart][0].as_py()
        held.append(part)
        count += part.num_rows
        while count >= size:
            whole = pa.concat_tables(held)
            yield whole.slice(0, size)
            held, count = [whole.slice(size)], count - size
    if count:
        yield pa.concat_tables(held)


def _split_at_changes(table: pa.Table, column: str | None) -> Iterator[pa.Table]:
    """Split the table where the column's value changes."""
    if column is None or table.num_rows < 2:
        yield table
        return
    values = table[column].combine_chunks()
    edges = np.flatnonzero(np.asarray(pc.not_equal(values[1:], values[:-1]))) + 1
    for low, high in itertools.pairwise([0, *edges.tolist(), table.num_rows]):
        yield table.slice(low, high - low)


def conform_to_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table's columns in the order and types of the schema; a missing column is null."""
    have = set(table.column_names)
    columns = []
    for field in schema:
        if field.name not in have:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
        else:
            column = table[field.name]
            columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.table(columns, schema=schema)


class LogStatistics:
    """The statistics of a file for the table's log: its rows, and by column nulls and the smallest and largest value.

    They are computed from the columns as these are written. Binary and nested columns have no statistics. A column with
    NaN has no smallest and largest value, because Spark sorts NaN after every number and pyarrow does not. Infinities
    are spelled as Delta's own writer spells them.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        first = list(schema)[:INDEXED_COLUMNS]
        self._nulls = {field.name: 0 for field in first if _is_indexed(field.type)}
        self._edges: dict[str, tuple[Any, Any] | None] = {}
        """The smallest and the largest value; None if they cannot be stated. A column of nulls has no entry."""

    def add(self, rows: pa.Table) -> None:
        """Add the rows of a row group."""
        self.rows += rows.num_rows
        for name in self._nulls:
            column = rows[name]
            self._nulls[name] += column.null_count
            if column.null_count == len(column) or self._edges.get(name, ()) is None:
                continue
            found = _edges(column)
            known = self._edges.get(name)
            if found is not None and known is not None:
                found = min(found[0], known[0], key=_sort_key), max(found[1], known[1], key=_sort_key)
            self._edges[name] = found

    def to_json(self) -> str:
        """Return the statistics as the log has them."""
        return statistics_json(self.rows, self._edges, self._nulls)


def statistics_json(rows: int, edges: Mapping[str, tuple[Any, Any] | None], nulls: Mapping[str, int]) -> str:
    """Return a file's statistics as JSON for the log; without edges that the log cannot spell."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for name, found in edges.items():
        try:
            smallest, largest = (None, None) if found is None else map(format_edge, found, (False, True))
        except OverflowError:  # the last millisecond of Python's datetime cannot be rounded up
            continue
        if smallest is not None and largest is not None:
            low[name], high[name] = smallest, largest
    stated = {"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": dict(nulls)}
    return json.dumps(stated, ensure_ascii=False, separators=(",", ":"))


def _is_indexed(kind: pa.DataType) -> bool:
    return not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_nested(kind))


def _edges(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Return the smallest and the largest value of a column that has values; None if they cannot be stated.

    >>> _edges(pa.chunked_array([[0.0, -0.0, None]]))
    (-0.0, 0.0)
    """
    if pa.types.is_boolean(column.type):
        return None
    if pa.types.is_floating(column.type):
        values = column.drop_null().to_numpy().astype(np.float64)
        if np.isnan(values).any():
            return None
        low, high = float(values.min()), float(values.max())
        # -0.0 comes before 0.0 for delta-rs, and NumPy returns either
        signs = np.signbit(values[values == 0])
        if low == 0:
            low = -0.0 if signs.any() else 0.0
        if high == 0:
            high = -0.0 if signs.all() else 0.0
        return low, high
    found = pc.min_max(column)
    try:
        return found["min"].as_py(), found["max"].as_py()
    except (OverflowError, ValueError):
        return None  # beyond Python's datetime, for example "until further notice" in the year 294247


def _sort_key(value: Any) -> Any:
    """Return a sort key with the order of delta-rs, where -0.0 comes before 0.0."""
    return (value, math.copysign(1.0, value)) if isinstance(value, float) else value


def format_edge(value: Any, up: bool) -> Any:
    """Return an edge as the log has it: text is shortened, times are in milliseconds, both rounded outwards.

    >>> format_edge(datetime(2026, 1, 1, 0, 0, 0, 1500), up=True)
    '2026-01-01T00:00:00.002Z'
    >>> format_edge("x" * 40, up=True) == "x" * 32 + LAST_LETTER
    True
    >>> format_edge(-math.inf, up=False), format_edge(b"bytes", up=True)
    ('-Infinity', None)
    """
    if isinstance(value, bool | bytes):
        return None
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):
        if len(value) <= LONGEST_TEXT_IN_STATISTICS:
            return value
        if not up:
            return value[:LONGEST_TEXT_IN_STATISTICS]
        end = LONGEST_TEXT_IN_STATISTICS
        while value[end : end + 1] == LAST_LETTER:
            end += 1
        return value[:end] + LAST_LETTER if end < len(value) else value
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
        if up and value.microsecond % 1000:
            value += timedelta(milliseconds=1)
        return value.isoformat(timespec="milliseconds") + "Z"
    return value.isoformat() if isinstance(value, date) else value
