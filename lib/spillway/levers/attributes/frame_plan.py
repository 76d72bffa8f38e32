"""How a stream's tuples are cut for tasks: batches into frames, frames into pieces that one task works on.

A frame's values hang together (a prediction rests on what came before it in the frame), so a piece is a few whole
frames; where a frame goes over from one batch to the next, the later batch's task reads the rows before its own. So any
number of pieces gives the same values, without a shuffle and without a sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from itertools import pairwise

from spillway.levers.attributes.frames import frame_start
from spillway.store.files import DataFile, as_date

MOST_ROWS = 2_500_000
LEAST_ROWS = 250_000
"""About what a task works on: enough for a file that is worth opening, and little lost when it is tried again."""


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
class FrameTask:
    """One batch's part of a frame: its rows are `from_seq..to_seq`, the frame's begin at `frame`."""

    framing: Framing
    frame: int
    from_seq: int
    to_seq: int


Piece = tuple[FrameTask, ...]
"""Parts of one batch that follow each other."""


@dataclass(frozen=True)
class Frames:
    """The frames of a table's rows: how its batches are framed, and the files that hold them."""

    framings: tuple[Framing, ...]
    files: tuple[DataFile, ...]

    def files_of(self, day: date) -> list[DataFile]:
        """The files of one batch date: a frame has no rows elsewhere."""
        return [file for file in self.files if as_date(file.value("batch_date")) == day]


def frame_tasks(framing: Framing) -> list[FrameTask]:
    """The batch cut at frame edges.

    >>> framing = Framing(2, date(2026, 1, 1), 150, 250, 100, 64, 1)
    >>> [(task.frame, task.from_seq, task.to_seq) for task in frame_tasks(framing)]
    [(100, 150, 163), (164, 164, 227), (228, 228, 250)]
    """
    tasks = []
    seq = framing.first_seq
    while seq <= framing.last_seq:
        start = frame_start(seq, framing.origin, framing.frame_tuples)
        end = framing.last_seq
        if framing.frame_tuples is not None:
            end = min(end, start + framing.frame_tuples - 1)
        tasks.append(FrameTask(framing, start, seq, end))
        seq = end + 1
    return tasks


def pieces(framing: Framing, cores: int = 1, most: int = MOST_ROWS, least: int = LEAST_ROWS) -> list[Piece]:
    """The batch as pieces of about equal size, of whole parts of frames: one for each core unless that is too few.

    A batch of one unbounded frame is one piece, and so one core's work: its values hang together to the end.

    >>> framing = Framing(1, date(2026, 1, 1), 0, 99, 0, 10, 1)
    >>> [(piece[0].from_seq, piece[-1].to_seq) for piece in pieces(framing, 1, most=40, least=10)]
    [(0, 29), (30, 59), (60, 99)]
    >>> len(pieces(framing, 2, most=200, least=10)), len(pieces(framing, 2, most=200, least=60))
    (2, 1)
    """
    tasks = frame_tasks(framing)
    rows = framing.last_seq - framing.first_seq + 1
    count = min(len(tasks), max(-(-rows // most), min(cores, rows // least), 1))
    if count > cores:
        count = min(len(tasks), -(-count // cores) * cores)
    edges = [len(tasks) * i // count for i in range(count + 1)]
    return [tuple(tasks[low:high]) for low, high in pairwise(edges)]
