"""Source information content (SIC) of a source time window: what every source produced, and how much a query has used.

In a window a tuple of source s carries (Fiscato 2012, eq. 3.2)

    sic = 1 / (|T_s| |S|)

T_s: what s *produced* in the window, S: the sources. So every source weighs the same whatever its rate (Assumption 4),
every tuple of a source weighs the same, and a query that used everything has 1. Figure 3.7 of the thesis leaves the |S|
out (a perfect result is then worth 3); here it is never left out. Where sources have weights, 1 / |S| becomes the
source's share of all weights.

What was produced is known at the source, from numbers that the source gave its tuples (`sequence`), or from an expected
rate. Otherwise it is what arrived, was refused or was dropped by a lever, and the tally says so (`relative`). A source
of which nothing was produced has nothing to lose and counts as whole.

>>> tally = WindowTally((SourceTally("a", produced=2, kept=2), SourceTally("b", 4, 3), SourceTally("c", 3, 3)))
>>> round(tally.sic * 3, 6), tally.relative
(2.75, False)
>>> sensors = (SourceTally("fast", produced=90, kept=90), SourceTally("slow", produced=10, kept=0))
>>> WindowTally(sensors).sic
0.5
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceTally:
    """What became of a source's tuples in one window."""

    source: str
    produced: float
    kept: float
    relative: bool = False
    """Whether `produced` is only what arrived, was refused or was dropped."""
    weight: float = 1.0
    input: str = ""
    """The input that it belongs to; empty: it is one by itself."""

    @property
    def kept_share(self) -> float:
        """Of what was produced, the share that was used; 1 of nothing."""
        return min(1.0, self.kept / self.produced) if self.produced else 1.0


@dataclass(frozen=True)
class WindowTally:
    """All sources of a query in one window."""

    sources: tuple[SourceTally, ...]

    @property
    def sic(self) -> float:
        """The query's coverage: the sum of what its tuples carry (eq. 4.1)."""
        return sum(one.weight * one.kept_share for one in self.sources) / self._weights

    def by_input(self) -> dict[str, float]:
        """By input, what its tuples carry; together they are the coverage."""
        found: dict[str, float] = {}
        for one in self.sources:
            name = one.input or one.source
            found[name] = found.get(name, 0.0) + one.weight * one.kept_share / self._weights
        return found

    @property
    def _weights(self) -> float:
        return sum(one.weight for one in self.sources)

    @property
    def relative(self) -> bool:
        """Whether it is coverage of what arrived rather than of what was produced."""
        return any(one.relative for one in self.sources)

    def tuple_sic(self, source: str) -> float:
        """What one tuple of a source carries.

        >>> WindowTally((SourceTally("a", 2, 2), SourceTally("b", 4, 4))).tuple_sic("b")
        0.125
        """
        (found,) = (one for one in self.sources if one.source == source)
        return found.weight / (found.produced * self._weights) if found.produced else 0.0
