"""Build a sifter's regions with one partitioning scheme, or with the best one by cross-validation (`auto`; section V).

The default is `demand`, Spillway's own scheme: `auto` gained nothing over it on real streams. Gedik, Wu and Yu (2008)
find no scheme best everywhere: QDPart is best for skewed queries, data equi-depth for skewed data. They leave a scheme
that is best everywhere to future work.

`auto` builds the regions of every scheme on all rows of the sample except one fold, and scores them on that fold. The
best `FINALISTS` go on to the next folds. The scheme with the best mean score is then built on the whole sample. It
replaces the usual scheme (`USUAL`) only if its advantage exceeds `DOUBT` standard errors of the difference. The third
fold only separates schemes that beat the usual one after two folds.

    score = 1 - sum over queries of alpha_q w_q lost_q     lost_q: the share of q's validation rows that would be lost

- A query with few validation rows (1,000 rows, and queries that cover a ten-thousandth of the space) gives little
  evidence. It is scored on the rows around it as well (`widen_boxes`).
- Thresholds are computed without the validation rows. Regions that are fitted to some rows look emptier by other rows,
  so the thresholds drop too much or too little. The difference is corrected at random (`scale_to_mean`).
- The rows that each query asks for are the same for all schemes, and are found once per fold.
- The worth of a region is the sum over its points (module `demand`), unless a query states a minimum (`at_least`).

Guarantee: the same sample, queries and seed give the same regions.

`partition_space` builds the regions of one scheme by name. `SharedResults` holds the intermediate results that schemes
share.

>>> asked = QueryBoxes(np.array([[[0.0, 0.5]]]), np.zeros(1, int), np.ones(1))
>>> partition_space("data_depth", np.array([[0.0, 1.0]]), np.array([[0.1, 0.2, 0.9]]), asked, 3).count
3
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numba import njit

from spillway.errors import InvalidValue
from spillway.levers.sifters.configure import configure_filter, optimal_thresholds
from spillway.levers.sifters.consolidate import QueryBoxes, consolidate_queries, hits_of, sums_within
from spillway.levers.sifters.demand import FEW_ROWS, DemandPoints, demand_points, demand_tree
from spillway.levers.sifters.partitioners import (
    data_equi_depth,
    flexible_partition,
    query_equi_depth,
    select_orders,
    sort_orders,
    uniform_grid,
)
from spillway.levers.sifters.regions import MOST_DIMENSIONS, MOST_REGIONS, RegionTree

PARTITIONERS = (
    "uniform_grid", "data_depth", "query_depth", "flexible_grid", "flexible_depth", "query_data", "demand",
)  # fmt: skip
"""The names of the schemes, the cheapest look-up first. Equal losses on the first fold are ranked in this order."""


@dataclass(frozen=True)
class SharedResults:
    """Intermediate results about some rows that all schemes share.

    `hits`: the weight of the queries that each row satisfies. `orders`: the sort order of the rows by dimension.
    `demand`: frequency and worth as points.
    """

    hits: np.ndarray
    orders: np.ndarray
    demand: DemandPoints


def partition_space(
    scheme: str,
    space: np.ndarray,
    points: np.ndarray,
    asked: QueryBoxes,
    regions: int,
    throttle: float = 0.5,
    fairness: float = 1.0,
    known: SharedResults | None = None,
) -> RegionTree:
    """Return the regions of one scheme; `known`: shared intermediate results, if they are already computed."""
    if scheme == "uniform_grid":
        return uniform_grid(space, regions)
    if scheme == "data_depth":
        return data_equi_depth(space, points, regions)
    if scheme == "query_depth":
        return query_equi_depth(space, asked.boxes, regions)
    if scheme == "flexible_grid":
        return flexible_partition(
            space, points, regions, "volume", orders=None if known is None else known.orders
        )
    if scheme == "flexible_depth":
        return flexible_partition(
            space, points, regions, "count", orders=None if known is None else known.orders
        )
    if scheme == "query_data":
        hits, orders = (asked.hits(points), None) if known is None else (known.hits, known.orders)
        return flexible_partition(space, points, regions, "query_data", hits, orders)
    if scheme == "demand":
        demand = demand_of(asked, points) if known is None else known.demand
        return _by_demand(space, demand, regions, throttle, fairness, points.shape[1])[0]
    raise InvalidValue("scheme", f"be auto or one of {', '.join(PARTITIONERS)}", scheme, "write scheme: auto")


def partition_and_place(
    scheme: str,
    space: np.ndarray,
    points: np.ndarray,
    asked: QueryBoxes,
    regions: int,
    throttle: float,
    fairness: float,
    known: SharedResults,
) -> tuple[RegionTree, np.ndarray]:
    """Return the regions of one scheme, and the region of each demand point."""
    if scheme == "demand":
        return _by_demand(space, known.demand, regions, throttle, fairness, points.shape[1])
    tree = partition_space(scheme, space, points, asked, regions, throttle, fairness, known)
    return tree, tree.regions_of(known.demand.places)


def _by_demand(
    space: np.ndarray, demand: DemandPoints, regions: int, throttle: float, fairness: float, rows: int
) -> tuple[RegionTree, np.ndarray]:
    return demand_tree(space, demand, regions, 1.0 - throttle, fairness, FEW_ROWS / max(1, rows))


def demand_of(asked: QueryBoxes, points: np.ndarray, seen: np.ndarray | None = None) -> DemandPoints:
    """Return frequency and worth as points; `seen`: the number of rows that match each query, if already known."""
    if seen is None:
        seen = sums_within(points, asked.boxes, asked.query, asked.count, np.zeros((1, points.shape[1])))[1]
    a_row = asked.values / (seen + 1.0)
    of_box = (a_row / np.bincount(asked.query, minlength=asked.count).clip(1))[asked.query]
    return demand_points(points, hits_of(points, asked.boxes, a_row[asked.query]), asked.boxes, of_box)


def region_frequencies(tree: RegionTree, points: np.ndarray) -> np.ndarray:
    """Return the share of the rows that lies in each region (f)."""
    return np.bincount(tree.regions_of(points), minlength=tree.count) / max(1, points.shape[1])


FOLDS = 3
FINALISTS = 4
"""The number of schemes that are scored on more than the first fold, including the usual one."""
USUAL, DOUBT = "demand", 2.0
"""A scheme replaces the usual one if it is better by more than `DOUBT` standard errors of the difference."""
LIMITED = 0.9
"""A query limits a dimension if its range there holds less than this share of the rows."""
PRIOR = 1.0
LOOKED_AT = 2.0
"""A query is scored on at least about this number of rows; if fewer match, rows around it are added."""


@dataclass(frozen=True)
class BuiltRegions:
    """The regions, and the scores of the schemes that were compared."""

    scheme: str
    tree: RegionTree
    frequencies: np.ndarray
    scores: Mapping[str, float]
    """The score of each scheme on the validation rows; empty if the contract states a scheme."""


def build_regions(
    space: np.ndarray,
    points: np.ndarray,
    asked: QueryBoxes,
    regions: int,
    scheme: str = "demand",
    throttle: float = 0.5,
    fairness: float = 1.0,
    most: float = 1.0,
    seed: int = 1,
) -> BuiltRegions:
    """Return the regions for a sample (`points`: places by dimension and row) and queries.

    `most` is the largest allowed threshold. `scheme` may be `auto`.
    """
    check_sample(points, regions)
    scores: dict[str, float] = {}
    known: SharedResults | None = None
    if scheme == "auto":
        scores, known = scheme_scores(space, points, asked, regions, throttle, fairness, most, seed)
        scheme = max(scores, key=lambda name: scores[name]) if scores else PARTITIONERS[0]
    tree = partition_space(scheme, space, points, asked, regions, throttle, fairness, known)
    return BuiltRegions(scheme, tree, region_frequencies(tree, points), scores)


def scheme_scores(
    space: np.ndarray,
    points: np.ndarray,
    asked: QueryBoxes,
    regions: int,
    throttle: float,
    fairness: float,
    most: float,
    seed: int,
) -> tuple[dict[str, float], SharedResults | None]:
    """Return the mean score of each scheme on the folds that it was not built on, and the results shared by schemes.

    If a scheme cannot meet the minimum shares of the queries (`configure_filter`), its score is negative: the amount by
    which it misses them, with a minus. So any scheme that can meet them is better.
    """
    rows = points.shape[1]
    if rows < 4:
        return {}, None
    fold_of = np.empty(rows, np.int64)
    fold_of[np.random.default_rng(seed).permutation(rows)] = np.arange(rows) % FOLDS
    by_fold = (fold_of == np.arange(FOLDS)[:, None]).astype(float)
    seen, _ = sums_within(points, asked.boxes, asked.query, asked.count, by_fold)
    hits, total = asked.hits(points), seen.sum(axis=0)
    # the order of the places is the same for every subset of the rows
    whole = demand_of(asked, points, total)
    places = whole.places
    orders = sort_orders(places)
    of_rows = np.arange(places.shape[1]) < rows
    known = SharedResults(hits, select_orders(orders, of_rows), replace(whole, orders=orders))
    lines = _Lines.of(asked, points, known.orders)
    wider = {held: widen_boxes(asked, lines, held) for held in {int(one) for one in by_fold.sum(axis=1)}}
    judge = partial(_validation_losses, space, asked, regions, max(throttle, 1.0 - most), fairness, most)
    losses, amiss = {name: np.zeros(rows) for name in PARTITIONERS}, dict.fromkeys(PARTITIONERS, 0.0)
    racing = list(PARTITIONERS)
    for fold in range(FOLDS):
        held = fold_of == fold
        build, apart = points[:, ~held], np.append(~held, ~of_rows[rows:])
        demand = replace(demand_of(asked, build, total - seen[fold]), orders=select_orders(orders, apart))
        of_build = SharedResults(hits[~held], select_orders(orders, apart & of_rows), demand)
        wide = boxes_with_enough_rows(asked, wider[int(held.sum())], seen[fold])
        parts = _Fold(build, points[:, held], of_build, wide)
        for scheme, (loss, short) in zip(racing, judge(parts, racing), strict=True):
            losses[scheme][held] = loss
            amiss[scheme] += short
        lost = {name: float(losses[name].sum()) for name in racing}
        if fold == 0:
            others = [name for name in racing if name != USUAL]
            others.sort(key=lambda name: (amiss[name], lost[name]))
            first = lost
            racing = [*others[: FINALISTS - 1], USUAL]
        found = {name: 1.0 - lost[name] / (fold + 1) for name in racing}
        for name in racing if amiss[USUAL] == 0.0 else ():
            # there are few validation rows: subtract `DOUBT` standard errors, so that chance does not win
            better = (losses[USUAL] - losses[name])[fold_of <= fold]
            found[name] -= DOUBT * float(np.std(better)) * math.sqrt(len(better)) / (fold + 1)
        best = max(racing, key=lambda name: (-amiss[name], found[name]))
        if fold and best == USUAL:
            break
    # schemes that left after the first fold keep their distance to the best one on that fold
    for name in PARTITIONERS:
        if name not in racing:
            found[name] = found[best] - max(0.0, first[name] - first[best])
    return {name: -amiss[name] if amiss[name] > 0 else score for name, score in found.items()}, known


@dataclass(frozen=True)
class _Fold:
    """The sample in two subsets: rows to build on, and validation rows."""

    build: np.ndarray
    held: np.ndarray
    known: SharedResults
    """The shared results for the rows to build on."""
    wide: np.ndarray
    """The boxes of queries for the validation rows, widened for queries that few of these rows match."""


def _validation_losses(
    space: np.ndarray,
    asked: QueryBoxes,
    regions: int,
    throttle: float,
    fairness: float,
    most: float,
    fold: _Fold,
    schemes: Sequence[str],
) -> Iterator[tuple[np.ndarray, float]]:
    """Yield for each scheme the loss of each validation row, and by how much it misses what queries must have."""
    build, held, wide, demand = fold.build, fold.held, fold.wide, fold.known.demand
    _, seen = sums_within(held, wide, asked.query, asked.count, np.zeros((1, held.shape[1])))
    value = asked.values / (seen + PRIOR)
    worth_of_row, beside = hits_of(held, wide, value[asked.query]), PRIOR * float(value.sum())
    for scheme in schemes:
        tree, lands = partition_and_place(
            scheme, space, build, asked, regions, throttle, fairness, fold.known
        )
        frequencies, amiss = np.bincount(lands, demand.frequencies, minlength=tree.count), 0.0
        if asked.at_least.any():
            # if regions are too coarse for the minimum shares, too few rows can be dropped; other schemes may be finer
            worth = consolidate_queries(tree, frequencies, asked, build)
            able = configure_filter(worth, throttle, 0.0, fairness, 1.0 - most)
            thresholds, amiss = able.thresholds, able.short + max(0.0, able.fairness - fairness)
        else:
            worths = np.bincount(lands, demand.worths, minlength=tree.count)
            limits = np.full(tree.count, most)
            thresholds = optimal_thresholds(worths, frequencies, worths > 0, throttle, fairness, limits)
        lost = scale_to_mean(thresholds[tree.regions_of(held)], 1.0 - throttle)
        yield worth_of_row * lost + beside * lost / len(lost), amiss


def scale_to_mean(lost: np.ndarray, drop: float) -> np.ndarray:
    """Scale the probabilities of dropping each row so that their mean is `drop`.

    The missing share is dropped, or the excess is kept, at random.

    >>> scale_to_mean(np.array([1.0, 0.0]), 0.75).tolist(), scale_to_mean(np.array([1.0, 1.0]), 0.5).tolist()
    ([1.0, 0.5], [0.5, 0.5])
    """
    mean = float(lost.mean())
    if mean < drop:
        return np.asarray(lost + (1.0 - lost) * (drop - mean) / (1.0 - mean))
    return lost * (drop / mean) if mean > 0 else lost


@dataclass(frozen=True)
class _Lines:
    """The rows of a sample in sorted order, by dimension."""

    places: np.ndarray
    ranks: np.ndarray
    """The rank of each sorted place, as a share of the rows."""
    sides: np.ndarray
    """The rank of each end of each box, by box, dimension and end."""

    @staticmethod
    def of(asked: QueryBoxes, points: np.ndarray, orders: np.ndarray) -> _Lines:
        """Return the sorted places of all rows, and the ranks of the boxes among them."""
        places = np.take_along_axis(points, orders, axis=1)
        ranks = np.arange(1, places.shape[1] + 1) / (places.shape[1] + 1)
        sides = [
            np.stack([np.interp(asked.boxes[:, d, end], line, ranks, 0.0, 1.0) for end in (0, 1)], axis=1)
            for d, line in enumerate(places)
        ]
        return _Lines(places, ranks, np.stack(sides, axis=1))


def boxes_with_enough_rows(asked: QueryBoxes, wider: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return the boxes of queries; for queries with fewer than `LOOKED_AT` rows, the wider boxes."""
    few = seen[asked.query] < LOOKED_AT
    return np.where(few[:, None, None], wider, asked.boxes)


def widen_boxes(asked: QueryBoxes, lines: _Lines, held: int) -> np.ndarray:
    """Return the boxes of queries, each wide enough to hold about `LOOKED_AT` of `held` rows.

    Boxes are widened in ranks, along each dimension that they limit. So little width is added where rows are dense.
    """
    found = asked.boxes.copy()
    sides = lines.sides
    widths = sides[:, :, 1] - sides[:, :, 0]
    limited = np.maximum(1, (widths < LIMITED).sum(axis=1))
    wanted = np.minimum(1.0, (LOOKED_AT / max(1, held)) ** (1.0 / limited))
    more = np.maximum(0.0, wanted[:, None] - widths) / 2.0 * (widths < LIMITED)
    for d, line in enumerate(lines.places):
        for end, sign in ((0, -1.0), (1, 1.0)):
            wide = _at_ranks(sides[:, d, end] + sign * more[:, d], lines.ranks, line)
            better = np.minimum if end == 0 else np.maximum
            found[:, d, end] = better(found[:, d, end], wide)
    return found


@njit(cache=True, nogil=True)
def _at_ranks(wanted: np.ndarray, ranks: np.ndarray, line: np.ndarray) -> np.ndarray:
    """Compute `np.interp(wanted, ranks, line)` without a search, because the ranks are evenly spaced."""
    found, rows = np.empty(len(wanted)), len(ranks)
    for at in range(len(wanted)):
        x = wanted[at]
        below = min(max(int(x * (rows + 1)) - 1, 0), rows - 1)
        while below > 0 and ranks[below] > x:
            below -= 1
        while below + 1 < rows and ranks[below + 1] <= x:
            below += 1
        if x <= ranks[0]:
            found[at] = line[0]
        elif below == rows - 1 or ranks[below] == x:
            found[at] = line[below]
        else:
            slope = (line[below + 1] - line[below]) / (ranks[below + 1] - ranks[below])
            found[at] = slope * (x - ranks[below]) + line[below]
    return found


def check_sample(points: np.ndarray, regions: int) -> None:
    """Refuse a sample or a number of regions from which no regions can be built."""
    if points.ndim != 2 or not 1 <= points.shape[0] <= MOST_DIMENSIONS:
        raise InvalidValue(
            "dimensions",
            f"be 1 to {MOST_DIMENSIONS}",
            points.shape[0] if points.ndim else 0,
            "leave out those that fewest queries are about",
        )
    if points.shape[1] < 1:
        raise InvalidValue("sample", "have rows", 0, "take in some rows of the stream first")
    if not 1 <= regions <= MOST_REGIONS:
        raise InvalidValue("regions", f"be 1 to {MOST_REGIONS}", regions, "write e.g. regions: 100")
