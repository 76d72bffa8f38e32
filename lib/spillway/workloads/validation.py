"""Select the windows of joins and queries to validate, and read the tables that expectation suites need for them.

A window is validated together with the streams that it reads, if it was computed since its join or query was last
validated. Windows of the last minutes before that are validated again, because the clocks of two machines may differ. A
failed window is validated again for a day, so that a retried task stays red. After a day it is not, because some
failures cannot be fixed, such as an answer from too little data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from spillway.checks import ExaminedRows
from spillway.checks.views import types_of
from spillway.clock import utc_now
from spillway.contracts import Contracts
from spillway.contracts.workload import Workload
from spillway.levers.protocol import CapacityGroup
from spillway.levers.windows import DONE, ReadColumns, Window, WindowLever
from spillway.registry import lever
from spillway.store.tables import Between, Table, Tables
from spillway.workloads.inputs import load_inputs, plan_inputs, window_groups

CLOCKS_APART = timedelta(minutes=10)
FAILED_FOR = timedelta(days=1)


def unvalidated_windows(
    tables: Tables, contracts: Contracts, streams: Collection[str]
) -> dict[str, list[Window]]:
    """Return, by join and query that reads one of these streams, the windows that changed since the last validation."""
    reading = {
        name: one
        for name, one in {**contracts.joins, **contracts.queries}.items()
        if set(one.inputs) & set(streams)
    }
    if not reading:
        return {}
    judged = _last_validated(tables, list(reading), utc_now())
    found: dict[str, list[Window]] = {}
    for name in reading:
        since = judged.get(name)
        where: dict[str, Any] = {} if since is None else {"updated_at": Between(since - CLOCKS_APART)}
        rows = tables.at("windows").rows(subject=name, **where).to_pylist()
        windows = sorted(map(Window.from_row, rows), key=lambda one: one.window)
        if any(since is None or one.updated_at > since for one in windows):
            found[name] = windows
    return found


def _last_validated(tables: Tables, names: Sequence[str], now: datetime) -> dict[str, datetime]:
    """Return, by join and query, when it last passed validation, or failed longer than `FAILED_FOR` ago."""
    rows = tables.at("validations").rows(["run_id", "stream", "success", "validated_at"], stream=names)
    runs = rows.group_by(["stream", "run_id", "validated_at"]).aggregate([("success", "all")])
    found: dict[str, datetime] = {}
    for run in runs.to_pylist():
        name, at = run["stream"], run["validated_at"]
        if run["success_all"] or at < now - FAILED_FOR:
            found[name] = max(at, found.get(name, at))
    return found


def suite_tables(
    tables: Tables, contracts: Contracts, subject: str, windows: Sequence[Window]
) -> dict[str, Any]:
    """Return the tables that suites may read for these windows of a join or query.

    These are its rows of the shared tables, including the ledger, and its results as its lever examined them.
    """
    contract = {**contracts.joins, **contracts.queries}[subject]
    of: WindowLever = lever(contract.lever_names[0])
    done = [one for one in windows if one.status == DONE]
    numbers = [one.window for one in done]
    asked: dict[str, dict[str, Any]] = {
        "windows": {"window": [one.window for one in windows]},
        "ledger": {"batch": numbers},
    }
    asked |= {name: {"window": numbers} for name in of.record_tables}
    found: dict[str, Any] = {
        name: tables.at(name).rows(subject=subject, **where) for name, where in asked.items()
    }
    if of.examined is not None and done:
        table = tables.at(of.results_table, subject)
        types = types_of(table.schema if table.exists else table.contract.arrow_schema)
        rows = list(_examined(tables, contracts, contract, of, table, done))
        found[f"{of.results_table}/{subject}"] = ExaminedRows(
            types, pa.Table.from_pylist(rows, _examined_schema(of))
        )
    return found


def _examined_schema(of: WindowLever) -> pa.Schema:
    assert of.examined is not None
    place = [("stream", pa.string()), ("window", pa.int64()), ("batch_date", pa.date32())]
    return pa.schema([*place, *of.examined])


def _examined(
    tables: Tables,
    contracts: Contracts,
    contract: Workload,
    of: WindowLever,
    table: Table,
    windows: Sequence[Window],
) -> Iterator[dict[str, Any]]:
    room = CapacityGroup(contract.capacity_group or contract.subject, contracts, tables)
    stand = _unchanged_inputs(tables, windows)
    for window, inputs in _with_inputs(tables, room, contract, of, windows):
        mine: dict[str, Any] = {"batch_date": window.day, "window": window.window}
        rows = table.rows(**mine) if table.exists else table.contract.arrow_schema.empty_table()
        said = of.examine(contract, room, window, rows, inputs if stand[window.window] else None)
        yield {"stream": contract.subject, "window": window.window, "batch_date": window.day, **said}


def _with_inputs(
    tables: Tables, room: CapacityGroup, contract: Workload, of: WindowLever, windows: Sequence[Window]
) -> Iterator[tuple[Window, Mapping[str, ReadColumns] | None]]:
    if not of.in_turn:
        yield from ((window, None) for window in windows)
        return
    back, columns = of.look_back_seconds(contract), of.columns(contract)
    for stretch in window_groups(windows):
        planned = plan_inputs(tables, room, contract, stretch, back)
        for some, held in load_inputs(
            contract, stretch, planned, columns, back, of.max_rows_in_memory(contract)
        ):
            yield from ((window, held[window.window]) for window in some)


def _unchanged_inputs(tables: Tables, windows: Sequence[Window]) -> dict[int, bool]:
    """Return, by window, whether its inputs are unchanged since it was computed: none of its batches was shed again."""
    pairs = {pair for window in windows for pair in window.inputs}
    where = {"stream": sorted({s for s, _ in pairs}), "batch": sorted({b for _, b in pairs})}
    rows = tables.at("batches").rows(["stream", "batch", "updated_at"], **where).to_pylist()
    changed = {(row["stream"], row["batch"]): row["updated_at"] for row in rows}
    return {
        window.window: all(pair in changed and changed[pair] <= window.updated_at for pair in window.inputs)
        for window in windows
    }
