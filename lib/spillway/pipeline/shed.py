"""Shedding a channel: pin, plan, draft, measure, publish, account, for all streams that share it.

All streams are planned together before anything is applied. Then each stream's batches go down through its levers
into drafts, files that no table has yet. What came out is measured; a batch above its part of the channel is planned
again with that much less, and its draft thrown away. What fits is published in this order, each replacing its own
(stream, batch): what levers laid aside, their records, the ledger, `transmitted` last; then the batch turns done.
Whoever sees a transmitted row can recover it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from spillway.batch import DONE, PENDING, PLANNED, RECORDED, RETIRED, UNTRAINED, Batch, utc_now
from spillway.contracts import Contracts, StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError
from spillway.job import side_by_side
from spillway.ledger import TOTAL, LedgerRow
from spillway.levers.pieces import pieces
from spillway.levers.protocol import Drafted, Load, Part, Plan, Room, Say, Work
from spillway.pipeline.facts import needed_facts, newest_facts, untrained
from spillway.pipeline.room import OVERHEAD, measure_load, parts
from spillway.pipeline.stages import Down, LayAside, SendDown
from spillway.registry import columns_of, lever
from spillway.store.batches import load_batches, save_batches
from spillway.store.files import column_bytes
from spillway.store.ledgers import write_ledger
from spillway.store.tables import Draft, Piece, Table, Tables

MOST_ATTEMPTS = 4
INTAKE, SENT = "intake", "sent"
"""The stages that are the pipeline's own: the first and the last on the way."""


def shed_channel(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    channel: str,
    say: Say = lambda _: None,
    dates: tuple[date, date] | None = None,
) -> list[Batch]:
    """Bring the channel's pending batches (or those of the dates `from..to`) through; returns the ones done."""
    if channel not in contracts.channels:
        raise SpillwayError(
            f"`channel` must be one of {', '.join(sorted(contracts.channels))}, got {channel!r}; see channels.yaml"
        )
    tables = tables.now()
    room = Room(channel, contracts, tables)
    waiting: dict[str, list[Batch]] = {}
    for contract in contracts.streams_of(channel):
        batches = _waiting(tables, contract, dates)
        if batches and not _wait_for_training(tables, contract, batches, say):
            waiting[contract.stream] = batches
    shares = parts(tables, room, waiting)
    pinned = {
        stream: _pinned(tables, contracts.streams[stream], batches, shares[stream])
        for stream, batches in waiting.items()
    }
    empty = {stream: [batch for batch in found if not batch.rows] for stream, found in pinned.items()}
    for found in empty.values():
        save_batches(tables, [batch.becomes(utc_now(), status=DONE) for batch in found])
    runs = {
        (stream, levers): [batch for batch in found if batch.rows and batch.levers == levers]
        for stream, found in pinned.items()
        for levers in {batch.levers for batch in found if batch.rows}
    }
    ways = plan_all(room, runs)
    done = side_by_side(lambda way: _bring_through(room, engine, way, say), ways)
    return [batch for found in [*empty.values(), *done] for batch in found]


def _waiting(tables: Tables, contract: StreamContract, dates: tuple[date, date] | None) -> list[Batch]:
    """The batches to bring through, oldest first."""
    every = load_batches(tables, contract.stream)
    if dates is None:
        return [batch for batch in every if batch.status in PENDING and batch.status != RECORDED]
    found = [b for b in every if dates[0] <= b.batch_date <= dates[1] and b.status != RECORDED]
    gone = sorted({str(batch.batch_date) for batch in found if batch.status == RETIRED})
    if gone:
        raise SpillwayError(
            f"{contract.stream}: a backfill must not touch retired dates, got {', '.join(gone)}, whose raw tuples were "
            "deleted after they were validated; ask for other dates"
        )
    return found


def _wait_for_training(tables: Tables, contract: StreamContract, batches: Sequence[Batch], say: Say) -> bool:
    """Whether the stream has to wait; its batches say so."""
    missing = untrained(tables, contract)
    if not missing:
        return False
    rows = sum(batch.rows or 0 for batch in batches)
    say(
        f"{contract.stream}: untrained ({', '.join(missing)}), {rows:,} tuples wait; spillway_train trains it"
    )
    save_batches(
        tables, [b.becomes(utc_now(), status=UNTRAINED) for b in batches if b.status not in (UNTRAINED, DONE)]
    )
    return True


def _pinned(tables: Tables, contract: StreamContract, batches: Sequence[Batch], part: Part) -> list[Batch]:
    """The batches with levers, facts, capacity and frames fixed: a rerun uses what the first run used."""
    length, levers = contract.frame.tuples, contract.lever_names
    newest = {name: newest_facts(tables, contract.stream, name) for name in levers}
    versions = {name: facts.version for name, facts in newest.items() if facts is not None}
    every = load_batches(tables, contract.stream)
    latest = {b.batch_date: b for b in every if b.is_pinned and b.status != RETIRED}
    pinned: list[Batch] = []
    for batch in batches:
        if not batch.is_pinned:
            # frames never leave a batch date, a version of the facts or what was retired; within them they go on
            before = latest.get(batch.batch_date)
            goes_on = before is not None and (before.levers, dict(before.models), before.frame_tuples) == (
                levers,
                versions,
                length,
            )
            batch = batch.becomes(
                utc_now(),
                status=PLANNED,
                levers=levers,
                models=versions,
                capacity_kbps=part.own_kbps,
                trunk_kbps=part.trunk_kbps,
                frame_origin=before.frame_origin if before is not None and goes_on else batch.first_seq,
                frame_tuples=length,
            )
            latest[batch.batch_date] = batch
        elif batch.status != PLANNED:
            # a backfill that dies is pending, so that the next run finishes what is half rewritten
            batch = batch.becomes(utc_now(), status=PLANNED)
        pinned.append(batch)
    save_batches(tables, [batch for batch, before in zip(pinned, batches, strict=True) if batch != before])
    return pinned


@dataclass(frozen=True)
class WayDown:
    """Some batches of a stream with the plans of all its levers, in order."""

    contract: StreamContract
    batches: tuple[Batch, ...]
    loads: Mapping[int, Load]
    plans: tuple[Plan, ...]
    down: Down

    @property
    def numbers(self) -> list[int]:
        return [batch.batch for batch in self.batches]


def plan_all(
    room: Room,
    runs: Mapping[tuple[str, tuple[str, ...]], Sequence[Batch]],
    aims: Mapping[int, float] | None = None,
) -> list[WayDown]:
    """A way for the batches of every stream (and order of levers): all streams are planned together, place by place.

    A lever at the same place on the way of several streams plans for all of them at once.
    """
    tables: Tables = room.tables  # type: ignore[assignment]
    ways: list[WayDown] = []
    for (stream, _), batches in runs.items():
        contract = room.contracts.streams[stream]
        loads = {batch.batch: measure_load(tables, contract, batch) for batch in batches}
        days = sorted({batch.batch_date for batch in batches})
        raw = tables.at("raw", stream).stored(batch_date=days)
        ways.append(WayDown(contract, tuple(batches), loads, (), Down(raw, (), len(contract.attributes))))
    for ordinal in range(1, max((len(way.batches[0].levers) for way in ways), default=0) + 1):
        here = {
            i: way.batches[0].levers[ordinal - 1]
            for i, way in enumerate(ways)
            if len(way.batches[0].levers) >= ordinal
        }
        for name in sorted(set(here.values())):
            mine = [i for i, other in here.items() if other == name]
            works = [_work(tables, ways[i], name, ordinal, aims or {}) for i in mine]
            plans = lever(name).plan(room, works)
            for i, plan in zip(mine, plans, strict=True):
                way = ways[i]
                down = replace(way.down, decisions=(*way.down.decisions, plan.decision))
                ways[i] = replace(way, plans=(*way.plans, plan), down=down)
    return ways


def _work(tables: Tables, way: WayDown, name: str, ordinal: int, aims: Mapping[int, float]) -> Work:
    contract, stream = way.contract, way.contract.stream
    days, levers = {batch.batch_date for batch in way.batches}, way.batches[0].levers
    mine = {batch.batch: batch for batch in way.batches}
    others = [
        batch
        for batch in load_batches(tables, stream)
        if batch.batch_date in days and batch.levers == levers and batch.rows and batch.batch not in mine
    ]
    framed = tuple(sorted([*others, *way.batches], key=lambda batch: batch.batch))
    versions = {batch.models[name] for batch in framed if name in batch.models}
    loads = {
        batch.batch: way.plans[-1].offers_on(batch.batch) if way.plans else way.loads[batch.batch]
        for batch in way.batches
    }
    return Work(
        contract,
        needed_facts(tables, stream, name, versions),
        way.batches,
        framed,
        lambda day: way.down.before(ordinal, day),
        loads,
        {number: aims.get(number, 1.0) for number in way.numbers},
        ordinal,
    )


@dataclass(frozen=True)
class Drafts:
    """What a way's batches came to: files of `transmitted` and of what the levers laid aside, in no table yet."""

    sent: Draft
    aside: Mapping[tuple[int, str], Draft]
    """By ordinal and table."""
    tables: Mapping[str, Table]

    def discard(self) -> None:
        """Throw all of it away."""
        for draft in [self.sent, *self.aside.values()]:
            self.tables[draft.table].discard(draft)


def _bring_through(room: Room, engine: Engine, way: WayDown, say: Say) -> list[Batch]:
    """Draft, measure and publish one stream's batches; plan again what came out above its part."""
    tables: Tables = room.tables  # type: ignore[assignment]
    stream, levers = way.contract.stream, way.batches[0].levers
    started, aims = time.monotonic(), dict.fromkeys(way.numbers, 1.0)
    for attempt in range(1, MOST_ATTEMPTS + 1):
        drafts = draft(tables, engine, way)
        over = _over_capacity(way, drafts)
        if not over:
            break
        if attempt == MOST_ATTEMPTS:
            for batch in (b for b in way.batches if b.batch in over):
                for plan in way.plans:
                    plan.fell_short(batch.batch, sent_kbps(way, drafts, batch) - batch.allowed_kbps)
            say(f"{stream}: {len(over)} batches stay above the channel's part; the shortfall is on record")
            break
        for number, factor in over.items():
            aims[number] *= factor
        say(f"{stream}: {len(over)} batches came out above the channel's part; shedding a little more")
        drafts.discard()
        (way,) = plan_all(room, {(stream, levers): way.batches}, aims)
    publish(tables, way, drafts, time.monotonic() - started)
    for batch in way.batches:
        said = "; ".join(filter(None, (plan.said(batch.batch) for plan in way.plans))) or "all kept"
        say(
            f"{stream}: batch {batch.batch} of {batch.batch_date}: {batch.rows:,} tuples, "
            f"{way.loads[batch.batch].rate_kbps:.4g} -> {sent_kbps(way, drafts, batch):.4g} kbps of "
            f"{batch.allowed_kbps:.4g}; {said}"
        )
    done = [batch.becomes(utc_now(), status=DONE) for batch in way.batches]
    save_batches(tables, done)
    return done


def draft(tables: Tables, engine: Engine, way: WayDown) -> Drafts:
    """Apply the decisions piece by piece; nothing of it is in any table yet."""
    contract, stream = way.contract, way.contract.stream
    cut = {batch.batch: pieces(batch, engine.cores) for batch in way.batches}
    held: dict[str, Table] = {}

    def pieces_for(table: Table) -> list[Piece]:
        fixed = {"stream": stream} if "stream" in table.contract.partitioned_by else {}
        return [
            Piece({**fixed, "batch_date": str(batch.batch_date)}, batch.batch, piece)
            for batch in way.batches
            for piece in cut[batch.batch]
        ]

    aside: dict[tuple[int, str], Draft] = {}
    for ordinal, name in enumerate(way.batches[0].levers, start=1):
        for table in lever(name).aside_tables:
            held[table] = own_table(tables, contract, table)
            make = LayAside(way.down, ordinal, table)
            aside[ordinal, table] = held[table].draft(engine, pieces_for(held[table]), make)
    held["transmitted"] = own_table(tables, contract, "transmitted")
    columns = (*(name for name, _, _ in added_columns(contract)), *contract.names)
    sent = held["transmitted"].draft(engine, pieces_for(held["transmitted"]), SendDown(way.down, columns))
    return Drafts(sent, aside, held)


def own_table(tables: Tables, contract: StreamContract, table: str) -> Table:
    """A table that the stream's rows are written to: one of its own, or its part of a shared one."""
    if tables.contract(table).scope == "shared":
        return tables.at(table)
    attributes = [(a.name, a.type) for a in contract.attributes]
    added = () if table == "raw" else added_columns(contract)
    return tables.at(table, contract.stream).with_attributes(attributes, added)


def added_columns(contract: StreamContract) -> tuple[tuple[str, str, str], ...]:
    """The columns that the contract's levers add to rows."""
    return tuple(column for name in contract.lever_names for column in columns_of(name))


def sent_kbps(way: WayDown, drafts: Drafts, batch: Batch) -> float:
    """The measured rate of what goes out; of a stream that counts declared bits, the planned one."""
    if way.contract.width == "declared":
        offered = way.plans[-1].offers_on(batch.batch) if way.plans else way.loads[batch.batch]
        return offered.rate_kbps
    sent = drafts.sent.column_bytes(batch.batch, [*OVERHEAD, *way.contract.names])
    return sum(sent.values()) * 8.0 / 1000.0 / (batch.seconds_covered or 1.0)


def _over_capacity(way: WayDown, drafts: Drafts) -> dict[int, float]:
    """Batches that came out above their part though they could shed more, and by what factor to aim lower."""
    if way.contract.mode == "observe":
        return {}
    found = {}
    for batch in way.batches:
        sent = sent_kbps(way, drafts, batch)
        if sent > batch.allowed_kbps and any(plan.can_do_more(batch.batch) for plan in way.plans):
            found[batch.batch] = 0.98 * batch.allowed_kbps / sent
    return found


def publish(tables: Tables, way: WayDown, drafts: Drafts, seconds: float) -> None:
    """What was laid aside, the levers' records, the ledger, and `transmitted` last."""
    stream, numbers = way.contract.stream, way.numbers
    days = sorted({batch.batch_date for batch in way.batches})
    ledger = list(account(tables, way, drafts, seconds))
    for (_, table), aside in drafts.aside.items():
        shared = tables.contract(table).scope == "shared"
        where = {"stream": stream} if shared else {}
        drafts.tables[table].publish(aside.written, **where, batch_date=days, batch=numbers)
    for plan in way.plans:
        for table, rows in plan.records().items():
            tables.at(table).replace(rows, stream=stream, batch_date=days, batch=numbers)
    stages = [*dict.fromkeys([*way.batches[0].levers, *_stages_of_old(tables, stream, numbers), SENT])]
    write_ledger(tables, stream, numbers, stages, ledger)
    drafts.tables["transmitted"].publish(drafts.sent.written, batch_date=days, batch=numbers)


def _stages_of_old(tables: Tables, stream: str, numbers: Sequence[int]) -> list[str]:
    """The stages after taking in that an earlier run of these batches had, and that this one may not have."""
    rows = tables.at("ledger").rows(["stage", "ordinal"], subject=stream, batch=list(numbers)).to_pylist()
    return sorted({row["stage"] for row in rows if row["ordinal"] > 0})


def account(tables: Tables, way: WayDown, drafts: Drafts, seconds: float) -> list[LedgerRow]:
    """Every stage's lines for every batch: each lever is offered what the one before it kept."""
    contract, rows = way.contract, []
    share = seconds / max(1, len(way.batches))
    for batch in way.batches:
        columns = [*OVERHEAD, *contract.names]
        files = tables.at("raw", contract.stream).files(batch_date=batch.batch_date, batch=batch.batch)
        raw_bytes = column_bytes(files, columns)
        sent_bytes = drafts.sent.column_bytes(batch.batch, columns)
        sent_rows = drafts.sent.rows(batch.batch)
        offered = {"rows": batch.rows or 0, "values": (batch.rows or 0) * len(contract.attributes)}
        for ordinal, (name, plan) in enumerate(zip(batch.levers, way.plans, strict=True), start=1):
            mine = {table: found for (at, table), found in drafts.aside.items() if at == ordinal}
            drafted = Drafted(
                batch,
                ordinal,
                dict(offered),
                {table: found.rows(batch.batch) for table, found in mine.items()},
                {table: found.file_bytes(batch.batch) for table, found in mine.items()},
                {k: v for found in mine.values() for k, v in found.counts.get(batch.batch, {}).items()},
                sent_rows,
                sent_bytes,
                raw_bytes,
                share,
            )
            lines = list(plan.account(drafted))
            for line in lines:
                if line.dimension_kind == TOTAL:
                    offered[line.unit] = line.kept
            assert all(line.stage == name and line.ordinal == ordinal for line in lines), (
                "a lever speaks for itself"
            )
            rows += lines
        rows += _sent(contract, batch, drafts, raw_bytes, sent_bytes)
    return rows


def _sent(
    contract: StreamContract,
    batch: Batch,
    drafts: Drafts,
    raw_bytes: Mapping[str, int],
    sent_bytes: Mapping[str, int],
) -> list[LedgerRow]:
    """The last stage: what was written to be sent, counted from what was written."""
    rows, values = drafts.sent.rows(batch.batch), drafts.sent.counts.get(batch.batch, {}).get("values", 0)
    ordinal = len(batch.levers) + 1
    place = ("stream", contract.stream, batch.batch, batch.batch_date, SENT, ordinal)
    return [
        LedgerRow(
            *place,
            "rows",
            offered=rows,
            kept=rows,
            bytes_offered=sum(raw_bytes.values()),
            bytes_kept=sum(sent_bytes.values()),
        ),
        LedgerRow(*place, "values", offered=values, kept=values),
    ]
