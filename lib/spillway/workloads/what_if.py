"""Replay computed windows of a capacity group of queries under other rules, without storing anything.

The load is the one that was offered: the pinned windows with the batches that they read. The steps of a normal run plan
and compute it three times: with the contracts as they are, with the changed contracts, and with capacity for
everything. The answers of the last are the truth that the others are compared with. The coverage before the first
window comes from the tables. No result, coverage or window is written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import pyarrow as pa

from spillway.contracts import Contracts, read_workload, to_plain
from spillway.contracts.fields import suggest
from spillway.contracts.workload import Workload
from spillway.engine.protocol import Engine
from spillway.errors import UsageError
from spillway.levers.protocol import CapacityGroup
from spillway.levers.windows import DONE, SqlDecision, Window, WindowLever
from spillway.registry import lever
from spillway.store.tables import Tables
from spillway.workloads.inputs import plan_inputs, window_groups
from spillway.workloads.run import window_results, window_work
from spillway.workloads.windows import StoredWindows, missing_batches, refuse_other_length

_OURS = frozenset({"row", "sic", "coverage", "window_start", "window_end", "result_step"})
_BOUNDS = ("__low", "__high", "__estimate", "__no_interval")


@dataclass(frozen=True)
class RuleChanges:
    """Rules to try; None keeps the present one."""

    capacity: float | None = None
    policy: str | None = None
    weights: Mapping[str, float] | None = None


@dataclass(frozen=True)
class QueryOutcome:
    """The results of one query under some rules, over all of its windows."""

    coverage: float
    lowest: float
    error_pct: float
    """The mean error of a value relative to the answer from all rows; 100 % if it is missing, and at most 100 %."""
    tuples: int
    seconds: float


@dataclass(frozen=True)
class WhatIf:
    """The outcomes of every query of the group as it is and as it would be."""

    capacity_group: str
    first: date
    last: date
    windows: int
    offered: int
    as_is: Mapping[str, QueryOutcome]
    as_would_be: Mapping[str, QueryOutcome]
    left_out: int = 0
    """The number of computed windows that cannot be replayed, because some of their rows have been deleted."""


def what_if(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    room: str,
    changes: RuleChanges,
    dates: tuple[date, date] | None = None,
) -> WhatIf:
    """Replay the group's last day, or some dates, under other rules."""
    replay, members, left_out = _group_replay(tables, engine, contracts, room, dates)
    changed = _all_changed(members, changes)
    truth = replay.answers({name: _changed(one, None) for name, one in members.items()})
    outcomes = [
        {name: _outcome(rows[name], truth[name]) for name in members if replay.windows[name]}
        for rows in (replay.answers(members), replay.answers(changed))
    ]
    offered = sum(row["arrived"] for rows in truth.values() for _, row in rows.values())
    days = [window.day for windows in replay.windows.values() for window in windows]
    return WhatIf(room, min(days), max(days), len(days), offered, outcomes[0], outcomes[1], left_out)


def _group_replay(
    tables: Tables, engine: Engine, contracts: Contracts, room: str, dates: tuple[date, date] | None
) -> tuple[GroupReplay, dict[str, Workload], int]:
    """Return the windows of the group's last day, or of some dates, its queries, and how many cannot be replayed."""
    tables = tables.now()
    members = {n: one for n, one in sorted(contracts.queries.items()) if (one.capacity_group or n) == room}
    if not members:
        rooms = sorted({one.capacity_group or name for name, one in contracts.queries.items()})
        raise UsageError(
            f"`capacity_group` must be one that queries share, got {room!r}; {suggest(room, rooms)}"
        )
    known = {name: StoredWindows(tables, one) for name, one in members.items()}
    for name, one in members.items():
        refuse_other_length(known[name], one)
    done = {name: list(one.with_status(DONE).values()) for name, one in known.items()}
    days = [window.day for windows in done.values() for window in windows]
    if not days:
        raise UsageError(
            f"`capacity_group` must have computed windows, got none of {room}; run spillway_workloads first"
        )
    first, last = dates or (max(days), max(days))
    replayed = {
        name: sorted((w for w in windows if first <= w.day <= last), key=lambda w: w.window)
        for name, windows in done.items()
    }
    if not any(replayed.values()):
        raise UsageError(
            f"`dates` must have computed windows, got {first}..{last}; they reach from {min(days)} to "
            f"{max(days)}"
        )
    removed = missing_batches(
        tables, {one for windows in replayed.values() for w in windows for one in w.inputs}
    )
    whole = {name: [w for w in found if not removed & set(w.inputs)] for name, found in replayed.items()}
    left_out = sum(map(len, replayed.values())) - sum(map(len, whole.values()))
    if not any(whole.values()):
        raise UsageError(
            f"`dates` must hold windows whose rows are still there, got {first}..{last}: retention has removed rows of "
            f"all {left_out}; name later dates"
        )
    return GroupReplay(tables, engine, contracts, room, whole), members, left_out


def _all_changed(members: Mapping[str, Workload], changes: RuleChanges) -> dict[str, Workload]:
    """Return the contracts of a group with other rules; the unit and slices of the capacity are those of any member."""
    said = [to_plain(one)["levers"][0]["capacity"] for one in members.values()]
    capacity = next(filter(None, said), {"tuples": None})
    if changes.capacity is not None:
        unit = "seconds" if capacity.get("seconds") else "tuples"
        capacity = {**capacity, unit: changes.capacity}
    return {name: _changed(one, changes, capacity) for name, one in members.items()}


def _changed(
    contract: Workload, changes: RuleChanges | None, capacity: Mapping[str, Any] | None = None
) -> Workload:
    """Return the contract with other rules; without `changes`, its capacity is unlimited."""
    said = to_plain(contract)
    (entry,) = said["levers"]
    if changes is None:
        entry["capacity"] = None
        return read_workload(said)
    weights = changes.weights or {}
    if changes.capacity is not None:
        entry["capacity"] = dict(capacity or {})
    if changes.policy is not None:
        entry["policy"] = changes.policy
    if contract.name in weights:
        entry["weight"] = weights[contract.name]
    return read_workload(said, f"what if, {contract.name}")


AnsweredWindows = dict[int, tuple[pa.Table | None, Mapping[str, Any]]]
"""By window: the answer, and the row that the lever records about it."""


@dataclass(frozen=True)
class GroupReplay:
    """Windows that are computed again."""

    tables: Tables
    engine: Engine
    contracts: Contracts
    room: str
    windows: Mapping[str, Sequence[Window]]

    def answers(self, queries: Mapping[str, Workload]) -> dict[str, AnsweredWindows]:
        """Plan all queries together by these contracts, then compute the answers."""
        contracts = replace(self.contracts, queries={**self.contracts.queries, **queries})
        room = CapacityGroup(self.room, contracts, self.tables)
        mine = {name: queries[name] for name, windows in self.windows.items() if windows}
        found: WindowLever = lever(next(iter(mine.values())).lever_names[0])
        work = [
            window_work(self.tables, contracts, one, found, self.windows[name]) for name, one in mine.items()
        ]
        answers: dict[str, AnsweredWindows] = {}
        for name, plan in zip(mine, found.plan_windows(room, work), strict=True):
            assert isinstance(plan.decision, SqlDecision)
            answers[name] = {}
            this_run: dict[int, dict[str, int]] = {}
            for some in window_groups(self.windows[name]):
                inputs = plan_inputs(self.tables, room, mine[name], some, 0.0)
                for window in some:
                    counts: dict[str, int] = {}
                    rows = window_results(
                        self.engine, plan.decision, window, inputs[window.window], counts, this_run.copy
                    )
                    this_run[window.window] = counts
                    told = plan.records(window, 0 if rows is None else rows.num_rows, counts)
                    answers[name][window.window] = rows, next(row for own in told.values() for row in own)
        return answers


def _outcome(found: AnsweredWindows, truth: AnsweredWindows) -> QueryOutcome:
    rows = [row for _, row in found.values()]
    sic = [row["sic"] for row in rows]
    errors = [answer_error(found[number][0], truth[number][0]) for number in found]
    return QueryOutcome(
        sum(sic) / len(sic),
        min(sic),
        100 * sum(errors) / len(errors),
        sum(row["tuples_kept"] for row in rows),
        sum(row["seconds"] for row in rows),
    )


def answer_error(found: pa.Table | None, truth: pa.Table | None) -> float:
    """Return the mean relative error of an answer's values against the answer from all rows, each limited to 1.

    Rows are matched by their non-numeric columns, or by position if there are none. If the answers have estimates,
    these are compared: for a sifted stream they represent the dropped rows too, also in the answer from all rows.

    >>> truth = pa.table({"site": ["a", "b"], "n": [10, 20]})
    >>> answer_error(pa.table({"site": ["b"], "n": [15]}), truth)
    0.625
    """
    if truth is None or not truth.num_rows:
        return 0.0
    names = [n for n in truth.column_names if n not in _OURS and not n.endswith(_BOUNDS)]
    values = [n for n in names if pa.types.is_floating(truth[n].type) or pa.types.is_integer(truth[n].type)]
    keys = [name for name in names if name not in values]
    mine = _by_key(found, keys)
    off: list[float] = []
    for key, row in _by_key(truth, keys).items():
        other = mine.get(key)
        if not values:
            off.append(float(other is None))
        off += [1.0 if other is None else _relative(_best(other, name), _best(row, name)) for name in values]
    return sum(off) / len(off)


def _best(row: Mapping[str, Any], name: str) -> Any:
    """Return the estimate of a value if there is one, else the value."""
    estimate = row.get(f"{name}__estimate")
    return row.get(name) if estimate is None else estimate


def _by_key(rows: pa.Table | None, keys: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for at, row in enumerate(rows.to_pylist() if rows is not None else ()):
        key = tuple(row[name] for name in keys) if keys else (at,)
        while key in found:
            key = (*key, None)
        found[key] = row
    return found


def _relative(value: Any, truth: Any) -> float:
    if value is None or truth is None:
        return float(value is not truth)
    if value == truth or (math.isnan(value) and math.isnan(truth)):
        return 0.0
    off = abs(value - truth) / abs(truth) if truth else 1.0
    return min(1.0, off) if math.isfinite(off) else 1.0
