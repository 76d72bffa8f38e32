"""One window's turn: what is known goes in, what is to be compared comes out, and what that came to is learned.

Everything a join does between reading rows and writing tables, so that the pipeline, a test and the evidence run the
very same steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from spillway.levers.joins.allotting import LEFT, RIGHT, Allotment, Given, allotted
from spillway.levers.joins.correlation import expected, faded, ranks
from spillway.levers.joins.deciding import JoinDecision, SideBounds
from spillway.levers.joins.memory import LearnedSide, Memory
from spillway.levers.joins.missed import ENOUGH_ROWS, ComparedRows, Missed, Unsampled, dispersion, estimate
from spillway.levers.joins.predicates import PREDICATES
from spillway.levers.joins.rate import followed
from spillway.levers.joins.settings import JoinSettings

Counts = Mapping[str, int]


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

    @cached_property
    def allotment(self) -> Allotment:
        """What is compared with what."""
        return allotted(self.left, self.right, self.settings, self.memory, self.worth, self.seconds)

    @property
    def rows(self) -> int:
        """Rows that came in the window, of both sides."""
        return sum(one.high - one.low for one in (self.left, self.right))

    @property
    def decision(self) -> JoinDecision:
        """What tasks apply."""
        r = self.allotment.r
        return JoinDecision(
            self.allotment,
            PREDICATES[self.settings.predicate],
            self.settings.threshold or 0.0,
            self.worth,
            1.0 if r >= 1.0 else self.settings.adapt.sample_pct / 100.0 * r,
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
        after = [self._learned(side, counts) for side in (LEFT, RIGHT)]
        missed = self._missed(LEFT, after, counts) + self._missed(RIGHT, after, counts)
        curves = [expected(one.matches, one.comparisons) for one in after]
        worth = np.asarray(self.worth)
        steps = sum(counts.get(f"steps.{side}", 0) for side in (LEFT, RIGHT))
        utility = sum(
            count * max(worth[int(z)], worth[int(y)])
            for name, count in counts.items()
            if name.startswith("worth.")
            for _, z, y in [name.split(".")]
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
            "utility": float(utility),
            "missed": missed.estimate,
            "missed_low": missed.low,
            "missed_high": min(missed.high, float(self.allotment.possible - counts.get("compared", 0))),
            "sampled": sum(int(one.how.full.sum()) for one in facing),
            "r": self.allotment.r,
            **{f"{name}_shares": facing[at].shares.tolist() for at, name in enumerate(("left", "right"))},
            **{f"{name}_ranks": ranks(curves[at]).tolist() for at, name in enumerate(("left", "right"))},
            **{f"{name}_curve": curves[at].tolist() for at, name in enumerate(("left", "right"))},
        }
        row["missed"] = min(row["missed"], row["missed_high"])
        row["missed_low"] = min(row["missed_low"], row["missed"])
        return {**row, **self._memory(after, steps, counts).row()}

    def _memory(self, after: Sequence[LearnedSide], steps: int, counts: Counts) -> Memory:
        """What the next window begins with."""
        before, keep = self.memory, self.settings.adapt.memory
        facing = self.allotment.facing
        arrived = sum(len(one.fetched) for one in facing)
        fetched = sum(int(one.fetched.sum()) for one in facing)
        counted = self.settings.adapt.rate == "counted"
        may_spend = self.allotment.may_spend
        owed = before.debt_steps + steps - may_spend if counted and np.isfinite(may_spend) else 0.0
        return Memory(
            self.allotment.r if counted else followed(before.r, fetched, arrived, self.settings.adapt.boost),
            # what was saved is not kept: time that has passed cannot be spent
            max(0.0, owed),
            self.allotment.free_at,
            before.core_seconds * keep + counts.get("nanoseconds", 0) / 1e9,
            before.core_steps * keep + steps,
            after[LEFT],
            after[RIGHT],
        )

    def _learned(self, side: int, counts: Counts) -> LearnedSide:
        """What is known of a window once this one's sample is counted in."""
        before = (self.memory.left, self.memory.right)[side]
        one, keep = self.allotment.facing[side], self.settings.adapt.memory
        worth = np.asarray(self.worth)
        matches, utility = np.zeros(one.volumes.shape[0]), np.zeros(len(worth))
        for name, count in counts.items():
            if name.startswith(f"sampled.{side}."):
                j, z, y = map(int, name.split(".")[2:])
                matches[j] += count
                utility[z] += count * max(worth[z], worth[y])
        return LearnedSide(
            faded(before.matches, matches, keep),
            faded(before.comparisons, one.sample_volumes.sum(axis=1), keep),
            faded(before.worth, utility, keep),
            faded(before.of_type, one.sample_volumes.sum(axis=0), keep),
            # where everything is compared nothing is missed, which tells nothing of when it is not
            before.sample.faded(keep)
            + (self._sample(side, counts) if self.allotment.r < 1.0 else ComparedRows()),
        )

    def _missed(self, side: int, after: Sequence[LearnedSide], counts: Counts) -> Missed:
        one = self.allotment.facing[side]
        sampled, has = one.how.full, one.how.high > one.how.low
        whole = one.how.high - one.how.low
        selective, dropped = one.fetched & ~sampled & has, ~one.fetched & has
        others = Unsampled(
            float(selective.sum()),
            float(dropped.sum()),
            float((whole - one.how.take)[selective].sum()),
            float(whole[dropped].sum()),
        )
        sample = self._sample(side, counts)
        if self.allotment.r >= 1.0 and not others.dropped:
            return Missed(0.0, 0.0, 0.0)
        if sample.rows < ENOUGH_ROWS:
            sample = after[side].sample
        phi = max(dispersion(sample), dispersion(after[side].sample))
        found = estimate(sample, others, phi)
        most = float(one.possible)
        return Missed(found.estimate, found.low, min(found.high, most))

    def _sample(self, side: int, counts: Counts) -> ComparedRows:
        """What the rows of the sample tell of one side."""
        one = self.allotment.facing[side]
        full, whole = one.how.full, one.how.high - one.how.low
        names = ("misses", "squares", "all", "all_squares")
        misses, squares, pairs, pair_squares = (float(counts.get(f"{name}.{side}", 0)) for name in names)
        rows, left_out = float((full & (whole > 0)).sum()), float((whole - one.how.take)[full].sum())
        return ComparedRows(rows, misses, squares, pairs, pair_squares, left_out, float(whole[full].sum()))
