"""What is a quantity and what merely names things: the strict reading wherever both are possible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.threshold.curve import FEW_VALUES, are_codes

RNG = np.random.default_rng(4)
ROWS = 10_000
POSTCODES = RNG.choice(np.sort(RNG.choice(90_000, 300, replace=False)) + 10_000, ROWS)
CODES = {
    "HTTP statuses": RNG.choice([200, 201, 204, 301, 302, 400, 404, 500, 502], ROWS),
    "weekdays": np.arange(ROWS) % 7,
    "hours of the day": np.arange(ROWS) // 60 % 24,
    "people in a room": np.where(RNG.random(ROWS) < 0.3, RNG.poisson(1.5, ROWS), 0),
    "states of a machine": RNG.integers(0, 5, ROWS),
    "postcodes": POSTCODES,
    "nothing but one value": np.full(ROWS, 1500),
    "a few statuses in a few rows": np.array([200, 404, 200, 502, 200]),
}
QUANTITIES = {
    "a counter": np.arange(ROWS) + 10_000,
    "tenths of a degree": np.rint(150 + 80 * np.sin(np.arange(ROWS) / 50) + RNG.normal(0, 5, ROWS)),
    "hundreds of shares": 100 * RNG.integers(1, 400, ROWS),
    "bytes of a response": np.rint(np.exp(RNG.normal(8, 2, ROWS))),
    "milliseconds": np.rint(RNG.gamma(2, 90, ROWS)),
}


@pytest.mark.parametrize("name", CODES)
def test_what_names_things_is_told_as_codes(name: str) -> None:
    assert are_codes(Column.integer(CODES[name].astype(np.int64)))
    # a reader that met a null made reals of them: they are codes all the same
    assert are_codes(Column.real(CODES[name].astype(np.float64))) == (name != "hours of the day")


@pytest.mark.parametrize("name", QUANTITIES)
def test_what_counts_or_measures_is_a_quantity(name: str) -> None:
    assert not are_codes(Column.integer(QUANTITIES[name].astype(np.int64)))
    assert not are_codes(Column.real(QUANTITIES[name].astype(np.float64)))


def test_reals_with_fractions_are_quantities_however_few_they_are() -> None:
    assert not are_codes(Column.real(np.tile([20.5, 21.0, 21.5], 1000)))


WHOLE_REALS = {
    "gusts in whole knots": np.rint(RNG.gamma(4, 3, ROWS)),
    "tens of degrees": 10.0 * RNG.integers(0, 37, ROWS),
    "whole milliseconds": np.rint(5 + RNG.gamma(2, 4, ROWS)),
}


@pytest.mark.parametrize("name", WHOLE_REALS)
def test_a_measure_in_whole_units_that_was_declared_double_is_a_quantity_where_it_fills_its_range(
    name: str,
) -> None:
    assert len(np.unique(WHOLE_REALS[name])) <= FEW_VALUES
    assert not are_codes(Column.real(WHOLE_REALS[name]))
    assert are_codes(Column.integer(WHOLE_REALS[name].astype(np.int64)))  # declared so, it is in doubt


def test_what_has_no_values_is_in_doubt_and_so_exact() -> None:
    for nothing in (Column.integer([]), Column.real([None, None]), Column.real([np.nan, np.inf])):
        assert are_codes(nothing)


def test_the_extremes_of_64_bits_are_no_range_that_is_filled() -> None:
    names = RNG.choice(np.concatenate([[-(2**63), 2**63 - 1], np.arange(200)]), ROWS)
    assert are_codes(Column.integer(names.astype(np.int64)))


@given(st.integers(1, FEW_VALUES), st.integers(1, 50), st.integers(-(10**12), 10**12), st.integers(1, 1000))
def test_few_values_are_codes_however_they_lie_and_however_few_rows_there_are(
    count: int, repeats: int, start: int, step: int
) -> None:
    values = np.tile(start + step * np.arange(count), repeats)
    assert are_codes(Column.integer(values))


def test_whole_reals_that_recur_and_leave_gaps_are_codes_also_where_there_are_few_rows() -> None:
    names = np.random.default_rng(1).choice(100_000, 20, replace=False).astype(np.float64)
    assert are_codes(Column.real(np.tile(names, 5)))


def test_names_that_lie_further_apart_than_a_double_tells_are_codes_however_evenly() -> None:
    far = [place * 2**54 for place in range(-100, 100)]
    assert are_codes(Column.integer(far * 50))
