"""Questions in SQL: named steps over named views, each of which reads the streams' views or steps before it.

Spark answers in its own words (`closed_sql`: it is let do nothing else). This process answers by DuckDB, which speaks
most of them (nulls are ordered as Spark orders them, times are UTC); what it does not understand is refused by name,
and Spark is the remedy. Neither may read anything but the views: no file, no table, no variable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spillway.errors import Refused

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class SqlView:
    """What a statement reads under a name: columns, and functions that make their rows, wherever they are called."""

    schema: pa.Schema
    cuts: Sequence[Callable[[], pa.Table]]


SLICES_A_CORE_ASKED = 2
_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
_CHANGES = re.compile(
    r"\b(?:rand|randn|random|randstr|uniform|uuid|shuffle|now|curdate|current_date|current_timestamp|localtimestamp|"
    r"monotonically_increasing_id|spark_partition_id|input_file_name|current_user|session_user)\s*\("
    r"|\b(?:current_date|current_timestamp|localtimestamp|tablesample)\b",
    re.IGNORECASE,
)
_CLOCKS = re.compile(r"(?:current_(?:date|time|timestamp)|local(?:time|timestamp))\Z", re.IGNORECASE)
Steps = Sequence[tuple[str, str]]
"""Name and statement, in an order in which each reads views and steps before it; the last one answers."""


def ask_duckdb(views: Mapping[str, SqlView], steps: Steps, most_rows: int) -> pa.Table:
    """The answer, worked out in this process.

    >>> seen = SqlView(pa.schema([("x", pa.int64())]), [lambda: pa.table({"x": [1, 2, 5]})])
    >>> steps = [("big", "SELECT x FROM t WHERE x > 1"), ("answer", "SELECT sum(x) AS s FROM big")]
    >>> ask_duckdb({"t": seen}, steps, 9).to_pylist()
    [{'s': 7.0}]
    """
    with _by_duckdb(views, steps) as relation:
        parts, count = [], 0
        reader = relation.to_arrow_reader(65_536)
        for batch in reader:
            parts.append(batch)
            count += batch.num_rows
            _refuse_many(count, most_rows)
        return plain_types(pa.Table.from_batches(parts, reader.schema))


def columns_by_duckdb(views: Mapping[str, SqlView], steps: Steps) -> pa.Schema:
    """The columns that an answer would have: statements are analysed, and no row is worked out.

    >>> seen = SqlView(pa.schema([("x", pa.int64())]), [])
    >>> columns_by_duckdb({"t": seen}, [("answer", "SELECT avg(x) AS m FROM t")]).names
    ['m']
    """
    with _by_duckdb(views, steps) as relation:
        return plain_types(relation.limit(0).to_arrow_table()).schema


@contextmanager
def _by_duckdb(views: Mapping[str, SqlView], steps: Steps) -> Iterator[duckdb.DuckDBPyRelation]:
    """The last step, understood and not yet asked."""
    import duckdb

    connection = duckdb.connect(
        config={"default_null_order": "nulls_first_on_asc_last_on_desc", "threads": "1"}
    )
    try:
        for setting in ("TimeZone='UTC'", "python_enable_replacements=false", "enable_external_access=false"):
            connection.execute(f"SET {setting}")
        for name, view in views.items():
            rows = [cut() for cut in view.cuts]
            connection.register(name, pa.concat_tables(rows) if rows else view.schema.empty_table())
        for name, statement in steps[:-1]:
            connection.execute(f'CREATE TEMP VIEW "{name}" AS {_closed(connection, statement)}')
        yield connection.sql(_closed(connection, steps[-1][1]))
    except duckdb.Error as problem:
        raise _not_understood("DuckDB, which answers where Spark is not", steps, problem) from problem
    finally:
        connection.close()


def ask_spark(spark: SparkSession, views: Mapping[str, SqlView], steps: Steps, most_rows: int) -> pa.Table:
    """The answer, worked out by a session of its own: its views meet nobody else's."""
    with _by_spark(spark, views, steps) as frame:
        found: pa.Table = frame.limit(most_rows + 1).toArrow()
    _refuse_many(found.num_rows, most_rows)
    return plain_types(found)


def columns_by_spark(spark: SparkSession, views: Mapping[str, SqlView], steps: Steps) -> pa.Schema:
    """The columns that an answer would have: statements are analysed, and no task is started."""
    from pyspark.sql.pandas.types import to_arrow_schema

    with _by_spark(spark, views, steps) as frame:
        return plain_types(to_arrow_schema(frame.schema).empty_table()).schema


@contextmanager
def _by_spark(spark: SparkSession, views: Mapping[str, SqlView], steps: Steps) -> Iterator[DataFrame]:
    """The last step, understood and not yet asked."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from spillway.engine.closed_sql import asked_of_views, closed_session

    own = closed_session(spark)
    made: list[str] = []
    try:
        for name, view in views.items():
            _framed(own, view).createOrReplaceTempView(name)
            made.append(name)
        for name, statement in steps[:-1]:
            asked_of_views(own, _query(statement), made).createOrReplaceTempView(name)
            made.append(name)
        yield asked_of_views(own, _query(steps[-1][1]), made)
    except (PySparkException, Py4JError) as problem:
        raise _not_understood("Spark", steps, problem) from problem
    finally:
        for name in made:
            with suppress(PySparkException):
                own.catalog.dropTempView(name)


def _framed(spark: SparkSession, view: SqlView) -> DataFrame:
    """Rows that tasks make, a partition a cut."""
    from pyspark.sql.pandas.types import from_arrow_schema

    cuts, schema = tuple(view.cuts), view.schema
    if not cuts:
        return spark.createDataFrame([], from_arrow_schema(schema))

    def work(numbers: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from cuts[number]().cast(schema).combine_chunks().to_batches()

    slices = min(len(cuts), SLICES_A_CORE_ASKED * spark.sparkContext.defaultParallelism)
    return spark.range(0, len(cuts), 1, slices).mapInArrow(work, from_arrow_schema(schema))


def _query(statement: str) -> str:
    """The statement; what is no question is refused before anybody hears it.

    >>> _query("DROP TABLE x")
    Traceback (most recent call last):
        ...
    spillway.errors.Refused: `sql` must be one question, got 'DROP TABLE x'; begin it with SELECT or WITH
    """
    said = statement.strip().rstrip(";").strip()
    bare = _QUOTED.sub(" ", said)
    words = bare.split()
    if not words or words[0].upper() not in ("SELECT", "WITH", "VALUES", "FROM") or ";" in bare:
        raise Refused("sql", "be one question", statement, "begin it with SELECT or WITH")
    changes = _CHANGES.search(bare)
    if changes:
        raise _changed(changes.group(0))
    return said


def _changed(what: str) -> Refused:
    return Refused(
        "sql",
        "answer the same whenever a window is worked out",
        what,
        "leave it out: what is asked may depend on the rows alone",
    )


def _closed(connection: duckdb.DuckDBPyConnection, statement: str) -> str:
    """The statement, as DuckDB reads it one question that answers the same again."""
    said = _query(statement)
    parsed = connection.extract_statements(said)
    if len(parsed) != 1 or parsed[0].type.name != "SELECT":
        raise Refused("sql", "be one question", statement, "begin it with SELECT or WITH")
    (told,) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [said]).fetchall()
    changes = next(_changing(json.loads(told[0]), _changing_functions()), None)
    if changes is not None:
        raise _changed(changes)
    return said


@cache
def _changing_functions() -> frozenset[str]:
    """What DuckDB says of its own functions that it does not answer the same again."""
    import duckdb

    with duckdb.connect() as connection:  # several threads may ask at a time
        found = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability IN ('VOLATILE', "
            "'CONSISTENT_WITHIN_QUERY') OR function_name IN ('ago', 'pg_sleep', 'pg_postmaster_start_time')"
        ).fetchall()
    return frozenset(name for (name,) in found)


def _changing(node: Any, functions: frozenset[str]) -> Iterator[str]:
    """What stands in a parsed statement that may answer otherwise the next time."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            name, names = str(one.get("function_name", "")).lower(), one.get("column_names") or ("",)
            since_when = name == "age" and len(one.get("arguments") or one.get("children") or ()) == 1
            if name in functions or since_when:
                yield f"{name}()"
            if len(names) == 1 and _CLOCKS.match(str(names[0])):
                yield str(names[0])
            if one.get("sample"):
                yield "a sample"
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _refuse_many(count: int, most_rows: int) -> None:
    if count > most_rows:
        raise Refused(
            "sql",
            f"answer in at most {most_rows:,} rows a window",
            f"more than {most_rows:,}",
            "group by less, limit it, or raise most_rows",
        )


def _not_understood(who: str, steps: Steps, problem: Exception) -> Refused:
    said = str(problem).strip().splitlines()
    remedy = "correct it; it may read its inputs and the steps before it"
    return Refused(
        "sql",
        f"be understood by {who}",
        " ".join(steps[-1][1].split())[:120],
        f"it says: {said[0] if said else type(problem).__name__}. {remedy}"
        + ("" if who == "Spark" else ", or run it by Spark (--engine spark)"),
    )


def plain_types(found: pa.Table) -> pa.Table:
    """Columns in the few types that tables have: whole numbers of 64 bits, double, string, times in UTC.

    >>> plain_types(pa.table({"n": pa.array([1], pa.int32())})).schema.field("n").type
    DataType(int64)
    """
    return found.cast(pa.schema([pa.field(one.name, _plain(one)) for one in found.schema]))


def _plain(field: pa.Field) -> pa.DataType:
    kind = field.type
    if pa.types.is_boolean(kind) or pa.types.is_date32(kind) or pa.types.is_binary(kind):
        return kind
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pa.float64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    raise Refused(
        field.name,
        "be a number, text, truth value, date or time in an answer",
        str(kind),
        "cast it in the statement",
    )
