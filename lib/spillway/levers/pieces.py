"""How a stream's tuples are cut for tasks: batches into parts of frames, these into pieces that one task works on.

A frame's values hang together (a prediction rests on what came before it in the frame), so a piece is a few whole
frames; where a frame goes over from one batch to the next, the later batch's task reads the rows before its own. So any
number of pieces gives the same values, without a shuffle and without a sort. Frames count from where the batch was
pinned to (`frame_origin`) and never leave its date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from spillway.batch import Batch
from spillway.levers.protocol import FramePart

MOST_ROWS = 625_000
"""About what a task works on: enough for a file that is worth opening, and little lost when it is tried again.

Never a matter of how many cores there are: each file crosses with its footer, and what crosses decides the plan.
"""


def frame_start(seq: int, origin: int, frame_tuples: int | None) -> int:
    """First seq of the frame that `seq` lies in; frames count from `origin`. None: one endless frame.

    >>> frame_start(250, 100, 64), frame_start(250, 100, None)
    (228, 100)
    """
    return origin if frame_tuples is None else origin + (seq - origin) // frame_tuples * frame_tuples


def frame_edges(
    from_seq: int, to_seq: int, origin: int, frame_tuples: int | None
) -> Iterator[tuple[int, int, int]]:
    """(frame, first seq, last seq) of every part of a frame in a range of `seq`.

    >>> list(frame_edges(150, 250, 100, 64))
    [(100, 150, 163), (164, 164, 227), (228, 228, 250)]
    """
    seq = from_seq
    while seq <= to_seq:
        start = frame_start(seq, origin, frame_tuples)
        end = to_seq if frame_tuples is None else min(to_seq, start + frame_tuples - 1)
        yield start, seq, end
        seq = end + 1


def frame_parts(batch: Batch, from_seq: int = 0, to_seq: int = 2**62) -> list[FramePart]:
    """The batch (or a range of it) cut at frame edges."""
    low, high = max(from_seq, batch.first_seq), min(to_seq, batch.last_seq)
    origin = batch.first_seq if batch.frame_origin is None else batch.frame_origin
    return [
        FramePart(batch.batch, batch.batch_date, frame, first, last)
        for frame, first, last in frame_edges(low, high, origin, batch.frame_tuples)
    ]


def parts_in(batches: Iterable[Batch], from_seq: int, to_seq: int) -> Iterator[FramePart]:
    """Every part of a frame that touches a range, in `seq` order."""
    for batch in sorted(batches, key=lambda one: one.first_seq):
        if batch.last_seq >= from_seq and batch.first_seq <= to_seq:
            yield from frame_parts(batch, from_seq, to_seq)


def pieces(batch: Batch, most: int = MOST_ROWS) -> list[tuple[FramePart, ...]]:
    """The batch as pieces of about equal size, of whole parts of frames.

    A batch of one unbounded frame is one piece, and so one core's work: its values hang together to the end.
    """
    parts = frame_parts(batch)
    rows = batch.last_seq - batch.first_seq + 1
    count = min(len(parts), max(1, -(-rows // most)))
    edges = [len(parts) * i // count for i in range(count + 1)]
    return [tuple(parts[low:high]) for low, high in pairwise(edges)]
