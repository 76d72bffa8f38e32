"""How long a user waits for whole commands, each in a new process, from contract and landed files to the result.

A run takes files in, trains, sheds, sketches, computes joins, validates, and writes the report. The start of Python and
all imports are included. The lower limit for a run is a copy of the same files by Spark into a Delta table. The lower
limit for a join is Spark's join of the same files, written as Parquet. Both are timed in a running session, which
favours them. The best round counts; every round of a run starts from an empty lake.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from evidence.bench.bench_attributes import telemetry, telemetry_stream
from evidence.joins.workload import PaperStreams, constant_rate
from spillway.settings import Settings
from spillway.store.tables import Tables

DAY = date(2026, 1, 1)
JOIN_RATE, JOIN_SECONDS, JOIN_LASTS = 100.0, 300.0, 20.0
SKETCHES = [
    {"kind": "count_min", "attributes": ["sensor"]},
    {"kind": "quantiles", "attributes": ["level"]},
    {"kind": "distinct", "attributes": ["sensor"]},
]


class CommandLake:
    """Contracts and landed files in a folder; commands run there as a user runs them."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.landing = self.folder / "landing"
        (self.folder / "schemas" / "streams").mkdir(parents=True)
        (self.folder / "schemas" / "joins").mkdir()

    def contract(self, place: str, content: Mapping[str, Any]) -> None:
        """Write a contract, e.g. at `streams/telemetry.yaml`."""
        path = self.folder / "schemas" / place
        path.write_text(yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")

    def land(self, stream: str, table: pa.Table, name: str = "rows") -> Path:
        """Write a landing file of the stream; return its path."""
        path = self.landing / stream / str(DAY) / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
        return path

    def empty(self) -> None:
        """Remove what runs left."""
        for name in ("lake", "build"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    @property
    def roots(self) -> dict[str, str]:
        """The environment of its commands."""
        places = {name: name for name in ("lake", "landing", "schemas", "build")} | {"destination": "lake"}
        return {f"SPILLWAY_{name.upper()}": str(self.folder / place) for name, place in places.items()}

    def seconds(self, *arguments: str) -> float:
        """Run a command of the CLI to its end and return the seconds it took."""
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "spillway.cli", *arguments],
            env={**os.environ, **self.roots},
            capture_output=True,
            text=True,
            check=False,
        )
        took = time.perf_counter() - began
        if done.returncode:
            raise AssertionError(
                f"spillway {' '.join(arguments)} must succeed, got {done.stdout}{done.stderr}"
            )
        return took


def command_figures(
    spark: Any, rows: int = 1_000_000, rounds: int = 3, join_rate: float = JOIN_RATE
) -> dict[str, float]:
    """Return seconds of whole commands, and their ratios to the floors."""
    return attribute_commands(spark, rows, rounds) | join_commands(spark, rounds, join_rate)


def attribute_commands(spark: Any, rows: int, rounds: int) -> dict[str, float]:
    """Time a run over one stream with sketches, a run that finds nothing new, and a question to a sketch."""
    with tempfile.TemporaryDirectory() as folder:
        lake = CommandLake(folder)
        stream = {**telemetry_stream(2, 2.0), "sketches": SKETCHES}
        stream["source"] = {"kind": "files", "format": "parquet", "settle_seconds": 0}
        stream["levers"] = [{"lever": "attributes"}]
        lake.contract("streams/telemetry.yaml", stream)
        lake.contract("channels.yaml", {"channels": {"line": {"capacity": "100 kbps"}}})
        table = pa.concat_tables(telemetry((0, rows, 0.01), {})).drop_columns(["seq", "batch"])
        path = lake.land("telemetry", table)
        run = best_of(rounds, lambda: lake.seconds("run"), lake.empty)
        idle = best_of(rounds, lambda: lake.seconds("run"))
        ask = best_of(rounds, lambda: lake.seconds("ask", "telemetry", "sensor", "frequency", "7"))
        copy = best_of(rounds, lambda: _copied(spark, path, f"{folder}/copy"))
    return {
        "attributes.run_seconds": run,
        "attributes.run_over_copy": run / copy,
        "attributes.run_thousand_tuples_per_second": rows / run / 1e3,
        "engine.idle_run_seconds": idle,
        "sketches.ask_seconds": ask,
    }


def join_commands(spark: Any, rounds: int, rate: float = JOIN_RATE) -> dict[str, float]:
    """Time a run that takes in two streams and computes their full join, and Spark's join of the same files."""
    sides = PaperStreams(items=5000, mean_items=1.0, rates=constant_rate(rate, JOIN_SECONDS)).both(0)
    names = ("west", "east")
    with tempfile.TemporaryDirectory() as folder:
        lake = CommandLake(folder)
        lake.contract("channels.yaml", {"channels": {"wide": {"capacity": "1 Gbps"}}})
        begin = np.datetime64(datetime(2026, 1, 1), "us")
        paths = []
        for name, one in zip(names, sides, strict=True):
            lake.contract(f"streams/{name}.yaml", _join_side(name))
            at = pa.array(begin + one.at.astype("timedelta64[us]"), pa.timestamp("us", "UTC"))
            values = pa.array(one.sets.items).cast(pa.int64())
            table = pa.table({"site": pa.array(["s"] * len(at)), "at": at, "k": values})
            paths.append(lake.land(name, table))
            # a window is computed when both inputs are past its end
            late = pa.array([datetime(2026, 1, 1, 2, tzinfo=UTC)], pa.timestamp("us", "UTC"))
            lake.land(
                name, pa.table({"site": ["s"], "at": late, "k": pa.array([-1], pa.int64())}), "rows_late"
            )
        side = {"attribute": "k", "lasts_seconds": JOIN_LASTS}
        join = {
            "name": "same_value",
            "inputs": list(names),
            "window": {"seconds": 60},
            "levers": [{"lever": "joins", "left": side, "right": side, "predicate": "equality"}],
        }
        lake.contract("joins/same_value.yaml", join)
        run = best_of(rounds, lambda: lake.seconds("run"), lake.empty)
        pairs = _joined_pairs(lake)
        theirs: dict[str, int] = {}
        spark_join = best_of(rounds, lambda: _spark_join(spark, paths, f"{folder}/spark", theirs))
    if pairs != theirs["pairs"]:
        raise AssertionError(f"both must find the same pairs, got {pairs} and Spark {theirs['pairs']}")
    return {
        "joins.run_seconds": run,
        "joins.run_over_spark_join": run / spark_join,
        "joins.run_pairs": float(pairs),
    }


def best_of(rounds: int, timed: Callable[[], float], ready: Callable[[], object] = lambda: None) -> float:
    """Return the least seconds of some rounds."""
    least = math.inf
    for _ in range(rounds):
        ready()
        least = min(least, timed())
    return least


def _copied(spark: Any, path: Path, target: str) -> float:
    began = time.perf_counter()
    spark.read.parquet(str(path)).write.format("delta").mode("overwrite").save(target)
    return time.perf_counter() - began


def _spark_join(spark: Any, paths: list[Path], target: str, found: dict[str, int]) -> float:
    began = time.perf_counter()
    for name, path in zip(("left_rows", "right_rows"), paths, strict=True):
        spark.read.parquet(str(path)).createOrReplaceTempView(name)
    query = (
        "SELECT l.at AS left_at, r.at AS right_at, l.k FROM left_rows l JOIN right_rows r ON l.k = r.k "
        f"AND l.at BETWEEN r.at - INTERVAL {JOIN_LASTS:g} SECONDS AND r.at + INTERVAL {JOIN_LASTS:g} SECONDS"
    )
    spark.sql(query).write.mode("overwrite").parquet(target)
    took = time.perf_counter() - began
    found["pairs"] = spark.read.parquet(target).count()
    return took


def _joined_pairs(lake: CommandLake) -> int:
    settings = Settings.from_environment({**os.environ, **lake.roots})
    return sum(file.records for file in Tables(settings).at("joined", "same_value").files())


def _join_side(name: str) -> dict[str, Any]:
    return {
        "stream": name,
        "channel": "wide",
        "source": {"kind": "files", "format": "parquet", "settle_seconds": 0},
        "attributes": [
            {"name": "site", "type": "string", "role": "key", "nullable": False},
            {"name": "at", "type": "timestamp", "role": "order", "nullable": False},
            {"name": "k", "type": "integer", "role": "protected"},
        ],
        "rate": {"from": "event_time"},
        "levers": [],
    }
