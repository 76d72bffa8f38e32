"""What a contract of a query may get wrong: each by name, each with a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.levers.quality.worlds import COUNT, MEAN, begun, put_queries, query, run
from tests.pipeline.streams import SITES

from spillway.contracts import read_stream, read_workload, workload_json_schema
from spillway.errors import ContractError, SpillwayError
from spillway.levers.quality.decision import OURS

TWO = [{"name": "a", "sql": "SELECT * FROM b"}, {"name": "b", "sql": "SELECT * FROM a"}]


@pytest.mark.parametrize(
    ("settings", "field", "rule"),
    [
        ({"weight": 0}, "levers[0].weight", "be a number above 0"),
        ({"capacity": {"tuples": 0}}, "levers[0].capacity.tuples", "be a number above 0"),
        ({"capacity": {"seconds": 0}}, "levers[0].capacity.seconds", "be a number above 0"),
        ({"capacity": {"tuples": 5, "per_seconds": 1e11}}, "levers[0].capacity.per_seconds", "at most 1e+10"),
        ({"capacity": {}}, "levers[0].capacity.tuples", "be given, or seconds, and not both"),
        ({"policy": "lottery"}, "levers[0].policy", "be one of fair, random, round_robin, priority"),
        ({"sql": None}, "levers[0].sql", "be given, or steps, and not both"),
        ({"sql": None, "steps": TWO}, "levers[0].steps", "not read one another in a circle"),
        ({"floor": 1.5}, "levers[0].floor", "at most 1"),
    ],
)
def test_a_contract_is_refused_by_name(settings: dict[str, Any], field: str, rule: str) -> None:
    contract = query("means", MEAN)
    contract["levers"][0] |= settings
    with pytest.raises(ContractError) as caught:
        read_workload(contract)
    assert any(problem.field == field and rule in problem.rule for problem in caught.value.problems), (
        caught.value
    )


def test_the_schema_knows_the_lever() -> None:
    validator = jsonschema.Draft202012Validator(workload_json_schema())
    assert validator.is_valid(query("means", MEAN, capacity={"tuples": 5}))
    assert not validator.is_valid(query("means", MEAN, weight=0))
    assert not validator.is_valid(query("means", MEAN, capacity={}))


def test_it_works_on_no_stream() -> None:
    with pytest.raises(ContractError, match="must work on a query"):
        read_stream({**SITES, "levers": [{"lever": "quality", "sql": MEAN}]})


def test_an_unknown_stream_is_refused_when_contracts_are_read(tmp_path: Path) -> None:
    world = begun(tmp_path, files=0)
    with pytest.raises(
        ContractError, match=r"`inputs\[0\]` must be a stream, got 'siets'; did you mean sites"
    ):
        put_queries(world, query("means", MEAN, inputs=["siets"]))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"sql": "SELECT avg(temp) AS m FROM elsewhere, sites"}, "`sql` must read only its inputs"),
        ({"sql": "SELEC avg(temp) FROM sites"}, "`sql` must be Spark SQL"),
        ({"sql": "DROP TABLE sites"}, "`sql` must be one SELECT statement"),
        (
            {"sql": "SELECT count(*) AS n FROM sites, read_csv('/etc/passwd')"},
            "`sql` must use only functions and clauses that spillway/engine/dialect.py lists, got 'read_csv'",
        ),
        ({"sql": "SELECT 1 AS one"}, "`inputs` must be read by its statements, got 'sites'"),
        ({"sql": "SELECT count(*) AS n FROM others"}, "out of inputs; others is read, and is no input"),
        (
            {"sql": "SELECT a.temp FROM sites a, sites b", "most_rows": 100},
            "`sql` must answer in at most 100 rows",
        ),
        (
            {"sql": "SELECT count(*) FROM sites"},
            "`sql` must name every column of its answer in letters, digits",
        ),
        (
            {"sql": "SELECT random() AS r FROM sites"},
            "`sql` must give the same answer whenever it runs",
        ),
        ({"sql": "SELECT temp AS sic FROM sites"}, "`sql` must name its columns so that none is window"),
        ({"sql": "SELECT [temp] AS temps FROM sites"}, "got 'ARRAY(sites.temp)'; run it with --engine spark"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused_by_name(
    made: dict[str, Any], said: str, tmp_path: Path
) -> None:
    world = begun(tmp_path, query("means", **made), files=4)
    with pytest.raises(SpillwayError) as caught:
        run(world)
    assert said in str(caught.value)
    assert not world.rows("coverage")


def test_a_star_is_the_attributes_and_no_column_of_the_lake(tmp_path: Path) -> None:
    world = begun(tmp_path, query("rows", "SELECT * FROM sites"), files=4)
    assert run(world) == 1
    assert set(world.rows("results", "rows")[0]) - set(OURS) == {one["name"] for one in SITES["attributes"]}
    put_queries(world, query("rows", "SELECT * FROM sites WHERE batch_date > DATE '2000-01-01'"))
    world.tables.at("windows").delete(subject="rows")
    with pytest.raises(SpillwayError, match=r"got 'batch_date'; .*name its columns instead of \*"):
        run(world)


def test_a_column_in_another_spelling_is_the_same_column(tmp_path: Path) -> None:
    world = begun(tmp_path, query("means", "SELECT count(*) AS n FROM sites"))
    run(world)
    put_queries(world, query("means", "SELECT count(*) AS N FROM sites"))
    world.tables.at("windows").delete(subject="means")
    assert run(world) == 2
    assert [row["n"] for row in world.rows("results", "means")] == [240, 240]


def test_queries_of_one_room_agree_on_what_it_can_do(tmp_path: Path) -> None:
    world = begun(
        tmp_path, query("means", MEAN, capacity={"tuples": 5}), query("warm", COUNT, capacity={"tuples": 6})
    )
    with pytest.raises(SpillwayError, match="`capacity` must be one for all queries of a capacity group"):
        run(world)


def test_a_query_that_never_answers_is_told(tmp_path: Path) -> None:
    from spillway.levers.quality.lever import LEVER

    world = begun(tmp_path, query("means", "SELECT site FROM sites WHERE temp > 1000"))
    run(world)
    assert [row["rows"] for row in world.rows("coverage")] == [0, 0]
    assert {row["sic"] for row in world.rows("coverage")} == {1.0}
    told = LEVER.explain(world.contracts.queries["means"], world.tables.now())
    assert told is not None
    assert told.numbers["windows without an answer"] == 2
    assert any("conditions" in remedy for remedy in told.remedies)
