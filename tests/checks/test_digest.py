"""A table summed up from its files: against a slow oracle, and the same for every order of rows and cut of files."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spillway.checks import digest
from spillway.checks.digest import Digest, StoredRows, UnreadableTable, row_hashes, summarise_tables
from spillway.engine.local import ProcessEngine
from spillway.store.files import DataFile

DAY = date(2026, 1, 1)
SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("batch", pa.int64()),
        ("scheme", pa.int64()),
        ("site", pa.string()),
        ("room", pa.float64()),
    ]
)


def rows(count: int, seed: int = 1) -> list[dict[str, Any]]:
    draw = np.random.default_rng(seed)
    return [
        {
            "seq": i,
            "batch": 1 + i // 300,
            "scheme": [5, 5, None, 9][i // 100 % 4],
            "site": ["a", "ß", None][draw.integers(3)],
            "room": [1.5, float("nan"), None][draw.integers(3)],
        }
        for i in range(count)
    ]


def stored(folder: Path, files: Sequence[Sequence[dict[str, Any]]], batches: set[int]) -> Digest:
    found = []
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(files):
        path = folder / f"{len(files)}-{number}.parquet"
        pq.write_table(pa.Table.from_pylist(list(part), SCHEMA), path)
        found.append(DataFile(str(path), path.stat().st_size, (("batch_date", DAY),)))
    return Digest(
        "s",
        StoredRows({}, tuple(found), frozenset(batches), ("room", "site")),
        ("site", "room"),
        ("seq", "scheme"),
    )


def summed(asked: Digest) -> list[dict[str, Any]]:
    (table,) = summarise_tables(ProcessEngine(), [asked])
    assert isinstance(table, pa.Table)
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def test_counts_are_those_of_a_slow_count(tmp_path: Path) -> None:
    given = rows(1000)
    found = summed(stored(tmp_path, [given], {1, 2, 4}))
    assert [row["batch"] for row in found] == [1, 2, 4]
    for row in found:
        mine = [one for one in given if one["batch"] == row["batch"]]
        assert row == {
            "stream": "s",
            "batch": row["batch"],
            "batch_date": DAY,
            "row_count": len(mine),
            "null_keys": sum((one["site"] is None) + (one["room"] is None) for one in mine),
            "null_columns": sum(one["scheme"] is None for one in mine),
            "first_seq": min(one["seq"] for one in mine),
            "last_seq": max(one["seq"] for one in mine),
            "checksum": row["checksum"],
            "without_scheme": sum(one["scheme"] is None for one in mine),
            "schemes": sorted({one["scheme"] for one in mine} - {None}),
            "columns": row["columns"],
        }
        assert [one["name"] for one in row["columns"]] == ["room", "site"]


def test_neither_order_nor_files_change_anything(tmp_path: Path) -> None:
    given = rows(1000)
    whole = summed(stored(tmp_path, [given], {1, 2, 3, 4}))
    order = np.random.default_rng(2).permutation(len(given))
    torn = [[given[i] for i in part] for part in np.array_split(order, 7)]
    assert summed(stored(tmp_path, torn, {1, 2, 3, 4})) == whole


def test_reading_some_rows_at_a_time_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = stored(tmp_path, [rows(1000)], {1, 2, 3, 4})
    whole = digest.summarise_file(asked, asked.rows.files[0])
    monkeypatch.setattr(digest, "_ROWS_AT_A_TIME", 7)

    def place(part: dict[str, Any]) -> tuple[int, int]:
        return part["batch"], part["scheme"] or 0

    assert sorted(digest.summarise_file(asked, asked.rows.files[0]), key=place) == sorted(whole, key=place)


@pytest.mark.parametrize(
    ("column", "value"), [("seq", 2000), ("site", "z"), ("site", None), ("room", 1.25), ("room", None)]
)
def test_one_other_value_is_another_checksum(tmp_path: Path, column: str, value: Any) -> None:
    given = rows(300)
    before = summed(stored(tmp_path, [given], {1}))
    row = next(one for one in given if one[column] is not None)
    row[column] = value
    after = summed(stored(tmp_path, [given], {1}))
    assert before[0]["checksum"] != after[0]["checksum"]


def checksums(folder: Path, name: str, table: pa.Table) -> dict[str, int]:
    """Each column's, of one batch in one file."""
    path = folder / f"{name}.parquet"
    whole = table.append_column("batch", pa.array(np.ones(table.num_rows, np.int64)))
    pq.write_table(whole, path, row_group_size=97)
    file = DataFile(str(path), path.stat().st_size, (("batch_date", DAY),))
    columns = tuple(column for column in table.column_names if column != "seq")
    (found,) = summed(Digest("s", StoredRows({}, (file,), frozenset({1}), columns), (), ()))
    return {one["name"]: one["checksum"] for one in found["columns"]}


KEPT = pa.table(
    {
        "seq": np.arange(500),
        "at": pa.array(np.arange(500) * 1_000_000, pa.timestamp("us", "UTC")),
        "level": np.random.default_rng(3).normal(size=500),
        "count": np.random.default_rng(4).integers(0, 9, 500),
        "sky": [("clear", "rain", "ß", "")[i % 4] for i in range(500)],
        "wet": [i % 3 == 0 for i in range(500)],
    }
)


def swapped(column: pa.ChunkedArray) -> pa.Array:
    """Rows 3 and 8 in each other's place."""
    order = np.arange(len(column))
    order[[3, 8]] = [8, 3]
    return column.take(pa.array(order)).combine_chunks()


def with_first(column: pa.ChunkedArray, value: Any) -> pa.Array:
    return pa.array([value, *column.to_pylist()[1:]], column.type)


NAN, STAND_IN = np.array([0x7FF8000000000001, digest._NULL], np.uint64).view(np.float64)
SPOILT = {
    "the order rolled by 7": ("at", lambda column: pa.array(np.roll(column.to_numpy(), 7), column.type)),
    "a measure rolled by 1": ("level", lambda column: pa.array(np.roll(column.to_numpy(), 1))),
    "a text all null": ("sky", lambda column: pa.nulls(len(column), pa.string())),
    "a text rolled by 1": ("sky", lambda column: pa.array([*column.to_pylist()[1:], "clear"])),
    "two rows swapped": ("level", swapped),
    "one null": ("count", lambda column: with_first(column, None)),
    "one flag": ("wet", lambda column: with_first(column, False)),
    "one other number": ("count", lambda column: with_first(column, 77)),
    "a NaN": ("level", lambda column: with_first(column, float("nan"))),
    "a NaN of other bits": ("level", lambda column: pa.array(np.append(NAN, column.to_numpy()[1:]))),
    "the bits that stand in for null": (
        "level",
        lambda column: pa.array(np.append(STAND_IN, column.to_numpy()[1:])),
    ),
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_column_that_is_another_has_another_checksum_and_the_others_have_theirs(
    tmp_path: Path, spoil: str
) -> None:
    name, change = SPOILT[spoil]
    other = KEPT.set_column(KEPT.column_names.index(name), name, change(KEPT[name]))
    before, after = checksums(tmp_path, "before", KEPT), checksums(tmp_path, "after", other)
    assert {column for column in before if before[column] != after[column]} == {name}


def test_nulls_nans_and_zeros_of_every_kind_are_told_apart(tmp_path: Path) -> None:
    kinds = [None, 0.0, -0.0, float("nan"), NAN, STAND_IN]
    found = [
        checksums(tmp_path, f"kind {i}", pa.table({"seq": [1], "x": pa.array([kind], pa.float64())}))["x"]
        for i, kind in enumerate(kinds)
    ]
    assert len(set(found)) == len(kinds)


def test_two_columns_that_change_places_have_other_checksums(tmp_path: Path) -> None:
    straight = pa.table({"seq": [1, 2], "a": [3, 4], "b": [5, 6]})
    crossed = pa.table({"seq": [1, 2], "a": [5, 6], "b": [3, 4]})
    one, other = checksums(tmp_path, "straight", straight), checksums(tmp_path, "crossed", crossed)
    assert {one["a"], one["b"]}.isdisjoint({other["a"], other["b"]})


def test_keys_that_change_places_are_another_checksum() -> None:
    straight = pa.table({"seq": [1], "a": ["x"], "b": ["y"]})
    crossed = pa.table({"seq": [1], "a": ["y"], "b": ["x"]})
    assert row_hashes(straight, ["a", "b"]) != row_hashes(crossed, ["a", "b"])


@pytest.mark.parametrize("kind", ["int64", "bool", "date32", "timestamp", "double", "string", "null"])
def test_every_type_of_key_has_a_hash_of_its_values(kind: str) -> None:
    types = {"timestamp": pa.timestamp("us", "UTC"), "double": pa.float64()}
    if kind == "null":
        keys = pa.nulls(3)
    else:
        values = {"bool": [True, False, None], "string": ["p", "q", None]}.get(kind, [0, 1, None])
        keys = pa.array(values, types.get(kind) or pa.type_for_alias(kind))
    rows = pa.table({"seq": [1, 1, 1], "key": keys})
    assert len(set(row_hashes(rows, ["key"]).tolist())) == (1 if kind == "null" else 3)


def test_a_table_without_a_column_of_schemes_has_none(tmp_path: Path) -> None:
    plain = [{name: value for name, value in row.items() if name != "scheme"} for row in rows(300)]
    path = tmp_path / "plain.parquet"
    pq.write_table(pa.Table.from_pylist(plain, SCHEMA.remove(SCHEMA.get_field_index("scheme"))), path)
    file = DataFile(str(path), path.stat().st_size, (("batch_date", DAY),))
    asked = Digest("s", StoredRows({}, (file,), frozenset({1})), ("site", "room"), ("seq",))

    (found,) = summed(asked)

    assert (found["row_count"], found["without_scheme"], found["schemes"]) == (300, 300, [])


class FarAway(ProcessEngine):
    """An engine whose pieces travel, as they do to the tasks of a cluster."""

    def map(self, function: Any, items: Sequence[Any], label: str = "") -> list[Any]:
        return [pickle.loads(pickle.dumps(function))(pickle.loads(pickle.dumps(item))) for item in items]


def test_sums_can_be_worked_out_elsewhere(tmp_path: Path) -> None:
    asked = stored(tmp_path, [rows(300), rows(300, seed=2)], {1})

    assert summarise_tables(FarAway(), [asked]) == summarise_tables(ProcessEngine(), [asked])


def test_a_table_that_cannot_be_read_keeps_no_other_from_being_summed_up(tmp_path: Path) -> None:
    whole, torn, odd = (stored(tmp_path / name, [rows(300)], {1}) for name in ("whole", "torn", "odd"))
    Path(torn.rows.files[0].path).write_bytes(b"PAR1")
    path = odd.rows.files[0].path
    held = pq.read_table(path)
    listed = held.set_column(held.column_names.index("batch"), "batch", pa.array([[1]] * held.num_rows))
    pq.write_table(listed, path)

    found, unread, other = summarise_tables(ProcessEngine(), [whole, torn, odd])

    assert isinstance(found, pa.Table)
    assert found.num_rows == 1
    assert isinstance(unread, UnreadableTable)
    assert "`file` must exist and be complete" in unread.problem
    assert isinstance(other, UnreadableTable)
    assert other.problem.startswith("ArrowNotImplementedError: "), (
        "whatever it is that cannot be done with it"
    )


def test_each_table_gets_its_own_sums(tmp_path: Path) -> None:
    some, none = stored(tmp_path, [rows(300)], {1}), stored(tmp_path, [], {1})

    first, second, third = summarise_tables(ProcessEngine(), [none, some, some])

    assert isinstance(first, pa.Table)
    assert isinstance(second, pa.Table)
    assert (first.num_rows, second.num_rows) == (0, 1)
    assert second == third


def test_a_table_without_files_sums_up_to_nothing(tmp_path: Path) -> None:
    assert summed(stored(tmp_path, [], {1})) == []
