"""Queries: named steps over named views. A step reads views and earlier steps.

A step is Spark SQL (`dialect`). Spark runs the SQL that is generated from its syntax tree. The process engine runs the
translation of that tree by `duckdb_sql`, and refuses by name what only Spark can answer. Both read only the views.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from spillway.engine.frames import close_own_session, made_in_tasks, own_session, slices_of
from spillway.engine.task_errors import inner_cause
from spillway.errors import InvalidValue

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

    from spillway.engine.duckdb_sql import Step


@dataclass(frozen=True)
class DeltaRows:
    """Rows of a version of a Delta table that Spark can read by itself, so that it skips files and pushes filters down.

    `columns`: the expression of each column. `where`: the condition on the table's rows. Both are Spark SQL.
    """

    path: str
    version: int
    columns: tuple[str, ...]
    where: str


@dataclass(frozen=True)
class SqlView:
    """A named input of a statement: its schema, and functions that return its rows.

    The functions run in this process or in Spark tasks. `stored`: if given, the same rows in a Delta table.
    """

    schema: pa.Schema
    cuts: Sequence[Callable[[], pa.Table]]
    stored: DeltaRows | None = None


NEEDS = "run it with --engine spark"


class NeedsSpark(InvalidValue):
    """A query that the process engine does not answer, because its answer could differ from Spark's."""

    RULE = "use only functions and casts that the process engine answers as Spark does"

    @staticmethod
    def because(what: str, remedy: str = "") -> NeedsSpark:
        """Return the error for a part of the query; `remedy`: another way to write it, if there is one."""
        return NeedsSpark("sql", NeedsSpark.RULE, what, f"{NEEDS}{remedy and f', or {remedy}'}")


Steps = Sequence[tuple[str, str]]
"""Pairs of name and statement. A step reads views and earlier steps. The last step gives the answer."""


AGAIN_AFTER_SECONDS = 0.5
"""Seconds between two attempts to interrupt a query: an interrupt has no effect on a query that has not started yet."""


class QueryTimeout(InvalidValue):
    """A query that did not finish within its time limit."""

    REMEDY = "ask for less, or raise most_seconds"

    @staticmethod
    def than(seconds: float | None) -> QueryTimeout:
        """Return the error for a query that took longer than `seconds`."""
        rule = f"answer a window within {seconds:g} seconds"
        return QueryTimeout("sql", rule, "no answer by then", QueryTimeout.REMEDY)


class _Limit:
    """The time limit of a query. A query that takes longer is interrupted repeatedly until it ends."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds, self.passed = seconds, False

    @contextmanager
    def ending_by(self, end: Callable[[], object]) -> Iterator[None]:
        """Call `end` repeatedly if the block takes longer than the limit, and set `passed`.

        The caller then raises `refused()`.
        """
        if self._seconds is None:
            yield
            return
        answered, seconds = threading.Event(), self._seconds

        def watch() -> None:
            wait = seconds
            while not answered.wait(wait):
                self.passed, wait = True, AGAIN_AFTER_SECONDS
                with suppress(Exception):  # the query may have ended in the meantime
                    end()

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        try:
            yield
        finally:
            answered.set()
            watching.join()

    def refused(self) -> InvalidValue:
        """Return the error for a query that took longer than the limit."""
        return QueryTimeout.than(self._seconds)


def query_duckdb(
    views: Mapping[str, SqlView], steps: Steps, most_rows: int, most_seconds: float | None = None
) -> pa.Table:
    """Return the answer, computed in this process.

    >>> seen = SqlView(pa.schema([("x", pa.int64())]), [lambda: pa.table({"x": [1, 2, 5]})])
    >>> steps = [("big", "SELECT x FROM t WHERE x > 1"), ("answer", "SELECT sum(x) AS s FROM big")]
    >>> query_duckdb({"t": seen}, steps, 9).to_pylist()
    [{'s': 7}]
    """
    with _by_duckdb(views, steps, most_seconds) as (relation, names):
        parts, count = [], 0
        reader = relation.to_arrow_reader(65_536)
        for batch in reader:
            parts.append(batch)
            count += batch.num_rows
            _refuse_many(count, most_rows)
        return plain_types(pa.Table.from_batches(parts, reader.schema).rename_columns(names))


def columns_by_duckdb(views: Mapping[str, SqlView], steps: Steps) -> pa.Schema:
    """Return the columns of the answer. Statements are analysed; no row is read.

    >>> seen = SqlView(pa.schema([("x", pa.int64())]), [])
    >>> columns_by_duckdb({"t": seen}, [("answer", "SELECT avg(x) AS Mean FROM t")]).names
    ['Mean']
    """
    with _by_duckdb(views, steps) as (relation, names):
        return plain_types(relation.limit(0).to_arrow_table().rename_columns(names)).schema


@contextmanager
def _by_duckdb(
    views: Mapping[str, SqlView], steps: Steps, most_seconds: float | None = None
) -> Iterator[tuple[duckdb.DuckDBPyRelation, list[str]]]:
    """Bind the steps; yield the last one and the names of its columns."""
    import duckdb

    made = _duckdb_steps(views, steps)
    connection, limit = isolated_connection(), _Limit(most_seconds)
    try:
        for name, view in views.items():
            rows = [cut() for cut in view.cuts]
            table = pa.concat_tables(rows) if rows else view.schema.empty_table()
            connection.register(name, _without_zones(table))
        for (name, _), step in zip(steps[:-1], made, strict=False):
            connection.sql(step.sql).create_view(name)
        with limit.ending_by(connection.interrupt):
            yield connection.sql(made[-1].sql), [name for name, _ in made[-1].columns]
    except (duckdb.Error, pa.ArrowException, OSError) as problem:
        if limit.passed:
            raise limit.refused() from problem
        if not isinstance(problem, duckdb.Error):
            raise
        raise _syntax_error("the process engine", steps, problem) from problem
    finally:
        connection.close()


def _duckdb_steps(views: Mapping[str, SqlView], steps: Steps) -> list[Step]:
    """Translate the steps; each reads the views and the steps before it."""
    from spillway.engine.duckdb_sql import duckdb_step, type_of

    known = {name: tuple((one.name, type_of(one)) for one in view.schema) for name, view in views.items()}
    made = []
    for name, statement in steps:
        made.append(duckdb_step(statement, tuple(known.items())))
        known[name] = made[-1].columns
    for name, kind in made[-1].columns:
        if kind == "null":
            raise _no_column(name, kind)
    return made


def isolated_connection() -> duckdb.DuckDBPyConnection:
    """Open a database in memory that reads nothing from outside."""
    import duckdb

    connection = duckdb.connect(config={"threads": "1"})
    for setting in (
        "TimeZone='UTC'",
        "python_enable_replacements=false",
        "enable_external_access=false",
        "lock_configuration=true",
    ):
        connection.execute(f"SET {setting}")
    return connection


def _without_zones(table: pa.Table) -> pa.Table:
    """Return times as UTC times without a zone: DuckDB then computes like a Spark session in UTC."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            values = table.column(at).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
            table = table.set_column(at, field.name, values)
    return table


def query_spark(
    spark: SparkSession,
    views: Mapping[str, SqlView],
    steps: Steps,
    most_rows: int,
    most_seconds: float | None = None,
) -> pa.Table:
    """Return the answer, computed by a separate session: its views are private, and it can be stopped alone."""
    limit = _Limit(most_seconds)
    try:
        with _by_spark(spark, views, steps) as frame, limit.ending_by(frame.sparkSession.interruptAll):
            found: pa.Table = frame.limit(most_rows + 1).toArrow()
    except InvalidValue as problem:
        raise (limit.refused() if limit.passed else problem) from problem
    _refuse_many(found.num_rows, most_rows)
    return plain_types(found)


def columns_by_spark(spark: SparkSession, views: Mapping[str, SqlView], steps: Steps) -> pa.Schema:
    """Return the columns of the answer. Statements are analysed; no task is started."""
    from pyspark.sql.pandas.types import to_arrow_schema

    with _by_spark(spark, views, steps) as frame:
        return plain_types(to_arrow_schema(frame.schema, timezone="UTC").empty_table()).schema


@contextmanager
def _by_spark(spark: SparkSession, views: Mapping[str, SqlView], steps: Steps) -> Iterator[DataFrame]:
    """Analyse the steps; yield the last one."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from spillway.engine.dialect import spark_sql

    known = [*views, *(name for name, _ in steps)]
    statements = [spark_sql(sql, known[: len(views) + at]) for at, (_, sql) in enumerate(steps)]
    own = own_session(spark)
    own.conf.set("spark.sql.runSQLOnFiles", "false")
    own.conf.set("spark.sql.variable.substitute", "false")
    made: list[str] = []
    try:
        for name, view in views.items():
            frame = _delta_frame(own, view) or _data_frame(own, view, slices_of(spark, len(view.cuts)))
            frame.createOrReplaceTempView(name)
            made.append(name)
        for (name, _), statement in zip(steps[:-1], statements, strict=False):
            own.sql(statement).createOrReplaceTempView(name)
            made.append(name)
        yield own.sql(statements[-1])
    except (PySparkException, Py4JError) as problem:
        raise _syntax_error("Spark", steps, problem) from problem
    finally:
        for name in made:
            with suppress(PySparkException):
                own.catalog.dropTempView(name)
        close_own_session(own)


def _delta_frame(spark: SparkSession, view: SqlView) -> DataFrame | None:
    """Return the rows of a view as Spark reads them from a Delta table; None if it cannot."""
    stored = view.stored
    if stored is None or "://" in stored.path:  # Spark has settings of its own for object stores
        return None
    if "io.delta." not in (spark.conf.get("spark.sql.extensions", "") or ""):
        return None
    table = spark.read.format("delta").option("versionAsOf", stored.version).load(stored.path)
    return table.where(stored.where).selectExpr(*stored.columns)


def _data_frame(spark: SparkSession, view: SqlView, slices: int) -> DataFrame:
    """Return a DataFrame whose rows are made in tasks by the functions of `view.cuts`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    cuts, schema = tuple(view.cuts), view.schema
    if not cuts:
        return spark.createDataFrame([], from_arrow_schema(schema))

    def made(number: int) -> Iterator[pa.RecordBatch]:
        for place in range(len(cuts) * number // slices, len(cuts) * (number + 1) // slices):
            yield from cuts[place]().cast(schema).combine_chunks().to_batches()

    return made_in_tasks(spark, slices, made, from_arrow_schema(schema))


def _refuse_many(count: int, most_rows: int) -> None:
    if count > most_rows:
        raise InvalidValue(
            "sql",
            f"answer in at most {most_rows:,} rows a window",
            f"more than {most_rows:,}",
            "group by less, limit it, or raise most_rows",
        )


def _syntax_error(engine: str, steps: Steps, problem: Exception) -> InvalidValue:
    lines = str(problem).strip().splitlines()
    says = inner_cause(str(problem)) or (lines[0] if lines else type(problem).__name__)
    remedy = "correct the statement, or the values that it reads"
    if says.endswith(NEEDS):  # a value that the process engine does not convert; see `dialect`
        says = says.removeprefix("Invalid Input Error: ").removesuffix(f", {NEEDS}")
        remedy = f"{NEEDS}, or correct the values that it reads"
    shown = " ".join(steps[-1][1].split())[:120]
    return InvalidValue("sql", f"be answered by {engine}", shown, f"it says: {says}; {remedy}")


def plain_types(found: pa.Table) -> pa.Table:
    """Cast the columns to the types that tables have.

    These are 64-bit integer, double, string, timestamp in UTC, boolean, date and binary.

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
    raise _no_column(field.name, str(kind))


def _no_column(name: str, kind: str) -> InvalidValue:
    rule = "be a number, text, truth value, date or time in an answer"
    return InvalidValue(name, rule, kind, "cast it in the statement")
