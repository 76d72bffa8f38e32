"""Slicing partitioners (V): uniform grid, data equi-depth and query equi-depth.

Each slices the space along every dimension in turn: the grid at even distances, data equi-depth into parts of as many
sample rows, again within each part along the next dimension, query equi-depth so by the centres of queries. The text
takes l = u^n parts; here a dimension may have one part more than another, so that as much of l is used as can be
(l = 100 over 3 dimensions: 5 x 5 x 4), and a dimension on which nothing differs has one.

Guarantee: never more than l regions; parts of equal depth differ by one row, but for rows at the same place, which
nothing can cut apart.

>>> points = np.random.default_rng(1).random((2, 1000))
>>> tree = data_equi_depth(np.array([[0.0, 1.0]] * 2), points, 16)
>>> np.bincount(tree.regions_of(points)).tolist() == [62] * 8 + [63] * 8
False
>>> sorted(set(np.bincount(tree.regions_of(points)).tolist()))
[62, 63]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spillway.levers.sifters.regions import RegionTree

Split = tuple[int, int, float]


def uniform_grid(space: np.ndarray, regions: int) -> RegionTree:
    """Cells of equal size (UGRID)."""
    counts = parts_along([high > low for low, high in space], regions)
    grower = _Grower()
    leaves = [0]
    for axis, count in enumerate(counts):
        low, high = space[axis]
        cuts = [low + (high - low) * i / count for i in range(1, count)]
        leaves = [part for leaf in leaves for part in grower.slices(leaf, axis, cuts)]
    return RegionTree.grown(space, grower.splits)


def data_equi_depth(space: np.ndarray, points: np.ndarray, regions: int) -> RegionTree:
    """Regions of as many sample rows (DEDP); `points` by dimension and row."""
    counts = parts_along([len(np.unique(line)) > 1 for line in points], regions)
    grower = _Grower()
    parts = [(0, np.arange(points.shape[1]))]
    for axis, count in enumerate(counts):
        found = []
        for region, rows in parts:
            line = points[axis, rows]
            cuts = equal_cuts(line, count)
            names = grower.slices(region, axis, cuts)
            where = np.searchsorted(cuts, line, side="right")
            found += [(name, rows[where == place]) for place, name in enumerate(names)]
        parts = found
    return RegionTree.grown(space, grower.splits)


def query_equi_depth(space: np.ndarray, boxes: np.ndarray, regions: int) -> RegionTree:
    """Regions of as many centres of queries (QEDP); `boxes` of places."""
    inside = np.clip(boxes, space[None, :, :1], space[None, :, 1:])
    return data_equi_depth(space, inside.mean(axis=2).T, regions)


def parts_along(divisible: Sequence[bool], regions: int) -> list[int]:
    """Into how many parts each dimension is cut, as even as their product stays within `regions`.

    >>> parts_along([True, True], 16), parts_along([True, False, True, True], 100), parts_along([True] * 6, 100)
    ([4, 4], [5, 1, 5, 4], [3, 2, 2, 2, 2, 2])
    """
    counts = [1] * len(divisible)
    while True:
        total = 1
        for count in counts:
            total *= count
        can = [
            i for i, yes in enumerate(divisible) if yes and total // counts[i] * (counts[i] + 1) <= regions
        ]
        if not can:
            return counts
        counts[min(can, key=lambda i: counts[i])] += 1


def equal_cuts(line: np.ndarray, count: int) -> list[float]:
    """Where to cut a line for parts of as many points: halfway to the next one, never among those at one place.

    >>> equal_cuts(np.array([1.0, 2.0, 2.0, 2.0, 8.0]), 2)
    [1.5]
    """
    values = np.sort(line)
    found: list[float] = []
    if len(values) < 2:
        return found
    steps = np.flatnonzero(values[1:] > values[:-1]) + 1  # where the next part may begin
    for place in range(1, count):
        if not len(steps):
            break
        wanted = len(values) * place / count
        begin = int(steps[np.argmin(np.abs(steps - wanted))])
        cut = float(values[begin - 1] + (values[begin] - values[begin - 1]) / 2.0)
        cut = cut if cut > values[begin - 1] else float(values[begin])
        if not found or cut > found[-1]:
            found.append(cut)
    return found


class _Grower:
    """Numbers regions as they are cut."""

    def __init__(self) -> None:
        self.splits: list[Split] = []

    def slices(self, region: int, axis: int, cuts: Sequence[float]) -> list[int]:
        """Cut a region at several places, halving; the parts in order."""
        if not len(cuts):
            return [region]
        middle = len(cuts) // 2
        self.splits.append((region, axis, float(cuts[middle])))
        upper = len(self.splits)
        below = self.slices(region, axis, cuts[:middle])
        return below + self.slices(upper, axis, cuts[middle + 1 :])
