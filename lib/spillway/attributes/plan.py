"""Shedding and recovery on Spark: a native copy of what stays, kernels for what is shed, no shuffle.

`transmitted` is a scan of `raw` with shed columns nulled in place: no column passes through Python except those
that are rounded. The synopsis is made by tasks that read the few columns a frame needs straight from the table's
files. `recovered` is a scan of `transmitted` along which an Arrow kernel carries the shed columns back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spillway.attributes.columns import Column
from spillway.attributes.frames import (
    frame_start,
    needed_columns,
    recover_frame,
    rounded_column,
    shed_frame,
)
from spillway.attributes.model import AttributeModel
from spillway.attributes.runs import Runs
from spillway.attributes.synopsis import Recovered
from spillway.lake.columns import BOUND_SUFFIX
from spillway.lake.files import DataFile, as_date, read_rows

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

SYNOPSIS_SCHEMA = (
    "stream string, stage bigint, batch bigint, batch_date date, frame bigint, attribute string, "
    "first_seq bigint, last_seq bigint, entries bigint, shed_values bigint, payload binary"
)


@dataclass(frozen=True)
class FrameTask:
    """One batch's part of a frame: its rows are `from_seq..to_seq`, the frame's begin at `frame`."""

    batch: int
    batch_date: date
    frame: int
    from_seq: int
    to_seq: int


def frame_tasks(
    batch: int, batch_date: date, first_seq: int, last_seq: int, origin: int, frame_tuples: int | None
) -> list[FrameTask]:
    """The batch cut at frame edges.

    >>> [(t.frame, t.from_seq, t.to_seq) for t in frame_tasks(2, date(2026, 1, 1), 150, 250, 100, 64)]
    [(100, 150, 163), (164, 164, 227), (228, 228, 250)]
    """
    tasks = []
    seq = first_seq
    while seq <= last_seq:
        start = frame_start(seq, origin, frame_tuples)
        end = last_seq if frame_tuples is None else min(last_seq, start + frame_tuples - 1)
        tasks.append(FrameTask(batch, batch_date, start, seq, end))
        seq = end + 1
    return tasks


def by_seq(stretches: Sequence[tuple[int, int, Any]], otherwise: Any, seq: SparkColumn) -> SparkColumn:
    """A native expression that finds the value of a row's stretch: a balanced tree of comparisons with `seq`."""
    from pyspark.sql import functions as sql

    if not stretches:
        return sql.lit(otherwise)
    if len(stretches) == 1:
        low, high, value = stretches[0]
        return sql.when(seq.between(low, high), sql.lit(value)).otherwise(sql.lit(otherwise))
    middle = len(stretches) // 2
    left = by_seq(stretches[:middle], otherwise, seq)
    right = by_seq(stretches[middle:], otherwise, seq)
    return sql.when(seq < stretches[middle][0], left).otherwise(right)


def transmitted(
    raw: DataFrame, runs: Runs, models: Mapping[str, AttributeModel], attributes: Sequence[str]
) -> DataFrame:
    """The tuples as the destination sees them: `raw`'s columns, shed values null, rounded ones rounded."""
    from pyspark.sql import functions as sql

    seq = sql.col("seq")
    merged: list[tuple[int, int, Any]] = []
    for run in runs:
        if merged and merged[-1][2] == run.scheme and merged[-1][1] + 1 == run.from_seq:
            merged[-1] = (merged[-1][0], run.to_seq, run.scheme)
        else:
            merged.append((run.from_seq, run.to_seq, run.scheme))
    columns = [
        seq,
        sql.col("batch"),
        sql.col("batch_date"),
        by_seq(merged, 0, seq).cast("bigint").alias("scheme"),
    ]
    for name in attributes:
        value = sql.col(f"`{name}`")
        ways = {way: [(a, b, True) for a, b in runs.stretches(name, way)] for way in ("round", "shed")}
        if ways["round"]:
            rounded = _rounding(models[name], raw.schema[name].dataType)(value)
            value = sql.when(by_seq(ways["round"], False, seq), rounded).otherwise(value)
        if ways["shed"]:
            value = sql.when(~by_seq(ways["shed"], False, seq), value)
        columns.append(value.alias(name))
    return raw.select(*columns)


def _rounding(model: AttributeModel, spark_type: Any) -> Callable[[SparkColumn], SparkColumn]:
    from pyspark.sql.functions import arrow_udf

    def rounded(values: pa.Array) -> pa.Array:
        column = Column.from_arrow(values)
        return rounded_column(model, column, np.ones(len(column), np.bool_)).to_arrow(values.type)

    rounded.__annotations__ = {"values": pa.Array, "return": pa.Array}
    return arrow_udf(rounded, spark_type)  # type: ignore[no-any-return]


def synopsis(
    spark: SparkSession,
    stream: str,
    tasks: Sequence[FrameTask],
    files: Sequence[DataFile],
    key: Sequence[str],
    runs: Runs,
    models: Mapping[str, AttributeModel],
) -> DataFrame:
    """The synopsis blocks of the batches' parts of frames, made frame by frame, in parallel, without a shuffle."""
    columns = [*key, *needed_columns(models, runs.attributes("shed"))]

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                task = tasks[index]
                dated = [file for file in files if as_date(file.value("batch_date")) == task.batch_date]
                rows = read_rows(dated, columns, task.frame, task.to_seq)
                part = runs.within(task.frame, task.to_seq)
                if not rows.num_rows or not part.attributes("shed"):
                    continue
                for block in shed_frame(rows, key, part, models, task.from_seq):
                    yield pa.RecordBatch.from_pylist(
                        [
                            {
                                "stream": stream,
                                "batch": task.batch,
                                "batch_date": task.batch_date,
                                "frame": task.frame,
                                **block.__dict__,
                            }
                        ],
                        schema=_BLOCKS,
                    )

    slices = max(1, min(len(tasks), 4 * spark.sparkContext.defaultParallelism))
    return spark.range(0, len(tasks), 1, slices).mapInArrow(make, SYNOPSIS_SCHEMA)


_BLOCKS = pa.schema(
    [
        ("stream", pa.string()),
        ("stage", pa.int64()),
        ("batch", pa.int64()),
        ("batch_date", pa.date32()),
        ("frame", pa.int64()),
        ("attribute", pa.string()),
        ("first_seq", pa.int64()),
        ("last_seq", pa.int64()),
        ("entries", pa.int64()),
        ("shed_values", pa.int64()),
        ("payload", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Framing:
    """Where a batch's frames lie: they count from `origin`, and never leave the batch date."""

    batch: int
    batch_date: date
    first_seq: int
    last_seq: int
    origin: int
    frame_tuples: int | None
    model_version: int


@dataclass(frozen=True)
class Recovery:
    """What giving back a range of a stream needs, besides its transmitted rows."""

    key: tuple[str, ...]
    attributes: tuple[str, ...]
    runs: Runs
    models: Mapping[int, Mapping[str, AttributeModel]]
    framings: tuple[Framing, ...]
    transmitted_files: tuple[DataFile, ...]
    synopsis_files: tuple[DataFile, ...]

    @property
    def columns(self) -> list[str]:
        """The transmitted columns the kernels read."""
        found: dict[str, None] = dict.fromkeys(self.key)
        for models in self.models.values():
            found.update(dict.fromkeys(needed_columns(models, [a for a in self.attributes if a in models])))
        return list(found)

    def framing(self, seq: int) -> Framing:
        """The framing of the batch that holds `seq`."""
        for one in self.framings:
            if one.first_seq <= seq <= one.last_seq:
                return one
        raise ValueError(f"`seq` must lie in a shed batch, got {seq}; see `spillway status`")

    def on(self, day: date) -> Recovery:
        """The same, with the files of one batch date only."""
        dated = [
            tuple(file for file in files if as_date(file.value("batch_date")) == day)
            for files in (self.transmitted_files, self.synopsis_files)
        ]
        return replace(self, transmitted_files=dated[0], synopsis_files=dated[1])

    def frame_edges(self, seq: np.ndarray) -> list[tuple[int, int, Framing, int]]:
        """The rows `seq` (ascending) cut at frame edges: (from row, to row, framing, first seq of the frame)."""
        cuts = []
        row = 0
        while row < len(seq):
            framing = self.framing(int(seq[row]))
            start = frame_start(int(seq[row]), framing.origin, framing.frame_tuples)
            end = framing.last_seq
            if framing.frame_tuples is not None:
                end = min(end, start + framing.frame_tuples - 1)
            stop = int(np.searchsorted(seq, end, side="right"))
            cuts.append((row, stop, framing, start))
            row = stop
        return cuts


def read_payloads(
    files: Sequence[DataFile], frame: int, attributes: Sequence[str], to_seq: int
) -> tuple[dict[str, list[bytes]], int]:
    """The synopsis blocks of one frame up to a row, by attribute, and their bytes; reads only what can hold them."""
    rows = read_rows(files, ["attribute", "first_seq", "payload"], frame, frame, order="frame")
    found: dict[str, list[bytes]] = {}
    read = 0
    for row in rows.to_pylist():
        if row["attribute"] in attributes and row["first_seq"] <= to_seq:
            found.setdefault(row["attribute"], []).append(row["payload"])
            read += len(row["payload"])
    return found, read


def give_back(plan: Recovery, rows: pa.Table, framing: Framing, frame: int) -> dict[str, Recovered]:
    """The shed attributes of a frame's rows; what the frame holds before them is read from its files.

    `rows` must be the frame's rows from some row on without a hole; the kernels need its beginning too.
    """
    dated = plan.on(framing.batch_date)
    first, last = rows["seq"][0].as_py(), rows["seq"][-1].as_py()
    before = read_rows(dated.transmitted_files, plan.columns, frame, first - 1) if first > frame else None
    lead = 0
    if before is not None and before.num_rows:
        lead = before.num_rows
        rows = pa.concat_tables([before.select(rows.column_names), rows], promote_options="permissive")
    runs = plan.runs.within(frame, last)
    wanted = [name for name in plan.attributes if name in runs.attributes("shed")]
    if not wanted:
        return {}
    payloads, _ = read_payloads(dated.synopsis_files, frame, wanted, last)
    found = recover_frame(rows, plan.key, runs, plan.models[framing.model_version], payloads, wanted)
    return {
        name: Recovered(one.values.take(np.arange(lead, rows.num_rows)), one.bound_pct[lead:])
        for name, one in found.items()
    }


def recovered(sent: DataFrame, plan: Recovery, attributes: Sequence[str]) -> DataFrame:
    """`transmitted` rows with the shed values of `plan.attributes` given back, each with its bound.

    The kernel rides along a native scan and sees each task's rows in file order; it holds one frame at a time. Where
    a task begins inside a frame, the frame's first rows are read from the files, so that any split gives the same.
    """
    from pyspark.sql import functions as sql
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.types import DoubleType, StructField, StructType

    back = [name for name in plan.attributes if plan.runs.stretches(name, "shed")]
    base = [sql.col(name) for name in ("seq", "batch", "batch_date", "scheme")]
    bounds = [sql.lit(None).cast("double").alias(name + BOUND_SUFFIX) for name in attributes]
    if not back:
        return sent.select(*base, *(f"`{name}`" for name in attributes), *bounds)
    fields = [StructField(name, sent.schema[name].dataType) for name in back]
    fields += [StructField(name + BOUND_SUFFIX, DoubleType()) for name in back]
    names = ["seq", *(name for name in plan.columns if name in sent.columns)]

    def kernel(parts: Iterator[Any]) -> Iterator[pa.Array]:
        held: list[pa.Table] = []
        for arrays in parts:
            table = pa.table(list(arrays), names=names)
            held.append(table)
            ready, held = _whole_frames(plan, held)
            for framing, frame, rows in ready:
                yield _struct(plan, rows, framing, frame, back)
        for framing, frame, rows in _whole_frames(plan, held, at_end=True)[0]:
            yield _struct(plan, rows, framing, frame, back)

    kernel.__annotations__ = {"parts": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
    given = arrow_udf(kernel, StructType(fields))(*(sql.col(f"`{name}`") for name in names))
    wide = sent.select(*sent.columns, given.alias("__given"))
    values = [
        sql.col(f"__given.`{name}`").alias(name) if name in back else sql.col(f"`{name}`")
        for name in attributes
    ]
    bounds = [
        sql.col(f"__given.`{name}{BOUND_SUFFIX}`") if name in back else bound
        for name, bound in zip(attributes, bounds, strict=True)
    ]
    return wide.select(*base, *values, *bounds)


def _whole_frames(
    plan: Recovery, held: Sequence[pa.Table], at_end: bool = False
) -> tuple[list[tuple[Framing, int, pa.Table]], list[pa.Table]]:
    """What is held, cut into stretches of one frame without a hole; the last one is held on unless `at_end`."""
    if not held:
        return [], []
    rows = pa.concat_tables(held)
    if not rows.num_rows:
        return [], []
    seq = np.asarray(rows["seq"])
    stretches = []
    for low, high in _unbroken(plan.transmitted_files, seq):
        for start, stop, framing, frame in plan.frame_edges(seq[low:high]):
            stretches.append((framing, frame, rows.slice(low + start, stop - start)))
    if at_end:
        return stretches, []
    return stretches[:-1], [stretches[-1][2]]


def _unbroken(files: Sequence[DataFile], seq: np.ndarray) -> list[tuple[int, int]]:
    """Stretches in which one row follows the other in one file; files hold disjoint ranges of `seq`."""
    lows = np.array(sorted(file.low("seq") for file in files), np.int64)
    home = np.searchsorted(lows, seq, side="right")
    cuts = np.flatnonzero((np.diff(seq) <= 0) | (np.diff(home) != 0)) + 1
    edges = [0, *cuts.tolist(), len(seq)]
    return list(zip(edges[:-1], edges[1:], strict=True))


def _struct(plan: Recovery, rows: pa.Table, framing: Framing, frame: int, back: Sequence[str]) -> pa.Array:
    found = give_back(plan, rows, framing, frame)
    values, bounds = [], []
    for name in back:
        given = rows[name].combine_chunks()
        if name in found:
            values.append(found[name].values.to_arrow(given.type))
            bound = found[name].bound_pct
            bounds.append(pa.array(bound, mask=np.isnan(bound)))
        else:
            values.append(given)
            bounds.append(pa.nulls(rows.num_rows, pa.float64()))
    return pa.StructArray.from_arrays(
        [*values, *bounds], names=[*back, *(name + BOUND_SUFFIX for name in back)]
    )
