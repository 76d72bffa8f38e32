"""What a job of Spark costs as DataFrames and as RDDs, training of many streams on each engine, and when Spark pays.

The RDD rival is the engine's earlier code: closures with all items, four slices a core. Both run in turns in one
session, and the figure is the ratio of medians. `--engine auto` of the command line uses Spark from the number of
values at which both engines take the same time; it is measured with two sizes of one run.
"""

from __future__ import annotations

import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from evidence.bench.bench_attributes import telemetry, telemetry_stream
from evidence.bench.bench_commands import DAY, CommandLake
from evidence.bench.paired_difference import family_seconds
from spillway.contracts import load_contracts
from spillway.engine import Engine, ProcessEngine
from spillway.engine.spark import SparkEngine, spark_engine
from spillway.intake.ingest import ingest
from spillway.settings import Settings
from spillway.store.tables import Tables
from spillway.streams.train import train_streams

COUNTS = (1, 50, 500)
ROUNDS = 5
RDD_SLICES_A_CORE = 4
TUPLES = 400


def engine_bench(streams: int = 60, rows: Sequence[int] = (100_000, 1_000_000)) -> dict[str, float]:
    """Return the figures of the engine."""
    with spark_engine("bench engine") as engine:
        figures = frame_over_rdd(engine) | training(engine, streams)
    return figures | auto_threshold(*rows)


def _small(item: int) -> int:
    return item + 1


def frame_over_rdd(engine: SparkEngine, rounds: int = ROUNDS) -> dict[str, float]:
    """Return the time of small jobs as DataFrames over that as RDDs, by number of slices of work."""
    figures = {}
    for count in COUNTS:
        items = range(count)
        ways: dict[str, Callable[[], list[int]]] = {
            "frame": lambda items=items: engine.map(_small, items),  # type: ignore[misc]
            "rdd": lambda items=items: _by_rdd(engine, _small, items),  # type: ignore[misc]
        }
        took = in_turns(ways, rounds)
        figures[f"engine.frame_over_rdd_{count}"] = took["frame"] / took["rdd"]
        figures[f"engine.frame_ms_{count}"] = took["frame"] * 1e3
    return figures


def in_turns(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each way; they run in turns, after a round that does not count."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name in ways if turn % 2 else reversed(ways):
            began = time.perf_counter()
            ways[name]()
            if turn:
                spent[name].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in spent.items()}


def _by_rdd(engine: SparkEngine, function: Callable[[int], int], items: Sequence[int]) -> list[int]:
    pieces = tuple(items)

    def work(indices: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        for index in indices:
            yield index, pickle.dumps(function(pieces[index]), protocol=pickle.HIGHEST_PROTOCOL)

    context = engine.spark.sparkContext
    slices = max(1, min(len(pieces), RDD_SLICES_A_CORE * context.defaultParallelism))
    made = dict(context.parallelize(range(len(pieces)), slices).mapPartitions(work).collect())
    return [pickle.loads(made[index]) for index in range(len(pieces))]


class ManyStreams:
    """Small streams on channels of 15 streams each, taken in by `take_in_all`, to be trained."""

    def __init__(self, folder: str, streams: int) -> None:
        self.lake = CommandLake(folder)
        channels = max(1, streams // 15)
        self.lake.contract(
            "channels.yaml", {"channels": {f"c{one}": {"capacity": "4 kbps"} for one in range(channels)}}
        )
        chance = np.random.default_rng(3)
        for number in range(streams):
            name = f"s{number:04d}"
            self.lake.contract(f"streams/{name}.yaml", _small_stream(name, f"c{number % channels}"))
            self.lake.land(name, _small_rows(chance))
        self.settings = Settings.from_environment(self.lake.roots | {"SPILLWAY_HOME": folder})
        self.contracts = load_contracts(self.settings.schemas)

    def take_in_all(self) -> None:
        """Take in every stream, in this process."""
        for contract in self.contracts.streams.values():
            ingest(Tables(self.settings), ProcessEngine(), contract, "bench")

    def train(self, engine: Engine) -> tuple[float, float]:
        """Train every stream for the first time; return seconds of the clock and of all processors."""
        Tables(self.settings).at("models").delete(stream=list(self.contracts.streams))
        began, processor = time.perf_counter(), family_seconds()
        train_streams(Tables(self.settings), engine, self.contracts, list(self.contracts.streams), "bench")
        return time.perf_counter() - began, family_seconds() - processor


def training(engine: SparkEngine, streams: int) -> dict[str, float]:
    """Return the seconds of training a stream on each engine, and the ratio on this machine's cores."""
    with tempfile.TemporaryDirectory() as folder:
        world = ManyStreams(folder, streams)
        world.take_in_all()
        world.train(engine)  # loads the kernels in every process
        here, there = [], []
        for _ in range(3):
            here.append(world.train(ProcessEngine()))
            there.append(world.train(engine))
    own, spark = (
        [statistics.median(one[place] for one in found) for place in range(2)] for found in (here, there)
    )
    return {
        "engine.train_process_seconds_a_stream": own[0] / streams,
        "engine.train_process_processor_seconds_a_stream": own[1] / streams,
        "engine.train_spark_over_process": spark[0] / own[0],
        "engine.train_spark_over_process_processor": spark[1] / own[1],
    }


def auto_threshold(few: int, many: int) -> dict[str, float]:
    """Return the values from which a run on Spark takes less time than in one process; infinity if it never does."""
    attributes, took = 0, {}
    for rows in (few, many):
        with tempfile.TemporaryDirectory() as folder:
            lake = CommandLake(folder)
            stream = telemetry_stream(2, 2.0)
            stream["source"] = {"kind": "files", "format": "parquet", "settle_seconds": 0}
            attributes = len(stream["attributes"])
            lake.contract("streams/telemetry.yaml", stream)
            lake.contract("channels.yaml", {"channels": {"line": {"capacity": "100 kbps"}}})
            table = pa.concat_tables(telemetry((0, rows, 0.01), {})).drop_columns(["seq", "batch"])
            lake.land("telemetry", table)
            for engine in ("process", "spark"):
                lake.empty()
                took[engine, rows] = lake.seconds("run", "--engine", engine)
    more = (many - few) * attributes
    slope = {engine: (took[engine, many] - took[engine, few]) / more for engine in ("process", "spark")}
    ahead, gain = took["spark", few] - took["process", few], slope["process"] - slope["spark"]
    return {
        "engine.process_million_values_a_second": 1e-6 / slope["process"],
        "engine.spark_million_values_a_second": 1e-6 / slope["spark"],
        "engine.auto_values": few * attributes + ahead / gain if gain > 0 else float("inf"),
    }


def _small_stream(name: str, channel: str) -> dict[str, Any]:
    return {
        "stream": name,
        "channel": channel,
        "source": {"kind": "files", "format": "parquet", "settle_seconds": 0},
        "attributes": [
            {"name": "unit", "type": "string", "role": "key", "nullable": False},
            {"name": "at", "type": "timestamp", "role": "order", "nullable": False},
            *({"name": measure, "type": "double", "role": "measure"} for measure in "abc"),
        ],
        "rate": {"from": "declared", "tuples_per_second": 4},
        "levers": [{"lever": "attributes"}],
    }


def _small_rows(chance: np.random.Generator) -> pa.Table:
    turn = np.arange(TUPLES) // 4
    a = 20 + 5 * np.sin(turn / 9) + chance.normal(0, 0.1, TUPLES)
    begin = np.datetime64(DAY, "us")
    return pa.table(
        {
            "unit": [f"u{place % 4}" for place in range(TUPLES)],
            "at": pa.array(begin + turn.astype("timedelta64[m]"), pa.timestamp("us", "UTC")),
            "a": np.round(a, 2),
            "b": np.round(a * 2 + chance.normal(0, 0.2, TUPLES), 2),
            "c": np.round(chance.normal(50, 3, TUPLES), 2),
        }
    )
