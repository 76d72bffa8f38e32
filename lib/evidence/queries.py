"""Compare the answers of both engines: every function, form and statement that the process engine answers.

The comparison covers the lists that the product uses (`AGREED`, `FORMS`, `STATEMENTS`). Each line of `AGREED` is
computed for all combinations of edge values of its types, by the SQL that each engine runs. Spark also computes the
text as written. Values and types must be equal. If one engine raises an error, the other must, too, unless the process
engine says that the value needs Spark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evidence.book import Book
from spillway.engine.dialect import AGREED, ORDERED_ONLY, STATEMENTS, Agreement, spark_sql
from spillway.engine.duckdb_sql import DUCKDB_TYPES, FORMS, Columns, duckdb_step
from spillway.engine.spark import spark_engine
from spillway.engine.statements import SqlView, isolated_connection, query_duckdb, query_spark
from spillway.settings import Settings

MOST_ROWS = 700
"""The maximum number of combinations of values per line."""
MOST_ERRORS = 40
"""The maximum number of rows with an error, per line, that Spark computes one by one."""
VALUES: Mapping[str, Sequence[Any]] = {
    "boolean": [True, False, None],
    "int": [0, 1, -1, 2, 3, 7, -7, 40, 2**31 - 1, -(2**31), None],
    "bigint": [0, 1, -1, 2, -5, 7, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), None],
    "double": [
        0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.005, 0.1, 3.0, 1e-7, 123456.789, 1e15, 4503599627370497.5,
        1e300, -1e300, 5e-324, 2147483647.5, -2147483648.9, 2.0**63, -(2.0**63), math.nan, math.inf, -math.inf, None,
    ],
    "string": [
        "", " ", "a", "b", "abc", "ABC", "  ab ", "a%b", "a_b", "\\", "it's", "é", "straße", "ΑΣ", "🤦🏼‍♂️x", "5", "-12",
        " 7 ", "+3", "1.5", ".5", "1e3", "12345678901", "99999999999999999999", "true", "TRUE", "t", "2020-02-29",
        "2020-02-30", "1969-12-31", "2021-03-28 02:30:00", "2020-01-01T10:00:00.5", "nan", "Infinity", None,
    ],
    "date": [
        date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1900, 2, 28), date(1969, 12, 31), date(1970, 1, 1),
        date(2020, 1, 31), date(2020, 2, 29), date(2020, 12, 31), date(2021, 1, 3), date(2021, 1, 4),
        date(9999, 12, 31), None,
    ],
    "timestamp": [
        datetime(1, 1, 1, tzinfo=UTC), datetime(1582, 10, 15, 1, 2, 3, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2020, 2, 29, 12, 34, 56, 789012, tzinfo=UTC), datetime(2021, 3, 28, 1, 30, tzinfo=UTC),
        datetime(2021, 3, 28, 2, 30, tzinfo=UTC), datetime(2021, 10, 31, 0, 30, 0, 500000, tzinfo=UTC),
        datetime(2021, 10, 31, 1, 30, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), None,
    ],
}  # fmt: skip
WRITTEN: Mapping[str, Sequence[str]] = {
    "literal": ["1", "2", "3"],
    "digits": ["0", "1", "2", "5"],
    "pattern": ["'a%'", "'%'", "''", "'_b%'", r"'a\\_b'", r"'a\\%b'", r"'\\\\'", "'%é%'"],
    "decimal": ["0.5", "-2.50", "1.005", "7.0"],
}
"""Parameters that are literals of the statement."""
ARROW = {
    "boolean": pa.bool_(), "int": pa.int32(), "bigint": pa.int64(), "double": pa.float64(), "string": pa.string(),
    "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip
ROUNDED = {
    "exp": 1e-14,
    "ln": 1e-14,
    "log10": 1e-14,
    "power": 1e-14,
    "avg": 1e-12,
    "sum": 1e-12,
} | dict.fromkeys(
    ("stddev", "stddev_samp", "stddev_pop", "variance", "var_pop", "covar_samp", "covar_pop"), 1e-9
)
"""Functions whose last digits depend on the library or on the order of rows, with the relative difference allowed."""
COLUMNS: Columns = (
    ("i", "bigint"), ("k", "bigint"), ("d", "double"), ("s", "string"), ("b", "boolean"), ("at", "timestamp"),
    ("day", "date"),
)  # fmt: skip
FORM_CASES: Mapping[str, Sequence[str]] = {
    "Column": ["i", "D", "t.s", "`day`"],
    "Literal": ["1", "2147483648", "'it''s'", "\"a\"", r"'\\ \' \n é'", r"r'\d'", "1e3", "1.5", "'${x}'"],
    "Neg": ["-1", "-2147483648", "-9223372036854775808", "-1.5", "-d"],
    "Null": ["i + NULL", "NULL IS NULL"],
    "Boolean": ["TRUE", "b AND FALSE"],
    "Cast": ["CAST(i AS BIGINT)", "CAST(i AS DOUBLE)", "day::TIMESTAMP", "CAST(NULL AS DATE)", "1.5D", "7L",
             "DATE '1969-12-31'", "TIMESTAMP '2021-03-28 02:30:00'", "int(b)", "double(i)"],
    "TryCast": ["CAST(d AS DOUBLE)"],
    "Case": ["CASE WHEN i > 1 THEN i WHEN b THEN 2 END", "CASE i WHEN 1 THEN 'a' ELSE s END",
             "CASE WHEN b THEN d ELSE 1.5 END",
             "CASE WHEN b THEN day ELSE at END", "CASE WHEN d = 0 THEN 0 ELSE 1 / d END"],
    "Coalesce": ["coalesce(d, i, 0)", "nvl(s, '')", "ifnull(day, at)", "coalesce(d, 0.0)"],
    "Greatest": ["greatest(i, k, 1)", "greatest(d, 0.5)", "greatest(s, 'b')"],
    "Least": ["least(i, k, 1)", "least(d, -0.0D)", "least(day, at)"],
    "Concat": ["concat(s, 'x', s)", "concat(s)"],
    "In": ["i IN (1, 2, NULL)", "s NOT IN ('a', 'b')", "d IN (0, 0.5, 1e300)", "day IN ('1970-01-01', '2020-02-29')"],
    "Exists": ["EXISTS (SELECT 1 AS one FROM u WHERE u.k = t.k)"],
    "Subquery": ["(SELECT max(k) FROM u)", "i > (SELECT min(u.i) FROM u WHERE u.i > 0)"],
    "Filter": ["sum(i) FILTER (WHERE b) OVER (PARTITION BY k)"],
    "Window": ["sum(k) OVER (PARTITION BY b)", "rank() OVER (ORDER BY d DESC, s)",
               "rank() OVER (ORDER BY d NULLS LAST)",
               "avg(k) OVER (PARTITION BY s ORDER BY i, k, d, s, at, day)"],
}  # fmt: skip
"""Expressions over t for every form that is no line of `AGREED`."""
Rows = list[Any]


@dataclass
class Comparison:
    """The number of comparisons, and every difference in words."""

    compared: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    cells: int = 0

    def check(
        self, what: str, ours: Rows, sparks: Rows, rounding: float = 0.0, rows: Sequence[Any] = ()
    ) -> None:
        """Compare the answers to one expression, row by row."""
        for at, (one, other) in enumerate(zip(ours, sparks, strict=True)):
            if not _same(one, other, rounding):
                given = rows[at] if at < len(rows) else at
                self.differences.append(f"{what} of {given}: {one!r} in process, {other!r} by Spark")
        self.cells += len(ours)


def compare_engines(
    spark: Any, lines: Sequence[Agreement] = AGREED, most_errors: int = MOST_ERRORS
) -> Comparison:
    """Compare functions, and all forms and statements, that the process engine answers.

    `most_errors`: the maximum number of errors of an expression that Spark computes, one by one.
    """
    found = Comparison()
    _compare_scalars(spark, found, lines, most_errors)
    _compare_aggregates(spark, found, lines, most_errors)
    _compare_forms(spark, found)
    _compare_statements(spark, found)
    return found


def query_figures(book: Book, settings: Settings, seeds: int) -> dict[str, float]:
    """Return how many functions, forms and statements were compared, and how many of them differ."""
    book.section("Queries", "One SQL, two engines: what the process engine answers, compared with Spark.")
    with spark_engine("spillway evidence") as engine:
        found = compare_engines(engine.spark)
    differ = {line.partition(" of ")[0] for line in found.differences}
    book.table("Differences", ("difference",), [(line,) for line in found.differences])
    return {
        "queries.functions_compared": len(found.compared),
        "queries.functions_differ": len(differ),
        "queries.values_compared": found.cells,
    }


def statements_of_line(line: Agreement) -> list[str]:
    """Return the Spark SQL of a line, once for each value of the parameters that a statement writes out."""
    written = {
        name: WRITTEN[kind] for name, kind in zip(line.names, line.parameters, strict=True) if kind in WRITTEN
    }
    found = []
    for values in product(*written.values()):
        text = line.spark
        for name, value in zip(written, values, strict=True):
            text = _replaced(text, name, value)
        found.append(text)
    return found


def _replaced(text: str, name: str, value: str) -> str:
    import re

    return re.sub(rf"\b{name}\b(?!\()", lambda _: value, text)


def _is_aggregate(line: Agreement) -> bool:
    return "{over}" in line.duckdb


def _same(one: Any, other: Any, rounding: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        if one == other:
            return True  # also 0.0 and -0.0: no function of the list tells them apart
        return rounding > 0 and math.isclose(one, other, rel_tol=rounding, abs_tol=rounding * 1e-3)
    return type(one) is type(other) and bool(one == other)


def _table(line: Agreement) -> pa.Table:
    """Return the combinations of edge values for a line's columns."""
    names = [(n, k) for n, k in zip(line.names, line.parameters, strict=True) if k in VALUES]
    rows = list(product(*(VALUES[kind] for _, kind in names)))
    if len(rows) > MOST_ROWS:
        rows = [rows[at] for at in np.random.default_rng(1).choice(len(rows), MOST_ROWS, replace=False)]
    columns = {"row": pa.array(range(len(rows)), pa.int64())}
    for at, (name, kind) in enumerate(names):
        columns[name] = pa.array([row[at] for row in rows], ARROW[kind])
    return pa.table(columns)


def _types(table: pa.Table) -> Columns:
    kinds = {kind: name for name, kind in ARROW.items()}
    return tuple((one.name, kinds[one.type]) for one in table.schema)


def _naive(table: pa.Table) -> pa.Table:
    for at, one in enumerate(table.schema):
        if pa.types.is_timestamp(one.type):
            table = table.set_column(at, one.name, table.column(at).cast(pa.timestamp("us")))
    return table


def _python(values: pa.ChunkedArray) -> Rows:
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64()).to_pylist()
    return values.to_pylist()


def _compare_scalars(spark: Any, found: Comparison, lines: Sequence[Agreement], most_errors: int) -> None:
    """Compare lines over single rows: one Spark query for all lines of the same types, and one for each error."""
    groups: dict[tuple[tuple[str, str], ...], list[Agreement]] = {}
    for line in lines:
        if not _is_aggregate(line):
            groups.setdefault(tuple(zip(line.names, line.parameters, strict=True)), []).append(line)
    for alike in groups.values():
        table = _table(alike[0])
        rows = table.drop_columns("row").to_pylist()
        expressions = [(line, text) for line in alike for text in statements_of_line(line)]
        ours = [_by_duckdb(found, line, text, table) for line, text in expressions]
        for at, (_, errors) in enumerate(ours):
            table = table.append_column(f"ok{at}", pa.array([row not in errors for row in range(len(rows))]))
        spark.createDataFrame(table).createOrReplaceTempView("t")
        wanted, generated = [], []
        for at, (_, text) in enumerate(expressions):
            whole = spark_sql(f"SELECT {text} AS x FROM t", ["t"])
            generated.append(whole.removeprefix("SELECT ").removesuffix(" AS x FROM t"))
            wanted += [
                f"CASE WHEN ok{at} THEN {one} END AS {n}{at}"
                for n, one in (("w", text), ("x", generated[-1]))
            ]
        frame = spark.sql(f"SELECT {', '.join(wanted)} FROM t ORDER BY `row`")
        kinds = {one.name: str(one.dataType.simpleString()) for one in frame.schema}
        answer = frame.toArrow()
        for at, (line, text) in enumerate(expressions):
            what = f"{text} [{', '.join(line.parameters)}]"
            if kinds[f"x{at}"] != line.returns:
                found.differences.append(
                    f"{what} of types: {line.returns} in process, {kinds[f'x{at}']} by Spark"
                )
            values, errors = ours[at]
            theirs = _python(answer[f"x{at}"])
            found.check(what, values, theirs, ROUNDED.get(line.spark.partition("(")[0], 0.0), rows)
            found.check(f"{what} as written", _python(answer[f"w{at}"]), theirs, 0.0, rows)
            # what the process engine leaves to Spark is no answer
            bad = [row for row, problem in errors.items() if "--engine spark" not in problem]
            for row in bad[:: 1 + len(bad) // most_errors]:
                found.cells += 1
                one = f"SELECT {generated[at]} AS x FROM t WHERE `row` = {row}"
                if not _error_of(lambda one=one: spark.sql(one).collect()):
                    found.differences.append(
                        f"{what} of {rows[row]}: an error in process, an answer by Spark"
                    )
        found.compared += [f"{line.spark} [{', '.join(line.parameters)}]" for line in alike]


def _by_duckdb(found: Comparison, line: Agreement, text: str, table: pa.Table) -> tuple[Rows, dict[int, str]]:
    """Return the values of an expression row by row, null where it fails, and the errors by row."""
    step = duckdb_step(
        f"SELECT {text} AS x FROM t", (("t", _types(table.select(["row", *line_columns(line)]))),)
    )
    connection = isolated_connection()
    connection.from_arrow(_naive(table)).create("t")
    kind = str(connection.sql(step.sql).types[0])
    if kind != DUCKDB_TYPES[line.returns] or step.columns != (("x", line.returns),):
        found.differences.append(
            f"{text} of {line.parameters}: {kind}, {step.columns} and not {line.returns}"
        )
    values: Rows = [None] * table.num_rows
    errors: dict[int, str] = {}
    waiting = [(0, table.num_rows)]
    while waiting:
        start, end = waiting.pop()
        sql = f'{step.sql} WHERE "row" >= {start} AND "row" < {end} ORDER BY "row"'
        try:
            values[start:end] = _python(connection.sql(sql).to_arrow_table()["x"])
        except Exception as problem:
            if end - start == 1:
                errors[start] = str(problem)
            else:
                middle = (start + end) // 2
                waiting += [(start, middle), (middle, end)]
    connection.close()
    return values, errors


def line_columns(line: Agreement) -> list[str]:
    """Return the parameters of a line that are columns."""
    return [name for name, kind in zip(line.names, line.parameters, strict=True) if kind in VALUES]


def _error_of(run: Any) -> str:
    try:
        run()
    except Exception as problem:
        return str(problem) or type(problem).__name__
    return ""


def _groups(line: Agreement) -> pa.Table:
    """Return rows in groups: each value alone, each pair of neighbouring values, all values, and only nulls."""
    kinds = [kind for kind in line.parameters if kind in VALUES]
    single = [[value] for value in VALUES[kinds[0]]] if kinds else [[0], [0], [0]]
    values = [value for (value,) in single]
    finite = [one for one in values if isinstance(one, (int, float)) and one is not None and abs(one) < 1e6]
    lists = [*single, *(list(two) for two in pairwise(values)), [None, None]]
    lists += [
        [values[0], values[0], values[-1]],
        finite,
        [*[one for one in values if one is not None][:9], None],
    ]
    columns: dict[str, list[Any]] = {"g": [], "row": []} | {
        name: [] for name, _ in zip(line.names, kinds, strict=False)
    }
    for group, members in enumerate(lists):
        for at, value in enumerate(members):
            columns["g"].append(group)
            columns["row"].append(len(columns["row"]))
            for place, (name, _) in enumerate(zip(line.names, kinds, strict=False)):
                columns[name].append(value if place == 0 else members[(at * 2 + 1) % len(members)])
    types = {"g": pa.int64(), "row": pa.int64()} | {
        n: ARROW[k] for n, k in zip(line.names, kinds, strict=False)
    }
    return pa.table({name: pa.array(column, types[name]) for name, column in columns.items()})


def _compare_aggregates(spark: Any, found: Comparison, lines: Sequence[Agreement], most_errors: int) -> None:
    for line in lines:
        if not _is_aggregate(line):
            continue
        table = _groups(line)
        known = (("t", _types(table)),)
        first = line.names[0] if any(kind in VALUES for kind in line.parameters) else "row"
        rounding = ROUNDED.get(line.spark.partition("(")[0], 0.0)
        connection = isolated_connection()
        connection.register("t", _naive(table))
        for text in statements_of_line(line):
            over = [f"SELECT g, `row`, {text} OVER (PARTITION BY g ORDER BY {first}, `row`) AS x FROM t"]
            if "DISTINCT" in text:
                over = []
            elif not isinstance(line.tree, ORDERED_ONLY):
                over.append(
                    f"SELECT g, `row`, {text} OVER (PARTITION BY g ORDER BY `row` "
                    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS x FROM t"
                )
            if not isinstance(line.tree, ORDERED_ONLY):
                over.append(f"SELECT g, {text} AS x FROM t GROUP BY g")
            for statement in over:
                what = f"{text} [{', '.join(line.parameters)}] in {statement[7:60]}"
                bad, failed = [], []
                step = duckdb_step(statement, known)
                sql = f"SELECT * FROM ({step.sql}) ORDER BY ALL"
                if not _error_of(lambda: connection.sql(sql).fetchall()):  # noqa: B023
                    answer = connection.sql(sql).to_arrow_table()
                else:
                    parts = []
                    for group in sorted(set(table["g"].to_pylist())):
                        own = isolated_connection()
                        own.register("t", _naive(table.filter(pc.field("g") == group)))
                        problem = _error_of(lambda: parts.append(own.sql(sql).to_arrow_table()))  # noqa: B023
                        if problem:
                            bad.append(group)
                        if problem and "--engine spark" not in problem:
                            failed.append(group)
                        own.close()
                    answer = pa.concat_tables(parts)
                generated = spark_sql(statement, ["t"])
                spark.createDataFrame(
                    table.filter(~pc.field("g").isin(bad)) if bad else table
                ).createOrReplaceTempView("t")
                sparks = spark.sql(generated)
                kind = str(sparks.schema["x"].dataType.simpleString())
                if kind != line.returns or step.columns[-1] != ("x", kind):
                    found.differences.append(f"{what}: {line.returns} in process, {kind} by Spark")
                try:
                    theirs = sparks.toArrow()
                except Exception as problem:
                    found.differences.append(
                        f"{what}: an answer in process, an error by Spark: {str(problem)[:200]}"
                    )
                    continue
                order = [(name, "ascending") for name in theirs.column_names[:-1]]
                theirs, answer = theirs.sort_by(order), answer.sort_by(order)
                rows = [
                    table.filter(pc.field("g") == g).drop_columns(["g", "row"]).to_pylist()[:5]
                    for g in theirs["g"].to_pylist()
                ]
                found.check(what, _python(answer["x"]), _python(theirs["x"]), rounding, rows)
                for group in failed[:: 1 + len(failed) // most_errors]:
                    spark.createDataFrame(table.filter(pc.field("g") == group)).createOrReplaceTempView("t")
                    if not _error_of(lambda: spark.sql(generated).collect()):  # noqa: B023
                        found.differences.append(f"{what} of group {group}: an error in process only")
        connection.close()
        found.compared.append(f"{line.spark} [{', '.join(line.parameters)}]")


def example_views() -> dict[str, SqlView]:
    """Return the tables t and u, over which statements and forms are compared."""
    found = {}
    for name, seed, rows in (("t", 1, 60), ("u", 2, 45)):
        chance = np.random.default_rng(seed)
        columns = {}
        for column, kind in COLUMNS:
            values = [1, 2, 3, None] if column == "k" else VALUES[kind]
            picked = [values[at] for at in chance.integers(0, len(values), rows)]
            if column == "i":  # no two rows alike, so that every order of rows is one
                picked = [None, 2**40, *chance.permutation(rows - 2).tolist()]
            columns[column] = pa.array(picked, ARROW[kind])
        table = pa.table(columns)
        found[name] = SqlView(table.schema, [lambda table=table: table])  # type: ignore[misc]
    return found


def _compare_forms(spark: Any, found: Comparison) -> None:
    views = example_views()
    for form in FORMS:
        for text in FORM_CASES[form.__name__]:
            _compare_statement(spark, found, views, f"SELECT {text} AS x, i, k, d, s, b, at, day FROM t")
        found.compared.append(form.__name__)


def _compare_statements(spark: Any, found: Comparison) -> None:
    for statement in STATEMENTS:
        _compare_statement(spark, found, example_views(), statement)
        found.compared.append(statement)


def _compare_statement(spark: Any, found: Comparison, views: Mapping[str, SqlView], statement: str) -> None:
    answers = []
    for ask in (query_duckdb, lambda *given: query_spark(spark, *given)):
        try:
            answers.append(ask(views, [("answer", statement)], 100_000))
        except Exception as problem:
            answers.append(type(problem).__name__ + ": " + str(problem)[:300])
    ours, theirs = answers
    if isinstance(ours, str) or isinstance(theirs, str):
        if not (isinstance(ours, str) and isinstance(theirs, str)):
            found.differences.append(f"{statement}: {_short(ours)} in process, {_short(theirs)} by Spark")
        return
    if ours.schema != theirs.schema:
        found.differences.append(f"{statement}: {ours.schema} in process, {theirs.schema} by Spark")
        return
    if "ORDER BY" not in statement.rpartition(")")[2]:
        ours, theirs = (one.take(_order(one)) for one in (ours, theirs))
    for name in ours.column_names:
        found.check(f"{statement}: {name}", _python(ours[name]), _python(theirs[name]), 1e-12)


def _short(answer: Any) -> str:
    return answer if isinstance(answer, str) else f"{answer.num_rows} rows"


def _order(table: pa.Table) -> list[int]:
    rows = [repr(row) for row in table.to_pylist()]
    return sorted(range(len(rows)), key=rows.__getitem__)


def uncovered_types() -> Iterator[str]:
    """Return the types of the list without edge values."""
    for line in AGREED:
        yield from (kind for kind in line.parameters if kind not in VALUES and kind not in WRITTEN)
