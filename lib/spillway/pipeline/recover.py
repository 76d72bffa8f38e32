"""Recovering: up the way that the rows went down, as the table `recovered`, or a few of them right here.

The same kernels run for a range of batches in tasks and for one look-up in this process, so both agree value for value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import DONE, RETIRED, Batch
from spillway.contracts import StreamContract
from spillway.contracts.column_names import BOUND_SUFFIX
from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError
from spillway.ledger import BESIDE, LedgerRow
from spillway.levers.pieces import parts_in, pieces
from spillway.levers.protocol import Decision, Rows
from spillway.pipeline.facts import needed_facts
from spillway.pipeline.question import Question
from spillway.pipeline.stages import Down, GiveBack, Up
from spillway.registry import columns_of, lever
from spillway.store.batches import load_batches
from spillway.store.drafts import Draft
from spillway.store.files import as_date
from spillway.store.ledgers import write_ledger
from spillway.store.table_contracts import SPARK_TYPES
from spillway.store.tables import Between, Piece, Table, Tables
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
        decisions = tuple(
            lever(name).decided(
                contract,
                mine,
                needed_facts(tables, stream, name, [b.models[name] for b in mine if name in b.models]),
                tables,
            )
            for name in levers
        )
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


def recovered_table(tables: Tables, contract: StreamContract) -> Table:
    """The table `recovered` of the stream, with what the contract has lost since it was sent: that is still owed."""
    kinds = {spark: kind for kind, spark in SPARK_TYPES.items()}
    sent = tables.at("transmitted", contract.stream).types()
    pinned = tables.at("batches").rows(["levers"], stream=contract.stream)["levers"]
    levers = set(pc.unique(pc.list_flatten(pinned)).to_pylist())
    added = tuple(column for name in sorted({*levers, *contract.lever_names}) for column in columns_of(name))
    own = {"seq", "batch", "batch_date", *(name for name, _, _ in added), *contract.names}
    attributes = [(attribute.name, attribute.type) for attribute in contract.attributes]
    attributes += [(name, kinds[kind]) for name, kind in sent.items() if name not in own]
    return tables.at("recovered", contract.stream).with_attributes(attributes, added)


def recover_batches(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    batches: Sequence[Batch],
    asked: bool = False,
) -> list[WayBack]:
    """Write `recovered` for these batches, replacing what was there for them.

    What was `asked` for crosses: the bytes of it go into the ledger. Validation, which sits where they lie, asks for
    nothing.
    """
    table = recovered_table(tables, contract)
    ways = ways_back(tables, contract, batches)
    columns = tuple(name for name in table.contract.names if name not in ("seq", "batch", "batch_date"))
    written: list[Written] = []
    lines: list[LedgerRow] = []
    for way in ways:
        cut = [
            Piece({"batch_date": str(batch.batch_date)}, batch.batch, piece)
            for batch in way.batches
            for piece in pieces(batch)
        ]
        draft = table.draft(engine, cut, GiveBack(way.up, columns))
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
    tables = tables.now()
    low, high = question.seq_range
    shown = [name for name in contract.names if question.attributes is None or name in question.attributes]
    base = list(dict.fromkeys([*contract.keys, contract.order]))
    wanted = list(dict.fromkeys([*base, *shown]))
    bounds = [name + BOUND_SUFFIX for name in shown if name not in base]
    parts: list[pa.Table] = []
    read = frames = 0
    for way in ways_back(tables, contract, asked_batches(tables, contract, question)):
        by_day: dict[date, Rows] = {}
        for part in parts_in(way.batches, low, high):
            day = part.batch_date
            if day not in by_day:
                by_day[day] = way.up.given_back(1, day)
            rows = by_day[day]
            hits = question.matching(rows(base, part.from_seq, part.to_seq), contract)
            if not hits.num_rows:
                continue
            before = rows.asked_back_bytes
            found = rows([*wanted, *bounds], hits["seq"][0].as_py(), hits["seq"][-1].as_py())
            read += rows.asked_back_bytes - before
            frames += 1
            parts.append(found.filter(pc.is_in(found["seq"], value_set=hits["seq"].combine_chunks())))
    if not parts:
        raise SpillwayError(question.nothing(contract))
    found = pa.concat_tables(parts, promote_options="permissive")
    # what may not be shed any more may have been
    idle = [name for name in bounds if name.removesuffix(BOUND_SUFFIX) not in contract.sheddable]
    return Found(
        found.drop_columns([name for name in idle if found[name].null_count == found.num_rows]), read, frames
    )


def asked_batches(tables: Tables, contract: StreamContract, question: Question) -> list[Batch]:
    """The shed batches that can hold what is asked for, by their seq and by the edges of what was transmitted."""
    low, high = question.seq_range
    near = partial(shed_batches, tables, contract.stream, first_seq=Between(high=high), last_seq=Between(low))
    if question.times is None:
        return near()
    files = tables.at("transmitted", contract.stream).files(**{contract.order: Between(*question.times)})
    days = {as_date(file.value("batch_date")) for file in files}
    # where rows were laid aside, the edges of those that were sent say nothing of them
    pinned = tables.at("batches").rows(["levers"], stream=contract.stream)["levers"]
    if any(lever(name).sheds_rows for name in pc.unique(pc.list_flatten(pinned)).to_pylist()):
        return [b for b in near() if b.batch_date in days or any(lever(name).sheds_rows for name in b.levers)]
    return near(batch_date=days)


def shed_batches(tables: Tables, stream: str, **where: Any) -> list[Batch]:
    """The stream's shed batches that have rows, of those that match."""
    return load_batches(tables, stream, **where, status=[DONE, RETIRED], rows=Between(1))
