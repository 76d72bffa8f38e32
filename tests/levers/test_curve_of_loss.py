"""The curve of loss, against trying every combination."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.levers.knapsack import Alternative
from spillway.levers.loss_curve import (
    LossPoint,
    best_next_change,
    curve_capacities,
    loss_at_capacity,
    loss_curve,
    mean_loss,
    row_drop_loss_pct,
)
from spillway.levers.protocol import Offer


@st.composite
def items(draw: st.DrawFn) -> tuple[Alternative, ...]:
    """An attribute: as it is, and some ways that cross as less and lose something."""
    width, worth, rate = draw(st.integers(1, 30)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    less = st.tuples(st.integers(0, width).map(float), st.integers(1, 100).map(float))
    ways = [(float(width), 0.0), *draw(st.lists(less, max_size=3))]
    return tuple(
        Alternative(crosses, (worth * lost, float(lost > 0), crosses), "a", "way", lost, float(rate))
        for crosses, lost in ways
    )


@st.composite
def streams(draw: st.DrawFn) -> dict[str, Offer]:
    found = {}
    for name in draw(st.sampled_from(["a", "ab"])):
        mine = tuple(draw(st.lists(items(), min_size=1, max_size=3)))
        fixed = draw(st.integers(0, 5))
        found[name] = Offer(fixed + sum(item[0].crosses for item in mine), None, mine)
    return found


def every_point(offers: dict[str, Offer]) -> list[tuple[float, float, float]]:
    """(what crosses, what is weighed, the mean loss) of every combination there is."""
    fixed = sum(offer.fixed_kbps for offer in offers.values())
    found = []
    for picks in product(*(item for offer in offers.values() for item in offer.items)):
        values = sum(one.values for one in picks)
        lost = sum(one.values * one.lost_pct for one in picks) / values
        found.append((fixed + sum(one.crosses for one in picks), sum(one.cost[0] for one in picks), lost))
    return found


@given(streams(), st.floats(0.05, 1.2))
def test_what_is_weighed_is_the_least_that_fits_and_its_loss_is_told(
    offers: dict[str, Offer], share: float
) -> None:
    capacity = share * sum(offer.rate_kbps for offer in offers.values())
    point = loss_at_capacity(offers, capacity)
    weighed = sum(one.choice.cost[0] for one in point.choices)
    tried = every_point(offers)
    fitting = [cost for crosses, cost, _ in tried if crosses <= capacity]
    if fitting:
        assert weighed == pytest.approx(min(fitting))
        assert point.excess_kbps == 0
    else:
        assert point.sent_kbps == pytest.approx(min(crosses for crosses, _, _ in tried))
        assert point.excess_kbps > 0
    told = (point.sent_kbps, weighed, point.loss_pct)
    assert any(one == pytest.approx(told) for one in tried)


@given(streams())
def test_what_is_weighed_falls_with_the_capacity_to_nothing_where_all_fits(offers: dict[str, Offer]) -> None:
    rate = sum(offer.rate_kbps for offer in offers.values())
    curve = loss_curve(offers, curve_capacities(offers, 0.7 * rate))
    weighed = [sum(one.choice.cost[0] for one in point.choices) for point in curve]
    assert weighed == sorted(weighed, reverse=True)
    assert (curve[-1].capacity_kbps, curve[-1].loss_pct) == (pytest.approx(rate), 0.0)
    assert all(point.excess_kbps == 0 for point in curve)


def attribute(name: str, loss: float, *, less: float = 5.0, rate: float = 1.0) -> tuple[Alternative, ...]:
    kept = Alternative(20.0, (0.0, 0.0, 20.0), name, "keep", 0.0, rate)
    return kept, Alternative(less, (loss, 1.0, less), name, "round", loss, rate)


def test_a_proportional_channel_gives_every_stream_its_own_part() -> None:
    dear, cheap = Offer(20.0, None, (attribute("dear", 9.0),)), Offer(20.0, None, (attribute("cheap", 3.0),))
    offers = {"dear": dear, "cheap": cheap}
    together, apart = (loss_at_capacity(offers, 26.0, divide_by) for divide_by in ("utility", "proportional"))
    assert (together.loss_pct, apart.loss_pct) == (1.5, 6.0)


def test_the_mean_counts_every_value_alike_however_dear() -> None:
    often, seldom = attribute("often", 4.0, rate=3.0), attribute("seldom", 8.0, rate=1.0)
    assert mean_loss([often[1], seldom[1]]) == (3 * 4.0 + 8.0) / 4


def test_who_pays_next_brings_the_largest_fall_a_kbps() -> None:
    ways = (attribute("a", 6.0), attribute("b", 4.0, less=15.0))
    offers = {"s": Offer(40.0, None, ways)}
    point = loss_at_capacity(offers, 20.0)
    step = best_next_change(offers, point)
    assert point.loss_pct == 5.0
    assert step is not None
    assert (step.stream, step.before.of, step.after.way) == ("s", "b", "keep")
    assert (step.kbps, step.fall) == (5.0, 2.0)


def test_nobody_pays_next_where_nothing_is_lost() -> None:
    offers = {"s": Offer(20.0, None, (attribute("a", 6.0),))}
    assert best_next_change(offers, loss_at_capacity(offers, 20.0)) is None


@given(st.floats(0.1, 1e4), st.floats(0.0, 1.5))
def test_a_dropped_row_lacks_every_value(offered: float, share: float) -> None:
    assert row_drop_loss_pct(offered, share * offered) == pytest.approx(
        max(0.0, 100.0 * (1.0 - share)), abs=1e-9
    )


def test_a_stream_without_a_choice_takes_its_room_and_loses_nothing() -> None:
    offers = {"s": Offer(20.0, None, (attribute("a", 6.0),)), "quiet": Offer(10.0)}
    assert loss_at_capacity(offers, 30.0).loss_pct == 0.0
    assert loss_at_capacity(offers, 29.0).loss_pct == 6.0
    assert isinstance(loss_at_capacity({"quiet": Offer(10.0)}, 5.0), LossPoint)


def test_capacity_in_use_has_a_point_also_above_the_offered_rate() -> None:
    kept = Alternative(20.0, (0.0, 0.0, 20.0))
    offers = {"s": Offer(30.0, None, ((kept, Alternative(5.0, (1.0, 1.0, 5.0), lost_pct=1.0)),))}
    assert 40.0 in curve_capacities(offers, 40.0)
    assert 17.0 in curve_capacities(offers, 17.0)
    assert 9.0 not in curve_capacities(offers, 9.0), "15 kbps are always sent"
