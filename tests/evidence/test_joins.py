"""The joins' evidence: the paper's workload is what it says, rivals are on equal terms, and nothing differs."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

from evidence.book import Book
from evidence.joins import gains, honesty, utilities
from evidence.joins.driver import (
    ADAPTS,
    JoinRun,
    clairvoyant_pairs,
    equality,
    hindsight_pairs,
    join_with_even_drops,
    join_with_random_drops,
    overlap,
    run_join,
    with_own_counts,
    without_budget,
)
from evidence.joins.workload import PaperStreams, constant_rate

pytestmark = pytest.mark.long  # the figures of `make evidence`, not the product

QUIET = Book(say=lambda _: None)
STREAMS = PaperStreams(window_seconds=10.0, rates=constant_rate(120, 40))
TIGHT = {"comparisons_per_second": 40_000.0}


@pytest.fixture(scope="module")
def runs() -> tuple[JoinRun, JoinRun, JoinRun]:
    """Everything, ours within a budget, and rows dropped."""
    left, right = STREAMS.both(3)
    settings = overlap(10, False, threshold=2, budget=TIGHT)
    fast = without_budget(overlap(10, True, threshold=2, adapt={"memory": 0.7}))
    whole = with_own_counts(run_join(left, right, fast, 0, 40), 0.7)
    ours = run_join(left, right, settings, 0, 40)
    rival, _ = join_with_random_drops(left, right, settings, ours, 3)
    return whole, ours, rival


def test_sets_are_of_about_five_different_items_and_popularity_rotates() -> None:
    left, _ = PaperStreams(rates=constant_rate(200, 40)).both(1)
    sizes = np.diff(left.sets.first)
    assert sizes.mean() == pytest.approx(5.0, abs=0.1)
    for k in range(0, left.rows, 97):
        mine = left.sets.items[left.sets.first[k] : left.sets.first[k + 1]]
        assert (np.diff(mine) > 0).all()
    # within the first fortieth of the cycle the most popular item is 0, half a cycle later 50
    for begin, item in ((0.0, 0), (20.0, 50)):
        first, last = np.searchsorted(left.at, [begin * 1e6, (begin + 0.4) * 1e6])
        items = left.sets.items[left.sets.first[first] : left.sets.first[last]]
        assert np.bincount(items, minlength=100).argmax() in (item, item + 1)


def test_the_peak_of_matches_lies_where_it_was_said(runs: tuple[JoinRun, JoinRun, JoinRun]) -> None:
    last = runs[0].outcomes[-1].row
    # rows of the first stream are met 0.625 windows later: basic windows of one second, of ten
    assert abs(last["left_ranks"][0] - 6) <= 1
    # and a window that holds the second stream has no such peak
    assert max(last["left_curve"]) > 1.3 * max(last["right_curve"])


def test_dropping_rows_makes_as_many_comparisons_and_the_clairvoyant_finds_most(
    runs: tuple[JoinRun, JoinRun, JoinRun],
) -> None:
    whole, ours, rival = runs
    assert rival.sum("compared") == pytest.approx(ours.sum("compared"), rel=0.03)
    best, lucky = clairvoyant_pairs(whole, ours), hindsight_pairs(whole, ours)
    # the sample may be lucky, so ours is not bound to stay below in a window; over the run it does
    assert rival.sum("pairs") < ours.sum("pairs") < best < lucky < whole.sum("pairs")


def test_nothing_is_false_and_nothing_differs() -> None:
    assert honesty.compare_with_oracle(QUIET, 1) == {"joins.false_pairs": 0, "joins.full_join_differs": 0}


def test_the_settings_are_the_papers() -> None:
    streams = PaperStreams()
    assert (streams.items, streams.mean_items, streams.window_seconds) == (100, 5, 20)
    assert streams.rates == ((60, 100), (15, 500), (30, 300), (15, 100))


def test_a_peak_that_moved_is_noticed_and_found_again_within_three_windows() -> None:
    streams = PaperStreams(window_seconds=10.0, rates=constant_rate(120, 70), moves_at=40.0, moved_peak=0.1)
    left, right = streams.both(3)
    settings = overlap(10, False, threshold=2, budget=TIGHT)
    whole = with_own_counts(
        run_join(left, right, without_budget(overlap(10, True, threshold=2, adapt={"memory": 0.0})), 0, 70),
        0.0,
    )
    ours = run_join(left, right, settings, 0, 70)
    shares = [
        one.row["pairs"] / hindsight_pairs(JoinRun([full]), JoinRun([one]))
        for full, one in zip(whole.outcomes, ours.outcomes, strict=True)
    ]
    assert [at for at, one in enumerate(ours.outcomes) if one.row["drift_detected"]] == [8]
    assert shares[8] < 0.6 < min(shares[11:])
    # forgetting nothing, the same rows are looked for where they were
    assert ours.outcomes[-1].row["left_ranks"][0] <= 2


def test_where_an_index_leaves_nothing_to_choose_whole_rows_are_compared_and_find_as_much_as_dropping() -> (
    None
):
    streams = PaperStreams(window_seconds=20.0, rates=constant_rate(100, 40), items=500, mean_items=1.0)
    left, right = streams.both(3)
    settings = equality(20, True, basic=2)
    whole = run_join(left, right, settings, 20, 40)
    tight = equality(20, True, basic=2, budget={"comparisons_per_second": whole.sum("steps") / 20 * 0.4})
    ours = run_join(left, right, tight, 20, 40)
    for one in ours.outcomes:
        assert one.row["left_shares"] + one.row["right_shares"] == pytest.approx([one.row["r"]] * 2, rel=0.15)
    assert ours.sum("steps") == pytest.approx(0.4 * whole.sum("steps"), rel=0.1)
    rival = join_with_even_drops(left, right, settings, ours, 3, "steps", skip=0)
    assert ours.sum("pairs") >= rival.sum("pairs")


def test_rows_come_in_every_window_that_is_judged() -> None:
    """What a budget is a share of is counted over all of them: windows without rows make it smaller than it is said."""
    for name, (streams, _, begin, end, _) in gains._cases().items():
        assert end <= streams.seconds, name
        assert begin + ADAPTS * max(gains.WARM if begin == 0 else gains.LEARNED, 1) < end, name


def test_dropping_rows_is_given_the_steps_of_the_windows_that_are_judged_and_no_others() -> None:
    left, right = STREAMS.both(3)
    ours = run_join(left, right, overlap(10, False, budget=TIGHT), 0, 40)
    plain = overlap(10, False)
    judged, all_of_it = (
        join_with_even_drops(left, right, plain, ours, 3, "steps", skip=skip) for skip in (2, 0)
    )
    # while windows fill, half of the first ten seconds, an even share of the rows takes less than ours does
    assert sum(one.row["steps"] for one in ours.outcomes[:2]) > 1.3 * sum(
        one.row["steps"] for one in all_of_it.outcomes[:2]
    )
    late = [JoinRun(one.outcomes[2:]) for one in (ours, judged, all_of_it)]
    assert late[1].sum("steps") == pytest.approx(late[0].sum("steps"), rel=0.15)
    assert late[1].sum("pairs") < late[2].sum("pairs"), "it had what ours spent at the start"


def test_knowing_what_types_are_worth_gains_the_more_the_more_they_differ() -> None:
    with patch.multiple(utilities, SECONDS=30.0, CAPACITY=150_000.0, RATE=200.0):
        gains = [utilities._utility_gain(1.0 / np.arange(1, 4) ** skew, "inverse", 3) for skew in (1.0, 3.0)]
    assert 0 < gains[0] < gains[1]
