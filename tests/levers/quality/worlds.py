"""Small streams and queries over them, in this process. Not a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.pipeline.streams import SITES, World, json_lines, made_once, sites

from spillway.contracts import load_contracts
from spillway.engine import Engine, ProcessEngine
from spillway.workloads.run import run_workloads

PLAIN: dict[str, Any] = {**SITES, "levers": []}
OTHERS: dict[str, Any] = {**PLAIN, "stream": "others", "source": {"path": "others", "format": "json"}}
FILES = 8
ROWS = 60
"""A file holds ten minutes of the stream; a window of 600 s is one file, of 2400 s four of them."""


def query(name: str, sql: str, **more: Any) -> dict[str, Any]:
    """A contract; what is no field of it is a setting of the lever."""
    own = {"inputs": ["sites"], "window": {"seconds": 2400}, "capacity_group": "desk"}
    settings = {key: value for key, value in more.items() if key not in (*own, "alerts")}
    contract = {key: value for key, value in more.items() if key in (*own, "alerts")}
    said = {"sql": sql} if sql else {}
    return {"name": name, **own, **contract, "levers": [{"lever": "quality", **said, **settings}]}


MEAN = "SELECT avg(temp) AS mean_temp FROM sites"
COUNT = "SELECT count(*) AS warm FROM sites WHERE temp >= 50"


def put_queries(world: World, *queries: Mapping[str, Any]) -> None:
    """These queries and no others."""
    folder = world.folder / "schemas" / "queries"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.yaml"):
        old.unlink()
    for one in queries:
        (folder / f"{one['name']}.yaml").write_text(yaml.safe_dump(dict(one)))
    world.contracts = load_contracts(world.folder / "schemas")


def begun(
    folder: Path,
    *queries: Mapping[str, Any],
    engine: Engine | None = None,
    stream: Mapping[str, Any] = PLAIN,
    both: bool = False,
    files: int = FILES,
) -> World:
    """Each file of the stream is a batch of its own; the last one closes the windows before it."""
    streams = [stream, OTHERS] if both else [stream]

    def make(there: Path) -> World:
        world = World.begin(engine or ProcessEngine(), there, *streams, capacity="9000 kbps")
        for root in (world.settings.landing, world.settings.lake):  # also where nothing is delivered
            Path(root).mkdir(exist_ok=True)
        for number in range(files + 1):
            for one in streams:
                rows = json_lines(sites(number * ROWS, ROWS))
                world.deliver(f"{one['stream']}/2020-01-{number + 1:02d}/a.json", rows)
        world.shed()
        return world

    world = make(folder) if engine else made_once(folder, make, streams, files)
    put_queries(world, *queries)
    return world


def run(world: World, *names: str) -> int:
    """How many windows were worked out."""
    return len(
        run_workloads(world.tables, world.engine, world.contracts, list(names) or None, world.said.append)
    )


def coverage(world: World) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of `coverage` by query and window, from the first window on."""
    rows = world.rows("coverage")
    first = min(row["window"] for row in rows)
    return {(row["subject"], row["window"] - first): row for row in rows}
