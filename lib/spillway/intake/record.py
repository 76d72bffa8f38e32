"""Recording: new files become batches, their order fixed and their `seq` numbers set aside, before a row is written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from functools import partial

from spillway.batch import RECORDED, Batch, LandingFile, utc_now
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.intake.landing import EMPTY, Delivered, batch_date_of
from spillway.intake.parse import measured
from spillway.records import MeasuredFile
from spillway.store.batches import save_batches
from spillway.store.tables import Tables


def _measure(contract: StreamContract, one: Delivered) -> MeasuredFile:
    return measured(contract, one.name, one.path)


def record_batches(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    known: Sequence[Batch],
    fresh: Sequence[Delivered],
    run_id: str,
) -> list[Batch]:
    """Record new files as batches, one a batch date, before anything of them is written."""
    if not fresh:
        return []
    digests = {file.digest for batch in known for file in batch.files if file.status == "taken"}
    found = dict(zip(fresh, engine.map(partial(_measure, contract), fresh), strict=True))
    now = utc_now()
    by_date: dict[date, list[Delivered]] = {}
    for one in fresh:
        by_date.setdefault(batch_date_of(one.name, now.date()), []).append(one)
    number = max((batch.batch for batch in known), default=0)
    seq = max((batch.last_seq for batch in known), default=-1) + 1
    arrived = max((f.modified_at for b in known for f in b.files if f.modified_at), default=None)
    batches = []
    for batch_date in sorted(by_date):
        number += 1
        first_seq = seq
        files = []
        for one in by_date[batch_date]:
            digest, records = found[one].digest, found[one].records
            again = digest in digests and contract.duplicates.files == "skip"
            status = EMPTY if not records else "duplicate" if again else "taken"
            # record n has seq base + n, and n starts at 1
            files.append(LandingFile(one.name, one.size, digest, records, seq - 1, status, one.modified_at))
            if status == "taken":
                digests.add(digest)
                seq += records
        batches.append(
            Batch(
                contract.stream,
                number,
                batch_date,
                RECORDED,
                tuple(files),
                first_seq,
                seq - 1,
                run_id,
                now,
                now,
                seconds_covered=_arrival_seconds(by_date[batch_date], arrived),
            )
        )
        arrived = max(one.modified_at for one in by_date[batch_date])
    return save_batches(tables, batches)


def _arrival_seconds(files: Sequence[Delivered], arrived: datetime | None) -> float | None:
    """Seconds since the last arrival before these files, or across them; None where one moment is all we know."""
    last = max(file.modified_at for file in files)
    first = arrived if arrived is not None else min(file.modified_at for file in files)
    return (last - first).total_seconds() or None
