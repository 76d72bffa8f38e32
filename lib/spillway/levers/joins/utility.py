"""Which rows first: fractions by window and type of the probing row, a fractional knapsack (Algorithm 5).

An item is a type of row against a basic window of the other side: its volume is the comparisons that takes, its worth
a comparison v = u_iz n_i o_ij / sum_k o_ik, where u_iz is the utility a comparison of such a row with the window yields
on average. The heap holds, for each window and type, the best basic window not yet taken; the best of all is taken
until the budget is spent, the last one partly:

    O(|Z| + (n_1 + n_2) |Z| log |Z|)

Errata: the frequency of a type is that among rows of the *other* stream, which probe (C3); r_iz is a share of the
window, sum_j / n_i (C4), here by the rows that basic windows hold, since the first and last are partly filled and n_i b
is w_i + b, not w_i (C7); the loop ends inside the else (C12). With one type and utility 1 for all it settles the
direction of the join too, basic window by basic window, where Algorithm 4 takes one window whole before the other.

>>> import numpy as np
>>> left = Side(np.array([[10.0], [10.0]]), np.array([3.0, 1.0]), np.array([1.0]))
>>> right = Side(np.array([[10.0], [10.0]]), np.array([2.0, 2.0]), np.array([1.0]))
>>> [share.tolist() for share in by_worth(25.0, (left, right))]
[[0.5], [0.75]]
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spillway.levers.joins.operands import Array


@dataclass(frozen=True)
class Side:
    """One window as it is probed."""

    volumes: Array
    """Comparisons there are to make, by basic window and type of the probing row."""
    o: Array
    """Expected output a comparison, by basic window."""
    u: Array
    """Expected utility a comparison, by type of the probing row."""


def by_worth(budget: float, sides: Sequence[Side]) -> list[Array]:
    """r_iz, by window and type: the share of the window that a row of the type is compared with."""
    ordered = [np.argsort(-side.o, kind="stable") for side in sides]
    # where nothing was found yet, one basic window is as good as another
    per_o = [
        side.o * _inverse(float(np.mean(side.o))) if np.any(side.o > 0) else side.o + 1 for side in sides
    ]
    taken = [np.zeros(side.volumes.shape[1]) for side in sides]
    heap = [
        (-side.u[z] * per_o[i][ordered[i][0]], 0, i, z)
        for i, side in enumerate(sides)
        for z in range(side.volumes.shape[1])
        if len(ordered[i])
    ]
    heapq.heapify(heap)
    left = budget
    while heap and left > 0:
        _, at, i, z = heapq.heappop(heap)  # of two alike, the newer basic window of either side
        volume = sides[i].volumes[ordered[i][at], z]
        taken[i][z] += min(volume, left)
        left -= volume
        if at + 1 < len(ordered[i]):
            worth = sides[i].u[z] * per_o[i][ordered[i][at + 1]]
            heapq.heappush(heap, (-worth, at + 1, i, z))
    return [
        np.where(total > 0, np.minimum(1.0, mine / np.where(total > 0, total, 1.0)), 1.0)
        for mine, total in ((taken[i], side.volumes.sum(axis=0)) for i, side in enumerate(sides))
    ]


def _inverse(value: float) -> float:
    return 1.0 / value if value > 0 else 1.0
