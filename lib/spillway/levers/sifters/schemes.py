"""The schemes by which regions are cut (V), by name: what each needs of the sample, and what all may share.

>>> asked = Asked(np.array([[[0.0, 0.5]]]), np.zeros(1, int), np.ones(1))
>>> partitioned("data_depth", np.array([[0.0, 1.0]]), np.array([[0.1, 0.2, 0.9]]), asked, 3).count
3
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.errors import Refused
from spillway.levers.sifters.consolidate import Asked
from spillway.levers.sifters.demand import FEW_ROWS, DemandPoints, demand_points, demand_tree
from spillway.levers.sifters.flexible import flexible
from spillway.levers.sifters.membership import hits_of, sums_within
from spillway.levers.sifters.regions import RegionTree
from spillway.levers.sifters.slicing import data_equi_depth, query_equi_depth, uniform_grid

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
