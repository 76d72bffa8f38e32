"""Compute the worth of each region to all queries together: query consolidation (IV-A.2, IV-B).

    share of query q's result that lies in region S, by the sample (eq. 5 at d = 0):
        x(q, S) = f(S) |S n R(q)|/|S|  /  sum over the regions S' that q touches of  f(S') |S' n R(q)|/|S'|
    worth of a region (eq. 8):           A(S) = sum over queries q touching S of  alpha_q w_q x(q, S)
    overall QoS at thresholds d (eq. 9): V = 1 - sum over S of  A(S) d(S)
    QoS of a query (eq. 6):              V_q = 1 - alpha_q sum over S of  x(q, S) d(S)

Gedik, Wu and Yu (2008) write A with C, which already contains (1 - d), and multiply A by (1 - d) again. Here A is its
value at d = 0 (erratum B5). B' = 1 follows if the weights sum to 1. A query without results in the sample loses
nothing: V_q = 1.

Differences from the paper:

- Equation 5 assumes that rows are evenly distributed in a region. That is wrong for long tails: a region of delays from
  -20 to 200 minutes holds few rows above 60. If the sample has rows of a query, the sample tells where they lie. The
  covered share of a region is then  lambda_q k(q, S)/n(S) + (1 - lambda_q) |S n R(q)|/|S|,  where k of the region's n
  sample rows match the query, n_q is the number of sample rows of the query in all regions, and
  lambda_q = n_q / (n_q + `PRIOR_ROWS`). Without sample rows this is the share of the paper.
- A query is a union of boxes that do not overlap. It may state the minimum share of its result that must be delivered
  (`at_least`), which limits the thresholds of the regions that it touches (`max_thresholds`).

>>> tree = RegionTree.from_splits(np.array([[0.0, 1.0]]), [(0, 0, 0.5)])
>>> asked = QueryBoxes(np.array([[[0.4, 0.6]], [[0.5, 1.0]]]), np.array([0, 1]), np.array([1.0, 1.0]))
>>> worth = consolidate_queries(tree, np.array([0.8, 0.2]), asked)
>>> worth.worths.round(3).tolist(), worth.qos(np.array([1.0, 0.0])).round(3).tolist()
([0.4, 0.6], [0.2, 1.0])

`hits_of`, `sums_within` and `counts_within` find the sample rows that boxes hold. They sort the rows by the first
dimension once, so that each box inspects only the rows within its first side.

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

from spillway.errors import InvalidValue
from spillway.levers.sifters.regions import RegionTree


def hits_of(points: np.ndarray, boxes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return for each row the sum of the weights of the boxes that hold it; `points` by dimension and row."""
    order = np.argsort(points[0], kind="stable")
    found = np.zeros(points.shape[1])
    _add_weights(np.ascontiguousarray(points[:, order]), np.ascontiguousarray(boxes), weights, found)
    hits = np.empty_like(found)
    hits[order] = found
    return hits


def sums_within(
    points: np.ndarray, boxes: np.ndarray, query: np.ndarray, queries: int, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each query the sums of `values` over its rows (one sum per row of `values`), and its row count."""
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
    """Return each pair of a query and a label (below `size`) of its rows, with the number of such rows.

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
    """Return whether every side of a box holds the row.

    A side includes its lower end and excludes its upper end. The end of the line and sides without length include both.
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
"""The weight, in sample rows of a query, of the assumption that its rows are evenly distributed."""
MOST_LOOKED_AT = 20_000_000
"""The maximum number of pairs of a query box and a sample row; if there are more, only a subset of rows is used."""


@dataclass(frozen=True)
class QueryBoxes:
    """The queries: their boxes of places, the query of each box (in ascending order), and their weights."""

    boxes: np.ndarray
    query: np.ndarray
    weights: np.ndarray
    """The weight of each query; divided by the sum of the weights."""
    alphas: np.ndarray = field(default_factory=lambda: np.ones(0))
    """The share of each query's quality that depends on its completeness (alpha); if empty, 1 for all queries."""
    at_least: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """The minimum share of each query's result; if empty, 0 for all queries."""

    def __post_init__(self) -> None:
        count = len(self.weights)
        if not count or not len(self.boxes):
            raise InvalidValue("queries", "be at least one", count, "say what is asked of the stream")
        for name, fill in (("alphas", 1.0), ("at_least", 0.0)):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(count, fill))
        total = float(np.sum(self.weights))
        if not (np.isfinite(total) and total > 0 and np.all(np.asarray(self.weights) >= 0)):
            raise InvalidValue(
                "weights",
                "be 0 or more and sum to more than 0",
                _some(self.weights),
                "state a weight a query",
            )
        object.__setattr__(self, "weights", np.asarray(self.weights, float) / total)
        for name in ("alphas", "at_least"):
            stated = np.asarray(getattr(self, name), float)
            if len(stated) != count or not np.all((stated >= 0) & (stated <= 1)):
                raise InvalidValue(
                    name, f"be {count} numbers from 0 to 1", _some(stated), "state one a query"
                )
            object.__setattr__(self, name, stated)
        if len(self.query) != len(self.boxes) or np.any(np.diff(self.query) < 0):
            raise InvalidValue(
                "query", "name the query of every box, in order", _some(self.query), "sort the boxes"
            )

    @property
    def count(self) -> int:
        """Return the number of queries."""
        return len(self.weights)

    @property
    def values(self) -> np.ndarray:
        """Return the worth of the whole result of each query (alpha w)."""
        return np.asarray(self.alphas * self.weights)

    def hits(self, points: np.ndarray) -> np.ndarray:
        """Return for each row the sum of the weights of the queries that it satisfies, scaled to a mean weight of 1."""
        return hits_of(points, self.boxes, self.weights[self.query] * self.count)


@dataclass(frozen=True)
class RegionWorth:
    """The worth of regions to queries, for the frequencies of a sample."""

    query_boxes: QueryBoxes
    frequencies: np.ndarray
    """The share of the rows in each region (f); the sum is 1."""
    query: np.ndarray
    region: np.ndarray
    """`query` and `region` list each pair of a query and a region that it touches."""
    covered: np.ndarray
    """The share of the region that the query covers, by pair."""
    share: np.ndarray
    """The share of the query's result that lies in the region (x), by pair."""

    @cached_property
    def worths(self) -> np.ndarray:
        """Return the worth of each region (A)."""
        return np.bincount(
            self.region, self.query_boxes.values[self.query] * self.share, minlength=len(self.frequencies)
        )

    @cached_property
    def touched(self) -> np.ndarray:
        """Return whether any query touches the region, by region."""
        found = np.zeros(len(self.frequencies), bool)
        found[self.region] = True
        return found

    @cached_property
    def max_thresholds(self) -> np.ndarray:
        """Return the largest threshold of each region at which every query gets its minimum share."""
        found = np.ones(len(self.frequencies))
        np.minimum.at(found, self.region, 1.0 - self.query_boxes.at_least[self.query])
        return found

    def completeness(self, thresholds: np.ndarray) -> np.ndarray:
        """Return the share of each query's result that is delivered (C)."""
        lost = np.bincount(self.query, self.share * thresholds[self.region], minlength=self.query_boxes.count)
        return np.asarray(1.0 - lost)

    def qos(self, thresholds: np.ndarray) -> np.ndarray:
        """Return the quality of each query (V_q)."""
        return np.asarray(1.0 - self.query_boxes.alphas * (1.0 - self.completeness(thresholds)))

    def overall(self, thresholds: np.ndarray) -> float:
        """Return the overall quality (V*, eq. 9)."""
        return 1.0 - float(self.worths @ thresholds)


def consolidate_queries(
    tree: RegionTree, frequencies: np.ndarray, asked: QueryBoxes, points: np.ndarray | None = None
) -> RegionWorth:
    """Return the worth of a tree's regions for these frequencies (divided by their sum).

    `points`: sample rows that show where in a region the rows of a query lie. Without them, rows are assumed to be
    evenly distributed, as in the paper.
    """
    query, region, covered = tree.shares(asked.boxes, asked.query)
    if points is not None and points.shape[1]:
        query, region, covered = _covered_shares(tree, asked, points, query, region, covered)
    return _region_worth(tree.count, frequencies, asked, query, region, covered)


def _covered_shares(
    tree: RegionTree,
    asked: QueryBoxes,
    points: np.ndarray,
    query: np.ndarray,
    region: np.ndarray,
    covered: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the shares of regions that queries cover: a mean of the sample's shares and of even distribution."""
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
    """Add two lists of shares by query and region into `in_query`, `in_region` and `sums`; return the number of pairs.

    Both lists are in order of queries. The result is in order of queries and regions. A pair remains even if its sum
    is 0, because the query still touches the region.
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


def _region_worth(
    count: int,
    frequencies: np.ndarray,
    asked: QueryBoxes,
    query: np.ndarray,
    region: np.ndarray,
    covered: np.ndarray,
) -> RegionWorth:
    total = float(np.sum(frequencies))
    share_of = np.asarray(frequencies, float) / total if total else np.zeros(count)
    mass = share_of[region] * covered
    whole = np.bincount(query, mass, minlength=asked.count)[query]
    of_result = np.divide(mass, whole, out=np.zeros_like(mass), where=whole > 0)
    return RegionWorth(asked, share_of, query, region, covered, of_result)


def _some(values: np.ndarray) -> list[float]:
    return [float(value) for value in np.asarray(values).ravel()[:5]]
