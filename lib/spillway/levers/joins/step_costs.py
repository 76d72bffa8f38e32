"""What a comparison takes, in steps, by basic window.

Without an index a comparison is a step. With an index steps are the entries of lists that are read, which differ from
one basic window to the next as matches do, and a look-up for each list: once for a row that is compared with its whole
window, once for all basic windows that lie side by side for one that picks them out (5.1.1).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.levers.joins.correlation import how_known, smoothed
from spillway.levers.joins.index import InvertedIndex
from spillway.levers.joins.memory import LearnedSide
from spillway.levers.joins.operands import Array, Operand

COSTED_ROWS = 256
"""Probing rows that say how entries are spread over basic windows; how many there are in all is counted."""
COSTED_ITEMS, LEAST_COSTED = 50_000, 16
"""Of rows with many items fewer say it: as many as have so many items together, and at least so many rows."""


def costs_in_order(costs: Array, looked_up: Array, order: Array, held: Array | None = None) -> Array:
    """Steps a comparison, by basic window, that it adds where those that come before it in the order are picked.

    Lists are looked up once for all that lie side by side: one beside those picked adds no look-up, and one that closes
    a gap saves one. But for rows that have nothing in those: a run of neighbours is looked up by a row with chance
    a = 1 - prod (1 - held_j), `held` being the share of rows that have any row in a basic window (None: all have), so
    that joining runs a and b adds

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
    """By basic window the look-ups that it adds, over those it takes alone."""
    many = len(order)
    found, empty = np.ones(many), np.ones(many + 2)
    # of a run of neighbours that are picked, at its first and at its last, where it ends and how often it has no row
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
    """Pairs a step by basic window: pairs a comparison over steps a comparison, both smoothed alike.

    Where rows have more in common more entries are read, and more pairs found. A peak that is smoothed in one and not
    in the other would be the last that is worth its steps; one that is smoothed in both is worth them, and what lies
    beside it, where a comparison takes few steps, is expected to yield as little as it takes.
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
    """The same of single values: every entry is a pair, so no basic window yields more a step than the look-up saves.

    A row that picks basic windows out looks up a list in each.
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
    """Steps a comparison: of whole windows, and of each basic window picked out alone; of those, lists looked up.

    And by basic window the share of look-ups that are made where only it is picked: of rows that have a row in it.
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
    """By item of a probing row, where its list has the rows `low..high - 1`: two look-ups by bisection each."""
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
    """By basic window, of some rows: entries, lists looked up, comparisons."""
    read, asked, seen = np.zeros(n), np.zeros(n), np.zeros(n)
    last = len(starts) - 2
    for k in some:
        if high[k] <= low[k]:
            continue
        for at in range(first[k], first[k + 1]):
            item, place = items[at], 0
            here = ix_rows[ix_first[item] : ix_first[item + 1]] if item + 1 < len(ix_first) else ix_rows[:0]
            for back in range(n):  # from the oldest to the newest: where one ends the next one begins
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
