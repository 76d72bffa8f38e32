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
from numba import njit

from spillway.levers.sifters.regions import RegionTree

Split = tuple[int, int, float]


def uniform_grid(space: np.ndarray, regions: int) -> RegionTree:
    """Cells of equal size (UGRID)."""
    counts = parts_along([high > low for low, high in space], regions)
    grower = _Grower()
    leaves = [0]
    for axis, count in enumerate(counts):
        low, high = space[axis]
        cuts = low + (high - low) * np.arange(1, count) / count
        leaves = [part for leaf in leaves for part in grower.slices(leaf, axis, cuts)]
    return RegionTree.grown(space, grower.splits)


def data_equi_depth(space: np.ndarray, points: np.ndarray, regions: int) -> RegionTree:
    """Regions of as many sample rows (DEDP); `points` by dimension and row."""
    counts = parts_along([bool(len(line)) and line.min() < line.max() for line in points], regions)
    grower = _Grower()
    parts = [(0, np.arange(points.shape[1]))]
    for axis, count in enumerate(counts):
        found = []
        for region, rows in parts:
            line = points[axis, rows]
            cuts = equal_cuts(line, count)
            names = grower.slices(region, axis, cuts)
            if axis + 1 == len(counts):
                continue  # nobody cuts these any further
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


def equal_cuts(line: np.ndarray, count: int) -> np.ndarray:
    """Where to cut a line for parts of as many points: halfway to the next one, never among those at one place.

    >>> equal_cuts(np.array([1.0, 2.0, 2.0, 2.0, 8.0]), 2).tolist()
    [1.5]
    """
    found = np.empty(max(0, count - 1))
    return found[: _equal_cuts(np.sort(line), count, found)]


@njit(cache=True, nogil=True)
def _equal_cuts(values: np.ndarray, count: int, found: np.ndarray) -> int:
    """Fill `found`; how many. The step between places nearest to each wanted place, the lower of two as near."""
    rows, cuts = len(values), 0
    for place in range(1, count):
        wanted = rows * place / count
        below = min(int(wanted), rows - 1)
        while below > 0 and not values[below] > values[below - 1]:
            below -= 1
        above = max(1, int(np.ceil(wanted)))
        while above < rows and not values[above] > values[above - 1]:
            above += 1
        if below < 1 and above >= rows:
            break
        begin = below if below >= 1 and (above >= rows or wanted - below <= above - wanted) else above
        cut = values[begin - 1] + (values[begin] - values[begin - 1]) / 2.0
        if not cut > values[begin - 1]:
            cut = values[begin]
        if cuts == 0 or cut > found[cuts - 1]:
            found[cuts] = cut
            cuts += 1
    return cuts


class _Grower:
    """Numbers regions as they are cut."""

    def __init__(self) -> None:
        self.splits: list[Split] = []
        self._halvings: dict[int, tuple[list[int], np.ndarray, list[int]]] = {}

    def slices(self, region: int, axis: int, cuts: np.ndarray) -> list[int]:
        """Cut a region at several places, halving; the parts in order."""
        count = len(cuts)
        if not count:
            return [region]
        if count not in self._halvings:
            self._halvings[count] = _halving(count)
        of_part, middles, parts = self._halvings[count]
        names = [region, *range(len(self.splits) + 1, len(self.splits) + count + 1)]
        self.splits += [
            (names[part], axis, cut) for part, cut in zip(of_part, cuts[middles].tolist(), strict=True)
        ]
        return [names[part] for part in parts]


def _halving(count: int) -> tuple[list[int], np.ndarray, list[int]]:
    """Halving so many cuts: in order the part that is cut and the cut's place, and by place the part it ends up as.

    >>> [list(map(int, one)) for one in _halving(3)]
    [[0, 0, 1], [1, 0, 2], [0, 2, 1, 3]]
    """
    of_part, middles, parts = [], [], [0] * (count + 1)
    waiting = [(0, 0, count)]
    while waiting:
        part, low, high = waiting.pop()
        if low == high:
            parts[low] = part
            continue
        middle = (low + high) // 2
        of_part.append(part)
        middles.append(middle)
        waiting += [(len(of_part), middle + 1, high), (part, low, middle)]
    return of_part, np.array(middles), parts
