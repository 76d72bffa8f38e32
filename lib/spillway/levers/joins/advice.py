"""What a join would be, before it is run: its size, what makes it large, its cost, and what a budget would miss.

A sample of rows is compared with everything, half of it to learn where matches lie, half to see what selecting by
that would have missed. How many pairs have equal values is counted, of all rows, without comparing any. Numbers are of
the rows that are at hand; each comes with its interval.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spillway.levers.joins.allotting import LEFT, RIGHT, allotted, uniform
from spillway.levers.joins.correlation import expected, ranks
from spillway.levers.joins.facing import Facing, Given
from spillway.levers.joins.index import index_for
from spillway.levers.joins.memory import Memory
from spillway.levers.joins.missed import ComparedRows, Missed, Unsampled, dispersion, estimate
from spillway.levers.joins.most_pairs import most_pairs
from spillway.levers.joins.operands import Operand
from spillway.levers.joins.predicates import EQUALITY, PREDICATES
from spillway.levers.joins.probe import FoundPairs, Probing, probe
from spillway.levers.joins.ring import volumes
from spillway.levers.joins.settings import JoinSettings
from spillway.levers.joins.utility import Side, by_worth
from spillway.sketches.answers import Answer

LOOKED_AT_ROWS = 4_000
"""Probing rows a side that are compared with everything."""
BUDGETS_PCT = (50.0, 20.0, 10.0, 5.0, 2.0)
REPEATS = 3
CONFIDENCE_PCT = 95


@dataclass(frozen=True)
class Advised:
    """One thing that is said of a join."""

    about: str
    answer: Answer


@dataclass(frozen=True)
class _Looked:
    """One direction: who was looked at, and what was found."""

    facing: Facing
    chosen: np.ndarray
    found: FoundPairs
    seconds: tuple[float, ...]


def advised(left: Operand, right: Operand, settings: JoinSettings, with_itself: bool) -> Iterator[Advised]:
    """What is to be said of the join of these rows."""
    whole = replace(settings, budget=None)
    given = (Given(left, 0, left.rows), Given(right, 0, right.rows))
    facing = allotted(given[0], given[1], whole, Memory(), (1.0,), 1.0).facing
    looked = [_look(one, side, settings, with_itself) for side, one in enumerate(facing)]
    seconds = _span(left, right)
    possible = float(sum(one.possible for one in facing))
    size = _size(looked, settings, with_itself)
    yield Advised("pairs", size)
    if seconds > 0:
        per_day = 86_400.0 / seconds
        edges = {name: per_day * getattr(size, name) for name in ("estimate", "low", "high")}
        yield Advised("pairs a day", replace(size, **edges, note="at the rate of these rows"))
    yield _counted("comparisons", possible)
    steps = float(sum(one.whole_steps for one in facing))
    if settings.index:
        yield _counted("steps with an index", steps)
    yield from _cost(looked, steps, seconds)
    yield from _budgets(looked, settings, possible, with_itself)


def _look(one: Facing, side: int, settings: JoinSettings, with_itself: bool) -> _Looked:
    rows = one.probes.rows
    draws = uniform(one.probes.seq, settings.seed * 4 + side)
    chosen = np.sort(np.argsort(draws, kind="stable")[:LOOKED_AT_ROWS]) if rows else np.zeros(0, np.int64)
    full = np.zeros(rows, bool)
    full[chosen] = True
    how = replace(one.how, take=np.zeros(rows, np.int64), full=full)
    seconds = []
    for _ in range(REPEATS):
        began = time.thread_time_ns()
        found = _probed(one, how, settings, with_itself)
        seconds.append((time.thread_time_ns() - began) / 1e9)
    return _Looked(one, chosen, found, tuple(seconds))


def _probed(one: Facing, how: Probing, settings: JoinSettings, with_itself: bool) -> FoundPairs:
    index = one.index or (index_for(one.probes.sets, one.window.sets) if settings.index else None)
    return probe(
        one.probes, one.window, how, PREDICATES[settings.predicate], settings.threshold or 0.0, index,
        one.probe_is_left, with_itself,
    )  # fmt: skip


def _size(looked: Sequence[_Looked], settings: JoinSettings, with_itself: bool) -> Answer:
    """How many pairs these rows have: of equal values by count, else from the rows that were looked at."""
    predicate = PREDICATES[settings.predicate]
    if predicate == EQUALITY:
        pairs = 0.0
        for facing in (each.facing for each in looked):
            reach, is_left = (facing.how.low, facing.how.high), facing.probe_is_left
            most = most_pairs(facing.probes, facing.window, reach, predicate, 0.0, is_left, with_itself)
            pairs += float(most.sum())
        return Answer(pairs, pairs, pairs, 1.0, "counted", note="of all these rows, by their values")
    total = Missed(0.0, 0.0, 0.0)
    for one in looked:
        total += _pairs(one)
    rows = sum(len(one.chosen) for one in looked)
    edges = (total.estimate, total.low, total.high)
    return Answer(*edges, CONFIDENCE_PCT / 100, "sample", note=f"{rows:,} rows compared with everything")


def _pairs(one: _Looked) -> Missed:
    """All pairs of a direction: those found, and those of the rows that were not looked at."""
    found = one.found.everything[one.chosen].astype(float)
    sample = ComparedRows(len(found), found.sum(), (found * found).sum())
    rest = estimate(sample, Unsampled(one.facing.probes.rows - len(found)), dispersion(sample))
    if not len(found):
        return Missed(0.0, 0.0, 0.0)
    own = float(found.sum())
    return Missed(own + rest.estimate, own + rest.low, own + rest.high)


def _cost(looked: list[_Looked], steps: float, seconds: float) -> Iterator[Advised]:
    """Time of a core, as measured here on the sample; between the fastest and the slowest repeat."""
    made = float(sum(one.found.steps for one in looked))
    if made <= 0:
        return
    took = sorted(sum(one.seconds[turn] for one in looked) for turn in range(REPEATS))
    low, middle, high = (one / made * steps for one in (took[0], took[len(took) // 2], took[-1]))
    method = f"fastest to slowest of {REPEATS} repeats here"
    yield Advised("core seconds", Answer(middle, low, high, 1.0, method))
    if seconds > 0:
        yield Advised(
            "core_pct that it takes",
            Answer(100 * middle / seconds, 100 * low / seconds, 100 * high / seconds, 1.0, method),
        )


def _budgets(
    looked: list[_Looked], settings: JoinSettings, possible: float, with_itself: bool
) -> Iterator[Advised]:
    """By budget, the share of pairs that would be missed: learned from one half of the sample, seen on the other."""
    if not any(len(one.chosen) > 1 for one in looked) or possible <= 0:
        return
    halves = [(one.chosen[0::2], one.chosen[1::2]) for one in looked]
    curves = [_curve(one, learn) for one, (learn, _) in zip(looked, halves, strict=True)]
    sides = [
        Side(one.facing.volumes, curve, np.ones(1), one.facing.costs, ranks(curve / one.facing.costs))
        for one, curve in zip(looked, curves, strict=True)
    ]
    whole = sum(one.facing.whole_steps for one in looked)
    for pct in BUDGETS_PCT:
        shares, _ = by_worth(pct / 100.0 * whole, sides)
        missed, pairs = Missed(0.0, 0.0, 0.0), 0.0
        for at in (LEFT, RIGHT):
            one, seen = looked[at], halves[at][1]
            inside, everything = _selected(one, seen, float(shares[at][0]), curves[at], settings, with_itself)
            lost = (everything - inside).astype(float)
            sample = ComparedRows(len(lost), lost.sum(), (lost * lost).sum())
            # as many rows again as were seen: the interval is for the rows that come
            missed += estimate(sample, Unsampled(len(lost)), dispersion(sample))
            pairs += float(everything.sum())
        if pairs <= 0:
            continue
        middle, low, high = (
            100.0 * min(1.0, edge / pairs) for edge in (missed.estimate, missed.low, missed.high)
        )
        note = f"dropping rows at random would miss {100 - pct:g} %"
        yield Advised(
            f"% of pairs missed with {pct:g} % of the steps",
            Answer(middle, low, high, CONFIDENCE_PCT / 100, "half of the sample", note=note),
        )


def _curve(one: _Looked, learn: np.ndarray) -> np.ndarray:
    """Pairs a comparison, by basic window, of some of the rows."""
    how, n = one.facing.how, len(one.facing.how.order)
    pick = np.isin(one.found.probe, learn)
    slots = np.searchsorted(how.starts, one.found.row[pick], side="right") - 1
    behind = how.slots[one.found.probe[pick]] - how.first_slot - slots
    made = volumes(
        how.low[learn], how.high[learn], how.slots[learn], np.zeros(len(learn), np.int64), how.starts,
        how.first_slot, n, 1,
    )  # fmt: skip
    return expected(np.bincount(behind, minlength=n).astype(float), made[:, 0].astype(float))


def _selected(
    one: _Looked,
    rows: np.ndarray,
    share: float,
    curve: np.ndarray,
    settings: JoinSettings,
    with_itself: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """By row, pairs that selecting finds, and all there are: no pair is looked for again."""
    how = one.facing.how
    whole = how.high[rows] - how.low[rows]
    take = np.floor(share * whole + uniform(one.facing.probes.seq[rows], settings.seed * 4 + 2)).astype(
        np.int64
    )
    full = np.zeros(one.facing.probes.rows, bool)
    full[rows] = True
    wanted = np.zeros(one.facing.probes.rows, np.int64)
    wanted[rows] = np.minimum(take, whole)
    order = ranks(curve / one.facing.costs)
    found = _probed(one.facing, replace(how, take=wanted, full=full, order=order), settings, with_itself)
    return found.inside[rows], found.everything[rows]


def _span(left: Operand, right: Operand) -> float:
    ends = [(one.at[0], one.at[-1]) for one in (left, right) if one.rows]
    return (max(last for _, last in ends) - min(first for first, _ in ends)) / 1e6 if ends else 0.0


def _counted(about: str, count: float) -> Advised:
    return Advised(about, Answer(count, count, count, 1.0, "counted"))
