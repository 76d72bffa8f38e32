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
- Of all sets with the same cycle and about as few members over time (a ticker outlives the prices it had) the
  smallest, of these that of least bits, then the first in the contract; confidence does not choose among them.
- A cycle that its own held-back tuples do not confirm (`confirm`) is none. One that is doubted is not taken either:
  an attribute of it follows from a sender's name that it does not itself determine (`identity`), it is nothing but
  a clock beside such a name, or the measures go by that name and not by it.

The search is bounded by counts, so that it ends, and ends alike, everywhere: at most `MOST_COMBINATIONS` combinations
are looked at, on their first `GLANCED_ROWS` tuples; only what seems to follow an order there is looked at again, and
at most `MOST_TESTED` of these are traced in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, islice
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from spillway.levers.attributes.cycle.coded import CodedSet, Set
from spillway.levers.attributes.cycle.codes import (
    Codes,
    comes_evenly,
    joint_codes,
    mean_step,
    usual_return,
    value_codes,
)
from spillway.levers.attributes.cycle.doubts import MOVING, Doubts, held_back, moves_in_order
from spillway.levers.attributes.cycle.ring import same_successor_share
from spillway.levers.attributes.cycle.robust import (
    DEFAULT_CONFIDENCE,
    NO_ORDER,
    Trace,
    is_unique_in_cycle,
    trace_cycle,
    worth_sorting,
)

SCREENED_ROWS = 20_000
GLANCED_ROWS = 2_048
MOST_COMBINATIONS = 1_500
MOST_TESTED = 100
"""Of the combinations that pass the glance, how many are traced in full."""
MOST_GROWN = 300
"""Attributes that are held against what is found so far, in all rounds together, to see whether its cycle grows."""
MOST_MEASURES = 16
"""How many measures vote, and on how many tuples."""
MEASURED_ROWS = 50_000
SAME_MEMBERS = 1.1
"""Sets with about the same members are told apart by their size first."""
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
class Search(CodedSet):
    """One training set under search; what was tested is remembered."""

    confidence: float = DEFAULT_CONFIDENCE
    tested: dict[Set, Candidate] = field(default_factory=dict)

    @cached_property
    def doubts(self) -> Doubts:
        """What speaks against a candidate that comes round."""
        return Doubts(self, self.votes, lambda chosen: self.test(chosen).accepted)

    def doubt(self, candidate: Candidate) -> str | None:
        """The sender's name that speaks against it; None: none does."""
        return self.doubts.of(candidate.attributes)

    # -- one set ---------------------------------------------------------------------------------------

    def test(self, attributes: Iterable[str]) -> Candidate:
        """Whether these attributes together run through one cycle."""
        chosen: Set = tuple(sorted(attributes, key=self.names.index))
        if chosen not in self.tested:
            self.tested[chosen] = self._test(chosen)
        return self.tested[chosen]

    def _test(self, chosen: Set) -> Candidate:
        if all(name in self.periods for name in chosen):
            length = lcm(*(self.periods[name] for name in chosen))
            # a joint cycle that never ended once is not laid out: nobody has met most of its members
            if length <= self.rows and is_unique_in_cycle(self.codes, self.periods, chosen):
                return Candidate(chosen, True, "strict", length, length, 1.0)
        codes = self.joint(chosen)
        trace = trace_cycle(codes, confidence=self.confidence)
        if trace.accepted:
            later = held_back(codes, trace, self.confidence)
            if not later.confirmed:
                share, reason = later.share, "is not confirmed by the last quarter of the tuples"
            else:
                share = min(moves_in_order(codes, trace, self.codes[name]) for name in chosen)
                reason = "" if share >= MOVING else NO_ORDER
            if reason:
                trace = replace(trace, accepted=False, confidence=min(share, trace.confidence), reason=reason)
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
        alone = [self.test([name]) for name in self.names if self.may_repeat(name)]
        sure = [candidate for candidate in alone if candidate.accepted and not self.doubt(candidate)]
        if not sure:
            sure = self._combinations()
        if not sure:
            return None
        best = self._grow(self._start(sure), sure)
        found = self._smallest(best, sure)
        return None if self.doubt(found) else found

    def not_unique(self) -> Candidate | None:
        """a,b,a,c has period 4 (A5): with nothing better, a strict cycle whose values are not unique."""
        repeating = [
            name
            for name, period in self.periods.items()
            if self.distinct(name) < period <= 1000
            and np.mean(self.codes[name][1:] == self.codes[name][:-1]) < 0.5
        ]
        for chosen in sorted(repeating, key=lambda name: (-self.periods[name], self.width((name,)))):
            length, members = self.periods[chosen], int(self.codes[chosen].max()) + 1
            found = Candidate((chosen,), True, "strict", length, members, 1.0, "not unique")
            if not self.doubt(found):
                return found
        return None

    def best_guess(self) -> Candidate | None:
        """What the error names: no property of the sender; with the confidence of all tuples, none screened out."""
        tried = sorted(self.tested.values(), key=lambda c: (-c.confidence, len(c.attributes)))
        closest = [candidate.attributes for candidate in tried if candidate.confidence > 0]
        chosen = self.doubts.likeliest_name(closest)
        if chosen is None:
            return None
        known = self.test(chosen)
        whole = 0.0
        if known.reason == NO_ORDER:
            # screening stops at the first doubt; the error owes the user the whole count
            whole = trace_cycle(self.joint(chosen), forced=True).confidence
        reason = known.reason or "is a clock, or a property of what sends"
        return replace(known, confidence=max(known.confidence, whole), reason=reason)

    def _start(self, sure: Sequence[Candidate]) -> Candidate:
        """The longest; but one that cannot be joined with the others gives way to what measures follow."""
        ranked = sorted(sure, key=lambda c: (-round(c.length), *self.preference(c)))
        start = ranked[0]
        for other in ranked[1:]:
            if not self._rivals(start, other):
                continue
            judged = (*other.attributes, *start.attributes)
            vote = self._closeness(self.joint(other.attributes), self.joint(start.attributes), judged)
            if vote < 0 or (vote == 0 and self.is_clock(start.attributes[0])):
                start = other
        return start

    def _rivals(self, one: Candidate, other: Candidate) -> bool:
        both = self.test({*one.attributes, *other.attributes})
        # one that the other determines is no rival: their joint cycle is one of the two
        return not both.accepted and other.length > 2

    def _combinations(self) -> list[Candidate]:
        rows = min(SCREENED_ROWS, self.rows)
        few = [name for name in self.names if self.may_repeat(name) and self.distinct(name) <= rows / 4]
        # what comes evenly may be part of a key, what does not hardly: where not all can be tried, these come first
        few.sort(key=lambda name: not comes_evenly(self.codes[name]))
        left, tests = MOST_COMBINATIONS, MOST_TESTED
        for size in (2, 3):
            found = []
            for chosen in islice(combinations(few, size), left):
                left -= 1
                if not self.seems_ordered(chosen):
                    continue
                tests -= 1
                candidate = self.test(chosen)
                if candidate.accepted and not self.doubt(candidate):
                    found.append(candidate)
                if not tests:
                    return found
            if found:
                return found
        return []

    def seems_ordered(self, chosen: Set) -> bool:
        """Whether the first tuples leave it open that these follow an order: a glance, then a longer look."""
        whole = self.rows
        for rows in (min(GLANCED_ROWS, whole), min(SCREENED_ROWS, whole)):
            head = joint_codes([self.codes[name][:rows] for name in chosen])
            head = head[head >= 0]
            values = int(head.max(initial=0)) + 1
            if len(head) < 2 or np.mean(head[1:] == head[:-1]) > 1 - self.confidence:
                return False
            if 2 * values > rows:
                # a cycle longer than the glance shows in the longer look only
                continue
            if same_successor_share(head, values) < worth_sorting(self.confidence):
                return False
        return 2 * values <= rows

    def _grow(self, best: Candidate, sure: Sequence[Candidate]) -> Candidate:
        """Add what makes the joint cycle longer, shortest step first, clocks left out."""
        first = {name for candidate in sure for name in candidate.attributes}
        refused: set[str] = set()
        looks = 0
        while True:
            steps = []
            for name in self.names:
                looks += 1
                if looks > MOST_GROWN:
                    continue
                if name in best.attributes or name in refused or not self.may_repeat(name):
                    continue
                if self.distinct(name) > len(self.codes[name]) / 4:
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
        sets = (chosen for size in range(1, len(best.attributes) + 1) for chosen in combinations(pool, size))
        for chosen in islice(sets, MOST_TESTED):
            candidate = self.test(chosen)
            if candidate.accepted and abs(candidate.length - best.length) <= 0.02 * best.length:
                options.append(candidate)
        fewest = min(option.members for option in options)
        lasting = [option for option in options if option.members <= SAME_MEMBERS * fewest]
        return min(lasting, key=lambda option: (len(option.attributes), *self.preference(option)))

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
        return not (tied is not None or self.is_clock(name))

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

    @cached_property
    def _measures(self) -> dict[str, npt.NDArray[np.float64]]:
        """What may vote: numbers that do not come round themselves, nor only tell the time."""
        found = [
            name
            for name in self.names
            if self.is_quantity(name)
            and name not in self.periods
            and not self.tells_time(name)
            and not self.test([name]).accepted
        ]
        return {
            name: np.asarray(self.columns[name])[:MEASURED_ROWS].astype(np.float64)
            for name in found[:MOST_MEASURES]
        }

    def votes(self, short: Codes, long: Codes, judged: Set, rows: int = MEASURED_ROWS) -> tuple[int, int]:
        """How many measures are clearly closer to the previous tuple of the longer key, how many of the shorter."""
        longer = shorter = 0
        for name, values in self._measures.items():
            if name in judged:
                continue
            one, other = mean_step(values[:rows], short[:rows]), mean_step(values[:rows], long[:rows])
            if one is None or other is None or max(one, other) == 0:
                continue
            longer += other < (1 - CLEARLY) * one
            shorter += one < (1 - CLEARLY) * other
        return longer, shorter

    def _closeness(self, short: Codes, long: Codes, judged: Set) -> int:
        longer, shorter = self.votes(short, long, judged)
        return longer - shorter
