"""Questions in SQL: named steps over named views, each of which reads the streams' views or steps before it.

Spark answers in its own words (`closed_sql`: it is let do nothing else). This process answers by DuckDB, which speaks
most of them (nulls are ordered as Spark orders them, times are UTC); what it does not understand is refused by name,
and Spark is the remedy. Neither may read anything but the views: no file, no table, no variable.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
_CLOSED: set[tuple[tuple[tuple[str, pa.Schema], ...], tuple[tuple[str, str], ...]]] = set()
"""What Spark was found to do nothing but ask of such views: a query asks the same of every window."""
Steps = Sequence[tuple[str, str]]
"""Name and statement, in an order in which each reads views and steps before it; the last one answers."""


AGAIN_AFTER_SECONDS = 0.5
"""How long after a question was told to end it is told again: what has not begun yet hears nothing."""


class TookTooLong(Refused):
    """A question that had no answer in time."""

    REMEDY = "ask for less, or raise most_seconds"

    @staticmethod
    def than(seconds: float | None) -> TookTooLong:
        """Longer than so many seconds."""
        rule = f"answer a window within {seconds:g} seconds"
        return TookTooLong("sql", rule, "no answer by then", TookTooLong.REMEDY)


class _Limit:
    """So many seconds for a question; one that takes longer is told to end until it does."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds, self.passed = seconds, False

    @contextmanager
    def ending_by(self, end: Callable[[], object]) -> Iterator[None]:
        """While this lasts: once the time has passed, call `end` again and again; what comes of it is refused."""
        if self._seconds is None:
            yield
            return
        answered, seconds = threading.Event(), self._seconds

        def watch() -> None:
            wait = seconds
            while not answered.wait(wait):
                self.passed, wait = True, AGAIN_AFTER_SECONDS
                with suppress(Exception):  # it may have ended just now
                    end()

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        try:
            yield
        finally:
            answered.set()
            watching.join()

    def refused(self) -> Refused:
        """What is said of a question that took longer."""
        return TookTooLong.than(self._seconds)


def ask_duckdb(
    views: Mapping[str, SqlView], steps: Steps, most_rows: int, most_seconds: float | None = None
) -> pa.Table:
    """The answer, worked out in this process.

    >>> seen = SqlView(pa.schema([("x", pa.int64())]), [lambda: pa.table({"x": [1, 2, 5]})])
    >>> steps = [("big", "SELECT x FROM t WHERE x > 1"), ("answer", "SELECT sum(x) AS s FROM big")]
    >>> ask_duckdb({"t": seen}, steps, 9).to_pylist()
    [{'s': 7.0}]
    """
    with _by_duckdb(views, steps, most_seconds) as relation:
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
def _by_duckdb(
    views: Mapping[str, SqlView], steps: Steps, most_seconds: float | None = None
) -> Iterator[duckdb.DuckDBPyRelation]:
    """The last step, understood and not yet asked."""
    import duckdb

    from spillway.engine.closed_duckdb import closed_connection, refuse_doing

    connection, limit = closed_connection(), _Limit(most_seconds)
    try:
        refuse_doing(tuple((name, view.schema) for name, view in views.items()), tuple(steps))
        for name, view in views.items():
            rows = [cut() for cut in view.cuts]
            connection.register(name, pa.concat_tables(rows) if rows else view.schema.empty_table())
        for name, statement in steps[:-1]:
            connection.sql(statement).create_view(name)
        with limit.ending_by(connection.interrupt):
            yield connection.sql(steps[-1][1])
    except (duckdb.Error, pa.ArrowException, OSError) as problem:
        if limit.passed:
            raise limit.refused() from problem
        if not isinstance(problem, duckdb.Error):
            raise
        raise _not_understood("DuckDB, which answers where Spark is not", steps, problem) from problem
    finally:
        connection.close()


def ask_spark(
    spark: SparkSession,
    views: Mapping[str, SqlView],
    steps: Steps,
    most_rows: int,
    most_seconds: float | None = None,
) -> pa.Table:
    """The answer, worked out by a session of its own: its views, and what is told to end, meet nobody else's."""
    limit = _Limit(most_seconds)
    try:
        with _by_spark(spark, views, steps) as frame, limit.ending_by(frame.sparkSession.interruptAll):
            found: pa.Table = frame.limit(most_rows + 1).toArrow()
    except Refused as problem:
        raise (limit.refused() if limit.passed else problem) from problem
    _refuse_many(found.num_rows, most_rows)
    return plain_types(found)


def columns_by_spark(spark: SparkSession, views: Mapping[str, SqlView], steps: Steps) -> pa.Schema:
    """The columns that an answer would have: statements are analysed, and no task is started."""
    from pyspark.sql.pandas.types import to_arrow_schema

    with _by_spark(spark, views, steps) as frame:
        return plain_types(to_arrow_schema(frame.schema, timezone="UTC").empty_table()).schema


@contextmanager
def _by_spark(spark: SparkSession, views: Mapping[str, SqlView], steps: Steps) -> Iterator[DataFrame]:
    """The last step, understood and not yet asked."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from spillway.engine.closed_sql import closed_session, refuse_analysed, refuse_parsed

    own = closed_session(spark)
    made: list[str] = []
    asked = (tuple((name, view.schema) for name, view in views.items()), tuple(steps))

    def understood(statement: str) -> DataFrame:
        if asked in _CLOSED:
            return own.sql(statement)
        refuse_parsed(own, statement, made)
        frame = own.sql(statement)
        refuse_analysed(own, frame._jdf.queryExecution().analyzed(), statement, made)
        return frame

    try:
        for name, view in views.items():
            _framed(own, view).createOrReplaceTempView(name)
            made.append(name)
        for name, statement in steps[:-1]:
            understood(statement).createOrReplaceTempView(name)
            made.append(name)
        frame = understood(steps[-1][1])
        _CLOSED.add(asked)
        yield frame
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
