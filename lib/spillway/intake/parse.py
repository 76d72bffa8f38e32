"""Parsing: a task reads its files once; what is good goes into a file of `raw`, what is not into one of `rejected`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import Batch, LandingFile
from spillway.contracts import StreamContract
from spillway.errors import SpillwayError
from spillway.intake.landing import path_of
from spillway.records import parse_records
from spillway.store.blobs import read_bytes
from spillway.store.tables import Table
from spillway.store.writing import Written, write_file

TASK_BYTES = 32 * 1024 * 1024


def delivered_bytes(name: str, path: str) -> bytes:
    """What a delivered file holds, byte for byte."""
    try:
        return read_bytes(path)
    except FileNotFoundError as problem:
        raise SpillwayError(
            f"{name}: a landing file must stay until it is taken in, it is gone; deliver it again under this name"
        ) from problem


@dataclass(frozen=True)
class TaskFiles:
    """Files that one task parses, all of one batch."""

    batch: Batch
    files: tuple[LandingFile, ...]


@dataclass(frozen=True)
class Target:
    """Where a task writes."""

    folder: str
    schema: pa.Schema

    @staticmethod
    def of(table: Table) -> Target:
        return Target(table.path, table.contract.file_schema)


@dataclass(frozen=True)
class ParsedFiles:
    """What a task made of its files."""

    batch: int
    raw: Written | None = None
    rejected: Written | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    problem: SpillwayError | None = None


def parse_files(
    contract: StreamContract, landing: str, raw: Target, rejected: Target, work: TaskFiles
) -> ParsedFiles:
    """Read some files, once; write what is good and what is not, or say why neither was."""
    bad: list[pa.Table] = []
    reasons: dict[str, int] = {}

    def good() -> Iterator[pa.Table]:
        for file in work.files:
            content = delivered_bytes(file.name, path_of(landing, file.name))
            if hashlib.sha256(content).hexdigest() != file.digest:
                raise SpillwayError(
                    f"{file.name}: a landing file must not change once it is recorded, its digest did; "
                    "deliver the change as a new file"
                )
            found = parse_records(contract, file.name, content)
            if found.rejected.num_rows:
                part = _numbered(found.rejected, work.batch, file)
                names = pa.array([file.name] * part.num_rows, pa.string())
                bad.append(part.append_column("file", names))
                for broken, rule in zip(part["field"].to_pylist(), part["rule"].to_pylist(), strict=True):
                    reason = f"{broken or 'record'} must {rule}"
                    reasons[reason] = reasons.get(reason, 0) + 1
            if found.table.num_rows:
                yield _numbered(found.table, work.batch, file)

    day = {"batch_date": str(work.batch.batch_date)}
    try:
        made = write_file(raw.folder, day, raw.schema, good())
    except SpillwayError as problem:
        return ParsedFiles(work.batch.batch, problem=problem)
    refused = write_file(rejected.folder, {"stream": contract.stream}, rejected.schema, iter(bad))
    return ParsedFiles(work.batch.batch, made, refused, reasons)


def _numbered(part: pa.Table, batch: Batch, file: LandingFile) -> pa.Table:
    """Parsed records of a file with their numbers; line 0 is the whole file: no tuple, no number."""
    line = part["line"].cast(pa.int64())
    numbers = {
        "seq": pc.if_else(pc.equal(line, 0), None, pc.add(line, file.base_seq)),
        "batch": pa.array(np.full(part.num_rows, batch.batch)),
        "batch_date": pa.array([batch.batch_date] * part.num_rows, pa.date32()),
    }
    for name, column in numbers.items():
        part = part.append_column(name, column)
    return part


def in_tasks(batches: Sequence[Batch]) -> list[TaskFiles]:
    """Consecutive files in groups of about `TASK_BYTES`, never across a batch, so that rows lie in seq order."""
    groups: list[tuple[Batch, list[LandingFile]]] = []
    size = 0
    for batch in batches:
        for file in batch.taken:
            if not groups or size + file.size > TASK_BYTES or groups[-1][0].batch != batch.batch:
                groups.append((batch, []))
                size = 0
            groups[-1][1].append(file)
            size += file.size
    return [TaskFiles(batch, tuple(files)) for batch, files in groups]
