"""Algorithms 1 to 5 as traces: every number of them can be worked out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.levers.joins.correlation import expected, faded, ranks, smoothed
from spillway.levers.joins.direction import by_direction
from spillway.levers.joins.missed import ComparedRows, Missed, Unsampled, dispersion, estimate
from spillway.levers.joins.rate import (
    LEAST_FRACTION,
    counted,
    fetched_rows,
    followed,
    steps_per_second,
)
from spillway.levers.joins.utility import Side, by_worth


def test_algorithm_1_comes_down_by_what_could_not_be_fetched_and_grows_by_a_fifth() -> None:
    # 1000 rows arrive; what can be fetched is what r allows of a capacity of 400 rows compared whole
    r, trace = 1.0, []
    for _ in range(5):
        fetched = min(1000.0, 400.0 / r)
        r = followed(r, fetched, 1000.0)
        trace.append(round(r, 6))
    assert trace == [0.4, 0.48, 0.4, 0.48, 0.4]


def test_algorithm_1_never_reaches_nothing_nor_more_than_everything() -> None:
    assert followed(0.5, 0, 1000) == LEAST_FRACTION
    assert followed(LEAST_FRACTION, 0, 1000) == LEAST_FRACTION
    assert followed(0.95, 10, 10) == 1.0
    assert followed(0.5, 0, 0) == 0.6, "nothing arrived, so nothing was left behind"


def test_measured_time_drives_the_same_controller() -> None:
    # half a core, which lately made ten million steps in two seconds
    per_second = steps_per_second(50.0, seconds=2.0, steps=1e7, fallback=1.0)
    assert per_second == 2_500_000
    assert counted(per_second * 4, possible=4e7) == 0.25


def test_rows_that_wait_longer_than_the_buffer_holds_are_passed_over() -> None:
    # a row a second, each two seconds of work: the second row waits one second, the third would wait two
    at = np.arange(6, dtype=np.int64) * 1_000_000
    taken, free_at = fetched_rows(at, np.full(6, 20.0), 10.0, 1.0, 0.0)
    assert taken.tolist() == [True, True, False, True, False, True]
    assert free_at == 8_000_000
    again, _ = fetched_rows(at, np.full(6, 5.0), 10.0, 1.0, 0.0)
    assert again.all()


def test_algorithm_2_ranks_by_matches_a_comparison_and_forgets() -> None:
    matches = faded(np.array([4.0, 0.0, 8.0]), np.array([0.0, 6.0, 2.0]), memory=0.5)
    comparisons = faded(np.array([10.0, 10.0, 10.0]), np.array([10.0, 10.0, 10.0]), memory=0.5)
    assert matches.tolist() == [2.0, 6.0, 6.0]
    o = expected(matches, comparisons, smooth=False)
    assert o.tolist() == [2 / 15, 0.4, 0.4]
    assert ranks(o).tolist() == [1, 2, 0], "of two alike the newer one"
    # other windows than those that were learned of: what is known is of no use
    assert faded(np.zeros(5), np.ones(3), 0.5).tolist() == [1, 1, 1]


def test_a_basic_window_that_was_never_compared_counts_as_average_and_is_not_starved() -> None:
    o = expected(np.array([9.0, 0.0, 0.0]), np.array([10.0, 10.0, 0.0]), smooth=False)
    assert o.tolist() == [0.9, 0.0, 0.45]
    assert expected(np.zeros(3), np.zeros(3)).tolist() == [1, 1, 1]
    assert smoothed(np.array([0.0, 4.0, 0.0])).tolist() == [1, 2, 1]


@pytest.mark.parametrize(("w1", "w2"), [(1.0, 4.0), (4.0, 1.0), (20.0, 20.0), (0.0, 3.0)])
@pytest.mark.parametrize("r", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("o1", "o2"), [(2.0, 1.0), (1.0, 2.0), (1.0, 1.0)])
def test_algorithm_4_spends_what_one_fraction_for_both_would(
    w1: float, w2: float, r: float, o1: float, o2: float
) -> None:
    r1, r2 = by_direction(r, w1, w2, o1, o2)
    assert 0 <= r1 <= 1
    assert 0 <= r2 <= 1
    assert r1 * w1 + r2 * w2 == pytest.approx(r * (w1 + w2))
    better, worse = (r1, r2) if o1 >= o2 else (r2, r1)
    assert better >= worse or 0 in (w1, w2)


def test_line_7_of_algorithm_4_as_printed_breaks_its_own_constraint() -> None:
    w1, w2, r = 4.0, 1.0, 0.9
    r1, r2 = by_direction(r, w1, w2, 2.0, 1.0)
    printed = r * (w1 + w2) / w1 - r1 * w1 / w2
    assert r1 * w1 + r2 * w2 == pytest.approx(4.5)
    assert r1 * w1 + printed * w2 != pytest.approx(4.5)


def best_of_all(budget: float, sides: list[Side]) -> float:
    """The fractional knapsack by trying every order in which whole items could be taken."""
    items = [
        (side.volumes[j, z], side.u[z] * side.o[j] / np.mean(side.o))
        for side in sides
        for j in range(len(side.o))
        for z in range(len(side.u))
    ]
    best = 0.0
    for order in itertools.permutations(range(len(items))):
        left, worth = budget, 0.0
        for at in order:
            used = min(left, items[at][0])
            worth, left = worth + used * items[at][1], left - used
        best = max(best, worth)
    return best


def worth_of_shares(shares: list[np.ndarray], sides: list[Side]) -> float:
    """What Algorithm 3 makes of them: basic windows in their order, the last one partly."""
    total = 0.0
    for share, side in zip(shares, sides, strict=True):
        for z, part in enumerate(share):
            left = part * side.volumes[:, z].sum()
            for j in np.argsort(-side.o, kind="stable"):
                used = min(left, side.volumes[j, z])
                total += used * side.u[z] * side.o[j] / np.mean(side.o)
                left -= used
    return total


numbers = st.floats(0.1, 10).map(lambda x: round(x, 2))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(numbers, min_size=2, max_size=2),
    st.lists(numbers, min_size=2, max_size=2),
    st.lists(numbers, min_size=2, max_size=2),
    st.lists(numbers, min_size=6, max_size=6),
    st.floats(0, 1),
)
def test_algorithm_5_is_as_good_as_any_order_of_items(
    o1: list[float], o2: list[float], u: list[float], volumes: list[float], part: float
) -> None:
    # two types probe the left window, one the right: six items
    sides = [
        Side(np.array(volumes[:4]).reshape(2, 2), np.array(o1), np.array(u)),
        Side(np.array(volumes[4:]).reshape(2, 1), np.array(o2), np.array(u[:1])),
    ]
    budget = part * sum(volumes)
    shares = by_worth(budget, sides)
    spent = sum(
        float((share * side.volumes.sum(axis=0)).sum()) for share, side in zip(shares, sides, strict=True)
    )
    assert spent == pytest.approx(budget)
    assert worth_of_shares(shares, sides) == pytest.approx(best_of_all(budget, sides))


def test_algorithm_5_by_hand() -> None:
    # a comparison is worth 1 * 1.5 and 1 * 0.5, 3 * 1.5 and 3 * 0.5, type by type; the better ranked goes first
    side = Side(np.array([[10.0, 10.0], [10.0, 10.0]]), np.array([3.0, 1.0]), np.array([1.0, 3.0]))
    nothing = Side(np.zeros((2, 2)), np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    (shares, _) = by_worth(25.0, [side, nothing])
    assert shares.tolist() == [0.5, 0.75], "ten of type 1, ten of type 0, five of type 1"


def test_what_no_side_can_probe_has_no_volume_and_takes_nothing() -> None:
    empty = Side(np.zeros((2, 1)), np.array([0.0, 0.0]), np.array([0.0]))
    assert [share.tolist() for share in by_worth(0.0, [empty, empty])] == [[1.0], [1.0]]


def test_the_interval_of_what_was_missed_holds_the_truth_of_known_draws() -> None:
    # what 2000 rows miss is drawn negative binomial, lumpy (variance/mean 3); a tenth of them is the sample. 400
    # repetitions of a 95 % interval: below 92 % with chance 0.7 %
    chance, held = np.random.default_rng(5), 0
    for _ in range(400):
        misses = chance.negative_binomial(0.5, 0.25, 2000)
        seen, unseen = misses[:200], misses[200:]
        sample = ComparedRows(200, seen.sum(), (seen**2).sum())
        found = estimate(sample, Unsampled(1800), dispersion(sample))
        held += found.low <= unseen.sum() <= found.high
    assert held >= 0.92 * 400


def test_a_sample_without_rows_knows_nothing_and_one_without_misses_has_an_upper_end() -> None:
    assert estimate(ComparedRows(), Unsampled(10), 1.0).high == float("inf")
    assert estimate(ComparedRows(), Unsampled(), 1.0) == Missed(0.0, 0.0, 0.0)
    found = estimate(ComparedRows(rows=100), Unsampled(900), 4.0)
    assert (found.estimate, found.low) == (0.0, 0.0)
    # at least Garwood's 3.7 events of a lump of four each, a tenth of the rows seen
    assert found.high > 3.6 * 4 * 9


def test_rows_that_were_passed_over_miss_all_that_they_have() -> None:
    sample = ComparedRows(rows=10, misses=0, squares=0, pairs=20, pair_squares=40)
    assert estimate(sample, Unsampled(selective=0, dropped=5), 1.0).estimate == 10.0
