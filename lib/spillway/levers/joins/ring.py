"""Basic windows: a window of w seconds as n = 1 + ceil(w / b) stretches of b seconds, the newest partly full (5.1).

They lie on multiples of b, so a row never moves from one to another; the whole ring slides by one when time passes such
a multiple. Rows in the order of time lie in it one stretch after the other, so the ring is where stretches begin
(`slot_starts`), and a row's basic window j (0 the newest) is `slot - j`. Its oldest basic window is partly expired: a
row is in the window of another as long as

    T(probe) - w <= T(row), and it is before the probe (equal times: left before right).

So every pair is looked for exactly once, by the later of the two.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.levers.joins.operands import Array, Operand


def basic_windows(seconds: float, basic_seconds: float) -> int:
    """n = 1 + ceil(w / b), of the whole microseconds that both are measured by.

    >>> basic_windows(20, 1), basic_windows(1.5, 1), basic_windows(1, 1 / 3)
    (21, 3, 5)
    """
    micros, basic = round(seconds * 1_000_000), max(1, round(basic_seconds * 1_000_000))
    return 1 - (-micros // basic)


def slots_of(at: Array, basic_micros: int) -> Array:
    """The basic window that each moment lies in, counted from 1970."""
    return np.floor_divide(at, basic_micros)


def slot_starts(at: Array, basic_micros: int, first_slot: int, slots: int) -> Array:
    """Where each of so many basic windows begins among rows in the order of time, and where the last ends."""
    edges = (first_slot + np.arange(slots + 1, dtype=np.int64)) * basic_micros
    return np.searchsorted(at, edges, side="left").astype(np.int64)


def drawn_together(mine: Array, window: Array, n: int) -> tuple[Array, Array]:
    """The slots of both sides numbered anew, so that a stretch without rows counts for n + 1 basic windows at most.

    What is further apart than n was never in one window, and is not then; all else keeps its distance.

    >>> drawn_together(np.array([5, 9_000_000]), np.array([3, 4, 9_000_000]), 10)
    (array([ 2, 13]), array([ 0,  1, 13]))
    """
    there, places = np.unique(np.concatenate([mine, window]), return_inverse=True)
    gaps = np.minimum(np.diff(there, prepend=there[:1]), n + 1)
    found = np.cumsum(gaps)[places]
    return found[: len(mine)], found[len(mine) :]


def reach_of(probe: Operand, other: Operand, micros: int, probe_is_left: bool) -> tuple[Array, Array]:
    """By probing row, the rows of the other side in its window: `low..high - 1`."""
    low = np.searchsorted(other.at, probe.at - micros, side="left")
    high = np.searchsorted(other.at, probe.at, side="left" if probe_is_left else "right")
    return low.astype(np.int64), np.maximum(high, low).astype(np.int64)


@njit(cache=True)
def volumes(
    low: Array, high: Array, slots: Array, kinds: Array, starts: Array, first_slot: int, n: int, types: int
) -> Array:
    """Rows there are to compare with, by basic window and type of the probing row; one probing row after the other."""
    found = np.zeros((n, types), np.int64)
    last = len(starts) - 2
    for k in range(len(low)):
        if low[k] >= high[k]:
            continue
        for j in range(n):
            s = slots[k] - j - first_slot
            if s < 0 or s > last:
                continue
            begin, end = max(low[k], starts[s]), min(high[k], starts[s + 1])
            if end > begin:
                found[j, kinds[k]] += end - begin
    return found


@njit(cache=True)
def newest_taken(  # type: ignore[no-untyped-def]
    low, high, slot, take, order, starts, first_slot, taken
) -> None:
    """Of one probing row: how many rows of each basic window are considered, `take` in all, in `taken`.

    Basic windows are gone through in `order`; of the last one that is needed, the newest rows.
    """
    left, last = min(take, high - low), len(starts) - 2
    taken[:] = 0
    for at in range(len(order)):
        if left <= 0:
            break
        j = order[at]
        s = slot - j - first_slot
        if s < 0 or s > last:
            continue
        there = min(high, starts[s + 1]) - max(low, starts[s])
        if there > 0:
            taken[j] = min(there, left)
            left -= taken[j]


@njit(cache=True)
def taken_whole(  # type: ignore[no-untyped-def]
    wanted, draws, low, high, slots, order, starts, first_slot
):
    """By probing row how many rows `newest_taken` should take, so that no basic window is taken in part.

    Basic windows are gone through in `order` until `wanted` is reached; the last one is taken with the chance that
    makes it as many on average: where its draw, in [0, 1), is below the part of it that is wanted.
    """
    found, last = np.zeros(len(wanted), np.int64), len(starts) - 2
    for k in range(len(wanted)):
        if wanted[k] >= high[k] - low[k]:
            found[k] = high[k] - low[k]
            continue
        for at in range(len(order)):
            s = slots[k] - order[at] - first_slot
            if s < 0 or s > last:
                continue
            there = min(high[k], starts[s + 1]) - max(low[k], starts[s])
            if there <= 0:
                continue
            left = wanted[k] - found[k]
            if left >= there or draws[k] * there < left:
                found[k] += there
            if left <= there:
                break
    return found
