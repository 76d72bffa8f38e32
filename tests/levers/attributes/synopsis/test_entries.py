from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.levers.attributes.synopsis.synopsis_reference import algorithm3, cases

from spillway.errors import InvalidValue
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.packing.block import pack, unpack
from spillway.levers.attributes.synopsis.bounds import relative_errors_pct
from spillway.levers.attributes.synopsis.entries import Entries, recover, shed
from spillway.levers.attributes.synopsis.model import AttributeModel, Precision, Predictor

GOLDEN = Path(__file__).parents[3] / "golden"


def sent(frame, is_shed):
    return frame.as_transmitted({"a": is_shed})


def same_entries(left, right):
    return (
        left.seq.tolist() == right.seq.tolist()
        and left.is_step.tolist() == right.is_step.tolist()
        and left.steps.tolist() == right.steps.tolist()
        and bool(left.values.same(right.values).all())
    )


def one_key(values, error_pct=10.0):
    frame = Frame(np.arange(1, len(values) + 1), np.zeros(len(values), int), {"a": Column.real(values)})
    return AttributeModel("a", "real", error_pct), frame, np.ones(len(values), bool)


def integers_of_one_key(*values):
    frame = Frame(np.arange(len(values)), np.zeros(len(values), int), {"a": Column.integer(values)})
    return frame, np.ones(len(values), bool)


def test_the_golden_trace_of_algorithm_3_with_the_size_of_the_shed_value():
    golden = json.loads((GOLDEN / "000_algorithm3_traces.json").read_text())
    model, frame, everything = one_key(golden["values"], golden["E_percent"])
    result = shed(model, frame, everything)
    expected = golden["variants"]["abs_sv"]
    assert result.entries.seq.tolist() == [step["timestamp"] for step in expected if step["stored"]]
    given_back = recover(model, sent(frame, everything), everything, result.entries).values
    assert given_back.to_list() == [step["recovered"] for step in expected]


def test_example_4_of_the_paper():
    golden = json.loads((GOLDEN / "000_examples.json").read_text())["example_4"]
    steps = golden["steps"]
    key = np.array([0 if step["CID"] == "New Delhi" else 1 for step in steps])
    values = Column.real([step["value"] for step in steps])
    frame = Frame(np.array([step["tuple"] for step in steps]), key, {"a": values})
    everything = np.ones(len(steps), bool)
    result = shed(AttributeModel("a", "real", golden["E_percent"]), frame, everything)
    assert result.positions.tolist() == [i for i, step in enumerate(steps) if step["stored"]]
    names = [f"{step['CID']}@{step['timestamp']}" for step in steps]
    assert dict(zip(names, result.reconstructed.to_list(), strict=True)) == golden["recovered"]


@settings(max_examples=150, deadline=None)
@given(cases(kinds=("real", "integer", "text"), predicted=False))
@example((AttributeModel("a", "integer", 100.0), *integers_of_one_key(-1, 2**63 - 1)))
def test_last_value_stores_and_gives_back_what_algorithm_3_says(case):
    model, frame, is_shed = case
    stored, expected = algorithm3(
        frame.key.tolist(), is_shed.tolist(), frame.columns["a"].to_list(), model.error_pct
    )
    result = shed(model, frame, is_shed)
    assert result.positions.tolist() == stored
    given_back = recover(model, sent(frame, is_shed), is_shed, result.entries).values.to_list()
    assert repr(given_back).replace("-0.0", "0.0") == repr(expected).replace("-0.0", "0.0")


@settings(max_examples=300, deadline=None)
@given(cases())
def test_no_recovered_value_misses_its_bound_and_both_ends_agree_bit_for_bit(case):
    model, frame, is_shed = case
    result = shed(model, frame, is_shed)
    entries = unpack(pack(result.entries, frame), frame)
    recovered = recover(model, sent(frame, is_shed), is_shed, entries)
    errors = relative_errors_pct(frame.columns["a"], recovered.values)
    assert (errors <= model.error_pct).all()
    assert (errors[~is_shed] == 0).all()
    assert (errors[is_shed] <= recovered.bound_pct[is_shed]).all()
    assert np.isnan(recovered.bound_pct[~is_shed]).all()
    assert recovered.values.values.tobytes() == result.reconstructed.values.tobytes()
    assert recovered.values.valid.tolist() == result.reconstructed.valid.tolist()


@settings(max_examples=150, deadline=None)
@given(cases() | cases(kinds=("real", "integer", "text"), predicted=False), st.integers(0, 24))
def test_shedding_in_pieces_stores_what_shedding_in_one_go_stores(case, cut):
    model, frame, is_shed = case
    cut = min(cut, len(frame))
    whole = shed(model, frame, is_shed)
    early = frame.rows(0, cut)
    first = shed(model, early, is_shed[:cut])
    second = shed(model, frame, is_shed, first_new_row=cut)
    assert all(second.positions >= cut)
    assert same_entries(whole.entries, first.entries + second.entries)
    assert same_entries(whole.entries, shed(model, frame, is_shed).entries)


@settings(max_examples=100, deadline=None)
@given(cases() | cases(kinds=("real", "integer", "text"), predicted=False))
def test_the_first_shed_value_of_every_key_is_stored(case):
    model, frame, is_shed = case
    first_rows = {}
    for row in np.flatnonzero(is_shed).tolist():
        first_rows.setdefault(int(frame.key[row]), row)
    assert set(first_rows.values()) <= set(shed(model, frame, is_shed).positions.tolist())


@settings(max_examples=60, deadline=None)
@given(cases())
def test_an_exact_bound_gives_exact_values(case):
    model, frame, is_shed = case
    units = (Precision(unit=model.precisions[0].unit),)
    exact = AttributeModel("a", model.kind, 0.0, predictors=model.predictors, precisions=units, decimals=2)
    result = shed(exact, frame, is_shed)
    recovered = recover(exact, sent(frame, is_shed), is_shed, result.entries)
    assert recovered.values.same(frame.columns["a"]).all()


def test_windows_in_which_the_attribute_is_sent_do_not_touch_the_last_stored_value():
    model, frame, _ = one_key([100.0, 200.0, 104.0])
    is_shed = np.array([True, False, True])
    assert shed(model, frame, is_shed).positions.tolist() == [0]


def test_other_predictors_use_what_was_sent_meanwhile():
    model, frame, _ = one_key([100.0, 200.0, 204.0])
    model = AttributeModel("a", "real", 10.0, predictors=(Predictor("previous"),))
    is_shed = np.array([True, False, True])
    assert shed(model, frame, is_shed).reconstructed.to_list() == [100.0, 200.0, 200.0]


def test_null_nan_and_infinities_are_stored_on_any_change_and_on_no_other():
    values = [1.0, None, None, math.nan, math.nan, math.inf, math.inf, -math.inf, 1.0, 1.0]
    for predictors in ((Predictor(),), (Predictor("previous"),)):
        _, frame, everything = one_key(values)
        model = AttributeModel("a", "real", 50.0, predictors=predictors)
        result = shed(model, frame, everything)
        assert repr(result.reconstructed.to_list()) == repr(values)
        assert {0, 1, 3, 5, 7} <= set(result.positions.tolist()) <= {0, 1, 3, 5, 7, 8}


def test_integers_beyond_float_precision_keep_their_last_digit():
    values = [2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1]
    frame = Frame(np.arange(4), np.zeros(4, int), {"a": Column.integer(values)})
    for predictors in ((Predictor(),), (Predictor("previous"),)):
        model = AttributeModel("a", "integer", 0.0, predictors=predictors)
        result = shed(model, frame, np.ones(4, bool))
        recovered = recover(model, sent(frame, np.ones(4, bool)), np.ones(4, bool), result.entries)
        assert recovered.values.to_list() == values


@pytest.mark.parametrize("predictor", ["last", "previous"])
def test_recovery_without_the_first_entries_says_what_is_missing(predictor):
    _, frame, everything = one_key([1.0, 2.0, 3.0])
    model = AttributeModel("a", "real", 10.0, predictors=(Predictor(predictor),))
    entries = shed(model, frame, everything).entries
    with pytest.raises(InvalidValue, match="read all batches of the frame"):
        recover(model, sent(frame, everything), everything, entries.take(np.array([False, True, True])))


def test_entries_of_another_frame_are_refused():
    model, frame, everything = one_key([1.0, 2.0])
    entries = Entries.of_values(np.array([99]), Column.real([1.0]))
    with pytest.raises(InvalidValue, match="must have the seq of shed rows of the frame, got 99"):
        recover(model, frame, everything, entries)


def test_a_mask_of_another_length_and_a_column_of_another_kind_are_refused():
    model, frame, _ = one_key([1.0, 2.0])
    with pytest.raises(InvalidValue, match="`is_shed` must have 2 flags, got 1"):
        shed(model, frame, np.ones(1, bool))
    with pytest.raises(InvalidValue, match="`a` must be integer as trained, got 'real'"):
        shed(AttributeModel("a", "integer", 1.0), frame, np.ones(2, bool))
