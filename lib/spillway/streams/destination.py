"""Write the metadata that a remote destination needs to recover what it received, and read it there.

A batch that is sent without loss needs no metadata: its rows in `transmitted` are all that there is to know. Its row of
`batches` is derived from them at the destination (`_batches_sent_whole`).

The table `destination_metadata` holds the metadata of the other batches, one row per batch. The payload of a row has
these parts:

- the row of `batches` as it will be when the batch is done;
- the facts that the batch was shed with, without their evidence, and once per version. Retention keeps a row while a
  later batch needs its facts;
- the rows of the levers' record tables that recovery reads;
- the same rows of earlier batches that share a frame with this batch and have no metadata of their own (`EARLIER`).

The payload is compressed with zlib, because the metadata of a small batch would otherwise take more bytes than its
rows. Batches that are sent together share one file, which is compressed as a whole instead.

The file is written before `transmitted`, so a reader that sees a transmitted row can recover it. If source and
destination are the same place, nothing is written.

`destination_tables` opens the tables at the destination. It builds `batches`, `models` and the tables of the levers in
memory from the metadata and from `transmitted`. `transmitted` and the synopses that were sent are stored at the
destination.

A derived batch begins and ends with its first and last row, and counts as sent without a lever. Rows that a lever
changed have a `scheme` other than 0. If such rows have no metadata, they are not shown as exact: the batch is left out.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from typing import Any

import pyarrow as pa

from spillway.batch import DONE, RETIRED, Batch
from spillway.errors import InvalidValue
from spillway.levers.frame_slices import frame_start
from spillway.levers.protocol import Plan
from spillway.registry import lever
from spillway.settings import Settings
from spillway.store import blobs
from spillway.store.batches import load_batches
from spillway.store.delta_log import commit_bytes
from spillway.store.drafts import split_by_weight
from spillway.store.file_writer import write_file
from spillway.store.files import DataFile, as_date, rows_of
from spillway.store.renames import RENAMES, rename_record
from spillway.store.tables import ROWS_AT_A_TIME, Between, Tables

DESTINATION_METADATA = "destination_metadata"
EARLIER = "earlier"
"""The part of a payload with the metadata of earlier batches, by batch number."""
DERIVED_FRAME = 65_536
"""The frame of a derived batch. Its rows need no recovery, so this only limits how many are read at a time."""
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
    folder = f"{blobs.MEMORY}{DESTINATION_METADATA}"
    one = write_file(folder, {"stream": told[0].stream}, rows.schema, [rows])
    assert one is not None, "a table with rows is a file"
    blobs.remove(f"{folder}/{one.path}")
    return split_by_weight(one.size + commit_bytes([one]), {each.batch: len(each.payload) for each in told})


def destination_metadata(
    tables: Tables, batches: Sequence[Batch], levers: Mapping[str, Plan]
) -> list[BatchMetadata]:
    """Return the metadata of some batches of one stream that are sent together.

    It is empty if the destination is the source's lake, or if no batch loses anything. If one of them does, or had
    metadata before, all of them have metadata.
    """
    if tables.settings.destination == tables.settings.lake:
        return []
    numbers = tables.at(DESTINATION_METADATA).rows(["batch"], stream=batches[0].stream)["batch"].to_pylist()
    exact = all(plan.is_exact(batch.batch) for plan in levers.values() for batch in batches)
    if exact and not {batch.batch for batch in batches} & set(numbers):
        return []
    known = _known_versions(tables, batches, numbers)
    found: list[dict[str, Any]] = [_metadata(tables, batch, levers, known) for batch in batches]
    if earlier := _earlier_of_the_frame(tables, batches[0], numbers):
        found[0][EARLIER] = {str(batch.batch): _from_records(tables, batch) for batch in earlier}
    # rows of several batches are similar: compression of the whole file can use that only if the rows are not deflated
    level = 9 if len(batches) == 1 else 0
    payloads = [zlib.compress(json.dumps(one, default=_to_json).encode(), level) for one in found]
    return [BatchMetadata(b.stream, b.batch, one) for b, one in zip(batches, payloads, strict=True)]


def write_metadata(tables: Tables, told: Sequence[BatchMetadata]) -> None:
    """Write the destination metadata to the table `destination_metadata`."""
    if told:
        rows = [{"stream": one.stream, "batch": one.batch, "payload": one.payload} for one in told]
        tables.at(DESTINATION_METADATA).replace(
            rows, stream=told[0].stream, batch=[one.batch for one in told]
        )


def move_metadata(tables: Tables) -> bool:
    """Copy the metadata from the folder of the table's earlier name, and remove it; return whether there was one.

    The rows are copied in one commit, with the new names of columns. If the process dies after it, the next call only
    removes the earlier folder.
    """
    renames = RENAMES[DESTINATION_METADATA]
    path, contract = tables.path(DESTINATION_METADATA), tables.contract(DESTINATION_METADATA)
    assert renames.table is not None
    earlier = f"{path.removesuffix(DESTINATION_METADATA)}{renames.table}"
    if not blobs.folder_exists(earlier):
        return False
    table = tables.own(path, contract)
    if table.version < 1:
        written = []
        for file in tables.own(earlier, contract).files():
            parts = (_with_new_names(part) for part in rows_of(file, ["batch", "payload"], ROWS_AT_A_TIME))
            partition = {name: str(value) for name, value in file.partition}
            one = write_file(path, partition, contract.file_schema, parts)
            assert one is not None, "a file that was found has rows"
            written.append(one)
        table.overwrite(written, contract.arrow_schema)
    blobs.remove_folder(earlier)
    return True


def _with_new_names(rows: pa.Table) -> pa.Table:
    payloads = [_renamed(payload) for payload in rows["payload"].to_pylist()]
    return rows.set_column(rows.column_names.index("payload"), "payload", pa.array(payloads, pa.binary()))


def _renamed(payload: bytes) -> bytes:
    """Return a payload with the new names of the columns of its rows, compressed as it was."""
    found = json.loads(zlib.decompress(payload))
    for records in (found, *found.get(EARLIER, {}).values()):
        for table in records.keys() & RENAMES.keys():
            records[table] = [rename_record(row, RENAMES[table]) for row in records[table]]
    level = 0 if zlib.compress(b"", 0)[:2] == payload[:2] else 9
    return zlib.compress(json.dumps(found).encode(), level)


def destination_tables(settings: Settings) -> Tables:
    """Return the tables as recovery reads them.

    These are the tables of the source, or, at a remote destination, tables in memory that are built from the metadata
    and from `transmitted`.
    """
    here = Tables(settings)
    streams = blobs.list_folders(f"{settings.destination}/transmitted")
    if here.at("batches").exists or not (streams or here.at(DESTINATION_METADATA).exists):
        return here
    there = Tables(replace(settings, lake=f"memory://destination_metadata/{settings.destination}"))
    there.forget_lake()
    told: dict[tuple[str, int], Mapping[str, Any]] = {}
    for row in here.at(DESTINATION_METADATA).rows().to_pylist():
        told[row["stream"], row["batch"]] = _read(row)
    for (stream, _), payload in list(told.items()):
        for number, rows in payload.get(EARLIER, {}).items():
            told.setdefault((stream, int(number)), rows)
    rows_by_table: dict[str, list[Mapping[str, Any]]] = {}
    for payload in told.values():
        for table, rows in payload.items():
            if table != EARLIER:
                rows_by_table.setdefault(table, []).extend(map(_timed, rows))
    for stream in streams:
        numbers = {number for name, number in told if name == stream}
        derived = _batches_sent_whole(here, stream, numbers)
        rows_by_table.setdefault("batches", []).extend(batch.row() for batch in derived)
    for table, rows in rows_by_table.items():
        there.at(table).append(rows)
    return there


def _batches_sent_whole(tables: Tables, stream: str, told: Collection[int]) -> list[Batch]:
    """Return the batches of `transmitted` without metadata, as far as no lever has changed a row of them."""
    table, spans = tables.at("transmitted", stream), dict[int, list[_Span]]()
    has_schemes = "scheme" in table.schema.names
    for file in table.files():
        for span in _spans_of(file, told, has_schemes):
            spans.setdefault(span.batch, []).append(span)
    found = []
    for number, mine in sorted(spans.items()):
        if any(span.is_changed for span in mine):
            continue
        day = datetime.combine(mine[0].day, time(), UTC)
        first, last = min(span.first_seq for span in mine), max(span.last_seq for span in mine)
        rows = sum(span.rows for span in mine)
        one = Batch(stream, number, mine[0].day, DONE, (), first, last, "", day, day, rows)
        found.append(replace(one, frame_origin=first, frame_tuples=DERIVED_FRAME))
    return found


@dataclass(frozen=True)
class _Span:
    """The rows of one batch in a file of `transmitted`."""

    batch: int
    day: date
    first_seq: int
    last_seq: int
    rows: int
    is_changed: bool


def _spans_of(file: DataFile, told: Collection[int], has_schemes: bool) -> Iterator[_Span]:
    """Yield the rows of each batch without metadata in a file; rows are read only if the log does not say enough."""
    day = as_date(file.value("batch_date"))
    assert day is not None, "transmitted is partitioned by date"
    low, high = file.low("batch"), file.high("batch")
    edges = (
        file.low("seq"),
        file.high("seq"),
        *((file.low("scheme"), file.high("scheme")) if has_schemes else ()),
    )
    if low is not None and high is not None:
        if all(number in told for number in range(low, high + 1)):
            return
        if low == high and None not in edges:
            first, last, *schemes = edges
            yield _Span(low, day, first, last, file.records, any(schemes))
            return
    whole = pa.schema([("seq", pa.int64()), ("batch", pa.int64()), ("scheme", pa.int64())])
    rows = pa.concat_tables(part.cast(whole) for part in rows_of(file, whole.names, ROWS_AT_A_TIME))
    sums = [("seq", "min"), ("seq", "max"), ("seq", "count"), ("scheme", "min"), ("scheme", "max")]
    for row in rows.group_by("batch").aggregate(sums).to_pylist():
        if row["batch"] not in told:
            changed = bool(row["scheme_min"] or row["scheme_max"])  # null: the stream had no lever
            yield _Span(row["batch"], day, row["seq_min"], row["seq_max"], row["seq_count"], changed)


def _earlier_of_the_frame(tables: Tables, batch: Batch, told: Collection[int]) -> list[Batch]:
    """Return the earlier batches with rows in the frame with which this batch begins, unless they have metadata."""
    if batch.frame_origin is None or batch.frame_origin == batch.first_seq:
        return []
    start = frame_start(batch.first_seq, batch.frame_origin, batch.frame_tuples)
    where = {"batch": Between(high=batch.batch - 1), "last_seq": Between(start), "rows": Between(1)}
    before = load_batches(tables, batch.stream, batch_date=batch.batch_date, status=[DONE, RETIRED], **where)
    return [one for one in before if one.levers == batch.levers and one.batch not in told]


def _from_records(tables: Tables, batch: Batch) -> dict[str, _Rows]:
    """Return the metadata of a batch that was sent before, without facts: they are those of the batch behind it."""
    told: dict[str, _Rows] = {"batches": [_batch_row(batch)]}
    for name in batch.levers:
        told |= lever(name).destination_records(batch, tables)
    return _without_nulls(told)


def _batch_row(batch: Batch) -> dict[str, Any]:
    # recovery does not need the run and its time, which would make the number of bytes differ from run to run
    day = datetime.combine(batch.batch_date, time(), UTC)
    row = {**batch.row(), "run_id": "", "created_at": day, "updated_at": day, "status": DONE, "files": []}
    for name in ("revision", "raw_leaving", "validated_revision", "event_end", "sent_with", "spends_on"):
        del row[name]
    return row


def _metadata(
    tables: Tables, batch: Batch, levers: Mapping[str, Plan], known: set[tuple[str, int]]
) -> dict[str, _Rows]:
    day = datetime.combine(batch.batch_date, time(), UTC)
    told: dict[str, _Rows] = {"batches": [_batch_row(batch)]}
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
    return _without_nulls(told)


def _without_nulls(told: Mapping[str, _Rows]) -> dict[str, _Rows]:
    """Return the rows without nulls: the destination reads a missing column as null."""
    return {table: [{n: v for n, v in one.items() if v is not None} for one in told[table]] for table in told}


def _known_versions(tables: Tables, batches: Sequence[Batch], told: Collection[int]) -> set[tuple[str, int]]:
    """Return the versions of facts that the metadata of earlier batches already contains."""
    mine = {batch.batch for batch in batches}
    # if metadata is written again, its facts are written again: this batch may have been the first one with them
    others = [number for number in told if number not in mine and number < min(mine)]
    pinned = tables.at("batches").rows(["models"], stream=batches[0].stream, batch=others)["models"]
    return {pair for models in pinned.to_pylist() for pair in models}


def batches_with_needed_facts(tables: Tables, stream: str, expired: Collection[int]) -> set[int]:
    """Return which expired batches have metadata with facts that a batch which is not expired was shed with.

    Facts are sent once per version (`_known_versions`). The metadata of the batch that brought them stays at the
    destination while any other batch there needs them.
    """
    rows = tables.at(DESTINATION_METADATA).rows(stream=stream).to_pylist()
    kept = [row["batch"] for row in rows if row["batch"] not in expired]
    pinned = (
        tables.at("batches").rows(["models"], stream=stream, batch=kept)["models"].to_pylist() if kept else []
    )
    used = {pair for models in pinned for pair in models or ()}
    found = set()
    for row in rows if used else ():
        if row["batch"] in expired:
            facts = _read(row).get("models", ())
            if any((one["lever"], one["version"]) in used for one in facts):
                found.add(row["batch"])
    return found


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not told")


def _read(row: Mapping[str, Any]) -> dict[str, Any]:
    where = f"destination_metadata: {row['stream']}, batch {row['batch']}"
    try:
        found: dict[str, Any] = json.loads(zlib.decompress(row["payload"]))
    except (zlib.error, ValueError) as problem:
        raise InvalidValue(
            "payload", "be metadata that a source sent", str(problem), "have it sent again", where
        ) from problem
    return found


def _timed(row: Mapping[str, Any]) -> dict[str, Any]:
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
