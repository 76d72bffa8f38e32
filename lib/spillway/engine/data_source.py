"""Spark's door to what can be planned as pieces: a data source that reads them in tasks, as Arrow.

What there is to read, and how, is the business of a `Readable`, which is handed in: this module turns its columns into
Spark's, and its pieces into partitions.

Filters are not pushed down to it. Spark 4.2.0 keeps what a source written in Python has planned for one query's
filters, and serves the next query on the same frame (or view, or the other side of a join) from it: a `count()` after
a `where(...).count()` gives the count of the latter. So what is to be read is said in options, before there is a frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

ROWS_IN_A_BATCH = 65_536


class Cut(Protocol):
    """What one task reads; travels to it."""

    def tables(self) -> Iterator[pa.Table]:
        """Its rows, some at a time."""


class Readable(Protocol):
    """What can be read; travels to wherever Spark plans."""

    def schema(self, options: Mapping[str, str]) -> pa.Schema:
        """Its columns."""

    def cuts(self, options: Mapping[str, str], names: Sequence[str]) -> Sequence[Cut]:
        """What there is of these columns, in pieces."""


def register_source(spark: SparkSession, name: str, readable: Readable) -> None:
    """Make `spark.read.format(name)` read it."""
    spark.dataSource.register(_source(name, readable))


def _source(named: str, readable: Readable) -> type[DataSource]:
    # classes that Spark takes to its workers by value, with what they are about
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return named

        def schema(self) -> Any:
            return from_arrow_schema(readable.schema(dict(self.options)))

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader(dict(self.options), to_arrow_schema(schema, timezone="UTC"))

    class Reader(DataSourceReader):
        def __init__(self, options: dict[str, str], schema: pa.Schema) -> None:
            self._options, self._schema = options, schema

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(cut) for cut in readable.cuts(self._options, self._schema.names)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            if partition.value is not None:  # Spark reads at least one partition
                for table in partition.value.tables():
                    yield from _shaped(table, self._schema)

    return Source


def _shaped(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    columns = [table[field.name].cast(field.type).combine_chunks() for field in schema]
    whole = pa.table(columns, schema=schema)
    yield from whole.to_batches(ROWS_IN_A_BATCH)
