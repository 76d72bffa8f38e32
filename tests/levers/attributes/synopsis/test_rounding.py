from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.levers.attributes.synopsis.synopsis_reference import columns

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.synopsis.bounds import relative_errors_pct
from spillway.levers.attributes.synopsis.entries import recover, shed
from spillway.levers.attributes.synopsis.model import AttributeModel, Precision, Predictor, Rounding, Term
from spillway.levers.attributes.synopsis.rounding import (
    levels_per_octave,
    parquet_bytes,
    round_rows,
    rounded_bound_pct,
    sent_frame,
)

BOUNDS = [1e-9, 1.0, 4.7, 13.5, 100.0, 250.0]


def model(kind, bound, rounding="grid"):
    return AttributeModel("a", kind, bound, way="round", roundings=(Rounding(rounding, bound),))


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["real", "integer", "text"]).flatmap(lambda kind: columns(kind, 12)),
    st.sampled_from(BOUNDS),
    st.sampled_from(["grid", "hold"]),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_rounding_never_leaves_the_bound_and_only_touches_its_rows(column, bound, rounding, wanted):
    frame = Frame(np.arange(12), np.arange(12) % 3, {"a": column})
    given_back = round_rows(model(column.kind, bound, rounding), frame, np.array(wanted))
    errors = relative_errors_pct(column, given_back)
    assert (errors <= bound).all()
    assert (errors[~np.array(wanted)] == 0).all()
    again = round_rows(model(column.kind, bound, rounding), frame, np.array(wanted))
    assert again.values.tobytes() == given_back.values.tobytes()


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["real", "integer", "text"]).flatmap(lambda kind: columns(kind, 12)),
    st.sampled_from([(4.7, None), (13.5, 0.5), (np.inf, 2.0), (0.0, None)]),
    st.sampled_from(["grid", "hold"]),
    st.lists(st.booleans(), min_size=12, max_size=12),
    st.lists(st.integers(0, 1), min_size=12, max_size=12),
)
def test_what_is_told_of_a_rounded_value_holds_and_what_is_not_told_of_is_exact(
    column, bound, how, wanted, places
):
    roundings = (Rounding(how, 1.0, 0.1 if bound[1] else None), Rounding(how, *bound))
    roundings = roundings if bound[0] else roundings[1:]
    made = AttributeModel(
        "a",
        column.kind,
        bound[0],
        way="round",
        roundings=roundings,
        error=bound[1],
        precisions=(Precision(0.0),),
    )
    frame, rows = Frame(np.arange(12), np.arange(12) % 3, {"a": column}), np.array(wanted)
    precision = np.array(places) % len(roundings)
    sent = round_rows(made, frame, rows, precision)
    told, errors = rounded_bound_pct(made, sent, rows, precision), relative_errors_pct(column, sent)
    assert (errors[np.isnan(told)] == 0).all()
    here = ~np.isnan(told)
    assert rows[here].all()
    # a bound in its own unit is told by a division of its own
    assert (errors[here] <= told[here] * (1 + 1e-12)).all()
    assert (told[here] <= np.array([one.bound.error_pct for one in roundings])[precision][here]).all()


@settings(max_examples=60, deadline=None)
@given(columns("real", 12), st.integers(0, 12), st.sampled_from(["grid", "hold"]))
def test_the_rows_before_decide_alike_whatever_follows(column, cut, rounding):
    frame = Frame(np.arange(12), np.arange(12) % 3, {"a": column})
    whole = round_rows(model("real", 4.7, rounding), frame, np.ones(12, bool))
    early = round_rows(model("real", 4.7, rounding), frame.rows(0, cut), np.ones(cut, bool))
    assert early.values.tobytes() == whole.values[:cut].tobytes()


def test_even_levels_are_as_many_as_the_bound_needs():
    for bound in (0.5, 1.3, 4.7, 13.5):
        frame = Frame(np.arange(5000), np.zeros(5000, int), {"a": Column.real(np.linspace(1, 2, 5000))})
        rounded = round_rows(model("real", bound), frame, np.ones(5000, bool))
        assert len(np.unique(rounded.values)) <= levels_per_octave(bound) + 1


def test_a_rounded_column_is_a_fraction_of_the_original_on_the_wire():
    rng = np.random.default_rng(1)
    column = Column.real(np.round(rng.uniform(10, 100, 20000), 2))
    frame = Frame(np.arange(20000), np.arange(20000) % 75, {"a": column})
    rounded = round_rows(model("real", 4.7), frame, np.ones(20000, bool))
    assert parquet_bytes(rounded) < 0.5 * parquet_bytes(column)


def test_holding_repeats_what_the_key_sent_last():
    frame = Frame(np.arange(4), np.array([0, 1, 0, 1]), {"a": Column.real([100.0, 50.0, 104.0, 47.0])})
    held = round_rows(model("real", 10.0, "hold"), frame, np.ones(4, bool)).to_list()
    assert held[0] == held[2]
    assert held[1] == held[3]


@pytest.mark.parametrize("roundings", [(), (Rounding("grid", 0.0),), (Rounding("hold", 0.0),)])
def test_no_bound_rounds_nothing(roundings):
    frame = Frame(np.arange(2), np.zeros(2, int), {"a": Column.real([1.23, 4.56])})
    exact = AttributeModel("a", "real", 1.0, way="round", roundings=roundings)
    assert round_rows(exact, frame, np.ones(2, bool)).to_list() == [1.23, 4.56]


def test_both_ends_agree_where_a_regressor_is_sent_then_rounded_then_shed():
    rng = np.random.default_rng(8)
    n = 900
    x = np.round(50 + np.cumsum(rng.normal(0, 1, (n // 3, 3)), 0).ravel(), 2)
    noisy = np.round(2 * x + rng.normal(0, 1, n), 2)
    frame = Frame(np.arange(n), np.arange(n) % 3, {"x": Column.real(x), "a": Column.real(noisy)})
    third = np.arange(n) // (n // 3)
    level = Predictor("regression", (Term(2.0, ("x",)),))
    models = {
        "a": AttributeModel(
            "a", "real", 4.0, predictors=(level, Predictor("previous")), precisions=(Precision(2.0, 4.0),)
        ),
        "x": AttributeModel(
            "x",
            "real",
            4.0,
            predictors=(Predictor("previous"),),
            precisions=(Precision(None, 8.0),),
            roundings=(Rounding("grid", 4.0),),
        ),
    }
    masks = {"a": np.ones(n, bool), "x": third == 2}, {"x": third == 1}
    received = sent_frame(frame, models, *masks)
    stored_by_third = np.zeros(3)
    for name, model in models.items():
        entries = shed(model, sent_frame(frame, models, *masks, truth_of=name), masks[0][name]).entries
        recovered = recover(model, received, masks[0][name], entries)
        assert (relative_errors_pct(frame.columns[name], recovered.values) <= 4.0).all()
        if name == "a":
            stored_by_third = np.bincount(third[entries.seq], minlength=3)
    assert stored_by_third[0] < stored_by_third[2]


def test_an_empty_column_weighs_nothing():
    assert parquet_bytes(Column.real([])) == 0
