"""Questions that Spark answers: what it is let do, and what is refused before anything is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spillway.engine.statements import SqlView, ask_spark, columns_by_spark
from spillway.errors import SpillwayError

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
BESIDE = "must read nothing but its inputs and steps"
AGAIN = "must answer the same whenever a window is worked out"
ROWS_ALONE = "must make rows of its inputs alone"
SPARKS = "must call functions that Spark's SQL has, and none that opens files or calls Java"
CHANGES = "must be one question, which changes nothing"
RUNS = "(SELECT max(o) FROM (SELECT TRANSFORM(x) USING 'touch {}/ran' AS (o) FROM sites) q)"


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


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT avg(x) AS a FROM elsewhere, sites", f"{BESIDE}, got 'elsewhere'; name one of sites"),
        ("SELECT id FROM there", BESIDE),
        (f"SELECT * FROM {FILE}", BESIDE),
        (f"SELECT (SELECT max(x) FROM {FILE}) AS m FROM sites", BESIDE),
        (f"WITH a AS (SELECT * FROM {FILE}) SELECT * FROM a", BESIDE),
        # a name of a WITH, where it does not stand for it
        (
            "SELECT * FROM kept, (WITH kept AS (SELECT 1) SELECT * FROM kept) q",
            f"{BESIDE}, got 'spark_catalog",
        ),
        ("SELECT x FROM sites WHERE EXISTS (WITH kept AS (SELECT * FROM kept) SELECT * FROM kept)", BESIDE),
        (
            "SELECT sum(x) OVER w AS s FROM sites WINDOW w AS (PARTITION BY (SELECT max(id) FROM kept) ORDER BY x)",
            BESIDE,
        ),
        ("SELECT * FROM kept VERSION AS OF 0", BESIDE),
        (
            "SELECT * FROM IDENTIFIER('table_changes_by_path')('{}', 0)",
            "must name what it reads and calls by its name",
        ),
        ("SELECT * FROM read_files('{}')", ROWS_ALONE),
        ("SELECT * FROM STREAM sites", CHANGES),
        ("FROM sites INSERT OVERWRITE DIRECTORY '{}' USING csv SELECT *", CHANGES),
        ("WITH a AS (SELECT 1 AS x) INSERT INTO sites SELECT * FROM a", CHANGES),
        ("EXECUTE IMMEDIATE 'SELECT 1 AS x'", CHANGES),
        ("BEGIN SELECT 1 AS x; END", CHANGES),
        ("SELECT TRANSFORM(x) USING 'cat' AS (y STRING) FROM sites", "must run no program"),
        (f"SELECT sum(x) OVER w AS s FROM sites WINDOW w AS (ORDER BY {RUNS})", "must run no program"),
        (f"SELECT * FROM explode(array({RUNS}))", "must run no program"),
        ("SELECT reflect('java.lang.System', 'getProperty', 'user.dir') AS d", SPARKS),
        ("SELECT system.builtin.`java_method`('java.lang.System', 'gc') AS d", SPARKS),
        ("SELECT doubled(x) AS d FROM sites", SPARKS),
        ("SELECT xpath_string('<!DOCTYPE a SYSTEM \"file://{}/_kind.dtd\"><a/>', 'a') AS d", SPARKS),
        (
            "SELECT from_xml('<a>1</a>', 'a INT', map('rowValidationXSDPath', '{}/_kind.dtd')).a AS d",
            f"{BESIDE}, got 'options of XML'",
        ),
        ("SELECT `rand`() AS r FROM sites", f"{AGAIN}, got 'rand'"),
        ("SELECT uniform(1, 5, 3) AS r", f"{AGAIN}, got 'uniform'"),
        ("SELECT hex(aes_encrypt('a', '0000111122223333')) AS r", AGAIN),
        ("SELECT md5(kll_sketch_merge_bigint(b, b)) AS r FROM (SELECT CAST('' AS BINARY) AS b)", AGAIN),
        ("SELECT md5(kll_sketch_agg_bigint(x)) AS r FROM sites", AGAIN),
        ("SELECT x FROM sites TABLESAMPLE (50 PERCENT)", AGAIN),
        ("SELECT unix_timestamp() AS u", AGAIN),
        ("SELECT current_user AS u", f"{AGAIN}, got 'current_user'"),
        (r"SELECT r'\' AS a, now() AS n, r'\' AS b", AGAIN),
        # worked out while it is parsed or analysed: nothing tells of it afterwards
        ("SELECT TIMESTAMP 'now' AS n", f"{AGAIN}, got \"TIMESTAMP 'now'\"; write the day or time out"),
        ("SELECT * FROM VALUES (DATE/* '2020 */'today') AS q(n)", AGAIN),
        ("SELECT * FROM range(CAST(current_timestamp AS BIGINT) % 5)", AGAIN),
        ("SELECT * FROM sites PIVOT (count(*) FOR x IN (CAST(unix_timestamp() AS BIGINT)))", AGAIN),
        ("SELECT to_timestamp('now') AS n", f"{AGAIN}, got 'now'"),
        ("SELECT x FROM sites WHERE DATE '2020-01-01' < 'tomorrow'", AGAIN),
        ("SELECT try_cast(concat('to', 'day') AS DATE) AS n", AGAIN),
        ("SELECT raise_error('boom') AS e FROM sites", "must be understood by Spark"),
        ("SELECT 1 AS a; DROP TABLE kept", "must be understood by Spark"),
        ("SELECT :p AS p", "must be understood by Spark"),
        ("SELEC x FROM sites", "must be understood by Spark"),
    ],
)
def test_a_question_by_spark_does_nothing_but_ask(sql: str, said: str, kept: Path, spark: Any) -> None:
    before = sorted(path.name for path in kept.iterdir())
    with pytest.raises(SpillwayError) as caught:
        ask_spark(spark, {"sites": NUMBERS}, [("asked", sql.replace("{}", str(kept)))], 10)
    assert said in str(caught.value)
    assert sorted(path.name for path in kept.iterdir()) == before


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
        "SELECT e, p, c.col FROM sites, LATERAL explode(array(x)) c, LATERAL (SELECT x + 1 AS y) l CROSS JOIN range(3) "
        "NATURAL JOIN (SELECT 1 AS one) z LATERAL VIEW posexplode(array(x)) q AS p, e",
        "SELECT * FROM sites PIVOT (sum(d) FOR s IN ('a', 'b' AS other))",
        "SELECT k, v FROM sites UNPIVOT (v FOR k IN (x))",
        "FROM sites |> WHERE x > 1 |> AGGREGATE sum(x) AS z GROUP BY s |> EXTEND z + 1 AS y |> DROP y |> LIMIT 2",
        "SELECT /*+ BROADCAST(b) */ 'today' AS said, d.user FROM VALUES (DATE '2020-01-01', 'now') AS d(day, user) "
        "JOIN sites b ON b.day = d.day AND b.s = 'now'",
        "SELECT CAST(s AS DATE) AS a, to_timestamp(s) AS b, date_trunc('hour', at) AS c, at + INTERVAL 1 DAY AS e, "
        "day > '2020-01-01' AS f, TIMESTAMP \"2020-01-01\" AS g, window(at, '1 hour').start AS h, unix_timestamp(at) "
        "AS i, date'epoch' AS j, CAST(NULL AS DATE) AS k, extract(hour FROM at) AS l FROM sites SORT BY a",
        "SELECT aggregate(transform(array(x), q -> q + 1), 0L, (a, b) -> a + b) AS a, hash(x) AS d, s RLIKE 'a' AS e, "
        "array_join(sort_array(collect_list(s) OVER (ORDER BY x)), ',') AS c, from_json(s, 'a INT').a AS b FROM sites",
        "TABLE big",
        "SELECT 1 AS a; -- drop",
    ],
)
def test_a_question_by_spark_may_ask_in_any_words(sql: str, spark: Any) -> None:
    steps = [("big", "SELECT x AS n FROM Sites WHERE x > 1"), ("asked", sql)]
    assert columns_by_spark(spark, {"sites": READINGS}, steps).names


def test_spark_answers_what_asks_of_its_views(spark: Any) -> None:
    steps = [
        ("big", "-- those above 1\nSELECT\tx, '${env:HOME};' AS said FROM sites WHERE x > 1"),
        (
            "asked",
            "WITH a AS (SELECT x FROM big) SELECT a.x, e, rank() OVER (ORDER BY a.x) AS place FROM a "
            "JOIN Sites USING (x) LATERAL VIEW explode(array(1)) t AS e "
            "WHERE EXISTS (SELECT 1 FROM a b WHERE b.x = a.x)",
        ),
    ]
    for _ in range(2):  # the second time it is known to be closed
        assert ask_spark(spark, {"sites": NUMBERS}, steps, 10).to_pylist() == [
            {"x": 2, "e": 1, "place": 1},
            {"x": 5, "e": 1, "place": 2},
        ]
