"""The error test against exact fractions: integers never too mild, reals as the formula says."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.levers.attributes.synopsis.synopsis_reference import AWKWARD, INT_EXTREMES, within

from spillway.levers.attributes.synopsis.bounds import (
    integer_error_pct,
    real_error_pct,
    within_integer,
    within_real,
)

integers = st.sampled_from(INT_EXTREMES) | st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)
reals = st.sampled_from(AWKWARD) | st.floats(width=64)
limits = st.sampled_from([0.0, 1e-9, 1.0, 4.7, 33.3, 100.0, 250.0])


@settings(max_examples=300, deadline=None)
@given(integers, integers, limits)
@example(-1, 2**63 - 1, 100.0)
@example(-(2**63), 2**63 - 1, 200.0)
def test_an_integer_is_accepted_only_where_it_exactly_keeps_to_the_limit(
    mv: int, sv: int, limit: float
) -> None:
    if within_integer(mv, sv, limit) and mv != sv:
        # a last bit of two operations is all that the test may be wrong by
        assert Fraction(abs(mv - sv), abs(sv)) * 100 <= Fraction(limit) * (1 + Fraction(1, 2**51))


@settings(max_examples=300, deadline=None)
@given(integers, integers)
def test_the_error_of_an_integer_is_exact_to_a_few_last_bits(mv: int, sv: int) -> None:
    error = integer_error_pct(mv, sv)
    if mv == sv or sv == 0:
        assert error == (0.0 if mv == sv else math.inf)
    else:
        exact = Fraction(abs(mv - sv), abs(sv)) * 100
        assert exact * (1 - Fraction(1, 2**51)) <= Fraction(error) <= exact * (1 + Fraction(1, 2**40))


@settings(max_examples=300, deadline=None)
@given(reals, reals, limits)
def test_a_real_is_accepted_where_the_formula_says_so(mv: float, sv: float, limit: float) -> None:
    assert within_real(mv, sv, limit) == within(mv, sv, limit)
    assert not math.isnan(real_error_pct(mv, sv))


@pytest.mark.parametrize(
    ("mv", "sv"), [(np.nan, 1.0), (1.0, np.nan), (np.inf, -np.inf), (1.0, np.inf), (np.inf, 1.0)]
)
def test_no_number_stands_for_what_is_none(mv: float, sv: float) -> None:
    assert real_error_pct(mv, sv) == math.inf
