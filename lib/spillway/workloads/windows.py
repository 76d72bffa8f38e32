"""Find the windows of joins and queries, refuse those that cannot run, and pin the windows to compute.

Find (`find_windows`): every batch of an input is examined once. The table `windows` stores the windows that it has rows
in. A window is open until all input streams have sent later rows. If the contract says `rows_of: all`, it is also open
until all input streams have rows in it. If the contract says `waits_seconds`, a slow stream does not hold it open for
longer than that. A batch that is stored with a window is known, so the cost of a search does not grow with the history.

Refuse (`refuse_impossible`): some joins and queries fail on every run, for any input. This is known from the contracts
alone: attributes that an input stream does not have, types that the lever cannot work on, streams that cannot
be divided into windows, a wrong list of levers, or slices larger than the capacity of the group. A window length that
differs from that of the stored windows is refused when windows are looked for.

Pin (`pinned_windows`): a closed window is pinned with the batches that it reads before anything is computed, so that a
rerun reads what the first run read. A window exists if an input has rows in it.

Late rows: rows that arrive after a window was computed open it again, together with the windows that look back at it.
They are computed again with all of their rows, so that no late row is lost. If retention has removed some of the rows,
a computed window stays as it is and stores which batches came too late; a window that was never computed is given up.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import DONE as SENT
from spillway.batch import RETIRED
from spillway.clock import utc_now
from spillway.contracts import Contracts
from spillway.contracts.column_names import OWN, bounded_attribute
from spillway.contracts.fields import join_path, suggest
from spillway.contracts.workload import Workload
from spillway.engine import Engine, ProcessEngine
from spillway.engine.statements import NeedsSpark, SqlView
from spillway.errors import InvalidValue, Problem, SpillwayError
from spillway.levers.protocol import Say
from spillway.levers.windows import (
    DONE,
    GONE,
    OPEN,
    PLANNED,
    Input,
    SqlQuery,
    Window,
    WindowLever,
    WindowWork,
    duration_micros,
    micros_of,
)
from spillway.registry import lever
from spillway.settings import Settings
from spillway.store.files import row_groups, rows_of_group
from spillway.store.filters import Between
from spillway.store.tables import Table, Tables
from spillway.streams.facts import newest_facts
from spillway.streams.query import WEIGHT, readable_schema
from spillway.workloads.grid import WindowGrid, window_order
from spillway.workloads.losses import dropped_cells

_READ_BESIDE = {**dict(zip(OWN[:3], ("integer", "integer", "date"), strict=True)), WEIGHT: "double"}
"""Columns that the rows of an input have in addition to its attributes, with their types."""


def refuse_impossible(contracts: Contracts, contract: Workload) -> None:
    """Raise if no run can compute the join or query."""
    for problem in _problems_of(contracts, contract):
        raise InvalidValue(problem.field, problem.rule, problem.value, problem.remedy, where=contract.subject)


def workload_problems(contracts: Contracts, engine: str = "process") -> list[Problem]:
    """Return the problems of joins and queries, file by file; streams with invalid contracts are left out.

    `engine`: the engine of the run. For `spark`, a query that only Spark can answer is not a problem.
    """
    found: list[Problem] = []
    for folder, workloads in (("joins", contracts.joins), ("queries", contracts.queries)):
        for name, contract in sorted(workloads.items()):
            if all(stream in contracts.streams for stream in contract.inputs):
                where = f"{folder}/{name}.yaml"
                problems = [*_problems_of(contracts, contract)] or _sql_problems(contracts, contract, engine)
                found += [replace(one, where=where) for one in problems]
    return found


def answer_schema(engine: Engine, question: SqlQuery, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the columns of the answer, given the columns of the inputs; no row is read."""
    views = {
        name: SqlView(pa.schema([schemas[read.stream].field(one) for one in read.columns]), ())
        for name, read in question.reads.items()
    }
    return engine.columns(views, question.steps)


def _sql_problems(contracts: Contracts, contract: Workload, engine: str) -> list[Problem]:
    """Return the problems of a query's statements, analysed over empty tables with the columns of the inputs."""
    found = lever(contract.lever_names[0])
    assert isinstance(found, WindowLever)
    streams = dict.fromkeys(contract.inputs)
    with TemporaryDirectory() as nowhere:
        lake = {"SPILLWAY_HOME": nowhere, "SPILLWAY_LAKE": f"{nowhere}/lake"}
        tables = Tables(Settings.from_environment(lake))
        schemas = {name: readable_schema(tables, contracts.stream(name)) for name in streams}
    work = WindowWork(contract, {}, (), columns={name: tuple(schemas[name].names) for name in streams})
    try:
        found.check_work(work, lambda question: answer_schema(ProcessEngine(), question, schemas))
    except NeedsSpark as refused:
        return [refused.problem] if engine == "process" else []
    except InvalidValue as refused:
        return [refused.problem]
    return []


def _problems_of(contracts: Contracts, contract: Workload) -> Iterator[Problem]:
    name, levers = contract.subject, contract.lever_names
    if len(levers) != 1:
        rule = "be a single lever for a join or a query, because no other lever can shed its results"
        yield Problem(name, "levers", rule, list(levers), "keep the one that works it out")
        return
    found = lever(levers[0])
    if contract.window.slide_seconds is not None and not getattr(found, "slides", False):
        rule, remedy = "be absent, because windows of this lever do not overlap", "leave it out"
        yield Problem(name, "window.slide_seconds", rule, contract.window.slide_seconds, remedy)
        return
    if not isinstance(found, WindowLever):
        rule, remedy = "be one that works on windows", "name joins, or a lever for queries"
        yield Problem(name, "levers", rule, levers[0], remedy)
        return
    try:
        for stream in contract.inputs:
            window_order(contracts, contract, stream)
        read = found.columns(contract)
    except InvalidValue as refused:
        yield refused.problem
        return
    absent = False
    for stream, columns in read.items():
        names = contracts.stream(stream).names
        # every attribute has a column for its bound, which the contract does not list
        for column in dict.fromkeys(map(bounded_attribute, columns)):
            if column not in (*names, *_READ_BESIDE):
                absent = True
                yield Problem(name, column, f"be an attribute of {stream}", column, suggest(column, names))
    if absent:
        return
    types = {
        stream: {**_READ_BESIDE, **{one.name: one.type for one in contracts.stream(stream).attributes}}
        for stream in dict.fromkeys(contract.inputs)
    }
    for stream, columns in found.exact_columns(contract).items():
        of = contracts.stream(stream)
        inexact = {
            attribute: stage for stage in of.lever_names for attribute in lever(stage).inexact_attributes(of)
        }
        for column in dict.fromkeys(columns):
            if column in inexact:
                yield Problem(
                    name,
                    column,
                    f"be exact, because {name} matches rows by it, but the lever {inexact[column]} of {stream} may "
                    "round it, or recover it within a bound",
                    f"{stream}.{column}",
                    f"write role: protected or error: 0 for {column} in the contract of {stream}, or match by another",
                )
    for where, rule, value, remedy in found.column_type_problems(contract, types):
        yield Problem(name, join_path("levers[0]", where), rule, value, remedy)
    of_scope = contracts.queries if contract.subject in contracts.queries else contracts.joins
    others = [
        one
        for one in of_scope.values()
        if one is not contract and (one.capacity_group or one.subject) == (contract.capacity_group or name)
    ]
    for where, rule, value, remedy in found.capacity_problems(contract, others):
        yield Problem(name, join_path("levers[0]", where), rule, value, remedy)


_ROUNDED = timedelta(microseconds=2)


class StoredWindows:
    """The stored windows of a join or query; a row becomes a `Window` only on request."""

    def __init__(self, tables: Tables, contract: Workload) -> None:
        self._rows = tables.at("windows").rows(subject=contract.subject)
        self._numbers = np.asarray(self._rows["window"])

    def with_numbers(self, numbers: Collection[int]) -> dict[int, Window]:
        """Return the windows with these numbers."""
        return self._select(np.isin(self._numbers, list(numbers)))

    def between(self, low: int, high: int) -> dict[int, Window]:
        """Return the windows from `low` to `high`, both included."""
        return self._select((self._numbers >= low) & (self._numbers <= high))

    def with_status(self, *status: str) -> dict[int, Window]:
        """Return the windows with one of these statuses."""
        return self._select(np.asarray(pc.is_in(self._rows["status"], pa.array(status))))

    def last(self) -> Window | None:
        """Return the window with the largest number."""
        largest = self._numbers.max() if len(self._numbers) else 0
        return next(iter(self._select(self._numbers == largest).values()), None)

    @cached_property
    def inputs(self) -> set[Input]:
        """Every batch that was examined."""
        found: set[Input] = set()
        for name in ("inputs", "too_late"):
            pairs = pc.list_flatten(self._rows[name]).combine_chunks()
            if len(pairs):
                found |= set(
                    zip(*(pairs.field(part).to_pylist() for part in ("stream", "batch")), strict=True)
                )
        return found

    def _select(self, mask: np.ndarray) -> dict[int, Window]:
        if not mask.any():
            return {}
        return {row["window"]: Window.from_row(row) for row in self._rows.filter(pa.array(mask)).to_pylist()}


@dataclass(frozen=True)
class WindowSearchResult:
    """What a search for windows found, by window."""

    known: StoredWindows
    came: Mapping[int, set[Input]] = field(default_factory=dict)
    """The batches with rows of the window that are not stored with it yet."""
    closed: Mapping[int, set[Input]] = field(default_factory=dict)
    """For windows that were open or new and are closed now: all batches with rows of the window."""
    again: Mapping[int, set[Input]] = field(default_factory=dict)
    """For windows that were planned or computed: late batches, for them or for windows that they look back at."""
    held_by: Mapping[str, int | None] = field(default_factory=dict)
    """For each input stream behind the fastest one: how many windows it keeps open. None: it has sent nothing."""

    @property
    def finds_work(self) -> bool:
        return bool(self.closed or self.again or self.known.with_status(PLANNED))


def find_windows(tables: Tables, contracts: Contracts, contract: Workload) -> WindowSearchResult:
    """Find the batches that the inputs have sent and that were not examined yet, and the windows that they close."""
    refuse_impossible(contracts, contract)
    known, grid = StoredWindows(tables, contract), WindowGrid.of(contract)
    refuse_other_length(known, contract)
    open_ones = known.with_status(OPEN)
    # a lake from before windows were kept open is searched once more from its beginning
    seen = known.inputs if open_ones else set()
    sent = {stream: _sent(tables, stream) for stream in dict.fromkeys(contract.inputs)}
    if not all(sent.values()) and contract.window.waits_seconds is None:
        silent = {stream: None for stream, batches in sent.items() if not batches}
        return WindowSearchResult(known, held_by=silent if any(sent.values()) else {})
    new = {name: [batch for batch in found if (name, batch) not in seen] for name, found in sent.items()}
    came: dict[int, set[Input]] = {}
    for stream, batches in new.items():
        order = window_order(contracts, contract, stream)
        for batch, cell in _cells_of(tables, grid, stream, order, batches):
            for number in grid.windows_of(cell):
                came.setdefault(number, set()).add((stream, batch))
    touched = known.with_numbers(came)
    came = {n: more for n, found in came.items() if (more := found - _own(touched.get(n)))}
    waiting = {number: _own(window) for number, window in open_ones.items()}
    waiting |= {
        n: waiting.get(n, set()) | found for n, found in came.items() if n in waiting or n not in touched
    }
    ends = {
        stream: max((n for n, own in waiting.items() if _has(own, stream)), default=None) for stream in new
    }
    # the last window of a stream starts at the last cell with rows of the stream
    end = _end(ends.values(), contract)
    if end is None:
        return WindowSearchResult(known, came)
    wanted = set(contract.inputs) if contract.window.rows_of == "all" else set()
    ahead = grid.cells - 1
    closed = {n: own for n, own in waiting.items() if n + ahead < end and {name for name, _ in own} >= wanted}
    fastest = max(one for one in ends.values() if one is not None)
    held = {
        stream: sum(max(end, -math.inf if last is None else last) <= n + ahead < fastest for n in waiting)
        for stream, last in ends.items()
        if last is None or last < fastest
    }
    return WindowSearchResult(
        known, came, closed, _late_batches(known, touched, came, windows_back(contract)), held
    )


def _end(ends: Collection[int | None], contract: Workload) -> int | None:
    """Return the first open cell: that of the slowest input, but at most the waiting time before the fastest."""
    sent = [one for one in ends if one is not None]
    if not sent:
        return None
    seconds = contract.window.waits_seconds
    if seconds is None:
        return min(sent) if len(sent) == len(ends) else None
    ahead = max(sent) - math.ceil(duration_micros(seconds) / contract.window.step)
    return max(ahead, min(sent)) if len(sent) == len(ends) else ahead


def _late_batches(
    known: StoredWindows, touched: Mapping[int, Window], came: Mapping[int, set[Input]], back: int
) -> dict[int, set[Input]]:
    """Return, by window that was planned before, late batches for it or for windows that it looks back at."""
    found: dict[int, set[Input]] = {}
    for number, inputs in came.items():
        later = known.between(number + 1, number + back) if back else {}
        for window in [*(touched[n] for n in (number,) if n in touched), *later.values()]:
            more = inputs - set(window.inputs) - set(window.too_late)
            if window.status != OPEN and more:
                found.setdefault(window.window, set()).update(more)
    return found


def windows_back(contract: Workload) -> int:
    """Return how many windows before its own a window may need rows of."""
    (name, *_) = contract.lever_names
    return math.ceil(lever(name).look_back_seconds(contract) / contract.window.seconds)


def inputs_before(known: Mapping[int, set[Input]], number: int, back: int) -> set[Input]:
    """Return the batches with rows of the `back` windows before a window."""
    return {one for n in range(number - back, number) for one in known.get(n, ())}


def missing_batches(tables: Tables, inputs: Iterable[Input]) -> set[Input]:
    """Return which of these batches have no transmitted rows any more."""
    of: dict[str, set[int]] = {}
    for stream, batch in inputs:
        of.setdefault(stream, set()).add(batch)
    return {(s, batch) for s, batches in of.items() for batch in batches - _still_there(tables, s, batches)}


def _still_there(tables: Tables, stream: str, batches: set[int]) -> set[int]:
    found: set[int] = set()
    for file in tables.at("transmitted", stream).files(batch=sorted(batches)):
        low, high = file.low("batch"), file.high("batch")
        if low is not None and low == high:
            found |= {low} & batches
            continue
        for group in row_groups(file, ["batch"]):
            low, high = group.edges.get("batch", (None, None))
            if low is not None and low == high:
                found |= {low} & batches
            else:
                rows = rows_of_group(file, group.place, ["batch"])
                found |= set(rows["batch"].unique().to_pylist()) & batches
    return found


def refuse_other_length(known: StoredWindows, contract: Workload) -> None:
    """Raise if the length of windows has changed: new windows would overlap the stored ones and hold the same rows."""
    last, grid = known.last(), WindowGrid.of(contract)
    if last is None:
        return
    edges = zip(grid.span(last.window), (last.from_time, last.to_time), strict=True)
    if all(abs(is_now - was) <= _ROUNDED for is_now, was in edges):
        return
    was = (last.to_time - last.from_time).total_seconds()
    field, value, now = "seconds", contract.window.seconds, was
    rule = "stay the length of the windows that were computed"
    if abs(was - contract.window.seconds) <= _ROUNDED.total_seconds():
        rule = "stay the step of the windows that were computed"
        field, value = "slide_seconds", contract.window.slide_seconds or contract.window.seconds
        now = micros_of(last.from_time) / last.window / 1e6 if last.window else was
    raise InvalidValue(
        f"window.{field}",
        f"{rule}, {now:g}, because their results are stored already",
        value,
        f"write {now:g} again, or give the query or join a new name, which starts with no results",
        where=contract.subject,
    )


def search_problem(tables: Tables, contracts: Contracts, contract: Workload) -> str | None:
    """Return why no window can be searched for, whatever the inputs send; None if there is no such reason."""
    try:
        refuse_impossible(contracts, contract)
        refuse_other_length(StoredWindows(tables, contract), contract)
    except SpillwayError as problem:
        return str(problem)
    return None


def _own(window: Window | None) -> set[Input]:
    return set() if window is None else set(window.inputs) - set(window.looked_back)


def _has(inputs: Iterable[Input], stream: str) -> bool:
    return any(name == stream for name, _ in inputs)


def _sent(tables: Tables, stream: str) -> list[int]:
    """Return the batches of the stream that have sent rows."""
    where: dict[str, Any] = {"stream": stream, "status": [SENT, RETIRED], "rows": Between(1)}
    return sorted(tables.at("batches").rows(["batch"], **where)["batch"].to_pylist())


def _cells_of(
    tables: Tables, grid: WindowGrid, stream: str, order: str, batches: list[int]
) -> Iterator[tuple[int, int]]:
    """Return pairs of a batch and a cell in which it has rows, or had rows before a lever dropped all of them.

    A file is opened at most once.
    """
    if batches:
        for file in tables.at("transmitted", stream).files(batch=batches):
            yield from grid.of_batches(file, order, set(batches))
        yield from dropped_cells(tables, grid, stream, batches)


def pinned_windows(
    tables: Tables, contracts: Contracts, contract: Workload, say: Say = lambda _: None
) -> list[Window]:
    """Pin new closed windows, and return all windows that are closed and not computed, in order."""
    found = find_windows(tables, contracts, contract)
    pins = _Pins(tables, contracts, contract, found, utc_now())
    changed = {window.window: window for window in [*pins.opened(), *pins.closed(), *pins.reopened()]}
    if changed:
        save_windows(tables, list(changed.values()))
    for window in changed.values():
        _report_incomplete(window, found, say)
    waiting = found.known.with_status(PLANNED) | changed
    planned = (one for one in waiting.values() if one.status == PLANNED)
    return sorted(planned, key=lambda one: one.window)


def save_windows(tables: Tables, windows: Sequence[Window]) -> None:
    """Write the rows of windows of one join or query, and replace the earlier ones."""
    replace = partial(tables.at("windows").replace, subject=windows[0].subject)
    replace([window.row() for window in windows], window=[window.window for window in windows])


def claim_windows(tables: Tables, windows: Sequence[Window], written: Iterable[Table]) -> None:
    """Claim windows before their results are published; raise if another run has pinned or claimed them since.

    `written`: the tables to publish to. Passing them opens them, which fixes the versions that their commits rely on.

    Of two runs, one claims last, and it has read the windows as they stand. The other run opened its tables before the
    last one wrote to them. So each run detects the other's commit, and only one can set the windows to `done`. An older
    answer never replaces a newer one: the windows of the refused run stay planned.
    """
    assert all(table.version >= -1 for table in written)
    now = utc_now()
    save_windows(tables, [window.with_changes(now) for window in windows])


class _Pins:
    """Makes the rows of `windows` that follow from a search."""

    def __init__(
        self,
        tables: Tables,
        contracts: Contracts,
        contract: Workload,
        found: WindowSearchResult,
        now: datetime,
    ) -> None:
        self._tables, self._contracts, self._contract = tables, contracts, contract
        self._found, self._now = found, now
        self._touched = found.known.with_numbers(found.came)

    def opened(self) -> Iterable[Window]:
        """Yield the windows that have begun, with the batches that have rows in them so far."""
        for number, inputs in self._found.came.items():
            window = self._touched.get(number) or self._begun(number)
            if window.status == OPEN and number not in self._found.closed:
                yield window.with_changes(self._now, inputs=_merged(window.inputs, inputs))

    def closed(self) -> Iterable[Window]:
        """Yield the windows that have closed, pinned with the batches, levers and facts that they are computed from."""
        closed, back = self._found.closed, windows_back(self._contract)
        if not closed:
            return
        low, high = min(closed), max(closed)
        own = {n: set(one.inputs) - set(one.looked_back) for n, one in self._before(low, high, back).items()}
        for number, inputs in self._found.came.items():
            own[number] = own.get(number, set()) | inputs
        known = self._found.known.with_numbers(closed)
        versions = {
            name: facts.version
            for name in self._contract.lever_names
            if (facts := newest_facts(self._tables, self._contract.subject, name)) is not None
        }
        looks = {number: inputs_before(own, number, back) - inputs for number, inputs in closed.items()}
        lost = missing_batches(
            self._tables, {one for number in closed for one in closed[number] | looks[number]}
        )
        for number, inputs in sorted(closed.items()):
            reads = inputs | looks[number]
            yield (known.get(number) or self._begun(number)).with_changes(
                self._now,
                created_at=self._now,
                status=GONE if reads & lost else PLANNED,
                inputs=_merged(reads),
                looked_back=_merged(looks[number]),
                levers=self._contract.lever_names,
                models=versions,
            )

    def reopened(self) -> Iterable[Window]:
        """Yield the windows for which batches arrived late."""
        again = self._found.again
        known = self._found.known.with_numbers(again)
        lost = missing_batches(self._tables, {one for number in again for one in known[number].inputs})
        for number, inputs in sorted(again.items()):
            window = known[number]
            if window.status == GONE or set(window.inputs) & lost:
                yield window.with_changes(self._now, too_late=_merged(window.too_late, inputs))
                continue
            looked_back = inputs - self._found.came.get(number, set())
            yield window.with_changes(
                self._now,
                status=PLANNED,
                inputs=_merged(window.inputs, inputs),
                late=_merged(window.late, inputs if window.status == DONE else ()),
                looked_back=_merged(set(window.looked_back) - (inputs - looked_back), looked_back),
            )

    def _before(self, low: int, high: int, back: int) -> dict[int, Window]:
        return self._found.known.between(low - back, high) if back else {}

    def _begun(self, number: int) -> Window:
        scope = "join" if self._contract.subject in self._contracts.joins else "query"
        begin, end = WindowGrid.of(self._contract).span(number)
        now = self._now
        return Window(scope, self._contract.subject, number, OPEN, begin, end, (), now, now)


def _merged(*inputs: Collection[Input]) -> tuple[Input, ...]:
    return tuple(sorted({one for some in inputs for one in some}))


def _report_incomplete(window: Window, found: WindowSearchResult, say: Say) -> None:
    """Report a window that cannot be computed with all of its rows."""
    late = found.again.get(window.window, set()) & set(window.too_late)
    batches = ", ".join(f"batch {batch} of {stream}" for stream, batch in sorted(late))
    if late:
        say(
            f"{window.subject}: window {window.window} ({window.from_time:%Y-%m-%d %H:%M}) is not recomputed: "
            f"{batches} arrived after retention had removed some of its rows"
        )
    elif window.status == GONE:
        say(
            f"{window.subject}: window {window.window} ({window.from_time:%Y-%m-%d %H:%M}) is given up: rows of it "
            "were removed by retention before it was closed"
        )
