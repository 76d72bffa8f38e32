"""Columns in every encoding are read by Spark, DuckDB, Polars and delta-rs, and the smallest encoding is chosen."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake
from hypothesis import given
from hypothesis import strategies as some

from spillway import parquet
from spillway.parquet import (
    DICTIONARY,
    INTEGERS,
    LENGTHS,
    PLAIN,
    PREFIXES,
    best_encodings,
    compressed_widths,
    parquet_writer,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FORCED = (DICTIONARY, PLAIN, INTEGERS, LENGTHS, PREFIXES)
CHOSEN = "the smallest"


def extreme_rows(count: int) -> pa.Table:
    """Rows with the values at which an encoding may fail: extremes, nulls, times before 1970, NaN and -0.0."""
    numbers = range(count)

    def column(kind: pa.DataType, values: list[Any]) -> pa.Array:
        return pa.array([values[(i * 5 + i // 11) % len(values)] for i in numbers], kind)

    moments = [EPOCH - timedelta(microseconds=1), datetime(1, 1, 1, tzinfo=UTC), None, EPOCH]
    moments += [datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), datetime(1883, 11, 18, tzinfo=UTC)]
    return pa.table(
        {
            "place": pa.array(numbers, pa.int64()),
            "int64": column(pa.int64(), [2**63 - 1, -(2**63), 0, -1, None, 1]),
            "int32": column(pa.int32(), [2**31 - 1, -(2**31), 0, -1, None]),
            "day": column(pa.date32(), [date(1969, 12, 31), date(1, 1, 1), None, date(9999, 12, 31)]),
            "moment": column(pa.timestamp("us", "UTC"), moments),
            "before": pa.array([EPOCH - timedelta(seconds=i) for i in numbers], pa.timestamp("us", "UTC")),
            "double": column(
                pa.float64(), [float("nan"), -0.0, 0.0, None, 5e-324, float("inf"), -1.7976931348623157e308]
            ),
            "text": column(pa.string(), ["", None, "ß", "x" * 70_000, "prefix-1", "prefix-2", "a\0b"]),
            "bytes": column(pa.binary(), [b"", b"\0\xff" * 300, None, b"\0"]),
            "logical": column(pa.bool_(), [True, None, False]),
            "no_int": pa.nulls(count, pa.int64()),
            "no_text": pa.nulls(count, pa.string()),
            "no_moment": pa.nulls(count, pa.timestamp("us", "UTC")),
            "no_double": pa.nulls(count, pa.float64()),
            # the whole second row group is null, the others are not
            "gap": pa.array([None if 100 <= i < 200 else i * 10**15 for i in numbers], pa.int64()),
        }
    )


ROWS = extreme_rows(301)


def encodings_of(rows: pa.Table, wanted: str) -> dict[str, str]:
    """The forced encoding for each column that may have it, and the smallest one for the others."""
    found = best_encodings(rows)
    for field in rows.schema if wanted != CHOSEN else ():
        if wanted in parquet._candidates(field.type):
            found[field.name] = wanted
    return found


def write_rows(folder: Path, rows: pa.Table, wanted: str) -> Path:
    """Write three row groups with an empty one between them."""
    folder.mkdir()
    with (
        (folder / "part.parquet").open("wb") as sink,
        parquet_writer(sink, rows.schema, encodings_of(rows, wanted), True) as writer,
    ):
        writer.write_table(rows.slice(0, 100))
        writer.write_table(rows.slice(0, 0))
        writer.write_table(rows.slice(100), row_group_size=100)
    return folder


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A Delta table for each encoding."""
    folder = tmp_path_factory.mktemp("encodings")
    found = {wanted: write_rows(folder / str(n), ROWS, wanted) for n, wanted in enumerate((*FORCED, CHOSEN))}
    for path in found.values():
        convert_to_deltalake(str(path))
    return found


def exact(value: Any) -> Any:
    """Return a value that equals another one only if both have the same bits."""
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack(">d", value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def assert_same_rows(found: pa.Table, wanted: pa.Table) -> None:
    assert sorted(found.column_names) == sorted(wanted.column_names)
    order = np.argsort(np.asarray(found["place"]))
    for name in wanted.column_names:
        values = found[name].to_pylist()
        assert [exact(values[at]) for at in order] == [exact(one) for one in wanted[name].to_pylist()], name


def by_duckdb(path: Path) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.sql(f"SELECT * FROM read_parquet('{path}/*.parquet')").to_arrow_table()


def by_delta_rs(path: Path) -> pa.Table:
    rows = QueryBuilder().register("rows", DeltaTable(str(path))).execute("SELECT * FROM rows")
    return pa.table(rows.read_all())


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "duckdb": by_duckdb,
    "polars": lambda path: polars.read_parquet(path / "part.parquet").to_arrow(),
    "polars, as a Delta table": lambda path: polars.read_delta(str(path)).to_arrow(),
    "delta-rs": by_delta_rs,
    "pyarrow": lambda path: pq.read_table(path / "part.parquet"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("wanted", [*FORCED, CHOSEN])
def test_every_encoding_is_read_value_by_value(tables: dict[str, Path], wanted: str, reader: str) -> None:
    assert_same_rows(READERS[reader](tables[wanted]), ROWS)


@pytest.mark.parametrize("vectorised", ["true", "false"])
def test_every_encoding_is_read_by_spark_value_by_value(
    spark: Any, tables: dict[str, Path], vectorised: str
) -> None:
    setting = "spark.sql.parquet.enableVectorizedReader"
    before = spark.conf.get(setting)
    spark.conf.set(setting, vectorised)
    try:
        for path in tables.values():
            assert_same_rows(spark.read.format("delta").load(str(path)).toArrow(), ROWS)
    finally:
        spark.conf.set(setting, before)


@pytest.mark.parametrize("wanted", FORCED)
def test_a_forced_encoding_is_the_one_that_is_written(tables: dict[str, Path], wanted: str) -> None:
    """The tests above would prove nothing if Parquet silently wrote another encoding."""
    group = pq.ParquetFile(tables[wanted] / "part.parquet").metadata.row_group(0)
    of = {
        group.column(i).path_in_schema: set(group.column(i).encodings)
        for i in range(len(ROWS.schema))
        if group.column(i).statistics is None or group.column(i).num_values
    }
    stored = {"RLE_DICTIONARY", "PLAIN_DICTIONARY"} if wanted == DICTIONARY else {wanted}
    for name in encodings_of(ROWS, wanted):
        if encodings_of(ROWS, wanted)[name] == wanted and not name.startswith("no_"):
            assert of[name] & stored, name


def test_a_file_without_rows_is_read(tmp_path: Path) -> None:
    with (
        (tmp_path / "part.parquet").open("wb") as sink,
        parquet_writer(sink, ROWS.schema, encodings_of(ROWS, CHOSEN)) as writer,
    ):
        writer.write_table(ROWS.slice(0, 0))
    convert_to_deltalake(str(tmp_path))
    for name, read in READERS.items():
        assert read(tmp_path).num_rows == 0, name


VALUES = some.one_of(
    some.lists(some.none() | some.integers(-(2**63), 2**63 - 1), max_size=80).map(
        lambda one: pa.array(one, pa.int64())
    ),
    some.lists(some.integers(-3, 3), max_size=200).map(lambda one: pa.array(np.cumsum(one), pa.int64())),
    some.lists(some.none() | some.floats(), max_size=80).map(lambda one: pa.array(one, pa.float64())),
    some.lists(some.none() | some.text(some.characters(exclude_categories=["Cs"])), max_size=80).map(
        lambda one: pa.array(one, pa.string())
    ),
    some.lists(some.none() | some.dates(), max_size=80).map(lambda one: pa.array(one, pa.date32())),
    some.lists(some.none() | some.binary(), max_size=80).map(lambda one: pa.array(one, pa.binary())),
    some.lists(some.none() | some.booleans(), max_size=80).map(lambda one: pa.array(one, pa.bool_())),
)


@given(VALUES, some.integers(1, 40))
def test_the_chosen_encoding_takes_no_more_bytes_than_any_other(values: pa.Array, repeated: int) -> None:
    rows = pa.table({"v": pa.chunked_array([values] * repeated)})
    chosen = compressed_widths(rows)["v"]
    for other in parquet._candidates(values.type):
        assert chosen <= compressed_widths(rows, {"v": other})["v"], other
    assert best_encodings(rows) == best_encodings(rows.combine_chunks())


STREAM = """
import hashlib, sys
import numpy as np, pyarrow as pa
from spillway.store.file_writer import write_file
n = 50_000
chance = np.random.default_rng(7)
rows = pa.table({
    "seq": np.arange(n), "at": pa.array(np.arange(n) * 1_000_000, pa.timestamp("us", "UTC")),
    "key": [f"station-{i % 31}" for i in range(n)], "temp": np.round(chance.normal(20, 5, n), 1),
})
one = write_file(sys.argv[1], {}, rows.schema, [rows])
print(hashlib.sha256(open(f"{sys.argv[1]}/{one.path}", "rb").read()).hexdigest(), one.statistics)
"""


def test_the_same_rows_are_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    run = [sys.executable, "-c", STREAM]
    told = {
        subprocess.run([*run, str(tmp_path / name)], check=True, capture_output=True, text=True).stdout
        for name in ("a", "b")
    }
    assert len(told) == 1
    assert len(list(tmp_path.glob("*/*.parquet"))) == 2


def test_values_that_repeat_after_the_sample_get_a_dictionary() -> None:
    """20,000 values occur three times each in the sample, and 26 times in the row group."""
    count = 1 << 19
    chance = np.random.default_rng(1)
    rows = pa.table({"v": chance.normal(size=20_000)[chance.integers(0, 20_000, count)]})
    sizes = {one: compressed_widths(rows, {"v": one})["v"] for one in (DICTIONARY, PLAIN)}
    assert sizes[DICTIONARY] < 0.9 * sizes[PLAIN]
    assert best_encodings(rows) == {"v": DICTIONARY}
    assert best_encodings(rows.slice(0, parquet.SAMPLE_ROWS)) == {"v": PLAIN}
