"""Write recorded batches: `raw`, `rejected` and the ledger's first stage; then the batch is taken in.

Each write replaces what the same batch wrote before. So a rerun, a retry, or a kill at any time leads to the same rows.
Batches are written together. If that fails, each batch is written alone, so that the fault of one does not stop the
others. A batch that fails a second time is quarantined (status `QUARANTINED`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from spillway.batch import INGESTED, MISSED, QUARANTINED, REFUSED, Batch
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import ConcurrentRun, SpillwayError, is_own_fault
from spillway.intake.dedupe import BatchRepeats, remove_repeats, save_filter_states
from spillway.intake.file_results import FILE_REFUSED, FileResult, files_with_results, whole_file_rows
from spillway.intake.parse import DraftTarget, ParseResult, discard_drafts, parse_all
from spillway.intake.rate import HISTORY_NOTE, latest_event_end, rated_batches, time_covered
from spillway.intake.rejected_rows import mark_as_replayed, originals_of
from spillway.ledger import LedgerRow
from spillway.levers.protocol import Say
from spillway.records import (
    absent_column,
    bounded_notes,
    bounded_reasons,
    is_absent_column,
    is_repeated_hour,
    sum_counts,
)
from spillway.store.batches import batches_of_files, reserve, save_batches, write_ledger
from spillway.store.delta_log import commit_bytes
from spillway.store.file_writer import WrittenFile, write_file
from spillway.store.tables import Tables

INTAKE = "intake"


def write_batches(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    batches: Sequence[Batch],
    clock: Callable[[], datetime],
    say: Say,
) -> tuple[list[Batch], list[SpillwayError]]:
    """Write recorded batches. Return the written batches, and the errors of the others."""
    if not batches:
        return [], []
    try:
        return _write(tables, engine, contract, batches, clock, say), []
    except ConcurrentRun:
        raise
    except SpillwayError as problem:
        if len(batches) == 1 and not is_own_fault(problem):
            return [], [problem]
        if len(batches) == 1:
            (after,) = [one.failed(clock(), problem) for one in batches]
            save_batches(tables, [after])
            return [], [SpillwayError(_failure_message(after, problem))]
    alone = [write_batches(tables, engine, contract, [one], clock, say) for one in batches]
    return [one for done, _ in alone for one in done], [one for _, failed in alone for one in failed]


def _failure_message(batch: Batch, problem: SpillwayError) -> str:
    if batch.status == QUARANTINED:
        return batch.quarantine_sentence(problem)
    return f"{batch.stream}: batch {batch.batch} could not be written and is tried once more: {problem}"


@dataclass(frozen=True)
class _IntakeResult:
    """The result of a batch's files, and the files of `raw` written for it."""

    batch: Batch
    """The batch, with the result of each of its files."""
    reasons: Mapping[str, int]
    """Number of records that are not in `raw`, by reason."""
    raw: tuple[WrittenFile, ...]


def _write(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    batches: Sequence[Batch],
    clock: Callable[[], datetime],
    say: Say,
) -> list[Batch]:
    stream, numbers = contract.stream, [batch.batch for batch in batches]
    raw = tables.at("raw", stream).with_attributes([(a.name, a.type) for a in contract.attributes])
    if raw.exists:
        # refuse a column with a changed type before its rows are compared with stored rows of the old type
        raw.evolve_schema()
    rejected = tables.at("rejected")
    reserve(tables, batches, [raw, rejected, *map(tables.at, ("ledger", "sketches"))])
    kept = originals_of(tables, contract, batches)
    parsed, fates = parse_all(engine, contract, tables.settings.landing, raw, rejected, batches, kept)
    problem = next((one.problem for one in parsed if one.problem), None)
    if problem is not None:
        discard_drafts(raw, rejected, parsed)
        raise problem
    taken: Mapping[int, _IntakeResult] = {
        batch.batch: _intake_result(batch, fates[batch.batch], parsed) for batch in batches
    }
    aside = [written for one in parsed for written in one.rejected]
    for one in taken.values():
        refused = [
            f
            for f in one.batch.files
            if f.status == REFUSED and not _has_whole_file_row(fates[one.batch.batch], f)
        ]
        if refused:
            target = DraftTarget.of(rejected)
            whole = write_file(
                target.folder, {"stream": stream}, target.schema, [whole_file_rows(refused, one.batch)]
            )
            aside += [whole] if whole is not None else []
        for file in one.batch.files:
            if file.status in (REFUSED, MISSED) and file.reason:
                say(f"{stream}: {file.reason}")
    files = {n: list(taken[n].raw) for n in numbers}
    repeated = remove_repeats(
        tables, engine, contract, [one.batch for one in taken.values()], raw, files, aside
    )
    taken = _claim_if_changed(tables, batches, taken, clock)
    days = sorted({batch.batch_date for batch in batches})
    gone = raw.publish([one for found in files.values() for one in found], batch_date=days, batch=numbers)
    aside_gone = None
    try:
        aside_gone = rejected.publish(aside, stream=stream, batch=numbers)
        return _finish_batches(tables, contract, taken, parsed, repeated, files, clock, say)
    except ConcurrentRun:
        # if our commit replaced nothing, the other run has no rows of these batches, and no commit has removed ours
        if not gone:
            with suppress(SpillwayError):
                raw.delete(batch_date=days, batch=numbers)
        if aside_gone == []:
            with suppress(SpillwayError):
                rejected.delete(stream=stream, batch=numbers)
        raise


def _claim_if_changed(
    tables: Tables,
    batches: Sequence[Batch],
    taken: Mapping[int, _IntakeResult],
    clock: Callable[[], datetime],
) -> Mapping[int, _IntakeResult]:
    """Return `taken`; if a file changed after it was recorded, save the batches first.

    Saving raises their revisions. So a concurrent run that read the old file, and has other rows of these batches,
    loses its compare-and-swap from now on. A run that has no rows of these batches then makes no commit that would stop
    this run.
    """
    if not any(file.status == MISSED for one in taken.values() for file in one.batch.files):
        return taken
    claimed = {one.batch: one for one in save_batches(tables, [one.with_changes(clock()) for one in batches])}
    return {
        number: replace(one, batch=replace(one.batch, revision=claimed[number].revision))
        for number, one in taken.items()
    }


def _finish_batches(
    tables: Tables,
    contract: StreamContract,
    taken: Mapping[int, _IntakeResult],
    parsed: Sequence[ParseResult],
    repeated: Mapping[int, BatchRepeats],
    files: Mapping[int, Sequence[WrittenFile]],
    clock: Callable[[], datetime],
    say: Say,
) -> list[Batch]:
    """Finish after the rows are written: note replayed records, write the ledger, and mark the batches as taken in."""
    stream, numbers, rejected = contract.stream, list(taken), tables.at("rejected")
    settled = [taken[number].batch for number in numbers]
    names = {file.name for one in settled for file in one.files}
    mark_as_replayed(rejected, stream, settled, batches_of_files(tables, stream, names))
    states = [one.state for _, one in sorted(repeated.items()) if one.state is not None]
    save_filter_states(tables, contract, numbers, states)
    ledger: list[LedgerRow] = []
    written: dict[int, Batch] = {}
    rated = partial(rated_batches, tables, stream, written.values())
    for number, one in taken.items():
        again, rows = repeated.get(number), sum(part.rows for part in files[number])
        own = [part for part in parsed if part.batch == number]
        notes = _count_notes(contract, own, rows + (len(again.rows) if again else 0))
        ledger += _ledger_rows(contract, one, rows, notes, again, files[number])
        end_before = partial(latest_event_end, tables, stream, number, list(written.values()))
        time = time_covered(tables, contract, one.batch, rows, rated, end_before)
        done = one.batch.with_changes(
            clock(),
            status=INGESTED,
            rows=rows,
            rejected=sum(one.reasons.values()),
            deduplicated=_delivered_before(contract, one.batch) + (len(again.rows) if again else 0),
            seconds_covered=time.seconds,
            rate_note=time.note,
            event_end=time.event_end,
            overhead_bytes=_overhead_bytes(contract, files[number]),
            attempts=0,
            reason=None,
        )
        written[number] = done
        _report_batch(done, notes, say)
    write_ledger(tables, stream, numbers, [INTAKE], ledger)
    return save_batches(tables, [written[number] for number in numbers])


def _overhead_bytes(contract: StreamContract, files: Sequence[WrittenFile]) -> int:
    """Return the bytes of a batch that are in no column: footers, and what the log states of the files."""
    columns = ("seq", *contract.names)
    around = sum(file.size - sum(file.column_bytes.get(name, 0) for name in columns) for file in files)
    return around + commit_bytes(files) if files else 0


def _intake_result(batch: Batch, fates: Sequence[FileResult], parsed: Sequence[ParseResult]) -> _IntakeResult:
    told = [one.reasons for one in fates if one.whole or one.status not in (REFUSED, MISSED)]
    gone = sum(file.status == REFUSED for file in batch.files)
    gone += sum(max(1, one.good + one.bad) for one in fates if one.status == REFUSED and not one.whole)
    reasons = bounded_reasons(sum_counts([*told, *([{FILE_REFUSED: gone}] if gone else [])]))
    raw = tuple(one.raw for one in parsed if one.batch == batch.batch and one.raw)
    return _IntakeResult(replace(batch, files=files_with_results(batch, fates)), reasons, raw)


def _has_whole_file_row(fates: Sequence[FileResult], file: object) -> bool:
    """Return whether `rejected` already has a row for the refused file."""
    base = getattr(file, "base_seq", None)
    name = getattr(file, "name", None)
    return any(one.whole and (one.file.base_seq, one.file.name) == (base, name) for one in fates)


def _report_batch(batch: Batch, notes: Mapping[str, int], say: Say) -> None:
    parts = [f"{batch.rows:,} tuples"]
    parts += [f"{batch.rejected:,} refused (see rejected)"] * bool(batch.rejected)
    parts += [f"{batch.deduplicated:,} delivered before"] * bool(batch.deduplicated)
    parts += [f"{count:,} with {note}" for note, count in notes.items()]
    say(f"{batch.stream}: took in batch {batch.batch} of {batch.batch_date}: {', '.join(parts)}")
    for note, count in notes.items():
        if is_absent_column(note) and count == batch.rows:
            odd = [one for one in notes if not is_absent_column(one) and not is_repeated_hour(one)]
            renamed = f"; was it renamed ({', '.join(odd[:3])})?" if odd else ""
            say(
                f"{batch.stream}: WARNING: batch {batch.batch}: {note} in all {count:,} records: it is null in them"
                f"{renamed}; correct the source or schemas/streams/{batch.stream}.yaml"
            )
    if batch.rate_note and HISTORY_NOTE not in batch.rate_note:
        say(f"{batch.stream}: batch {batch.batch}: {batch.rate_note}")


def _count_notes(contract: StreamContract, parsed: Sequence[ParseResult], rows: int) -> dict[str, int]:
    """Return the oddities of the rows that were taken in, as short notes with their counts."""
    notes = sum_counts(one.notes for one in parsed)
    nulls = sum_counts(one.nulls for one in parsed)
    # a JSON record has no columns: a field is absent if no record has it
    if rows and contract.source.format == "json":
        fields = {a.name: a.source_name for a in contract.attributes}
        notes |= {absent_column(fields[name]): rows for name, count in nulls.items() if count == rows}
    return bounded_notes(notes)


def _delivered_before(contract: StreamContract, batch: Batch) -> int:
    """Return the records of whole files that were delivered before; the header of a CSV file does not count."""
    header = contract.source.format == "csv" and contract.source.options.header
    return sum(max(0, file.records - header) for file in batch.files if file.status == "duplicate")


def _ledger_rows(
    contract: StreamContract,
    one: _IntakeResult,
    rows: int,
    notes: Mapping[str, int],
    again: BatchRepeats | None,
    files: Sequence[WrittenFile],
) -> Iterator[LedgerRow]:
    """Yield the ledger rows of the first stage: the total, and the delivered records by outcome."""
    batch = one.batch
    line = partial(LedgerRow, "stream", batch.stream, batch.batch, batch.batch_date, INTAKE, 0, "rows")
    columns = ("seq", *contract.names)
    landed = sum(file.size for file in batch.accepted_files)
    kept = sum(part.column_bytes.get(name, 0) for part in files for name in columns)
    before = _delivered_before(contract, batch)
    repeats = len(again.rows) if again is not None else 0
    refused = sum(one.reasons.values())
    yield line(
        offered=rows + refused + before + repeats,
        kept=rows,
        rejected=refused,
        deduplicated=before + repeats,
        bytes_offered=landed,
        bytes_kept=kept,
    )
    yield line("reason", "taken in", "taken in", offered=rows, kept=rows)
    for reason, count in sorted(one.reasons.items()):
        yield line("reason", reason, reason, offered=count, rejected=count)
    for note, count in notes.items():
        yield line("note", note, "taken all the same", offered=count, kept=count)
    if before:
        told = "file delivered before"
        yield line("reason", told, told, offered=before, deduplicated=before)
    if again is not None:
        yield line("reason", again.reason, again.reason, offered=repeats, deduplicated=repeats)
