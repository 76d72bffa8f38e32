"""Split a range of `seq` into windows that follow the cycle (Ahuja 2006, sections 3.2.1 and 3.2.1.2).

A window is one or more whole cycles. If windows counted tuples, one gap would shift every later window. So edges follow
the *wrap*: the tuple with which the cycle starts again. Windows split a range of `seq` (a frame, or a slice of it) and
never cross its ends:

    nominal edge i = low + i W,  W = m x cycle length,  m = the fewest whole cycles of `tuples_at_least`
    edge i         = the first wrap of its window, nominal edge i <= wrap < nominal edge i + W;
                     nominal edge i itself if the cycle does not wrap in that window

So the number of windows of a range is known without reading it (`window_count`), and an edge is found from the rows
near it. An edge is dropped if the window before it, or all rows after it, would have fewer than `tuples_at_least`
tuples. Its window is then empty, and its tuples belong to the window before. This compensates for silent members,
rejected tuples, and cycles that are shorter than trained.

Guarantee: windows follow each other without gap or overlap from `low` to `high`. Each has at least `tuples_at_least`
tuples or none, unless the whole range has fewer.

>>> import numpy as np
>>> positions = np.array([0, 1, 2] * 4 + [0, 2] + [0, 1, 2] * 4)      # one gap
>>> window_edges(np.arange(26), positions, 3, low=0, high=25, window=6, tuples_at_least=6).tolist()
[0, 6, 12, 20, 26]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spillway.errors import InvalidValue
from spillway.levers.attributes.cycle.codes import Codes


def window_tuples(cycle_length: int, tuples_at_least: int = 64) -> int:
    """Return W, the tuples of the fewest whole cycles with at least `tuples_at_least` tuples.

    >>> window_tuples(3), window_tuples(75)
    (66, 75)
    """
    if cycle_length < 1:
        raise InvalidValue("cycle_length", "be positive", cycle_length, "train the cycle again")
    if tuples_at_least < 1:
        raise InvalidValue("tuples_at_least", "be positive", tuples_at_least, "the default is 64")
    return -(-tuples_at_least // cycle_length) * cycle_length


def window_count(low: int, high: int, window: int) -> int:
    """Return the number of windows (of W tuples) in a range; the last may be up to half a window longer or shorter.

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
    """Return the `seq` at which the windows of the range `low..high` start, and its end; window i is edges i to i + 1.

    `seq` has the tuples of the range, and `positions` their places in the cycle's ring of `ring` places
    (`Cycle.positions`, `Cycle.ring`). A window whose edge equals the next edge is empty.
    """
    nominal = low + window * np.arange(1, window_count(low, high, window), dtype=np.int64)
    turns = np.append(seq[wraps(positions, ring)], np.iinfo(np.int64).max)
    first = turns[np.searchsorted(turns, nominal)]
    wanted = np.where(first < nominal + window, first, nominal)
    # if the range ends before a whole window has passed, the cycle may wrap only after its end
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
    """Return the rows where a new cycle starts: the place in the ring of `ring` members falls, and not by a swap.

    Rows without a place (-1) start no cycle and are skipped. With a single member, every tuple starts a cycle.
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
    """Return the wraps of a long ring.

    A wrap falls by more than half the ring, a swap by a few places. A swap across the wrap falls, rises and falls.
    """
    step = np.diff(p)
    fall = 2 * step < -ring
    fall[:-1] &= ~(2 * step[1:] > ring)
    return fall


def _short_falls(p: Codes) -> npt.NDArray[np.bool_]:
    """Return the wraps of a short ring, where a swap may fall by half the ring.

    Four places are a swap if they fit better with the middle two exchanged (0 2 1 3).
    """
    fall = p[1:] < p[:-1]
    if len(p) >= 4:
        a, x, y, b = p[:-3], p[1:-2], p[2:-1], p[3:]
        as_is = _fits(a, x) + _fits(x, y) + _fits(y, b)
        exchanged = _fits(a, y) + _fits(y, x) + _fits(x, b)
        swapped = (exchanged >= 2) & (exchanged > as_is)
        # a fall to 0 remains the wrap, unless the step before it, now first of the pair, is a fall already
        fall[1:-1] &= ~(swapped & (y < x) & ((y > 0) | (x < a)))
        # the wrap came one tuple early: it belongs after the tuple that it overtook
        early = swapped & (x == 0) & (y > 0)
        fall[:-2] &= ~early
        fall[1:-1] |= early
        fall[2:] &= ~early
    return fall


def _fits(u: Codes, v: Codes) -> npt.NDArray[np.int64]:
    return ((v == u + 1) | ((v == 0) & (u > 0))).astype(np.int64)


@dataclass(frozen=True)
class TimeWindow:
    """A window in seconds (Ahuja 2006, section 3.2.1.2): size = duration x line rate, so that it follows the rate.

    >>> TimeWindow(3.0, 25.0).tuples, TimeWindow(3.0, 50.0).tuples
    (75, 150)
    """

    duration_seconds: float
    tuples_per_second: float

    def __post_init__(self) -> None:
        for name in ("duration_seconds", "tuples_per_second"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise InvalidValue(name, "be positive and finite", value, "measure it again")

    @property
    def tuples(self) -> int:
        """Return the number of tuples of the window."""
        return round(self.duration_seconds * self.tuples_per_second)
