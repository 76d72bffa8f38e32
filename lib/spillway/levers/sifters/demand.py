"""Build regions by demand: cut where the worth of rows to queries differs most from their frequency, then prune.

This scheme is Spillway's own. A region's threshold depends on its worth over its frequency (A/f). So the configuration
gains more from regions in which worth and frequency differ more. This is exact if the fairness band [t, t + Delta] lies
inside (0, 1): the optimum then spares every region whose share of the worth exceeds its share of the rows, and no other
region. The steps are:

1. Spread both over the space as points. Each of n sample rows carries the frequency 1/n. For each query that it
   satisfies, it carries the worth alpha w / (n_q + 1), where n_q is the number of the query's sample rows. The worth of
   one more row, which is not in the sample, lies at the two outermost corners of the query's box, half at each. So a
   query that covers a ten-thousandth of the space, and has no sample row, still shows where it asks.
2. Cut while  sum over regions A^2 / (f + c)  grows (the chi-squared statistic of worth against frequency), up to `MORE`
   times the wanted number of regions. The constant c is the frequency of `FEW_ROWS` sample rows; it prevents cuts that
   follow noise. A cut next to a query's side lies exactly on it; other cuts lie halfway between two rows.
3. Prune the tree to l regions. Dynamic programming from the leaves up finds the pruning with the largest value exactly:

       value of a region = largest over its threshold d of  (mu f - A) d,    d in [0, 1] if no query asks for it,
                                                                             else in [t, t + Delta] (the band)

   The lower end t of the band and the price mu of a kept row are those of the configuration of the previously pruned
   regions (`ROUNDS` iterations).

>>> asked = np.zeros(400); asked[::2] = 1 / 200
>>> places = np.where(np.arange(400) % 2, 0.3, 0.1) + np.arange(400) * 1e-5
>>> points = DemandPoints(places[None], np.full(400, 1 / 400), asked, np.zeros(400, np.int8))
>>> tree = demand_tree(np.array([[0.0, 1.0]]), points, 2, drop=0.5, fairness=1.0, few=0.003)
>>> tree.count, bool(0.104 < tree.cuts[0] < 0.3)
(2, True)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from spillway.levers.sifters.configure import optimal_thresholds
from spillway.levers.sifters.partitioners import grow_splits
from spillway.levers.sifters.regions import RegionTree

FEW_ROWS = 3.0
"""A region with this number of sample rows hardly differs from an empty one."""
MORE, LEAST_ROWS = 4, 4
"""Before pruning there are `MORE` times the wanted regions, if that leaves `LEAST_ROWS` sample rows per region."""
ROUNDS = 2
"""The number of iterations of computing prices and pruning."""


@dataclass(frozen=True)
class DemandPoints:
    """Frequency and worth, spread over the space as points."""

    places: np.ndarray
    """The places of the points, by dimension and point."""
    frequencies: np.ndarray
    worths: np.ndarray
    kinds: np.ndarray
    """The kind of each point: a row (0), or the lower (1) or the upper corner (2) of a query's box."""


def demand_points(
    rows: np.ndarray, row_worths: np.ndarray, boxes: np.ndarray, box_worths: np.ndarray
) -> DemandPoints:
    """Return the points of rows and boxes; `box_worths`: the worth of each box beyond its sample rows."""
    count, size = rows.shape[1], len(boxes)
    low, high = boxes[:, :, 0], boxes[:, :, 1]
    # a box excludes its upper side: take the largest float below it
    last = np.where((high > low) & (high < 1.0), np.nextafter(high, -np.inf), high)
    return DemandPoints(
        np.concatenate([rows, low.T, last.T], axis=1),
        np.concatenate([np.full(count, 1.0 / max(1, count)), np.zeros(2 * size)]),
        np.concatenate([row_worths, box_worths / 2.0, box_worths / 2.0]),
        np.repeat(np.array([0, 1, 2], np.int8), [count, size, size]),
    )


def demand_tree(
    space: np.ndarray, points: DemandPoints, regions: int, drop: float, fairness: float, few: float
) -> RegionTree:
    """Return the regions for dropping the share `drop` of the rows.

    `few` is `FEW_ROWS` as a share of the sample.
    """
    rows = int(np.count_nonzero(points.kinds == 0))
    wanted = max(regions, min(MORE * regions, rows // LEAST_ROWS))
    splits, lands = grow_splits(
        space,
        points.places,
        wanted,
        "demand",
        points.worths,
        points.frequencies,
        points.kinds,
        few,
    )
    tree = RegionTree.from_splits(space, splits)
    if tree.count <= regions:
        return tree
    f, a = (np.bincount(lands, of, minlength=tree.count) for of in (points.frequencies, points.worths))
    found, of_found = tree, np.arange(tree.count)
    for _ in range(ROUNDS):
        few_f, few_a = (np.bincount(of_found, of, minlength=found.count) for of in (f, a))
        price, low = _prices(few_f, few_a, drop, fairness)
        kept, of_found = _prune_tree(tree, f, a, regions, price, low, fairness)
        found = RegionTree.from_splits(space, kept)
    return found


def _prices(f: np.ndarray, a: np.ndarray, drop: float, fairness: float) -> tuple[float, float]:
    """Return the price of a kept row (mu), and the lower end of the band (t)."""
    asked = a > 0
    spare = float(f[~asked].sum())
    if drop <= spare or not asked.any():
        return 1.0, 0.0
    d = optimal_thresholds(a, f, asked, 1.0 - drop, fairness)[asked]
    low, high = float(d.min()), float(d.max())
    mean = float(a[asked].sum() / f[asked].sum()) if f[asked].any() else 1.0
    if low > 1e-9 and high < 1.0 - 1e-9:
        return mean, low  # at the optimum, moving the whole band changes nothing
    ratios = np.divide(a[asked], f[asked], out=np.zeros(len(d)), where=f[asked] > 0)[d > low + 1e-12]
    return (float(ratios.max()) if len(ratios) else mean), low


def _prune_tree(
    tree: RegionTree, f: np.ndarray, a: np.ndarray, regions: int, price: float, low: float, fairness: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the splits of the best pruned tree, and for each region of the whole tree its pruned region."""
    nodes = len(tree.axes)
    f_of, a_of = np.zeros(nodes), np.zeros(nodes)
    best, left = np.empty((nodes, regions)), np.zeros((nodes, regions), np.int32)
    splits, of = np.empty((regions, 3)), np.empty(tree.count, np.int64)
    count = _prune(
        tree.axes, tree.cuts, tree.children, f, a, price, low, fairness, f_of, a_of, best, left, splits, of
    )
    return splits[:count], of


@njit(cache=True, nogil=True)
def _prune(
    axes: np.ndarray,
    cuts: np.ndarray,
    children: np.ndarray,
    f: np.ndarray,
    a: np.ndarray,
    price: float,
    low: float,
    fairness: float,
    f_of: np.ndarray,
    a_of: np.ndarray,
    best: np.ndarray,
    left: np.ndarray,
    splits: np.ndarray,
    of: np.ndarray,
) -> int:
    """Fill `splits` and `of`; return the number of splits. `best[v, k]`: the largest value of node v with k cuts."""
    nodes, most = best.shape
    sizes = np.ones(nodes, np.int64)
    for v in range(nodes - 1, -1, -1):  # a parent precedes its children
        one, other = children[v, 0], children[v, 1]
        if axes[v] < 0:
            f_of[v], a_of[v] = f[one], a[one]
        else:
            f_of[v], a_of[v] = f_of[one] + f_of[other], a_of[one] + a_of[other]
        gain = price * f_of[v] - a_of[v]
        best[v, 0] = price * f_of[v] if a_of[v] <= 0.0 else gain * low + fairness * max(0.0, gain)
        if axes[v] < 0:
            continue
        sizes[v] = min(most, sizes[one] + sizes[other])
        best[v, 1 : sizes[v]] = -np.inf
        for i in range(sizes[one]):
            for j in range(min(sizes[other], sizes[v] - 1 - i)):
                if best[one, i] + best[other, j] > best[v, i + j + 1]:
                    best[v, i + j + 1], left[v, i + j + 1] = best[one, i] + best[other, j], i
    whole = 0
    for k in range(1, sizes[0]):
        if best[0, k] > best[0, whole] + 1e-12:
            whole = k
    stack = np.empty((nodes, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, whole, 0
    top, count = 1, 0
    while top:
        top -= 1
        v, k, region = stack[top]
        if k > 0:
            splits[count, 0], splits[count, 1], splits[count, 2] = region, axes[v], cuts[v]
            count += 1
            i = left[v, k]
            stack[top, 0], stack[top, 1], stack[top, 2] = children[v, 0], i, region
            stack[top + 1, 0], stack[top + 1, 1], stack[top + 1, 2] = children[v, 1], k - 1 - i, count
            top += 2
        elif axes[v] < 0:
            of[children[v, 0]] = region
        else:
            for side in range(2):
                stack[top, 0], stack[top, 1], stack[top, 2] = children[v, side], 0, region
                top += 1
    return count
