"""Algorithms 1 to 5 as traces: every number of them can be worked out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.levers.joins.changing import DROP, moved
from spillway.levers.joins.correlation import expected, faded, ranks, smoothed
from spillway.levers.joins.direction import by_direction
from spillway.levers.joins.exploring import MOST_LOOKED, MOST_LUMPS, explored, lumps_of
from spillway.levers.joins.missed import ComparedRows, Missed, Unsampled, dispersion, estimate
from spillway.levers.joins.rate import (
    LEAST_FRACTION,
    fetched_rows,
    followed,
    owed_seconds,
)
from spillway.levers.joins.type_worth import TypePairs, types_match, worth_by_type
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


def test_time_beyond_a_share_of_a_core_is_owed_until_it_was_saved() -> None:
    # a window of 4 s, half a core; the second one takes half a second too long, the third is quick, the fourth as told
    debt, trace = 0.0, []
    for used in (2.0, 2.5, 1.75, 2.0, 0.1, 2.0):
        debt = owed_seconds(debt, used, 50.0, 4.0)
        trace.append(debt)
    assert trace == [0.0, 0.5, 0.25, 0.25, 0.0, 0.0], "what was saved is not kept"


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
    # where the curve rises towards what was never within reach, that is tried: its nearest neighbour's, if that is more
    rising = expected(np.array([1.0, 3.0, 0.0, 0.0]), np.array([10.0, 10.0, 0.0, 0.0]), smooth=False)
    assert rising.tolist() == [0.1, 0.3, 0.3, 0.3]
    assert ranks(rising).tolist() == [1, 2, 3, 0]
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
        (side.volumes[j, z] * side.costs[j], side.u[z] * side.o[j] / side.costs[j])
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


def worth_of_shares(shares: list[np.ndarray], sides: list[Side]) -> tuple[float, float]:
    """What Algorithm 3 makes of them: basic windows in their order, the last one partly; (worth, steps)."""
    total, spent = 0.0, 0.0
    for share, side in zip(shares, sides, strict=True):
        for z, part in enumerate(share):
            left = part * side.volumes[:, z].sum()
            for j in side.order:
                used = min(left, side.volumes[j, z])
                total += used * side.u[z] * side.o[j]
                spent += used * side.costs[j]
                left -= used
    return total, spent


def side_of(volumes: list[list[float]], o: list[float], u: list[float], costs: list[float]) -> Side:
    order = np.argsort(-np.array(o) / np.array(costs), kind="stable")
    return Side(np.array(volumes), np.array(o), np.array(u), np.array(costs), order)


numbers = st.floats(0.1, 10).map(lambda x: round(x, 2))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(numbers, min_size=2, max_size=2),
    st.lists(numbers, min_size=2, max_size=2),
    st.lists(numbers, min_size=2, max_size=2),
    st.lists(numbers, min_size=6, max_size=6),
    st.lists(numbers, min_size=2, max_size=2),
    st.floats(0, 1),
)
def test_algorithm_5_is_as_good_as_any_order_of_items(
    o1: list[float], o2: list[float], u: list[float], volumes: list[float], costs: list[float], part: float
) -> None:
    # two types probe the left window, one the right: six items
    sides = [
        side_of([volumes[:2], volumes[2:4]], o1, u, costs),
        side_of([[volumes[4]], [volumes[5]]], o2, u[:1], [1.0, 1.0]),
    ]
    budget = part * sum(float(side.volumes.sum(axis=1) @ side.costs) for side in sides)
    shares, said = by_worth(budget, sides)
    worth, spent = worth_of_shares(shares, sides)
    assert spent == pytest.approx(budget)
    assert worth == pytest.approx(best_of_all(budget, sides)) == pytest.approx(said)


def test_algorithm_5_by_hand() -> None:
    # a comparison is worth 1 * 1.5 and 1 * 0.5, 3 * 1.5 and 3 * 0.5, type by type; the better ranked goes first
    even = [1.0, 1.0]
    side = side_of([[10.0, 10.0], [10.0, 10.0]], [1.5, 0.5], [1.0, 3.0], even)
    nothing = side_of([[0.0, 0.0], [0.0, 0.0]], even, even, even)
    (shares, _), worth = by_worth(25.0, [side, nothing])
    assert shares.tolist() == [0.5, 0.75], "ten of type 1, ten of type 0, five of type 1"
    assert worth == 45.0 + 15.0 + 7.5


def test_a_basic_window_that_costs_more_than_it_yields_more_comes_later() -> None:
    # the first yields twice as much a comparison, and takes four times as long
    side = side_of([[10.0], [10.0]], [2.0, 1.0], [1.0], [4.0, 1.0])
    (share,), worth = by_worth(14.0, [side])
    assert share.tolist() == [0.55], "ten for 10 steps, and one more for 4"
    assert worth == 12.0


def test_what_no_side_can_probe_has_no_volume_and_takes_nothing() -> None:
    empty = side_of([[0.0], [0.0]], [0.0, 0.0], [0.0], [1.0, 1.0])
    assert [share.tolist() for share in by_worth(0.0, [empty, empty])[0]] == [[1.0], [1.0]]


def test_looking_takes_all_before_the_first_match_much_while_little_is_known_and_gamma_then() -> None:
    flat, made, to_make = np.full(20, 5.0), np.full(20, 50.0), np.full(20, 1000.0)
    shares = [explored(0.05, lumps, flat, made, to_make) for lumps in (0.0, 1.0, 20 * MOST_LUMPS / 4, 1e6)]
    assert shares == pytest.approx([1.0, MOST_LOOKED, 0.2, 0.05])
    # lags that came within reach only now are looked at, for their part of what there is to compare
    made[10:] = 0.0
    assert explored(0.05, 1e9, flat, made, to_make) == pytest.approx((MOST_LOOKED + 0.05) / 2)
    # a gamma that was stated larger is kept to
    assert explored(0.8, 1.0, flat, made, to_make) == pytest.approx(0.8)


def test_a_sharp_peak_is_looked_for_less_than_one_that_noise_could_have_made() -> None:
    made, to_make, peak = np.full(20, 50.0), np.full(20, 1000.0), np.full(20, 1.0)
    peak[7] = 60.0
    flat = np.full(20, peak.mean())
    assert explored(0.05, 100.0, peak, made, to_make) == 0.05
    assert explored(0.05, 100.0, flat, made, to_make) == pytest.approx(0.05 * MOST_LUMPS / 5)
    # two differ as much where lumps are few: that is what noise is
    slope = flat * np.linspace(0.7, 1.3, 20)
    assert explored(0.05, 100.0, slope, made, to_make) == explored(0.05, 100.0, flat, made, to_make)
    assert explored(0.05, 2000.0, slope, made, to_make) == 0.05


def test_matches_that_come_many_at_a_time_tell_as_little_as_few() -> None:
    each = np.full(30, 7.0)
    assert lumps_of(each.sum(), (each**2).sum()) == pytest.approx(30.0)
    one = np.array([1000.0] + [1.0] * 29)
    assert lumps_of(one.sum(), (one**2).sum()) < 1.1
    assert lumps_of(0.0, 0.0) == 0.0


def test_what_was_learned_is_forgotten_where_the_best_yields_much_less_than_was_believed() -> None:
    assert moved(found=300, expected=1000, phi=2, lumps=100)
    assert not moved(found=(1 - DROP) * 1000 + 1, expected=1000, phi=1, lumps=1e9), (
        "a little less is no change"
    )
    assert not moved(found=300, expected=1000, phi=200, lumps=100), (
        "few rows make all pairs, and they did not come"
    )
    assert not moved(found=300, expected=1000, phi=2, lumps=12), "what was believed rests on too little"
    assert not moved(found=0, expected=0, phi=1, lumps=100)
    assert not moved(found=2000, expected=1000, phi=1, lumps=100), "more is no reason to forget"


def test_types_that_match_alike_are_told_apart_by_what_they_are_worth_alone() -> None:
    # 2000 draws of lumpy counts of types that do match alike: drawn to the mean they are nearer to it than as counted
    chance = np.random.default_rng(3)
    often = np.array([500.0, 300.0, 30.0])
    drawn, counted_ = 0.0, 0.0
    for _ in range(2000):
        pairs = 4.0 * chance.poisson(often / 4)
        known = TypePairs(pairs, often, pairs, squares=4.0 * pairs.sum())
        drawn += float(((types_match(known) - 1) ** 2).sum())
        counted_ += float(((pairs / often * often.sum() / pairs.sum() - 1) ** 2).sum())
    assert drawn < 0.4 * counted_


def test_types_that_match_apart_are_found_to_with_enough_pairs_and_not_with_few() -> None:
    for many, low, high in ((4.0, 1.0, 1.3), (4000.0, 1.49, 1.51)):
        pairs = np.array([1.5 * many, 0.5 * many])
        known = TypePairs(pairs, np.array([many, many]), pairs, squares=2.0 * pairs.sum())
        assert low <= types_match(known)[0] <= high
    assert types_match(TypePairs(np.zeros(2), np.zeros(2), np.zeros(2))).tolist() == [1, 1]


def test_a_type_that_was_compared_with_the_best_basic_windows_alone_is_not_taken_for_a_better_one() -> None:
    # type 0 was compared 1000 times where 0.1 of comparisons match, type 1 as often where 0.02 do
    known = TypePairs(
        np.array([100.0, 20.0]), np.array([100.0, 20.0]), np.array([100.0, 20.0]), squares=120.0
    )
    assert types_match(known).tolist() == [1.0, 1.0]


def test_a_pair_is_worth_the_better_of_its_rows_by_the_types_that_are_there() -> None:
    nothing = TypePairs()
    assert worth_by_type(nothing, np.array([1.0, 3.0]), (4.0, 1.0)).tolist() == [4.0, 1.75]
    # rows of type 1 pair with those of type 0 alone, which is seen
    seen = TypePairs(np.array([0.0, 1e9]), np.array([0.0, 1e9]), np.array([0.0, 4e9]), squares=1e9)
    assert worth_by_type(seen, np.array([1.0, 3.0]), (4.0, 1.0))[1] == pytest.approx(4.0)
    # a type that is worth nothing, among its like
    assert worth_by_type(nothing, np.array([0.0, 3.0]), (4.0, 0.0)).tolist() == [4.0, 0.0]


@pytest.mark.parametrize("rows", [200, 1800])
def test_the_interval_of_what_was_missed_holds_the_truth_of_known_draws(rows: int) -> None:
    # what 2000 rows miss is drawn negative binomial, lumpy (variance/mean 3); a tenth of them is the sample, or all but
    # a tenth. 400 repetitions of a 95 % interval: below 92 % with chance 0.7 %
    chance, held = np.random.default_rng(5), 0
    for _ in range(400):
        misses = chance.negative_binomial(0.5, 0.25, 2000)
        seen, unseen = misses[:rows], misses[rows:]
        sample = ComparedRows(rows, seen.sum(), (seen**2).sum())
        found = estimate(sample, Unsampled(2000 - rows), dispersion(sample))
        held += found.low <= unseen.sum() <= found.high
    assert held >= 0.92 * 400


def test_of_few_rows_it_is_not_known_that_pairs_come_alone() -> None:
    # one row that missed three: two more count as if three geometric events were theirs, (0 + 2 (3 + 9)) / 2 / 3
    assert dispersion(ComparedRows(rows=1, misses=3, squares=9)) == 4.0
    assert dispersion(ComparedRows(rows=3000, misses=9000, squares=27_000)) == 1.0


def test_a_sample_without_rows_knows_nothing_and_one_without_misses_has_an_upper_end() -> None:
    assert estimate(ComparedRows(), Unsampled(10), 1.0).high == float("inf")
    assert estimate(ComparedRows(), Unsampled(), 1.0) == Missed(0.0, 0.0, 0.0)
    found = estimate(ComparedRows(rows=100), Unsampled(900), 4.0)
    assert (found.estimate, found.low) == (0.0, 0.0)
    # at least Garwood's 3.7 events of a lump of four each, a tenth of the rows seen
    assert found.high > 3.6 * 4 * 9


def test_where_nothing_can_be_left_out_nothing_is_missed_whatever_the_sample_saw() -> None:
    sample = ComparedRows(rows=5, misses=1, squares=1, pairs=1, pair_squares=1, left_out=3, whole=3)
    assert estimate(sample, Unsampled(selective=4, left_out=0), 1.0) == Missed(0.0, 0.0, 0.0)


def test_rows_that_were_passed_over_miss_all_that_they_have() -> None:
    sample = ComparedRows(rows=10, misses=0, squares=0, pairs=20, pair_squares=40)
    assert estimate(sample, Unsampled(selective=0, dropped=5), 1.0).estimate == 10.0


def test_what_other_windows_saw_makes_no_interval_that_the_windows_own_rows_contradict() -> None:
    own, others = ComparedRows(rows=10, misses=0, squares=0), Unsampled(300)
    with_others = ComparedRows(rows=60, misses=120, squares=400)
    stale = estimate(with_others, others, 1.0)
    assert stale.low > 0
    assert stale.unless(own, others, 1.0).low == 0.0
    many = ComparedRows(rows=10, misses=200, squares=5000)
    assert stale.unless(many, others, 1.0).high > 2 * stale.high
    alone = stale.unless(ComparedRows(rows=1), others, 1.0)
    assert (alone.estimate, alone.low, alone.high) == (stale.estimate, 0.0, float("inf")), (
        "one row says nothing"
    )
    assert alone.at_most(70.0).high == 70.0, "so it is what rows can have"


def test_two_sides_that_saw_nothing_say_together_that_there_may_be_nothing() -> None:
    one = Missed(50.0, 0.0, 90.0)
    assert one.beside(one) == Missed(100.0, 0.0, 180.0)
    assert (one + one).low > 0


def test_where_rows_can_miss_more_than_those_of_the_sample_the_upper_end_allows_for_either() -> None:
    sample = ComparedRows(rows=20, misses=10, squares=20, left_out=40)
    alike = estimate(sample, Unsampled(200, left_out=400), 1.0)
    more = estimate(sample, Unsampled(200, left_out=4000), 1.0)
    assert more.estimate == 10 * alike.estimate
    assert more.high > 10 * alike.estimate
    assert 0 <= more.low <= alike.low, "all rows may miss the same as well"
    less = estimate(sample, Unsampled(200, left_out=40), 1.0)
    assert less.estimate == alike.estimate / 10
    assert less.high >= alike.high, "also where they can miss less"
