"""A file is listed, opened and decoded once: by partition value, in a block of `keep_files_open`, and in a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.store.rows_of_tables import batch, fact, tell

from spillway.errors import InvalidValue
from spillway.settings import Settings
from spillway.store import files as files_module
from spillway.store import listing as listing_module
from spillway.store.batches import load_batches, save_batches
from spillway.store.files import (
    MOST_KEPT_OPEN,
    DataFile,
    RowReader,
    batch_bytes,
    keep_files_open,
    read_rows,
    whole_rows,
)
from spillway.store.filters import Between, may_match
from spillway.store.listing import Listing
from spillway.store.tables import ReadCache, Tables

VALUES = some.sampled_from(["a", "b", "c"])


@some.composite
def listed(draw: some.DrawFn) -> list[DataFile]:
    """Files with a partition value, or none, and edges of a column, or none."""
    found = []
    for number in range(draw(some.integers(0, 8))):
        value = draw(some.none() | VALUES)
        edges = sorted(draw(some.tuples(some.integers(0, 9), some.integers(0, 9))))
        known = draw(some.booleans())
        low, high = ((("n", edge),) if known else () for edge in edges)
        found.append(DataFile(f"t/{value}/{number}", 1, (("stream", value),), low, high, 1))
    return found


@given(
    listed(),
    some.fixed_dictionaries(
        {},
        optional={
            "stream": VALUES | some.lists(some.none() | VALUES) | some.builds(Between, VALUES, VALUES),
            "n": some.integers(0, 9) | some.builds(Between, some.none() | some.integers(0, 9)),
        },
    ),
)
def test_a_listing_finds_the_files_that_a_comparison_of_all_finds(
    files: list[DataFile], where: dict[str, Any]
) -> None:
    expected = sorted((file for file in files if may_match(file, where)), key=lambda file: file.path)
    assert Listing.of(files).matching(where) == expected


@given(listed(), listed())
def test_a_changed_listing_has_lost_and_gained_files(files: list[DataFile], others: list[DataFile]) -> None:
    gone = files[::2]
    left = {one.path: one for one in files if one not in gone} | {one.path: one for one in others}
    found = Listing.of(files).changed(gone, others)
    assert found.files() == [left[path] for path in sorted(left)]
    assert all(path in found for path in left)
    assert len(found) == len(left)


def compared(monkeypatch: pytest.MonkeyPatch, tables: Tables, streams: int) -> int:
    """The comparisons of a file with a filter, if each stream is asked about once."""
    count = 0

    def counting(*given: Any) -> bool:
        nonlocal count
        count += 1
        return may_match(*given)

    with monkeypatch.context() as patch:
        patch.setattr(listing_module, "may_match", counting)
        for number in range(streams):
            assert len(load_batches(tables, f"s{number}")) == 1
    return count


def test_questions_about_many_streams_grow_linearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for streams in (10, 40):
        lake = Settings.from_environment({"SPILLWAY_HOME": str(tmp_path / str(streams))})
        for number in range(streams):
            save_batches(Tables(lake), [batch(1, f"s{number}")])
        counts.append(compared(monkeypatch, Tables(lake), streams))
    assert counts == [10, 40]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are opened, through the door of the store."""
    found: list[str] = []
    reading = files_module.open_for_reading  # type: ignore[attr-defined]

    @contextmanager
    def noting(path: str) -> Iterator[Any]:
        found.append(path)
        with reading(path) as source:
            yield source

    monkeypatch.setattr(files_module, "open_for_reading", noting)
    return found


def stored(folder: Path, number: int = 0) -> DataFile:
    path = folder / f"{number}.parquet"
    pq.write_table(pa.table({"seq": range(100), "batch": [1] * 100, "v": range(100)}), path)
    return DataFile(str(path), path.stat().st_size, (), (("seq", 0),), (("seq", 99),), 100)


def test_a_file_is_opened_once_in_a_block_and_closed_after_it(tmp_path: Path, opened: list[str]) -> None:
    file = stored(tmp_path)
    with keep_files_open():
        for _ in range(3):
            assert batch_bytes([file], ["v"], 1)[0]["v"] > 0
            assert read_rows([file], ["v"], 10, 19)["v"].to_pylist() == list(range(10, 20))
            reader = RowReader([file])
            assert reader(["v"], 5, 6)["v"].to_pylist() == [5, 6]
            del reader  # with most of its rows unread
    assert opened == [file.path]
    batch_bytes([file], ["v"], 1)
    assert opened == [file.path] * 2


def test_two_readers_of_a_file_do_not_disturb_each_other(tmp_path: Path, opened: list[str]) -> None:
    file = stored(tmp_path)
    with keep_files_open():
        one, other = RowReader([file]), RowReader([file])
        one.AT_A_TIME = other.AT_A_TIME = 10  # type: ignore[misc]
        for at in range(0, 100, 10):
            for reader in (one, other):
                assert reader(["v"], at, at + 9)["v"].to_pylist() == list(range(at, at + 10))
    assert len(opened) == 1


def test_readers_of_two_threads_have_a_file_each(tmp_path: Path, opened: list[str]) -> None:
    file = stored(tmp_path)
    with keep_files_open(), ThreadPoolExecutor(1) as other:
        mine, theirs = RowReader([file]), RowReader([file])
        for at in range(0, 100, 10):
            for found in (mine(["v"], at, at + 9), other.submit(theirs, ["v"], at, at + 9).result()):
                assert found["v"].to_pylist() == list(range(at, at + 10))
    assert len(opened) == 2


def test_a_reader_that_is_garbage_gives_back_an_open_file(tmp_path: Path, opened: list[str]) -> None:
    file = stored(tmp_path)
    with keep_files_open():
        for _ in range(3):
            reader: Any = RowReader([file])
            reader(["v"], 5, 6)
            reader.itself = reader
            del reader
            gc.collect()
        assert read_rows([file], ["v"], 0, 0)["v"].to_pylist() == [0]
    assert opened == [file.path]


def test_files_that_nobody_reads_are_closed_when_there_are_too_many(
    tmp_path: Path, opened: list[str]
) -> None:
    many = [stored(tmp_path, number) for number in range(MOST_KEPT_OPEN + 2)]
    with keep_files_open():
        batch_bytes(many, ["v"], 1)
        batch_bytes(many[-MOST_KEPT_OPEN:], ["v"], 1)
        assert len(opened) == len(many)
        batch_bytes(many[:1], ["v"], 1)
    assert len(opened) == len(many) + 1


def test_a_damaged_file_is_refused_in_a_block_too(tmp_path: Path) -> None:
    file = stored(tmp_path)
    Path(file.path).write_bytes(b"no file of Parquet")
    with keep_files_open():
        for _ in range(2):
            with pytest.raises(InvalidValue, match="exist and be complete"):
                read_rows([file], ["v"], 0, 9)


def test_rows_of_a_small_file_are_decoded_once_for_all_openings(tmp_path: Path, opened: list[str]) -> None:
    lake = Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)})
    tell(Tables(lake))
    tables = Tables(lake)
    for _ in range(3):
        assert tables.at("models").rows(["value"], stream="s")["value"].to_pylist() == ["9"]
        assert tables.at("models").newest("version", ["version"], stream="s").num_rows == 1
        tables = tables.now()
    assert len(opened) == 1
    tell(tables, value="8")
    assert tables.now().at("models").rows(["value"], stream="s")["value"].to_pylist() == ["8"]
    assert len(opened) == 2


def test_the_oldest_rows_are_forgotten_when_they_take_too_much(tmp_path: Path, opened: list[str]) -> None:
    one, two, three = (stored(tmp_path, number) for number in range(3))
    cache = ReadCache(most_bytes=2 * whole_rows(one).nbytes)
    opened.clear()
    for file in (one, two, one, three, one, two):
        assert cache.rows(file).num_rows == 100
    assert opened == [one.path, two.path, three.path, two.path]


def test_what_is_made_of_rows_is_made_again_when_their_files_change(tmp_path: Path) -> None:
    lake = Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)})
    tables = Tables(lake)
    made: list[str] = []

    def values(now: Tables) -> list[str]:
        def make(table: Any) -> list[str]:
            made.append("made")
            found: list[str] = table.rows(["value"], stream="s")["value"].to_pylist()
            return found

        return now.at("models").make_once(("values",), make, stream="s")

    assert [values(tables), values(tables.now())] == [[], []]
    tell(tables)
    tell(tables, "other")
    assert [values(tables), values(tables.now())] == [["9"], ["9"]]
    assert len(made) == 2
    tables.at("models").replace([fact(version=2)], stream="s", version=2)
    assert sorted(values(tables)) == ["9", "9"]
    assert len(made) == 3


def test_a_log_proves_that_a_row_matches(tmp_path: Path, opened: list[str]) -> None:
    lake = Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)})
    tell(Tables(lake))
    models = Tables(lake).at("models")
    assert models.has_rows(stream="s", lever="thin")
    assert not models.has_rows(stream="other")
    assert opened == []
    assert models.has_rows(stream="s", value="9", evidence="{}")
    assert not models.has_rows(stream="s", value="9", evidence="[]")
