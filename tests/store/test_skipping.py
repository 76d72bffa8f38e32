"""Other programs skip files by a measure, and answers from the log alone are right.

A file that a query does not need is damaged: a reader that opens it fails.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from spillway.settings import Settings
from spillway.store.tables import Table, Tables

DAY = date(2026, 1, 1)
COUNT = 8_000
ATTRIBUTES = [("station", "string"), *((f"m{i}", "double") for i in range(3)), ("temp", "double")]


def sent(folder: Path) -> Table:
    """The table of a stream: temp is below 30 in batch 1, above in batch 2, and NaN once in batch 3."""
    settings = Settings.from_environment(
        {"SPILLWAY_HOME": str(folder), "SPILLWAY_LAKE": str(folder / "lake")}
    )
    table = Tables(settings).at("transmitted", "s").with_attributes(ATTRIBUTES)
    chance = np.random.default_rng(1)
    for batch, (low, high) in enumerate([(-5.0, 29.5), (31.0, 40.0), (10.0, 20.0)], 1):
        temp = chance.uniform(low, high, COUNT)
        temp[:2] = low, high
        if batch == 3:
            temp[2] = np.nan
        rows = pa.table(
            {
                "seq": np.arange(COUNT) + batch * COUNT,
                "batch": [batch] * COUNT,
                "batch_date": pa.array([DAY] * COUNT),
                "station": ["a", "b"] * (COUNT // 2),
                **{f"m{i}": chance.normal(size=COUNT) for i in range(2)},
                "m2": np.where(np.arange(COUNT) == 5, -np.inf, 1.0),
                "temp": temp,
            }
        )
        table.publish(table._write(rows.cast(table.contract.arrow_schema)), batch=batch)
    return table


def damaged(table: Table, batch: int) -> None:
    """Damage the content of a batch's file, its footer included; the log still lists it."""
    (file,) = table.files(batch=batch)
    path = Path(file.path)
    path.write_bytes(b"\xff" * path.stat().st_size)


def by_polars(path: str, where: str) -> int:
    frame = polars.scan_delta(path)
    condition = polars.sql_expr(where)
    return int(frame.filter(condition).select(polars.len()).collect().item())


def by_delta_rs(path: str, where: str) -> int:
    """The reader of delta-rs itself."""
    query = QueryBuilder().register("t", DeltaTable(path))
    return int(
        pa.table(query.execute(f"SELECT count(temp) AS n FROM t WHERE {where}").read_all())["n"][0].as_py()
    )


def by_dataset(path: str, where: str) -> int:
    """DuckDB over the data set of delta-rs, which skips files by the log."""
    with duckdb.connect() as connection:
        connection.register("t", DeltaTable(path).to_pyarrow_dataset())
        return int(connection.sql(f"SELECT count(temp) FROM t WHERE {where}").fetchall()[0][0])


def by_filter(path: str, where: str) -> int:
    """DuckDB's conditions as filters of pyarrow, over the data set of delta-rs."""
    column, sign, value = where.split()
    return DeltaTable(path).to_pyarrow_table(filters=[(column, sign, float(value))]).num_rows


READERS: dict[str, Callable[[str, str], int]] = {
    "delta-rs": by_delta_rs,
    "pyarrow": by_filter,
    "duckdb": by_dataset,
    "polars": by_polars,
}
BY_DATA_SET = ("pyarrow", "duckdb")
"""Filters over delta-rs's data set lose the rows of a file of which the log does not state the column."""
SKIPPING = ("delta-rs", "pyarrow")
"""DuckDB and Polars do not trust the smallest and largest values of floats, because of NaN."""


@pytest.mark.parametrize("reader", SKIPPING)
def test_a_reader_skips_the_file_that_a_measure_excludes(tmp_path: Path, reader: str) -> None:
    table, read = sent(tmp_path), READERS[reader]
    table.delete(batch=3)
    assert read(table.path, "temp > 30") == COUNT
    damaged(table, 1)
    assert read(table.path, "temp > 30") == COUNT
    with pytest.raises(Exception, match=r"(?i)parquet|magic|footer|invalid|out of|eof|thrift|length"):
        read(table.path, "temp > 29")


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_loses_a_row_by_log_statistics_of_a_measure(tmp_path: Path, reader: str) -> None:
    table, read = sent(tmp_path), READERS[reader]
    if reader in BY_DATA_SET:
        table.delete(batch=3)
    temp = np.asarray(table.rows(["temp"])["temp"])
    for limit in (-5.0, 9.0, 15.0, 20.0, 30.5, 40.0, 100.0):
        # NaN is the largest number for the others
        larger = int((temp > limit).sum()) + (reader not in BY_DATA_SET)
        assert read(table.path, f"temp > {limit}") == larger, limit
        assert read(table.path, f"temp < {limit}") == int((temp < limit).sum()), limit


def test_spark_skips_the_file_that_a_measure_excludes(spark: Any, tmp_path: Path) -> None:
    table = sent(tmp_path)
    rows = spark.read.format("delta").load(table.path)
    assert rows.where("temp > 30").count() == COUNT + 1, "NaN is the largest number of Spark"
    damaged(table, 1)
    rows = spark.read.format("delta").load(table.path)
    assert rows.where("temp > 30").count() == COUNT + 1
    with pytest.raises(Exception, match=r"(?i)parquet"):
        rows.where("temp > 29").count()


def test_spark_answers_min_and_max_alike_from_log_and_rows(spark: Any, tmp_path: Path) -> None:
    """Delta answers MIN and MAX from the log if every file states them; batch 3 states none."""
    table = sent(tmp_path)
    told = "min(temp), max(temp), min(m0), max(m0), min(m2), max(m2), count(*)"
    assert max(one.high("m0") for one in table.files()) is not None

    def answer() -> Any:
        found = spark.sql(f"SELECT {told} FROM delta.`{table.path}`").collect()[0]
        return [value.hex() if isinstance(value, float) else value for value in found]

    def counted() -> list[Any]:
        rows = table.rows(["temp", "m0", "m2"]).to_pandas()
        temp = sorted(rows["temp"], key=lambda one: (one != one, one))
        found = [temp[0], temp[-1], rows["m0"].min(), rows["m0"].max()]
        found += [rows["m2"].min(), rows["m2"].max()]
        return [*(float(value).hex() for value in found), len(rows)]

    assert answer() == counted()
    table.delete(batch=3)
    assert answer() == counted()
