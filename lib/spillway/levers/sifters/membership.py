"""Which sample rows boxes hold: by row how much it is asked for, by query what its rows come to.

Rows are put in order of the first dimension once, so that a box looks at those within its first side alone.

>>> points, boxes = np.array([[0.1, 0.4, 0.9]]), np.array([[[0.0, 0.5]], [[0.3, 1.0]]])
>>> hits_of(points, boxes, np.array([1.0, 10.0])).tolist()
[1.0, 11.0, 10.0]
>>> sums, counts = sums_within(points, boxes, np.array([0, 1]), 2, np.array([[1.0, 2.0, 4.0]]))
>>> sums.tolist(), counts.tolist()
([[3.0, 6.0]], [2, 2])
"""

from __future__ import annotations

import numpy as np
from numba import njit


def hits_of(points: np.ndarray, boxes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """By row, the weights of the boxes that hold it; `points` by dimension and row."""
    order = np.argsort(points[0], kind="stable")
    found = np.zeros(points.shape[1])
    _add_weights(np.ascontiguousarray(points[:, order]), np.ascontiguousarray(boxes), weights, found)
    hits = np.empty_like(found)
    hits[order] = found
    return hits


def sums_within(
    points: np.ndarray, boxes: np.ndarray, query: np.ndarray, queries: int, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """By query, the sums of some values of its rows (a row of `values` each), and how many rows it has."""
    order = np.argsort(points[0], kind="stable")
    sums, counts = np.zeros((len(values), queries)), np.zeros(queries, np.int64)
    _add_values(
        np.ascontiguousarray(points[:, order]),
        np.ascontiguousarray(boxes),
        query,
        np.ascontiguousarray(values[:, order].T),
        sums.T,
        counts,
    )
    return sums, counts


def counts_within(
    points: np.ndarray, boxes: np.ndarray, query: np.ndarray, labels: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every pair of a query and a label (below `size`) that its rows have, and how many of them do.

    >>> boxes = np.array([[[0.0, 0.5]], [[0.3, 1.0]]])
    >>> found = counts_within(np.array([[0.1, 0.4, 0.9]]), boxes, np.array([0, 1]), np.array([0, 1, 1]), 2)
    >>> [part.tolist() for part in found]
    [[0, 0, 1], [0, 1, 1], [1, 1, 2]]
    """
    order = np.argsort(points[0], kind="stable")
    ordered, of_row = np.ascontiguousarray(points[:, order]), labels[order].astype(np.int64)
    held = np.ascontiguousarray(boxes)
    room = 16 * len(boxes) + 4096
    while True:
        pairs = np.empty(room, np.int64)
        found = _pairs(ordered, held, query, of_row, size, pairs)
        if found <= room:
            break
        room = found
    places, counts = np.unique(pairs[:found], return_counts=True)
    return places // size, places % size, counts


@njit(cache=True, nogil=True)
def _pairs(
    points: np.ndarray, boxes: np.ndarray, query: np.ndarray, labels: np.ndarray, size: int, pairs: np.ndarray
) -> int:
    first, found = points[0], 0
    for box in range(len(boxes)):
        for row in range(np.searchsorted(first, boxes[box, 0, 0]), len(first)):
            if first[row] > boxes[box, 0, 1]:
                break
            if _inside(points, row, boxes, box):
                if found < len(pairs):
                    pairs[found] = query[box] * size + labels[row]
                found += 1
    return found


@njit(cache=True, nogil=True)
def _inside(points: np.ndarray, row: int, boxes: np.ndarray, box: int) -> bool:
    """Whether every side of a box holds the row.

    A side holds its lower end and not its upper, but for the end of the line and a side without length.
    """
    for d in range(points.shape[0]):
        place, begin, end = points[d, row], boxes[box, d, 0], boxes[box, d, 1]
        if place < begin or place > end or (place == end and begin != end and end < 1.0):
            return False
    return True


@njit(cache=True, nogil=True)
def _add_weights(points: np.ndarray, boxes: np.ndarray, weights: np.ndarray, hits: np.ndarray) -> None:
    first = points[0]
    for box in range(len(boxes)):
        for row in range(np.searchsorted(first, boxes[box, 0, 0]), len(first)):
            if first[row] > boxes[box, 0, 1]:
                break
            if _inside(points, row, boxes, box):
                hits[row] += weights[box]


@njit(cache=True, nogil=True)
def _add_values(
    points: np.ndarray,
    boxes: np.ndarray,
    query: np.ndarray,
    values: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
) -> None:
    first = points[0]
    for box in range(len(boxes)):
        for row in range(np.searchsorted(first, boxes[box, 0, 0]), len(first)):
            if first[row] > boxes[box, 0, 1]:
                break
            if _inside(points, row, boxes, box):
                counts[query[box]] += 1
                for k in range(values.shape[1]):
                    sums[query[box], k] += values[row, k]
