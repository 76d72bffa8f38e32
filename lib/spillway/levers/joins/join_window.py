"""Process one window of a join: take the memory, decide the comparisons, and learn from the results.

It contains everything that a join does between reading rows and writing tables. The pipeline, the tests and the
evidence run the same steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from spillway.levers.joins.budget import LEFT, RIGHT, Allocation, allocate_budget
from spillway.levers.joins.calibration import measure_core_speed, warm_up_kernels
from spillway.levers.joins.controllers import (
    TypePairs,
    adapt_fraction,
    fade_counts,
    match_rates,
    overdrawn_seconds,
    rank_basic_windows,
    relative_match_rates,
)
from spillway.levers.joins.decision import WHOLE_SHARE, JoinDecision, SideBounds, total_and_variance
from spillway.levers.joins.directions import SideRows
from spillway.levers.joins.estimates import (
    MissedPairs,
    equal_pairs,
    estimate_missed_pairs,
    heaviest_value_weight,
    weighted_count_interval,
    weighted_sums,
)
from spillway.levers.joins.exploration import (
    LearnedSide,
    Memory,
    effective_matches,
    has_drifted,
    supporting_matches,
)
from spillway.levers.joins.matching import EQUALITY, PREDICATES
from spillway.levers.joins.operands import Array
from spillway.levers.joins.settings import JoinSettings
from spillway.levers.windows import InputLoss

Counts = Mapping[str, int]
CORE_MEMORY = 0.5
"""Share of the measured core speed that is kept after each window. Machines change faster than streams do."""
REPELS_LITTLE = 10.0
"""With fewer kept rows of a region, no factor can correct the low share of pairs within it in the sample."""


@dataclass(frozen=True)
class LostRows:
    """Lost rows of a side: in the window, and in the windows that it looks back at."""

    window: InputLoss = field(default_factory=InputLoss)
    reached: InputLoss = field(default_factory=InputLoss)

    @property
    def any(self) -> bool:
        """Return whether any row may have been lost."""
        return self.reached.dropped_most > 0 or self.reached.refused > 0

    @property
    def unweighted(self) -> int:
        """Return the largest possible number of lost rows that no weight represents."""
        return self.reached.unsampled_most + math.ceil(self.reached.refused)


@dataclass(frozen=True)
class JoinWindow:
    """A window of a join: its rows, the contract, and the memory when it begins."""

    settings: JoinSettings
    memory: Memory
    left: SideRows
    right: SideRows
    seconds: float
    with_itself: bool = False
    bounds: SideBounds = field(default_factory=SideBounds)
    losses: tuple[LostRows, LostRows] = field(default_factory=lambda: (LostRows(), LostRows()))
    """The lost rows, by side."""
    inexact_rows: int = 0
    """Rows that match nothing, because their join key is not known exactly."""

    @property
    def has_weights(self) -> bool:
        """Return whether rows were lost before the join, so that row weights may exceed 1."""
        return any(loss.any for loss in self.losses) or any(
            one.rows.row_weights is not None for one in (self.left, self.right)
        )

    @cached_property
    def _row_weights(self) -> tuple[Array, Array]:
        """Return the weight of every row, by side."""
        left, right = (
            np.ones(one.rows.rows) if one.rows.row_weights is None else one.rows.row_weights
            for one in (self.left, self.right)
        )
        return left, right

    @property
    def produced_rows(self) -> tuple[float, float]:
        """Return the estimated number of rows produced in the window, by side: sum of weights + unweighted rows."""
        left, right = (
            float(weights[given.low : given.high].sum()) + loss.window.unsampled + loss.window.refused
            for weights, given, loss in zip(
                self._row_weights, (self.left, self.right), self.losses, strict=True
            )
        )
        return left, right

    def _share_weighted(self, side: int) -> float:
        """Return the estimated share of the produced rows of a side that row weights represent."""
        weighted = float(self._row_weights[side].sum())
        reached = self.losses[side].reached
        whole = weighted + reached.unsampled + reached.refused
        return weighted / whole if whole > 0 else 1.0

    @cached_property
    def _masses(self) -> tuple[Array | None, Array | None]:
        """Return the estimated number of produced rows in the probed window, for each window and probing row."""
        if not self.has_weights:
            return None, None
        found = []
        for side, one in enumerate(self.allocation.directions):
            summed = np.concatenate([[0.0], np.cumsum(self._row_weights[side])])
            share = self._share_weighted(side) or 1.0
            found.append((summed[one.how.high] - summed[one.how.low]) / share)
        return found[0], found[1]

    @property
    def worth(self) -> tuple[float, ...]:
        """Return the utility by row type; the last one is that of all other rows."""
        return (*(one.utility for one in self.settings.types), self.settings.otherwise)

    @property
    def allocation(self) -> Allocation:
        """Return the decisions about comparisons."""
        return self._timed_allocation[0]

    @cached_property
    def _timed_allocation(self) -> tuple[Allocation, float]:
        """Return the allotment, and the core seconds that it took."""
        warm_up_kernels()
        began = time.thread_time_ns()
        found = allocate_budget(
            self.left, self.right, self.settings, self.memory, self.worth, self.seconds, measure_core_speed
        )
        return found, (time.thread_time_ns() - began) / 1e9

    def _sic(self, counts: Counts) -> float:
        """Return the source information content (SIC): the mean compared share of the windows of produced rows.

        Rows that were lost before the join count as not compared.
        """
        rows = 0.0
        for side, (one, given) in enumerate(
            zip(self.allocation.directions, (self.right, self.left), strict=True)
        ):  # right rows probe the left window
            weights = self._row_weights[1 - side][given.low : given.high]
            share = self._share_weighted(1 - side) or 1.0
            rows += float(weights[one.how.high > one.how.low].sum()) / share
        if not rows:
            return 0.0 if any(loss.any for loss in self.losses) else 1.0
        return counts.get("shares", 0) / WHOLE_SHARE / rows

    @property
    def _widest_bound(self) -> float | None:
        """Return the largest bound of a joined value in %; None if no value has a bound."""
        bounds = [one[one > 0] for one in (self.bounds.left, self.bounds.right) if one is not None]
        return max((float(one.max()) for one in bounds if len(one)), default=None)

    @cached_property
    def _is_complete(self) -> bool:
        """Return whether every row is compared with all of its window."""
        return all(one.is_complete for one in self.allocation.directions)

    @cached_property
    def _equals(self) -> tuple[int, float]:
        """Return the number of pairs of equal values, and the core seconds that counting took."""
        began = time.thread_time_ns()
        pairs = sum(
            int(one.chains.equals.sum())
            if one.chains is not None and not self.with_itself
            else int(equal_pairs(one.probes, one.window, (one.how.low, one.how.high), self.with_itself).sum())
            for one in self.allocation.directions
        )
        return pairs, (time.thread_time_ns() - began) / 1e9

    @property
    def rows(self) -> int:
        """Return the number of rows of both sides that arrived in the window."""
        return sum(one.high - one.low for one in (self.left, self.right))

    @property
    def decision(self) -> JoinDecision:
        """Return what tasks apply."""
        return JoinDecision(
            self.allocation,
            PREDICATES[self.settings.predicate],
            self.settings.threshold or 0.0,
            self.worth,
            self.with_itself,
            self.bounds,
            sum(self.produced_rows) if self.has_weights else self.rows,
            self._masses,
        )

    @property
    def overflow_comparisons(self) -> int:
        """Return the number of comparisons of rows that overflowed the input buffer.

        Sampled comparisons of these rows are made, so they are not counted.
        """
        return sum(
            int((one.how.high - one.how.low - np.diff(one.drawn.first))[~one.fetched].sum())
            for one in self.allocation.directions
        )

    def result_columns(self, counts: Counts) -> dict[str, Any]:
        """Return columns of `join_windows`: what was done, found and missed, and the memory for the next window."""
        facing = self.allocation.directions
        drifted = any(self._has_drifted(side, counts) for side in (LEFT, RIGHT))
        after = [self._learned(side, counts, drifted) for side in (LEFT, RIGHT)]
        here = self._missed(counts)
        missed = self._missed_of_produced_rows(counts, here)
        before = None if not self.has_weights else self.produced_rows
        curves = [match_rates(one.matches, one.comparisons) for one in after]
        worth = np.asarray(self.worth)
        steps = sum(counts.get(f"steps.{side}", 0) for side in (LEFT, RIGHT))
        steps += sum(one.drawn.read for one in facing)
        utility = sum(
            count * max(worth[int(z)], worth[int(y)])
            for name, count in counts.items()
            if name.startswith("worth.")
            for _, _, z, y in [name.split(".")]
        )
        budget_steps = self.allocation.budget_steps
        row = {
            "left_rows": self.left.high - self.left.low,
            "right_rows": self.right.high - self.right.low,
            "passed_over": sum(int((~one.fetched).sum()) for one in facing),
            "other_types": sum(int((one.probes.kinds == len(worth) - 1).sum()) for one in facing)
            if self.settings.types
            else 0,
            "possible": self.allocation.possible,
            "compared": counts.get("compared", 0),
            "steps": steps,
            "budget_steps": budget_steps if np.isfinite(budget_steps) else None,
            "pairs": counts.get("pairs", 0),
            "inexact_pairs": counts.get("given_back", 0),
            "bound_pct": self._widest_bound,
            "utility": float(utility),
            "missed": missed.estimate,
            "missed_low": missed.low,
            "missed_high": missed.high,
            "missed_here": None if before is None else here.estimate,
            "left_produced": None if before is None else before[LEFT],
            "right_produced": None if before is None else before[RIGHT],
            "unweighted_rows": self._max_unweighted_rows,
            "inexact_rows": self.inexact_rows,
            "sic": self._sic(counts),
            "sampled": counts.get("compared", 0)
            - (0 if self._is_complete else sum(int(one.selected_volumes.sum()) for one in facing)),
            "r": self.allocation.r,
            "drift_detected": drifted,
            **{f"{name}_shares": facing[at].compared_shares() for at, name in enumerate(("left", "right"))},
            **{
                f"{name}_ranks": rank_basic_windows(curves[at]).tolist()
                for at, name in enumerate(("left", "right"))
            },
            **{f"{name}_curve": curves[at].tolist() for at, name in enumerate(("left", "right"))},
        }
        return {**row, **self._memory(after, steps, counts).row()}

    def _memory(self, after: Sequence[LearnedSide], steps: int, counts: Counts) -> Memory:
        """Return the memory that the next window begins with."""
        before, facing = self.memory, self.allocation.directions
        arrived = sum(len(one.fetched) for one in facing)
        fetched = sum(int(one.fetched.sum()) for one in facing)
        counted = self.settings.adapt.rate == "counted"
        comparing = counts.get("nanoseconds", 0) / 1e9
        counting = self._equals[1] if self._can_count_missed else 0.0
        # a window without comparisons takes time too, but does not show what a step takes
        core_seconds, core_steps = before.core_seconds, before.core_steps
        if steps:
            core_seconds, core_steps = (
                core_seconds * CORE_MEMORY + comparing,
                core_steps * CORE_MEMORY + steps,
            )
        each = core_seconds / core_steps if core_steps else 0.0
        return Memory(
            self.allocation.r
            if counted
            else adapt_fraction(before.r, fetched, arrived, self.settings.adapt.boost),
            self._overdrawn_steps(steps, self._timed_allocation[1] + counting + comparing, each)
            if counted
            else 0.0,
            self.allocation.free_at,
            core_seconds,
            core_steps,
            after[LEFT],
            after[RIGHT],
        )

    def _overdrawn_steps(self, steps: int, used: float, each: float) -> float:
        """Return the steps that the next window has to save; for a share of a core, the steps of the overdrawn time."""
        before, budget = self.memory, self.settings.budget
        if budget is None:
            return 0.0
        if budget.core_pct is None:
            return max(0.0, before.debt_steps + steps - self.allocation.budget_steps)
        debt = before.debt_steps * (before.core_seconds / before.core_steps if before.core_steps else 0.0)
        return overdrawn_seconds(debt, used, budget.core_pct, self.seconds) / each if each else 0.0

    def _has_drifted(self, side: int, counts: Counts) -> bool:
        """Return whether drift was detected in a window: selected comparisons found far fewer pairs than expected."""
        before, one = (self.memory.left, self.memory.right)[side], self.allocation.directions[side]
        if len(before.matches) != len(one.curve) or not before.matches.sum():
            return False
        used = (one.selected_volumes * self._relative_match_rates(before)).sum(axis=1)
        found, pairs = float(counts.get(f"selected.{side}", 0)), used * one.curve
        phi = counts.get(f"selected_squares.{side}", 0) / found if found else 1.0
        known = effective_matches(float(before.matches.sum()), before.squares)
        lumps = supporting_matches(pairs, before.comparisons, known)
        return has_drifted(found, float(pairs.sum()), phi, lumps)

    def _learned(self, side: int, counts: Counts, drifted: bool) -> LearnedSide:
        """Return what is known of a window after this turn.

        `drifted`: drift was detected, so earlier counts are dropped.
        """
        before = (self.memory.left, self.memory.right)[side]
        one, keep = self.allocation.directions[side], 0.0 if drifted else self.settings.adapt.memory
        matches = np.zeros(one.volumes.shape[0])
        for name, count in counts.items():
            if name.startswith(f"lag.{side}."):
                matches[int(name.split(".")[2])] += count
        made = (one.expected_comparisons * self._relative_match_rates(before)).sum(axis=1)
        return LearnedSide(
            fade_counts(before.matches, matches, keep),
            fade_counts(before.comparisons, made, keep),
            before.squares * keep + counts.get(f"squares.{side}", 0),
            before.types.merge_later(self._types(side, counts), keep),
            (one.chance, float(counts.get(f"drawn.{side}", 0))),
        )

    def _relative_match_rates(self, known: LearnedSide) -> Array:
        """Return, by type, how often rows match relative to the average row."""
        types = len(self.worth)
        return relative_match_rates(known.types) if len(known.types.pairs) == types else np.ones(types)

    def _pairs(self, side: int, counts: Counts) -> tuple[Array, Array]:
        """Return the pairs and their utility, by type of the row that probed a window."""
        worth = self.worth
        pairs, utility = np.zeros(len(worth)), np.zeros(len(worth))
        for name, count in counts.items():
            if name.startswith(f"worth.{side}."):
                z, y = map(int, name.split(".")[2:])
                pairs[z] += count
                utility[z] += count * max(worth[z], worth[y])
        return pairs, utility

    def _types(self, side: int, counts: Counts) -> TypePairs:
        """Return the counts of this window by type.

        Expected pairs are scaled so that their total is the number of pairs found.
        """
        one, (pairs, utility) = self.allocation.directions[side], self._pairs(side, counts)
        expected = one.curve @ one.expected_comparisons
        scale = pairs.sum() / expected.sum() if expected.sum() > 0 else 0.0
        return TypePairs(pairs, expected * scale, utility, float(counts.get(f"squares.{side}", 0)))

    @property
    def _can_count_missed(self) -> bool:
        """Return whether missed pairs are counted, which is possible for equal values."""
        return PREDICATES[self.settings.predicate] == EQUALITY and not self._is_complete

    @property
    def _max_unweighted_rows(self) -> int:
        """Return the largest possible number of rows lost before the join that no weight represents."""
        return sum(loss.unweighted for loss in (self.losses[:1] if self.with_itself else self.losses))

    def _missed_of_produced_rows(self, counts: Counts, here: MissedPairs) -> MissedPairs:
        """Return the missed pairs of all produced rows; `here`: the missed pairs of rows that arrived.

        If no weight represents lost rows, the upper end counts every pair that they could be in.
        """
        if not self.has_weights:
            return here if not self.inexact_rows else MissedPairs(here.estimate, here.low, math.inf)
        pairs, possible = counts.get("pairs", 0), here.high + self._pairs_of_lost_rows
        total, variance = self._weighted_pairs(counts)
        low, high = weighted_count_interval(total, variance, self._max_event_weight)
        if self.with_itself and self._max_row_weight(LEFT) > 1.0:
            # a fixed number of rows of a region is kept: k (k - 1) / n (n - 1) of its pairs, not (k / n)^2
            least = self.losses[LEFT].reached.least_kept if self.losses[LEFT].any else 0.0
            high = high / (1.0 - 1.0 / least) if least >= REPELS_LITTLE else math.inf
        high = possible if self._max_unweighted_rows or self.inexact_rows else min(possible, high - pairs)
        return MissedPairs(
            min(possible, max(here.estimate, total - pairs)),
            min(possible, max(here.low, low - pairs)),
            max(here.high, high),
        )

    @property
    def _pairs_of_lost_rows(self) -> float:
        """Return the largest possible number of comparisons with lost rows; infinite: not known."""
        lost = [loss.reached.dropped_most for loss in self.losses]
        rows = [given.rows.rows for given in (self.left, self.right)]
        for side in (LEFT, RIGHT):
            uncounted = self._max_row_weight(side) > 1.0 and not lost[side]
            # the times of refused rows are not known
            if uncounted or self.inexact_rows or self.losses[side].reached.refused:
                return math.inf
        if self.with_itself:
            return float(lost[LEFT] * (2 * rows[LEFT] + lost[LEFT]))
        return float(lost[LEFT] * (rows[RIGHT] + lost[RIGHT]) + rows[LEFT] * lost[RIGHT])

    def _max_row_weight(self, side: int) -> float:
        """Return the largest possible weight of a row of the side."""
        weights = self._row_weights[side]
        return max(float(weights.max(initial=1.0)), self.losses[side].reached.largest_weight)

    @property
    def _max_event_weight(self) -> float:
        """Return the largest number of pairs that one row can represent: its weight times its possible partners."""
        found = 0.0
        for side, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
            if self._max_row_weight(side) > 1.0:
                found = max(
                    found,
                    self._max_row_weight(side) * max(self._most_partners(other), self._max_row_weight(other)),
                )
        return found

    def _most_partners(self, side: int) -> float:
        """Return the estimated largest number of partners of one row among the produced rows of a side."""
        rows, weights = (self.left, self.right)[side].rows, self._row_weights[side]
        if not rows.rows:
            return 0.0
        if PREDICATES[self.settings.predicate] == EQUALITY:
            return heaviest_value_weight(rows, weights)
        lasts = self.settings.lasts_micros
        summed = np.concatenate([[0.0], np.cumsum(weights)])
        moments = np.concatenate([self.left.rows.at, self.right.rows.at])
        first = np.searchsorted(rows.at, moments - lasts[side], side="left")
        last = np.searchsorted(rows.at, moments + lasts[1 - side], side="right")
        return float((summed[last] - summed[first]).max())

    def _weighted_pairs(self, counts: Counts) -> tuple[float, float]:
        """Return T and V of `estimates`: over all pairs of arrived rows for equal values, else over the pairs found."""
        if PREDICATES[self.settings.predicate] != EQUALITY:
            return total_and_variance(counts)
        weights = self._row_weights
        sums = [np.zeros(len(one)) for one in weights]
        total, both = 0.0, 0.0
        for side, (one, given) in enumerate(
            zip(self.allocation.directions, (self.right, self.left), strict=True)
        ):
            mine, other = weights[1 - side][given.low : given.high], weights[side]
            reach = (one.how.low, one.how.high)
            by_probe, by_row = weighted_sums(one.probes, one.window, reach, (mine, other), self.with_itself)
            sums[1 - side][given.low : given.high] += by_probe
            sums[side] += by_row
            total += float((mine * by_probe).sum())
            twice, _ = weighted_sums(
                one.probes, one.window, reach, (mine, other * (other - 1.0)), self.with_itself
            )
            both += float((mine * (mine - 1.0) * twice).sum())
        if self.with_itself:
            sums = [sums[LEFT] + sums[RIGHT]]
        squares = sum(
            float((own * (own - 1.0) * one**2).sum()) for own, one in zip(weights, sums, strict=False)
        )
        return total, max(0.0, squares - both)

    def _missed(self, counts: Counts) -> MissedPairs:
        """Return the missed pairs of the rows that arrived: counted if possible, else estimated from the sample."""
        if self._is_complete:
            return MissedPairs(0.0, 0.0, 0.0)
        if self._can_count_missed:
            return MissedPairs(*[float(self._equals[0] - counts.get("pairs", 0))] * 3)
        found = sum(counts.get(f"drawn.{side}", 0) for side in (LEFT, RIGHT))
        left_out = float(self.allocation.possible - counts.get("compared", 0))
        return estimate_missed_pairs(found, self.allocation.chance).capped_at(left_out)
