"""Demand: regions cut where what queries ask for and what rows there are part, and merged again where that pays least.

Ours. What a threshold is set by is a region's worth over its frequency (A/f), and what configuration gets out of
regions depends on how far worth and frequency lie apart in them (with fairness the optimum is just that: at an inner
band every region worth more than its share of the rows is spared, every other one is not). So:

1. both are spread over the space as points: every sample row carries 1/n of the frequency, and of each query it
   satisfies alpha w / (n_q + 1), n_q the query's sample rows; the one row unseen lies at the query's two outermost
   corners. A query of a ten-thousandth of the space has no sample row at all, and yet says where it asks.
2. cut on, while  sum over regions A^2 / (f + c)  grows (chi-squared between the two; c is `FEW_ROWS` of the sample, so
   that noise is not cut after), to `MORE` times the regions that are wanted. Cuts go just along a query's side.
3. merge back to l: of all ways to prune that tree the one of largest value is found exactly, from the leaves up,

       value of a region = largest over its threshold d of  (mu f - A) d,    d in [0, 1] if nobody asks for it,
                                                                             else in [t, t + Delta] (the band)

   with the band's lower end t and the price mu of a row kept as configuration has them for the pruned regions before.

>>> asked = np.zeros(400); asked[::2] = 1 / 200
>>> places = np.where(np.arange(400) % 2, 0.3, 0.1) + np.arange(400) * 1e-5
>>> points = DemandPoints(places[None], np.full(400, 1 / 400), asked, np.zeros(400, np.int8))
>>> tree, _ = demand_tree(np.array([[0.0, 1.0]]), points, 2, drop=0.5, fairness=1.0, few=0.003)
>>> tree.count, bool(0.104 < tree.cuts[0] < 0.3)
(2, True)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from spillway.levers.sifters.configure import configured
from spillway.levers.sifters.partitioners import grown_splits
from spillway.levers.sifters.regions import RegionTree

FEW_ROWS = 3.0
"""A region of so few sample rows is hardly told from none."""
MORE, LEAST_ROWS = 4, 4
"""So many times the regions are cut before they are merged, as far as that leaves them so many sample rows each."""
ROUNDS = 2
"""Prices are taken from the regions before so many times."""


@dataclass(frozen=True)
class DemandPoints:
    """Frequency and worth, as points."""

    places: np.ndarray
    """By dimension and point."""
    frequencies: np.ndarray
    worths: np.ndarray
    kinds: np.ndarray
    """By point: a row (0), a lower corner (1) or an upper one (2) of a query's box."""
    orders: np.ndarray | None = None
    """By dimension the points in order, where that is known."""


def demand_points(
    rows: np.ndarray, row_worths: np.ndarray, boxes: np.ndarray, box_worths: np.ndarray
) -> DemandPoints:
    """The points of rows and boxes; `box_worths`: by box, what it is worth beyond the rows that were seen in it."""
    count, size = rows.shape[1], len(boxes)
    low, high = boxes[:, :, 0], boxes[:, :, 1]
    # a box does not hold its upper side: what lies there, lies behind it
    last = np.where((high > low) & (high < 1.0), np.nextafter(high, -np.inf), high)
    return DemandPoints(
        np.concatenate([rows, low.T, last.T], axis=1),
        np.concatenate([np.full(count, 1.0 / max(1, count)), np.zeros(2 * size)]),
        np.concatenate([row_worths, box_worths / 2.0, box_worths / 2.0]),
        np.repeat(np.array([0, 1, 2], np.int8), [count, size, size]),
    )


def demand_tree(
    space: np.ndarray, points: DemandPoints, regions: int, drop: float, fairness: float, few: float
) -> tuple[RegionTree, np.ndarray]:
    """The regions to drop so much of the rows from, and that of every point; `few`: see `FEW_ROWS`, as a frequency."""
    rows = int(np.count_nonzero(points.kinds == 0))
    wanted = max(regions, min(MORE * regions, rows // LEAST_ROWS))
    splits, lands = grown_splits(
        space,
        points.places,
        wanted,
        "demand",
        points.worths,
        points.orders,
        points.frequencies,
        points.kinds,
        few,
    )
    tree = RegionTree.grown(space, splits)
    if tree.count <= regions:
        return tree, lands
    f, a = (np.bincount(lands, of, minlength=tree.count) for of in (points.frequencies, points.worths))
    found, of_found = tree, np.arange(tree.count)
    for _ in range(ROUNDS):
        few_f, few_a = (np.bincount(of_found, of, minlength=found.count) for of in (f, a))
        price, low = _prices(few_f, few_a, drop, fairness)
        kept, of_found = _pruned(tree, f, a, regions, price, low, fairness)
        found = RegionTree.grown(space, kept)
    return found, of_found[lands]


def _prices(f: np.ndarray, a: np.ndarray, drop: float, fairness: float) -> tuple[float, float]:
    """What a kept row must be worth (mu), and the lower end of the band (t)."""
    asked = a > 0
    spare = float(f[~asked].sum())
    if drop <= spare or not asked.any():
        return 1.0, 0.0
    d = configured(a, f, asked, 1.0 - drop, fairness)[asked]
    low, high = float(d.min()), float(d.max())
    mean = float(a[asked].sum() / f[asked].sum()) if f[asked].any() else 1.0
    if low > 1e-9 and high < 1.0 - 1e-9:
        return mean, low  # moving the whole band is worth nothing at the optimum
    ratios = np.divide(a[asked], f[asked], out=np.zeros(len(d)), where=f[asked] > 0)[d > low + 1e-12]
    return (float(ratios.max()) if len(ratios) else mean), low


def _pruned(
    tree: RegionTree, f: np.ndarray, a: np.ndarray, regions: int, price: float, low: float, fairness: float
) -> tuple[np.ndarray, np.ndarray]:
    """The splits of the best pruned tree, and by region of the whole tree the one that it falls into."""
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
    """Fill `splits` and `of`; how many splits. `best[v, k]`: the most that node v gives with k cuts."""
    nodes, most = best.shape
    sizes = np.ones(nodes, np.int64)
    for v in range(nodes - 1, -1, -1):  # children come behind their parent
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
