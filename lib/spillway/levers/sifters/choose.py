"""Build a sifter's regions with one partitioning scheme (Gedik, Wu and Yu 2008, section V).

The default is `demand`, Spillway's own scheme. The paper finds no scheme best everywhere: QDPart (`query_data`) is best
for skewed queries, data equi-depth (`data_depth`) for skewed data. A choice by cross-validation among all schemes
gained nothing over `demand` on real streams, so there is none.

Guarantee: the same sample and queries give the same regions.

>>> asked = QueryBoxes(np.array([[[0.0, 0.5]]]), np.zeros(1, int), np.ones(1))
>>> partition_space("data_depth", np.array([[0.0, 1.0]]), np.array([[0.1, 0.2, 0.9]]), asked, 3).count
3
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.errors import InvalidValue
from spillway.levers.sifters.consolidate import QueryBoxes, hits_of, sums_within
from spillway.levers.sifters.demand import FEW_ROWS, DemandPoints, demand_points, demand_tree
from spillway.levers.sifters.partitioners import (
    data_equi_depth,
    flexible_partition,
    query_equi_depth,
    uniform_grid,
)
from spillway.levers.sifters.regions import MOST_DIMENSIONS, MOST_REGIONS, RegionTree

USUAL = "demand"
"""The scheme of contracts that name none."""
PARTITIONERS = (
    "uniform_grid", "data_depth", "query_depth", "flexible_grid", "flexible_depth", "query_data", USUAL,
)  # fmt: skip
"""The names of the schemes, the cheapest look-up first."""


def partition_space(
    scheme: str,
    space: np.ndarray,
    points: np.ndarray,
    asked: QueryBoxes,
    regions: int,
    throttle: float = 0.5,
    fairness: float = 1.0,
) -> RegionTree:
    """Return the regions of one scheme."""
    if scheme == "uniform_grid":
        return uniform_grid(space, regions)
    if scheme == "data_depth":
        return data_equi_depth(space, points, regions)
    if scheme == "query_depth":
        return query_equi_depth(space, asked.boxes, regions)
    if scheme == "flexible_grid":
        return flexible_partition(space, points, regions, "volume")
    if scheme == "flexible_depth":
        return flexible_partition(space, points, regions, "count")
    if scheme == "query_data":
        return flexible_partition(space, points, regions, "query_data", asked.hits(points))
    if scheme == "demand":
        few = FEW_ROWS / max(1, points.shape[1])
        return demand_tree(space, demand_of(asked, points), regions, 1.0 - throttle, fairness, few)
    raise InvalidValue("scheme", f"be one of {', '.join(PARTITIONERS)}", scheme, f"write scheme: {USUAL}")


def demand_of(asked: QueryBoxes, points: np.ndarray) -> DemandPoints:
    """Return frequency and worth as points."""
    seen = sums_within(points, asked.boxes, asked.query, asked.count, np.zeros((1, points.shape[1])))[1]
    a_row = asked.values / (seen + 1.0)
    of_box = (a_row / np.bincount(asked.query, minlength=asked.count).clip(1))[asked.query]
    return demand_points(points, hits_of(points, asked.boxes, a_row[asked.query]), asked.boxes, of_box)


def region_frequencies(tree: RegionTree, points: np.ndarray) -> np.ndarray:
    """Return the share of the rows that lies in each region (f)."""
    return np.bincount(tree.regions_of(points), minlength=tree.count) / max(1, points.shape[1])


@dataclass(frozen=True)
class BuiltRegions:
    """The regions of a scheme, and the share of the sample that lies in each."""

    scheme: str
    tree: RegionTree
    frequencies: np.ndarray


def build_regions(
    space: np.ndarray,
    points: np.ndarray,
    asked: QueryBoxes,
    regions: int,
    scheme: str = USUAL,
    throttle: float = 0.5,
    fairness: float = 1.0,
) -> BuiltRegions:
    """Return the regions for a sample (`points`: places by dimension and row) and queries."""
    check_sample(points, regions)
    tree = partition_space(scheme, space, points, asked, regions, throttle, fairness)
    return BuiltRegions(scheme, tree, region_frequencies(tree, points))


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
