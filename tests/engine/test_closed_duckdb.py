"""Questions that this process answers: what DuckDB understands of them, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spillway.engine.statements import SqlView, ask_duckdb, columns_by_duckdb
from spillway.errors import SpillwayError

ROWS = pa.table({"x": [1, 2, 5], "s": ["a", "b", "c"], "d": [0.5, 1.5, None]})
SITES = {"sites": SqlView(ROWS.schema, [lambda: ROWS])}
AGAIN = "must answer the same whenever a window is worked out"
BESIDE = "must read nothing but its inputs and steps"
ROWS_ALONE = "must make rows of its inputs alone"


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ('SELECT "random"() AS r FROM sites', AGAIN),
        ("SELECT system.main.Random() AS r", AGAIN),
        ("SELECT today() AS d", AGAIN),
        ("SELECT get_current_timestamp() AS n", AGAIN),
        ("SELECT current_localtimestamp() AS n", AGAIN),
        ("SELECT current_time AS n", AGAIN),
        ("SELECT gen_random_uuid() AS u", AGAIN),
        ("SELECT age(TIMESTAMP '2020-01-01') AS a", AGAIN),
        ("SELECT ago(INTERVAL 1 DAY) AS a", AGAIN),
        ("SELECT pg_conf_load_time() AS a", AGAIN),
        ("SELECT x FROM sites USING SAMPLE 2 ROWS", AGAIN),
        ("SELECT q.x FROM sites, (FROM sites TABLESAMPLE 50%) q", AGAIN),
        # worked out while it is bound: nothing tells of it afterwards
        ("SELECT x FROM sites LIMIT extract(day FROM current_date)", AGAIN),
        ("SELECT * FROM range(CAST(10 * random() AS INT))", AGAIN),
        ("SELECT * FROM range(epoch(ago(INTERVAL 1 DAY))::BIGINT)", AGAIN),
        # no escape to DuckDB
        (r"SELECT '\' AS a, now() AS b, '\' AS c", AGAIN),
        (r"SELECT '\' AS a; SET threads=2; SELECT '\' AS c FROM sites", "must be one question"),
        ("PIVOT sites ON s USING sum(x)", "must be one question"),
        ("COPY sites TO 'there'", "must be one question"),
        (
            "WITH gone AS (DELETE FROM sites RETURNING *) SELECT * FROM gone",
            "must be one question, which changes",
        ),
        ("SELECT * FROM duckdb_settings()", ROWS_ALONE),
        ("SELECT * FROM query('SELECT random() AS r')", ROWS_ALONE),
        ("SELECT * FROM read_text('/etc/hostname')", ROWS_ALONE),
        ("SELECT * FROM information_schema.tables", BESIDE),
        ("FROM duckdb_tables", BESIDE),
        ("SELECT * FROM 'there.csv'", "must be understood by DuckDB"),
        ("SELEC x FROM sites", "must be understood by DuckDB"),
    ],
)
def test_a_question_in_this_process_does_nothing_but_ask_and_again(sql: str, said: str) -> None:
    with pytest.raises(SpillwayError) as caught:
        ask_duckdb(SITES, [("asked", sql)], 10)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT age(TIMESTAMP '2020-01-02', TIMESTAMP '2020-01-01') > INTERVAL 1 HOUR AS old, 'now; today()' AS said;",
        r"SELECT '\' AS a, ';' AS b, 'c' AS current_date -- ; now()",
        "SELECT sum(x) OVER w AS a, lag(x, 1, 0) OVER w AS b FROM sites WINDOW w AS (PARTITION BY s ORDER BY d)",
        "WITH sites AS (SELECT x FROM sites WHERE x > 1) SELECT * FROM sites WHERE x IN (SELECT max(x) FROM sites)",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r",
        "SELECT a.x FROM sites a ASOF JOIN sites b ON a.x >= b.x, range(a.x) q, unnest([1, 2]) u",
        "SELECT quantile_cont(d, 0.5) AS q, mode(s) AS m, arg_max(s, d) AS a, string_agg(s, ',' ORDER BY x) AS l, "
        "approx_quantile(d, 0.5) AS p, median(x) FILTER (WHERE d > 0) AS f FROM sites GROUP BY GROUPING SETS ((s), ())",
        "SELECT list_sum(list_transform([x], lambda q: q + 1)) AS t, [i + 1 for i in [x]][1] AS c, hash(s) AS h, "
        "strptime('2020', '%Y') AS y, date_trunc('hour', TIMESTAMP '2020-01-01 10:30:00') AS u FROM sites",
        "SELECT * FROM sites PIVOT (sum(x) FOR s IN ('a', 'b'))",
        "SELECT k, v FROM (UNPIVOT sites ON x, d INTO NAME k VALUE v)",
        "SELECT DISTINCT ON (s) s, x FROM sites QUALIFY row_number() OVER (PARTITION BY s ORDER BY x) = 1 ORDER BY s",
        "SELECT value FROM json_each('[1, 2]') UNION ALL SELECT s FROM sites ORDER BY ALL LIMIT 10%",
        "FROM sites",
        "VALUES (1), (2)",
    ],
)
def test_a_question_in_this_process_may_ask_in_any_words(sql: str) -> None:
    assert columns_by_duckdb(SITES, [("big", "SELECT * FROM sites;"), ("asked", sql)]).names


def test_steps_are_read_in_their_order() -> None:
    steps = [("big", "SELECT x FROM sites WHERE x > 1;"), ("asked", "SELECT sum(x) AS total FROM big -- ;")]
    assert ask_duckdb(SITES, steps, 10).to_pylist() == [{"total": 7.0}]
