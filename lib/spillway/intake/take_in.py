"""Taking in: landing files to `raw`, exactly once, every tuple numbered, every defect kept by name.

The table `batches` and a listing of the landing zone are the one truth of what is new: no checkpoint beside them can
disagree with it, so nothing else lists files (a stream of Spark's would, and it knows names only). A digest seen
before is skipped under whatever name it comes. A batch is recorded (files in fixed order, seq numbers set aside) before
any row of it is written; whoever finds it merely recorded writes the same rows again. What has piled up is taken in in
steps of at most `source.files_at_a_time` files and `source.mb_at_a_time` megabytes, each a commit of its own: a run
that ends early has taken in what it had begun with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime

from spillway.batch import RECORDED, TAKEN_IN, UNTRAINED, Batch
from spillway.clock import utc_now
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import safely
from spillway.intake.landing import Delivered, batch_date_of, landed, landing_root
from spillway.intake.rate import Rated, borrowed, rated_batches
from spillway.intake.raw import write_batches
from spillway.intake.record import record_batches
from spillway.levers.protocol import Say
from spillway.store.batches import load_batches, save_batches
from spillway.store.blobs import folder_exists
from spillway.store.tables import Tables

NAMES_SAID = 3


def take_in(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    run_id: str,
    say: Say = lambda _: None,
    clock: Callable[[], datetime] | None = None,
) -> list[Batch]:
    """Take in whatever is new of the stream; returns the batches this call wrote, oldest first.

    A batch that cannot be written keeps no other back: its error is raised when all others are.
    """
    tables, clock = tables.now(), clock or utc_now
    stream, settings = contract.stream, tables.settings
    begun = load_batches(tables, stream, status=RECORDED)
    written, failed = write_batches(tables, engine, contract, begun, clock, say)
    root = landing_root(contract, settings.landing)
    if folder_exists(root):
        found = landed(contract, tables, clock())
        if found.settling:
            names = ", ".join(safely(one.name) for one in found.settling[:NAMES_SAID])
            say(
                f"{stream}: {len(found.settling):,} files changed less than {contract.source.settle_seconds:g} s ago "
                f"and wait until they have settled: {names}" + ", ..." * (len(found.settling) > NAMES_SAID)
            )
        steps = list(in_steps(contract, found.waiting, clock().date()))
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


def in_steps(
    contract: StreamContract, files: Sequence[Delivered], run_date: date
) -> Iterator[list[Delivered]]:
    """The files in steps of bounded size, date by date; a file that is larger than a step is one of its own."""
    most_files, most_bytes = contract.source.files_at_a_time, contract.source.mb_at_a_time * 1e6
    step: list[Delivered] = []
    size = 0
    for one in sorted(files, key=lambda one: (batch_date_of(one.name, run_date), one.name)):
        if step and (len(step) >= most_files or size + one.size > most_bytes):
            yield step
            step, size = [], 0
        step.append(one)
        size += one.size
    if step:
        yield step


def can_be_rated(contract: StreamContract, batch: Batch, known: Sequence[Rated]) -> bool:
    """Whether a batch whose rate was not known when it came can be given one now."""
    return borrowed(contract, batch, batch.rows or 0, known)[0] is not None


def waits_for_a_rate(batch: Batch) -> bool:
    """Whether nothing is known of how fast the batch came, so that no part of a channel can be told for it."""
    return bool(
        batch.status in (TAKEN_IN, UNTRAINED)
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
    """Give those that wait for a rate one, now that another batch or the contract tells it."""
    waiting = list(
        filter(waits_for_a_rate, load_batches(tables, contract.stream, status=[TAKEN_IN, UNTRAINED]))
    )
    known = rated_batches(tables, contract.stream) if waiting else []
    given: dict[int, Batch] = {}
    for batch in waiting:
        seconds, note = borrowed(contract, batch, batch.rows or 0, known)
        if seconds is not None:
            given[batch.batch] = batch.becomes(clock(), seconds_covered=seconds, rate_note=note)
            say(f"{contract.stream}: batch {batch.batch} has a rate now: {note or 'as declared'}")
    given |= {one.batch: one for one in save_batches(tables, list(given.values()))}
    return [given.get(batch.batch, batch) for batch in written]
