"""Joins and queries: the windows that their inputs have closed are pinned, planned together, worked out, accounted for.

A window is closed when every input stream has transmitted something later. Results replace those of the same window,
then the ledger, then the window turns done; so a rerun, or a death in between, ends in the same tables.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa

from spillway.batch import DONE, RETIRED, utc_now
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
from spillway.store.files import DataFile, high_edge, rows_of
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
    """The windows that are closed and not worked out, pinned: a rerun reads what the first run read.

    A window is there where an input has rows. What comes when its window was worked out opens it again: it is worked
    out anew with all of its rows, so that nothing that is late is lost.
    """
    subject = contract.subject
    rows = tables.at("windows").rows(subject=subject).to_pylist()
    known = {row["window"]: Window.from_row(row) for row in rows}
    wanted = _to_read(tables, contracts, contract, known)
    now = utc_now()
    pinned = [
        _opened_again(known[number], inputs, now)
        if number in known
        else _new(tables, contracts, contract, number, inputs, now)
        for number, inputs in sorted(wanted.items())
    ]
    if pinned:
        _save(tables, pinned)
    waiting = {number: one for number, one in known.items() if one.status == PLANNED}
    return sorted((waiting | {one.window: one for one in pinned}).values(), key=lambda one: one.window)


def _opened_again(window: Window, inputs: Collection[tuple[str, int]], now: datetime) -> Window:
    return window.becomes(now, status=PLANNED, inputs=tuple(sorted({*window.inputs, *inputs})))


def _new(
    tables: Tables,
    contracts: Contracts,
    contract: Workload,
    number: int,
    inputs: Collection[tuple[str, int]],
    now: datetime,
) -> Window:
    subject, seconds = contract.subject, contract.window.seconds
    begin, end = (datetime.fromtimestamp(edge * seconds, UTC) for edge in (number, number + 1))
    scope = "join" if subject in contracts.joins else "query"
    versions = {
        name: facts.version
        for name in contract.lever_names
        if (facts := newest_facts(tables, subject, name)) is not None
    }
    pinned = tuple(sorted(inputs))
    return Window(
        scope, subject, number, PLANNED, begin, end, pinned, now, now, contract.lever_names, versions
    )


def _to_read(
    tables: Tables, contracts: Contracts, contract: Workload, known: Mapping[int, Window]
) -> dict[int, set[tuple[str, int]]]:
    """By closed window, the batches with rows in it that it has not read."""
    seconds = contract.window.seconds
    found: dict[int, set[tuple[str, int]]] = {}
    closed: list[int] = []
    for stream in dict.fromkeys(contract.inputs):
        order = _order_of(contracts, contract, stream)
        last: list[int] = []
        for batch, files in _transmitted(tables, stream).items():
            high = max((edge for file in files if (edge := high_edge(file, order)) is not None), default=None)
            if high is None:
                continue
            last.append(math.floor(high.timestamp() / seconds))
            # its windows are pinned in their order: when the last one is, all of them are
            if (stream, batch) in (known[last[-1]].inputs if last[-1] in known else ()):
                continue
            for number in _windows_of(files, batch, order, seconds):
                if number in known and (stream, batch) in known[number].inputs:
                    continue
                found.setdefault(number, set()).add((stream, batch))
        if not last:
            return {}
        closed.append(max(last))
    return {number: inputs for number, inputs in found.items() if number < min(closed)}


def _order_of(contracts: Contracts, contract: Workload, stream: str) -> str:
    order = contracts.stream(stream).order
    kind = contracts.stream(stream).attribute(order).type
    if kind != "timestamp":
        raise Refused(
            "inputs",
            f"be ordered by a timestamp to be cut into windows of seconds, and {stream} is by {order}",
            kind,
            "name a stream whose order attribute is one",
            where=contract.subject,
        )
    return order


def _transmitted(tables: Tables, stream: str) -> dict[int, list[DataFile]]:
    """Of each batch that the stream has sent, the files that hold its rows."""
    where = {"stream": stream, "status": [DONE, RETIRED], "rows": Between(1)}
    sent = sorted(tables.at("batches").rows(["batch"], **where)["batch"].to_pylist())
    table = tables.at("transmitted", stream)
    return {batch: files for batch in sent if (files := table.files(batch=batch))}


def _windows_of(files: Sequence[DataFile], batch: int, order: str, seconds: float) -> set[int]:
    """The windows in which a batch has rows."""
    found: set[int] = set()
    for file in files:
        for part in rows_of(file, ["batch", order], _ROWS_AT_A_TIME):
            mine = part.filter(matching(part, {"batch": batch}))[order].drop_null()
            micros = np.asarray(mine.cast(pa.timestamp("us")).cast(pa.int64()))
            found |= set(np.unique(np.floor(micros / (seconds * 1e6)).astype(np.int64)).tolist())
    return found


@dataclass(frozen=True)
class _Span:
    """What an input stream transmitted in a window, where it lies."""

    files: tuple[DataFile, ...]
    order: str
    batches: tuple[int, ...]
    window: Window

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        names = list(dict.fromkeys(["seq", "batch", self.order, *columns]))
        # the moment after the last belongs to the next window
        between = Between(self.window.from_time, self.window.to_time - timedelta(microseconds=1))
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
