"""Drafts: files that tasks have written and that no table has yet. Each can be measured, thrown away, or published."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from spillway.engine.protocol import Step, TaskRequest
from spillway.store import blobs
from spillway.store.delta_log import add_bytes, commit_info_bytes, data_file
from spillway.store.file_writer import WrittenFile, write_file
from spillway.store.files import DataFile, keep_files_open


@dataclass(frozen=True)
class FileTask:
    """The content of one file: its partition, its batch, and the argument from which the maker makes the rows.

    `others`: further batches whose rows follow in the same file, each with its argument for the maker.
    """

    partition: Mapping[str, str]
    batch: int
    of: Any
    others: tuple[tuple[int, Any], ...] = ()

    @property
    def slices(self) -> tuple[tuple[int, Any], ...]:
        """All batches of the file, each with its argument for the maker; a batch may occur more than once."""
        return ((self.batch, self.of), *self.others)


@dataclass(frozen=True)
class Draft:
    """Files that tasks have written and no table has yet."""

    table: str
    parts: tuple[tuple[FileTask, WrittenFile], ...]
    counts: Mapping[int, Mapping[str, int]]
    """The makers' counts, by batch."""
    found: tuple[Any, ...] = ()
    """The result of the check of each piece's file, in the order of the pieces; empty if there is no check."""
    batch_rows: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """By path of a file that several batches share, the number of rows of each batch."""
    seconds: float = 0.0
    """The time that tasks spent on the files."""

    @property
    def written(self) -> tuple[WrittenFile, ...]:
        return tuple(written for _, written in self.parts)

    @property
    def batches(self) -> frozenset[int]:
        """The batches that have rows."""
        return frozenset(number for piece, one in self.parts for number in self._rows(piece, one))

    def files_of(self, batch: int) -> list[WrittenFile]:
        """Return the files of one batch; a file that batches share has only the batch's share of rows and bytes."""
        return [
            _share(written, rows, batch)
            for piece, written in self.parts
            if (rows := self._rows(piece, written)).get(batch)
        ]

    def _rows(self, piece: FileTask, written: WrittenFile) -> Mapping[int, int]:
        return self.batch_rows.get(written.path, {piece.batch: written.rows})

    def rows(self, batch: int) -> int:
        """Return the number of rows of the batch."""
        return sum(one.rows for one in self.files_of(batch))

    def column_bytes(self, batch: int, columns: Iterable[str]) -> dict[str, int]:
        """Return the compressed bytes of the batch's columns as written."""
        files = self.files_of(batch)
        return {name: sum(one.column_bytes.get(name, 0) for one in files) for name in columns}

    def file_bytes(self, batch: int) -> int:
        """Return the bytes of the batch's files, or of its shares of them."""
        return sum(one.size for one in self.files_of(batch))

    def log_bytes(self, batch: int) -> int:
        """Return the bytes of the batch in the table's log: its shares of the entries of files and of the commit."""
        numbers = self.batches
        if batch not in numbers:
            return 0
        entries = (
            split_by_weight(add_bytes(one), self._rows(piece, one)).get(batch, 0) for piece, one in self.parts
        )
        return (
            sum(entries) + split_by_weight(commit_info_bytes(self.written), dict.fromkeys(numbers, 1))[batch]
        )


def split_by_weight(size: int, weights: Mapping[int, int]) -> dict[int, int]:
    """Divide a size among batches by weight; the shares add up to the size.

    >>> split_by_weight(100, {1: 1, 2: 1, 3: 1})
    {1: 33, 2: 33, 3: 34}
    """
    whole, before, shares = sum(weights.values()) or 1, 0, {}
    for batch, weight in sorted(weights.items()):
        shares[batch] = size * (before + weight) // whole - size * before // whole
        before += weight
    return shares


def _share(written: WrittenFile, rows: Mapping[int, int], batch: int) -> WrittenFile:
    """Return a file with only one batch's share of its rows and bytes."""
    if len(rows) == 1:
        return written
    column_bytes = {name: split_by_weight(size, rows)[batch] for name, size in written.column_bytes.items()}
    size = split_by_weight(written.size, rows)[batch]
    return replace(written, size=size, rows=rows[batch], column_bytes=column_bytes)


Make = Callable[[Any, dict[str, int]], Iterable[pa.Table]]
"""Makes the rows of a piece, table after table. Columns may be in any order; a missing column is null.

The maker adds its counts to the second argument. The draft returns them by batch.
"""

ReadBack = Callable[[Any, tuple[DataFile, ...]], Any]
"""The check of a piece's file (no file if it has no rows), made by the task that wrote it; returns the result."""


@dataclass(frozen=True)
class FileMaker:
    """Writes the files of one table in tasks; small enough to send to a task."""

    table: str
    folder: str
    schema: pa.Schema
    """The columns that are stored in files."""
    make: Make
    check: ReadBack | None = None
    rows_in_a_group: int | None = None
    keys: tuple[str, ...] = ()
    """Columns by which the rows of a file are stored if that takes fewer bytes (see `write_file`)."""


def draft_files(makers: Sequence[FileMaker], tasks: Sequence[Mapping[int, FileTask]]) -> Step[list[Draft]]:
    """Write files in tasks, as a step that shares its job with other streams; return a draft for each maker.

    `tasks`: for each task, the files that it writes, by the place of their maker. One task may write files of several
    tables, so that it opens the files that it reads once. A file without rows is not written. If a task fails, the
    files of the other tasks are removed, and the first error is raised.
    """
    work = [tuple((makers[place], piece) for place, piece in files.items()) for files in tasks]
    results: list[list[_TaskResult] | Exception] = yield TaskRequest(_write_task, work)
    problem: Exception | None = None
    found: list[list[tuple[FileTask, _TaskResult]]] = [[] for _ in makers]
    for files, made in zip(tasks, results, strict=True):
        if isinstance(made, Exception):
            problem = problem or made
            continue
        for (place, piece), one in zip(files.items(), made, strict=True):
            found[place].append((piece, one))
    drafts = [_draft(maker, mine) for maker, mine in zip(makers, found, strict=True)]
    if problem is not None:
        for maker, draft in zip(makers, drafts, strict=True):
            discard(maker.folder, draft.written)
        raise problem
    return drafts


def _draft(maker: FileMaker, results: Sequence[tuple[FileTask, _TaskResult]]) -> Draft:
    """Put the files of one table together that tasks have written."""
    counts: dict[int, dict[str, int]] = {}
    for _, one in results:
        for number, counted in one.counts.items():
            into = counts.setdefault(number, {})
            for name, count in counted.items():
                into[name] = into.get(name, 0) + count
    return Draft(
        maker.table,
        tuple((piece, one.written) for piece, one in results if one.written is not None),
        counts,
        tuple(one.found for _, one in results) if maker.check is not None else (),
        {one.written.path: one.rows for piece, one in results if piece.others and one.written is not None},
        math.fsum(one.seconds for _, one in results),
    )


def discard(folder: str, written: Iterable[WrittenFile]) -> None:
    """Remove files that no table has."""
    for one in written:
        blobs.remove(f"{folder}/{one.path}")


@dataclass(frozen=True)
class _TaskResult:
    """The result of a piece: its file, None if it has no rows."""

    written: WrittenFile | None
    counts: Mapping[int, Mapping[str, int]]
    """The counts of the maker, by batch."""
    found: Any = None
    rows: Mapping[int, int] = field(default_factory=dict)
    """The number of rows in the file, by batch."""
    seconds: float = 0.0


@keep_files_open()
def _write_task(files: Sequence[tuple[FileMaker, FileTask]]) -> list[_TaskResult]:
    """Write the files of a task; if one of them fails, remove the others."""
    made: list[_TaskResult] = []
    try:
        for maker, piece in files:
            started = time.monotonic()
            one = _write_piece(maker, piece)
            made.append(replace(one, seconds=time.monotonic() - started))
    except BaseException:
        for (maker, _), one in zip(files, made, strict=False):
            discard(maker.folder, [one.written] if one.written is not None else [])
        raise
    return made


def _write_piece(maker: FileMaker, piece: FileTask) -> _TaskResult:
    counts: dict[int, dict[str, int]] = {number: {} for number, _ in piece.slices}
    rows: dict[int, int] = {}

    def tables() -> Iterator[pa.Table]:
        for number, of in piece.slices:
            for table in maker.make(of, counts[number]):
                rows[number] = rows.get(number, 0) + table.num_rows
                yield table

    written = write_file(
        maker.folder,
        piece.partition,
        maker.schema,
        tables(),
        rows_in_a_group=maker.rows_in_a_group,
        keys=maker.keys,
    )
    rows = {number: count for number, count in rows.items() if count}
    if maker.check is None:
        return _TaskResult(written, counts, None, rows)
    try:
        found = maker.check(piece.of, _as_listed(piece, maker.folder, maker.schema, written))
    except BaseException:
        discard(maker.folder, [] if written is None else [written])
        raise
    return _TaskResult(written, counts, found, rows)


def _as_listed(
    piece: FileTask, folder: str, schema: pa.Schema, written: WrittenFile | None
) -> tuple[DataFile, ...]:
    """Return the file as the table's log will list it."""
    whole = pa.schema([*schema, *((name, pa.string()) for name in piece.partition)])
    return () if written is None else (data_file(folder, written, whole),)
