"""Compare an adaptive mechanism with simpler contestants, and bound the gain by a block bootstrap.

A contest measures every contestant on the same consecutive blocks of one stream (windows, days or slices of rows). The
gain of the mechanism is

    gain_pct = 100 * (1 - sum of its blocks / sum of the rival's blocks)

of a measure where less is better: bytes, error at capacity, or CPU seconds. Blocks are resampled with replacement
(Kunsch, The jackknife and the bootstrap for general stationary observations, 1989). Both contestants get the same
blocks, so that a costly block is costly for both.

>>> contest = Contest("coder", "weather", "bytes", "ours", {"ours": [90.0] * 8, "zstd": [100.0] * 8})
>>> contest.gain_over("zstd")
Gain(pct=10.0, low=10.0, high=10.0)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evidence.book import Book, Shown

RESAMPLES = 4_000
LEAST_GAIN_PCT = 2.0
"""A mechanism that gains less than this on every stream leaves the default settings."""


@dataclass(frozen=True)
class Gain:
    """The gain in per cent over a rival, with its 95 % interval."""

    pct: float
    low: float
    high: float


@dataclass(frozen=True)
class Contest:
    """The measure of each contestant, block by block, on one stream; `adaptive`: the name of the mechanism."""

    mechanism: str
    stream: str
    measure: str
    adaptive: str
    blocks: Mapping[str, Sequence[float]]

    @property
    def rivals(self) -> list[str]:
        """The other contestants."""
        return [name for name in self.blocks if name != self.adaptive]

    @property
    def best_rival(self) -> str:
        """The rival with the smallest total; the first of equals."""
        return min(self.rivals, key=lambda name: sum(self.blocks[name]))

    def gain_over(self, rival: str) -> Gain:
        """Return the gain over one rival."""
        return bootstrap_gain(self.blocks[self.adaptive], self.blocks[rival])

    @property
    def gain(self) -> Gain:
        """The gain over the best rival."""
        return self.gain_over(self.best_rival)


def bootstrap_gain(adaptive: Sequence[float], rival: Sequence[float], seed: int = 1) -> Gain:
    """Return the gain of `adaptive` over `rival`, measured on the same blocks.

    If both measures are 0, the gain is 0.

    >>> bootstrap_gain([0.0, 0.0], [0.0, 0.0])
    Gain(pct=0.0, low=0.0, high=0.0)
    """
    mine, theirs = np.asarray(adaptive, np.float64), np.asarray(rival, np.float64)
    if len(mine) != len(theirs) or not len(mine):
        raise ValueError(
            f"contestants must be measured on the same blocks, got {len(mine)} and {len(theirs)}"
        )
    drawn = np.random.default_rng(seed).integers(0, len(mine), (RESAMPLES, len(mine)))
    found = _gain_pct(mine[drawn].sum(axis=1), theirs[drawn].sum(axis=1))
    low, high = np.quantile(found, [0.025, 0.975])
    whole = _gain_pct(mine.sum(keepdims=True), theirs.sum(keepdims=True))[0]
    return Gain(*(round(float(one), 6) + 0.0 for one in (whole, low, high)))


def _gain_pct(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return 100 (1 - mine / theirs). If theirs is 0: 0 if both are equal, else -100."""
    ratio = np.divide(mine, theirs, out=np.where(mine > 0, 2.0, 1.0), where=theirs > 0)
    return np.asarray(100.0 * (1.0 - ratio))


def gain_figures(contests: Iterable[Contest]) -> dict[str, float]:
    """Return `adaptive.<mechanism>.gain_pct.<stream>` with `_low` and `_high`, and the gain over every rival."""
    found: dict[str, float] = {}
    for one in contests:
        found |= _named(f"adaptive.{one.mechanism}.gain_pct.{one.stream}", one.gain)
        for rival in one.rivals:
            found |= _named(
                f"adaptive.{one.mechanism}.gain_over_{rival}_pct.{one.stream}", one.gain_over(rival)
            )
    return found


def _named(name: str, gain: Gain) -> dict[str, float]:
    return {name: gain.pct, f"{name}_low": gain.low, f"{name}_high": gain.high}


def below_least_gain(contests: Iterable[Contest], least_pct: float = LEAST_GAIN_PCT) -> dict[str, bool]:
    """Return, by mechanism, whether it gains less than `least_pct` over the best rival on every stream.

    CPU seconds (`<mechanism>_cpu`) are another measure of the same mechanism; a sufficient gain by one measure is
    enough.
    """
    found: dict[str, bool] = {}
    for one in contests:
        mechanism = one.mechanism.removesuffix("_cpu")
        found[mechanism] = found.get(mechanism, True) and one.gain.pct < least_pct
    return found


def tell_contests(book: Book, title: str, contests: Sequence[Contest], notes: Iterable[str] = ()) -> None:
    """Write one table for one mechanism: a row per stream and rival."""
    rows: list[tuple[Shown, ...]] = []
    for one in contests:
        for rival in one.rivals:
            gain = one.gain_over(rival)
            totals = (float(sum(one.blocks[one.adaptive])), float(sum(one.blocks[rival])))
            best = "best rival" if rival == one.best_rival else ""
            rows.append(
                (one.stream, rival, len(one.blocks[rival]), *totals, gain.pct, gain.low, gain.high, best)
            )
    measure = contests[0].measure if contests else ""
    book.table(
        title,
        (
            "stream",
            "rival",
            "blocks",
            f"adaptive: {measure}",
            f"rival: {measure}",
            "gain %",
            "low",
            "high",
            "",
        ),
        rows,
        notes,
    )
