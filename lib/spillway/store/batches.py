"""Load and save the table `batches`; each save is a compare-and-swap on the revision that was read.

Callers state a filter. Without one, all batches of a stream are read: about a hundred for each day, over years.

Decisions about a batch may take long. Between reading a row and saving it, other runs may save it. Every save
increments the row's `revision`. A save is rejected if the stored revision is not the one that was read. So if two runs
load the same batch, decide and save, the first succeeds and the second stops with `ConcurrentRun`.

This module also writes the table `ledger`: a stage replaces the rows that it wrote before for the same batches. It also
reads the table `certificates`: a certificate is valid for one revision of a batch only.
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

from spillway.batch import IN_WORK, PENDING, Batch, LandingFile
from spillway.engine.protocol import Step
from spillway.errors import ConcurrentRun
from spillway.ledger import LedgerRow
from spillway.store.files import DataFile
from spillway.store.maintenance import compact
from spillway.store.tables import Between, Table, Tables, replace_rows

MOST_FILES = 16
"""A run compacts the small files of a stream if there are this many, because each step opens every file.

The same number says which files are small: those with fewer rows.
"""
RATED = Between(low=math.ulp(0.0))
"""The values of `seconds_covered` of batches whose rate is known."""


def load_batches(tables: Tables, stream: str | None = None, **where: Any) -> list[Batch]:
    """Return the batches (of one stream) that match, in order: `status=DONE`, `batch_date=days`, `rows=Between(1)`."""
    mine = where if stream is None else {"stream": stream, **where}
    found = [Batch.from_row(row) for row in tables.at("batches").rows(**mine).to_pylist()]
    return sorted(found, key=lambda batch: (batch.stream, batch.batch))


def newest_batch(tables: Tables, stream: str, **where: Any) -> Batch | None:
    """Return the last batch of the stream that matches, or None."""
    found = tables.at("batches").newest("batch", stream=stream, **where).to_pylist()
    return Batch.from_row(found[0]) if found else None


def batches_of_files(
    tables: Tables,
    stream: str,
    names: Collection[str] = (),
    digests: Collection[str] = (),
    statuses: Collection[str] = (),
) -> list[Batch]:
    """Return the stream's batches that list a landing file with one of these names, digests or statuses.

    Of all other batches only the columns `batch` and `files` are read.
    """
    rows = tables.at("batches").rows(["batch", "files"], stream=stream)
    files = rows["files"].combine_chunks()
    by_name, by_digest, by_status = (
        pc.is_in(pc.struct_field(files.flatten(), field), value_set=pa.array(list(wanted), pa.string()))
        for field, wanted in (("name", names), ("digest", digests), ("status", statuses))
    )
    hit = pc.or_(pc.or_(by_name, by_digest), by_status)
    numbers = rows["batch"].take(pc.list_parent_indices(files).filter(hit)).unique().to_pylist()
    return load_batches(tables, stream, batch=numbers) if numbers else []


def recorded_files(tables: Tables, stream: str, names: Collection[str]) -> list[LandingFile]:
    """Return the entries of landing files with these names in the stream's batches, in the order of the batches."""
    rows = tables.at("batches").rows(["batch", "files"], stream=stream).sort_by("batch")
    files = rows["files"].combine_chunks().flatten()
    hit = pc.is_in(pc.struct_field(files, "name"), value_set=pa.array(list(names), pa.string()))
    return [LandingFile(**file) for file in files.filter(hit).to_pylist()]


def next_numbers(tables: Tables, stream: str) -> tuple[int, int]:
    """Return the number of the last batch, and the first `seq` that no batch has reserved."""
    rows = tables.at("batches").rows(["batch", "last_seq"], stream=stream)
    if not rows.num_rows:
        return 0, 0
    return pc.max(rows["batch"]).as_py(), pc.max(rows["last_seq"]).as_py() + 1


def last_arrival(tables: Tables, stream: str) -> datetime | None:
    """Return when the last of the stream's landing files was written, or None."""
    files = tables.at("batches").rows(["files"], stream=stream)["files"].combine_chunks().flatten()
    found: datetime | None = pc.max(pc.struct_field(files, "modified_at")).as_py()
    return found


def compact_batches(tables: Tables, stream: str) -> None:
    """Compact the files with the rows of a stream's batches, if there are many small ones.

    The rows of batches before the first pending one do not change any more. They become one file. The rows of the
    pending batches that come after the last batch in work become another file, because a day of small batches may wait
    to be sent together. Other rows may change, and stay as they are.
    """
    table = tables.at("batches")
    if sum(file.records < MOST_FILES for file in table.files(stream=stream)) < MOST_FILES:
        return
    rows = table.rows(["batch", "status"], stream=stream, status=PENDING).to_pylist()
    first = min((row["batch"] for row in rows), default=None)
    in_work = max((row["batch"] for row in rows if row["status"] in IN_WORK), default=-1)

    def is_finished(file: DataFile) -> bool:
        high = file.high("batch")
        return file.value("stream") == stream and high is not None and (first is None or bool(high < first))

    def is_waiting(file: DataFile) -> bool:
        low = file.low("batch")
        mine = file.value("stream") == stream and low is not None and first is not None
        return mine and bool(low >= first and low > in_work)

    for is_unchanging in (is_finished, is_waiting):
        small = [one for one in table.files(stream=stream) if is_unchanging(one) and one.records < MOST_FILES]
        if len(small) >= MOST_FILES:
            with suppress(ConcurrentRun):
                compact(table, is_unchanging)


def save_batches(tables: Tables, batches: Sequence[Batch]) -> list[Batch]:
    """Write the rows of `batches` (of one stream) in one commit; return the batches with their new revisions."""
    if not batches:
        return []
    _refuse_overtaken(tables, batches)
    saved = [replace(one, revision=one.revision + 1) for one in batches]
    rows = [one.row() for one in saved]
    tables.at("batches").replace(rows, stream=batches[0].stream, batch=[one.batch for one in batches])
    return saved


def save_together(tables: Tables, batches: Sequence[Batch]) -> Step[list[Batch]]:
    """Do what `save_batches` does, as a step that shares its commit with other streams."""
    if not batches:
        return []
    _refuse_overtaken(tables, batches)
    saved = [replace(one, revision=one.revision + 1) for one in batches]
    numbers = [one.batch for one in batches]
    rows = [one.row() for one in saved]
    yield from replace_rows(tables.at("batches"), rows, stream=batches[0].stream, batch=numbers)
    return saved


def reserve(tables: Tables, batches: Sequence[Batch], written: Iterable[Table]) -> None:
    """Open the tables that long work will write, and check that no other run has saved these batches since.

    `written`: tables of `tables`. A table is opened, at its current version, when this function takes it. If another
    run takes over a batch later, it writes after that version, so the commit of this run is rejected. Without this
    check, a run that paused between reading a batch and opening its tables could overwrite what another run finished.
    """
    assert all(table.version >= -1 for table in written)
    if batches:
        _refuse_overtaken(tables.now(), batches)


def _refuse_overtaken(tables: Tables, batches: Sequence[Batch]) -> None:
    stream, numbers = batches[0].stream, [one.batch for one in batches]
    rows = tables.at("batches").rows(["batch", "revision"], stream=stream, batch=numbers).to_pylist()
    stored = {row["batch"]: row["revision"] or 0 for row in rows}
    overtaken = [one for one in batches if one.stream == stream and stored.get(one.batch, 0) != one.revision]
    if overtaken:
        changed = ", ".join(
            f"{one.batch} (revision {one.revision} was read, {stored.get(one.batch, 0)} is stored)"
            for one in overtaken
        )
        raise ConcurrentRun(
            f"{stream}: another run has changed batch {changed} since this one read it; nothing was doubled, run it "
            "again"
        )


def write_ledger(
    tables: Tables, subject: str, batches: Sequence[int], stages: Sequence[str], rows: Sequence[LedgerRow]
) -> None:
    """Replace the rows that these stages wrote for these batches (or windows) of the subject."""
    where = {"subject": subject, "batch": list(batches), "stage": list(stages)}
    tables.at("ledger").replace([row.to_dict() for row in rows], **where)


def write_ledger_together(
    tables: Tables, subject: str, batches: Sequence[int], stages: Sequence[str], rows: Sequence[LedgerRow]
) -> Step[None]:
    """Do what `write_ledger` does, as a step that shares its commit with other streams."""
    where = {"subject": subject, "batch": list(batches), "stage": list(stages)}
    yield from replace_rows(tables.at("ledger"), [row.to_dict() for row in rows], **where)


def certified_revisions(tables: Tables, stream: str, batches: Sequence[int]) -> dict[int, int]:
    """Return, by batch, its revision if all its certificates measured that one and none has violations."""
    columns = ["batch", "revision", "violations"]
    found: dict[int, set[int | None]] = {}
    for row in tables.at("certificates").rows(columns, stream=stream, batch=list(batches)).to_pylist():
        # a certificate without a revision is older than revisions; its batch was not saved since
        found.setdefault(row["batch"], set()).add(None if row["violations"] else row["revision"] or 0)
    return {
        batch: revision
        for batch, revisions in found.items()
        if len(revisions) == 1 and (revision := next(iter(revisions))) is not None
    }
