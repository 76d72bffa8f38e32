"""The evidence's own arithmetic, and the names of its figures, on one small stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from evidence.attributes.contestants import contestants_of, rule_result, score_windows, thesis_settings
from evidence.attributes.figures import PARTS, figures_by_part, part_name
from evidence.attributes.generated import Source
from evidence.attributes.hits import figures_of, hits, plan_figures, row_of
from evidence.attributes.lab import Lab
from evidence.attributes.nine_streams import train_and_shed
from evidence.attributes.precision import Point, best_accuracy, least_bytes, precision
from evidence.attributes.predictors import predictors
from evidence.attributes.rankings import at_bytes
from evidence.attributes.single_treatments import (
    contestants,
    run_as_in_paper,
    run_with_fewest_bytes,
    single_treatments,
)
from evidence.attributes.summary import original_and_recovered, summary
from evidence.attributes.targets import OF_CAPACITIES, OVERALL, PER_STREAM, targets
from evidence.attributes.thresholds import ERRORS_PCT, share_at, shares_at
from evidence.attributes.variants import with_error, with_thesis_ranking
from evidence.book import Book
from spillway.levers.attributes.settings import AttributeSettings
from spillway.levers.attributes.window_planner import WindowRanking

pytestmark = pytest.mark.long  # the figures of `make evidence`, not the product

GOLDEN = Path(__file__).parents[1] / "golden"
WEATHER = (
    "City",
    "Temperature",
    "Dew Point",
    "Humidity",
    "Wind",
    "Visibility",
    "Barometer",
    "Pressure",
    "UV Index",
)
NAMES = ("Router", "Current Index", "Response Time", "Packet Loss", "Minimum Delay")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    # at this share rounding is not enough: attributes are shed too
    made = train_and_shed(Source("a.net", "internet", NAMES, 24), cycles=100, seed=2, share=0.4)
    yield made
    made.lake.forget()


def test_the_plan_is_no_dearer_than_any_single_way_that_fits(lab: Lab) -> None:
    fitting = [one for one in contestants(lab).values() if lab.kbps(one.wire_bytes) <= lab.capacity_kbps]
    assert fitting
    # options are measured on the training tuples: on later ones the order may turn by a little
    assert run_with_fewest_bytes(lab).net_bytes <= 1.02 * min(one.net_bytes for one in fitting)


def test_the_papers_way_rounds_nothing_and_fits(lab: Lab) -> None:
    found = run_as_in_paper(lab)
    assert all(not one.rounded_values for one in found.certificates.values())
    assert found.violations == 0
    assert lab.kbps(found.wire_bytes) <= lab.capacity_kbps


def test_rankings_are_compared_at_exactly_the_same_bytes(lab: Lab) -> None:
    everything = sum(lab.column_bytes.values())
    target = lab.fixed_bytes + 0.5 * everything
    for order in (list(lab.measures), list(reversed(lab.measures))):
        found = at_bytes(lab, order, target)
        assert found.wire_bytes == pytest.approx(target)
        assert found.mean_error_pct > 0


def test_every_rule_is_judged_on_the_same_windows_by_what_was_in_force_on_them(lab: Lab) -> None:
    found = {one.rule: one for one in contestants_of(lab)}
    windows = sum(run.windows for run in lab.plan.runs)
    assert {one.all.windows for one in found.values()} == {windows}
    assert {one.training.windows + one.later.windows for one in found.values()} == {windows}
    assert found["never"].all.evaluations == 0
    assert found["always"].all.evaluations == windows
    assert found["fixed"].all.evaluations == found["algorithm_2"].all.evaluations
    for one in found.values():
        assert (one.all.hits == windows) == (one.all.regret_points == 0.0)
        assert one.all.hits == one.training.hits + one.later.hits


def test_the_yardstick_is_going_from_window_to_window_by_hand(lab: Lab) -> None:
    looks = lab.watched_plan(**thesis_settings(), measures_pct=50.0).looks
    always = lab.watched_plan(
        **thesis_settings(), measures_pct=50.0, evaluate_at=frozenset(range(10**4))
    ).looks
    assert [look.scores for look in always] == [look.scores for look in looks]
    options = lab.learned.options
    for before, look in pairwise(always):
        assert look.in_force == before.fresh  # what a window shows is in force on the next
    for one in (looks, always):
        off, extra = 0, 0.0
        for look in one:
            order = sorted(look.scores, key=lambda name: look.scores[name])
            weight = {name: (order.index(name) + 1) / len(order) for name in order}
            lost = [sum(100 * weight[n] for n in which) / len(order) for which in (look.in_force, look.fresh)]
            off += look.in_force != look.fresh
            extra += max(0.0, lost[0] - lost[1])
        judged = score_windows(one, options)
        assert judged.hits == len(one) - off
        assert judged.regret_points == pytest.approx(extra / len(one))


def test_a_rule_that_never_changes_its_mind_does_not_hit_always() -> None:
    made = train_and_shed(Source("d.net", "weather", WEATHER, 8), cycles=600, seed=0)
    found = {one.rule: one.all for one in contestants_of(made)}
    made.lake.forget()
    assert len({rule.hits for rule in found.values()}) > 1
    # windows of this stream differ by chance: who adopts each of them is off more often than who adopts none
    assert found["always"].hits < found["never"].hits < found["never"].windows
    assert found["always"].regret_points > 0


def test_models_held_to_another_bound_keep_their_guarantee(lab: Lab) -> None:
    held = {name: with_error(model, 2.0) for name, model in lab.models.items()}
    found = lab.run_everywhere(dict.fromkeys(lab.measures, "shed"), held)
    assert found.violations == 0
    assert max(one.max_error_pct for one in found.shed.values()) <= 2.0


def test_a_wider_bound_stores_no_more_of_the_last_value(lab: Lab) -> None:
    shares = []
    for error in (0.5, 5.0, 50.0):
        held = {name: with_error(model, error) for name, model in lab.paper_models().items()}
        shares.append(
            lab.run_everywhere({"Response_Time": "shed"}, held).shed["Response_Time"].stored_share_pct
        )
    assert shares == sorted(shares, reverse=True)


def test_the_errors_beside_an_accuracy_are_found_without_trying_all() -> None:
    tried = []

    def measure(error: float) -> tuple[float, float]:
        tried.append(error)
        return 100.0 - error, 100.0 / (1.0 + error)

    wanted = [share_at([(100.0 - e, 100.0 / (1.0 + e)) for e in ERRORS_PCT], a) for a in (90, 97.2, 99)]
    assert shares_at(measure, (90, 97.2, 99)) == wanted
    assert len(tried) == len(set(tried)) < len(ERRORS_PCT)


def test_shares_between_measured_accuracies_are_interpolated_and_never_extrapolated() -> None:
    points = [(99.0, 40.0), (97.0, 20.0)]
    assert share_at(points, 98.0) == 30.0
    assert share_at(points, 90.0) == 20.0
    assert share_at(points, 99.9) == 40.0


def test_the_figures_have_the_names_that_others_look_for(lab: Lab) -> None:
    book = Book(lambda _: None)
    labs = {"net": lab}
    found = summary(book, labs, GOLDEN)
    original_and_recovered(book, lab)
    found |= hits(book, labs, GOLDEN)
    found |= predictors(book, labs)
    found |= precision(book, labs)
    found |= single_treatments(book, labs)
    found |= targets(book, found, ["net"])
    # all windows of this stream ask for one treatment: no rule can miss, and no hits are a figure
    assert found["attributes.treatments_asked.net"] == 1
    for name in (
        "recovery_accuracy_pct",
        "stored_share_pct",
    ):
        assert 0.0 <= found[f"attributes.{name}.net"] <= 100.0
    assert lab.plan.shed
    for attribute in lab.plan.shed:
        assert 0.0 < found[f"attributes.stored_bytes_over_last_value.net.{attribute}"] <= 1.1
        assert 0.0 < found[f"attributes.synopsis_over_column_bytes.net.{attribute}"] < 1.0
    assert found["attributes.net_bytes_over_best_single_way.net"] <= 1.02
    assert found["attributes.violations"] == 0
    assert "Figure 4.4: a_net" in book.page(found)


def test_a_missed_target_is_said_with_its_reason() -> None:
    book = Book(lambda _: None)
    figures = {
        "attributes.recovery_accuracy_pct_mean": 98.0,
        "attributes.best_accuracy_pct_at_0.7_of_last_value": 98.51,
        "attributes.violations": 0.0,
    }
    assert targets(book, figures, []) == {
        "attributes.targets": 1,
        "attributes.targets_met": 0,
        "attributes.targets_vacuous": 0,
        "attributes.promises": 1,
        "attributes.promises_kept": 1,
    }
    assert "98.51 % is the most" in book.page(figures)


def test_target_that_a_rule_doing_nothing_reaches_is_not_counted_as_met() -> None:
    """Ranked by nothing: as good as the best ranking on the first stream, and twice its error on the second."""
    figures = {
        "attributes.error_over_best_ranking.one.hold.25": 1.0,
        "attributes.random_over_best_ranking.one.hold.25": 1.0,
        "attributes.error_over_best_ranking.two.hold.25": 1.0,
        "attributes.random_over_best_ranking.two.hold.25": 2.0,
        "attributes.recovery_accuracy_pct.one": 100.0,
        "attributes.shed_attributes.one": 0.0,
        "attributes.recovery_accuracy_pct.two": 99.9,
        "attributes.shed_attributes.two": 3.0,
    }
    found = targets(Book(lambda _: None), figures, ["one", "two"])
    assert (found["attributes.targets"], found["attributes.targets_met"]) == (2, 2)
    assert found["attributes.targets_vacuous"] == 2


def test_no_target_is_reached_by_the_value_that_its_own_idle_rule_has() -> None:
    for one in (*OVERALL, *PER_STREAM, *OF_CAPACITIES):
        if isinstance(one.idle, int | float):
            assert not one.met(one.idle), one.figure


def test_the_best_accuracy_never_spends_more_than_allowed() -> None:
    offers = {"a": [Point(0.2, 90.0), Point(1.0, 99.0), Point(3.0, 99.9)], "b": [Point(0.4, 99.0)]}
    weights = {"a": 0.5, "b": 0.5}
    # every choice by hand: a at 0.2 or 1.0 (3.0 is above the last value's bytes), b as it is
    assert best_accuracy(offers, weights, None) == (99.0, pytest.approx(0.7))
    assert best_accuracy(offers, weights, 0.65) == (94.5, pytest.approx(0.3))
    assert least_bytes(offers, weights, 98.0) == pytest.approx(0.7)
    assert least_bytes(offers, weights, 99.5) is None


def test_every_figure_of_recovery_is_told_for_training_and_for_later_tuples_apart(lab: Lab) -> None:
    book = Book(lambda _: None)
    found = figures_by_part(book, {"net": lab}, GOLDEN)
    names = {part: {name for name in found if name.startswith(f"attributes.{part}.")} for part in PARTS}
    assert {part_name(name) for name in names["training"]} == {part_name(name) for name in names["later"]}
    assert len(names["later"]) > 30
    assert set(found) == names["training"] | names["later"]
    assert found["attributes.later.violations"] == 0
    assert (
        found["attributes.later.recovery_accuracy_pct.net"]
        != found["attributes.training.recovery_accuracy_pct.net"]
    )
    assert "over training batches and over later ones" in book.page(found)


def looked(*fresh: dict[str, str]) -> list[WindowRanking]:
    scores = {"Response_Time": 1.0, "Packet_Loss": 2.0}
    return [WindowRanking(n, n, scores, fresh[0], one, evaluated=n == 0) for n, one in enumerate(fresh)]


def test_hits_where_no_rule_can_miss_are_no_figure(lab: Lab) -> None:
    """Never to change is right on a stream whose windows all ask for one treatment: that says nothing of a rule."""
    this, other = {"Response_Time": "shed/0"}, {"Packet_Loss": "shed/0"}
    steady = rule_result(lab, "plan", looked(this, {"Response_Time": "shed/1"}, this))
    moving = rule_result(lab, "plan", looked(this, other, this))
    assert (steady.all.hits_pct, steady.treatments_asked, moving.treatments_asked) == (100.0, 1, 2)
    assert plan_figures("net", steady) == {"attributes.plan_treatments_asked.net": 1}
    assert plan_figures("net", moving)["attributes.plan_hits_own_ranking_pct.net"] == pytest.approx(200 / 3)
    assert figures_of("net", [steady, steady]) == {"attributes.treatments_asked.net": 1}
    found = figures_of("net", [replace(moving, rule="ours"), replace(moving, rule="algorithm_2")])
    assert found["attributes.hits_own_ranking_pct.net"] == pytest.approx(200 / 3)
    assert row_of("net", steady)[4:] == (*(None,) * 6, 1)


def test_evidence_says_by_which_ranking_it_compares(lab: Lab) -> None:
    """The lever's default gives every window one ranking, so the comparison is by the thesis's, and says so."""
    (entry,) = with_thesis_ranking(lab.contract).levers
    assert entry.settings == AttributeSettings(rank_by="stddev") != AttributeSettings()
    book = Book(lambda _: None)
    hits(book, {"net": lab}, GOLDEN)
    page = book.page({})
    assert "the ranking is by deviation, as in the thesis" in page
    assert "Figure 4.3" not in page, "in the thesis that figure shows deviations"
