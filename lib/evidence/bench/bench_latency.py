"""How long a settled file takes until its rows are in `transmitted` and `recovered`, while files keep coming.

`spillway run --every 1s` runs in a process of its own. Files of 5,000 rows land every 5 seconds, which is 1,000 rows a
second. A file that has landed is settled (`settle_seconds: 0`); with another value, that time is added. The latency of
a file ends with the commit that first has all of its rows. The first files are not counted: the process trains and
loads kernels.
"""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from evidence.bench.bench_attributes import telemetry, telemetry_stream
from evidence.bench.bench_commands import DAY, CommandLake
from evidence.bench.paired_difference import family_seconds
from spillway.settings import Settings
from spillway.store.batches import load_batches
from spillway.store.tables import Tables

STREAM = "telemetry"
ROWS_A_SECOND = 1_000
SECONDS_A_FILE = 5.0
FIRST_ROWS = 20_000
"""The rows of the first file, from which the stream is trained."""
WARM_FILES = 3
MOST_SECONDS = 600.0


def latency_figures(files: int = 30, engine: str = "process") -> dict[str, float]:
    """Return the median and the 95th percentile of the latency, and the processor seconds of a file.

    The latency depends on what else the machine does; the processor seconds hardly do.
    """
    with tempfile.TemporaryDirectory() as folder:
        world = _World(folder)
        with world.running(engine):
            first = world.land(0, FIRST_ROWS)
            world.wait_for([first])
            landed, begin = [], time.monotonic()
            rows = int(ROWS_A_SECOND * SECONDS_A_FILE)
            spent = math.nan
            for number in range(files + WARM_FILES):
                time.sleep(max(0.0, begin + number * SECONDS_A_FILE - time.monotonic()))
                if number == WARM_FILES:
                    spent = _processor_seconds_of_children()
                landed.append(world.land(FIRST_ROWS + number * rows, rows))
            world.wait_for(landed)
            spent = _processor_seconds_of_children() - spent
        took = {table: world.latencies(table, landed[WARM_FILES:]) for table in ("transmitted", "recovered")}
    p95 = {table: statistics.quantiles(times, n=20, method="inclusive")[-1] for table, times in took.items()}
    return {
        "engine.latency_p50_s": statistics.median(took["recovered"]),
        "engine.latency_p95_s": p95["recovered"],
        "engine.latency_transmitted_p50_s": statistics.median(took["transmitted"]),
        "engine.latency_transmitted_p95_s": p95["transmitted"],
        "engine.latency_processor_s_a_file": spent / files,
    }


def _processor_seconds_of_children() -> float:
    return family_seconds() - time.process_time()


class _World:
    """A lake with one stream, into whose landing folder files are moved whole."""

    def __init__(self, folder: str) -> None:
        self.lake = CommandLake(folder)
        stream = telemetry_stream(2, 2.0)
        stream["source"] = {"kind": "files", "format": "parquet", "settle_seconds": 0}
        self.lake.contract(f"streams/{STREAM}.yaml", stream)
        self.lake.contract("channels.yaml", {"channels": {"line": {"capacity": "100 kbps"}}})
        self.settings = Settings.from_environment(self.lake.roots | {"SPILLWAY_HOME": folder})
        self.landed_at: dict[str, float] = {}

    def land(self, first: int, rows: int) -> str:
        """Move a file into the landing folder; return its name."""
        table = pa.concat_tables(telemetry((first, first + rows, 0.01), {})).drop_columns(["seq", "batch"])
        folder = self.lake.landing / STREAM / str(DAY)
        folder.mkdir(parents=True, exist_ok=True)
        hidden, name = folder / f".{first:09d}", f"{first:09d}.parquet"
        pq.write_table(table, hidden)
        hidden.replace(folder / name)
        self.landed_at[name] = time.time()
        return name

    def running(self, engine: str) -> _Run:
        """Return the process of `spillway run --every 1s`; the end of its `with` block ends it by SIGTERM."""
        command = [sys.executable, "-m", "spillway.cli", "run", "--every", "1s", "--engine", engine]
        return _Run(command, {**os.environ, **self.lake.roots}, self.lake.folder / "output.txt")

    def _batches(self) -> dict[str, int]:
        """Return the batch of each landed file, by name."""
        held = load_batches(Tables(self.settings), STREAM)
        return {Path(file.name).name: batch.batch for batch in held for file in batch.files}

    def _commits(self, table: str) -> Iterator[tuple[float, int]]:
        """Yield the time of a commit and a batch whose rows it added, in the order of the commits."""
        log = Path(Tables(self.settings).path(table, STREAM), "_delta_log")
        for path in sorted(log.glob("*.json")):
            for line in path.read_text(encoding="utf-8").splitlines():
                if (added := json.loads(line).get("add")) is not None:
                    stats = json.loads(added["stats"])
                    low, high = (int(stats[edge]["batch"]) for edge in ("minValues", "maxValues"))
                    yield from ((path.stat().st_mtime, batch) for batch in range(low, high + 1))

    def _committed(self, table: str) -> dict[int, float]:
        """Return the time at which each batch was first in a table."""
        found: dict[int, float] = {}
        for at, batch in self._commits(table):
            found.setdefault(batch, at)
        return found

    def wait_for(self, names: list[str]) -> None:
        """Wait until the rows of these files are recovered."""
        until = time.monotonic() + MOST_SECONDS
        while time.monotonic() < until:
            batches, there = self._batches(), self._committed("recovered")
            if all(batches.get(name) in there for name in names):
                return
            time.sleep(1.0)
        raise AssertionError(f"the files must be recovered within {MOST_SECONDS:g} s")

    def latencies(self, table: str, names: list[str]) -> list[float]:
        """Return the seconds from the landing of each file to the commit with its rows."""
        batches, there = self._batches(), self._committed(table)
        return [there[batches[name]] - self.landed_at[name] for name in names]


class _Run:
    """A process whose output is kept, and which ends by SIGTERM at the end of a `with` block."""

    def __init__(self, command: list[str], env: dict[str, str], output: Path) -> None:
        self._output = output
        with output.open("wb") as sink:
            self._process = subprocess.Popen(command, env=env, stdout=sink, stderr=subprocess.STDOUT)

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *problem: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait()
        said = self._output.read_text(encoding="utf-8")
        if code or problem[0] is not None:
            raise AssertionError(f"the run must end cleanly, got exit code {code}: {said[-4000:]}")
