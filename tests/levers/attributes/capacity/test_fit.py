"""What a channel carries, how many attributes go, and which fit."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.golden import attributes as golden_attributes
from spillway.errors import InvalidValue
from spillway.levers.attributes.capacity.fit import (
    count_to_shed,
    fit_prefix,
)

GOLDEN = Path(__file__).parents[3] / "golden"


def test_examples_2_and_3_figure_3_1_and_all_of_table_4_6_are_reproduced() -> None:
    cells = list(golden_attributes.GROUPS["capacity"](GOLDEN))
    assert sum(cell.group == "table 4.6" for cell in cells) == 81
    assert [cell for cell in cells if not cell.equal] == []


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 40))
def test_the_count_is_the_exact_ceiling(rate_tenths: int, capacity_tenths: int, attributes: int) -> None:
    got = count_to_shed(rate_tenths / 10, capacity_tenths / 10, attributes)
    excess = Fraction(rate_tenths - capacity_tenths, rate_tenths) * attributes
    assert got == max(0, math.ceil(excess))


def test_a_whole_quotient_is_not_lifted_by_a_floats_last_bit() -> None:
    # a fifth of five attributes is one; floats make it 1.0000000000000004 and then two
    assert math.ceil((1.1 - 0.88) / 1.1 * 5) == 2
    assert count_to_shed(1.1, 0.88, 5) == 1


@pytest.mark.parametrize("capacity", [0, -1, math.nan, math.inf])
def test_a_capacity_of_nothing_cannot_be_planned_with(capacity: float) -> None:
    with pytest.raises(InvalidValue, match="`capacity_kbps` must be above 0"):
        count_to_shed(10, capacity, 3)
    with pytest.raises(InvalidValue, match="`capacity_kbps` must be above 0"):
        fit_prefix(["a"], {"a": 1}, 1, capacity)


widths = st.lists(st.integers(0, 64), min_size=1, max_size=7)


@settings(max_examples=150, deadline=None)
@given(widths, st.integers(0, 32), st.integers(1, 300))
def test_a_fit_by_bits_fits_or_says_by_how_much_not(bits: list[int], key: int, capacity: int) -> None:
    names = [f"a{i}" for i in range(len(bits))]
    fitted = fit_prefix(names, {"key": key, **dict(zip(names, bits, strict=True))}, 1000, capacity)
    total = key + sum(bits)
    kept = total - sum(bits[names.index(name)] for name in fitted.shed)
    assert fitted.planned_kbps == kept
    assert fitted.shortfall_kbps == max(0, kept - capacity)
    assert fitted.shortfall_kbps == 0 or (list(fitted.shed) == names and kept == key)
    # nothing is shed that would fit, and nothing beyond the shortest prefix that fits
    for name in fitted.shed:
        assert kept + bits[names.index(name)] > capacity
    prefixes = [n for n in range(len(bits) + 1) if total - sum(bits[:n]) <= capacity]
    if prefixes:
        assert set(fitted.shed) <= set(names[: prefixes[0]])


def test_what_a_wide_attribute_made_needless_is_given_back() -> None:
    fitted = fit_prefix(["narrow", "wide", "other"], {"narrow": 8, "wide": 64, "other": 32}, 1000, 50)
    assert fitted.shed == ("wide",)
    assert fitted.reasons["narrow"].startswith("given back")
    assert fitted.reasons["wide"].startswith("shed: place 2")
    assert fitted.reasons["other"].startswith("kept: place 3")


def test_giving_back_starts_with_the_most_informative() -> None:
    # 11 of excess: the shortest prefix is a, b, c with 5 to spare, which is b's 4 and then not a's as well
    fitted = fit_prefix(["a", "b", "c"], {"a": 4, "b": 4, "c": 8, "key": 20}, 1000, 25)
    assert fitted.shed == ("a", "c")


def test_the_count_of_the_thesis_takes_equal_widths_and_its_excess_is_not_silent() -> None:
    fitted = fit_prefix(["thin", "wide"], {"key": 8, "thin": 8, "wide": 84}, 1000, 70, fit="count")
    assert fitted.shed == ("thin",)
    assert fitted.planned_kbps == 92
    assert fitted.shortfall_kbps == 22
    assert "22 kbps over capacity remain" in fitted.reasons["thin"]


def test_a_channel_below_the_keys_own_width_is_a_shortfall() -> None:
    fitted = fit_prefix(["a"], {"key": 24, "a": 8}, 1000, 10)
    assert (fitted.shed, fitted.planned_kbps, fitted.shortfall_kbps) == (("a",), 24.0, 14.0)


def test_a_stream_that_stands_still_needs_no_shedding() -> None:
    for how, names in itertools.product(("bits", "count"), ([], ["a"])):
        fitted = fit_prefix(names, {"key": 24, **dict.fromkeys(names, 8)}, 0, 10, fit=how)
        assert (fitted.shed, fitted.planned_kbps, fitted.shortfall_kbps) == ((), 0.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((["a"], {"a": 1}, 1, 1, "best"), "fit"),
        ((["a"], {"a": 1}, -1, 1, "bits"), "tuples_per_second"),
        ((["a"], {"a": math.nan}, 1, 1, "bits"), "width_bits.a"),
        ((["a", "b"], {"a": 1}, 1, 1, "bits"), "width_bits"),
        ((["a", "a"], {"a": 1}, 1, 1, "bits"), "ranking"),
    ],
)
def test_a_fit_with_nonsense_is_refused_by_name(arguments: tuple[object, ...], named: str) -> None:
    with pytest.raises(InvalidValue, match=f"`{named}` must"):
        fit_prefix(*arguments)  # type: ignore[arg-type]
