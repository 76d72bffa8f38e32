"""Parsing: a task reads its files once; what is good goes into a file of `raw`, what is not into some of `rejected`.

A file of any size takes bounded memory: a large one is read in pieces, by several tasks, and what cannot be cut as a
stream. A file that turns out to be damaged is refused whole, also what other tasks have read of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import Batch, LandingFile
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError
from spillway.intake.landing import path_of
from spillway.records import (
    WHOLE,
    FilePiece,
    MeasuredFile,
    Parsed,
    SeekableBytes,
    WholeFile,
    cut,
    measure_file,
    parse_parts,
    reason_of,
    refused_file,
)
from spillway.store.blobs import reading
from spillway.store.drafts import discard
from spillway.store.tables import Table
from spillway.store.writing import Written, write_file

TASK_BYTES = 32 * 1024 * 1024
_IN_MEMORY = 2 * TASK_BYTES
_REJECTED_BYTES = 32 << 20
_READ_BYTES = 8 << 20

Why = tuple[str, str, str, str]


@contextmanager
def delivered_file(name: str, path: str) -> Iterator[SeekableBytes]:
    """A delivered file, to be read at any place."""
    try:
        with reading(path) as source:
            yield source
    except FileNotFoundError as problem:
        raise SpillwayError(
            f"{name}: a landing file must stay until it is taken in, it is gone; deliver it again under this name"
        ) from problem


def measured(contract: StreamContract, name: str, path: str) -> MeasuredFile:
    """Digest and record count of a delivered file."""
    with delivered_file(name, path) as source:
        return measure_file(contract, source)


@dataclass(frozen=True)
class FilePart:
    """A piece of a file, and the digest of its bytes where it is not the whole."""

    file: LandingFile
    piece: FilePiece = WHOLE
    digest: str = ""

    @property
    def size(self) -> int:
        """Bytes, about as many where it is row groups."""
        if self.piece.groups is not None:
            return TASK_BYTES
        return self.file.size - self.piece.start if self.piece.size is None else self.piece.size


@dataclass(frozen=True)
class TaskFiles:
    """Files, or pieces of them, that one task parses, all of one batch."""

    batch: Batch
    files: tuple[FilePart, ...]


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
    """What a task made of its files: what it wrote, what it counted, and which files it found to be damaged."""

    batch: int
    raw: Written | None = None
    rejected: tuple[Written, ...] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)
    damaged: Mapping[str, Why] = field(default_factory=dict)
    problem: SpillwayError | None = None


def parse_all(
    engine: Engine,
    contract: StreamContract,
    landing: str,
    raw: Table,
    rejected: Table,
    batches: Sequence[Batch],
) -> list[ParsedFiles]:
    """Parse all files of the batches, in order; nothing is in a table yet."""
    work = in_tasks(engine, contract, landing, batches)
    parse = partial(parse_files, contract, landing, Target.of(raw), Target.of(rejected))
    found = engine.map(partial(parse, {}), work)
    damaged = {name: why for one in found for name, why in one.damaged.items()}
    # who read another piece of such a file took its rows, and has to do without
    again = [
        i
        for i, (one, task) in enumerate(zip(found, work, strict=True))
        if {part.file.name for part in task.files} & (damaged.keys() - one.damaged.keys()) and not one.problem
    ]
    if again:
        drop_drafts(raw, rejected, [found[i] for i in again])
        for i, one in zip(again, engine.map(partial(parse, damaged), [work[i] for i in again]), strict=True):
            found[i] = one
    return found


def drop_drafts(raw: Table, rejected: Table, parsed: Sequence[ParsedFiles]) -> None:
    """Take away what tasks have written, or every try of a batch would leave files behind."""
    discard(raw.path, [one.raw for one in parsed if one.raw])
    discard(rejected.path, [written for one in parsed for written in one.rejected])


def parse_files(
    contract: StreamContract,
    landing: str,
    raw: Target,
    rejected: Target,
    damaged: Mapping[str, Why],
    work: TaskFiles,
) -> ParsedFiles:
    """Read some files, once; write what is good and what is not, or say why neither was."""
    damaged = dict(damaged)
    while True:
        aside = _Aside(contract, rejected, work.batch)
        try:
            day = {"batch_date": str(work.batch.batch_date)}
            made = write_file(raw.folder, day, raw.schema, _good(contract, landing, damaged, work, aside))
            return aside.told(made, damaged)
        except _Damaged as found:
            aside.drop()
            damaged[found.name] = found.why
        except SpillwayError as problem:
            aside.drop()
            return ParsedFiles(work.batch.batch, problem=problem)


class _Damaged(Exception):
    """A file of which nothing may be taken was met half-way."""

    def __init__(self, name: str, why: Why) -> None:
        super().__init__(name)
        self.name, self.why = name, why


def _good(
    contract: StreamContract, landing: str, damaged: Mapping[str, Why], work: TaskFiles, aside: _Aside
) -> Iterator[pa.Table]:
    for part in work.files:
        file = part.file
        with delivered_file(file.name, path_of(landing, file.name)) as source:
            if file.name in damaged:
                if not part.piece.before:
                    aside.add(refused_file(contract, file.name, WholeFile(*damaged[file.name]), source), file)
                continue
            try:
                for found in parse_parts(contract, file.name, *_checked(part, source)):
                    aside.add(found, file)
                    if found.table.num_rows:
                        yield _numbered(found.table, work.batch, file)
            except WholeFile as problem:
                raise _Damaged(file.name, problem.why) from None


def _checked(part: FilePart, source: SeekableBytes) -> tuple[SeekableBytes, FilePiece]:
    """The part's bytes, which are those that were recorded, and the piece they are."""
    piece, digest = part.piece, part.digest or part.file.digest
    if piece.groups is not None:
        return source, piece
    source.seek(piece.start)
    if part.size <= _IN_MEMORY:
        content = source.read(part.size)
        hashed, source, piece = (
            hashlib.sha256(content),
            pa.BufferReader(content),
            replace(piece, start=0, size=None),
        )
    else:
        hashed = _hash(source, part.size)
    if hashed.hexdigest() != digest:
        raise SpillwayError(
            f"{part.file.name}: a landing file must not change once it is recorded, its digest did; "
            "deliver the change as a new file"
        )
    return source, piece


def _hash(source: SeekableBytes, size: int, also: Any = None) -> Any:
    """The digest of the next `size` bytes, a few at a time."""
    hashed = hashlib.sha256()
    while size > 0 and (found := source.read(min(size, _READ_BYTES))):
        hashed.update(found)
        if also is not None:
            also.update(found)
        size -= len(found)
    return hashed


class _Aside:
    """What a task does not take: written as it gathers, so that a file of nothing else takes bounded memory."""

    def __init__(self, contract: StreamContract, target: Target, batch: Batch) -> None:
        self._contract, self._target, self._batch = contract, target, batch
        self._held: list[pa.Table] = []
        self._written: list[Written] = []
        self._reasons: dict[str, int] = {}
        self._notes: dict[str, int] = {}
        self._nulls: dict[str, int] = {}

    def add(self, found: Parsed, file: LandingFile) -> None:
        for name in self._contract.names:
            self._nulls[name] = self._nulls.get(name, 0) + found.table.column(name).null_count
        for note, count in found.notes.items():
            self._notes[note] = self._notes.get(note, 0) + count
        if not found.rejected.num_rows:
            return
        part = _numbered(found.rejected, self._batch, file)
        self._held.append(part.append_column("file", pa.array([file.name] * part.num_rows, pa.string())))
        for broken, rule in zip(part["field"].to_pylist(), part["rule"].to_pylist(), strict=True):
            reason = reason_of(self._contract, broken, rule)
            self._reasons[reason] = self._reasons.get(reason, 0) + 1
        if sum(table.nbytes for table in self._held) > _REJECTED_BYTES:
            self._write()

    def _write(self) -> None:
        place = {"stream": self._contract.stream}
        made = write_file(self._target.folder, place, self._target.schema, iter(self._held))
        self._written += [made] if made else []
        self._held = []

    def told(self, raw: Written | None, damaged: Mapping[str, Why]) -> ParsedFiles:
        self._write()
        return ParsedFiles(
            self._batch.batch, raw, tuple(self._written), self._reasons, self._notes, self._nulls, damaged
        )

    def drop(self) -> None:
        discard(self._target.folder, self._written)


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


def in_tasks(
    engine: Engine, contract: StreamContract, landing: str, batches: Sequence[Batch]
) -> list[TaskFiles]:
    """Consecutive files, or pieces, in groups of about `TASK_BYTES`, never across a batch: rows lie in seq order.

    Where files are cut depends on their bytes alone, and not on who works on them.
    """
    large = [file for batch in batches for file in batch.taken if file.size > TASK_BYTES]
    pieces = dict(
        zip((f.name for f in large), engine.map(partial(_cut, contract, landing), large), strict=True)
    )
    groups: list[tuple[Batch, list[FilePart]]] = []
    size = 0
    for batch in batches:
        for file in batch.taken:
            for part in pieces.get(file.name, (FilePart(file),)):
                if not groups or size + part.size > TASK_BYTES or groups[-1][0].batch != batch.batch:
                    groups.append((batch, []))
                    size = 0
                groups[-1][1].append(part)
                size += part.size
    return [TaskFiles(batch, tuple(files)) for batch, files in groups]


def _cut(contract: StreamContract, landing: str, file: LandingFile) -> tuple[FilePart, ...]:
    """A large file in pieces, each with its digest; whole where it has changed, for then whoever reads it says so."""
    with delivered_file(file.name, path_of(landing, file.name)) as source:
        pieces = cut(contract, source, TASK_BYTES)
        if pieces == (WHOLE,):
            return (FilePart(file),)
        source.seek(0)
        if pieces[0].groups is not None:
            parts = [FilePart(file, piece) for piece in pieces]
            changed = _hash(source, file.size).hexdigest() != file.digest
        else:
            parts, whole = [], hashlib.sha256()
            for piece in pieces:
                size = file.size - piece.start if piece.size is None else piece.size
                parts.append(FilePart(file, piece, _hash(source, size, whole).hexdigest()))
            changed = whole.hexdigest() != file.digest
    return (FilePart(file),) if changed else tuple(parts)
