"""Which attributes make the cycle identifier: the search over candidates, strict and robust alike.

The text groups replicated attributes by period and takes the shortest of each group. That is kept as the
goal and made safe:

- An attribute identifies on its own when its values are unique within its cycle. The search starts from
  the one with the longest cycle and adds others while the joint cycle gets longer (periods 3 and 4: 12).
  When no attribute identifies alone, the smallest combination that does is the start.
- An attribute that only moves on when a faster cycle wraps may be part of the key (site, under sensor) or
  a clock (hour, above station); their shape is the same. What decides: it varies among tuples of one
  instant (key); the other attributes are closer to the previous tuple of the longer key (key) or of the
  shorter one (clock); it moves with the order attribute (clock). With no evidence at all it is kept, as
  the text does.
- Of all sets with the same cycle the one with the fewest members over time (a ticker outlives the prices
  it had), fewest attributes, least bits and first in the contract stands for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import inf, lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from spillway.levers.attributes.cycle.clock import epoch_seconds, is_clock, mean_step, usual_return
from spillway.levers.attributes.cycle.robust import MOST_VALUES, Trace, trace_cycle
from spillway.levers.attributes.cycle.strict import is_unique_in_cycle, replicated_period
from spillway.levers.attributes.cycle.value_codes import Codes, joint_codes, value_codes

Set = tuple[str, ...]
SCREENED_ROWS = 20_000
LONGER = 1.5
CLEARLY = 0.05


@dataclass(frozen=True)
class Candidate:
    """A set of attributes, the cycle it makes, and how sure that is."""

    attributes: Set
    accepted: bool
    form: str
    length: float
    members: int
    confidence: float
    reason: str = ""
    trace: Trace | None = None


@dataclass
class Search:
    """One training set under search; what was tested is remembered."""

    columns: Mapping[str, npt.NDArray[Any]]
    names: Sequence[str]
    bits: Mapping[str, int]
    order: npt.NDArray[Any] | None
    confidence: float
    codes: dict[str, Codes] = field(default_factory=dict)
    values: dict[str, list[Any]] = field(default_factory=dict)
    periods: dict[str, int] = field(default_factory=dict)
    tested: dict[Set, Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.names:
            codes, values = value_codes(self.columns[name])
            missing = codes < 0
            if missing.mean() > 0.1:
                # so many nulls are a value of their own: a sub-sensor that most sites do not have
                codes = np.where(missing, len(values), codes)
                values = [*values, None]
            self.codes[name], self.values[name] = codes, values
            period = replicated_period(codes) if not (codes < 0).any() else None
            if period is not None:
                self.periods[name] = period

    # -- one set ---------------------------------------------------------------------------------------

    def joint(self, attributes: Set) -> Codes:
        return joint_codes([self.codes[name] for name in attributes])

    def test(self, attributes: Iterable[str]) -> Candidate:
        """Whether these attributes together run through one cycle."""
        chosen: Set = tuple(sorted(attributes, key=self.names.index))
        if chosen not in self.tested:
            self.tested[chosen] = self._test(chosen)
        return self.tested[chosen]

    def _test(self, chosen: Set) -> Candidate:
        if all(name in self.periods for name in chosen):
            length = lcm(*(self.periods[name] for name in chosen))
            if is_unique_in_cycle(self.codes, self.periods, chosen):
                return Candidate(chosen, True, "strict", length, length, 1.0)
        trace = trace_cycle(self.joint(chosen), confidence=self.confidence)
        return Candidate(
            chosen,
            trace.accepted,
            "robust",
            trace.mean_length,
            len(trace.order),
            trace.confidence,
            trace.reason,
            trace,
        )

    def width(self, attributes: Set) -> float:
        return sum(self.bits.get(name, inf) for name in attributes)

    def preference(self, candidate: Candidate) -> tuple[Any, ...]:
        chosen = candidate.attributes
        return (
            candidate.members,
            len(chosen),
            self.width(chosen),
            [self.names.index(name) for name in chosen],
        )

    # -- the whole -------------------------------------------------------------------------------------

    def run(self) -> Candidate | None:
        """The cycle identifier, or None."""
        alone = [self.test([name]) for name in self.names if self._may_repeat(name)]
        sure = [candidate for candidate in alone if candidate.accepted]
        if not sure:
            sure = self._combinations()
        if not sure:
            return None
        best = self._grow(self._start(sure), sure)
        return self._smallest(best, sure)

    def _may_repeat(self, name: str) -> bool:
        codes = self.codes[name]
        return 2 <= int(codes.max(initial=-1)) + 1 <= max(MOST_VALUES * len(codes), 2)

    def _start(self, sure: Sequence[Candidate]) -> Candidate:
        """The longest; but one that cannot be joined with the others gives way to what measures follow."""
        ranked = sorted(sure, key=lambda c: (-round(c.length), *self.preference(c)))
        start = ranked[0]
        for other in ranked[1:]:
            if not self._rivals(start, other):
                continue
            judged = (*other.attributes, *start.attributes)
            vote = self._closeness(self.joint(other.attributes), self.joint(start.attributes), judged)
            if vote < 0 or (vote == 0 and self._is_clock(start.attributes[0])):
                start = other
        return start

    def _rivals(self, one: Candidate, other: Candidate) -> bool:
        both = self.test({*one.attributes, *other.attributes})
        # one that the other determines is no rival: their joint cycle is one of the two
        return not both.accepted and other.length > 2

    def _combinations(self) -> list[Candidate]:
        rows = min(SCREENED_ROWS, len(next(iter(self.codes.values()))))
        few = [name for name in self.names if self._may_repeat(name) and self._distinct(name) <= rows / 4]
        for size in (2, 3):
            found = []
            for chosen in combinations(few, size):
                head = joint_codes([self.codes[name][:rows] for name in chosen])
                if np.mean(head[1:] == head[:-1]) > 1 - self.confidence:
                    continue
                if 2 * (int(head.max(initial=0)) + 1) > rows:
                    continue
                candidate = self.test(chosen)
                if candidate.accepted:
                    found.append(candidate)
            if found:
                return found
        return []

    def _distinct(self, name: str) -> int:
        return int(self.codes[name].max(initial=-1)) + 1

    def _grow(self, best: Candidate, sure: Sequence[Candidate]) -> Candidate:
        """Add what makes the joint cycle longer, shortest step first, clocks left out."""
        first = {name for candidate in sure for name in candidate.attributes}
        refused: set[str] = set()
        while True:
            steps = []
            for name in self.names:
                if name in best.attributes or name in refused or not self._may_repeat(name):
                    continue
                if self._distinct(name) > len(self.codes[name]) / 4:
                    continue
                if usual_return(self.joint((*best.attributes, name))) < 1.2 * best.length:
                    continue
                grown = self.test([*best.attributes, name])
                if grown.accepted and grown.length >= LONGER * best.length:
                    steps.append((grown.length, name not in first, grown.members, self.width((name,)), name))
            if not steps:
                return best
            name = min(steps)[-1]
            if self._is_slow(name, best) and not self._is_key_part(name, best):
                refused.add(name)
            else:
                best = self.test([*best.attributes, name])

    def _smallest(self, best: Candidate, sure: Sequence[Candidate]) -> Candidate:
        pool = list(dict.fromkeys([*best.attributes, *(n for c in sure for n in c.attributes)]))
        if len(pool) > 10:
            pool = sorted(pool, key=lambda n: (n not in best.attributes, self.width((n,))))[:10]
        options = [best]
        for size in range(1, len(best.attributes) + 1):
            for chosen in combinations(pool, size):
                candidate = self.test(chosen)
                if candidate.accepted and abs(candidate.length - best.length) <= 0.02 * best.length:
                    options.append(candidate)
        return min(options, key=self.preference)

    # -- key or clock ----------------------------------------------------------------------------------

    def _is_slow(self, name: str, inner: Candidate) -> bool:
        """Whether the attribute moves on at one place of the inner cycle only."""
        ring = self.joint(inner.attributes)
        codes = self.codes[name]
        moved = np.flatnonzero((codes[1:] != codes[:-1]) & (ring[1:] >= 0)) + 1
        if len(moved) == 0 or len(moved) > 1.5 * len(codes) / inner.length:
            return False
        return bool(np.bincount(ring[moved]).max() >= 0.7 * len(moved))

    def _is_key_part(self, name: str, inner: Candidate) -> bool:
        tied = self._share_of_ties_it_varies_in(name)
        if tied is not None and tied > 0.5:
            return True
        short = self.joint(inner.attributes)
        vote = self._closeness(short, joint_codes([short, self.codes[name]]), (name,))
        if vote:
            return vote > 0
        return not (tied is not None or self._is_clock(name))

    def _share_of_ties_it_varies_in(self, name: str) -> float | None:
        """Among instants with several tuples, the share in which the attribute takes several values."""
        if self.order is None:
            return None
        instants = value_codes(self.order)[0]
        together = (instants[1:] == instants[:-1]) & (instants[1:] >= 0)
        if together.mean() < 0.2:
            return None
        varies = together & (self.codes[name][1:] != self.codes[name][:-1])
        several = np.unique(instants[1:][together])
        return len(np.unique(instants[1:][varies])) / len(several)

    def _is_clock(self, name: str) -> bool:
        at = None if self.order is None else epoch_seconds(self.order)
        return at is not None and is_clock(self.codes[name], at)

    def _closeness(self, short: Codes, long: Codes, judged: Set) -> int:
        """Measures closer to the previous tuple of the longer key minus those closer to the shorter's."""
        vote = 0
        for name in self.names:
            column = np.asarray(self.columns[name])
            if (
                name in judged
                or name in self.periods
                or column.dtype.kind not in "fiu"
                or self.test([name]).accepted
            ):
                continue
            values = column.astype(np.float64)
            one, other = mean_step(values, short), mean_step(values, long)
            if one is None or other is None or max(one, other) == 0:
                continue
            if other < (1 - CLEARLY) * one:
                vote += 1
            elif one < (1 - CLEARLY) * other:
                vote -= 1
        return vote
