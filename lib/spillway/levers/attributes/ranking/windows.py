"""Windows that follow the cycle (sections 3.2.1, 3.2.1.2).

A window is one or more whole cycles. Counting tuples would let one gap shift every later window, so edges follow the
*wrap*: the tuple with which the cycle starts again. Windows cut a *stretch* of `seq` (a frame, or the part of it that
is at hand) and never leave it:

    nominal edge i = low + i W,  W = m x cycle length,  m = the fewest whole cycles of `tuples_at_least`
    edge i         = the first wrap of its window, nominal edge i <= wrap < nominal edge i + W;
                     nominal edge i itself where the cycle does not turn in it

So how many windows a stretch has is known without reading it (`window_count`), and an edge is found by looking near it.
An edge at which the window before it, or all that follows it, would hold fewer than `tuples_at_least` tuples is none:
its window is empty, and those tuples belong to the window before. This is where silent members, tuples refused at the
door and cycles that come faster than they were trained are made up for.

Guarantee: windows follow each other without gap or overlap from `low` to `high`, and each holds `tuples_at_least`
tuples or none at all, unless the whole stretch holds fewer.

>>> import numpy as np
>>> positions = np.array([0, 1, 2] * 4 + [0, 2] + [0, 1, 2] * 4)      # one gap
>>> window_edges(np.arange(26), positions, 3, low=0, high=25, window=6, tuples_at_least=6).tolist()
[0, 6, 12, 20, 26]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spillway.errors import Refused
from spillway.levers.attributes.cycle.codes import Codes


def window_tuples(cycle_length: int, tuples_at_least: int = 64) -> int:
    """W: the fewest whole cycles that hold `tuples_at_least` tuples.

    >>> window_tuples(3), window_tuples(75)
    (66, 75)
    """
    if cycle_length < 1:
        raise Refused("cycle_length", "be positive", cycle_length, "train the cycle again")
    if tuples_at_least < 1:
        raise Refused("tuples_at_least", "be positive", tuples_at_least, "the default is 64")
    return -(-tuples_at_least // cycle_length) * cycle_length


def window_count(low: int, high: int, window: int) -> int:
    """How many windows (W) a stretch is cut into: the last one takes what is over, up to half a window.

    >>> window_count(0, 149, 66), window_count(0, 97, 66), window_count(0, 98, 66), window_count(0, 10, 66)
    (2, 1, 2, 1)
    """
    return max(1, (high - low + 1 + window // 2) // window)


def window_edges(
    seq: npt.NDArray[np.int64],
    positions: Codes,
    ring: int,
    *,
    low: int,
    high: int,
    window: int,
    tuples_at_least: int,
) -> npt.NDArray[np.int64]:
    """The `seq` at which the windows of the stretch `low..high` start, and its end: window i is edges i to i + 1.

    `seq` and `positions` are those of the tuples that the stretch holds, `positions` their places in the cycle's ring
    of `ring` places (`Cycle.positions`, `Cycle.ring`). A window whose edge is the next one's is empty.
    """
    nominal = low + window * np.arange(1, window_count(low, high, window), dtype=np.int64)
    turns = np.append(seq[wraps(positions, ring)], np.iinfo(np.int64).max)
    first = turns[np.searchsorted(turns, nominal)]
    wanted = np.where(first < nominal + window, first, nominal)
    # where the stretch ends before a whole window has passed, the cycle may still have been about to turn
    wanted = np.where((first > high) & (nominal + window > high), high + 1, wanted)
    before = np.searchsorted(seq, wanted)
    edges = [low]
    since = 0
    for edge, row in zip(wanted.tolist(), before.tolist(), strict=True):
        far = row - since >= tuples_at_least and len(seq) - row >= tuples_at_least
        edges.append(edge if far else -1)
        since = row if far else since
    edges.append(high + 1)
    for at in range(len(edges) - 2, 0, -1):
        if edges[at] < 0:
            edges[at] = edges[at + 1]
    return np.array(edges, dtype=np.int64)


def wraps(positions: Codes, ring: int) -> npt.NDArray[np.bool_]:
    """The rows where a new cycle starts: the place in the ring of `ring` members falls, and not by a swap.

    Strangers (-1) open no cycle and do not part their neighbours. A lone member opens one with every tuple.
    """
    opens = np.zeros(len(positions), dtype=np.bool_)
    solid = np.flatnonzero(positions >= 0)
    if ring == 1:
        opens[solid[1:]] = True
        return opens
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


@dataclass(frozen=True)
class TimeWindow:
    """A window stated in seconds (section 3.2.1.2): size = duration x line rate, so that it follows the rate.

    >>> TimeWindow(3.0, 25.0).tuples, TimeWindow(3.0, 50.0).tuples
    (75, 150)
    """

    duration_seconds: float
    tuples_per_second: float

    def __post_init__(self) -> None:
        for name in ("duration_seconds", "tuples_per_second"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise Refused(name, "be positive and finite", value, "measure it again")

    @property
    def tuples(self) -> int:
        """Tuples the window holds."""
        return round(self.duration_seconds * self.tuples_per_second)
