"""Estimate a join before it runs: its size, its cost, what makes it large, and what a budget would miss.

Comparisons are sampled at random (`matching`), each with the same probability, so that the number of pairs has the
interval of `estimates`, whatever the rows are like. Half of the sampled pairs show where matches lie. The other half
shows what a selection based on the first half would miss. So the figures of a budget are those of a join that has
learned and spends nothing on exploration; in its first windows it misses more. Pairs of equal values are counted over
all rows, without a comparison. All figures are about the given rows, and each has its interval.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numba import njit

from spillway.levers.joins.budget import LEFT, RIGHT, selected_row_counts, uniform_draws
from spillway.levers.joins.controllers import (
    Side,
    allocate_by_utility,
    is_selection_worthwhile,
    match_rates,
    rank_basic_windows,
)
from spillway.levers.joins.directions import (
    Direction,
    SideRows,
    build_direction,
    costs_in_order,
    pairs_per_step,
)
from spillway.levers.joins.estimates import equal_pairs, sampled_count_interval
from spillway.levers.joins.exploration import LearnedSide
from spillway.levers.joins.matching import (
    EQUALITY,
    PREDICATES,
    FoundPairs,
    Probing,
    Selection,
    index_for,
    newest_taken,
    nothing_drawn,
    probe,
)
from spillway.levers.joins.operands import Array, Operand
from spillway.levers.joins.settings import JoinSettings
from spillway.levers.protocol import CORE_PCT
from spillway.sketches.answers import Answer

MOST_PICKED = 4_000_000.0
"""Limit on sampled comparisons (with an index: entries)."""
TIMED_STEPS, TIMED_ROWS = 2_000_000.0, (16, 4_000)
"""Some rows are compared with everything to measure the cost. The number of rows aims at `TIMED_STEPS` steps;
`TIMED_ROWS` are its limits for each side.
"""
BUDGETS_PCT = (50.0, 20.0, 10.0, 5.0, 2.0)
REPEATS = 3
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class JoinFigure:
    """One figure about a join."""

    about: str
    answer: Answer


@dataclass(frozen=True)
class _SampledDirection:
    """One direction with its sampled pairs, and the basic window of each pair."""

    direction: Direction
    found: FoundPairs
    behind: Array
    learns: Array
    """The pairs that show where matches lie. The others show what a selection by them misses."""


def estimate_join(
    left: Operand, right: Operand, settings: JoinSettings, with_itself: bool
) -> Iterator[JoinFigure]:
    """Yield figures about the join of these rows."""
    given, nothing = (SideRows(left, 0, left.rows), SideRows(right, 0, right.rows)), LearnedSide()
    facing = [
        build_direction(given[1 - side], given[side], settings, nothing, (1.0,), probe_is_left=side == RIGHT)
        for side in (LEFT, RIGHT)
    ]
    chance = min(1.0, MOST_PICKED / max(1.0, sum(one.population for one in facing)))
    looked = [_sample_direction(one, side, chance, settings, with_itself) for side, one in enumerate(facing)]
    seconds = _span(left, right)
    size = _size(looked, chance, settings, with_itself)
    yield JoinFigure("pairs", size)
    if seconds > 0:
        per_day = 86_400.0 / seconds
        edges = {name: per_day * getattr(size, name) for name in ("estimate", "low", "high")}
        yield JoinFigure("pairs a day", replace(size, **edges, note="at the rate of these rows"))
    yield _counted("comparisons", float(sum(one.possible for one in facing)))
    steps = float(sum(one.whole_steps for one in facing))
    if settings.index:
        yield _counted("steps with an index", steps)
    yield from _cost(looked, steps, seconds, settings, with_itself)
    yield from _budgets(looked, settings)


def _sample_direction(
    one: Direction, side: int, chance: float, settings: JoinSettings, with_itself: bool
) -> _SampledDirection:
    drawing = one.with_sample(chance, settings.seed * 4 + side)
    how = replace(one.how, take=np.zeros(one.probes.rows, np.int64))
    found = _probe_direction(drawing, how, settings, with_itself)
    lies_in = np.searchsorted(how.starts, found.row, side="right") - 1
    behind = how.slots[found.probe] - how.first_slot - lies_in
    learns = np.random.default_rng([settings.seed, side]).random(len(found.row)) < 0.5
    return _SampledDirection(drawing, found, behind, learns)


def _probe_direction(one: Direction, how: Probing, settings: JoinSettings, with_itself: bool) -> FoundPairs:
    index = one.index or (index_for(one.probes.sets, one.window.sets) if settings.index else None)
    return probe(
        one.probes, one.window, how, PREDICATES[settings.predicate], settings.threshold or 0.0, index,
        one.probe_is_left, with_itself, one.drawn,
    )  # fmt: skip


def _size(
    looked: Sequence[_SampledDirection], chance: float, settings: JoinSettings, with_itself: bool
) -> Answer:
    """Return the number of pairs of these rows: counted for equal values, else estimated from the sample."""
    if PREDICATES[settings.predicate] == EQUALITY:
        pairs = 0.0
        for one in (each.direction for each in looked):
            reach = (one.how.low, one.how.high)
            pairs += float(equal_pairs(one.probes, one.window, reach, with_itself).sum())
        return Answer(pairs, pairs, pairs, 1.0, "counted", note="of all these rows, by their values")
    found = sum(len(one.found.row) for one in looked)
    low, high = sampled_count_interval([(found, chance)], _CONFIDENCE)
    drawn = sum(one.direction.drawn.many for one in looked)
    note = f"{drawn:,} comparisons picked by chance"
    rows = [sets for one in looked for sets in (one.direction.probes.sets, one.direction.window.sets)]
    if settings.sets is not None and all(np.diff(sets.first).max(initial=0) <= 1 for sets in rows):
        note += "; no row has more than one item: is the separator another?"
    return Answer(found / chance, low, high, _CONFIDENCE, "sample", note=note)


def _cost(
    looked: Sequence[_SampledDirection],
    steps: float,
    seconds: float,
    settings: JoinSettings,
    with_itself: bool,
) -> Iterator[JoinFigure]:
    """Yield the core time, measured on some rows; the interval is that of the fastest and the slowest repeat."""
    # without the sample; the index exists already
    facing = [replace(one.direction, drawn=nothing_drawn(one.direction.probes.rows)) for one in looked]
    each = steps / max(1, sum(one.probes.rows for one in facing))
    rows = int(min(TIMED_ROWS[1], max(TIMED_ROWS[0], TIMED_STEPS / max(1.0, each))))
    made, took = 0, np.zeros(REPEATS)
    for side, one in enumerate(facing):
        draws = uniform_draws(one.probes.seq, settings.seed * 4 + side)
        take = np.zeros(one.probes.rows, np.int64)
        some = np.argsort(draws, kind="stable")[:rows]
        take[some] = (one.how.high - one.how.low)[some]
        for turn in range(REPEATS):
            began = time.thread_time_ns()
            found = _probe_direction(one, replace(one.how, take=take), settings, with_itself)
            took[turn] += (time.thread_time_ns() - began) / 1e9
        made += found.steps
    if made <= 0:
        return
    low, middle, high = (float(one) / made * steps for one in np.sort(took)[[0, REPEATS // 2, -1]])
    method = f"fastest to slowest of {REPEATS} repeats here"
    yield JoinFigure("core seconds", Answer(middle, low, high, 1.0, method))
    if seconds > 0:
        yield JoinFigure(
            CORE_PCT,
            Answer(100 * middle / seconds, 100 * low / seconds, 100 * high / seconds, 1.0, method),
        )


def _budgets(looked: Sequence[_SampledDirection], settings: JoinSettings) -> Iterator[JoinFigure]:
    """Yield, by budget, the share of pairs missed: learned from one half of the sampled pairs, tested on the other.

    If the join would compare randomly chosen whole rows, it misses the share that it does not compare.
    """
    sides = [_side(one) for one in looked]
    whole = sum(one.direction.whole_steps for one in looked)
    if not any(len(one.found.row) for one in looked):
        return
    for pct in BUDGETS_PCT:
        about = f"% of pairs missed with {pct:g} % of the steps"
        budget = pct / 100.0 * whole
        shares, yields = allocate_by_utility(budget, sides)
        if settings.index and (
            settings.single_values or not is_selection_worthwhile(yields, budget, sides, whole)
        ):
            left = 100.0 - pct
            note = "rows are chosen at random: the index leaves nothing to choose by"
            yield JoinFigure(about, Answer(left, left, left, 1.0, "counted", note=note))
            continue
        found = [
            _selected(looked[at], float(shares[at][0]), sides[at].order, settings) for at in (LEFT, RIGHT)
        ]
        seen = sum(len(one) for one in found)
        if not seen:
            continue
        missed = seen - sum(int(one.sum()) for one in found)
        low, high = wilson_interval(missed, seen, _CONFIDENCE)
        answer = Answer(
            100.0 * missed / seen, 100.0 * low, 100.0 * high, _CONFIDENCE, "half of the pairs found",
            note=f"once it has learned where matches lie; dropping rows at random would miss {100 - pct:g} %",
        )  # fmt: skip
        yield JoinFigure(about, answer)


def wilson_interval(events: int, of: int, confidence: float) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion: `events` of `of` observations.

    >>> [[round(end, 3) for end in wilson_interval(events, of, 0.95)] for events, of in ((0, 10), (50, 100))]
    [[0.0, 0.278], [0.404, 0.596]]
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, more = events / of, z * z / of
    middle = (share + more / 2) / (1 + more)
    half = z * math.sqrt(share * (1 - share) / of + more / (4 * of)) / (1 + more)
    return max(0.0, middle - half), min(1.0, middle + half)


def _side(one: _SampledDirection) -> Side:
    """Return a window as an input of the knapsack, learned from half of the pairs."""
    made = one.direction.volumes.sum(axis=1)
    matches = np.bincount(one.behind[one.learns], minlength=len(made)).astype(float)
    learned = LearnedSide(matches, made * one.direction.chance / 2)
    curve, costs = match_rates(learned.matches, learned.comparisons), one.direction.costs
    if one.direction.indexed:
        curve = pairs_per_step(curve, costs, learned) * costs
    order = rank_basic_windows(curve / costs)
    added = costs_in_order(costs, one.direction.looked_up, order, one.direction.held)
    return Side(one.direction.volumes, curve, np.ones(1), added, order)


def _selected(one: _SampledDirection, share: float, order: Array, settings: JoinSettings) -> Array:
    """Return which pairs of the other half the selection finds."""
    how = replace(one.direction.how, order=order)
    take = selected_row_counts(replace(one.direction, how=how), np.array([share]), settings)
    sees = ~one.learns
    selection = replace(how, take=take).selection
    found: Array = _is_selected(one.found.probe[sees], one.found.row[sees], one.behind[sees], selection)
    return found


@njit(cache=True)
def _is_selected(probes: Array, rows: Array, behind: Array, selection: Selection) -> Array:
    found, taken = np.zeros(len(rows), np.bool_), np.zeros(len(selection.order), np.int64)
    last = -1
    for at in range(len(rows)):
        k, j = probes[at], behind[at]
        if k != last:
            newest_taken(k, selection, taken)
            last = k
        slot = selection.slots[k] - j - selection.first_slot
        found[at] = rows[at] >= min(selection.high[k], selection.starts[slot + 1]) - taken[j]
    return found


def _span(left: Operand, right: Operand) -> float:
    ends = [(one.at[0], one.at[-1]) for one in (left, right) if one.rows]
    return (max(last for _, last in ends) - min(first for first, _ in ends)) / 1e6 if ends else 0.0


def _counted(about: str, count: float) -> JoinFigure:
    return JoinFigure(about, Answer(count, count, count, 1.0, "counted"))
