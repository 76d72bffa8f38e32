"""Record new files as batches: fix the order of the files and reserve their `seq` numbers before any row is written.

Each file is read twice: here for its digest and its number of records, and later by the parser. One pass is not enough.
Whether a file is taken at all depends on all of its bytes (delivered before? changed under a known name?). The first
`seq` of a file depends on the number of records in the files before it. Both must be in `batches` before a row is
written, so that a run that dies leads to the same numbers. The first pass parses nothing. On a local disk, the second
pass reads from the page cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial

from spillway.batch import (
    DUPLICATE,
    EMPTY,
    FILE_INGESTED,
    IN_WORK,
    MISSED,
    RECORDED,
    REFUSED,
    REPLAYED,
    Batch,
    LandingFile,
)
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import Problem, escape_text
from spillway.intake.landing import DeliveredFile, batch_date_of, landing_root
from spillway.levers.protocol import Say
from spillway.records import measure_file
from spillway.store.batches import batches_of_files, last_arrival, next_numbers, save_batches
from spillway.store.landing_zone import LandingFileChanged, open_landing_file
from spillway.store.tables import Tables


@dataclass(frozen=True)
class _Measured:
    """The content of a file (digest, records), or why it is not taken.

    `missed`: why it is left for later. `problem`: why it is refused (rule, value, remedy).
    """

    digest: str = ""
    records: int = 0
    missed: str | None = None
    problem: tuple[str, str, str] | None = None


def record_batches(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    step: Sequence[DeliveredFile],
    run_id: str,
    now: datetime,
    say: Say = lambda _: None,
    again: bool = False,
) -> list[Batch]:
    """Record files as batches, one per batch date, before any row of them is written.

    If a file has the bytes that are recorded under its name, only its new time is recorded, in the batch that knows the
    file. If that batch is in work, a later run does so, because a new time is no reason to reject the work of another
    run. `again`: the files were refused before, and are recorded again, with any bytes that they have now. Only the
    batches that know one of the files, by name or by bytes, are read.
    """
    stream = contract.stream
    root = landing_root(contract, tables.settings.landing)
    measured = dict(
        zip(
            step,
            engine.map(partial(_measure, contract, root), step, f"look at files of {contract.stream}"),
            strict=True,
        )
    )
    for one in step:
        if (missed := measured[one].missed) is not None:
            say(f"{contract.stream}: {escape_text(one.name)} is left for the next run: {missed}")
    found_digests = {one.digest for one in measured.values() if one.digest}
    known = batches_of_files(tables, stream, {one.name for one in step}, found_digests)
    touched = {} if again else _find_touched_files(known, {one: measured[one].digest for one in step})
    unmoved = {file.name for _, file in touched.values()}
    by_date: dict[date, list[DeliveredFile]] = {}
    for one in step:
        if measured[one].missed is None and one.name not in unmoved:
            by_date.setdefault(batch_date_of(one.name, now.date()), []).append(one)
    digests = {file.digest for batch in known for file in batch.files if file.status == FILE_INGESTED}
    (number, seq), arrived = next_numbers(tables, stream), last_arrival(tables, stream)
    batches = []
    for batch_date in sorted(by_date):
        number, first_seq, files = number + 1, seq, []
        for one in by_date[batch_date]:
            found = measured[one]
            status, reason = _file_status(contract, known, digests, one, found, again)
            # record n has seq base + n, and n starts at 1
            files.append(
                LandingFile(
                    one.name, one.size, found.digest, found.records, seq - 1, status, one.modified_at, reason
                )
            )
            if reason is not None:
                say(f"{contract.stream}: {reason}")
            if status == FILE_INGESTED:
                digests.add(found.digest)
                seq += found.records
        batches.append(
            Batch(
                contract.stream, number, batch_date, RECORDED, tuple(files), first_seq, seq - 1, run_id, now, now,
                seconds_covered=_arrival_seconds(by_date[batch_date], arrived),
            )
        )  # fmt: skip
        arrived = max(one.modified_at for one in by_date[batch_date])
    moved = _with_new_times(touched)
    return save_batches(tables, [*moved, *batches])[len(moved) :]


def _measure(contract: StreamContract, root: str, one: DeliveredFile) -> _Measured:
    if one.problem is not None:
        return _Measured(problem=one.problem)
    try:
        with open_landing_file(
            root, one.path, None if "://" in one.path else (one.size, one.modified_at)
        ) as source:
            found = measure_file(contract, source)
    except LandingFileChanged as problem:
        return _Measured(missed=str(problem))
    except OSError as problem:
        remedy = "grant the user of the run the right to read it, then spillway replay"
        return _Measured(problem=("be readable", problem.strerror or str(problem), remedy))
    return _Measured(found.digest, found.records)


def _file_status(
    contract: StreamContract,
    known: Sequence[Batch],
    digests: set[str],
    one: DeliveredFile,
    found: _Measured,
    again: bool,
) -> tuple[str, str | None]:
    """Return the status of a file, and a reason if it must be reported."""
    if found.problem is not None:
        return REFUSED, str(Problem(escape_text(one.name), "the file", *found.problem))
    before = next(
        (
            (batch, file)
            for batch in reversed(known)
            for file in batch.files
            if file.name == one.name and file.status in (FILE_INGESTED, DUPLICATE)
        ),
        None,
    )
    if not found.records:
        if before is None:
            return EMPTY, None
        return (
            EMPTY,
            f"{escape_text(one.name)} is empty now; the rows that batch {before[0].batch} took of it stay",
        )
    if found.digest in digests and contract.duplicates.files == "skip":
        return DUPLICATE, None
    if before is None or again:
        return FILE_INGESTED, None
    batch, file = before
    if contract.source.changed == "new_batch":
        return FILE_INGESTED, (
            f"{escape_text(one.name)} has changed since batch {batch.batch} took it in ({file.size:,} bytes then, "
            f"{one.size:,} now); it is taken in whole as a new batch, the earlier rows stay (source.changed: new_batch)"
        )  # fmt: skip
    rule = f"not change once it was taken in (batch {batch.batch}, {file.size:,} bytes)"
    remedy = (
        f"the rows that were taken in stay: deliver new rows in a new file, or spillway replay "
        f"{contract.stream} --file {escape_text(one.name.rsplit('/', 1)[-1])} takes in the whole file in addition"
    )
    return REFUSED, str(Problem(escape_text(one.name), "the file", rule, f"{one.size:,} other bytes", remedy))


def _find_touched_files(
    known: Sequence[Batch], digests: dict[DeliveredFile, str]
) -> dict[DeliveredFile, tuple[Batch, LandingFile]]:
    """Return the files whose bytes equal those recorded under their name, each with its batch and entry."""
    found = {}
    for one, digest in digests.items():
        for batch in known:
            for file in batch.files:
                same = (file.name, file.digest) == (one.name, digest)
                if digest and same and file.status not in (MISSED, REPLAYED):
                    found[one] = (batch, file)
    return found


def _with_new_times(touched: dict[DeliveredFile, tuple[Batch, LandingFile]]) -> list[Batch]:
    """Return the batches with the new times of these files, and no other change; batches in work are left out."""
    settled = {one: entry for one, entry in touched.items() if entry[0].status not in IN_WORK}
    batches = {batch.batch: batch for batch, _ in settled.values()}
    for one, (batch, file) in settled.items():
        files = tuple(
            replace(other, modified_at=one.modified_at) if other == file else other
            for other in batches[batch.batch].files
        )
        batches[batch.batch] = replace(batches[batch.batch], files=files)
    return list(batches.values())


def _arrival_seconds(files: Sequence[DeliveredFile], arrived: datetime | None) -> float | None:
    """Return the seconds from the arrival before these files to the last of these files; None if that is 0.

    If there is no earlier arrival, or it is not earlier (copies may keep their original times), the first of these
    files is used instead.
    """
    last, first = max(file.modified_at for file in files), min(file.modified_at for file in files)
    since = arrived if arrived is not None and arrived < last else first
    return (last - since).total_seconds() or None
