"""Rows delivered twice are found by their values, exactly or by a filter that says how often it was wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spillway.batch import TAKEN_IN, Batch, LandingFile
from spillway.contracts import StreamContract, read_stream
from spillway.engine import InProcess
from spillway.engine.spark import SparkEngine
from spillway.intake import repeats
from spillway.intake.repeats import (
    DELIVERED_BEFORE,
    compared_by,
    filter_before,
    filter_of,
    find_repeated,
    kept_aside,
    repeated_seqs,
)
from spillway.settings import Settings
from spillway.sketches.query import read_sketch
from spillway.store.files import DataFile, RowReader
from spillway.store.tables import Tables

NAN = float("nan")
HERE = InProcess()
TYPES = {"site": pa.string(), "at": pa.timestamp("us", "UTC"), "temp": pa.float64(), "level": pa.int64()}
Row = tuple[str | None, float | None]


def contract(**duplicates: Any) -> StreamContract:
    return read_stream(
        {
            "stream": "sites",
            "channel": "uplink",
            "source": {"kind": "files", "path": "sites", "format": "json"},
            "attributes": [
                {"name": "site", "type": "string", "role": "key"},
                {"name": "at", "type": "timestamp", "role": "order"},
                {"name": "temp", "type": "double"},
                {"name": "level", "type": "integer"},
            ],
            "rate": {"from": "declared", "tuples_per_second": 10},
            "duplicates": {"on": ["site", "temp"], **duplicates},
        }
    )


def batch(number: int, first: int, last: int) -> Batch:
    """A batch whose rows came in two files, the first of ten rows."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    files = (
        LandingFile("sites/a.json", 1, "d1", 10, first - 1, "taken"),
        LandingFile("sites/b.json", 1, "d2", last - first - 9, first + 9, "taken"),
    )
    return Batch("sites", number, date(2020, 1, number), TAKEN_IN, files, first, last, "run", now, now)


def table(first: int, rows: Sequence[Row]) -> pa.Table:
    at = [datetime(2020, 1, 1, 0, 0, second % 60, 1500, tzinfo=UTC) for second in range(len(rows))]
    columns = {"site": [site for site, _ in rows], "at": at, "temp": [temp for _, temp in rows]}
    columns["level"] = [None if place % 2 else place for place in range(len(rows))]
    arrays = {name: pa.array(values, TYPES[name]) for name, values in columns.items()}
    return pa.table({"seq": pa.array(range(first, first + len(rows)), pa.int64()), **arrays})


def stored(folder: Path, rows: pa.Table, files: int = 1) -> list[DataFile]:
    """The rows in so many files, in their order."""
    found, size = [], -(-rows.num_rows // files)
    for low in range(0, rows.num_rows, size):
        part = rows.slice(low, size)
        path = folder / f"{part['seq'][0]}-{files}.parquet"
        pq.write_table(part, path, row_group_size=50)
        seq = part["seq"].to_pylist()
        found.append(
            DataFile(str(path), path.stat().st_size, (), (("seq", seq[0]),), (("seq", seq[-1]),), len(seq))
        )
    return found


def slowly(rows: Sequence[Row], history: Sequence[Row] = ()) -> list[int]:
    """Which places repeat an earlier row, by comparing with all."""
    seen, found = {plain(row) for row in history}, []
    for place, row in enumerate(rows):
        if plain(row) in seen:
            found.append(place)
        seen.add(plain(row))
    return found


def plain(row: Row) -> tuple[Any, ...]:
    return tuple("nan" if value != value else value for value in row)


AWKWARD: list[Row] = [
    ("a", 1.0), ("a", None), (None, 1.0), ("a", NAN), (None, None), ("a", 0.0), ("", None), ("a", -0.0), ("b", 1.0),
]  # fmt: skip


def some_rows(seed: int, count: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [AWKWARD[place] if place < 9 else (f"s{place}", 7.0) for place in rng.integers(0, 40, count)]


@pytest.mark.parametrize("cores", [1, 3])
def test_exactly_those_whose_values_came_before_are_found(
    cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowReader, "AT_A_TIME", 32)
    monkeypatch.setattr(repeats, "_ROWS_AT_A_TIME", 25)
    before, rows = some_rows(1, 60), some_rows(2, 150)
    files, history = stored(tmp_path, table(60, rows), 3), stored(tmp_path, table(0, before), 4)
    found = find_repeated(InProcess(cores), contract(rows="exact"), batch(2, 60, 209), files, history)
    assert found is not None
    assert (found.reason, found.state) == ("row delivered before", None)
    assert found.rows.tolist() == [60 + place for place in slowly(rows, before)]
    alone = find_repeated(InProcess(cores), contract(rows="exact"), batch(2, 60, 209), files, [])
    assert alone is not None
    assert alone.rows.tolist() == [60 + place for place in slowly(rows)]


def test_a_fingerprint_that_two_values_share_drops_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = repeats.keys_of
    monkeypatch.setattr(repeats, "keys_of", lambda *asked: real(*asked) % np.uint64(3))
    before, rows = some_rows(3, 40), some_rows(4, 80)
    files, history = stored(tmp_path, table(40, rows)), stored(tmp_path, table(0, before))
    for way in ("exact", "stable_bloom"):
        found = find_repeated(HERE, contract(rows=way), batch(2, 40, 119), files, history)
        assert found is not None
        if way == "exact":
            assert found.rows.tolist() == [40 + place for place in slowly(rows, before)]
        else:
            # three fingerprints in all: the filter suspects nearly everything, and the count of the truth is kept
            assert found.rows.size >= 77
            truth = slowly(rows, before)
            suspected = [place for place in truth if 40 + place in found.rows]
            assert f": {len(suspected):,} were truly delivered before" in found.reason


def test_what_came_later_or_lies_in_the_same_files_is_no_history(tmp_path: Path) -> None:
    rows = [("x", 1.0), ("y", 1.0), ("x", 1.0), ("y", 1.0)]
    files = stored(tmp_path, table(0, rows))
    found = find_repeated(HERE, contract(rows="exact"), batch(1, 0, 1), files, files)
    assert found is not None
    assert found.rows.tolist() == []


def test_no_question_no_rows_and_no_repeats_find_nothing(tmp_path: Path) -> None:
    files = stored(tmp_path, table(0, [("x", 1.0), ("y", 1.0)]))
    assert find_repeated(HERE, contract(rows="none"), batch(1, 0, 1), files, []) is None
    for way in ("exact", "stable_bloom"):
        found = find_repeated(HERE, contract(rows=way), batch(1, 0, 1), files, [])
        assert found is not None
        assert found.rows.tolist() == []
        nothing = find_repeated(HERE, contract(rows=way), batch(2, 2, 1), [], files)
        assert nothing is not None
        assert nothing.rows.tolist() == []


def test_an_attribute_that_older_files_lack_is_null_there(tmp_path: Path) -> None:
    old = table(0, [("x", None), ("y", None)]).drop_columns(["temp"])
    files, history = stored(tmp_path, table(2, [("x", 1.0), ("x", None)])), stored(tmp_path, old)
    found = find_repeated(HERE, contract(rows="exact"), batch(2, 2, 3), files, history)
    assert found is not None
    assert found.rows.tolist() == [3]


def test_rows_are_compared_by_all_attributes_unless_some_are_named() -> None:
    assert compared_by(contract(rows="exact")).names == ("site", "temp")
    assert compared_by(contract(rows="exact", on=None)).names == ("site", "at", "temp", "level")


def test_dates_texts_and_truths_are_compared_too() -> None:
    rows = pa.table(
        {
            "seq": [3, 2, 1, 0],
            "day": pa.array([date(2020, 1, 1)] * 4),
            "yes": [True, None, True, None],
            "text": ["x", "x", "x", "y"],
        }
    )
    names, types = ("day", "yes", "text"), ("date", "boolean", "string")
    assert repeated_seqs([rows], names, types).tolist() == [3]
    assert repeated_seqs([rows.slice(0, 0)], names, types).tolist() == []


@pytest.mark.parametrize("shards", [1, 3])
def test_a_filter_in_shards_and_over_batches_is_the_filter_of_the_stream(
    shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    monkeypatch.setattr(RowReader, "AT_A_TIME", 64)
    asked = contract(rows="stable_bloom", memory_kib=1, shards=shards, false_positive_pct=30)
    rows = [(f"s{place}", 1.0) for place in np.random.default_rng(5).integers(0, 2000, 700).tolist()]
    files, spec = stored(tmp_path, table(0, rows), 3), filter_of(asked)
    kernel: Any = spec.empty()
    keys = repeats.keys_of(table(0, rows), spec.attributes, spec.types, spec.seed)
    suspected = np.flatnonzero(kernel.observe(keys)).tolist()
    for engine in (HERE, InProcess(2), SparkEngine(lambda: spark)):
        first = find_repeated(engine, asked, batch(1, 0, 299), files, [])
        assert first is not None
        second = find_repeated(engine, asked, batch(2, 300, 699), files, files, first.state)
        assert second is not None
        assert second.state is not None
        assert [*first.rows.tolist(), *second.rows.tolist()] == suspected
        assert read_sketch(second.state["payload"]).to_bytes() == kernel.to_bytes()
        assert (second.state["rows"], second.state["started_from"]) == (400, 1)
        assert first.state is not None
        assert second.state["started_digest"] == first.state["digest"]
        again = find_repeated(engine, asked, batch(2, 300, 699), files, files, first.state)
        assert again is not None
        assert (again.state, again.reason) == (second.state, second.reason)
        told = re.search(r": ([\d,]+) were truly delivered before; ([\d.e-]+) % of the new", second.reason)
        assert told is not None
        truly = {300 + place for place in slowly(rows[300:], rows[:300])} & set(second.rows.tolist())
        assert int(told[1]) == len(truly)
        wrong = 100 * (second.rows.size - len(truly)) / (400 - len(truly))
        assert float(told[2]) == pytest.approx(wrong, rel=0.01)
        assert re.search(r"at most (2[0-9]|30)[.\d]* % expected$", second.reason)
        assert wrong > 0


def test_a_filter_goes_on_from_the_last_batch_of_its_own_shape() -> None:
    asked = contract(rows="stable_bloom", memory_kib=1)
    wider = contract(rows="stable_bloom", memory_kib=2)
    tables = Tables(Settings.in_memory("repeats"))
    assert filter_before(tables, asked, 9) is None
    for number, shaped in ((1, asked), (3, asked), (4, wider), (7, asked)):
        spec = filter_of(shaped)
        row = spec.row("sites", number, date(2020, 1, number), 5, spec.empty().to_bytes())
        tables.at("sketches").replace([row], stream="sites", kind="stable_bloom", batch=number)
    found = {number: filter_before(tables, asked, number) for number in (1, 2, 4, 7, 8)}
    assert {number: row and row["batch"] for number, row in found.items()} == {
        1: None,
        2: 1,
        4: 3,
        7: 3,
        8: 7,
    }
    last = filter_before(tables, wider, 9)
    assert last is not None
    assert last["batch"] == 4
    assert filter_before(tables, contract(rows="exact"), 9) is None
    tables.forget()


def test_repeated_rows_are_kept_aside_with_file_line_and_their_values() -> None:
    asked, taken = contract(rows="exact"), batch(2, 100, 119)
    rows = table(100, [('quoted "ä"', 0.5), (None, NAN)] * 10)
    aside = kept_aside(asked, taken, rows.take([0, 9, 10, 19]))
    found = aside.to_pylist()
    assert [(row["seq"], row["file"], row["line"]) for row in found] == [
        (100, "sites/a.json", 1), (109, "sites/a.json", 10), (110, "sites/b.json", 1), (119, "sites/b.json", 10),
    ]  # fmt: skip
    assert {(row["stream"], row["batch"], row["batch_date"], row["reason"]) for row in found} == {
        ("sites", 2, date(2020, 1, 2), DELIVERED_BEFORE)
    }
    assert {row["rule"] for row in found} == {"differ from every earlier row in site, temp"}
    assert found[0]["original"] == (
        '{"site":"quoted \\"ä\\"","at":"2020-01-01T00:00:00.001Z","temp":0.5,"level":0}'.encode()
    )
    assert json.loads(found[1]["original"]) == {"at": "2020-01-01T00:00:09.001Z", "temp": "NaN"}
    assert aside.schema.types[:6] == [
        pa.string(), pa.int64(), pa.date32(), pa.int64(), pa.string(), pa.int64(),
    ]  # fmt: skip
    assert kept_aside(asked, taken, rows.slice(0, 0)).schema == aside.schema
