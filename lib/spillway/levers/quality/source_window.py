"""Source information content (SIC) of a source time window: the tuples that every source produced, and those that were
used.

In a window a tuple of source s carries (Fiscato 2012, eq. 3.2)

    sic = 1 / (|T_s| |S|)

T_s: what s *produced* in the window, S: the sources. So all sources have the same weight, whatever their rates
(Assumption 4), and so have all tuples of a source. A query that used everything has 1. Figure 3.7 of the thesis omits
|S| (a perfect result then has 3); here it is never omitted. If sources have weights, the source's share of all weights
replaces 1 / |S|.

The produced tuples are known from numbers that the source gave them (`sequence`), or from an expected rate. Otherwise
they are the tuples that arrived, were refused, or were dropped by a lever; then the tally is `relative`. A source that
produced nothing counts as fully covered.

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
    """Whether `produced` counts only tuples that arrived, were refused or were dropped."""
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
        """Return the information content by input; the sum is the coverage."""
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
