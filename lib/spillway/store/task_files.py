"""Tables that tasks write themselves: Parquet files by Arrow, and one Delta commit by the driver.

Spark's own writer takes rows; what a kernel has made as columns it would turn into rows first, one by one, beside all
the columns that only pass by. A task that reads columns, changes some and writes them as columns does a third of that
work (`make bench`). The driver then commits the files through Delta's own transaction, so that what stood there goes in
the same commit, and of two writers one is refused. Files of a task that died are in no commit: nobody reads them, and
`vacuum` removes them.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from spillway.store.files import data_files, open_filesystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_IN_A_GROUP = 1 << 19
LONGEST_TEXT_IN_STATISTICS = 32
NEVER_REPEATED = frozenset({"seq", "payload"})
"""Columns for which a dictionary is only a burden."""


@dataclass(frozen=True)
class Piece:
    """What one file is made of: its partition, and whatever `make` knows to make rows of."""

    partition: Mapping[str, str]
    of: Any


Make = Callable[[Any], Iterable[pa.Table]]
"""Rows of a piece, table after table; the columns may be in any order, one that is missing is null."""


def write_pieces(
    spark: SparkSession,
    folder: str,
    schema: pa.Schema,
    indexed: int,
    pieces: Sequence[Piece],
    make: Make,
) -> list[dict[str, Any]]:
    """One file a piece in `folder`, made by tasks in parallel; the `add` actions that a commit needs.

    `schema`: the table's columns without those it is partitioned by, of which the first `indexed` get statistics. A
    piece without rows leaves no file.
    """
    if not pieces:
        return []

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                piece = pieces[index]
                added = write_file(folder, piece.partition, schema, indexed, make(piece.of))
                if added is not None:
                    yield pa.RecordBatch.from_pydict({"action": [json.dumps(added)]})

    slices = max(1, min(len(pieces), 4 * spark.sparkContext.defaultParallelism))
    rows = spark.range(0, len(pieces), 1, slices).mapInArrow(work, "action string").collect()
    return [json.loads(row["action"]) for row in rows]


def write_file(
    folder: str, partition: Mapping[str, str], schema: pa.Schema, indexed: int, tables: Iterable[pa.Table]
) -> dict[str, Any] | None:
    """The tables as one file, and what Delta's log says of it; None where there is no row."""
    name = "/".join(
        [*(f"{column}={value}" for column, value in partition.items()), f"part-{uuid.uuid4()}.parquet"]
    )
    filesystem, inside = open_filesystem(f"{folder}/{name}")
    writer: pq.ParquetWriter | None = None
    try:
        for group in _groups(shaped(table, schema) for table in tables):
            if writer is None:
                filesystem.create_dir(inside.rpartition("/")[0], recursive=True)
                writer = pq.ParquetWriter(
                    inside,
                    schema,
                    filesystem=filesystem,
                    # as Spark's own writer has it, so that widths before and after compare
                    compression="zstd",
                    compression_level=3,
                    use_dictionary=[name for name in schema.names if name not in NEVER_REPEATED],
                    write_statistics=[field.name for field in schema if _has_edges(field.type)],
                )
            writer.write_table(group, row_group_size=ROWS_IN_A_GROUP)
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        return None
    with filesystem.open_input_file(inside) as source:
        size, metadata = source.size(), pq.ParquetFile(source).metadata
    return {
        "add": {
            "path": quote(name, safe="/=-._~"),
            "partitionValues": dict(partition),
            "size": size,
            "modificationTime": int(time.time() * 1000),
            "dataChange": True,
            "stats": json.dumps(statistics(metadata, schema.names[:indexed])),
        }
    }


def _has_edges(kind: pa.DataType) -> bool:
    """Whether a column's smallest and largest value are written down.

    Not of floats: Arrow leaves NaN out of them, where Spark takes it for the largest of all. Not of bytes: Arrow would
    write whole payloads, twice.
    """
    return not (pa.types.is_floating(kind) or pa.types.is_binary(kind))


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows in tables of `ROWS_IN_A_GROUP`, however few come at a time: each gets dictionaries of its own."""
    held: list[pa.Table] = []
    count = 0
    for table in tables:
        held.append(table)
        count += table.num_rows
        while count >= ROWS_IN_A_GROUP:
            whole = pa.concat_tables(held)
            yield whole.slice(0, ROWS_IN_A_GROUP)
            held, count = [whole.slice(ROWS_IN_A_GROUP)], count - ROWS_IN_A_GROUP
    if count:
        yield pa.concat_tables(held)


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


def known_files(spark: SparkSession, path: str) -> int:
    """How many files the table has; Delta keeps what it works out for that until the table's next commit."""
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    return int(log.startTransaction().snapshot().numOfFiles())


class Replacement:
    """One Delta commit that puts files in the place of those that hold the rows of some batches.

    It begins when it is made: whatever another writer commits to the same partitions from then on is a conflict.
    """

    def __init__(self, spark: SparkSession, path: str, partitions: str, batches: Iterable[int]) -> None:
        """`partitions`: a predicate over the columns the table is partitioned by."""
        self._jvm: Any = spark._jvm
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
        self._transaction = log.startTransaction()
        read = spark.read.format("delta").load(path).where(partitions)
        condition = read._jdf.queryExecution().analyzed().condition()
        live = self._transaction.filterFiles(self._seq([condition]), False).iterator()
        wanted = set(batches)
        # what Delta hands out comes without its statistics
        self.version = int(self._transaction.snapshot().version())
        edges = {
            file.path: (file.low("batch"), file.high("batch")) for file in data_files(path, self.version)
        }
        self._gone: list[Any] = []
        self.mixed = False
        while live.hasNext():
            file = live.next()
            low, high = edges[f"{path}/{unquote(file.path())}"]
            if low is not None and wanted.issuperset(range(low, high + 1)):
                self._gone.append(file)
            else:
                self.mixed |= low is None or any(low <= batch <= high for batch in wanted)

    def commit(self, added: Sequence[dict[str, Any]], predicate: str) -> None:
        """Files out and files in, at once; the log says that they took the place of what matched `predicate`."""
        delta = self._jvm.org.apache.spark.sql.delta
        actions = [file.remove() for file in self._gone]
        actions += [delta.actions.Action.fromJson(json.dumps(action)) for action in added]
        option = self._jvm.scala.Option
        nothing = [option.empty()] * 6
        mode = self._jvm.org.apache.spark.sql.SaveMode.Overwrite
        operation = getattr(delta, "DeltaOperations$Write")(
            mode, option.empty(), option.apply(predicate), *nothing
        )
        self._transaction.commit(self._seq(actions), operation)

    def _seq(self, items: Iterable[Any]) -> Any:
        buffer = self._jvm.scala.collection.mutable.ListBuffer()
        for item in items:
            buffer.addOne(item)
        return buffer.toList()
