"""Smoothing against its definition, and the thesis's tables cell by cell."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.golden import attributes as golden_attributes
from evidence.golden.attributes import rounded_up
from spillway.errors import InvalidValue
from spillway.levers.attributes.ranking.smoothing import (
    Smoothing,
    exponential_moving_average,
    simple_moving_average,
)

GOLDEN = Path(__file__).parents[3] / "golden"
windows = st.lists(
    st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf])), min_size=0, max_size=30
)


def slow_ema(values: list[float], multiplier: float, seed: str, tuples: int) -> list[float]:
    smoothed: list[float] = []
    seen: list[float] = []
    average: float | None = 0.0 if seed == "zero" else None
    for value in values:
        if not math.isfinite(value):
            smoothed.append(math.nan)
            continue
        seen.append(value)
        if average is not None:
            average += multiplier * (value - average)
        elif seed == "first":
            average = value
        elif len(seen) == tuples:
            average = sum(seen) / tuples
        smoothed.append(math.nan if average is None else average)
    if average is None and seen:
        last = max(i for i, value in enumerate(values) if math.isfinite(value))
        smoothed[last] = sum(seen) / len(seen)
    return smoothed


@settings(max_examples=60, deadline=None)
@given(windows, st.sampled_from(["first", "zero", "sma"]), st.integers(1, 5), st.floats(0.01, 1))
def test_the_exponential_average_is_what_the_formula_says(
    values: list[float], seed: str, tuples: int, multiplier: float
) -> None:
    got = exponential_moving_average(np.array(values, dtype=np.float64), multiplier, seed, tuples)
    np.testing.assert_array_equal(got, np.array(slow_ema(values, multiplier, seed, tuples)))


@settings(max_examples=60, deadline=None)
@given(windows, st.integers(1, 5))
def test_the_simple_average_is_the_mean_of_the_last_values(values: list[float], tuples: int) -> None:
    got = simple_moving_average(np.array(values, dtype=np.float64), tuples)
    seen: list[float] = []
    for value, smoothed in zip(values, got, strict=True):
        if math.isfinite(value):
            seen.append(value)
        if math.isfinite(value) and len(seen) >= tuples:
            # a sum of five values up to 1e6 is off by less than 5 x 1e6 x 2^-52 of their mean
            assert smoothed == pytest.approx(sum(seen[-tuples:]) / tuples, rel=1e-9, abs=1e-8)
        else:
            assert math.isnan(smoothed)


@pytest.mark.parametrize(
    ("group", "cells"),
    [("smoothing, weather", 248), ("smoothing, stocks", 90), ("smoothing, closing prices", 22)],
)
def test_every_cell_of_tables_3_3_and_3_6_and_of_appendix_b_is_reproduced(group: str, cells: int) -> None:
    recomputed = list(golden_attributes.GROUPS[group](GOLDEN))
    assert len(recomputed) == cells
    assert [cell for cell in recomputed if not cell.equal] == []


def test_only_one_printed_cell_of_table_3_6_is_a_misprint() -> None:
    cells = golden_attributes.GROUPS["smoothing, stocks"](GOLDEN)
    assert [cell.name for cell in cells if cell.erratum == "A12"] == ["AMGN, NASDAQ 100 Index"]


def test_the_state_carries_over_a_null() -> None:
    with_null = Smoothing().smooth(np.array([5.0, np.nan, 9.0]))
    without = Smoothing().smooth(np.array([5.0, 9.0]))
    assert with_null[[0, 2]].tolist() == without.tolist()
    assert math.isnan(with_null[1])


@pytest.mark.parametrize(
    "smoothing",
    [
        Smoothing(),
        Smoothing(seed="zero"),
        Smoothing(kind="none"),
        Smoothing(seed="sma", sma_tuples=3),
        Smoothing("sma", sma_tuples=3),
    ],
)
def test_what_is_all_null_or_empty_stays_so(smoothing: Smoothing) -> None:
    assert np.isnan(smoothing.smooth(np.full(4, np.nan))).all()
    assert smoothing.smooth(np.array([])).size == 0


def test_a_window_shorter_than_its_seed_is_its_mean_at_its_last_value() -> None:
    smoothed = Smoothing(seed="sma", sma_tuples=10).smooth(np.array([1.0, 3.0, np.nan]))
    np.testing.assert_array_equal(smoothed, [np.nan, 2.0, np.nan])


@pytest.mark.parametrize(
    ("value", "decimals", "printed"),
    [(63.7, 2, "63.70"), (61.593, 2, "61.60"), (-0.0341, 2, "-0.04"), (0.0, 2, "0.00"), (5.0, 0, "5")],
)
def test_tables_are_printed_rounded_away_from_zero(value: float, decimals: int, printed: str) -> None:
    assert rounded_up(value, decimals) == Decimal(printed)


@pytest.mark.parametrize(
    ("settings_", "named"),
    [
        ({"kind": "median"}, "smoothing.kind"),
        ({"seed": "last"}, "smoothing.seed"),
        ({"multiplier": 0.0}, "smoothing.multiplier"),
        ({"multiplier": 1.5}, "smoothing.multiplier"),
        ({"multiplier": math.nan}, "smoothing.multiplier"),
        ({"seed": "sma"}, "smoothing.sma_tuples"),
        ({"kind": "sma", "sma_tuples": 0}, "smoothing.sma_tuples"),
    ],
)
def test_a_setting_that_cannot_be_is_named(settings_: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidValue, match=f"`{named}` must"):
        Smoothing(**settings_)  # type: ignore[arg-type]
