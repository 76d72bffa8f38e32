"""Several streams on one channel."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.golden import attributes as golden_attributes
from spillway.errors import Refused
from spillway.levers.attributes.threshold.categories import criticality_weight
from spillway.levers.shares import (
    Step,
    drop_rate,
    proportional,
    proportional_capacities,
    utility,
)

GOLDEN = Path(__file__).parents[1] / "golden"


def test_example_6_is_reproduced() -> None:
    cells = list(golden_attributes.GROUPS["several streams"](GOLDEN))
    assert len(cells) == 9
    assert [cell for cell in cells if not cell.equal] == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(0, 20)), min_size=1, max_size=6), st.integers(1, 4000)
)
def test_proportional_shares_are_exact_and_leave_the_channel_full(
    streams: list[tuple[int, int]], capacity: int
) -> None:
    rates, counts = [rate / 10 for rate, _ in streams], [count for _, count in streams]
    got = proportional(rates, counts, capacity / 10)
    total = sum(rate for rate, _ in streams)
    share = max(Fraction(total - capacity, total), Fraction(0))
    assert got.drop_rate == share
    assert got.attributes_to_shed == tuple(math.ceil(share * count) for count in counts)
    assert sum(got.kbps_to_shed) == max(Fraction(total - capacity, 10), 0)
    assert sum(proportional_capacities(rates, capacity / 10)) == pytest.approx(min(total, capacity) / 10)


def test_what_fits_gives_up_nothing_and_a_silent_stream_neither() -> None:
    assert drop_rate([10, 20], 30) == 0
    assert proportional([10, 20], [3, 4], 30).attributes_to_shed == (0, 0)
    assert proportional([0, 20], [3, 4], 10).attributes_to_shed == (0, 2)


steps = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=4)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(steps, min_size=1, max_size=4),
    st.integers(1, 60),
    st.lists(st.integers(1, 3), min_size=4, max_size=4),
)
def test_utility_fits_takes_the_cheapest_steps_first_and_keeps_what_it_can(
    offers: list[list[tuple[int, int]]], capacity: int, weighing: list[int]
) -> None:
    names = [f"s{i}" for i in range(len(offers))]
    streams = {
        name: [Step(f"{name}{k}", kbps, loss) for k, (kbps, loss) in enumerate(offer)]
        for name, offer in zip(names, offers, strict=True)
    }
    rates = {name: 10 + sum(step.kbps for step in streams[name]) for name in names}
    weights = dict(zip(names, weighing, strict=False))
    plan = utility(rates, streams, capacity, weights)
    taken = {
        step.what: (step, name) for name in names for step in streams[name] if step.what in plan.shed[name]
    }
    off = sum(step.kbps for step, _ in taken.values())
    assert plan.planned_kbps == sum(rates.values()) - off
    assert plan.shortfall_kbps == max(plan.planned_kbps - capacity, 0)
    if plan.shortfall_kbps:
        assert len(taken) == sum(map(len, offers))
    for step, _ in taken.values():
        assert plan.planned_kbps + step.kbps > capacity
    assert sum(plan.capacities_kbps.values()) == pytest.approx(plan.planned_kbps)


def test_marginal_losses_end_up_equal() -> None:
    # stream a loses 1, 2, 3, ... per kbps, b twice that: a gives up twice as many steps as b
    streams = {
        "a": [Step(f"a{k}", 1, k) for k in range(1, 31)],
        "b": [Step(f"b{k}", 1, 2 * k) for k in range(1, 31)],
    }
    plan = utility({"a": 30, "b": 30}, streams, 60 - 15)
    assert (len(plan.shed["a"]), len(plan.shed["b"])) == (10, 5)
    assert plan.marginal_loss_per_kbps == 10


def test_a_weight_moves_the_loss_to_the_other_stream() -> None:
    streams = {name: [Step(f"{name}{k}", 1, k) for k in range(1, 11)] for name in "ab"}
    plan = utility(
        {"a": 10, "b": 10}, streams, 11, {"a": criticality_weight("very"), "b": criticality_weight("not")}
    )
    assert len(plan.shed["a"]) < len(plan.shed["b"])
    assert len(plan.shed["a"]) + len(plan.shed["b"]) == 9


def test_a_stream_of_no_class_weighs_as_much_as_the_most_tolerant() -> None:
    assert criticality_weight("others") == criticality_weight("not") == criticality_weight(None) == 1.0
    classes = ["extremely", "very", "moderately", "low", "not"]
    weights = [criticality_weight(name) for name in classes]
    assert weights == sorted(weights, reverse=True)


def test_what_a_wide_step_made_needless_is_given_back() -> None:
    streams = {"a": [Step("x", 2, 1), Step("y", 20, 30)], "b": []}
    plan = utility({"a": 30, "b": 10}, streams, 25)
    assert plan.shed == {"a": ("y",), "b": ()}


def test_ties_go_to_the_stream_named_first() -> None:
    streams = {"b": [Step("x", 5, 1)], "a": [Step("y", 5, 1)]}
    assert utility({"b": 10, "a": 10}, streams, 15).shed == {"b": ("x",), "a": ()}


def test_nonsense_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="`capacity_kbps` must be above 0"):
        drop_rate([1], 0)
    with pytest.raises(Refused, match="`rates_kbps` must be"):
        drop_rate([-1], 1)
    with pytest.raises(Refused, match="`attributes` must count"):
        proportional([1, 2], [3], 1)
    with pytest.raises(Refused, match="`criticality` must be one of"):
        criticality_weight("highly")
    with pytest.raises(Refused, match=r"`priority` must be above 0"):
        utility({"a": 1}, {}, 1, {"a": 0})
    with pytest.raises(Refused, match="`steps` must belong"):
        utility({"a": 1}, {"b": []}, 1)
    with pytest.raises(Refused, match=r"`steps.a.x` must save"):
        utility({"a": 1}, {"a": [Step("x", 0, 1)]}, 1)
