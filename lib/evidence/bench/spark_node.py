"""Run the node of Fiscato (5.2, 5.3) on Spark: every 250 ms it sheds its buffer by the lever's code, and queries it.

Each query has one source; sources send more than a node can process (`LOADS`: half of them twice as much as the
others). In every interval the node processes the admitted batches as one query to Spark; batches that arrive meanwhile
wait in its buffer. Cost is measured (`TupleCost`), overload is smoothed (`Overload`), and batches
are admitted by `admission.admit_by_policy` from the coverage of queries in the last ten seconds. These are the calls
with which a capacity group of the lake is planned. The clock is real: a node that is late finds more in its buffer. If
a Spark query always takes longer than an interval, nothing fits. The thesis's cost of a tuple (5.2) has no fixed part,
so the admitted load then falls to one batch. The same node also runs with an interval that is long enough for a query.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.engine.spark import SparkEngine
from spillway.engine.statements import SqlView
from spillway.levers.quality.admission import Batches, Entitlements, admit_by_policy, coverage_spread
from spillway.levers.quality.overload import Overload, TupleCost

BATCH_TUPLES = 2_000
OVERLOAD = 2.0
LOADS = np.array([1, 1, 1, 2, 2, 2, 1, 2])
"""By query, how many sources it has."""
NODE_SQL = "SELECT query, avg(v) AS mean, count_if(v >= 50) AS many, max(v) AS top FROM kept GROUP BY query"
SCHEMA = pa.schema([("query", pa.int64()), ("v", pa.float64())])


def _rows(queries: tuple[int, ...], seed: int) -> pa.Table:
    """Generate the tuples of some batches in the task that works on them."""
    chance = np.random.default_rng(seed)
    parts = [pa.array(np.full(BATCH_TUPLES, query)) for query in queries]
    return pa.table(
        [pa.concat_arrays(parts), pa.array(chance.normal(50, 15, BATCH_TUPLES * len(queries)))], schema=SCHEMA
    )


@dataclass
class _Node:
    """A node's buffer, and the recent results of its queries."""

    cost: TupleCost = field(default_factory=TupleCost)
    load: Overload = field(default_factory=Overload)
    reached: deque[tuple[float, np.ndarray]] = field(default_factory=deque)

    def level(self, since: float) -> np.ndarray:
        while self.reached and self.reached[0][0] < since:
            self.reached.popleft()
        return sum((one for _, one in self.reached), start=np.zeros(len(LOADS)))


def _query_seconds(engine: SparkEngine, queries: np.ndarray) -> float:
    """Return the seconds of one query to the batches of these queries."""
    began = time.perf_counter()
    cuts = [
        partial(_rows, tuple(some.tolist()), len(some)) for some in np.array_split(queries, 2) if len(some)
    ]
    engine.ask({"kept": SqlView(SCHEMA, cuts)}, (("node", NODE_SQL),), 1_000)
    return time.perf_counter() - began


def batches_that_fit(spark: Any, interval: float) -> int:
    """Return how many batches fit into the interval, from small and large queries; at least one per source."""
    engine, sources = SparkEngine(lambda: spark), np.repeat(np.arange(len(LOADS)), LOADS)
    few, many = len(sources), 40 * len(sources)
    took = {}
    for count in (few, many):
        queries = sources.take(np.arange(count), mode="wrap")
        took[count] = float(np.median([_query_seconds(engine, queries) for _ in range(5)][1:]))
    each = max(1e-6, (took[many] - took[few]) / (many - few))
    return max(few, round(few + (interval - took[few]) / each))


def run_node(
    spark: Any, policy: str, interval: float, intervals_a_window: int, windows: int, fit: int, seed: int = 1
) -> dict[str, float]:
    """Run some windows at `OVERLOAD` times the load that fits, the same for every policy."""
    window = interval * intervals_a_window
    seconds = window * windows
    engine, chance, node = SparkEngine(lambda: spark), np.random.default_rng(seed), _Node()
    sources = np.repeat(np.arange(len(LOADS)), LOADS)
    a_second = OVERLOAD * fit / interval
    # of all that comes in a window, each source alike
    carries = LOADS.sum() / (a_second * window * LOADS)
    begin = time.perf_counter()
    sent, waiting = 0.0, np.zeros(0, np.int64)
    levels: list[np.ndarray] = []
    offered = worked = late = intervals = 0
    decide: list[float] = []
    while (now := time.perf_counter()) - begin < seconds:
        due = int((now - begin) * a_second - sent)
        sent += due
        come = sources.take(np.arange(int(sent) - due, int(sent)), mode="wrap")
        waiting = np.concatenate([waiting, come])
        offered += due
        keeps = node.cost.max_tuples(interval)
        node.load = node.load.after(len(waiting) * BATCH_TUPLES, keeps)
        admitted = np.ones(len(waiting), np.bool_)
        if node.load.on and len(waiting):
            size = np.full(len(waiting), float(BATCH_TUPLES))
            batches = Batches(waiting, carries[waiting], size, chance.permutation(len(waiting)))
            before = time.perf_counter()
            room = max(float(BATCH_TUPLES), float(keeps))
            admitted = admit_by_policy(
                policy, batches, Entitlements.equal(len(LOADS), node.level(now - window)), room
            )
            decide.append(time.perf_counter() - before)
        mine, waiting = waiting[admitted], np.zeros(0, np.int64)
        if len(mine):
            took = _query_seconds(engine, mine)
            node.cost = node.cost.after(took, len(mine) * BATCH_TUPLES)
            late += took > interval
        node.reached.append((now, carries * np.bincount(mine, minlength=len(LOADS))))
        worked, intervals = worked + len(mine), intervals + 1
        if now - begin > window:
            levels.append(node.level(now - window))
        time.sleep(max(0.0, now + interval - time.perf_counter()))
    fared = coverage_spread(np.mean(levels, axis=0))
    found = {
        "sic_mean": fared.mean,
        "sic_std": fared.std,
        "jain": fared.jain,
        "worked_on_pct": 100 * worked / max(1, offered),
        "intervals": intervals,
        "intervals_overrun_pct": 100 * late / max(1, intervals),
        "decide_ms": 1e3 * float(np.median(decide)) if decide else 0.0,
        "tuples_a_second": worked * BATCH_TUPLES / seconds,
    }
    return {f"quality.node.{round(1e3 * interval)}_ms.{name}.{policy}": one for name, one in found.items()}
