"""The lake's tables: paths, contracts enforced before writing, and writes that may be repeated.

Every write replaces what the same (stream, batch) wrote before, in one Delta commit, so that a rerun, a
retry or a kill at any instant ends in the same rows. `txnVersion` is never used: Delta would silently skip
the rerun of an older batch.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from typing import TYPE_CHECKING, Any

from spillway.errors import SpillwayError
from spillway.settings import Settings
from spillway.store.driver_writes import ATTEMPTS_AT_A_NEW_TABLE, ConcurrentRun, arrow_schema, replace_small
from spillway.store.table_contracts import TableContract, table_contracts
from spillway.store.task_files import Make, Piece, Replacement, known_files, write_pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INDEXED_COLUMNS = 8
"""How many of a table's first columns have their smallest and largest value in its log."""

PROPERTIES = {
    "delta.enableDeletionVectors": "false",  # delta-rs and what stands on it must read every table
    "delta.columnMapping.mode": "none",
    "delta.dataSkippingNumIndexedCols": str(INDEXED_COLUMNS),
}


_ONE_TABLE_AT_A_TIME = threading.Lock()
"""Streams are worked on side by side, and several may be the first to write a table that they share."""

CONFLICT = re.compile(r"Concurrent\w*Exception|(Metadata|Protocol)Changed|DELTA_CONCURRENT")
"""What Delta raises in the writer that comes second."""


def literal(value: object) -> str:
    """A SQL literal for predicates: numbers as they are, everything else quoted.

    >>> literal("O'Hare"), literal(7)
    ("'O''Hare'", '7')
    """
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else repr(value)
    return "'" + str(value).replace("'", "''") + "'"


def where(**columns: object) -> str:
    """A predicate of equalities, or of IN where a list is given.

    >>> where(stream="weather", batch=[1, 2])
    "stream = 'weather' AND batch IN (1, 2)"
    """
    terms = []
    for column, value in columns.items():
        if isinstance(value, list | tuple | set | frozenset):
            terms.append(f"{column} IN ({', '.join(literal(item) for item in sorted(value))})")
        else:
            terms.append(f"{column} = {literal(value)}")
    return " AND ".join(terms)


class Lake:
    """The tables under the roots of `settings`, read and written with one Spark session."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.spark = spark
        self.settings = settings
        self._contracts = table_contracts(settings.schemas)

    def contract(self, table: str, attributes: Sequence[tuple[str, str]] = ()) -> TableContract:
        """The column contract of `table`, with the stream's attributes where it is one table a stream."""
        if table not in self._contracts:
            raise SpillwayError(
                f"`table` must have a column contract in schemas/tables, got {table!r}; write {table}.yaml"
            )
        found = self._contracts[table]
        return found.with_attributes(attributes) if found.scope == "stream" else found

    def path(self, table: str, stream: str | None = None) -> str:
        """Where the table lies; per-stream tables have a folder a stream."""
        return table_path(self.settings, self._contracts[table], stream)

    def exists(self, table: str, stream: str | None = None) -> bool:
        from delta import DeltaTable

        return bool(DeltaTable.isDeltaTable(self.spark, self.path(table, stream)))

    def read(self, table: str, stream: str | None = None, predicate: str | None = None) -> DataFrame:
        """The table as it is now; `predicate` prunes partitions and files."""
        frame = self.spark.read.format("delta").load(self.path(table, stream))
        return frame.where(predicate) if predicate else frame

    def look_ahead(self, *tables: tuple[str, str | None]) -> None:
        """Let Delta work out in the background what these tables hold now, which the next commit to each will ask.

        That takes it a good part of a second a table, most of it waiting; nothing depends on when it is done, or
        whether.
        """

        def work() -> None:
            with suppress(Exception):
                for table, stream in tables:
                    if self.exists(table, stream):
                        known_files(self.spark, self.path(table, stream))

        threading.Thread(target=work, daemon=True).start()

    def replace_rows(self, table: str, rows: Iterable[dict[str, Any]], predicate: str) -> None:
        """`replace` for a handful of rows made by the driver, without Spark (see `small`)."""
        contract = self.contract(table)
        replace_small(self.path(table), contract, rows, predicate, PROPERTIES)

    def replace(
        self,
        frame: DataFrame,
        table: str,
        predicate: str,
        *,
        stream: str | None = None,
        attributes: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Put `frame` in the place of the rows that match `predicate`, in one commit.

        A frame whose columns or types differ from the contract is refused before anything is written.
        """
        contract = self.contract(table, attributes)
        path = self.path(table, stream)
        self._refuse_other_columns(frame, contract, stream)
        if not self.exists(table, stream):
            self._create(contract, path)
        with _one_winner(table, stream, predicate):
            if contract.scope == "stream":
                self._grow(contract, path)
            ordered = frame.select(*self._stored_columns(path, frame))
            ordered.write.format("delta").mode("overwrite").option("replaceWhere", predicate).save(path)

    def replace_in_tasks(
        self,
        table: str,
        pieces: Sequence[Piece],
        make: Make,
        batches: Iterable[int],
        *,
        stream: str,
        attributes: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Put what `make` makes of the pieces in the place of the stream's `batches`, in one commit.

        Tasks write the files themselves: see `spillway.store.task_files`. All files of the pieces' dates that hold
        rows of the batches go. Where one holds rows of other batches too (somebody has compacted the table), the rows
        that go are deleted in a commit of their own just before; whoever dies in between left the batches pending.
        """
        if not pieces:
            return
        contract = self.contract(table, attributes)
        shared = contract.scope == "shared"
        path = self.path(table, None if shared else stream)
        if not self.exists(table, None if shared else stream):
            self._create(contract, path)
        numbers = list(batches)
        partitions = {
            column: {piece.partition[column] for piece in pieces} for column in contract.partitioned_by
        }
        days = where(**partitions)
        predicate = f"{days} AND {where(batch=numbers)}"
        schema = arrow_schema(contract)
        for column in contract.partitioned_by:
            schema = schema.remove(schema.get_field_index(column))
        with _one_winner(table, stream, predicate):
            if not shared:
                self._grow(contract, path)
            replacement = Replacement(self.spark, path, days, numbers)
            added = write_pieces(self.spark, path, schema, INDEXED_COLUMNS, pieces, make)
            if replacement.mixed:
                if Replacement(self.spark, path, days, numbers).version != replacement.version:
                    raise ConcurrentRun(
                        f"{table}/{stream}: another run wrote to it at the same time; run it again"
                    )
                self.delete(table, predicate, None if shared else stream)
                replacement = Replacement(self.spark, path, days, numbers)
            replacement.commit(added, predicate)

    def delete(self, table: str, predicate: str, stream: str | None = None) -> None:
        """Delete the rows that match `predicate`."""
        from delta import DeltaTable

        with _one_winner(table, stream, predicate):
            DeltaTable.forPath(self.spark, self.path(table, stream)).delete(predicate)

    def vacuum(self, table: str, stream: str | None = None) -> None:
        """Remove the files that no current row stands in, at once: what is retired is to be gone from the disk."""
        from delta import DeltaTable

        check = "spark.databricks.delta.retentionDurationCheck.enabled"
        before = self.spark.conf.get(check, "true")
        self.spark.conf.set(check, "false")
        try:
            DeltaTable.forPath(self.spark, self.path(table, stream)).vacuum(0)
        finally:
            self.spark.conf.set(check, before)

    def _create(self, contract: TableContract, path: str) -> None:
        from delta import DeltaTable
        from pyspark.sql.types import StructField, StructType

        plain = StructType.fromDDL(", ".join(f"`{c.name}` {c.type}" for c in contract.columns))
        schema = StructType(
            [
                StructField(field.name, field.dataType, column.nullable, {"comment": column.meaning})
                for field, column in zip(plain.fields, contract.columns, strict=True)
            ]
        )
        builder = DeltaTable.createIfNotExists(self.spark).location(path).addColumns(schema)
        builder = builder.partitionedBy(*contract.partitioned_by).comment(contract.description)
        for key, value in PROPERTIES.items():
            builder = builder.property(key, value)
        with _ONE_TABLE_AT_A_TIME:
            for attempt in range(ATTEMPTS_AT_A_NEW_TABLE):
                try:
                    builder.execute()
                    return
                except Exception:
                    # two runs may begin a table at the same time; whoever came first makes it as this one would,
                    # and until its first commit is through there is a folder that is not a table yet
                    if DeltaTable.isDeltaTable(self.spark, path):
                        return
                    if attempt + 1 == ATTEMPTS_AT_A_NEW_TABLE:
                        raise
                    time.sleep(0.2 * 2**attempt)

    def _grow(self, contract: TableContract, path: str) -> None:
        """Add the attributes that the contract has gained since the table was made."""
        have = {field.name: field.dataType.simpleString() for field in self._schema(path)}
        missing = [column for column in contract.columns if column.name not in have]
        if missing:
            added = ", ".join(f"`{column.name}` {column.type}" for column in missing)
            self.spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS ({added})")
        for column in contract.columns:
            if column.name in have and have[column.name] != _simple(column.type):
                raise SpillwayError(
                    f"{path}: column `{column.name}` must stay {have[column.name]}, got {column.type}; "
                    "give the changed attribute a new name in the contract"
                )

    def _schema(self, path: str) -> Any:
        return self.spark.read.format("delta").load(path).schema.fields

    def _stored_columns(self, path: str, frame: DataFrame) -> list[Any]:
        """The table's columns in its order; one the contract has lost since is written null."""
        from pyspark.sql import functions as sql

        have = set(frame.columns)
        return [
            sql.col(f"`{field.name}`")
            if field.name in have
            else sql.lit(None).cast(field.dataType).alias(field.name)
            for field in self._schema(path)
        ]

    def _refuse_other_columns(self, frame: DataFrame, contract: TableContract, stream: str | None) -> None:
        got = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        problems = []
        for column in contract.columns:
            found = got.pop(column.name, None)
            if found is None:
                problems.append(f"`{column.name}` is missing")
            elif found != _simple(column.type):
                problems.append(f"`{column.name}` must be {_simple(column.type)}, got {found}")
        problems += [f"`{name}` is not in the contract" for name in got]
        if problems:
            target = contract.table + (f"/{stream}" if stream else "")
            raise SpillwayError(
                f"{target} must be written as schemas/tables/{contract.table}.yaml says: "
                + "; ".join(problems)
            )


def table_path(settings: Settings, contract: TableContract, stream: str | None = None) -> str:
    """Where a table lies under its root."""
    root = settings.destination if contract.root == "destination" else settings.lake
    if (contract.scope == "stream") != (stream is not None):
        rule = "name a stream" if contract.scope == "stream" else "name no stream"
        raise SpillwayError(f"table {contract.table} must {rule}, got {stream!r}; see schemas/tables")
    return f"{root}/{contract.table}" + (f"/{stream}" if stream else "")


def _simple(ddl: str) -> str:
    return ddl.replace(" ", "")


@contextmanager
def _one_winner(table: str, stream: str | None, predicate: str) -> Iterator[None]:
    """Delta lets one of two writers commit; the other is told in a sentence."""
    try:
        yield
    except Exception as problem:
        if not CONFLICT.search(f"{type(problem).__name__} {problem}"):
            raise
        raise ConcurrentRun(
            f"{table}{'/' + stream if stream else ''}: another run wrote {predicate} at the same time; "
            "nothing was doubled, run it again"
        ) from problem


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """One DataFrame of all `frames`, columns by name."""
    return reduce(lambda left, right: left.unionByName(right), frames)
