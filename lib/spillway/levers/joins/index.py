"""The inverted index: for each item the rows that have it, in the order of time (4.2.2).

Because the lists are in the order of time, a row is added at the end, rows leave at the other end, a basic window is a
stretch of each list, and merging stops at any moment: two look-ups by bisection bring a list down to a stretch. On
single values it is a hash index. One list an item serves all basic windows, where the paper has one a basic window:
neighbouring basic windows are looked up together.

Lists that nobody will look up need not be there: `asked` by the rows that probe, a list that is not asked for is empty.
A window is indexed anew for the rows that probe it, which costs a pass over it, and less than keeping every list.

>>> import numpy as np
>>> from spillway.levers.joins.operands import ItemSets
>>> sets = ItemSets(np.array([0, 2, 3]), np.array([0, 1, 1]), np.ones(3))
>>> index = inverted(sets, 3)
>>> index.rows[index.first[1] : index.first[2]].tolist()
[0, 1]
>>> inverted(sets, 3, asked=np.array([False, False, True])).rows.tolist()
[]
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


def inverted(sets: ItemSets, items: int, asked: Array | None = None) -> InvertedIndex:
    """The index of rows in the order of time: one pass counts, one appends, O(1) an item as in 4.2.2."""
    wanted = np.ones(items, np.bool_) if asked is None else asked
    return InvertedIndex(*_appended(sets.first, sets.items, sets.weights, wanted))


def index_for(probes: ItemSets, window: ItemSets, rows: Array | None = None) -> InvertedIndex:
    """The index of a window with the lists that these rows (a mask; None: all) will look up."""
    items = max((int(one.items.max()) + 1 for one in (probes, window) if len(one.items)), default=0)
    asked = np.zeros(items, np.bool_)
    asked[probes.items if rows is None else probes.items[np.repeat(rows, np.diff(probes.first))]] = True
    return inverted(window, items, asked)


@njit(cache=True)
def _appended(first: Array, items: Array, weights: Array, wanted: Array) -> tuple[Array, Array, Array]:
    many = len(wanted)
    starts = np.zeros(many + 1, np.int64)
    for at in range(len(items)):
        if wanted[items[at]]:
            starts[items[at] + 1] += 1
    for item in range(many):
        starts[item + 1] += starts[item]
    ends = starts.copy()
    rows, worth = np.empty(starts[many], np.int64), np.empty(starts[many], np.float64)
    for row in range(len(first) - 1):
        for at in range(first[row], first[row + 1]):
            if wanted[items[at]]:
                place = ends[items[at]]
                rows[place], worth[place] = row, weights[at]
                ends[items[at]] = place + 1
    return starts, rows, worth
