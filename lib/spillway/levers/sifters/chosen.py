"""The filter that a batch has, and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.levers.sifters.filter import SifterFilter
from spillway.levers.sifters.learn import LearnedRegions
from spillway.levers.sifters.throttle import Configured


@dataclass(frozen=True)
class ChosenFilter:
    """The filter of one batch, and why."""

    built_for: int
    """The batch that it was built for, which is its number; 0: it keeps everything."""
    filter: SifterFilter | None
    regions: LearnedRegions | None
    scheme: str
    share: float
    """Of the rows there is room for, as the filter was configured (z)."""
    measured: float
    """The same, as measured of this batch."""
    reason: str
    counts: np.ndarray
    """By region, the sample that frequencies are from."""
    outcome: Configured | None = None
    reused: bool = False

    @property
    def kept(self) -> float:
        """The share of the rows that it keeps, as planned."""
        return 1.0 if self.outcome is None else self.outcome.kept
