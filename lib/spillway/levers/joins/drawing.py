"""Comparisons that chance draws one by one: what is said of what was missed rests on them.

Every comparison that the full join makes is drawn with the same probability q, independently of all others (a Bernoulli
sample), by skipping: the gap to the next one is geometric,

    gap = floor(log(u) / log(1 - q)),    u in (0, 1] uniform by the probing row's seq and a seed,

so that it costs what is drawn, and depends on nothing but the row: whoever draws gets the same. Because the draws are
independent whatever the streams are like, what is found of them is binomial: see `missed`. The paper compares some rows
with everything, gamma of them, and a row's matches come together (a popular item, one heavy row in hundreds); to learn
from, what is looked at does as well and takes less (`looking`).

With an index the entries of the lists that a row looks up are drawn instead, so that rows that share nothing cost
nothing. A pair of rows that share k items has k entries; the one of the first item they share stands for it, so each
pair is drawn with q all the same.

>>> low, high = np.zeros(1000, np.int64), np.full(1000, 500)
>>> some = drawn_comparisons(low, high, np.arange(1000), 0.01, 7)
>>> bool(abs(some.many - 5000) < 4 * 5000**0.5), int(some.rows.max()) < 500
(True, True)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from spillway.levers.joins.operands import Array, ItemSets
from spillway.sketches.mixing import mix64

_FAR = float(2**62)
"""Further than any window reaches."""
_SALT, _STEP = np.uint64(0xD1B54A32D192ED03), np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Drawn:
    """The rows of its window that each probing row is compared with by chance: those of row k at `first[k]..`."""

    first: Array
    rows: Array
    read: int = 0
    """Entries of lists that were read to draw them."""

    @property
    def many(self) -> int:
        """How many comparisons."""
        return len(self.rows)

    def cut(self, low: int, high: int, begin: int) -> Drawn:
        """Those of some probing rows, of a window that begins at row `begin`."""
        span = slice(self.first[low], self.first[high])
        return Drawn(self.first[low : high + 1] - self.first[low], self.rows[span] - begin)


def nothing_drawn(rows: int) -> Drawn:
    """Of so many probing rows."""
    return Drawn(np.zeros(rows + 1, np.int64), np.zeros(0, np.int64))


def drawn_comparisons(low: Array, high: Array, seq: Array, chance: float, seed: int) -> Drawn:
    """Of all comparisons of each row with its window, `low..high - 1`."""
    if chance <= 0:
        return nothing_drawn(len(low))
    return Drawn(*_comparisons(low, high, seq.astype(np.uint64), float(chance), np.uint64(seed)))


def drawn_entries(
    probes: ItemSets,
    window: ItemSets,
    index_rows: Array,
    stretches: tuple[Array, Array],
    seq: Array,
    chance: float,
    seed: int,
) -> Drawn:
    """Of all entries that each row's lists have within its window; `stretches` says where, by item of a probing row."""
    if chance <= 0:
        return nothing_drawn(len(seq))
    return Drawn(
        *_entries(
            probes.first, probes.items, window.first, window.items, index_rows, *stretches, seq.astype(np.uint64),
            float(chance), np.uint64(seed),
        )
    )  # fmt: skip


@njit(cache=True)
def _begun(seq: np.uint64, seed: np.uint64) -> np.uint64:
    return mix64(seq + np.uint64(1), mix64(seed, _SALT))


@njit(cache=True)
def _gap(state: np.uint64, scale: float) -> int:
    """How many are passed over before the next one that is drawn; scale = 1 / log(1 - q)."""
    u = float((mix64(state, _SALT) >> np.uint64(11)) + np.uint64(1)) / 9007199254740992.0
    return int(min(np.log(u) * scale, _FAR))


@njit(cache=True)
def _scale(chance: float) -> float:
    return 1.0 / np.log1p(-chance) if chance < 1 else 0.0


@njit(cache=True)
def _larger(rows: Array) -> Array:
    found = np.empty(2 * len(rows), np.int64)
    found[: len(rows)] = rows
    return found


@njit(cache=True)
def _comparisons(low, high, seq, chance, seed):  # type: ignore[no-untyped-def]
    scale = _scale(chance)
    first, rows, many = np.zeros(len(low) + 1, np.int64), np.empty(1024, np.int64), 0
    for k in range(len(low)):
        state, there = _begun(seq[k], seed), high[k] - low[k]
        place = _gap(state, scale)
        while place < there:
            if many == len(rows):
                rows = _larger(rows)
            rows[many] = high[k] - 1 - place
            many += 1
            state += _STEP
            place += 1 + _gap(state, scale)
        first[k + 1] = many
    return first, rows[:many].copy()


@njit(cache=True)
def _entries(p_first, p_items, o_first, o_items, ix_rows, begins, ends, seq, chance, seed):  # type: ignore[no-untyped-def]
    scale = _scale(chance)
    first, rows, many, read = np.zeros(len(seq) + 1, np.int64), np.empty(1024, np.int64), 0, 0
    for k in range(len(seq)):
        there = 0
        for at in range(p_first[k], p_first[k + 1]):
            there += ends[at] - begins[at]
        state = _begun(seq[k], seed)
        place = _gap(state, scale)
        at, before = p_first[k], 0
        while place < there:
            while place >= before + ends[at] - begins[at]:
                before += ends[at] - begins[at]
                at += 1
            row = ix_rows[begins[at] + place - before]
            read += 1
            # the entry stands for the pair where no earlier item of the probing row is in the other
            if _is_first(p_items[p_first[k] : at], o_items[o_first[row] : o_first[row + 1]]):
                if many == len(rows):
                    rows = _larger(rows)
                rows[many] = row
                many += 1
            state += _STEP
            place += 1 + _gap(state, scale)
        first[k + 1] = many
    return first, rows[:many].copy(), read


@njit(cache=True)
def _is_first(earlier: Array, other: Array) -> bool:
    i, j = 0, 0
    while i < len(earlier) and j < len(other):
        if earlier[i] == other[j]:
            return False
        if earlier[i] < other[j]:
            i += 1
        else:
            j += 1
    return True
