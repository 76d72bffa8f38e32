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
    integer_error,
    integer_error_pct,
    real_error,
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
    if within_integer(mv, sv, limit, math.inf) and mv != sv:
        # a last bit of two operations is all that the test may be wrong by
        assert Fraction(abs(mv - sv), abs(sv)) * 100 <= Fraction(limit) * (1 + Fraction(1, 2**51))


@settings(max_examples=300, deadline=None)
@given(integers, integers)
def test_the_error_of_an_integer_is_exact_to_a_few_last_bits(mv: int, sv: int) -> None:
    error = integer_error_pct(mv, sv)
    if mv == sv or 0 in (mv, sv):
        assert error == (0.0 if mv == sv else math.inf)
    else:
        exact = Fraction(abs(mv - sv), abs(sv)) * 100
        assert exact * (1 - Fraction(1, 2**51)) <= Fraction(error) <= exact * (1 + Fraction(1, 2**40))


@settings(max_examples=300, deadline=None)
@given(reals, reals, limits)
def test_a_real_is_accepted_where_the_formula_says_so(mv: float, sv: float, limit: float) -> None:
    assert within_real(mv, sv, limit, math.inf) == within(mv, sv, limit)
    assert not math.isnan(real_error_pct(mv, sv))


@settings(max_examples=300, deadline=None)
@given(reals, reals, limits | st.just(math.inf), st.sampled_from([0.0, 0.05, 1.0, 5.0, math.inf]))
@example(0.0, 0.3, math.inf, 0.5)
@example(5e-324, 0.0, math.inf, 0.5)
def test_with_two_limits_both_hold_for_reals(mv: float, sv: float, limit_pct: float, limit: float) -> None:
    if math.isinf(limit_pct) and math.isinf(limit):
        return  # no bound at all is refused where models are made
    expected = within(mv, sv, limit_pct, limit)
    assert within_real(mv, sv, limit_pct, limit) == expected
    if expected:
        assert real_error_pct(mv, sv) <= limit_pct
        assert real_error(mv, sv) <= limit
        assert math.isfinite(real_error_pct(mv, sv))
        assert (mv == 0) == (sv == 0)


@settings(max_examples=300, deadline=None)
@given(integers, integers, limits | st.just(math.inf), st.sampled_from([0.0, 1.0, 2.0**54, math.inf]))
@example(2**62, 2**62 + 2**54 + 1, math.inf, 2.0**54)
def test_with_two_limits_both_hold_for_integers(mv: int, sv: int, limit_pct: float, limit: float) -> None:
    found = within_integer(mv, sv, limit_pct, limit)
    assert found == within(mv, sv, limit_pct, limit)
    if found:
        assert (mv == 0) == (sv == 0)
        assert abs(mv - sv) <= limit
        assert integer_error(mv, sv) <= limit


@pytest.mark.parametrize("limit_pct", [99.0, 100.0, 1e9])
@pytest.mark.parametrize("value", [1e-12, -1e-12, 7.0, -7.0])
def test_zero_stands_for_no_value_and_no_value_for_zero(value: float, limit_pct: float) -> None:
    for mv, sv in ((0.0, value), (-0.0, value), (value, 0.0), (value, -0.0)):
        assert not within_real(mv, sv, limit_pct, math.inf)
        assert real_error_pct(mv, sv) == math.inf
    for mv, sv in ((0, int(np.sign(value)) * 7), (int(np.sign(value)) * 7, 0)):
        assert not within_integer(mv, sv, limit_pct, math.inf)
        assert integer_error_pct(mv, sv) == math.inf


@pytest.mark.parametrize(
    ("mv", "sv"), [(np.nan, 1.0), (1.0, np.nan), (np.inf, -np.inf), (1.0, np.inf), (np.inf, 1.0)]
)
def test_no_number_stands_for_what_is_none(mv: float, sv: float) -> None:
    assert real_error_pct(mv, sv) == math.inf
