"""Queries of both engines: what a statement may hold, what it reads, and what is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillway.engine.dialect import check_statement, spark_sql
from spillway.engine.statements import (
    NeedsSpark,
    SqlView,
    columns_by_duckdb,
    columns_by_spark,
    query_duckdb,
    query_spark,
)
from spillway.errors import InvalidValue, SpillwayError

NUMBERS = SqlView(pa.schema([("x", pa.int64())]), [lambda: pa.table({"x": [1, 2, 5]})])
READINGS = SqlView(
    pa.schema(
        [
            ("x", pa.int64()),
            ("s", pa.string()),
            ("d", pa.float64()),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
        ]
    ),
    [],
)
FILE = "parquet.`{}`"
READS = "must read only its inputs and the steps before it"
STEADY = "must give the same answer whenever it runs"
LISTED = "must use only functions and clauses that spillway/engine/dialect.py lists"
SELECT = "must be one SELECT statement"
PARSED = "must be Spark SQL"
RUNS = "(SELECT max(o) FROM (SELECT TRANSFORM(x) USING 'touch {}/ran' AS (o) FROM sites) q)"
ATTACKS = [
    # other tables, files and paths
    ("SELECT avg(x) AS a FROM elsewhere, sites", f"{READS}, got 'elsewhere'; name one of sites"),
    ("SELECT id FROM there", READS),
    (f"SELECT * FROM {FILE}", LISTED),
    (f"SELECT (SELECT max(x) FROM {FILE}) AS m FROM sites", LISTED),
    (f"WITH a AS (SELECT * FROM {FILE}) SELECT * FROM a", LISTED),
    ("SELECT * FROM `parquet.{}`", READS),
    ("SELECT * FROM 'there.csv'", READS),
    ("SELECT * FROM information_schema.tables", LISTED),
    ("FROM duckdb_tables", READS),
    ("TABLE kept", SELECT),
    # a name of a WITH clause, where it does not stand for it
    ("SELECT * FROM kept, (WITH kept AS (SELECT 1 AS a) SELECT * FROM kept) q", f"{READS}, got 'kept'"),
    ("SELECT x FROM sites WHERE EXISTS (WITH kept AS (SELECT * FROM kept) SELECT * FROM kept)", READS),
    ("SELECT * FROM (WITH kept AS (SELECT 1 AS a) SELECT a FROM kept) q JOIN kept ON q.a = kept.id", READS),
    ("WITH a AS (SELECT * FROM b), b AS (SELECT x FROM sites) SELECT * FROM a", f"{READS}, got 'b'"),
    (
        "SELECT sum(x) OVER w AS s FROM sites WINDOW w AS (PARTITION BY (SELECT max(id) FROM kept) ORDER BY x)",
        READS,
    ),
    ("SELECT * FROM kept VERSION AS OF 0", LISTED),
    ("SELECT * FROM IDENTIFIER('table_changes_by_path')('{}', 0)", LISTED),
    ("SELECT * FROM IDENTIFIER('kept')", LISTED),
    # functions of tables
    ("SELECT * FROM read_files('{}')", LISTED),
    ("SELECT * FROM duckdb_settings()", LISTED),
    ("SELECT * FROM query('SELECT random() AS r')", LISTED),
    ("SELECT * FROM read_text('/etc/hostname')", LISTED),
    ("SELECT * FROM sites, read_csv('/etc/passwd')", LISTED),
    ("SELECT * FROM range(CAST(current_timestamp AS BIGINT) % 5)", ""),
    ("SELECT * FROM range(CAST(10 * random() AS INT))", ""),
    ("SELECT * FROM range(epoch(ago(INTERVAL 1 DAY))::BIGINT)", ""),
    ("SELECT * FROM STREAM sites", ""),
    ("SELECT * FROM generate_series(1, 100000000000)", LISTED),
    # statements that are no query, and programs
    ("FROM sites INSERT OVERWRITE DIRECTORY '{}' USING csv SELECT *", ""),
    ("WITH a AS (SELECT 1 AS x) INSERT INTO sites SELECT * FROM a", SELECT),
    ("WITH gone AS (DELETE FROM sites RETURNING *) SELECT * FROM gone", LISTED),
    ("COPY sites TO 'there'", SELECT),
    ("PIVOT sites ON s USING sum(x)", ""),
    ("DROP TABLE sites", SELECT),
    ("SET threads = 2", SELECT),
    ("EXECUTE IMMEDIATE 'SELECT 1 AS x'", ""),
    ("BEGIN SELECT 1 AS x; END", PARSED),
    ("SELECT 1 AS a; DROP TABLE kept", SELECT),
    (r"SELECT '\' AS a; SET threads=2; SELECT '\' AS c FROM sites", ""),
    ("SELECT x INTO gone FROM sites", ""),
    ("SELECT x FROM sites FOR UPDATE", LISTED),
    ("SELECT TRANSFORM(x) USING 'cat' AS (y STRING) FROM sites", LISTED),
    (f"SELECT sum(x) OVER w AS s FROM sites WINDOW w AS (ORDER BY {RUNS})", LISTED),
    (f"SELECT * FROM explode(array({RUNS}))", ""),
    # functions that call Java, open files, or are not known
    ("SELECT reflect('java.lang.System', 'getProperty', 'user.dir') AS d", f"{LISTED}, got 'reflect'"),
    ("SELECT system.builtin.`java_method`('java.lang.System', 'gc') AS d", LISTED),
    ("SELECT doubled(x) AS d FROM sites", f"{LISTED}, got 'doubled'"),
    ("SELECT xpath_string('<!DOCTYPE a SYSTEM \"file://{}/_kind.dtd\"><a/>', 'a') AS d", LISTED),
    ("SELECT from_xml('<a>1</a>', 'a INT', map('rowValidationXSDPath', '{}/_kind.dtd')).a AS d", LISTED),
    ("SELECT from_json(s, 'a INT', map('a', 'b')) AS d FROM sites", LISTED),
    ("SELECT `no such function`(x) AS d FROM sites", LISTED),
    ("SELECT getenv('HOME') AS d", LISTED),
    ("SELECT current_setting('threads') AS d", LISTED),
    # chance, the clock, and who asks
    ("SELECT `rand`() AS r FROM sites", ""),
    ('SELECT "random"() AS r FROM sites', ""),
    ("SELECT rand() AS r FROM sites", f"{STEADY}, got 'rand'"),
    ("SELECT random() AS r FROM sites", STEADY),
    ("SELECT system.main.Random() AS r", ""),
    ("SELECT uuid() AS u", STEADY),
    ("SELECT gen_random_uuid() AS u", ""),
    ("SELECT uniform(1, 5, 3) AS r", f"{STEADY}, got 'uniform'"),
    ("SELECT shuffle(array(1, 2)) AS r", STEADY),
    ("SELECT hex(aes_encrypt('a', '0000111122223333')) AS r", ""),
    ("SELECT md5(kll_sketch_merge_bigint(b, b)) AS r FROM (SELECT CAST('' AS BINARY) AS b) q", ""),
    ("SELECT md5(kll_sketch_agg_bigint(x)) AS r FROM sites", STEADY),
    ("SELECT monotonically_increasing_id() AS r FROM sites", STEADY),
    ("SELECT x FROM sites TABLESAMPLE (50 PERCENT)", LISTED),
    ("SELECT x FROM sites USING SAMPLE 2 ROWS", ""),
    ("SELECT unix_timestamp() AS u", ""),
    ("SELECT today() AS d", STEADY),
    ("SELECT get_current_timestamp() AS n", STEADY),
    ("SELECT current_localtimestamp() AS n", LISTED),
    ("SELECT current_time AS n", STEADY),
    ("SELECT now() AS n", STEADY),
    ("SELECT current_user AS u", f"{STEADY}, got 'current_user'"),
    ("SELECT user AS u", f"{STEADY}, got 'user'"),
    ("SELECT `session_user` AS u FROM sites", STEADY),
    ("SELECT `current_date` AS u FROM sites", STEADY),
    ("SELECT age(TIMESTAMP '2020-01-01') AS a", ""),
    ("SELECT ago(INTERVAL 1 DAY) AS a", LISTED),
    ("SELECT pg_conf_load_time() AS a", LISTED),
    ("SELECT x FROM sites LIMIT extract(day FROM current_date)", ""),
    (r"SELECT r'\' AS a, now() AS n, r'\' AS b", STEADY),
    (r"SELECT '\' AS a, now() AS b, '\' AS c", ""),
    ("SELECT TIMESTAMP 'now' AS n", f"{STEADY}, got \"'now'\"; write the date or time in digits"),
    ("SELECT * FROM VALUES (DATE/* '2020 */'today') AS q(n)", STEADY),
    ("SELECT * FROM sites PIVOT (count(*) FOR x IN (CAST(unix_timestamp() AS BIGINT)))", ""),
    ("SELECT to_timestamp('now') AS n", STEADY),
    ("SELECT x FROM sites WHERE DATE '2020-01-01' < 'tomorrow'", STEADY),
    ("SELECT x FROM sites WHERE DATE '2020-01-01' < ' Today UTC'", STEADY),
    ("SELECT try_cast(concat('to', 'day') AS DATE) AS n", STEADY),
    ("SELECT CAST('to' || 'day' AS DATE) AS n", STEADY),
    ("SELECT CAST(array('a', 'x')[0] || lower('NOW') AS DATE) AS n", STEADY),
    ("SELECT CAST(r'now' AS TIMESTAMP) AS n", STEADY),
    ("SELECT first_value(x) AS f FROM sites", STEADY),
    ("SELECT lag(x) OVER (PARTITION BY x) AS f FROM sites", STEADY),
    # no Spark SQL at all
    ("SELECT :p AS p", ""),
    ("SELECT raise_error('boom') AS e FROM sites", ""),
    ("SELEC x FROM sites", PARSED),
    ("", SELECT),
    ("VALUES (1), (2)", ""),
]


@pytest.fixture(scope="module")
def kept(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a table of the catalog, `kept`; a function of it, `doubled`; a document type, `kind.dtd`."""
    folder = tmp_path_factory.mktemp("catalog") / "kept"
    spark.range(3).write.parquet(str(folder))
    spark.sql(f"CREATE OR REPLACE TEMP VIEW there AS SELECT * FROM parquet.`{folder}`")
    spark.sql(f"CREATE TABLE kept USING parquet LOCATION '{folder}'")
    spark.sql("CREATE FUNCTION doubled(n BIGINT) RETURNS BIGINT RETURN 2 * n")
    (folder / "_kind.dtd").write_text("<!ELEMENT a ANY>")
    yield folder
    spark.sql("DROP FUNCTION doubled")
    spark.sql("DROP TABLE kept")
    spark.catalog.dropTempView("there")


@pytest.mark.parametrize(("sql", "message"), ATTACKS)
def test_process_engine_refuses_what_is_no_query_of_its_inputs(sql: str, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        query_duckdb({"sites": NUMBERS}, [("asked", sql.replace("{}", "/etc"))], 10)
    assert message in str(caught.value)
    assert not isinstance(caught.value, NeedsSpark)


def test_spark_refuses_what_is_no_query_of_its_inputs(kept: Path, spark: Any) -> None:
    """The same statements, in a session that has the tables, functions and files that they name."""
    before = sorted(path.name for path in kept.iterdir())
    for sql, message in ATTACKS:
        with pytest.raises(InvalidValue) as caught:
            query_spark(spark, {"sites": NUMBERS}, [("asked", sql.replace("{}", str(kept)))], 10)
        assert message in str(caught.value), sql
    assert sorted(path.name for path in kept.iterdir()) == before


@pytest.mark.parametrize(
    ("sql", "needs"),
    [
        ("SELECT percentile(d, 0.5) AS p FROM sites", "PERCENTILE(sites.d, 0.5)"),
        ("SELECT x * 1.5 AS y FROM sites", "sites.x * 1.5 of bigint and decimal"),
        ("SELECT avg(CASE WHEN x > 1 THEN 1.0 ELSE 0 END) AS y FROM sites", "write the number as 1.5D"),
        ("SELECT CAST(d AS STRING) AS t FROM sites", "CAST(sites.d AS STRING)"),
        ("SELECT CAST(x AS DECIMAL(10, 2)) AS t FROM sites", "DECIMAL(10, 2)"),
        ("SELECT try_cast(s AS DATE) AS t FROM sites", "TRY_CAST(sites.s AS DATE)"),
        ("SELECT x FROM sites WHERE s = 1", "sites.s = 1 of string and int"),
        ("SELECT x FROM sites WHERE x IN ('1', '2')", "cast one of them"),
        ("SELECT d AS v FROM sites UNION ALL SELECT s FROM sites", "double and string in column v of UNION"),
        ("SELECT s, count(*) AS n FROM sites GROUP BY s WITH ROLLUP", "ROLLUP"),
        (
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
            "RECURSIVE",
        ),
        ("SELECT sum(x) OVER w AS z FROM sites WINDOW w AS (ORDER BY d)", "w OVER (ORDER BY sites.d)"),
        ("SELECT e FROM sites LATERAL VIEW explode(array(x)) q AS e", "LATERAL VIEW"),
        ("SELECT max_by(s, x) AS m FROM sites", "MAX_BY"),
        ("SELECT x FROM sites NATURAL JOIN big", "NATURAL JOIN"),
        ("SELECT s LIKE s AS l FROM sites", "write a constant"),
        ("SELECT round(d, x) AS r FROM sites", "write a constant"),
        ("SELECT lag(x, -1) OVER (ORDER BY x) AS r FROM sites", "LAG(sites.x, -1)"),
        (f"SELECT x{' / 2' * 26} AS r FROM sites", "very long"),
        (f"SELECT {' + '.join(['x'] * 400)} AS r FROM sites", "expressions in one another"),
    ],
)
def test_process_engine_says_what_needs_spark(sql: str, needs: str, spark: Any) -> None:
    steps = [("big", "SELECT x FROM sites"), ("asked", sql)]
    with pytest.raises(NeedsSpark, match="run it with --engine spark") as caught:
        columns_by_duckdb({"sites": READINGS}, steps)
    assert needs in str(caught.value)
    if "round" not in sql:
        assert columns_by_spark(spark, {"sites": READINGS}, steps).names


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT temp FROM sites", "`sql` must name columns that its inputs have, got 'temp'"),
        ("SELECT dd FROM sites", "did you mean d"),
        ("SELECT sites.tmp AS t FROM sites", "got 'tmp'"),
        ("SELECT s, avg(d) AS m FROM sites", "must appear in the GROUP BY clause"),
        ("SELECT sum(x) AS t FROM sites GROUP BY sum(x)", "aggregate"),
        ("SELECT x FROM sites UNION SELECT x, s FROM sites", "the same number of columns"),
        ("SELECT s AS a FROM sites ORDER BY b", "got 'b'"),
        ("SELECT x FROM sites a JOIN sites b ON a.x = b.x", "got 'x'; write input.x"),
        ("SELECT NULL AS n FROM sites", "must be a number, text, truth value"),
        ("SELECT x, s AS x FROM sites", "got 'two columns called x in one SELECT'"),
        ("SELECT * FROM sites a JOIN sites b ON a.x = b.x", "two columns called x"),
        ("SELECT x FROM sites WHERE x IN (SELECT x, s FROM sites)", "have one column in a subquery"),
        ("SELECT (SELECT max(x), min(x) FROM sites) AS m FROM sites", "have one column in a subquery"),
        ("SELECT count(sites.*) AS n FROM sites", "write count(*)"),
        ("SELECT count(DISTINCT x) OVER () AS n FROM sites", "have no DISTINCT in front of OVER"),
        ("SELECT x FROM sites GROUP BY ALL", "got 'group all'"),
        (
            "SELECT x * 2 AS y FROM sites WHERE y > 2",
            "`sql` must name columns of its inputs in WHERE, got 'y'",
        ),
        ("SELECT extract(DOW FROM at) AS d FROM sites", "got 'DOW'"),
    ],
)
def test_query_is_bound_before_any_row_is_read(sql: str, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        columns_by_duckdb({"sites": READINGS}, [("asked", sql)])
    assert message in str(caught.value)


def test_values_that_the_engines_read_differently_are_errors_in_process() -> None:
    texts = SqlView(pa.schema([("s", pa.string())]), [lambda: pa.table({"s": ["ß"]})])
    for sql, message in (
        (
            "SELECT upper(s) AS u FROM t",
            "the case of letters beyond ASCII needs Spark; run it with",
        ),
        ("SELECT CAST(s AS INT) AS u FROM t", "reads no such text as INT"),
        ("SELECT length(s) / 0 AS u FROM t", "division by zero"),
    ):
        with pytest.raises(SpillwayError, match=message):
            query_duckdb({"t": texts}, [("asked", sql)], 10)


@pytest.mark.parametrize(
    "text",
    [
        "it's",
        "back\\slash",
        "two\nlines",
        'a "quote"',
        "`",
        "é🤦🏼‍♂️",
        "${env:HOME};",
        "%_\\%",
        "'; DROP TABLE t; --",
        "\\'",
        "a\\",
    ],
)
def test_generated_texts_mean_what_was_written(text: str, spark: Any) -> None:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    steps = [("asked", f"SELECT '{escaped}' AS a, x AS `b c` FROM sites LIMIT 1")]
    assert query_duckdb({"sites": NUMBERS}, steps, 10)["a"].to_pylist() == [text]
    assert query_spark(spark, {"sites": NUMBERS}, steps, 10)["a"].to_pylist() == [text]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT rank() OVER w AS r, first_value(x) OVER (PARTITION BY s ORDER BY d ROWS BETWEEN 2 PRECEDING AND "
        "CURRENT ROW) AS f FROM sites WINDOW w AS (PARTITION BY s ORDER BY x) QUALIFY r = 1",
        "SELECT s, grouping(s) AS g, count(DISTINCT x) AS c, percentile(d, 0.5) AS p, size(collect_set(s)) AS z, "
        "sum(x) FILTER (WHERE d > 1) AS f, listagg(s, ',') WITHIN GROUP (ORDER BY s) AS l, mode(s) AS m FROM sites "
        "GROUP BY s WITH ROLLUP HAVING count(*) > (SELECT avg(x) FROM sites) ORDER BY c NULLS LAST LIMIT 5 OFFSET 1",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
        "WITH sites AS (SELECT x FROM sites WHERE x NOT IN (SELECT n FROM big)) SELECT * FROM sites "
        "EXCEPT SELECT 1 INTERSECT (SELECT x FROM sites UNION SELECT 2)",
        "SELECT CAST(s AS DATE) AS a, date_trunc('hour', at) AS c, at + INTERVAL 1 DAY AS e, day > '2020-01-01' AS f, "
        "TIMESTAMP \"2020-01-01\" AS g, date'epoch' AS j, CAST(NULL AS DATE) AS k, "
        "extract(hour FROM at) AS l FROM sites "
        "SORT BY a",
        "SELECT transform(array(x), q -> q + 1)[0] AS a, s RLIKE 'a' AS e, array_contains(sort_array(collect_list(s) "
        "OVER (ORDER BY x)), 'a') AS c FROM sites",
        "SELECT 1 AS a; -- drop",
    ],
)
def test_spark_answers_more_than_the_process_engine(sql: str, spark: Any) -> None:
    steps = [("big", "SELECT x AS n FROM Sites WHERE x > 1"), ("asked", sql)]
    assert columns_by_spark(spark, {"sites": READINGS}, steps).names


def test_name_of_an_inner_with_clause_stays_in_its_subquery(spark: Any) -> None:
    """Its name may be that of an input, which the rest of the statement reads."""
    sql = "SELECT sites.x, q.x AS y FROM sites, (WITH sites AS (SELECT 7 AS x) SELECT x FROM sites) q ORDER BY 1"
    answer = [{"x": x, "y": 7} for x in (1, 2, 5)]
    assert query_duckdb({"sites": NUMBERS}, [("asked", sql)], 10).to_pylist() == answer
    assert query_spark(spark, {"sites": NUMBERS}, [("asked", sql)], 10).to_pylist() == answer


def test_right_side_of_and_is_not_computed_where_the_left_side_decides() -> None:
    zeros = SqlView(pa.schema([("x", pa.int64())]), [lambda: pa.table({"x": [0, 2] * 3000})])
    for sql in (
        "SELECT count_if(x <> 0 AND 1 / x < 1) AS n FROM t",
        "SELECT 6000 - count_if(x = 0 OR 1 / x >= 1) AS n FROM t",
        "SELECT count(*) AS n FROM t WHERE 1 > 0 AND x <> 0 AND 1 / x < 1 AND x > -1",
    ):
        assert query_duckdb({"t": zeros}, [("asked", sql)], 10).to_pylist() == [{"n": 3000}]


def test_both_engines_read_steps_in_their_order(spark: Any) -> None:
    steps = [
        ("big", "-- those above 1\nSELECT\tx, '${env:HOME};' AS Said FROM sites WHERE x > 1"),
        (
            "asked",
            "WITH a AS (SELECT x FROM big) SELECT a.x, rank() OVER (ORDER BY a.x) AS Place FROM a "
            "JOIN Sites USING (x) WHERE EXISTS (SELECT 1 AS one FROM a b WHERE b.x = a.x) ORDER BY 1;",
        ),
    ]
    answer = [{"x": 2, "Place": 1}, {"x": 5, "Place": 2}]
    for _ in range(2):
        assert query_duckdb({"sites": NUMBERS}, steps, 10).to_pylist() == answer
        assert query_spark(spark, {"sites": NUMBERS}, steps, 10).to_pylist() == answer


def test_hints_and_comments_are_not_passed_on() -> None:
    with pytest.raises(InvalidValue, match=r"lists, got 'select hint'|lists, got 'hint'"):
        check_statement("SELECT /*+ BROADCAST(b) */ x FROM sites b")
    assert spark_sql("SELECT x -- why\nFROM sites /* where */", ["sites"]) == "SELECT x FROM sites"
