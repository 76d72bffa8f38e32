"""Pairs of equal single values of whole windows, by chains: what a hash index finds, without making one (4.2).

A sweep in the order of time leads, for each value v, to the newest row of the window that has it, last(v), and from
each row to the one before it with the same value:

    a row that enters        previous(row) <- last(v),  last(v) <- row
    a row that probes        last(v), previous(last(v)), ... as far as its window reaches

That is one pass over the window and a step for each pair, where lists have to be counted, filled and searched. It
serves rows that are compared with all of their window (none of whose basic windows is picked out), which is all that
pays where every entry of an index is a pair; `probe` finds the same with any index.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.levers.joins.operands import Array, Operand
from spillway.levers.joins.probe import SELECTED, FoundPairs, Probing


def chained(
    mine: Operand, other: Operand, how: Probing, equals: Array, made: Array, with_itself: bool = False
) -> FoundPairs:
    """The pairs of rows that are compared with all of their window (`made`: its rows); `equals`: how many each has."""
    picked = made > 0
    items = [int(one.sets.items.max()) + 1 for one in (mine, other) if len(one.sets.items)]
    room = int(equals[picked].sum())
    probes, rows, lags, everything, steps = _chained(
        mine.sets.first, mine.sets.items, mine.seq, how.low, how.high, picked, equals,
        other.sets.first, other.sets.items, other.seq, how.starts, max(items, default=0), room, with_itself,
    )  # fmt: skip
    behind = how.slots[probes] - how.first_slot - lags
    selected = how.take >= how.high - how.low
    return FoundPairs(
        probes,
        rows,
        np.where(selected[probes], SELECTED, behind),
        made,
        np.where(selected, everything, 0),
        everything,
        np.bincount(behind, minlength=len(how.order)),
        0,
        steps,
    )


@njit(cache=True)
def _chained(  # type: ignore[no-untyped-def]
    p_first,
    p_items,
    p_seq,
    low,
    high,
    picked,
    equals,
    o_first,
    o_items,
    o_seq,
    starts,
    values,
    room,
    with_itself,
):
    """By pair the probing row, the row and the basic window it lies in, ascending; pairs by probing row; steps."""
    out_probe, out_row = np.empty(room, np.int64), np.empty(room, np.int64)
    out_slot, everything = np.empty(room, np.int64), np.zeros(len(low), np.int64)
    last, previous = np.full(values, -1, np.int64), np.empty(len(o_seq), np.int64)
    slots, slot = np.empty(len(o_seq), np.int64), 0
    pairs, entered, steps = 0, 0, 0
    for k in range(len(low)):
        if not picked[k]:
            continue
        while entered < high[k]:
            while entered >= starts[slot + 1]:
                slot += 1
            slots[entered] = slot
            if o_first[entered + 1] > o_first[entered]:
                item = o_items[o_first[entered]]
                previous[entered], last[item] = last[item], entered
            entered += 1
        if p_first[k + 1] == p_first[k]:
            continue
        steps += 1 + equals[k]
        row, ends = last[p_items[p_first[k]]], pairs + equals[k]
        place = ends
        while row >= low[k]:
            if not with_itself or o_seq[row] != p_seq[k]:
                place -= 1
                out_probe[place], out_row[place], out_slot[place] = k, row, slots[row]
            row = previous[row]
        for moved in range(place, ends if place > pairs else place):  # a row is no pair of its own
            to = moved - (place - pairs)
            out_probe[to], out_row[to], out_slot[to] = out_probe[moved], out_row[moved], out_slot[moved]
        everything[k] = ends - place
        pairs += everything[k]
    return out_probe[:pairs], out_row[:pairs], out_slot[:pairs], everything, steps
