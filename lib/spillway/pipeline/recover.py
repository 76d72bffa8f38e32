"""Recovering: up the way that the rows went down, as the table `recovered`, or a few of them right here.

The same kernels run for a range of batches in tasks and for one look-up in this process, so both agree value for value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from spillway.batch import Batch
from spillway.contracts import StreamContract
from spillway.contracts.column_names import bounded_attribute, is_bound
from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError, UsageError
from spillway.ledger import BESIDE, LedgerRow
from spillway.levers.pieces import pieces
from spillway.levers.protocol import Decision
from spillway.pipeline.question import Question
from spillway.pipeline.reading import (
    FrameStretch,
    Reading,
    asked_columns,
    decided,
    plan_reading,
    readable,
    recovered_table,
    shed_batches,
)
from spillway.pipeline.stages import Down, GiveBack, Up
from spillway.store.batches import write_ledger
from spillway.store.drafts import Draft, ReadBack
from spillway.store.tables import Piece, Tables
from spillway.store.writing import Written

ASKED_BACK = "asked_back"


@dataclass(frozen=True)
class WayBack:
    """How some batches of one order of levers went down, read back from the tables."""

    batches: tuple[Batch, ...]
    levers: tuple[str, ...]
    decisions: tuple[Decision, ...]
    up: Up
    down: Down
    found: tuple[Any, ...] = ()
    """What was found of each file of `recovered` that was made on this way, where that was asked for."""


def ways_back(
    tables: Tables, contract: StreamContract, batches: Iterable[Batch] | None = None
) -> list[WayBack]:
    """The ways of the stream's shed batches (those given, with whatever shares a frame with them)."""
    stream = contract.stream
    chosen = shed_batches(tables, stream) if batches is None else list(batches)
    days = sorted({batch.batch_date for batch in chosen})
    framed = [batch for batch in shed_batches(tables, stream, batch_date=days) if batch.is_pinned]
    found = []
    for levers in sorted({batch.levers for batch in framed}):
        mine = [batch for batch in framed if batch.levers == levers]
        decisions = decided(tables, contract, levers, mine)
        sent = tables.at("transmitted", stream).stored(batch_date=days)
        raw = tables.at("raw", stream).stored(batch_date=days)
        wanted = {batch.batch for batch in chosen}
        found.append(
            WayBack(
                tuple(batch for batch in mine if batch.batch in wanted),
                levers,
                decisions,
                Up(sent, decisions, len(contract.attributes)),
                Down(raw, decisions, len(contract.attributes)),
            )
        )
    return [way for way in found if way.batches]


def recover_batches(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    batches: Sequence[Batch],
    asked: bool = False,
    check: Callable[[WayBack], ReadBack] | None = None,
) -> list[WayBack]:
    """Write `recovered` for these batches, replacing what was there for them; each file is checked before it counts.

    What was `asked` for crosses: the bytes of it go into the ledger. Validation, which sits where they lie, asks for
    nothing.
    """
    table = recovered_table(tables, contract)
    ways: list[WayBack] = []
    columns = tuple(name for name in table.contract.names if name not in ("seq", "batch", "batch_date"))
    written: list[Written] = []
    lines: list[LedgerRow] = []
    for way in ways_back(tables, contract, batches):
        cut = [
            Piece({"batch_date": str(batch.batch_date)}, batch.batch, piece)
            for batch in way.batches
            for piece in pieces(batch)
        ]
        draft = table.draft(engine, cut, GiveBack(way.up, columns), check and check(way))
        ways.append(replace(way, found=draft.found))
        written += draft.written
        lines += [_asked_back(batch, draft) for batch in way.batches]
    days = sorted({batch.batch_date for batch in batches})
    numbers = [batch.batch for batch in batches]
    table.publish(written, batch_date=days, batch=numbers)
    if asked:
        write_ledger(tables, contract.stream, numbers, [ASKED_BACK], lines)
    return ways


def _asked_back(batch: Batch, draft: Draft) -> LedgerRow:
    rows = draft.rows(batch.batch)
    return LedgerRow(
        "stream",
        batch.stream,
        batch.batch,
        batch.batch_date,
        ASKED_BACK,
        BESIDE,
        "rows",
        reason="given back on demand",
        offered=rows,
        kept=rows,
        bytes_asked_back=draft.counts.get(batch.batch, {}).get("asked_back_bytes", 0),
    )


@dataclass(frozen=True)
class Found:
    """The rows that were asked for, with bounds, and what was read to give them back."""

    rows: pa.Table
    synopsis_bytes_read: int
    frames: int


def look_up(tables: Tables, contract: StreamContract, question: Question) -> Found:
    """Shed values of a few rows, read from the few files that hold them; no engine is started."""
    asked, counts = answer(tables, contract, question), dict[str, int]()
    found = pa.concat_tables(found_rows(asked, contract, question, counts))
    return Found(found, counts["asked_back_bytes"], counts["frames"])


def answer(tables: Tables, contract: StreamContract, question: Question, own: Sequence[str] = ()) -> Reading:
    """The rows that answer a question, to be read some at a time, from the tables as they are now.

    `own`: columns that are wanted beside what a question is answered with.
    """
    tables = tables.now()
    names = [*asked_columns(contract, readable(tables, contract), question), *own]
    asked = plan_reading(tables, contract, question, names)
    # what may not be shed any more may have been
    bounded = {*contract.sheddable, *asked.bounded}
    return asked.only([name for name in names if not is_bound(name) or bounded_attribute(name) in bounded])


def found_rows(
    asked: Reading, contract: StreamContract, question: Question, counts: dict[str, int]
) -> Iterator[pa.Table]:
    """The rows some at a time; where there are none, that is an error."""
    rows = asked.rows(counts)
    first = next(rows, None)
    if first is None:
        raise SpillwayError(question.nothing(contract))
    yield first
    yield from rows


def answer_as_table(
    tables: Tables, engine: Engine, contract: StreamContract, question: Question, path: str
) -> Mapping[str, int]:
    """Write the answer as a Delta table of its own, by the engine's tasks; what was there of its name is replaced.

    Returns what was counted: `rows`, `frames`, `asked_back_bytes`.
    """
    asked = answer(tables, contract, question, own=("batch", "batch_date"))
    if not asked.stretches:
        raise SpillwayError(question.nothing(contract))
    whole = recovered_table(tables, contract).contract
    wanted = tuple(column for column in whole.columns if column.name in asked.schema.names)
    table = tables.own(path, replace(whole, columns=wanted))
    if table.exists and set(table.schema.names) != set(asked.schema.names):
        raise UsageError(
            f"`output` must be a new table, or one of the same columns, got {path} with "
            f"{', '.join(table.schema.names)}; name another"
        )
    cut = [Piece({"batch_date": str(one.day)}, one.parts[0].batch, one) for one in asked.stretches]
    draft = table.draft(engine, cut, _rows_of)
    if not draft.written:
        raise SpillwayError(question.nothing(contract))
    table.publish(draft.written)
    counts = {"rows": sum(one.rows for one in draft.written)}
    for name in ("frames", "asked_back_bytes"):
        counts[name] = sum(found.get(name, 0) for found in draft.counts.values())
    return counts


def _rows_of(stretch: FrameStretch, counts: dict[str, int]) -> Iterator[pa.Table]:
    return stretch.rows(counts)
