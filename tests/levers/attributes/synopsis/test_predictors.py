from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from tests.levers.attributes.synopsis.synopsis_reference import cases

from spillway.errors import Refused
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.synopsis.bounds import certify
from spillway.levers.attributes.synopsis.entries import shed
from spillway.levers.attributes.synopsis.model import AttributeModel, Precision, Predictor, Rounding, Term
from spillway.levers.attributes.synopsis.predictors import regression_values
from spillway.levers.attributes.synopsis.walking import powers
from spillway.levers.attributes.training.candidates import unit_of, without_regressors
from spillway.levers.attributes.training.regression import regressions


def stored(frame, predictors, error_pct=1.0, **more):
    everything = np.ones(len(frame), bool)
    model = AttributeModel("a", frame.columns["a"].kind, error_pct, predictors=predictors, **more)
    result = shed(model, frame, everything)
    assert certify(frame.columns["a"], result.reconstructed, error_pct).violations == 0
    return result.positions.tolist()


def one_key(values, **more):
    columns = {"a": Column.real(values), **{name: Column.real(v) for name, v in more.items()}}
    return Frame(np.arange(len(values)), np.zeros(len(values), int), columns)


def test_a_trend_follows_a_line_that_last_value_must_store():
    line = one_key([100.0 + 5 * i for i in range(20)])
    assert stored(line, (Predictor("trend", slope=1.0),)) == [0, 1]
    assert len(stored(line, (Predictor(),))) == 20


def test_a_season_repeats_and_its_drift_is_carried_on():
    wave = [10.0, 50.0, 30.0] * 8
    assert stored(one_key(wave), (Predictor("season", season=3), Predictor("previous"))) == [0, 1, 2, 3]
    drifting = [v + 20 * (i // 3) for i, v in enumerate(wave)]
    seasonal = (Predictor("season", season=3, persistence=1.0), Predictor("previous"))
    assert set(stored(one_key(drifting), seasonal)) <= {0, 1, 2, 3, 6, 9}


def test_any_key_predicts_the_next_one():
    values = np.repeat([10.0, 20.0, 40.0], 5)
    frame = Frame(np.arange(15), np.tile(np.arange(5), 3), {"a": Column.real(values)})
    assert stored(frame, (Predictor("any", persistence=0.0),)) == [0, 1, 2, 3, 4, 5, 10]


def test_a_level_is_what_a_key_keeps_coming_back_to():
    values = np.where(np.arange(400) % 2, 104.0, 96.0)
    level = Predictor("level", smoothing=0.05, persistence=0.0)
    assert len(stored(one_key(values), (level,), error_pct=6.0)) < 10
    assert len(stored(one_key(values), (Predictor("previous"),), error_pct=6.0)) == 400


def test_a_blend_follows_for_each_key_what_predicted_that_key_best():
    """One key repeats its value of two rows ago, the other drifts: neither predictor alone serves both."""
    rows = np.arange(400)
    values = np.where(rows % 2, np.where(rows // 2 % 2, 50.0, 80.0), 100.0 + rows)
    frame = Frame(rows, rows % 2, {"a": Column.real(values)})
    season, trend = Predictor("season", season=2, persistence=0.0), Predictor("trend", slope=1.0)
    alone = [len(stored(frame, (one, Predictor("previous")))) for one in (season, trend)]
    both = len(stored(frame, (season, trend, Predictor("previous")), blend=True))
    assert min(alone) > 100
    assert both < min(alone) / 2


def test_a_ladder_of_levels_serves_signs_zeros_and_scales_with_steps_alone():
    values = [0.0, 0.3, -0.2, 5000.0, 0.0, -731.9, 12.0, 12.4]
    model = AttributeModel(
        "a", "real", 4.0, predictors=(Predictor("previous"), Predictor("any", persistence=0.0)),
        precisions=(Precision(4.0, 8.0, 0.1),), decimals=1,
    )  # fmt: skip
    result = shed(model, one_key(values), np.ones(len(values), bool))
    given = result.reconstructed.to_list()
    assert result.entries.is_step[1:].all()
    assert given[0] == given[4] == 0.0
    assert all(abs(g - v) <= 0.04 * abs(v) for g, v in zip(given, values, strict=True))


def test_a_whole_value_is_stored_as_the_level_nearest_to_it():
    model = AttributeModel(
        "a",
        "real",
        4.0,
        predictors=(Predictor("previous"),),
        precisions=(Precision(4.0, 8.0, 0.1),),
        decimals=1,
    )
    first = shed(model, one_key([100.1]), np.ones(1, bool)).entries.values.to_list()
    other = shed(model, one_key([101.3]), np.ones(1, bool)).entries.values.to_list()
    assert first == other
    assert abs(first[0] - 100.1) <= 4.0


def test_what_moves_all_keys_is_learned_from_the_first():
    levels, moves = np.array([10.0, 300.0, 7.0, 55.0]), np.cumprod([1.0, 1.3, 0.7, 1.5, 1.2])
    values = np.round(np.outer(moves, levels), 6).ravel()
    frame = Frame(np.arange(20), np.tile(np.arange(4), 5), {"a": Column.real(values)})
    assert len(stored(frame, (Predictor("previous"),))) == 20
    # a surprise passes from row to row as long as each row's prediction is judged by itself, without it
    assert len(stored(frame, (Predictor("any", common=1.0),))) <= 4 + 4


def test_an_exact_relation_stores_the_first_value_of_each_key_and_nothing_else():
    rng = np.random.default_rng(0)
    low = rng.integers(100, 999, 60) / 10
    high = low + rng.integers(1, 99, 60) / 10
    values = np.round(high - low, 1)
    frame = Frame(
        np.arange(60),
        np.arange(60) % 3,
        {"a": Column.real(values), "h": Column.real(high), "l": Column.real(low)},
    )
    difference = Predictor("regression", (Term(1.0, ("h",)), Term(-1.0, ("l",))))
    assert stored(frame, (difference, Predictor("previous")), error_pct=0.0, decimals=1) == [0, 1, 2]


def test_a_row_whose_regressor_is_null_falls_back_to_the_next_predictor():
    frame = one_key([10.0, 10.0, 10.0, 10.0], x=[10.0, None, math.inf, 10.0])
    level = Predictor("regression", (Term(1.0, ("x",)),))
    assert stored(frame, (level, Predictor("previous"))) == [0]


def independent(model):
    return replace(model, predictors=tuple(p for p in model.predictors if not p.regressors))


@settings(max_examples=80, deadline=None)
@given(cases())
def test_leaving_out_what_a_scheme_sheds_changes_nothing(case):
    model, frame, is_shed = case
    hidden = frame.as_transmitted({"x": np.ones(len(frame), bool)})
    slow, fast = shed(model, hidden, is_shed), shed(independent(model), hidden, is_shed)
    assert slow.positions.tolist() == fast.positions.tolist()
    assert slow.reconstructed.values.tobytes() == fast.reconstructed.values.tobytes()


def test_terms_read_this_row_and_the_keys_row_before():
    frame = Frame(
        np.arange(4),
        np.array([0, 1, 0, 1]),
        {"x": Column.real([2.0, 3.0, 4.0, None]), "n": Column.integer([1, 2, 4, 5])},
    )
    terms = (Term(10.0, ("x",), ("x@1",)), Term(1.0, ("n",)))
    assert np.nan_to_num(regression_values(terms, frame), nan=-1.0).tolist() == [-1.0, -1.0, 24.0, -1.0]
    assert np.isnan(regression_values((Term(1.0, ("absent",)),), frame)).all()


def test_powers_are_repeated_products():
    table, expected = powers(9.4), 1.0
    for power in table:
        assert power == expected
        expected *= 1.0 + 9.4 / 100.0
    assert powers(0.0).tolist() == [1.0]


RELATIONS = {
    "difference": lambda b, c: b - c,
    "sum": lambda b, c: b + c,
    "scaled": lambda b, c: b * 25.4,
    "product": lambda b, c: b * c,
    "ratio": lambda b, c: b / c,
    "percentage": lambda b, c: (b - c) / c * 100,
    "Fahrenheit": lambda b, c: 1.8 * b + 32,
}


@pytest.mark.parametrize("relation", RELATIONS)
def test_exact_relations_are_found(relation):
    rng = np.random.default_rng(4)
    b, c = rng.integers(100, 9999, 800) / 100, rng.integers(100, 9999, 800) / 100
    frame = Frame(
        np.arange(800), np.arange(800) % 5,
        {"b": Column.real(b), "c": Column.real(c), "a": Column.real(RELATIONS[relation](b, c))},
    )  # fmt: skip
    best = min(
        float(np.nanmax(np.abs(regression_values(p.terms, frame) - frame.columns["a"].values)))
        for p in regressions("a", frame, ["b", "c"])
        if p.persistence == 0
    )
    assert best < 1e-6


def test_a_change_since_the_row_before_is_an_exact_relation_too():
    rng = np.random.default_rng(5)
    close = np.round(100 + np.cumsum(rng.normal(0, 1, 600)), 2)
    change = np.round(np.diff(close, prepend=close[0]), 2)
    frame = Frame(np.arange(600), np.zeros(600, int), {"close": Column.real(close), "a": Column.real(change)})
    found = [
        regression_values(p.terms, frame)[1:]
        for p in regressions("a", frame, ["close"])
        if p.persistence == 0
    ]
    assert min(float(np.abs(values - change[1:]).max()) for values in found) < 1e-6


def test_a_season_in_the_data_is_proposed():
    values = np.round(50 + 20 * np.sin(np.arange(4800) // 2 * 2 * np.pi / 24), 2)
    frame = Frame(np.arange(4800), np.arange(4800) % 2, {"a": Column.real(values)})
    proposed = without_regressors(frame, "a", ["season", "trend", "any"])
    assert 24 in {p.season for p in proposed}
    assert {p.name for p in proposed} == {"season", "trend", "level", "any"}
    assert without_regressors(frame, "a", ["last"]) == []


def test_the_unit_of_whole_numbers_and_of_none():
    assert unit_of(Column.integer([10, 350, None]), None) == 10.0
    assert unit_of(Column.real([1 / 3]), None) == 0.0
    assert unit_of(Column.real([None]), 2) == 0.0


def test_a_model_survives_json_and_refuses_what_cannot_be():
    model = AttributeModel(
        "a", "real", 4.7, "round",
        (Predictor("regression", (Term(0.1, ("x",), ("y@1",)),), 0.3), Predictor("season", season=24)),
        (Precision(0.0, 0.0, 0.01), Precision(2.35, 4.7)), (Rounding("grid", 1.1), Rounding("hold", 3.1)), 2, 75, 4,
    )  # fmt: skip
    assert AttributeModel.from_dict(model.to_dict()) == model
    assert model.predictors[0].regressors == {"x", "y"}
    bad = [
        (lambda: AttributeModel("a", "money", 1.0), "`kind`"),
        (lambda: AttributeModel("a", "real", 1.0, way="zip"), "`way`"),
        (lambda: AttributeModel("a", "real", -1.0), "`error_pct`"),
        (lambda: AttributeModel("a", "real", math.inf), "`error_pct`"),
        (
            lambda: AttributeModel("a", "real", 1.0, precisions=(Precision(2.0),)),
            "`precisions` must lie within",
        ),
        (lambda: AttributeModel("a", "real", 1.0, precisions=()), "`precisions` must name at least one"),
        (
            lambda: AttributeModel("a", "real", 1.0, precisions=(Precision(), Precision(0.5))),
            "must be finest first",
        ),
        (
            lambda: AttributeModel("a", "real", 1.0, roundings=(Rounding("grid", 2.0),)),
            "`roundings` must lie within",
        ),
        (
            lambda: AttributeModel(
                "a", "real", 1.0, roundings=(Rounding("grid", 1.0), Rounding("grid", 0.5))
            ),
            "`roundings` must be finest first",
        ),
        (lambda: Precision(-1.0), "`aim_pct`"),
        (lambda: Precision(step_pct=-1.0), "`step_pct`"),
        (lambda: Precision(unit=math.nan), "`unit`"),
        (lambda: Rounding("up"), "`method`"),
        (lambda: Rounding("grid", -2.0), "`error_pct`"),
        (lambda: AttributeModel("a", "real", 1.0, predictors=()), "`predictors`"),
        (lambda: AttributeModel("a", "real", 1.0, predictors=(model.predictors[0],)), "`predictors`"),
        (lambda: AttributeModel("a", "real", 1.0, predictors=(Predictor(), Predictor())), "`predictors`"),
        (lambda: AttributeModel("a", "text", 1.0, predictors=(Predictor("previous"),)), "`predictors`"),
        (lambda: Predictor("oracle"), "`name`"),
        (lambda: Predictor("regression"), "`terms`"),
        (lambda: Predictor("season"), "`season`"),
        (lambda: Predictor("season", season=-2), "`season`"),
        (lambda: Predictor("trend", season=2), "`season` must be 0 for the predictor trend"),
        (lambda: Predictor("level", persistence=0.5), "`smoothing`"),
        (lambda: Predictor("previous", terms=(Term(1.0, ("x",)),)), "`terms`"),
        (lambda: Predictor("any", slope=0.5), "`slope`"),
    ]
    for make, message in bad:
        with pytest.raises(Refused, match=message):
            make()
