"""The Euclidean baseline against all pairs of distances."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.attributes.neighbours import recover_adjacent, recover_nearest

numbers = st.one_of(st.integers(-5, 5).map(float), st.just(math.nan))
tuples = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8)


@settings(max_examples=120, deadline=None)
@given(tuples, tuples, st.data())
def test_the_value_comes_from_the_nearest_tuple_that_has_one(
    shed: list[tuple[float, ...]], reference: list[tuple[float, ...]], data: st.DataObject
) -> None:
    values = data.draw(st.lists(numbers, min_size=len(reference), max_size=len(reference)))
    got = recover_nearest(np.array(shed), np.array(reference), np.array(values))
    for one, recovered in zip(shed, got, strict=True):
        distances = []
        for other, value in zip(reference, values, strict=True):
            squares = [(a - b) ** 2 for a, b in zip(one, other, strict=True) if not math.isnan(a - b)]
            distance = sum(squares) / len(squares) * len(one) if squares else math.inf
            distances.append(math.inf if math.isnan(value) else distance)
        candidates = [i for i, value in enumerate(values) if not math.isnan(value)]
        if candidates:
            assert recovered == values[min(candidates, key=lambda i: distances[i])]
        else:
            assert math.isnan(recovered)


def test_without_scaling_the_largest_numbers_decide_alone() -> None:
    reference = np.array([[1000.0, 1.0], [1100.0, 9.0], [2000.0, 5.0]])
    values = np.array([10.0, 20.0, 30.0])
    shed = np.array([[1060.0, 1.0]])
    assert recover_nearest(shed, reference, values).tolist() == [20.0]
    assert recover_nearest(shed, reference, values, scale="range").tolist() == [10.0]


def test_an_attribute_that_is_constant_or_unknown_does_not_break_the_scaling() -> None:
    reference = np.array([[3.0, np.nan, 1.0], [3.0, np.nan, 2.0]])
    got = recover_nearest(np.array([[3.0, 7.0, 1.9]]), reference, np.array([1.0, 2.0]), scale="range")
    assert got.tolist() == [2.0]


def test_no_reference_gives_nothing_back() -> None:
    got = recover_nearest(np.zeros((2, 1)), np.zeros((0, 1)), np.zeros(0))
    assert np.isnan(got).all()


def test_windows_that_do_not_match_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="`scale` must"):
        recover_nearest(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1), scale="rank")
    with pytest.raises(ValueError, match="`shed` must have the same attributes"):
        recover_nearest(np.zeros((1, 2)), np.zeros((1, 1)), np.zeros(1))
    with pytest.raises(ValueError, match="`recovered_from` must have a value"):
        recover_nearest(np.zeros((1, 1)), np.zeros((2, 1)), np.zeros(1))


@settings(max_examples=60, deadline=None)
@given(tuples, st.integers(1, 4))
def test_a_value_is_looked_for_in_the_window_before_its_own_and_nowhere_else(
    rows: list[tuple[float, ...]], window: int
) -> None:
    others, values = np.array(rows), np.arange(len(rows), dtype=np.float64)
    got = recover_adjacent(others, values, window)
    for row, found in enumerate(got):
        own = row // window
        if own == 0:
            assert math.isnan(found)
            continue
        # values are row numbers: they tell where each was found
        assert found // window == own - 1
        before = slice((own - 1) * window, own * window)
        assert found == recover_nearest(others[row : row + 1], others[before], values[before])[0]
