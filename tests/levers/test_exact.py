"""The rational behind a float."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from spillway.levers.exact import exact_fraction


@given(st.integers(1, 10**6), st.integers(1, 10**4))
@example(30931, 1207)  # 0.4996 units in the last place from its float
def test_quotient_of_short_numbers_is_found_again_or_is_simpler(numerator: int, denominator: int) -> None:
    found = exact_fraction(numerator / denominator)
    assert float(found) == numerator / denominator
    assert (
        found.denominator <= Fraction(numerator, denominator).denominator
        or len(str(numerator / denominator)) < 15
    )


@given(st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000))
def test_share_of_a_channel_survives_a_double(mine: int, others: int, capacity: int) -> None:
    share = Fraction(mine, 10) * Fraction(capacity, mine + others)
    assert exact_fraction(float(share)) == share


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_fraction_rounds_to_its_float(number: float) -> None:
    assert float(exact_fraction(number)) == number


@given(st.decimals(-10_000, 10_000, places=3))
def test_decimal_as_written_is_that_decimal(number: object) -> None:
    assert exact_fraction(float(str(number))) == Fraction(str(number))
