"""Compute the closed windows of joins and queries: plan them together, compute their results, and account for them.

Windows of one run are published in this order: the claim, the results, the lever's own rows, the ledger, and the status
`done`. Each step replaces the earlier rows of the same windows. So a rerun, or a run that is interrupted in between,
ends with the same tables, and so do two runs at the same time (`workloads.windows.claim_windows`).

Queries that share a capacity group are all computed before any of them is published. If one fails, the capacity of the
group is divided again among the others.

Results that are answers in SQL: the engine runs the queries of each window on the portions that are kept. The file of a
portion that is not kept is never opened. The answer is small and is written here. Its columns follow those of the
table's contract.

A window of a query that could not be computed is reported and stays `planned`. It leaves its capacity to the others
from then on. So the next run may have no capacity for it, would ask nothing, and would publish an empty answer instead
of a fault. To prevent this, the window stores the sentence that it failed with (`failed`) and the query of that time
(`failed_by`). If the query is the same and there is no capacity for any portion, the window waits and is reported
again. If the query has changed, the window is computed like any other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from spillway.clock import utc_now
from spillway.contracts import Contracts
from spillway.contracts.workload import Workload
from spillway.engine import Engine, ProcessEngine
from spillway.engine.statements import QueryTimeout, SqlView
from spillway.errors import ConcurrentRun, InvalidValue, SpillwayError, format_count
from spillway.job import map_in_threads
from spillway.ledger import LedgerRow
from spillway.levers.protocol import CapacityGroup, Say
from spillway.levers.windows import (
    DONE,
    PORTION,
    InputLoss,
    ReadColumns,
    SqlDecision,
    SqlInput,
    SqlQuery,
    Window,
    WindowDecision,
    WindowLever,
    WindowPlan,
    WindowWork,
)
from spillway.registry import lever
from spillway.store.batches import write_ledger
from spillway.store.drafts import Draft
from spillway.store.schemas import spark_type
from spillway.store.tables import FileTask, Table, Tables
from spillway.streams.facts import needed_facts
from spillway.streams.faults import Faults
from spillway.streams.query import readable_schema
from spillway.workloads.inputs import WindowRows, load_inputs, plan_inputs, window_groups
from spillway.workloads.losses import window_losses, window_offers
from spillway.workloads.windows import (
    answer_schema,
    claim_windows,
    find_windows,
    pinned_windows,
    save_windows,
)

MOST_TOLD = 3
"""The most failed windows of a query that are reported one by one."""
MOST_TOO_LONG = 3
"""The most windows of a query that may time out in a run; this many are computed at the same time."""
_Work = TypeVar("_Work")


def refuse_window_without_query(decision: SqlDecision, window: Window, questions: Sequence[SqlQuery]) -> None:
    """Raise if the window failed on its rows before and has no query to run now; it must not be published as empty."""
    if window.failed is not None and window.failed_by == decision.query_fingerprint and not questions:
        raise _WindowSkipped(window.failed, "no capacity is left in its slice")


class _WindowSkipped(SpillwayError):
    """A window that failed before and is not computed now; `problem` is the sentence that it failed with."""

    def __init__(self, problem: str, why: str) -> None:
        super().__init__(
            f"{problem}; the window waits, because {why}: correct the query, then the window is computed"
        )
        self.problem = problem


class TimeoutLimit:
    """Decides which windows of a query are still computed in a run after some of them timed out.

    Each window may take `most_seconds`, and all other queries and joins wait for it. A query without end would block
    them once per window in every run. So a run waits for at most `MOST_TOO_LONG` windows, and for one of those that
    timed out in an earlier run.
    """

    def __init__(self, asks: str, windows: Sequence[Window]) -> None:
        slow = [
            window.window
            for window in windows
            if window.failed_by == asks and (window.failed or "").endswith(QueryTimeout.REMEDY)
        ]
        self._later = frozenset(slow[1:])
        self._late: list[int] = []

    def run(self, window: Window, work: Callable[[], _Work]) -> _Work:
        """Do the work for a window, or raise without starting it."""
        if window.window in self._later:
            raise _WindowSkipped(str(window.failed), "an earlier window of its query failed")
        if len(self._late) >= MOST_TOO_LONG:
            raise SpillwayError(
                f"not computed, because {len(self._late)} windows of its query took too long in this run; "
                "raise most_seconds, or read less data"
            )
        try:
            return work()
        except QueryTimeout:
            self._late.append(window.window)
            raise


def mark_failed(
    tables: Tables, windows: Sequence[Window], failed: Mapping[int, Exception], asks: str
) -> None:
    """Store what windows failed with, and the query, before others of their capacity group are published."""
    changed = []
    for window in windows:
        problem = failed.get(window.window)
        if problem is None:
            continue
        said = problem.problem if isinstance(problem, _WindowSkipped) else str(problem)
        if (window.failed, window.failed_by) != (said, asks):
            changed.append(window.with_changes(utc_now(), failed=said, failed_by=asks))
    if changed:
        save_windows(tables, changed)


def report_failed(
    faults: Faults, subject: str, windows: Sequence[Window], failed: Mapping[int, Exception]
) -> None:
    """Report failed windows: one sentence if all failed alike, else one for each of the first windows, and a count."""
    problems = [(window, failed[window.window]) for window in windows if window.window in failed]
    alike = {str(problem) for _, problem in problems}
    if len(alike) == 1 and len(problems) == len(windows):
        faults.record(subject, "work out", problems[0][1])
        return
    for window, problem in problems[:MOST_TOLD]:
        told = f"{subject}, window of {window.from_time:%Y-%m-%d %H:%M}: {problem}"
        faults.record(subject, "work out", SpillwayError(told))
    if len(problems) > MOST_TOLD:
        told = f"{subject}: {len(problems) - MOST_TOLD} more windows could not be computed"
        faults.record(subject, "work out", SpillwayError(told))


@dataclass(frozen=True)
class PortionTask:
    """The rows of one portion; sent to the task that reads them."""

    rows: WindowRows
    place: int
    schema: pa.Schema

    def __call__(self) -> pa.Table:
        found = self.rows([name for name in self.schema.names if name != PORTION])
        if PORTION in self.schema.names:
            found = found.append_column(PORTION, pa.repeat(pa.scalar(self.place, pa.int64()), found.num_rows))
        return found.cast(self.schema)


def window_results(
    engine: Engine,
    decision: SqlDecision,
    window: Window,
    inputs: Mapping[str, WindowRows],
    counts: dict[str, int],
    this_run: Callable[[], Mapping[int, Mapping[str, int]]],
) -> pa.Table | None:
    """Return the results of a window; None if it has none.

    `this_run`: returns what was counted for the windows before this one, after they are answered.
    """
    began = time.perf_counter()
    inexact = {name: rows.inexact for name, rows in inputs.items()}
    questions = decision.queries(window, inexact)
    refuse_window_without_query(decision, window, questions)
    label = f"{window.subject}, window of {window.from_time:%Y-%m-%d %H:%M}"
    answers = [_answer(engine, question, inputs, label) for question in questions]
    counts["microseconds"] = round((time.perf_counter() - began) * 1e6)
    return decision.build_results(window, answers, counts, inexact, this_run)


def _answer(engine: Engine, question: SqlQuery, inputs: Mapping[str, WindowRows], label: str) -> pa.Table:
    views = {name: _view(read, inputs[read.stream]) for name, read in question.reads.items()}
    return engine.ask(views, question.steps, question.most_rows, question.most_seconds, label)


def _view(read: SqlInput, rows: WindowRows) -> SqlView:
    columns = [pa.field(name, rows.field(name).type) for name in read.columns]
    schema = pa.schema([*columns, *([pa.field(PORTION, pa.int64())] if read.tagged else [])])
    cuts = [PortionTask(rows.only(portion), place, schema) for place, portion in enumerate(read.portions)]
    return SqlView(schema, cuts, rows.in_delta(read))


@dataclass(frozen=True)
class _AnswerRows:
    """Yields answers that are in memory."""

    rows: Mapping[int, pa.Table]

    def __call__(self, window: Window, counts: dict[str, int]) -> Iterator[pa.Table]:
        found = self.rows.get(window.window)
        if found is not None:
            yield found.append_column("window", pa.array([window.window] * found.num_rows, pa.int64()))


def draft_answers(
    engine: Engine,
    table: Table,
    decision: SqlDecision,
    windows: Sequence[Window],
    inputs: Mapping[int, Mapping[str, WindowRows]],
) -> tuple[Table, Draft, dict[int, SpillwayError]]:
    """Run the queries of windows; return the table with the columns of the answers, a draft, and the errors by window.

    The draft holds all windows that have an answer.
    """
    counts: dict[int, dict[str, int]] = {window.window: {} for window in windows}
    ended = [threading.Event() for _ in windows]
    good: dict[int, dict[str, int]] = {}
    patience = TimeoutLimit(decision.query_fingerprint, windows)

    def ask(place: int) -> pa.Table | SpillwayError | None:
        window = windows[place]

        def this_run() -> Mapping[int, Mapping[str, int]]:
            for before in ended[:place]:  # windows begin in their order, so a wait cannot be circular
                before.wait()
            return good

        mine = counts[window.window]
        try:
            found = patience.run(
                window,
                lambda: window_results(engine, decision, window, inputs[window.window], mine, this_run),
            )
            good[window.window] = mine
            return found
        except SpillwayError as problem:
            return problem  # caused by the rows of this window: other windows have other rows
        finally:
            ended[place].set()

    # most of the time of a small query is spent waiting for the engine
    tried = list(zip(windows, map_in_threads(ask, range(len(windows))), strict=True))
    failed = {window.window: made for window, made in tried if isinstance(made, SpillwayError)}
    answers = [(window, made) for window, made in tried if not isinstance(made, SpillwayError)]
    windows = [window for window, _ in answers]
    known = {name.lower(): name for name in (*table.types(), *table.contract.names)}
    found = {
        window.window: rows.rename_columns(
            [known.setdefault(name.lower(), name) for name in rows.column_names]
        )
        for window, rows in answers
        if rows is not None and rows.num_rows
    }
    added: dict[str, str] = {}
    for rows in found.values():
        added |= {
            one.name: spark_type(one.type) for one in rows.schema if one.name not in table.contract.names
        }
    table = table.with_attributes((), [(name, kind, "see its query") for name, kind in added.items()])
    pieces = [FileTask({"batch_date": str(window.day)}, window.window, window) for window in windows]
    draft = table.draft(ProcessEngine(), pieces, _AnswerRows(found))
    return table, Draft(draft.table, draft.parts, counts), failed


Inputs = Mapping[str, ReadColumns]


def select_workloads(contracts: Contracts, names: Sequence[str] | None = None) -> list[Workload]:
    """Return the joins and queries with these names (default: all)."""
    known = {**contracts.joins, **contracts.queries}
    for name in names or ():
        if name not in known:
            raise InvalidValue("workload", "have a contract", name, "see schemas/joins and schemas/queries")
    return list(known.values()) if names is None else [known[name] for name in dict.fromkeys(names)]


def results_tables(contracts: Contracts) -> dict[str, str]:
    """Return the table of results by join and query."""
    found: dict[str, str] = {}
    for one in select_workloads(contracts):
        if len(one.lever_names) == 1:
            worked: WindowLever = lever(one.lever_names[0])
            found[one.subject] = worked.results_table
    return found


def has_pending_window(tables: Tables, contracts: Contracts, contract: Workload) -> bool:
    """Return whether a join or query has a closed window that is not computed."""
    return find_windows(tables, contracts, contract).finds_work


def run_workloads(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    names: Sequence[str] | None = None,
    say: Say = lambda _: None,
) -> list[Window]:
    """Compute every closed window of the joins and queries (default: all); return the windows that are done."""
    tables, faults = tables.now(), Faults(say)
    chosen = {one.subject: one for one in select_workloads(contracts, names)}
    pinned = faults.run_each("pin", chosen, lambda name: pinned_windows(tables, contracts, chosen[name], say))
    waiting = {name: found for name, found in pinned.items() if found}
    rooms: dict[str, list[str]] = {}
    for name in waiting:
        rooms.setdefault(chosen[name].capacity_group or name, []).append(name)
    done: list[Window] = []
    for name, members in rooms.items():
        room = CapacityGroup(name, contracts, tables)
        mine = {member: chosen[member] for member in members}
        done += _run_group(_Run(tables, engine, room, say), faults, mine, waiting)
    if names is None:
        faults.record_broken_contracts(contracts)
    faults.raise_all()
    return done


@dataclass(frozen=True)
class _Run:
    """The tables, engine, capacity group and reporter of a run."""

    tables: Tables
    engine: Engine
    room: CapacityGroup
    say: Say


def _run_group(
    run: _Run, faults: Faults, contracts: Mapping[str, Workload], waiting: Mapping[str, Sequence[Window]]
) -> list[Window]:
    """Plan the windows of all members of a capacity group together, then compute and publish them."""
    done: list[Window] = []
    by_lever: dict[str, list[Workload]] = {}
    for contract in contracts.values():
        by_lever.setdefault(contract.lever_names[0], []).append(contract)
    for name, mine in by_lever.items():
        found: WindowLever = lever(name)
        if found.in_turn:
            for contract in mine:
                work = partial(_compute_in_order, run, contract, found, waiting[contract.subject])
                done += faults.attempt(contract.subject, "work out", work) or []
            continue
        look = partial(_checked_work, run, contracts, found, waiting)
        ready = faults.run_each("look at", [one.subject for one in mine], look)
        made = _compute_results(run, faults, contracts, found, ready)
        for subject, one in made.items():
            publish = partial(_publish, run, contracts[subject], found, one)
            done += faults.attempt(subject, "publish", publish) or []
    return done


def _compute_results(
    run: _Run,
    faults: Faults,
    contracts: Mapping[str, Workload],
    found: WindowLever,
    ready: Mapping[str, WindowWork],
) -> dict[str, _DraftResults]:
    """Return the results to publish by join or query; if some fail, plan the others again without them."""
    made: dict[str, _DraftResults] = {}
    while ready:
        room = replace(run.room, failed=faults.streams)
        plans = faults.attempt(run.room.name, "plan", partial(found.plan_windows, room, list(ready.values())))
        for (subject, work), plan in zip(ready.items(), plans or (), strict=False):
            before = made.pop(subject, None)
            if before is not None and before.plan.decision == plan.decision:
                made[subject] = before
                continue
            if before is not None:
                before.discard()
            answer = partial(_compute_in_parallel, run, contracts[subject], found, plan, work.windows)
            now = faults.attempt(subject, "work out", answer)
            if now is not None:
                made[subject] = now
        left = {
            subject: _without_failed(run.tables, faults, work, made.get(subject))
            for subject, work in ready.items()
        }
        if plans is None or left == ready:
            break
        ready = {subject: work for subject, work in left.items() if work.windows}
    return {subject: one for subject, one in made.items() if one.windows}


def _without_failed(
    tables: Tables, faults: Faults, work: WindowWork, made: _DraftResults | None
) -> WindowWork:
    """Return the work without the windows that failed; these are marked and reported."""
    failed = made.failed if made is not None else {}
    if made is None or not failed:
        return work if made is not None else replace(work, windows=())
    decision = made.plan.decision
    assert isinstance(decision, SqlDecision)
    marked = partial(mark_failed, tables, work.windows, failed, decision.query_fingerprint)
    faults.attempt(work.contract.subject, "mark", marked)
    report_failed(faults, work.contract.subject, work.windows, failed)
    return replace(work, windows=tuple(made.windows))


def _checked_work(
    run: _Run,
    contracts: Mapping[str, Workload],
    found: WindowLever,
    waiting: Mapping[str, Sequence[Window]],
    subject: str,
) -> WindowWork:
    """Return the work of a join or query after checking that it can be computed.

    If the check fails, its capacity goes to the others.
    """
    contract = contracts[subject]
    work = _work(run, contract, found, waiting[subject])
    schemas = {
        name: readable_schema(run.tables, run.room.contracts.stream(name))
        for name in dict.fromkeys(contract.inputs)
    }
    found.check_work(work, lambda question: answer_schema(run.engine, question, schemas))
    return work


def _work(
    run: _Run,
    contract: Workload,
    found: WindowLever,
    windows: Sequence[Window],
    before: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    inputs: Inputs | None = None,
    losses: Mapping[int, Mapping[str, InputLoss]] | None = None,
) -> WindowWork:
    made = window_work(run.tables, run.room.contracts, contract, found, windows, before, inputs)
    return made if losses is None else replace(made, losses=losses)


def window_work(
    tables: Tables,
    contracts: Contracts,
    contract: Workload,
    found: WindowLever,
    windows: Sequence[Window],
    before: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    inputs: Inputs | None = None,
) -> WindowWork:
    """Return what a lever needs to plan some windows of a join or a query."""
    name = found.name
    versions = {window.models[name] for window in windows if name in window.models}
    facts = needed_facts(tables, contract.subject, name, versions) if versions else {}
    made = WindowWork(contract, facts, tuple(windows), before=before or {}, inputs=inputs or {})
    if not found.portioned:
        return made
    offers = window_offers(tables, contracts, contract, windows, found.portion_tuples(contract))
    columns = {
        name: tuple(readable_schema(tables, contracts.stream(name)).names)
        for name in dict.fromkeys(contract.inputs)
    }
    return replace(made, portions=offers.portions, losses=offers.losses, columns=columns)


@dataclass(frozen=True)
class _DraftResults:
    """The results of some windows in drafts, with their ledger lines and records."""

    plan: WindowPlan
    table: Table
    windows: Sequence[Window]
    drafts: Sequence[Draft]
    lines: Sequence[LedgerRow]
    records: Sequence[Mapping[str, Sequence[Mapping[str, Any]]]]
    failed: Mapping[int, SpillwayError] = field(default_factory=dict)
    """The errors of windows that could not be computed."""

    def discard(self) -> None:
        """Delete the files of the drafts."""
        for draft in self.drafts:
            self.table.discard(draft)


@dataclass(frozen=True)
class _Results:
    """A task that computes the results of one window, or of a slice of it."""

    decision: WindowDecision

    def __call__(self, piece: tuple[Window, Any], counts: dict[str, int]) -> Iterator[pa.Table]:
        window, inputs = piece
        for found in self.decision.results(window, inputs, counts):
            yield found.append_column("window", pa.array([window.window] * found.num_rows, pa.int64()))


def _compute_in_parallel(
    run: _Run, contract: Workload, found: WindowLever, plan: WindowPlan, windows: Sequence[Window]
) -> _DraftResults:
    """Compute windows that do not depend on one another, all at the same time."""
    table = run.tables.at(found.results_table, contract.subject)
    back = found.look_back_seconds(contract)
    inputs: dict[int, dict[str, WindowRows]] = {}
    for some in window_groups(windows):
        inputs |= plan_inputs(run.tables, run.room, contract, some, back)
    failed: dict[int, SpillwayError] = {}
    if isinstance(plan.decision, SqlDecision):
        table, draft, failed = draft_answers(run.engine, table, plan.decision, windows, inputs)
        windows = [window for window in windows if window.window not in failed]
    else:
        draft = _draft_results(run.engine, table, plan.decision, windows, inputs)
    counts = {window.window: draft.counts.get(window.window, {}) for window in windows}
    lines = [
        line for one in windows for line in plan.account(one, draft.rows(one.window), counts[one.window])
    ]
    records = [plan.records(one, draft.rows(one.window), counts[one.window]) for one in windows]
    return _DraftResults(plan, table, windows, [draft], lines, records, failed)


def _compute_in_order(
    run: _Run, contract: Workload, found: WindowLever, windows: Sequence[Window]
) -> list[Window]:
    """Compute windows one after another; each is planned with the records of the window before it."""
    table = run.tables.at(found.results_table, contract.subject)
    back, columns = found.look_back_seconds(contract), found.columns(contract)
    done: list[Window] = []
    before: dict[str, list[Mapping[str, Any]]] = {}
    for stretch in window_groups(windows):
        planned = plan_inputs(run.tables, run.room, contract, stretch, back)
        held = load_inputs(contract, stretch, planned, columns, back, found.max_rows_in_memory(contract))
        for some, inputs in held:
            lost = window_losses(run.tables, run.room.contracts, contract, some, inputs, back)
            drafts: list[Draft] = []
            lines: list[LedgerRow] = []
            records: list[Mapping[str, Sequence[Mapping[str, Any]]]] = []
            for window in some:
                work = _work(run, contract, found, [window], before, inputs[window.window], lost)
                (plan,) = found.plan_windows(run.room, [work])
                draft = _draft_results(run.engine, table, plan.decision, [window], inputs)
                drafts.append(draft)
                counts = draft.counts.get(window.window, {})
                rows = draft.rows(window.window)
                lines += plan.account(window, rows, counts)
                told = plan.records(window, rows, counts)
                for name, own in told.items():
                    before.setdefault(name, []).extend(own)
                records.append(told)
            made = _DraftResults(plan, table, some, drafts, lines, records)
            done += _publish(run, contract, found, made, to_go=len(windows) - len(done) - len(some))
    return done


def _draft_results(
    engine: Engine,
    table: Table,
    decision: WindowDecision,
    windows: Sequence[Window],
    inputs: Mapping[int, Inputs],
) -> Draft:
    pieces = [
        FileTask({"batch_date": str(window.day)}, window.window, (window, part))
        for window in windows
        for part in decision.task_inputs(window, inputs[window.window])
    ]
    return table.draft(engine, pieces, _Results(decision))


def _publish(
    run: _Run, contract: Workload, found: WindowLever, made: _DraftResults, to_go: int = 0
) -> list[Window]:
    """Publish the claim, the results, the lever's rows, the ledger and the status `done`, in this order.

    Each replaces the earlier rows of the same windows. `to_go`: the number of windows that are left, for the message.
    """
    subject, numbers = contract.subject, [window.window for window in made.windows]
    written_too = [run.tables.at(name) for name in (*found.record_tables, "ledger")]
    days = sorted({window.day for window in made.windows})
    written = [one for draft in made.drafts for one in draft.written]
    try:
        claim_windows(run.tables, made.windows, [made.table, *written_too])
        made.table.publish(written, batch_date=days, window=numbers)
    except ConcurrentRun:
        made.discard()
        raise
    try:
        for name in found.record_tables:
            rows = [row for told in made.records for row in told.get(name, ())]
            run.tables.at(name).replace(rows, subject=subject, window=numbers)
        write_ledger(run.tables, subject, numbers, [found.name], made.lines)
        now = utc_now()
        done = [window.with_changes(now, status=DONE, failed=None, failed_by=None) for window in made.windows]
        save_windows(run.tables, done)
    except ConcurrentRun:
        # the other run has no result of these windows: if it had, its commit would have prevented ours
        with suppress(SpillwayError):
            made.table.delete(batch_date=days, window=numbers)
        raise
    said = f"{subject}: {format_count(len(done), 'window')} computed by {found.name}"
    if to_go:
        said += f", up to {max(one.to_time for one in done):%Y-%m-%d %H:%M:%S}; {to_go:,} to go"
    run.say(said)
    return done
