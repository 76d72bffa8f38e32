"""The baselines: LRU buffering, FP-buffering, the plain Bloom filter, Fast-AGMS."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sketches import reference

from evidence.sketches.bloom import Bloom, BloomParameters, false_positive_rate, optimal_hashes
from evidence.sketches.fp_buffering import LruBuffer, with_false_positives
from spillway.errors import InvalidValue
from spillway.sketches.fast_agms import FastAgms, FastAgmsParameters

KEYS = st.lists(st.integers(0, 12), max_size=80)


@settings(max_examples=60, deadline=None)
@given(KEYS, st.integers(1, 8))
def test_the_buffer_is_an_ordered_dictionary_that_forgets_the_least_recent(
    keys: list[int], size: int
) -> None:
    buffer = LruBuffer(size)
    assert buffer.observe(np.array(keys, dtype=np.uint64)).tolist() == reference.lru(keys, size)


def test_the_buffer_keeps_its_state_between_batches_at_scale() -> None:
    keys = np.random.default_rng(1).zipf(1.3, 20_000).astype(np.uint64)
    buffer = LruBuffer(300)
    found = np.concatenate([buffer.observe(keys[:9000]), buffer.observe(keys[9000:])])
    assert found.tolist() == reference.lru(keys.tolist(), 300)


def test_fp_buffering_adds_false_positives_at_the_stated_rate_and_multiplies_misses_by_the_rest() -> None:
    found = np.zeros(100_000, dtype=np.bool_)
    found[:20_000] = True
    called = with_false_positives(found, 0.1, seed=2)
    assert called[:20_000].all()
    # binomial(80,000, 0.1): sd of the share 0.00106
    assert called[20_000:].mean() == pytest.approx(0.1, abs=4 * 0.00106)
    # Figure 3.4: FN of FP-buffering is buffering's times (1 - FP), to the printed whole percent
    for row in csv.DictReader((Path(__file__).parents[1] / "golden" / "004_fig3_4.csv").open()):
        product = float(row["FN_Buffering"]) * (1 - float(row["FP_SBF_and_FPBuffering"]) / 100)
        assert product == pytest.approx(float(row["FN_FPBuffering"]), abs=1.0)
    with pytest.raises(InvalidValue, match="from 0 to 1"):
        with_false_positives(found, 1.5)
    with pytest.raises(InvalidValue, match="at least 1"):
        LruBuffer(0)


def test_a_bloom_filter_misses_nothing_and_errs_as_its_formula_says() -> None:
    bloom = Bloom(BloomParameters(1 << 14, optimal_hashes(1 << 14, 2000)))
    bloom.observe(np.arange(2000, dtype=np.uint64))
    assert bloom.observe(np.arange(2000, dtype=np.uint64)).all()
    fresh = Bloom(BloomParameters(1 << 14, 3))
    fresh.observe(np.arange(2000, dtype=np.uint64))
    wrong = np.mean([Bloom.from_bytes(fresh.to_bytes()).observe(np.array([k]))[0] for k in range(5000, 7000)])
    expected = false_positive_rate(1 << 14, 3, 2000)
    # binomial(2000, 0.03): sd 0.004
    assert wrong == pytest.approx(expected, abs=4 * 0.004)
    with pytest.raises(InvalidValue, match="at least 1"):
        optimal_hashes(64, 0)


def test_figure_3_4s_bloom_column_is_the_streams_average_with_two_hashes() -> None:
    # E4: averaging the formula over the distinct elements as they come gives the printed rates
    for row in csv.DictReader((Path(__file__).parents[1] / "golden" / "004_fig3_4.csv").open()):
        if row["data_set"].startswith("100K"):
            seen = np.linspace(0, 75_660, 2001)
            mean = np.mean([false_positive_rate(int(row["space_bits"]), 2, n) for n in seen])
            assert 100 * mean == pytest.approx(float(row["FP_BF"]), abs=0.2)


@settings(max_examples=20, deadline=None)
@given(KEYS, KEYS)
def test_bloom_filters_merge_to_the_filter_of_both(left: list[int], right: list[int]) -> None:
    parameters = BloomParameters(256, 2)
    one, two, both = Bloom(parameters), Bloom(parameters), Bloom(parameters)
    one.observe(np.array(left, dtype=np.uint64))
    two.observe(np.array(right, dtype=np.uint64))
    both.observe(np.array(left + right, dtype=np.uint64))
    assert one.merge(two).to_bytes() == both.to_bytes()
    with pytest.raises(InvalidValue, match="same parameters and seed"):
        one.merge(Bloom(BloomParameters(256, 3)))


def test_fast_agms_is_unbiased_with_the_variance_of_lemma_3_and_5() -> None:
    keys = np.arange(40, dtype=np.uint64)
    frequencies = np.random.default_rng(5).poisson(20.0, 40)
    points, moments = [], []
    for seed in range(3000):
        sketch = FastAgms(FastAgmsParameters(8, 1, seed)).update(keys, frequencies)
        moments.append(sketch.self_join_rows().item())
        low = sketch.table
        points.append(low)
    second = float((frequencies**2).sum())
    variance = 2 / 8 * (second**2 - float((frequencies**4).sum()))
    # mean of 3,000: 4 standard errors; a variance of 3,000 near-normal draws: sd about sqrt(2/3000) = 2.6 %
    assert np.mean(moments) == pytest.approx(second, abs=4 * np.sqrt(variance / 3000))
    assert np.var(moments) == pytest.approx(variance, rel=0.2)
    assert np.mean(points) == pytest.approx(0.0, abs=4 * np.sqrt(second / 8 / 3000 / 8))


@settings(max_examples=20, deadline=None)
@given(KEYS, KEYS)
def test_fast_agms_merges_and_comes_back_from_bytes(left: list[int], right: list[int]) -> None:
    parameters = FastAgmsParameters(16, 3, 1)
    one, two, both = (
        FastAgms(parameters).update(np.array(keys, dtype=np.uint64)) for keys in (left, right, left + right)
    )
    merged = FastAgms.from_bytes(one.merge(two).to_bytes())
    assert merged.table.tolist() == both.table.tolist()
    assert merged.total == both.total
    with pytest.raises(InvalidValue, match="same parameters and seed"):
        one.merge(FastAgms(FastAgmsParameters(16, 3, 2)))


def test_fast_agms_intervals_cover_and_negative_frequencies_are_fine() -> None:
    rng = np.random.default_rng(6)
    keys = np.arange(2000, dtype=np.uint64)
    left, right = rng.poisson(9.0, 2000), rng.poisson(4.0, 2000)
    inside = np.zeros(3)
    for seed in range(150):
        one = FastAgms(FastAgmsParameters(256, 5, seed)).update(keys, left)
        two = FastAgms(FastAgmsParameters(256, 5, seed)).update(keys, right)
        point, mine, both = one.point(keys, 0.9), one.self_join_size(0.9), one.join_size(two, 0.9)
        inside += [
            np.mean((point.low <= left) & (left <= point.high)),
            mine.low <= (left**2).sum() <= mine.high,
            both.low <= (left * right).sum() <= both.high,
        ]
    # binomial(150, 0.9): sd 0.025
    assert (inside / 150 > 0.9 - 3 * 0.025).all()
    negative = FastAgms(FastAgmsParameters(64, 5)).update(np.array([3]), np.array([-7]))
    assert negative.self_join_size().estimate == 49.0
    with pytest.raises(InvalidValue, match="one per key"):
        negative.update(np.array([3]), np.array([1, 2]))
    for shape in ((1, 3), (8, 0)):
        with pytest.raises(InvalidValue, match="lie from"):
            FastAgmsParameters(*shape)


def test_signed_counters_take_four_bytes_until_they_might_not_hold_what_was_added() -> None:
    small = FastAgms(FastAgmsParameters(8, 3)).update(np.array([1, 2]))
    assert small.table.dtype == np.int32
    large = FastAgms(FastAgmsParameters(8, 3)).update(np.array([1]), np.array([(1 << 31) - 5]))
    assert large.table.dtype == np.int32
    both = large.merge(large)
    assert both.table.dtype == np.int64
    assert both.point(np.array([1])).estimate[0] == 2.0 * ((1 << 31) - 5)
    assert large.update(np.array([1] * 9)).point(np.array([1])).estimate[0] == (1 << 31) + 4
    for sketch in (small, both):
        back = FastAgms.from_bytes(sketch.to_bytes())
        assert (back.table.dtype, back.table.tolist()) == (sketch.table.dtype, sketch.table.tolist())


def test_a_confidence_that_is_no_probability_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"`confidence` must lie between 0 and 1, got 2\.0"):
        FastAgms(FastAgmsParameters(8, 3)).point(np.array([1]), 2.0)
