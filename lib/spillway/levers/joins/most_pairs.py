"""How many pairs a row can have, by counting how often items stand in its window: nothing is compared.

A sweep in the order of time keeps, for each item i, c(i): the rows of the window that have it. By row R of n items:

    equality        c(R's value)                                     exactly its pairs
    subset          min over R's items of c(i)                       a match has every one of them
    superset        sum over R's items of sum over its rows 1 / |L|  a match L adds 1 / |L| for each of its |L| items
    overlap         min(C / t, C less the t - 1 largest c(i)), C = sum of c(i): a match adds t to C at least, and has
                    one of any n - t + 1 items of R
    inner product   P / theta, P the sum of products that are positive; and C

Each is an upper bound that no stream can break, of streams in a burst or of rare heavy rows as of steady ones. It costs
one pass over the items of the window (entering, leaving) and of the rows that probe it, where comparing costs their
product. Sets that are asked to be equal are told by 64 bits of their items: two of n that differ count as equal with a
chance of n^2 / 2^65.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.levers.joins.operands import Array, ItemSets, Operand
from spillway.levers.joins.predicates import EQUALITY, oriented
from spillway.sketches.mixing import mix64

_SALT = np.uint64(0x9E3779B97F4A7C15)
_ROUNDING = 1e-9
"""Of the largest sum: what adding and taking away again leaves."""


def most_pairs(
    probes: Operand,
    window: Operand,
    reach: tuple[Array, Array],
    predicate: int,
    threshold: float,
    probe_is_left: bool,
    with_itself: bool = False,
) -> Array:
    """By probing row, how many pairs it has at most with the rows `low..high - 1` of the window; equality: exactly."""
    mine, other = probes.sets, window.sets
    if predicate == EQUALITY:
        mine, other = _values(mine, other)
    many = max((int(one.items.max()) + 1 for one in (mine, other) if len(one.items)), default=0)
    found: Array = _most(
        mine.first, mine.items, mine.weights, *reach, other.first, other.items, other.weights, many,
        predicate if probe_is_left else oriented(predicate), float(threshold),
    )  # fmt: skip
    if predicate == EQUALITY and with_itself and window.rows:
        found -= _meets_itself(probes, window, mine, other, reach)
    return found


def equals_of(mine: ItemSets, window: ItemSets, reach: tuple[Array, Array]) -> Array:
    """By probing row of one value, the rows `low..high - 1` of the window that have it; rows have one value at most."""
    many = max((int(one.items.max()) + 1 for one in (mine, window) if len(one.items)), default=0)
    found: Array = _most(
        mine.first, mine.items, mine.weights, *reach, window.first, window.items, window.weights, many, EQUALITY, 0.0
    )  # fmt: skip
    return found


def _values(mine: ItemSets, other: ItemSets) -> tuple[ItemSets, ItemSets]:
    """Sets as single values: alike where they are equal."""
    sizes = [np.diff(one.first) for one in (mine, other)]
    if all((one <= 1).all() for one in sizes):
        return mine, other
    codes = [_code(one.first, one.items)[size > 0] for one, size in zip((mine, other), sizes, strict=True)]
    values = np.unique(np.concatenate(codes), return_inverse=True)[1].astype(np.int64)
    cut = len(codes[0])
    first, second = (
        ItemSets(np.concatenate([[0], np.cumsum(size > 0)]).astype(np.int64), part, np.ones(len(part)))
        for size, part in zip(sizes, (values[:cut], values[cut:]), strict=True)
    )
    return first, second


def _meets_itself(
    probes: Operand, window: Operand, mine: ItemSets, other: ItemSets, reach: tuple[Array, Array]
) -> Array:
    """1 for each row that would be its own pair."""
    order = np.argsort(window.seq, kind="stable")
    place = order[np.minimum(np.searchsorted(window.seq[order], probes.seq), window.rows - 1)]
    there = (window.seq[place] == probes.seq) & (place >= reach[0]) & (place < reach[1])
    values = []
    for sets, rows in ((mine, np.arange(probes.rows)), (other, place)):
        has = np.diff(sets.first)[rows] > 0
        values.append(np.where(has, np.append(sets.items, -1)[np.where(has, sets.first[rows], -1)], -1))
    return (there & (values[0] == values[1]) & (values[0] >= 0)).astype(np.int64)


@njit(cache=True)
def _code(first: Array, items: Array) -> Array:
    found = np.zeros(len(first) - 1, np.uint64)
    for k in range(len(first) - 1):
        code = np.uint64(first[k + 1] - first[k])
        for at in range(first[k], first[k + 1]):
            code = mix64(code, mix64(np.uint64(items[at]), _SALT))
        found[k] = code
    return found


@njit(cache=True)
def _most(  # type: ignore[no-untyped-def]
    p_first, p_items, p_weights, low, high, o_first, o_items, o_weights, many, predicate, threshold
):
    found = np.zeros(len(low), np.int64)
    count = np.zeros(many, np.int64)
    # of superset the shares 1 / |L|; of inner products the weights above nothing, and those below
    above, below = np.zeros(many), np.zeros(many)
    need = max(1, int(np.ceil(threshold)))
    begin, end, filled, largest = 0, 0, 0, 0.0
    for k in range(len(low)):
        if high[k] <= low[k]:
            continue
        while end < high[k] or begin < low[k]:
            enters = end < high[k]
            row = end if enters else begin
            sign = 1 if enters else -1
            size = o_first[row + 1] - o_first[row]
            filled += sign * (size > 0)
            for at in range(o_first[row], o_first[row + 1]):
                item = o_items[at]
                count[item] += sign
                if count[item] == 0:
                    above[item], below[item] = 0.0, 0.0
                elif predicate == 2:
                    above[item] += sign / size
                elif predicate == 4:
                    if o_weights[at] > 0:
                        above[item] += sign * o_weights[at]
                        largest = max(largest, above[item])
                    else:
                        below[item] += sign * o_weights[at]
                        largest = max(largest, -below[item])
            if enters:
                end += 1
            else:
                begin += 1
        mine = p_items[p_first[k] : p_first[k + 1]]
        size = len(mine)
        if size == 0:
            continue
        c = count[mine]
        total = c.sum()
        most = min(total, filled)
        if predicate == 1:
            most = c.min()
        elif predicate == 2:
            most = min(most, int(np.floor(above[mine].sum() + 1e-6)))
        elif predicate == 3:
            if size < need:
                continue
            rare = total if need == 1 else np.sort(c)[: size - need + 1].sum()
            most = min(most, total // need, rare)
        elif predicate == 4:
            positive = 0.0
            for at in range(size):
                weight = p_weights[p_first[k] + at]
                item = mine[at]
                positive += weight * (above[item] if weight > 0 else below[item])
                positive += abs(weight) * largest * _ROUNDING
            most = min(float(most), np.floor(positive / threshold * (1 + _ROUNDING) + 1e-6))
        found[k] = most
    return found
