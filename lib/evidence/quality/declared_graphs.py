"""Random queries in SQL over three streams, in capacity groups that are too small, for `evidence.quality.sic`.

Three streams are filtered, grouped, joined, united and made distinct at random. The third stream numbers its tuples and
has lost some; some steps are read twice. The contribution of every source is counted by observing the reads of the
engine, not by the product's own figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from evidence.attributes.lake import Lake
from spillway.contracts import read_workload
from spillway.contracts.workload import Workload
from spillway.engine import ProcessEngine
from spillway.engine.statements import SqlView, Steps

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
    """The process engine, which also records the rows that were read of every view."""

    read: dict[str, int] = field(default_factory=dict)

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
        return super().ask(views, steps, most_rows, most_seconds, label)


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
