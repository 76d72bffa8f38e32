"""Recording: new files become batches, their order fixed and their `seq` numbers set aside, before a row is written.

Each file is read twice: here for its digest and the number of its records, and once more to be parsed. One pass cannot
do: whether a file is taken at all hangs on all of its bytes (delivered before? changed under a known name?), the first
`seq` of each on how many records those before it have, and both must stand in `batches` before a row is written, so
that a run that dies ends in the same numbers. The first pass parses nothing; on a disk the second finds the bytes in
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial

from spillway.batch import (
    DUPLICATE,
    EMPTY,
    IN_WORK,
    MISSED,
    RECORDED,
    REFUSED,
    REPLAYED,
    TAKEN,
    Batch,
    LandingFile,
)
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import Problem, safely
from spillway.intake.landing import Delivered, batch_date_of, landing_root
from spillway.levers.protocol import Say
from spillway.records import measure_file
from spillway.store.batches import batches_of_files, last_arrival, next_numbers, save_batches
from spillway.store.landing_zone import GoneOrChanged, open_landed
from spillway.store.tables import Tables


@dataclass(frozen=True)
class _Measured:
    """What a file was found to hold; or why it is left for later (`missed`), or refused (rule, value, remedy)."""

    digest: str = ""
    records: int = 0
    missed: str | None = None
    problem: tuple[str, str, str] | None = None


def record_batches(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    step: Sequence[Delivered],
    run_id: str,
    now: datetime,
    say: Say = lambda _: None,
    again: bool = False,
) -> list[Batch]:
    """Record files as batches, one a batch date, before anything of them is written.

    A file whose bytes are known under its name is given its new time in the batch that knows it, by a later run where
    that batch is in work: for the sake of a time no other run's work is refused. `again`:
    files that were refused are asked for once more, whatever bytes they hold now. Of all batches only those are read
    that know one of the files by its name, or by its bytes.
    """
    stream = contract.stream
    root = landing_root(contract, tables.settings.landing)
    measured = dict(zip(step, engine.map(partial(_measure, contract, root), step), strict=True))
    for one in step:
        if (missed := measured[one].missed) is not None:
            say(f"{contract.stream}: {safely(one.name)} is left for the next run: {missed}")
    found_digests = {one.digest for one in measured.values() if one.digest}
    known = batches_of_files(tables, stream, {one.name for one in step}, found_digests)
    touched = {} if again else _touched(known, {one: measured[one].digest for one in step})
    unmoved = {file.name for _, file in touched.values()}
    by_date: dict[date, list[Delivered]] = {}
    for one in step:
        if measured[one].missed is None and one.name not in unmoved:
            by_date.setdefault(batch_date_of(one.name, now.date()), []).append(one)
    digests = {file.digest for batch in known for file in batch.files if file.status == TAKEN}
    (number, seq), arrived = next_numbers(tables, stream), last_arrival(tables, stream)
    batches = []
    for batch_date in sorted(by_date):
        number, first_seq, files = number + 1, seq, []
        for one in by_date[batch_date]:
            found = measured[one]
            status, reason = _fate(contract, known, digests, one, found, again)
            # record n has seq base + n, and n starts at 1
            files.append(
                LandingFile(
                    one.name, one.size, found.digest, found.records, seq - 1, status, one.modified_at, reason
                )
            )
            if reason is not None:
                say(f"{contract.stream}: {reason}")
            if status == TAKEN:
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


def _measure(contract: StreamContract, root: str, one: Delivered) -> _Measured:
    if one.problem is not None:
        return _Measured(problem=one.problem)
    try:
        with open_landed(
            root, one.path, None if "://" in one.path else (one.size, one.modified_at)
        ) as source:
            found = measure_file(contract, source)
    except GoneOrChanged as problem:
        return _Measured(missed=str(problem))
    except OSError as problem:
        remedy = "give whoever takes it in the right to read it, then spillway replay"
        return _Measured(problem=("be readable", problem.strerror or str(problem), remedy))
    return _Measured(found.digest, found.records)


def _fate(
    contract: StreamContract,
    known: Sequence[Batch],
    digests: set[str],
    one: Delivered,
    found: _Measured,
    again: bool,
) -> tuple[str, str | None]:
    """What becomes of a file, and why, where that has to be told."""
    if found.problem is not None:
        return REFUSED, str(Problem(safely(one.name), "the file", *found.problem))
    before = next(
        (
            (batch, file)
            for batch in reversed(known)
            for file in batch.files
            if file.name == one.name and file.status in (TAKEN, DUPLICATE)
        ),
        None,
    )
    if not found.records:
        if before is None:
            return EMPTY, None
        return (
            EMPTY,
            f"{safely(one.name)} is empty now; the rows that batch {before[0].batch} took of it stay",
        )
    if found.digest in digests and contract.duplicates.files == "skip":
        return DUPLICATE, None
    if before is None or again:
        return TAKEN, None
    batch, file = before
    if contract.source.changed == "new_batch":
        return TAKEN, (
            f"{safely(one.name)} has changed since batch {batch.batch} took it in ({file.size:,} bytes then, "
            f"{one.size:,} now); it is taken in whole as a new batch, the earlier rows stay (source.changed: new_batch)"
        )  # fmt: skip
    rule = f"not change once it was taken in (batch {batch.batch}, {file.size:,} bytes)"
    remedy = (
        f"the rows taken in stay: deliver what is new as a new file, or spillway replay {contract.stream} --file "
        f"{safely(one.name.rsplit('/', 1)[-1])} takes it in whole beside them"
    )
    return REFUSED, str(Problem(safely(one.name), "the file", rule, f"{one.size:,} other bytes", remedy))


def _touched(
    known: Sequence[Batch], digests: dict[Delivered, str]
) -> dict[Delivered, tuple[Batch, LandingFile]]:
    """Files that hold what was recorded under their names, and the entry that says so."""
    found = {}
    for one, digest in digests.items():
        for batch in known:
            for file in batch.files:
                same = (file.name, file.digest) == (one.name, digest)
                if digest and same and file.status not in (MISSED, REPLAYED):
                    found[one] = (batch, file)
    return found


def _with_new_times(touched: dict[Delivered, tuple[Batch, LandingFile]]) -> list[Batch]:
    """Their batches, with the times (and nothing else) that these files have now; none that is in work."""
    settled = {one: entry for one, entry in touched.items() if entry[0].status not in IN_WORK}
    batches = {batch.batch: batch for batch, _ in settled.values()}
    for one, (batch, file) in settled.items():
        files = tuple(
            replace(other, modified_at=one.modified_at) if other == file else other
            for other in batches[batch.batch].files
        )
        batches[batch.batch] = replace(batches[batch.batch], files=files)
    return list(batches.values())


def _arrival_seconds(files: Sequence[Delivered], arrived: datetime | None) -> float | None:
    """Seconds since the last arrival before these files, or across them; None where one moment is all we know.

    Across them too where they are older than what arrived before, as copies are that keep the time of their originals.
    """
    last, first = max(file.modified_at for file in files), min(file.modified_at for file in files)
    since = arrived if arrived is not None and arrived < last else first
    return (last - since).total_seconds() or None
