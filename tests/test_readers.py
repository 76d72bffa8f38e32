"""Whoever cannot start Spark reads the same: every curated table by Spark, delta-rs, Polars and DuckDB."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spillway.errors import InvalidValue
from spillway.settings import Settings
from spillway.store.catalog import CREATED, UNCHANGED, register_tables
from spillway.store.schemas import SPARK_TYPES, TableContract, spark_type, table_contracts
from spillway.store.tables import Table, Tables

CONTRACTS = table_contracts()
ATTRIBUTES = [(f"{name}_value", name) for name in sorted(SPARK_TYPES)]
ADDED = [("scheme", "bigint", "the row's scheme")]
ODD = "a b/ß%"
"""What a partition may be called; a stream's own folder has a plainer name."""
ROWS = 9
SAMPLES: dict[str, list[Any]] = {
    "string": ["a", "", "ß\0%", "x" * 40],
    "boolean": [True, False],
    "bigint": [1, -(2**63), 2**63 - 1, 0],
    "double": [1.5, -0.0, 1e300, float("-inf"), float("nan")],
    "timestamp": [datetime(2026, 1, 1, 0, 0, 0, 1234, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)],
    "date": [date(2026, 1, 1), date(9999, 12, 31)],
    "binary": [b"\0\xff", b""],
}


def sample(kind: pa.DataType, number: int) -> Any:
    """A value of the type; another one for another number."""
    if pa.types.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return {one.name: sample(one.type, number + i) for i, one in enumerate(fields)}
    if pa.types.is_list(kind):
        return [sample(kind.value_type, number + i) for i in range(number % 3)]
    if pa.types.is_map(kind):
        return {f"{key}": sample(kind.item_type, number + key) for key in range(number % 3)}
    values = SAMPLES[spark_type(kind)]
    return values[number % len(values)]


def rows_of(contract: TableContract) -> list[dict[str, Any]]:
    """Rows with everything in them that the contract allows, nulls among them."""
    rows = []
    for number in range(ROWS):
        row = {}
        for at, field in enumerate(contract.arrow_schema):
            if field.name in contract.partitioned_by:
                day = date(2026, 1, 1) + timedelta(days=number % 2)
                row[field.name] = day if pa.types.is_date(field.type) else f"{ODD}{number % 2}"
            elif field.name == "seq":
                row[field.name] = number
            elif field.nullable and (number + at) % 4 == 0:
                row[field.name] = None
            else:
                row[field.name] = sample(field.type, number + at)
        rows.append(row)
    return rows


def at(tables: Tables, name: str) -> Table:
    if CONTRACTS[name].scope == "shared":
        return tables.at(name)
    return tables.at(name, "s").with_attributes(ATTRIBUTES, ADDED)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Every table there is, written in two commits, the second of which replaces a part of the first."""
    folder = tmp_path_factory.mktemp("readers")
    found = Tables(
        Settings.from_environment({"SPILLWAY_HOME": str(folder), "SPILLWAY_LAKE": str(folder / "lake")})
    )
    for name in CONTRACTS:
        table = at(found, name)
        rows = rows_of(table.contract)
        table.append(rows)
        key = table.contract.partitioned_by[0]
        mine = [row for row in rows if row[key] == rows[0][key]]
        table.replace(mine, **{key: rows[0][key]})
    return found


def plain(value: Any) -> Any:
    """A value as all readers have it: times in UTC, maps and structs as pairs, numbers by their bits."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, dict):
        return sorted((key, plain(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        items = [plain(item) for item in value]
        pairs = all(isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) for item in items)
        return sorted(items) if items and pairs else items
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def as_pairs(table: pa.Table) -> list[str]:
    """Rows, comparable whatever their order."""
    return sorted(
        repr([(name, plain(row[name])) for name in sorted(row)])
        for row in table.to_pylist(maps_as_pydicts="strict")
    )


NAMES = sorted(CONTRACTS)


@pytest.mark.parametrize("name", NAMES)
def test_every_reader_reads_what_was_written(spark: Any, tables: Tables, name: str) -> None:
    table = at(tables, name)
    path, contract = table.path, table.contract
    schema = pa.schema([pa.field(f.name, f.type) for f in contract.arrow_schema])
    wanted = as_pairs(pa.Table.from_pylist(rows_of(contract), schema=schema))

    assert as_pairs(table.rows()) == wanted
    assert as_pairs(DeltaTable(path).to_pyarrow_table()) == wanted
    assert as_pairs(spark.read.format("delta").load(path).toArrow()) == wanted

    frame = polars.read_delta(path)
    assert (frame.height, set(frame.columns)) == (ROWS, set(contract.names))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given", DeltaTable(path).to_pyarrow_dataset())
        by_duckdb = connection.sql("SELECT * FROM given").to_arrow_table()
    for column in contract.columns:
        holes = sum(row[column.name] is None for row in rows_of(contract))
        assert frame[column.name].null_count() == by_duckdb[column.name].null_count == holes, column.name
        if column.type in ("string", "bigint", "boolean", "date", "binary"):
            values = sorted(repr(row[column.name]) for row in rows_of(contract))
            assert sorted(repr(value) for value in frame[column.name].to_list()) == values
            assert sorted(repr(value) for value in by_duckdb[column.name].to_pylist()) == values


@pytest.mark.parametrize("name", NAMES)
def test_spark_sees_types_nullability_and_comments_as_the_contract_has_them(
    spark: Any, tables: Tables, name: str
) -> None:
    table = at(tables, name)
    found = {field.name: field for field in spark.read.format("delta").load(table.path).schema}
    assert list(found) == list(table.contract.names)
    assert {one: found[one].dataType.simpleString() for one in found} == {
        column.name: column.type for column in table.contract.columns
    }
    assert {one: found[one].metadata.get("comment") for one in found} == {
        column.name: column.meaning for column in table.contract.columns
    }
    kept = {field.name: field.nullable for field in DeltaTable(table.path).schema().fields}
    assert kept == {column.name: column.nullable for column in table.contract.columns}
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{table.path}`").collect()
    assert detail["description"] == table.contract.description
    assert tuple(detail["partitionColumns"]) == table.contract.partitioned_by


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_spark_reads_history_earlier_versions_and_streams_of_every_table(
    spark: Any, tables: Tables, tmp_path: Path, name: str
) -> None:
    path = at(tables, name).path
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()
    assert (detail["format"], detail["minReaderVersion"]) == ("delta", 1)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()
    assert [row["operation"] for row in reversed(history)] == ["CREATE TABLE", "WRITE", "WRITE"]
    read = spark.read.format("delta")
    assert [read.option("versionAsOf", at).load(path).count() for at in (0, 1)] == [0, ROWS]
    rows = spark.readStream.format("delta").option("startingVersion", 0).option("skipChangeCommits", "true")
    streamed = rows.load(path).writeStream.format("memory").queryName(f"stream_{name}")
    started = streamed.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert started.awaitTermination(60)
    assert spark.table(f"stream_{name}").count() == ROWS  # the first commit; the second replaced rows of it


def test_spark_and_delta_rs_read_which_rows_a_commit_inserted_and_deleted(
    spark: Any, tables: Tables, tmp_path: Path
) -> None:
    table = at(tables, "recovered")
    first = rows_of(table.contract)[0]["batch_date"]
    replaced = [row["seq"] for row in rows_of(table.contract) if row["batch_date"] == first]
    wanted = {(seq, "insert", 1) for seq in range(ROWS)}
    wanted |= {(seq, change, 2) for seq in replaced for change in ("delete", "insert")}
    columns = ["seq", "_change_type", "_commit_version"]
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", 0)
    found = feed.format("delta").load(table.path).select(columns).collect()
    assert sorted(map(tuple, found)) == sorted(wanted)
    by_delta_rs = pa.table(DeltaTable(table.path).load_cdf(starting_version=1).read_all()).select(columns)
    assert sorted(tuple(row.values()) for row in by_delta_rs.to_pylist()) == sorted(wanted)
    streamed = spark.readStream.option("readChangeFeed", "true").option("startingVersion", 0)
    written = streamed.format("delta").load(table.path).writeStream.format("memory").queryName("changes")
    started = written.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert started.awaitTermination(60)
    assert sorted(map(tuple, spark.table("changes").select(columns).collect())) == sorted(wanted)


@pytest.mark.long
def test_every_curated_table_keeps_its_columns_in_a_catalog(spark: Any, tables: Tables) -> None:
    curated = {name for name in NAMES if CONTRACTS[name].curated}
    try:
        made = register_tables(spark, tables, "readers")
        again = register_tables(spark, tables, "readers")
    finally:
        spark.sql("DROP DATABASE IF EXISTS readers CASCADE")
    names = {
        f"readers.{name}" if CONTRACTS[name].scope == "shared" else f"readers.{name}_s" for name in curated
    }
    assert {(one.name, one.action) for one in made} == {(name, CREATED) for name in names}
    assert {one.action for one in again} == {UNCHANGED}


def test_no_filter_of_spark_misses_a_row_for_what_the_log_says_of_a_file(spark: Any, tables: Tables) -> None:
    table = at(tables, "transmitted")
    stored = spark.read.format("delta").load(table.path)
    whole = spark.createDataFrame(table.rows())
    for predicate in (
        "double_value = double('NaN')",
        "double_value > 1e299",
        "double_value = double('-infinity')",
        "double_value IS NULL",
        "timestamp_value > timestamp'2026-01-01 00:00:00.001233Z'",
        "timestamp_value <= timestamp'2026-01-01 00:00:00.001234Z'",
        "date_value = date'9999-12-31'",
        f"string_value = '{'x' * 40}'",
        "string_value > 'b'",
        "string_value > 'ß'",
        "NOT boolean_value",
        "seq = 8",
        "seq > 7",
        "batch_date > date'2026-01-01'",
    ):
        expected = whole.where(predicate).count()
        assert stored.where(predicate).count() == expected, predicate
        assert expected > 0, predicate


def compacted(spark: Any, folder: Path, stream: str) -> Table:
    """The facts of a stream after Spark has compacted them."""
    settings = Settings.from_environment(
        {"SPILLWAY_HOME": str(folder), "SPILLWAY_LAKE": str(folder / "lake")}
    )
    table = at(Tables(settings), "models")
    for version in (1, 2):
        table.append([{**rows_of(table.contract)[1], "stream": stream, "version": version}])
    spark.sql(f"OPTIMIZE delta.`{table.path}`").collect()
    found = at(Tables(settings), "models")
    assert len(found.files()) == 1
    return found


def test_what_spark_has_compacted_is_found_and_replaced(spark: Any, tmp_path: Path) -> None:
    table = compacted(spark, tmp_path, "a b/%25=c")
    table.replace([], stream="a b/%25=c", version=2)
    rows = spark.read.format("delta").load(table.path).select("stream", "version").collect()
    assert [tuple(row) for row in rows] == [("a b/%25=c", 1)]
    assert table.rows(["version"]).to_pylist() == [{"version": 1}]


def test_a_file_that_could_not_be_taken_out_of_the_log_is_refused(spark: Any, tmp_path: Path) -> None:
    table = compacted(spark, tmp_path, "ß")
    before = as_pairs(table.rows())
    with pytest.raises(
        InvalidValue,
        match=r"models: `path` must be listed as stream=%C3%9F/.* to be taken out, got 'stream=ß/",
    ):
        table.replace([], stream="ß", version=2)
    assert as_pairs(table.rows()) == before


@pytest.mark.parametrize("name", NAMES)
def test_no_table_has_a_feature_that_other_readers_lack(tables: Tables, name: str) -> None:
    opened = DeltaTable(at(tables, name).path)
    protocol = opened.protocol()
    assert protocol.min_reader_version == 1
    assert not protocol.reader_features
    assert protocol.min_writer_version == (4 if CONTRACTS[name].change_feed else 2)
    assert not {"deletionVectors", "columnMapping"} & set(protocol.writer_features or ())
    stated = opened.metadata().configuration
    assert stated["delta.enableDeletionVectors"] == "false"
    assert stated["delta.columnMapping.mode"] == "none"


def test_a_table_of_nothing_is_read_as_nothing(spark: Any, tmp_path: Path) -> None:
    empty = Tables(
        Settings.from_environment({"SPILLWAY_HOME": str(tmp_path), "SPILLWAY_LAKE": str(tmp_path / "lake")})
    )
    table = at(empty, "models")
    table.append(rows_of(table.contract))
    table.delete(version=sorted({row["version"] for row in rows_of(table.contract)}))
    assert spark.read.format("delta").load(table.path).count() == 0
    assert polars.read_delta(table.path).height == table.rows().num_rows == 0
