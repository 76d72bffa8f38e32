"""Regions: every partitioner covers the space once, in at most l parts, and look-up, shares and errors are right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.errors import InvalidValue
from spillway.levers.sifters.choose import (
    PARTITIONERS,
    build_regions,
    partition_space,
    region_frequencies,
)
from spillway.levers.sifters.consolidate import (
    PRIOR_ROWS,
    QueryBoxes,
    consolidate_queries,
    counts_within,
    hits_of,
    sums_within,
)
from spillway.levers.sifters.partitioners import flexible_partition
from spillway.levers.sifters.regions import RegionTree


def boxes(rng: np.random.Generator, count: int, dimensions: int) -> np.ndarray:
    low = rng.random((count, dimensions)) * 0.9
    return np.stack([low, low + rng.random((count, dimensions)) * 0.1], axis=2)


def asked(rng: np.random.Generator, count: int, dimensions: int) -> QueryBoxes:
    return QueryBoxes(boxes(rng, count, dimensions), np.arange(count), rng.random(count) + 0.1)


@pytest.mark.parametrize("scheme", PARTITIONERS)
@pytest.mark.parametrize("dimensions", [1, 2, 3, 6])
def test_every_place_lies_in_one_region_whose_bounds_hold_it(scheme: str, dimensions: int) -> None:
    rng = np.random.default_rng(dimensions)
    points, space = rng.random((dimensions, 400)) ** 2, np.array([[0.0, 1.0]] * dimensions)
    some = asked(rng, 60, dimensions)
    tree = partition_space(scheme, space, points, some, 30)
    assert tree.count <= 30
    # where no row is hit, nothing tells rows apart
    assert tree.count >= 2 or (scheme == "query_data" and dimensions == 6)
    volume = np.prod(tree.bounds[:, :, 1] - tree.bounds[:, :, 0], axis=1)
    assert (volume > 0).all()
    assert volume.sum() == pytest.approx(1.0)
    found = tree.regions_of(points)
    inside = (tree.bounds[found, :, 0] <= points.T) & (tree.bounds[found, :, 1] > points.T)
    assert inside.all()
    assert region_frequencies(tree, points).sum() == pytest.approx(1.0)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 40), st.integers(0, 10_000))
def test_shares_are_those_of_a_scan_of_all_regions(dimensions: int, regions: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, space = rng.random((dimensions, 100)), np.array([[0.0, 1.0]] * dimensions)
    tree = flexible_partition(space, points, regions, "count")
    some = boxes(rng, 12, dimensions)
    query = np.sort(rng.integers(0, 5, 12))
    expected = np.zeros((5, tree.count))
    for box, of in zip(some, query, strict=True):
        low = np.maximum(tree.bounds[:, :, 0], box[:, 0])
        high = np.minimum(tree.bounds[:, :, 1], box[:, 1])
        share = np.prod(np.maximum(high - low, 0) / (tree.bounds[:, :, 1] - tree.bounds[:, :, 0]), axis=1)
        expected[of] += share
    found = np.zeros_like(expected)
    queries, places, shares = tree.shares(some, query)
    found[queries, places] = shares
    assert np.allclose(found, expected)
    assert len(set(zip(queries.tolist(), places.tolist(), strict=True))) == len(queries)


@pytest.mark.parametrize(
    ("scheme", "dimensions"), [("query_data", 1), ("query_data", 2), ("demand", 3), ("data_depth", 6)]
)
def test_many_rows_are_looked_up_as_few_are(scheme: str, dimensions: int) -> None:
    """By ranks between cuts, and by descent; places on cuts, on the edges of buckets and outside among them."""
    rng = np.random.default_rng(dimensions)
    points, space = rng.random((dimensions, 400)), np.array([[-1 / 16, 17 / 16]] * dimensions)
    tree = partition_space(scheme, space, points, asked(rng, 200, dimensions), 64)
    rows = rng.uniform(-0.2, 1.2, (dimensions, 30_000))
    rows[:, :4096] = -1 / 16 + np.arange(4096) / 4096 * (18 / 16)
    for axis in range(dimensions):
        cuts = tree.cuts[tree.axes == axis]
        if len(cuts):
            rows[axis, 5000:6000] = rng.choice(cuts, 1000)
    parts = [tree.regions_of(rows[:, low : low + 1000]) for low in range(0, 30_000, 1000)]
    assert np.array_equal(tree.regions_of(rows), np.concatenate(parts))


def test_an_equality_is_in_the_region_that_holds_it() -> None:
    tree = RegionTree.from_splits(np.array([[0.0, 1.0]] * 2), [(0, 0, 0.5)])
    query, region, share = tree.shares(np.array([[[0.5, 0.5], [0.0, 0.25]]]), np.array([0]))
    assert (query.tolist(), region.tolist(), share.tolist()) == ([0], [1], [0.25])


def test_qdpart_is_equation_11_cut_by_cut() -> None:
    """The oracle tries every cut of every region and sums afresh."""
    rng = np.random.default_rng(11)
    points, hits = rng.random((2, 60)), rng.integers(0, 9, 60).astype(float)

    def sse(values: np.ndarray) -> float:
        return float(((values - values.mean()) ** 2).sum()) if len(values) else 0.0

    def diversity(rows: np.ndarray, axis: int) -> float:
        return sse(hits[rows]) * sse(points[axis, rows])

    def best(rows: np.ndarray) -> tuple[float, int, float]:
        found = (0.0, 0, 0.0)
        for axis in (0, 1):
            ordered = rows[np.argsort(points[axis, rows])]
            floors = [
                diversity(ordered[:j], axis) + diversity(ordered[j:], axis) for j in range(1, len(rows))
            ]
            if floors and diversity(rows, axis) - min(floors) > found[0]:
                j = int(np.argmin(floors)) + 1
                cut = float(points[axis, ordered[j - 1]] / 2 + points[axis, ordered[j]] / 2)
                found = (diversity(rows, axis) - min(floors), axis, cut)
        return found

    parts = [np.arange(60)]
    for _ in range(7):
        benefits = [best(rows) for rows in parts]
        place = max(range(len(parts)), key=lambda i: benefits[i][0])
        _, axis, cut = benefits[place]
        rows = parts[place]
        parts[place] = rows[points[axis, rows] < cut]
        parts.append(rows[points[axis, rows] >= cut])
    tree = flexible_partition(np.array([[0.0, 1.0]] * 2), points, 8, "query_data", hits)
    expected = np.empty(60, int)
    for region, rows in enumerate(parts):
        expected[rows] = region
    assert tree.regions_of(points).tolist() == expected.tolist()


@pytest.mark.parametrize("scheme", PARTITIONERS)
def test_a_sample_of_one_row_or_of_one_place_makes_one_part_where_nothing_can_be_cut(scheme: str) -> None:
    rng, space = np.random.default_rng(2), np.array([[0.0, 1.0]] * 2)
    some = asked(rng, 5, 2)
    for rows in (1, 2, 50):
        found = build_regions(space, np.full((2, rows), 0.3), some, 16, scheme)
        assert found.frequencies.sum() == pytest.approx(1.0)
        assert found.frequencies.max() == 1.0  # rows at one place are never cut apart


def test_a_constant_dimension_is_not_cut() -> None:
    rng = np.random.default_rng(2)
    points = np.stack([rng.random(200), np.full(200, 0.5)])
    tree = partition_space("data_depth", np.array([[0.0, 1.0]] * 2), points, asked(rng, 9, 2), 16)
    assert set(tree.axes.tolist()) == {-1, 0}
    assert tree.count == 16


@pytest.mark.parametrize(
    ("points", "regions", "scheme", "said"),
    [
        (np.empty((2, 0)), 16, "demand", "`sample` must have rows, got 0"),
        (np.empty((0, 9)), 16, "demand", "`dimensions` must be 1 to 6, got 0"),
        (np.zeros((7, 9)), 16, "demand", "`dimensions` must be 1 to 6, got 7"),
        (np.zeros((2, 9)), 0, "demand", "`regions` must be 1 to 10000, got 0"),
        (np.zeros((2, 9)), 16, "quad", "`scheme` must be one of uniform_grid"),
    ],
)
def test_what_no_regions_can_be_built_from_is_refused(
    points: np.ndarray, regions: int, scheme: str, said: str
) -> None:
    with pytest.raises(InvalidValue, match=said):
        build_regions(
            np.array([[0.0, 1.0]] * 2), points, asked(np.random.default_rng(1), 3, 2), regions, scheme
        )


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"weights": np.array([0.0, 0.0])}, "`weights` must be 0 or more and sum to more than 0"),
        ({"weights": np.array([-1.0, 2.0])}, "`weights` must be 0 or more"),
        ({"weights": np.array([np.nan, 1.0])}, "`weights` must be 0 or more"),
        ({"alphas": np.array([1.5, 0.0])}, "`alphas` must be 2 numbers from 0 to 1"),
        ({"at_least": np.array([0.5])}, "`at_least` must be 2 numbers"),
        ({"query": np.array([1, 0])}, "`query` must name the query of every box, in order"),
        ({"weights": np.empty(0)}, "`queries` must be at least one, got 0"),
    ],
)
def test_queries_that_make_no_sense_are_refused(stated: dict[str, np.ndarray], said: str) -> None:
    given_ = {"boxes": np.zeros((2, 1, 2)), "query": np.array([0, 1]), "weights": np.array([3.0, 1.0])}
    with pytest.raises(InvalidValue, match=said):
        QueryBoxes(**{**given_, **stated})
    assert QueryBoxes(**given_).weights.tolist() == [0.75, 0.25]  # they are divided by their sum


def test_a_side_holds_its_lower_end_and_not_its_upper_but_at_the_end_of_the_line_and_without_length() -> None:
    points = np.array([[0.2, 0.3, 0.5, 1.0]])
    sides = np.array([[[0.2, 0.5]], [[0.3, 0.3]], [[0.5, 1.0]], [[0.0, 0.2]]])
    held = [[True, True, False, False], [False, True, False, False], [False, False, True, True], [False] * 4]
    _, counts = sums_within(points, sides, np.arange(4), 4, np.zeros((1, 4)))
    assert counts.tolist() == np.sum(held, axis=1).tolist()
    assert hits_of(points, sides, np.array([1.0, 2.0, 4.0, 8.0])).tolist() == [1.0, 3.0, 4.0, 4.0]
    lands = np.arange(4)
    found = counts_within(points, sides, np.arange(4), lands, 4)
    assert list(zip(*(one.tolist() for one in found[:2]), strict=True)) == [
        (query, row) for query in range(4) for row in range(4) if held[query][row]
    ]


def test_what_the_sample_says_of_queries_is_added_up_by_query_and_region() -> None:
    """The oracle: eq. 5 with the sample's own word, one query and one region at a time."""
    rng = np.random.default_rng(6)
    points, space = rng.random((2, 150)), np.array([[0.0, 1.0]] * 2)
    some = QueryBoxes(boxes(rng, 30, 2), np.arange(30) // 2, np.ones(15))
    tree = flexible_partition(space, points, 9, "count")
    lands = tree.regions_of(points)
    worth = consolidate_queries(tree, region_frequencies(tree, points), some, points)
    covered = np.zeros((15, 9))
    covered[worth.query, worth.region] = worth.covered
    evenly = np.zeros((15, 9))
    queries, places, shares = tree.shares(some.boxes, some.query)
    evenly[queries, places] = shares
    for query in range(15):
        inside = sum(
            ((box[:, :1] <= points) & (points < box[:, 1:])).all(axis=0)
            for box in some.boxes[some.query == query]
        )
        known = np.sum(inside) / (np.sum(inside) + PRIOR_ROWS)
        for region in range(9):
            by_rows = np.sum(np.asarray(inside)[lands == region]) / (lands == region).sum()
            assert covered[query, region] == pytest.approx(
                known * by_rows + (1 - known) * evenly[query, region]
            )


def test_quality_by_query_adds_up_to_the_overall_one() -> None:
    rng = np.random.default_rng(4)
    points, space = rng.random((2, 500)), np.array([[0.0, 1.0]] * 2)
    some = QueryBoxes(boxes(rng, 40, 2), np.arange(40), rng.random(40), rng.random(40))
    tree = flexible_partition(space, points, 20, "count")
    worth, thresholds = consolidate_queries(tree, region_frequencies(tree, points), some), rng.random(20)
    assert worth.overall(thresholds) == pytest.approx(float(some.weights @ worth.qos(thresholds)))
    assert worth.worths.sum() == pytest.approx(float(some.values.sum()))  # all of them have rows here
