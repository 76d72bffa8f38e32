"""Drafts: files that tasks have written and that no table has yet. Each can be measured, thrown away, or published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError
from spillway.store import blobs
from spillway.store.commits import add_bytes, commit_info_bytes
from spillway.store.files import DataFile
from spillway.store.logs import data_file
from spillway.store.writing import Written, write_file


@dataclass(frozen=True)
class Piece:
    """What one file is made of: its partition, the batch it is of, and whatever the maker knows to make rows of."""

    partition: Mapping[str, str]
    batch: int
    of: Any


@dataclass(frozen=True)
class Draft:
    """Files that tasks have written and no table has yet."""

    table: str
    parts: tuple[tuple[Piece, Written], ...]
    counts: Mapping[int, Mapping[str, int]]
    """By batch, what the makers counted."""
    found: tuple[Any, ...] = ()
    """What was found of each piece's file, in the pieces' order, where that was asked for."""

    @property
    def written(self) -> tuple[Written, ...]:
        return tuple(written for _, written in self.parts)

    def of(self, batch: int) -> list[Written]:
        """The files of one batch."""
        return [written for piece, written in self.parts if piece.batch == batch]

    def rows(self, batch: int) -> int:
        """How many rows of the batch were written."""
        return sum(one.rows for one in self.of(batch))

    def column_bytes(self, batch: int, columns: Iterable[str]) -> dict[str, int]:
        """Compressed bytes of the batch's columns as written."""
        files = self.of(batch)
        return {name: sum(one.column_bytes.get(name, 0) for one in files) for name in columns}

    def file_bytes(self, batch: int) -> int:
        """Bytes of the batch's files, whole."""
        return sum(one.size for one in self.of(batch))

    def log_bytes(self, batch: int) -> int:
        """Return the bytes that the table's log takes for the batch: its files, and its share of the commit."""
        files = self.of(batch)
        batches = len({piece.batch for piece, _ in self.parts})
        return sum(map(add_bytes, files)) + -(-commit_info_bytes(files) // batches) if files else 0


Make = Callable[[Any, dict[str, int]], Iterable[pa.Table]]
"""Rows of a piece, table after table; the columns may be in any order, one that is missing is null.

What it counts on the way goes into the second argument, and comes back with the draft.
"""

ReadBack = Callable[[Any, tuple[DataFile, ...]], Any]
"""What is to be found of a piece's file (none where it has no rows), read back by the task that wrote it."""


def drafted(
    engine: Engine,
    pieces: Sequence[Piece],
    make: Make,
    table: str,
    folder: str,
    schema: pa.Schema,
    check: ReadBack | None = None,
    rows_in_a_group: int | None = None,
) -> Draft:
    """One file a piece, written by the engine's tasks; a piece without rows leaves none.

    Where one task is refused, what the others wrote is thrown away.
    """
    work = partial(_write_piece, folder=folder, schema=schema, make=make, check=check, group=rows_in_a_group)
    found: list[tuple[Piece, Written]] = []
    counts: dict[int, dict[str, int]] = {}
    checked: list[Any] = []
    problem: SpillwayError | None = None
    for piece, made in zip(pieces, engine.map(work, pieces), strict=True):
        if isinstance(made.outcome, SpillwayError):
            problem = problem or made.outcome
        elif made.outcome is not None:
            found.append((piece, made.outcome))
        checked.append(made.found)
        into = counts.setdefault(piece.batch, {})
        for name, count in made.counts.items():
            into[name] = into.get(name, 0) + count
    draft = Draft(table, tuple(found), counts, tuple(checked) if check is not None else ())
    if problem is not None:
        discard(folder, draft.written)
        raise problem
    return draft


def discard(folder: str, written: Iterable[Written]) -> None:
    """Remove files that stand in no table."""
    for one in written:
        blobs.remove(f"{folder}/{one.path}")


@dataclass(frozen=True)
class _Made:
    """What came of a piece: its file, none where it has no rows, or why it was refused."""

    outcome: Written | SpillwayError | None
    counts: Mapping[str, int]
    found: Any = None


def _write_piece(
    piece: Piece, folder: str, schema: pa.Schema, make: Make, check: ReadBack | None, group: int | None
) -> _Made:
    counts: dict[str, int] = {}
    try:
        written = write_file(folder, piece.partition, schema, make(piece.of, counts), rows_in_a_group=group)
        if check is None:
            return _Made(written, counts)
        try:
            return _Made(written, counts, check(piece.of, _as_listed(piece, folder, schema, written)))
        except BaseException:
            discard(folder, [] if written is None else [written])
            raise
    except SpillwayError as problem:
        return _Made(problem, counts)


def _as_listed(piece: Piece, folder: str, schema: pa.Schema, written: Written | None) -> tuple[DataFile, ...]:
    """The file as the table's log will list it."""
    whole = pa.schema([*schema, *((name, pa.string()) for name in piece.partition)])
    return () if written is None else (data_file(folder, written, whole),)
