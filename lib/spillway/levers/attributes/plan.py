"""Shedding, recovery and certificates, piece by piece: what a task makes of the columns it reads from tables' files.

A piece is some frames of one batch (`frame_plan`). `synopsis_of`, `sent` and `given_back` turn one into the rows of
`synopsis`, `transmitted` and `recovered`; tasks write them as the columns they are (`lake.task_files`). A column that
only nulls take the place of is not read, none is turned into rows, nothing is shuffled or sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.frame_plan import Frames, FrameTask, Framing, Piece
from spillway.levers.attributes.frames import (
    frame_of,
    needed_columns,
    recover_frame,
    shed_frame,
    with_regressors,
)
from spillway.levers.attributes.scheme import Runs
from spillway.levers.attributes.synopsis.certificate import certify
from spillway.levers.attributes.synopsis.entries import Recovered
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.synopsis.rounding import round_rows
from spillway.store.files import DataFile, RowReader, as_date, read_rows
from spillway.store.table_contracts import BOUND_SUFFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Shedding:
    """What shedding a stream's batches needs, besides the raw tuples (whose frames it knows)."""

    key: tuple[str, ...]
    attributes: tuple[str, ...]
    runs: Runs
    models: Mapping[str, AttributeModel]
    frames: Frames


def synopsis_of(piece: Piece, plan: Shedding) -> Iterator[pa.Table]:
    """The blocks of a piece, frame by frame."""
    runs = plan.runs.within(piece[0].frame, piece[-1].to_seq)
    columns = [*plan.key, *needed_columns(plan.models, runs.attributes("shed"))]
    read = RowReader(plan.frames.files_of(piece[0].framing.batch_date))
    blocks: list[dict[str, Any]] = []
    for task in piece:
        part = runs.within(task.frame, task.to_seq)
        if not part.attributes("shed"):
            continue
        rows = read(columns, task.frame, task.to_seq)
        if not rows.num_rows:
            continue
        place = {"batch": task.framing.batch, "frame": task.frame}
        made = shed_frame(rows, plan.key, part, plan.models, task.from_seq)
        blocks += [place | block.__dict__ for block in made]
    if blocks:
        yield pa.Table.from_pylist(blocks)


def sent(piece: Piece, plan: Shedding) -> Iterator[pa.Table]:
    """The tuples of a piece as the destination sees them: shed values null, rounded ones rounded."""
    low, high = piece[0].from_seq, piece[-1].to_seq
    runs = plan.runs.within(piece[0].frame, high)
    shed = {name: stretches for name in plan.attributes if (stretches := runs.stretches(name, "shed"))}
    gone = {name for name, found in shed.items() if any(a <= low and high <= b for a, b in found)}
    rounded = [name for name in plan.attributes if name not in gone and runs.stretches(name, "round")]
    schemes = np.array([run.scheme for run in runs], np.int64)

    def kernel(rows: pa.Table, task: FrameTask) -> dict[str, pa.Array]:
        truth = frame_of(rows, plan.key, rounded)
        part = runs.within(task.frame, task.to_seq)
        columns = {
            name: round_rows(plan.models[name], truth, part.mask(name, "round", truth.seq))
            for name in rounded
        }
        return {name: column.to_arrow(_kind(rows, name)) for name, column in columns.items()}

    read = RowReader(plan.frames.files_of(piece[0].framing.batch_date))
    through = [*plan.key, *rounded] if rounded else []
    past = [name for name in plan.attributes if name not in gone]
    for rows in _carried(read, piece, through, kernel, past):
        seq = np.asarray(rows["seq"])
        rows = rows.append_column("scheme", pa.array(schemes[runs.index(seq)]))
        for name in shed.keys() - gone:
            hidden = pa.chunked_array([pa.array(runs.mask(name, "shed", seq))])
            kept = pc.if_else(hidden, pa.scalar(None, rows[name].type), rows[name])
            rows = rows.set_column(rows.column_names.index(name), name, kept)
        yield rows


def _carried(
    read: RowReader,
    piece: Piece,
    through: Sequence[str],
    kernel: Callable[[pa.Table, FrameTask], Mapping[str, pa.Array]],
    past: Sequence[str],
) -> Iterator[pa.Table]:
    """The rows of a piece, some at a time: the columns `through` the kernel frame by frame, the others `past` it.

    The kernel sees a frame's rows from the frame's start; its columns take the place of those read, or join them.
    """
    others = [name for name in past if name not in through]
    for task in piece:
        made = _by_kernel(read(through, task.frame, task.to_seq), task, kernel) if through else None
        for low in range(task.from_seq, task.to_seq + 1, RowReader.AT_A_TIME):
            high = min(task.to_seq, low + RowReader.AT_A_TIME - 1)
            rows = read(others, low, high)
            if not rows.num_rows:
                continue
            if made is not None:
                start, stop = np.searchsorted(made[0], [low, high + 1])
                for name, column in made[1].items():
                    rows = rows.append_column(name, column.slice(start, stop - start))
            yield rows.append_column("batch", pa.array(np.full(rows.num_rows, task.framing.batch)))


def _by_kernel(
    rows: pa.Table, task: FrameTask, kernel: Callable[[pa.Table, FrameTask], Mapping[str, pa.Array]]
) -> tuple[np.ndarray, dict[str, Any]] | None:
    """The frame's columns after the kernel, with the `seq` of its rows."""
    if not rows.num_rows:
        return None
    columns = {name: rows[name] for name in rows.column_names if name != "seq"}
    return np.asarray(rows["seq"]), columns | dict(kernel(rows, task))


def _kind(rows: pa.Table, name: str) -> pa.DataType | None:
    """The column's type; None where the files have no such column."""
    kind = rows.schema.field(name).type
    return None if pa.types.is_null(kind) else kind


Blocks = dict[int, list[tuple[str, int, bytes]]]
"""By frame: the attribute of each block, its first seq, and its payload."""


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

    def blocks(self, day: date, frames: tuple[int, int]) -> Blocks:
        """The synopsis of a range of frames of one date."""
        dated = [file for file in self.synopsis_files if as_date(file.value("batch_date")) == day]
        return read_blocks(dated, frames)

    def give_back(
        self, rows: pa.Table, framing: Framing, frame: int, blocks: Blocks
    ) -> tuple[dict[str, Recovered], int]:
        """The shed attributes of a frame's rows, which must begin with the frame; and the synopsis bytes used."""
        last = rows["seq"][-1].as_py()
        runs = self.runs.within(frame, last)
        wanted = [name for name in self.attributes if name in runs.attributes("shed")]
        if not wanted:
            return {}, 0
        models = self.models[framing.model_version]
        payloads: dict[str, list[bytes]] = {}
        for attribute, first_seq, payload in blocks.get(frame, ()):
            if first_seq <= last and attribute in with_regressors(models, wanted):
                payloads.setdefault(attribute, []).append(payload)
        used = sum(len(payload) for found in payloads.values() for payload in found)
        return recover_frame(rows, self.key, runs, models, payloads, wanted), used


def read_blocks(files: Sequence[DataFile], frames: tuple[int, int]) -> Blocks:
    """The synopsis blocks of a range of frames; reads only what can hold them."""
    rows = read_rows(files, ["attribute", "first_seq", "payload"], *frames, order="frame")
    found: Blocks = {}
    for row in rows.to_pylist():
        found.setdefault(row["frame"], []).append((row["attribute"], row["first_seq"], row["payload"]))
    return found


def given_back(piece: Piece, plan: Recovery, attributes: Sequence[str]) -> Iterator[pa.Table]:
    """The tuples of a piece with the shed values of `plan.attributes` given back, each with its bound."""
    runs = plan.runs.within(piece[0].frame, piece[-1].to_seq)
    back = [name for name in plan.attributes if runs.stretches(name, "shed")]
    blocks = plan.blocks(piece[0].framing.batch_date, (piece[0].frame, piece[-1].frame)) if back else {}

    def kernel(rows: pa.Table, task: FrameTask) -> dict[str, pa.Array]:
        columns = {}
        for name, found in plan.give_back(rows, task.framing, task.frame, blocks)[0].items():
            columns[name] = found.values.to_arrow(_kind(rows, name))
            columns[name + BOUND_SUFFIX] = pa.array(found.bound_pct, mask=np.isnan(found.bound_pct))
        return columns

    read = RowReader(plan.frames.files_of(piece[0].framing.batch_date))
    through = list(dict.fromkeys([*plan.columns, *back])) if back else []
    yield from _carried(read, piece, through, kernel, ["scheme", *attributes])


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
                bounds = error_pct[task.framing.batch]
                day = task.framing.batch_date
                sides = [read(day)(list(bounds), task.from_seq, task.to_seq) for read in both]
                rows = _certified(sides[0], sides[1], task, runs, bounds)
                yield pa.RecordBatch.from_pylist(rows, schema=_CERTIFIED)

    slices = max(1, min(len(tasks), 4 * spark.sparkContext.defaultParallelism))
    return spark.range(0, len(tasks), 1, slices).mapInArrow(measure, CERTIFICATE_SCHEMA)


def _readers(files: Sequence[DataFile]) -> Callable[[date], RowReader]:
    """A reader for each batch date, in a task: its stretches follow each other."""

    @cache
    def of(day: date) -> RowReader:
        return RowReader([file for file in files if as_date(file.value("batch_date")) == day])

    return of


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
                "batch": task.framing.batch,
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
