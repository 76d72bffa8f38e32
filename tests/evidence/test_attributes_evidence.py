"""The evidence's own arithmetic: what is measured column by column is what the planner's frames do as a whole."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spillway.attributes.scheme import Reevaluation
from spillway.evidence.attributes_generated import Source, generated
from spillway.evidence.attributes_hits import by_ranking, followed, window_scores
from spillway.evidence.attributes_lab import Lab, with_error
from spillway.evidence.attributes_rankings import at_bytes
from spillway.evidence.attributes_shedding import Shed, shed_fixed, shed_planned
from spillway.evidence.attributes_single_ways import contestants
from spillway.evidence.attributes_thresholds import share_at
from spillway.evidence.attributes_trained import load_of, paper_models, train

NAMES = ("Router", "Current Index", "Response Time", "Packet Loss", "Minimum Delay")


@pytest.fixture(scope="module")
def lab() -> Lab:
    stream = generated(Source("a.net", "internet", NAMES, 24), cycles=100, seed=2)
    return Lab(stream, train(stream, _capacity_of(stream)))


def _capacity_of(stream: object) -> float:
    return 0.6 * max(load_of(stream, d).rate_kbps for d in stream.deliveries)  # type: ignore[attr-defined, arg-type]


@pytest.fixture(scope="module")
def capacity(lab: Lab) -> float:
    return _capacity_of(lab.stream)


@pytest.fixture(scope="module")
def plan(lab: Lab, capacity: float) -> Shed:
    return shed_planned(lab.stream, lab.facts, capacity)


@pytest.mark.parametrize(
    "ways",
    [
        {"Response_Time": "shed"},
        {"Response_Time": "shed", "Minimum_Delay": "shed", "Current_Index": "shed", "Packet_Loss": "shed"},
        {"Minimum_Delay": "round", "Packet_Loss": "shed"},
    ],
    ids=["one", "all", "mixed"],
)
def test_columns_weighed_alone_add_up_to_the_scheme_run_as_a_whole(lab: Lab, ways: Mapping[str, str]) -> None:
    # predictors that read a rounded column read other values: last value, which reads none, is compared there
    models = paper_models(lab.facts) if "round" in ways.values() else dict(lab.facts.models)
    models = {n: m if ways.get(n) != "round" else lab.facts.models[n] for n, m in models.items()}
    whole = shed_fixed(lab.stream, lab.facts, ways, models)
    added = lab.weigh(ways, models)
    assert added.wire_bytes == whole.wire_bytes
    assert added.synopsis_bytes == sum(whole.synopsis_bytes.values())


def test_the_plan_fits_its_capacity_and_misses_no_bound(lab: Lab, plan: Shed, capacity: float) -> None:
    assert plan.certificates
    assert plan.violations == 0
    assert lab.kbps(plan.wire_bytes) <= capacity


def test_the_plan_is_no_dearer_than_any_single_way_that_fits(lab: Lab, plan: Shed, capacity: float) -> None:
    fitting = [one for one in contestants(lab, capacity).values() if lab.kbps(one.wire_bytes) <= capacity]
    assert fitting
    # options are measured on the training tuples: on later ones the order may turn by a little
    assert plan.net_bytes <= 1.02 * min(one.net_bytes for one in fitting)


def test_rankings_are_compared_at_exactly_the_same_bytes(lab: Lab) -> None:
    everything = sum(lab.column_bytes.values())
    target = lab.fixed_bytes + 0.5 * everything
    for order in (list(lab.measures), list(reversed(lab.measures))):
        found = at_bytes(lab, order, target)
        assert found.wire_bytes == pytest.approx(target)
        assert found.mean_error_pct > 0


def test_every_window_is_scored_once_and_looking_always_hits_always(lab: Lab, capacity: float) -> None:
    scores, policy = window_scores(lab.stream, lab.facts, capacity)
    # windows hold three cycles of 24, and each delivery of 50 cycles ends with one of two
    assert len(scores) == 34
    assert set(scores[0]) == set(policy.attributes)
    choose = by_ranking(lab.stream, capacity, "bits")
    always = followed("", Reevaluation(1, 1.0, 1, 0.0, 1, None), scores, choose)
    assert always.record.hits_pct == 100.0
    assert always.record.evaluations == len(scores)
    assert always.evaluations_for_95 <= len(scores)


def test_a_model_held_to_another_bound_keeps_its_guarantee(lab: Lab) -> None:
    for model in lab.facts.models.values():
        errors = lab.errors(with_error(model, 2.0))
        assert errors.violations == 0
        assert errors.max_error_pct <= 2.0


def test_a_wider_bound_stores_no_more_of_the_last_value(lab: Lab) -> None:
    model = paper_models(lab.facts)["Response_Time"]
    shares = [lab.errors(with_error(model, error)).stored_share_pct for error in (0.5, 5.0, 50.0)]
    assert shares == sorted(shares, reverse=True)


def test_shares_between_measured_accuracies_are_interpolated_and_never_extrapolated() -> None:
    points = [(99.0, 40.0), (97.0, 20.0)]
    assert share_at(points, 98.0) == 30.0
    assert share_at(points, 90.0) == 20.0
    assert share_at(points, 99.9) == 40.0
