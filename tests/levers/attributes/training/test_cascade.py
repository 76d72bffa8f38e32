from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.option import options_of
from spillway.levers.attributes.synopsis.model import AttributeModel, Precision, Predictor
from spillway.levers.attributes.training.cascade import train_attributes
from spillway.levers.attributes.training.search import MOST, describe, measure


def market(rows=2400, keys=4, seed=11):
    """Quotes that relate to each other as quotes do."""
    rng = np.random.default_rng(seed)
    moves = rng.normal(0, 0.02, (rows // keys, keys))
    close = np.round(np.exp(np.cumsum(moves, 0)) * np.array([20.0, 90.0, 400.0, 55.0]), 2)
    spread = close * (1 + rng.uniform(0, 0.02, close.shape))
    columns = {
        "close": Column.real(close.ravel()),
        "high": Column.real(np.round(spread, 2).ravel()),
        "volume": Column.integer(rng.integers(10**5, 10**7, rows)),
        "state": Column.text(["open" if i % 400 else "halt" for i in range(rows)]),
    }
    return Frame(np.arange(rows), np.arange(rows) % keys, columns)


@pytest.fixture(scope="module")
def trained():
    frame = market()
    return frame, train_attributes(frame, dict.fromkeys(frame.columns, 4.7), cycle_length=4)


def test_no_model_weighs_more_than_last_value_or_breaks_its_bound(trained):
    frame, models = trained
    for attribute, result in models.items():
        facts, paper = (
            measure(result.model, frame),
            measure(AttributeModel(attribute, result.model.kind, 4.7), frame),
        )
        assert facts.packed_bytes <= paper.packed_bytes
        assert facts.violations == 0
        assert facts.max_error_pct <= 4.7
        assert result.model.bound_pct(result.model.coarsest) <= 4.7
        assert result.evidence["packed_bytes"] == facts.packed_bytes
        assert result.evidence["last_packed_bytes"] == paper.packed_bytes


def test_a_related_attribute_is_predicted_from_the_other_at_a_third_of_last_value(trained):
    _, models = trained
    evidence = models["high"].evidence
    assert models["high"].model.predictors[0].name == "regression"
    assert evidence["packed_bytes"] <= evidence["last_packed_bytes"] / 3
    assert evidence["mean_error_pct"] <= 1.0


def test_a_model_with_regressors_falls_back_when_a_scheme_sheds_them(trained):
    frame, models = trained
    model = models["high"].model
    reads = {name for predictor in model.predictors for name in predictor.regressors}
    hidden = frame.as_transmitted({name: np.ones(len(frame), np.bool_) for name in reads})
    assert reads
    assert measure(model, hidden).violations == 0


def test_text_keeps_the_papers_form(trained):
    _, models = trained
    assert models["state"].model.paper_form
    assert models["state"].evidence["packed_bytes"] == models["state"].evidence["last_packed_bytes"]


def test_every_way_and_precision_is_an_option_with_its_measured_weight(trained):
    frame, models = trained
    for result in models.values():
        keep, rounded, gone = (options_of(result.options, way) for way in ("keep", "round", "shed"))
        assert result.options == keep + rounded + gone
        assert len(keep) == 1
        assert keep[0].wire_bytes_per_tuple == pytest.approx(result.evidence["column_bytes"] / len(frame))
        assert [option.precision for option in rounded] == list(range(max(1, len(result.model.roundings))))
        assert [option.precision for option in gone] == list(range(len(result.model.precisions)))
        for place, option in enumerate(gone):
            facts = measure(result.model, frame, precision=place)
            assert option.synopsis_bytes_per_tuple == pytest.approx(facts.packed_bytes / len(frame))
            assert option.mean_error_pct == facts.mean_error_pct
            assert option.wire_bytes_per_tuple == 0


def test_the_first_precision_is_exact_and_each_next_one_trades_error_for_bytes(trained):
    _, models = trained
    for result in models.values():
        exact, *coarser = options_of(result.options, "shed")
        assert result.model.precisions[0].aim_pct == 0
        assert exact.max_error_pct == 0
        for way, first in (("shed", [exact]), ("round", [result.option("keep")])):
            options = [*first, *(coarser if way == "shed" else options_of(result.options, "round"))]
            for fine, coarse in pairwise(options):
                if coarse.reason != "rounding saves nothing":
                    assert coarse.mean_error_pct > fine.mean_error_pct
                    assert coarse.bytes_per_tuple < fine.bytes_per_tuple
    assert 4 <= len(models["high"].model.precisions) <= MOST
    assert len(models["high"].model.roundings) >= 3


def departures(rows=4000, keys=40, seed=3):
    """Times that rise slowly from row to row across all keys; few of them occur twice."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.integers(0, 80, rows)) + 500
    return Frame(np.arange(rows), rng.integers(0, keys, rows), {"time": Column.integer(times)})


def cents(rows=4000, keys=4, seed=3, finer_share=0.0):
    """Prices in cents, and some in hundredths of a cent."""
    rng = np.random.default_rng(seed)
    close = np.exp(np.cumsum(rng.normal(0, 0.02, (rows // keys, keys)), 0)) * [20.0, 90.0, 40.0, 55.0]
    prices = np.round(close.ravel(), 2)
    finer = rng.random(rows) < finer_share
    prices[finer] = np.round(prices[finer] + 0.0037, 4)
    return Frame(np.arange(rows), np.arange(rows) % keys, {"close": Column.real(prices)})


@pytest.mark.parametrize(("name", "frame"), [("time", departures()), ("close", cents(finer_share=0.03))])
def test_exact_synopsis_is_the_smaller_of_steps_and_whole_values(name, frame):
    """Estimates were once too low for whole values if consecutive values of a key are far apart."""
    for bound in (0.0, 4.5):
        result = train_attributes(frame, {name: bound})[name]
        chosen = measure(result.model, frame, precision=0).packed_bytes
        for unit in (0.0, 0.0001, 0.01, 1.0):
            exact = replace(result.model, precisions=(Precision(0.0, 0.0, unit),), roundings=())
            assert chosen <= measure(exact, frame).packed_bytes * 1.001


def test_few_values_of_a_finer_unit_do_not_make_the_steps_of_all_finer():
    rows = 4000
    plain, mixed = (
        options_of(train_attributes(cents(rows, finer_share=share), {"close": 4.5})["close"].options, "shed")[
            0
        ]
        for share in (0.0, 0.03)
    )
    # 3 % of the values are stored whole, in 20 bits; steps of a hundredth of a cent took 6.6 bits more for all
    assert (mixed.bytes_per_tuple - plain.bytes_per_tuple) * 8 < 0.03 * 32 + 0.3


@pytest.mark.parametrize(
    "values",
    [np.arange(4000) * 7 + 10**6, np.arange(4000) // 40 * 60_000_000, np.full(4000, 12)],
    ids=["counter", "slow", "constant"],
)
def test_rounding_is_offered_only_where_it_beats_the_best_lossless_encoding(values):
    """DELTA_BINARY_PACKED takes almost no bytes for these values, and rounding breaks their even differences."""
    frame = Frame(np.arange(4000), np.arange(4000) % 4, {"count": Column.integer(values)})
    trained = train_attributes(frame, {"count": 4.5})["count"]
    (kept,) = options_of(trained.options, "keep")
    assert kept.wire_bytes_per_tuple < 0.1
    rounded = options_of(trained.options, "round")
    assert all(
        one.wire_bytes_per_tuple < kept.wire_bytes_per_tuple or one.reason == "rounding saves nothing"
        for one in rounded
    )


def test_precisions_begin_near_exact():
    """A shortfall of a few per cent must not cost the error of a coarse precision."""
    close = train_attributes(cents(), {"close": 4.5})["close"]
    exact, finest, *_ = options_of(close.options, "shed")
    assert exact.mean_error_pct == 0
    assert 0 < finest.mean_error_pct <= 4.5 * 0.015


def test_no_precision_is_held_to_a_mean_error_that_others_are_not(trained):
    """Rounding goes as far as the bound, as shedding does: 4.7 % on even steps has a mean of more than 1 %."""
    _, models = trained
    for way in ("round", "shed"):
        assert models["volume"].option(way).max_error_pct > 3.0
        assert models["volume"].option(way).mean_error_pct > 1.0


def test_what_must_be_exact_has_one_precision_and_no_rounding():
    frame = market(800)
    for name in ("volume", "state"):
        result = train_attributes(frame, {name: 0.0})[name]
        assert [option.way for option in result.options] == ["keep", "round", "shed"]
        assert result.model.roundings == ()
        assert measure(result.model, frame).max_error_pct == 0


def test_models_and_evidence_are_json_and_training_is_repeatable(trained):
    frame, models = trained
    again = train_attributes(frame, {"high": 4.7}, cycle_length=4)["high"]
    assert again == models["high"]
    assert json.loads(json.dumps(again.evidence)) == again.evidence
    assert AttributeModel.from_dict(json.loads(json.dumps(again.model.to_dict()))) == again.model


def test_the_papers_method_is_chosen_when_only_last_is_allowed():
    frame = market(800)
    result = train_attributes(frame, {"high": 4.7}, predictors=["last"], ways=["keep", "shed"])["high"]
    assert result.model.predictors == (Predictor(),)
    assert {option.way for option in result.options} == {"keep", "shed"}
    assert result.model.precisions[-1] == Precision(4.7)
    assert result.option("round") is None


def test_only_the_regressors_allowed_are_read():
    frame = market(800)
    result = train_attributes(frame, {"high": 4.7}, regressors=["volume"])["high"]
    assert all(predictor.regressors <= {"volume"} for predictor in result.model.predictors)


def test_what_follows_from_the_time_takes_next_to_nothing_though_rows_are_shuffled():
    """Year to weekday in local time, of tuples of 40 keys that arrive from all over a year."""
    rng = np.random.default_rng(4)
    at = np.sort(rng.integers(1_356_998_400, 1_388_534_400, 6000))[rng.permutation(6000)]
    local = [datetime.fromtimestamp(int(one) - 5 * 3600, UTC) for one in at]
    columns = {
        part: Column.integer(np.array([getattr(one, part) for one in local]))
        for part in ("year", "month", "day", "hour")
    }
    columns["weekday"] = Column.integer(np.array([one.isoweekday() for one in local]))
    frame = Frame(np.arange(6000), rng.integers(0, 40, 6000), columns | {"at": Column.integer(at * 10**6)})
    trained = train_attributes(frame, dict.fromkeys(columns, 0.0), regressors=[], clocks={"at": "us"})
    for name, one in trained.items():
        assert name == "year" or one.model.predictors[0].regressors == {"at"}
        assert one.evidence["packed_bytes"] < 200
        assert measure(one.model, frame).max_error_pct == 0
    assert trained["weekday"].evidence["last_packed_bytes"] > 1500


AWKWARD = {
    "one row": Column.real([1.5]),
    "no row": Column.real([]),
    "all null": Column.real([None] * 90),
    "constant": Column.real([7.0] * 90),
    "zeros": Column.integer([0] * 90),
    "not finite": Column.real([float("nan"), float("inf"), float("-inf")] * 30),
    "signs": Column.real([(-1.0) ** i * 1e-310 for i in range(90)]),
    "extremes": Column.integer([2**63 - 1, -(2**63), 0] * 30),
    "texts": Column.text(["a", None, "b"] * 30),
}


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("bound", [0.0, 4.7])
def test_awkward_columns_train_and_keep_their_bound(name, bound):
    column = AWKWARD[name]
    n = len(column)
    frame = Frame(np.arange(n), np.arange(n) % 3, {"a": column, "b": column})
    result = train_attributes(frame, {"a": bound})["a"]
    facts = measure(result.model, frame)
    assert facts.violations == 0
    assert facts.max_error_pct <= bound
    assert {option.way for option in result.options} == {"keep", "round", "shed"}


def test_predictors_describe_themselves_for_people():
    assert describe(Predictor("trend", slope=0.5)) == "trend (slope 0.5)"
    assert describe(Predictor("season", season=24, persistence=0.0)) == "season (season 24)"
    assert describe(Predictor("season", season=24)) == "season (season 24, persistence 1)"
    assert (
        describe(Predictor("level", smoothing=0.1, persistence=0.5))
        == "level (smoothing 0.1, persistence 0.5)"
    )
    assert describe(Predictor("any", persistence=0.5)) == "any (persistence 0.5)"
    assert describe(Predictor()) == "last"
