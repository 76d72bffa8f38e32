"""Make a lake of many small streams, and time what a user waits for when none of them has new data.

One stream is taken in, trained, shed and validated by the product's own steps. The lake of the others is a copy: every
file of a shared table is written again under the name of the other stream, and its own tables are copied. So the tables
have as many files, rows and streams as if every stream had been processed, in seconds instead of minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from spillway.contracts import load_contracts
from spillway.engine import ProcessEngine
from spillway.pipeline.run import run_streams
from spillway.settings import Settings
from spillway.store.file_writer import WrittenFile, write_file
from spillway.store.files import DataFile, groups_of
from spillway.store.tables import Table, Tables

TEMPLATE = "s0000"
DAYS = ("2026-01-01", "2026-01-02")
ROWS = 200
"""The number of tuples of each delivery."""


def lay_streams(folder: Path, streams: int, channels: int, days: tuple[str, ...] = DAYS) -> Settings:
    """Make a lake of `streams` small streams on some channels, in which nothing is left to do."""
    names = [f"s{number:04d}" for number in range(streams)]
    schemas, landing = folder / "schemas", folder / "landing"
    (schemas / "streams").mkdir(parents=True)
    capacities = {f"c{number:02d}": {"capacity": "0.5 kbps"} for number in range(channels)}
    (schemas / "channels.yaml").write_text(yaml.safe_dump({"channels": capacities}))
    _write_contract(schemas, TEMPLATE, "c00")
    chance = np.random.default_rng(3)
    for place, day in enumerate(days):
        path = landing / TEMPLATE / day / "p.jsonl"
        path.parent.mkdir(parents=True)
        rows = _tuples(day, place * ROWS, ROWS, chance)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = settings_of(folder)
    tables = Tables(settings)
    run_streams(tables, ProcessEngine(), load_contracts(schemas), [TEMPLATE], "first")
    for number, name in enumerate(names[1:], 1):
        _write_contract(schemas, name, f"c{number % channels:02d}")
        shutil.copytree(landing / TEMPLATE, landing / name)
        for table, contract in tables.contracts.items():
            own = Path(tables.path(table, TEMPLATE)) if contract.scope == "stream" else None
            if own is not None and own.is_dir():
                shutil.copytree(own, tables.path(table, name))
    for table, contract in tables.contracts.items():
        if contract.scope == "shared" and {"stream", "subject"} & set(contract.partitioned_by):
            _copy_rows(tables.now().at(table), names[1:])
    return settings


def settings_of(folder: Path) -> Settings:
    """Return the roots of such a lake."""
    return Settings.from_environment(roots_of(folder))


def roots_of(folder: Path) -> dict[str, str]:
    """Return the environment of commands that run on such a lake."""
    names = ("lake", "landing", "schemas", "build")
    return {"SPILLWAY_HOME": str(folder)} | {f"SPILLWAY_{name.upper()}": str(folder / name) for name in names}


def many_streams(streams: int = 300, channels: int = 20, rounds: int = 3) -> dict[str, float]:
    """Return the seconds of `run` with nothing to do, of `status`, and of the look for channels with work."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lay_streams(folder, streams, channels)
        _command(folder, "run")  # the first run after a copy writes the report of all streams
        figures = {
            f"engine.idle_run_{streams}_streams_seconds": ("run",),
            f"engine.status_{streams}_streams_seconds": ("status",),
        }
        found = {
            name: min(_command(folder, *words) for _ in range(rounds)) for name, words in figures.items()
        }
        looks = [_seconds(folder, [sys.executable, "-c", _LOOK]) for _ in range(rounds)]
    return found | {f"engine.look_for_work_{streams}_streams_seconds": min(looks)}


_LOOK = """
from spillway.pipeline.pending import pending_channels
from spillway.settings import Settings

found = pending_channels(Settings.from_environment())
assert not found, found
"""


def _command(folder: Path, *words: str) -> float:
    return _seconds(folder, [sys.executable, "-m", "spillway.cli", *words])


def _seconds(folder: Path, command: list[str]) -> float:
    """Run a command on the lake to its end, and return the seconds it took."""
    began = time.perf_counter()
    done = subprocess.run(
        command, env={**os.environ, **roots_of(folder)}, capture_output=True, text=True, check=False
    )
    took = time.perf_counter() - began
    if done.returncode:
        raise AssertionError(f"{' '.join(command)} must succeed, got {done.stdout}{done.stderr}")
    return took


def _write_contract(schemas: Path, stream: str, channel: str) -> None:
    measures = [{"name": name, "type": "double", "role": "measure", "error_pct": 2.0} for name in "abc"]
    contract = {
        "stream": stream,
        "description": "A few units, each with three measures.",
        "source": {"kind": "files", "path": stream, "format": "json", "settle_seconds": 0},
        "attributes": [
            {"name": "unit", "type": "string", "role": "key", "nullable": False},
            {"name": "at", "type": "timestamp", "role": "order", "nullable": False},
            *measures,
        ],
        "channel": channel,
        "rate": {"from": "declared", "tuples_per_second": 4},
        "levers": [{"lever": "attributes", "training": {"tuples": ROWS}}],
    }
    (schemas / "streams" / f"{stream}.yaml").write_text(yaml.safe_dump(contract, sort_keys=False))


def _tuples(day: str, first: int, count: int, chance: np.random.Generator) -> Iterator[dict[str, Any]]:
    for i in range(first, first + count):
        turn = i // 4
        a = 20 + 5 * np.sin(turn / 9) + chance.normal(0, 0.1)
        yield {
            "unit": f"u{i % 4}",
            "at": f"{day}T{turn // 60 % 24:02d}:{turn % 60:02d}:00Z",
            "a": round(a, 2),
            "b": round(2 * a + chance.normal(0, 0.2), 2),
            "c": round(chance.normal(50, 3), 2),
        }


def _copy_rows(table: Table, names: list[str]) -> None:
    """Write the template's files of a shared table once more for each of these streams, in one commit."""
    by = "stream" if "stream" in table.contract.partitioned_by else "subject"
    mine = [file for file in table.files() if file.value(by) == TEMPLATE]
    written = [_copied(table, file, by, name) for name in names for file in mine]
    if written:
        table.publish(written, **{by: "nobody"})


def _copied(table: Table, file: DataFile, by: str, name: str) -> WrittenFile:
    partition = {column: str(value) for column, value in file.partition} | {by: name}
    schema = table.file_schema
    parts = [_renamed(part, name) for part in groups_of(file, schema.names)]
    one = write_file(table.path, partition, schema, parts, as_they_come=True)
    assert one is not None, "a file of a table has rows"
    return one


def _renamed(rows: pa.Table, name: str) -> pa.Table:
    """Return rows in which the names of landing files are those of another stream."""
    if "files" not in rows.column_names:
        return rows
    kind = rows.schema.field("files").type
    files = [
        [{**file, "name": file["name"].replace(TEMPLATE, name, 1)} for file in batch]
        for batch in rows["files"].to_pylist()
    ]
    return rows.set_column(rows.schema.get_field_index("files"), "files", pa.array(files, kind))


if __name__ == "__main__":
    asked = [int(word) for word in sys.argv[1:]] or [300, 20]
    for figure, value in many_streams(*asked).items():
        print(f"{figure} = {value:.4g}")
