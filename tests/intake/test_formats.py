"""Landing files as people send them: wrapped, damaged, huge, with columns nobody asked for, with NaN in them."""

from __future__ import annotations

import gzip
import io
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.intake.test_intake import CONTRACT, HERE, batches, deliver, everything, lines, raw, rows

from spillway.contracts import StreamContract, read_stream
from spillway.intake import parse
from spillway.intake import parse as parsing
from spillway.intake.ingest import ingest
from spillway.ledger import total_imbalance
from spillway.records import file_slices, wrapper
from spillway.records import lines as line_reading
from spillway.settings import Settings
from spillway.store.tables import Tables


@pytest.fixture
def tables(request: pytest.FixtureRequest) -> Any:
    made = Tables(Settings.in_memory(request.node.name))
    yield made
    made.forget()


def contract(form: str = "json", **changes: Any) -> StreamContract:
    source = {"kind": "files", "path": "delays", "format": form}
    return read_stream({**CONTRACT, "source": source, "bad_records": {"max_share_pct": 100}, **changes})


def zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, codec="zstd", asbytes=True))


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def three(start: int = 0, count: int = 3, **more: Any) -> pa.Table:
    at = list(range(start, start + count))
    return pa.table({"router": ["r1"] * count, "at": at, "delay_ms": [a / 2 for a in at], **more})


def reasons(tables: Tables) -> dict[str, int]:
    return {r["reason"]: r["offered"] for r in rows(tables, "ledger") if r["dimension_kind"] == "reason"}


def notes(tables: Tables) -> dict[str, int]:
    return {r["dimension"]: r["kept"] for r in rows(tables, "ledger") if r["dimension_kind"] == "note"}


@pytest.mark.parametrize(
    "pack", [gzip.compress, zstd, lambda c: gzip.compress(c[:40]) + gzip.compress(c[40:])]
)
def test_a_wrapped_file_is_known_by_its_first_bytes_and_taken_like_a_plain_one(
    tables: Tables, pack: Any
) -> None:
    deliver(tables, "a.json", pack(lines(0, 5)))
    deliver(tables, "b.gz", lines(5, 5))
    (batch,) = ingest(tables, HERE, contract(), "run")
    assert (batch.rows, batch.rejected, batch.last_seq) == (10, 0, 9)
    assert raw(tables) == [(i, i) for i in range(10)]


WHOLE = lines(0, 2000)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (gzip.compress(WHOLE)[:-1], "be whole and readable gzip"),
        (gzip.compress(WHOLE)[:200], "be whole and readable gzip"),
        (gzip.compress(WHOLE) + b"more", "be whole and readable gzip"),
        (gzip.compress(WHOLE)[:-8] + b"\0" * 8, "be whole and readable gzip"),
        (zstd(WHOLE)[:-5], "be whole and readable zstd"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 50, "be whole and readable zstd"),
        (gzip.compress(gzip.compress(WHOLE)), "be wrapped once"),
        (zstd(gzip.compress(WHOLE)), "be wrapped once"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_by_name_and_nothing_of_it_is_taken(
    tables: Tables, content: bytes, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_reading, "BLOCK_BYTES", 1000)  # or all of it would be seen at once
    deliver(tables, "2026-01-01/a.json", lines(5000, 3))
    deliver(tables, "2026-01-01/b.json.gz", content)
    deliver(tables, "2026-01-01/c.json", lines(6000, 3))
    (batch,) = ingest(tables, HERE, contract(), "run")
    assert (batch.rows, batch.rejected) == (6, 1)
    (refused,) = rows(tables, "rejected")
    assert (refused["file"], refused["seq"], refused["rule"]) == ("delays/2026-01-01/b.json.gz", None, told)
    assert refused["original"] == content
    assert [at for _, at in raw(tables)] == [5000, 5001, 5002, 6000, 6001, 6002]
    assert reasons(tables)[f"the file must {told}"] == 1
    assert total_imbalance(rows(tables, "ledger")) == 0


def test_a_file_that_grows_without_end_stops_at_the_limit(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wrapper, "INSIDE_AT_LEAST", 1 << 16)
    deliver(tables, "a.json.gz", gzip.compress(b"\n" * (8 << 20)))
    (batch,) = ingest(tables, HERE, contract(), "run")
    assert (batch.rows, batch.rejected, batch.last_seq) == (0, 1, 0)
    (refused,) = rows(tables, "rejected")
    assert refused["rule"].startswith("hold at most 1,6")


def test_parquet_in_a_wrapper_is_refused_with_its_remedy(tables: Tables) -> None:
    deliver(tables, "a.parquet", gzip.compress(parquet(three())))
    ingest(tables, HERE, contract("parquet"), "run")
    (refused,) = rows(tables, "rejected")
    assert (refused["rule"], refused["value"]) == ("be Parquet as it is", "gzip")


def csv_lines_of(count: int) -> bytes:
    return b"router,at,delay_ms\n" + b"".join(b'"r ""%d""\n",%d,%d\n' % (i % 3, i, i) for i in range(count))


def without_bytes(tables: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Rows without what depends on how they were written, and when they landed."""
    return {
        name: [
            {
                k: v
                for k, v in row.items()
                if k not in ("files", "overhead_bytes") and not k.startswith("bytes_")
            }
            for row in found
        ]
        for name, found in tables.items()
    }


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("json", lines(0, 700) + b"nonsense\n" + lines(700, 700)),
        ("csv", csv_lines_of(900)),
        ("csv", csv_lines_of(400) + b'5" pipe,1,1\nr"1",2\n' + csv_lines_of(300)[19:]),
        ("parquet", parquet(three(0, 900), row_group_size=90)),
    ],
)
def test_a_large_file_is_read_in_pieces_and_gives_the_same(
    request: pytest.FixtureRequest, form: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"json": lines(5000, 2), "csv": content[:19], "parquet": parquet(three(5000))}[form]
    found, tasks = [], []
    for number, most in enumerate((1 << 30, 4000, 1500)):
        tables = Tables(Settings.in_memory(f"{request.node.name}{number}"))
        deliver(tables, "2026-01-01/a", content)
        deliver(tables, "2026-01-01/b", small)
        monkeypatch.setattr(parsing, "TASK_BYTES", most)
        monkeypatch.setattr(file_slices, "BLOCK_BYTES", 1000)
        ingest(tables, HERE, contract(form), "run")
        tasks.append(len(tables.now().at("raw", "delays").files()))
        found.append(without_bytes(everything(tables)))
        tables.forget()
    assert found[0] == found[1] == found[2]
    assert tasks[0] == 1
    assert tasks[1] < tasks[2]


@pytest.mark.parametrize("at", [0.25, 0.6, 0.9])
def test_parquet_with_one_bad_row_group_is_refused_whole_by_all_who_read_of_it(
    tables: Tables, at: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = three(0, 9000)
    content = bytearray(parquet(table, row_group_size=900, compression="gzip"))
    place = int(len(content) * at)
    content[place : place + 40] = bytes(40)
    monkeypatch.setattr(parsing, "TASK_BYTES", 6000)
    deliver(tables, "2026-01-01/a.parquet", parquet(three(50_000)))
    deliver(tables, "2026-01-01/b.parquet", bytes(content))
    (batch,) = ingest(tables, HERE, contract("parquet"), "run")
    assert (batch.rows, batch.rejected) == (3, 1)
    assert [row["rule"] for row in rows(tables, "rejected")] == ["be readable Parquet"]
    assert [at for _, at in raw(tables)] == [50_000, 50_001, 50_002]


NEW_COLUMN = {
    "json": b"".join(line[:-1] + b', "hops": 3}\n' for line in lines(0, 200).splitlines()),
    "csv": b"router,at,delay_ms,hops\n" + b"".join(b"r,%d,1,3\n" % i for i in range(200)),
    "parquet": parquet(three(0, 200, hops=[3] * 200)),
}  # fmt: skip


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_a_column_nobody_asked_for_is_noted_and_the_known_ones_are_taken(tables: Tables, form: str) -> None:
    deliver(tables, "a", NEW_COLUMN[form])
    told: list[str] = []
    (batch,) = ingest(tables, HERE, contract(form), "run", told.append)
    assert (batch.rows, batch.rejected) == (200, 0)
    assert notes(tables) == {"field hops unknown": 200}
    assert "200 with field hops unknown" in told[-1]
    assert total_imbalance(rows(tables, "ledger")) == 0


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_a_column_nobody_asked_for_is_refused_where_the_contract_says_so(tables: Tables, form: str) -> None:
    deliver(tables, "a", NEW_COLUMN[form])
    (batch,) = ingest(tables, HERE, contract(form, unknown_fields="refuse"), "run")
    assert (batch.rows, batch.rejected) == (0, 200 if form == "json" else 1)
    assert set(reasons(tables)) == {"taken in", "an unknown field must be an attribute of the contract"}


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("json", b"".join(b'{"router": "r", "at": %d}\n' % i for i in range(9))),
        ("csv", b"router,at\n" + b"".join(b"r,%d\n" % i for i in range(9))),
        ("parquet", parquet(three(0, 9).drop(["delay_ms"]))),
    ],
)
def test_a_column_that_is_not_there_is_noted(tables: Tables, form: str, content: bytes) -> None:
    deliver(tables, "a", content)
    (batch,) = ingest(tables, HERE, contract(form), "run")
    assert batch.rows == 9
    assert notes(tables) == {"column delay_ms absent": 9}


def test_thousands_of_odd_names_are_few_reasons_and_few_notes(tables: Tables) -> None:
    odd = [b'{"router": "r1", "at": %d, "x\\u001b[2J%d": {"deep": 1}}' % (i, i) for i in range(3000)]
    deliver(tables, "a", b"\n".join(odd))
    (batch,) = ingest(tables, HERE, contract(), "run")
    assert batch.rows == 3000
    found = notes(tables)
    assert len(found) <= 34
    assert sum(found.values()) == 3000 + 3000, (
        "every odd field is counted, and the column that is never there"
    )
    assert all(note.isprintable() for note in found)


def test_refusals_of_thousands_of_odd_names_are_of_few_kinds(tables: Tables) -> None:
    odd = [b'{"router": "r1", "at": %d, "x\\u001b[2J%d": 1}' % (i, i) for i in range(3000)]
    deliver(tables, "a", b"\n".join(odd) + b"\n" + lines(5000, 9))
    ingest(tables, HERE, contract(unknown_fields="refuse"), "run")
    assert reasons(tables) == {"taken in": 9, "an unknown field must be an attribute of the contract": 3000}
    for row in rows(tables, "rejected"):
        assert (row["field"] + row["reason"] + row["value"]).isprintable()


ODD = {
    "json": b'{"router": "r1", "at": 0, "delay_ms": NaN}\n{"router": "r1", "at": 1, "delay_ms": -Infinity}\n'
    b'{"router": "r1", "at": 2, "delay_ms": 2.5}\n{"router": "r1", "at": 3, "delay_ms": 1e999}\n',
    "csv": b"router,at,delay_ms\nr1,0,nan\nr1,1,-Infinity\nr1,2,2.5\nr1,3,1e999\n",
    "parquet": parquet(pa.table({"router": ["r1"] * 3, "at": [0, 1, 2], "delay_ms": [math.nan, -math.inf, 2.5]})),
}  # fmt: skip


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
@pytest.mark.parametrize(
    ("non_finite", "kept"),
    [("keep", ["nan", "-inf", "2.5"]), ("null", ["None", "None", "2.5"]), ("reject", ["2.5"])],
)
def test_what_is_no_finite_number_is_kept_made_null_or_refused_by_contract(
    tables: Tables, form: str, non_finite: str, kept: list[str]
) -> None:
    deliver(tables, "a", ODD[form])
    (batch,) = ingest(tables, HERE, contract(form, non_finite=non_finite), "run")
    found = sorted(rows(tables, "raw", "delays"), key=lambda row: row["seq"])
    assert [str(row["delay_ms"]) for row in found] == kept
    # a number that is only too large for a double is none of these: it is refused whatever the contract says
    assert batch.rejected == (4 - len(kept) if form != "parquet" else 3 - len(kept))


def test_a_file_of_nothing_but_refusals_is_written_as_it_is_read(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parse, "_REJECTED_BYTES", 1000)
    monkeypatch.setattr(line_reading, "BLOCK_LINES", 10)
    deliver(tables, "a", b"nonsense\n" * 300)
    (batch,) = ingest(tables, HERE, contract(), "run")
    assert (batch.rows, batch.rejected) == (0, 300)
    assert sorted(row["line"] for row in rows(tables, "rejected")) == list(range(1, 301))
    assert len(tables.now().at("rejected").files()) > 10
    assert len(batches(tables)) == 1
