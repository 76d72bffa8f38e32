"""Split a stream's tuples into units of work: batches into slices of frames, and these into the pieces of one task
each.

The values of a frame depend on each other: a prediction uses earlier values of the frame. So a piece consists of whole
slices. Where a frame continues from one batch into the next, the task of the later batch also reads the frame's earlier
rows. Therefore the values do not depend on the number of pieces, without a shuffle or a sort. Frames are counted from
the start that the batch was pinned to (`frame_origin`) and never span two dates.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from spillway.batch import Batch
from spillway.levers.protocol import FrameSlice

MOST_ROWS = 625_000
"""Approximate number of rows of a task: enough for a file that is worth opening, and little work lost by a retry.

It never depends on the number of cores: each file is sent with its footer, and the bytes sent decide the plan.
"""


def frame_start(seq: int, origin: int, frame_tuples: int | None) -> int:
    """Return the first seq of the frame that contains `seq`. Frames count from `origin`; None: one endless frame.

    >>> frame_start(250, 100, 64), frame_start(250, 100, None)
    (228, 100)
    """
    return origin if frame_tuples is None else origin + (seq - origin) // frame_tuples * frame_tuples


def frame_edges(
    from_seq: int, to_seq: int, origin: int, frame_tuples: int | None
) -> Iterator[tuple[int, int, int]]:
    """Yield (frame, first seq, last seq) for every slice of a frame in a range of `seq`.

    >>> list(frame_edges(150, 250, 100, 64))
    [(100, 150, 163), (164, 164, 227), (228, 228, 250)]
    """
    seq = from_seq
    while seq <= to_seq:
        start = frame_start(seq, origin, frame_tuples)
        end = to_seq if frame_tuples is None else min(to_seq, start + frame_tuples - 1)
        yield start, seq, end
        seq = end + 1


def frame_slices(batch: Batch, from_seq: int = 0, to_seq: int = 2**62) -> list[FrameSlice]:
    """Return the batch (or a range of it), split at frame boundaries."""
    low, high = max(from_seq, batch.first_seq), min(to_seq, batch.last_seq)
    origin = batch.first_seq if batch.frame_origin is None else batch.frame_origin
    return [
        FrameSlice(batch.batch, batch.batch_date, frame, first, last)
        for frame, first, last in frame_edges(low, high, origin, batch.frame_tuples)
    ]


def split_batch(batch: Batch, most: int = MOST_ROWS) -> list[tuple[FrameSlice, ...]]:
    """Split the batch into pieces of about equal size, each of whole slices of frames.

    A batch that is one unbounded frame is one piece, and so the work of one core.
    """
    parts = frame_slices(batch)
    rows = batch.last_seq - batch.first_seq + 1
    count = min(len(parts), max(1, -(-rows // most)))
    edges = [len(parts) * i // count for i in range(count + 1)]
    return [tuple(parts[low:high]) for low, high in pairwise(edges)]
