"""Looking rows up by their values: in the window around a batch, whose edges are given in rows.

Rows are looked up by a 64-bit fingerprint first, which is small enough to travel to every piece of the window. What
that finds is compared by its values, so that two rows of one fingerprint are never taken for one. Memory is that of the
fingerprints that are looked for, and of the values of the rows that are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from spillway.batch import BatchRows
from spillway.engine.dividing import in_pieces
from spillway.engine.protocol import Engine
from spillway.intake.alike import alike_by_values, repeated_seqs
from spillway.sketches.column_keys import keys_of
from spillway.sketches.types import Booleans, Integers, Keys
from spillway.store.files import DataFile, RowReader, rows_of

HASH_SEED = 1
FIRST = int(np.iinfo(np.int64).min)
"""Before every `seq`."""
_PIECES_A_CORE = 4
_ROWS_AT_A_TIME = 262_144

SeqRange = tuple[int, int]
"""Rows by their `seq`, from and to."""


@dataclass(frozen=True)
class Compared:
    """What rows are compared by."""

    names: tuple[str, ...]
    types: tuple[str, ...]

    def keys(self, rows: pa.Table) -> Keys:
        return keys_of(rows, self.names, self.types, HASH_SEED)


@dataclass(frozen=True)
class Surroundings:
    """The batch's rows as stretches of its files, and the pieces of what stands within the window around it.

    `standing` are the `seq` (from, to) of the rows that count; others may lie in the same files.
    """

    files: tuple[DataFile, ...]
    first_seq: int
    last_seq: int
    stretches: tuple[SeqRange, ...]
    history: tuple[tuple[DataFile, ...], ...]
    standing: tuple[SeqRange, ...]
    within: int | None

    @property
    def since(self) -> int:
        """The first `seq` of the window."""
        return FIRST if self.within is None else self.first_seq - self.within

    @property
    def until(self) -> int:
        """The last `seq` of the window: that of the batch where nothing after it stands."""
        after = max((last for _, last in self.standing), default=self.last_seq)
        reach = after if self.within is None else self.last_seq + self.within
        return max(self.last_seq, min(after, reach))


def window_around(
    mine: SeqRange,
    files: Sequence[DataFile],
    history: Sequence[DataFile],
    standing: tuple[SeqRange, ...],
    within: int | None,
    cores: int,
) -> Surroundings:
    """The window around the rows `mine` in `files`, cut in pieces for so many cores."""
    first, last = mine
    pieces = _PIECES_A_CORE * cores
    found = Surroundings(tuple(files), first, last, _stretches(first, last, pieces), (), standing, within)
    near = files_between(history, found.since, found.until)
    return replace(found, history=tuple(in_pieces(near, pieces, weight=lambda file: file.size)))


def seq_ranges(standing: Sequence[BatchRows]) -> tuple[SeqRange, ...]:
    """The rows of these batches, neighbours as one.

    >>> from datetime import date
    >>> seqs = enumerate([(0, 4), (9, 8), (5, 7), (12, 13)])
    >>> seq_ranges([BatchRows(n, date(2026, 1, 1), "done", *seq, rows=None) for n, seq in seqs])
    ((0, 7), (12, 13))
    """
    found: list[SeqRange] = []
    for first, last in sorted(
        (one.first_seq, one.last_seq) for one in standing if one.first_seq <= one.last_seq
    ):
        if found and first == found[-1][1] + 1:
            first, _ = found.pop()
        found.append((first, last))
    return tuple(found)


def files_between(files: Sequence[DataFile], first: int, last: int) -> list[DataFile]:
    """Those that may hold rows from `first` to `last`."""

    def may(file: DataFile) -> bool:
        low, high = file.low("seq"), file.high("seq")
        return (high is None or high >= first) and (low is None or low <= last)

    return [file for file in files if may(file)]


def repeated_exactly(engine: Engine, on: Compared, window: Surroundings) -> Integers:
    """The batch's rows that repeat one that stays: all are looked up."""
    found = engine.map(partial(_fingerprints, on, window.files), window.stretches)
    mine, counts = np.unique(np.concatenate([np.empty(0, np.uint64), *found]), return_counts=True)
    known = engine.map(partial(_known, on, mine, window), window.history)
    wanted = np.unique(np.concatenate([mine[counts > 1], *known]))
    return confirmed(engine, on, window, wanted)


def confirmed(engine: Engine, on: Compared, window: Surroundings, wanted: Keys) -> Integers:
    """The batch's rows that truly repeat one that stays, among those of the wanted fingerprints."""
    if not wanted.size:
        return np.empty(0, np.int64)
    mine = engine.map(partial(_alike, on, wanted, window.files), window.stretches)
    others = engine.map(partial(_alike_beside, on, wanted, window), window.history)
    edges = (window.first_seq, window.last_seq)
    return repeated_seqs([*mine, *others], on.names, on.types, edges, window.within)


def _stretches(first: int, last: int, most: int) -> tuple[SeqRange, ...]:
    """The rows from `first` to `last` in at most `most` stretches, none of them tiny."""
    size = max(-(-(last - first + 1) // most), RowReader.AT_A_TIME)
    return tuple((low, min(last, low + size - 1)) for low in range(first, last + 1, size))


def _fingerprints(on: Compared, files: Sequence[DataFile], stretch: SeqRange) -> Keys:
    return np.concatenate([np.empty(0, np.uint64), *map(on.keys, _stretch(on, files, stretch))])


def _known(on: Compared, mine: Keys, window: Surroundings, files: Sequence[DataFile]) -> Keys:
    """Which of the batch's (sorted) fingerprints standing rows of these files have."""
    found = [np.empty(0, np.uint64)]
    for rows in _standing(on, window, files):
        keys = on.keys(rows)
        found.append(np.unique(keys[_among(keys, mine)]))
    return np.unique(np.concatenate(found))


def _alike(on: Compared, wanted: Keys, files: Sequence[DataFile], stretch: SeqRange) -> pa.Table:
    found = [rows.filter(pa.array(_among(on.keys(rows), wanted))) for rows in _stretch(on, files, stretch)]
    return pa.concat_tables([_nothing(on), *found], promote_options="permissive")


def _alike_beside(on: Compared, wanted: Keys, window: Surroundings, files: Sequence[DataFile]) -> pa.Table:
    """Of each value of the wanted fingerprints the last row before the batch, and the first after: none is nearer."""
    found = [_nothing(on)]
    for rows in _standing(on, window, files):
        found.append(rows.filter(pa.array(_among(on.keys(rows), wanted))))
    rows = pa.concat_tables(found, promote_options="permissive")
    if not rows.num_rows:
        return rows
    # one number for a value before the batch, and one for it after, whose nearest row is then the last as well
    seq = np.asarray(rows["seq"])
    after = seq > window.last_seq
    alike = 2 * alike_by_values(rows, on.names, on.types) + after
    order = np.lexsort((np.where(after, -seq, seq), alike))
    last = np.flatnonzero(np.r_[alike[order][1:] != alike[order][:-1], True])
    return rows.take(pa.array(order[last]))


def _stretch(on: Compared, files: Sequence[DataFile], stretch: SeqRange) -> Iterator[pa.Table]:
    """The rows of a stretch, some at a time."""
    read = RowReader(files)
    for low in range(stretch[0], stretch[1] + 1, RowReader.AT_A_TIME):
        rows = read(on.names, low, min(stretch[1], low + RowReader.AT_A_TIME - 1))
        yield rows.select(["seq", *on.names])


def _standing(on: Compared, window: Surroundings, files: Sequence[DataFile]) -> Iterator[pa.Table]:
    """The rows within reach of the batch that stand, and are not its own."""
    reach = [
        (max(low, window.since), min(high, window.until))
        for first, last in window.standing
        for low, high in ((first, min(last, window.first_seq - 1)), (max(first, window.last_seq + 1), last))
    ]
    for file in files:
        for rows in rows_of(file, ["seq", *on.names], _ROWS_AT_A_TIME, [("seq", window.since, window.until)]):
            yield rows.filter(pa.array(in_any(np.asarray(rows["seq"]), reach)))


def in_any(seqs: Integers, edges: Sequence[SeqRange]) -> Booleans:
    """Which of these lie in one of the ranges."""
    found = np.zeros(seqs.size, np.bool_)
    for first, last in edges:
        found |= (seqs >= first) & (seqs <= last)
    return found


def _nothing(on: Compared) -> pa.Table:
    return pa.table({"seq": pa.array([], pa.int64()), **{name: pa.nulls(0) for name in on.names}})


def _among(keys: Keys, known: Keys) -> Booleans:
    """Which keys are in the sorted `known`."""
    if not known.size:
        return np.zeros(keys.size, np.bool_)
    found: Booleans = known[np.minimum(np.searchsorted(known, keys), known.size - 1)] == keys
    return found
