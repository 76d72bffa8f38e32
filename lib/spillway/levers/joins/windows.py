"""One direction of a join (`Facing`): the probing rows, the probed window, and the cost of comparisons by basic window.

Costs are in steps. Without an index a comparison is one step. With an index steps are the list entries that are read,
whose number varies between basic windows as matches do, plus one look-up for each list. A row that is compared with its
whole window looks a list up once. A row that selects basic windows looks it up once for each run of neighbouring basic
windows (5.1.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numba import njit

from spillway.errors import Refused
from spillway.levers.joins.controllers import expected, how_known, smoothed
from spillway.levers.joins.estimates import Chains, chains_of
from spillway.levers.joins.exploration import LearnedSide
from spillway.levers.joins.matching import (
    Drawn,
    InvertedIndex,
    Looking,
    Probing,
    basic_windows,
    drawn_comparisons,
    drawn_entries,
    drawn_together,
    index_for,
    made_by,
    nothing_drawn,
    reach_of,
    slot_starts,
    slots_of,
    volumes,
)
from spillway.levers.joins.operands import Array, Operand
from spillway.levers.joins.settings import JoinSettings

COSTED_ROWS = 256
"""Number of probing rows that are sampled for the distribution of entries over basic windows. Their total is counted.
"""
COSTED_ITEMS, LEAST_COSTED = 50_000, 16
"""If rows have many items, fewer rows are sampled: as many as have `COSTED_ITEMS` items together, but at least
`LEAST_COSTED` rows.
"""


def costs_in_order(costs: Array, looked_up: Array, order: Array, held: Array | None = None) -> Array:
    """Return the steps per comparison, by basic window, that it adds if those before it in the order are selected.

    A list is looked up once for each run of neighbouring basic windows. So a basic window next to selected ones adds no
    look-up, and one that closes a gap saves one. Rows without entries are an exception: a row looks a run up with
    probability a = 1 - prod (1 - held_j), where `held` is the share of rows that have any row in a basic window (None:
    all have). So joining the runs a and b adds

        (1 - (1 - a) (1 - held_j) (1 - b)) - a - b    of the look-ups of a row.

    >>> costs_in_order(np.full(4, 5.0), np.full(4, 2.0), np.array([1, 3, 2, 0])).tolist()
    [3.0, 5.0, 1.0, 5.0]
    >>> costs_in_order(np.full(3, 5.0), np.full(3, 2.0), np.array([0, 1, 2]), np.full(3, 0.5)).tolist()
    [5.0, 4.0, 3.5]
    """
    there = np.ones(len(order)) if held is None else held
    found: Array = np.maximum(costs - looked_up * (1.0 - _added(order, there)), 1e-12)
    return found


@njit(cache=True)
def _added(order: Array, held: Array) -> Array:
    """Return, by basic window, the look-ups that it adds / the look-ups that it takes alone."""
    many = len(order)
    found, empty = np.ones(many), np.ones(many + 2)
    # stored at both ends of a run of selected neighbours: its other end, and the probability that it holds no row
    ends, picked = np.arange(many + 2), np.zeros(many + 2, np.bool_)
    for at in range(many):
        j = order[at] + 1
        before = empty[j - 1] if picked[j - 1] else 1.0
        behind = empty[j + 1] if picked[j + 1] else 1.0
        first = ends[j - 1] if picked[j - 1] else j
        last = ends[j + 1] if picked[j + 1] else j
        rest = before * behind * (1.0 - held[j - 1])
        if held[j - 1] > 0:
            found[j - 1] = ((1.0 - rest) - (1.0 - before) - (1.0 - behind)) / held[j - 1]
        picked[j], ends[first], ends[last] = True, last, first
        empty[first], empty[last] = rest, rest
    return found


def per_step(curve: Array, costs: Array, learned: LearnedSide) -> Array:
    """Return the pairs per step by basic window: pairs per comparison / steps per comparison, both smoothed alike.

    Where rows have more items in common, more entries are read and more pairs are found. If only one of the two were
    smoothed, a peak would look least worth its steps. If both are smoothed, the ratio at the peak stays right, and the
    neighbouring basic windows, where a comparison takes few steps, are expected to yield few pairs.
    """
    if len(learned.matches) != len(costs):
        return curve / costs
    known, heard, passes = how_known(learned.matches, learned.comparisons)
    there = smoothed(heard, passes)
    smooth = np.where(there > 0, smoothed(costs * heard, passes) / np.maximum(there, 1e-12), costs)
    found: Array = curve / (known * costs + (1.0 - known) * smooth)
    return found


def steps_of_equals(
    firsts: Array, there: Array, equals: Array, curve: Array, made: Array
) -> tuple[float, Array]:
    """Return the steps per comparison for single values: of whole windows, and of each basic window selected alone.

    Every entry is a pair, so the yields per step of basic windows differ only by their look-ups. A row that selects
    basic windows looks up a list in each of them.
    """
    total = float(made.sum())
    if not total:
        return 1.0, np.ones(len(made))
    entries, looked_up = float(equals.sum()), float((np.diff(firsts) * there).sum())
    scale = entries / max(1e-12, float(curve @ made))
    picked = curve * scale + looked_up / np.maximum(made, 1.0)
    return (entries + looked_up) / total, np.maximum(picked, 1e-12)


def steps_of_lists(
    probes: Operand,
    low: Array,
    high: Array,
    slots: Array,
    starts: Array,
    first: int,
    made: Array,
    index: InvertedIndex,
    stretches: tuple[Array, Array],
    picks: bool,
) -> tuple[float, Array, Array, Array]:
    """Return the steps per comparison of whole windows, and of each basic window selected alone; then its look-ups.

    The last value is, by basic window, the share of rows that have any row in it: only these look a list up.
    """
    total = float(made.sum())
    if not total:
        return 1.0, np.ones(len(made)), np.zeros(len(made)), np.ones(len(made))
    sets = probes.sets
    entries = float((stretches[1] - stretches[0]).sum())
    looked_up = float((np.diff(sets.first) * (high > low)).sum())
    items = max(1.0, len(sets.items) / max(1, probes.rows))
    costed = int(min(COSTED_ROWS, max(LEAST_COSTED, COSTED_ITEMS / items)))
    some = np.arange(0, probes.rows if picks else 0, max(1, probes.rows // costed), dtype=np.int64)
    read, asked, seen = _entries_of(
        some, sets.first, sets.items, low, high, slots, starts, first, len(made), index.first, index.rows
    )
    mean = entries / total
    per = np.where(seen > 0, read / np.maximum(seen, 1), mean)
    scale = entries / max(1e-12, float((per * made).sum()))
    alone = np.where(seen > 0, asked / np.maximum(seen, 1), 0.0)
    held = np.minimum(1.0, alone * made / max(1.0, looked_up))
    return (entries + looked_up) / total, np.maximum(per * scale + alone, 1e-12), alone, held


@njit(cache=True)
def list_stretches(
    first: Array, items: Array, low: Array, high: Array, ix_first: Array, ix_rows: Array
) -> tuple[Array, Array]:
    """Return, by item of a probing row, the range of its list with rows `low..high - 1` (two binary searches)."""
    begins, ends = np.zeros(len(items), np.int64), np.zeros(len(items), np.int64)
    for k in range(len(low)):
        if high[k] <= low[k]:
            continue
        for at in range(first[k], first[k + 1]):
            item = items[at]
            if item + 1 < len(ix_first):
                mine = ix_rows[ix_first[item] : ix_first[item + 1]]
                begins[at] = ix_first[item] + np.searchsorted(mine, low[k])
                ends[at] = ix_first[item] + np.searchsorted(mine, high[k])
    return begins, ends


@njit(cache=True)
def _entries_of(  # type: ignore[no-untyped-def]
    some, first, items, low, high, slots, starts, first_slot, n, ix_first, ix_rows
):
    """Return entries, look-ups and comparisons of some rows, by basic window."""
    read, asked, seen = np.zeros(n), np.zeros(n), np.zeros(n)
    last = len(starts) - 2
    for k in some:
        if high[k] <= low[k]:
            continue
        for at in range(first[k], first[k + 1]):
            item, place = items[at], 0
            here = ix_rows[ix_first[item] : ix_first[item + 1]] if item + 1 < len(ix_first) else ix_rows[:0]
            for back in range(n):  # from the oldest to the newest: each begins at the end of the one before
                j = n - 1 - back
                s = slots[k] - j - first_slot
                if s < 0 or s > last:
                    continue
                begin, end = max(low[k], starts[s]), min(high[k], starts[s + 1])
                if end <= begin:
                    continue
                if place == 0:
                    place = np.searchsorted(here, begin)
                ends = np.searchsorted(here, end)
                read[j] += ends - place
                asked[j] += 1
                seen[j] += (end - begin) * (at == first[k])
                place = ends
    return read, asked, seen


MOST_SLOTS, MOST_SLOTS_APART = 1_000_000, 20_000_000
"""Largest number of basic windows from the first row to the last; and the same without long gaps between rows."""


@dataclass(frozen=True)
class Given:
    """The rows of one side, and the range of them that probes (`low..high - 1`)."""

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
    """The index for all probing rows, if it exists already."""
    stretches: tuple[Array, Array] | None
    """By item of a probing row, the range of its list that lies in the row's window."""
    chains: Chains | None
    """Rows with equal values in the windows of probing rows, if an index of single values finds them."""
    volumes: Array
    """Number of possible comparisons, by basic window and type of the probing row."""
    chance: float
    """Probability q with which each comparison is sampled."""
    drawn: Drawn
    whole_cost: float
    """Steps per comparison if everything is compared."""
    costs: Array
    """Steps per comparison, by basic window, if basic windows are selected one by one."""
    looked_up: Array
    """The look-ups in `costs`."""
    held: Array
    """By basic window, the share of rows that have any row in it."""
    curve: Array
    """o_ij, as learned from earlier windows."""
    fetched: Array

    @property
    def possible(self) -> int:
        return int(self.volumes.sum())

    @property
    def whole_steps(self) -> float:
        """Return the steps of comparing everything."""
        return self.possible * self.whole_cost

    @property
    def probing(self) -> Array:
        """Return, by row, whether anything is selected or looked at for it."""
        found: Array = (self.how.take > 0) | (self.made_rows > 0)
        return found

    @property
    def everything(self) -> bool:
        """Return whether every row is compared with all of its window."""
        return bool((self.how.take >= self.how.high - self.how.low).all())

    @property
    def whole_rows(self) -> bool:
        """Return whether every row is compared with all of its window, or with nothing."""
        whole, made = self.how.high - self.how.low, self.made_rows
        return self.drawn.many == 0 and bool(((made == 0) | (made >= whole)).all())

    @property
    def drawn_from(self) -> float:
        """Return the size of the sampled population: comparisons, or entries of the lists that are looked up."""
        if self.chains is not None:
            return float(self.chains.equals.sum())
        if self.stretches is None:
            return float(self.possible)
        begins, ends = self.stretches
        return float((ends - begins).sum())

    @property
    def draw_steps(self) -> float:
        """Return the steps of one sampled comparison: 1, and with an index 1 more for its entry."""
        return 2.0 if self.indexed else 1.0

    @property
    def beyond_chances(self) -> tuple[Array, float]:
        """Return the probability of an unselected comparison: by basic window, and for a row that never looks."""
        chances = self.how.looking.chances
        looked: Array = chances if len(chances) else np.zeros(len(self.costs))
        return looked + (1.0 - looked) * self.chance, self.chance

    def drawing(self, chance: float, seed: int) -> Facing:
        """Return a copy with a random sample of comparisons, each drawn with probability `chance`."""
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
        """Return a copy with rows that look at whole basic windows, each with the probability of its basic window."""
        looking = Looking(chances, self.fetched, together, seed)
        return replace(self, how=replace(self.how, looking=looking))

    def steps_by_row(self) -> Array:
        """Return the approximate steps of each probing row."""
        how, mean = self.how, float(np.mean(self.costs)) if len(self.costs) else 1.0
        whole: Array = how.high - how.low
        spans = np.where(self.made_rows >= whole, whole * self.whole_cost, self.made_rows * mean)
        found: Array = spans + np.diff(self.drawn.first)
        return found

    @cached_property
    def _made(self) -> tuple[Array, Array, Array]:
        how = self.how
        probes, types = self.probes, self.volumes.shape[1]
        found: tuple[Array, Array, Array] = made_by(
            probes.seq, probes.kinds, types, how.selection, how.looking
        )
        return found

    @property
    def selected_volumes(self) -> Array:
        """Return the number of selected comparisons, by basic window and type."""
        return self._made[0]

    @property
    def made_rows(self) -> Array:
        """Return the number of comparisons that are selected or looked at, by row."""
        return self._made[2]

    @property
    def made_volumes(self) -> Array:
        """Return the expected number of comparisons by basic window and type: selected, looked at, and sampled ones."""
        made = self._made[1]
        found: Array = made + self.chance * (self.volumes - made)
        return found

    def compared_shares(self) -> list[float]:
        """Return the compared share of the window, by type of the probing row; 1 if there is nothing to compare."""
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
    """Return a direction: all possible comparisons and their costs, with nothing selected yet.

    If `picks` is False, no basic windows are selected, and all of them are assumed to cost the same.
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
    else:  # clocks far apart: leave out gaps that no row can reach
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
