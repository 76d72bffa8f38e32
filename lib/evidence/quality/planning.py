"""Time the planning of a capacity group: 1,000 queries with 100,000 slices, from loaded tables to the decision.

`plan_room` is timed as a run calls it: the rules of the contracts, the history from the rows of `coverage`, the columns
of the portions, costs, the fair choice, and the portions of each window. A contestant in the same rounds sorts 100,000
keys, so that the ratio tells a slow machine from a slow plan.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from evidence.timing import best_seconds
from spillway.contracts import read_workload
from spillway.levers.quality.room_plan import WindowShare, plan_room
from spillway.levers.windows import PLANNED, Portion, Window, WindowWork

QUERIES, PORTIONS_EACH, PAST_WINDOWS = 1_000, 100, 12
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_HOUR = timedelta(hours=1)


def plan_figures(rounds: int = 7) -> dict[str, float]:
    """Return the processor milliseconds of a plan, and the ratio to sorting as many keys as there are slices."""
    room, work = crowded_group(QUERIES, PORTIONS_EACH)
    keys = np.random.default_rng(2).integers(0, 2**62, QUERIES * PORTIONS_EACH)
    contestants = {"plan": lambda: plan_room(room, work), "sort": lambda: np.sort(keys)}
    seconds = best_seconds(contestants, rounds, time.process_time)
    return {
        "quality.plan_room_ms": 1e3 * seconds["plan"],
        "quality.plan_room_over_sorting_100k_keys": seconds["plan"] / seconds["sort"],
    }


def crowded_group(queries: int, portions_each: int, seed: int = 1) -> tuple[Any, list[WindowWork]]:
    """Return a capacity group with a past, and a window of each query; the capacity holds half of the seconds."""
    chance = np.random.default_rng(seed)
    contract = read_workload(
        {
            "name": "q",
            "inputs": ["s"],
            "window": {"seconds": 3600},
            "capacity_group": "r",
            "levers": [
                {
                    "lever": "quality",
                    "sql": "SELECT count(*) AS n FROM s",
                    "capacity": {"seconds": queries * portions_each * 55 * 1e-6 / 2 + queries * 0.002},
                }
            ],
        }
    )
    contracts = {f"q{at}": replace(contract, name=f"q{at}") for at in range(queries)}
    begin = _FIRST + PAST_WINDOWS * _HOUR
    work = []
    for name, one in contracts.items():
        sizes = chance.integers(10, 100, portions_each).tolist()
        seqs = np.cumsum([0, *sizes]).tolist()
        portions = tuple(
            Portion("s", 1, seq, seq + size - 1, size, 8 * size, float(size))
            for seq, size in zip(seqs, sizes, strict=False)
        )
        window = Window("query", name, 99, PLANNED, begin, begin + _HOUR, (("s", 1),), begin, begin)
        work.append(WindowWork(one, {}, (window,), portions={99: portions}))
    coverage = _past(list(contracts), chance)
    table = SimpleNamespace(rows=lambda columns, capacity_group: coverage.select(columns))
    room = SimpleNamespace(
        name="r",
        contracts=SimpleNamespace(queries=contracts),
        tables=SimpleNamespace(at=lambda _: table),
        failed=frozenset(),
    )
    return room, work


def _past(names: list[str], chance: np.random.Generator) -> pa.Table:
    """Return rows of `coverage` of earlier windows: answers took 2 ms and 1 microsecond per tuple."""
    count = len(names) * PAST_WINDOWS
    kept = chance.integers(500, 5_500, count)
    seconds = 0.002 + 1e-6 * kept * chance.uniform(0.9, 1.2, count)
    begins = np.tile(np.arange(PAST_WINDOWS), len(names))
    first = np.datetime64(_FIRST.replace(tzinfo=None), "us")
    return pa.table(
        {
            "subject": np.repeat(names, PAST_WINDOWS),
            "window": begins,
            "from_time": pa.array(first + begins * np.timedelta64(1, "h"), pa.timestamp("us", "UTC")),
            "sic": kept / 5_500,
            "tuples_kept": kept,
            "cost": seconds,
            "cost_offered": 0.002 + 1e-6 * np.full(count, 5_500),
            "seconds": seconds,
            "arrived_first": np.full(count, 5_500),
        }
    )


def shares_of(queries: int, portions_each: int) -> dict[tuple[str, int], WindowShare]:
    """Return the plan of a small group, to test the timed code."""
    room, work = crowded_group(queries, portions_each)
    return plan_room(room, work)
