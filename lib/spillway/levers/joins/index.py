"""The inverted index: for each item the rows that have it, in the order of time (4.2.2).

Because the lists are in the order of time, a row is added at the end, rows leave at the other end, a basic window is a
stretch of each list, and merging stops at any moment: two look-ups by bisection bring a list down to a stretch. On
single values it is a hash index. One list an item serves all basic windows, where the paper has one a basic window:
neighbouring basic windows are looked up together.

>>> import numpy as np
>>> from spillway.levers.joins.operands import ItemSets
>>> sets = ItemSets(np.array([0, 2, 3]), np.array([0, 1, 1]), np.ones(3))
>>> index = inverted(sets, 3)
>>> index.rows[index.first[1] : index.first[2]].tolist()
[0, 1]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from spillway.levers.joins.operands import Array, ItemSets


@dataclass(frozen=True)
class InvertedIndex:
    """The rows with item i, ascending, at `rows[first[i]..first[i + 1]]`, and the item's weight in each."""

    first: Array
    rows: Array
    weights: Array


def inverted(sets: ItemSets, items: int) -> InvertedIndex:
    """The index of rows in the order of time: one pass counts, one appends, O(1) an item as in 4.2.2."""
    return InvertedIndex(*_appended(sets.first, sets.items, sets.weights, items))


@njit(cache=True)
def _appended(first: Array, items: Array, weights: Array, many: int) -> tuple[Array, Array, Array]:
    starts = np.zeros(many + 1, np.int64)
    for at in range(len(items)):
        starts[items[at] + 1] += 1
    for item in range(many):
        starts[item + 1] += starts[item]
    ends = starts.copy()
    rows, worth = np.empty(len(items), np.int64), np.empty(len(items), np.float64)
    for row in range(len(first) - 1):
        for at in range(first[row], first[row + 1]):
            place = ends[items[at]]
            rows[place], worth[place] = row, weights[at]
            ends[items[at]] = place + 1
    return starts, rows, worth
