"""Chain the decisions of a stream's levers: the shed path from `raw` to `transmitted`, and the recovery path back.

    raw -> lever 1 -> ... -> lever n -> transmitted        (`ShedPath`: `rows_before`, `sent_rows`)
    raw <- lever 1 <- ... <- lever n <- transmitted        (`RecoveryPath`: `recovered_rows`)

Nothing is written between two levers. The rows of a stage are computed from those of the stage before it when a task
reads a slice of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.levers.protocol import Decision, FrameSlice, Rows, StoredFiles

AT_A_TIME = 131_072
"""The number of rows that are shed or recovered at a time."""


@dataclass(frozen=True)
class SentColumns:
    """The columns that are sent of the rows in some ranges of `seq`; every stage sees nulls in their other columns.

    An attribute that the contract no longer has may still be in `raw`. The destination will not receive it, so no
    prediction may use it.
    """

    columns: frozenset[str]
    stretches: tuple[tuple[int, int], ...]

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the rows with nulls in the columns that are not sent."""
        unsent = [name for name in rows.column_names if name not in self.columns]
        if not unsent:
            return rows
        seq = np.asarray(rows["seq"])
        mine = pa.array(np.any([(low <= seq) & (seq <= high) for low, high in self.stretches], axis=0))
        for name in unsent:
            place, nothing = rows.schema.get_field_index(name), pa.scalar(None, rows[name].type)
            rows = rows.set_column(place, name, pc.if_else(mine, nothing, rows[name]))
        return rows


@dataclass(frozen=True)
class TableRows:
    """The rows of a table as the first or last stage of a path."""

    read: Callable[[Sequence[str], int, int], pa.Table]
    attributes: int
    bytes_read_at_source: int = 0
    sent_columns: SentColumns | None = None

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        rows = self.read(columns, from_seq, to_seq)
        return rows if self.sent_columns is None else self.sent_columns.of(rows)

    def values(self, seq: np.ndarray) -> np.ndarray:
        return np.full(len(seq), self.attributes, np.int64)


@dataclass(frozen=True)
class ShedPath:
    """The shed path of some batches, from `raw` to `transmitted`; `decisions` are in the order of the levers."""

    raw: StoredFiles
    decisions: tuple[Decision, ...]
    attributes: int
    sent_columns: SentColumns | None = None

    def rows_before(self, ordinal: int, day: date) -> Rows:
        """Return the rows that the lever at this position (from 1) receives."""
        rows: Rows = TableRows(self.raw.reader_for(day), self.attributes, sent_columns=self.sent_columns)
        for decision in self.decisions[: ordinal - 1]:
            rows = decision.apply(rows, day)
        return rows

    def sent_rows(self, day: date) -> Rows:
        """Return the rows that the last lever passes on."""
        return self.rows_before(len(self.decisions) + 1, day)


@dataclass(frozen=True)
class RecoveryPath:
    """The recovery path of some batches, from `transmitted` to the rows as they were in `raw`."""

    transmitted: StoredFiles
    decisions: tuple[Decision, ...]
    attributes: int

    def recovered_rows(self, ordinal: int, day: date) -> Rows:
        """Return the rows that the lever at this position (from 1) received, as far as they can be recovered."""
        rows: Rows = TableRows(self.transmitted.reader_for(day), self.attributes)
        for decision in reversed(self.decisions[ordinal - 1 :]):
            rows = decision.recover(rows, day)
        return rows


def rows_of_slices(rows: Rows, parts: Sequence[FrameSlice], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of slices of batches, at most `AT_A_TIME` at a time, with the number of the batch as a column."""
    for part in parts:
        for low in range(part.from_seq, part.to_seq + 1, AT_A_TIME):
            found = rows(columns, low, min(part.to_seq, low + AT_A_TIME - 1))
            if found.num_rows:
                yield found.append_column("batch", pa.array(np.full(found.num_rows, part.batch)))


@dataclass(frozen=True)
class SendTask:
    """A task that writes a file of `transmitted` and counts the values that its rows carry."""

    way: ShedPath
    columns: tuple[str, ...]

    def __call__(self, parts: Sequence[FrameSlice], counts: dict[str, int]) -> Iterator[pa.Table]:
        rows = self.way.sent_rows(parts[0].batch_date)
        for found in rows_of_slices(rows, parts, self.columns):
            carried = int(rows.values(np.asarray(found["seq"])).sum())
            counts["values"] = counts.get("values", 0) + carried
            yield found


@dataclass(frozen=True)
class StoreAtSourceTask:
    """A task that writes a file of a lever's own table, such as synopses, from the rows that reach the lever."""

    way: ShedPath
    ordinal: int
    table: str

    def __call__(self, parts: Sequence[FrameSlice], counts: dict[str, int]) -> Iterator[pa.Table]:
        before = self.way.rows_before(self.ordinal, parts[0].batch_date)
        decision = self.way.decisions[self.ordinal - 1]
        yield from decision.rows_kept_at_source(self.table, parts, before, counts)


@dataclass(frozen=True)
class RecoverTask:
    """A task that writes a file of `recovered`."""

    way: RecoveryPath
    columns: tuple[str, ...]

    def __call__(self, parts: Sequence[FrameSlice], counts: dict[str, int]) -> Iterator[pa.Table]:
        rows = self.way.recovered_rows(1, parts[0].batch_date)
        yield from rows_of_slices(rows, parts, self.columns)
        counts["asked_back_bytes"] = counts.get("asked_back_bytes", 0) + rows.bytes_read_at_source
