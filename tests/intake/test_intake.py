"""Taking in: every file once, every tuple numbered, every defect kept, whatever is killed or delivered twice."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from spillway.batch import INGESTED, RECORDED, Batch
from spillway.contracts import StreamContract, read_stream
from spillway.engine import ProcessEngine
from spillway.errors import ConcurrentRun
from spillway.intake import new_batches as recording
from spillway.intake import parse as parsing
from spillway.intake.ingest import ingest
from spillway.intake.landing import batch_date_of, is_hidden
from spillway.ledger import total_imbalance
from spillway.settings import Settings
from spillway.store.batches import load_batches, save_batches
from spillway.store.blobs import write_bytes
from spillway.store.landing_zone import open_landing_file
from spillway.store.tables import Table, Tables

HERE = ProcessEngine()
CONTRACT = {
    "stream": "delays",
    "channel": "uplink",
    "source": {"kind": "files", "path": "delays", "format": "json", "settle_seconds": 0},
    "attributes": [
        {"name": "router", "type": "string", "role": "key"},
        {"name": "at", "type": "integer", "role": "order", "unit": "s"},
        {"name": "delay_ms", "type": "double"},
    ],
    "rate": {"from": "declared", "tuples_per_second": 10},
    "bad_records": {"max_share_pct": 60},
}
VOLATILE = ("revision", "created_at", "updated_at", "run_id", "seconds", "payload")
"""What a rerun may say otherwise; a filter's payload is compared by its digest."""


class Died(BaseException):
    """The process is gone as far as the lake can tell."""


@pytest.fixture(params=["disk", "memory"])
def tables(request: pytest.FixtureRequest, settings: Settings) -> Any:
    """Tables and a landing zone on a disk, and the same in memory."""
    made = Tables(settings if request.param == "disk" else Settings.in_memory(request.node.name))
    yield made
    made.forget()


@pytest.fixture
def contract() -> StreamContract:
    return read_stream(CONTRACT)


def lines(first: int, count: int) -> bytes:
    rows = [{"router": f"r{i % 3}", "at": i, "delay_ms": i / 2} for i in range(first, first + count)]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def deliver(tables: Tables, name: str, content: bytes) -> str:
    path = f"{tables.settings.landing}/delays/{name}"
    write_bytes(path, content)
    return path


def rows(tables: Tables, table: str, stream: str | None = None) -> list[dict[str, Any]]:
    """A table's rows as they are now, without what a rerun may say otherwise."""
    found = tables.now().at(table, stream).rows().to_pylist()
    told = [
        {name: value for name, value in row.items() if name not in VOLATILE}
        | ({"digest": hashlib.sha256(row["payload"]).hexdigest()} if "payload" in row else {})
        for row in found
    ]
    return sorted(told, key=lambda row: str([row.get("seq"), row.get("line"), row]))


def raw(tables: Tables) -> list[tuple[int, int]]:
    """(seq, what the row says of its order) of every row."""
    return [(row["seq"], row["at"]) for row in sorted(rows(tables, "raw", "delays"), key=lambda r: r["seq"])]


def everything(tables: Tables) -> dict[str, list[dict[str, Any]]]:
    """All that taking in writes."""
    shared = {table: rows(tables, table) for table in ("batches", "rejected", "ledger", "sketches")}
    return shared | {"raw": rows(tables, "raw", "delays")}


def batches(tables: Tables) -> list[Batch]:
    return load_batches(tables.now(), "delays")


def test_files_are_taken_in_in_name_order_and_numbered_once(tables: Tables, contract: StreamContract) -> None:
    deliver(tables, "2026-01-02/b.json", lines(20, 10))
    deliver(tables, "2026-01-02/a b.json", lines(10, 10))
    deliver(tables, "2026-01-01/z.json", lines(0, 10))
    taken = ingest(tables, HERE, contract, "run 1")
    assert [(b.batch, b.batch_date, b.rows, b.status) for b in taken] == [
        (1, date(2026, 1, 1), 10, INGESTED),
        (2, date(2026, 1, 2), 20, INGESTED),
    ]
    assert raw(tables) == [(i, i) for i in range(30)]
    assert [batch.seconds_covered for batch in taken] == [1.0, 2.0]

    assert ingest(tables, HERE, contract, "run 2") == []
    deliver(tables, "2026-01-02/c.json", lines(30, 5))
    assert [(b.batch, b.rows) for b in ingest(tables, HERE, contract, "run 3")] == [(3, 5)]
    assert raw(tables) == [(i, i) for i in range(35)]


def test_defects_are_kept_by_name_and_the_rest_goes_on(tables: Tables, contract: StreamContract) -> None:
    good = lines(0, 4)
    bad = [
        b'{"router": "r1", "at": 4, "delay_ms": "fast"}',
        b'{"at": 5}',
        b"\xff\xfe",
        b'{"router": "r1", "at"',
    ]
    deliver(tables, "2026-01-01/a.json", good + b"\n".join(bad))
    deliver(tables, "2026-01-01/again.json", good + b"\n".join(bad))
    deliver(tables, "2026-01-01/empty.json", b"")
    (batch,) = ingest(tables, HERE, contract, "run")
    assert (batch.rows, batch.rejected, batch.deduplicated) == (4, 4, 8)
    assert [file.status for file in batch.files] == ["ingested", "duplicate", "empty"]
    kept = rows(tables, "rejected")
    assert [(row["file"], row["line"], row["seq"], row["original"]) for row in kept] == [
        ("delays/2026-01-01/a.json", line, line - 1, original)
        for line, original in zip([5, 6, 7, 8], bad, strict=True)
    ]
    assert all(row["rule"] and row["remedy"] and row["reason"] for row in kept)
    ledger = rows(tables, "ledger")
    assert total_imbalance(ledger) == 0
    (total,) = [row for row in ledger if row["dimension_kind"] == "total"]
    assert (total["offered"], total["kept"], total["rejected"], total["deduplicated"]) == (16, 4, 4, 8)
    assert {row["reason"]: row["offered"] for row in ledger if row["dimension_kind"] == "reason"} == {
        "taken in": 4,
        "file delivered before": 8,
        "delay_ms must be a number": 1,
        "router must be there": 1,
        "the line must be UTF-8 text": 1,
        "the line must be one JSON object": 1,
    }


def test_a_file_that_cannot_be_read_at_all_is_one_refused_record_without_a_number(tables: Tables) -> None:
    source = {"kind": "files", "path": "delays", "format": "parquet", "settle_seconds": 0}
    columns = read_stream({**CONTRACT, "source": source, "bad_records": {"max_share_pct": 100}})
    deliver(tables, "2026-01-01/a.parquet", b"nonsense")
    (batch,) = ingest(tables, HERE, columns, "run")
    assert (batch.rows, batch.rejected) == (0, 1)
    (kept,) = rows(tables, "rejected")
    assert (kept["line"], kept["seq"], kept["file"]) == (0, None, "delays/2026-01-01/a.parquet")


def test_a_file_delivered_again_under_another_name_or_date_is_taken_in_once_unless_asked_for(
    tables: Tables, contract: StreamContract
) -> None:
    deliver(tables, "2026-01-01/a.json", lines(0, 10))
    ingest(tables, HERE, contract, "run 1")
    deliver(tables, "2026-01-02/b.json", lines(0, 10))
    (again,) = ingest(tables, HERE, contract, "run 2")
    assert (again.rows, again.deduplicated, [file.status for file in again.files]) == (0, 10, ["duplicate"])
    assert raw(tables) == [(i, i) for i in range(10)]
    wanted = read_stream({**CONTRACT, "duplicates": {"files": "take"}})
    deliver(tables, "2026-01-03/c.json", lines(0, 10))
    (kept,) = ingest(tables, HERE, wanted, "run 3")
    assert (kept.rows, kept.first_seq) == (10, 10)


def test_a_file_that_was_empty_when_first_seen_and_is_filled_later_is_taken_in(
    tables: Tables, contract: StreamContract
) -> None:
    deliver(tables, "2026-01-01/a.json", b"")
    (first,) = ingest(tables, HERE, contract, "run 1")
    assert (first.rows, [file.status for file in first.files]) == (0, ["empty"])
    assert ingest(tables, HERE, contract, "run 2") == []
    deliver(tables, "2026-01-01/a.json", lines(0, 3))
    (second,) = ingest(tables, HERE, contract, "run 3")
    assert (second.batch, second.rows, [file.status for file in second.files]) == (2, 3, ["ingested"])
    assert raw(tables) == [(i, i) for i in range(3)]
    assert ingest(tables, HERE, contract, "run 4") == []


@pytest.mark.parametrize(
    "hidden", ["_SUCCESS", ".a.json.crc", "_tmp/a.json", ".tmp/a.json", "a.json._COPYING_"]
)
def test_hidden_files_are_not_delivered(tables: Tables, contract: StreamContract, hidden: str) -> None:
    deliver(tables, f"2026-01-01/{hidden}", lines(0, 3))
    assert ingest(tables, HERE, contract, "run") == []
    assert is_hidden(hidden)


def test_a_partition_folder_that_begins_with_an_underscore_is_delivered(
    tables: Tables, contract: StreamContract
) -> None:
    deliver(tables, "2026-01-01/_day=1/a.json", lines(0, 3))
    assert [batch.rows for batch in ingest(tables, HERE, contract, "run")] == [3]


def test_a_batch_that_was_only_recorded_is_written_again_row_for_row(
    tables: Tables, contract: StreamContract
) -> None:
    deliver(tables, "2026-01-01/a.json", lines(0, 10))
    (batch,) = ingest(tables, HERE, contract, "run 1")
    before = everything(tables)
    save_batches(tables.now(), [batch.with_changes(batch.updated_at, status=RECORDED, rows=None)])
    (again,) = ingest(tables, HERE, contract, "run 2")
    assert everything(tables) == before
    assert (again.run_id, again.rows, again.created_at) == ("run 1", 10, batch.created_at)


DEATHS = (("batches", 1), ("raw", 1), ("rejected", 1), ("sketches", 1), ("ledger", 1), ("batches", 2))
"""Every write of taking in, in its order: the table, and which write to it."""


@pytest.mark.parametrize(
    ("table", "which"), DEATHS, ids=[f"before write {n} of {table}" for table, n in DEATHS]
)
def test_whatever_write_a_run_dies_before_the_next_one_ends_in_the_same_rows(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, which: int
) -> None:
    contract = read_stream({**CONTRACT, "duplicates": {"rows": "filter", "on": ["at"], "within": 100}})
    straight = Tables(Settings.in_memory(f"straight {table} {which}"))
    broken = Tables(Settings.in_memory(f"broken {table} {which}"))
    for lake in (straight, broken):
        deliver(lake, "2026-01-01/a.json", lines(0, 10) + b"nonsense\n")
        deliver(lake, "2026-01-02/b.json", lines(5, 10))
    ingest(straight, HERE, contract, "run")

    left = which
    with monkeypatch.context() as patch:
        for method in ("publish", "replace"):
            whole = getattr(Table, method)

            def until_then(self: Table, *args: Any, _whole: Any = whole, **more: Any) -> Any:
                nonlocal left
                left -= self.contract.table == table
                if not left:
                    raise Died(table)
                return _whole(self, *args, **more)

            patch.setattr(Table, method, until_then)
        with pytest.raises(Died):
            ingest(broken, HERE, contract, "run")
    known = [batch.status for batch in batches(broken)]
    assert known == ([] if (table, which) == DEATHS[0] else [RECORDED, RECORDED])
    ingest(broken, HERE, contract, "run")
    expected, found = everything(straight), everything(broken)
    files = [[{**file, "modified_at": None} for file in row.pop("files")] for row in found["batches"]]
    assert files == [
        [{**file, "modified_at": None} for file in row.pop("files")] for row in expected["batches"]
    ]
    assert found == expected
    assert [batch.deduplicated for batch in batches(broken)] == [0, 5]
    for lake in (straight, broken):
        lake.forget()


def test_of_two_runs_at_once_one_wins_and_the_other_says_so(tables: Tables, contract: StreamContract) -> None:
    deliver(tables, "2026-01-01/a.json", lines(0, 10) + b"nonsense\n")
    together = Barrier(2)

    def run(number: int) -> str:
        mine = tables.now()
        together.wait()
        try:
            ingest(mine, HERE, contract, f"run {number}")
        except ConcurrentRun as problem:
            return str(problem)
        return "done"

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(run, range(2)))
    assert "done" in outcomes
    assert all(outcome == "done" or "nothing was doubled" in outcome for outcome in outcomes)
    assert [(batch.status, batch.rows) for batch in batches(tables)] == [(INGESTED, 10)]
    assert raw(tables) == [(i, i) for i in range(10)]
    assert len(rows(tables, "rejected")) == 1
    assert total_imbalance(rows(tables, "ledger")) == 0


def test_files_are_read_in_tasks_of_bounded_size_that_never_cross_a_batch(
    tables: Tables, contract: StreamContract, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        deliver(tables, f"2026-01-0{1 + number // 4}/{number}.json", lines(10 * number, 10))
    monkeypatch.setattr(parsing, "TASK_BYTES", int(2.5 * len(lines(10, 10))))
    read: list[str] = []
    for module in (parsing, recording):
        monkeypatch.setattr(
            module, "open_landing_file", lambda *of: read.append(of[1]) or open_landing_file(*of)
        )
    ingest(tables, HERE, contract, "run")
    held = tables.now().at("raw", "delays").files()
    assert sorted((str(file.value("batch_date")), file.records) for file in held) == [
        ("2026-01-01", 20),
        ("2026-01-01", 20),
        ("2026-01-02", 20),
    ]
    assert len(read) == 2 * 6, "once to measure, once to parse"
    assert raw(tables) == [(i, i) for i in range(60)]


def test_a_folder_that_is_not_there_yet_is_nothing_new(tables: Tables, contract: StreamContract) -> None:
    said: list[str] = []
    assert ingest(tables, HERE, contract, "run", said.append) == []
    assert "nothing to take in" in said[0]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ([10, 20, 30, 40], 40.0),  # four moments of one step each
        ([10, 10, 20, 20], 20.0),
        ([40, 10, 20, 30], 40.0),
        ([7, 7, 7, 7], None),
    ],
)
def test_the_time_a_batch_covers_is_told_by_its_event_times(
    tables: Tables, order: list[int], expected: float | None
) -> None:
    timed = read_stream({**CONTRACT, "rate": {"from": "event_time"}})
    told = [{"router": "r", "at": at, "delay_ms": 1.0} for at in order]
    deliver(tables, "2026-01-01/a.json", b"".join(json.dumps(row).encode() + b"\n" for row in told))
    (batch,) = ingest(tables, HERE, timed, "run")
    assert batch.seconds_covered == expected


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
