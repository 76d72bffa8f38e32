"""Windows that follow the cycle (sections 3.2.1, 3.2.1.2).

A window is one or more whole cycles. Counting tuples would let one gap shift every later window, so edges
follow the wrap: the row where the cycle starts again. Where it is can be seen from a few rows around it,
hence any edge can be found without what came before:

    nominal edge i = row i W,  W = m x cycle length,  m = the fewest whole cycles of `tuples_at_least`
    raw edge i     = the first wrap at or after nominal edge i
    edge i         = raw edge i, unless raw edge i - 1 is less than `tuples_at_least` rows before it

The last rule (also local) keeps every window but a frame's last at `tuples_at_least` or more.

>>> import numpy as np
>>> positions = np.array([0, 1, 2] * 4 + [0, 2] + [0, 1, 2] * 4)      # one gap
>>> window_edges(positions, 3, tuples_at_least=6).tolist()
[0, 6, 12, 20, 26]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spillway.errors import SpillwayError
from spillway.levers.attributes.cycle.value_codes import Codes

if TYPE_CHECKING:
    from spillway.levers.attributes.cycle.find import Cycle

CONTEXT_ROWS = 16
"""Rows before and after a slice that make its wraps certain (runs of strangers shorter than this)."""


def window_tuples(cycle_length: int, tuples_at_least: int = 64) -> int:
    """W: the fewest whole cycles that hold `tuples_at_least` tuples.

    >>> window_tuples(3), window_tuples(75)
    (66, 75)
    """
    if cycle_length < 1:
        raise SpillwayError(f"`cycle_length` must be positive, got {cycle_length}; train the cycle again")
    if tuples_at_least < 1:
        raise SpillwayError(f"`tuples_at_least` must be positive, got {tuples_at_least}; the default is 64")
    return -(-tuples_at_least // cycle_length) * cycle_length


def wraps(positions: Codes, ring: int) -> npt.NDArray[np.bool_]:
    """The rows where a new cycle starts: the place in the ring of `ring` members falls, and not by a swap.

    Strangers (-1) open no cycle and do not part their neighbours.
    """
    opens = np.zeros(len(positions), dtype=np.bool_)
    solid = np.flatnonzero(positions >= 0)
    if len(solid) > 1:
        places = positions[solid]
        opens[solid[1:]] = _long_falls(places, ring) if ring >= 8 else _short_falls(places)
    return opens


def _long_falls(p: Codes, ring: int) -> npt.NDArray[np.bool_]:
    """A wrap falls by more than half the ring, a swap by a few; one across the wrap falls, rises, falls."""
    step = np.diff(p)
    fall = 2 * step < -ring
    fall[:-1] &= ~(2 * step[1:] > ring)
    return fall


def _short_falls(p: Codes) -> npt.NDArray[np.bool_]:
    """Where half a ring is a swap's reach: four places fit better with the middle two exchanged (0 2 1 3)."""
    fall = p[1:] < p[:-1]
    if len(p) >= 4:
        a, x, y, b = p[:-3], p[1:-2], p[2:-1], p[3:]
        as_is = _fits(a, x) + _fits(x, y) + _fits(y, b)
        exchanged = _fits(a, y) + _fits(y, x) + _fits(x, b)
        swapped = (exchanged >= 2) & (exchanged > as_is)
        # a fall to 0 stays the wrap unless the step before it, now first of the pair, was one already
        fall[1:-1] &= ~(swapped & (y < x) & ((y > 0) | (x < a)))
        # the wrap came a tuple early: it belongs behind the one that was overtaken
        early = swapped & (x == 0) & (y > 0)
        fall[:-2] &= ~early
        fall[1:-1] |= early
        fall[2:] &= ~early
    return fall


def _fits(u: Codes, v: Codes) -> npt.NDArray[np.int64]:
    return ((v == u + 1) | ((v == 0) & (u > 0))).astype(np.int64)


def _ring_and_window(cycle: Cycle | int, tuples_at_least: int, at_seq: int | None) -> tuple[int, int]:
    if isinstance(cycle, int):
        return cycle, window_tuples(cycle, tuples_at_least)
    length = cycle.length if at_seq is None else cycle.length_at(at_seq)
    # where values repeat within a cycle, places are 0 (starts it) and 1 (does not)
    ring = len(cycle.members) if cycle.unique else 2
    return ring, window_tuples(length, tuples_at_least)


def edge_near(
    positions: Codes,
    start_row: int,
    edge: int,
    cycle: Cycle | int,
    tuples_at_least: int = 64,
    *,
    at_seq: int | None = None,
) -> int | None:
    """Edge `edge` of a frame, from a slice of its places that starts at row `start_row` of the frame.

    The slice should reach from `CONTEXT_ROWS` before nominal edge `edge` - 1 to `CONTEXT_ROWS` after the
    wrap that follows nominal edge `edge`. None when there is no such edge in it.
    """
    if edge <= 0:
        return 0
    ring, window = _ring_and_window(cycle, tuples_at_least, at_seq)
    opened = np.flatnonzero(wraps(positions, ring)) + start_row
    at = int(np.searchsorted(opened, edge * window))
    if at == len(opened):
        return None
    here = int(opened[at])
    before = int(opened[np.searchsorted(opened, (edge - 1) * window)]) if edge > 1 else 0
    return here if here - before >= tuples_at_least else None


def window_edges(
    positions: Codes, cycle: Cycle | int, tuples_at_least: int = 64, *, at_seq: int | None = None
) -> npt.NDArray[np.int64]:
    """The rows where the windows of one frame start, the first 0, and the frame's end as the last entry.

    `positions` are `cycle.positions(...)` of the frame's rows. `at_seq`, the seq of its first row, makes
    the nominal window follow the membership of that time; without it the newest length is used.
    """
    ring, window = _ring_and_window(cycle, tuples_at_least, at_seq)
    n = len(positions)
    if n == 0:
        return np.zeros(1, dtype=np.int64)
    opened = np.flatnonzero(wraps(positions, ring))
    at = np.searchsorted(opened, np.arange(window, n, window))
    raw = np.concatenate([[0], opened[at[at < len(opened)]]]).astype(np.int64)
    far = np.concatenate([[True], np.diff(raw) >= tuples_at_least])
    return np.append(np.unique(raw[far]), n)


@dataclass(frozen=True)
class TimeWindow:
    """A window stated in seconds (section 3.2.1.2): size = duration x line rate.

    >>> window = TimeWindow.of_tuples(75, tuples_per_second=25.0)
    >>> window.duration_seconds, window.at_rate(50.0).duration_seconds, window.at_rate(50.0).tuples
    (3.0, 1.5, 75)
    """

    duration_seconds: float
    tuples_per_second: float

    def __post_init__(self) -> None:
        for name in ("duration_seconds", "tuples_per_second"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise SpillwayError(f"`{name}` must be positive and finite, got {value}; measure it again")

    @classmethod
    def of_tuples(cls, tuples: int, tuples_per_second: float) -> TimeWindow:
        """The time window that holds so many tuples at this line rate."""
        if not (np.isfinite(tuples_per_second) and tuples_per_second > 0):
            raise SpillwayError(
                f"`tuples_per_second` must be positive and finite, got {tuples_per_second}; measure it again"
            )
        return cls(tuples / tuples_per_second, tuples_per_second)

    @property
    def tuples(self) -> int:
        """Tuples the window holds: duration x line rate."""
        return round(self.duration_seconds * self.tuples_per_second)

    def at_rate(self, tuples_per_second: float) -> TimeWindow:
        """Resized for a new line rate, so that it holds the same cycles."""
        return TimeWindow.of_tuples(self.tuples, tuples_per_second)
