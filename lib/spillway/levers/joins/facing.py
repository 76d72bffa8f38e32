"""One direction of a join: the rows that probe, the window that they probe, and which of it each is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from spillway.errors import Refused
from spillway.levers.joins.correlation import expected
from spillway.levers.joins.drawing import Drawn, drawn_comparisons, drawn_entries, nothing_drawn
from spillway.levers.joins.equals import Chains, chains_of
from spillway.levers.joins.index import InvertedIndex, index_for
from spillway.levers.joins.looking import Looking, made_by
from spillway.levers.joins.memory import LearnedSide
from spillway.levers.joins.operands import Array, Operand
from spillway.levers.joins.probe import Probing
from spillway.levers.joins.ring import (
    basic_windows,
    drawn_together,
    reach_of,
    slot_starts,
    slots_of,
    volumes,
)
from spillway.levers.joins.settings import JoinSettings
from spillway.levers.joins.step_costs import list_stretches, per_step, steps_of_equals, steps_of_lists

MOST_SLOTS, MOST_SLOTS_APART = 1_000_000, 20_000_000
"""Basic windows from the first row to the last, as time has them; and without the stretches that hold no rows."""


@dataclass(frozen=True)
class Given:
    """One side's rows: all that are there, and which of them probe (`low..high - 1`)."""

    rows: Operand
    low: int
    high: int


@dataclass(frozen=True)
class Facing:
    """One direction: rows that probe, and the window of the other side that they probe."""

    probes: Operand
    window: Operand
    probe_is_left: bool
    how: Probing
    indexed: bool
    index: InvertedIndex | None
    """For all rows that probe, where it is made already."""
    stretches: tuple[Array, Array] | None
    """By item of a probing row, where its list has the entries of the row's window."""
    chains: Chains | None
    """Which rows of their windows have the values of probing rows, where an index of single values finds them."""
    volumes: Array
    """Comparisons there are to make, by basic window and type of the probing row."""
    chance: float
    """With which each of them is drawn (q)."""
    drawn: Drawn
    whole_cost: float
    """Steps a comparison, when everything is compared."""
    costs: Array
    """Steps a comparison, by basic window, when basic windows are picked out one by one."""
    looked_up: Array
    """Of these, lists looked up."""
    held: Array
    """By basic window, the share of rows that have any row in it."""
    curve: Array
    """o_ij, as it was believed."""
    fetched: Array

    @property
    def possible(self) -> int:
        return int(self.volumes.sum())

    @property
    def whole_steps(self) -> float:
        """Steps of comparing everything."""
        return self.possible * self.whole_cost

    @property
    def probing(self) -> Array:
        """By row, whether anything is selected for it or looked at."""
        found: Array = (self.how.take > 0) | (self.made_rows > 0)
        return found

    @property
    def everything(self) -> bool:
        """Whether every row is compared with all of its window."""
        return bool((self.how.take >= self.how.high - self.how.low).all())

    @property
    def whole_rows(self) -> bool:
        """Whether every row is compared with all of its window, or with nothing."""
        whole, made = self.how.high - self.how.low, self.made_rows
        return self.drawn.many == 0 and bool(((made == 0) | (made >= whole)).all())

    @property
    def drawn_from(self) -> float:
        """What is drawn from: comparisons, or entries of the lists that are looked up."""
        if self.chains is not None:
            return float(self.chains.equals.sum())
        if self.stretches is None:
            return float(self.possible)
        begins, ends = self.stretches
        return float((ends - begins).sum())

    @property
    def draw_steps(self) -> float:
        """What drawing one takes: a comparison, and with an index the entry that leads to it."""
        return 2.0 if self.indexed else 1.0

    @property
    def beyond_chances(self) -> tuple[Array, float]:
        """With which a comparison that selecting leaves out is made: by basic window, and of a row that never looks."""
        chances = self.how.looking.chances
        looked: Array = chances if len(chances) else np.zeros(len(self.costs))
        return looked + (1.0 - looked) * self.chance, self.chance

    def drawing(self, chance: float, seed: int) -> Facing:
        """The same with a sample of its comparisons, each drawn with the same chance."""
        how, mine, seq = self.how, self.probes.sets, self.probes.seq
        if not self.indexed:
            drawn = drawn_comparisons(how.low, how.high, seq, chance, seed)
            return replace(self, chance=chance, drawn=drawn)
        index = self.index or index_for(mine, self.window.sets)
        stretches = self.stretches or list_stretches(
            mine.first, mine.items, how.low, how.high, index.first, index.rows
        )
        drawn = drawn_entries(mine, self.window.sets, index.rows, stretches, seq, chance, seed)
        return replace(self, index=index, stretches=stretches, chance=chance, drawn=drawn)

    def looking(self, chances: Array, together: bool, seed: int) -> Facing:
        """The same with rows that look at whole basic windows, each with the chance of its own."""
        looking = Looking(chances, self.fetched, together, seed)
        return replace(self, how=replace(self.how, looking=looking))

    def steps_by_row(self) -> Array:
        """About what each probing row takes."""
        how, mean = self.how, float(np.mean(self.costs)) if len(self.costs) else 1.0
        whole: Array = how.high - how.low
        spans = np.where(self.made_rows >= whole, whole * self.whole_cost, self.made_rows * mean)
        found: Array = spans + np.diff(self.drawn.first)
        return found

    @cached_property
    def _made(self) -> tuple[Array, Array, Array]:
        how, looking = self.how, self.how.looking
        found: tuple[Array, Array, Array] = made_by(
            how.low, how.high, how.slots, self.probes.seq.astype(np.uint64), how.take, self.probes.kinds,
            how.order, how.starts, how.first_slot, self.volumes.shape[1],
            looking.chances, looking.who, looking.together, np.uint64(looking.seed),
        )  # fmt: skip
        return found

    @property
    def selected_volumes(self) -> Array:
        """Comparisons that selecting makes, by basic window and type."""
        return self._made[0]

    @property
    def made_rows(self) -> Array:
        """Comparisons that are selected or looked at, by row."""
        return self._made[2]

    @property
    def made_volumes(self) -> Array:
        """Comparisons that are expected to be made, with those that chance draws beside what is looked at."""
        made = self._made[1]
        found: Array = made + self.chance * (self.volumes - made)
        return found

    def compared_shares(self) -> list[float]:
        """By type of the probing row, the share of the window that is compared; 1 of nothing."""
        made, there = self.made_volumes.sum(axis=0), self.volumes.sum(axis=0)
        return [float(part / whole) if whole else 1.0 for part, whole in zip(made, there, strict=True)]


def facing_of(
    probing: Given,
    probed: Given,
    settings: JoinSettings,
    learned: LearnedSide,
    worth: Sequence[float],
    probe_is_left: bool,
    picks: bool = True,
) -> Facing:
    """Who may be compared with whom, and what that takes; nothing is chosen yet.

    Where nobody `picks` basic windows out, all of them are taken to cost alike.
    """
    lasts = settings.right.lasts_seconds if probe_is_left else settings.left.lasts_seconds
    basic = round(settings.basic_window_seconds * 1_000_000)
    n = basic_windows(lasts, settings.basic_window_seconds)
    probes, window = probing.rows.cut(probing.low, probing.high), probed.rows
    low, high = reach_of(probes, window, round(lasts * 1_000_000), probe_is_left)
    slots = slots_of(probes.at, basic)
    first = int(window.at[0] // basic) if window.rows else 0
    last = int(window.at[-1] // basic) if window.rows else 0
    if last - first < MOST_SLOTS:
        starts = slot_starts(window.at, basic, first, max(1, last - first + 1))
    else:  # clocks far from one another: what nobody can reach takes no room
        slots, there = drawn_together(slots, slots_of(window.at, basic), n)
        first, last = int(there[0]), int(there[-1])
        if last - first >= MOST_SLOTS_APART:
            raise Refused(
                "basic_window_seconds",
                f"cut the stretches that hold rows into fewer than {MOST_SLOTS_APART:,}",
                settings.basic_window_seconds,
                "write a longer one",
            )
        edges = first + np.arange(last - first + 2, dtype=np.int64)
        starts = np.searchsorted(there, edges, side="left").astype(np.int64)
    found = volumes(low, high, slots, probes.kinds, starts, first, n, len(worth))
    index, stretches, chains, whole_cost, costs, looked_up = None, None, None, 1.0, np.ones(n), np.zeros(n)
    held = np.ones(n)
    curve, made = _curve(learned, n), found.sum(axis=1)
    if settings.index and settings.single_values:
        chains = chains_of(probes.sets, window.sets, (low, high))
        whole_cost, costs = steps_of_equals(probes.sets.first, high > low, chains.equals, curve, made)
    elif settings.index:
        index = index_for(probes.sets, window.sets)
        stretches = list_stretches(probes.sets.first, probes.sets.items, low, high, index.first, index.rows)
        whole_cost, costs, looked_up, held = steps_of_lists(
            probes, low, high, slots, starts, first, made, index, stretches, picks
        )
        curve = per_step(curve, costs, learned) * costs if picks else curve
    order = (
        np.argsort(-curve / costs, kind="stable") if settings.adapt.correlation else np.arange(n)
    ).astype(np.int64)
    nothing = np.zeros(probes.rows, np.int64)
    how = Probing(low, high, slots, nothing, order, starts, first)
    return Facing(
        probes, window, probe_is_left, how, settings.index, index, stretches, chains, found, 0.0,
        nothing_drawn(probes.rows), whole_cost, costs, looked_up, held, curve, np.ones(probes.rows, bool),
    )  # fmt: skip


def _curve(learned: LearnedSide, n: int) -> Array:
    if len(learned.matches) != n:
        return np.ones(n)
    return expected(learned.matches, learned.comparisons)
