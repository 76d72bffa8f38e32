"""The order of rows that the evidence compares is the one that the product would write."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from evidence.attributes.codecs.samples import real_sample
from evidence.attributes.row_order import compare_orders, round_measures, shed_measures, transmitted_columns
from evidence.book import Book
from spillway.parquet import LEAST_SAVING, best_layout


@pytest.mark.parametrize("name", ["cities", "seattle_days", "emissions"])
def test_figure_of_a_stream_says_which_order_is_written(name: str) -> None:
    sample = real_sample(name)
    figures = compare_orders(Book(lambda _: None), [sample])
    saving = figures[f"attributes.key_order_saves_pct.{name}"]
    keys, _ = best_layout(transmitted_columns(sample), sample.key)
    assert (saving >= 100 * LEAST_SAVING) == (keys == sample.key)
    assert (saving == 0) == (name == "seattle_days"), "one sender alone has one order"


def test_rounded_measures_keep_their_bound_and_shed_ones_are_null() -> None:
    sample = real_sample("seattle_days")
    rows = transmitted_columns(sample)
    for name in sample.measures:
        was, now = (np.asarray(one[name].cast(pa.float64())) for one in (rows, round_measures(rows, sample)))
        assert (np.abs(now - was) <= 0.045 * np.abs(was) + 1e-9).all()
        assert shed_measures(rows, sample)[name].null_count == rows.num_rows
