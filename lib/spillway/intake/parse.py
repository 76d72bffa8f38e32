"""Parse landing files: each task reads its files once, and writes good records to `raw` and bad ones to `rejected`.

A file of any size takes bounded memory. A large file is read in slices by several tasks. A file that cannot be split is
read as a stream. Where a file is split depends on its bytes alone, and not on the number of tasks.

A file that turns out to be damaged is refused whole, including the slices that other tasks have read. A bad file never
stops another one. A file that is gone, or has changed since it was recorded, is missed. A file on which the parser
fails is refused. The task then continues with the next file.

Tasks get files in groups. A file is opened only if it is still the file that was recorded.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import MISSED, REFUSED, Batch, LandingFile
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import Problem, SpillwayError, escape_text
from spillway.intake.file_results import Exclusion, FileResult, final_results, results_by_file
from spillway.intake.landing import landing_path, landing_root
from spillway.records import (
    WHOLE,
    FileSlice,
    ParsedRecords,
    SeekableBytes,
    WholeFile,
    parse_blocks,
    reason_of,
    reject_file,
    split_file,
)
from spillway.records.wrapper import open_decompressed
from spillway.store.blobs import raise_store_fault
from spillway.store.drafts import discard
from spillway.store.file_writer import WrittenFile, write_file
from spillway.store.landing_zone import LandingFileChanged, open_landing_file
from spillway.store.tables import Table

TASK_BYTES = 32 * 1024 * 1024
_IN_MEMORY = 2 * TASK_BYTES
_READ_BYTES = 8 << 20


@dataclass(frozen=True)
class Originals:
    """The original bytes of refused records, on their original lines, and the contract that reads them."""

    contract: StreamContract
    content: bytes


KeptRecords = Mapping[int, Originals]
"""The stored originals of files that are replayed, by `base_seq`."""


@dataclass(frozen=True)
class LandingFileSlice:
    """A slice of a file.

    `digest` is the digest of its bytes. It is empty if the slice is the whole file or a number of row groups.
    """

    file: LandingFile
    piece: FileSlice = WHOLE
    digest: str = ""

    @property
    def size(self) -> int:
        """Size in bytes; an estimate if the slice is a number of row groups."""
        if self.piece.groups is not None:
            return TASK_BYTES
        return self.file.size - self.piece.start if self.piece.size is None else self.piece.size


@dataclass(frozen=True)
class ParseTask:
    """The files, or slices of files, that one task parses. All of them belong to one batch."""

    batch: Batch
    files: tuple[LandingFileSlice, ...]
    kept: KeptRecords = field(default_factory=dict)

    @property
    def places(self) -> frozenset[int]:
        """The `base_seq` of each file, which is unique within a stream."""
        return frozenset(part.file.base_seq for part in self.files)


@contextmanager
def open_recorded_file(
    contract: StreamContract, landing: str, file: LandingFile, kept: KeptRecords
) -> Iterator[SeekableBytes]:
    """Open a recorded file for random access; for a replayed file, open its stored originals.

    Raise `LandingFileChanged` if the file is gone, or is no longer the one that was recorded.
    """
    if file.base_seq in kept:
        yield pa.BufferReader(kept[file.base_seq].content)
        return
    listed = None if file.modified_at is None else (file.size, file.modified_at)
    with open_landing_file(
        landing_root(contract, landing), landing_path(landing, file.name), listed
    ) as source:
        yield source


def verify_slice(part: LandingFileSlice, source: SeekableBytes) -> tuple[SeekableBytes, FileSlice]:
    """Return a source of the slice's bytes, and the slice to parse in it.

    Raise `LandingFileChanged` if the bytes are not those that were recorded. Row groups are not checked here (see
    `_split_large_file`).
    """
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
        raise LandingFileChanged("it changed after it was recorded")
    return source, piece


def group_into_tasks(
    engine: Engine,
    contract: StreamContract,
    landing: str,
    batches: Sequence[Batch],
    kept: KeptRecords,
) -> list[ParseTask]:
    """Group consecutive files, or slices, into tasks of about `TASK_BYTES`, so that rows are in `seq` order.

    A task never has files of two batches.
    """
    large = [
        file
        for batch in batches
        for file in batch.accepted_files
        if file.size > TASK_BYTES and file.base_seq not in kept
    ]
    cuts = engine.map(
        partial(_split_large_file, contract, landing), large, f"split_file files of {contract.stream}"
    )
    pieces = dict(zip((file.base_seq for file in large), cuts, strict=True))
    groups: list[tuple[Batch, list[LandingFileSlice]]] = []
    size = 0
    for batch in batches:
        for file in batch.accepted_files:
            for part in pieces.get(file.base_seq, (LandingFileSlice(file),)):
                if not groups or size + part.size > TASK_BYTES or groups[-1][0].batch != batch.batch:
                    groups.append((batch, []))
                    size = 0
                groups[-1][1].append(part)
                size += part.size
    return [
        ParseTask(
            batch,
            tuple(files),
            {part.file.base_seq: kept[part.file.base_seq] for part in files if part.file.base_seq in kept},
        )
        for batch, files in groups
    ]


def _split_large_file(
    contract: StreamContract, landing: str, file: LandingFile
) -> tuple[LandingFileSlice, ...]:
    """Split a large file into slices, each with its digest.

    If the file has changed, return it whole: the task that reads it then reports the change.
    """
    try:
        with open_recorded_file(contract, landing, file, {}) as source:
            pieces = split_file(contract, source, TASK_BYTES)
            if pieces == (WHOLE,):
                return (LandingFileSlice(file),)
            source.seek(0)
            if pieces[0].groups is not None:
                parts = [LandingFileSlice(file, piece) for piece in pieces]
                changed = _hash(source, file.size).hexdigest() != file.digest
            else:
                parts, whole = [], hashlib.sha256()
                for piece in pieces:
                    size = file.size - piece.start if piece.size is None else piece.size
                    parts.append(LandingFileSlice(file, piece, _hash(source, size, whole).hexdigest()))
                changed = whole.hexdigest() != file.digest
    except (LandingFileChanged, OSError):
        changed, parts = True, []
    return (LandingFileSlice(file),) if changed else tuple(parts)


def _hash(source: SeekableBytes, size: int, also: Any = None) -> Any:
    """Return the digest of the next `size` bytes, read in blocks; `also` is a second digest to update."""
    hashed = hashlib.sha256()
    while size > 0 and (found := source.read(min(size, _READ_BYTES))):
        hashed.update(found)
        if also is not None:
            also.update(found)
        size -= len(found)
    return hashed


_REJECTED_BYTES = 32 << 20
_HEADER_BYTES = 1 << 20
_MOST_TOLD = 200

Drops = Mapping[int, Exclusion]
"""Excluded files by `base_seq`."""


@dataclass(frozen=True)
class DraftTarget:
    """The folder and schema of the files that a task writes."""

    folder: str
    schema: pa.Schema

    @staticmethod
    def of(table: Table) -> DraftTarget:
        return DraftTarget(table.path, table.contract.file_schema)


@dataclass(frozen=True)
class ParseResult:
    """The result of a task: the files it wrote, its counts, and the files that are excluded from the batch."""

    batch: int
    raw: WrittenFile | None = None
    rejected: tuple[WrittenFile, ...] = ()
    file_results: tuple[FileResult, ...] = ()
    notes: Mapping[str, int] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)
    exclusions: Drops = field(default_factory=dict)
    problem: SpillwayError | None = None


def parse_all(
    engine: Engine,
    contract: StreamContract,
    landing: str,
    raw: Table,
    rejected: Table,
    batches: Sequence[Batch],
    kept: KeptRecords,
) -> tuple[list[ParseResult], dict[int, list[FileResult]]]:
    """Parse all files of the batches, in order. Return the tasks' results, and the result of each file by batch.

    No table has the written files yet.
    """
    work = group_into_tasks(engine, contract, landing, batches, kept)
    parse = partial(parse_files, contract, landing, DraftTarget.of(raw), DraftTarget.of(rejected))
    found = engine.map(partial(parse, {}), work, f"raw/{contract.stream}")

    dropped: dict[int, Exclusion] = {}
    refused: dict[int, FileResult] = {}
    while True:
        dropped |= {place: why for one in found for place, why in one.exclusions.items()}
        told: dict[int, list[FileResult]] = defaultdict(list)
        for one in found:
            told[one.batch] += one.file_results
        fates = {
            batch.batch: final_results(contract, results_by_file(told[batch.batch])) for batch in batches
        }
        # all slices of a file, and all files of its batch, decide whether the file is refused
        more = {
            one.file.base_seq: one
            for own in fates.values()
            for one in own
            if one.status == REFUSED and not one.whole and one.file.base_seq not in dropped
        }
        refused |= more
        dropped |= {place: Exclusion(REFUSED, str(one.reason)) for place, one in more.items()}
        again = [
            i
            for i, (one, task) in enumerate(zip(found, work, strict=True))
            if task.places & (dropped.keys() - one.exclusions.keys()) and not one.problem
        ]
        if not again:
            return found, {n: [refused.get(f.file.base_seq, f) for f in own] for n, own in fates.items()}
        # tasks that took rows of such a file parse again without it; a file that changes meanwhile is missed then
        discard_drafts(raw, rejected, [found[i] for i in again])
        made = engine.map(partial(parse, dropped), [work[i] for i in again], f"raw/{contract.stream}")
        for i, one in zip(again, made, strict=True):
            found[i] = one


def discard_drafts(raw: Table, rejected: Table, parsed: Sequence[ParseResult]) -> None:
    """Remove the files that tasks have written; otherwise each attempt at a batch would leave files behind."""
    discard(raw.path, [one.raw for one in parsed if one.raw])
    discard(rejected.path, [written for one in parsed for written in one.rejected])


def parse_files(
    contract: StreamContract,
    landing: str,
    raw: DraftTarget,
    rejected: DraftTarget,
    dropped: Drops,
    work: ParseTask,
) -> ParseResult:
    """Read some files once and write their good and bad records, or return the problem that prevented it."""
    dropped = dict(dropped)
    while True:
        aside = _RejectedWriter(rejected, work)
        try:
            day = {"batch_date": str(work.batch.batch_date)}
            made = write_file(
                raw.folder, day, raw.schema, _accepted_rows(contract, landing, dropped, work, aside)
            )
            return aside.result(made, dropped)
        except _UnusableFile as found:
            aside.discard()
            dropped[found.place] = found.why
        except SpillwayError as problem:
            aside.discard()
            return ParseResult(work.batch.batch, problem=problem)


class _UnusableFile(Exception):
    """Raised when a file turns out to be unusable while it is being read."""

    def __init__(self, place: int, why: Exclusion) -> None:
        super().__init__(place)
        self.place, self.why = place, why


def _accepted_rows(
    contract: StreamContract, landing: str, dropped: Drops, work: ParseTask, aside: _RejectedWriter
) -> Iterator[pa.Table]:
    for part in work.files:
        file = part.file
        reader = work.kept[file.base_seq].contract if file.base_seq in work.kept else contract
        try:
            if file.base_seq in dropped:
                why = dropped[file.base_seq]
                if why.why is None:
                    aside.exclude_file(file, why)
                elif not part.piece.before:
                    with open_recorded_file(contract, landing, file, work.kept) as source:
                        aside.add(reader, reject_file(reader, file.name, WholeFile(*why.why), source), file)
                continue
            with open_recorded_file(contract, landing, file, work.kept) as source:
                for found in parse_blocks(reader, file.name, *verify_slice(part, source)):
                    aside.add(reader, found, file)
                    if found.table.num_rows:
                        yield _add_seq(found.table, work.batch, file)
                if aside.needs_header(reader, file):
                    aside.headers[file.base_seq] = _header(source)
        except Exception as problem:  # an error of the parser in one file must not stop the other files
            raise_store_fault(landing_root(contract, landing), problem)
            raise _UnusableFile(file.base_seq, _exclusion(file, problem)) from None


def _exclusion(file: LandingFile, problem: Exception) -> Exclusion:
    name = escape_text(file.name)
    if isinstance(problem, WholeFile):
        return Exclusion(REFUSED, str(Problem(name, *problem.why)), problem.why)
    if isinstance(problem, LandingFileChanged | FileNotFoundError):
        return Exclusion(MISSED, f"{name} is left for a later run: {problem}")
    kind = escape_text(f"{type(problem).__name__}: {problem}", _MOST_TOLD)
    return Exclusion(
        REFUSED, str(Problem(name, "the file", "be one that can be read", kind, "correct the file"))
    )


def _header(source: SeekableBytes) -> str | None:
    """Return the line with the column names of a CSV file; a replay needs it to read the file's refused records."""
    first = open_decompressed(source).read(_HEADER_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    try:
        return first.partition(b"\n")[0].decode("utf-8")
    except UnicodeDecodeError:
        return None


class _RejectedWriter:
    """Collects the refused records of a task, and writes them in parts, so that memory stays bounded."""

    def __init__(self, target: DraftTarget, work: ParseTask) -> None:
        self._target, self._batch = target, work.batch
        self._held: list[pa.Table] = []
        self._written: list[WrittenFile] = []
        self._fates = {part.file.base_seq: FileResult(part.file) for part in work.files}
        self._notes: dict[str, int] = {}
        self._nulls: dict[str, int] = {}
        self.headers: dict[int, str | None] = {}

    def add(self, contract: StreamContract, found: ParsedRecords, file: LandingFile) -> None:
        for name in contract.names:
            self._nulls[name] = self._nulls.get(name, 0) + found.table.column(name).null_count
        for note, count in found.notes.items():
            self._notes[note] = self._notes.get(note, 0) + count
        self._count(contract, found, file)
        if not found.rejected.num_rows:
            return
        part = _add_seq(found.rejected, self._batch, file)
        self._held.append(part.append_column("file", pa.array([file.name] * part.num_rows, pa.string())))
        if sum(table.nbytes for table in self._held) > _REJECTED_BYTES:
            self._write()

    def _count(self, contract: StreamContract, found: ParsedRecords, file: LandingFile) -> None:
        told = found.rejected
        reasons: dict[str, int] = {}
        for broken, rule in zip(told["field"].to_pylist(), told["rule"].to_pylist(), strict=True):
            reason = reason_of(contract, broken, rule)
            reasons[reason] = reasons.get(reason, 0) + 1
        first = told["reason"][0].as_py() if told.num_rows else None
        whole = bool(told.num_rows) and told["line"][0].as_py() == 0
        more = FileResult(file, good=found.table.num_rows, reasons=reasons, reason=first, whole=whole)
        self._fates[file.base_seq] = self._fates[file.base_seq].merged_with(more)

    def exclude_file(self, file: LandingFile, why: Exclusion) -> None:
        self._fates[file.base_seq] = FileResult(file, why.status, reason=why.reason)

    def needs_header(self, contract: StreamContract, file: LandingFile) -> bool:
        """Return whether the file has refused records that only its header can read."""
        named = contract.source.format == "csv" and contract.source.options.header
        return named and bool(self._fates[file.base_seq].bad) and file.replays is None

    def _write(self) -> None:
        place = {"stream": self._batch.stream}
        made = write_file(self._target.folder, place, self._target.schema, iter(self._held))
        self._written += [made] if made else []
        self._held = []

    def result(self, raw: WrittenFile | None, dropped: Drops) -> ParseResult:
        self._write()
        fates = (
            one.merged_with(FileResult(one.file, header=self.headers.get(at)))
            for at, one in self._fates.items()
        )
        return ParseResult(
            self._batch.batch, raw, tuple(self._written), tuple(fates), self._notes, self._nulls, dropped
        )

    def discard(self) -> None:
        discard(self._target.folder, self._written)


def _add_seq(part: pa.Table, batch: Batch, file: LandingFile) -> pa.Table:
    """Add `seq`, `batch` and `batch_date` to parsed records. Line 0 represents the whole file and gets no `seq`."""
    line = part["line"].cast(pa.int64())
    numbers = {
        "seq": pc.if_else(pc.equal(line, 0), None, pc.add(line, file.base_seq)),
        "batch": pa.array(np.full(part.num_rows, batch.batch)),
        "batch_date": pa.array([batch.batch_date] * part.num_rows, pa.date32()),
    }
    for name, column in numbers.items():
        part = part.append_column(name, column)
    return part
