"""Partition the data space into regions by a k-d tree, and lay out values on the lines that it cuts (IV-A).

The tree. It finds the region of a row, and the share of a region that a box covers. Each dimension is laid out on a
line of *places*: its domain on [0, 1], values outside the domain at the ends, nulls on a strip below 0, and NaN on a
strip above 1. The strips exist only if the dimension has such values. Regions are cut along places, so volumes are
volumes of boxes of places. All partitioners build the same tree, so one look-up serves them all.

    share of S that R covers:  |S n R| / |S|  =  product over dimensions of the covered lengths over the lengths of S

A side of R or S without length (an equality on a number, a constant dimension) counts as covered if it lies inside.

The look-up descends the tree for a block of rows, one level at a time. The node of a region leads to itself, so that no
step depends on the position of a row, and a core executes the steps of many rows in parallel. For at least `MANY_ROWS`
rows, the look-up uses ranks instead: the rank of a place among a dimension's cuts follows from a bucket of the line and
a few steps, and a table of the cells between cuts holds the regions. Trees with more than `MOST_CELLS` cells (usually
those with more than four dimensions) always use the descent.

>>> tree = RegionTree.from_splits(np.array([[0.0, 1.0]]), [(0, 0, 0.5)])
>>> tree.regions_of(np.array([[0.2, 0.5, 0.9]])).tolist()
[0, 1, 1]

The layout. It maps the values of dimensions to places on their lines, for volumes, cuts and look-up:

    place of a value v:  (v - low) / (high - low), clipped to [0, 1];   null: -1/16 (`STRIP`);   NaN: 1 + 1/32

A category's word lies at its number, and all words are equally wide. The domain is the one that the contract states.
If it states none, the domain covers the sample and the edges of queries near it; outliers of the sample extend it by at
most half its width (`OUTLYING`). Values beyond the domain lie at the end of the line.

>>> line = Axis.of(Dimension("temp", "double"), np.array([10.0, 20.0, 30.0]), nulls=True)
>>> line.low, line.high, line.place_of_values(np.array([20.0, 99.0])).tolist()
(10.0, 30.0, [0.5, 1.0])
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from spillway.errors import InvalidValue
from spillway.levers.sifters.boxes import END, NAN, NULL, key_floats
from spillway.levers.sifters.dimensions import Dimension, whole_type

MOST_REGIONS = 10_000
MOST_CELLS, BUCKETS = 65_536, 4096
"""The size limits of the look-up table, so that it fits the cache of a core."""
MANY_ROWS = 20_000
BLOCK = 256
"""The number of rows that descend the tree together."""
MOST_DIMENSIONS = 6


@dataclass(frozen=True)
class RegionTree:
    """A partition of the space into regions."""

    space: np.ndarray
    """The ends of the line of places, by dimension."""
    axes: np.ndarray
    """The dimension that each node cuts; -1: the node is a region."""
    cuts: np.ndarray
    """The place at which each node cuts: places at or above it go to the second child."""
    children: np.ndarray
    """The two children of each node; for a region, its number twice."""

    @staticmethod
    def from_splits(space: np.ndarray, splits: Sequence[tuple[int, int, float]] | np.ndarray) -> RegionTree:
        """Return a tree from its cuts in order: (region, dimension, place); the upper slice gets the next number."""
        cut = np.asarray(splits, float).reshape(-1, 3)
        nodes = 2 * len(cut) + 1
        axes, cuts = np.full(nodes, -1, np.int32), np.zeros(nodes)
        children = np.zeros((nodes, 2), np.int32)
        _branch(cut, axes, cuts, children)
        return RegionTree(np.asarray(space, float), axes, cuts, children)

    @cached_property
    def count(self) -> int:
        """Return the number of regions (l)."""
        return int((self.axes < 0).sum())

    @cached_property
    def bounds(self) -> np.ndarray:
        """Return the bounds of each region: by region and dimension, the two ends."""
        found = np.empty((self.count, len(self.space), 2))
        _bound(self.axes, self.cuts, self.children, self.space, found)
        return found

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
        """Return the look-up table for many rows; None if it had more than `MOST_CELLS` cells.

        It holds for each dimension the sorted cuts and the rank at which each bucket of places begins, and for each
        cell between cuts the region.
        """
        cuts = [np.unique(self.cuts[self.axes == axis]) for axis in range(len(self.space))]
        sizes = np.array([len(one) + 1 for one in cuts], np.int64)
        if float(np.prod(sizes.astype(float))) > MOST_CELLS:
            return None
        ends = np.full((len(cuts), int(sizes.max())), np.inf)
        for axis, one in enumerate(cuts):
            ends[axis, : len(one)] = one
        # the region of a cell is the region of its lower corner
        corners = np.meshgrid(*[np.concatenate([[-np.inf], one]) for one in cuts], indexing="ij")
        regions = self._by_descent(np.stack([corner.ravel() for corner in corners]))
        scales = BUCKETS / np.maximum(self.space[:, 1] - self.space[:, 0], 1e-300)
        # 1e-6 of a bucket before its beginning, because its edge is rounded
        edges = [
            low + (np.arange(BUCKETS) - 1e-6) / scale
            for (low, _), scale in zip(self.space, scales, strict=True)
        ]
        ranks = [np.searchsorted(one, edge, side="right") for one, edge in zip(cuts, edges, strict=True)]
        first = np.stack(ranks).astype(np.int32)
        first[:, 0] = 0
        return np.ascontiguousarray(self.space[:, 0]), scales, first, ends, sizes, regions

    @cached_property
    def _steps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the tree for a descent, in which a region leads to itself, and the region number of each node."""
        leaf = self.axes < 0
        next_ = self.children.copy()
        next_[leaf] = np.flatnonzero(leaf)[:, None]
        axes, cuts = np.where(leaf, 0, self.axes), np.where(leaf, np.inf, self.cuts)
        return axes.astype(np.int32), cuts, next_.ravel(), np.ascontiguousarray(self.children[:, 0])

    def _by_descent(self, places: np.ndarray) -> np.ndarray:
        found = np.empty(places.shape[1], np.int32)
        _descend(np.ascontiguousarray(places, np.float64), *self._steps, found)
        return found

    def regions_of(self, places: np.ndarray) -> np.ndarray:
        """Return the region of each row; `places` by dimension and row."""
        places = np.ascontiguousarray(places, np.float64)
        if places.shape[0] != len(self.space):
            raise InvalidValue(
                "places", f"have {len(self.space)} dimensions", places.shape[0], "lay the rows out anew"
            )
        table = self._table if places.shape[1] >= MANY_ROWS else None
        if table is None:
            return self._by_descent(places)
        found = np.empty(places.shape[1], np.int32)
        _look_up(places, *table, found)
        return found

    def shares(self, boxes: np.ndarray, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the share of each region that the boxes of each query cover: arrays of query, region and share.

        Only regions that a box touches are listed. `boxes` are boxes of places, `queries` is the query of each box, in
        ascending order.
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
        if len(np.unique(queries)) == len(queries):  # one box per query: no sums are necessary
            return queries[of_box[:found]], regions[:found].copy(), parts[:found].copy()
        places = queries[of_box[:found]] * self.count + regions[:found]
        whole, inverse = np.unique(places, return_inverse=True)
        added = np.bincount(inverse, parts[:found], minlength=len(whole))
        return whole // self.count, whole % self.count, added


@njit(cache=True, nogil=True)
def _branch(splits: np.ndarray, axes: np.ndarray, cuts: np.ndarray, children: np.ndarray) -> None:
    leaf = np.zeros(len(splits) + 1, np.int64)
    for at in range(len(splits)):
        region, new, low = int(splits[at, 0]), at + 1, 2 * at + 1
        node = leaf[region]
        axes[node], cuts[node] = int(splits[at, 1]), splits[at, 2]
        children[node, 0], children[node, 1] = low, low + 1
        children[low, 0] = children[low, 1] = region
        children[low + 1, 0] = children[low + 1, 1] = new
        leaf[region], leaf[new] = low, low + 1


@njit(cache=True, nogil=True)
def _descend(
    places: np.ndarray,
    axes: np.ndarray,
    cuts: np.ndarray,
    children: np.ndarray,
    regions: np.ndarray,
    found: np.ndarray,
) -> None:
    at, on = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.int32)
    for begin in range(0, places.shape[1], BLOCK):
        rows = min(BLOCK, places.shape[1] - begin)
        at[:] = 0
        stays = 0
        while 4 * stays < rows:
            stays = 0
            for row in range(rows):
                node = at[row]
                one = children[2 * node + np.int32(places[axes[node], begin + row] >= cuts[node])]
                stays += one == node
                at[row] = one
        going = 0
        for row in range(rows if stays < rows else 0):
            on[going] = row
            going += children[2 * at[row]] != at[row]
        while (
            going
        ):  # some regions lie much deeper than others: continue with the rows that are not there yet
            left = 0
            for place in range(going):
                row = on[place]
                node = children[2 * at[row] + np.int32(places[axes[at[row]], begin + row] >= cuts[at[row]])]
                at[row] = node
                on[left] = row
                left += children[2 * node] != node
            going = left
        for row in range(rows):
            found[begin + row] = regions[at[row]]


@njit(cache=True, nogil=True)
def _look_up(
    places: np.ndarray,
    lows: np.ndarray,
    scales: np.ndarray,
    first: np.ndarray,
    ends: np.ndarray,
    sizes: np.ndarray,
    regions: np.ndarray,
    found: np.ndarray,
) -> None:
    last = first.shape[1] - 1
    for row in range(places.shape[1]):
        cell = 0
        for d in range(places.shape[0]):
            place = places[d, row]
            bucket = int((place - lows[d]) * scales[d])
            rank = first[d, min(max(bucket, 0), last)]
            while place >= ends[d, rank]:
                rank += 1
            cell = cell * sizes[d] + rank
        found[row] = regions[cell]


@njit(cache=True, nogil=True)
def _bound(
    axes: np.ndarray, cuts: np.ndarray, children: np.ndarray, space: np.ndarray, found: np.ndarray
) -> None:
    boxes = np.empty((len(axes), space.shape[0], 2))
    boxes[0] = space
    for node in range(len(axes)):  # a parent precedes its children
        axis = axes[node]
        if axis < 0:
            found[children[node, 0]] = boxes[node]
            continue
        low, high = children[node, 0], children[node, 1]
        boxes[low], boxes[high] = boxes[node], boxes[node]
        boxes[low, axis, 1] = boxes[high, axis, 0] = cuts[node]


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
    """Fill the arrays with each region that a box touches and its share; return the size that the arrays need."""
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


STRIP = 1.0 / 16.0
"""The width of the strips of nulls and of NaN; values have the width 1."""
_NULL_PLACE, _NAN_PLACE = -STRIP, 1.0 + STRIP / 2.0
OUTLYING = 0.005
"""The share of the sample at each end that counts as outliers: they extend the domain by at most half its width."""


@dataclass(frozen=True)
class Axis:
    """The line of places of one dimension."""

    dimension: Dimension
    low: float
    high: float
    nulls: bool = False
    nans: bool = False

    @staticmethod
    def of(
        dimension: Dimension,
        values: np.ndarray,
        edges: Sequence[float] = (),
        nulls: bool = False,
        nans: bool = False,
    ) -> Axis:
        """Return the line for a sample's values and for the edges of queries."""
        if dimension.is_text:
            return Axis(dimension, 0.0, float(dimension.other_key + 1), nulls, nans)
        if dimension.type == "boolean":
            return Axis(dimension, 0.0, 2.0, nulls, nans)
        known = np.asarray(values, float)
        known = known[np.isfinite(known)]
        low, high = dimension.low, dimension.high
        if low is None or high is None:
            found = _domain(known, [edge for edge in edges if math.isfinite(edge)])
            low = found[0] if low is None else low
            # a whole number has the width 1
            high = (found[1] + (1.0 if whole_type(dimension.type) else 0.0)) if high is None else high
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise InvalidValue(
                dimension.name, "have a domain from low to high", [low, high], "write between: [low, high]"
            )
        return Axis(dimension, float(low), float(high), nulls, nans)

    @property
    def ends(self) -> tuple[float, float]:
        """Return the ends of the line."""
        return -STRIP if self.nulls else 0.0, 1.0 + STRIP if self.nans else 1.0

    @property
    def constant(self) -> bool:
        """Return whether all values lie at one place, so that there is no cut."""
        return self.low == self.high and not self.nulls and not self.nans

    def place_of_values(self, values: np.ndarray) -> np.ndarray:
        """Return the places of values that are neither null nor NaN."""
        span = self.high - self.low
        if span <= 0 or not math.isfinite(span):
            halves = np.asarray(values) / 2 - self.low / 2
            return (
                np.clip(halves / (self.high / 2 - self.low / 2), 0.0, 1.0)
                if span > 0
                else np.where(np.asarray(values) > self.low, 1.0, 0.0)
            )
        with np.errstate(over="ignore"):
            return np.clip((np.asarray(values, float) - self.low) / span, 0.0, 1.0)

    def places_of(self, keys: np.ndarray) -> np.ndarray:
        """Return the places of keys of `dimension`."""
        values = key_floats(np.minimum(keys, NAN - 1)) if self.dimension.type == "double" else keys
        finite = np.where(keys == NULL, self.low, values) if self.dimension.type == "double" else values
        found = self.place_of_values(np.nan_to_num(finite, nan=self.high))
        found = np.where(keys == NULL, _NULL_PLACE, found)
        return np.where(keys >= NAN, _NAN_PLACE, found) if self.dimension.type == "double" else found

    def edges_of(self, keys: np.ndarray) -> np.ndarray:
        """Return the places of edges of boxes: an edge is the first key of a box, or the key after its last."""
        low, high = self.ends
        values = key_floats(np.clip(keys, NULL + 1, NAN - 1)) if self.dimension.type == "double" else keys
        found = self.place_of_values(np.nan_to_num(values, nan=self.low, posinf=math.inf, neginf=-math.inf))
        found = np.where(keys <= NULL + 1, 0.0, found)
        found = np.where(keys == NULL, low, found)
        found = np.where(keys >= NAN, 1.0, found)
        return np.where(keys == END, high, found)

    def value_at(self, place: float) -> float:
        """Return the value at a place; infinite at the ends of the line."""
        if place <= 0.0:
            return -math.inf
        if place >= 1.0:
            return math.inf
        return self.low + place * (self.high - self.low)

    def to_dict(self) -> dict[str, Any]:
        """Return the line as plain values."""
        return asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Axis:
        """Return a line from plain values."""
        stated = dict(values["dimension"])
        stated["words"] = tuple(stated["words"])
        return Axis(**{**values, "dimension": Dimension(**stated)})


@dataclass(frozen=True)
class Layout:
    """The lines of all dimensions."""

    lines: tuple[Axis, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the attributes, in order."""
        return tuple(line.dimension.name for line in self.lines)

    @property
    def space(self) -> np.ndarray:
        """Return the ends of the line of each dimension."""
        return np.array([line.ends for line in self.lines], float).reshape(-1, 2)

    def keys(self, rows: pa.Table) -> np.ndarray:
        """Return the keys of rows, by dimension and row."""
        found = np.empty((len(self.lines), rows.num_rows), np.int64)
        for place, line in enumerate(self.lines):
            found[place] = line.dimension.keys_of(rows[line.dimension.name])
        return found

    def places(self, keys: np.ndarray) -> np.ndarray:
        """Return the places of keys, by dimension and row."""
        found = np.empty(keys.shape)
        for place, line in enumerate(self.lines):
            found[place] = line.places_of(keys[place])
        return found

    def boxes(self, keys: np.ndarray) -> np.ndarray:
        """Convert boxes of keys to boxes of places."""
        found = np.empty(keys.shape, float)
        for place, line in enumerate(self.lines):
            found[:, place, :] = line.edges_of(keys[:, place, :])
        return found


def _domain(known: np.ndarray, edges: Sequence[float]) -> tuple[float, float]:
    """Return the domain of a sample, extended by nearby edges of queries.

    Outliers of the sample extend it by at most half its width. Edges of queries far outside do not extend it.
    """
    if not len(known):
        return (min(edges), max(edges)) if edges else (0.0, 0.0)
    low, high = np.quantile(known, [OUTLYING, 1.0 - OUTLYING])
    with np.errstate(over="ignore"):
        half = (high - low) / 2.0
        least, most = max(known.min(), low - half), min(known.max(), high + half)
        inside = [edge for edge in edges if least - half <= edge <= most + half]
    return float(min([least, *inside])), float(max([most, *inside]))
