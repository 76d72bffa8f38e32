"""One window's turn: what is known goes in, what is to be compared comes out, and what that came to is learned.

Everything a join does between reading rows and writing tables, so that the pipeline, a test and the evidence run the
very same steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from spillway.levers.joins.allotting import LEFT, RIGHT, Allotment, allotted
from spillway.levers.joins.calibrating import calibrated, compiled
from spillway.levers.joins.changing import moved
from spillway.levers.joins.correlation import expected, faded, ranks
from spillway.levers.joins.deciding import JoinDecision, SideBounds
from spillway.levers.joins.exploring import lumps_of
from spillway.levers.joins.facing import Given
from spillway.levers.joins.memory import LearnedSide, Memory
from spillway.levers.joins.missed import ENOUGH_ROWS, ComparedRows, Missed, Unsampled, dispersion, estimate
from spillway.levers.joins.most_pairs import most_pairs
from spillway.levers.joins.operands import Array
from spillway.levers.joins.predicates import EQUALITY, PREDICATES
from spillway.levers.joins.rate import followed, owed_seconds
from spillway.levers.joins.settings import JoinSettings
from spillway.levers.joins.type_worth import TypePairs

Counts = Mapping[str, int]
CORE_MEMORY = 0.5
"""What is left a window later of how fast a core was: machines change their minds sooner than streams do."""


@dataclass(frozen=True)
class JoinTurn:
    """A window of a join: the rows, the contract, and what was known when it began."""

    settings: JoinSettings
    memory: Memory
    left: Given
    right: Given
    seconds: float
    with_itself: bool = False
    bounds: SideBounds = field(default_factory=SideBounds)

    @property
    def worth(self) -> tuple[float, ...]:
        """Utility by type of row; the last is that of any other."""
        return (*(one.worth for one in self.settings.types), self.settings.otherwise)

    @property
    def allotment(self) -> Allotment:
        """What is compared with what."""
        return self._decided[0]

    @cached_property
    def _decided(self) -> tuple[Allotment, float]:
        """The allotment, and the seconds of a core that it took."""
        compiled()
        began = time.thread_time_ns()
        found = allotted(
            self.left, self.right, self.settings, self.memory, self.worth, self.seconds, calibrated
        )
        return found, (time.thread_time_ns() - began) / 1e9

    @property
    def _sic(self) -> float:
        """Of rows that came, the share of their window that they were compared with, on average."""
        shares = [
            np.where(one.how.full, 1.0, one.how.take / np.maximum(1, one.how.high - one.how.low))[
                one.how.high > one.how.low
            ]
            for one in self.allotment.facing
        ]
        rows = sum(len(one) for one in shares)
        return float(sum(one.sum() for one in shares) / rows) if rows else 1.0

    @property
    def _widest_bound(self) -> float | None:
        """In % of a value that was joined by; None where none has a bound."""
        bounds = [one[one > 0] for one in (self.bounds.left, self.bounds.right) if one is not None]
        return max((float(one.max()) for one in bounds if len(one)), default=None)

    @cached_property
    def _everything(self) -> bool:
        """Whether every row is compared with all of its window."""
        return all(
            bool((one.how.full | (one.how.high <= one.how.low)).all()) for one in self.allotment.facing
        )

    @cached_property
    def _most(self) -> tuple[tuple[Array, Array], float]:
        """By side and probing row, how many pairs it has at most (of equality: exactly), and the seconds of a core."""
        began = time.thread_time_ns()
        predicate, threshold = PREDICATES[self.settings.predicate], self.settings.threshold or 0.0
        left, right = (
            one.equals
            if one.equals is not None and not self.with_itself
            else most_pairs(
                one.probes, one.window, (one.how.low, one.how.high), predicate, threshold, one.probe_is_left,
                self.with_itself,
            )
            for one in self.allotment.facing
        )  # fmt: skip
        return (left, right), (time.thread_time_ns() - began) / 1e9

    @property
    def rows(self) -> int:
        """Rows that came in the window, of both sides."""
        return sum(one.high - one.low for one in (self.left, self.right))

    @property
    def decision(self) -> JoinDecision:
        """What tasks apply."""
        return JoinDecision(
            self.allotment,
            PREDICATES[self.settings.predicate],
            self.settings.threshold or 0.0,
            self.worth,
            self.with_itself,
            self.bounds,
            self.rows,
        )

    @property
    def passed_over(self) -> int:
        """Comparisons of rows that fell out of the input buffer."""
        return sum(int((one.how.high - one.how.low)[~one.fetched].sum()) for one in self.allotment.facing)

    def came_to(self, counts: Counts) -> dict[str, Any]:
        """Columns of `join_windows`: what was done, found and missed, and what is known for the next window."""
        facing = self.allotment.facing
        elsewhere = any(self._moved(side, counts) for side in (LEFT, RIGHT))
        after = [self._learned(side, counts, elsewhere) for side in (LEFT, RIGHT)]
        missed = self._missed(after, counts)
        curves = [expected(one.matches, one.comparisons) for one in after]
        worth = np.asarray(self.worth)
        steps = sum(counts.get(f"steps.{side}", 0) for side in (LEFT, RIGHT))
        utility = sum(
            count * max(worth[int(z)], worth[int(y)])
            for name, count in counts.items()
            if name.startswith("worth.")
            for _, _, z, y in [name.split(".")]
        )
        may_spend = self.allotment.may_spend
        row = {
            "left_rows": self.left.high - self.left.low,
            "right_rows": self.right.high - self.right.low,
            "passed_over": sum(int((~one.fetched).sum()) for one in facing),
            "other_types": sum(int((one.probes.kinds == len(worth) - 1).sum()) for one in facing)
            if self.settings.types
            else 0,
            "possible": self.allotment.possible,
            "compared": counts.get("compared", 0),
            "steps": steps,
            "may_spend": may_spend if np.isfinite(may_spend) else None,
            "pairs": counts.get("pairs", 0),
            "pairs_given_back": counts.get("given_back", 0),
            "bound_pct": self._widest_bound,
            "utility": float(utility),
            "missed": missed.estimate,
            "missed_low": missed.low,
            "missed_high": min(missed.high, float(self.allotment.possible - counts.get("compared", 0))),
            "sic": self._sic,
            "sampled": sum(int(one.how.full.sum()) for one in facing),
            "r": self.allotment.r,
            "moved": elsewhere,
            **{f"{name}_shares": facing[at].compared_shares() for at, name in enumerate(("left", "right"))},
            **{f"{name}_ranks": ranks(curves[at]).tolist() for at, name in enumerate(("left", "right"))},
            **{f"{name}_curve": curves[at].tolist() for at, name in enumerate(("left", "right"))},
        }
        row["missed"] = min(row["missed"], row["missed_high"])
        row["missed_low"] = min(row["missed_low"], row["missed"])
        return {**row, **self._memory(after, steps, counts).row()}

    def _memory(self, after: Sequence[LearnedSide], steps: int, counts: Counts) -> Memory:
        """What the next window begins with."""
        before, facing = self.memory, self.allotment.facing
        arrived = sum(len(one.fetched) for one in facing)
        fetched = sum(int(one.fetched.sum()) for one in facing)
        counted = self.settings.adapt.rate == "counted"
        comparing = counts.get("nanoseconds", 0) / 1e9
        counting = 0.0 if self._everything else self._most[1]
        keep = CORE_MEMORY if steps else 1.0
        core_seconds, core_steps = before.core_seconds * keep + comparing, before.core_steps * keep + steps
        each = core_seconds / core_steps if core_steps else 0.0
        return Memory(
            self.allotment.r if counted else followed(before.r, fetched, arrived, self.settings.adapt.boost),
            self._owed(steps, self._decided[1] + counting + comparing, each) if counted else 0.0,
            self.allotment.free_at,
            core_seconds,
            core_steps,
            after[LEFT],
            after[RIGHT],
        )

    def _owed(self, steps: int, used: float, each: float) -> float:
        """Steps to be saved in the next window; of a share of a core, those that take as long as it was overdrawn."""
        before, budget = self.memory, self.settings.budget
        if budget is None:
            return 0.0
        if budget.core_pct is None:
            return max(0.0, before.debt_steps + steps - self.allotment.may_spend)
        debt = before.debt_steps * (before.core_seconds / before.core_steps if before.core_steps else 0.0)
        return owed_seconds(debt, used, budget.core_pct, self.seconds) / each if each else 0.0

    def _moved(self, side: int, counts: Counts) -> bool:
        """Whether what selecting found of a window says that matches lie elsewhere now."""
        before, one = (self.memory.left, self.memory.right)[side], self.allotment.facing[side]
        if len(before.matches) != len(one.curve) or not before.matches.sum():
            return False
        used = one.selected_volumes().sum(axis=1)
        there = (one.volumes - one.sample_volumes).sum(axis=1)
        of_these = float((used / np.maximum(there, 1)) @ before.matches / before.matches.sum())
        found = float(self._pairs(side, counts)[0].sum() - counts.get(f"all.{side}", 0))
        phi = counts.get(f"selected_squares.{side}", 0) / found if found else 1.0
        lumps = of_these * lumps_of(float(before.matches.sum()), before.squares)
        return moved(found, float(used @ one.curve), phi, lumps)

    def _learned(self, side: int, counts: Counts, elsewhere: bool) -> LearnedSide:
        """What is known of a window once this one is counted in."""
        before = (self.memory.left, self.memory.right)[side]
        one, keep = self.allotment.facing[side], 0.0 if elsewhere else self.settings.adapt.memory
        matches = np.zeros(one.volumes.shape[0])
        for name, count in counts.items():
            if name.startswith(f"sampled.{side}."):
                matches[int(name.split(".")[2])] += count
        return LearnedSide(
            faded(before.matches, matches, keep),
            faded(before.comparisons, one.sample_volumes.sum(axis=1), keep),
            before.squares * keep + counts.get(f"all_squares.{side}", 0),
            before.types.then(self._types(side, counts), keep),
            # where everything is compared nothing is missed, which tells nothing of when it is not
            before.sample.faded(keep)
            + (ComparedRows() if self._everything or self.allotment.r >= 1.0 else self._sample(side, counts)),
        )

    def _pairs(self, side: int, counts: Counts) -> tuple[Array, Array]:
        """Pairs and their utility, by type of the row that probed a window."""
        worth = self.worth
        pairs, utility = np.zeros(len(worth)), np.zeros(len(worth))
        for name, count in counts.items():
            if name.startswith(f"worth.{side}."):
                z, y = map(int, name.split(".")[2:])
                pairs[z] += count
                utility[z] += count * max(worth[z], worth[y])
        return pairs, utility

    def _types(self, side: int, counts: Counts) -> TypePairs:
        """What all rows of this window tell of their types: as many pairs are expected as there were."""
        one, (pairs, utility) = self.allotment.facing[side], self._pairs(side, counts)
        expected = one.curve @ (one.selected_volumes() + one.sample_volumes)
        scale = pairs.sum() / expected.sum() if expected.sum() > 0 else 0.0
        squares = counts.get(f"all_squares.{side}", 0) + counts.get(f"selected_squares.{side}", 0)
        return TypePairs(pairs, expected * scale, utility, float(squares))

    def _missed(self, after: Sequence[LearnedSide], counts: Counts) -> Missed:
        """What was missed: counted where pairs can be, else from the sample, and no more than rows can have."""
        if self._everything:
            return Missed(0.0, 0.0, 0.0)
        if PREDICATES[self.settings.predicate] == EQUALITY:
            there = sum(int(most.sum()) for most in self._most[0])
            return Missed(*[float(there - counts.get("pairs", 0))] * 3)
        return self._missed_of(LEFT, after, counts).beside(self._missed_of(RIGHT, after, counts))

    def _missed_of(self, side: int, after: Sequence[LearnedSide], counts: Counts) -> Missed:
        one, most = self.allotment.facing[side], self._most[0][side]
        out = self._left_out(side)
        selective, dropped = (kept & ~one.how.full & (most > 0) for kept in (one.fetched, ~one.fetched))
        others = Unsampled(
            float(selective.sum()),
            float(dropped.sum()),
            float(out[selective].sum()),
            float(most[dropped].sum()),
        )
        sample = self._sample(side, counts)
        phi = max(dispersion(sample), dispersion(after[side].sample))
        if sample.rows < ENOUGH_ROWS:
            found = estimate(after[side].sample, others, phi).unless(sample, others, phi)
        else:
            found = estimate(sample, others, phi)
        of_others = float(self._pairs(side, counts)[0].sum()) - counts.get(f"all.{side}", 0)
        can = min(others.left_out + others.whole, float(most[~one.how.full].sum()) - of_others)
        return found.at_most(can)

    def _left_out(self, side: int) -> Array:
        """By probing row, the pairs that selecting leaves out of it at most."""
        how = self.allotment.facing[side].how
        return np.minimum(self._most[0][side], how.high - how.low - how.take)

    def _sample(self, side: int, counts: Counts) -> ComparedRows:
        """What the rows of the sample tell of one side: those that can have pairs."""
        one, most = self.allotment.facing[side], self._most[0][side]
        full = one.how.full & (most > 0)
        names = ("misses", "squares", "all", "all_squares")
        misses, squares, pairs, pair_squares = (float(counts.get(f"{name}.{side}", 0)) for name in names)
        rows, left_out = float(full.sum()), float(self._left_out(side)[full].sum())
        return ComparedRows(rows, misses, squares, pairs, pair_squares, left_out, float(most[full].sum()))
