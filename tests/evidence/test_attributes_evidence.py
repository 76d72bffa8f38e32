"""The evidence's own arithmetic: what is measured column by column is what the planner's frames do as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from evidence.attributes.generated import Source, generated
from evidence.attributes.hits import by_ranking, followed, hits, window_scores
from evidence.attributes.lab import Lab, with_error
from evidence.attributes.precision import Point, best_accuracy, least_bytes, precision
from evidence.attributes.predictors import predictors
from evidence.attributes.rankings import at_bytes
from evidence.attributes.shedding import Shed, shed_fixed, shed_planned
from evidence.attributes.single_ways import contestants, single_ways
from evidence.attributes.summary import summary
from evidence.attributes.targets import targets
from evidence.attributes.thresholds import share_at
from evidence.attributes.trained import load_of, paper_models, train
from evidence.book import Book
from spillway.levers.attributes.ranking.reevaluation import Reevaluation

GOLDEN = Path(__file__).parents[1] / "golden"
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
    # predictors that read a rounded or a recovered column read other values than they do alone: last value reads none
    models = paper_models(lab.facts)
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


def test_the_figures_have_the_names_that_others_look_for(lab: Lab, plan: Shed, capacity: float) -> None:
    book = Book(lambda _: None)
    labs, done, capacities = {"net": lab}, {"net": plan}, {"net": capacity}
    found = summary(book, labs, done, capacities, GOLDEN)
    found |= hits(book, {"net": lab.stream}, {"net": lab.facts}, capacities, done, GOLDEN)
    found |= predictors(book, labs, done)
    found |= precision(book, labs, done)
    found |= single_ways(book, labs, capacities, done)
    found |= targets(book, found, ["net"])
    for name in ("hits_pct", "evaluations_over_windows_pct", "recovery_accuracy_pct", "stored_share_pct"):
        assert 0.0 <= found[f"attributes.{name}.net"] <= 100.0
    for attribute in plan.certificates:
        assert 0.0 < found[f"attributes.stored_bytes_over_last_value.net.{attribute}"] <= 1.1
        assert 0.0 < found[f"attributes.synopsis_over_column_bytes.net.{attribute}"] < 1.0
    assert found["attributes.net_bytes_over_best_single_way.net"] <= 1.02
    assert found["attributes.violations"] == 0
    assert "Figure 4.4: net" in book.page(found)


def test_a_missed_target_is_said_with_its_reason() -> None:
    book = Book(lambda _: None)
    figures = {
        "attributes.recovery_accuracy_pct_mean": 98.0,
        "attributes.best_accuracy_pct_at_0.7_of_last_value": 98.51,
        "attributes.violations": 0.0,
    }
    assert targets(book, figures, []) == {"attributes.targets": 2, "attributes.targets_met": 1}
    assert "98.51 % is the most" in book.page(figures)


def test_the_best_accuracy_never_spends_more_than_allowed() -> None:
    offers = {"a": [Point(0.2, 90.0), Point(1.0, 99.0), Point(3.0, 99.9)], "b": [Point(0.4, 99.0)]}
    weights = {"a": 0.5, "b": 0.5}
    # every choice by hand: a at 0.2 or 1.0 (3.0 is above the last value's bytes), b as it is
    assert best_accuracy(offers, weights, None) == (99.0, pytest.approx(0.7))
    assert best_accuracy(offers, weights, 0.65) == (94.5, pytest.approx(0.3))
    assert least_bytes(offers, weights, 98.0) == pytest.approx(0.7)
    assert least_bytes(offers, weights, 99.5) is None
