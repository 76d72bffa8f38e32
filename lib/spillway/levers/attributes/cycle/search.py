"""Search for the attributes of the cycle identifier, in the strict and the robust form.

Ahuja (2006) groups replicated attributes by period and takes the shortest attribute of each group. The search has the
same goal, with these safeguards:

- An attribute identifies alone if its values are unique within its cycle. The search starts from the attribute with the
  longest cycle, and adds others as long as the joint cycle gets longer (periods 3 and 4: 12). If no attribute
  identifies alone, the search starts from the smallest combination that does.
- An attribute that changes only when a faster cycle wraps may be part of the key (the site of a sensor) or a clock (the
  hour of a station round); both have the same pattern. It is a key if it varies among tuples of one instant, or if the
  other attributes are closer to the previous tuple of the longer key. It is a clock if they are closer to that of the
  shorter key, or if it changes with the order attribute. Without any evidence it is kept, as Ahuja does.
- Among sets with the same cycle and about the fewest members over time (a ticker outlives its prices), the smallest set
  wins, then the one with the fewest bits, then the first in the contract. Confidence does not choose among them.
- A cycle that the held-back tuples do not confirm is rejected. So is a cycle that is doubted because of a sender's name
  that it does not determine: one of its attributes follows from that name, it consists of clocks only, or the measures
  follow the name and not the cycle (both in `validation`).

The search is limited by counts, not by time. So it always ends, with the same result on every machine. At most
`MOST_COMBINATIONS` combinations are screened on their first `GLANCED_ROWS` tuples. Those that seem to follow an order
are screened on `SCREENED_ROWS`, and at most `MOST_TESTED` of these are traced on all rows.
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

from spillway.levers.attributes.cycle.codes import (
    Codes,
    comes_evenly,
    joint_codes,
    mean_step,
    usual_return,
    value_codes,
)
from spillway.levers.attributes.cycle.ring import same_successor_share
from spillway.levers.attributes.cycle.trace import (
    DEFAULT_CONFIDENCE,
    NO_ORDER,
    Trace,
    is_unique_in_cycle,
    trace_cycle,
    worth_sorting,
)
from spillway.levers.attributes.cycle.training_set import CodedTrainingSet, Set
from spillway.levers.attributes.cycle.validation import (
    MOVING,
    Doubts,
    confirm_on_held_back_rows,
    share_in_order,
)

SCREENED_ROWS = 20_000
GLANCED_ROWS = 2_048
MOST_COMBINATIONS = 1_500
MOST_TESTED = 100
"""Largest number of combinations that are traced on all rows after the screening."""
MOST_GROWN = 300
"""Largest number of attributes that are tried, in all rounds together, to extend the cycle found so far."""
MOST_MEASURES = 16
"""Largest number of measures that vote; `MEASURED_ROWS` is the number of tuples they vote on."""
MEASURED_ROWS = 50_000
SAME_MEMBERS = 1.1
"""Sets with up to this ratio of members to the fewest count as equal; among them the size of the set decides."""
LONGER = 1.5
CLEARLY = 0.05


@dataclass(frozen=True)
class Candidate:
    """A set of attributes, its cycle, and the confidence in it."""

    attributes: Set
    accepted: bool
    form: str
    length: float
    members: int
    confidence: float
    reason: str = ""
    trace: Trace | None = None


@dataclass
class Search(CodedTrainingSet):
    """The search in one training set; tested candidates are cached."""

    confidence: float = DEFAULT_CONFIDENCE
    tested: dict[Set, Candidate] = field(default_factory=dict)

    @cached_property
    def doubts(self) -> Doubts:
        """Return the doubts about candidates of this training set."""
        return Doubts(self, self.votes, lambda chosen: self.test(chosen).accepted)

    def doubtful_name(self, candidate: Candidate) -> str | None:
        """Return the sender's name that makes the candidate doubtful; None if there is none."""
        return self.doubts.doubtful_name(candidate.attributes)

    # -- one set ---------------------------------------------------------------------------------------

    def test(self, attributes: Iterable[str]) -> Candidate:
        """Test whether these attributes together run through one cycle."""
        chosen: Set = tuple(sorted(attributes, key=self.names.index))
        if chosen not in self.tested:
            self.tested[chosen] = self._test(chosen)
        return self.tested[chosen]

    def _test(self, chosen: Set) -> Candidate:
        if all(name in self.periods for name in chosen):
            length = lcm(*(self.periods[name] for name in chosen))
            # a joint cycle longer than the training set is no strict cycle: most of its members were never seen
            if length <= self.rows and is_unique_in_cycle(self.codes, self.periods, chosen):
                return Candidate(chosen, True, "strict", length, length, 1.0)
        codes = self.joint(chosen)
        trace = trace_cycle(codes, confidence=self.confidence)
        if trace.accepted:
            later = confirm_on_held_back_rows(codes, trace, self.confidence)
            if not later.confirmed:
                share, reason = later.share, "is not confirmed by the last quarter of the tuples"
            else:
                share = min(share_in_order(codes, trace, self.codes[name]) for name in chosen)
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
        """Return the cycle identifier, or None."""
        alone = [self.test([name]) for name in self.names if self.may_repeat(name)]
        sure = [candidate for candidate in alone if candidate.accepted and not self.doubtful_name(candidate)]
        if not sure:
            sure = self._combinations()
        if not sure:
            return None
        best = self._grow(self._start(sure), sure)
        found = self._smallest(best, sure)
        return None if self.doubtful_name(found) else found

    def not_unique(self) -> Candidate | None:
        """Return a strict cycle whose values are not unique, as a last choice: a,b,a,c has period 4 (A5)."""
        repeating = [
            name
            for name, period in self.periods.items()
            if self.distinct(name) < period <= 1000
            and np.mean(self.codes[name][1:] == self.codes[name][:-1]) < 0.5
        ]
        for chosen in sorted(repeating, key=lambda name: (-self.periods[name], self.width((name,)))):
            length, members = self.periods[chosen], int(self.codes[chosen].max()) + 1
            found = Candidate((chosen,), True, "strict", length, members, 1.0, "not unique")
            if not self.doubtful_name(found):
                return found
        return None

    def best_guess(self) -> Candidate | None:
        """Return the candidate that an error message names, with its confidence over all tuples; no property of a
        sender."""
        tried = sorted(self.tested.values(), key=lambda c: (-c.confidence, len(c.attributes)))
        closest = [candidate.attributes for candidate in tried if candidate.confidence > 0]
        chosen = self.doubts.likeliest_name(closest)
        if chosen is None:
            return None
        known = self.test(chosen)
        whole = 0.0
        if known.reason == NO_ORDER:
            # screening stops early; the error message needs the confidence over all tuples
            whole = trace_cycle(self.joint(chosen), forced=True).confidence
        reason = known.reason or "is a clock, or a property of what sends"
        return replace(known, confidence=max(known.confidence, whole), reason=reason)

    def _start(self, sure: Sequence[Candidate]) -> Candidate:
        """Return the candidate with the longest cycle; if it cannot be joined with another, the measures decide."""
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
        # if one determines the other, they are no rivals: their joint cycle is one of the two
        return not both.accepted and other.length > 2

    def _combinations(self) -> list[Candidate]:
        rows = min(SCREENED_ROWS, self.rows)
        few = [name for name in self.names if self.may_repeat(name) and self.distinct(name) <= rows / 4]
        # equally frequent values are more likely part of a key: they come first, as not all sets can be tried
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
                if candidate.accepted and not self.doubtful_name(candidate):
                    found.append(candidate)
                if not tests:
                    return found
            if found:
                return found
        return []

    def seems_ordered(self, chosen: Set) -> bool:
        """Return whether these attributes may follow an order, by the first `GLANCED_ROWS`, then `SCREENED_ROWS`
        tuples."""
        whole = self.rows
        for rows in (min(GLANCED_ROWS, whole), min(SCREENED_ROWS, whole)):
            head = joint_codes([self.codes[name][:rows] for name in chosen])
            head = head[head >= 0]
            values = int(head.max(initial=0)) + 1
            if len(head) < 2 or np.mean(head[1:] == head[:-1]) > 1 - self.confidence:
                return False
            if 2 * values > rows:
                # a cycle longer than the first screening shows only in the second
                continue
            if same_successor_share(head, values) < worth_sorting(self.confidence):
                return False
        return 2 * values <= rows

    def _grow(self, best: Candidate, sure: Sequence[Candidate]) -> Candidate:
        """Add attributes that make the joint cycle longer, the smallest increase first, without clocks."""
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
        """Return whether the attribute changes only at one place of the inner cycle."""
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
        """Return the share of instants with several values of the attribute, among instants with several tuples."""
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
        """Return the numeric attributes that vote: those outside every cycle that do not only state the time."""
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
        """Return how many measures are clearly closer to the previous tuple of the longer key, and of the shorter."""
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
