"""Query consolidation: what a region is worth to all queries together (IV-A.2, IV-B).

    share of query q's result that lies in region S, by the sample (eq. 5 at d = 0):
        x(q, S) = f(S) |S n R(q)|/|S|  /  sum over the regions S' that q touches of  f(S') |S' n R(q)|/|S'|
    worth of a region (eq. 8):           A(S) = sum over queries q touching S of  alpha_q w_q x(q, S)
    overall QoS at thresholds d (eq. 9): V = 1 - sum over S of  A(S) d(S)
    QoS of a query (eq. 6):              V_q = 1 - alpha_q sum over S of  x(q, S) d(S)

The text writes A with C, which holds (1 - d) already, and then (1 - d) A once more: A is its value at d = 0 (erratum
B5), and B' = 1 follows when weights sum to 1. A query that the sample says has no results loses none: V_q = 1.

Where we differ: eq. 5 takes rows to lie evenly in a region, which long tails do not (a region of delays from -20 to 200
minutes holds few above 60). Where the sample has rows of a query, it says where they lie: the covered part of a region
is  lambda_q k(q, S)/n(S) + (1 - lambda_q) |S n R(q)|/|S|  with k of the region's n sample rows in the query, n_q sample
rows of the query in all, and lambda_q = n_q / (n_q + `PRIOR_ROWS`): the text's where nothing is known. A query is a
union of boxes that do not overlap; it may say how much of its result must be delivered at least (`at_least`), which
caps the thresholds of the regions it touches (`most_dropped`).

>>> tree = RegionTree.grown(np.array([[0.0, 1.0]]), [(0, 0, 0.5)])
>>> asked = Asked(np.array([[[0.4, 0.6]], [[0.5, 1.0]]]), np.array([0, 1]), np.array([1.0, 1.0]))
>>> worth = consolidated(tree, np.array([0.8, 0.2]), asked)
>>> worth.worths.round(3).tolist(), worth.qos(np.array([1.0, 0.0])).round(3).tolist()
([0.4, 0.6], [0.2, 1.0])

Which sample rows boxes hold: by row how much it is asked for, by query what its rows come to.

Rows are put in order of the first dimension once, so that a box looks at those within its first side alone.

>>> points, boxes = np.array([[0.1, 0.4, 0.9]]), np.array([[[0.0, 0.5]], [[0.3, 1.0]]])
>>> hits_of(points, boxes, np.array([1.0, 10.0])).tolist()
[1.0, 11.0, 10.0]
>>> sums, counts = sums_within(points, boxes, np.array([0, 1]), 2, np.array([[1.0, 2.0, 4.0]]))
>>> sums.tolist(), counts.tolist()
([[3.0, 6.0]], [2, 2])
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numba import njit

from spillway.errors import Refused
from spillway.levers.sifters.regions import RegionTree


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


PRIOR_ROWS = 4.0
"""So many sample rows of a query say as much of where its rows lie as that they lie evenly."""
MOST_LOOKED_AT = 20_000_000
"""Of more pairs of a query and a sample row, a part of the sample says it."""


@dataclass(frozen=True)
class Asked:
    """What is asked: boxes of places, the query of every box (in order), and what queries are worth."""

    boxes: np.ndarray
    query: np.ndarray
    weights: np.ndarray
    """By query; they are divided by their sum."""
    alphas: np.ndarray = field(default_factory=lambda: np.ones(0))
    """By query, how much of its quality hangs on how complete it is; none: all of it."""
    at_least: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """By query, the least share of its result; none: nothing."""

    def __post_init__(self) -> None:
        count = len(self.weights)
        if not count or not len(self.boxes):
            raise Refused("queries", "be at least one", count, "say what is asked of the stream")
        for name, fill in (("alphas", 1.0), ("at_least", 0.0)):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(count, fill))
        total = float(np.sum(self.weights))
        if not (np.isfinite(total) and total > 0 and np.all(np.asarray(self.weights) >= 0)):
            raise Refused(
                "weights",
                "be 0 or more and sum to more than 0",
                _some(self.weights),
                "state a weight a query",
            )
        object.__setattr__(self, "weights", np.asarray(self.weights, float) / total)
        for name in ("alphas", "at_least"):
            stated = np.asarray(getattr(self, name), float)
            if len(stated) != count or not np.all((stated >= 0) & (stated <= 1)):
                raise Refused(name, f"be {count} numbers from 0 to 1", _some(stated), "state one a query")
            object.__setattr__(self, name, stated)
        if len(self.query) != len(self.boxes) or np.any(np.diff(self.query) < 0):
            raise Refused(
                "query", "name the query of every box, in order", _some(self.query), "sort the boxes"
            )

    @property
    def count(self) -> int:
        """How many queries."""
        return len(self.weights)

    @property
    def values(self) -> np.ndarray:
        """By query, what its whole result is worth (alpha w)."""
        return np.asarray(self.alphas * self.weights)

    def hits(self, points: np.ndarray) -> np.ndarray:
        """By row, how much it is asked for: the weights of the queries that it satisfies; a mean query weighs 1."""
        return hits_of(points, self.boxes, self.weights[self.query] * self.count)


@dataclass(frozen=True)
class Worth:
    """What regions are worth to queries, at frequencies of a sample."""

    asked: Asked
    frequencies: np.ndarray
    """By region (f), 1 in all."""
    query: np.ndarray
    region: np.ndarray
    """Every pair of a query and a region that it touches, with two more of each:"""
    covered: np.ndarray
    """how much of the region it covers,"""
    share: np.ndarray
    """and what share of its result lies there (x)."""

    @cached_property
    def worths(self) -> np.ndarray:
        """By region (A)."""
        return np.bincount(
            self.region, self.asked.values[self.query] * self.share, minlength=len(self.frequencies)
        )

    @cached_property
    def touched(self) -> np.ndarray:
        """By region, whether any query touches it."""
        found = np.zeros(len(self.frequencies), bool)
        found[self.region] = True
        return found

    @cached_property
    def most_dropped(self) -> np.ndarray:
        """By region, the largest threshold that leaves every query at least what it asks for."""
        found = np.ones(len(self.frequencies))
        np.minimum.at(found, self.region, 1.0 - self.asked.at_least[self.query])
        return found

    def completeness(self, thresholds: np.ndarray) -> np.ndarray:
        """By query, how much of its result is delivered (C)."""
        lost = np.bincount(self.query, self.share * thresholds[self.region], minlength=self.asked.count)
        return np.asarray(1.0 - lost)

    def qos(self, thresholds: np.ndarray) -> np.ndarray:
        """By query, its quality (V_q)."""
        return np.asarray(1.0 - self.asked.alphas * (1.0 - self.completeness(thresholds)))

    def overall(self, thresholds: np.ndarray) -> float:
        """The overall quality (V*, eq. 9)."""
        return 1.0 - float(self.worths @ thresholds)


def consolidated(
    tree: RegionTree, frequencies: np.ndarray, asked: Asked, points: np.ndarray | None = None
) -> Worth:
    """The worth of a tree's regions at these frequencies (they are divided by their sum).

    `points`: sample rows that say where in the regions queries have theirs; none: all lies evenly (the text).
    """
    query, region, covered = tree.shares(asked.boxes, asked.query)
    if points is not None and points.shape[1]:
        query, region, covered = _seen(tree, asked, points, query, region, covered)
    return _shared(tree.count, frequencies, asked, query, region, covered)


def _seen(
    tree: RegionTree,
    asked: Asked,
    points: np.ndarray,
    query: np.ndarray,
    region: np.ndarray,
    covered: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What queries cover of regions, by the sample as far as it knows."""
    points = points[:, : max(1, MOST_LOOKED_AT // max(1, len(asked.boxes)))]
    lands = tree.regions_of(points)
    rows_of = np.bincount(lands, minlength=tree.count)
    pairs = counts_within(points, asked.boxes, asked.query, lands, tree.count)
    seen = np.bincount(pairs[0], pairs[2], minlength=asked.count)
    known = seen / (seen + PRIOR_ROWS)
    evenly = (1.0 - known[query]) * covered
    by_rows = known[pairs[0]] * pairs[2] / np.maximum(1, rows_of[pairs[1]])
    size = len(query) + len(by_rows)
    found = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
    count = _added(query, region, evenly, pairs[0], pairs[1], by_rows, asked.count, tree.count, *found)
    return found[0][:count], found[1][:count], found[2][:count]


@njit(cache=True, nogil=True)
def _added(
    query: np.ndarray,
    region: np.ndarray,
    parts: np.ndarray,
    other_query: np.ndarray,
    other_region: np.ndarray,
    other_parts: np.ndarray,
    queries: int,
    regions: int,
    in_query: np.ndarray,
    in_region: np.ndarray,
    sums: np.ndarray,
) -> int:
    """Fill the last three with two lists of parts, both in order of queries, added up by query and region, in order.

    What is touched stays so though its part be nothing.
    """
    added, touched, here = np.zeros(regions), np.zeros(regions, np.bool_), np.empty(regions, np.int64)
    one, other, count = 0, 0, 0
    for of in range(queries):
        size = 0
        while one < len(query) and query[one] == of:
            at = region[one]
            if not touched[at]:
                touched[at], here[size] = True, at
                size += 1
            added[at] += parts[one]
            one += 1
        while other < len(other_query) and other_query[other] == of:
            at = other_region[other]
            if not touched[at]:
                touched[at], here[size] = True, at
                size += 1
            added[at] += other_parts[other]
            other += 1
        for at in np.sort(here[:size]):
            in_query[count], in_region[count], sums[count] = of, at, added[at]
            touched[at], added[at] = False, 0.0
            count += 1
    return count


def at_frequencies(worth: Worth, frequencies: np.ndarray) -> Worth:
    """The same regions at other frequencies."""
    return _shared(len(frequencies), frequencies, worth.asked, worth.query, worth.region, worth.covered)


def _shared(
    count: int,
    frequencies: np.ndarray,
    asked: Asked,
    query: np.ndarray,
    region: np.ndarray,
    covered: np.ndarray,
) -> Worth:
    total = float(np.sum(frequencies))
    share_of = np.asarray(frequencies, float) / total if total else np.zeros(count)
    mass = share_of[region] * covered
    whole = np.bincount(query, mass, minlength=asked.count)[query]
    of_result = np.divide(mass, whole, out=np.zeros_like(mass), where=whole > 0)
    return Worth(asked, share_of, query, region, covered, of_result)


def _some(values: np.ndarray) -> list[float]:
    return [float(value) for value in np.asarray(values).ravel()[:5]]
