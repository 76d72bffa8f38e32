"""The ways that a contract allows are the ways that are planned, in every form of the plan."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.contracts import StreamContract, read_channel, read_stream
from spillway.levers.attributes.cycle.identifier import declared_cycle
from spillway.levers.attributes.facts import TrainedFacts
from spillway.levers.attributes.lever import LEVER
from spillway.levers.attributes.option import Option
from spillway.levers.attributes.policy import policy_of
from spillway.levers.attributes.synopsis.model import AttributeModel, Precision, Rounding
from spillway.levers.protocol import CapacityShare, Fact, Facts, Load, Offer

NAMES = ("a", "b", "c")
ALLOWED = (("keep",), ("keep", "round"), ("keep", "shed"), ("keep", "round", "shed"))
FORMS = [
    {"plan": "prefix", "fit": fit, "rank_by": by}
    for fit, by in itertools.product(("bits", "count"), ("stddev", "relative"))
] + [{"plan": "least_loss", "synopsis": synopsis} for synopsis in ("auto", "send", "hold")]
CHANNEL = read_channel("up", {"capacity": "100 kbps"})


def possible(ways: tuple[str, ...], form: dict[str, str]) -> bool:
    """A contract that sheds prefixes must allow shedding."""
    return form["plan"] == "least_loss" or "shed" in ways


CASES = [(ways, form) for ways in ALLOWED for form in FORMS if possible(ways, form)]
LOAD = Load({"key": 8.0, "at": 8.0, **dict.fromkeys(NAMES, 80.0)}, 1000.0)
RATE_KBPS = LOAD.rate_kbps


def options() -> dict[str, tuple[Option, ...]]:
    """As they were trained when every way was allowed."""
    return {
        name: (
            Option(name, "keep", 10.0),
            Option(name, "round", 6.0, 0.0, 0.2),
            Option(name, "round", 4.0, 0.0, 0.5, precision=1),
            Option(name, "shed", 0.0, 3.0, 0.2),
            Option(name, "shed", 0.0, 2.0, 0.4, precision=1),
        )
        for name in NAMES
    }


def learned() -> TrainedFacts:
    cycle = declared_cycle({"key": ["x", "y"] * 4, "at": list(range(8))}, list(range(8)), ["key"], order="at")
    models = {
        name: AttributeModel(
            name,
            "real",
            2.0,
            precisions=(Precision(1.0), Precision(2.0)),
            roundings=(Rounding("grid", 1.0), Rounding("grid", 2.0)),
        )
        for name in NAMES
    }
    return TrainedFacts(1, cycle, models, options(), {}, dict.fromkeys(NAMES, 1.0))


def contract(attributes: dict[str, Any] | None = None, **lever: Any) -> StreamContract:
    return read_stream(
        {
            "stream": "net",
            "channel": "up",
            "source": {"format": "csv"},
            "attributes": [
                {"name": "key", "type": "string", "role": "key"},
                {"name": "at", "type": "integer", "role": "order"},
                *({"name": name, "type": "double", **(attributes or {}).get(name, {})} for name in NAMES),
            ],
            "levers": [{"lever": "attributes", **lever}],
        }
    )


@pytest.mark.parametrize(("ways", "form"), CASES, ids=str)
@settings(max_examples=50, deadline=None)
@given(st.floats(0.01, 1.5), st.floats(0.01, 1.5) | st.none(), st.permutations(NAMES))
def test_no_other_way_is_taken_at_any_capacity_at_either_stage(
    ways: tuple[str, ...], form: dict[str, str], own: float, trunk: float | None, ranking: list[str]
) -> None:
    part = CapacityShare(own * RATE_KBPS, None if trunk is None else trunk * RATE_KBPS)
    found = policy_of(contract(treatments=list(ways), **form), CHANNEL, learned(), LOAD, part).decide(ranking)
    assert {way.way for way in found.ways} <= set(ways)
    assert [way.attribute for way in found.ways] == list(NAMES)


@pytest.mark.parametrize(
    ("ways", "form", "capacity", "taken"),
    [
        (ways, form, capacity, taken)
        for ways, capacity, taken in [
            (("keep",), 0.5, set()),
            (("keep", "round"), 0.7, {"round"}),
            (("keep", "shed"), 0.7, {"shed"}),
            (("keep", "round", "shed"), 0.3, {"shed"}),
        ]
        for form in FORMS
        if possible(ways, form)
    ],
    ids=str,
)
def test_what_is_allowed_is_used_and_what_is_too_much_is_said(
    form: dict[str, str], ways: tuple[str, ...], capacity: float, taken: set[str]
) -> None:
    part = CapacityShare(capacity * RATE_KBPS)
    found = policy_of(contract(treatments=list(ways), **form), CHANNEL, learned(), LOAD, part).decide(NAMES)
    assert {way.way for way in found.ways} - {"keep"} >= taken
    if not taken:
        assert found.planned_kbps == RATE_KBPS
        assert found.shortfall_kbps == pytest.approx(RATE_KBPS * (1 - capacity))
        assert "too much remain" in found.reason


@pytest.mark.parametrize("ways", [("keep",), ("keep", "round")])
def test_a_shared_channel_is_offered_no_ways_that_the_contract_forbids(ways: tuple[str, ...]) -> None:
    known = learned()
    facts = Facts(
        1,
        {
            (one.fact, one.subject): one
            for one in (
                Fact("cycle", "", known.cycle.to_dict()),
                *(Fact("attribute", name, known.models[name].to_dict()) for name in NAMES),
                *(Fact("options", name, [one.to_dict() for one in options()[name]]) for name in NAMES),
            )
        },
    )
    least = {("keep",): 80.0, ("keep", "round"): 32.0, ("keep", "shed"): 0.16}
    for allowed in (ways, ("keep", "shed")):
        offer = LEVER.update_offer(
            Offer(RATE_KBPS, LOAD), contract(treatments=list(allowed)), CHANNEL, facts, None
        )
        assert [min(one.crosses for one in item) for item in offer.items] == pytest.approx(
            [least[allowed]] * 3
        )


@pytest.mark.parametrize("ways", [["keep", "shed"], ["keep", "round", "shed"], ["keep", "round"]])
def test_a_contract_tightened_after_training_is_planned_within(ways: list[str]) -> None:
    part = CapacityShare(0.2 * RATE_KBPS)
    tight = contract({"a": {"error_pct": 1.5}, "b": {"error_pct": 0.5}}, treatments=ways)
    found = policy_of(tight, CHANNEL, learned(), LOAD, part).decide(NAMES)
    by_name = {way.attribute: way for way in found.ways}
    assert by_name["a"].way == "keep" or by_name["a"].precision == 0
    assert by_name["b"].way == "keep"
    assert by_name["c"].way != "keep"
    assert by_name["c"].precision == 1
