"""Rows that a lever dropped of a batch, and when they happened: what a window must know of rows that it cannot read.

A lever that sheds rows returns one `DroppedRows` per batch (`Lever.dropped_rows`). The counts are exact. Spans of event
time say which window the rows belong to; without spans only the batch is known.

>>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
>>> spans = (DroppedSpan(noon, noon + timedelta(minutes=1), offered=10, kept=4, unsampled=3),)
>>> batch = DroppedRows(offered=10, kept=4, unsampled=3, largest_weight=2.0, spans=spans)
>>> batch.dropped, batch.within(noon, noon + timedelta(hours=1))
(6, (6, 6, 3, 3))
>>> batch.within(noon + timedelta(seconds=30), noon + timedelta(hours=1))  # the window cuts the span
(0, 6, 0, 3)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta  # noqa: F401 - UTC and timedelta are used in the example


@dataclass(frozen=True)
class DroppedSpan:
    """Row counts of a batch in `from_time <= t < to_time`."""

    from_time: datetime
    to_time: datetime
    offered: int
    kept: int
    unsampled: int
    """Rows of regions of which no row is kept: no weight stands for them."""


@dataclass(frozen=True)
class DroppedRows:
    """What a lever did to the rows of one batch."""

    offered: int
    kept: int
    unsampled: int = 0
    """Of the dropped rows, those of regions of which no row is kept: no weight stands for them."""
    largest_weight: float = 1.0
    """The largest weight that a kept row may have where rows were dropped."""
    spans: tuple[DroppedSpan, ...] | None = None
    """The counts by event time; None: not recorded."""
    least_kept: float = math.inf
    """Fewest rows kept of a region of which some were dropped and some kept; 0: not known. Rows of a region repel one
    another in the sample, since a fixed number is kept: pairs within a small region are rarer in it than by chance."""
    kept_aside: bool = False
    """Whether dropped rows are stored at the source, and are given back to whoever reads the batch."""

    @property
    def dropped(self) -> int:
        """The number of rows that went."""
        return self.offered - self.kept

    def within(self, begin: datetime, end: datetime) -> tuple[int, int, int, int]:
        """Return the least and the most rows dropped between two moments, and the same of unsampled rows."""
        least = most = unsampled_least = unsampled_most = 0
        for span in self.spans or ():
            if span.to_time <= begin or end <= span.from_time:
                continue
            most += span.offered - span.kept
            unsampled_most += span.unsampled
            if begin <= span.from_time and span.to_time <= end:
                least += span.offered - span.kept
                unsampled_least += span.unsampled
        return least, most, unsampled_least, unsampled_most
