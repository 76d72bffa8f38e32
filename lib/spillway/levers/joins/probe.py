"""Comparing rows with the part of the opposite window that is worth it (Algorithm 3), with an index or without.

For each probing row of which `take` rows of the window may be used, basic windows are used whole in the order of their
ranks until `take` is spent, the last one partly: its newest rows. Besides, it is compared with the rows that chance
drew for it (`drawing`), which is what ranks are learned from and what missed pairs are estimated by: each pair of those
says whether selecting found it too.

Guarantees: no pair is found that the full join would not find (every pair is tested whole), and each at most once; with
`take` the whole window, the pairs are exactly those of the full join; index or not, the same rows are selected and the
same pairs found, down to the order in which inner products are summed.

Work is counted in *steps*. Without an index a step is a row that is compared; with one it is an entry of a list that is
read, or a list that is looked up: what a basic window more costs, however few rows it has (5.1.1). A row that chance
drew is a step too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from spillway.levers.joins.drawing import Drawn, nothing_drawn
from spillway.levers.joins.index import InvertedIndex
from spillway.levers.joins.operands import Array, Operand
from spillway.levers.joins.predicates import makes_pair, oriented, shared
from spillway.levers.joins.ring import newest_taken

NO_INDEX = InvertedIndex(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0))


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


@dataclass(frozen=True)
class FoundPairs:
    """Pairs, and what was counted on the way."""

    probe: Array
    row: Array
    beyond: Array
    """By pair, whether chance alone found it: selecting left it out."""
    compared: Array
    inside: Array
    everything: Array
    """By probing row: rows considered, pairs that selecting finds, pairs found."""
    sampled: Array
    """Pairs of the sample, by basic window."""
    sampled_squares: int
    """Those of each probing row squared, and summed."""
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
    samples_selected: bool = True,
) -> FoundPairs:
    """Compare each row of `mine` with its part of `other`; the sample is what was drawn, or that and all selected."""
    ix = NO_INDEX if index is None else index
    by_chance = nothing_drawn(mine.rows) if drawn is None else drawn
    found = _probe(
        mine.sets.first, mine.sets.items, mine.sets.weights, mine.seq,
        how.low, how.high, how.slots, how.take, how.order, how.starts, how.first_slot,
        by_chance.first, by_chance.rows, samples_selected,
        other.sets.first, other.sets.items, other.sets.weights, other.seq,
        ix.first, ix.rows, ix.weights, index is not None,
        predicate if probe_is_left else oriented(predicate), float(threshold), with_itself,
    )  # fmt: skip
    return FoundPairs(*found)


@njit(cache=True)
def _probe(  # type: ignore[no-untyped-def]
    p_first, p_items, p_weights, p_seq,
    low, high, slots, take, order, starts, first_slot,
    drawn_first, drawn_rows, samples_selected,
    o_first, o_items, o_weights, o_seq,
    ix_first, ix_rows, ix_weights, indexed,
    predicate, threshold, with_itself,
):  # fmt: skip
    rows, n = len(low), len(order)
    room = 1024
    out_probe, out_row = np.empty(room, np.int64), np.empty(room, np.int64)
    out_beyond = np.empty(room, np.bool_)
    pairs, steps = 0, 0
    compared, inside = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    everything = np.zeros(rows, np.int64)
    sampled, sampled_squares = np.zeros(n, np.int64), 0
    chosen = np.zeros(n, np.int64)
    from_, to_ = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    # by row of the window what several lists have added up; by hit the row, and what it shares
    common, product = np.zeros(len(o_seq), np.int64), np.zeros(len(o_seq))
    touched, many, sums = np.empty(len(o_seq), np.int64), np.empty(len(o_seq), np.int64), np.empty(len(o_seq))
    s = 0
    for k in range(rows):
        size = p_first[k + 1] - p_first[k]
        whole, by_chance = high[k] - low[k], drawn_first[k + 1] - drawn_first[k]
        if whole <= 0 or (take[k] <= 0 and by_chance == 0):
            continue
        # which part of each basic window selecting uses: the newest `chosen[j]` rows
        all_selected, spans = take[k] >= whole, 0
        if all_selected:
            from_[0], to_[0], spans = low[k], high[k], 1
        else:
            newest_taken(low[k], high[k], slots[k], take[k], order, starts, first_slot, chosen)
        for back in range(0 if all_selected else n):
            j = n - 1 - back
            if chosen[j] == 0:
                continue
            slot = slots[k] - j - first_slot
            end = min(high[k], starts[slot + 1])
            begin = end - chosen[j]
            if spans and to_[spans - 1] == begin:
                to_[spans - 1] = end
            else:
                from_[spans], to_[spans] = begin, end
                spans += 1
        # the rows to decide on, with what they share
        hits = 0
        if indexed:
            for span in range(spans):
                compared[k] += to_[span] - from_[span]
            for at in range(p_first[k], p_first[k + 1]):
                item = p_items[at]
                if item + 1 >= len(ix_first):
                    steps += spans
                    continue
                begin, end = ix_first[item], ix_first[item + 1]
                for span in range(spans):
                    steps += 1
                    place = begin + np.searchsorted(ix_rows[begin:end], from_[span])
                    while place < end and ix_rows[place] < to_[span]:
                        row = ix_rows[place]
                        if size == 1:  # no other list leads to the row again
                            touched[hits], many[hits] = row, 1
                            sums[hits] = p_weights[at] * ix_weights[place]
                            hits += 1
                        else:
                            if common[row] == 0:
                                touched[hits] = row
                                hits += 1
                            common[row] += 1
                            product[row] += p_weights[at] * ix_weights[place]
                        steps += 1
                        place += 1
            for hit in range(hits if size > 1 else 0):
                row = touched[hit]
                many[hit], sums[hit] = common[row], product[row]
                common[row], product[row] = 0, 0.0
        else:
            for span in range(spans):
                for row in range(from_[span], to_[span]):
                    both, sum_ = shared(
                        p_items[p_first[k] : p_first[k + 1]],
                        o_items[o_first[row] : o_first[row + 1]],
                        p_weights[p_first[k] : p_first[k + 1]],
                        o_weights[o_first[row] : o_first[row + 1]],
                    )
                    if both:
                        touched[hits], many[hits], sums[hits] = row, both, sum_
                        hits += 1
                compared[k] += to_[span] - from_[span]
                steps += to_[span] - from_[span]
        own_sampled = 0
        for hit in range(hits + by_chance):
            selected = hit < hits
            if selected:
                row, both, sum_ = touched[hit], many[hit], sums[hit]
            else:
                row = drawn_rows[drawn_first[k] + hit - hits]
                both, sum_ = shared(
                    p_items[p_first[k] : p_first[k + 1]],
                    o_items[o_first[row] : o_first[row + 1]],
                    p_weights[p_first[k] : p_first[k + 1]],
                    o_weights[o_first[row] : o_first[row + 1]],
                )
                steps += 1
            other_size = o_first[row + 1] - o_first[row]
            pair = makes_pair(predicate, threshold, both, sum_, size, other_size)
            if not pair:
                if not selected:  # it was compared all the same, if it was not selected too
                    again = False
                    for span in range(spans):
                        again = again or from_[span] <= row < to_[span]
                    compared[k] += not again
                continue
            # which basic window the row lies in: most often that of the one before, or the next
            if row >= starts[s + 1]:
                s += 1
            if not (starts[s] <= row < starts[s + 1]):
                s = np.searchsorted(starts, row, side="right") - 1
            j = slots[k] - first_slot - s
            beyond = not all_selected and row < min(high[k], starts[s + 1]) - chosen[j]
            if beyond:
                compared[k] += 1
            if with_itself and o_seq[row] == p_seq[k]:
                continue
            if beyond or selected == samples_selected:
                sampled[j] += 1
                own_sampled += 1
            if not (selected or beyond):  # drawn, and found already
                continue
            if pairs == room:
                room *= 2
                bigger_probe, bigger_row = np.empty(room, np.int64), np.empty(room, np.int64)
                bigger_beyond = np.empty(room, np.bool_)
                bigger_probe[:pairs], bigger_row[:pairs] = out_probe[:pairs], out_row[:pairs]
                bigger_beyond[:pairs] = out_beyond[:pairs]
                out_probe, out_row, out_beyond = bigger_probe, bigger_row, bigger_beyond
            out_probe[pairs], out_row[pairs], out_beyond[pairs] = k, row, beyond
            pairs += 1
            everything[k] += 1
            if not beyond:
                inside[k] += 1
        sampled_squares += own_sampled * own_sampled
    return (
        out_probe[:pairs], out_row[:pairs], out_beyond[:pairs], compared, inside, everything, sampled,
        sampled_squares, steps,
    )  # fmt: skip
