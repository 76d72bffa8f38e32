"""Shedding and recovery on Spark: a native copy of what stays, kernels for what is shed, no shuffle.

`transmitted` is a scan of `raw` with shed columns nulled in place: no column passes through Python except those
that are rounded. The synopsis is made by tasks that read the few columns a frame needs straight from the table's
files. `recovered` is a scan of `transmitted` along which an Arrow kernel carries the shed columns back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spillway.attributes.certificate import certify
from spillway.attributes.columns import Column
from spillway.attributes.frames import (
    frame_of,
    frame_start,
    needed_columns,
    recover_frame,
    shed_frame,
    with_regressors,
)
from spillway.attributes.model import AttributeModel
from spillway.attributes.ride_plan import Frames, Framing, ride_along
from spillway.attributes.rounding import round_rows
from spillway.attributes.runs import Runs
from spillway.attributes.synopsis import Recovered
from spillway.lake.columns import BOUND_SUFFIX
from spillway.lake.files import DataFile, RowReader, as_date, read_rows

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
    raw: DataFrame,
    frames: Frames,
    runs: Runs,
    models: Mapping[str, AttributeModel],
    key: Sequence[str],
    attributes: Sequence[str],
) -> DataFrame:
    """The tuples as the destination sees them: `raw`'s columns, shed values null, rounded ones rounded."""
    from pyspark.sql import functions as sql
    from pyspark.sql.types import StructField, StructType

    seq = sql.col("seq")
    rounded = [name for name in attributes if runs.stretches(name, "round")]
    if rounded:
        names = list(dict.fromkeys(["seq", *key, *rounded]))
        fields = StructType([StructField(name, raw.schema[name].dataType) for name in rounded])

        def kernel(rows: pa.Table, framing: Framing, frame: int, lead: int) -> list[pa.Array]:
            part = runs.within(frame, rows["seq"][-1].as_py())
            truth = frame_of(rows, key, rounded)
            sent = truth.with_columns(
                {
                    name: round_rows(models[name], truth, part.mask(name, "round", truth.seq))
                    for name in rounded
                }
            )
            return [sent.columns[name].to_arrow(rows[name].type).slice(lead) for name in rounded]

        raw = raw.select(*raw.columns, ride_along(frames, names, fields, kernel).alias("__rounded"))
    columns = [seq, sql.col("batch"), sql.col("batch_date"), _scheme_of(runs, seq).alias("scheme")]
    for name in attributes:
        value = sql.col(f"__rounded.`{name}`") if name in rounded else sql.col(f"`{name}`")
        shed = [(low, high, True) for low, high in runs.stretches(name, "shed")]
        columns.append((sql.when(~by_seq(shed, False, seq), value) if shed else value).alias(name))
    return raw.select(*columns)


def _scheme_of(runs: Runs, seq: SparkColumn) -> SparkColumn:
    merged: list[tuple[int, int, Any]] = []
    for run in runs:
        if merged and merged[-1][2] == run.scheme and merged[-1][1] + 1 == run.from_seq:
            merged[-1] = (merged[-1][0], run.to_seq, run.scheme)
        else:
            merged.append((run.from_seq, run.to_seq, run.scheme))
    return by_seq(merged, 0, seq).cast("bigint")


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
        read = _readers(files)
        for batch in batches:
            for index in batch.column(0).to_pylist():
                task = tasks[index]
                rows = read(task.batch_date)(columns, task.frame, task.to_seq)
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


def _readers(files: Sequence[DataFile]) -> Callable[[date], RowReader]:
    """A reader for each batch date, in a task: its frames follow each other."""

    @cache
    def of(day: date) -> RowReader:
        return RowReader([file for file in files if as_date(file.value("batch_date")) == day])

    return of


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
class Recovery:
    """What giving back a range of a stream needs, besides its transmitted rows (whose frames it knows)."""

    key: tuple[str, ...]
    attributes: tuple[str, ...]
    runs: Runs
    models: Mapping[int, Mapping[str, AttributeModel]]
    frames: Frames
    synopsis_files: tuple[DataFile, ...]

    @property
    def columns(self) -> list[str]:
        """The transmitted columns the kernels read."""
        found: dict[str, None] = dict.fromkeys(self.key)
        for models in self.models.values():
            found.update(dict.fromkeys(needed_columns(models, [a for a in self.attributes if a in models])))
        return list(found)

    def give_back(self, rows: pa.Table, framing: Framing, frame: int) -> tuple[dict[str, Recovered], int]:
        """The shed attributes of a frame's rows, which must begin with the frame; and the synopsis bytes read."""
        last = rows["seq"][-1].as_py()
        runs = self.runs.within(frame, last)
        wanted = [name for name in self.attributes if name in runs.attributes("shed")]
        if not wanted:
            return {}, 0
        models = self.models[framing.model_version]
        dated = [
            file for file in self.synopsis_files if as_date(file.value("batch_date")) == framing.batch_date
        ]
        payloads, read = read_payloads(dated, frame, with_regressors(models, wanted), last)
        return recover_frame(rows, self.key, runs, models, payloads, wanted), read


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


def recovered(sent: DataFrame, plan: Recovery, attributes: Sequence[str]) -> DataFrame:
    """`transmitted` rows with the shed values of `plan.attributes` given back, each with its bound."""
    from pyspark.sql import functions as sql
    from pyspark.sql.types import DoubleType, StructField, StructType

    back = [name for name in plan.attributes if plan.runs.stretches(name, "shed")]
    base = [sql.col(name) for name in ("seq", "batch", "batch_date", "scheme")]
    none = sql.lit(None).cast("double")
    if not back:
        bounds = [none.alias(name + BOUND_SUFFIX) for name in attributes]
        return sent.select(*base, *(sql.col(f"`{name}`") for name in attributes), *bounds)
    fields = [StructField(name, sent.schema[name].dataType) for name in back]
    fields += [StructField(name + BOUND_SUFFIX, DoubleType()) for name in back]
    names = list(dict.fromkeys(["seq", *plan.columns, *back]))

    def kernel(rows: pa.Table, framing: Framing, frame: int, lead: int) -> list[pa.Array]:
        found, _ = plan.give_back(rows, framing, frame)
        values, bounds = [], []
        for name in back:
            if name in found:
                bound = found[name].bound_pct[lead:]
                values.append(found[name].values.to_arrow(rows[name].type).slice(lead))
                bounds.append(pa.array(bound, mask=np.isnan(bound)))
            else:
                values.append(rows[name].slice(lead).combine_chunks())
                bounds.append(pa.nulls(rows.num_rows - lead, pa.float64()))
        return [*values, *bounds]

    wide = sent.select(
        *sent.columns, ride_along(plan.frames, names, StructType(fields), kernel).alias("__given")
    )
    values = [
        sql.col(f"__given.`{name}`").alias(name) if name in back else sql.col(f"`{name}`")
        for name in attributes
    ]
    bounds = [
        (sql.col(f"__given.`{name}{BOUND_SUFFIX}`") if name in back else none).alias(name + BOUND_SUFFIX)
        for name in attributes
    ]
    return wide.select(*base, *values, *bounds)


CERTIFICATE_SCHEMA = (
    "batch bigint, attribute string, shed_values bigint, rounded_values bigint, max_error_pct double, "
    "sum_error_pct double, violations bigint, strays bigint"
)


def certificates(
    spark: SparkSession,
    tasks: Sequence[FrameTask],
    truth: Sequence[DataFile],
    given: Sequence[DataFile],
    runs: Runs,
    error_pct: Mapping[int, Mapping[str, float]],
) -> DataFrame:
    """Errors of recovered and rounded values against raw, value by value, in partial sums per task and attribute.

    Tasks read the same `seq` range of both tables' files: no join, no shuffle. `error_pct` is E by batch and
    attribute; `strays` counts rows that only one of the tables has.
    """

    def measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        both = [_readers(files) for files in (truth, given)]
        for batch in batches:
            for index in batch.column(0).to_pylist():
                task = tasks[index]
                bounds = error_pct[task.batch]
                sides = [read(task.batch_date)(list(bounds), task.from_seq, task.to_seq) for read in both]
                rows = _certified(sides[0], sides[1], task, runs, bounds)
                yield pa.RecordBatch.from_pylist(rows, schema=_CERTIFIED)

    slices = max(1, min(len(tasks), 4 * spark.sparkContext.defaultParallelism))
    return spark.range(0, len(tasks), 1, slices).mapInArrow(measure, CERTIFICATE_SCHEMA)


_CERTIFIED = pa.schema(
    [
        ("batch", pa.int64()),
        ("attribute", pa.string()),
        ("shed_values", pa.int64()),
        ("rounded_values", pa.int64()),
        ("max_error_pct", pa.float64()),
        ("sum_error_pct", pa.float64()),
        ("violations", pa.int64()),
        ("strays", pa.int64()),
    ]
)


def _certified(
    raw: pa.Table, recovered: pa.Table, task: FrameTask, runs: Runs, bounds: Mapping[str, float]
) -> list[dict[str, Any]]:
    left, right = np.asarray(raw["seq"]), np.asarray(recovered["seq"])
    strays = 0
    if not np.array_equal(left, right):
        both = np.intersect1d(left, right)
        strays = len(left) + len(right) - 2 * len(both)
        raw, recovered = raw.take(np.searchsorted(left, both)), recovered.take(np.searchsorted(right, both))
        left = both
    rows = []
    for name, bound in bounds.items():
        masks = {way: runs.mask(name, way, left) for way in ("shed", "round")}
        touched = masks["shed"] | masks["round"]
        found = certify(Column.from_arrow(raw[name]), Column.from_arrow(recovered[name]), bound, touched)
        rows.append(
            {
                "batch": task.batch,
                "attribute": name,
                "shed_values": int(masks["shed"].sum()),
                "rounded_values": int(masks["round"].sum()),
                "max_error_pct": found.max_error_pct,
                "sum_error_pct": found.mean_error_pct * found.shed_values,
                "violations": found.violations,
                "strays": strays,
            }
        )
    return rows
