"""Figures 3.7, 3.8 and 3.9 of Fiscato 2012, run as queries: what rows of results carry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from evidence.attributes.lake import ENGINE, Lake
from evidence.quality.sifted_streams import BEGIN
from spillway.contracts import read_channel, read_stream, read_workload
from spillway.errors import SpillwayError
from spillway.pipeline.run import run_channel
from spillway.workloads.run import run_workloads

Row = dict[str, Any]


@pytest.fixture
def forgetting() -> Iterator[list[Lake]]:
    made: list[Lake] = []
    yield made
    for one in made:
        one.forget()


def stream(name: str) -> dict[str, Any]:
    return {
        "stream": name,
        "channel": "wide",
        "source": {"path": name, "format": "json", "settle_seconds": 0},
        "rate": {"from": "declared", "tuples_per_second": 1},
        "levers": [],
        "attributes": [
            {"name": "who", "type": "string", "role": "key", "nullable": False},
            {"name": "at", "type": "timestamp", "role": "order", "nullable": False},
            {"name": "number", "type": "integer", "role": "protected"},
            {"name": "word", "type": "string", "role": "protected"},
        ],
    }


def lake_of(name: str, forgetting: list[Lake], sources: Mapping[str, Sequence[int]]) -> Lake:
    """Streams of which tuples with these numbers arrived, all in one window; one more closes it."""
    files = {}
    for source, numbers in sources.items():
        rows = [
            {"who": "a", "at": (BEGIN + timedelta(seconds=at * 0.1)).isoformat(), "number": number,
             "word": ("good", "bad", "dull")[number % 3]}
            for at, number in enumerate(numbers)
        ]  # fmt: skip
        rows.append({**rows[0], "at": (BEGIN + timedelta(seconds=90)).isoformat(), "number": numbers[-1] + 1})
        text = "".join(json.dumps(row) + "\n" for row in rows)
        files[source] = {f"{BEGIN.date()}/a.json": text.encode()}
    streams = {source: read_stream(stream(source)) for source in sources}
    lake = Lake.land(
        f"figures-{name}", streams, files, {"wide": read_channel("wide", {"capacity": "1 Gbps"})}
    )
    run_channel(lake.tables, ENGINE, lake.contracts, "wide", "e")
    forgetting.append(lake)
    return lake


def answer(lake: Lake, **lever: Any) -> tuple[Row, list[Row]]:
    """The window's row of `coverage`, and its results."""
    inputs = list(lake.contracts.streams)
    query = read_workload(
        {
            "name": "figure",
            "inputs": inputs,
            "window": {"seconds": 60},
            "levers": [{"lever": "quality", **lever}],
        }
    )
    run_workloads(lake.tables, ENGINE, replace(lake.contracts, queries={"figure": query}), ["figure"])
    (coverage,) = lake.tables.at("coverage").rows(subject="figure").to_pylist()
    rows = lake.tables.at("results", "figure").rows().to_pylist()
    return coverage, sorted(rows, key=lambda row: row["row"])


AVERAGES = [
    *({"name": f"avg{at}", "sql": f"SELECT avg(number) AS m FROM s{at}"} for at in (1, 2, 3)),
    {
        "name": "largest",
        "sql": "SELECT max(m) AS m FROM (SELECT m FROM avg1 UNION ALL SELECT m FROM avg2 UNION ALL SELECT m FROM avg3)",
    },
]


@pytest.mark.parametrize(("second", "expected"), [([1, 2, 3, 4], Fraction(1)), ([1, 3, 4], Fraction(11, 12))])
def test_figure_3_7_three_sources_join_in_one_result(
    forgetting: list[Lake], second: list[int], expected: Fraction
) -> None:
    lake = lake_of(f"3-7-{len(second)}", forgetting, {"s1": [1, 2], "s2": second, "s3": [1, 2, 3]})
    numbered = [{"input": name, "attribute": "number"} for name in ("s1", "s2", "s3")]
    coverage, rows = answer(lake, steps=AVERAGES, numbered=numbered)
    assert len(rows) == 1
    assert rows[0]["sic"] == pytest.approx(float(expected), abs=1e-12)
    assert coverage["sic"] == rows[0]["coverage"] == rows[0]["sic"]
    assert (coverage["produced"], coverage["lost"]) == (9, 4 - len(second))


@pytest.mark.parametrize("kept", [300, 200])
def test_figure_3_8_ten_rows_of_the_split_computation(forgetting: list[Lake], kept: int) -> None:
    """300 tuples, split three ways; where one of three parts is lost, two thirds arrive."""
    numbers = [number for number in range(300) if kept == 300 or number % 3 != 1]
    assert len(numbers) == kept
    lake = lake_of(f"3-8-{kept}", forgetting, {"posts": numbers})
    numbered = [{"input": "posts", "attribute": "number"}]
    _, rows = answer(lake, sql="SELECT number FROM posts ORDER BY number DESC LIMIT 10", numbered=numbered)
    assert len(rows) == 10
    for row in rows:
        assert row["sic"] == pytest.approx(kept / 300 / 10, abs=1e-12)


FAN_OUT = [
    {"name": "hits", "sql": "SELECT word FROM posts WHERE word <> 'dull'"},
    {"name": "good", "sql": "SELECT count(*) AS n FROM hits WHERE word = 'good'", "result": True},
    {"name": "bad", "sql": "SELECT count(*) AS n FROM hits WHERE word = 'bad'", "result": True},
    {"name": "ratio", "sql": "SELECT good.n / bad.n AS share FROM good CROSS JOIN bad"},
]


def test_figure_3_9_three_results_share_the_coverage(forgetting: list[Lake]) -> None:
    lake = lake_of("3-9", forgetting, {"posts": range(12)})
    coverage, rows = answer(lake, steps=FAN_OUT)
    assert {row["result_step"]: row["sic"] for row in rows} == {"good": 0.25, "bad": 0.25, "ratio": 0.5}
    assert {row["result_step"]: (row["n"], row["share"]) for row in rows} == {
        "good": (4, None), "bad": (4, None), "ratio": (None, 1.0),
    }  # fmt: skip
    assert (coverage["sic"], coverage["results"], coverage["rows"]) == (1.0, 3, 3)


def test_two_steps_that_nobody_reads_are_two_results(forgetting: list[Lake]) -> None:
    lake = lake_of("two", forgetting, {"posts": range(12)})
    steps = [
        {"name": "good", "sql": "SELECT word FROM posts WHERE word = 'good'"},
        {"name": "none", "sql": "SELECT count(*) AS n FROM posts WHERE word = 'none' GROUP BY word"},
    ]
    coverage, rows = answer(lake, steps=steps, numbered=[{"input": "posts", "attribute": "number"}])
    assert [(row["result_step"], row["sic"], row["coverage"]) for row in rows] == [("good", 0.125, 1.0)] * 4
    assert coverage["sic"] == 1.0, "a result without a row keeps its part"


def test_results_that_cannot_stand_in_one_table_are_refused(forgetting: list[Lake]) -> None:
    lake = lake_of("types", forgetting, {"posts": range(6)})
    steps = [
        {"name": "one", "sql": "SELECT word AS n FROM posts"},
        {"name": "other", "sql": "SELECT number AS n FROM posts"},
    ]
    with pytest.raises(SpillwayError, match="must have the same type for a column in all results"):
        answer(lake, steps=steps)
