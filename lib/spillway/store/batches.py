"""The table `batches`: load and save, each save a compare-and-swap on the revision that was read.

Whoever loads says which batches it needs: a stream has a hundred of them a day, and years of days.

A batch is what decisions are made of, and they may take long: between reading a row and saving it anew others may
have saved it. Every save counts the row's `revision` up, and is refused to whoever decided on another revision than
the one that stands. So of two who load, decide and save, one wins and the other stops with a sentence.

The table `ledger`: what a stage writes replaces what it had written for the same batches.

The table `certificates`: of which revision of a batch it tells. It says nothing of another; no clock is asked.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import IN_WORK, PENDING, Batch
from spillway.errors import ConcurrentRun
from spillway.ledger import LedgerRow
from spillway.store.files import DataFile
from spillway.store.tables import Between, Table, Tables
from spillway.store.upkeep import compact

MOST_FILES = 16
"""Of how many small files a stream's rows may be before a run puts them together: each is opened by every step."""
RATED = Between(low=math.ulp(0.0))
"""What `seconds_covered` of a batch is whose rate is known."""


def load_batches(tables: Tables, stream: str | None = None, **where: Any) -> list[Batch]:
    """The batches (of one stream) that match, in order: `status=DONE`, `batch_date=days`, `rows=Between(1)`."""
    mine = where if stream is None else {"stream": stream, **where}
    found = [Batch.from_row(row) for row in tables.at("batches").rows(**mine).to_pylist()]
    return sorted(found, key=lambda batch: (batch.stream, batch.batch))


def newest_batch(tables: Tables, stream: str, **where: Any) -> Batch | None:
    """The last batch of the stream that matches; none where none does."""
    found = tables.at("batches").newest("batch", stream=stream, **where).to_pylist()
    return Batch.from_row(found[0]) if found else None


def batches_of_files(
    tables: Tables,
    stream: str,
    names: Collection[str] = (),
    digests: Collection[str] = (),
    statuses: Collection[str] = (),
) -> list[Batch]:
    """The batches of the stream that know a landing file by one of these names, bytes, or fates; of others a column."""
    rows = tables.at("batches").rows(["batch", "files"], stream=stream)
    files = rows["files"].combine_chunks()
    by_name, by_digest, by_status = (
        pc.is_in(pc.struct_field(files.flatten(), field), value_set=pa.array(list(wanted), pa.string()))
        for field, wanted in (("name", names), ("digest", digests), ("status", statuses))
    )
    hit = pc.or_(pc.or_(by_name, by_digest), by_status)
    numbers = rows["batch"].take(pc.list_parent_indices(files).filter(hit)).unique().to_pylist()
    return load_batches(tables, stream, batch=numbers) if numbers else []


def next_numbers(tables: Tables, stream: str) -> tuple[int, int]:
    """The last batch's number, and the first `seq` that none has set aside."""
    rows = tables.at("batches").rows(["batch", "last_seq"], stream=stream)
    if not rows.num_rows:
        return 0, 0
    return pc.max(rows["batch"]).as_py(), pc.max(rows["last_seq"]).as_py() + 1


def last_arrival(tables: Tables, stream: str) -> datetime | None:
    """When the last of the stream's landing files was written; None where there is none."""
    files = tables.at("batches").rows(["files"], stream=stream)["files"].combine_chunks().flatten()
    found: datetime | None = pc.max(pc.struct_field(files, "modified_at")).as_py()
    return found


def settle_batches(tables: Tables, stream: str) -> None:
    """Put the rows of a stream's batches together when runs have left many small files, apart by what may change.

    Batches before the first pending one are through: their rows become one file. Batches from there on become another
    one, after the last that a run may be working on: a day of small batches may wait to be sent together.
    """
    table = tables.at("batches")
    rows = table.rows(["batch", "status"], stream=stream, status=PENDING).to_pylist()
    first = min((row["batch"] for row in rows), default=None)
    in_work = max((row["batch"] for row in rows if row["status"] in IN_WORK), default=-1)

    def through(file: DataFile) -> bool:
        high = file.high("batch")
        return file.value("stream") == stream and high is not None and (first is None or bool(high < first))

    def waits(file: DataFile) -> bool:
        low = file.low("batch")
        mine = file.value("stream") == stream and low is not None and first is not None
        return mine and bool(low >= first and low > in_work)

    for rests in (through, waits):
        small = [one for one in table.files(stream=stream) if rests(one) and one.records < MOST_FILES]
        if len(small) >= MOST_FILES:
            with suppress(ConcurrentRun):
                compact(table, rests)


def save_batches(tables: Tables, batches: Sequence[Batch]) -> list[Batch]:
    """Write the rows of `batches` (of one stream) in one commit; returns them as they stand now, a revision on."""
    if not batches:
        return []
    _refuse_overtaken(tables, batches)
    saved = [replace(one, revision=one.revision + 1) for one in batches]
    rows = [one.row() for one in saved]
    tables.at("batches").replace(rows, stream=batches[0].stream, batch=[one.batch for one in batches])
    return saved


def reserve(tables: Tables, batches: Sequence[Batch], written: Iterable[Table]) -> None:
    """Before long work: have what it will write opened, and see that nobody has overtaken these batches.

    `written` are tables of `tables`, opened by being named here. Whoever takes a batch over from now on writes later
    than they were opened, so that either's commit finds the other's. Without this a run that stood still between
    reading a batch and opening its tables could write over what another had finished meanwhile.
    """
    assert all(table.version >= -1 for table in written)
    if batches:
        _refuse_overtaken(tables.now(), batches)


def _refuse_overtaken(tables: Tables, batches: Sequence[Batch]) -> None:
    stream, numbers = batches[0].stream, [one.batch for one in batches]
    rows = tables.at("batches").rows(["batch", "revision"], stream=stream, batch=numbers).to_pylist()
    stands = {row["batch"]: row["revision"] or 0 for row in rows}
    overtaken = [one for one in batches if one.stream == stream and stands.get(one.batch, 0) != one.revision]
    if overtaken:
        told = ", ".join(
            f"{one.batch} (revision {one.revision} was read, {stands.get(one.batch, 0)} stands)"
            for one in overtaken
        )
        raise ConcurrentRun(
            f"{stream}: another run has changed batch {told} since this one read it; nothing was doubled, run it again"
        )


def write_ledger(
    tables: Tables, subject: str, batches: Sequence[int], stages: Sequence[str], rows: Sequence[LedgerRow]
) -> None:
    """Replace what these stages had written for these batches (or windows) of the subject."""
    tables.at("ledger").replace(
        [row.to_dict() for row in rows], subject=subject, batch=list(batches), stage=list(stages)
    )


def proven_revisions(tables: Tables, stream: str, batches: Sequence[int]) -> dict[int, int]:
    """By batch, the one revision that all its certificates measured, none of them with violations."""
    columns = ["batch", "revision", "violations"]
    found: dict[int, set[int | None]] = {}
    for row in tables.at("certificates").rows(columns, stream=stream, batch=list(batches)).to_pylist():
        # those of before revisions were counted are of a batch that was never saved since
        found.setdefault(row["batch"], set()).add(None if row["violations"] else row["revision"] or 0)
    return {
        batch: revision
        for batch, revisions in found.items()
        if len(revisions) == 1 and (revision := next(iter(revisions))) is not None
    }
