"""What a ranking leads to: the choice against trying everything, the two stages, observing, and the sentences."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.contracts import StreamContract, read_stream
from spillway.levers.attributes.cycle.find import declared_cycle
from spillway.levers.attributes.facts import Learned
from spillway.levers.attributes.option import Option
from spillway.levers.attributes.policy import (
    decide,
    decide_stages,
    own_settings,
    policy_of,
    smoothing_of,
    tuples_in_window,
)
from spillway.levers.attributes.ranking.reevaluation import Reevaluation
from spillway.levers.attributes.ranking.smoothing import Smoothing
from spillway.levers.attributes.settings import AttributeSettings, Reevaluate, WindowLength
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.protocol import Load, Part

NAMES = ("a", "b", "c")


def contract(**lever: Any) -> StreamContract:
    mode = lever.pop("mode", "shed")
    return read_stream(
        {
            "stream": "net",
            "channel": "up",
            "source": {"format": "csv"},
            "mode": mode,
            "attributes": [
                {"name": "key", "type": "string", "role": "key"},
                {"name": "at", "type": "integer", "role": "order"},
                *({"name": name, "type": "double"} for name in NAMES),
            ],
            "levers": [{"lever": "attributes", **lever}],
        }
    )


def options(costs: Mapping[str, Sequence[float]]) -> dict[str, list[Option]]:
    """Per attribute: width kept, width rounded, synopsis when shed (all in bytes a tuple)."""
    return {
        name: [
            Option(name, "keep", kept),
            Option(name, "round", rounded, 0.0, 0.5),
            Option(name, "shed", 0.0, stored, 0.3),
        ]
        for name, (kept, rounded, stored) in costs.items()
    }


def load(costs: Mapping[str, Sequence[float]], per_second: float = 1000.0) -> Load:
    """One byte of key and one of order a tuple, and the measures as they were trained."""
    widths = {"key": 8.0, "at": 8.0} | {name: 8.0 * kept for name, (kept, _, _) in costs.items()}
    return Load(widths, per_second)


byte_counts = st.integers(1, 40).map(float)
costs_of_all = st.fixed_dictionaries(
    {name: st.tuples(byte_counts, byte_counts, byte_counts) for name in NAMES}
)


@given(costs_of_all, st.integers(1, 140))
def test_the_choice_is_the_cheapest_that_fits_or_the_least_there_is(
    costs: dict[str, tuple[float, float, float]], capacity_bytes: int
) -> None:
    ways = options(costs)
    found = decide(AttributeSettings(), ways, load(costs), capacity_bytes * 8.0, NAMES)
    tried = []
    for combination in itertools.product(*(ways[name] for name in NAMES)):
        # a synopsis that is not smaller than its column is no way to shed it
        if any(
            one.way == "shed" and one.synopsis_bytes_per_tuple >= costs[one.attribute][0]
            for one in combination
        ):
            continue
        wire = 2 + sum(one.wire_bytes_per_tuple for one in combination)
        tried.append((wire, wire + sum(one.synopsis_bytes_per_tuple for one in combination)))
    as_it_is = 2 + sum(kept for kept, _, _ in costs.values())
    wire = found.planned_kbps / 8.0
    if as_it_is <= capacity_bytes:
        assert found.scheme == ()
    elif any(sent <= capacity_bytes for sent, _ in tried):
        best = min(net for sent, net in tried if sent <= capacity_bytes)
        chosen = {way.attribute: way.way for way in found.ways}
        kept_at_source = sum(costs[name][2] for name in NAMES if chosen[name] == "shed")
        assert wire <= capacity_bytes + 1e-9
        assert wire + kept_at_source == pytest.approx(best)
        assert found.shortfall_kbps == 0
    else:
        assert wire == pytest.approx(min(sent for sent, _ in tried))
        assert found.shortfall_kbps == pytest.approx((wire - capacity_bytes) * 8.0)


def test_a_choice_says_what_it_did_in_a_sentence() -> None:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    fits = decide(AttributeSettings(), options(costs), load(costs), 300.0, NAMES)
    assert fits.reason == "216 kbps into 300: keep everything, 216 kbps planned"
    some = decide(AttributeSettings(), options(costs), load(costs), 136.0, NAMES)
    assert some.reason == "216 kbps into 136: round b and shed a, c, 88 kbps planned"
    nothing_more = decide(AttributeSettings(), options(costs), load(costs), 80.0, NAMES)
    assert nothing_more.reason == (
        "216 kbps into 80: round b and shed a, c, 88 kbps planned; 8 kbps too much remain, nothing more may be shed"
    )
    assert nothing_more.shortfall_kbps == pytest.approx(8.0)


def test_where_rounding_is_not_allowed_the_text_decides_by_the_ranking() -> None:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    text = AttributeSettings(ways=("keep", "shed"))
    found = decide(text, options(costs), load(costs), 140.0, ("b", "a", "c"))
    assert found.scheme == ("b",)
    assert found.planned_kbps == pytest.approx(136.0)


def test_a_stream_without_measures_says_what_is_too_much() -> None:
    nothing = decide(AttributeSettings(), {}, Load({"key": 8.0}, 1000.0), 6.0, ())
    assert (nothing.ways, nothing.shortfall_kbps) == ((), 2.0)
    assert nothing.reason.endswith("2 kbps too much remain, nothing more may be shed")


@given(costs_of_all, st.integers(3, 140), st.integers(3, 140))
def test_what_the_own_channel_makes_go_stays_gone_on_the_trunk(
    costs: dict[str, tuple[float, float, float]], own: int, trunk: int
) -> None:
    part = Part(own * 8.0, trunk * 8.0)
    first = decide(AttributeSettings(), options(costs), load(costs), part.own_kbps, NAMES)
    both = decide_stages(AttributeSettings(), options(costs), load(costs), part, NAMES)
    was, now = ({way.attribute: way for way in found.ways} for found in (first, both))
    assert all(now[name].way == was[name].way for name in first.scheme)
    assert all(now[name].stage == 2 for name in set(both.scheme) - set(first.scheme))
    if not both.shortfall_kbps:
        assert both.planned_kbps <= part.trunk_kbps + 1e-9


def test_the_trunks_part_of_the_reason_is_named() -> None:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    found = decide_stages(AttributeSettings(), options(costs), load(costs), Part(140.0, 60.0), NAMES)
    assert "; trunk: " in found.reason


def learned() -> Learned:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    cycle = declared_cycle({"key": ["x", "y"] * 4, "at": list(range(8))}, list(range(8)), ["key"], order="at")
    models = {name: AttributeModel(name, "real", error_pct=2.0) for name in NAMES}
    ranking = {"b": 0.1, "c": 0.5, "a": 0.9}
    return Learned(1, cycle, models, {n: tuple(o) for n, o in options(costs).items()}, {}, ranking)


def test_an_observed_stream_keeps_everything_and_says_what_would_go() -> None:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    policy = policy_of(contract(mode="observe"), learned(), load(costs), Part(100.0))
    found = policy.decide(NAMES)
    assert found.scheme == ()
    assert found.reason.startswith("observed only: 216 kbps into 100")
    assert found.shortfall_kbps == pytest.approx(116.0)
    assert any(way.reason.startswith("observed only: would be shed") for way in found.ways)


def test_the_planner_aims_at_the_share_it_is_told() -> None:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    full, half = (
        policy_of(contract(ways=["keep", "shed"]), learned(), load(costs), Part(180.0), aim)
        for aim in (1.0, 0.5)
    )
    assert full.decide(NAMES).planned_kbps > 90.0
    assert half.decide(NAMES).planned_kbps <= 90.0
    assert full.capacity_kbps == half.capacity_kbps == 180.0


def test_a_time_window_holds_what_the_line_brings_and_never_less_than_is_ranked_by() -> None:
    timed = AttributeSettings(window=WindowLength(seconds=2.0))
    assert tuples_in_window(timed, Load({"a": 8.0}, 500.0)) == 1000
    assert tuples_in_window(timed, Load({"a": 8.0}, 1.0)) == 64
    assert tuples_in_window(AttributeSettings(), Load({"a": 8.0}, 500.0)) == 64


def test_an_attribute_that_the_contract_protects_since_training_is_not_planned_with() -> None:
    stated = contract()
    kept = [a for a in stated.attributes if a.name != "c"]
    without = replace(stated, attributes=tuple(kept))
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0)}
    policy = policy_of(without, learned(), load(costs), Part(10.0))
    assert policy.attributes == ("a", "b")
    assert [name for name, _ in policy.trained_ranking] == ["b", "a"]
    assert own_settings(without).rank_by == "stddev"


@pytest.mark.parametrize(
    ("stated", "smoothed"),
    [
        ({}, Smoothing("ema", 0.18, "first")),
        ({"seed": "sma", "sma_tuples": 4}, Smoothing("ema", 0.18, "sma", 4)),
        ({"kind": "sma", "sma_tuples": 4}, Smoothing("sma", 0.18, "first", 4)),
        ({"kind": "none"}, Smoothing("none")),
    ],
)
def test_every_average_can_be_asked_for(stated: dict[str, Any], smoothed: Smoothing) -> None:
    assert smoothing_of(own_settings(contract(smoothing=stated))) == smoothed


def test_how_often_a_stream_is_evaluated_is_what_the_contract_says() -> None:
    stated = {
        "interval_windows": 2,
        "cap_windows": 8,
        "memory_evaluations": 3,
        "reach": None,
        "most_pct": 40.0,
    }
    asked = Reevaluate(**stated)
    found = own_settings(contract(reevaluate=stated)).reevaluate
    assert found == asked
    assert Reevaluation(**{item.name: getattr(Reevaluate(), item.name) for item in fields(Reevaluate)}) == (
        Reevaluation()
    )
