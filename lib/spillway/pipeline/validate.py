"""Validate what changed: recover it, certify it against `raw`, run the expectation suites, and retire raw dates.

Only batches that were shed since their last certification are recovered and validated, together with the windows of
joins and queries that read these streams, if they were computed since their last validation. A failed expectation fails
the run with a sentence. Only validated batches may be retired.

`check_changed` runs every expectation suite on what changed, writes the outcomes, and records the failures.

`retire_raw_dates` deletes raw dates that are old enough and whose recovery was validated, if the contract says so. A
certificate holds for the revision of the batch that it measured. The batch becomes `retired` by a save that is refused
if the batch has changed since. So if a backfill and a retirement meet, one gives way. The row of the batch then names
the files to delete, until exactly these files are gone from the table and the disk. If a run is interrupted in between,
the next run continues. Nothing is vacuumed: a reader that has such a file open gets an error that says that it is gone.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import DONE, RETIRED, Batch
from spillway.checks import ExpectationsFailed, Outcome, StoredRows, failures, load_in_background, run_suites
from spillway.checks.views import types_of
from spillway.clock import utc_now
from spillway.contracts import Contracts, StreamContract
from spillway.engine.protocol import Engine, Step
from spillway.errors import ConcurrentRun
from spillway.ledger import BESIDE, LedgerRow
from spillway.levers.protocol import Say
from spillway.levers.windows import Window
from spillway.registry import lever
from spillway.store.batches import (
    certified_revisions,
    load_batches,
    save_batches,
    save_together,
    write_ledger,
)
from spillway.store.files import DataFile, as_date, batch_bytes, keep_files_open
from spillway.store.tables import Between, Tables
from spillway.streams.certify import certification_step
from spillway.streams.drafts import added_columns
from spillway.streams.facts import newest_facts
from spillway.streams.faults import Faults
from spillway.streams.recover import RECOVER
from spillway.streams.sketch_builder import batches_without_sketch
from spillway.streams.train import last_rows_reader
from spillway.workloads.validation import suite_tables, unvalidated_windows


def check_changed(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    work: Mapping[str, Sequence[Batch]],
    windows: Mapping[str, Sequence[Window]],
    run_id: str,
    say: Say,
    faults: Faults,
) -> list[Outcome]:
    """Run every suite on the batches and windows that changed, write the outcomes, and record the failures."""
    started, now = time.monotonic(), utc_now()
    streams = {stream: contracts.streams[stream] for stream in work}
    added = {stream: added_columns(contract) for stream, contract in streams.items()}
    judged = _suite_tables(tables, streams, work) if work else {}
    looked_at = partial(_window_tables, tables, contracts, windows)
    for mine in faults.run_each("examine", windows, looked_at).values():
        for name, part in mine.items():
            judged[name] = pa.concat_tables([judged[name], part]) if name in judged else part
    outcomes = run_suites(engine, judged, streams, tables.settings, added=added, run_id=run_id)
    for stream, contract in streams.items():
        for found in _drift_outcomes(tables, contract, work[stream]):
            say(found.sentence)
            outcomes.append(found)
    rows = [outcome.row(run_id, now) for outcome in outcomes]
    # keep the outcomes of other streams in this run: a run may validate channel by channel
    whose = [*work, *windows, None]
    seen = {row["table"] for row in rows}
    tables.at("validations").replace(rows, table=sorted(seen), run_id=run_id, stream=whose)
    failed = failures(outcomes)
    rules = {(o.table, o.expectation) for o in outcomes}
    took = time.monotonic() - started
    say(f"{len(rules)} expectations on {len(seen)} tables, {len(failed)} failed, in {took:.1f} s")
    if failed:
        faults.record("", "judge", ExpectationsFailed(failed))
    return outcomes


def _window_tables(
    tables: Tables, contracts: Contracts, windows: Mapping[str, Sequence[Window]], subject: str
) -> dict[str, Any]:
    return suite_tables(tables, contracts, subject, windows[subject])


def _suite_tables(
    tables: Tables, streams: Mapping[str, StreamContract], work: Mapping[str, Sequence[Batch]]
) -> dict[str, Any]:
    """Return what suites may read: the rows of the batches in shared tables, and the files of the streams' tables."""
    found: dict[str, Any] = {}
    numbers = sorted({batch.batch for batches in work.values() for batch in batches})
    since = min(batch.updated_at for batches in work.values() for batch in batches)
    for name, contract in tables.contracts.items():
        if "window" in contract.names:
            continue  # a table of joins and queries, which is validated by window: `suite_tables`
        table = tables.at(name) if contract.scope == "shared" else None
        if table is None:
            for stream in streams:
                kept = exact_columns(tables, streams[stream], work[stream])
                own = tables.at(name, stream)
                if own.exists:
                    days = sorted({batch.batch_date for batch in work[stream]})
                    mine = [batch.batch for batch in work[stream]]
                    files = own.files(batch_date=days, batch=mine)
                    types = types_of(own.schema)
                    summed = tuple(column for column in kept if column in types)
                    found[f"{name}/{stream}"] = StoredRows(types, tuple(files), frozenset(mine), summed)
        elif table.exists:
            columns = contract.names
            where: dict[str, Any] = {}
            of = next((column for column in ("stream", "subject") if column in columns), None)
            if of is not None and contract.curated and name != "validations":
                where[of] = list(work)
            if where and "batch" in columns:
                where["batch"] = numbers
            if name == "models":
                # the versions that these batches were shed with, and those of the next batches
                where["version"] = _versions(tables, work)
            if name == "validations":
                where = {"validated_at": Between(since), "stream": [*work, None]}
            if contract.curated:
                rows = table.rows(**where)
                found[name] = _of_these(rows, of, work) if of and "batch" in where else rows
    return found


def _of_these(rows: pa.Table, of: str, work: Mapping[str, Sequence[Batch]]) -> pa.Table:
    """Return the rows of these batches by stream and number; a number alone could match a batch of another stream."""
    changed = {(stream, batch.batch) for stream, batches in work.items() for batch in batches}
    pairs = zip(rows[of].to_pylist(), rows["batch"].to_pylist(), strict=True)
    return rows.filter(pa.array([pair in changed for pair in pairs], pa.bool_()))


def exact_columns(tables: Tables, contract: StreamContract, batches: Sequence[Batch]) -> list[str]:
    """Return the attributes that are exact in at least one of the batches; certificates do not cover these values."""
    rows = tables.at("certificates").rows(
        ["batch", "attribute", "shed_values", "rounded_values"],
        stream=contract.stream,
        batch=[batch.batch for batch in batches],
    )
    touched: dict[str, set[int]] = {}
    for row in rows.to_pylist():
        if row["shed_values"] or row["rounded_values"]:
            touched.setdefault(row["attribute"], set()).add(row["batch"])
    return [name for name in contract.names if len(touched.get(name, ())) < len(batches)]


def _versions(tables: Tables, work: Mapping[str, Sequence[Batch]]) -> list[int]:
    """Return the versions of facts that batches were shed with, and all later versions."""
    used = {version for batches in work.values() for batch in batches for version in batch.models.values()}
    newest = tables.at("models").rows(["version"], stream=list(work))["version"]
    return (
        sorted(used | set(pc.unique(newest.filter(pc.greater_equal(newest, max(used)))).to_pylist()))
        if used
        else []
    )


def _drift_outcomes(tables: Tables, contract: StreamContract, batches: Sequence[Batch]) -> Iterator[Outcome]:
    """Yield what the newest of these batches shows about the facts in force (drift); reported, but never a failure."""
    edge = last_rows_reader(tables, contract.stream, batches[-1:])
    for name in contract.lever_names:
        facts = newest_facts(tables, contract.stream, name)
        for one in lever(name).detect_drift(contract, facts, edge) if facts is not None else ():
            yield Outcome(
                "models",
                contract.stream,
                None,
                one.rule,
                True,
                one.observed,
                one.expected,
                contract.stream,
                one.sentence,
                True,
            )


RETIRE = "retire"


def retire_raw_dates(
    tables: Tables, contract: StreamContract, needed: Collection[int], say: Say
) -> list[Batch]:
    """Delete raw dates that are older than `retain_raw` and whose recovery was validated.

    `needed`: batches whose dates stay, because other steps still need their raw rows.
    """
    _finish_retirement(tables, contract.stream)
    gone = _ready(tables, contract, needed) if contract.retain_raw.retire else []
    if gone:
        # mark them as retired before they are deleted: a backfill without raw tuples would replace sent rows by nothing
        now = utc_now()
        save_batches(
            tables,
            [
                one.with_changes(now, status=RETIRED, raw_leaving=tuple(_files_to_delete(tables, one)))
                for one in gone
            ],
        )
        freed = _finish_retirement(tables, contract.stream)
        days = sorted({str(batch.batch_date) for batch in gone})
        say(f"{contract.stream}: retired raw of {', '.join(days)}: {freed:,} bytes")
    return gone


def may_retire(tables: Tables, contract: StreamContract) -> bool:
    """Return whether `retire` may have something to do for a stream: dates to delete, or an interrupted deletion."""
    if contract.retain_raw.retire and _ready(tables, contract, ()):
        return True
    return bool(_leaving_numbers(tables, contract.stream))


def _ready(tables: Tables, contract: StreamContract, needed: Collection[int]) -> list[Batch]:
    """Return the batches of the whole dates that may be retired."""
    limit = utc_now().date() - timedelta(days=contract.retain_raw.days)
    every = load_batches(tables, contract.stream, batch_date=_days_of_raw(tables, contract.stream, limit))
    proven = certified_revisions(tables, contract.stream, [batch.batch for batch in every])
    gone: list[Batch] = []
    for day in sorted({batch.batch_date for batch in every}):
        dated = [batch for batch in every if batch.batch_date == day]
        if all(
            one.status == RETIRED or (one.batch not in needed and _is_retirable(one, proven)) for one in dated
        ):
            gone += [batch for batch in dated if batch.status == DONE]
    return gone


def _is_retirable(batch: Batch, proven: Mapping[int, int]) -> bool:
    """Return whether every promise about the present revision of the batch was validated."""
    if batch.status != DONE:
        return False
    return not batch.rows or (batch.is_validated and proven.get(batch.batch) == batch.validated_revision)


def _days_of_raw(tables: Tables, stream: str, limit: date) -> set[date]:
    """Return the dates before the limit that still have files in `raw`; retired dates are not looked at again."""
    days = {as_date(file.value("batch_date")) for file in tables.at("raw", stream).files()}
    return {day for day in days if day is not None and day < limit}


def _finish_retirement(tables: Tables, stream: str) -> int:
    """Delete the files of retired batches, also those of an interrupted run; return their bytes."""
    leaving = _retired_with_files(tables, stream)
    if not leaving:
        return 0
    days, numbers = sorted({one.batch_date for one in leaving}), [one.batch for one in leaving]
    raw = tables.at("raw", stream)
    held = {one.batch: _files_to_delete(tables, one) for one in leaving}
    strange = [one for one in leaving if not held[one.batch].keys() <= set(one.raw_leaving)]
    # the files were compacted since: store their names before they are deleted, or an interrupted run would leave them
    # on disk
    now = utc_now()
    leaving = [one for one in leaving if one not in strange] + save_batches(
        tables, [one.with_changes(now, raw_leaving=(*one.raw_leaving, *held[one.batch])) for one in strange]
    )
    told = (
        tables.at("ledger").rows(["batch"], subject=stream, batch=numbers, stage=RETIRE)["batch"].to_pylist()
    )
    untold = [one for one in leaving if one.batch not in told]
    freed = {one.batch: _raw_bytes(tables, one) for one in leaving}
    lines = [_line(one, freed[one.batch]) for one in untold]
    write_ledger(tables, stream, [one.batch for one in untold], [RETIRE], lines)
    raw.delete(batch_date=days, batch=numbers)
    live = {file.path for file in tables.now().at("raw", stream).files(batch_date=days)}
    paths = {f"{raw.path}/{path}" for one in leaving for path in one.raw_leaving}
    raw.erase(DataFile(path, 0, ()) for path in sorted(paths - live))
    save_batches(tables, [replace(one, raw_leaving=()) for one in leaving])
    return sum(freed.values())


def _retired_with_files(tables: Tables, stream: str) -> list[Batch]:
    """Return the retired batches whose files may still exist."""
    numbers = _leaving_numbers(tables, stream)
    return load_batches(tables, stream, batch=numbers) if numbers else []


def _leaving_numbers(tables: Tables, stream: str) -> list[int]:
    edges = tables.at("batches").rows(["batch", "raw_leaving"], stream=stream, status=RETIRED).to_pylist()
    return [row["batch"] for row in edges if row["raw_leaving"]]


def _files_to_delete(tables: Tables, batch: Batch) -> dict[str, DataFile]:
    """Return the batch's files in `raw`, by path below the table's folder."""
    raw = tables.at("raw", batch.stream)
    files = raw.files(batch_date=batch.batch_date, batch=batch.batch)
    return {file.path.removeprefix(f"{raw.path}/"): file for file in files}


def _line(batch: Batch, freed: int) -> LedgerRow:
    rows = batch.rows or 0
    return LedgerRow(
        "stream",
        batch.stream,
        batch.batch,
        batch.batch_date,
        RETIRE,
        BESIDE,
        "rows",
        reason="raw was deleted after validation",
        offered=rows,
        shed=rows,
        recoverable=rows,
        bytes_offered=freed,
    )


def _raw_bytes(tables: Tables, batch: Batch) -> int:
    raw = tables.at("raw", batch.stream)
    files = raw.files(batch_date=batch.batch_date, batch=batch.batch)
    columns, beside = batch_bytes(files, raw.schema.names, batch.batch)
    return sum(columns.values()) + beside


def changed_batches(tables: Tables, stream: str, every: bool = False) -> list[Batch]:
    """Return the shed batches that changed since all their expectations passed; with `every`, all shed batches.

    A run that failed, or was interrupted before validation, may leave certificates. Its batches are validated again.
    """
    done = {"status": DONE, "rows": Between(1)}
    if every:
        return load_batches(tables, stream, **done)
    edges = tables.at("batches").rows(["batch", "revision", "validated_revision"], stream=stream, **done)
    still = pc.fill_null(pc.equal(pc.add(edges["validated_revision"], 1), edges["revision"]), False)
    changed = edges["batch"].filter(pc.invert(still)).to_pylist()
    return load_batches(tables, stream, batch=changed, **done) if changed else []


def _mark_unvalidated(tables: Tables, batches: Sequence[Batch]) -> Step[list[Batch]]:
    """Mark batches as not validated, and return them; else a failure now would be hidden by an earlier success."""
    noted = [batch for batch in batches if batch.is_validated]
    saved = yield from save_together(tables, [replace(batch, validated_revision=None) for batch in noted])
    now = {batch.batch: batch for batch in [*batches, *saved]}
    return [now[batch.batch] for batch in batches]


@keep_files_open()
def validate(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    run_id: str,
    say: Say = lambda _: None,
    streams: Sequence[str] | None = None,
    every: bool = False,
) -> list[Outcome]:
    """Recover, certify and validate what changed; return the outcomes, or raise the sentences of all failures.

    If a stream cannot be recovered, certified or validated, the others still are, and are still retired.
    """
    tables, faults = tables.now(), Faults(say)
    chosen = [contracts.stream(name) for name in (streams or contracts.streams)]
    names = [one.stream for one in chosen]
    work = faults.run_each("validate", names, lambda stream: changed_batches(tables, stream, every))
    work = {stream: batches for stream, batches in work.items() if batches}
    windows = faults.attempt("", "judge", partial(unvalidated_windows, tables, contracts, names)) or {}
    outcomes: list[Outcome] = []

    def certify(stream: str) -> Step[list[Batch]]:
        batches = yield from _mark_unvalidated(tables, work[stream])
        yield from certification_step(tables, contracts.streams[stream], batches, say)
        return batches

    if work or windows:
        engine.load()
        load_in_background()  # load while the engine starts; nothing is loaded if nothing changed
    else:
        say("nothing was shed since the last validation")
    steps = {stream: certify(stream) for stream in work}
    certified = faults.run_steps("certify", engine, steps, work, lambda _: RECOVER)
    if certified or windows:
        work_out = partial(check_changed, tables, engine, contracts, certified, windows, run_id, say, faults)
        judged = faults.attempt("", "judge", work_out)
        outcomes = judged or []
        now = tables.now()
        marks = {stream: _mark_validated(now, certified[stream], outcomes, say) for stream in certified}
        if judged is not None:
            faults.run_steps("finish", engine, marks)
    look = tables.now()
    faults.run_each("retire", names, lambda stream: _retire(look, contracts.streams[stream], say))
    if streams is None:
        faults.record_broken_contracts(contracts)
    faults.raise_all()
    return outcomes


def _mark_validated(
    tables: Tables, batches: Sequence[Batch], outcomes: Sequence[Outcome], say: Say
) -> Step[None]:
    """Store the revisions of a stream's batches whose expectations, and those of shared tables, all passed."""
    stream = batches[0].stream
    failed = {one.batch_date for one in failures(outcomes) if one.stream in (stream, "")}
    held = [one for one in batches if not failed & {None, one.batch_date}]
    stands = {
        one.batch: one.revision for one in load_batches(tables, stream, batch=[one.batch for one in held])
    }
    same = [one for one in held if stands.get(one.batch) == one.revision]
    try:
        yield from save_together(tables, [replace(one, validated_revision=one.revision) for one in same])
    except ConcurrentRun:
        same = []
    if len(same) < len(held):
        say(f"{stream}: batches were shed again meanwhile; the next run validates them")


def _retire(tables: Tables, contract: StreamContract, say: Say) -> list[Batch]:
    """Retire validated batches, except those that a sketch of the contract must still be made from.

    `tables` may be older than the last commit: they are opened again only if there is something to retire.
    """
    if not may_retire(tables, contract):
        return []
    tables = tables.now()
    return retire_raw_dates(tables, contract, batches_without_sketch(tables, contract), say)
