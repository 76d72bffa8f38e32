"""Divide the budget of one window: run the controllers in order and decide which comparisons are made.

    r            how many comparisons               from the budget and the cost of the full join
    the sample   comparisons drawn one by one       to estimate missed pairs; none where these are counted
    looks        basic windows compared whole       to learn where matches lie (`exploration`)
    r_1, r_2     the join direction and row types   (`allocate_by_direction`, `allocate_by_utility`)
    ranks        the order of basic windows         by pairs per step
    take         how many rows of its window each probing row is compared with

The result is a pure function of the rows, the memory and the contract, so every process computes the same result. A
direction that seems useless is still explored.

*Whole rows as the alternative.* An index on single values finds a row's matches at once, and every entry that is read
is a pair. Then selecting basic windows gains nothing, and each basic window costs one more look-up. The alternative is
to compare a random fraction r of the rows with their whole window. With an index, basic windows are selected only if
the expected yield per step is at least 5 % higher (`PAYS`). Counted in steps, the alternative finds at least as many
pairs as dropping rows does, because rows that do not probe are still found by others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from spillway.levers.joins.controllers import (
    STEPS_PER_CORE_SECOND,
    Side,
    allocate_by_direction,
    allocate_by_utility,
    budget_fraction,
    fetched_rows,
    is_selection_worthwhile,
    utility_by_type,
)
from spillway.levers.joins.directions import Direction, SideRows, build_direction, costs_in_order
from spillway.levers.joins.exploration import (
    MOST_LOOKED,
    LearnedSide,
    Memory,
    effective_matches,
    exploration_shares,
)
from spillway.levers.joins.matching import taken_whole
from spillway.levers.joins.operands import Array
from spillway.levers.joins.settings import JoinSettings
from spillway.sketches.kernels import mix64

LEFT, RIGHT = 0, 1
Calibrate = Callable[[Sequence[Direction], JoinSettings], float]
"""Measures the steps per second of a core, on some of the given rows."""
ENOUGH_TIMED = 0.05
"""Share of the allowed core time. If less time was measured (at the start, after quiet windows), a few rows are timed
again.
"""
LEAST_SPENT = 0.25
"""Share of a window's budget of comparisons that is spent even if earlier windows overspent. The debt is then saved
over several windows, so that no window goes without comparisons. A budget in core time is kept strictly.
"""
ENOUGH_FOUND = 100.0
"""Pairs of the sample per window, both sides together. With 100 pairs the estimate of missed pairs is within about
20 %, and over many windows it is far better.
"""
DRAWN_ENTRY = 16.0
"""Drawing one entry takes as long as reading this many entries along a list, because it waits for memory."""
MOST_DRAWN = 8_000_000.0
"""Limit on the comparisons drawn per window. It bounds the memory for the sample, however large the budget is."""


@dataclass(frozen=True)
class Allocation:
    """All decisions about a window before a row is compared."""

    r: float
    chance: float
    """Sampling probability of a comparison. 1: all comparisons are made; 0: missed pairs are counted, not estimated."""
    budget_steps: float
    free_at: float
    directions: tuple[Direction, Direction]
    """The two directions, by probed window: the left window (probed by right rows), then the right window."""

    @property
    def possible(self) -> int:
        return sum(one.possible for one in self.directions)


def step_budget(
    settings: JoinSettings, memory: Memory, base: Sequence[Direction], seconds: float, calibrate: Calibrate
) -> float:
    """Return the number of steps that a window of `seconds` may take; infinite without a budget."""
    budget = settings.budget
    if budget is None:
        return float("inf")
    if budget.comparisons_per_second is not None:
        return budget.comparisons_per_second * seconds
    assert budget.core_pct is not None
    allowed = budget.core_pct / 100.0 * seconds
    known = memory.core_steps > 0 and memory.core_seconds > ENOUGH_TIMED * allowed
    return allowed * (memory.core_steps / memory.core_seconds if known else calibrate(base, settings))


def allocate_budget(
    left: SideRows,
    right: SideRows,
    settings: JoinSettings,
    memory: Memory,
    worth: Sequence[float],
    seconds: float,
    calibrate: Calibrate = lambda base, settings: STEPS_PER_CORE_SECOND,
) -> Allocation:
    """Return the decisions for the window; `worth`: the utility of each row type."""
    picks = settings.budget is not None and not _is_selection_pointless(settings, worth)
    base = (
        build_direction(right, left, settings, memory.left, worth, probe_is_left=False, picks=picks),
        build_direction(left, right, settings, memory.right, worth, probe_is_left=True, picks=picks),
    )
    budget = step_budget(settings, memory, base, seconds, calibrate)
    if np.isinf(budget):
        return Allocation(1.0, 1.0, budget, memory.free_at, (_whole(base[0]), _whole(base[1])))
    of_comparisons = settings.budget is not None and settings.budget.comparisons_per_second is not None
    spends = max(LEAST_SPENT * budget if of_comparisons else 0.0, budget - memory.debt_steps)
    possible = sum(one.whole_steps for one in base)
    counts = settings.adapt.rate == "counted"
    r = budget_fraction(spends, possible) if counts else memory.r
    chance, chosen = 1.0, (_whole(base[0]), _whole(base[1]))
    if r < 1.0 or not (counts or _is_without_overflow(base, settings, budget / seconds, memory.free_at)):
        chance, chosen = _allocate_steps(r * possible, base, settings, (memory.left, memory.right), worth)
    if counts:
        return Allocation(r, chance, budget, memory.free_at, chosen)
    chosen, free_at = _drop_overflow(chosen, settings, budget / seconds, memory.free_at)
    return Allocation(r, chance, budget, free_at, chosen)


def _is_selection_pointless(settings: JoinSettings, worth: Sequence[float]) -> bool:
    """Return whether selecting is pointless: every entry that is read is a pair, and missed pairs are counted."""
    return settings.index and settings.single_values and len(worth) == 1


def _allocate_steps(
    spends: float,
    base: tuple[Direction, Direction],
    settings: JoinSettings,
    learned: tuple[LearnedSide, LearnedSide],
    worth: Sequence[float],
) -> tuple[float, tuple[Direction, Direction]]:
    """Spread `spends` steps over the sample, the looks and the selection.

    Returns the sampling probability and both directions with their comparisons.
    """
    possible = sum(one.whole_steps for one in base)
    share = min(1.0, spends / possible) if possible else 1.0
    if _is_selection_pointless(settings, worth):
        return 0.0, _add_looks(base, [np.full(len(one.costs), share) for one in base], settings)
    shares = _exploration_shares(settings, base, learned)
    chance = _sampling_probability(settings, base, shares, spends)
    drawn = _add_sample(base, settings, chance)
    rest = max(0.0, spends - chance * sum(one.population * one.draw_steps for one in base))
    evenly = min(1.0, rest / possible) if possible else 1.0
    if shares is not None:
        chances = _look_probabilities(settings, base, shares, spends, chance)
        chosen, pays = _select_comparisons(
            _add_looks(drawn, chances, settings), settings, learned, rest, worth
        )
        if pays or not settings.index:
            return chance, chosen
    # before anything is learned no comparison is better than another, not even the cheapest
    return chance, _add_looks(drawn, [np.full(len(one.costs), evenly) for one in base], settings)


def _exploration_shares(
    settings: JoinSettings, base: Sequence[Direction], learned: Sequence[LearnedSide]
) -> Array | None:
    """Return gamma_j of the basic windows, left window first; None if nothing has been learned yet.

    Both windows share one measure of knowledge: their lumps are added.
    """
    lumps = _lumps(base, learned)
    if lumps <= 0:
        return None
    matches, made = (
        np.concatenate([getattr(known, name) for known in learned]) for name in ("matches", "comparisons")
    )
    return exploration_shares(settings.adapt.sample_pct / 100.0, lumps, matches, made)


def _sampling_probability(
    settings: JoinSettings, base: Sequence[Direction], shares: Array | None, spends: float
) -> float:
    """Return q, the sampling probability: steps spent on the sample / steps to draw everything.

    It is 0 where missed pairs are counted (equality). The sample takes what yields `ENOUGH_FOUND` pairs of both sides,
    and at most the share gamma of the budget. Without an index it may take the share of the looks if that is larger: it
    teaches as much, and the interval of rare pairs becomes far narrower.
    """
    if settings.predicate == "equality":
        return 0.0
    comparisons = sum(one.population for one in base)
    takes = sum(one.population * one.draw_steps for one in base)
    if takes <= 0:
        return 1.0
    gamma, looks, enough = settings.adapt.sample_pct / 100.0, MOST_LOOKED, 1.0
    if shares is None and settings.index:
        takes = comparisons * DRAWN_ENTRY  # the number of pairs is not known yet
    if shares is not None:
        volumes = [one.volumes.sum(axis=1) for one in base]
        looks = float(shares @ np.concatenate(volumes)) / max(1.0, float(sum(one.sum() for one in volumes)))
        pairs = sum(float(mine @ one.curve) for mine, one in zip(volumes, base, strict=True))
        enough = ENOUGH_FOUND / max(1e-12, pairs)
    share = gamma if settings.index else max(gamma, looks)
    return min(1.0, share * spends / takes, enough, MOST_DRAWN / max(1.0, comparisons))


def _look_probabilities(
    settings: JoinSettings, base: Sequence[Direction], shares: Array, spends: float, drawn: float
) -> list[Array]:
    """Return, by window and basic window, the probability that a row looks at all of it, in addition to the sample.

    With an index a row looks at all basic windows or at none.
    """
    volumes = np.concatenate([one.volumes.sum(axis=1) for one in base])
    if settings.index:
        possible = sum(one.whole_steps for one in base)
        shares = np.full(len(shares), float(shares @ volumes) / max(1.0, float(volumes.sum())))
    else:
        possible = float(volumes @ np.concatenate([one.costs for one in base]))
    chances = np.clip(shares * spends / max(1e-12, possible) - drawn, 0.0, 1.0)
    cut = len(base[LEFT].costs)
    return [chances[:cut], chances[cut:]]


def _lumps(base: Sequence[Direction], learned: Sequence[LearnedSide]) -> float:
    """Return how much is known of both windows, in lumps; 0 if their number of basic windows has changed."""
    if any(len(known.comparisons) != len(one.curve) for known, one in zip(learned, base, strict=True)):
        return 0.0
    return sum(effective_matches(float(known.matches.sum()), known.squares) for known in learned)


def _whole(one: Direction) -> Direction:
    """Return the direction with every comparison selected."""
    return replace(one, how=replace(one.how, take=one.how.high - one.how.low))


def _add_sample(
    sides: tuple[Direction, Direction], settings: JoinSettings, chance: float
) -> tuple[Direction, Direction]:
    """Return both directions with the random sample, and nothing selected yet."""
    left, right = (one.with_sample(chance, settings.seed * 4 + side) for side, one in enumerate(sides))
    return left, right


def _add_looks(
    sides: tuple[Direction, Direction], chances: Sequence[Array], settings: JoinSettings
) -> tuple[Direction, Direction]:
    """Return both directions with looks in addition to the selection; with an index a look covers a whole window."""
    left, right = (
        one.with_looks(mine, settings.index, settings.seed * 4 + side)
        for side, (one, mine) in enumerate(zip(sides, chances, strict=True))
    )
    return left, right


def _select_comparisons(
    sides: tuple[Direction, Direction],
    settings: JoinSettings,
    learned: tuple[LearnedSide, LearnedSide],
    spends: float,
    worth: Sequence[float],
) -> tuple[tuple[Direction, Direction], bool]:
    """Spread the steps that looks leave over windows, basic windows and types; also return whether selecting pays.

    A cell that is looked at costs the selection nothing and yields it nothing. So only the share 1 - p_j of a basic
    window counts in the selection's cost and yield.
    """
    unseen = [1.0 - one.how.looking.chances for one in sides]
    if settings.index:  # a row that looks selects nothing
        looked = sum(
            (1.0 - float(part[0])) * one.whole_steps for one, part in zip(sides, unseen, strict=True)
        )
        others = max(1e-12, float(unseen[LEFT][0]))
        left, unseen = max(0.0, spends - looked) / others, [np.ones(len(part)) for part in unseen]
    else:
        looked = sum(
            float(one.volumes.sum(axis=1) @ (one.costs * (1.0 - part)))
            for one, part in zip(sides, unseen, strict=True)
        )
        left = max(0.0, spends - looked)
    totals = [
        float(one.volumes.sum(axis=1) @ (one.costs * part)) for one, part in zip(sides, unseen, strict=True)
    ]
    even = min(1.0, left / sum(totals)) if sum(totals) else 1.0
    types = len(worth)
    pays = True
    if settings.adapt.direction == "none":
        shares = [np.full(types, even) for _ in sides]
    elif settings.adapt.direction == "whole":
        means = [float(np.mean(one.curve)) for one in sides]
        found = allocate_by_direction(even, totals[LEFT], totals[RIGHT], means[LEFT], means[RIGHT])
        shares = [np.full(types, share) for share in found]
    else:
        each = [
            _side(one, known, settings, worth, part)
            for one, known, part in zip(sides, learned, unseen, strict=True)
        ]
        shares, yields = allocate_by_utility(left, each)
        pays = is_selection_worthwhile(yields, left, each, sum(one.whole_steps for one in sides))
    return (
        _select_rows(sides[LEFT], shares[LEFT], settings),
        _select_rows(sides[RIGHT], shares[RIGHT], settings),
    ), pays


def _side(
    one: Direction, known: LearnedSide, settings: JoinSettings, worth: Sequence[float], unseen: Array
) -> Side:
    """Return a window as an input of the knapsack; without `correlation` all its basic windows count as one."""
    often = np.bincount(one.window.kinds, minlength=len(worth)).astype(np.float64)
    u = utility_by_type(known.types, often, worth) if len(worth) > 1 else np.ones(1)
    volumes, curve = one.volumes, one.curve * unseen
    costs = costs_in_order(one.costs, one.looked_up, one.how.order, one.held) * unseen
    if settings.adapt.correlation:
        return Side(volumes, curve, u, np.maximum(costs, 1e-12), one.how.order)
    made = volumes.sum(axis=0, keepdims=True)
    cost = float((volumes.sum(axis=1) @ costs) / made.sum()) if made.sum() else 1.0
    return Side(made, np.array([np.mean(curve)]), u, np.array([max(cost, 1e-12)]), np.zeros(1, np.int64))


def _select_rows(one: Direction, shares: Array, settings: JoinSettings) -> Direction:
    return replace(one, how=replace(one.how, take=selected_row_counts(one, shares, settings)))


def selected_row_counts(one: Direction, shares: Array, settings: JoinSettings) -> Array:
    """Return how many rows of its window are selected for each probing row; on average exactly the share of its type.

    With an index the last basic window is taken whole or not at all, at random. Taking only its newest rows would cost
    the same look-ups as all of it, and would separate it from the basic window before it.
    """
    how, whole = one.how, one.how.high - one.how.low
    wanted = shares[one.probes.kinds] * whole
    draws = uniform_draws(one.probes.seq, settings.seed * 4 + 2 + one.probe_is_left)
    if one.indexed and settings.adapt.correlation:
        return taken_whole(wanted, draws, how.selection)
    found: Array = np.minimum(np.floor(wanted + draws).astype(np.int64), whole)
    return found


def _drop_overflow(
    sides: tuple[Direction, Direction], settings: JoinSettings, per_second: float, free_at: float
) -> tuple[tuple[Direction, Direction], float]:
    """Remove the comparisons of rows that overflow the input buffer.

    Rows of both streams are fetched in the order of time. Also return `free_at`, when the last of them is done.
    """
    at = np.concatenate([one.probes.at for one in sides])
    took = np.concatenate([one.steps_by_row() for one in sides])  # the sample is compared in any case
    order = np.argsort(at, kind="stable")
    fetched = np.zeros(len(at), bool)
    fetched[order], free_at = fetched_rows(
        at[order], took[order], per_second, settings.adapt.buffer_seconds, free_at
    )
    cut = sides[LEFT].probes.rows
    mine = (fetched[:cut], fetched[cut:])
    found = []
    for one, kept in zip(sides, mine, strict=True):
        how = replace(
            one.how,
            take=np.where(kept, one.how.take, 0),
            looking=one.how.looking._replace(who=one.how.looking.who & kept[: len(one.how.looking.who)]),
        )
        found.append(replace(one, how=how, fetched=kept))
    return (found[LEFT], found[RIGHT]), float(free_at)


def _is_without_overflow(
    sides: tuple[Direction, Direction], settings: JoinSettings, per_second: float, free_at: float
) -> bool:
    """Return whether no row overflows the buffer if each is compared whole.

    Otherwise a sample must estimate the pairs of rows that overflow.
    """
    found, _ = _drop_overflow((_whole(sides[LEFT]), _whole(sides[RIGHT])), settings, per_second, free_at)
    return all(bool(one.fetched.all()) for one in found)


def uniform_draws(seq: Array, seed: int) -> Array:
    """Return a number in [0, 1) for each row. It depends only on the row's seq and the seed.

    >>> draws = uniform_draws(np.arange(10_000), 7)
    >>> bool(abs(draws.mean() - 0.5) < 0.01), bool((draws == uniform_draws(np.arange(10_000), 7)).all())
    (True, True)
    """
    return _uniform_draws(seq.astype(np.uint64), np.uint64(seed))


@njit(cache=True)
def _uniform_draws(seq: Array, seed: np.uint64) -> Array:
    found = np.empty(len(seq), np.float64)
    salt = mix64(seed, np.uint64(0x9E3779B97F4A7C15))
    for k in range(len(seq)):
        found[k] = float(mix64(seq[k] + np.uint64(1), salt) >> np.uint64(11)) / 9007199254740992.0
    return found
