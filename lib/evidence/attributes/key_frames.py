"""Measure the cost of key frames: frames of the contract's length against one endless frame, as in the thesis.

Every frame stores the first value of every key, so that a date can be shed, recovered or retired by itself. The cost is
at most keys x attributes values per frame; it may be slightly more with predictors that look back, because they restart
too. Everything is shed by the product's own step (`levers.attributes.frames.shed_frame`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evidence.attributes.lab import Lab
from evidence.book import Book
from spillway.levers.attributes.frames import Block, shed_frame
from spillway.levers.attributes.scheme import AttributeTreatment, Run, Runs
from spillway.levers.frame_slices import frame_slices


@dataclass(frozen=True)
class KeyFramePrice:
    """Stored values and packed bytes, in frames and in one endless frame."""

    frames: int
    keys: int
    attributes: int
    stored: int
    stored_endless: int
    packed_bytes: int
    packed_bytes_endless: int

    @property
    def bytes_pct(self) -> float:
        """Return the additional bytes of frames, in %.

        >>> KeyFramePrice(2, 3, 1, 106, 100, 300, 200).bytes_pct
        50.0
        """
        return _more_pct(self.packed_bytes, self.packed_bytes_endless)

    @property
    def stored_pct(self) -> float:
        """Return the additional stored values of frames, in %."""
        return _more_pct(self.stored, self.stored_endless)

    @property
    def most_stored(self) -> int:
        """Return the most values that frames add with the last value: keys x attributes in each but the first."""
        return (self.frames - 1) * self.keys * self.attributes


def key_frame_price(lab: Lab) -> KeyFramePrice:
    """Shed every measure everywhere, frame by frame, and in one frame from the first tuple to the last."""
    rows, keys, models = lab.rows, lab.cycle.attributes, lab.models
    seq = np.asarray(rows["seq"])
    shed = tuple(AttributeTreatment(name, "shed", precision=one.coarsest) for name, one in models.items())
    everywhere = Runs((Run(int(seq[0]), int(seq[-1]), shed),))
    framed: list[Block] = []
    edges: dict[int, tuple[int, int]] = {}
    for part in (part for batch in lab.batches for part in frame_slices(batch)):
        first, _ = edges.get(part.frame, (part.from_seq, 0))
        edges[part.frame] = (first, part.to_seq)
    frames = 0
    for first, last in edges.values():
        low, high = np.searchsorted(seq, [first, last + 1])
        if high > low:
            frames += 1
            mine = rows.slice(low, high - low)
            framed += shed_frame(mine, keys, everywhere, models, first)
    endless = shed_frame(rows, keys, everywhere, models, int(seq[0]))
    return KeyFramePrice(
        frames,
        rows.select(list(keys)).group_by(list(keys)).aggregate([]).num_rows,
        len(models),
        *(sum(block.entries for block in blocks) for blocks in (framed, endless)),
        *(_packed(blocks) for blocks in (framed, endless)),
    )


def key_frames(book: Book, labs: Mapping[str, Lab], prefix: str = "") -> dict[str, float]:
    """Write the table of the cost of frames; return the figures."""
    figures: dict[str, float] = {}
    rows: list[tuple[Any, ...]] = []
    for name, lab in labs.items():
        one = key_frame_price(lab)
        rows.append(
            (name, lab.batches[0].frame_tuples, one.frames, one.keys, one.stored_endless, one.stored, one.stored_pct,
             one.most_stored, one.packed_bytes_endless, one.packed_bytes, one.bytes_pct)
        )  # fmt: skip
        figures[f"attributes.key_frame_price_pct.{prefix}{lab.stream}"] = one.bytes_pct
        figures[f"attributes.key_frame_stored_price_pct.{prefix}{lab.stream}"] = one.stored_pct
    book.table(
        "The price of key frames: every measure shed, in frames and in one endless frame",
        ("stream", "frame, tuples at most", "frames", "keys", "stored, endless", "stored", "more %",
         "keys x attributes x frames more", "bytes, endless", "bytes", "more %"),
        rows,
        ["A frame never crosses a batch date, so that the dates cut them here, not the contract's length."],
    )  # fmt: skip
    return figures


def _packed(blocks: Sequence[Block]) -> int:
    return sum(len(block.payload) for block in blocks)


def _more_pct(framed: int, endless: int) -> float:
    return 100.0 * (framed / endless - 1.0) if endless else 0.0
