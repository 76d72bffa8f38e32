"""Spark's door to what can be planned as pieces: a data source that reads them in tasks, as Arrow.

What there is to read, and how, is the business of a `Readable`, which is handed in: this module turns Spark's schemas
and filters into names and conditions, and pieces into partitions. Spark filters what it gets once more, so a `Readable`
may take of the conditions what helps it, and leave the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ROWS_IN_A_BATCH = 65_536

Conditions = Mapping[str, Sequence[tuple[str, Any]]]
"""By column, what must hold of it: pairs of an operator (`=`, `in`, `>=`, `<=`) and a value; no less than was asked."""


class Cut(Protocol):
    """What one task reads; travels to it."""

    def tables(self) -> Iterator[pa.Table]:
        """Its rows, some at a time."""


class Readable(Protocol):
    """What can be read; travels to wherever Spark plans."""

    def schema(self, options: Mapping[str, str]) -> pa.Schema:
        """Its columns."""

    def cuts(self, options: Mapping[str, str], names: Sequence[str], where: Conditions) -> Sequence[Cut]:
        """What there is of these columns that may answer the conditions, in pieces."""


def register_source(spark: SparkSession, name: str, readable: Readable) -> None:
    """Make `spark.read.format(name)` read it; filters are pushed down to it from then on."""
    spark.conf.set(PUSHDOWN, "true")
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
            self._where: Conditions = {}

        def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - so Spark calls it
            self._where = conditions(filters)
            return filters  # conditions are looser than filters: Spark applies these all the same

        def partitions(self) -> list[InputPartition]:
            return [
                InputPartition(cut) for cut in readable.cuts(self._options, self._schema.names, self._where)
            ]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            if partition.value is not None:  # Spark reads at least one partition
                for table in partition.value.tables():
                    yield from _shaped(table, self._schema)

    return Source


def conditions(filters: Iterable[Any]) -> Conditions:
    """What Spark's filters ask of columns, as far as conditions can say it; what they cannot stays with Spark.

    >>> from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull
    >>> conditions([EqualTo(("origin",), "JFK"), GreaterThan(("seq",), 7), In(("batch",), (1, 2)), IsNotNull(("seq",))])
    {'origin': [('=', 'JFK')], 'seq': [('>=', 7)], 'batch': [('in', (1, 2))]}
    """
    operators = {
        "EqualTo": "=", "EqualNullSafe": "=", "In": "in", "GreaterThan": ">=", "GreaterThanOrEqual": ">=",
        "LessThan": "<=", "LessThanOrEqual": "<=",
    }  # fmt: skip
    found: dict[str, list[tuple[str, Any]]] = {}
    for one in filters:
        operator = operators.get(type(one).__name__)
        if operator is not None and len(one.attribute) == 1 and one.value is not None:
            value = tuple(each for each in one.value if each is not None) if operator == "in" else one.value
            found.setdefault(one.attribute[0], []).append((operator, value))
    return found


def _shaped(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    columns = [table[field.name].cast(field.type).combine_chunks() for field in schema]
    whole = pa.table(columns, schema=schema)
    yield from whole.to_batches(ROWS_IN_A_BATCH)
