"""Counts of rows that a lever dropped from a batch, by event time, for windows that cannot read these rows.

A lever that sheds rows returns one `DroppedRows` per batch (`Lever.dropped_rows`). The counts are exact. Spans of event
time show to which window the rows belong. Without spans only the batch is known.

>>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
>>> spans = (DroppedSpan(noon, noon + timedelta(minutes=1), offered=10, kept=4, unsampled=3),)
>>> batch = DroppedRows(offered=10, kept=4, unsampled=3, largest_weight=2.0, spans=spans)
>>> batch.dropped_count, batch.count_range(noon, noon + timedelta(hours=1))
(6, (6, 6, 3, 3))
>>> batch.count_range(noon + timedelta(seconds=30), noon + timedelta(hours=1))  # the window cuts the span
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
    """Rows of regions from which no row is kept. No weight represents these rows."""


@dataclass(frozen=True)
class DroppedRows:
    """Counts of the rows of one batch, before and after a lever."""

    offered: int
    kept: int
    unsampled: int = 0
    """Dropped rows of regions from which no row is kept. No weight represents these rows."""
    largest_weight: float = 1.0
    """The largest weight that a kept row may have."""
    spans: tuple[DroppedSpan, ...] | None = None
    """The counts by event time; None: not recorded."""
    least_kept: float = math.inf
    """The smallest number of rows kept of a partly dropped region; 0: not known. A fixed number of rows
    of each region is kept, so that pairs within a small region are rarer than in an independent sample.
    """
    kept_aside: bool = False
    """Whether dropped rows are stored at the source and recovered when the batch is read."""

    @property
    def dropped_count(self) -> int:
        """Return the number of dropped rows."""
        return self.offered - self.kept

    def count_range(self, begin: datetime, end: datetime) -> tuple[int, int, int, int]:
        """Return the smallest and largest possible number of rows dropped between two moments, then those of
        unsampled rows.
        """
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
