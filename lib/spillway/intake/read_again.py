"""Which rows of `rejected` still wait: those that a batch has read again say which (`replayed_by`), all others wait.

A refused record is read again when a replay takes it, a refused file when a replay or, mended, a delivery of its name
is taken in. What is refused again waits under the batch that read it last. The notes follow from `batches` alone and
are made before a batch counts as taken in, so that a run that was killed makes the same ones once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import REFUSED, REPLAYED, TAKEN, Batch, LandingFile
from spillway.intake.replayed import can_be_replayed, takes
from spillway.store.tables import Table
from spillway.store.writing import write_file

_TOLD_BY = ("batch", "file", "line", "field", "rule", "reason", "replayed_by")


def note_read_again(
    rejected: Table, stream: str, batches: Sequence[Batch], known: Iterable[Batch], dry_run: bool = False
) -> int:
    """Note in `rejected` what these batches read again of what others (among `known`) had refused; rows that change.

    `batches`: with what became of their files, oldest first.
    """
    files = _refused_before(batches, known)
    entries = [(one.batch, file) for one in batches for file in one.files if file.status == REPLAYED]
    numbers = sorted({batch for batch, _ in files} | {entry.replays for _, entry in entries if entry.replays})
    if not numbers:
        return 0
    rows = rejected.rows(stream=stream, batch=numbers)
    told = rows.select(_TOLD_BY).append_column("bytes", pc.fill_null(pc.binary_length(rows["original"]), 0))
    mine = {one.batch for one in batches}
    before = [row["replayed_by"] for row in told.to_pylist()]
    after = [_reader(row, files, entries, mine) for row in told.to_pylist()]
    changed = sum(was != now for was, now in zip(before, after, strict=True))
    if changed and not dry_run:
        place = rows.schema.get_field_index("replayed_by")
        rows = rows.set_column(place, rows.schema.field(place), pa.array(after, pa.int64()))
        rows = rows.sort_by([("batch", "ascending"), ("seq", "ascending")])
        one = write_file(rejected.path, {"stream": stream}, rejected.contract.file_schema, [rows])
        rejected.publish([one] if one is not None else [], stream=stream, batch=numbers)
    return changed


def _refused_before(batches: Sequence[Batch], known: Iterable[Batch]) -> dict[tuple[int, str], int]:
    """By batch and name, files that were refused, and the first of `batches` that read them again."""
    again: dict[str, list[int]] = {}
    for batch in batches:
        for file in batch.files:
            if file.status in (TAKEN, REFUSED):
                again.setdefault(file.name, []).append(batch.batch)
    found: dict[tuple[int, str], int] = {}
    for batch in known:
        for file in batch.files:
            later = [n for n in again.get(file.name, ()) if n > batch.batch]
            if file.status == REFUSED and later:
                found[batch.batch, file.name] = min(later)
    return found


def _reader(
    row: Mapping[str, Any],
    files: Mapping[tuple[int, str], int],
    entries: Iterable[tuple[int, LandingFile]],
    mine: Collection[int],
) -> int | None:
    """The batch that read a row again: one that is told of here, or one that had done so before."""
    was: int | None = row["replayed_by"]
    if was is not None and was not in mine:
        return was
    if (row["batch"], row["file"]) in files:
        return files[row["batch"], row["file"]]
    if not can_be_replayed(row):
        return None
    return next((number for number, entry in entries if takes(entry, row)), None)
