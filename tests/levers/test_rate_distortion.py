"""The knapsack behind every plan, against trying everything."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.errors import InvalidValue
from spillway.levers import knapsack
from spillway.levers.knapsack import WORTH_DIVIDING, Alternative, least_cost, least_cost_divided, lower_hull

whole = st.integers(0, 30)
choices = st.lists(
    st.builds(Alternative, whole, st.tuples(whole, st.integers(0, 1), whole)), min_size=1, max_size=5
)


def tried_all(items: list[list[Alternative]], room: float) -> tuple[float, tuple[float, ...]]:
    """What crosses and costs, over every combination: the least cost that fits, else the least that crosses."""
    sums = [
        (math.fsum(c.crosses for c in picks), tuple(math.fsum(c.cost[k] for c in picks) for k in range(3)))
        for picks in product(*items)
    ]
    fitting = [(cost, crosses) for crosses, cost in sums if crosses <= room]
    if fitting:
        cost, _ = min(fitting)
        return min(crosses for found, crosses in fitting if found == cost), cost
    return min(sums)


@settings(max_examples=400, deadline=None)
@given(st.lists(choices, min_size=1, max_size=6), st.integers(0, 120))
def test_nothing_that_fits_costs_less(items: list[list[Alternative]], room: int) -> None:
    found = least_cost(items, room)
    crosses, cost = tried_all(items, room)
    assert found.exact
    assert found.cost == pytest.approx(cost)
    assert found.over == max(0.0, crosses - room)
    assert found.crosses == math.fsum(item[at].crosses for item, at in zip(items, found.picks, strict=True))
    assert found.crosses <= room or found.crosses == crosses


@settings(max_examples=200, deadline=None)
@given(st.lists(choices, min_size=2, max_size=6), st.integers(1, 120))
def test_with_few_states_it_still_fits_and_says_how_far_it_may_be(
    items: list[list[Alternative]], room: int
) -> None:
    found = least_cost(items, room, most_states=1)
    crosses, cost = tried_all(items, room)
    if crosses <= room:
        assert found.crosses <= room
        assert found.cost[0] - found.gap <= cost[0] + 1e-9
        assert found.cost[0] >= cost[0]
    assert not found.exact or found.cost == pytest.approx(cost)


divisible = st.lists(
    st.builds(Alternative, whole, st.tuples(whole, st.integers(0, 1), whole), divisible=st.just(True)),
    min_size=1,
    max_size=4,
)


def mixed_by_hand(items: list[list[Alternative]], room: float) -> float:
    """The least first cost of all ways to divide one item between two of its choices."""
    costs = []
    for picks in product(*items):
        crosses = math.fsum(one.crosses for one in picks)
        cost = math.fsum(one.cost[0] for one in picks)
        for item, before in zip(items, picks, strict=True):
            for after in item:
                width = after.crosses - before.crosses
                share = min(1.0, (room - crosses) / width) if width > 0 else 0.0
                if crosses <= room:
                    costs.append(cost + share * (after.cost[0] - before.cost[0]))
    return min(costs)


@settings(max_examples=300, deadline=None)
@given(st.lists(divisible, min_size=1, max_size=3), st.integers(0, 90))
def test_no_way_to_divide_one_item_costs_less(items: list[list[Alternative]], room: int) -> None:
    found = least_cost(items, room)
    mixed = least_cost_divided(items, room, found)
    if found.over:
        assert mixed is None
        return
    best = mixed_by_hand(items, room)
    if best >= found.cost[0] * (1.0 - WORTH_DIVIDING):
        assert mixed is None, "a part is not divided for next to nothing"
    else:
        assert mixed is not None
        assert mixed.cost[0] == pytest.approx(best)
        assert mixed.crosses <= room + 1e-9


def test_what_may_not_be_divided_is_not_and_a_last_resort_is_none_of_the_parts() -> None:
    kept, half, gone = (
        Alternative(crosses, (cost, 0, 0), divisible=True) for crosses, cost in ((4, 0), (2, 50), (0, 60))
    )
    items = [[kept, half, replace(gone, last_resort=True)]]
    found = least_cost_divided(items, 3.0, least_cost(items, 3.0))
    assert found is not None
    assert (found.picks, found.finer, found.share, found.cost[0]) == ((1,), 0, 0.5, 25.0)
    items = [[kept, replace(half, divisible=False)]]
    assert least_cost_divided(items, 3.0, least_cost(items, 3.0)) is None
    items = [[kept, half], [Alternative(0.0, (6000, 0, 0), divisible=True)]]
    assert least_cost_divided(items, 3.0, least_cost(items, 3.0)) is None, "for less than a hundredth of all"


def test_one_of_two_crosses_as_a_synopsis_the_other_as_it_is() -> None:
    a = [Alternative(24, (0, 0, 24)), Alternative(18, (0, 1, 18)), Alternative(0, (100, 1, 18))]
    b = [Alternative(16, (0, 0, 16)), Alternative(12, (0, 1, 12)), Alternative(0, (100, 1, 12))]
    found = least_cost([a, b], room=40 - 6)
    assert (found.picks, found.cost[0]) == ((1, 0), 0.0)


def test_the_critical_stream_is_served_first() -> None:
    def both(weight: float) -> tuple[int, ...]:
        critical = [Alternative(12, (weight * 1.0, 1, 12)), Alternative(26, (weight * 0.1, 1, 26))]
        other = [Alternative(28, (0.1, 1, 28)), Alternative(14, (2.4, 1, 14))]
        return least_cost([critical, other], room=40).picks

    assert both(12.2) == (1, 1)
    assert both(1.0) == (0, 0)


def test_cost_falls_as_the_room_grows_and_is_none_where_all_fits() -> None:
    rng = np.random.default_rng(7)
    items = [
        [Alternative(float(c), (float(max(0.0, 20 - c) ** 2), 1.0, float(c))) for c in rng.uniform(0, 25, 8)]
        for _ in range(12)
    ]
    costs = [least_cost(items, room).cost[0] for room in range(0, 320, 5)]
    assert costs == sorted(costs, reverse=True)
    free = [[*item, Alternative(25.0, (0.0, 0.0, 25.0))] for item in items]
    assert least_cost(free, 12 * 25.0).cost == (0.0, 0.0, 300.0)


def test_thirty_items_of_fourteen_choices_are_chosen_exactly() -> None:
    rng = np.random.default_rng(11)
    items = []
    for _ in range(30):
        wire = np.sort(rng.uniform(0.1, 4.0, 14))[::-1]
        loss = np.concatenate([[0.0], np.sort(rng.exponential(1.0, 13))])
        items.append(
            [
                Alternative(float(w), (float(x), float(x > 0), float(w)))
                for w, x in zip(wire, loss, strict=True)
            ]
        )
    most = sum(item[0].crosses for item in items)
    for share in (0.9, 0.5, 0.3):
        found = least_cost(items, share * most)
        assert found.exact
        assert found.cost[0] > 0.0
        assert found.crosses >= 0.97 * share * most


def test_what_equal_streams_get_does_not_depend_on_their_order() -> None:
    item = [Alternative(10.0, (0.0, 0.0, 10.0)), Alternative(4.0, (1.0, 1.0, 4.0))]
    assert [least_cost([item] * 3, 24.0).picks for _ in range(3)] == [least_cost([item] * 3, 24.0).picks] * 3


def test_no_choice_and_no_number_are_refused() -> None:
    with pytest.raises(InvalidValue, match="offer a choice"):
        least_cost([[]], 1.0)
    with pytest.raises(InvalidValue, match="finite"):
        least_cost([[Alternative(math.nan, (0, 0, 0))]], 1.0)
    with pytest.raises(InvalidValue, match="room"):
        least_cost([[Alternative(1.0, (0, 0, 0))]], math.inf)


def test_the_hull_leaves_out_what_lies_above_it() -> None:
    assert lower_hull(np.array([0.0, 2.0, 4.0, 4.0]), np.array([4.0, 3.9, 0.0, 1.0])) == [0, 2]


def test_each_items_hull_is_found_a_fixed_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(crosses: np.ndarray, cost: np.ndarray) -> list[int]:
        calls.append(len(crosses))
        return lower_hull(crosses, cost)

    monkeypatch.setattr(knapsack, "lower_hull", counted)
    rng = np.random.default_rng(3)
    items = [
        [Alternative(2.0, (0.0, 0.0, 2.0)), Alternative(float(c), (float(x), 1.0, float(c)))]
        for c, x in zip(rng.uniform(0.5, 1.5, 60), rng.uniform(0.1, 5.0, 60), strict=True)
    ]
    assert least_cost(items, 90.0).exact
    assert len(calls) <= 2 * len(items)


def test_what_weighs_next_to_nothing_is_chosen_as_well_beside_what_weighs_a_great_deal() -> None:
    rng = np.random.default_rng(4)
    worse = 0
    for _ in range(300):
        # three that must be kept, and three that are worth next to nothing, of which something goes
        items = [
            [
                Alternative(float(wide), (0.0, 0.0, float(wide))),
                *(
                    Alternative(float(wide * part), (float(worth * lost), 1.0, float(wide * part)))
                    for part, lost in zip(rng.random(3), rng.uniform(1, 100, 3), strict=True)
                ),
            ]
            for worth, wide in zip([1e9] * 3 + [1e-9] * 3, rng.uniform(1, 4, 6), strict=True)
        ]
        kept = sum(item[0].crosses for item in items[:3])
        room = kept + 0.8 * sum(item[0].crosses for item in items[3:])
        found, small = least_cost(items, room), least_cost(items[3:], room - kept)
        assert found.exact
        worse += found.cost[0] > small.cost[0] * (1 + 1e-9)
    assert worse == 0
