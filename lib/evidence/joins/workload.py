"""Generate the paper's workload (6.1): sets of about five items, Zipf popularity, rotating ranks, one delayed stream.

    items          [1..L], L = 100, sets of N(5, 1) items; single values of [1..5000]
    popularity     Zipf(kappa) by rank; at time T the most popular item is a = 1 + floor(L (T mod s) / s), then
                   a + 1
    delay          the second stream's ranks are those of T - tau

Read literally, tau = 5/8 s with s = 2 w puts the peak of matches at 1.25 w, outside the window (erratum C10), so the
peak is stated: `peak` of 0.625 w, and a second run at 0.75 w.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spillway.levers.joins.operands import ItemSets, Operand

Numbers = npt.NDArray[Any]
MICROS = 1_000_000
PAPERS_RATES = ((60.0, 100.0), (15.0, 500.0), (30.0, 300.0), (15.0, 100.0))
"""Figure 8: pairs of seconds and rows per second."""


@dataclass(frozen=True)
class PaperStreams:
    """The parameters of both streams."""

    kappa: float = 0.8
    items: int = 100
    mean_items: float = 5.0
    window_seconds: float = 20.0
    peak: float = 0.625
    """The position of the matches, in windows: tau = peak w."""
    rates: tuple[tuple[float, float], ...] = PAPERS_RATES
    moves_at: float | None = None
    moved_peak: float = 0.2
    types: int = 1
    type_shares: tuple[float, ...] = (1.0,)

    @property
    def seconds(self) -> float:
        """The length of the streams in seconds."""
        return sum(seconds for seconds, _ in self.rates)

    def both(self, seed: int) -> tuple[Operand, Operand]:
        """Return the two streams; another seed gives other streams."""
        return self._one(seed, 0), self._one(seed, 1)

    def _one(self, seed: int, which: int) -> Operand:
        chance = np.random.default_rng([seed, which])
        at, begin = [], 0.0
        for seconds, rate in self.rates:
            count = chance.poisson(rate * seconds)
            at.append(begin + np.sort(chance.random(count)) * seconds)
            begin += seconds
        times = np.concatenate(at)
        delay = np.zeros(len(times))
        if which:
            delay += self.peak * self.window_seconds
            if self.moves_at is not None:
                delay[times >= self.moves_at] = self.moved_peak * self.window_seconds
        sets = self._items(chance, times - delay)
        kinds = chance.choice(self.types, len(times), p=self.type_shares).astype(np.int64)
        return Operand(
            np.round(times * MICROS).astype(np.int64), np.arange(len(times), dtype=np.int64), sets, kinds
        )

    def _items(self, chance: np.random.Generator, moments: Numbers) -> ItemSets:
        """Return the items of every row, by their popularity at its moment."""
        cycle = 2 * self.window_seconds
        shares = np.arange(1, self.items + 1) ** -self.kappa
        shares /= shares.sum()
        first = np.floor(self.items * np.mod(moments, cycle) / cycle).astype(np.int64)
        if self.mean_items == 1:
            items = (first + chance.choice(self.items, len(moments), p=shares)) % self.items
            ends = np.arange(len(moments) + 1, dtype=np.int64)
            return ItemSets(ends, items.astype(np.int64), np.ones(len(items)))
        sizes = np.clip(np.round(chance.normal(self.mean_items, 1.0, len(moments))), 1, self.items).astype(
            np.int64
        )
        most = int(sizes.max(initial=1))
        # the first items of a random order in which popular items come early: a sample without repeats
        ranks = np.empty((len(moments), most), np.int64)
        for low in range(0, len(moments), 20_000):
            rows = min(20_000, len(moments) - low)
            keys = chance.exponential(1.0, (rows, self.items)) / shares
            ranks[low : low + rows] = np.argpartition(keys, most - 1, axis=1)[:, :most]
            order = np.argsort(np.take_along_axis(keys, ranks[low : low + rows], 1), axis=1)
            ranks[low : low + rows] = np.take_along_axis(ranks[low : low + rows], order, 1)
        mine = np.arange(most)[None, :] < sizes[:, None]
        items = np.sort(np.where(mine, (ranks + first[:, None]) % self.items, self.items), axis=1)
        return ItemSets(
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            items[items < self.items].astype(np.int64),
            np.ones(int(sizes.sum())),
        )


def constant_rate(rate: float, seconds: float) -> tuple[tuple[float, float], ...]:
    """Return one constant rate."""
    return ((seconds, rate),)
