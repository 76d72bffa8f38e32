"""Parameters from memory, error and confidence; the estimator from the skew."""

from __future__ import annotations

import numpy as np
import pytest

from evidence.sketches.frequency import estimator_by_skew
from spillway.errors import InvalidValue
from spillway.sketches.count_min import (
    CountMin,
    CountMinParameters,
    effective_keys,
    parameters_for_memory,
)
from spillway.sketches.intervals import check_confidence, median_row_tail


def zipf(skew: float, rows: int = 100_000, keys: int = 10_000) -> np.ndarray:
    shares = np.arange(1, keys + 1) ** -skew
    return np.random.default_rng(1).multinomial(rows, shares / shares.sum())


@pytest.mark.parametrize("width", [256, 1024])
@pytest.mark.parametrize("skew", [0.0, 0.5, 0.8, 1.2, 1.6, 2.0])
def test_auto_is_as_sharp_as_the_sharpest_at_every_skew(skew: float, width: int) -> None:
    frequencies = zipf(skew)
    keys = np.arange(frequencies.size, dtype=np.uint64)
    errors = {"cm": 0.0, "cmm_mean": 0.0, "cmm_median": 0.0, "auto": 0.0}
    for seed in range(5):
        sketch = CountMin(CountMinParameters(width, 5, seed)).update(keys, frequencies)
        for estimator in errors:
            errors[estimator] += (
                np.abs(sketch.point(keys[:100], estimator).estimate - frequencies[:100]).mean() / 5
            )
    # the mean of 5 tables and 100 keys wavers by a tenth; half a count is nothing where all are nearly exact
    assert errors["auto"] <= 1.1 * min(errors.values()) + 0.5


def test_few_effective_keys_choose_cm_and_many_choose_the_mean_correction() -> None:
    flat = CountMin(CountMinParameters(256, 5)).update(np.arange(50_000, dtype=np.uint64))
    assert estimator_by_skew(flat) == "cmm_median"
    # relative deviation of F2 at w = 256, d = 5: sqrt(2/255) * 0.54 = 0.047
    assert effective_keys(flat) == pytest.approx(50_000, rel=50_000 / 256 * 4 * 0.047)
    peaked = CountMin(CountMinParameters(256, 5)).update(np.repeat(np.arange(3, dtype=np.uint64), 1000))
    assert estimator_by_skew(peaked) == "cm"
    assert effective_keys(peaked) == pytest.approx(3, rel=0.2)
    assert effective_keys(CountMin(CountMinParameters(256, 5))) == 0.0


def test_the_median_of_rows_fails_as_often_as_its_row_tail_says() -> None:
    rng = np.random.default_rng(2)
    for depth in (1, 3, 4, 5):
        tail = median_row_tail(depth, 0.05)
        failed = np.median(rng.random((200_000, depth)) < tail, axis=1) > 0.5
        # binomial(200,000, 0.05): sd 0.0005; an even depth fails less, it needs more than half
        assert failed.mean() < 0.05 + 4 * 0.0005
        if depth % 2:
            assert failed.mean() > 0.05 - 4 * 0.0005


def test_too_little_memory_for_any_table_says_what_it_takes() -> None:
    assert parameters_for_memory(80).width == 2
    with pytest.raises(InvalidValue, match="at least 80 bytes for any table of 5 rows"):
        parameters_for_memory(79)
    assert parameters_for_memory(4096, depth=2).width == 256


def test_a_confidence_is_a_share() -> None:
    for wrong in (0.0, 1.0, -1.0, 2.0):
        with pytest.raises(InvalidValue, match="between 0 and 1"):
            check_confidence(wrong)
