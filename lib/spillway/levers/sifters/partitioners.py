"""Partition the data space into regions: slicing and flexible partitioners (V).

Slicing partitioners are the uniform grid, data equi-depth and query equi-depth. Each slices the space along one
dimension after the other:

- The uniform grid cuts at equal distances.
- Data equi-depth cuts into slices of equally many sample rows, and again within each slice along the next dimension.
- Query equi-depth does the same with the centres of the queries.

Gedik, Wu and Yu (2008) use l = u^n regions: u slices for each of n dimensions. Here dimensions may differ by one slice,
so that more of l is used (l = 100 over 3 dimensions: 5 x 5 x 4). A dimension with only one distinct value gets one
slice.

Guarantee: never more than l regions. Slices of equal depth differ by at most one row, apart from rows at the same
place, which no cut can separate.

>>> points = np.random.default_rng(1).random((2, 1000))
>>> tree = data_equi_depth(np.array([[0.0, 1.0]] * 2), points, 16)
>>> np.bincount(tree.regions_of(points)).tolist() == [62] * 8 + [63] * 8
False
>>> sorted(set(np.bincount(tree.regions_of(points)).tolist()))
[62, 63]

Flexible partitioners (V-A, V-B) repeatedly cut the region with the largest gain at its best cut, until there are l:

    volume       gain: its volume; cut: the longest edge in the middle                      (approximate grid)
    count        gain: its sample rows; cut: the dimension of highest variance at the median (approximate equi-depth)
    query_data   gain: equation 11, roof minus floor diversity; cut: at the floor            (QDPart)
    demand       gain: increase of sum A^2 / (f + c); cut: at the largest increase, along a query's side
                                                                               (Spillway's own, see `demand`)

    diversity H(S, i) = SSE(hits of S's sample rows) x SSE(their places on i)
    benefit(S) = max over i of  H(S, i) - min over cuts j of ( H(S_j-, i) + H(S_j+, i) )                  (eq. 11)

`hits` is the sum of the weights of the queries that a row satisfies. The paper counts these queries, which is the same
up to a factor if all weights are equal. The gain takes two scans per dimension: one for the sums below each cut, one
for the sums above.

Differences from the paper:

- Rows at the same place are never separated. A cut j of the paper may fall between them, but a look-up cannot follow.
- The sample is sorted once per dimension and divided stably. It is not sorted again in each region.
- Cutting stops if no region gains anything, which keeps the filter small.

>>> points = np.array([[0.1, 0.2, 0.8, 0.9]])
>>> tree = flexible_partition(np.array([[0.0, 1.0]]), points, 2, "query_data", hits=np.array([0.0, 0.0, 5.0, 5.0]))
>>> tree.regions_of(points).tolist()
[0, 0, 1, 1]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from spillway.errors import InvalidValue
from spillway.levers.sifters.regions import RegionTree

Split = tuple[int, int, float]


def uniform_grid(space: np.ndarray, regions: int) -> RegionTree:
    """Return regions of equal size (uniform grid, UGRID)."""
    counts = slices_by_dimension([high > low for low, high in space], regions)
    grower = _Grower()
    leaves = [0]
    for axis, count in enumerate(counts):
        low, high = space[axis]
        cuts = low + (high - low) * np.arange(1, count) / count
        leaves = [part for leaf in leaves for part in grower.slices(leaf, axis, cuts)]
    return RegionTree.from_splits(space, grower.splits)


def data_equi_depth(space: np.ndarray, points: np.ndarray, regions: int) -> RegionTree:
    """Return regions of equally many sample rows (data equi-depth, DEDP); `points` by dimension and row."""
    counts = slices_by_dimension([bool(len(line)) and line.min() < line.max() for line in points], regions)
    grower = _Grower()
    parts = [(0, np.arange(points.shape[1]))]
    for axis, count in enumerate(counts):
        found = []
        for region, rows in parts:
            line = points[axis, rows]
            cuts = equal_cuts(line, count)
            names = grower.slices(region, axis, cuts)
            if axis + 1 == len(counts):
                continue  # these slices are not cut again
            where = np.searchsorted(cuts, line, side="right")
            found += [(name, rows[where == place]) for place, name in enumerate(names)]
        parts = found
    return RegionTree.from_splits(space, grower.splits)


def query_equi_depth(space: np.ndarray, boxes: np.ndarray, regions: int) -> RegionTree:
    """Return regions of equally many query centres (query equi-depth, QEDP); `boxes` are boxes of places."""
    inside = np.clip(boxes, space[None, :, :1], space[None, :, 1:])
    return data_equi_depth(space, inside.mean(axis=2).T, regions)


def slices_by_dimension(divisible: Sequence[bool], regions: int) -> list[int]:
    """Return the number of slices of each dimension: as even as possible, with a product of at most `regions`.

    >>> cases = ([True, True], 16), ([True, False, True, True], 100), ([True] * 6, 100)
    >>> tuple(slices_by_dimension(divisible, regions) for divisible, regions in cases)
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
    """Return the cuts that divide a line into slices of equally many points.

    A cut lies halfway between two neighbouring points, never between points at the same place.

    >>> equal_cuts(np.array([1.0, 2.0, 2.0, 2.0, 8.0]), 2).tolist()
    [1.5]
    """
    found = np.empty(max(0, count - 1))
    return found[: _equal_cuts(np.sort(line), count, found)]


@njit(cache=True, nogil=True)
def _equal_cuts(values: np.ndarray, count: int, found: np.ndarray) -> int:
    """Fill `found` with the cuts and return their number.

    Each cut lies at the step between places that is nearest to the wanted rank; the lower step wins a tie.
    """
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
    """Collects cuts, and numbers the regions that they create."""

    def __init__(self) -> None:
        self.splits: list[Split] = []
        self._halvings: dict[int, tuple[list[int], np.ndarray, list[int]]] = {}

    def slices(self, region: int, axis: int, cuts: np.ndarray) -> list[int]:
        """Cut a region at several places by repeated halving; return the regions of the slices in order."""
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
    """Return how to apply `count` sorted cuts by halving, so that the tree is balanced.

    The result is, for each step, the slice that is cut and the index of the cut; then, for each place on the line, the
    number of its slice.

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


METRICS = ("volume", "count", "query_data", "demand")


def flexible_partition(
    space: np.ndarray,
    points: np.ndarray,
    regions: int,
    metric: str,
    hits: np.ndarray | None = None,
) -> RegionTree:
    """Return a partition of at most `regions` regions; `points` by dimension and row, `hits` by row."""
    return RegionTree.from_splits(space, grow_splits(space, points, regions, metric, hits)[0])


def grow_splits(
    space: np.ndarray,
    points: np.ndarray,
    regions: int,
    metric: str,
    hits: np.ndarray | None = None,
    frequencies: np.ndarray | None = None,
    kinds: np.ndarray | None = None,
    few: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cuts of a partition in order, and the region of each point.

    `hits` by point; for the metric `demand`, they are the worths. Only `demand` uses `frequencies`, `kinds` and `few`
    (see the module `demand`).
    """
    if metric not in METRICS:
        raise InvalidValue(
            "metric", f"be one of {', '.join(METRICS)}", metric, "see levers.sifters.partitioners"
        )
    points = np.ascontiguousarray(points, float)
    nothing = np.zeros(points.shape[1])
    splits, lands = np.empty((max(regions - 1, 0), 3)), np.empty(points.shape[1], np.int32)
    count = _grow(
        np.ascontiguousarray(space, float),
        points,
        np.argsort(points, axis=1, kind="stable").astype(np.int64),
        nothing if hits is None else np.asarray(hits, float),
        nothing if frequencies is None else frequencies,
        nothing.astype(np.int8) if kinds is None else kinds,
        few,
        regions,
        METRICS.index(metric),
        splits,
        lands,
    )
    return splits[:count], lands


@njit(cache=True, nogil=True)
def _grow(
    space: np.ndarray,
    points: np.ndarray,
    orders: np.ndarray,
    hits: np.ndarray,
    frequencies: np.ndarray,
    kinds: np.ndarray,
    few: float,
    regions: int,
    metric: int,
    splits: np.ndarray,
    lands: np.ndarray,
) -> int:
    """Fill `splits` and `lands` (the region of each point); return the number of splits."""
    dimensions, rows = points.shape
    begins, ends = np.zeros(regions, np.int64), np.zeros(regions, np.int64)
    ends[0] = rows
    bounds = np.empty((regions, dimensions, 2))
    bounds[0] = space
    gains, axes, cuts = np.empty(regions), np.empty(regions, np.int64), np.empty(regions)
    of = (points, orders, hits, frequencies, kinds, few, metric)
    _rate(0, begins, ends, bounds, of, gains, axes, cuts)
    goes_up, held = np.zeros(rows, np.bool_), np.empty(rows, np.int64)
    count = 1
    while count < regions:
        best = 0
        for region in range(1, count):
            if gains[region] > gains[best]:
                best = region
        if not gains[best] > 0.0:
            break
        axis, cut = axes[best], cuts[best]
        splits[count - 1, 0], splits[count - 1, 1], splits[count - 1, 2] = best, axis, cut
        begin, end, below = begins[best], ends[best], 0
        for at in range(begin, end):
            row = orders[axis, at]
            goes_up[row] = points[axis, row] >= cut
            if not goes_up[row]:
                below += 1
        for d in range(dimensions):  # divide stably: rows stay in order
            low, high = begin, begin + below
            for at in range(begin, end):
                held[at] = orders[d, at]
            for at in range(begin, end):
                if goes_up[held[at]]:
                    orders[d, high] = held[at]
                    high += 1
                else:
                    orders[d, low] = held[at]
                    low += 1
        bounds[count] = bounds[best]
        bounds[best, axis, 1] = bounds[count, axis, 0] = cut
        begins[count], ends[count], ends[best] = begin + below, end, begin + below
        for region in (best, count):
            _rate(region, begins, ends, bounds, of, gains, axes, cuts)
        count += 1
    for region in range(count):
        for at in range(begins[region], ends[region]):
            lands[orders[0, at]] = region
    return count - 1


@njit(cache=True, nogil=True)
def _rate(
    region: int,
    begins: np.ndarray,
    ends: np.ndarray,
    bounds: np.ndarray,
    of: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float, int],
    gains: np.ndarray,
    axes: np.ndarray,
    cuts: np.ndarray,
) -> None:
    """Write the gain, the dimension and the place of the best cut of a region."""
    points, orders, hits, frequencies, kinds, few, metric = of
    begin, end = begins[region], ends[region]
    gains[region], axes[region], cuts[region] = 0.0, 0, 0.0
    if metric == 0:
        volume, longest = 1.0, 0.0
        for d in range(points.shape[0]):
            edge = bounds[region, d, 1] - bounds[region, d, 0]
            volume *= edge if edge > 0.0 else 1.0
            if edge > longest:
                longest, axes[region] = edge, d
        if longest > 0.0:
            middle = bounds[region, axes[region], 0] + longest / 2.0
            if middle > bounds[region, axes[region], 0]:
                gains[region], cuts[region] = volume, middle
    elif metric == 1:
        _rate_count(region, begin, end, points, orders, gains, axes, cuts)
    elif metric == 3:
        for d in range(points.shape[0]):
            _rate_demand(
                region, d, begin, end, points, orders, hits, frequencies, kinds, few, gains, axes, cuts
            )
    else:
        for d in range(points.shape[0]):
            _rate_diversity(region, d, begin, end, points, orders, hits, gains, axes, cuts)


@njit(cache=True, nogil=True)
def _rate_count(
    region: int,
    begin: int,
    end: int,
    points: np.ndarray,
    orders: np.ndarray,
    gains: np.ndarray,
    axes: np.ndarray,
    cuts: np.ndarray,
) -> None:
    widest = 0.0
    for d in range(points.shape[0]):
        mean, squares = 0.0, 0.0
        for at in range(begin, end):
            value = points[d, orders[d, at]]
            step = value - mean
            mean += step / (at - begin + 1)
            squares += step * (value - mean)
        if squares > widest:
            middle = (begin + end) // 2
            # the first step between places at or after the median; if there is none, the last one before it
            at = middle
            while at < end and points[d, orders[d, at]] == points[d, orders[d, at - 1]]:
                at += 1
            if at == end:
                at = middle
                while at > begin + 1 and points[d, orders[d, at]] == points[d, orders[d, at - 1]]:
                    at -= 1
            low, high = points[d, orders[d, at - 1]], points[d, orders[d, at]]
            if high > low:
                widest = squares
                cut = low + (high - low) / 2.0
                gains[region], axes[region], cuts[region] = end - begin, d, cut if cut > low else high


@njit(cache=True, nogil=True)
def _rate_diversity(
    region: int,
    d: int,
    begin: int,
    end: int,
    points: np.ndarray,
    orders: np.ndarray,
    hits: np.ndarray,
    gains: np.ndarray,
    axes: np.ndarray,
    cuts: np.ndarray,
) -> None:
    """Compute equation 11 along one dimension, by two scans of its rows in order."""
    rows = end - begin
    if rows < 2:
        return
    below = np.empty(rows)
    hit_mean, hit_sse, mean, sse = 0.0, 0.0, 0.0, 0.0
    for i in range(rows):  # H of the first i + 1 rows
        row = orders[d, begin + i]
        step = hits[row] - hit_mean
        hit_mean += step / (i + 1)
        hit_sse += step * (hits[row] - hit_mean)
        step = points[d, row] - mean
        mean += step / (i + 1)
        sse += step * (points[d, row] - mean)
        below[i] = hit_sse * sse
    roof = below[rows - 1]
    floor, place = np.inf, -1
    hit_mean, hit_sse, mean, sse = 0.0, 0.0, 0.0, 0.0
    for i in range(rows - 1, 0, -1):  # H of the last rows - i rows
        row = orders[d, begin + i]
        seen = rows - i
        step = hits[row] - hit_mean
        hit_mean += step / seen
        hit_sse += step * (hits[row] - hit_mean)
        step = points[d, row] - mean
        mean += step / seen
        sse += step * (points[d, row] - mean)
        if points[d, orders[d, begin + i - 1]] < points[d, row] and below[i - 1] + hit_sse * sse < floor:
            floor, place = below[i - 1] + hit_sse * sse, i
    if place > 0 and roof - floor > gains[region]:
        low, high = points[d, orders[d, begin + place - 1]], points[d, orders[d, begin + place]]
        cut = low + (high - low) / 2.0
        gains[region], axes[region], cuts[region] = roof - floor, d, cut if cut > low else high


@njit(cache=True, nogil=True)
def _rate_demand(
    region: int,
    d: int,
    begin: int,
    end: int,
    points: np.ndarray,
    orders: np.ndarray,
    worths: np.ndarray,
    frequencies: np.ndarray,
    kinds: np.ndarray,
    few: float,
    gains: np.ndarray,
    axes: np.ndarray,
    cuts: np.ndarray,
) -> None:
    """Compute the increase of sum A^2 / (f + c) by the best cut along one dimension."""
    if end - begin < 2 or points[d, orders[d, begin]] == points[d, orders[d, end - 1]]:
        return
    f, a = 0.0, 0.0
    for at in range(begin, end):
        f += frequencies[orders[d, at]]
        a += worths[orders[d, at]]
    whole, f_below, a_below = a * a / (f + few), 0.0, 0.0
    next_ = orders[d, begin]
    high = points[d, next_]
    for at in range(begin, end - 1):
        row, low = next_, high
        next_ = orders[d, at + 1]
        high = points[d, next_]
        f_below += frequencies[row]
        a_below += worths[row]
        if low < high:
            f_above, a_above = max(0.0, f - f_below), max(0.0, a - a_below)
            gain = a_below * a_below / (f_below + few) + a_above * a_above / (f_above + few) - whole
            # a gain in the last bit is rounding
            if gain > gains[region] and gain > 1e-12 * whole:
                gains[region], axes[region] = gain, d
                if kinds[next_] == 1:
                    cuts[region] = high
                elif kinds[row] == 2:
                    cuts[region] = np.nextafter(low, np.inf)
                else:
                    cut = low + (high - low) / 2.0
                    cuts[region] = cut if cut > low else high
