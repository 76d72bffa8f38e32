"""Comparing rows with the part of the opposite window that is worth it (Algorithm 3), with an index or without.

For each probing row of which `take` rows of the window may be used, basic windows are used whole in the order of their
ranks until `take` is spent, the last one partly: its newest rows. Beyond that, chance has it look at whole basic
windows (`looking`), which is what ranks are learned from besides, and at rows here and there (`drawing`), which is what
missed pairs are estimated by. Each pair says whether selecting found it, or in which basic window chance did.

Guarantees: no pair is found that the full join would not find (every pair is tested whole), and each at most once; with
`take` the whole window, the pairs are exactly those of the full join; index or not, the same rows are compared and the
same pairs found, down to the order in which inner products are summed.

Work is counted in *steps*. Without an index a step is a row that is compared; with one it is an entry of a list that is
read, or a list that is looked up: what a basic window more costs, however few rows it has (5.1.1). A row that chance
drew is a step too, unless it is compared anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numba import njit

from spillway.levers.joins.drawing import Drawn, nothing_drawn
from spillway.levers.joins.index import InvertedIndex
from spillway.levers.joins.looking import Looking, with_looks
from spillway.levers.joins.operands import Array, Operand
from spillway.levers.joins.predicates import (
    EQUALITY,
    INNER_PRODUCT,
    OVERLAP,
    SUPERSET,
    makes_pair,
    oriented,
    shared,
)
from spillway.levers.joins.ring import newest_taken

NO_INDEX = InvertedIndex(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0))
SELECTED = -1
_COUNT = 1 << 24
"""More than a row has items: how many are shared stands beside the number of the row that shares them."""


@dataclass(frozen=True)
class Probing:
    """Who probes what, and how far: everything that is decided before a row is compared."""

    low: Array
    high: Array
    """By probing row, its window: the rows `low..high - 1` of the other side."""
    slots: Array
    """By probing row, the basic window it lies in itself."""
    take: Array
    """By probing row, how many rows of its window are selected for it."""
    order: Array
    """Basic windows by rank, the best first (s_i)."""
    starts: Array
    first_slot: int
    looking: Looking = field(default_factory=Looking)


@dataclass(frozen=True)
class FoundPairs:
    """Pairs, and what was counted on the way."""

    probe: Array
    row: Array
    behind: Array
    """By pair, `SELECTED`, or the basic window that chance found it in: selecting left it out."""
    compared: Array
    inside: Array
    everything: Array
    """By probing row: rows considered, pairs that selecting finds, pairs found."""
    by_lag: Array
    """Pairs by basic window."""
    drawn: int
    """Pairs that were drawn, and that nothing else found."""
    steps: int


def probe(
    mine: Operand,
    other: Operand,
    how: Probing,
    predicate: int,
    threshold: float,
    index: InvertedIndex | None = None,
    probe_is_left: bool = True,
    with_itself: bool = False,
    drawn: Drawn | None = None,
) -> FoundPairs:
    """Compare each row of `mine` with its part of `other`, and with what was drawn."""
    ix = NO_INDEX if index is None else index
    by_chance, looking = nothing_drawn(mine.rows) if drawn is None else drawn, how.looking
    found = _probe(
        mine.sets.first, mine.sets.items, mine.sets.weights, mine.seq,
        how.low, how.high, how.slots, how.take, how.order, how.starts, how.first_slot,
        looking.chances, looking.who, looking.together, np.uint64(looking.seed),
        by_chance.first, by_chance.rows,
        other.sets.first, other.sets.items, other.sets.weights, other.seq,
        ix.first, ix.rows, ix.weights, index is not None,
        predicate if probe_is_left else oriented(predicate), float(threshold), with_itself,
    )  # fmt: skip
    return FoundPairs(*found)


@njit(cache=True)
def _probe(  # type: ignore[no-untyped-def]
    p_first, p_items, p_weights, p_seq,
    low, high, slots, take, order, starts, first_slot,
    chances, who, together, seed,
    drawn_first, drawn_rows,
    o_first, o_items, o_weights, o_seq,
    ix_first, ix_rows, ix_weights, indexed,
    predicate, threshold, with_itself,
):  # fmt: skip
    rows, n, weighted = len(low), len(order), predicate == INNER_PRODUCT
    room = 1024
    out_probe, out_row = np.empty(room, np.int64), np.empty(room, np.int64)
    out_behind = np.empty(room, np.int64)
    pairs, drawn, steps = 0, 0, 0
    compared, inside = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    everything, by_lag = np.zeros(rows, np.int64), np.zeros(n, np.int64)
    chosen, used = np.zeros(n, np.int64), np.zeros(n, np.int64)
    from_, to_ = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    # by row of the window the probing row that last led to it, and the items they share; what these add up to
    common, product = np.zeros(len(o_seq), np.int64), np.zeros(len(o_seq) if weighted else 0)
    touched, matching = np.empty(len(o_seq) if weighted else 0, np.int64), np.empty(len(o_seq), np.int64)
    s = 0
    for k in range(rows):
        p_begin, p_end = p_first[k], p_first[k + 1]
        size = p_end - p_begin
        whole, by_chance = high[k] - low[k], drawn_first[k + 1] - drawn_first[k]
        looks = len(who) > 0 and who[k]
        if whole <= 0 or (take[k] <= 0 and by_chance == 0 and not looks):
            continue
        # which part of each basic window is used: of those selected the newest `chosen[j]` rows, of those looked at all
        all_selected, spans = take[k] >= whole, 0
        if all_selected:
            from_[0], to_[0], spans = low[k], high[k], 1
        else:
            newest_taken(low[k], high[k], slots[k], take[k], order, starts, first_slot, chosen)
            used[:] = chosen
            if looks:
                with_looks(
                    low[k], high[k], slots[k], np.uint64(p_seq[k]), chances, together, seed, starts, first_slot,
                    chosen, used,
                )  # fmt: skip
        for back in range(0 if all_selected else n):
            j = n - 1 - back
            if used[j] == 0:
                continue
            slot = slots[k] - j - first_slot
            end = min(high[k], starts[slot + 1])
            begin = end - used[j]
            if spans and to_[spans - 1] == begin:
                to_[spans - 1] = end
            else:
                from_[spans], to_[spans] = begin, end
                spans += 1
        for span in range(spans):
            compared[k] += to_[span] - from_[span]
        hits = 0
        if indexed:
            touches, mark = 0, (k + 1) * _COUNT
            # as many shared items decide, whatever else the other row has, but where all of its own have to be shared
            enough = int(np.ceil(max(1.0, threshold))) if predicate == OVERLAP else size
            for at in range(p_begin, p_end):
                item = p_items[at]
                if item + 1 >= len(ix_first):
                    steps += spans
                    continue
                begin, end = ix_first[item], ix_first[item + 1]
                for span in range(spans):
                    place = begin + np.searchsorted(ix_rows[begin:end], from_[span])
                    steps += 1 - place
                    while place < end and ix_rows[place] < to_[span]:
                        row, both = ix_rows[place], 1
                        if size > 1:  # another list may lead to the row again
                            both = max(1, common[row] - mark + 1)
                            common[row] = mark + both
                        if weighted:
                            if both == 1:
                                touched[touches], product[row] = row, 0.0
                                touches += 1
                            product[row] += p_weights[at] * ix_weights[place]
                        else:
                            if predicate == SUPERSET:
                                enough = o_first[row + 1] - o_first[row]
                            if both == enough and (
                                predicate != EQUALITY or o_first[row + 1] - o_first[row] == size
                            ):
                                matching[hits] = row
                                hits += 1
                        place += 1
                    steps += place
            for touch in range(touches):
                row = touched[touch]
                if product[row] >= threshold:
                    matching[hits] = row
                    hits += 1
        else:
            for span in range(spans):
                for row in range(from_[span], to_[span]):
                    o_begin, o_end = o_first[row], o_first[row + 1]
                    both, sum_ = shared(
                        p_items, p_weights, p_begin, p_end, o_items, o_weights, o_begin, o_end
                    )
                    if both and makes_pair(predicate, threshold, both, sum_, size, o_end - o_begin):
                        matching[hits] = row
                        hits += 1
                steps += to_[span] - from_[span]
        spanned = hits
        for at in range(drawn_first[k], drawn_first[k + 1]):
            row, again = drawn_rows[at], False
            for span in range(spans):
                again = again or from_[span] <= row < to_[span]
            if again:  # it is compared anyway
                continue
            o_begin, o_end = o_first[row], o_first[row + 1]
            both, sum_ = shared(p_items, p_weights, p_begin, p_end, o_items, o_weights, o_begin, o_end)
            compared[k] += 1
            steps += 1
            if makes_pair(predicate, threshold, both, sum_, size, o_end - o_begin):
                matching[hits] = row
                hits += 1
        for hit in range(hits):
            row = matching[hit]
            if with_itself and o_seq[row] == p_seq[k]:
                continue
            # which basic window the row lies in: most often that of the one before, or the next
            if row >= starts[s + 1]:
                s += 1
            if not (starts[s] <= row < starts[s + 1]):
                s = np.searchsorted(starts, row, side="right") - 1
            j = slots[k] - first_slot - s
            beyond = not all_selected and row < min(high[k], starts[s + 1]) - chosen[j]
            if pairs == room:
                room *= 2
                bigger_probe, bigger_row = np.empty(room, np.int64), np.empty(room, np.int64)
                bigger_behind = np.empty(room, np.int64)
                bigger_probe[:pairs], bigger_row[:pairs] = out_probe[:pairs], out_row[:pairs]
                bigger_behind[:pairs] = out_behind[:pairs]
                out_probe, out_row, out_behind = bigger_probe, bigger_row, bigger_behind
            out_probe[pairs], out_row[pairs], out_behind[pairs] = k, row, j if beyond else SELECTED
            pairs += 1
            everything[k] += 1
            by_lag[j] += 1
            inside[k] += not beyond
            drawn += hit >= spanned
    return (
        out_probe[:pairs], out_row[:pairs], out_behind[:pairs], compared, inside, everything, by_lag, drawn, steps,
    )  # fmt: skip
