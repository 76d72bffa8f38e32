"""Rejected records as they are replayed: which a batch takes in again, each at most once, and their original bytes.

A batch names what it replays (`LandingFile.replays`: the batch that had refused it; `rule`: of one kind only). Whatever
an earlier entry has taken, a later one does not: so what `rejected` holds needs no mark, and a run that was killed does
the same once more. Records stand on the lines where they stood, so that what is refused again is named as before.

>>> numbered([(2, b"b"), (4, b"d")], header="h")
b'h\\nb\\n\\nd\\n'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from spillway.batch import REPLAYED, Batch, LandingFile
from spillway.contracts import StreamContract
from spillway.contracts.sections import Options
from spillway.intake.aside import DELIVERED_BEFORE
from spillway.intake.tasks import Originals
from spillway.ledger import Row
from spillway.records.rejects import ORIGINAL_BYTES_AT_MOST, WHOLE_FILE
from spillway.store.batches import batches_of_files
from spillway.store.tables import Tables


def refusal_kind(row: Row) -> str:
    """The kind of a refused record, as the ledger names it.

    >>> refusal_kind({"field": "temp", "rule": "be a number", "reason": "a.json:3: ..."})
    'temp must be a number'
    """
    return (
        DELIVERED_BEFORE
        if row["reason"] == DELIVERED_BEFORE
        else f"{row['field'] or 'record'} must {row['rule']}"
    )


def takes(entry: LandingFile, row: Row) -> bool:
    """Whether a replay takes a refused record; of those delivered before only when they were asked for."""
    if (entry.replays, entry.name) != (row["batch"], row["file"]):
        return False
    kind = refusal_kind(row)
    return kind == entry.rule if entry.rule is not None else kind != DELIVERED_BEFORE


def can_be_replayed(row: Row) -> bool:
    """Whether the record's bytes are there, all of them."""
    return row["line"] not in (None, WHOLE_FILE) and 0 < row["bytes"] < ORIGINAL_BYTES_AT_MOST


def entries_of(batches: Iterable[Batch]) -> list[tuple[int, LandingFile]]:
    """Every replay so far, in order, with its batch."""
    return [(batch.batch, file) for batch in batches for file in batch.files if file.status == REPLAYED]


def refused_rows(tables: Tables, stream: str, **where: Any) -> list[dict[str, Any]]:
    """Rows of `rejected`, with `bytes`: how many there are of the original."""
    found = tables.at("rejected").rows(
        ["batch", "file", "line", "field", "rule", "reason", "original"], stream=stream, **where
    )
    return [{**row, "bytes": len(row["original"] or b"")} for row in found.to_pylist()]


def original_rows(
    rows: Sequence[Row], before: Sequence[LandingFile], entry: LandingFile
) -> list[tuple[int, bytes]]:
    """Line and bytes of what an entry takes, in line order; `before`: the entries that came earlier."""
    mine = [row for row in rows if takes(entry, row) and can_be_replayed(row)]
    return sorted(
        (row["line"], row["original"]) for row in mine if not any(takes(one, row) for one in before)
    )


def numbered(records: Sequence[tuple[int, bytes]], header: str | None = None) -> bytes:
    """The records on their lines, blank lines between them."""
    parts = [header.encode() + b"\n"] if header is not None else []
    line = 1 + sum(part.count(b"\n") for part in parts)
    for number, content in records:
        parts.append(b"\n" * max(0, number - line) + content + b"\n")
        line = max(number, line) + content.count(b"\n") + 1
    return b"".join(parts)


def spelled_as(contract: StreamContract, entry: LandingFile) -> StreamContract:
    """The contract that reads an entry's originals: rows of Parquet, and repeated ones, were kept as JSON."""
    if entry.rule == DELIVERED_BEFORE:
        plain = tuple(replace(attribute, field=None) for attribute in contract.attributes)
        contract = replace(contract, attributes=plain)
    elif contract.source.format != "parquet":
        return contract
    return replace(contract, source=replace(contract.source, format="json", options=Options(), parity="none"))


def content_of(contract: StreamContract, entry: LandingFile, records: Sequence[tuple[int, bytes]]) -> bytes:
    """What is parsed of an entry."""
    csv = spelled_as(contract, entry).source.format == "csv"
    return numbered(records, entry.header if csv else None)


def originals_of(tables: Tables, contract: StreamContract, batches: Sequence[Batch]) -> dict[int, Originals]:
    """By `base_seq`, what was kept of the records that these batches replay."""
    wanted = entries_of(batches)
    if not wanted:
        return {}
    every = entries_of(batches_of_files(tables, contract.stream, statuses=[REPLAYED]))
    rows = refused_rows(tables, contract.stream, batch=sorted({entry.replays for _, entry in wanted}))
    found = {}
    for number, entry in wanted:
        before = [one for n, one in every if (n, one.base_seq) < (number, entry.base_seq)]
        content = content_of(contract, entry, original_rows(rows, before, entry))
        found[entry.base_seq] = Originals(spelled_as(contract, entry), content)
    return found
