"""Rows as Parquet files, and what a table's log says of each.

A task that makes columns writes them as columns. The file is in no table until its action is committed: one of a task
that died, or of a draft that was thrown away, is never read.
"""

from __future__ import annotations

import itertools
import json
import math
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spillway.encoding import ROWS_IN_A_GROUP, best_layout, chunk_bytes, encoder, in_order
from spillway.store.blobs import reading, remove, writing

LONGEST_TEXT_IN_STATISTICS = 32
INDEXED_COLUMNS = 8
"""How many of a table's first columns have their smallest and largest value in its log."""


@dataclass(frozen=True)
class Written:
    """A file that was written: its path in the table, its partition, its size, and its log's statistics."""

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
    order: Sequence[str] = (),
    order_stays: bool = False,
) -> Written | None:
    """The tables as one file below `folder`; None where there is no row.

    `schema`: the table's columns without those it is partitioned by. `apart`: a column of which rows with different
    values, that come one after the other, share no row group. `as_they_come`: nor do rows of two of the tables.
    `order`: columns by which each row group is sorted if the first one takes fewer bytes then (`best_layout`),
    or, if `order_stays`, in any case: rows that are put into another file take the same bytes there.
    """
    size = rows_in_a_group or ROWS_IN_A_GROUP
    # spelled as Hive does, for readers that take a partition's value from the path
    place = [f"{column}={quote(value, safe='')}" for column, value in partition.items()]
    name = "/".join([*place, f"part-{uuid.uuid4()}.parquet"])
    rows = (shaped(table, schema) for table in tables)
    groups: Iterator[pa.Table]
    if as_they_come:
        groups = (part for table in rows for part in _alike(table, apart) if part.num_rows)
    else:
        groups = _groups(rows, apart, size)
    first = next(groups, None)
    if first is None:
        return None
    try:
        chosen, encodings = best_layout(first, order, order_stays)
        with writing(f"{folder}/{name}") as sink, encoder(sink, schema, encodings, chosen) as writer:
            for group in itertools.chain([first], groups):
                # rows are sorted within their row group alone, so that its edges of `seq` stay what they were
                for at in range(0, group.num_rows, size):
                    part = group.slice(at, size)
                    writer.write_table(in_order(part, chosen) if chosen else part, row_group_size=size)
    except BaseException:
        remove(f"{folder}/{name}")
        raise
    with reading(f"{folder}/{name}") as source:
        file_bytes, metadata = source.size(), pq.ParquetFile(source).metadata
    stats = json.dumps(statistics(metadata, schema.names[:INDEXED_COLUMNS]))
    written_at_ms, bytes_of = int(time.time() * 1000), chunk_bytes(metadata)
    return Written(name, dict(partition), file_bytes, int(metadata.num_rows), written_at_ms, stats, bytes_of)


def _groups(tables: Iterable[pa.Table], apart: str | None, size: int) -> Iterator[pa.Table]:
    """The rows in tables of `size`, however few come at a time: each gets dictionaries of its own."""
    held: list[pa.Table] = []
    count, last = 0, None
    for part in (part for table in tables for part in _alike(table, apart)):
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


def _alike(table: pa.Table, column: str | None) -> Iterator[pa.Table]:
    """The table cut where the column's value changes."""
    if column is None or table.num_rows < 2:
        yield table
        return
    values = table[column].combine_chunks()
    edges = np.flatnonzero(np.asarray(pc.not_equal(values[1:], values[:-1]))) + 1
    for low, high in itertools.pairwise([0, *edges.tolist(), table.num_rows]):
        yield table.slice(low, high - low)


def shaped(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table's columns as the schema has them: its order, its types, null where there is none."""
    have = set(table.column_names)
    columns = []
    for field in schema:
        if field.name not in have:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
        else:
            column = table[field.name]
            columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.table(columns, schema=schema)


def statistics(metadata: pq.FileMetaData, names: Sequence[str]) -> dict[str, Any]:
    """Rows, smallest, largest and nulls of the columns, as far as the footer has them, as Delta's log spells them."""
    place = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in names:
        if name not in place:  # a column of columns
            continue
        found = [metadata.row_group(g).column(place[name]).statistics for g in range(metadata.num_row_groups)]
        if any(one is None or not one.has_null_count for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        ranged = [one for one in found if one.has_min_max]
        whole = all(one.has_min_max or not one.num_values for one in found)
        if not ranged or not whole:
            continue
        try:
            smallest = spelled(min(one.min for one in ranged), up=False)
            largest = spelled(max(one.max for one in ranged), up=True)
        except (
            OverflowError,
            ValueError,
        ):  # times that Python has none for, as "until further notice" often is
            continue
        if smallest is not None and largest is not None:
            low[name], high[name] = smallest, largest
    return {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def spelled(value: Any, up: bool) -> Any:
    """An edge as the log has it: text cut short, times in milliseconds, both outwards; None where there is no way.

    >>> spelled(datetime(2026, 1, 1, 0, 0, 0, 1500), up=True), spelled("x" * 40, up=True) is None
    ('2026-01-01T00:00:00.002Z', True)
    """
    if isinstance(value, bool | bytes) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, str):
        if len(value) <= LONGEST_TEXT_IN_STATISTICS:
            return value
        return None if up else value[:LONGEST_TEXT_IN_STATISTICS]
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
        if up and value.microsecond % 1000:
            value += timedelta(milliseconds=1)
        return value.isoformat(timespec="milliseconds") + "Z"
    return value.isoformat() if isinstance(value, date) else value
