"""Take in landing files to `raw`, exactly once: number every tuple, and record every defect.

The table `batches` and a listing of the landing zone are the only truth about which files are new. There is no
checkpoint that could disagree with them. So no other code lists files; a file stream of Spark would, and it knows names
only. A file whose digest is known is skipped under any name. A batch is recorded (its files in a fixed order, its `seq`
numbers reserved) before any of its rows is written. A run that finds a batch which is only recorded writes the same
rows again. A backlog is taken in in steps of at most `source.files_at_a_time` files and `source.mb_at_a_time`
megabytes. Each step is a commit of its own, so a run that ends early keeps the steps that it finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime

from spillway.batch import INGESTED, RECORDED, UNTRAINED, Batch
from spillway.clock import utc_now
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import escape_text
from spillway.intake.landing import DeliveredFile, batch_date_of, find_landing_files, landing_root
from spillway.intake.new_batches import record_batches
from spillway.intake.rate import RatedBatch, borrow_rate, rated_batches
from spillway.intake.raw import write_batches
from spillway.levers.protocol import Say
from spillway.store.batches import load_batches, save_batches
from spillway.store.blobs import folder_exists
from spillway.store.tables import Tables

NAMES_SAID = 3


def ingest(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    run_id: str,
    say: Say = lambda _: None,
    clock: Callable[[], datetime] | None = None,
) -> list[Batch]:
    """Take in the new files of the stream. Return the batches that this call wrote, oldest first.

    A batch that cannot be written does not stop the others. The first such error is raised after all of them.
    """
    tables, clock = tables.now(), clock or utc_now
    stream, settings = contract.stream, tables.settings
    begun = load_batches(tables, stream, status=RECORDED)
    written, failed = write_batches(tables, engine, contract, begun, clock, say)
    root = landing_root(contract, settings.landing)
    if folder_exists(root):
        found = find_landing_files(contract, tables, clock())
        if found.settling:
            names = ", ".join(escape_text(one.name) for one in found.settling[:NAMES_SAID])
            say(
                f"{stream}: {len(found.settling):,} files changed less than {contract.source.settle_seconds:g} s ago "
                f"and wait until they have settled: {names}" + ", ..." * (len(found.settling) > NAMES_SAID)
            )
        steps = list(group_into_steps(contract, found.files_to_process, clock().date()))
        for number, step in enumerate(steps, 1):
            if len(steps) > 1:
                size = sum(one.size for one in step) / 1e6
                say(f"{stream}: step {number} of {len(steps)}: {len(step):,} files, {size:,.1f} MB")
            recorded = record_batches(tables, engine, contract, step, run_id, clock(), say)
            done, problems = write_batches(tables, engine, contract, recorded, clock, say)
            written += done
            failed += problems
    else:
        say(f"{stream}: nothing to take in, there is no {root} yet")
    written = _with_rates(tables, contract, written, clock, say)
    for problem in failed:
        raise problem
    return written


def has_intake(tables: Tables, contract: StreamContract, now: datetime | None = None) -> bool:
    """Return whether `ingest` has something to do or to report for a stream.

    `ingest` opens the tables again. These tables may be a little older, so that a run need not open them again for
    each of many streams without a new file.
    """
    if not folder_exists(landing_root(contract, tables.settings.landing)):
        return True
    waiting = load_batches(tables, contract.stream, status=[RECORDED, INGESTED, UNTRAINED])
    if any(batch.status == RECORDED or is_waiting_for_rate(batch) for batch in waiting):
        return True
    found = find_landing_files(contract, tables, now)
    return bool(found.files_to_process or found.settling)


def group_into_steps(
    contract: StreamContract, files: Sequence[DeliveredFile], run_date: date
) -> Iterator[list[DeliveredFile]]:
    """Yield the files in steps of bounded size, by date; a file that exceeds the bound is a step of its own."""
    most_files, most_bytes = contract.source.files_at_a_time, contract.source.mb_at_a_time * 1e6
    step: list[DeliveredFile] = []
    size = 0
    for one in sorted(files, key=lambda one: (batch_date_of(one.name, run_date), one.name)):
        if step and (len(step) >= most_files or size + one.size > most_bytes):
            yield step
            step, size = [], 0
        step.append(one)
        size += one.size
    if step:
        yield step


def can_be_rated(contract: StreamContract, batch: Batch, known: Sequence[RatedBatch]) -> bool:
    """Return whether a batch without a rate can get one now."""
    return borrow_rate(contract, batch, batch.rows or 0, known)[0] is not None


def is_waiting_for_rate(batch: Batch) -> bool:
    """Return whether the rate of the batch is unknown, so that no share of a channel can be computed for it."""
    return bool(
        batch.status in (INGESTED, UNTRAINED)
        and batch.rows
        and not batch.seconds_covered
        and not batch.is_pinned
    )


def _with_rates(
    tables: Tables,
    contract: StreamContract,
    written: Sequence[Batch],
    clock: Callable[[], datetime],
    say: Say,
) -> list[Batch]:
    """Give a rate to waiting batches, if another batch or the contract now provides one.

    Return `written`, with the new rates.
    """
    waiting = list(
        filter(is_waiting_for_rate, load_batches(tables, contract.stream, status=[INGESTED, UNTRAINED]))
    )
    known = rated_batches(tables, contract.stream) if waiting else []
    given: dict[int, Batch] = {}
    for batch in waiting:
        seconds, note = borrow_rate(contract, batch, batch.rows or 0, known)
        if seconds is not None:
            given[batch.batch] = batch.with_changes(clock(), seconds_covered=seconds, rate_note=note)
            say(f"{contract.stream}: batch {batch.batch} has a rate now: {note or 'as declared'}")
    given |= {one.batch: one for one in save_batches(tables, list(given.values()))}
    return [given.get(batch.batch, batch) for batch in written]
