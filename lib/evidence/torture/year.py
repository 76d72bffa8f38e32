"""Simulate a year of 96 batches per day and two streams: do reading, look-ups and validation stay as fast?

Processing 70,080 batches would take days. So the pipeline processes only a few, on the first day, in the middle of the
year and on the last day. All others are inserted: rows of the same shape in every table that a batch writes to, with
their own numbers, dates, seq, times, names and digests, one file per day and stream instead of 96 (small tables: per
week), by the store's own commits. `maintain_lake` runs every fourth week on the simulated clock, though its DAG runs it
every night. The last day is in files of single batches, as runs write them, except for the files that runs merge
(`compact_batches`). Inserted batches are copies, so they are never looked up or validated. Their logs have one commit
per week, where runs would have left a few hundred per day.

The measured reads use the functions of the steps, on tables that are opened again each time; the best of several
counts.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from spillway.batch import PENDING, RECORDED
from spillway.contracts import Contracts, StreamContract, load_contracts
from spillway.engine import ProcessEngine
from spillway.job import say
from spillway.levers.attributes.scheme import state_before
from spillway.pipeline.pending import is_pending
from spillway.pipeline.run import run_channel, sketch_channel
from spillway.pipeline.validate import changed_batches, validate
from spillway.report.page import build_report
from spillway.report.status import status
from spillway.settings import Settings
from spillway.store.batches import batches_of_files, compact_batches, last_arrival, load_batches, next_numbers
from spillway.store.blobs import write_bytes
from spillway.store.file_writer import WrittenFile, write_file
from spillway.store.filters import match_mask
from spillway.store.tables import Table, Tables
from spillway.streams.facts import newest_facts
from spillway.streams.query import StreamQuery
from spillway.streams.recover import look_up
from spillway.streams.retention import maintain_lake
from spillway.streams.train import train_streams

STREAMS = ("north", "south")
BATCHES_A_DAY = 96
ROWS = 48
DAYS_LAID_AT_ONCE = 7
FIRST = date(2025, 1, 1)
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
SEQ_LIKE = ("seq", "frame", "first_seq", "last_seq", "from_seq", "to_seq", "frame_origin")
TIME_LIKE = ("at", "created_at", "updated_at", "validated_at")
OF_A_BATCH = (
    "raw", "transmitted", "recovered", "schemes", "synopsis", "sent_synopsis", "certificates", "ledger", "batches",
    "sketches",
)  # fmt: skip


@dataclass
class Year:
    """A lake that grows over the year."""

    folder: Path
    settings: Settings
    contracts: Contracts
    templates: dict[tuple[str, str], pa.Table] = field(default_factory=dict)
    validate_seconds: list[float] = field(default_factory=list)

    @staticmethod
    def begin(folder: Path) -> Year:
        """Create contracts of two streams that share a channel too narrow for both."""
        schemas = folder / "schemas"
        (schemas / "streams").mkdir(parents=True)
        (schemas / "channels.yaml").write_text(
            yaml.safe_dump({"channels": {"link": {"capacity": "150 bps"}}})
        )
        for stream in STREAMS:
            contract = {
                "stream": stream,
                "channel": "link",
                "source": {"path": stream, "after_ingest": "remove", "settle_seconds": 0},
                "attributes": [
                    {"name": "site", "type": "string", "role": "key", "nullable": False},
                    {"name": "at", "type": "timestamp", "role": "order", "nullable": False},
                    {"name": "temp", "type": "double", "error_pct": 2.0},
                    {"name": "level", "type": "double", "error_pct": 2.0},
                ],
                "rate": {"from": "declared", "tuples_per_second": ROWS / 900},
                "levers": [{"lever": "attributes", "training": {"tuples": 90}}],
                "sketches": [{"kind": "count_min", "attributes": ["site"], "memory_kib": 4}],
            }
            (schemas / "streams" / f"{stream}.yaml").write_text(yaml.safe_dump(contract, sort_keys=False))
        home = Path(__file__).resolve().parents[3]
        roots = {
            "HOME": home,
            "LAKE": folder / "lake",
            "LANDING": folder / "landing",
            "BUILD": folder / "build",
        }
        roots["SCHEMAS"] = schemas
        settings = Settings.from_environment({f"SPILLWAY_{name}": str(path) for name, path in roots.items()})
        return Year(folder, settings, load_contracts(str(schemas)))

    def run_batches(self, first: int, count: int, train: bool = False) -> None:
        """Deliver batches, run the pipeline once for each, then validate them."""
        tables, engine = Tables(self.settings), ProcessEngine()
        for number in range(first, first + count):
            for stream in STREAMS:
                day = _day_of(number)
                write_bytes(f"{self.settings.landing}/{stream}/{day}/{number}.json", _delivery(number))
            if train and number == first + 1:
                train_streams(tables, engine, self.contracts, list(STREAMS), "year")
            run_channel(tables, engine, self.contracts, "link", f"run {number}")
            sketch_channel(tables, engine, self.contracts, "link")
        began = time.monotonic()
        validate(tables, engine, self.contracts, f"validate {first}")
        self.validate_seconds.append(time.monotonic() - began)

    def record_template(self, number: int) -> None:
        """Record the rows that one batch leaves in every table, as the template of inserted batches."""
        tables = Tables(self.settings)
        for stream in STREAMS:
            for name in OF_A_BATCH:
                table = _table(tables, name, stream)
                where: dict[str, Any] = {"batch": number} | _mine(table, stream)
                self.templates[name, stream] = table.rows(**where)
        self.templates["validations", ""] = tables.at("validations").rows()

    def insert_batches(self, numbers: Sequence[int], template: int, singly: bool = False) -> None:
        """Insert copies of a processed batch; `singly`: one file for each, as runs write them."""
        tables = Tables(self.settings)
        for (name, stream), rows in self.templates.items():
            if not rows.num_rows:
                continue
            table = _table(tables, name, stream)
            groups = [[number] for number in numbers] if singly and name != "validations" else [list(numbers)]
            written = []
            for group in groups:
                made = _tile_rows(rows, np.array(group), template, name)
                written += _files_of(table, made, stream, group)
            table.publish(written, **({"run_id": "nobody"} if name == "validations" else {"batch": -1}))


def year_figures() -> dict[str, float]:
    """Return the figures of a simulated year by name, and report progress."""
    with tempfile.TemporaryDirectory() as folder:
        return simulate_year(Year.begin(Path(folder)), 365)


def torture_by_a_year(_say: Callable[[str], None], _seed: int) -> Mapping[str, float]:
    """Run this part of `make torture`; a year uses no randomness."""
    return {f"torture.{name.removeprefix('torture.')}": value for name, value in year_figures().items()}


def simulate_year(year: Year, days: int) -> dict[str, float]:
    said = time.monotonic()
    year.run_batches(1, 4, train=True)
    year.record_template(4)
    middle = _middle(days)
    real = {1, 2, 3, 4} | {day * BATCHES_A_DAY + n for day in (middle, days - 1) for n in (1, 2)}
    for begin in range(0, days - 1, DAYS_LAID_AT_ONCE):
        some = range(begin, min(begin + DAYS_LAID_AT_ONCE, days - 1))
        if middle in some:
            year.run_batches(middle * BATCHES_A_DAY + 1, 2)
        year.insert_batches([n for day in some for n in _numbers(day) if n not in real], 4)
        if (begin // DAYS_LAID_AT_ONCE) % 4 == 3 or some[-1] == days - 2:
            maintain_lake(
                Tables(year.settings), year.contracts, now=BEGIN + timedelta(days=some[-1] + 1, hours=5)
            )
        if time.monotonic() - said > 30:
            said = time.monotonic()
            say(f"a simulated year: {some[-1] + 1} of {days} days")
    year.run_batches((days - 1) * BATCHES_A_DAY + 1, 2)
    year.insert_batches([n for n in _numbers(days - 1) if n not in real], 4, singly=True)
    for stream in STREAMS:
        compact_batches(Tables(year.settings), stream)
    return measure_year(year, days)


def measure_year(year: Year, days: int) -> dict[str, float]:
    """Return the times of the reads of steps and of a look-up of an hour, and the number of files."""
    number, today = days * BATCHES_A_DAY, _day_of(days * BATCHES_A_DAY)
    reads = {name: _best(5, partial(_fresh_time, year, one)) for name, one in _steps(year, number).items()}
    contract = year.contracts.streams["north"]
    hours = [BEGIN + timedelta(days=day, minutes=2) for day in (0, _middle(days), days - 1)]
    asked = [
        StreamQuery.parse(
            contract,
            key=["site=site-2"],
            from_time=at.isoformat(),
            to_time=(at + timedelta(minutes=26)).isoformat(),
        )
        for at in hours
    ]
    looked = [_best(3, partial(_lookup_time, year, contract, one)) for one in asked]
    tables = Tables(year.settings)
    if (batches := tables.at("batches").rows(["batch"]).num_rows) != 2 * number:
        raise RuntimeError(f"a year must be of {2 * number:,} batches, got {batches:,}")
    counts = {name: len(table.files()) for name, table in _all_tables(tables)}
    stands = _best(3, partial(_fresh_time, year, status))
    shown = _best(3, lambda: build_report(Tables(year.settings), year.folder / "report.html"))
    first, *_, latest = year.validate_seconds
    details = {name: round(seconds * 1000, 1) for name, seconds in reads.items()}
    say(f"a simulated year to {today}: reading, in ms: {json.dumps(details)}")
    say(f"files: {json.dumps(counts)}; looked up in {', '.join(f'{one:.2f}' for one in looked)} s")
    return {
        "year_batches": float(batches),
        "year_read_ms": max(reads.values()) * 1000,
        "year_lookup_seconds": max(looked),
        "year_status_seconds": stands,
        "year_report_seconds": shown,
        "year_files_most": float(max(counts.values())),
        "year_validate_last_over_first": latest / first,
    }


def _steps(year: Year, number: int) -> dict[str, Callable[[Tables], Any]]:
    """Return the reads that steps make before they work, for one stream."""
    stream, contract = "north", year.contracts.streams["north"]

    def shed(tables: Tables) -> None:
        load_batches(tables, stream, status=PENDING)
        newest_facts(tables, stream, "attributes")
        state_before(tables, stream, number + 1)
        day = _day_of(number)
        tables.at("batches").rows(stream=stream, batch_date=day)

    def account(tables: Tables) -> None:
        tables.at("ledger").rows(["stage", "ordinal"], subject=stream, batch=[number])

    def take_in_one(tables: Tables) -> None:
        load_batches(tables, stream, status=RECORDED)
        batches_of_files(tables, stream, ["north/new.json"], ["0" * 64])
        next_numbers(tables, stream)
        last_arrival(tables, stream)

    return {
        "is there work": lambda tables: is_pending(contract, tables),
        "take in": take_in_one,
        "shed": shed,
        "account": account,
        "validate": lambda tables: changed_batches(tables, stream),
        "certificates": lambda tables: tables.at("certificates").rows(stream=stream, batch=[number]),
        "sketches": lambda tables: tables.at("sketches").rows(stream=stream, batch=[number]),
    }


def _fresh_time(year: Year, step: Callable[[Tables], Any]) -> Any:
    return step(Tables(year.settings))


def _lookup_time(year: Year, contract: StreamContract, question: StreamQuery) -> Any:
    return look_up(Tables(year.settings), contract, question)


def _best(times: int, step: Callable[[], Any]) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        step()
        found.append(time.perf_counter() - began)
    return min(found)


def _all_tables(tables: Tables) -> Iterator[tuple[str, Table]]:
    for name, contract in sorted(tables.contracts.items()):
        for stream in STREAMS if contract.scope == "stream" else [None]:
            table = tables.at(name, stream)
            if table.exists:
                yield name if stream is None else f"{name}/{stream}", table


def _table(tables: Tables, name: str, stream: str) -> Table:
    return tables.at(name, stream if tables.contract(name).scope == "stream" else None)


def _mine(table: Table, stream: str) -> dict[str, str]:
    names = [name for name in ("stream", "subject") if name in table.contract.names]
    return {names[0]: stream} if names else {}


def _numbers(day: int) -> range:
    """Return the numbers of the batches of a day, counted from the first."""
    return range(day * BATCHES_A_DAY + 1, (day + 1) * BATCHES_A_DAY + 1)


def _middle(days: int) -> int:
    """Return a day about halfway at which a slice begins; processed batches take the next free number."""
    return days // 2 // DAYS_LAID_AT_ONCE * DAYS_LAID_AT_ONCE


def _day_of(number: int) -> date:
    return FIRST + timedelta(days=(number - 1) // BATCHES_A_DAY)


def _delivery(number: int) -> bytes:
    """Return a quarter of an hour of four sites."""
    lines = []
    for i in range(ROWS):
        at = BEGIN + timedelta(minutes=15 * (number - 1), seconds=i // 4 * (900 * 4 / ROWS))
        turn, site = (number - 1) * ROWS + i, i % 4
        temp = round(40 + 9 * site + 6 * float(np.sin(turn / 37 + site)), 2)
        row = {"site": f"site-{site}", "at": at.isoformat(), "temp": temp, "level": round(temp * 1.8 + 32, 2)}
        lines.append(json.dumps(row) + "\n")
    return "".join(lines).encode()


def _tile_rows(rows: pa.Table, numbers: np.ndarray, template: int, name: str) -> pa.Table:
    """Copy the rows of one batch for each of some other batches."""
    if name == "validations":
        days = sorted({(int(number) - 1) // BATCHES_A_DAY for number in numbers})
        return pa.concat_tables(_validations(rows, day) for day in days)
    count = rows.num_rows
    made = rows.take(pa.array(np.tile(np.arange(count), len(numbers))))
    whose = np.repeat(numbers, count)
    steps = whose - template
    for place, column in enumerate(made.schema):
        values = made[column.name]
        if column.name == "batch":
            values = pa.array(whose, pa.int64())
        elif column.name == "batch_date":
            values = pa.array([_day_of(int(n)) for n in whose], pa.date32())
        elif column.name in SEQ_LIKE:
            values = pa.array(np.asarray(values) + steps * ROWS, pa.int64())
        elif column.name in TIME_LIKE:
            micros = np.asarray(values.cast(pa.int64())) + steps * 900_000_000
            if column.name != "at":  # by the clock of today, and to be by the simulated one
                at = int((BEGIN + timedelta(minutes=15 * template)).timestamp() * 1e6)
                micros = at + steps * 900_000_000
            values = pa.array(micros, pa.int64()).cast(column.type)
        elif column.name == "files":
            values = pa.array(
                [_renumber(one, int(n)) for one, n in zip(values.to_pylist(), whose, strict=True)],
                column.type,
            )
        made = made.set_column(place, column, values)
    return made


def _renumber(files: Sequence[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    return [{**one, "name": f"laid/{_day_of(number)}/{number}.json", "digest": digest} for one in files]


def _validations(rows: pa.Table, day: int) -> pa.Table:
    """Return the outcomes of a day's validation runs, as many per run as one run wrote."""
    runs = 24
    made = rows.take(pa.array(np.tile(np.arange(rows.num_rows), runs)))
    hours = np.repeat(np.arange(runs), rows.num_rows)
    at = int((BEGIN + timedelta(days=day)).timestamp() * 1e6)
    times = pa.array(at + hours * 3_600_000_000, pa.int64()).cast(made.schema.field("validated_at").type)
    return made.set_column(
        made.schema.get_field_index("validated_at"), made.schema.field("validated_at"), times
    )


def _files_of(table: Table, rows: pa.Table, stream: str, numbers: Sequence[int]) -> list[WrittenFile]:
    """Write the rows as files, one per partition, with separate row groups per batch, as `keep` leaves them."""
    names = list(table.contract.partitioned_by)
    keys = rows.select(names).group_by(names).aggregate([]).to_pylist()
    found = []
    for key in keys:
        part = rows.filter(match_mask(rows, key))
        text = {name: str(value) for name, value in key.items()}
        one = write_file(table.path, text, table.file_schema, [part], table.contract.row_group_column)
        found += [one] if one is not None else []
    return found
