"""Bounds in the attribute's own unit through every kernel, and zeros at any bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.levers.attributes.synopsis.synopsis_reference import columns, predictor_lists, within

from spillway.errors import InvalidValue
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.synopsis.bounds import certify
from spillway.levers.attributes.synopsis.entries import recover, shed
from spillway.levers.attributes.synopsis.model import AttributeModel, Precision, Predictor, Rounding
from spillway.levers.attributes.synopsis.rounding import round_rows

TEMPERATURES = np.round(8 * np.sin(np.arange(3000) / 60) + np.random.default_rng(2).normal(0, 0.2, 3000), 1)
"""Degrees that cross zero, where a relative bound says nothing."""


@st.composite
def bound_both_ways(draw):
    """(model with an absolute bound, alone or beside a relative one, frame, mask, precision of every row)."""
    kind = draw(st.sampled_from(["real", "integer"]))
    rows = draw(st.integers(1, 24))
    zeros = st.lists(st.booleans(), min_size=rows, max_size=rows)
    truth = draw(columns(kind, rows))
    values = np.where(draw(zeros), truth.values.dtype.type(0), truth.values)
    frame = Frame(
        np.arange(rows),
        np.array(draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))),
        {"a": Column(kind, values, truth.valid), "x": draw(columns("real", rows))},
    )
    error, error_pct = draw(st.sampled_from([0.5, 3.0, 1e4])), draw(st.sampled_from([math.inf, 10.0, 250.0]))
    shares = sorted(draw(st.lists(st.sampled_from([0.0, 0.1, 0.6, 1.0]), min_size=1, max_size=3)))
    found = tuple(
        Precision(None, 0.0, draw(st.sampled_from([0.0, 2 * share * error])), share * error)
        for share in shares
    )
    predictors = draw(predictor_lists() | st.just((Predictor(),)))
    model = AttributeModel("a", kind, error_pct, "shed", predictors, found, error=error)
    place = draw(st.lists(st.integers(0, len(found) - 1), min_size=rows, max_size=rows))
    mask = draw(st.lists(st.booleans() | st.just(True), min_size=rows, max_size=rows))
    return model, frame, np.array(mask), np.array(place)


@settings(max_examples=300, deadline=None)
@given(bound_both_ways())
def test_every_recovered_value_keeps_to_both_bounds_and_zeros_stay_zeros(case):
    model, frame, is_shed, place = case
    result = shed(model, frame, is_shed, precision=place)
    sent = frame.as_transmitted({"a": is_shed})
    recovered = recover(model, sent, is_shed, result.entries, place)
    truth, given_back = frame.columns["a"].to_list(), recovered.values.to_list()
    assert recovered.values.values.tobytes() == result.reconstructed.values.tobytes()
    for row in range(len(frame)):
        sv, mv = truth[row], given_back[row]
        aim = model.precisions[place[row]].aim
        assert within(mv, sv, model.error_pct, aim if is_shed[row] else 0.0)
        if sv is not None and mv is not None:
            assert (sv == 0) == (mv == 0)
    assert certify(frame.columns["a"], recovered.values, model.error_pct, error=model.error).violations == 0
    bounds = recovered.bound_pct[is_shed]
    by_row = [
        certify(frame.columns["a"].take(np.array([row])), recovered.values.take(np.array([row])), 1.0)
        for row in np.flatnonzero(is_shed)
    ]
    # told in per cent, a bound in the unit is rounded by the arithmetic of the telling
    assert all(one.max_error_pct <= bound * (1 + 1e-9) for one, bound in zip(by_row, bounds, strict=True))


@settings(max_examples=200, deadline=None)
@given(bound_both_ways(), st.sampled_from(["grid", "hold"]))
def test_every_rounded_value_keeps_to_both_bounds_and_zeros_stay_zeros(case, method):
    model, frame, is_rounded, place = case
    roundings = tuple(Rounding(method, model.error_pct, one.aim) for one in model.precisions)
    model = AttributeModel("a", model.kind, model.error_pct, roundings=roundings, error=model.error)
    given_back = round_rows(model, frame, is_rounded, place)
    for row, (sv, mv) in enumerate(zip(frame.columns["a"].to_list(), given_back.to_list(), strict=True)):
        assert within(mv, sv, model.error_pct, roundings[place[row]].error if is_rounded[row] else 0.0)
        if sv is not None:
            assert (sv == 0) == (mv == 0)


def test_a_bound_in_degrees_holds_where_a_relative_one_would_give_nothing_away():
    frame = Frame(np.arange(3000), np.zeros(3000, int), {"a": Column.real(TEMPERATURES)})
    half = AttributeModel(
        "a",
        "real",
        math.inf,
        predictors=(Predictor("previous"),),
        precisions=(Precision(0.0, 0.0, 0.1, 0.0), Precision(None, 0.0, 1.0)),
        decimals=1,
        error=0.5,
    )
    exact, coarse = (
        shed(half, frame, np.ones(3000, bool), precision=np.full(3000, place)) for place in range(2)
    )
    assert exact.reconstructed.same(frame.columns["a"]).all()
    gap = np.abs(coarse.reconstructed.values - TEMPERATURES)
    assert 0.1 < gap.max() <= 0.5
    assert len(coarse.entries) < 0.6 * len(exact.entries)


def test_small_values_that_may_not_become_zero_cost_a_step_and_not_a_whole_value():
    values = np.random.default_rng(3).choice([-3.0, -1.0, 0.0, 1.0, 2.0, 4.0, 30.0, -50.0], 400)
    frame = Frame(np.arange(400), np.zeros(400, int), {"a": Column.real(values)})
    previous = (Predictor("previous"),)
    model = AttributeModel(
        "a", "real", math.inf, predictors=previous, precisions=(Precision(unit=5.0),), error=5.0
    )
    everything = np.ones(400, bool)
    result = shed(model, frame, everything)
    given_back = recover(model, frame.as_transmitted({"a": everything}), everything, result.entries).values
    assert np.abs(given_back.values - values).max() <= 5.0
    assert ((given_back.values == 0) == (values == 0)).all()
    assert result.entries.is_step[1:].all()


def test_rounding_in_degrees_leaves_levels_a_degree_apart_and_no_zero_that_was_none():
    frame = Frame(np.arange(3000), np.zeros(3000, int), {"a": Column.real(TEMPERATURES)})
    model = AttributeModel("a", "real", math.inf, roundings=(Rounding("grid", math.inf, 0.5),), error=0.5)
    rounded = round_rows(model, frame, np.ones(3000, bool)).values
    whole = rounded[np.abs(TEMPERATURES) > 0.5]
    assert set(whole.tolist()) <= {float(degree) for degree in range(-10, 11)}
    assert ((rounded == 0) == (TEMPERATURES == 0)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AttributeModel("a", "real", math.inf), "`error_pct` must be a finite number"),
        (lambda: AttributeModel("a", "real", 1.0, error=math.inf), "`error` must be a finite number"),
        (lambda: AttributeModel("a", "real", 1.0, error=-1.0), "`error` must be a finite number"),
        (
            lambda: AttributeModel("a", "real", 1.0, error=1.0, precisions=(Precision(aim=2.0),)),
            "within 0..1",
        ),
        (
            lambda: AttributeModel("a", "real", 1.0, error=1.0, precisions=(Precision(), Precision(aim=0.5))),
            "finest first",
        ),
        (lambda: Precision(aim=-1.0), "`aim`"),
        (lambda: Rounding("grid", math.inf), "`error_pct` must be a finite number"),
        (lambda: Rounding("grid", 1.0, math.nan), "`error` must be a finite number"),
    ],
)
def test_bounds_that_bind_nothing_are_refused(make, message):
    with pytest.raises(InvalidValue, match=message):
        make()


def test_a_model_without_a_relative_bound_survives_json():
    model = AttributeModel(
        "a",
        "real",
        math.inf,
        precisions=(Precision(aim=0.1), Precision()),
        roundings=(Rounding("grid", math.inf, 0.5),),
        error=0.5,
    )
    assert AttributeModel.from_dict(model.to_dict()) == model
    assert model.to_dict()["error_pct"] is None
