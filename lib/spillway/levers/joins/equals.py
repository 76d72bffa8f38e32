"""How many pairs of equal values a row has, by counting how often its value stands in its window: nothing is compared.

A sweep in the order of time keeps, for each value v, c(v): the rows of the window that have it. A row of value v has
exactly c(v) pairs. That costs one pass over the window (entering, leaving) and over the rows that probe it, where
comparing costs their product. The same pass leaves chains behind: from a row that probes to the newest row of its
value, and from each row to the one before it with the same value. Sets that are asked to be equal are told by 64 bits
of their items: two of n that differ count as equal with a chance of n^2 / 2^65.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from spillway.levers.joins.operands import Array, ItemSets, Operand
from spillway.sketches.mixing import mix64

_SALT = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Chains:
    """By probing row, how many rows of its window have its value, and the newest of them; by row, the one before it."""

    equals: Array
    newest: Array
    previous: Array

    def cut(self, rows: slice, begin: int, end: int) -> Chains:
        """Those of some probing rows, of a window that is the rows `begin..end - 1`."""
        return Chains(self.equals[rows], self.newest[rows] - begin, self.previous[begin:end] - begin)


def equal_pairs(
    probes: Operand, window: Operand, reach: tuple[Array, Array], with_itself: bool = False
) -> Array:
    """By probing row, its pairs with the rows `low..high - 1` of the window."""
    mine, other = _values(probes.sets, window.sets)
    found = chains_of(mine, other, reach).equals
    if with_itself and window.rows:
        found -= _meets_itself(probes, window, mine, other, reach)
    return found


def weighted_sums(
    probes: Operand,
    window: Operand,
    reach: tuple[Array, Array],
    weights: tuple[Array, Array],
    with_itself: bool = False,
) -> tuple[Array, Array]:
    """Return, for each probing row and for each row of the window, the sum of the weights of its partners.

    `weights`: of the probing rows, and of the rows of the window. Rows of equal value are pairs.
    """
    mine, other = (_value_of_row(one) for one in _values(probes.sets, window.sets))
    low, high = reach
    sums = _sums_between(other, weights[1], mine, low, high)
    # row r is within reach of the probing rows from the first with r < high to the last with low <= r
    rows = np.arange(window.rows)
    first, last = np.searchsorted(high, rows, side="right"), np.searchsorted(low, rows, side="right")
    back = _sums_between(mine, weights[0], other, first, np.maximum(first, last))
    if with_itself and window.rows and probes.rows:
        meets = _meets_itself(probes, window, *_values(probes.sets, window.sets), reach) > 0
        order = np.argsort(window.seq, kind="stable")
        place = order[np.minimum(np.searchsorted(window.seq[order], probes.seq), window.rows - 1)]
        sums -= np.where(meets, weights[1][place], 0.0)
        np.subtract.at(back, place[meets], weights[0][meets])
    return sums, back


def heaviest_value(operand: Operand, weights: Array) -> float:
    """Return the largest sum of weights of rows with one value."""
    values = _value_of_row(_values(operand.sets, operand.sets)[0])
    there = values >= 0
    return float(np.bincount(values[there], weights[there]).max()) if there.any() else 0.0


def _value_of_row(sets: ItemSets) -> Array:
    """Return the value of each row; -1: it has none."""
    has = np.diff(sets.first) > 0
    return np.where(has, np.append(sets.items, -1)[np.where(has, sets.first[:-1], -1)], -1)


def _sums_between(values: Array, weights: Array, wanted: Array, low: Array, high: Array) -> Array:
    """Return for each wanted value the sum of weights of the rows `low..high - 1` that have it."""
    rows = len(values) + 1
    keys = values.astype(np.int64) * rows + np.arange(len(values))
    order = np.argsort(keys, kind="stable")
    keys, summed = keys[order], np.concatenate([[0.0], np.cumsum(weights[order])])
    begin, end = (np.searchsorted(keys, wanted.astype(np.int64) * rows + edge) for edge in (low, high))
    found: Array = np.where(wanted >= 0, summed[np.maximum(begin, end)] - summed[begin], 0.0)
    return found


def chains_of(mine: ItemSets, window: ItemSets, reach: tuple[Array, Array]) -> Chains:
    """The chains of single values."""
    many = max((int(one.items.max()) + 1 for one in (mine, window) if len(one.items)), default=0)
    return Chains(*_chains(mine.first, mine.items, *reach, window.first, window.items, many))


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
def _chains(p_first, p_items, low, high, o_first, o_items, many):  # type: ignore[no-untyped-def]
    equals, newest = np.zeros(len(low), np.int64), np.full(len(low), -1)
    count, last = np.zeros(many, np.int64), np.full(many, -1)
    previous = np.full(len(o_first) - 1, -1)
    begin, end = 0, 0
    for k in range(len(low)):
        if high[k] <= low[k]:
            continue
        while end < high[k]:
            for at in range(o_first[end], o_first[end + 1]):
                item = o_items[at]
                count[item] += 1
                previous[end], last[item] = last[item], end
            end += 1
        while begin < low[k]:
            for at in range(o_first[begin], o_first[begin + 1]):
                count[o_items[at]] -= 1
            begin += 1
        for at in range(p_first[k], p_first[k + 1]):
            equals[k], newest[k] = count[p_items[at]], last[p_items[at]]
    return equals, newest, previous
