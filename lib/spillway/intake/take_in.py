"""Taking in: landing files to `raw`, exactly once, every tuple numbered, every defect kept by name.

The table `batches` knows every file ever taken in, and a digest seen before is skipped under whatever name it comes. A
batch is recorded (files in fixed order, seq numbers set aside) before any row of it is written; whoever finds it merely
recorded writes the same rows again. A task reads its files once: what is good goes into a file of `raw`, what is not
into one of `rejected`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import RECORDED, TAKEN_IN, Batch, utc_now
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError
from spillway.intake.first_time import without_repeats
from spillway.intake.landing import (
    changed_files,
    landing_root,
    new_files,
)
from spillway.intake.parse import ParsedFiles, drop_drafts, parse_all
from spillway.intake.record import record_batches
from spillway.intake.repeats import Repeated
from spillway.ledger import LedgerRow
from spillway.levers.protocol import Say
from spillway.records import absent_column, bounded_notes, bounded_reasons, counted_together
from spillway.store.batches import load_batches, reserve, save_batches
from spillway.store.blobs import folder_exists
from spillway.store.files import read_rows
from spillway.store.ledgers import write_ledger
from spillway.store.tables import Tables
from spillway.store.writing import Written

INTAKE = "intake"


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
    recorded = record_batches(tables, engine, contract, known, new_files(contract, settings, known), run_id)
    return [*written, *_write(tables, engine, contract, recorded, say)]


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
    reserve(tables, batches, [raw, rejected, *map(tables.at, ("ledger", "sketches"))])
    parsed = parse_all(engine, contract, tables.settings.landing, raw, rejected, batches)
    problem = next((one.problem for one in parsed if one.problem), None)
    if problem is not None:
        drop_drafts(raw, rejected, parsed)
        raise problem
    files = {n: [one.raw for one in parsed if one.batch == n and one.raw] for n in numbers}
    aside = [written for one in parsed for written in one.rejected]
    repeated = without_repeats(tables, engine, contract, batches, raw, files, aside)
    raw.publish([one for found in files.values() for one in found], batch_date=days, batch=numbers)
    rejected.publish(aside, stream=stream, batch=numbers)
    states = [one.state for one in repeated.values() if one.state is not None]
    if states:
        tables.at("sketches").replace(states, stream=stream, kind="stable_bloom", batch=numbers)
    now = utc_now()
    ledger: list[LedgerRow] = []
    done = []
    for batch in batches:
        own = [one for one in parsed if one.batch == batch.batch]
        reasons = bounded_reasons(counted_together(one.reasons for one in own))
        again = repeated.get(batch.batch)
        rows, refused = sum(one.rows for one in files[batch.batch]), sum(reasons.values())
        _refuse_too_many(contract, batch, rows, refused)
        notes = _noted(contract, own, rows + (len(again.rows) if again else 0))
        ledger += _lines(contract, batch, rows, reasons, notes, again, files[batch.batch])
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
        parts += [f"{count:,} with {note}" for note, count in notes.items()]
        say(f"{stream}: took in batch {batch.batch} of {batch.batch_date}: {', '.join(parts)}")
    write_ledger(tables, stream, numbers, [INTAKE], ledger)
    return save_batches(tables, done)


def _noted(contract: StreamContract, parsed: Sequence[ParsedFiles], rows: int) -> dict[str, int]:
    """What is odd about rows that were taken, a few words each."""
    notes = counted_together(one.notes for one in parsed)
    nulls = counted_together(one.nulls for one in parsed)
    # a record of JSON has no columns: what none of them has is what is absent
    if rows and contract.source.format == "json":
        fields = {a.name: a.source_name for a in contract.attributes}
        notes |= {absent_column(fields[name]): rows for name, count in nulls.items() if count == rows}
    return bounded_notes(notes)


def _delivered_before(batch: Batch) -> int:
    return sum(file.records for file in batch.files if file.status == "duplicate")


def _lines(
    contract: StreamContract,
    batch: Batch,
    rows: int,
    reasons: Mapping[str, int],
    notes: Mapping[str, int],
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
    for note, count in notes.items():
        yield line("note", note, "taken all the same", offered=count, kept=count)
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
