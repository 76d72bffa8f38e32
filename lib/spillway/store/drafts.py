"""Drafts: files that tasks have written and that no table has yet. Each can be measured, thrown away, or published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError
from spillway.store import blobs
from spillway.store.delta_log import add_bytes, commit_info_bytes, data_file
from spillway.store.file_writer import WrittenFile, write_file
from spillway.store.files import DataFile


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


def write_draft(
    engine: Engine,
    pieces: Sequence[FileTask],
    make: Make,
    table: str,
    folder: str,
    schema: pa.Schema,
    check: ReadBack | None = None,
    rows_in_a_group: int | None = None,
    keys: Sequence[str] = (),
    label: str = "",
) -> Draft:
    """Write one file per piece, by the engine's tasks; a piece without rows has no file.

    `keys`: columns by which its rows are stored if that takes fewer bytes (see `write_file`). `label`: shown in Spark's
    UI. If a task is refused, the files of the other tasks are removed.
    """
    work = partial(
        _write_task,
        folder=folder,
        schema=schema,
        make=make,
        check=check,
        group=rows_in_a_group,
        keys=tuple(keys),
    )
    found: list[tuple[FileTask, WrittenFile]] = []
    counts: dict[int, dict[str, int]] = {}
    checked: list[Any] = []
    shared: dict[str, Mapping[int, int]] = {}
    problem: SpillwayError | None = None
    for piece, made in zip(pieces, engine.map(work, pieces, label), strict=True):
        if isinstance(made.outcome, SpillwayError):
            problem = problem or made.outcome
        elif made.outcome is not None:
            found.append((piece, made.outcome))
            if piece.others:
                shared[made.outcome.path] = made.rows
        checked.append(made.found)
        for number, counted in made.counts.items():
            into = counts.setdefault(number, {})
            for name, count in counted.items():
                into[name] = into.get(name, 0) + count
    draft = Draft(table, tuple(found), counts, tuple(checked) if check is not None else (), shared)
    if problem is not None:
        discard(folder, draft.written)
        raise problem
    return draft


def discard(folder: str, written: Iterable[WrittenFile]) -> None:
    """Remove files that no table has."""
    for one in written:
        blobs.remove(f"{folder}/{one.path}")


@dataclass(frozen=True)
class _TaskResult:
    """The result of a piece: its file, None if it has no rows, or the error that refused it."""

    outcome: WrittenFile | SpillwayError | None
    counts: Mapping[int, Mapping[str, int]]
    """The counts of the maker, by batch."""
    found: Any = None
    rows: Mapping[int, int] = field(default_factory=dict)
    """The number of rows in the file, by batch."""


def _write_task(
    piece: FileTask,
    folder: str,
    schema: pa.Schema,
    make: Make,
    check: ReadBack | None,
    group: int | None,
    keys: Sequence[str],
) -> _TaskResult:
    counts: dict[int, dict[str, int]] = {number: {} for number, _ in piece.slices}
    rows: dict[int, int] = {}

    def tables() -> Iterator[pa.Table]:
        for number, of in piece.slices:
            for table in make(of, counts[number]):
                rows[number] = rows.get(number, 0) + table.num_rows
                yield table

    try:
        written = write_file(folder, piece.partition, schema, tables(), rows_in_a_group=group, keys=keys)
        rows = {number: count for number, count in rows.items() if count}
        if check is None:
            return _TaskResult(written, counts, None, rows)
        try:
            found = check(piece.of, _as_listed(piece, folder, schema, written))
            return _TaskResult(written, counts, found, rows)
        except BaseException:
            discard(folder, [] if written is None else [written])
            raise
    except SpillwayError as problem:
        return _TaskResult(problem, counts)


def _as_listed(
    piece: FileTask, folder: str, schema: pa.Schema, written: WrittenFile | None
) -> tuple[DataFile, ...]:
    """Return the file as the table's log will list it."""
    whole = pa.schema([*schema, *((name, pa.string()) for name in piece.partition)])
    return () if written is None else (data_file(folder, written, whole),)
