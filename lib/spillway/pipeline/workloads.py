"""Joins and queries: the windows that their inputs have closed are pinned, planned together, worked out, accounted for.

A window is closed when every input stream has transmitted something later. Results replace those of the same window,
then the ledger, then the window turns done; so a rerun, or a death in between, ends in the same tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa

from spillway.batch import DONE, RETIRED, Batch, utc_now
from spillway.contracts import Contracts
from spillway.contracts.workload import Workload
from spillway.engine.protocol import Engine
from spillway.errors import Refused
from spillway.levers.protocol import Room, Say
from spillway.levers.windows import DONE as WORKED_OUT
from spillway.levers.windows import (
    PLANNED,
    ReadColumns,
    Window,
    WindowDecision,
    WindowLever,
    WindowPlan,
    WindowWork,
)
from spillway.pipeline.facts import needed_facts, newest_facts
from spillway.registry import lever
from spillway.store.batches import load_batches
from spillway.store.files import DataFile, rows_of
from spillway.store.filters import Between, matching
from spillway.store.ledgers import write_ledger
from spillway.store.tables import Piece, Tables

_ROWS_AT_A_TIME = 131_072


def run_workloads(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    names: Sequence[str] | None = None,
    say: Say = lambda _: None,
) -> list[Window]:
    """Work out every closed window of the joins and queries (all, or those named); returns the ones done."""
    tables = tables.now()
    known = {**contracts.joins, **contracts.queries}
    chosen = list(known) if names is None else list(names)
    for name in chosen:
        if name not in known:
            raise Refused("workload", "have a contract", name, "see schemas/joins and schemas/queries")
    pinned = {name: _pinned(tables, contracts, known[name]) for name in chosen}
    waiting = {name: found for name, found in pinned.items() if found}
    rooms: dict[str, list[str]] = {}
    for name in waiting:
        rooms.setdefault(known[name].room or name, []).append(name)
    done: list[Window] = []
    for room, members in rooms.items():
        done += _bring_through(
            tables, engine, Room(room, contracts, tables), [known[n] for n in members], waiting, say
        )
    return done


def _pinned(tables: Tables, contracts: Contracts, contract: Workload) -> list[Window]:
    """The windows that are closed and not worked out, pinned: a rerun reads what the first run read."""
    subject, seconds = contract.subject, contract.window.seconds
    rows = tables.at("windows").rows(subject=subject).to_pylist()
    known = {row["window"]: Window.from_row(row) for row in rows}
    spans = {stream: _spans(tables, contracts, stream) for stream in dict.fromkeys(contract.inputs)}
    if not all(spans.values()):
        return [one for one in known.values() if one.status == PLANNED]
    first = min(low for found in spans.values() for _, low, _ in found)
    closed = min(max(high for _, _, high in found) for found in spans.values())
    versions = {
        name: facts.version
        for name in contract.lever_names
        if (facts := newest_facts(tables, subject, name)) is not None
    }
    now, new = utc_now(), []
    for number in range(math.floor(first.timestamp() / seconds), math.floor(closed.timestamp() / seconds)):
        if number in known:
            continue
        begin, end = (datetime.fromtimestamp(edge * seconds, UTC) for edge in (number, number + 1))
        inputs = tuple(
            (stream, batch)
            for stream, found in spans.items()
            for batch, low, high in found
            if low < end and high >= begin
        )
        scope = "join" if subject in contracts.joins else "query"
        new.append(
            Window(
                scope, subject, number, PLANNED, begin, end, inputs, now, now, contract.lever_names, versions
            )
        )
    if new:
        _save(tables, new)
    return sorted(
        [*(one for one in known.values() if one.status == PLANNED), *new], key=lambda one: one.window
    )


def _spans(tables: Tables, contracts: Contracts, stream: str) -> list[tuple[int, datetime, datetime]]:
    """Of each batch that the stream has transmitted: its number and the moments it spans."""
    order = contracts.stream(stream).order
    shed: dict[int, Batch] = {
        b.batch: b for b in load_batches(tables, stream) if b.status in (DONE, RETIRED) and b.rows
    }
    found: dict[int, tuple[datetime, datetime]] = {}
    for file in tables.at("transmitted", stream).files():
        low, high, batch = file.low(order), file.high(order), file.low("batch")
        if batch not in shed or not isinstance(low, datetime) or not isinstance(high, datetime):
            continue
        before = found.get(batch, (low, high))
        found[batch] = (min(before[0], low), max(before[1], high))
    return [(batch, low, high) for batch, (low, high) in sorted(found.items())]


@dataclass(frozen=True)
class _Span:
    """What an input stream transmitted in a window, where it lies."""

    files: tuple[DataFile, ...]
    order: str
    batches: tuple[int, ...]
    window: Window

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        names = list(dict.fromkeys(["seq", "batch", self.order, *columns]))
        # the last moment belongs to the next window
        last = self.window.to_time.timestamp() - 1e-6
        between = Between(self.window.from_time, datetime.fromtimestamp(last, UTC))
        where = {self.order: between, "batch": list(self.batches)}
        parts = [
            part.filter(matching(part, where))
            for file in self.files
            for part in rows_of(file, names, _ROWS_AT_A_TIME)
        ]
        if not parts:
            return pa.table({name: pa.nulls(0) for name in columns})
        return pa.concat_tables(parts, promote_options="permissive").sort_by("seq").select(list(columns))


@dataclass(frozen=True)
class _Results:
    """Makes the results of one window."""

    decision: WindowDecision
    inputs: Mapping[int, Mapping[str, ReadColumns]]

    def __call__(self, window: Window, counts: dict[str, int]) -> Iterator[pa.Table]:
        for found in self.decision.results(window, self.inputs[window.window], counts):
            yield found.append_column("window", pa.array([window.window] * found.num_rows, pa.int64()))


def _bring_through(
    tables: Tables,
    engine: Engine,
    room: Room,
    contracts: Sequence[Workload],
    waiting: Mapping[str, Sequence[Window]],
    say: Say,
) -> list[Window]:
    """Plan the windows of all that share the room together, then work them out."""
    done: list[Window] = []
    by_lever: dict[str, list[Workload]] = {}
    for contract in contracts:
        if len(contract.lever_names) != 1:
            raise Refused(
                "levers",
                "be one for a join or a query: its results are not rows that another could thin out",
                list(contract.lever_names),
                "keep the one that works it out",
                where=contract.subject,
            )
        (name,) = contract.lever_names
        by_lever.setdefault(name, []).append(contract)
    for name, mine in by_lever.items():
        found: WindowLever = lever(name)
        work = [_work(tables, contract, name, waiting[contract.subject]) for contract in mine]
        for contract, plan in zip(mine, found.plan_windows(room, work), strict=True):
            windows = waiting[contract.subject]
            done += _work_out(tables, engine, room, contract, found, plan, windows)
            say(f"{contract.subject}: {len(windows)} windows worked out by {name}")
    return done


def _work(tables: Tables, contract: Workload, name: str, windows: Sequence[Window]) -> WindowWork:
    versions = {window.models[name] for window in windows if name in window.models}
    facts = needed_facts(tables, contract.subject, name, versions) if versions else {}
    return WindowWork(contract, facts, tuple(windows))


def _work_out(
    tables: Tables,
    engine: Engine,
    room: Room,
    contract: Workload,
    found: WindowLever,
    plan: WindowPlan,
    windows: Sequence[Window],
) -> list[Window]:
    """Results, then the ledger, then done; each replaces its own."""
    subject, numbers = contract.subject, [window.window for window in windows]
    table = tables.at(found.results_table, subject)
    inputs = {window.window: _inputs(tables, room, window) for window in windows}
    pieces = [Piece({"batch_date": str(window.day)}, window.window, window) for window in windows]
    draft = table.draft(engine, pieces, _Results(plan.decision, inputs))
    days = sorted({window.day for window in windows})
    table.publish(draft.written, batch_date=days, window=numbers)
    lines = [
        line
        for window in windows
        for line in plan.account(window, draft.rows(window.window), draft.counts.get(window.window, {}))
    ]
    write_ledger(tables, subject, numbers, [found.name], lines)
    now = utc_now()
    done = [window.becomes(now, status=WORKED_OUT) for window in windows]
    _save(tables, done)
    return done


def _inputs(tables: Tables, room: Room, window: Window) -> dict[str, ReadColumns]:
    found: dict[str, ReadColumns] = {}
    for stream in dict.fromkeys(stream for stream, _ in window.inputs):
        batches = tuple(batch for name, batch in window.inputs if name == stream)
        files = tables.at("transmitted", stream).files(batch=list(batches))
        found[stream] = _Span(tuple(files), room.contracts.stream(stream).order, batches, window)
    return found


def _save(tables: Tables, windows: Sequence[Window]) -> None:
    """Write the rows of windows of one subject, replacing what they were."""
    replace = partial(tables.at("windows").replace, subject=windows[0].subject)
    replace([window.row() for window in windows], window=[window.window for window in windows])
