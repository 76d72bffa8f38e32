"""What a ranking leads to: the choice against trying everything, the two stages, observing, and the sentences."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.contracts import StreamContract, read_channel, read_stream
from spillway.levers.attributes.capacity.treatments import UNTRIED, Objective, choose_treatments
from spillway.levers.attributes.cycle.identifier import declared_cycle
from spillway.levers.attributes.facts import TrainedFacts
from spillway.levers.attributes.option import Option
from spillway.levers.attributes.policy import (
    DecisionInputs,
    decide,
    decide_stages,
    decision_inputs,
    own_settings,
    policy_of,
    prefix_alternatives,
    smoothing_of,
    tuples_in_window,
)
from spillway.levers.attributes.ranking.smoothing import Smoothing
from spillway.levers.attributes.settings import AttributeSettings, Reevaluate, WindowLength
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.protocol import CapacityShare, Load, Offer
from spillway.streams.capacity import divide_channel

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


def choosing_of(costs: Mapping[str, Sequence[float]], **settings: Any) -> DecisionInputs:
    """What a decision rests on: these options, all of one priority."""
    stated = AttributeSettings(**{"rank_by": "stddev", **settings})
    return DecisionInputs(
        stated, options(costs), load(costs), Objective("error", stated.synopsis, stated.treatments)
    )


@given(costs_of_all, st.integers(1, 140), st.permutations(NAMES))
def test_the_choice_loses_least_of_all_that_fits_by_priority_and_place(
    costs: dict[str, tuple[float, float, float]], capacity_bytes: int, ranking: list[str]
) -> None:
    priorities = {"a": 4.0, "b": 1.0, "c": 2.5}
    rests_on = replace(choosing_of(costs, synopsis="send"), priorities=priorities)
    found = decide(rests_on, capacity_bytes * 8.0, ranking)
    tried: list[tuple[float, float]] = []
    for allowed in (("keep", "round", "shed"), ("keep", "round", "shed", "held")):
        for combination in itertools.product(allowed, repeat=3):
            crosses, lost = 2.0, 0.0
            for name, way in zip(NAMES, combination, strict=True):
                kept, rounded, stored = costs[name]
                if (way == "round" and rounded >= kept) or (way in ("shed", "held") and stored >= kept):
                    break  # it saves nothing
                crosses += {"keep": kept, "round": rounded, "shed": stored, "held": 0.0}[way]
                worth = priorities[name] * (ranking.index(name) + 1) / 3
                lost += {"keep": 0.0, "round": 0.5, "shed": 0.3, "held": 100.0}[way] * worth
            else:
                tried.append((crosses, lost))
        fitting = [lost for crosses, lost in tried if crosses <= capacity_bytes]
        if fitting:  # what is to be sent stays only where nothing else fits
            break
    if fitting:
        assert found.loss == pytest.approx(min(fitting))
        assert found.planned_kbps <= capacity_bytes * 8.0 + 1e-9
        assert found.shortfall_kbps == 0
    else:
        least = min(crosses for crosses, _ in tried)
        assert found.planned_kbps == pytest.approx(least * 8.0)
        assert found.shortfall_kbps == pytest.approx((least - capacity_bytes) * 8.0)


def test_what_always_travels_is_taken_off_first() -> None:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    rests_on = choosing_of(costs)
    around = replace(rests_on, load=replace(rests_on.load, fixed_kbps=40.0))
    assert decide(around, 256.0, NAMES).scheme == ()
    assert decide(around, 255.0, NAMES).scheme != ()
    assert decide(rests_on, 216.0, NAMES).scheme == ()


def test_a_batch_of_which_a_lever_before_kept_no_tuple_is_planned() -> None:
    """What is around its rows may take more than the capacity."""
    rests_on = choosing_of(dict.fromkeys(NAMES, (10.0, 4.0, 2.0)))
    rests_on = replace(rests_on, load=replace(rests_on.load, tuples_per_second=0.0, fixed_kbps=5.0))
    found = decide(rests_on, 1.0, NAMES)
    assert found.planned_kbps == pytest.approx(5.0)
    assert found.shortfall_kbps == pytest.approx(4.0)


def test_a_ranking_by_what_shedding_saves_has_no_say_in_what_an_attribute_is_worth() -> None:
    costs = dict.fromkeys(NAMES, (10.0, 4.0, 2.0))
    assert choosing_of(costs).worths(("c", "a", "b")) == pytest.approx({"c": 1 / 3, "a": 2 / 3, "b": 1.0})
    assert choosing_of(costs, rank_by="recoverability").worths(("c", "a", "b")) == dict.fromkeys(NAMES, 1.0)


@pytest.mark.parametrize(
    ("ways", "room_bytes", "way", "place"),
    [
        (("keep", "shed"), 14, "shed", 0),
        (("keep", "shed"), 9, "shed", 1),
        (("keep", "round"), 14, "round", 1),
        (("keep", "round", "shed"), 14, "shed", 0),
        (("keep",), 14, "keep", 0),
    ],
)
def test_the_scheme_says_which_precision_was_chosen(
    ways: tuple[str, ...], room_bytes: int, way: str, place: int
) -> None:
    offered = {
        "a": [
            Option("a", "keep", 30.0),
            *(Option("a", "round", 20.0 - 8 * at, 0.0, at, precision=at) for at in range(3)),
            *(Option("a", "shed", 0.0, 13.0 - 8 * at, 0.1 + at, precision=at) for at in range(2)),
        ]
    }
    terms = Objective(synopsis="send", ways=ways)
    rests_on = DecisionInputs(
        own_settings(contract()), offered, Load({"key": 8.0, "a": 240.0}, 1000.0), terms
    )
    found = decide(rests_on, 8.0 + 8.0 * room_bytes, ["a"])
    assert [(one.way, one.precision) for one in found.ways] == [(way, place)]
    assert (found.shortfall_kbps > 0) == (ways == ("keep",))


def test_a_choice_says_what_it_did_in_a_sentence() -> None:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    rests_on = choosing_of(costs)

    def said(capacity_kbps: float) -> str:
        return decide(rests_on, capacity_kbps, NAMES).reason

    assert said(300.0) == "216 kbps into 300: keep everything, 216 kbps planned"
    assert said(200.0) == "216 kbps into 200: send synopses of a, 152 kbps planned"
    assert said(140.0) == "216 kbps into 140: send synopses of a, c, 120 kbps planned"
    assert said(112.0) == "216 kbps into 112: round b and send synopses of a, c, 112 kbps planned"
    assert said(90.0) == "216 kbps into 90: round b and shed a, c, 88 kbps planned"
    assert said(80.0) == (
        "216 kbps into 80: round b and shed a, c, 88 kbps planned; 8 kbps too much remain, nothing more may be shed"
    )


def test_the_text_sheds_the_shortest_prefix_of_the_ranking_and_holds_its_synopses() -> None:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    rests_on = choosing_of(costs, plan="prefix")
    found = decide(rests_on, 140.0, ("b", "a", "c"))
    assert found.scheme == ("b",)
    assert not any(way.sent for way in found.ways)
    assert found.planned_kbps == pytest.approx(136.0)


def test_equation_3_9_counts_exactly_from_the_channel_to_the_shed_attributes() -> None:
    """Rates of 64 and 26 kbps into 60, 6 attributes each: a third of the rate, so 2 and 2; a float's last bit gave 3.

    A share is pinned in `batches` as a double, and `seq` travels but is no attribute.
    """
    channel = read_channel("up", {"capacity": "60 kbps", "divide_by": "proportional"})
    names = tuple("abcd")
    loads = {
        "x": Load({"seq": 10.0, "key": 9.0, "at": 9.0, **dict.fromkeys(names, 9.0)}, 1000.0),
        "y": Load({"seq": 2.0, "key": 4.0, "at": 4.0, **dict.fromkeys(names, 4.0)}, 1000.0),
    }
    assert {stream: load.rate_kbps for stream, load in loads.items()} == {"x": 64.0, "y": 26.0}
    shares = divide_channel(channel, {stream: Offer(load.rate_kbps, load) for stream, load in loads.items()})
    settings = AttributeSettings(plan="prefix", fit="count")
    for stream, load in loads.items():
        ways = {
            name: [Option(name, way, 1.0, load.widths_bits[name] / 8.0) for way in ("keep", "shed")]
            for name in names
        }
        stored = struct.unpack("<d", struct.pack("<d", shares[stream]))[0]
        found = decide_stages(DecisionInputs(settings, ways, load), CapacityShare(stored), names)
        assert found.scheme == ("a", "b"), stream


def test_second_stage_counts_the_attributes_that_enter_the_trunk() -> None:
    """Equation 3.9 at the trunk: 6 attributes, 2 shed before it, and of the 4 that are left a quarter."""
    names = tuple("abcd")
    load = Load({"key": 8.0, "at": 8.0, **dict.fromkeys(names, 8.0)}, 1000.0)
    ways = {name: [Option(name, way, 1.0, 1.0) for way in ("keep", "shed")] for name in names}
    rests_on = DecisionInputs(AttributeSettings(plan="prefix", fit="count"), ways, load)
    found = decide_stages(rests_on, CapacityShare(32.0, 24.0), names)
    assert {way.attribute: way.stage for way in found.ways if way.way == "shed"} == {"a": 1, "b": 1, "c": 2}


@given(costs_of_all, st.permutations(NAMES), st.integers(1, 30))
def test_the_channel_is_offered_every_prefix_that_the_text_may_shed(
    costs: dict[str, tuple[float, float, float]], ranking: list[str], capacity_bytes: int
) -> None:
    rests_on = choosing_of(costs, plan="prefix")
    offered = prefix_alternatives(rests_on, ranking)
    assert len(offered) == 4
    found = decide(rests_on, capacity_bytes * 8.0, ranking)
    at = len(found.scheme)
    if set(found.scheme) == set(ranking[:at]):  # what was not needed after all is given back
        assert found.planned_kbps == pytest.approx(offered[at].crosses + 16.0)
    assert [one.crosses for one in offered] == sorted((one.crosses for one in offered), reverse=True)


def test_a_stream_without_measures_says_what_is_too_much() -> None:
    nothing = decide(DecisionInputs(AttributeSettings(), {}, Load({"key": 8.0}, 1000.0)), 6.0, ())
    assert (nothing.ways, nothing.shortfall_kbps) == ((), 2.0)
    assert nothing.reason.endswith("2 kbps too much remain, nothing more may be shed")


@given(costs_of_all, st.integers(3, 140), st.integers(3, 140), st.sampled_from(["prefix", "least_loss"]))
def test_both_stages_are_planned_and_what_the_own_channel_left_alone_is_the_trunks(
    costs: dict[str, tuple[float, float, float]], own: int, trunk: int, plan: str
) -> None:
    part, rests_on = CapacityShare(own * 8.0, trunk * 8.0), choosing_of(costs, plan=plan)
    first = decide(rests_on, part.own_kbps, NAMES)
    both = decide_stages(rests_on, part, NAMES)
    was, now = ({way.attribute: way for way in found.ways} for found in (first, both))
    if plan == "prefix":
        assert all(now[name].way == was[name].way for name in first.scheme)
        assert all(now[name].stage == 2 for name in set(both.scheme) - set(first.scheme))
    else:
        narrower = decide(rests_on, part.narrower_kbps, NAMES)
        assert [way.treatment for way in both.ways] == [way.treatment for way in narrower.ways]
        for name, way in now.items():
            assert way.stage == (1 if way.way == "keep" or way.treatment == was[name].treatment else 2)
    if not both.shortfall_kbps:
        assert both.planned_kbps <= part.trunk_kbps + 1e-9


def test_the_trunks_part_of_the_reason_is_named() -> None:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    assert "; trunk: " in decide_stages(choosing_of(costs), CapacityShare(140.0, 60.0), NAMES).reason


CHANNEL = read_channel("up", {"capacity": "100 kbps"})


def test_bytes_that_came_out_otherwise_are_believed_the_next_time() -> None:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    paid = {"a": {"shed": 6.0, "shed/0": 6.0}, "b": {"round": 0.5, "round/0": 0.5, "shed": 2.0}}
    plain, after = (
        decision_inputs(contract(), CHANNEL, learned(), load(costs), NAMES, known).measured_options
        for known in (None, paid)
    )
    assert [one.bytes_per_tuple for one in plain["a"]] == [10.0, 4.0, 2.0]
    # what was not tried in this precision goes by its way, and is expected to take a little more
    assert [one.bytes_per_tuple for one in after["a"]] == pytest.approx([10.0, 4.0 * UNTRIED, 12.0])
    assert [one.bytes_per_tuple for one in after["b"]] == pytest.approx([10.0, 4.5, 24.0 * UNTRIED])
    policy = policy_of(contract(), CHANNEL, learned(), load(costs), CapacityShare(160.0), paid=paid)
    assert "shed" not in {way.way for way in policy.decide(NAMES).ways if way.attribute == "a"}


@pytest.mark.parametrize("minimize", ["error", "bytes"])
@pytest.mark.parametrize("kept", [0.001, 0.4, 2.0])
def test_column_that_takes_at_most_its_synopsis_is_kept_exact(minimize: str, kept: float) -> None:
    """A synopsis does not shrink because Parquet encodes a column well: `a` was trained at 10, 4 and 2 bytes."""
    channel = replace(CHANNEL, minimize=minimize)
    found = load({"a": (kept, 0, 0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)})
    for capacity_kbps in (200.0, 100.0, 60.0, 30.0, 10.0, 1.0):
        policy = policy_of(contract(), channel, learned(), found, CapacityShare(capacity_kbps))
        assert {way.way for way in policy.decide(NAMES).ways if way.attribute == "a"} == {"keep"}


@pytest.mark.parametrize("minimize", ["error", "bytes"])
def test_options_that_still_pay_are_scaled_to_the_batch(minimize: str) -> None:
    """At 3 bytes the column takes less than rounding did in training, so that only the synopsis of 2 bytes is left."""
    channel = replace(CHANNEL, minimize=minimize)
    found = load({"a": (3.0, 0, 0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)})
    offered = decision_inputs(contract(), channel, learned(), found, NAMES).offered_options["a"]
    assert [(one.way, one.bytes_per_tuple) for one in offered] == [
        ("keep", 3.0),
        ("shed", pytest.approx(0.6)),
    ]
    wide = load({"a": (30.0, 0, 0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)})
    offered = decision_inputs(contract(), channel, learned(), wide, NAMES).offered_options["a"]
    assert [one.bytes_per_tuple for one in offered] == pytest.approx([30.0, 12.0, 6.0])


def test_option_that_was_measured_smaller_than_in_training_is_offered() -> None:
    narrow = load({"a": (2.0, 0, 0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)})
    paid = {"a": {"shed": 0.5, "shed/0": 0.5}}
    offered = decision_inputs(contract(), CHANNEL, learned(), narrow, NAMES, paid).offered_options["a"]
    assert [(one.way, one.bytes_per_tuple) for one in offered] == [
        ("keep", 2.0),
        ("shed", pytest.approx(0.2)),
    ]


def test_prefix_rule_sheds_its_prefix_also_if_the_synopsis_is_larger() -> None:
    """`plan: prefix` is the thesis's rule; its synopses stay at the source."""
    found = load({"a": (0.4, 0, 0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)})
    policy = policy_of(contract(plan="prefix"), CHANNEL, learned(), found, CapacityShare(138.0))
    assert "a" in policy.decide(("a", "b", "c")).scheme


@given(
    st.floats(0.01, 20.0),
    st.lists(st.tuples(st.floats(0.01, 20.0), st.floats(0.01, 5.0)), min_size=1, max_size=4),
    st.sampled_from(["error", "bytes"]),
    st.sampled_from(["auto", "send"]),
    st.floats(0.0, 25.0),
)
def test_dominated_option_is_never_chosen(
    kept: float, others: list[tuple[float, float]], minimize: str, synopsis: str, room: float
) -> None:
    """No option is chosen if another one sends no more, has no more error and takes no more bytes in total."""
    every = [Option("a", "keep", kept)]
    for at, (size, error) in enumerate(sorted(others, key=lambda one: one[1])):
        every.append(
            Option("a", "round", size, 0.0, error, precision=at)
            if at % 2
            else Option("a", "shed", 0.0, size, error, precision=at)
        )
    found = choose_treatments({"a": every}, {"a": 1.0}, room, Objective(minimize, synopsis)).ways["a"]
    if found.option.way == "shed" and not found.sent:
        assert found.option.synopsis_bytes_per_tuple < kept
        return
    for other in every:
        no_worse = (other.bytes_per_tuple, other.mean_error_pct) <= (found.crossing_bytes, found.loss)
        no_worse = no_worse and other.mean_error_pct <= found.loss
        assert not (
            no_worse and (other.bytes_per_tuple, other.mean_error_pct) != (found.crossing_bytes, found.loss)
        )


def test_priority_class_and_contract_weigh_together() -> None:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    stated = replace(contract(), priority=2.0)
    dear = tuple(replace(a, priority=3.0) if a.name == "b" else a for a in stated.attributes)
    known = replace(learned(), category={"criticality": "low"})
    found = decision_inputs(replace(stated, attributes=dear), CHANNEL, known, load(costs), NAMES)
    low = 20.33 / 13.5
    assert found.priorities == pytest.approx({"a": 2 * low, "b": 6 * low, "c": 2 * low})


def learned() -> TrainedFacts:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    cycle = declared_cycle({"key": ["x", "y"] * 4, "at": list(range(8))}, list(range(8)), ["key"], order="at")
    models = {name: AttributeModel(name, "real", error_pct=2.0) for name in NAMES}
    ranking = {"b": 0.1, "c": 0.5, "a": 0.9}
    return TrainedFacts(1, cycle, models, {n: tuple(o) for n, o in options(costs).items()}, {}, ranking)


def test_an_observed_stream_keeps_everything_and_says_what_would_go() -> None:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    policy = policy_of(contract(mode="observe"), CHANNEL, learned(), load(costs), CapacityShare(100.0))
    found = policy.decide(NAMES)
    assert found.scheme == ()
    assert found.reason.startswith("observed only: 216 kbps into 100")
    assert found.shortfall_kbps == pytest.approx(116.0)
    assert any(way.reason.startswith("observed only: would be shed") for way in found.ways)


def test_the_planner_aims_at_the_share_it_is_told() -> None:
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0), "c": (5.0, 5.0, 1.0)}
    full, half = (
        policy_of(contract(plan="prefix"), CHANNEL, learned(), load(costs), CapacityShare(180.0), aim)
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


@pytest.mark.parametrize(("rank_by", "ranking"), [("stddev", ["b", "a"]), ("recoverability", ["a", "b"])])
def test_an_attribute_that_the_contract_protects_since_training_is_not_planned_with(
    rank_by: str, ranking: list[str]
) -> None:
    """The first ranking is by the rule that the contract has now; recoverability follows from the options."""
    stated = contract(rank_by=rank_by)
    kept = [a for a in stated.attributes if a.name != "c"]
    without = replace(stated, attributes=tuple(kept))
    costs = {"a": (10.0, 4.0, 2.0), "b": (10.0, 9.0, 12.0)}
    policy = policy_of(without, CHANNEL, learned(), load(costs), CapacityShare(10.0))
    assert policy.attributes == ("a", "b")
    assert [name for name, _ in policy.trained_ranking] == ranking


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
    }
    asked = Reevaluate(**stated)
    found = own_settings(contract(reevaluate=stated)).reevaluate
    assert found == asked
