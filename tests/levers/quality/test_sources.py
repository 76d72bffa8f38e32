"""The metric by its definition (Fiscato 2012, 3.2): sources weigh the same, silence and refusals lower it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from evidence.attributes.lake import ENGINE
from evidence.quality.sifted_streams import BEGIN, SiftedLake, deliver_rows, meters_lake, sifted_query
from spillway.contracts import read_workload
from spillway.engine.statements import SqlView, columns_by_duckdb
from spillway.errors import SpillwayError
from spillway.levers.quality.scaled_answer import partial_aggregates_sql
from spillway.levers.quality.settings import QualitySettings, SourceRule
from spillway.levers.quality.sources import source_counts_sql
from spillway.levers.quality.sql_text import plain_aggregate
from spillway.levers.windows import PORTION
from spillway.workloads.run import run_workloads

Row = dict[str, Any]
COUNT = "SELECT count(*) AS n FROM meters"
BY_SITE = {"by": "site"}


@pytest.fixture
def forgetting() -> Iterator[list[SiftedLake]]:
    made: list[SiftedLake] = []
    yield made
    for one in made:
        one.lake.forget()


def polls(site: str, begin: int, count: int, every: float = 1.0, **more: Any) -> list[Row]:
    """Rows of one site."""
    return [
        {"site": site, "at": BEGIN + timedelta(seconds=begin + every * at), "load": 0.0, "level": 1.0,
         "flow": 1.0, **more}
        for at in range(count)
    ]  # fmt: skip


def lake_of(name: str, forgetting: list[SiftedLake], *batches: list[Row], sifter: Any = None) -> SiftedLake:
    made = meters_lake(f"sources-{name}", sifter, [*batches, polls("fast", 900, 1)])
    forgetting.append(made)
    return made


def coverage_of(made: SiftedLake, name: str, sql: str = COUNT, **more: Any) -> list[Row]:
    lake = made.lake
    query = sifted_query(name, sql, **more)
    run_workloads(lake.tables, ENGINE, replace(lake.contracts, queries={name: query}), [name])
    found = lake.tables.at("coverage").rows(subject=name).to_pylist()
    return sorted(found, key=lambda row: row["window"])


@pytest.mark.parametrize("name", ["user", "group", "order", "current_date"])
def test_sources_are_told_apart_by_an_attribute_that_is_a_word_of_sql(name: str) -> None:
    schema = pa.schema([(name, pa.string()), ("weight", pa.float64()), (PORTION, pa.int64())])
    statement = source_counts_sql("polls", SourceRule(by=name), [name, "weight"])
    found = columns_by_duckdb({"polls": SqlView(schema, [])}, [("counted", statement)])
    assert found.names == [PORTION, "source", "tuples", "weights"]


def test_parts_are_asked_of_names_that_are_words_of_sql() -> None:
    of = plain_aggregate("SELECT `group`, sum(`order`) AS s FROM `table` GROUP BY `group`")
    assert of is not None
    schema = pa.schema(
        [("group", pa.string()), ("order", pa.float64()), ("weight", pa.float64()), (PORTION, pa.int64())]
    )
    statement = partial_aggregates_sql(of, frozenset(), weighted=True)
    found = columns_by_duckdb({"table": SqlView(schema, [])}, [("parts", statement)])
    assert found.names[:2] == [PORTION, "group"]


def test_a_slow_source_weighs_as_much_as_a_fast_one(forgetting: list[SiftedLake]) -> None:
    made = lake_of("slow", forgetting, polls("fast", 0, 90), polls("slow", 0, 10))
    small = {"capacity": {"tuples": 90}}
    (by_stream, *_) = coverage_of(made, "stream", **small)
    kept = by_stream["tuples_kept"]
    assert kept in (10, 90)
    assert by_stream["sic"] == pytest.approx(kept / 100)
    (by_source, *_) = coverage_of(made, "sites", sources=BY_SITE, **small)
    assert by_source["sic"] == pytest.approx(0.5)
    fast, slow = by_source["sources"]
    assert (fast["source"], fast["produced"], slow["source"], slow["produced"]) == (
        "fast",
        90.0,
        "slow",
        10.0,
    )
    assert sorted((fast["kept"], slow["kept"])) == [0, by_source["tuples_kept"]]
    weighted = {"by": "site", "weights": [{"source": "slow", "weight": 3}]}
    (by_weight, *_) = coverage_of(made, "weighted", sources=weighted, **small)
    assert by_weight["sic"] == pytest.approx(0.25 if by_weight["tuples_kept"] == 90 else 0.75)
    (row,) = made.lake.tables.at("results", "weighted").rows().to_pylist()
    assert (row["window_start"], row["window_end"]) == (BEGIN, BEGIN + timedelta(seconds=300))
    assert row["coverage"] == row["sic"] == by_weight["sic"]


def test_a_silent_source_lowers_the_coverage_where_its_rate_is_known(forgetting: list[SiftedLake]) -> None:
    made = lake_of(
        "silent", forgetting, [*polls("fast", 0, 300), *polls("slow", 0, 30, 10.0)], polls("fast", 300, 300),
        [*polls("fast", 600, 300), *polls("slow", 600, 15, 10.0)],
    )  # fmt: skip
    unknown = coverage_of(made, "unknown", sources=BY_SITE)
    assert [row["sic"] for row in unknown] == [1.0, 1.0, 1.0]
    assert all(row["relative"] for row in unknown)
    rated = coverage_of(made, "rated", sources={"by": "site", "per_second": 0.1})
    assert [row["sic"] for row in rated] == pytest.approx([1.0, 0.5, 0.75])
    assert [row["lost"] for row in rated] == [0, 30, 15]
    assert not any(row["relative"] for row in rated)
    expected = coverage_of(made, "expected", sources={"by": "site", "expected": ["fast", "slow", "third"]})
    assert [row["sic"] for row in expected] == pytest.approx([2 / 3, 1 / 3, 2 / 3])


def test_a_later_run_remembers_whom_to_expect(forgetting: list[SiftedLake]) -> None:
    made = lake_of("later", forgetting, [*polls("fast", 0, 300), *polls("slow", 0, 30, 10.0)])
    rule = {"by": "site", "per_second": 0.1}
    coverage_of(made, "rated", sources=rule)
    deliver_rows(made.lake, "more.json", polls("fast", 1200, 200))
    deliver_rows(made.lake, "end.json", polls("fast", 1600, 1))
    rows = coverage_of(made, "rated", sources=rule)
    assert [row["window"] % 10 for row in rows] == [2, 5, 6]
    assert [row["sic"] for row in rows] == pytest.approx([1.0, (1 / 30 + 0) / 2, 0.5])


def test_an_input_that_is_slower_than_expected_is_not_covered_whole(forgetting: list[SiftedLake]) -> None:
    made = lake_of("input", forgetting, polls("fast", 0, 150, 2.0))
    (row, *_) = coverage_of(made, "counted", sources={"per_second": 1})
    assert (row["sic"], row["produced"], row["lost"], row["relative"]) == (0.5, 300, 150, False)


def test_sources_of_a_sifted_stream_count_what_their_rows_stand_for(forgetting: list[SiftedLake]) -> None:
    rows = [*polls("fast", 0, 290), *polls("slow", 0, 290, 1.0, load=50.0)]
    sifter = {"rows_per_second": 1.2, "queries": [{"where": "load < 12"}], "sample": {"marked_pct": 10}}
    made = meters_lake("sources-sifted", sifter, [sorted(rows, key=lambda row: row["at"])], 2.0)
    deliver_rows(made.lake, "end.json", polls("fast", 400, 20))
    forgetting.append(made)
    sent = made.lake.tables.at("transmitted", "meters").rows(["site", "load"]).to_pylist()
    slow = sum(row["site"] == "slow" for row in sent)
    assert 0 < slow < 200
    (row, *_) = coverage_of(made, "sites", sources=BY_SITE)
    assert row["sic"] == pytest.approx((1 + slow / 290) / 2, abs=0.02)
    assert row["produced"] == pytest.approx(580, abs=1)


def test_sources_are_told_apart_by_an_attribute_that_there_is(forgetting: list[SiftedLake]) -> None:
    made = lake_of("absent", forgetting, polls("fast", 0, 30))
    with pytest.raises(
        SpillwayError, match="`sources` must be identified by an attribute of meters, got 'rooter'"
    ):
        coverage_of(made, "absent", sources={"by": "rooter"})
    for rule, said in (
        ({"expected": ["a"]}, "be absent without `by`"),
        (
            {"by": "site", "weights": [{"source": "a", "weight": 1}, {"source": "a", "weight": 2}]},
            "occur once",
        ),
    ):
        with pytest.raises(SpillwayError, match=said):
            read_workload(
                {"name": "q", "inputs": ["meters"], "window": {"seconds": 60},
                 "levers": [{"lever": "quality", "sql": COUNT, "sources": rule}]}
            )  # fmt: skip
    elsewhere = QualitySettings(sql=COUNT, sources=(SourceRule(by="site", input="others"),))
    assert [where for where, *_ in elsewhere.input_rules(("meters",))] == ["sources[0].input"]
