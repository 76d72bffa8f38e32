"""Write the metadata that a remote destination needs to recover what it received, and read it there.

The table `told` holds the destination metadata, one row per batch. The payload of a row has three parts:

- the row of `batches` as it will be when the batch is done;
- the facts that the batch was shed with, without their evidence, and once per version;
- the rows of the levers' record tables that recovery reads.

The payload is compressed with zlib, because the metadata of a small batch would otherwise take more bytes than its
rows. Batches that are sent together share one file, which is compressed as a whole instead.

The file is written before `transmitted`, so a reader that sees a transmitted row can recover it. If source and
destination are the same place, nothing is written.

`destination_tables` opens the tables at the destination. It builds `batches`, `models` and the tables of the levers in
memory from the metadata. `transmitted` and the synopses that were sent are stored at the destination.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from typing import Any

import pyarrow as pa

from spillway.batch import DONE, Batch
from spillway.errors import InvalidValue
from spillway.levers.protocol import Plan
from spillway.settings import Settings
from spillway.store import blobs
from spillway.store.delta_log import commit_bytes
from spillway.store.drafts import split_by_weight
from spillway.store.file_writer import write_file
from spillway.store.tables import Tables

TOLD = "told"
_TIMES = {"created_at", "updated_at", "modified_at", "batch_date"}

_Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class BatchMetadata:
    """The destination metadata of one batch."""

    stream: str
    batch: int
    payload: bytes

    @property
    def size(self) -> int:
        """Return the bytes that are sent if `write_metadata` writes this row alone."""
        return metadata_sizes([self])[self.batch]


def metadata_sizes(told: Sequence[BatchMetadata]) -> dict[int, int]:
    """Return, by batch, its share of the file that `write_metadata` writes, and of the commit of that file."""
    if not told:
        return {}
    rows = pa.table({"batch": [one.batch for one in told], "payload": [one.payload for one in told]})
    folder = f"{blobs.MEMORY}{TOLD}"
    one = write_file(folder, {"stream": told[0].stream}, rows.schema, [rows])
    assert one is not None, "a table with rows is a file"
    blobs.remove(f"{folder}/{one.path}")
    return split_by_weight(one.size + commit_bytes([one]), {each.batch: len(each.payload) for each in told})


def destination_metadata(
    tables: Tables, batches: Sequence[Batch], levers: Mapping[str, Plan]
) -> list[BatchMetadata]:
    """Return the destination metadata of some batches of one stream; empty if the destination is the source's lake."""
    if tables.settings.destination == tables.settings.lake:
        return []
    known = _known_versions(tables, batches)
    found = [_metadata(tables, batch, levers, known) for batch in batches]
    # rows of several batches are similar: compression of the whole file can use that only if the rows are not deflated
    level = 9 if len(batches) == 1 else 0
    payloads = [zlib.compress(json.dumps(one, default=_to_json).encode(), level) for one in found]
    return [BatchMetadata(b.stream, b.batch, one) for b, one in zip(batches, payloads, strict=True)]


def write_metadata(tables: Tables, told: Sequence[BatchMetadata]) -> None:
    """Write the destination metadata to the table `told`."""
    if told:
        rows = [{"stream": one.stream, "batch": one.batch, "payload": one.payload} for one in told]
        tables.at(TOLD).replace(rows, stream=told[0].stream, batch=[one.batch for one in told])


def destination_tables(settings: Settings) -> Tables:
    """Return the tables as recovery reads them.

    These are the tables of the source, or, at a remote destination, tables in memory that are built from the metadata.
    """
    here = Tables(settings)
    if here.at("batches").exists or not here.at(TOLD).exists:
        return here
    there = Tables(replace(settings, lake=f"memory://told/{settings.destination}"))
    there.forget_lake()
    found: dict[str, dict[str, _Rows]] = {}
    for row in here.at(TOLD).rows().to_pylist():
        for table, rows in _read(row).items():
            found.setdefault(table, {})[f"{row['stream']} {row['batch']}"] = rows
    for table, parts in found.items():
        there.at(table).append([row for rows in parts.values() for row in rows])
    return there


def _metadata(
    tables: Tables, batch: Batch, levers: Mapping[str, Plan], known: set[tuple[str, int]]
) -> dict[str, _Rows]:
    # recovery does not need the run and its time, which would make the number of bytes differ from run to run
    day = datetime.combine(batch.batch_date, time(), UTC)
    row = {**batch.row(), "run_id": "", "created_at": day, "updated_at": day, "status": DONE, "files": []}
    for name in ("revision", "raw_leaving", "validated_revision", "event_end", "sent_with", "spends_on"):
        del row[name]
    told: dict[str, _Rows] = {"batches": [row]}
    facts: list[Mapping[str, Any]] = []
    for name, version in sorted(batch.models.items()):
        if (name, version) not in known:
            known.add((name, version))
            rows = tables.at("models").rows(stream=batch.stream, lever=name, version=version).to_pylist()
            facts += [{**row, "evidence": "{}", "created_at": day} for row in rows]
    told |= {"models": facts} if facts else {}
    for plan in levers.values():
        for table, rows in plan.destination_records().items():
            told[table] = [row for row in rows if row["batch"] == batch.batch]
    # nulls are left out: the destination reads a missing column as null
    return {table: [{n: v for n, v in one.items() if v is not None} for one in told[table]] for table in told}


def _known_versions(tables: Tables, batches: Sequence[Batch]) -> set[tuple[str, int]]:
    """Return the versions of facts that the metadata of earlier batches already contains."""
    mine = {batch.batch for batch in batches}
    told = tables.at(TOLD).rows(["batch"], stream=batches[0].stream)["batch"].to_pylist()
    # if metadata is written again, its facts are written again: this batch may have been the first one with them
    others = [number for number in told if number not in mine and number < min(mine)]
    pinned = tables.at("batches").rows(["models"], stream=batches[0].stream, batch=others)["models"]
    return {pair for models in pinned.to_pylist() for pair in models}


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not told")


def _read(row: Mapping[str, Any]) -> dict[str, _Rows]:
    where = f"told: {row['stream']}, batch {row['batch']}"
    try:
        found: dict[str, list[dict[str, Any]]] = json.loads(zlib.decompress(row["payload"]))
    except (zlib.error, ValueError) as problem:
        raise InvalidValue(
            "payload", "be what a source told", str(problem), "have it sent again", where
        ) from problem
    return {table: [_timed(one) for one in rows] for table, rows in found.items()}


def _timed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its times parsed; lists inside lists become tuples, which tables read as structs."""
    timed = {
        name: (date if name == "batch_date" else datetime).fromisoformat(value)
        if name in _TIMES and value is not None
        else value
        for name, value in row.items()
    }
    return {
        name: [tuple(one) if isinstance(one, list) else one for one in value]
        if isinstance(value, list)
        else value
        for name, value in timed.items()
    }
