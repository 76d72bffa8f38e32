"""The tasks of a join: the rows of both sides, the comparisons to make, and the result rows made from pairs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from spillway.levers.joins.budget import Allocation
from spillway.levers.joins.calibration import warm_up_kernels
from spillway.levers.joins.directions import Direction
from spillway.levers.joins.estimates import find_chained_pairs
from spillway.levers.joins.matching import SELECTED, FoundPairs, Probing, index_for, pairs_in_order, probe
from spillway.levers.joins.operands import Array
from spillway.levers.windows import ReadColumns, Window, WindowDecision
from spillway.sketches.kernels import mix64

STEPS_A_PART = 20_000_000
"""About one second of work. Less than that does not justify a task of its own."""
MOST_PARTS = 64
"""The most tasks of one window."""
SIDES = ("left", "right")
SKETCH = 4096
"""Number of counters in a sketch of sums by row; the standard error of its sum of squares is 2 %."""
WEIGHT_SCALE = 256
"""Products of weights are counted in units of 1/256."""
WHOLE_SHARE = 1 << 32
"""Unit of compared shares: 1 is the whole window of a row. Shares are added as integers."""


@dataclass(frozen=True)
class SideBounds:
    """By row of each side, the bound of the joined value; None if no row has one."""

    left: Array | None = None
    right: Array | None = None


@dataclass(frozen=True)
class JoinTask:
    """Some probing rows of one direction, and the range of the window that they can reach. It travels to a task."""

    direction: Direction
    of_window: int
    """0: the left window is probed; 1: the right one."""
    probe_bounds: Array | None
    window_bounds: Array | None
    mass: Array | None = None
    """For each probing row, the number of produced rows that its window represents; None: the number of its rows."""


@dataclass(frozen=True)
class JoinDecision(WindowDecision):
    """The comparisons of one window."""

    allocation: Allocation
    predicate: int
    threshold: float
    worth: tuple[float, ...]
    with_itself: bool
    bounds: SideBounds
    rows: float
    """Number of rows of both sides that were produced in the window: the sum of row weights."""
    masses: tuple[Array | None, Array | None] = (None, None)
    """For each probed window and probing row, the number of produced rows that the window represents."""

    def task_inputs(
        self, window: Window, inputs: Mapping[str, ReadColumns]
    ) -> Sequence[tuple[JoinTask, ...]]:
        """Split probing rows into ranges of time of about equal work.

        The window of a part contains only the rows that its rows can reach. Work of less than about a second is one
        part, so that no task is started for it. The number of parts depends on the work alone, not on the machine: the
        files are the same on every engine.
        """
        found: list[JoinTask] = []
        sides = (self.bounds.left, self.bounds.right)
        works = [_work(one) for one in self.allocation.directions]
        total = float(sum(work.sum() for work in works))
        many = min(MOST_PARTS, max(1, math.ceil(total / STEPS_A_PART)))
        if many == 1:  # no task: nothing is cut, and the index exists already
            return [
                tuple(
                    JoinTask(one, side, sides[1 - side], sides[side], self.masses[side])
                    for side, one in enumerate(self.allocation.directions)
                    if one.probes.rows
                )
            ]
        for side, (facing, work) in enumerate(zip(self.allocation.directions, works, strict=True)):
            if not facing.probes.rows:
                continue
            own = max(1, round(many * float(work.sum()) / total)) if total else 1
            edges = np.searchsorted(np.cumsum(work), np.linspace(0, work.sum(), own + 1)[1:-1]) + 1
            cuts = [0, *(int(edge) for edge in edges), facing.probes.rows]
            bounds = (sides[1 - side], sides[side])
            for low, high in pairwise(cuts):
                if high > low:
                    found.append(self._part(facing, side, low, high, bounds))
        return [(one,) for one in found]

    def _part(
        self, one: Direction, side: int, low: int, high: int, bounds: tuple[Array | None, Array | None]
    ) -> JoinTask:
        how = one.how
        begin, end = int(how.low[low:high].min()), int(how.high[low:high].max())
        window = one.window.cut(begin, max(begin, end))
        span = slice(low, high)
        basic_starts = np.clip(how.starts - begin, 0, window.rows)
        cut = Probing(
            how.low[span] - begin, how.high[span] - begin, how.slots[span], how.take[span], how.order,
            basic_starts, how.first_slot, how.looking._replace(who=how.looking.who[span]),
        )  # fmt: skip
        mine, other = bounds
        mass = self.masses[side]
        return JoinTask(
            replace(
                one,
                probes=one.probes.cut(low, high),
                window=window,
                how=cut,
                fetched=one.fetched[span],
                drawn=one.drawn.cut(low, high, begin),
                index=None,
                stretches=None,
                chains=None if one.chains is None else one.chains.cut(span, begin, max(begin, end)),
            ),
            side,
            None if mine is None else mine[span],
            None if other is None else other[begin : begin + window.rows],
            None if mass is None else mass[span],
        )

    def results(
        self, window: Window, inputs: tuple[JoinTask, ...], counts: dict[str, int]
    ) -> Iterator[pa.Table]:
        """Yield the pairs of a part."""
        for part in inputs:
            yield from self._found(part, counts)

    def _found(self, part: JoinTask, counts: dict[str, int]) -> Iterator[pa.Table]:
        one = part.direction
        warm_up_kernels()
        began = time.thread_time_ns()
        if one.chains is not None and one.has_whole_rows_only:
            found = find_chained_pairs(
                one.probes, one.window, one.how, one.chains, one.comparisons_by_row, self.with_itself
            )
        else:
            index = one.index
            if one.indexed and index is None:
                index = index_for(one.probes.sets, one.window.sets, one.probing)
            found = probe(
                one.probes, one.window, one.how, self.predicate, self.threshold, index, one.probe_is_left,
                self.with_itself, one.drawn,
            )  # fmt: skip
        _count(counts, part, found)
        pairs = self._rows(part, found, counts)
        counts["nanoseconds"] = counts.get("nanoseconds", 0) + time.thread_time_ns() - began
        if pairs.num_rows:
            yield pairs

    def _rows(self, part: JoinTask, found: FoundPairs, counts: dict[str, int]) -> pa.Table:
        one = part.direction
        worth = np.asarray(self.worth, np.float64)
        probing, probed = (
            (one.probes, found.probe, part.probe_bounds),
            (one.window, found.row, part.window_bounds),
        )
        sides = (probing, probed) if one.probe_is_left else (probed, probing)
        order = pairs_in_order(*((side.seq, at) for side, at, _ in sides))
        probe, row = found.probe[order], found.row[order]
        if len(worth) > 1:
            kinds = one.probes.kinds[probe], one.window.kinds[row]
            often = np.bincount(kinds[0] * len(worth) + kinds[1], minlength=len(worth) ** 2)
            utility = np.maximum(worth[kinds[0]], worth[kinds[1]])
        else:
            often, utility = np.array([len(order)]), np.full(len(order), worth[0])
        for code in np.flatnonzero(often):
            z, y = divmod(int(code), len(worth))
            named = f"worth.{part.of_window}.{z}.{y}"
            counts[named] = counts.get(named, 0) + int(often[code])
        columns: dict[str, Any] = {}
        given_back = np.zeros(len(order), np.bool_)
        for name, (side, _, bounds), at in zip(
            SIDES, sides, (probe, row) if one.probe_is_left else (row, probe), strict=True
        ):
            columns[f"{name}_seq"] = pa.array(side.seq[at])
            columns[f"{name}_time"] = pa.array(side.at[at]).cast(pa.timestamp("us", tz="UTC"))
            columns[f"{name}_bound_pct"] = (
                pa.nulls(len(at), pa.float64()) if bounds is None else pa.array(bounds[at], from_pandas=True)
            )
            if bounds is not None:
                given_back |= bounds[at] > 0.0
        counts["given_back"] = counts.get("given_back", 0) + int(given_back.sum())
        # the pairs of a probing row share its sic equally
        whole = _window_mass(part)
        sic = found.compared / whole / max(1, self.rows) / np.maximum(1, found.everything)
        columns["utility"] = pa.array(utility)
        drawn = pair_weights(one, found)[order]
        weights = [
            np.ones(len(order)) if side.row_weights is None else side.row_weights[at]
            for (side, _, _), at in zip(
                sides, (probe, row) if one.probe_is_left else (row, probe), strict=True
            )
        ]
        if any(mass is not None for mass in self.masses):
            seqs = [np.asarray(columns[f"{name}_seq"]) for name in SIDES]
            count_weights(counts, seqs, weights, drawn, one.probes.seq[probe], self.with_itself)
        columns["weight"] = pa.array(drawn * weights[0] * weights[1])
        columns["sic"] = pa.array(sic[probe])
        return pa.table(columns)


def pair_weights(one: Direction, found: FoundPairs) -> Array:
    """Return how many pairs of the full join each pair represents: 1 if it was selected, else 1 / its probability."""
    by_lag, otherwise = one.unselected_chances
    chances = np.append(by_lag, 1.0)[found.behind]  # index -1 (`SELECTED`): 1
    who = one.how.looking.who
    if otherwise < 1.0 and not (len(who) and who.all()):
        looks = who[found.probe] if len(who) else np.zeros(len(found.probe), np.bool_)
        chances = np.where(looks | (found.behind == SELECTED), chances, otherwise)
    weights: Array = 1.0 / chances
    return weights


def count_weights(
    counts: dict[str, int],
    seqs: Sequence[Array],
    weights: Sequence[Array],
    drawn: Array,
    probes: Array,
    with_itself: bool,
) -> None:
    """Add the sums over some pairs that `estimates.weighted_count_interval` needs.

    They are integers, so that their order does not matter. The sums of squares over rows (S_l and S_r in `estimates`)
    are kept as count-sketches (Charikar, 2002): a row adds to one of `SKETCH` counters, with a sign by its hash. So
    several tasks may find the pairs of one row.
    """
    left, right = weights
    named = {
        "weighted": left * right * drawn,
        "weighted_both": left * right * (left - 1.0) * (right - 1.0),
    }
    for name, values in named.items():
        counts[name] = counts.get(name, 0) + int(np.rint(values * WEIGHT_SCALE).astype(np.int64).sum())
    rows = (
        ("left", seqs[0], np.sqrt(left * (left - 1.0)) * right * drawn),
        ("left" if with_itself else "right", seqs[1], np.sqrt(right * (right - 1.0)) * left * drawn),
        # all pairs of a randomly chosen row may be in one task
        ("drawn", probes, np.sqrt(drawn * (drawn - 1.0)) * left * right),
    )
    for name, seq, values in rows:
        if not values.any():
            continue
        sketch = _row_sums(seq.astype(np.uint64), np.rint(values * WEIGHT_SCALE).astype(np.int64), SKETCH)
        for bucket in np.flatnonzero(sketch):
            key = f"sum.{name}.{bucket}"
            counts[key] = counts.get(key, 0) + int(sketch[bucket])


def total_and_variance(counts: Mapping[str, int]) -> tuple[float, float]:
    """Return T and V of `estimates`, from the counts of the tasks."""
    squares = float(
        sum((count / WEIGHT_SCALE) ** 2 for name, count in counts.items() if name.startswith("sum."))
    )
    both = counts.get("weighted_both", 0) / WEIGHT_SCALE
    return counts.get("weighted", 0) / WEIGHT_SCALE, max(0.0, squares - both)


@njit(cache=True)
def _row_sums(seq, values, buckets):  # type: ignore[no-untyped-def]
    found = np.zeros(buckets, np.int64)
    for at in range(len(seq)):
        code = mix64(seq[at], np.uint64(0x9E3779B97F4A7C15))
        bucket = np.int64((code >> np.uint64(1)) % np.uint64(buckets))
        found[bucket] += values[at] if code & np.uint64(1) else -values[at]
    return found


def _window_mass(part: JoinTask) -> Array:
    """Return the sum of weights in the window of each probing row, at least 1."""
    how = part.direction.how
    found: Array = np.maximum(1, how.high - how.low if part.mass is None else part.mass)
    return found


def _work(one: Direction) -> Array:
    return one.steps_by_row() + 1.0


def _count(counts: dict[str, int], part: JoinTask, found: FoundPairs) -> None:
    """Add counts as integers, so that their sum does not depend on how the work was divided."""
    i = part.of_window
    said = {
        "compared": found.compared.sum(),
        "shares": (found.compared * WHOLE_SHARE // _window_mass(part)).sum(),
        f"steps.{i}": found.steps,
        "pairs": found.everything.sum(),
        f"selected.{i}": found.inside.sum(),
        f"squares.{i}": (found.everything * found.everything).sum(),
        f"selected_squares.{i}": (found.inside * found.inside).sum(),
        f"drawn.{i}": found.drawn,
    }
    for j in np.flatnonzero(found.by_lag):
        said[f"lag.{i}.{j}"] = found.by_lag[j]
    for name, value in said.items():
        counts[name] = counts.get(name, 0) + int(value)
