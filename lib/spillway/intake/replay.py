"""Replay: take in rejected files and records again after their contract or file is corrected, each tuple once.

A replay takes three things:

- refused files: they are read again from the landing zone;
- rejected records: `rejected` has their original bytes, so their files may be gone;
- quarantined batches, which failed twice.

Files and records become batches of their own, with new numbers and with the date of the batch that refused them. The
ledger accounts for both batches, and each of them balances. A file that changed after it was taken in is replayed only
if the selection names it, because `raw` would hold its rows twice. Records that are refused again are stored in
`rejected` under the new batch, and can be replayed once more. If a run dies, the next run finishes its replay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime

import pyarrow.compute as pc

from spillway.batch import (
    DUPLICATE,
    FILE_INGESTED,
    INGESTED,
    PLANNED,
    QUARANTINED,
    RECORDED,
    REFUSED,
    REPLAYED,
    RETIRED,
    Batch,
    LandingFile,
)
from spillway.clock import utc_now
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import InvalidValue, SpillwayError, escape_text
from spillway.intake.dedupe import DELIVERED_BEFORE
from spillway.intake.ingest import group_into_steps
from spillway.intake.landing import batch_date_of, find_landing_files
from spillway.intake.new_batches import record_batches
from spillway.intake.raw import write_batches
from spillway.intake.rejected_rows import (
    can_be_replayed,
    content_of,
    entries_of,
    original_rows,
    refusal_kind,
    refused_rows,
)
from spillway.ledger import Row
from spillway.levers.protocol import Say
from spillway.store.batches import batches_of_files, load_batches, next_numbers, save_batches
from spillway.store.tables import Tables


@dataclass(frozen=True)
class Selection:
    """What to replay: one file, reasons that contain a text, or one batch date.

    A field that is None selects everything.
    """

    file: str | None = None
    reason: str | None = None
    day: date | None = None

    def takes_file(self, name: str) -> bool:
        return self.file is None or name == self.file or name.endswith(f"/{self.file}")

    def takes_reason(self, reason: str | None) -> bool:
        return self.reason is None or self.reason in (reason or "")

    def takes_date(self, day: date) -> bool:
        return self.day is None or day == self.day


@dataclass(frozen=True)
class ReplayResult:
    """The result of a replay."""

    files: int
    records: int
    batches: tuple[Batch, ...]
    """The batches that this replay took in."""
    reopened: tuple[int, ...]
    """The numbers of quarantined batches that continue."""


def replay(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    asked: Selection,
    run_id: str,
    say: Say = lambda _: None,
    clock: Callable[[], datetime] | None = None,
) -> ReplayResult:
    """Take in the refused files and records of the stream again. Shedding then treats the new batches like all others.

    Raise the first error after everything that can be replayed is done.
    """
    tables, clock = tables.now(), clock or utc_now
    stream = contract.stream
    reopened = _reopen_batches(tables, contract, asked, clock)
    for batch in reopened:
        say(f"{stream}: batch {batch.batch} of {batch.batch_date} is no longer quarantined")
    begun = load_batches(tables, stream, status=RECORDED)
    written, failed = write_batches(tables, engine, contract, begun, clock, say)
    now = clock()
    refused = find_landing_files(contract, tables, now).refused
    known = batches_of_files(tables, stream, {one.name for one, _ in refused}) if refused else []
    waiting = [
        one
        for one, entry in refused
        if one.problem is None
        and asked.takes_file(one.name)
        and asked.takes_reason(entry.reason)
        and asked.takes_date(_date_of(known, entry))
    ]
    # if a file changed after it was taken in, `raw` has most of its rows: replay it only if the selection names it
    before = {
        file.name for batch in known for file in batch.files if file.status in (FILE_INGESTED, DUPLICATE)
    }
    files = [one for one in waiting if asked.file is not None or one.name not in before]
    if len(files) < len(waiting):
        names = ", ".join(escape_text(one.name) for one in waiting if one.name in before)
        say(
            f"{stream}: not taken in again, because some of their rows were taken in before they changed: {names}; "
            "--file takes in one whole file in addition"
        )
    for step in group_into_steps(contract, files, now.date()):
        recorded = record_batches(tables, engine, contract, step, run_id, now, say, again=True)
        done, problems = write_batches(tables, engine, contract, recorded, clock, say)
        written, failed = [*written, *done], [*failed, *problems]
    recorded, records = _records(tables, contract, asked, run_id, now)
    done, problems = write_batches(tables, engine, contract, recorded, clock, say)
    for problem in [*failed, *problems]:
        raise problem
    return ReplayResult(len(files), records, (*written, *done), tuple(batch.batch for batch in reopened))


def _date_of(known: Sequence[Batch], entry: LandingFile) -> date:
    return next(
        (batch.batch_date for batch in reversed(known) if entry in batch.files),
        batch_date_of(entry.name, date.min),
    )


def _reopen_batches(
    tables: Tables, contract: StreamContract, asked: Selection, clock: Callable[[], datetime]
) -> list[Batch]:
    """Let quarantined batches continue from the stage they had reached; return them.

    Later batches of the same date that are already planned continued from their state. They are planned again.
    """
    found = [
        batch
        for batch in load_batches(tables, contract.stream, status=QUARANTINED)
        if asked.takes_date(batch.batch_date)
        and asked.takes_reason(batch.reason)
        and (asked.file is None or any(asked.takes_file(file.name) for file in batch.files))
    ]
    dates = {batch.batch_date for batch in found if batch.rows is not None}
    known = load_batches(tables, contract.stream, batch_date=dates) if dates else []
    after: dict[int, Batch] = {}
    for batch in found:
        if batch.rows is None:
            continue
        later = [b for b in known if b.batch_date == batch.batch_date and b.batch > batch.batch]
        gone = [str(b.batch) for b in later if b.status == RETIRED]
        if gone:
            raise SpillwayError(
                f"{contract.stream}: batch {batch.batch} must go before batch {', '.join(gone)} of its date "
                f"{batch.batch_date}, whose raw tuples are retired; deliver its files again under another date"
            )
        after |= {b.batch: b for b in later if b.is_pinned and b.status != QUARANTINED}
    reopened = [
        batch.with_changes(
            clock(),
            status=RECORDED if batch.rows is None else PLANNED if batch.is_pinned else INGESTED,
            attempts=0,
            reason=None,
        )
        for batch in found
    ]
    again = [batch.with_changes(clock(), status=PLANNED) for batch in after.values()]
    saved = save_batches(tables, [*reopened, *again])
    return saved[: len(reopened)]


def _records(
    tables: Tables, contract: StreamContract, asked: Selection, run_id: str, now: datetime
) -> tuple[list[Batch], int]:
    """Record the selected rejected records as batches, one per batch date.

    Return the batches and the number of records.
    """
    stream = contract.stream
    dates = _waiting_dates(tables, stream, asked)
    if not dates:
        return [], 0
    known = load_batches(tables, stream, batch=list(dates))
    whole = {(b.batch, file.name) for b in known for file in b.files if file.status == REFUSED}
    rows = [
        row
        for row in refused_rows(tables, stream, batch=sorted(dates))
        if (row["batch"], row["file"]) not in whole
        and can_be_replayed(row)
        and asked.takes_file(row["file"])
        and _is_selected(asked, row)
    ]
    before = [entry for _, entry in entries_of(batches_of_files(tables, stream, statuses=[REPLAYED]))]
    number, seq = next_numbers(tables, stream)
    batches: list[Batch] = []
    records = 0
    for day in sorted({dates[row["batch"]] for row in rows}):
        files: list[LandingFile] = []
        number, first_seq = number + 1, seq
        for entry in _entries(contract, known, [row for row in rows if dates[row["batch"]] == day], asked):
            taken = original_rows(rows, before, entry)
            if not taken:
                continue
            content = content_of(contract, entry, taken)
            entry = LandingFile(
                entry.name, len(content), hashlib.sha256(content).hexdigest(), content.count(b"\n"), seq - 1,
                REPLAYED, None, None, entry.replays, entry.rule, entry.header,
            )  # fmt: skip
            files.append(entry)
            before.append(entry)
            seq += entry.records
            records += len(taken)
        if files:
            batches.append(
                Batch(stream, number, day, RECORDED, tuple(files), first_seq, seq - 1, run_id, now, now)
            )
        else:
            number -= 1
    return save_batches(tables, batches), records


def _waiting_dates(tables: Tables, stream: str, asked: Selection) -> dict[int, date]:
    """Return the selected batches that have refused records which wait to be replayed, by number with their dates."""
    refused = tables.at("rejected").rows(["batch", "reason"], stream=stream, replayed_by=None)
    if asked.reason is None:  # the same rule as in `_is_selected`
        refused = refused.filter(pc.not_equal(refused["reason"], DELIVERED_BEFORE))
    numbers = refused["batch"].unique().to_pylist()
    rows = tables.at("batches").rows(["batch", "batch_date"], stream=stream, batch=numbers)
    found = dict(zip(rows["batch"].to_pylist(), rows["batch_date"].to_pylist(), strict=True))
    return {number: day for number, day in found.items() if asked.takes_date(day)}


def _is_selected(asked: Selection, row: Row) -> bool:
    if asked.reason is None:
        return refusal_kind(row) != DELIVERED_BEFORE
    return asked.takes_reason(refusal_kind(row))


def _entries(
    contract: StreamContract, known: Sequence[Batch], rows: Sequence[Row], asked: Selection
) -> list[LandingFile]:
    """Return the file entries of a batch that replays these rows.

    There is one entry per refusing batch and file. If the selection names reasons, there is one per refusal kind, too.
    """
    headers = {
        (b.batch, file.name): file.header for b in known for file in b.files if file.header is not None
    }
    places = sorted(
        {(row["batch"], row["file"], refusal_kind(row) if asked.reason is not None else "") for row in rows}
    )
    found = []
    for batch, name, kind in places:
        header = headers.get((batch, name))
        needs = contract.source.format == "csv" and contract.source.options.header
        if needs and header is None and kind != DELIVERED_BEFORE:
            raise InvalidValue(
                "--file", "be one whose header is known", name,
                f"deliver its rejected records (batch {batch}) as a new file", contract.stream,
            )  # fmt: skip
        found.append(LandingFile(name, 0, "", 0, 0, REPLAYED, None, None, batch, kind or None, header))
    return found
