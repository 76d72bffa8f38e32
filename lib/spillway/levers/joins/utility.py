"""Which rows first: fractions by window and type of the probing row, a fractional knapsack (Algorithm 5).

An item is a type of row against a basic window of the other side: its volume is the steps that takes, its worth a
comparison v = u_iz o_ij (the paper's u_iz n_i o_ij / sum_k o_ik, with u_iz the utility of a comparison that yields a
pair, where the paper's is that of a comparison: `type_worth`), by what a comparison costs there. The heap holds, for
each window and type, the best basic window not yet taken; the best of all is taken until the budget is spent, the last
one partly:

    O(|Z| + (n_1 + n_2) |Z| log |Z|)

Errata: the frequency of a type is that among rows of the *other* stream, which probe (C3); r_iz is a share of the
window, sum_j / n_i (C4), here by the rows that basic windows hold, since the first and last are partly filled and n_i b
is w_i + b, not w_i (C7); the loop ends inside the else (C12). With one type and utility 1 for all it settles the
direction of the join too, basic window by basic window, where Algorithm 4 takes one window whole before the other.

>>> import numpy as np
>>> volumes, one = np.array([[10.0], [10.0]]), np.ones(2)
>>> left = Side(volumes, np.array([3.0, 1.0]), np.array([1.0]), one, np.array([0, 1]))
>>> right = Side(volumes, np.array([2.0, 2.0]), np.array([1.0]), one, np.array([0, 1]))
>>> shares, worth = by_worth(25.0, (left, right))
>>> [share.tolist() for share in shares], worth
([[0.5], [0.75]], 60.0)
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
    """Utility of a comparison that yields one pair on average, by type of the probing row."""
    costs: Array
    """Steps a comparison, by basic window, where those that come before it are taken."""
    order: Array
    """Basic windows by rank: those that yield most a step first."""


def by_worth(budget: float, sides: Sequence[Side]) -> tuple[list[Array], float]:
    """r_iz, by window and type: the share of the window that a row of the type is compared with; and what it yields."""
    worth = [np.outer(side.o, side.u) for side in sides]
    taken = [np.zeros(side.volumes.shape[1]) for side in sides]

    def entry(i: int, z: int, at: int) -> tuple[float, int, int, int]:
        j = sides[i].order[at]
        return (-worth[i][j, z] / sides[i].costs[j], at, i, z)

    heap = [
        entry(i, z, 0)
        for i, side in enumerate(sides)
        for z in range(side.volumes.shape[1])
        if len(side.order)
    ]
    heapq.heapify(heap)
    left, yields = budget, 0.0
    while heap and left > 0:
        _, at, i, z = heapq.heappop(heap)  # of two alike, the newer basic window of either side
        j = sides[i].order[at]
        used = min(float(sides[i].volumes[j, z]), left / sides[i].costs[j])
        taken[i][z] += used
        yields += used * worth[i][j, z]
        left -= used * sides[i].costs[j]
        if at + 1 < len(sides[i].order):
            heapq.heappush(heap, entry(i, z, at + 1))
    shares = [
        np.where(total > 0, np.minimum(1.0, mine / np.where(total > 0, total, 1.0)), 1.0)
        for mine, total in ((taken[i], side.volumes.sum(axis=0)) for i, side in enumerate(sides))
    ]
    return shares, float(yields)


PAYS = 1.05
"""What is expected of picking out over whole rows, at least: what was picked because it looked best is less good than
it looked, and where nothing is better than anything else whole rows find most."""


def picking_pays(yields: float, budget: float, sides: Sequence[Side], whole_steps: float) -> bool:
    """Whether what picking out yields is `PAYS` times what the same steps do on whole rows, as many as chance picks.

    >>> import numpy as np
    >>> side = Side(np.array([[10.0], [10.0]]), np.array([3.0, 1.0]), np.ones(1), np.full(2, 2.0), np.array([0, 1]))
    >>> picking_pays(30.0, 20.0, [side], whole_steps=40.0), picking_pays(30.0, 20.0, [side], whole_steps=25.0)
    (True, False)
    """
    whole = sum(float((one.volumes * np.outer(one.o, one.u)).sum()) for one in sides)
    return bool(yields * whole_steps >= PAYS * whole * budget)
