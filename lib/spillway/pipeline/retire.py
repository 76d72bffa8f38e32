"""Retiring: raw dates that are old enough and whose recovery was validated are deleted, if the contract says so."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, timedelta

from spillway.batch import DONE, RETIRED, Batch, utc_now
from spillway.contracts import StreamContract
from spillway.ledger import BESIDE, LedgerRow
from spillway.levers.protocol import Say
from spillway.store.batches import load_batches, save_batches
from spillway.store.files import as_date, batch_bytes
from spillway.store.ledgers import write_ledger
from spillway.store.tables import Tables

RETIRE = "retire"


def retire(tables: Tables, contract: StreamContract, waiting: Collection[int], say: Say) -> list[Batch]:
    """Delete raw dates older than `retain_raw` whose recovery was validated, and no others; `waiting` was not."""
    if not contract.retain_raw.retire:
        return []
    stream = contract.stream
    limit = utc_now().date() - timedelta(days=contract.retain_raw.days)
    every = load_batches(tables, stream, batch_date=_days_of_raw(tables, stream, limit))
    good = _without_violations(tables, stream, [batch.batch for batch in every])
    gone: list[Batch] = []
    for day in sorted({batch.batch_date for batch in every}):
        dated = [batch for batch in every if batch.batch_date == day]
        if all(b.status == RETIRED for b in dated):
            continue
        ready = all(b.status in (DONE, RETIRED) and b.batch not in waiting for b in dated)
        if ready and all(b.batch in good or b.status == RETIRED or not b.rows for b in dated):
            gone += [batch for batch in dated if batch.status == DONE]
    freed = {batch.batch: _raw_bytes(tables, batch) for batch in gone}
    if gone:
        write_ledger(
            tables, stream, [batch.batch for batch in gone], [RETIRE], [_line(b, freed) for b in gone]
        )
        now = utc_now()
        # known as retired before they are: a backfill of tuples that are gone would send nothing in their place
        save_batches(tables, [batch.becomes(now, status=RETIRED) for batch in gone])
    _delete_retired(tables, stream)
    if gone:
        days = sorted({str(batch.batch_date) for batch in gone})
        say(f"{stream}: retired raw of {', '.join(days)}: {sum(freed.values()):,} bytes")
    return gone


def _line(batch: Batch, freed: dict[int, int]) -> LedgerRow:
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
        bytes_offered=freed[batch.batch],
    )


def _delete_retired(tables: Tables, stream: str) -> None:
    """Delete raw tuples of retired batches, those of a run that died before it could included."""
    raw = tables.at("raw", stream)
    held = {as_date(file.value("batch_date")) for file in raw.files()}
    retired = load_batches(tables, stream, status=RETIRED, batch_date=held)
    if retired:
        days = sorted({batch.batch_date for batch in retired})
        raw.erase(raw.delete(batch_date=days, batch=[batch.batch for batch in retired]))


def _days_of_raw(tables: Tables, stream: str, limit: date) -> set[date]:
    """The dates before the limit of which anything is left to retire: batches whose rows are gone are not looked at."""
    days = {as_date(file.value("batch_date")) for file in tables.at("raw", stream).files()}
    return {day for day in days if day is not None and day < limit}


def _raw_bytes(tables: Tables, batch: Batch) -> int:
    raw = tables.at("raw", batch.stream)
    files = raw.files(batch_date=batch.batch_date, batch=batch.batch)
    columns, beside = batch_bytes(files, raw.schema.names, batch.batch)
    return sum(columns.values()) + beside


def _without_violations(tables: Tables, stream: str, batches: Sequence[int]) -> set[int]:
    rows = tables.at("certificates").rows(["batch", "violations"], stream=stream, batch=batches).to_pylist()
    return {row["batch"] for row in rows} - {row["batch"] for row in rows if row["violations"]}
