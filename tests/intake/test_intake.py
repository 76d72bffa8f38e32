"""Taking in: every file once, every tuple numbered, every defect kept, whatever is killed or delivered twice."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from spillway.contracts import StreamContract, read_stream
from spillway.errors import SpillwayError
from spillway.intake.landing import batch_date_of
from spillway.intake.take_in import take_in
from spillway.settings import Settings
from spillway.store.batches import RECORDED, TAKEN_IN, load_batches, save_batches
from spillway.store.files import read_table
from spillway.store.tables import Lake

CONTRACT = {
    "stream": "delays",
    "channel": "uplink",
    "source": {"kind": "files", "path": "delays", "format": "json"},
    "attributes": [
        {"name": "router", "type": "string", "role": "key"},
        {"name": "at", "type": "integer", "role": "order"},
        {"name": "delay_ms", "type": "double"},
    ],
    "rate": {"from": "declared", "tuples_per_second": 10},
    "bad_records": {"max_share_pct": 60},
}


@pytest.fixture
def lake(spark: Any, settings: Settings) -> Lake:
    return Lake(spark, settings)


@pytest.fixture
def contract() -> StreamContract:
    return read_stream(CONTRACT)


def lines(first: int, count: int) -> bytes:
    rows = [{"router": f"r{i % 3}", "at": i, "delay_ms": i / 2} for i in range(first, first + count)]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def deliver(settings: Settings, name: str, content: bytes) -> None:
    path = Path(settings.landing, "delays", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def raw(lake: Lake) -> list[tuple[Any, ...]]:
    rows = lake.read("raw", "delays").orderBy("seq").select("seq", "batch", "batch_date", "at").collect()
    return [tuple(row) for row in rows]


def test_files_are_taken_in_in_name_order_and_numbered_once(
    lake: Lake, contract: StreamContract, settings: Settings
) -> None:
    deliver(settings, "2026-01-02/b.json", lines(20, 10))
    deliver(settings, "2026-01-02/a b.json", lines(10, 10))
    deliver(settings, "2026-01-01/z.json", lines(0, 10))
    batches = take_in(lake, contract, "run 1")
    assert [(b.batch, b.batch_date, b.rows, b.status) for b in batches] == [
        (1, date(2026, 1, 1), 10, TAKEN_IN),
        (2, date(2026, 1, 2), 20, TAKEN_IN),
    ]
    assert [(row[0], row[3]) for row in raw(lake)] == [(i, i) for i in range(30)]
    assert [batch.seconds_covered for batch in batches] == [1.0, 2.0]

    # a lost checkpoint re-reads nothing: `batches` knows every file
    shutil.rmtree(Path(settings.lake, "_checkpoints"))
    assert take_in(lake, contract, "run 2") == []
    deliver(settings, "2026-01-02/c.json", lines(30, 5))
    assert [(b.batch, b.rows) for b in take_in(lake, contract, "run 3")] == [(3, 5)]
    assert [(row[0], row[3]) for row in raw(lake)] == [(i, i) for i in range(35)]


def test_defects_are_kept_by_name_and_the_rest_goes_on(
    lake: Lake, contract: StreamContract, settings: Settings
) -> None:
    good = lines(0, 4)
    bad = [
        b'{"router": "r1", "at": 4, "delay_ms": "fast"}',
        b'{"at": 5}',
        b"\xff\xfe",
        b'{"router": "r1", "at"',
    ]
    deliver(settings, "2026-01-01/a.json", good + b"\n".join(bad))
    deliver(settings, "2026-01-01/again.json", good + b"\n".join(bad))
    deliver(settings, "2026-01-01/empty.json", b"")
    (batch,) = take_in(lake, contract, "run")
    assert (batch.rows, batch.rejected, batch.deduplicated) == (4, 4, 8)
    assert [file.status for file in batch.files] == ["taken", "duplicate", "empty"]
    kept = lake.read("rejected").orderBy("line").collect()
    assert [(row["file"], row["line"], bytes(row["original"])) for row in kept] == [
        ("delays/2026-01-01/a.json", line, original) for line, original in zip([5, 6, 7, 8], bad, strict=True)
    ]
    assert all(row["rule"] and row["remedy"] and row["reason"] for row in kept)
    ledger = read_table(lake.path("ledger")).to_pylist()
    assert sum(row["offered"] for row in ledger) == 16
    assert sum(row["kept"] for row in ledger) == 4
    assert sum(row["rejected"] for row in ledger) == 4
    assert sum(row["deduplicated"] for row in ledger) == 8


def test_a_batch_that_was_only_recorded_is_written_again_row_for_row(
    lake: Lake, contract: StreamContract, settings: Settings
) -> None:
    deliver(settings, "2026-01-01/a.json", lines(0, 10))
    (batch,) = take_in(lake, contract, "run 1")
    before = raw(lake)
    save_batches(lake, [batch.becomes(batch.updated_at, status=RECORDED, rows=None)])
    (again,) = take_in(lake, contract, "run 2")
    assert raw(lake) == before
    assert (again.run_id, again.rows, again.created_at) == ("run 1", 10, batch.created_at)
    assert [b.status for b in load_batches(settings, "delays")] == [TAKEN_IN]


def test_too_many_bad_records_stop_the_batch_by_name(lake: Lake, settings: Settings) -> None:
    strict = read_stream({**CONTRACT, "bad_records": {"action": "fail"}})
    deliver(settings, "2026-01-01/a.json", lines(0, 3) + b"nonsense\n")
    with pytest.raises(
        SpillwayError, match=r"batch 1 must have at most 0 % bad records.*got 25\.00 % \(1 of 4\)"
    ):
        take_in(lake, strict, "run")
    assert load_batches(settings, "delays")[0].status == RECORDED


def test_a_folder_that_is_not_there_yet_is_nothing_new(lake: Lake, contract: StreamContract) -> None:
    said: list[str] = []
    assert take_in(lake, contract, "run", said.append) == []
    assert "nothing to take in" in said[0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("w/2013-04-30/a.json", date(2013, 4, 30)),
        ("w/date=2013-04-30/a.json", date(2013, 4, 30)),
        ("w/2013-13-30/a.json", date(2026, 5, 5)),
        ("w/a-2013-04-30.json", date(2026, 5, 5)),
    ],
)
def test_the_batch_date_is_the_folders_or_the_runs(name: str, expected: date) -> None:
    assert batch_date_of(name, date(2026, 5, 5)) == expected
