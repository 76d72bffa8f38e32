"""Rows that no query asks for: they go before any other, wherever they lie.

The text drops by region, and a region that any query touches is dropped from as one: rows in it that no query wants
stay while others go. Who has the queries themselves can tell row by row. So rows that no query asks for make a region
of their own, which is worth nothing and held to no Delta; the others are cut among, and set for, those that are asked
for:

    u: the share of the rows that no query asks for;  most: the largest threshold there may be
    share of the rows that are asked for to drop:  max(0, (1 - z) - u most) / (1 - u)

Where there is room for all that is asked for, every query has all of its rows. That takes the queries in the filter,
which a few hundred boxes are and many thousands are not (`MOST_ASKED`); and it takes queries that mean what they say: a
log that is a sample of what people ask is better read by region (`unasked: by_region`).

A row is looked for among the boxes alone that reach into its region, those that cover most first. Keys are compared,
not places, so that a row is asked for exactly where a query's condition is true of it.

>>> tree = RegionTree.grown(np.array([[0.0, 1.0]]), [(0, 0, 0.5)])
>>> boxes, places = np.array([[[10, 30]], [[50, 51]]]), np.array([[[0.1, 0.3]], [[0.5, 0.51]]])
>>> of = AskedBoxes.of(tree, boxes, places)
>>> of.hold(np.array([[10, 29, 30, 50, 51]]), np.array([0, 0, 0, 1, 1])).tolist()
[True, True, False, True, False]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from spillway.levers.sifters.regions import RegionTree

MOST_ASKED = 1024
"""A filter holds so many boxes of queries at most: 32 KB of them over two dimensions, before it is packed."""


@dataclass(frozen=True)
class AskedBoxes:
    """The boxes that rows of every region are looked for in."""

    boxes: np.ndarray
    """Of keys: by box and dimension the first, and the one behind the last."""
    ends: np.ndarray
    """Where in `listed` the boxes of every region begin, and the last ones end."""
    listed: np.ndarray

    @staticmethod
    def of(tree: RegionTree, boxes: np.ndarray, places: np.ndarray) -> AskedBoxes:
        """Boxes of keys, and the same as boxes of places."""
        sides = places[:, :, 1] - places[:, :, 0]
        order = np.argsort(-np.prod(sides, axis=1), kind="stable")
        boxes, places = np.ascontiguousarray(boxes[order]), np.ascontiguousarray(places[order])
        ends, none = np.zeros(tree.count + 1, np.int64), np.empty(0, np.int64)
        size = _reaching(tree.bounds, places, tree.space, ends, none)
        listed = np.empty(size, np.int64)
        _reaching(tree.bounds, places, tree.space, ends, listed)
        return AskedBoxes(boxes, ends, listed)

    def hold(self, keys: np.ndarray, regions: np.ndarray) -> np.ndarray:
        """Which rows some box holds; keys by dimension and row, and the region of every row."""
        found = np.zeros(keys.shape[1], bool)
        _hold(keys, regions, self.boxes, self.ends, self.listed, found)
        return found


def hold_any(boxes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Which rows some box holds, without regions: of rows in order a box looks at those within its first side alone.

    >>> hold_any(np.array([[[10, 30]]]), np.array([[29, 9, 30, 10]])).tolist()
    [True, False, False, True]
    """
    order = np.argsort(keys[0], kind="stable")
    found = np.zeros(keys.shape[1], bool)
    _mark(np.ascontiguousarray(keys[:, order]), np.ascontiguousarray(boxes), found)
    held = np.empty_like(found)
    held[order] = found
    return held


def throttle_of_asked(throttle: float, unasked: float, most: float) -> float:
    """What share of the rows that are asked for there is room for, once others go as far as they may (`most`).

    >>> throttle_of_asked(0.5, 0.25, 1.0), throttle_of_asked(0.5, 0.75, 1.0), throttle_of_asked(0.5, 0.0, 1.0)
    (0.6666666666666667, 1.0, 0.5)
    >>> throttle_of_asked(0.25, 0.5, 0.75), throttle_of_asked(0.5, 1.0, 0.75)  # a part of the others stays as sample
    (0.25, 1.0)
    """
    if unasked >= 1.0:
        return 1.0
    return 1.0 - min(1.0, max(0.0, (1.0 - throttle) - unasked * most) / (1.0 - unasked))


@njit(cache=True, nogil=True)
def _reaching(
    bounds: np.ndarray, boxes: np.ndarray, space: np.ndarray, ends: np.ndarray, listed: np.ndarray
) -> int:
    """Fill `ends`, and `listed` as far as there is room, with the boxes that may hold rows of regions.

    Both ends count on both sides, and the line's ends reach as far as anything: one box too many costs time, one too
    few would cost rows.
    """
    found = 0
    for region in range(len(bounds)):
        ends[region] = found
        for box in range(len(boxes)):
            reaches = True
            for d in range(bounds.shape[1]):
                low, high = bounds[region, d, 0], bounds[region, d, 1]
                reaches = reaches and (boxes[box, d, 1] >= low or low <= space[d, 0])
                reaches = reaches and (boxes[box, d, 0] <= high or high >= space[d, 1])
            if reaches:
                if found < len(listed):
                    listed[found] = box
                found += 1
    ends[len(bounds)] = found
    return found


@njit(cache=True, nogil=True)
def _within(keys: np.ndarray, row: int, boxes: np.ndarray, box: int) -> bool:
    for d in range(keys.shape[0]):
        key = keys[d, row]
        if key < boxes[box, d, 0] or key >= boxes[box, d, 1]:
            return False
    return True


@njit(cache=True, nogil=True)
def _mark(keys: np.ndarray, boxes: np.ndarray, found: np.ndarray) -> None:
    for box in range(len(boxes)):
        first, last = np.searchsorted(keys[0], boxes[box, 0, 0]), np.searchsorted(keys[0], boxes[box, 0, 1])
        for row in range(first, last):
            if not found[row]:
                found[row] = _within(keys, row, boxes, box)


@njit(cache=True, nogil=True)
def _hold(
    keys: np.ndarray,
    regions: np.ndarray,
    boxes: np.ndarray,
    ends: np.ndarray,
    listed: np.ndarray,
    found: np.ndarray,
) -> None:
    for row in range(keys.shape[1]):
        region = regions[row]
        for at in range(ends[region], ends[region + 1]):
            if _within(keys, row, boxes, listed[at]):
                found[row] = True
                break
