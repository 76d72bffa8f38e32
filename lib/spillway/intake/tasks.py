"""Work for tasks: files in groups, large ones in pieces, each opened only as what it was recorded as.

Where files are cut depends on their bytes alone, and not on who works on them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from spillway.batch import Batch, LandingFile
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.intake.landing import landing_root, path_of
from spillway.records import WHOLE, FilePiece, SeekableBytes, cut
from spillway.store.landing_zone import GoneOrChanged, open_landed

TASK_BYTES = 32 * 1024 * 1024
_IN_MEMORY = 2 * TASK_BYTES
_READ_BYTES = 8 << 20


@dataclass(frozen=True)
class Originals:
    """Records that were refused before, on the lines where they stood, and how they are spelled."""

    contract: StreamContract
    content: bytes


KeptRecords = Mapping[int, Originals]
"""What was kept of files that are replayed, by `base_seq`."""


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
    kept: KeptRecords = field(default_factory=dict)

    @property
    def places(self) -> frozenset[int]:
        """Its files by `base_seq`, which no two files of a stream share."""
        return frozenset(part.file.base_seq for part in self.files)


@contextmanager
def recorded_file(
    contract: StreamContract, landing: str, file: LandingFile, kept: KeptRecords
) -> Iterator[SeekableBytes]:
    """A recorded file, to be read at any place, as long as it is what it was; of a replayed one what was kept."""
    if file.base_seq in kept:
        yield pa.BufferReader(kept[file.base_seq].content)
        return
    listed = None if file.modified_at is None else (file.size, file.modified_at)
    with open_landed(landing_root(contract, landing), path_of(landing, file.name), listed) as source:
        yield source


def checked(part: FilePart, source: SeekableBytes) -> tuple[SeekableBytes, FilePiece]:
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
        raise GoneOrChanged("it changed after it was recorded")
    return source, piece


def in_tasks(
    engine: Engine,
    contract: StreamContract,
    landing: str,
    batches: Sequence[Batch],
    kept: KeptRecords,
) -> list[TaskFiles]:
    """Consecutive files, or pieces, in groups of about `TASK_BYTES`, never across a batch: rows lie in seq order."""
    large = [
        file
        for batch in batches
        for file in batch.taken
        if file.size > TASK_BYTES and file.base_seq not in kept
    ]
    cuts = engine.map(partial(_cut, contract, landing), large)
    pieces = dict(zip((file.base_seq for file in large), cuts, strict=True))
    groups: list[tuple[Batch, list[FilePart]]] = []
    size = 0
    for batch in batches:
        for file in batch.taken:
            for part in pieces.get(file.base_seq, (FilePart(file),)):
                if not groups or size + part.size > TASK_BYTES or groups[-1][0].batch != batch.batch:
                    groups.append((batch, []))
                    size = 0
                groups[-1][1].append(part)
                size += part.size
    return [
        TaskFiles(
            batch,
            tuple(files),
            {part.file.base_seq: kept[part.file.base_seq] for part in files if part.file.base_seq in kept},
        )
        for batch, files in groups
    ]


def _cut(contract: StreamContract, landing: str, file: LandingFile) -> tuple[FilePart, ...]:
    """A large file in pieces, each with its digest; whole where it has changed, for then whoever reads it says so."""
    try:
        with recorded_file(contract, landing, file, {}) as source:
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
    except (GoneOrChanged, OSError):
        changed, parts = True, []
    return (FilePart(file),) if changed else tuple(parts)


def _hash(source: SeekableBytes, size: int, also: Any = None) -> Any:
    """The digest of the next `size` bytes, a few at a time."""
    hashed = hashlib.sha256()
    while size > 0 and (found := source.read(min(size, _READ_BYTES))):
        hashed.update(found)
        if also is not None:
            also.update(found)
        size -= len(found)
    return hashed
