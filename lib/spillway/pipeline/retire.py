"""Retiring: raw dates that are old enough and whose recovery was validated are deleted, if the contract says so.

A certificate counts for the revision of the batch that it measured, and the batch becomes `retired` by a save that is
refused when it has changed since: of a backfill and a retirement that meet, one gives way. From then on it is known
that its tuples are leaving; the row names the files, until these, and no others, are gone from the table and the disk.
A run that dies in between is gone on with by the next. Nothing is vacuumed: whoever reads such a file meanwhile is told
that it is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import date, timedelta

from spillway.batch import DONE, RETIRED, Batch
from spillway.clock import utc_now
from spillway.contracts import StreamContract
from spillway.ledger import BESIDE, LedgerRow
from spillway.levers.protocol import Say
from spillway.store.batches import load_batches, proven_revisions, save_batches, write_ledger
from spillway.store.files import DataFile, as_date, batch_bytes
from spillway.store.tables import Tables

RETIRE = "retire"


def retire(tables: Tables, contract: StreamContract, needed: Collection[int], say: Say) -> list[Batch]:
    """Delete raw dates older than `retain_raw` whose recovery was validated, and no others; `needed` stay."""
    _finish(tables, contract.stream)
    gone = _ready(tables, contract, needed) if contract.retain_raw.retire else []
    if gone:
        # known as retired before they are: a backfill of tuples that are gone would send nothing in their place
        now = utc_now()
        save_batches(
            tables,
            [one.becomes(now, status=RETIRED, raw_leaving=tuple(_leaving(tables, one))) for one in gone],
        )
        freed = _finish(tables, contract.stream)
        days = sorted({str(batch.batch_date) for batch in gone})
        say(f"{contract.stream}: retired raw of {', '.join(days)}: {freed:,} bytes")
    return gone


def _ready(tables: Tables, contract: StreamContract, needed: Collection[int]) -> list[Batch]:
    """The batches of whole dates that may go."""
    limit = utc_now().date() - timedelta(days=contract.retain_raw.days)
    every = load_batches(tables, contract.stream, batch_date=_days_of_raw(tables, contract.stream, limit))
    proven = proven_revisions(tables, contract.stream, [batch.batch for batch in every])
    gone: list[Batch] = []
    for day in sorted({batch.batch_date for batch in every}):
        dated = [batch for batch in every if batch.batch_date == day]
        if all(one.status == RETIRED or (one.batch not in needed and _may_go(one, proven)) for one in dated):
            gone += [batch for batch in dated if batch.status == DONE]
    return gone


def _may_go(batch: Batch, proven: Mapping[int, int]) -> bool:
    """Whether all that was promised of the batch was seen to hold, of the revision that it has."""
    if batch.status != DONE:
        return False
    return not batch.rows or (batch.is_validated and proven.get(batch.batch) == batch.validated_revision)


def _days_of_raw(tables: Tables, stream: str, limit: date) -> set[date]:
    """The dates before the limit of which anything is left to retire: batches whose rows are gone are not looked at."""
    days = {as_date(file.value("batch_date")) for file in tables.at("raw", stream).files()}
    return {day for day in days if day is not None and day < limit}


def _finish(tables: Tables, stream: str) -> int:
    """Take out and erase what is leaving, whichever run said so; the bytes that it was."""
    leaving = _on_their_way_out(tables, stream)
    if not leaving:
        return 0
    days, numbers = sorted({one.batch_date for one in leaving}), [one.batch for one in leaving]
    raw = tables.at("raw", stream)
    held = {one.batch: _leaving(tables, one) for one in leaving}
    strange = [one for one in leaving if not held[one.batch].keys() <= set(one.raw_leaving)]
    # compacted since: on record before they are taken out, or a death would leave them on the disk for good
    now = utc_now()
    leaving = [one for one in leaving if one not in strange] + save_batches(
        tables, [one.becomes(now, raw_leaving=(*one.raw_leaving, *held[one.batch])) for one in strange]
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


def _on_their_way_out(tables: Tables, stream: str) -> list[Batch]:
    """The retired batches of which files may still be there."""
    edges = tables.at("batches").rows(["batch", "raw_leaving"], stream=stream, status=RETIRED).to_pylist()
    numbers = [row["batch"] for row in edges if row["raw_leaving"]]
    return load_batches(tables, stream, batch=numbers) if numbers else []


def _leaving(tables: Tables, batch: Batch) -> dict[str, DataFile]:
    """The batch's files of `raw`, by their path below its folder."""
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
