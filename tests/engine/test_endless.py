"""Questions without end are given up, by either engine, and what is asked beside and after them is answered."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spillway.engine.statements import SqlView, ask_duckdb, ask_spark
from spillway.errors import SpillwayError

NUMBERS = SqlView(pa.schema([("x", pa.int64())]), [lambda: pa.table({"x": [1, 2, 5]})])
MOST = [("asked", "SELECT max(x) AS n FROM sites")]


def endless(column: str) -> list[tuple[str, str]]:
    where = f"r.{column} % 3 = sites.x % 3"
    return [("asked", f"SELECT count(*) AS n FROM range(100000000000) r, sites WHERE {where}")]


@pytest.mark.parametrize(
    "steps",
    [
        endless("range"),
        [
            (
                "asked",
                "WITH RECURSIVE on_and_on AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM on_and_on) "
                "SELECT max(n) AS n FROM on_and_on",
            )
        ],
    ],
    ids=["many rows", "recursion"],
)
def test_this_process_gives_up_a_question_without_end(steps: list[tuple[str, str]]) -> None:
    with pytest.raises(SpillwayError, match=r"must answer a window within 0\.2 seconds.*raise most_seconds"):
        ask_duckdb({"sites": NUMBERS}, steps, 10, 0.2)
    assert ask_duckdb({"sites": NUMBERS}, MOST, 10, 3600.0).to_pylist() == [{"n": 5}]


def test_spark_gives_up_a_question_without_end_whether_it_has_begun_or_not(spark: Any) -> None:
    for seconds in (0.01, 2.0):
        with pytest.raises(SpillwayError, match=f"must answer a window within {seconds:g} seconds"):
            ask_spark(spark, {"sites": NUMBERS}, endless("id"), 10, seconds)
    assert ask_spark(spark, {"sites": NUMBERS}, MOST, 10, 3600.0).to_pylist() == [{"n": 5}]
