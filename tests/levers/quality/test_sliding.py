"""Windows that overlap: each is worked out of all of its rows, and knows what was produced for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from evidence.attributes.lake import ENGINE
from evidence.quality.sifted_streams import BEGIN, SiftedLake, deliver_rows, meters_lake, sifted_lake
from spillway.contracts import read_workload
from spillway.contracts.workload import Workload
from spillway.errors import SpillwayError
from spillway.workloads.run import run_workloads
from spillway.workloads.windows import workload_problems

Row = dict[str, Any]


@pytest.fixture
def forgetting() -> Iterator[list[SiftedLake]]:
    made: list[SiftedLake] = []
    yield made
    for one in made:
        one.lake.forget()


def polls(begin: int, count: int, every: float = 1.0) -> list[Row]:
    return [
        {
            "site": "a",
            "at": BEGIN + timedelta(seconds=begin + every * at),
            "load": 0.0,
            "level": 1.0,
            "flow": 1.0,
        }
        for at in range(count)
    ]


def sliding(slide: float | None = 60, seconds: float = 300, **lever: Any) -> Workload:
    settings = {"lever": "quality", "sql": "SELECT count(*) AS n, sum(level) AS s FROM meters", **lever}
    window = {"seconds": seconds, "slide_seconds": slide}
    return read_workload({"name": "sliding", "inputs": ["meters"], "window": window, "levers": [settings]})


def run(made: SiftedLake, query: Workload) -> tuple[list[Row], list[Row]]:
    lake = made.lake
    run_workloads(lake.tables, ENGINE, replace(lake.contracts, queries={"sliding": query}), ["sliding"])
    found = (lake.tables.at("coverage").rows(subject="sliding"), lake.tables.at("results", "sliding").rows())
    coverage, results = (sorted(one.to_pylist(), key=lambda row: row["window"]) for one in found)
    return coverage, results


def brute(rows: Any, begin: Any, end: Any) -> int:
    return sum(begin <= row["at"] < end for row in rows)


def test_every_window_has_all_of_its_rows_and_late_ones_open_all_that_they_lie_in(
    forgetting: list[SiftedLake],
) -> None:
    rows = [*polls(0, 400), *polls(400, 100, 4.0)]
    made = meters_lake("sliding", None, [rows[:130], rows[130:131], rows[131:]])
    forgetting.append(made)
    coverage, results = run(made, sliding())
    first = int(BEGIN.timestamp()) // 60
    # the last row lies in minute 13: windows that end there or before are closed
    assert [row["window"] - first for row in results] == list(range(-4, 9))
    for row in results:
        assert row["window_end"] - row["window_start"] == timedelta(seconds=300)
        assert row["n"] == row["s"] == brute(rows, row["window_start"], row["window_end"])
    assert {row["sic"] for row in coverage} == {1.0}
    late = polls(250, 7, 0.5)
    deliver_rows(made.lake, "late.json", late)
    again, results = run(made, sliding())
    assert [row["n"] for row in results] == [
        brute([*rows, *late], row["window_start"], row["window_end"]) for row in results
    ]
    assert [row["window"] - first for row in again if row["late"]] == [0, 1, 2, 3, 4]
    assert all(row["late"] == 7 for row in again if row["late"])


def test_rows_out_of_order_are_read_once_in_every_window(forgetting: list[SiftedLake]) -> None:
    rows = polls(0, 600)
    mixed = [rows[(at * 7) % 600] for at in range(600)]
    made = meters_lake("sliding-mixed", None, [mixed, polls(900, 1)])
    forgetting.append(made)
    for portion in (None, 13):
        query = replace(sliding(portion_tuples=portion), name="sliding")
        _, results = run(made, query)
        for row in results:
            assert row["n"] == brute(rows, row["window_start"], row["window_end"])
        for table in ("coverage", "windows"):
            made.lake.tables.at(table).delete(subject="sliding")
        made.lake.tables.at("results", "sliding").delete()


def test_sliding_windows_of_a_sifted_stream_know_what_was_produced(forgetting: list[SiftedLake]) -> None:
    made = sifted_lake("sliding-sifted", 1, 1.0, 0.3, {"sliding": sliding()})
    forgetting.append(made)
    coverage, results = run(made, sliding())
    assert len(coverage) > 10
    for row in coverage:
        produced = brute(made.rows, row["from_time"], row["to_time"])
        assert row["produced"] == produced
        assert row["sic"] == pytest.approx(row["arrived"] / produced)
    for row in results:
        true = brute(made.rows, row["window_start"], row["window_end"])
        assert row["n__estimate"] == row["n__low"] == row["n__high"] == true


def test_numbers_missing_at_an_edge_are_missed_once_a_row_of_windows(forgetting: list[SiftedLake]) -> None:
    rows = [{**row, "level": float(at)} for at, row in enumerate(polls(0, 600)) if not 295 <= at < 305]
    made = meters_lake("sliding-numbered", None, [rows, [{**polls(901, 1)[0], "level": 601.0}]])
    forgetting.append(made)
    rule = [{"input": "meters", "attribute": "level"}]
    coverage, _ = run(made, sliding(100, 200, numbered=rule))
    lost = {(row["from_time"] - BEGIN).total_seconds(): row["lost"] for row in coverage}
    assert lost[200.0] == 10
    assert lost[300.0] in (5, 10), "by the window that ended where it begins, which lacks its last ones too"
    assert lost[0.0] == 0


@pytest.mark.parametrize("slide", [7.0, 400.0, 0.01])
def test_a_slide_that_does_not_fit_is_refused(slide: float) -> None:
    with pytest.raises(
        SpillwayError, match=r"slide_seconds` must divide window\.seconds into a whole number"
    ):
        sliding(slide)


def test_another_slide_or_a_join_that_slides_is_refused(forgetting: list[SiftedLake]) -> None:
    made = meters_lake("sliding-other", None, [polls(0, 400), polls(900, 1)])
    forgetting.append(made)
    run(made, sliding(60))
    with pytest.raises(
        SpillwayError, match=r"window\.slide_seconds` must stay the step of the windows .*, 60,"
    ):
        run(made, sliding(100))
    join = read_workload(
        {"name": "pairs", "inputs": ["meters", "meters"], "window": {"seconds": 60, "slide_seconds": 30},
         "levers": [{"lever": "joins", "left": {"attribute": "site", "lasts_seconds": 60},
                     "right": {"attribute": "site", "lasts_seconds": 60}, "predicate": "equality"}]}
    )  # fmt: skip
    problems = workload_problems(replace(made.lake.contracts, joins={"pairs": join}))
    assert [one.field for one in problems] == ["window.slide_seconds"]
