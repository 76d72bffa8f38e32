"""A lake with two streams of tagged alarms, and a join of them. Not a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from tests.levers.joins.streams import Row, full_join
from tests.pipeline.streams import World, attribute, json_lines

from spillway.contracts import load_contracts
from spillway.engine import Engine
from spillway.workloads.run import run_workloads

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
STREAM: dict[str, Any] = {
    "stream": "east",
    "description": "Alarms with what they are about.",
    "source": {"path": "east", "format": "json"},
    "attributes": [
        attribute("site", "string", "key", nullable=False),
        attribute("at", "timestamp", "order", nullable=False),
        attribute("tags", "string"),
        attribute("level", "double", error_pct=5.0),
        attribute("urgency", "string"),
    ],
    "channel": "narrow",
    "rate": {"from": "declared", "tuples_per_second": 10},
    "levers": [],
}
JOIN: dict[str, Any] = {
    "name": "alike",
    "inputs": ["east", "west"],
    "window": {"seconds": 10},
    "levers": [
        {
            "lever": "joins",
            "left": {"attribute": "tags", "lasts_seconds": 20},
            "right": {"attribute": "tags", "lasts_seconds": 15},
            "predicate": "overlap",
            "threshold": 2,
            "sets": {"separator": " "},
            "basic_window_seconds": 2,
        }
    ],
}
URGENCIES = ("high", "low", None)


def alarms(
    first: int, count: int, seed: int = 0, begin: float = 0.0, rate: float = 5.0
) -> list[dict[str, Any]]:
    """Alarms of a few tags each, so many a second."""
    chance = np.random.default_rng([seed, first])
    rows = []
    for i in range(first, first + count):
        tags = sorted({f"t{chance.integers(0, 9)}" for _ in range(chance.integers(0, 5))})
        at = BEGIN + timedelta(seconds=begin + round(i / rate, 1))
        rows.append(
            {
                "site": f"s{i % 3}",
                "at": at.isoformat(),
                "tags": " ".join(tags) or None,
                "level": 100.0 + chance.integers(0, 4),
                "urgency": URGENCIES[int(chance.integers(0, 3))],
            }
        )
    return rows


def begun(
    folder: Path, engine: Engine, join: Mapping[str, Any] = JOIN, stream: Mapping[str, Any] = STREAM
) -> World:
    """Two streams of 50 seconds, shed; nothing is joined yet."""
    world = World.begin(
        engine,
        folder,
        {**stream},
        {**stream, "stream": "west", "source": {"path": "west", "format": "json"}},
        capacity="9 Mbps",
    )
    contract_becomes(world, join)
    for seed, name in enumerate(("east", "west")):
        world.deliver(f"{name}/2026-01-01/a.json", json_lines(alarms(0, 250, seed)))
    world.shed()
    return world


def contract_becomes(world: World, join: Mapping[str, Any], **settings: Any) -> None:
    """The join's contract, with other settings of its lever."""
    folder = world.folder / "schemas" / "joins"
    folder.mkdir(exist_ok=True)
    lever = {**join["levers"][0], **settings}
    path = folder / f"{join['name']}.yaml"
    path.write_text(yaml.safe_dump({**join, "levers": [lever]}))
    world.contracts = load_contracts(world.folder / "schemas")


def run(world: World) -> int:
    return len(run_workloads(world.tables, world.engine, world.contracts, None, world.said.append))


def as_rows(delivered: Iterable[Mapping[str, Any]], attribute: str = "tags") -> list[Row]:
    """Delivered alarms as the oracle has them."""
    found = []
    for row in delivered:
        at = (datetime.fromisoformat(row["at"]) - BEGIN).total_seconds()
        words = str(row[attribute] or "").split()
        found.append(Row(at, {int(word[1:]): 1.0 for word in words}))
    return found


def truth(
    left: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]], end: float, threshold: float = 2
) -> set[tuple[int, int]]:
    return full_join(as_rows(left), as_rows(right), 20, 15, "overlap", threshold, end=end)


def found_pairs(world: World, name: str = "alike") -> list[tuple[int, int]]:
    """Pairs as the table has them, by the ordinal in their file (the first seq of a stream is 0)."""
    rows = world.rows("joined", name)
    return sorted((row["left_seq"], row["right_seq"]) for row in rows)
