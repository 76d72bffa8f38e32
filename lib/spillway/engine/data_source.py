"""A Spark data source written in Python: tasks read slices as Arrow data.

The caller passes a `RowSource`, which decides what is read and how. This module converts its schema to a Spark schema,
and its slices to partitions.

Filters are not pushed down. Spark 4.2.0 caches the partitions that a Python data source planned for the filters of one
query. It reuses them for the next query on the same DataFrame or view, and for the other side of a join. For example, a
`count()` after a `where(...).count()` returns the count of the filtered rows. So the rows to read are selected by
options, before the DataFrame exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

ROWS_IN_A_BATCH = 65_536


class TableSlice(Protocol):
    """The slice that one task reads. It is pickled and sent to the task."""

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows of the slice, one table after the other."""


class RowSource(Protocol):
    """A source of rows. It is pickled and sent to the process in which Spark plans the read."""

    def schema(self, options: Mapping[str, str]) -> pa.Schema:
        """Return the columns of the source."""

    def cuts(self, options: Mapping[str, str], names: Sequence[str]) -> Sequence[TableSlice]:
        """Return the slices to read, with the columns `names`."""


def register_source(spark: SparkSession, name: str, readable: RowSource) -> None:
    """Register `readable` as the format `name`, so that `spark.read.format(name)` reads it."""
    spark.dataSource.register(_source(name, readable))


def _source(named: str, readable: RowSource) -> type[DataSource]:
    # local classes: Spark pickles them by value, including `readable`, and sends them to its workers
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
                    yield from _record_batches(table, self._schema)

    return Source


def _record_batches(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    columns = [table[field.name].cast(field.type).combine_chunks() for field in schema]
    whole = pa.table(columns, schema=schema)
    yield from whole.to_batches(ROWS_IN_A_BATCH)
