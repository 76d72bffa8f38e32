"""Check that declared queries conserve coverage: random graphs of SQL, run by the product's own steps.

Three streams are filtered, grouped, joined, united and made distinct at random, in capacity groups that are too small.
The third stream numbers its tuples and has lost some; some steps are read twice. The contribution of every source is
counted by observing the reads of the engine, not by the product's own figures. Propagated through the steps
(`operator_graph`, eq. 3.3, with the rows of each step), it must equal the sum over the rows of the answer. If an answer
has no rows, `coverage` must state it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evidence.attributes.lake import Lake
from spillway.contracts import read_channel, read_stream, read_workload
from spillway.contracts.workload import Workload
from spillway.engine import ProcessEngine
from spillway.engine.statements import SqlView, Steps
from spillway.levers.quality.coverage import OperatorNode, SourceNode, propagate
from spillway.levers.quality.sql_text import names_in
from spillway.pipeline.run import run_channel
from spillway.workloads.what_if import GroupReplay
from spillway.workloads.windows import pinned_windows

THREE = ("first", "second", "third")
MOST_TUPLES, WINDOWS, WINDOW_SECONDS, PORTION = 60, 3, 60.0, 7
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class StreamLake:
    """A lake with the three streams, and the number of produced tuples by stream and window."""

    lake: Lake
    produced: Mapping[tuple[str, int], int]


@dataclass(frozen=True)
class WatchingEngine(ProcessEngine):
    """The process engine, which also records the rows that were read of every view, and the result of each step."""

    read: dict[str, int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)

    def ask(
        self,
        views: Mapping[str, SqlView],
        steps: Steps,
        most_rows: int,
        most_seconds: float | None = None,
        label: str = "",
    ) -> pa.Table:
        held = {name: [cut() for cut in view.cuts] for name, view in views.items()}
        if set(views) <= set(THREE):  # else it asks for the sources' numbers
            self.read.update({name: sum(one.num_rows for one in rows) for name, rows in held.items()})
            plain = {
                name: SqlView(views[name].schema, [_read_function(one) for one in held[name]])
                for name in views
            }
            for at, (name, _) in enumerate(steps):
                self.steps[name] = super().ask(plain, steps[: at + 1], 10**7).num_rows
        return super().ask(views, steps, most_rows, most_seconds, label)


def _read_function(rows: pa.Table) -> Callable[[], pa.Table]:
    return lambda: rows


def random_rows(chance: np.random.Generator, name: str, window: int, count: int) -> list[dict[str, Any]]:
    """Return the `count` rows of a stream in a window; the third stream lost some between its first and last row."""
    keep = np.ones(count, np.bool_)
    if name == "third" and count > 2:
        keep[1:-1] = chance.random(count - 2) > 0.2
    return [
        {"node": f"n{chance.integers(4)}", "at": BEGIN + timedelta(seconds=WINDOW_SECONDS * (window + at / count)),
         "number": 1000 * window + at, "k": int(chance.integers(5)), "v": float(chance.integers(100))}
        for at in np.flatnonzero(keep).tolist()
    ]  # fmt: skip


def landed_three(seed: int) -> StreamLake:
    """Return a lake with the three streams, sent whole; the last row of each closes the windows before it."""
    chance = np.random.default_rng(seed)
    produced: dict[tuple[str, int], int] = {}
    streams, files = {}, {}
    for name in THREE:
        streams[name] = read_stream(declared_stream(name))
        rows: list[dict[str, Any]] = []
        for window in range(WINDOWS + 1):
            count = int(chance.integers(2, MOST_TUPLES)) if window < WINDOWS else 1
            produced[name, window] = count
            rows += random_rows(chance, name, window, count)
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), sink)
        files[name] = {f"{BEGIN.date()}/a.parquet": sink.getvalue()}
    lake = Lake.land(f"graphs-{seed}", streams, files, {"wide": read_channel("wide", {"capacity": "1 Gbps"})})
    run_channel(lake.tables, ProcessEngine(), lake.contracts, "wide", "graphs")
    return StreamLake(lake, produced)


def declared_stream(name: str) -> dict[str, Any]:
    """Return the contract of one of the three streams, with no lever."""
    return {
        "stream": name,
        "channel": "wide",
        "source": {"path": name, "format": "parquet", "settle_seconds": 0},
        "rate": {"from": "declared", "tuples_per_second": 10},
        "levers": [],
        "attributes": [
            {"name": "node", "type": "string", "role": "key", "nullable": False},
            {"name": "at", "type": "timestamp", "role": "order", "nullable": False},
            {"name": "number", "type": "integer", "role": "protected"},
            {"name": "k", "type": "integer", "role": "protected"},
            {"name": "v", "type": "double", "role": "measure"},
        ],
    }


def declared_graph(chance: np.random.Generator) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """Return inputs and steps: every input is read, and every step but the last by a later one; some are read twice."""
    inputs = tuple(str(one) for one in chance.choice(THREE, int(chance.integers(1, 4)), replace=False))
    waiting, there = list(inputs), list(inputs)
    steps: list[dict[str, str]] = []
    wanted = int(chance.integers(1, 7))
    while len(waiting) > 1 or len(steps) < wanted:
        one = waiting.pop(int(chance.integers(len(waiting))))
        kind = str(chance.choice(["filter", "group", "distinct", "join", "unite"]))
        if kind in ("join", "unite") or len(steps) >= wanted:
            again = not waiting or chance.random() < 0.2
            other = str(chance.choice(there)) if again else waiting.pop(int(chance.integers(len(waiting))))
            sql = _of_two(chance, one, other)
        else:
            sql = _of_one(chance, kind, one)
        steps.append({"name": f"step{len(steps)}", "sql": sql})
        waiting.append(steps[-1]["name"])
        there.append(steps[-1]["name"])
    return inputs, steps


def _of_one(chance: np.random.Generator, kind: str, one: str) -> str:
    if kind == "filter":
        return f"SELECT node, k, v FROM {one} WHERE v >= {int(chance.choice([0, 50, 90, 1000]))}"
    if kind == "group":
        return f"SELECT node, max(k) AS k, avg(v) AS v FROM {one} GROUP BY node"
    return f"SELECT DISTINCT node, k, v FROM {one}"


def _of_two(chance: np.random.Generator, one: str, other: str) -> str:
    if chance.random() < 0.4:
        return f"SELECT node, k, v FROM {one} UNION ALL SELECT node, k, v FROM {other}"
    how = str(chance.choice(["JOIN", "LEFT JOIN"]))
    return f"SELECT x.node AS node, x.k AS k, min(y.v) AS v FROM {one} x {how} {other} y ON x.node = y.node " \
           "AND x.k = y.k GROUP BY x.node, x.k"  # fmt: skip


def asked_graph(
    chance: np.random.Generator, inputs: Sequence[str], steps: Sequence[Mapping[str, str]]
) -> Workload:
    """Return the query, in a capacity group that holds all of it or less."""
    capacity = {} if chance.random() < 0.25 else {"capacity": {"tuples": int(chance.integers(1, 120))}}
    numbered = [{"input": "third", "attribute": "number"}] if "third" in inputs else []
    lever = {
        "lever": "quality",
        "steps": list(steps),
        "portion_tuples": PORTION,
        "numbered": numbered,
        **capacity,
    }
    window = {"seconds": WINDOW_SECONDS}
    return read_workload({"name": "graph", "inputs": list(inputs), "window": window, "levers": [lever]})


def conservation_errors(made: StreamLake, chance: np.random.Generator) -> list[float]:
    """Return by window how much the coverage of rows, or of steps, differs from what the sources contributed."""
    inputs, steps = declared_graph(chance)
    query = asked_graph(chance, inputs, steps)
    contracts = replace(made.lake.contracts, queries={"graph": query})
    windows = pinned_windows(made.lake.tables, contracts, query)[:WINDOWS]
    errors = []
    for window in windows:
        watching = WatchingEngine()
        replay = GroupReplay(made.lake.tables, watching, contracts, "graph", {"graph": [window]})
        ((rows, told),) = replay.answers({"graph": query})["graph"].values()
        at = round((window.from_time - BEGIN).total_seconds() / WINDOW_SECONDS)
        put_in = [
            SourceNode(name, name, n := made.produced[name, at], n - watching.read.get(name, 0))
            for name in inputs
        ]
        left = sum(1 - one.lost / one.tuples for one in put_in) / len(put_in)
        carried = told["sic"] if rows is None or not rows.num_rows else sum(rows["sic"].to_pylist())
        errors += [abs(carried - left), abs(told["sic"] - left)]
        if rows is not None and rows.num_rows:
            shares = rows["sic"].to_pylist()
            errors.append(max(shares) - min(shares))
        if watching.steps:
            errors.append(
                abs(float(propagate(put_in, _operators(inputs, steps, watching.steps)).at_results) - left)
            )
    return errors


def _operators(
    inputs: Sequence[str], steps: Sequence[Mapping[str, str]], rows: Mapping[str, int]
) -> list[OperatorNode]:
    """Return the steps as operators; a result that several read is split among them, one edge for each."""
    names = [*inputs, *(step["name"] for step in steps)]
    readers = {name: [s["name"] for s in steps if name in names_in(s["sql"])] for name in names}
    found = []
    for name in inputs:
        found.append(OperatorNode(f"out of {name}", (name,), {f"{name}>{one}": 1 for one in readers[name]}))
    for step in steps:
        name = step["name"]
        read = tuple(f"{one}>{name}" for one in names if name in readers[one])
        ends = [f"{name}>{one}" for one in readers[name]] or [f"{name}>answer"]
        # rows are handed to every reader whole, so that each gets an equal part of what they carry
        found.append(OperatorNode(name, read, dict.fromkeys(ends, rows[name])))
    return found
