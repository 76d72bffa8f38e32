"""Drafts: the plans of a way applied piece by piece, measured, and published in the one safe order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from spillway.batch import Batch
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError, StoreFault
from spillway.levers.pieces import MOST_ROWS, pieces
from spillway.levers.protocol import OVERHEAD, Drafted, FramePart, Lever, Plan
from spillway.pipeline.accounting import (
    SENT,
    SENT_BEFORE,
    account,
    crossing_bytes,
    drafted_by,
    seconds_of,
    stages_of_old,
)
from spillway.pipeline.across import TOLD, ToldBatch, tell, told_of, told_sizes
from spillway.pipeline.planning import Again, WayDown
from spillway.pipeline.room import bytes_as_written
from spillway.pipeline.stages import LayAside, SendDown
from spillway.registry import LEVERS, columns_of, lever
from spillway.store.batches import write_ledger
from spillway.store.drafts import Draft, Piece
from spillway.store.tables import Table, Tables


@dataclass(frozen=True)
class Drafts:
    """What a way's batches came to: files of `transmitted` and of what the levers laid aside, in no table yet."""

    sent: Draft
    aside: Mapping[tuple[int, str], Draft]
    """By ordinal and table."""
    tables: Mapping[str, Table]
    told_bytes: Mapping[int, int] = field(default_factory=dict)
    """By batch, what the destination is told beside them, where it is elsewhere."""

    @property
    def crossing(self) -> tuple[Draft, ...]:
        """What lies at the destination: `transmitted`, and what was laid aside there."""
        aside = (one for one in self.aside.values() if self.tables[one.table].contract.root == "destination")
        return (self.sent, *aside)

    def discard(self) -> None:
        """Throw all of it away."""
        for draft in [self.sent, *self.aside.values()]:
            self.tables[draft.table].discard(draft)


def draft(tables: Tables, engine: Engine, way: WayDown) -> Drafts:
    """Apply the decisions piece by piece; nothing of it is in any table yet."""
    contract, stream = way.contract, way.contract.stream
    cut = shared_pieces(way.batches)
    held: dict[str, Table] = {}

    def pieces_for(table: Table) -> list[Piece]:
        fixed = {"stream": stream} if "stream" in table.contract.partitioned_by else {}
        return [Piece({**fixed, "batch_date": str(day)}, *first, tuple(more)) for day, (first, *more) in cut]

    aside: dict[tuple[int, str], Draft] = {}
    levers = way.batches[0].levers
    columns = (*(name for name, _, _ in added_columns(contract, levers)), *contract.names)
    try:
        for ordinal, name in enumerate(levers, start=1):
            for table in lever(name).aside_tables:
                held[table] = own_table(tables, contract, table, levers)
                make = LayAside(way.down, ordinal, table)
                aside[ordinal, table] = held[table].draft(engine, pieces_for(held[table]), make)
        held["transmitted"] = own_table(tables, contract, "transmitted", levers)
        told = told_sizes(told_of_way(tables, way))
        out, group = held["transmitted"], contract.row_group_tuples
        send = SendDown(way.down, columns)
        sent = out.draft(engine, pieces_for(out), send, None, group, contract.keys)
    except BaseException:
        # or every try of a batch that cannot be drafted would leave files behind
        for found in aside.values():
            held[found.table].discard(found)
        raise
    return Drafts(sent, aside, held, told)


def shared_pieces(batches: Sequence[Batch]) -> list[tuple[date, list[tuple[int, tuple[FramePart, ...]]]]]:
    """Return for each file of these batches its batch date, and the slices of one or several batches that it holds.

    Small batches of one date share a file. A file holds at most `MOST_ROWS`, as the files of a single batch do.
    """
    found: list[tuple[date, list[tuple[int, tuple[FramePart, ...]]]]] = []
    rows = 0
    for batch in batches:
        for piece in pieces(batch):
            more = piece[-1].to_seq - piece[0].from_seq + 1
            if not found or found[-1][0] != batch.batch_date or rows + more > MOST_ROWS:
                found.append((batch.batch_date, []))
                rows = 0
            found[-1][1].append((batch.batch, piece))
            rows += more
    return found


def levers_of_streams() -> list[str]:
    """The registered levers that work on streams; joins and queries have levers of their own."""
    return [name for name in LEVERS if isinstance(lever(name), Lever)]


def written_tables(tables: Tables, way: WayDown) -> list[Table]:
    """All that `publish` will write to."""
    # what is sent whole may have been shed before, and what was laid aside of it then goes
    whole = any(batch.sent_whole for batch in way.batches)
    levers = [lever(name) for name in (levers_of_streams() if whole else way.batches[0].levers)]
    own = [table for one in levers for table in (*one.aside_tables, *one.record_tables)]
    elsewhere = tables.settings.destination != tables.settings.lake
    names = ["batches", "ledger", *own, *([TOLD] if elsewhere else []), "transmitted"]
    return [own_table(tables, way.contract, name) for name in names]


def told_of_way(tables: Tables, way: WayDown) -> list[ToldBatch]:
    """What the destination is told of a way's batches, where it is elsewhere."""
    return told_of(tables, way.batches, dict(zip(way.batches[0].levers, way.plans, strict=True)))


def own_table(tables: Tables, contract: StreamContract, table: str, levers: Iterable[str] = ()) -> Table:
    """A table that the stream's rows are written to: one of its own, or its part of a shared one."""
    if tables.contract(table).scope == "shared":
        return tables.at(table)
    attributes = [(a.name, a.type) for a in contract.attributes]
    added = () if table == "raw" else added_columns(contract, levers)
    return tables.at(table, contract.stream).with_attributes(attributes, added)


def added_columns(contract: StreamContract, levers: Iterable[str] = ()) -> tuple[tuple[str, str, str], ...]:
    """The columns that levers add to rows: those of the contract, and those that batches were pinned to."""
    names = dict.fromkeys([*contract.lever_names, *levers])
    return tuple(column for name in names for column in columns_of(name))


Tried = Mapping[int, Mapping[int, tuple[Plan, Drafted]]]
"""By ordinal of the lever and batch, its plan and what that came to."""


def tried_by(tables: Tables, way: WayDown, drafts: Drafts) -> Tried:
    """What each plan came to in a draft."""
    raw_bytes = {batch.batch: bytes_as_written(tables, way.contract, batch)[0] for batch in way.batches}
    return {
        ordinal: {
            batch.batch: (plan, drafted_by(way, drafts, batch, ordinal, {}, raw_bytes[batch.batch]))
            for batch in way.batches
        }
        for ordinal, plan in enumerate(way.plans, start=1)
    }


def told_by(way: WayDown, drafts: Drafts, tried: Tried, aims: Mapping[int, float]) -> Again:
    """What a draft told, for the next plan of the same batches: what each plan came to, and what lay around columns."""
    if way.contract.width == "declared":
        return Again(aims, tried)
    names = [*OVERHEAD, *way.contract.names]
    beside, sizes = 0, dict.fromkeys(names, 0)
    for batch in way.batches:
        columns = drafts.sent.column_bytes(batch.batch, names)
        told = drafts.told_bytes.get(batch.batch, 0)
        beside += crossing_bytes(drafts.sent, batch.batch) + told - sum(columns.values())
        sizes = {name: size + columns[name] for name, size in sizes.items()}
    around = max(0, beside) * 8.0 / 1000.0 / seconds_of(way.batches)
    rows = max(1, sum(drafts.sent.rows(number) for number in way.numbers))
    exacts = [plan.exact_columns(number) for plan in way.plans for number in way.numbers]
    shed = {name for name in way.contract.sheddable if not all(name in one for one in exacts)}
    exact = {name: size * 8.0 / rows for name, size in sizes.items() if name not in shed}
    return Again(aims, tried, dict.fromkeys(way.numbers, around), dict.fromkeys(way.numbers, exact))


def publish(tables: Tables, way: WayDown, drafts: Drafts, seconds: float) -> None:
    """What was laid aside, the levers' records, the ledger, and `transmitted` last.

    Where that cannot be done, what is not published yet is thrown away.
    """
    left = [draft for draft in [*drafts.aside.values(), drafts.sent] if draft.written]
    try:
        _publish(tables, way, drafts, seconds, left)
    except StoreFault:
        raise  # the commit may have succeeded although its answer was lost: its files must stay
    except BaseException:
        for draft in left:
            drafts.tables[draft.table].discard(draft)
        raise


def _publish(tables: Tables, way: WayDown, drafts: Drafts, seconds: float, left: list[Draft]) -> None:
    stream, numbers = way.contract.stream, way.numbers
    days = sorted({batch.batch_date for batch in way.batches})
    ledger = list(account(tables, way, drafts, seconds))
    for aside in drafts.aside.values():
        shared = tables.contract(aside.table).scope == "shared"
        where = {"stream": stream} if shared else {}
        _put(drafts, aside, left, **where, batch_date=days, batch=numbers)
    for plan in way.plans:
        for table, rows in plan.records().items():
            tables.at(table).replace(rows, stream=stream, batch_date=days, batch=numbers)
    old = stages_of_old(tables, stream, numbers)
    written = [line.stage for line in ledger if line.stage == SENT_BEFORE]
    stages = [*dict.fromkeys([*way.batches[0].levers, *old, SENT, *written])]
    write_ledger(tables, stream, numbers, stages, ledger)
    tell(tables, told_of_way(tables, way))
    _put(drafts, drafts.sent, left, batch_date=days, batch=numbers)
    if any(batch.sent_whole for batch in way.batches):
        _forget(tables, way, days)


def _forget(tables: Tables, way: WayDown, days: Sequence[date]) -> None:
    """Take away what levers had laid aside and recorded of batches that are sent whole now."""
    stream = way.contract.stream
    for name in sorted(set(levers_of_streams()) - set(way.batches[0].levers)):
        for table in (*lever(name).aside_tables, *lever(name).record_tables):
            shared = tables.contract(table).scope == "shared"
            own = tables.at(table) if shared else tables.at(table, stream)
            own.delete(**({"stream": stream} if shared else {}), batch_date=list(days), batch=way.numbers)


def _put(drafts: Drafts, draft: Draft, left: list[Draft], **where: Any) -> None:
    """One draft into its table; where it is not known whether the commit went through, its files stay."""
    left[:] = [one for one in left if one is not draft]
    try:
        drafts.tables[draft.table].publish(draft.written, **where)
    except SpillwayError:
        left.append(draft)
        raise
