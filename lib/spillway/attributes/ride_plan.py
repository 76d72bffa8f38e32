"""A frame kernel that rides along a native Spark scan: its columns through Python, all others past it.

The kernel sees a task's rows in file order and needs whole frames. Rows are held until their frame ends; where a task
begins inside a frame (files and splits end where they like), the frame's first rows are read from the table's files.
So any split, any number of partitions gives the same values, without a shuffle and without a sort.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spillway.attributes.frames import frame_start
from spillway.lake.files import DataFile, as_date, read_rows

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql.types import StructType


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
class Frames:
    """The frames of a table's rows: how its batches are framed, and the files that hold them."""

    framings: tuple[Framing, ...]
    files: tuple[DataFile, ...]

    def framing(self, seq: int) -> Framing:
        """The framing of the batch that holds `seq`."""
        for one in self.framings:
            if one.first_seq <= seq <= one.last_seq:
                return one
        raise ValueError(f"`seq` must lie in a shed batch, got {seq}; see `spillway status`")

    def files_of(self, day: date) -> list[DataFile]:
        """The files of one batch date: a frame has no rows elsewhere."""
        return [file for file in self.files if as_date(file.value("batch_date")) == day]

    def cut(self, seq: np.ndarray) -> list[tuple[int, int, Framing, int]]:
        """Rows of ascending `seq` cut at frame and batch edges: (from row, to row, framing, frame's first seq)."""
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

    def unbroken(self, seq: np.ndarray) -> list[tuple[int, int]]:
        """Stretches in which one row follows the other in one file; files hold disjoint ranges of `seq`."""
        lows = np.array(sorted(file.low("seq") for file in self.files), np.int64)
        home = np.searchsorted(lows, seq, side="right")
        cuts = np.flatnonzero((np.diff(seq) <= 0) | (np.diff(home) != 0)) + 1
        return list(itertools.pairwise([0, *cuts.tolist(), len(seq)]))

    def from_start(self, rows: pa.Table, framing: Framing, frame: int) -> tuple[pa.Table, int]:
        """The rows with what their frame holds before them, and how many rows that is."""
        first = rows["seq"][0].as_py()
        if first == frame:
            return rows, 0
        before = read_rows(self.files_of(framing.batch_date), rows.column_names, frame, first - 1)
        if not before.num_rows:
            return rows, 0
        whole = pa.concat_tables([before.select(rows.column_names), rows], promote_options="permissive")
        return whole, before.num_rows


FrameKernel = Callable[[pa.Table, Framing, int, int], list[pa.Array]]
"""(the frame's rows from its start, framing, frame, rows that lead) -> the output columns of the rows behind."""


def ride_along(frames: Frames, names: Sequence[str], outputs: StructType, kernel: FrameKernel) -> SparkColumn:
    """A struct column of the kernel's outputs, made from the columns `names` (the first is seq)."""
    from pyspark.sql import functions as sql
    from pyspark.sql.functions import arrow_udf

    fields = outputs.fieldNames()

    def given(rows: pa.Table, framing: Framing, frame: int) -> pa.Array:
        whole, lead = frames.from_start(rows, framing, frame)
        return pa.StructArray.from_arrays(kernel(whole, framing, frame, lead), names=fields)

    def rider(parts: Iterator[Any]) -> Iterator[pa.Array]:
        held: list[pa.Table] = []
        for arrays in parts:
            held.append(pa.table(list(arrays) if isinstance(arrays, tuple) else [arrays], names=list(names)))
            ready = _stretches(frames, held)
            held = [ready.pop()[2]] if ready else []
            for framing, frame, rows in ready:
                yield given(rows, framing, frame)
        for framing, frame, rows in _stretches(frames, held):
            yield given(rows, framing, frame)

    rider.__annotations__ = {"parts": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
    return arrow_udf(rider, outputs)(*(sql.col(f"`{name}`") for name in names))


def _stretches(frames: Frames, held: Sequence[pa.Table]) -> list[tuple[Framing, int, pa.Table]]:
    """What is held, cut into stretches of one frame without a hole."""
    rows = pa.concat_tables(held) if held else None
    if rows is None or not rows.num_rows:
        return []
    seq = np.asarray(rows["seq"])
    return [
        (framing, frame, rows.slice(low + start, stop - start))
        for low, high in frames.unbroken(seq)
        for start, stop, framing, frame in frames.cut(seq[low:high])
    ]
