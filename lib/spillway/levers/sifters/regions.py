"""Sifter regions: a partition of the data space by a k-d tree, where a row lies, and how far boxes reach in (IV-A).

Every dimension is laid out on a line of *places*: its domain on [0, 1], what lies outside at the ends, nulls on a strip
below 0 and NaN on one above 1, where the dimension has any. Regions are cut along places, so volumes are those of boxes
of places; all partitioners build the same tree, so that one look-up serves them.

    share of S that R covers:  |S n R| / |S|  =  product over dimensions of the covered lengths over the lengths of S

A side of R or S without length (an equality on a number, a constant dimension) counts as covered where it lies inside.

Look-up is a descent: one comparison a level, the same number of levels for every row, no branch.

>>> tree = RegionTree.grown(np.array([[0.0, 1.0]]), [(0, 0, 0.5)])
>>> tree.regions_of(np.array([[0.2, 0.5, 0.9]])).tolist()
[0, 1, 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit

from spillway.errors import Refused

MOST_REGIONS = 10_000
MOST_DIMENSIONS = 6


@dataclass(frozen=True)
class RegionTree:
    """A partition of the space into regions."""

    space: np.ndarray
    """By dimension, the ends of the line of places."""
    axes: np.ndarray
    """By node, the dimension it cuts; -1: it is a region."""
    cuts: np.ndarray
    """By node, the place it cuts at: what lies there or above goes to the second child."""
    children: np.ndarray
    """By node, its two children; of a region its number, twice."""

    @staticmethod
    def grown(space: np.ndarray, splits: Sequence[tuple[int, int, float]]) -> RegionTree:
        """A tree from its cuts in order: (region, dimension, place); the upper part gets the next free number."""
        axes, cuts, children = [-1], [0.0], [[0, 0]]
        leaf = [0]
        for region, axis, cut in splits:
            node, new = leaf[region], len(leaf)
            low, high = len(axes), len(axes) + 1
            axes[node], cuts[node], children[node] = axis, cut, [low, high]
            axes += [-1, -1]
            cuts += [0.0, 0.0]
            children += [[region, region], [new, new]]
            leaf[region] = low
            leaf.append(high)
        return RegionTree(
            np.asarray(space, float),
            np.array(axes, np.int32),
            np.array(cuts, float),
            np.array(children, np.int32),
        )

    @cached_property
    def count(self) -> int:
        """The number of regions (l)."""
        return int((self.axes < 0).sum())

    @cached_property
    def depth(self) -> int:
        """The most cuts on the way to a region."""
        deepest, level = 0, [0]
        while level := [int(c) for node in level if self.axes[node] >= 0 for c in self.children[node]]:
            deepest += 1
        return deepest

    @cached_property
    def bounds(self) -> np.ndarray:
        """By region and dimension, its ends."""
        found = np.empty((self.count, len(self.space), 2))
        stack = [(0, self.space.copy())]
        while stack:
            node, box = stack.pop()
            axis = int(self.axes[node])
            if axis < 0:
                found[self.children[node, 0]] = box
                continue
            low, high = box.copy(), box.copy()
            low[axis, 1] = high[axis, 0] = self.cuts[node]
            stack += [(int(self.children[node, 0]), low), (int(self.children[node, 1]), high)]
        return found

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The tree for look-up: a region leads to itself, so that every descent takes the same steps."""
        axes = np.maximum(self.axes, 0)
        cuts = np.where(self.axes < 0, np.inf, self.cuts)
        nodes = np.arange(len(axes), dtype=np.int32)[:, None]
        children = np.where(self.axes[:, None] < 0, nodes, self.children)
        return axes.astype(np.int32), cuts, np.ascontiguousarray(children.ravel().astype(np.int32))

    def regions_of(self, places: np.ndarray) -> np.ndarray:
        """The region of every row; `places` by dimension and row."""
        places = np.ascontiguousarray(places, np.float64)
        if places.shape[0] != len(self.space):
            raise Refused(
                "places", f"have {len(self.space)} dimensions", places.shape[0], "lay the rows out anew"
            )
        axes, cuts, children = self._table
        found = np.empty(places.shape[1], np.int32)
        _descend(places, axes, cuts, children, self.children[:, 0].copy(), self.depth, found)
        return found

    def shares(self, boxes: np.ndarray, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What boxes of places cover of the regions they touch: (query, region, share), boxes of a query added up.

        `queries`: the query of every box, in order.
        """
        boxes = np.ascontiguousarray(boxes, float)
        if not len(boxes):
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        room, args = 16 * len(boxes) + 1024, (self.axes, self.cuts, self.children, self.bounds, boxes)
        while True:
            of_box, regions, parts = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
            found = _reach(*args, of_box, regions, parts)
            if found <= room:
                break
            room = found
        places = queries[of_box[:found]] * self.count + regions[:found]
        whole, inverse = np.unique(places, return_inverse=True)
        added = np.bincount(inverse, parts[:found], minlength=len(whole))
        return whole // self.count, whole % self.count, added


@njit(cache=True, nogil=True)
def _descend(
    places: np.ndarray,
    axes: np.ndarray,
    cuts: np.ndarray,
    children: np.ndarray,
    numbers: np.ndarray,
    depth: int,
    found: np.ndarray,
) -> None:
    for row in range(places.shape[1]):
        node = 0
        for _ in range(depth):
            node = children[2 * node + (1 if places[axes[node], row] >= cuts[node] else 0)]
        found[row] = numbers[node]


@njit(cache=True, nogil=True)
def _reach(
    axes: np.ndarray,
    cuts: np.ndarray,
    children: np.ndarray,
    bounds: np.ndarray,
    boxes: np.ndarray,
    of_box: np.ndarray,
    regions: np.ndarray,
    parts: np.ndarray,
) -> int:
    """Every region that a box touches, and its share; how many there are, though there be no room for them."""
    stack = np.empty(len(axes) + 1, np.int64)
    found = 0
    for box in range(len(boxes)):
        stack[0], top = 0, 1
        while top:
            top -= 1
            node = stack[top]
            axis = axes[node]
            if axis >= 0:
                low, high = boxes[box, axis, 0], boxes[box, axis, 1]
                if low < cuts[node]:
                    stack[top] = children[node, 0]
                    top += 1
                if high > cuts[node] or (high == low and high >= cuts[node]):
                    stack[top] = children[node, 1]
                    top += 1
                continue
            region = children[node, 0]
            share, touches = 1.0, True
            for d in range(boxes.shape[1]):
                begin, end = bounds[region, d, 0], bounds[region, d, 1]
                low, high = boxes[box, d, 0], boxes[box, d, 1]
                if low == high or begin == end:  # a point, on either side
                    if high < begin or low > end:
                        touches = False
                        break
                    continue
                covered = min(high, end) - max(low, begin)
                if covered <= 0.0:
                    touches = False
                    break
                share *= covered / (end - begin)
            if touches:
                if found < len(regions):
                    of_box[found], regions[found], parts[found] = box, region, share
                found += 1
    return found
