"""Build a sifter's regions by one scheme, or by the one that does best on rows held back (`auto`; section V).

The default is `demand`, ours: `auto` gained nothing over it on real streams. Gedik, Wu and Yu (2007) find no scheme
best everywhere (QDPart for skewed queries, data equi-depth for skewed data) and leave one that is to future work.
`auto` builds all schemes on all but a fold of the sample and judges them on that fold. The best `FINALISTS` go on to
the next folds, and the scheme that does best in the mean is built on the whole sample. `USUAL` is taken unless another
does better by more than `DOUBT` standard errors; the third fold is there to tell those apart that do.

    score = 1 - sum over queries of alpha_q w_q lost_q        lost_q: the share of q's held back rows that would be lost

A query of few held back rows (1,000 rows, queries of a ten-thousandth of the space) says little by them, and is judged
by the rows around it. Thresholds know nothing of the rows held back either (regions made to fit some rows look emptier
by them than they are); what they drop too much or too little of those is evened out at random. Who asks for which rows
is the same for all schemes, and is found once a fold; worths of regions are those of the points that fall into them
(`demand`), where no query has a least share to keep to.

Guarantee: the same sample, queries and seed, the same regions.

The schemes by which regions are cut (V), by name: what each needs of the sample, and what all may share.

>>> asked = Asked(np.array([[[0.0, 0.5]]]), np.zeros(1, int), np.ones(1))
>>> partitioned("data_depth", np.array([[0.0, 1.0]]), np.array([[0.1, 0.2, 0.9]]), asked, 3).count
3
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numba import njit

from spillway.errors import Refused
from spillway.levers.sifters.configure import configured, configured_for
from spillway.levers.sifters.consolidate import Asked, consolidated, hits_of, sums_within
from spillway.levers.sifters.demand import FEW_ROWS, DemandPoints, demand_points, demand_tree
from spillway.levers.sifters.partitioners import (
    data_equi_depth,
    flexible,
    orders_among,
    orders_of,
    query_equi_depth,
    uniform_grid,
)
from spillway.levers.sifters.regions import MOST_DIMENSIONS, MOST_REGIONS, RegionTree

PARTITIONERS = (
    "uniform_grid", "data_depth", "query_depth", "flexible_grid", "flexible_depth", "query_data", "demand",
)  # fmt: skip
"""In the order in which ties are settled, the cheapest look-up first."""


@dataclass(frozen=True)
class Known:
    """Of some rows: how much each is asked for, their order by dimension, and demand as points."""

    hits: np.ndarray
    orders: np.ndarray
    demand: DemandPoints


def partitioned(
    scheme: str,
    space: np.ndarray,
    points: np.ndarray,
    asked: Asked,
    regions: int,
    throttle: float = 0.5,
    fairness: float = 1.0,
    known: Known | None = None,
) -> RegionTree:
    """The regions of one scheme; `known`: what is found for all of them alike."""
    if scheme == "uniform_grid":
        return uniform_grid(space, regions)
    if scheme == "data_depth":
        return data_equi_depth(space, points, regions)
    if scheme == "query_depth":
        return query_equi_depth(space, asked.boxes, regions)
    if scheme == "flexible_grid":
        return flexible(space, points, regions, "volume", orders=None if known is None else known.orders)
    if scheme == "flexible_depth":
        return flexible(space, points, regions, "count", orders=None if known is None else known.orders)
    if scheme == "query_data":
        hits, orders = (asked.hits(points), None) if known is None else (known.hits, known.orders)
        return flexible(space, points, regions, "query_data", hits, orders)
    if scheme == "demand":
        demand = demand_of(asked, points) if known is None else known.demand
        return _by_demand(space, demand, regions, throttle, fairness, points.shape[1])[0]
    raise Refused("scheme", f"be auto or one of {', '.join(PARTITIONERS)}", scheme, "write scheme: auto")


def partitioned_and_placed(
    scheme: str,
    space: np.ndarray,
    points: np.ndarray,
    asked: Asked,
    regions: int,
    throttle: float,
    fairness: float,
    known: Known,
) -> tuple[RegionTree, np.ndarray]:
    """The regions by a scheme, and that of every point of demand."""
    if scheme == "demand":
        return _by_demand(space, known.demand, regions, throttle, fairness, points.shape[1])
    tree = partitioned(scheme, space, points, asked, regions, throttle, fairness, known)
    return tree, tree.regions_of(known.demand.places)


def _by_demand(
    space: np.ndarray, demand: DemandPoints, regions: int, throttle: float, fairness: float, rows: int
) -> tuple[RegionTree, np.ndarray]:
    return demand_tree(space, demand, regions, 1.0 - throttle, fairness, FEW_ROWS / max(1, rows))


def demand_of(asked: Asked, points: np.ndarray, seen: np.ndarray | None = None) -> DemandPoints:
    """Frequency and worth as points; `seen`: by query how many of the rows it wants, where that is known."""
    if seen is None:
        seen = sums_within(points, asked.boxes, asked.query, asked.count, np.zeros((1, points.shape[1])))[1]
    a_row = asked.values / (seen + 1.0)
    of_box = (a_row / np.bincount(asked.query, minlength=asked.count).clip(1))[asked.query]
    return demand_points(points, hits_of(points, asked.boxes, a_row[asked.query]), asked.boxes, of_box)


def frequencies_of(tree: RegionTree, points: np.ndarray) -> np.ndarray:
    """By region, the share of these rows that lies in it (f)."""
    return np.bincount(tree.regions_of(points), minlength=tree.count) / max(1, points.shape[1])


FOLDS = 3
FINALISTS = 4
"""So many schemes are tried on more than the first fold, the usual one among them."""
USUAL, DOUBT = "demand", 2.0
"""Another scheme than the usual one must be better by so many standard errors of the difference."""
LIMITED = 0.9
"""A query limits a dimension of which it holds less of the rows."""
PRIOR = 1.0
LOOKED_AT = 2.0
"""A query is judged by about so many rows, those around it where it has fewer."""


@dataclass(frozen=True)
class Built:
    """Regions, and how their scheme was found."""

    scheme: str
    tree: RegionTree
    frequencies: np.ndarray
    scores: Mapping[str, float]
    """By scheme, the quality held back rows promise; of a scheme that was stated, none."""


def built(
    space: np.ndarray,
    points: np.ndarray,
    asked: Asked,
    regions: int,
    scheme: str = "demand",
    throttle: float = 0.5,
    fairness: float = 1.0,
    most: float = 1.0,
    seed: int = 1,
) -> Built:
    """The regions for a sample (places by dimension and row) and queries; `most`: no threshold above."""
    check_sample(points, regions)
    scores: dict[str, float] = {}
    known: Known | None = None
    if scheme == "auto":
        scores, known = scheme_scores(space, points, asked, regions, throttle, fairness, most, seed)
        scheme = max(scores, key=lambda name: scores[name]) if scores else PARTITIONERS[0]
    tree = partitioned(scheme, space, points, asked, regions, throttle, fairness, known)
    return Built(scheme, tree, frequencies_of(tree, points), scores)


def scheme_scores(
    space: np.ndarray,
    points: np.ndarray,
    asked: Asked,
    regions: int,
    throttle: float,
    fairness: float,
    most: float,
    seed: int,
) -> tuple[dict[str, float], Known | None]:
    """By scheme, the mean quality on the folds of the sample that it was not built on; and what is known of it all.

    Of one that cannot keep to what is asked (`configured_for`), by how much, below 0: any that can is better.
    """
    rows = points.shape[1]
    if rows < 4:
        return {}, None
    fold_of = np.empty(rows, np.int64)
    fold_of[np.random.default_rng(seed).permutation(rows)] = np.arange(rows) % FOLDS
    by_fold = (fold_of == np.arange(FOLDS)[:, None]).astype(float)
    seen, _ = sums_within(points, asked.boxes, asked.query, asked.count, by_fold)
    hits, total = asked.hits(points), seen.sum(axis=0)
    # places lie as they do whatever part of the rows is looked at
    whole = demand_of(asked, points, total)
    places = whole.places
    orders = orders_of(places)
    of_rows = np.arange(places.shape[1]) < rows
    known = Known(hits, orders_among(orders, of_rows), replace(whole, orders=orders))
    lines = _Lines.of(asked, points, known.orders)
    wider = {held: widened_boxes(asked, lines, held) for held in {int(one) for one in by_fold.sum(axis=1)}}
    judge = partial(_judged, space, asked, regions, max(throttle, 1.0 - most), fairness, most)
    losses, amiss = {name: np.zeros(rows) for name in PARTITIONERS}, dict.fromkeys(PARTITIONERS, 0.0)
    racing = list(PARTITIONERS)
    for fold in range(FOLDS):
        held = fold_of == fold
        build, apart = points[:, ~held], np.append(~held, ~of_rows[rows:])
        demand = replace(demand_of(asked, build, total - seen[fold]), orders=orders_among(orders, apart))
        of_build = Known(hits[~held], orders_among(orders, apart & of_rows), demand)
        wide = around(asked, wider[int(held.sum())], seen[fold])
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
            # rows held back are few: what is better by chance is not taken for better
            better = (losses[USUAL] - losses[name])[fold_of <= fold]
            found[name] -= DOUBT * float(np.std(better)) * math.sqrt(len(better)) / (fold + 1)
        best = max(racing, key=lambda name: (-amiss[name], found[name]))
        if fold and best == USUAL:
            break
    # of those that did not go on: how far behind they were
    for name in PARTITIONERS:
        if name not in racing:
            found[name] = found[best] - max(0.0, first[name] - first[best])
    return {name: -amiss[name] if amiss[name] > 0 else score for name, score in found.items()}, known


@dataclass(frozen=True)
class _Fold:
    """The sample in two: rows to build on, and rows held back."""

    build: np.ndarray
    held: np.ndarray
    known: Known
    """Of the rows to build on."""
    wide: np.ndarray
    """The boxes that rows held back judge queries by."""


def _judged(
    space: np.ndarray,
    asked: Asked,
    regions: int,
    throttle: float,
    fairness: float,
    most: float,
    fold: _Fold,
    schemes: Sequence[str],
) -> Iterator[tuple[np.ndarray, float]]:
    """Scheme by scheme what it loses by every row held back, and by how much it cannot keep to what is asked."""
    build, held, wide, demand = fold.build, fold.held, fold.wide, fold.known.demand
    _, seen = sums_within(held, wide, asked.query, asked.count, np.zeros((1, held.shape[1])))
    value = asked.values / (seen + PRIOR)
    worth_of_row, beside = hits_of(held, wide, value[asked.query]), PRIOR * float(value.sum())
    for scheme in schemes:
        tree, lands = partitioned_and_placed(
            scheme, space, build, asked, regions, throttle, fairness, fold.known
        )
        frequencies, amiss = np.bincount(lands, demand.frequencies, minlength=tree.count), 0.0
        if asked.at_least.any():
            # regions too coarse for what a query must have leave no more to drop: theirs is no way, others may be
            worth = consolidated(tree, frequencies, asked, build)
            able = configured_for(worth, throttle, 0.0, fairness, 1.0 - most)
            thresholds, amiss = able.thresholds, able.short + max(0.0, able.fairness - fairness)
        else:
            worths = np.bincount(lands, demand.worths, minlength=tree.count)
            limits = np.full(tree.count, most)
            thresholds = configured(worths, frequencies, worths > 0, throttle, fairness, limits)
        lost = at_share(thresholds[tree.regions_of(held)], 1.0 - throttle)
        yield worth_of_row * lost + beside * lost / len(lost), amiss


def at_share(lost: np.ndarray, drop: float) -> np.ndarray:
    """Chances that come to this share: the rest is dropped, or kept, at random.

    >>> at_share(np.array([1.0, 0.0]), 0.75).tolist(), at_share(np.array([1.0, 1.0]), 0.5).tolist()
    ([1.0, 0.5], [0.5, 0.5])
    """
    mean = float(lost.mean())
    if mean < drop:
        return np.asarray(lost + (1.0 - lost) * (drop - mean) / (1.0 - mean))
    return lost * (drop / mean) if mean > 0 else lost


@dataclass(frozen=True)
class _Lines:
    """The rows of a sample in order, dimension by dimension."""

    places: np.ndarray
    ranks: np.ndarray
    """Of a place in order, the share of the rows below it."""
    sides: np.ndarray
    """By box, dimension and end, its rank."""

    @staticmethod
    def of(asked: Asked, points: np.ndarray, orders: np.ndarray) -> _Lines:
        """The lines of all rows, and where boxes lie on them."""
        places = np.take_along_axis(points, orders, axis=1)
        ranks = np.arange(1, places.shape[1] + 1) / (places.shape[1] + 1)
        sides = [
            np.stack([np.interp(asked.boxes[:, d, end], line, ranks, 0.0, 1.0) for end in (0, 1)], axis=1)
            for d, line in enumerate(places)
        ]
        return _Lines(places, ranks, np.stack(sides, axis=1))


def around(asked: Asked, wider: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The boxes of queries; the wider ones of those that have fewer than `LOOKED_AT` rows."""
    few = seen[asked.query] < LOOKED_AT
    return np.where(few[:, None, None], wider, asked.boxes)


def widened_boxes(asked: Asked, lines: _Lines, held: int) -> np.ndarray:
    """The boxes of queries, as wide at least as `LOOKED_AT` of so many rows take.

    Widened in ranks along each dimension that they limit, so that where rows are dense little is added.
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
    """`np.interp(wanted, ranks, line)`, for ranks that are even: where each lies among them is no search."""
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
    """Refuse what no regions can be built from."""
    if points.ndim != 2 or not 1 <= points.shape[0] <= MOST_DIMENSIONS:
        raise Refused(
            "dimensions",
            f"be 1 to {MOST_DIMENSIONS}",
            points.shape[0] if points.ndim else 0,
            "leave out those that fewest queries are about",
        )
    if points.shape[1] < 1:
        raise Refused("sample", "have rows", 0, "take in some rows of the stream first")
    if not 1 <= regions <= MOST_REGIONS:
        raise Refused("regions", f"be 1 to {MOST_REGIONS}", regions, "write e.g. regions: 100")
