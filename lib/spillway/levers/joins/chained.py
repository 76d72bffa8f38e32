"""Pairs of equal single values of whole windows, along chains: what a hash index finds, without making one (4.2).

`equals` leads each row that probes to the newest row of its window with its value, and each row to the one before it
with the same value, in the pass that counts how many they are. So a pair takes a step, and no list is counted, filled
or searched. It serves rows that are compared with all of their window (none of whose basic windows is picked out),
which is all that pays where every entry of an index is a pair; `probe` finds the same with any index.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.levers.joins.equals import Chains
from spillway.levers.joins.operands import Array, Operand
from spillway.levers.joins.probe import SELECTED, FoundPairs, Probing


def chained(
    mine: Operand, other: Operand, how: Probing, chains: Chains, made: Array, with_itself: bool = False
) -> FoundPairs:
    """The pairs of rows that are compared with all of their window; `made`: how many rows that is, or 0."""
    room = int(chains.equals[made > 0].sum())
    probes, rows, behind, everything, steps = _chained(
        mine.sets.first, mine.seq, how.low, how.high, how.slots, made, chains.equals, chains.newest,
        chains.previous, other.seq, how.starts, how.first_slot, room, with_itself,
    )  # fmt: skip
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
    p_seq,
    low,
    high,
    slots,
    made,
    equals,
    newest,
    previous,
    o_seq,
    starts,
    first_slot,
    room,
    with_itself,
):
    """By pair the probing row, the row and its basic window, rows ascending; pairs by probing row; steps."""
    out_probe, out_row = np.empty(room, np.int64), np.empty(room, np.int64)
    out_behind, everything = np.empty(room, np.int64), np.zeros(len(low), np.int64)
    pairs, steps = 0, 0
    for k in range(len(low)):
        if made[k] <= 0 or p_first[k + 1] == p_first[k]:
            continue
        steps += 1 + equals[k]
        row, slot, ends = newest[k], min(slots[k] - first_slot, len(starts) - 2), pairs + equals[k]
        place = ends
        while row >= low[k]:
            while row < starts[slot]:
                slot -= 1
            if not with_itself or o_seq[row] != p_seq[k]:
                place -= 1
                out_probe[place], out_row[place] = k, row
                out_behind[place] = slots[k] - first_slot - slot
            row = previous[row]
        for moved in range(place, ends if place > pairs else place):  # a row is no pair of its own
            to = moved - (place - pairs)
            out_probe[to], out_row[to], out_behind[to] = out_probe[moved], out_row[moved], out_behind[moved]
        everything[k] = ends - place
        pairs += everything[k]
    return out_probe[:pairs], out_row[:pairs], out_behind[:pairs], everything, steps
