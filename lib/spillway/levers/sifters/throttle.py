"""The throttler: what share of the rows there is room for, and when the filter in use is left for another (II-E).

    z = min( rows the server takes in / rows offered,  what the channel carries / what the rows take )

A new filter costs nothing to configure, but a filter that stays makes batches comparable and keeps the same rows of the
same regions: it stays while there is room for what it keeps, for no more than a little more (`rebuild.throttle`), and
rows lie where they lay (`rebuild.drift`). Distance between two samples of rows over regions is the total variation,

    distance(f, g) = sum over regions |f - g| / 2

of which about sum sqrt(f (1 - f) (1/n + 1/m) / (2 pi)) is noise between samples of n and m rows.

>>> room = RoomForRows(offered_rows=100.0, row_kbps=0.01, fixed_kbps=0.1, allowed_kbps=0.6, rows_per_second=80.0)
>>> room.share
0.5
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from spillway.levers.sifters.configure import SLACK, configured, least_fairness
from spillway.levers.sifters.consolidate import Worth


@dataclass(frozen=True)
class RoomForRows:
    """What is offered to a stage a second, and what there is room for."""

    offered_rows: float
    row_kbps: float
    """What one row a second takes, as it would be sent."""
    fixed_kbps: float
    allowed_kbps: float
    rows_per_second: float | None = None

    @property
    def rows_share(self) -> float:
        """The share of the rows that the server takes in, whatever they weigh; 1 at most."""
        if self.rows_per_second is None or self.offered_rows <= 0:
            return 1.0
        return max(0.0, min(1.0, self.rows_per_second / self.offered_rows))

    @property
    def share(self) -> float:
        """The share of the rows there is room for (z), 1 at most."""
        whole = self.offered_rows * self.row_kbps
        carried = (self.allowed_kbps - self.fixed_kbps) / whole if whole > 0 else 1.0
        return max(0.0, min(self.rows_share, carried))


@dataclass(frozen=True)
class Configured:
    """Thresholds, what they promise, and what they could not keep to."""

    thresholds: np.ndarray
    kept: float
    """Of all rows (z as it came out)."""
    quality: float
    fairness: float
    short: float = 0.0
    """Of all rows, what is kept beyond what there is room for."""


def configured_for(
    worth: Worth, share: float, must_keep: float, fairness: float, sample_share: float
) -> Configured:
    """The thresholds for a share of all rows, `must_keep` of which no filter touches.

    What cannot be is not refused here, in the middle of a run: as much is dropped as can be and the rest is told, and a
    fairness that would not let it is widened as little as it must be.
    """
    limits = np.minimum(worth.most_dropped, 1.0 - sample_share)
    rest = 1.0 - must_keep
    wanted = (share - must_keep) / rest if rest > 0 else 1.0
    least = 1.0 - float(worth.frequencies @ limits)
    throttle = min(1.0, max(wanted, least, 0.0))
    spare = float(worth.frequencies[~worth.touched] @ limits[~worth.touched])
    needed = least_fairness(
        worth.frequencies[worth.touched], limits[worth.touched], max(0.0, 1.0 - throttle - spare)
    )
    width = min(1.0, max(fairness, math.nextafter(needed or 0.0, 2.0) + SLACK if needed else 0.0))
    thresholds = configured(worth.worths, worth.frequencies, worth.touched, throttle, width, limits)
    kept = must_keep + rest * (1.0 - float(thresholds @ worth.frequencies))
    used = fairness if width <= fairness or needed is None or needed <= fairness else needed
    return Configured(thresholds, kept, worth.overall(thresholds), used, max(0.0, kept - share - 1e-9))


def variation(counts: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """The distance between two samples, by counts per region, and what of it is noise.

    >>> variation(np.array([50, 50]), np.array([90, 10]))[0]
    0.4
    """
    n, m = float(np.sum(counts)), float(np.sum(others))
    if not n or not m:
        return 0.0, 0.0
    f, g = np.asarray(counts) / n, np.asarray(others) / m
    pooled = (np.asarray(counts) + np.asarray(others)) / (n + m)
    noise = float(np.sum(np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m) / (2 * math.pi))))
    return round(float(np.abs(f - g).sum() / 2.0), 12), noise
