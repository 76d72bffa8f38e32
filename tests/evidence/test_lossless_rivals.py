"""The product against lossless compressors: what is counted on either side, and that nothing is lost."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date, datetime, timedelta

import numpy as np
import pcodec
import pyarrow as pa
import pytest
from pcodec import standalone

from evidence.attributes.generated import Source, generate_stream
from evidence.attributes.lake import Lake
from evidence.attributes.lossless import (
    ComparedStream,
    SentBytes,
    compare,
    compare_figures,
    differing_values,
    is_regular,
    pcodec_column_bytes,
    pcodec_file_bytes,
    rival_sizes,
    trained_before_newest,
)
from evidence.attributes.variants import with_settings
from evidence.book import Book
from spillway.levers.attributes.policy import own_settings
from spillway.levers.attributes.settings import AttributeSettings
from spillway.lossless import csv_bytes, gzip_bytes, parquet_bytes, xz_bytes

TRAINING = AttributeSettings().training
MEASURES = ("Current Index", "Response Time", "Packet Loss", "Average Delay")


@pytest.fixture(scope="module")
def one() -> ComparedStream:
    made = generate_stream(Source("a.net", "internet", ("Router", *MEASURES), 24), cycles=200, seed=3)
    return compare("a_net", made.contract, made.files)


@pytest.mark.long
def test_nothing_is_lost_and_a_bound_takes_fewer_bytes(one: ComparedStream) -> None:
    assert one.differing_values == 0
    assert one.exact.payload_bytes, "something is sent as a synopsis"
    assert one.bound.total_bytes < one.exact.total_bytes


@pytest.mark.long
def test_bytes_of_a_batch_are_columns_synopses_and_fixed_ones(one: ComparedStream) -> None:
    assert one.rows.num_rows == 2400
    assert one.exact.fixed_bytes > 0
    names = [*one.exact.column_bytes]
    assert sum(map(one.exact.of, names)) + one.exact.fixed_bytes == one.exact.total_bytes
    assert one.order_bytes_per_row == (one.exact.of("seq") + one.exact.of("polled_at")) / 2400
    assert one.is_regular


def test_rivals_get_the_rows_and_no_more(one: ComparedStream) -> None:
    rows = one.rows.select(["Router", "polled_at", *(name.replace(" ", "_") for name in MEASURES)])
    by_key = rows.sort_by([("Router", "ascending"), ("polled_at", "ascending")])
    orders = (rows, by_key)
    assert one.sizes == {
        "gzip": min(gzip_bytes(csv_bytes(each)) for each in orders),
        "xz": min(xz_bytes(csv_bytes(each)) for each in orders),
        "parquet": min(parquet_bytes(each) for each in orders),
        "pcodec": min(pcodec_file_bytes(each) for each in orders),
    }
    assert one.best_bytes == min(one.sizes["xz"], one.sizes["parquet"], one.sizes["pcodec"])


@pytest.mark.parametrize(
    ("values", "known"),
    [
        (pa.array([1.5, None, math.nan, -0.0] * 90), np.array([1.5, math.nan, -0.0] * 90)),
        (
            pa.array([date(1969, 12, 30) + timedelta(days=at) for at in range(90)]),
            np.arange(-2, 88, dtype=np.int32),
        ),
        (
            pa.array([datetime(1970, 1, 1) + timedelta(minutes=at) for at in range(90)], pa.timestamp("us")),
            np.arange(0, 90 * 60, 60),
        ),
        (pa.array([7, None, 9] * 40, pa.int64()), np.array([7, 9] * 40)),
    ],
)
def test_pcodec_gets_the_known_values_and_a_bitmap_of_nulls(values: pa.Array, known: np.ndarray) -> None:
    packed = standalone.simple_compress(known, pcodec.ChunkConfig(compression_level=12))
    assert np.array_equal(standalone.simple_decompress(packed), known, equal_nan=known.dtype.kind == "f")
    size = pcodec_column_bytes(pa.chunked_array([values]))
    bits = size - len(packed)
    assert bits == 0 if not values.null_count else bits > 0


def test_pcodec_gets_decimals_as_whole_numbers_too_and_is_counted_at_the_smaller() -> None:
    steps = np.random.default_rng(5).integers(0, 900, 4_000)
    config = pcodec.ChunkConfig(compression_level=12)
    as_whole = len(standalone.simple_compress(steps, config))
    assert pcodec_column_bytes(pa.chunked_array([steps / 1000])) <= as_whole
    irrational = np.sqrt(steps.astype(np.float64))
    assert pcodec_column_bytes(pa.chunked_array([irrational])) == len(
        standalone.simple_compress(irrational, config)
    )


def test_models_are_trained_on_no_row_of_the_newest_batch() -> None:
    made = generate_stream(Source("b.net", "internet", ("Router", *MEASURES), 24), cycles=40, seed=3)
    lake = Lake.land("rivals-b", {made.contract.stream: made.contract}, {made.contract.stream: made.files})
    greedy = with_settings(
        made.contract, replace(own_settings(made.contract), training=replace(TRAINING, tuples=10_000))
    )
    stated = trained_before_newest(greedy, lake.batches(made.contract.stream))
    assert own_settings(stated).training.tuples == lake.batches(made.contract.stream)[0].rows
    lake.forget()


def test_text_columns_of_the_pcodec_rival_are_parquet() -> None:
    rows = pa.table({"name": ["a", "b"] * 300, "value": pa.array(range(600), pa.int64())})
    numbers = len(standalone.simple_compress(np.arange(600), pcodec.ChunkConfig(compression_level=12)))
    assert pcodec_file_bytes(rows) == numbers + parquet_bytes(rows.select(["name"]))
    assert rival_sizes(rows, [], None)["pcodec"] == pcodec_file_bytes(rows)


def test_values_that_differ_are_counted() -> None:
    truth = pa.chunked_array([[1.0, None, math.nan, 2.0, 0.0]])
    assert differing_values(truth, truth) == 0
    assert differing_values(truth, pa.chunked_array([[1.0, 3.0, None, 2.5, 0.0]])) == 3
    assert differing_values(truth, pa.chunked_array([[1, 2, 3, 4, 5]])) == 5
    assert differing_values(pa.chunked_array([["a", None]]), pa.chunked_array([["a", ""]])) == 1


def test_steps_of_the_time_decide_whether_an_order_is_regular() -> None:
    polled = [datetime(2026, 1, 1) + timedelta(minutes=at // 6) for at in range(600)]
    assert is_regular(pa.chunked_array([pa.array(polled, pa.timestamp("us"))]))
    drawn = np.cumsum(np.random.default_rng(1).integers(1, 50, 600))
    assert not is_regular(pa.chunked_array([pa.array(drawn)]))


def test_figures_compare_with_the_best_rival_with_and_without_fixed_bytes() -> None:
    rows = pa.table({"seq": range(100), "at": range(100), "value": [1.0] * 100})
    sizes = {"gzip": 10, "xz": 900, "parquet": 1000, "pcodec": 800}
    crossed = SentBytes(1000, {"seq": 5, "at": 10, "value": 100}, {"value": 125})
    made = ComparedStream("net", rows, (), sizes, crossed, crossed, 2, ("at",))
    other = ComparedStream("more", rows, (), {**sizes, "xz": 250}, crossed, crossed, 0, ("at",))
    found = compare_figures(Book(lambda _: None), [made, other])
    assert made.best == "pcodec"
    assert found["attributes.exact_bytes_over_best_lossless.net"] == 1.25
    assert found["attributes.exact_bytes_over_best_lossless_geometric_mean"] == pytest.approx(
        math.sqrt(1.25 * 4)
    )
    assert found["attributes.exact_fixed_bytes.net"] == 760
    assert found["attributes.exact_bytes_without_fixed_over_best_lossless_largest"] == 0.96
    assert found["attributes.order_bytes_per_row.net"] == 0.15
    assert found["attributes.exact_differing_values"] == 2
