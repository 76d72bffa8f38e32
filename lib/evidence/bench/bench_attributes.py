"""Compare the attribute lever with a plain Spark copy of the same Delta table, on generated telemetry.

There are ten million tuples of nine attributes (a hundred sensors in turn; four measures that may be shed, a protected
one, key, order and two counters). The shed pass is complete: load, rank, scheme, synopsis, ledger, transmitted. The
plain copy reads `raw` and writes the same rows with Spark's defaults, in the same session, from Parquet to Parquet.
This is the time that a user would wait without this product. Contestants alternate; the best of three rounds counts,
after a warm-up round. At most a tenth of the windows is evaluated, as in batches of every size. Ratios of processor
seconds (`_cpu_over_copy`) count only this process and its descendants, so that they can be compared on a machine with
other load.

`python -m evidence.bench.bench_attributes ratios 2000000` measures only the ratios, at two million tuples.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from evidence.bench.paired_difference import CLOCKS
from spillway.batch import DONE, INGESTED, Batch
from spillway.contracts import Contracts, read_channel, read_stream
from spillway.engine.spark import SparkEngine, spark_engine
from spillway.pipeline.validate import validate
from spillway.settings import Settings
from spillway.store.batches import load_batches, save_batches
from spillway.store.tables import FileTask, Tables
from spillway.streams.drafts import own_table
from spillway.streams.query import StreamQuery
from spillway.streams.recover import look_up, recover_batches
from spillway.streams.shed import shed_channel
from spillway.streams.train import train_stream

DAY = date(2026, 1, 1)
SENSORS = 100
MEASURES = 4
ROUNDS = 3
ROWS_AT_A_TIME = 262_144
TRAINING_ROWS = 140_000  # nine columns of eight bytes: ten megabytes


def contracts(shed: int, capacity_kbps: float = 1.0, error_pct: float | None = None) -> Contracts:
    """Return a stream whose channel forces the plan to shed `shed` of its measures."""
    return Contracts(
        {"telemetry": read_stream(telemetry_stream(shed, error_pct))},
        {"line": read_channel("line", {"capacity": f"{capacity_kbps} kbps"})},
    )


def telemetry_stream(shed: int, error_pct: float | None = None) -> dict[str, Any]:
    """Return the stream's contract as YAML states it; all but `shed` of its measures always travel."""
    measures = ["level", "flow", "pressure", "heat"]
    attributes = [
        {"name": "sensor", "type": "integer", "role": "key"},
        {"name": "at", "type": "integer", "role": "order"},
        *(
            {"name": name, "type": "double", "role": "measure" if name in measures[:shed] else "protected"}
            for name in measures
        ),
        {"name": "volts", "type": "double", "role": "protected"},
        {"name": "count", "type": "integer", "role": "protected"},
        {"name": "status", "type": "integer", "role": "protected"},
    ]
    return {
        "stream": "telemetry",
        "channel": "line",
        "source": {"format": "parquet"},
        "attributes": attributes,
        "rate": {"from": "declared", "tuples_per_second": 1000},
        "levers": [
            {
                "lever": "attributes",
                "plan": "prefix",
                "treatments": ["keep", "shed"],
                "training": {"tuples": TRAINING_ROWS},
                "error_pct": error_pct,
            }
        ],
    }


def telemetry(stretch: tuple[int, int, float], counts: dict[str, int]) -> Iterator[pa.Table]:
    """Yield tuples of sensors in turn: a daily curve of each sensor with noise; each slice has its own seed."""
    first, last, noise = stretch
    random = np.random.default_rng(first)
    for low in range(first, last, ROWS_AT_A_TIME):
        seq = np.arange(low, min(last, low + ROWS_AT_A_TIME))
        turn, sensor = seq // SENSORS, seq % SENSORS
        wave = np.sin(turn / 90.0 + sensor)
        hum = [random.standard_normal(len(seq)) for _ in range(5)]
        yield pa.table(
            {
                "seq": seq,
                "batch": np.ones(len(seq), np.int64),
                "sensor": sensor,
                "at": turn,
                "level": np.round(50 + 20 * wave + noise * 50 * hum[0], 2),
                "flow": np.round(300 + 100 * np.cos(turn / 400.0 + sensor) + noise * 300 * hum[1], 1),
                "pressure": np.round(1013 + 8 * wave + noise * 10 * hum[2], 1),
                "heat": np.round(20 + 5 * wave + noise * 20 * hum[3], 2),
                "volts": np.round(3.3 + 0.05 * hum[4], 3),
                "count": turn * 7 + sensor,
                "status": (random.random(len(seq)) < 0.01).astype(np.int64),
            }
        )


def make_raw(tables: Tables, engine: SparkEngine, rows: int, noise: float = 0.01) -> Batch:
    """Write the tuples as one batch that was taken in."""
    raw = own_table(tables, contracts(4).streams["telemetry"], "raw")
    parts = max(2, rows // 2_500_000)
    edges = [rows * i // parts for i in range(parts + 1)]
    pieces = [FileTask({"batch_date": str(DAY)}, 1, (low, high, noise)) for low, high in pairwise(edges)]
    raw.publish(raw.draft(engine, pieces, telemetry).written, batch_date=DAY, batch=1)
    now = datetime.now(UTC)
    batch = Batch(
        "telemetry",
        1,
        DAY,
        INGESTED,
        (),
        0,
        rows - 1,
        "bench",
        now,
        now,
        rows,
        0,
        0,
        seconds_covered=rows / 1000.0,
    )
    save_batches(tables, [batch])
    return batch


def reset_batch(tables: Tables) -> None:
    """Reset the lake to a batch that was only taken in and never sent."""
    delete_rows(tables, "transmitted", "telemetry")
    delete_rows(tables, "synopsis")
    now = tables.now()
    (batch,) = load_batches(now, "telemetry")
    unpinned = batch.with_changes(
        batch.updated_at,
        status=INGESTED,
        levers=(),
        models={},
        capacity_kbps=None,
        frame_origin=None,
        frame_tuples=None,
    )
    save_batches(now, [unpinned])


def delete_rows(tables: Tables, table: str, stream: str | None = None) -> None:
    """Delete the rows of a table, so that replacing them reads nothing; a plain copy reads nothing either."""
    tables.now().at(table, stream).delete(batch_date=DAY)


def elapsed_seconds(work: Callable[[], Any]) -> float:
    return seconds_by_clock(work)["clock"]


def seconds_by_clock(work: Callable[[], Any]) -> dict[str, float]:
    """Return the seconds that some work takes, by clock."""
    started = {name: clock() for name, clock in CLOCKS.items()}
    work()
    return {name: clock() - started[name] for name, clock in CLOCKS.items()}


def shed_fresh(tables: Tables, engine: SparkEngine, given: Contracts) -> None:
    done = shed_channel(tables, engine, given, "line", dates=(DAY, DAY))
    assert [batch.status for batch in done] == [DONE]


def recover_fresh(tables: Tables, engine: SparkEngine, given: Contracts, batch: Batch) -> None:
    recover_batches(tables.now(), engine, given.streams["telemetry"], [batch])


def copy(tables: Tables, engine: SparkEngine, table: str, target: str) -> None:
    frame = engine.spark.read.format("delta").load(tables.path(table, "telemetry"))
    frame.write.format("delta").mode("overwrite").save(target)


RATIOS = {"clock": "over_copy", "processor": "cpu_over_copy"}
"""By clock, the name of its ratios."""
Contestant = tuple[Callable[[], Any], Callable[[], Any]]
"""What makes things ready, and what is timed."""


def rounds(names: Sequence[str], count: int) -> list[list[str]]:
    """Return the order of contestants by round: one warm-up round and `count` counted rounds, in alternating order.

    >>> rounds(["copy", "shed"], 2)
    [['shed', 'copy'], ['copy', 'shed'], ['shed', 'copy']]
    """
    return [list(names) if turn % 2 else list(reversed(names)) for turn in range(count + 1)]


def alternate(contestants: dict[str, Contestant]) -> dict[str, dict[str, float]]:
    """Return the seconds of each contestant by clock: the least of wall clock, the median of processor seconds.

    The order alternates; one warm-up round does not count. On some kernels a worker of Spark that ends is no longer
    counted, so that the smallest reading of processor seconds may be far too small, even negative.
    """
    every: dict[str, dict[str, list[float]]] = {name: {clock: [] for clock in CLOCKS} for name in contestants}
    for turn, names in enumerate(rounds(list(contestants), ROUNDS)):
        for name in names:
            ready, work = contestants[name]
            ready()
            took = seconds_by_clock(work)
            print(f"  round {turn}: {name} {took['clock']:.1f} s, {took['processor']:.2f} CPU s", flush=True)
            for clock, value in took.items() if turn else ():
                every[name][clock].append(value)
    return {
        name: {"clock": min(took["clock"]), "processor": statistics.median(took["processor"])}
        for name, took in every.items()
    }


def settings_in(folder: str) -> Settings:
    home = Path(__file__).resolve().parents[3]
    return Settings.from_environment(
        {
            "SPILLWAY_HOME": str(home),
            "SPILLWAY_LAKE": f"{folder}/lake",
            "SPILLWAY_LANDING": f"{folder}/landing",
            "SPILLWAY_BUILD": f"{folder}/build",
        }
    )


def shed_and_recover(rows: int, validated: bool = True) -> dict[str, float]:
    """Return the ratios to a copy with one to four attributes shed, and the worst; `validated`: also of validation."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, spark_engine("bench") as engine:
        tables = Tables(settings_in(folder))
        print(f"attributes: {rows:,} tuples")
        make_raw(tables, engine, rows)
        for shed in range(1, MEASURES + 1):
            given = contracts(shed, error_pct=2.0)
            took = elapsed_seconds(partial(train_stream, tables, given, "telemetry"))
            found["attributes.train_10mb_seconds"] = min(
                took, found.get("attributes.train_10mb_seconds", math.inf)
            )
            reset_batch(tables)
            shed_fresh(tables, engine, given)
            (batch,) = load_batches(tables.now(), "telemetry")
            contestants: dict[str, Contestant] = {
                "copy": (lambda: None, lambda: copy(tables, engine, "raw", f"{folder}/copy")),
                f"shed {shed}": (
                    lambda: reset_batch(tables),
                    partial(shed_fresh, tables, engine, given),
                ),
                f"recover {shed}": (
                    lambda: delete_rows(tables, "recovered", "telemetry"),
                    partial(recover_fresh, tables, engine, given, batch),
                ),
            }
            best = alternate(contestants)
            for clock, what in RATIOS.items():
                whole = best["copy"][clock]
                for step in ("shed", "recover"):
                    found[f"attributes.{step}_{what}.{shed}"] = best[f"{step} {shed}"][clock] / whole
        of_all = best[f"shed {shed}"]["clock"], best[f"recover {shed}"]["clock"]
        found |= validation(tables, engine, given, *of_all) if validated else {}
    for what in RATIOS.values():
        for step in ("shed", "recover"):
            each = [found[f"attributes.{step}_{what}.{shed}"] for shed in range(1, MEASURES + 1)]
            found[f"attributes.{step}_{what}"] = max(each)
    return found


def validation(
    tables: Tables, engine: SparkEngine, given: Contracts, shed: float, recover: float
) -> dict[str, float]:
    """Return the time of certificates and suites over that of shedding; its recovery is measured as recovery."""
    took = math.inf
    for _ in range(ROUNDS):
        delete_rows(tables, "recovered", "telemetry")
        took = min(took, elapsed_seconds(lambda: validate(tables, engine, given, "bench", print, every=True)))
    return {
        "attributes.validation_over_shed": (took - recover) / shed,
        "attributes.recovery_and_validation_over_shed": took / shed,
    }


def lookup_seconds(entries: int) -> dict[str, float]:
    """Return the time of a warm point look-up on a synopsis of `entries` entries (noise: most values are stored)."""
    rows = entries // 4
    with tempfile.TemporaryDirectory() as folder:
        tables, given = Tables(settings_in(folder)), contracts(4, error_pct=0.01)
        contract = given.streams["telemetry"]
        with spark_engine("bench look-up") as engine:
            print(f"look-up: a synopsis of about {entries:,} entries")
            make_raw(tables, engine, rows, noise=0.2)
            train_stream(tables, given, "telemetry")
            shed_channel(tables, engine, given, "line", dates=(DAY, DAY))
        stored = sum(tables.now().at("synopsis").rows(["entries"])["entries"].to_pylist())
        took = []
        for turn in range(7):
            seq = (turn * 7_919_911) % rows
            asked = StreamQuery.parse(contract, "heat", [f"sensor={seq % SENSORS}"], seq=seq)
            took.append(elapsed_seconds(partial(look_up, tables, contract, asked)))
        return {
            "attributes.lookup_seconds": statistics.median(took[1:]),
            "attributes.lookup_entries": float(stored),
        }


def one_size(rows: int) -> tuple[float, float]:
    """Return the seconds of a shed pass over `rows` tuples, and the peak memory in MB, in a separate process."""
    ran = subprocess.run(
        [sys.executable, "-m", "evidence.bench.bench_attributes", "size", str(rows)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[3],
        env=os.environ,
    )
    took, peak = ran.stdout.strip().splitlines()[-1].split()
    print(f"  {rows:,} tuples: {float(took):.1f} s, peak {float(peak):.0f} MB", flush=True)
    return float(took), float(peak)


def _child(rows: int) -> None:
    peak = [0.0]
    over = threading.Event()

    def watch() -> None:
        me = psutil.Process()
        while not over.wait(0.2):
            total = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            peak[0] = max(peak[0], total / 1e6)

    folder = tempfile.mkdtemp()
    try:
        tables = Tables(settings_in(folder))
        with spark_engine("bench size") as engine:
            make_raw(tables, engine, rows)
            given = contracts(2, error_pct=2.0)
            train_stream(tables, given, "telemetry")
            reset_batch(tables)
            shed_fresh(tables, engine, given)
            watcher = threading.Thread(target=watch)
            watcher.start()
            took = math.inf
            for _ in range(ROUNDS):
                reset_batch(tables)
                took = min(took, elapsed_seconds(lambda: shed_fresh(tables, engine, given)))
            over.set()
            watcher.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(took, peak[0])


def growth(most: int) -> dict[str, float]:
    """Return how time grows with tuples (log-log slope), and the memory of the smallest and the largest pass."""
    sizes = sorted({most // 30, most // 10, most // 3, most})
    points = {rows: one_size(rows) for rows in sizes}
    xs, ys = [math.log(rows) for rows in sizes], [math.log(points[rows][0]) for rows in sizes]
    # the slope over the upper sizes: below, what a run costs at all hides what a tuple costs
    slope = (ys[-1] - ys[1]) / (xs[-1] - xs[1])
    return {
        "attributes.time_exponent": slope,
        "attributes.peak_memory_mb_1m": points[sizes[0]][1],
        "attributes.peak_memory_mb_30m": points[sizes[-1]][1],
    }


def attribute_bench(rows: int, most_rows: int, entries: int) -> dict[str, float]:
    """Return all figures of the attribute lever in `build/bench.json`."""
    return {**shed_and_recover(rows), **growth(most_rows), **lookup_seconds(entries)}


if __name__ == "__main__":
    part, size = sys.argv[1], int(sys.argv[2])
    if part == "ratios":
        for figure, value in shed_and_recover(size, validated=False).items():
            print(f"{figure}  {value:.4g}")
    else:
        _child(size)
