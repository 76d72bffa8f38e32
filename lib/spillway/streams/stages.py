"""The way of a stream's rows: from `raw` through the decisions of its levers, and back.

    raw -> lever 1 -> ... -> lever n -> transmitted        (down: `before`, `kept`)
    raw <- lever 1 <- ... <- lever n <- transmitted        (up: `given_back`)

Nothing is written between two levers: a stage is a view of the rows of the one before, read piece by piece in tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.levers.protocol import Decision, FramePart, Rows, Stored

AT_A_TIME = 131_072
"""Rows that go down or up at a time."""


@dataclass(frozen=True)
class SentColumns:
    """The columns that are sent of some stretches of `seq`: all others are null there, to every stage.

    A contract may lose an attribute that `raw` has: what the destination will not have, no prediction may rest on.
    """

    columns: frozenset[str]
    stretches: tuple[tuple[int, int], ...]

    def of(self, rows: pa.Table) -> pa.Table:
        """The rows with what is not sent hidden."""
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
class EndRows:
    """The rows of a table as the first or last stage of a way."""

    read: Callable[[Sequence[str], int, int], pa.Table]
    attributes: int
    asked_back_bytes: int = 0
    sent_columns: SentColumns | None = None

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        rows = self.read(columns, from_seq, to_seq)
        return rows if self.sent_columns is None else self.sent_columns.of(rows)

    def values(self, seq: np.ndarray) -> np.ndarray:
        return np.full(len(seq), self.attributes, np.int64)


@dataclass(frozen=True)
class Down:
    """From what came in to what goes out: `decisions` in the order of the levers."""

    raw: Stored
    decisions: tuple[Decision, ...]
    attributes: int
    sent_columns: SentColumns | None = None

    def before(self, ordinal: int, day: date) -> Rows:
        """What the stage of this ordinal (from 1) is offered."""
        rows: Rows = EndRows(self.raw.on(day), self.attributes, sent_columns=self.sent_columns)
        for decision in self.decisions[: ordinal - 1]:
            rows = decision.kept(rows, day)
        return rows

    def kept(self, day: date) -> Rows:
        """What the last stage hands on."""
        return self.before(len(self.decisions) + 1, day)


@dataclass(frozen=True)
class Up:
    """From what went out back to what came in."""

    transmitted: Stored
    decisions: tuple[Decision, ...]
    attributes: int

    def given_back(self, ordinal: int, day: date) -> Rows:
        """What came to the stage of this ordinal (from 1), as far as it can be given back."""
        rows: Rows = EndRows(self.transmitted.on(day), self.attributes)
        for decision in reversed(self.decisions[ordinal - 1 :]):
            rows = decision.given_back(rows, day)
        return rows


def through(rows: Rows, parts: Sequence[FramePart], columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of stretches of a batch, some at a time, with the batch's number."""
    for part in parts:
        for low in range(part.from_seq, part.to_seq + 1, AT_A_TIME):
            found = rows(columns, low, min(part.to_seq, low + AT_A_TIME - 1))
            if found.num_rows:
                yield found.append_column("batch", pa.array(np.full(found.num_rows, part.batch)))


@dataclass(frozen=True)
class SendDown:
    """Makes a piece of `transmitted`; counts the values that its rows carry."""

    way: Down
    columns: tuple[str, ...]

    def __call__(self, parts: Sequence[FramePart], counts: dict[str, int]) -> Iterator[pa.Table]:
        rows = self.way.kept(parts[0].batch_date)
        for found in through(rows, parts, self.columns):
            carried = int(rows.values(np.asarray(found["seq"])).sum())
            counts["values"] = counts.get("values", 0) + carried
            yield found


@dataclass(frozen=True)
class LayAside:
    """Makes a piece of a lever's own table, of what came to its stage."""

    way: Down
    ordinal: int
    table: str

    def __call__(self, parts: Sequence[FramePart], counts: dict[str, int]) -> Iterator[pa.Table]:
        before = self.way.before(self.ordinal, parts[0].batch_date)
        decision = self.way.decisions[self.ordinal - 1]
        yield from decision.aside(self.table, parts, before, counts)


@dataclass(frozen=True)
class GiveBack:
    """Makes a piece of `recovered`."""

    way: Up
    columns: tuple[str, ...]

    def __call__(self, parts: Sequence[FramePart], counts: dict[str, int]) -> Iterator[pa.Table]:
        rows = self.way.given_back(1, parts[0].batch_date)
        yield from through(rows, parts, self.columns)
        counts["asked_back_bytes"] = counts.get("asked_back_bytes", 0) + rows.asked_back_bytes
