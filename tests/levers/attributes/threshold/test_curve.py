"""The stored-share curve against Algorithm 3 run once a threshold, fixed points, thresholds, drift."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.golden import attributes as golden_attributes
from spillway.errors import InvalidValue
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.synopsis.entries import shed
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.threshold.category import CategoryMatcher
from spillway.levers.attributes.threshold.curve import (
    ERROR_GRID_PCT,
    LOOSEST_PCT,
    Curve,
    Threshold,
    curve,
    fixed_point,
    threshold,
    threshold_drift,
)

GOLDEN = Path(__file__).parents[3] / "golden"
GRID = (0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 100.0)
special = st.sampled_from(
    [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, -1.0, 1.0, 1.1, 100.0, 110.0, 1e308]
)
streams = st.lists(st.tuples(st.one_of(special, st.floats(-200, 200)), st.integers(0, 3)), max_size=40)


def stored_by_algorithm_3(values: list[float], keys: list[int], error_pct: float) -> int:
    last: dict[int, float] = {}
    stored = 0
    for sv, key in zip(values, keys, strict=True):
        if key in last:
            mv = last[key]
            if mv == sv or (math.isnan(mv) and math.isnan(sv)):
                continue
            if math.isfinite(mv) and math.isfinite(sv) and 0 not in (mv, sv):
                with np.errstate(all="ignore"):
                    change = float(np.float64(abs(mv - sv)) / np.float64(abs(sv)) * 100.0)
                if change <= error_pct:
                    continue
        last[key] = sv
        stored += 1
    return stored


@settings(max_examples=150, deadline=None)
@given(streams)
def test_the_curve_is_algorithm_3_at_every_threshold(rows: list[tuple[float, int]]) -> None:
    values, keys = [row[0] for row in rows], [row[1] for row in rows]
    drawn = curve(np.array(values), np.array(keys, dtype=np.int64), GRID)
    wanted = [stored_by_algorithm_3(values, keys, error) for error in GRID]
    assert [round(share * len(rows) / 100) for share in drawn.stored_share_pct] == wanted


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-200, 200), st.integers(0, 2)), min_size=1, max_size=40),
    st.sampled_from(GRID),
)
def test_the_curve_counts_what_the_synopsis_stores(rows: list[tuple[float, int]], error_pct: float) -> None:
    codes: dict[int, int] = {}
    keys = np.array([codes.setdefault(row[1], len(codes)) for row in rows])
    values = np.array([row[0] for row in rows])
    frame = Frame(np.arange(len(rows)), keys, {"a": Column.real(values)})
    kept = shed(AttributeModel("a", "real", error_pct), frame, np.ones(len(rows), np.bool_))
    drawn = curve(values, keys, [error_pct])
    assert round(drawn.stored_share_pct[0] * len(rows) / 100) == len(kept.positions)


def test_the_examples_and_tables_of_thresholds_are_reproduced() -> None:
    cells = list(golden_attributes.GROUPS["thresholds"](GOLDEN))
    assert sum(cell.group == "table 4.3" for cell in cells) == 60
    assert sum(cell.group == "section 3.2.4.3" for cell in cells) == 3
    assert [cell for cell in cells if not cell.equal] == []


def test_the_fixed_point_is_where_the_rest_of_the_curve_is_flat() -> None:
    assert fixed_point(Curve((0, 1, 2, 3, 4), (100, 50, 20.9, 20.5, 20), 100)) == 3
    assert fixed_point(Curve((0, 1, 2, 3, 4), (100, 50, 20.9, 20.5, 20), 100), flatness=0.02) == 2
    # a step that is flat for a while is not the end of the fall
    assert fixed_point(Curve((0, 1, 2, 3, 4), (100, 60, 60, 60, 20), 100)) == 4
    # a larger E may store more: the bump counts
    assert fixed_point(Curve((0, 1, 2, 3), (100, 20, 30, 20), 100)) == 3


def test_what_is_flat_is_a_share_of_the_drop_from_the_top_of_a_curve_that_rises_first() -> None:
    assert fixed_point(Curve((0, 1, 2, 3), (50.0, 100.0, 50.4, 50.0), 250)) == 2.0


def test_an_outlier_does_not_move_the_fixed_point() -> None:
    random = np.random.default_rng(7)
    calm = 100 * (1 + 0.05 * random.uniform(-1, 1, 4000))
    keys = np.arange(4000) % 4
    wild = calm.copy()
    wild[2000] = 1e7
    assert fixed_point(curve(wild, keys)) == pytest.approx(fixed_point(curve(calm, keys)), abs=0.2)


@pytest.mark.parametrize("values", [[], [5.0], [5.0, 5.0, 5.0], [math.nan, math.nan]])
def test_a_stream_without_change_needs_no_error(values: list[float]) -> None:
    assert fixed_point(curve(np.array(values), np.zeros(len(values), dtype=np.int64))) == 0


def test_the_grid_goes_from_nothing_to_100_percent_in_steps_that_fit_the_text() -> None:
    grid = np.array(ERROR_GRID_PCT)
    assert (grid[0], grid[-1]) == (0.0, 100.0)
    assert (np.diff(grid) > 0).all()
    assert np.diff(grid[grid <= 5]).max() <= 0.05 + 1e-9


def test_the_lower_of_fixed_point_and_category_wins_unless_the_contract_speaks() -> None:
    assert threshold(4.7, 4.7).source == "fixed_point"
    assert threshold(20, 4.81).error_pct == 4.81
    assert threshold(20).source == "fixed_point"
    overruled = threshold(20, 4.81, overrule_pct=0.0)
    assert (overruled.error_pct, overruled.source) == (0.0, "contract")


def test_nothing_is_looser_than_the_loosest_class_unless_a_person_says_so() -> None:
    assert CategoryMatcher.standard().rates_pct["not"] == LOOSEST_PCT
    for found in (threshold(100.0), threshold(100.0, math.inf), threshold(60.5, 99.0)):
        assert found == Threshold(LOOSEST_PCT, "loosest_class")
    assert threshold(100.0, LOOSEST_PCT).source == "category"
    assert threshold(5.0, math.inf, overrule_pct=60.0).error_pct == 60.0


def test_what_comes_and_goes_is_never_stood_for_by_one_zero() -> None:
    busy = np.where(np.arange(400) % 5 == 0, 3.0 + np.arange(400) % 7, 0.0)
    drawn = curve(busy, np.zeros(400, dtype=np.int64))
    # at any threshold every change between zero and a value is stored
    assert drawn.stored_share_pct[-1] == pytest.approx(100 * 160 / 400, abs=0.5)


def test_drift_asks_for_retraining_beyond_what_is_tolerated() -> None:
    assert not threshold_drift(20, 20.4).retrain
    assert threshold_drift(1.0, 2.0).retrain
    assert threshold_drift(1.0, 2.0).deviation_pct == 50.0
    assert threshold_drift(0, 0) == threshold_drift(0, 0, tolerated_pct=1)
    assert threshold_drift(1.0, 0.0).retrain
    assert not threshold_drift(1.0, 2.0, tolerated_pct=50).retrain


def test_what_makes_no_threshold_is_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match="`keys` must name"):
        curve([1.0, 2.0], [0])
    with pytest.raises(InvalidValue, match="`keys` must be codes"):
        curve([1.0], [-1])
    for grid in ([], [2, 1], [-1, 1], [0, math.inf]):
        with pytest.raises(InvalidValue, match="`error_grid_pct` must rise"):
            curve([1.0], [0], grid)
    with pytest.raises(InvalidValue, match="`flatness` must"):
        fixed_point(Curve((0,), (1,), 1), flatness=0)
    for fixed, rate, overrule in ((-1, 1, None), (1, math.nan, None), (1, 1, -1), (1, 1, math.inf)):
        with pytest.raises(InvalidValue, match="must be"):
            threshold(fixed, rate, overrule)
    with pytest.raises(InvalidValue, match="`observed_pct` must"):
        threshold_drift(1, -1)
