"""Whoever cannot start Spark reads the same: every curated table by delta-rs, Polars and DuckDB."""

from __future__ import annotations

from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.pipeline.streams import World, brought_through

from spillway.store.table_contracts import table_contracts

CURATED = ("batches", "models", "schemes", "synopsis", "certificates", "ledger", "validations")
OF_A_STREAM = ("transmitted", "recovered")
STREAMS = ("sites", "meters", "watched")
TABLES = [(table, None) for table in CURATED] + [
    (table, stream) for table in OF_A_STREAM for stream in STREAMS
]


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    return brought_through(spark, lambda: tmp_path_factory.mktemp("world"))


def numbers(schema: pa.Schema) -> list[str]:
    """The columns whose sums are the checksum: whole numbers and reals."""
    return [
        field.name for field in schema if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    ]


def rounded(values: Any) -> list[Any]:
    """Sums to nine digits: readers add in orders of their own."""
    return [None if value is None else float(f"{float(value):.9g}") for value in values]


def spark_says(
    world: World, table: str, stream: str | None, columns: list[str]
) -> tuple[int, list[Any], int]:
    sums = ", ".join(["count(*)", *(f"sum(`{name}`)" for name in columns)])
    frame = world.lake.read(table, stream)
    frame.createOrReplaceTempView("__read")
    nulls = " + ".join(f"count_if(`{name}` IS NULL)" for name in frame.columns)
    count, *found, holes = world.lake.spark.sql(f"SELECT {sums}, {nulls} FROM __read").first()
    return int(count), rounded(found), int(holes)


@pytest.mark.parametrize(("table", "stream"), TABLES)
def test_every_reader_counts_and_sums_what_spark_does(world: World, table: str, stream: str | None) -> None:
    path = world.lake.path(table, stream)
    arrow = DeltaTable(path).to_pyarrow_table()
    columns = numbers(arrow.schema)
    expected = spark_says(world, table, stream, columns)
    assert expected[0] > 0

    holes = sum(column.null_count for column in arrow.columns)
    by_arrow = [pa.compute.sum(arrow[name]).as_py() for name in columns]
    assert (arrow.num_rows, rounded(by_arrow), holes) == expected

    frame = polars.read_delta(path)
    by_polars = [frame[name].sum() if frame[name].count() else None for name in columns]
    holes = sum(frame[name].null_count() for name in frame.columns)
    assert (frame.height, rounded(by_polars), holes) == expected

    everything = ", ".join(f'"{name}"' for name in arrow.column_names)
    sums = ", ".join(["count(*)", *(f'sum("{name}")' for name in columns)])
    nulls = " + ".join(f'count(*) FILTER ("{name}" IS NULL)' for name in arrow.column_names)
    dataset = DeltaTable(path).to_pyarrow_dataset()
    connection = duckdb.connect()
    connection.register("dataset", dataset)
    count, *by_duckdb, holes = connection.execute(
        f"SELECT {sums}, {nulls} FROM (SELECT {everything} FROM dataset)"
    ).fetchone()
    assert (count, rounded(by_duckdb), holes) == expected


def test_every_curated_table_that_a_path_writes_is_read_above(world: World) -> None:
    contracts = table_contracts(world.settings.schemas)
    shared = {name for name, one in contracts.items() if one.curated and one.scope == "shared"}
    written = {name for name in shared if world.lake.exists(name)}
    assert written == set(CURATED)
    assert {name for name, one in contracts.items() if one.curated and one.scope == "stream"} == set(
        OF_A_STREAM
    )


@pytest.mark.parametrize(("table", "stream"), [*TABLES, ("raw", "sites")])
def test_no_table_has_a_feature_that_other_readers_lack(world: World, table: str, stream: str | None) -> None:
    opened = DeltaTable(world.lake.path(table, stream))
    protocol = opened.protocol()
    assert protocol.min_reader_version == 1
    assert not protocol.reader_features
    assert not {"deletionVectors", "columnMapping"} & set(protocol.writer_features or ())
    stated = opened.metadata().configuration
    assert stated["delta.enableDeletionVectors"] == "false"
    assert stated["delta.columnMapping.mode"] == "none"
