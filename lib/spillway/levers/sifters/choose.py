"""Building a sifter's regions: every scheme is a candidate, and the best on rows held back is built (V).

The text finds no scheme best everywhere (QDPart for skewed queries, data equi-depth for skewed data) and leaves one
that is to future work. Building all takes milliseconds, so all are built, on all but a fold of the sample, and judged
on that fold; the scheme that does best in the mean over the folds is built on the whole sample.

    score = 1 - sum over queries of alpha_q w_q lost_q        lost_q: the share of q's held back rows that would be lost

A query of few held back rows (1,000 rows, queries of a ten-thousandth of the space) says little by them, and is judged
by the rows around it; thresholds are set by the whole sample's frequencies, so that all drop the same share.

Guarantee: the same sample, queries and seed, the same regions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spillway.errors import Refused
from spillway.levers.sifters.consolidate import Asked, consolidated
from spillway.levers.sifters.flexible import flexible
from spillway.levers.sifters.membership import sums_within
from spillway.levers.sifters.regions import MOST_DIMENSIONS, MOST_REGIONS, RegionTree
from spillway.levers.sifters.slicing import data_equi_depth, query_equi_depth, uniform_grid
from spillway.levers.sifters.throttle import configured_for

PARTITIONERS = (
    "uniform_grid", "data_depth", "query_depth", "flexible_grid", "flexible_depth", "query_data", "worth",
)  # fmt: skip
"""In the order in which ties are settled, the cheapest look-up first."""
FOLDS = 3
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
    scheme: str = "auto",
    throttle: float = 0.5,
    fairness: float = 1.0,
    most: float = 1.0,
    seed: int = 1,
) -> Built:
    """The regions for a sample (places by dimension and row) and queries; `most`: no threshold above."""
    check_sample(points, regions)
    scores: dict[str, float] = {}
    if scheme == "auto":
        scores = scheme_scores(space, points, asked, regions, throttle, fairness, most, seed)
        scheme = max(scores, key=lambda name: scores[name]) if scores else PARTITIONERS[0]
    tree = partitioned(scheme, space, points, asked, regions)
    return Built(scheme, tree, frequencies_of(tree, points), scores)


def partitioned(
    scheme: str,
    space: np.ndarray,
    points: np.ndarray,
    asked: Asked,
    regions: int,
    hits: np.ndarray | None = None,
) -> RegionTree:
    """The regions of one scheme."""
    if scheme == "uniform_grid":
        return uniform_grid(space, regions)
    if scheme == "data_depth":
        return data_equi_depth(space, points, regions)
    if scheme == "query_depth":
        return query_equi_depth(space, asked.boxes, regions)
    if scheme == "flexible_grid":
        return flexible(space, points, regions, "volume")
    if scheme == "flexible_depth":
        return flexible(space, points, regions, "count")
    if scheme == "query_data":
        return flexible(space, points, regions, "query_data", asked.hits(points) if hits is None else hits)
    if scheme == "worth":
        return flexible(space, points, regions, "worth", asked.row_worths(points), asked.edges)
    raise Refused("scheme", f"be auto or one of {', '.join(PARTITIONERS)}", scheme, "write scheme: auto")


def frequencies_of(tree: RegionTree, points: np.ndarray) -> np.ndarray:
    """By region, the share of these rows that lies in it (f)."""
    return np.bincount(tree.regions_of(points), minlength=tree.count) / max(1, points.shape[1])


def scheme_scores(
    space: np.ndarray,
    points: np.ndarray,
    asked: Asked,
    regions: int,
    throttle: float,
    fairness: float,
    most: float,
    seed: int,
) -> dict[str, float]:
    """By scheme, the mean quality on the folds of the sample that it was not built on.

    Of one that cannot keep to what is asked (`configured_for`), by how much, below 0: any that can is better.
    """
    rows = points.shape[1]
    if rows < 4:
        return {}
    order = np.random.default_rng(seed).permutation(rows)
    folds = [np.sort(order[fold::FOLDS]) for fold in range(FOLDS)]
    found, amiss = dict.fromkeys(PARTITIONERS, 0.0), dict.fromkeys(PARTITIONERS, 0.0)
    for fold in folds:
        held, build = points[:, fold], np.delete(points, fold, axis=1)
        lost = []
        for scheme in PARTITIONERS:
            tree = partitioned(scheme, space, build, asked, regions)
            worth = consolidated(tree, frequencies_of(tree, points), asked, build)
            # regions too coarse for what a query must have leave no more to drop: theirs is no way, but others may be
            able = configured_for(worth, throttle, 0.0, fairness, 1.0 - most)
            amiss[scheme] += able.short + max(0.0, able.fairness - fairness)
            lost.append(able.thresholds[tree.regions_of(held)])
        by_row = np.stack(lost)
        sums, seen = sums_within(held, around(asked, points, held), asked.query, asked.count, by_row)
        mean = by_row.mean(axis=1, keepdims=True)
        by_query = (sums + PRIOR * mean) / (seen + PRIOR)
        for scheme, quality in zip(PARTITIONERS, 1.0 - by_query @ asked.values, strict=True):
            found[scheme] += float(quality) / FOLDS
    return {scheme: -amiss[scheme] if amiss[scheme] > 0 else score for scheme, score in found.items()}


def around(asked: Asked, points: np.ndarray, held: np.ndarray) -> np.ndarray:
    """The boxes of queries; those of queries with fewer than `LOOKED_AT` held back rows as much wider as it takes.

    Widened in ranks along each dimension that they limit, so that where rows are dense little is added.
    """
    _, seen = sums_within(held, asked.boxes, asked.query, asked.count, np.zeros((1, held.shape[1])))
    few = seen[asked.query] < LOOKED_AT
    found = asked.boxes.copy()
    if not few.any():
        return found
    lines = np.sort(points, axis=1)
    ranks = np.arange(1, points.shape[1] + 1) / (points.shape[1] + 1)
    sides = np.stack(
        [
            np.stack([np.interp(found[few, d, end], line, ranks, 0.0, 1.0) for end in (0, 1)], axis=1)
            for d, line in enumerate(lines)
        ],
        axis=1,
    )
    widths = sides[:, :, 1] - sides[:, :, 0]
    limited = np.maximum(1, (widths < LIMITED).sum(axis=1))
    wanted = np.minimum(1.0, (LOOKED_AT / max(1, held.shape[1])) ** (1.0 / limited))
    more = np.maximum(0.0, wanted[:, None] - widths) / 2.0 * (widths < LIMITED)
    for d, line in enumerate(lines):
        for end, sign in ((0, -1.0), (1, 1.0)):
            wide = np.interp(sides[:, d, end] + sign * more[:, d], ranks, line)
            better = np.minimum if end == 0 else np.maximum
            found[few, d, end] = better(found[few, d, end], wide)
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
