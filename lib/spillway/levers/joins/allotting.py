"""What a window's rows are compared with: the controllers in their order, on what is there to compare.

    r            how much         (`rate`)         from what may be spent and what everything would take
    the sample   who is compared with everything   with probability gamma' r (`exploring`), by a hash of the row's seq
    r_1, r_2     which direction, which types      (`direction`, `utility`)
    ranks        which basic windows first         (`correlation`), by what they yield a step
    take         how many rows of its window each probing row is compared with

A pure function of the rows, of what is remembered and of the contract: whoever computes it gets the same. The sample is
drawn with one probability for both windows, so that the direction that seems useless is still looked at.

*Or whole rows.* With an index that finds a row's matches at once there is nothing to gain by picking basic windows out:
every entry that is read is a pair, and each basic window costs a look-up more. Where picking out is expected to yield
less a step than comparing an r of the rows with everything, that is what is done; it finds at least what dropping rows
would, since the rows that look for nothing are still found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from spillway.levers.joins.direction import by_direction
from spillway.levers.joins.exploring import explored, lumps_of
from spillway.levers.joins.facing import Facing, Given, facing_of
from spillway.levers.joins.memory import LearnedSide, Memory
from spillway.levers.joins.operands import Array
from spillway.levers.joins.rate import STEPS_PER_CORE_SECOND, counted, fetched_rows
from spillway.levers.joins.settings import JoinSettings
from spillway.levers.joins.type_worth import worth_by_type
from spillway.levers.joins.utility import Side, by_worth
from spillway.sketches.mixing import mix64

LEFT, RIGHT = 0, 1
Calibrate = Callable[[Sequence[Facing], JoinSettings], float]
"""Steps a second of a core, measured on rows of these."""
ENOUGH_TIMED = 0.05
"""Of what may be used: where less was measured (at the start, after quiet windows) a few rows are timed anew."""


@dataclass(frozen=True)
class Allotment:
    """Everything that is decided of a window before a row is compared."""

    r: float
    share: float
    """Chance with which a row is of the sample."""
    may_spend: float
    free_at: float
    facing: tuple[Facing, Facing]
    """By window: the left one, which right rows probe, and the right one."""

    @property
    def possible(self) -> int:
        return sum(one.possible for one in self.facing)


def may_spend(
    settings: JoinSettings, memory: Memory, base: Sequence[Facing], seconds: float, calibrate: Calibrate
) -> float:
    """Steps that a window of so many seconds may take; infinite without a budget."""
    budget = settings.budget
    if budget is None:
        return float("inf")
    if budget.comparisons_per_second is not None:
        return budget.comparisons_per_second * seconds
    assert budget.core_pct is not None
    allowed = budget.core_pct / 100.0 * seconds
    known = memory.core_steps > 0 and memory.core_seconds > ENOUGH_TIMED * allowed
    return allowed * (memory.core_steps / memory.core_seconds if known else calibrate(base, settings))


def allotted(
    left: Given,
    right: Given,
    settings: JoinSettings,
    memory: Memory,
    worth: Sequence[float],
    seconds: float,
    calibrate: Calibrate = lambda base, settings: STEPS_PER_CORE_SECOND,
) -> Allotment:
    """The window's allotment; `worth`: utility by type of row."""
    base = (
        facing_of(right, left, settings, memory.left, worth, probe_is_left=False),
        facing_of(left, right, settings, memory.right, worth, probe_is_left=True),
    )
    budget = may_spend(settings, memory, base, seconds, calibrate)
    if np.isinf(budget):
        return Allotment(1.0, 1.0, budget, memory.free_at, (_whole(base[0]), _whole(base[1])))
    spends = max(0.0, budget - memory.debt_steps)
    possible = sum(one.whole_steps for one in base)
    counts = settings.adapt.rate == "counted"
    r = counted(spends, possible) if counts else memory.r
    share = 1.0
    if r >= 1.0:
        chosen = (_whole(base[0]), _whole(base[1]))
    elif counts and settings.index and settings.single_values and len(worth) == 1:
        share, chosen = r, _sampled(base, settings, r)  # nothing to choose among: every entry read is a pair
    else:
        learned = (memory.left, memory.right)
        share = r * (_gamma(settings, base, learned) if counts else settings.adapt.sample_pct / 100.0)
        chosen, worthwhile = _shared_out(_sampled(base, settings, share), settings, learned, r, spends, worth)
        if counts and settings.index and not worthwhile:
            share, chosen = r, _sampled(base, settings, r)
    if counts:
        return Allotment(r, share, budget, memory.free_at, chosen)
    chosen, free_at = _fetched(chosen, settings, budget / seconds, memory.free_at)
    return Allotment(r, share, budget, free_at, chosen)


def _gamma(settings: JoinSettings, base: Sequence[Facing], learned: Sequence[LearnedSide]) -> float:
    """The sample's share of what may be spent; both windows are known as well as both together are."""
    lumps = sum(lumps_of(float(known.matches.sum()), known.squares) for known in learned)
    if any(len(known.comparisons) != len(one.curve) for known, one in zip(learned, base, strict=True)):
        lumps = 0.0
    matches, made = (
        np.concatenate([getattr(known, name) for known in learned]) for name in ("matches", "comparisons")
    )
    to_make = np.concatenate([one.volumes.sum(axis=1) for one in base])
    return explored(settings.adapt.sample_pct / 100.0, lumps, matches, made, to_make)


def _whole(one: Facing) -> Facing:
    """Everything is compared, and so every row tells of everything."""
    rows = one.probes.rows
    how = replace(one.how, take=one.how.high - one.how.low, full=np.ones(rows, bool))
    return replace(one, how=how, sample_volumes=one.volumes)


def _sampled(sides: tuple[Facing, Facing], settings: JoinSettings, share: float) -> tuple[Facing, Facing]:
    """Rows of the sample, and no others yet."""
    found = [
        one.sampling(uniform(one.probes.seq, settings.seed * 4 + side) < share)
        for side, one in enumerate(sides)
    ]
    return found[LEFT], found[RIGHT]


def _shared_out(
    sides: tuple[Facing, Facing],
    settings: JoinSettings,
    learned: tuple[LearnedSide, LearnedSide],
    r: float,
    spends: float,
    worth: Sequence[float],
) -> tuple[tuple[Facing, Facing], bool]:
    """What is left beside the sample, spread over windows, basic windows and types; and whether that pays."""
    volumes = [one.volumes - one.sample_volumes for one in sides]
    steps = [volume * one.costs[:, None] for volume, one in zip(volumes, sides, strict=True)]
    totals = [float(one.sum()) for one in steps]
    sampled = sum(float(one.sample_volumes.sum()) * one.whole_cost for one in sides)
    left = max(0.0, spends - sampled) if settings.adapt.rate == "counted" else r * sum(totals)
    even = min(1.0, left / sum(totals)) if sum(totals) else 1.0
    types = len(worth)
    pays = True
    if settings.adapt.direction == "none":
        shares = [np.full(types, even) for _ in sides]
    elif settings.adapt.direction == "whole":
        means = [float(np.mean(one.curve)) for one in sides]
        found = by_direction(even, totals[LEFT], totals[RIGHT], means[LEFT], means[RIGHT])
        shares = [np.full(types, share) for share in found]
    else:
        each = [
            _side(one, volume, known, settings, worth)
            for one, volume, known in zip(sides, volumes, learned, strict=True)
        ]
        shares, yields = by_worth(left, each)
        whole = sum(float((one.volumes.sum(axis=1) @ one.o) * np.mean(one.u)) for one in each)
        whole_steps = sum(
            float(volume.sum()) * one.whole_cost for volume, one in zip(volumes, sides, strict=True)
        )
        pays = yields * whole_steps >= whole * left * (1.0 - 1e-9)
    return (
        _taking(sides[LEFT], shares[LEFT], settings),
        _taking(sides[RIGHT], shares[RIGHT], settings),
    ), pays


def _side(
    one: Facing, volumes: Array, known: LearnedSide, settings: JoinSettings, worth: Sequence[float]
) -> Side:
    """A window as the knapsack has it; without correlation, its basic windows are all one."""
    often = np.bincount(one.window.kinds, minlength=len(worth)).astype(np.float64)
    u = worth_by_type(known.types, often, worth) if len(worth) > 1 else np.ones(1)
    if settings.adapt.correlation:
        return Side(volumes, one.curve, u, one.costs, one.how.order)
    made = volumes.sum(axis=0, keepdims=True)
    cost = float((volumes.sum(axis=1) @ one.costs) / made.sum()) if made.sum() else 1.0
    return Side(made, np.array([np.mean(one.curve)]), u, np.array([cost]), np.zeros(1, np.int64))


def _taking(one: Facing, shares: Array, settings: JoinSettings) -> Facing:
    whole = one.how.high - one.how.low
    wanted = shares[one.probes.kinds] * whole
    # in expectation exactly the share, and the whole window where the share is 1
    take = np.floor(wanted + uniform(one.probes.seq, settings.seed * 4 + 2 + one.probe_is_left)).astype(
        np.int64
    )
    return replace(one, how=replace(one.how, take=np.minimum(take, whole)))


def _fetched(
    sides: tuple[Facing, Facing], settings: JoinSettings, per_second: float, free_at: float
) -> tuple[tuple[Facing, Facing], float]:
    """Rows of both streams in the order of time, as far as they are fetched before they fall out of the buffer."""
    at = np.concatenate([one.probes.at for one in sides])
    took = np.concatenate([one.steps_by_row() for one in sides])
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
        found.append(replace(one, how=how, fetched=kept).sampling(full))
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
