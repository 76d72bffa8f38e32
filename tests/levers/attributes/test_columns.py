from __future__ import annotations

import datetime as dt
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.levers.attributes.synopsis.synopsis_reference import columns

from spillway.errors import InvalidValue
from spillway.levers.attributes.columns import Column, Frame, dense_codes

ARROWS = [
    pa.array([1.5, None, math.inf, -0.0]),
    pa.array([2**63 - 1, None, -(2**63)]),
    pa.array([1, None, -3], pa.int16()),
    pa.array([True, None, False]),
    pa.array(["a", None, "b", "a"]),
    pa.array([dt.date(2013, 1, 1), None]),
    pa.array([dt.datetime(2013, 1, 1, 5), None], pa.timestamp("us")),
    pa.array([dt.datetime(2013, 1, 1, 5), None], pa.timestamp("us", "UTC")),
    pa.array([], pa.float64()),
    pa.array([None, None], pa.string()),
]


@pytest.mark.parametrize("array", ARROWS, ids=lambda array: str(array.type))
def test_a_column_gives_its_arrow_array_back(array):
    assert Column.from_arrow(array).to_arrow(array.type).equals(array)


def test_chunks_and_slices_make_the_same_column_as_the_whole():
    whole = pa.array([1.0, None, 3.0, 4.0])
    chunked = pa.chunked_array([whole.slice(0, 1), whole.slice(1, 3)])
    assert Column.from_arrow(chunked).to_list() == Column.from_arrow(whole).to_list()
    assert Column.from_arrow(whole.slice(1, 2)).to_list() == [None, 3.0]
    assert len(Column.from_arrow(pa.chunked_array([], pa.string()))) == 0


@settings(max_examples=50, deadline=None)
@given(columns("text", 6), columns("text", 6))
def test_texts_compare_by_word_whatever_their_codes(left, right):
    expected = [a == b for a, b in zip(left.to_list(), right.to_list(), strict=True)]
    assert left.same(right).tolist() == expected


def test_nan_equals_nan_and_zero_equals_minus_zero_but_null_is_only_null():
    left = Column.real([math.nan, 0.0, None, math.nan])
    right = Column.real([math.nan, -0.0, None, None])
    assert left.same(right).tolist() == [True, True, True, False]


def test_values_under_a_null_do_not_show():
    column = Column("real", np.array([7.0, math.nan]), np.array([False, False]))
    assert column.values.tolist() == [0.0, 0.0]


def test_key_codes_of_any_size_are_made_small():
    codes = dense_codes(np.array([10**15, -4, 10**15, 3]))
    assert codes.max() < 4
    assert codes[0] == codes[2] != codes[1]


def test_a_seq_that_goes_back_is_refused_by_number():
    with pytest.raises(InvalidValue, match="`seq` must be strictly increasing after 5, got 4"):
        Frame(np.array([1, 5, 4]), np.zeros(3, int), {})


def test_a_column_of_another_length_is_refused_by_name():
    with pytest.raises(InvalidValue, match="`temp` must have 2 rows, got 1"):
        Frame(np.array([1, 2]), np.zeros(2, int), {"temp": Column.real([1.0])})


def test_a_key_of_another_length_is_refused():
    with pytest.raises(InvalidValue, match="`key` must have 2 rows"):
        Frame(np.array([1, 2]), np.zeros(1, int), {})


def test_a_type_without_a_kind_is_refused():
    with pytest.raises(InvalidValue, match="`type` must be"):
        Column.from_arrow(pa.array([[1], [2]]))


def test_an_unknown_kind_and_unequal_lengths_are_refused():
    with pytest.raises(InvalidValue, match="`kind` must be one of"):
        Column("money", np.zeros(1), np.ones(1, bool))
    with pytest.raises(InvalidValue, match="`valid` must have one flag per value"):
        Column("real", np.zeros(2), np.ones(1, bool))
