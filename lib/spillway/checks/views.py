"""What is validated: per table a view of a few rows, computed by Spark once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spillway.checks.suites import Suite
from spillway.contracts import StreamContract
from spillway.errors import SpillwayError
from spillway.store.table_contracts import BOUND_SUFFIX, TableContract

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def split_name(name: str) -> tuple[str, str | None]:
    """The table and the stream of a name.

    >>> split_name("transmitted/weather"), split_name("ledger")
    (('transmitted', 'weather'), ('ledger', None))
    """
    table, _, stream = name.partition("/")
    return table, stream or None


def types_of(frame: DataFrame) -> dict[str, str]:
    """The columns of a frame and their types as Spark spells them."""
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def column_problems(
    found: Mapping[str, str], contract: TableContract, sheddable: Sequence[str] = ()
) -> list[str]:
    """Where the columns of a table, found with these types, differ from the contract.

    A stream's table may hold columns its contract has lost since; a table of its own must not.
    """
    problems = []
    for column in contract.columns:
        unbounded = column.name.removesuffix(BOUND_SUFFIX)
        if column.name.endswith(BOUND_SUFFIX) and unbounded not in sheddable and column.name not in found:
            continue
        asked = column.type.replace(" ", "")
        if column.name not in found:
            problems.append(f"`{column.name}` is missing")
        elif found[column.name] != asked:
            problems.append(f"`{column.name}` must be {asked}, found {found[column.name]}")
    if contract.scope != "stream":
        problems += [f"`{name}` is in no contract" for name in found if name not in contract.names]
    return problems


def settle(frame: DataFrame) -> tuple[DataFrame, list[dict[str, Any]]]:
    """Compute a small frame once: the same rows as a local DataFrame, and for the driver."""
    table = frame.toArrow()
    rows: list[dict[str, Any]] = table.to_pylist()
    return frame.sparkSession.createDataFrame(table), rows


def stream_facts(spark: SparkSession, streams: Mapping[str, StreamContract]) -> dict[str, DataFrame]:
    """What the contracts say, for the views to join: `streams` (mode, width) and `attributes` (role)."""
    modes = [{"stream": s.stream, "mode": s.mode, "width": s.width} for s in streams.values()]
    roles = [
        {"stream": s.stream, "attribute": a.name, "role": a.role}
        for s in streams.values()
        for a in s.attributes
    ]
    text = pa.string()
    return {
        "streams": spark.createDataFrame(
            pa.Table.from_pylist(modes, pa.schema({"stream": text, "mode": text, "width": text}))
        ),
        "attributes": spark.createDataFrame(
            pa.Table.from_pylist(roles, pa.schema({"stream": text, "attribute": text, "role": text}))
        ),
    }


def empty(spark: SparkSession, ddl: Sequence[tuple[str, str]]) -> DataFrame:
    """A table of columns (name, type) that nobody wrote yet; Spark plans it away wherever it is joined."""
    columns = ", ".join(f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in ddl)
    return spark.sql(f"SELECT {columns} WHERE false")


def view(spark: SparkSession, suite: Suite, tables: Mapping[str, DataFrame]) -> DataFrame:
    """The suite's view over `tables`."""
    missing = [name for name in suite.tables() if name not in tables]
    if missing:
        raise SpillwayError(
            f"expectations/{suite.table}.yaml: `view` must read tables of the lake, got {', '.join(missing)}; "
            f"choose from {', '.join(sorted(tables))}"
        )
    return spark.sql(suite.view, **{name: tables[name] for name in suite.tables()})
