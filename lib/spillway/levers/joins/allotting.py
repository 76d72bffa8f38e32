"""What a window's rows are compared with: the controllers in their order, on what is there to compare.

    r            how much         (`rate`)         from what may be spent and what everything would take
    the sample   who is compared with everything   with probability gamma r, by a hash of the row's seq
    r_1, r_2     which direction, which types      (`direction`, `utility`)
    ranks        which basic windows first         (`correlation`)
    take         how many rows of its window each probing row is compared with

A pure function of the rows, of what is remembered and of the contract: whoever computes it gets the same. The sample is
drawn with one probability for both windows, so that the direction that seems useless is still looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from spillway.levers.joins.correlation import expected, ranks
from spillway.levers.joins.direction import by_direction
from spillway.levers.joins.index import InvertedIndex, inverted
from spillway.levers.joins.memory import STEPS_PER_CORE_SECOND, LearnedSide, Memory
from spillway.levers.joins.operands import Array, Operand
from spillway.levers.joins.probe import Probing
from spillway.levers.joins.rate import counted, fetched_rows, steps_per_second
from spillway.levers.joins.ring import basic_windows, reach_of, slot_starts, slots_of, volumes
from spillway.levers.joins.settings import JoinSettings
from spillway.levers.joins.utility import Side, by_worth
from spillway.sketches.hashing import mix64

LEFT, RIGHT = 0, 1


@dataclass(frozen=True)
class Facing:
    """One direction: rows that probe, and the window of the other side that they probe."""

    probes: Operand
    window: Operand
    probe_is_left: bool
    how: Probing
    indexed: bool
    index: InvertedIndex | None
    """Of the whole window, where it is made already."""
    volumes: Array
    sample_volumes: Array
    """Comparisons there are to make, in all and by the sample: by basic window and type of the probing row."""
    steps_each: float
    """Steps a comparison, when everything is compared."""
    shares: Array
    """r_iz: by type of the probing row."""
    curve: Array
    """o_ij, as it was believed."""
    fetched: Array

    @property
    def possible(self) -> int:
        return int(self.volumes.sum())


@dataclass(frozen=True)
class Allotment:
    """Everything that is decided of a window before a row is compared."""

    r: float
    may_spend: float
    free_at: float
    facing: tuple[Facing, Facing]
    """By window: the left one, which right rows probe, and the right one."""

    @property
    def possible(self) -> int:
        return sum(one.possible for one in self.facing)


@dataclass(frozen=True)
class Given:
    """One side's rows: all that are there, and which of them probe (`low..high - 1`)."""

    rows: Operand
    low: int
    high: int


def may_spend(settings: JoinSettings, memory: Memory, seconds: float) -> float:
    """Steps that a window of so many seconds may take; infinite without a budget."""
    budget = settings.budget
    if budget is None:
        return float("inf")
    if budget.comparisons_per_second is not None:
        return budget.comparisons_per_second * seconds
    assert budget.core_pct is not None
    each = steps_per_second(budget.core_pct, memory.core_seconds, memory.core_steps, STEPS_PER_CORE_SECOND)
    return each * seconds


def allotted(
    left: Given, right: Given, settings: JoinSettings, memory: Memory, worth: Sequence[float], seconds: float
) -> Allotment:
    """The window's allotment; `worth`: utility by type of row."""
    budget = may_spend(settings, memory, seconds)
    base = (
        _facing(right, left, settings, memory.left, worth, probe_is_left=False),
        _facing(left, right, settings, memory.right, worth, probe_is_left=True),
    )
    if np.isinf(budget):
        return Allotment(1.0, budget, memory.free_at, (_whole(base[0]), _whole(base[1])))
    spends = max(0.0, budget - memory.debt_steps)
    possible = sum(one.possible * one.steps_each for one in base)
    r = counted(spends, possible) if settings.adapt.rate == "counted" else memory.r
    if r >= 1.0:
        chosen = (_whole(base[0]), _whole(base[1]))
    else:
        sampled = tuple(_with_sample(one, settings, r, side) for side, one in enumerate(base))
        chosen = _shared_out(
            (sampled[0], sampled[1]), settings, (memory.left, memory.right), r, spends, worth
        )
    if settings.adapt.rate == "counted":
        return Allotment(r, budget, memory.free_at, chosen)
    chosen, free_at = _fetched(chosen, settings, budget / seconds, memory.free_at)
    return Allotment(r, budget, free_at, chosen)


def _facing(
    probing: Given,
    probed: Given,
    settings: JoinSettings,
    learned: LearnedSide,
    worth: Sequence[float],
    probe_is_left: bool,
) -> Facing:
    """Who may be compared with whom; nothing is chosen yet."""
    lasts = settings.right.lasts_seconds if probe_is_left else settings.left.lasts_seconds
    basic = round(settings.basic_window_seconds * 1_000_000)
    n = basic_windows(lasts, settings.basic_window_seconds)
    probes, window = probing.rows.cut(probing.low, probing.high), probed.rows
    low, high = reach_of(probes, window, round(lasts * 1_000_000), probe_is_left)
    slots = slots_of(probes.at, basic)
    first = int(window.at[0] // basic) if window.rows else 0
    last = int(window.at[-1] // basic) if window.rows else 0
    if last - first >= MOST_SLOTS:  # a clock far away: only what a probing row can reach matters
        first = max(first, int(slots.min()) - n) if probes.rows else first
        last = min(last, int(slots.max())) if probes.rows else first
    starts = slot_starts(window.at, basic, first, max(1, last - first + 1))
    found = volumes(low, high, slots, probes.kinds, starts, first, n, len(worth))
    index = None
    steps = float(found.sum())
    if settings.index:
        items = max(
            (int(one.sets.items.max()) + 1 for one in (probes, window) if len(one.sets.items)), default=0
        )
        index = inverted(window.sets, items)
        steps = float(_entries(probes.sets.first, probes.sets.items, low, high, index.first, index.rows))
    total = float(found.sum())
    curve = _curve(learned, n)
    order = ranks(curve) if settings.adapt.correlation else np.arange(n, dtype=np.int64)
    nothing = np.zeros(probes.rows, np.int64)
    how = Probing(low, high, slots, nothing, nothing.astype(bool), order, starts, first)
    return Facing(
        probes, window, probe_is_left, how, settings.index, index, found, np.zeros_like(found),
        steps / total if total else 1.0, np.ones(len(worth)), curve, np.ones(probes.rows, bool),
    )  # fmt: skip


MOST_SLOTS = 1_000_000


def _curve(learned: LearnedSide, n: int) -> Array:
    if len(learned.matches) != n:
        return np.ones(n)
    return expected(learned.matches, learned.comparisons)


@njit(cache=True)
def _entries(first: Array, items: Array, low: Array, high: Array, ix_first: Array, ix_rows: Array) -> int:
    """Steps that comparing everything takes with the index: lists looked up, and entries read."""
    steps = 0
    for k in range(len(low)):
        if high[k] <= low[k]:
            continue
        for at in range(first[k], first[k + 1]):
            steps += 1
            item = items[at]
            if item + 1 < len(ix_first):
                mine = ix_rows[ix_first[item] : ix_first[item + 1]]
                steps += np.searchsorted(mine, high[k]) - np.searchsorted(mine, low[k])
    return steps


def _whole(one: Facing) -> Facing:
    """Everything is compared, and so every row tells of everything."""
    rows = one.probes.rows
    how = replace(one.how, take=one.how.high - one.how.low, full=np.ones(rows, bool))
    return replace(one, how=how, sample_volumes=one.volumes)


def _with_sample(one: Facing, settings: JoinSettings, r: float, side: int) -> Facing:
    share = settings.adapt.sample_pct / 100.0 * r
    full = uniform(one.probes.seq, settings.seed * 4 + side) < share
    how = one.how
    mine = volumes(
        how.low[full], how.high[full], how.slots[full], one.probes.kinds[full], how.starts, how.first_slot,
        len(how.order), one.volumes.shape[1],
    )  # fmt: skip
    return replace(one, how=replace(how, full=full), sample_volumes=mine)


def _shared_out(
    sides: tuple[Facing, Facing],
    settings: JoinSettings,
    learned: tuple[LearnedSide, LearnedSide],
    r: float,
    spends: float,
    worth: Sequence[float],
) -> tuple[Facing, Facing]:
    """What is left beside the sample, spread over windows, basic windows and types."""
    steps = [(one.volumes - one.sample_volumes) * one.steps_each for one in sides]
    sampled = sum(float((one.sample_volumes * one.steps_each).sum()) for one in sides)
    left = max(0.0, spends - sampled) if settings.adapt.rate == "counted" else r * sum(map(np.sum, steps))
    totals = [float(one.sum()) for one in steps]
    even = min(1.0, left / sum(totals)) if sum(totals) else 1.0
    types = sides[0].volumes.shape[1]
    if settings.adapt.direction == "none":
        shares = [np.full(types, even) for _ in sides]
    elif settings.adapt.direction == "whole":
        means = [float(np.mean(one.curve)) for one in sides]
        found = by_direction(even, totals[LEFT], totals[RIGHT], means[LEFT], means[RIGHT])
        shares = [np.full(types, share) for share in found]
    else:
        shares = by_worth(
            left,
            [
                Side(
                    volume if settings.adapt.correlation else volume.sum(axis=0, keepdims=True),
                    # a list that is read yields what its entries yield
                    (one.curve if settings.adapt.correlation else np.array([np.mean(one.curve)])),
                    worth_of(mine, one, worth) / one.steps_each,
                )
                for one, volume, mine in zip(sides, steps, learned, strict=True)
            ],
        )
    return (_taking(sides[LEFT], shares[LEFT], settings), _taking(sides[RIGHT], shares[RIGHT], settings))


def worth_of(learned: LearnedSide, one: Facing, worth: Sequence[float]) -> Array:
    """u_iz: utility a comparison, by type of the probing row.

    Until `ENOUGH_PAIRS` were seen, as if types matched alike: a pair of type z is then worth max(V(z), V(y)) on average
    over the types y in the window.
    """
    types, scale = len(worth), float(np.mean(one.curve)) if len(one.curve) else 1.0
    if types == 1:
        return np.full(1, scale)
    often = np.bincount(one.window.kinds, minlength=types).astype(np.float64)
    values = np.asarray(worth, np.float64)
    alike = np.maximum(values[:, None], values[None, :]) @ (often / max(1.0, often.sum()))
    if len(learned.worth) != types or not learned.of_type.sum() or not learned.matches.sum():
        return alike * scale
    match = float(learned.matches.sum() / learned.comparisons.sum())
    weight = ENOUGH_PAIRS / match
    return (learned.worth + weight * match * alike) / (learned.of_type + weight)


ENOUGH_PAIRS = 300.0


def _taking(one: Facing, shares: Array, settings: JoinSettings) -> Facing:
    whole = one.how.high - one.how.low
    wanted = shares[one.probes.kinds] * whole
    # in expectation exactly the share, and the whole window where the share is 1
    take = np.floor(wanted + uniform(one.probes.seq, settings.seed * 4 + 2 + one.probe_is_left)).astype(
        np.int64
    )
    return replace(one, how=replace(one.how, take=np.minimum(take, whole)), shares=shares)


def _fetched(
    sides: tuple[Facing, Facing], settings: JoinSettings, per_second: float, free_at: float
) -> tuple[tuple[Facing, Facing], float]:
    """Rows of both streams in the order of time, as far as they are fetched before they fall out of the buffer."""
    at = np.concatenate([one.probes.at for one in sides])
    took = np.concatenate(
        [np.where(one.how.full, one.how.high - one.how.low, one.how.take) * one.steps_each for one in sides]
    )
    order = np.argsort(at, kind="stable")
    fetched = np.zeros(len(at), bool)
    fetched[order], free_at = fetched_rows(
        at[order], took[order], per_second, settings.adapt.buffer_seconds, free_at
    )
    cut = sides[LEFT].probes.rows
    mine = (fetched[:cut], fetched[cut:])
    found = []
    for one, kept in zip(sides, mine, strict=True):
        full = one.how.full & kept
        how = replace(one.how, take=np.where(kept, one.how.take, 0), full=full)
        sample = volumes(
            how.low[full], how.high[full], how.slots[full], one.probes.kinds[full], how.starts, how.first_slot,
            len(how.order), one.volumes.shape[1],
        )  # fmt: skip
        found.append(replace(one, how=how, fetched=kept, sample_volumes=sample))
    return (found[LEFT], found[RIGHT]), float(free_at)


def uniform(seq: Array, seed: int) -> Array:
    """A number in [0, 1) for each row, by its seq and the seed alone.

    >>> draws = uniform(np.arange(10_000), 7)
    >>> bool(abs(draws.mean() - 0.5) < 0.01), bool((draws == uniform(np.arange(10_000), 7)).all())
    (True, True)
    """
    return _uniform(seq.astype(np.uint64), np.uint64(seed))


@njit(cache=True)
def _uniform(seq: Array, seed: np.uint64) -> Array:
    found = np.empty(len(seq), np.float64)
    salt = mix64(seed, np.uint64(0x9E3779B97F4A7C15))
    for k in range(len(seq)):
        found[k] = float(mix64(seq[k] + np.uint64(1), salt) >> np.uint64(11)) / 9007199254740992.0
    return found
