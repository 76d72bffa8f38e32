"""The evidence of queries, small: rivals on equal terms, and what must hold of any input."""

from __future__ import annotations

import numpy as np
import pytest

from evidence.book import Book
from evidence.quality.federated import deployed, optimum, rows_of_table
from evidence.quality.federation import Deployment, Testbed, simulate
from evidence.quality.laws import law_figures
from evidence.quality.load_streams import DATA_SETS, HEAVY, RANGES, values_of
from evidence.quality.planning import crowded_group, plan_figures, shares_of
from evidence.quality.replays import interval_figures, kendall_distance
from spillway.levers.quality.settings import POLICIES

pytestmark = pytest.mark.long  # the figures of `make evidence`, not the product


def test_laws_hold_and_files_of_what_is_shed_are_not_read() -> None:
    found = law_figures(Book(lambda _: None), 12)
    assert found["quality.conservation_error_largest"] < 1e-12
    assert found["quality.sic_error_largest"] < 1e-12
    assert found["quality.sic_comparisons"] > 100
    assert found["quality.batches_from_max_min_largest"] <= 1
    assert found["quality.bytes_of_shed_batches"] > 0
    assert found["quality.bytes_of_shed_batches_read"] == 0


def test_the_rows_of_the_table_are_the_texts() -> None:
    rows = rows_of_table(0)
    assert list(rows) == ["2", "3", "4", "5", "6", "mixed"]
    assert [sum(parts) for parts in list(rows.values())[:-1]] == [2004, 1980, 2040, 2010, 2016]
    assert sum(rows["mixed"]) == pytest.approx(2280, rel=0.05)


def test_clusters_get_twice_as_many_as_the_one_before() -> None:
    to = deployed([2] * 4_000, 18, 1)
    count = np.bincount(to.node, minlength=18).reshape(3, 6).sum(axis=1)
    assert count[1] / count[0] == pytest.approx(2, rel=0.1)
    assert count[2] / count[1] == pytest.approx(2, rel=0.15)


def test_no_policy_lifts_the_poorest_above_the_optimum() -> None:
    to, setting = deployed([3] * 60, 6, 2), Testbed(room=500.0, seconds=30.0)
    best = optimum(to, setting)
    assert best.min() == pytest.approx(np.sort(best)[0])
    for policy in POLICIES:
        assert simulate(to, setting, policy, 1).sic.min() <= best.min() + 0.02


def test_the_optimum_counts_what_is_handed_over() -> None:
    apart = Deployment(np.array([0, 1]), np.array([0, 0]), 2)
    setting = Testbed(room=30.0, hand_over=5.0)
    # a tuple that is handed over costs the last node 5 of every 50: 37.5 x + 3.75 x' <= 30, and x' <= 30 / 37.5
    assert optimum(apart, setting)[0] == pytest.approx(((30 - 3.75 * 0.8) / 37.5 + 0.8) / 2)


def test_data_sets_have_one_mean() -> None:
    values = values_of(60_000, 1)
    assert set(values) == {*DATA_SETS, *HEAVY}
    assert all(values[name].mean() == pytest.approx(50, abs=1.5) for name in DATA_SETS)
    assert all(
        low <= values[name].min() <= values[name].max() <= high for name, (low, high) in RANGES.items()
    )


def test_intervals_hold_also_where_a_few_portions_or_rows_make_the_sum() -> None:
    found = interval_figures(Book(lambda _: None), 6)
    assert found["quality.interval_coverage_pct.lowest"] >= 94
    assert found["quality.interval_coverage_pct.assume_alike_of_heavy_tails"] < 94
    assert found["quality.intervals_withheld_pct"] == 0


def test_orders_are_compared_by_pairs() -> None:
    assert kendall_distance(["a", "b"], ["a", "b"]) == 0
    assert kendall_distance(["b", "a"], ["a", "b"]) == 1
    assert kendall_distance([], ["a", "b"]) == 1


def test_plan_that_is_timed_shares_a_capacity_that_holds_half() -> None:
    shares = shares_of(40, 100)
    room, work = crowded_group(40, 100)
    kept = [share.cost for share in shares.values()]
    assert len(shares) == len(work) == 40
    assert all(share.offered for share in shares.values())
    capacity = work[0].contract.lever_settings("quality").capacity.seconds
    assert 0.9 * capacity <= sum(kept) <= capacity
    assert sum(share.cost_offered for share in shares.values()) > 1.3 * capacity
    assert room.name == "r"


def test_plan_figures_are_a_time_and_a_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evidence.quality.planning.QUERIES", 20)
    found = plan_figures(1)
    assert set(found) == {"quality.plan_room_ms", "quality.plan_room_over_sorting_100k_keys"}
    assert min(found.values()) > 0
