"""Algorithms 1 to 5 as traces: every number of them can be worked out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from spillway.levers.joins.controllers import (
    LEAST_FRACTION,
    MOST_OWED,
    Side,
    TypePairs,
    adapt_fraction,
    allocate_by_direction,
    allocate_by_utility,
    fade_counts,
    fetched_rows,
    is_selection_worthwhile,
    match_rates,
    overdrawn_seconds,
    rank_basic_windows,
    relative_match_rates,
    smooth_curve,
    smoothing_weights,
    utility_by_type,
)
from spillway.levers.joins.estimates import MissedPairs, estimate_missed_pairs, sampled_count_interval
from spillway.levers.joins.exploration import (
    DROP,
    LEAST_LOOKED,
    MOST_LOOKED,
    MOST_LUMPS,
    SIGNAL,
    effective_matches,
    exploration_shares,
    has_drifted,
)


def test_algorithm_1_comes_down_by_what_could_not_be_fetched_and_grows_by_a_fifth() -> None:
    # 1000 rows arrive; what can be fetched is what r allows of a capacity of 400 rows compared whole
    r, trace = 1.0, []
    for _ in range(5):
        fetched = min(1000.0, 400.0 / r)
        r = adapt_fraction(r, fetched, 1000.0)
        trace.append(round(r, 6))
    assert trace == [0.4, 0.48, 0.4, 0.48, 0.4]


def test_algorithm_1_never_reaches_nothing_nor_more_than_everything() -> None:
    assert adapt_fraction(0.5, 0, 1000) == LEAST_FRACTION
    assert adapt_fraction(LEAST_FRACTION, 0, 1000) == LEAST_FRACTION
    assert adapt_fraction(0.95, 10, 10) == 1.0
    assert adapt_fraction(0.5, 0, 0) == 0.6, "nothing arrived, so nothing was left behind"


def test_time_beyond_a_share_of_a_core_is_owed_until_it_was_saved() -> None:
    # a window of 4 s, half a core; the second one takes half a second too long, the third is quick, the fourth as told
    debt, trace = 0.0, []
    for used in (2.0, 2.5, 1.75, 2.0, 0.1, 2.0):
        debt = overdrawn_seconds(debt, used, 50.0, 4.0)
        trace.append(debt)
    assert trace == [0.0, 0.5, 0.25, 0.25, 0.0, 0.0], "what was saved is not kept"


def test_no_more_time_is_owed_than_some_windows_have() -> None:
    # deciding alone takes half a second of a window that has a hundredth; then the streams go quiet
    debt, trace = 0.0, []
    for used in [0.5] * 50 + [0.0] * 12:
        debt = overdrawn_seconds(debt, used, 1.0, 1.0)
        trace.append(debt)
    assert trace[49] == pytest.approx(MOST_OWED * 0.01)
    assert trace[-1] == 0.0


def test_rows_that_wait_longer_than_the_buffer_holds_are_passed_over() -> None:
    # a row a second, each two seconds of work: the second row waits one second, the third would wait two
    at = np.arange(6, dtype=np.int64) * 1_000_000
    taken, free_at = fetched_rows(at, np.full(6, 20.0), 10.0, 1.0, 0.0)
    assert taken.tolist() == [True, True, False, True, False, True]
    assert free_at == 8_000_000
    again, _ = fetched_rows(at, np.full(6, 5.0), 10.0, 1.0, 0.0)
    assert again.all()


def test_algorithm_2_ranks_by_matches_a_comparison_and_forgets() -> None:
    matches = fade_counts(np.array([4.0, 0.0, 8.0]), np.array([0.0, 6.0, 2.0]), memory=0.5)
    comparisons = fade_counts(np.array([10.0, 10.0, 10.0]), np.array([10.0, 10.0, 10.0]), memory=0.5)
    assert matches.tolist() == [2.0, 6.0, 6.0]
    o = match_rates(matches, comparisons, smooth=False)
    assert o.tolist() == [2 / 15, 0.4, 0.4]
    assert rank_basic_windows(o).tolist() == [1, 2, 0], "of two alike the newer one"
    # other windows than those that were learned of: what is known is of no use
    assert fade_counts(np.zeros(5), np.ones(3), 0.5).tolist() == [1, 1, 1]


def test_a_basic_window_that_was_never_compared_counts_as_average_and_is_not_starved() -> None:
    o = match_rates(np.array([9.0, 0.0, 0.0]), np.array([10.0, 10.0, 0.0]), smooth=False)
    assert o.tolist() == [0.9, 0.0, 0.45]
    # where the curve rises towards what was never within reach, that is tried: its nearest neighbour's, if that is more
    rising = match_rates(np.array([1.0, 3.0, 0.0, 0.0]), np.array([10.0, 10.0, 0.0, 0.0]), smooth=False)
    assert rising.tolist() == [0.1, 0.3, 0.3, 0.3]
    assert rank_basic_windows(rising).tolist() == [1, 2, 3, 0]
    assert match_rates(np.zeros(3), np.zeros(3)).tolist() == [1, 1, 1]
    assert smooth_curve(np.array([0.0, 4.0, 0.0])).tolist() == [1, 2, 1]


@pytest.mark.parametrize(("w1", "w2"), [(1.0, 4.0), (4.0, 1.0), (20.0, 20.0), (0.0, 3.0)])
@pytest.mark.parametrize("r", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("o1", "o2"), [(2.0, 1.0), (1.0, 2.0), (1.0, 1.0)])
def test_algorithm_4_spends_what_one_fraction_for_both_would(
    w1: float, w2: float, r: float, o1: float, o2: float
) -> None:
    r1, r2 = allocate_by_direction(r, w1, w2, o1, o2)
    assert 0 <= r1 <= 1
    assert 0 <= r2 <= 1
    assert r1 * w1 + r2 * w2 == pytest.approx(r * (w1 + w2))
    better, worse = (r1, r2) if o1 >= o2 else (r2, r1)
    assert better >= worse or 0 in (w1, w2)


def test_line_7_of_algorithm_4_as_printed_breaks_its_own_constraint() -> None:
    w1, w2, r = 4.0, 1.0, 0.9
    r1, r2 = allocate_by_direction(r, w1, w2, 2.0, 1.0)
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
    shares, said = allocate_by_utility(budget, sides)
    worth, spent = worth_of_shares(shares, sides)
    assert spent == pytest.approx(budget)
    assert worth == pytest.approx(best_of_all(budget, sides)) == pytest.approx(said)


def test_algorithm_5_by_hand() -> None:
    # a comparison is worth 1 * 1.5 and 1 * 0.5, 3 * 1.5 and 3 * 0.5, type by type; the better ranked goes first
    even = [1.0, 1.0]
    side = side_of([[10.0, 10.0], [10.0, 10.0]], [1.5, 0.5], [1.0, 3.0], even)
    nothing = side_of([[0.0, 0.0], [0.0, 0.0]], even, even, even)
    (shares, _), worth = allocate_by_utility(25.0, [side, nothing])
    assert shares.tolist() == [0.5, 0.75], "ten of type 1, ten of type 0, five of type 1"
    assert worth == 45.0 + 15.0 + 7.5


def test_a_basic_window_that_costs_more_than_it_yields_more_comes_later() -> None:
    # the first yields twice as much a comparison, and takes four times as long
    side = side_of([[10.0], [10.0]], [2.0, 1.0], [1.0], [4.0, 1.0])
    (share,), worth = allocate_by_utility(14.0, [side])
    assert share.tolist() == [0.55], "ten for 10 steps, and one more for 4"
    assert worth == 12.0


def test_picking_out_has_to_promise_a_twentieth_more_than_whole_rows_do() -> None:
    side = side_of([[10.0], [10.0]], [3.0, 1.0], [1.0], [1.0, 1.0])
    # whole rows yield 40 in 20 steps: 20 in 10
    assert [is_selection_worthwhile(yields, 10.0, [side], 20.0) for yields in (19.0, 20.8, 21.2)] == [
        False,
        False,
        True,
    ]


def test_what_no_side_can_probe_has_no_volume_and_takes_nothing() -> None:
    empty = side_of([[0.0], [0.0]], [0.0, 0.0], [0.0], [1.0, 1.0])
    assert [share.tolist() for share in allocate_by_utility(0.0, [empty, empty])[0]] == [[1.0], [1.0]]


def test_looking_takes_all_before_the_first_match_much_while_little_is_known_and_little_then() -> None:
    flat, made = np.full(20, 5.0), np.full(20, 50.0)
    shares = [exploration_shares(0.05, lumps, flat, made) for lumps in (0.0, 1.0, 20 * MOST_LUMPS / 4, 1e6)]
    for found, share in zip(shares, (1.0, MOST_LOOKED, 0.2, 0.05 * LEAST_LOOKED), strict=True):
        assert found == pytest.approx(np.full(20, share))
    # lags that came within reach only now are looked at, and the others no more for it
    made[10:] = 0.0
    assert exploration_shares(0.05, 1e9, flat, made) == pytest.approx(
        [0.05 * LEAST_LOOKED] * 10 + [MOST_LOOKED] * 10
    )
    # a gamma that was stated larger is kept to
    assert exploration_shares(0.8, 1.0, flat, np.full(20, 50.0)) == pytest.approx(np.full(20, 0.8))


def test_what_is_selected_is_known_and_needs_no_look_and_what_is_not_is_looked_at_as_before() -> None:
    flat, made = np.full(20, 5.0), np.full(20, 50.0)
    lumps = 100.0
    before = exploration_shares(0.05, lumps, flat, made)
    # two basic windows are selected: a thousand times as much is known of them, and of the others what was
    selected = np.where(np.arange(20) < 2, 1000.0, 1.0)
    after = exploration_shares(0.05, lumps * selected.mean(), flat * selected, made * selected)
    assert after[2:] == pytest.approx(before[2:])
    assert after[:2] == pytest.approx([0.05 * LEAST_LOOKED] * 2)


def test_a_sharp_peak_is_looked_for_less_than_one_that_noise_could_have_made() -> None:
    made, peak = np.full(20, 50.0), np.full(20, 1.0)
    peak[7] = 60.0
    flat = np.full(20, peak.mean())
    least = np.full(20, 0.05 * LEAST_LOOKED)
    assert exploration_shares(0.05, 100.0, peak, made) == pytest.approx(least)
    assert exploration_shares(0.05, 100.0, flat, made) == pytest.approx(np.full(20, 0.05 * MOST_LUMPS / 5))
    # two differ as much where lumps are few: that is what noise is
    slope = flat * np.linspace(0.7, 1.3, 20)
    assert exploration_shares(0.05, 100.0, slope, made) == pytest.approx(
        exploration_shares(0.05, 100.0, flat, made)
    )
    assert (
        exploration_shares(0.05, 2000.0, slope, made) < exploration_shares(0.05, 2000.0, flat, made)
    ).all()


def test_what_is_selected_does_not_alone_say_what_the_mean_is() -> None:
    """Four times enough of one basic window, or a thousand times that: the others are looked at alike."""
    yields, known = np.array([1.36, 1.0, 0.9, 1.0, 1.0]), np.array([4 * MOST_LUMPS, 60.0, 60.0, 60.0, 60.0])
    found = []
    for times in (1.0, 1000.0):
        made = 100.0 * known * np.where(np.arange(5) == 0, times, 1.0)
        found.append(exploration_shares(0.05, made.sum() / 100, made * yields, made))
    assert found[1][1:] == pytest.approx(found[0][1:])
    # by hand: the mean is that of what was heard, (128 * 1.36 + 60 * 3.9) / 368, and tau^2 is what noise does not make
    mean = (4 * MOST_LUMPS * 1.36 + 60 * 3.9) / (4 * MOST_LUMPS + 240)
    off = ((yields / mean - 1) ** 2 * known).sum() - 4
    between = off / (known.sum() - (known**2).sum() / known.sum())
    assert 12 < SIGNAL / between < MOST_LUMPS
    assert found[0][1:] == pytest.approx(np.full(4, 0.05 * SIGNAL / between / 60))
    # comparisons that nobody made tell nothing, whatever is said of lumps
    assert exploration_shares(0.05, 9.0, np.zeros(3), np.zeros(3)).tolist() == [1.0, 1.0, 1.0]


def test_a_basic_window_speaks_for_itself_as_far_as_it_is_known_and_drowns_no_other() -> None:
    """One basic window was selected and is known exactly; what was looked at beside it says little, but not nothing."""
    comparisons = np.full(9, 200.0)
    comparisons[4] = 1e6
    matches = comparisons * 0.01
    matches[4] = 1e6 * 0.1
    o = match_rates(matches, comparisons)
    assert o[4] == pytest.approx(0.1)
    others = np.arange(9) != 4
    assert ((o[others] > 0.01) & (o[others] < 0.06)).all(), (
        "as far as they are not known the mean speaks for them"
    )
    part, heard, _ = smoothing_weights(matches, comparisons)
    assert part[4] == 1.0
    assert part[others] == pytest.approx(np.full(8, 1 / 3), rel=0.01)
    assert heard[4] == pytest.approx(600, rel=0.01)
    # once they are known as well, they are what they are
    known = np.where(others, comparisons * 1000, comparisons)
    assert match_rates(known * matches / comparisons, known) == pytest.approx(np.where(others, 0.01, 0.1))


def test_matches_that_come_many_at_a_time_tell_as_little_as_few() -> None:
    each = np.full(30, 7.0)
    assert effective_matches(each.sum(), (each**2).sum()) == pytest.approx(30.0)
    one = np.array([1000.0] + [1.0] * 29)
    assert effective_matches(one.sum(), (one**2).sum()) < 1.1
    assert effective_matches(0.0, 0.0) == 0.0


def test_what_was_learned_is_forgotten_where_the_best_yields_much_less_than_was_believed() -> None:
    assert has_drifted(found=300, expected=1000, phi=2, lumps=100)
    assert not has_drifted(found=(1 - DROP) * 1000 + 1, expected=1000, phi=1, lumps=1e9), (
        "a little less is no change"
    )
    assert not has_drifted(found=300, expected=1000, phi=200, lumps=100), (
        "few rows make all pairs, and they did not come"
    )
    assert not has_drifted(found=300, expected=1000, phi=2, lumps=12), "what was believed rests on too little"
    assert not has_drifted(found=0, expected=0, phi=1, lumps=100)
    assert not has_drifted(found=2000, expected=1000, phi=1, lumps=100), "more is no reason to forget"


def test_types_that_match_alike_are_told_apart_by_what_they_are_worth_alone() -> None:
    # 2000 draws of lumpy counts of types that do match alike: drawn to the mean they are nearer to it than as counted
    chance = np.random.default_rng(3)
    often = np.array([500.0, 300.0, 30.0])
    drawn, counted_ = 0.0, 0.0
    for _ in range(2000):
        pairs = 4.0 * chance.poisson(often / 4)
        known = TypePairs(pairs, often, pairs, squares=4.0 * pairs.sum())
        drawn += float(((relative_match_rates(known) - 1) ** 2).sum())
        counted_ += float(((pairs / often * often.sum() / pairs.sum() - 1) ** 2).sum())
    assert drawn < 0.4 * counted_


def test_types_that_match_apart_are_found_to_with_enough_pairs_and_not_with_few() -> None:
    for many, low, high in ((4.0, 1.0, 1.3), (4000.0, 1.49, 1.51)):
        pairs = np.array([1.5 * many, 0.5 * many])
        known = TypePairs(pairs, np.array([many, many]), pairs, squares=2.0 * pairs.sum())
        assert low <= relative_match_rates(known)[0] <= high
    assert relative_match_rates(TypePairs(np.zeros(2), np.zeros(2), np.zeros(2))).tolist() == [1, 1]


def test_a_type_that_was_compared_with_the_best_basic_windows_alone_is_not_taken_for_a_better_one() -> None:
    # type 0 was compared 1000 times where 0.1 of comparisons match, type 1 as often where 0.02 do
    known = TypePairs(
        np.array([100.0, 20.0]), np.array([100.0, 20.0]), np.array([100.0, 20.0]), squares=120.0
    )
    assert relative_match_rates(known).tolist() == [1.0, 1.0]


def test_a_pair_is_worth_the_better_of_its_rows_by_the_types_that_are_there() -> None:
    nothing = TypePairs()
    assert utility_by_type(nothing, np.array([1.0, 3.0]), (4.0, 1.0)).tolist() == [4.0, 1.75]
    # rows of type 1 pair with those of type 0 alone, which is seen
    seen = TypePairs(np.array([0.0, 1e9]), np.array([0.0, 1e9]), np.array([0.0, 4e9]), squares=1e9)
    assert utility_by_type(seen, np.array([1.0, 3.0]), (4.0, 1.0))[1] == pytest.approx(4.0)
    # a type that is worth nothing, among its like
    assert utility_by_type(nothing, np.array([0.0, 3.0]), (4.0, 0.0)).tolist() == [4.0, 0.0]


@pytest.mark.parametrize("chance", [0.001, 0.05, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("pairs", [3, 10, 15, 40, 1000, 30_000])
def test_the_interval_holds_however_many_pairs_there_are(chance: float, pairs: int) -> None:
    """Exactly: over all that Binomial(M, q) can be, how probable it is that M lies beyond either end."""
    found = np.arange(pairs + 1)
    probable = stats.binom.pmf(found, pairs, chance)
    seen = found[probable > 1e-9]
    ends = np.array([sampled_count_interval([(int(one), chance)]) for one in seen])
    for beyond in (ends[:, 0] > pairs, ends[:, 1] < pairs):
        assert probable[seen][beyond].sum() < 0.0255


def test_what_was_found_is_not_missed() -> None:
    found = estimate_missed_pairs(10, 0.5)
    assert found.estimate == 10.0
    assert 0 <= found.low < 10 < found.high
    # of 12 found with chance 0.99 there may be one or two more, not less
    assert estimate_missed_pairs(12, 0.99).low == 0.0
    assert estimate_missed_pairs(12, 0.99).high < 3


def test_who_draws_nothing_knows_nothing_and_who_draws_everything_misses_nothing() -> None:
    assert estimate_missed_pairs(0, 0.0) == MissedPairs(0.0, 0.0, float("inf"))
    assert estimate_missed_pairs(0, 0.0).capped_at(70.0) == MissedPairs(0.0, 0.0, 70.0)
    assert estimate_missed_pairs(7, 1.0) == MissedPairs(0.0, 0.0, 0.0)
    # nothing was found: at most what would be found with 97.5 %, ln 40 / q
    assert estimate_missed_pairs(0, 0.001).high == pytest.approx(np.log(40) / 0.001, rel=0.01)


@pytest.mark.parametrize("pairs", [2, 30, 2000])
def test_of_many_windows_with_samples_of_their_own_the_sum_is_held(pairs: int) -> None:
    """2000 draws of ten windows, of which each was drawn from with another chance: below 93.5 % with chance 0.2 %."""
    chance = np.random.default_rng(7)
    q = np.geomspace(0.005, 0.2, 10)
    there = chance.integers(0, 2 * pairs, 10)
    held = []
    for _ in range(2000):
        found = chance.binomial(there, q)
        low, high = sampled_count_interval(list(zip(found.tolist(), q.tolist(), strict=True)))
        held.append(low <= there.sum() <= high)
    assert np.mean(held) > 0.935


def test_samples_with_one_chance_are_one_sample() -> None:
    together = sampled_count_interval([(3, 0.01), (0, 0.01), (9, 0.01)])
    assert together == pytest.approx(sampled_count_interval([(12, 0.01)]), rel=1e-9)


def test_windows_know_nothing_of_one_another_so_half_widths_add_up_as_squares() -> None:
    total = MissedPairs(100.0, 97.0, 104.0) + MissedPairs(50.0, 46.0, 53.0)
    assert total == MissedPairs(150.0, 145.0, 155.0)
    assert (MissedPairs(1.0, 0.0, 9.0) + MissedPairs(0.0, 0.0, 0.0)).low == 0.0
