"""Queries without end are given up by either engine; queries after them are answered."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from spillway.engine.statements import SqlView, query_duckdb, query_spark
from spillway.errors import SpillwayError

NUMBERS = SqlView(pa.schema([("x", pa.int64())]), [lambda: pa.table({"x": list(range(1000))})])
MOST = [("asked", "SELECT max(x) AS n FROM sites")]
ENDLESS = [
    (
        "asked",
        "SELECT count(*) AS n FROM sites a, sites b, sites c, sites d, sites e "
        "WHERE (a.x + b.x * 3 + c.x * 5 + d.x * 7 + e.x) % 11 = 3",
    )
]


def test_process_engine_gives_up_a_query_without_end() -> None:
    with pytest.raises(SpillwayError, match=r"must answer a window within 0\.2 seconds.*raise most_seconds"):
        query_duckdb({"sites": NUMBERS}, ENDLESS, 10, 0.2)
    assert query_duckdb({"sites": NUMBERS}, MOST, 10, 3600.0).to_pylist() == [{"n": 999}]


def slow_rows() -> pa.Table:
    """Return rows that nobody waits for."""
    time.sleep(60)
    return pa.table({"x": [1]})


def test_spark_gives_up_a_query_that_takes_too_long_whether_it_has_begun_or_not(spark: Any) -> None:
    slow = SqlView(NUMBERS.schema, [slow_rows, slow_rows])
    for seconds in (0.01, 2.0):
        with pytest.raises(SpillwayError, match=f"must answer a window within {seconds:g} seconds"):
            query_spark(spark, {"sites": slow}, MOST, 10, seconds)
    assert query_spark(spark, {"sites": NUMBERS}, MOST, 10, 3600.0).to_pylist() == [{"n": 999}]
