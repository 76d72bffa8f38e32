"""Coverage of a source time window: what every source produced in it, and how much of that a query has used.

In a window a tuple of source s carries (eq. 3.2)

    sic = 1 / (|T_s| |S|)

T_s: what s *produced* in the window, S: the sources. So every source weighs the same, every tuple of a source weighs
the same, and a query that used everything has 1. The text's Figure 3.7 leaves the |S| out (a perfect result is then
worth 3, D3); we never do.

What was produced is known at the source, or from numbers that the source gave its tuples (`sequence`); where there are
none it is what arrived, and the answer says so (`relative`). A source that produced nothing has nothing to lose: it
counts as whole.

>>> tally = WindowTally((SourceTally("a", produced=2, kept=2), SourceTally("b", 4, 3), SourceTally("c", 3, 3)))
>>> round(tally.sic * 3, 6), tally.relative
(2.75, False)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceTally:
    """What became of a source's tuples in one window."""

    source: str
    produced: int
    kept: int
    relative: bool = False
    """Whether `produced` is only what arrived."""

    @property
    def kept_share(self) -> float:
        """Of what was produced, the share that was used; 1 of nothing."""
        return self.kept / self.produced if self.produced else 1.0


@dataclass(frozen=True)
class WindowTally:
    """All sources of a query in one window."""

    sources: tuple[SourceTally, ...]

    @property
    def sic(self) -> float:
        """The query's coverage: the sum of what its tuples carry (eq. 4.1)."""
        return sum(one.kept_share for one in self.sources) / len(self.sources)

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
        return 1.0 / (found.produced * len(self.sources)) if found.produced else 0.0
