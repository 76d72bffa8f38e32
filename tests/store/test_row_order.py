"""Rows in the order that takes fewer bytes: the file says so, and every reader of ours gets them as they arrived."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spillway.parquet import best_layout
from spillway.settings import Settings
from spillway.store import file_writer
from spillway.store.delta_log import data_file
from spillway.store.file_writer import write_file
from spillway.store.files import (
    DataFile,
    RowReader,
    batch_bytes,
    groups_of,
    read_rows,
    row_groups,
    rows_of,
    rows_of_group,
    sort_keys_of,
)
from spillway.store.maintenance import compact
from spillway.store.tables import Table, Tables

ATTRIBUTES = [("site", "string"), ("unit", "integer"), ("at", "timestamp"), ("level", "double")]
KEYS = ("site", "unit")
DAY = date(2026, 1, 1)
SITES = 12


def polled(rows: int, first_seq: int = 0, batch: int = 1) -> pa.Table:
    """Sites that report in turn, each with a level that changes by one: stored by site, levels take fewer bytes.

    Keys, times and levels are null here and there, levels NaN or -0.0, and times lie before 1970 too.
    """
    at = np.arange(rows)
    rounds, chance = -(-rows // SITES), np.random.default_rng(3)
    steps = np.cumsum(chance.integers(-1, 2, (rounds, SITES)), axis=0) + chance.integers(0, 5_000, SITES)
    level = steps.reshape(-1)[:rows].astype(float)
    level[::97], level[1::97] = np.nan, -0.0
    return pa.table(
        {
            "seq": pa.array(at + first_seq),
            "batch": pa.array(np.full(rows, batch)),
            "site": pa.array([None if i % SITES == 7 else f"ß-{i % SITES * 7 % SITES}" for i in range(rows)]),
            "unit": pa.array(at % 2, mask=at % SITES == 9),
            "at": pa.array(at // SITES * 1_000_000 - 10**7, pa.timestamp("us", tz="UTC"), mask=at % 89 == 5),
            "level": pa.array(level, mask=at % 83 == 2),
        }
    )


def noise(rows: int, first_seq: int = 0, batch: int = 1) -> pa.Table:
    """The same columns with values for which another order saves nothing."""
    chance = np.random.default_rng(1)
    table = polled(rows, first_seq, batch)
    for name, values in (
        ("site", chance.integers(0, 10**9, rows).astype(str)),
        ("level", chance.random(rows)),
    ):
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    return table


def written(folder: Path, rows: pa.Table, keys: tuple[str, ...] = KEYS, step: int = 10**9) -> DataFile:
    """A file of the rows, `step` of them at a time."""
    parts = [rows.slice(low, step) for low in range(0, rows.num_rows, step)]
    one = write_file(str(folder), {}, rows.schema, parts, keys=keys)
    assert one is not None
    return data_file(str(folder), one, rows.schema)


def stored(file: DataFile) -> pa.Table:
    """The rows as they lie in the file."""
    return pq.ParquetFile(file.path).read()


def same(found: pa.Table, wanted: pa.Table) -> None:
    """Equal value by value, NaN and the sign of zero included."""
    assert [repr(row) for row in found.to_pylist()] == [repr(row) for row in wanted.to_pylist()]


def test_rows_are_stored_by_key_if_that_saves_bytes_and_the_footer_states_it(tmp_path: Path) -> None:
    rows = polled(6_000)
    by_key, as_arrived = written(tmp_path, rows), written(tmp_path, rows, keys=())
    assert sort_keys_of(by_key) == KEYS
    assert sort_keys_of(as_arrived) == ()
    assert by_key.size < 0.97 * as_arrived.size
    assert stored(by_key)["seq"].to_pylist() != list(range(6_000))
    same(stored(by_key).sort_by("seq"), rows)
    # the rows of each key lie together, keys in the order of their first row
    first: dict[tuple[Any, Any], int] = {}
    for row in rows.to_pylist():
        first.setdefault((row["site"], row["unit"]), row["seq"])
    wanted = sorted(rows.to_pylist(), key=lambda row: (first[row["site"], row["unit"]], row["seq"]))
    assert stored(by_key)["seq"].to_pylist() == [row["seq"] for row in wanted]


def test_rows_keep_their_order_if_another_saves_less_than_3_percent(tmp_path: Path) -> None:
    file = written(tmp_path, noise(6_000))
    assert sort_keys_of(file) == ()
    same(stored(file), noise(6_000))


@pytest.mark.parametrize(("saving", "chosen"), [(0.031, True), (0.029, False)])
def test_order_by_key_must_save_3_percent_of_all_columns_with_seq(
    monkeypatch: pytest.MonkeyPatch, saving: float, chosen: bool
) -> None:
    """With sizes set by hand, `level` saves the bytes that `seq` costs, and a few more."""
    from spillway import parquet

    def sizes(rows: pa.Table) -> dict[str, dict[str, int]]:
        moved = rows["seq"][1].as_py() != 1
        seq, level = (10_000, 90_000 - round(100_000 * saving)) if moved else (1_000, 99_000)
        return {"seq": {"PLAIN": seq}, "level": {"PLAIN": level}}

    monkeypatch.setattr(parquet, "_compared", sizes)
    assert best_layout(polled(1_000), KEYS)[0] == (KEYS if chosen else ())


def test_same_rows_become_same_bytes_in_any_chunks(tmp_path: Path) -> None:
    rows = polled(6_000)
    contents = {Path(written(tmp_path, rows, step=step).path).read_bytes() for step in (7, 1_000, 10**9)}
    assert len(contents) == 1


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[DataFile], pa.Table]:
    """Two files of several row groups: one in arrival order, as older versions wrote them, and one by key."""
    monkeypatch.setattr(file_writer, "ROWS_IN_A_GROUP", 2_500)
    rows = polled(12_000)
    files = [written(tmp_path, rows.slice(6_000)), written(tmp_path, rows.slice(0, 6_000), keys=())]
    assert [sort_keys_of(file) for file in files] == [KEYS, ()]
    assert [pq.ParquetFile(file.path).num_row_groups for file in files] == [3, 3]
    return files, rows


def test_every_reader_returns_rows_in_arrival_order(
    both: tuple[list[DataFile], pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowReader, "AT_A_TIME", 700)
    files, rows = both
    names = ["level", "site"]
    reader, chance = RowReader(files), random.Random(2)
    ranges = [(0, 12_000), (5_990, 6_010), (8_499, 8_501)]
    ranges += [(low, low + chance.randrange(3_000)) for low in (chance.randrange(12_000) for _ in range(30))]
    for low, high in ranges:
        wanted = rows.slice(low, high - low + 1).select(["seq", *names])
        same(reader(names, low, high), wanted)
        same(read_rows(files, names, low, high), wanted)
    assert reader._in_order, "no stretch was read twice"
    by_key, mine = files[0], rows.slice(6_000)
    same(pa.concat_tables(rows_of(by_key, names, 700)), mine.select(names))
    assert all(part.num_rows <= 700 for part in rows_of(by_key, names, 700))
    same(pa.concat_tables(groups_of(by_key, names)), mine.select(names))
    same(rows_of_group(by_key, 1, ["at", "seq"]), mine.slice(2_500, 2_500).select(["at", "seq"]))
    same(rows_of_group(by_key, 1, ["at", "later"]), mine.slice(2_500, 2_500).select(["at"]))
    assert sum(part.num_rows for part in rows_of(by_key, ["later"], 700)) == 6_000


def test_row_groups_keep_their_range_of_seq(both: tuple[list[DataFile], pa.Table]) -> None:
    """Rows move only within their row group, so that a range of `seq` is read from the row groups that have it."""
    (file, _), _ = both
    edges = [group.edges["seq"] for group in row_groups(file, ["seq"])]
    assert edges == [(6_000, 8_499), (8_500, 10_999), (11_000, 11_999)]
    found = rows_of(file, ["seq"], 10**9, [("seq", 8_600, 8_700)])
    assert [(part["seq"][0].as_py(), part.num_rows) for part in found] == [(8_500, 2_500)]


def send(tables: Tables, number: int, rows: pa.Table) -> Table:
    """One batch into `transmitted`, as a file of its own."""
    table = tables.at("transmitted", "s").with_attributes(ATTRIBUTES)
    partition = {"batch_date": str(DAY)}
    one = write_file(table.path, partition, table.contract.file_schema, [rows], keys=KEYS)
    assert one is not None
    table.publish([one], batch_date=DAY, batch=number)
    return tables.now().at("transmitted", "s")


def as_sent(tables: Tables) -> pa.Table:
    return tables.now().at("transmitted", "s").rows(["seq", "batch", *(name for name, _ in ATTRIBUTES)])


def weights(table: Table, number: int) -> dict[str, int]:
    """Bytes of each column of a batch."""
    return batch_bytes(table.files(batch=number), ["seq", *(name for name, _ in ATTRIBUTES)], number)[0]


def orders(table: Table) -> dict[int, tuple[str, ...]]:
    """By the first batch of each file, its order."""
    return {file.low("batch"): sort_keys_of(file) for file in table.files()}


def test_compacted_files_keep_their_order_and_their_bytes(lake: Settings) -> None:
    tables = Tables(lake)
    batches = [polled(3_000, 3_000 * at, at) for at in (1, 2)]
    batches += [noise(3_000, 3_000 * at, at) for at in (3, 4)]
    for at, rows in enumerate(batches, 1):
        table = send(tables.now(), at, rows)
    assert list(dict(sorted(orders(table).items())).values()) == [KEYS, KEYS, (), ()]
    before = [weights(table, number) for number in (1, 2, 3, 4)]
    assert compact(table, lambda _: True).files_after == 2
    table = tables.now().at("transmitted", "s")
    assert orders(table) == {1: KEYS, 3: ()}
    assert [weights(table, number) for number in (1, 2, 3, 4)] == before
    same(as_sent(tables).sort_by("seq"), pa.concat_tables(batches))
    # a redo of one batch, whose rows now are not smaller by key, does not reorder the rows of the other
    again = noise(2_000, 3_000, 1)
    table = send(tables.now(), 1, again)
    assert orders(table) == {1: (), 2: KEYS, 3: ()}
    same(as_sent(tables).sort_by("seq"), pa.concat_tables([again, *batches[1:]]))


def test_files_of_alternating_orders_are_put_together_by_order(lake: Settings) -> None:
    tables = Tables(lake)
    batches = [(polled, noise)[at % 2](3_000, 3_000 * at, at) for at in (1, 2, 3, 4)]
    for at, rows in enumerate(batches, 1):
        table = send(tables.now(), at, rows)
    assert orders(table) == {1: (), 2: KEYS, 3: (), 4: KEYS}
    before = [weights(table, number) for number in (1, 2, 3, 4)]
    assert compact(table, lambda _: True).files_after == 2
    table = tables.now().at("transmitted", "s")
    assert orders(table) == {1: (), 2: KEYS}
    assert [weights(table, number) for number in (1, 2, 3, 4)] == before
    same(as_sent(tables).sort_by("seq"), pa.concat_tables(batches))
    assert compact(table, lambda _: True).files_after == 0


@pytest.fixture
def in_both_orders(tmp_path: Path) -> tuple[Table, list[pa.Table]]:
    """A table on a disk with a file by key and one as its rows arrived, and these rows."""
    tables = Tables(Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)}))
    rows = [polled(3_000, 3_000, 1), noise(3_000, 6_000, 2)]
    for at, some in enumerate(rows, 1):
        table = send(tables.now(), at, some)
    assert orders(table) == {1: KEYS, 2: ()}
    return table, rows


def check(found: pa.Table, rows: list[pa.Table]) -> None:
    whole = pa.concat_tables(rows)
    same(found.select(whole.column_names).sort_by("seq").cast(whole.schema), whole)


@pytest.mark.parametrize("vectorised", ["true", "false"])
def test_spark_reads_the_same_rows(
    spark: Any, in_both_orders: tuple[Table, list[pa.Table]], vectorised: str
) -> None:
    table, rows = in_both_orders
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorised)
    try:
        check(spark.read.format("delta").load(table.path).toArrow(), rows)
        mine = spark.read.format("delta").load(table.path).where("site = 'ß-2' and seq < 4000").collect()
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
    wanted = [row["seq"] for row in rows[0].to_pylist() if row["site"] == "ß-2" and row["seq"] < 4000]
    assert sorted(row["seq"] for row in mine) == wanted


def test_delta_rs_polars_and_duckdb_read_the_same_rows(
    in_both_orders: tuple[Table, list[pa.Table]],
) -> None:
    table, rows = in_both_orders
    check(DeltaTable(table.path).to_pyarrow_table(), rows)
    check(polars.read_delta(table.path).to_arrow(), rows)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for file in table.files():
            found = connection.sql("SELECT * FROM read_parquet(?)", params=[file.path]).to_arrow_table()
            check(found, [rows[file.low("batch") - 1]])


def test_rows_of_more_text_than_arrow_takes_at_once_change_places_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spillway import parquet

    rows = polled(2_000).append_column(
        "text", pa.array([None if i % 7 == 0 else "ß" * i for i in range(2_000)])
    )
    rows = pa.concat_tables([rows.slice(0, 900), rows.slice(900)])
    wanted = parquet.group_by_key(rows, KEYS)
    monkeypatch.setattr(parquet, "MOST_BYTES_TAKEN", 5_000)
    found = parquet.group_by_key(rows, KEYS)
    assert found.schema.equals(wanted.schema)
    assert found["text"].num_chunks > 100
    same(found, wanted)
    same(parquet.in_arrival_order(found, "seq"), rows)
