"""The kernel `probe` as one function, before it was split (issue 26): an oracle for one release, bit for bit."""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.levers.joins.matching import (
    NO_INDEX,
    Drawn,
    FoundPairs,
    InvertedIndex,
    Probing,
    nothing_drawn,
    oriented,
)
from spillway.levers.joins.operands import Operand
from spillway.sketches.kernels import mix64

EQUALITY, SUBSET, SUPERSET, OVERLAP, INNER_PRODUCT = range(5)
SELECTED = -1
_COUNT = 1 << 24
_SALT, _STEP = np.uint64(0x2545F4914F6CDD1D), np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True)
def shared(  # type: ignore[no-untyped-def]
    left, left_weights, begin, end, right, right_weights, from_, to_
) -> tuple[int, float]:
    """Return how many items `left[begin:end]` and `right[from_:to_]` have in common, and the sum of products of
    weights.

    It is one merge of two sorted lists.
    """
    i, j, common, product = begin, from_, 0, 0.0
    while i < end and j < to_:
        if left[i] == right[j]:
            common += 1
            product += left_weights[i] * right_weights[j]
            i += 1
            j += 1
        elif left[i] < right[j]:
            i += 1
        else:
            j += 1
    return common, product


@njit(cache=True)
def makes_pair(
    predicate: int, threshold: float, common: int, product: float, left_size: int, right_size: int
) -> bool:
    """Return whether two rows are a pair, from the number and product of their common items, and their sizes."""
    if common == 0:
        return False
    if predicate == 0:
        return bool(common == left_size and common == right_size)
    if predicate == 1:
        return bool(common == left_size)
    if predicate == 2:
        return bool(common == right_size)
    if predicate == 3:
        return bool(common >= threshold)
    return bool(product >= threshold)


@njit(cache=True)
def newest_taken(  # type: ignore[no-untyped-def]
    low, high, slot, take, order, starts, first_slot, taken
) -> None:
    """Write the number of rows used of each basic window to `taken`, `take` in all, for one probing row.

    Basic windows are used in `order`. Of the last one that is needed, the newest rows are used.
    """
    left, last = min(take, high - low), len(starts) - 2
    taken[:] = 0
    for at in range(len(order)):
        if left <= 0:
            break
        j = order[at]
        s = slot - j - first_slot
        if s < 0 or s > last:
            continue
        there = min(high, starts[s + 1]) - max(low, starts[s])
        if there > 0:
            taken[j] = min(there, left)
            left -= taken[j]


@njit(cache=True)
def with_looks(  # type: ignore[no-untyped-def]
    low, high, slot, seq, chances, together, seed, starts, first_slot, chosen, used
) -> None:
    """Write the number of rows used of each basic window to `used`, for one probing row.

    All rows of a basic window that the row looks at are used, else `chosen`.
    """
    state, last = mix64(seq + np.uint64(1), mix64(seed, _SALT)), len(starts) - 2
    if together:
        state = mix64(state, _SALT)
    for j in range(len(chosen)):
        used[j] = chosen[j]
        s = slot - j - first_slot
        if s < 0 or s > last or chances[j] <= 0:
            continue
        drawn = state if together else mix64(state + np.uint64(j) * _STEP, _SALT)
        if float(drawn >> np.uint64(11)) / 9007199254740992.0 < chances[j]:
            used[j] = max(0, min(high, starts[s + 1]) - max(low, starts[s]))


@njit(cache=True)
def made_by(  # type: ignore[no-untyped-def]
    low, high, slots, seq, take, kinds, order, starts, first_slot, types, chances, who, together, seed
):
    """Return comparisons by basic window and type (selected; selected or looked at), and the latter by row."""
    n = len(order)
    selected, made = np.zeros((n, types), np.int64), np.zeros((n, types), np.int64)
    by_row = np.zeros(len(low), np.int64)
    chosen, used = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for k in range(len(low)):
        looks = len(who) > 0 and who[k]
        if high[k] <= low[k] or (take[k] <= 0 and not looks):
            continue
        newest_taken(low[k], high[k], slots[k], take[k], order, starts, first_slot, chosen)
        if looks:
            with_looks(
                low[k], high[k], slots[k], seq[k], chances, together, seed, starts, first_slot, chosen, used
            )
        for j in range(n):
            selected[j, kinds[k]] += chosen[j]
            mine = used[j] if looks else chosen[j]
            made[j, kinds[k]] += mine
            by_row[k] += mine
    return selected, made, by_row


@njit(cache=True)
def taken_whole(  # type: ignore[no-untyped-def]
    wanted, draws, low, high, slots, order, starts, first_slot
):
    """Return, by probing row, how many rows `newest_taken` should take so that no basic window is taken in part.

    Basic windows are used in `order` until `wanted` is reached. The last one is taken as a whole or not at all. Its
    probability is the part of it that is wanted, so the expected number is `wanted`. It is taken if the row's draw, in
    [0, 1), is below that probability.
    """
    found, last = np.zeros(len(wanted), np.int64), len(starts) - 2
    for k in range(len(wanted)):
        if wanted[k] >= high[k] - low[k]:
            found[k] = high[k] - low[k]
            continue
        for at in range(len(order)):
            s = slots[k] - order[at] - first_slot
            if s < 0 or s > last:
                continue
            there = min(high[k], starts[s + 1]) - max(low[k], starts[s])
            if there <= 0:
                continue
            left = wanted[k] - found[k]
            if left >= there or draws[k] * there < left:
                found[k] += there
            if left <= there:
                break
    return found


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
    """Compare each row of `mine` with the selected part of `other`, and with the sample."""
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
    # by row of the window: the last probing row that reached it with the number of common items; their weighted sum
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
        # rows used of each basic window: the newest `chosen[j]` if it is selected, all if it is looked at
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
            # number of common items that makes a pair; for superset and equality the size of the other row counts too
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
                        if size > 1:  # another list may contain the row too
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
            if again:  # it is compared already
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
            # the basic window of the row: most often that of the previous row, or the next one
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
