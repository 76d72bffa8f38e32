"""Select the rejected records that a batch replays, each at most once, and note which batch read them again.

A batch names what it replays: `LandingFile.replays` is the batch that refused the records, and `rule` limits them to
one kind. A later entry does not take what an earlier entry has taken. So `rejected` needs no mark, and a run that was
killed selects the same records again. Records stay on their original lines, so that a record that is refused again is
named as before.

>>> on_original_lines([(2, b"b"), (4, b"d")], header="h")
b'h\\nb\\n\\nd\\n'

`replayed_by` in `rejected` is the batch that has read a row again. Rows without it still wait. A refused record is read
again when a replay takes it. A refused file is read again by a replay, or by the delivery of a corrected file of the
same name. What is refused again waits under the batch that read it last. The notes follow from `batches` alone, and are
written before a batch counts as taken in. So a run that was killed writes the same notes again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import FILE_INGESTED, REFUSED, REPLAYED, Batch, LandingFile
from spillway.contracts import StreamContract
from spillway.contracts.sections import Options
from spillway.intake.dedupe import DELIVERED_BEFORE
from spillway.intake.parse import Originals
from spillway.ledger import Row
from spillway.records.rejects import ORIGINAL_BYTES_AT_MOST, WHOLE_FILE
from spillway.store.batches import batches_of_files
from spillway.store.file_writer import write_file
from spillway.store.tables import Table, Tables


def refusal_kind(row: Row) -> str:
    """Return the kind of a refused record, as the ledger names it.

    >>> refusal_kind({"field": "temp", "rule": "be a number", "reason": "a.json:3: ..."})
    'temp must be a number'
    """
    return (
        DELIVERED_BEFORE
        if row["reason"] == DELIVERED_BEFORE
        else f"{row['field'] or 'record'} must {row['rule']}"
    )


def is_replayed_by(entry: LandingFile, row: Row) -> bool:
    """Return whether a replay takes a refused record.

    A record that was delivered before is taken only if the entry's `rule` names that kind.
    """
    if (entry.replays, entry.name) != (row["batch"], row["file"]):
        return False
    kind = refusal_kind(row)
    return kind == entry.rule if entry.rule is not None else kind != DELIVERED_BEFORE


def can_be_replayed(row: Row) -> bool:
    """Return whether `rejected` has all original bytes of the record."""
    return row["line"] not in (None, WHOLE_FILE) and 0 < row["bytes"] < ORIGINAL_BYTES_AT_MOST


def entries_of(batches: Iterable[Batch]) -> list[tuple[int, LandingFile]]:
    """Return every replay entry of these batches, in order, with its batch number."""
    return [(batch.batch, file) for batch in batches for file in batch.files if file.status == REPLAYED]


def refused_rows(tables: Tables, stream: str, **where: Any) -> list[dict[str, Any]]:
    """Return rows of `rejected` as dictionaries; `bytes` is the number of bytes of the original."""
    found = tables.at("rejected").rows(
        ["batch", "file", "line", "field", "rule", "reason", "original"], stream=stream, **where
    )
    return [{**row, "bytes": len(row["original"] or b"")} for row in found.to_pylist()]


def original_rows(
    rows: Sequence[Row], before: Sequence[LandingFile], entry: LandingFile
) -> list[tuple[int, bytes]]:
    """Return line and bytes of the records that an entry takes, in line order; `before` are the earlier entries."""
    mine = [row for row in rows if is_replayed_by(entry, row) and can_be_replayed(row)]
    return sorted(
        (row["line"], row["original"]) for row in mine if not any(is_replayed_by(one, row) for one in before)
    )


def on_original_lines(records: Sequence[tuple[int, bytes]], header: str | None = None) -> bytes:
    """Return the records on their original lines, with blank lines between them."""
    parts = [header.encode() + b"\n"] if header is not None else []
    line = 1 + sum(part.count(b"\n") for part in parts)
    for number, content in records:
        parts.append(b"\n" * max(0, number - line) + content + b"\n")
        line = max(number, line) + content.count(b"\n") + 1
    return b"".join(parts)


def contract_of_originals(contract: StreamContract, entry: LandingFile) -> StreamContract:
    """Return the contract that reads an entry's originals. Rows of Parquet, and repeated rows, are stored as JSON."""
    if entry.rule == DELIVERED_BEFORE:
        plain = tuple(replace(attribute, field=None) for attribute in contract.attributes)
        contract = replace(contract, attributes=plain)
    elif contract.source.format != "parquet":
        return contract
    return replace(contract, source=replace(contract.source, format="json", options=Options(), parity="none"))


def content_of(contract: StreamContract, entry: LandingFile, records: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the content to parse for an entry."""
    csv = contract_of_originals(contract, entry).source.format == "csv"
    return on_original_lines(records, entry.header if csv else None)


def originals_of(tables: Tables, contract: StreamContract, batches: Sequence[Batch]) -> dict[int, Originals]:
    """Return the stored originals of the records that these batches replay, by `base_seq`."""
    wanted = entries_of(batches)
    if not wanted:
        return {}
    every = entries_of(batches_of_files(tables, contract.stream, statuses=[REPLAYED]))
    rows = refused_rows(tables, contract.stream, batch=sorted({entry.replays for _, entry in wanted}))
    found = {}
    for number, entry in wanted:
        before = [one for n, one in every if (n, one.base_seq) < (number, entry.base_seq)]
        content = content_of(contract, entry, original_rows(rows, before, entry))
        found[entry.base_seq] = Originals(contract_of_originals(contract, entry), content)
    return found


_TOLD_BY = ("batch", "file", "line", "field", "rule", "reason", "replayed_by")


def mark_as_replayed(
    rejected: Table, stream: str, batches: Sequence[Batch], known: Iterable[Batch], dry_run: bool = False
) -> int:
    """Note in `rejected` which of its rows these batches have read again. Return the number of rows that change.

    `batches`: the reading batches with the results of their files, oldest first. `known`: the batches that may have
    refused a file.
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
    after = [_replaying_batch(row, files, entries, mine) for row in told.to_pylist()]
    changed = sum(was != now for was, now in zip(before, after, strict=True))
    if changed and not dry_run:
        place = rows.schema.get_field_index("replayed_by")
        rows = rows.set_column(place, rows.schema.field(place), pa.array(after, pa.int64()))
        rows = rows.sort_by([("batch", "ascending"), ("seq", "ascending")])
        one = write_file(rejected.path, {"stream": stream}, rejected.contract.file_schema, [rows])
        rejected.publish([one] if one is not None else [], stream=stream, batch=numbers)
    return changed


def _refused_before(batches: Sequence[Batch], known: Iterable[Batch]) -> dict[tuple[int, str], int]:
    """Return the refused files by batch and name, each with the first of `batches` that read the file again."""
    again: dict[str, list[int]] = {}
    for batch in batches:
        for file in batch.files:
            if file.status in (FILE_INGESTED, REFUSED):
                again.setdefault(file.name, []).append(batch.batch)
    found: dict[tuple[int, str], int] = {}
    for batch in known:
        for file in batch.files:
            later = [n for n in again.get(file.name, ()) if n > batch.batch]
            if file.status == REFUSED and later:
                found[batch.batch, file.name] = min(later)
    return found


def _replaying_batch(
    row: Mapping[str, Any],
    files: Mapping[tuple[int, str], int],
    entries: Iterable[tuple[int, LandingFile]],
    mine: Collection[int],
) -> int | None:
    """Return the batch that read a row again: one of these batches, or the one that is noted already."""
    was: int | None = row["replayed_by"]
    if was is not None and was not in mine:
        return was
    if (row["batch"], row["file"]) in files:
        return files[row["batch"], row["file"]]
    if not can_be_replayed(row):
        return None
    return next((number for number, entry in entries if is_replayed_by(entry, row)), None)
