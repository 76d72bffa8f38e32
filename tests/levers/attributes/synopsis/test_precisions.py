"""Round and shed in several precisions: each row keeps to its own, whatever came before it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.levers.attributes.synopsis.synopsis_reference import cases, columns, precisions, within

from spillway.errors import InvalidValue
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.packing.block import pack, unpack
from spillway.levers.attributes.synopsis.bounds import relative_errors_pct
from spillway.levers.attributes.synopsis.entries import recover, shed
from spillway.levers.attributes.synopsis.model import AttributeModel, Precision, Predictor, Rounding
from spillway.levers.attributes.synopsis.rounding import round_rows, sent_frame

OF_BEFORE = {
    "attribute": "a",
    "kind": "real",
    "error_pct": 4.7,
    "way": "round",
    "predictors": [Predictor("previous").to_dict()],
    "aim_pct": 2.35,
    "step_pct": 4.7,
    "unit": 0.01,
    "decimals": 2,
    "cycle_length": 75,
    "rounding": "hold",
    "rounding_pct": 3.1,
    "rank": 3,
}
"""A model as it was written when there was one precision of each way."""


@st.composite
def several(draw, predicted=True):
    """(model of several precisions, frame with the truth, mask of shed rows, each row's precision)."""
    kinds = ("real", "integer") if predicted else ("real", "integer", "text")
    model, frame, is_shed = draw(cases(kinds=kinds, predicted=predicted))
    found = draw(st.lists(precisions(model.error_pct, (0.0, 0.1, 0.5, 1.0)), min_size=1, max_size=5))
    found.sort(key=lambda one: one.aim_pct)
    model = AttributeModel(
        "a", model.kind, model.error_pct, "shed", model.predictors, tuple(found), decimals=model.decimals
    )
    places = st.integers(0, len(found) - 1)
    one_scheme = st.lists(places, min_size=len(frame), max_size=len(frame))
    return model, frame, is_shed, np.array(draw(one_scheme), np.int64)


def aims_of(model, place):
    return np.array([one.aim_pct for one in model.precisions])[place]


@settings(max_examples=300, deadline=None)
@given(several() | several(predicted=False))
def test_every_value_keeps_to_its_own_rows_precision_and_both_ends_agree_bit_for_bit(case):
    model, frame, is_shed, place = case
    result = shed(model, frame, is_shed, precision=place)
    entries = unpack(pack(result.entries, frame), frame)
    recovered = recover(model, frame.as_transmitted({"a": is_shed}), is_shed, entries, place)
    errors = relative_errors_pct(frame.columns["a"], recovered.values)
    assert (errors[is_shed] <= aims_of(model, place)[is_shed]).all()
    assert (errors[is_shed] <= recovered.bound_pct[is_shed]).all()
    assert (recovered.bound_pct[is_shed] <= aims_of(model, place)[is_shed]).all()
    assert np.isnan(recovered.bound_pct[~is_shed]).all()
    assert (errors[~is_shed] == 0).all()
    assert recovered.values.values.tobytes() == result.reconstructed.values.tobytes()
    assert recovered.values.valid.tolist() == result.reconstructed.valid.tolist()


@settings(max_examples=150, deadline=None)
@given(several() | several(predicted=False), st.integers(0, 24))
def test_entries_do_not_depend_on_where_batches_end(case, cut):
    model, frame, is_shed, place = case
    cut = min(cut, len(frame))
    whole = shed(model, frame, is_shed, precision=place)
    early = shed(model, frame.rows(0, cut), is_shed[:cut], precision=place[:cut])
    late = shed(model, frame, is_shed, cut, place)
    both = early.entries + late.entries
    assert both.seq.tolist() == whole.entries.seq.tolist()
    assert both.is_step.tolist() == whole.entries.is_step.tolist()
    assert both.steps.tolist() == whole.entries.steps.tolist()
    assert both.values.same(whole.entries.values).all()


@settings(max_examples=150, deadline=None)
@given(several(predicted=False))
def test_the_value_compared_with_is_the_last_stored_one_whatever_the_precisions_in_between(case):
    model, frame, is_shed, place = case
    stored, memory, aims = [], {}, aims_of(model, place)
    for row, (key, gone, value) in enumerate(
        zip(frame.key.tolist(), is_shed, frame.columns["a"].to_list(), strict=True)
    ):
        if gone and (key not in memory or not within(memory[key], value, float(aims[row]))):
            memory[key] = value
            stored.append(row)
    assert shed(model, frame, is_shed, precision=place).positions.tolist() == stored


@settings(max_examples=100, deadline=None)
@given(several())
def test_one_precision_for_all_rows_is_the_model_with_that_one_alone(case):
    model, frame, is_shed, _ = case
    for index, one in enumerate(model.precisions):
        alone = AttributeModel(
            "a", model.kind, model.error_pct, "shed", model.predictors, (one,), decimals=model.decimals
        )
        among = shed(model, frame, is_shed, precision=np.full(len(frame), index))
        by_itself = shed(alone, frame, is_shed)
        assert among.entries.steps.tolist() == by_itself.entries.steps.tolist()
        assert among.positions.tolist() == by_itself.positions.tolist()
        assert among.reconstructed.values.tobytes() == by_itself.reconstructed.values.tobytes()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-10_000, 10_000), min_size=1, max_size=40),
    st.sampled_from([Precision(0.0), Precision(0.0, 0.0, 0.01)]),
    st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_an_exact_precision_gives_back_exactly_between_rows_of_coarser_ones(hundredths, exact, coarse):
    values = np.array(hundredths) / 100.0
    frame = Frame(np.arange(len(values)), np.arange(len(values)) % 3, {"a": Column.real(np.round(values, 2))})
    model = AttributeModel(
        "a",
        "real",
        20.0,
        predictors=(Predictor("previous"),),
        precisions=(exact, Precision(20.0, 40.0)),
        decimals=2,
    )
    place = np.array(coarse[: len(values)]).astype(np.int64)
    everything = np.ones(len(values), bool)
    result = shed(model, frame, everything, precision=place)
    errors = relative_errors_pct(frame.columns["a"], result.reconstructed)
    assert (errors[place == 0] == 0).all()
    assert (errors <= 20.0).all()


def test_a_finer_precision_stores_more_and_misses_less():
    rng = np.random.default_rng(5)
    values = np.round(50 + np.cumsum(rng.normal(0, 0.5, 6000)), 2)
    frame = Frame(np.arange(6000), np.zeros(6000, int), {"a": Column.real(values)})
    model = AttributeModel(
        "a",
        "real",
        5.0,
        predictors=(Predictor("previous"),),
        precisions=(Precision(0.0, 0.0, 0.01), Precision(1.0, 2.0), Precision(5.0, 10.0)),
        decimals=2,
    )
    third = np.arange(6000) // 2000
    result = shed(model, frame, np.ones(6000, bool), precision=third)
    stored = np.bincount(third[result.positions], minlength=3)
    errors = relative_errors_pct(frame.columns["a"], result.reconstructed)
    mean = [errors[third == place].mean() for place in range(3)]
    assert stored[0] > 2 * stored[1] > 4 * stored[2] > 0
    assert mean[0] == 0 < mean[1] < mean[2]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["real", "integer", "text"]).flatmap(lambda kind: columns(kind, 12)),
    st.lists(
        st.tuples(st.sampled_from([0.0, 1e-9, 1.0, 4.7, 13.5]), st.sampled_from(["grid", "hold"])),
        min_size=1,
        max_size=4,
    ),
    st.data(),
)
def test_every_rounded_value_keeps_to_its_own_rows_precision(column, found, data):
    found.sort(key=lambda one: one[0])
    roundings = tuple(Rounding(method, bound) for bound, method in found)
    place = np.array(data.draw(st.lists(st.integers(0, len(found) - 1), min_size=12, max_size=12)), np.int64)
    wanted = np.array(data.draw(st.lists(st.booleans(), min_size=12, max_size=12)))
    frame = Frame(np.arange(12), np.arange(12) % 3, {"a": column})
    model = AttributeModel("a", column.kind, 13.5, way="round", roundings=roundings)
    given_back = round_rows(model, frame, wanted, place)
    errors = relative_errors_pct(column, given_back)
    assert (errors <= np.where(wanted, np.array([bound for bound, _ in found])[place], 0.0)).all()
    assert given_back.values[~wanted].tobytes() == column.values[~wanted].tobytes()
    assert round_rows(model, frame, wanted, place).values.tobytes() == given_back.values.tobytes()
    sent = sent_frame(frame, {"a": model}, {}, {"a": wanted}, precision={"a": place})
    assert sent.columns["a"].values.tobytes() == given_back.values.tobytes()
    for index, one in enumerate(roundings):
        alone = AttributeModel("a", column.kind, 13.5, way="round", roundings=(one,))
        everywhere = round_rows(model, frame, wanted, np.full(12, index))
        assert everywhere.values.tobytes() == round_rows(alone, frame, wanted).values.tobytes()


def test_a_finer_rounding_keeps_more_levels():
    values = np.linspace(1, 2, 4000)
    frame = Frame(np.arange(4000), np.zeros(4000, int), {"a": Column.real(values)})
    model = AttributeModel(
        "a", "real", 10.0, way="round", roundings=(Rounding("grid", 0.5), Rounding("grid", 10.0))
    )
    half = np.arange(4000) % 2
    rounded = round_rows(model, frame, np.ones(4000, bool), half)
    fine, coarse = (len(np.unique(rounded.values[half == place])) for place in range(2))
    assert fine > 10 * coarse > 0


def test_models_of_before_precisions_are_read_as_one_of_each_way():
    model = AttributeModel.from_dict(OF_BEFORE)
    assert model.precisions == (Precision(2.35, 4.7, 0.01),)
    assert model.roundings == (Rounding("hold", 3.1),)
    assert (model.decimals, model.cycle_length, model.rank) == (2, 75, 3)
    assert AttributeModel.from_dict(model.to_dict()) == model
    never = AttributeModel.from_dict({**OF_BEFORE, "aim_pct": None, "rounding_pct": None})
    assert (never.bound_pct(0), never.roundings) == (4.7, ())


def test_a_place_that_no_precision_has_is_refused():
    frame = Frame(np.arange(2), np.zeros(2, int), {"a": Column.real([1.0, 2.0])})
    everything = np.ones(2, bool)
    model = AttributeModel("a", "real", 10.0, roundings=(Rounding("grid", 1.0),))
    for places in ([0, 1], [-1, 0]):
        with pytest.raises(InvalidValue, match="`precision` must be a place among 1, got"):
            shed(model, frame, everything, precision=np.array(places))
        with pytest.raises(InvalidValue, match="`precision` must be a place among 1, got"):
            round_rows(model, frame, everything, np.array(places))
    with pytest.raises(InvalidValue, match="`precision` must have 2 places, got 1"):
        recover(model, frame, everything, shed(model, frame, everything).entries, np.array([0]))
