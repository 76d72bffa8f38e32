"""Demand: where queries ask is told though no sample row lies there, and merging regions is the best there is."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.levers.sifters.choose import demand_of, partition_space, region_frequencies
from spillway.levers.sifters.configure import optimal_thresholds
from spillway.levers.sifters.consolidate import QueryBoxes, consolidate_queries
from spillway.levers.sifters.demand import _prune_tree, demand_points
from spillway.levers.sifters.partitioners import flexible_partition
from spillway.levers.sifters.regions import RegionTree


def prunings(tree: RegionTree, node: int) -> list[list[int]]:
    """Every way to stop at or below a node: the nodes that become regions."""
    if tree.axes[node] < 0:
        return [[node]]
    one, other = (prunings(tree, int(child)) for child in tree.children[node])
    return [[node], *([*a, *b] for a in one for b in other)]


@pytest.mark.parametrize(("price", "low", "fairness"), [(1.0, 0.25, 0.5), (1.6, 0.0, 1.0), (0.8, 0.1, 0.3)])
def test_the_tree_is_pruned_as_trying_every_way_has_it(price: float, low: float, fairness: float) -> None:
    rng = np.random.default_rng(5)
    tree = flexible_partition(np.array([[0.0, 1.0]] * 2), rng.random((2, 80)) ** 2, 11, "count")
    f, a = rng.random(11), rng.random(11) * (rng.random(11) < 0.6)
    f, a = f / f.sum(), a / a.sum()

    def regions_below(node: int) -> list[int]:
        if tree.axes[node] < 0:
            return [int(tree.children[node, 0])]
        return [one for child in tree.children[node] for one in regions_below(int(child))]

    def value(node: int) -> float:
        rows, worth = f[regions_below(node)].sum(), a[regions_below(node)].sum()
        thresholds = [0.0, 1.0] if worth == 0 else [low, low + fairness]
        return float(max((price * rows - worth) * d for d in thresholds))

    best = max(sum(map(value, one)) for one in prunings(tree, 0) if len(one) <= 5)
    splits, of = _prune_tree(tree, f, a, 5, price, low, fairness)
    found = RegionTree.from_splits(tree.space, splits)
    assert found.count <= 5
    rows, worth = (np.bincount(of, one, minlength=found.count) for one in (f, a))
    gain = price * rows - worth
    ours = np.where(worth == 0, price * rows, gain * low + fairness * np.maximum(0.0, gain)).sum()
    assert ours == pytest.approx(best, abs=1e-12)
    points = rng.random((2, 500))
    assert np.array_equal(of[tree.regions_of(points)], found.regions_of(points))


def test_queries_without_a_sample_row_still_say_where_they_ask() -> None:
    """Tiny queries in a tenth of the space, where the sample's rows miss every one of them."""
    rng = np.random.default_rng(6)
    points = rng.random((2, 400))
    low = np.array([0.05, 0.05]) + rng.random((200, 2)) * 0.25
    boxes = np.stack([low, low + 1e-6], axis=2)
    asked = QueryBoxes(boxes, np.arange(200), np.ones(200))
    assert asked.hits(points).sum() == 0.0
    space = np.array([[0.0, 1.0]] * 2)
    blind = partition_space("query_data", space, points, asked, 8)
    assert blind.count == 1
    tree = partition_space("demand", space, points, asked, 8)
    worth = consolidate_queries(tree, region_frequencies(tree, points), asked, points)
    lost = optimal_thresholds(worth.worths, worth.frequencies, worth.touched, 0.2, 1.0)
    assert worth.overall(lost) > 0.95  # a fifth of the rows kept, at random a fifth of what is asked for


def test_cuts_go_along_a_querys_sides() -> None:
    """Rows at the very places where a query begins and ends: the first is in it, the last behind it."""
    places = np.repeat(np.arange(10) / 10, 20)[None]
    asked = QueryBoxes(np.array([[[0.3, 0.6]]]), np.zeros(1, int), np.ones(1))
    tree = partition_space("demand", np.array([[0.0, 1.0]]), places, asked, 3)
    region = tree.regions_of(places)
    inside = (places[0] >= 0.3) & (places[0] < 0.6)
    assert not set(region[inside]) & set(region[~inside])


def test_points_carry_all_of_the_rows_and_of_the_worth() -> None:
    rng = np.random.default_rng(7)
    points, low = rng.random((3, 300)), rng.random((40, 3)) * 0.7
    boxes = np.stack([low, low + rng.random((40, 3)) * 0.6], axis=2)
    asked = QueryBoxes(boxes, np.repeat(np.arange(20), 2), rng.random(20), rng.random(20))
    found = demand_of(asked, points)
    assert found.frequencies.sum() == pytest.approx(1.0)
    assert found.worths[found.kinds > 0].sum() > 0
    single = QueryBoxes(boxes[:20], np.arange(20), asked.weights, asked.alphas)
    assert demand_of(single, points).worths.sum() == pytest.approx(single.values.sum())
    none = demand_points(points, np.zeros(300), boxes[:0], np.zeros(0))
    assert none.places.shape == (3, 300)
