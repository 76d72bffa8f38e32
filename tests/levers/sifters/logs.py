"""A stream of log lines made by formula, with queries that want some of them. Not a test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.pipeline.streams import World, attribute, json_lines

from spillway.contracts import StreamContract, read_stream
from spillway.engine import Engine
from spillway.levers.sifters.learn import LearnedRegions, learn_regions

LEVELS = ["DEBUG", "INFO", "WARN", "ERROR", "FATAL"]
QUERIES = [
    {"name": "slow at web-1", "where": "latency > 400 and host = 'web-1'", "weight": 3.0},
    {"name": "warnings", "where": "severity = 'WARN'", "weight": 2.0},
    {"name": "middling", "where": "latency between 100 and 300 and host in ('web-0', 'web-2')"},
]
SIFTERS: dict[str, Any] = {
    "lever": "sifters",
    "queries": QUERIES,
    "keep": ["severity >= 'ERROR'"],
    "dimensions": [
        {"attribute": "severity", "values": LEVELS},
        {"attribute": "latency"},
        {"attribute": "host"},
    ],
    "regions": 32,
    "sample": {"rows": 800, "marked_pct": 2.0},
}
LOGS: dict[str, Any] = {
    "stream": "logs",
    "description": "Log lines of four hosts.",
    "source": {"kind": "files", "path": "logs", "format": "json"},
    "attributes": [
        attribute("host", "string", "key", nullable=False),
        attribute("at", "timestamp", "order", nullable=False),
        attribute("severity", "string"),
        attribute("latency", "double", error_pct=2.0),
        attribute("size", "integer", error_pct=5.0),
    ],
    "channel": "narrow",
    "rate": {"from": "declared", "tuples_per_second": 100},
    "frame": {"tuples": 500},
    "levers": [SIFTERS],
}


def logs(first: int, count: int, slower: float = 1.0) -> list[dict[str, Any]]:
    """The tuples `first..first + count - 1`, each a function of its ordinal alone."""
    rows = []
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    for i in range(first, first + count):
        rng = np.random.default_rng(i)
        level = int(rng.choice(5, p=[0.3, 0.5, 0.15, 0.04, 0.01]))
        latency = round(float(rng.gamma(2.0, 80.0)) * slower, 2)
        rows.append(
            {
                "host": f"web-{i % 4}",
                "at": (begin + timedelta(seconds=i / 10)).isoformat(),
                "severity": None if i % 89 == 88 else LEVELS[level],
                "latency": None if i % 97 == 96 else latency,
                "size": int(rng.integers(200, 4000)),
            }
        )
    return rows


def logged(
    engine: Engine,
    folder: Path,
    lever: dict[str, Any] | None = None,
    capacity: str = "3 kbps",
    **changes: Any,
) -> World:
    """Taken in, trained and shed in two batches, recovered and validated."""
    levers = [SIFTERS if lever is None else lever]
    world = World.begin(engine, folder, {**LOGS, "levers": levers, **changes}, capacity=capacity)
    world.deliver("logs/2020-01-01/a.json", json_lines(logs(0, 2500)))
    world.shed()
    world.train("logs")
    world.shed()
    world.deliver("logs/2020-01-01/b.json", json_lines(logs(2500, 1200)))
    world.shed()
    world.validate()
    return world


EDGES = [-np.inf, -1.0, -0.0, 0.0, 100.0, 300.0, 400.0, 1e300, np.inf, np.nan]


def contract_of(**lever: Any) -> StreamContract:
    return read_stream({**LOGS, "levers": [{**SIFTERS, **lever}]})


def learned(contract: StreamContract, rows: pa.Table, throttle: float = 0.5) -> LearnedRegions:
    return learn_regions(contract, contract.lever_settings("sifters"), rows, throttle)


def rows_like(seed: int, count: int) -> pa.Table:
    """Rows at and beside the ends of queries, with nulls, NaN and words that nobody named among them."""
    rng = np.random.default_rng(seed)
    latency = np.where(rng.random(count) < 0.5, rng.choice(EDGES, count), rng.gamma(2.0, 150.0, count))
    latency = np.where(
        rng.random(count) < 0.3, np.nextafter(latency, rng.choice([-np.inf, np.inf], count)), latency
    )
    return pa.table(
        {
            "seq": np.arange(count),
            "host": rng.choice(["web-0", "web-1", "web-2", "web-3", "db"], count),
            "severity": pa.array(rng.choice([*LEVELS, "NOTICE"], count), mask=rng.random(count) < 0.1),
            "latency": pa.array(latency, mask=rng.random(count) < 0.1),
            "size": pa.array(rng.integers(-5, 5, count), mask=rng.random(count) < 0.1),
        }
    )
