"""Ranking: deviations, units, ties, text, and the baselines."""

from __future__ import annotations

import math
import statistics
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.golden import attributes as golden_attributes
from spillway.errors import InvalidValue
from spillway.levers.attributes.ranking.rank import (
    population_std,
    rank,
    score,
    text_score,
)
from spillway.levers.attributes.ranking.smoothing import Smoothing

GOLDEN = Path(__file__).parents[3] / "golden"
PLAIN = Smoothing(kind="none")


@settings(max_examples=80, deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40))
def test_the_score_is_the_population_standard_deviation(values: list[float]) -> None:
    # two passes over 40 values lose a few units of 2^-52 of the largest value
    tolerance = 1e-13 * (1 + max(abs(value) for value in values))
    assert population_std(np.array(values)) == pytest.approx(
        statistics.pstdev(values), rel=1e-9, abs=tolerance
    )


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1.0, 1e200, 1.7e308, sys.float_info.max])
def test_a_deviation_neither_overflows_nor_vanishes(scale: float) -> None:
    got = population_std(np.array([0.0, 1.0]) * scale)
    assert got == pytest.approx(scale / 2, rel=1e-12)
    assert math.isfinite(population_std(np.array([-scale, scale])))
    # five of either sign, in an order that rounds their deviation up
    ends = np.array([1.0, -1, -1, -1, -1, 1, 1, 1, 1, -1]) * scale
    assert population_std(ends) == pytest.approx(scale, rel=1e-12)


def test_a_constant_scores_exactly_zero_whatever_its_size() -> None:
    assert population_std(np.full(1000, 0.1)) == 0.0
    assert population_std(np.full(7, 1e300)) == 0.0


def test_the_deviations_and_rankings_over_the_printed_rows_are_reproduced() -> None:
    cells = list(golden_attributes.GROUPS["ranking"](GOLDEN))
    assert len(cells) == 31
    assert [cell for cell in cells if not cell.equal] == []


def test_less_information_comes_first_and_ties_keep_the_order_of_the_contract() -> None:
    window = {
        name: np.array(values, dtype=np.float64)
        for name, values in {"a": [0, 9], "b": [5, 5], "c": [0, 9], "d": [1, 1]}.items()
    }
    assert [one.attribute for one in rank(window, ["c", "a", "d", "b"], smoothing=PLAIN)] == [
        "d",
        "b",
        "c",
        "a",
    ]
    assert [one.attribute for one in rank(window, ["a", "b", "c", "d"], smoothing=PLAIN)] == [
        "b",
        "d",
        "a",
        "c",
    ]


def test_a_unit_changes_the_order_of_stddev_but_not_of_relative() -> None:
    inches = {"level": np.array([29.0, 30.0, 31.0]), "rain": np.array([1.0, 2.0, 3.0])}
    millimetres = {"level": inches["level"] * 25.4, "rain": inches["rain"]}

    def order(window: dict[str, np.ndarray], by: str) -> list[str]:
        return [one.attribute for one in rank(window, ["level", "rain"], by=by, smoothing=PLAIN)]

    assert order(inches, "relative") == order(millimetres, "relative") == ["level", "rain"]
    assert order(inches, "stddev") == ["level", "rain"]
    assert order(millimetres, "stddev") == ["rain", "level"]


def test_relative_is_to_the_size_of_what_was_smoothed_whatever_its_sign() -> None:
    values, smoothing = np.array([4.0, 2.0, 9.0, 1.0, 7.0]), Smoothing(multiplier=0.5)
    smoothed = smoothing.smooth(values)
    wanted = population_std(smoothed) / float(smoothed.mean())
    assert score(values, smoothing, relative=True) == pytest.approx(wanted)
    assert score(-values, smoothing, relative=True) == pytest.approx(wanted)


@pytest.mark.parametrize("by", ["stddev", "relative"])
def test_what_was_never_observed_is_shed_first(by: str) -> None:
    window = {
        "full": np.array([1.0, 2.0]),
        "none": np.array([np.nan, np.nan]),
        "inf": np.array([np.inf, np.nan]),
    }
    ranked = rank(window, ["full", "none", "inf"], by=by)
    assert [(one.attribute, one.score) for one in ranked[:2]] == [("none", 0.0), ("inf", 0.0)]


def test_text_scores_by_how_evenly_its_values_are_spread() -> None:
    constant, even, distinct = (np.array(list(letters), dtype=object) for letters in ("aaaa", "aabb", "abcd"))
    assert text_score(constant) == 0.0
    # the deviation of unit vectors: sqrt(1 - 2 x 1/4) and sqrt(1 - 4 x 1/16)
    assert text_score(even) == pytest.approx(math.sqrt(0.5))
    assert text_score(distinct) == pytest.approx(math.sqrt(0.75))
    assert text_score(np.array([None, None], dtype=object)) == 0.0


def test_the_most_recoverable_attribute_is_shed_first() -> None:
    ranked = rank({}, ["a", "b"], by="recoverability", recoverability={"a": 0.5, "b": 7.0})
    assert [one.attribute for one in ranked] == ["b", "a"]


def test_smoothing_takes_an_outlier_out_of_the_score() -> None:
    spike, waves = np.zeros(64), np.tile([3.0, -3.0], 32)
    spike[30] = 30.0
    names = ["spike", "waves"]
    window = {"spike": spike, "waves": waves}
    assert rank(window, names, smoothing=PLAIN)[0].attribute == "waves"
    assert rank(window, names, smoothing=Smoothing(multiplier=0.9))[0].score < 3.0


def test_what_cannot_be_ranked_is_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match="`rank_by` must"):
        rank({}, [], by="variance")
    with pytest.raises(InvalidValue, match=r"`window` must hold .*; read b too"):
        rank({"a": np.zeros(2)}, ["a", "b"])
    with pytest.raises(InvalidValue, match=r"`recoverability` must be known .*b, got None"):
        rank({}, ["a", "b"], by="recoverability", recoverability={"a": 1.0, "b": math.nan})
    with pytest.raises(InvalidValue, match="`recoverability` must be known"):
        rank({}, ["a"], by="recoverability")
