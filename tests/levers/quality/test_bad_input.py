"""What a contract of a query may get wrong: each by name, each with a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from tests.levers.quality.worlds import COUNT, MEAN, begun, put_queries, query, run
from tests.pipeline.streams import SITES

from spillway.contracts import read_stream, read_workload, workload_json_schema
from spillway.engine.statements import SqlView, ask_duckdb, ask_spark
from spillway.errors import ContractError, SpillwayError

NUMBERS = SqlView(pa.schema([("x", pa.int64())]), [lambda: pa.table({"x": [1, 2, 5]})])
TWO = [{"name": "a", "sql": "SELECT * FROM b"}, {"name": "b", "sql": "SELECT * FROM a"}]
LOOSE = [{"name": "a", "sql": "SELECT * FROM sites"}, {"name": "b", "sql": "SELECT * FROM sites"}]


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
        ({"sql": None, "steps": LOOSE}, "levers[0].steps[0].name", "be read by a later step, or be the last"),
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
        ({"sql": "SELECT avg(temp) FROM elsewhere, sites"}, "`sql` must be understood by DuckDB"),
        ({"sql": "SELEC avg(temp) FROM sites"}, "`sql` must be one question"),
        ({"sql": "DROP TABLE sites"}, "`sql` must be one question"),
        (
            {"sql": "SELECT count(*) AS n FROM sites, read_csv('/etc/passwd')"},
            "`sql` must be understood by DuckDB",
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
            "`sql` must answer the same whenever a window is worked out",
        ),
        ({"sql": "SELECT temp AS sic FROM sites"}, "`sql` must name its columns so that none is window"),
        ({"sql": "SELECT [temp] AS temps FROM sites"}, "`temps` must be a number, text"),
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


FILE = "parquet.`{}`"


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (
            "SELECT avg(x) AS a FROM elsewhere, sites",
            "must read nothing but its inputs and steps, got 'elsewhere'",
        ),
        (f"SELECT * FROM {FILE}", "must read nothing but its inputs and steps"),
        (f"SELECT (SELECT max(x) FROM {FILE}) AS m FROM sites", "must read nothing but its inputs and steps"),
        (f"WITH a AS (SELECT * FROM {FILE}) SELECT * FROM a", "must read nothing but its inputs and steps"),
        ("SELECT * FROM read_files('{}')", "must make rows of its inputs alone"),
        (
            "FROM sites INSERT OVERWRITE DIRECTORY '{}' USING csv SELECT *",
            "must be one question, which changes",
        ),
        (
            "WITH a AS (SELECT 1 AS x) INSERT INTO sites SELECT * FROM a",
            "must be one question, which changes",
        ),
        ("SELECT TRANSFORM(x) USING 'cat' AS (y STRING) FROM sites", "must run no program"),
        (
            "SELECT reflect('java.lang.System', 'getProperty', 'user.dir') AS d FROM sites",
            "UNRESOLVED_ROUTINE",
        ),
        ("SELECT `java_method`('java.lang.System', 'gc') AS d FROM sites", "UNRESOLVED_ROUTINE"),
        ("SELECT raise_error('boom') AS e FROM sites", "must be understood by Spark"),
        ("SELEC x FROM sites", "must be one question"),
        (
            "SELECT sum(x) OVER w AS s FROM sites WINDOW w AS (ORDER BY (SELECT max(o) FROM "
            "(SELECT TRANSFORM(x) USING 'touch {}/ran' AS (o) FROM sites) q))",
            "must run no program",
        ),
        (
            "SELECT * FROM kept, (WITH kept AS (SELECT 1) SELECT * FROM kept) q",
            "must read nothing but its inputs and steps",
        ),
        (
            "SELECT sum(x) OVER w AS s FROM sites WINDOW w AS (PARTITION BY (SELECT max(id) FROM kept) ORDER BY x)",
            "must read nothing but its inputs and steps",
        ),
        ("SELECT `rand`() AS r FROM sites", "must answer the same whenever"),
        ("SELECT unix_timestamp() AS u FROM sites", "must answer the same whenever"),
        ("SELECT TIMESTAMP 'now' AS n FROM sites", "must answer the same whenever"),
        (r"SELECT r'\' AS a, now() AS n, r'\' AS b FROM sites", "must answer the same whenever"),
        ("SELECT current_user AS u FROM sites", "must answer the same whenever"),
    ],
)
def test_a_question_by_spark_does_nothing_but_ask(sql: str, said: str, tmp_path: Path, spark: Any) -> None:
    target = tmp_path / "there"
    spark.range(3).write.parquet(str(target))
    spark.sql("DROP TABLE IF EXISTS kept")
    spark.sql(f"CREATE TABLE kept USING parquet LOCATION '{target}'")
    before = sorted(path.name for path in target.iterdir())
    with pytest.raises(SpillwayError) as caught:
        ask_spark(spark, {"sites": NUMBERS}, [("asked", sql.replace("{}", str(target)))], 10)
    assert said in str(caught.value)
    assert sorted(path.name for path in target.iterdir()) == before
    spark.sql("DROP TABLE kept")


@pytest.mark.parametrize(
    "sql",
    [
        '"random"() AS r',
        "today() AS d",
        "get_current_timestamp() AS n",
        "age(TIMESTAMP '2020-01-01') AS a",
        "current_time AS n",
        "gen_random_uuid() AS u",
        "x USING SAMPLE 2 ROWS",
        r"'\' AS a, now() AS b, '\' AS c",
    ],
)
def test_a_question_in_this_process_answers_the_same_again(sql: str) -> None:
    head, using, rest = sql.partition(" USING")
    with pytest.raises(SpillwayError, match="must answer the same whenever a window is worked out"):
        ask_duckdb({"sites": NUMBERS}, [("asked", f"SELECT {head} FROM sites{using}{rest}")], 10)


def test_a_question_in_this_process_is_one_as_the_engine_reads_it() -> None:
    two = r"SELECT '\' AS a; SET threads=2; SELECT '\' AS c FROM sites"
    with pytest.raises(SpillwayError, match="must be one question"):
        ask_duckdb({"sites": NUMBERS}, [("asked", two)], 10)
    aged = "SELECT age(TIMESTAMP '2020-01-02', TIMESTAMP '2020-01-01') > INTERVAL 1 HOUR AS old FROM sites LIMIT 1"
    assert ask_duckdb({"sites": NUMBERS}, [("asked", aged)], 10).to_pylist() == [{"old": True}]


def test_spark_answers_what_asks_of_its_views_in_any_words(spark: Any) -> None:
    steps = [
        ("big", "-- those above 1\nSELECT\tx, '${env:HOME};' AS said FROM sites WHERE x > 1"),
        (
            "asked",
            "WITH a AS (SELECT x FROM big) SELECT a.x, e, rank() OVER (ORDER BY a.x) AS place FROM a "
            "JOIN Sites USING (x) LATERAL VIEW explode(array(1)) t AS e "
            "WHERE EXISTS (SELECT 1 FROM a b WHERE b.x = a.x)",
        ),
    ]
    assert ask_spark(spark, {"sites": NUMBERS}, steps, 10).to_pylist() == [
        {"x": 2, "e": 1, "place": 1},
        {"x": 5, "e": 1, "place": 2},
    ]


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
    with pytest.raises(SpillwayError, match="`capacity` must be one for all queries of a room"):
        run(world)


def test_a_query_that_never_answers_is_told(tmp_path: Path) -> None:
    from spillway.levers.quality.lever import LEVER

    world = begun(tmp_path, query("means", "SELECT site FROM sites WHERE temp > 1000"))
    run(world)
    assert [row["rows"] for row in world.rows("coverage")] == [0, 0]
    assert {row["sic"] for row in world.rows("coverage")} == {1.0}
    told = LEVER.told(world.contracts.queries["means"], world.tables.now())
    assert told is not None
    assert told.numbers["windows without an answer"] == 2
    assert any("conditions" in remedy for remedy in told.remedies)
