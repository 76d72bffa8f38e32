"""Taking in: landing files to `raw`, exactly once, every tuple numbered, every defect kept by name.

The table `batches` knows every file ever taken in, and a digest seen before is skipped under whatever name it comes. A
batch is recorded (files in fixed order, seq numbers set aside) before any row of it is written; whoever finds it merely
recorded writes the same rows again. A task reads its files once: what is good goes into a file of `raw`, what is not
into one of `rejected`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import RECORDED, TAKEN_IN, Batch, LandingFile, utc_now
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError
from spillway.intake.landing import (
    EMPTY,
    Delivered,
    batch_date_of,
    changed_files,
    landing_root,
    new_files,
    path_of,
)
from spillway.intake.repeats import Repeated, filter_before, find_repeated, kept_aside
from spillway.ledger import LedgerRow
from spillway.levers.protocol import Say
from spillway.records import count_records, parse_records
from spillway.store.batches import load_batches, save_batches
from spillway.store.blobs import folder_exists, read_bytes
from spillway.store.drafts import discard
from spillway.store.files import DataFile, read_rows, rows_of
from spillway.store.ledgers import write_ledger
from spillway.store.logs import data_file
from spillway.store.tables import Between, Table, Tables
from spillway.store.writing import Written, write_file

INTAKE = "intake"
TASK_BYTES = 32 * 1024 * 1024
_ROWS_AT_A_TIME = 131_072


def take_in(
    tables: Tables, engine: Engine, contract: StreamContract, run_id: str, say: Say = lambda _: None
) -> list[Batch]:
    """Take in whatever is new of the stream; returns the batches this call wrote, oldest first."""
    tables = tables.now()
    stream, settings = contract.stream, tables.settings
    known = load_batches(tables, stream)
    written = _write(tables, engine, contract, [b for b in known if b.status == RECORDED], say)
    root = landing_root(contract, settings.landing)
    if not folder_exists(root):
        say(f"{stream}: nothing to take in, there is no {root} yet")
        return written
    for one in changed_files(contract, settings, known):
        say(
            f"{stream}: {one.name} has changed since it was taken in ({one.size:,} bytes now); it is not taken in "
            "again: deliver the change as a new file"
        )
    recorded = _record(tables, engine, contract, known, new_files(contract, settings, known), run_id)
    return [*written, *_write(tables, engine, contract, recorded, say)]


def _content(name: str, path: str) -> bytes:
    try:
        return read_bytes(path)
    except FileNotFoundError as problem:
        raise SpillwayError(
            f"{name}: a landing file must stay until it is taken in, it is gone; deliver it again under this name"
        ) from problem


def _measure(contract: StreamContract, one: Delivered) -> tuple[str, int]:
    content = _content(one.name, one.path)
    return hashlib.sha256(content).hexdigest(), count_records(contract, content)


def _record(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    known: Sequence[Batch],
    fresh: Sequence[Delivered],
    run_id: str,
) -> list[Batch]:
    """Record new files as batches, one a batch date, before anything of them is written."""
    if not fresh:
        return []
    digests = {file.digest for batch in known for file in batch.files if file.status == "taken"}
    measured = dict(zip(fresh, engine.map(partial(_measure, contract), fresh), strict=True))
    now = utc_now()
    by_date: dict[date, list[Delivered]] = {}
    for one in fresh:
        by_date.setdefault(batch_date_of(one.name, now.date()), []).append(one)
    number = max((batch.batch for batch in known), default=0)
    seq = max((batch.last_seq for batch in known), default=-1) + 1
    arrived = max((f.modified_at for b in known for f in b.files if f.modified_at), default=None)
    batches = []
    for batch_date in sorted(by_date):
        number += 1
        first_seq = seq
        files = []
        for one in by_date[batch_date]:
            digest, records = measured[one]
            again = digest in digests and contract.duplicates.files == "skip"
            status = EMPTY if not records else "duplicate" if again else "taken"
            # record n has seq base + n, and n starts at 1
            files.append(LandingFile(one.name, one.size, digest, records, seq - 1, status, one.modified_at))
            if status == "taken":
                digests.add(digest)
                seq += records
        batches.append(
            Batch(
                contract.stream,
                number,
                batch_date,
                RECORDED,
                tuple(files),
                first_seq,
                seq - 1,
                run_id,
                now,
                now,
                seconds_covered=_arrival_seconds(by_date[batch_date], arrived),
            )
        )
        arrived = max(one.modified_at for one in by_date[batch_date])
    save_batches(tables, batches)
    return batches


def _arrival_seconds(files: Sequence[Delivered], arrived: datetime | None) -> float | None:
    """Seconds since the last arrival before these files, or across them; None where one moment is all we know."""
    last = max(file.modified_at for file in files)
    first = arrived if arrived is not None else min(file.modified_at for file in files)
    return (last - first).total_seconds() or None


@dataclass(frozen=True)
class _Files:
    """Files that one task parses, all of one batch."""

    batch: Batch
    files: tuple[LandingFile, ...]


@dataclass(frozen=True)
class _Target:
    """Where a task writes."""

    folder: str
    schema: pa.Schema

    @staticmethod
    def of(table: Table) -> _Target:
        return _Target(table.path, table.contract.file_schema)


@dataclass(frozen=True)
class _Parsed:
    """What a task made of its files."""

    batch: int
    raw: Written | None = None
    rejected: Written | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    problem: SpillwayError | None = None


def _parse(contract: StreamContract, landing: str, raw: _Target, rejected: _Target, work: _Files) -> _Parsed:
    """Read some files, once; write what is good and what is not, or say why neither was."""
    bad: list[pa.Table] = []
    reasons: dict[str, int] = {}

    def good() -> Iterator[pa.Table]:
        for file in work.files:
            content = _content(file.name, path_of(landing, file.name))
            if hashlib.sha256(content).hexdigest() != file.digest:
                raise SpillwayError(
                    f"{file.name}: a landing file must not change once it is recorded, its digest did; "
                    "deliver the change as a new file"
                )
            found = parse_records(contract, file.name, content)
            if found.rejected.num_rows:
                part = _numbered(found.rejected, work.batch, file)
                names = pa.array([file.name] * part.num_rows, pa.string())
                bad.append(part.append_column("file", names))
                for broken, rule in zip(part["field"].to_pylist(), part["rule"].to_pylist(), strict=True):
                    reason = f"{broken or 'record'} must {rule}"
                    reasons[reason] = reasons.get(reason, 0) + 1
            if found.table.num_rows:
                yield _numbered(found.table, work.batch, file)

    day = {"batch_date": str(work.batch.batch_date)}
    try:
        made = write_file(raw.folder, day, raw.schema, good())
    except SpillwayError as problem:
        return _Parsed(work.batch.batch, problem=problem)
    refused = write_file(rejected.folder, {"stream": contract.stream}, rejected.schema, iter(bad))
    return _Parsed(work.batch.batch, made, refused, reasons)


def _numbered(part: pa.Table, batch: Batch, file: LandingFile) -> pa.Table:
    """Parsed records of a file with their numbers; line 0 is the whole file: no tuple, no number."""
    line = part["line"].cast(pa.int64())
    numbers = {
        "seq": pc.if_else(pc.equal(line, 0), None, pc.add(line, file.base_seq)),
        "batch": pa.array(np.full(part.num_rows, batch.batch)),
        "batch_date": pa.array([batch.batch_date] * part.num_rows, pa.date32()),
    }
    for name, column in numbers.items():
        part = part.append_column(name, column)
    return part


def _write(
    tables: Tables, engine: Engine, contract: StreamContract, batches: Sequence[Batch], say: Say
) -> list[Batch]:
    """Write `raw`, `rejected` and the ledger's first stage of recorded batches; all are replaced, never added to."""
    if not batches:
        return []
    stream, numbers = contract.stream, [batch.batch for batch in batches]
    days = sorted({batch.batch_date for batch in batches})
    raw = tables.at("raw", stream).with_attributes([(a.name, a.type) for a in contract.attributes])
    rejected = tables.at("rejected")
    parse = partial(_parse, contract, tables.settings.landing, _Target.of(raw), _Target.of(rejected))
    parsed = engine.map(parse, _tasks(batches))
    problem = next((one.problem for one in parsed if one.problem), None)
    if problem is not None:
        # or every try of a batch that cannot be taken in would leave files behind
        discard(raw.path, [one.raw for one in parsed if one.raw])
        discard(rejected.path, [one.rejected for one in parsed if one.rejected])
        raise problem
    files = {n: [one.raw for one in parsed if one.batch == n and one.raw] for n in numbers}
    aside = [one.rejected for one in parsed if one.rejected]
    repeated = _without_repeats(tables, engine, contract, batches, raw, files, aside)
    raw.publish([one for found in files.values() for one in found], batch_date=days, batch=numbers)
    rejected.publish(aside, stream=stream, batch=numbers)
    states = [one.state for one in repeated.values() if one.state is not None]
    if states:
        tables.at("sketches").replace(states, stream=stream, kind="stable_bloom", batch=numbers)
    now = utc_now()
    ledger: list[LedgerRow] = []
    done = []
    for batch in batches:
        reasons = _added_up(one.reasons for one in parsed if one.batch == batch.batch)
        again = repeated.get(batch.batch)
        rows, refused = sum(one.rows for one in files[batch.batch]), sum(reasons.values())
        _refuse_too_many(contract, batch, rows, refused)
        ledger += _lines(contract, batch, rows, reasons, again, files[batch.batch])
        deduplicated = _delivered_before(batch) + (len(again.rows) if again else 0)
        done.append(
            batch.becomes(
                now,
                status=TAKEN_IN,
                rows=rows,
                rejected=refused,
                deduplicated=deduplicated,
                seconds_covered=_seconds_covered(tables, contract, batch, rows),
            )
        )
        parts = [f"{rows:,} tuples"]
        parts += [f"{refused:,} refused (see rejected)"] * bool(refused)
        parts += [f"{deduplicated:,} delivered before"] * bool(deduplicated)
        say(f"{stream}: took in batch {batch.batch} of {batch.batch_date}: {', '.join(parts)}")
    write_ledger(tables, stream, numbers, [INTAKE], ledger)
    save_batches(tables, done)
    return done


def _tasks(batches: Sequence[Batch]) -> list[_Files]:
    """Consecutive files in groups of about `TASK_BYTES`, never across a batch, so that rows lie in seq order."""
    groups: list[tuple[Batch, list[LandingFile]]] = []
    size = 0
    for batch in batches:
        for file in batch.taken:
            if not groups or size + file.size > TASK_BYTES or groups[-1][0].batch != batch.batch:
                groups.append((batch, []))
                size = 0
            groups[-1][1].append(file)
            size += file.size
    return [_Files(batch, tuple(files)) for batch, files in groups]


def _without_repeats(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    batches: Sequence[Batch],
    raw: Table,
    files: dict[int, list[Written]],
    aside: list[Written],
) -> dict[int, Repeated]:
    """Find rows that were delivered before; the batches' drafts of `raw` are made anew without them."""
    found: dict[int, Repeated] = {}
    state = filter_before(tables, contract, batches[0].batch)
    earlier = list(tables.at("raw", contract.stream).files(batch=Between(high=batches[0].batch - 1)))
    for batch in sorted(batches, key=lambda one: one.batch):
        drafted = _drafted(raw, files[batch.batch])
        one = find_repeated(engine, contract, batch, drafted, earlier, state)
        if one is None:
            return {}
        found[batch.batch] = one
        state = one.state
        if len(one.rows):
            rejected = _Target.of(tables.at("rejected"))
            make = partial(_parted, contract, batch, one.rows, _Target.of(raw), rejected)
            parts = engine.map(make, drafted)
            raw.erase(drafted)
            files[batch.batch] = [left for left, _ in parts if left]
            aside += [gone for _, gone in parts if gone]
        earlier += _drafted(raw, files[batch.batch])
    return found


def _drafted(table: Table, written: Sequence[Written]) -> list[DataFile]:
    """Files that are in no table yet, as whoever reads files takes them."""
    return [data_file(table.path, one, table.contract.arrow_schema) for one in written]


def _files_of(raw: Table, written: Sequence[Written]) -> list[DataFile]:
    """Files that were written and are in no table yet, as whoever reads files takes them."""
    return [data_file(raw.path, one, raw.contract.arrow_schema) for one in written]


def _parted(
    contract: StreamContract,
    batch: Batch,
    seqs: np.ndarray,
    raw: _Target,
    rejected: _Target,
    file: DataFile,
) -> tuple[Written | None, Written | None]:
    """A drafted file as two: the rows that stay, and those that were delivered before."""
    names = raw.schema.names

    def rows(repeated: bool) -> Iterator[pa.Table]:
        for part in rows_of(file, names, _ROWS_AT_A_TIME):
            hit = np.isin(np.asarray(part["seq"]), seqs)
            found = part.filter(pa.array(hit if repeated else ~hit))
            if found.num_rows:
                yield kept_aside(contract, batch, found) if repeated else found

    day = {"batch_date": str(batch.batch_date)}
    left = write_file(raw.folder, day, raw.schema, rows(False))
    gone = write_file(rejected.folder, {"stream": contract.stream}, rejected.schema, rows(True))
    return left, gone


def _added_up(parts: Iterator[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            found[name] = found.get(name, 0) + count
    return found


def _delivered_before(batch: Batch) -> int:
    return sum(file.records for file in batch.files if file.status == "duplicate")


def _lines(
    contract: StreamContract,
    batch: Batch,
    rows: int,
    reasons: Mapping[str, int],
    again: Repeated | None,
    files: Sequence[Written],
) -> Iterator[LedgerRow]:
    """The first stage: what was delivered, by what became of it, and the total."""
    line = partial(LedgerRow, "stream", batch.stream, batch.batch, batch.batch_date, INTAKE, 0, "rows")
    columns = ("seq", *contract.names)
    landed = sum(file.size for file in batch.taken)
    kept = sum(one.column_bytes.get(name, 0) for one in files for name in columns)
    before = _delivered_before(batch)
    repeats = len(again.rows) if again is not None else 0
    refused = sum(reasons.values())
    yield line(
        offered=rows + refused + before + repeats,
        kept=rows,
        rejected=refused,
        deduplicated=before + repeats,
        bytes_offered=landed,
        bytes_kept=kept,
    )
    yield line("reason", "taken in", "taken in", offered=rows, kept=rows)
    for reason, count in sorted(reasons.items()):
        yield line("reason", reason, reason, offered=count, rejected=count)
    if before:
        told = "file delivered before"
        yield line("reason", told, told, offered=before, deduplicated=before)
    if again is not None:
        yield line("reason", again.reason, again.reason, offered=repeats, deduplicated=repeats)


def _refuse_too_many(contract: StreamContract, batch: Batch, rows: int, rejected: int) -> None:
    limit = 0.0 if contract.bad_records.action == "fail" else contract.bad_records.max_share_pct
    share = 100.0 * rejected / max(1, rows + rejected)
    if rejected and share > limit:
        raise SpillwayError(
            f"{batch.stream}: batch {batch.batch} must have at most {limit:g} % bad records "
            f"(bad_records in the contract), got {share:.2f} % ({rejected:,} of {rows + rejected:,}); they are in "
            "`rejected` with file, line and reason: mend the source, or raise bad_records.max_share_pct"
        )


def _seconds_covered(tables: Tables, contract: StreamContract, batch: Batch, rows: int) -> float | None:
    """The time the batch took to arrive: by declared line rate, by event time, or by the files' arrival."""
    if contract.rate.from_ == "declared":
        return rows / float(contract.rate.tuples_per_second or 1.0)
    if contract.rate.from_ == "arrival":
        return batch.seconds_covered
    kind = contract.attribute(contract.order).type
    lows, highs, moments = [], [], 0
    where: dict[str, Any] = {"batch_date": batch.batch_date, "batch": batch.batch}
    for file in tables.at("raw", contract.stream).files(**where):
        order = read_rows([file], [contract.order], batch.first_seq, batch.last_seq)[contract.order]
        order = order if kind == "integer" else order.cast(pa.timestamp("us"))
        order = order.cast(pa.int64())
        edges = pc.min_max(order).as_py()
        if edges["min"] is None:
            continue
        lows.append(edges["min"])
        highs.append(edges["max"])
        # a moment that two files share counts twice: one in thousands
        moments += int(pc.count_distinct(order).as_py())
    if moments < 2 or min(lows) == max(highs):
        return None
    unit = 1.0 if kind == "integer" else 1e-6
    # n moments span n - 1 steps; the last step's tuples take one step more
    return (max(highs) - min(lows)) * unit * moments / (moments - 1)
