"""Pairs in the order of the rows they are of, whatever order they were found in: two passes of counting.

Rows stand in the order of time, mostly that of seq, and pairs are of few rows each, so nothing is compared: a pair's
place is counted, by its right row and then, without disturbing that, by its left one (least significant digit first).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.levers.joins.operands import Array


def pairs_in_order(*keys: tuple[Array, Array]) -> Array:
    """The order of pairs by the seq of their left row, then of their right one: each the seq of rows, and which row.

    Rows are in the order of time, mostly that of seq: two passes of counting, no comparison.

    >>> pairs_in_order((np.array([7, 9]), np.array([1, 0, 1])), (np.array([4, 3, 5]), np.array([2, 0, 1]))).tolist()
    [1, 2, 0]
    """
    order: Array = np.arange(len(keys[0][1]))
    for seq, at in reversed(keys):
        place = at
        if (seq[1:] < seq[:-1]).any():
            ranks = np.empty(len(seq), np.int64)
            ranks[np.argsort(seq, kind="stable")] = np.arange(len(seq))
            place = ranks[at]
        if (place[order][1:] < place[order][:-1]).any():
            order = _by_place(place, order, len(seq))
    return order


@njit(cache=True)
def _by_place(places: Array, order: Array, many: int) -> Array:
    """The same pairs by their place, those of one place in the order they had."""
    begins = np.zeros(many + 1, np.int64)
    for place in places:
        begins[place + 1] += 1
    for place in range(many):
        begins[place + 1] += begins[place]
    found = np.empty(len(order), np.int64)
    for pair in order:
        place = places[pair]
        found[begins[place]] = pair
        begins[place] += 1
    return found
