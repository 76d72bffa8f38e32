"""The attribute lever against a plain Spark copy of the same Delta table, on generated telemetry.

Ten million tuples by nine attributes (a hundred sensors in turn; four measures that may be shed, a protected one, key,
order and two counters). The shed pass is all of it: load, rank, scheme, synopsis, ledger, transmitted. Contestants take
turns in alternating order, the best of three rounds counts.
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
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import psutil

from spillway.contracts import Contracts, read_channel, read_stream
from spillway.engine.session import open_lake
from spillway.pipeline.recover import look_up, recover_batches
from spillway.pipeline.shed import shed_channel
from spillway.pipeline.train import train_stream
from spillway.pipeline.validate import validate
from spillway.settings import Settings
from spillway.store.batches import DONE, TAKEN_IN, Batch, load_batches, save_batches
from spillway.store.tables import Lake, where

DAY = date(2026, 1, 1)
SENSORS = 100
ROUNDS = 2
TRAINING_ROWS = 140_000  # nine columns of eight bytes: ten megabytes


def contracts(shed: int, capacity_kbps: float = 1.0, error_pct: float | None = None) -> Contracts:
    """A stream whose channel leaves no other choice than to shed `shed` of its measures."""
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
    stream = {
        "stream": "telemetry",
        "channel": "line",
        "source": {"format": "parquet"},
        "attributes": attributes,
        "rate": {"from": "declared", "tuples_per_second": 1000},
        "ways": ["keep", "shed"],
        "training": {"tuples": TRAINING_ROWS},
        "error_pct": error_pct,
    }
    return Contracts(
        {"telemetry": read_stream(stream)},
        {"line": read_channel("line", {"capacity": f"{capacity_kbps} kbps"})},
    )


def make_raw(lake: Lake, rows: int, noise: float = 0.01) -> Batch:
    """Tuples of sensors in turn: daily curves of each sensor's own, with noise."""
    turn = f"(id div {SENSORS})"
    sensor = f"(id % {SENSORS})"
    wave = f"sin({turn} / 90.0 + {sensor})"
    table = lake.spark.range(0, rows, 1, max(2, rows // 2_500_000)).selectExpr(
        "id AS seq",
        "1L AS batch",
        f"DATE'{DAY}' AS batch_date",
        f"{sensor} AS sensor",
        f"{turn} AS at",
        f"round(50 + 20 * {wave} + {noise} * 50 * randn(1), 2) AS level",
        f"round(300 + 100 * cos({turn} / 400.0 + {sensor}) + {noise} * 300 * randn(2), 1) AS flow",
        f"round(1013 + 8 * {wave} + {noise} * 10 * randn(3), 1) AS pressure",
        f"round(20 + 5 * {wave} + {noise} * 20 * randn(4), 2) AS heat",
        "round(3.3 + 0.05 * randn(5), 3) AS volts",
        f"{turn} * 7 + {sensor} AS count",
        "CAST(rand(6) < 0.01 AS bigint) AS status",
    )
    attributes = [(a.name, a.type) for a in contracts(4).streams["telemetry"].attributes]
    lake.replace(table, "raw", where(batch_date=str(DAY), batch=1), stream="telemetry", attributes=attributes)
    now = datetime.now(UTC)
    batch = Batch(
        "telemetry", 1, DAY, TAKEN_IN, (), 0, rows - 1, "bench", now, now, rows, 0, 0, rows / 1000.0
    )
    save_batches(lake, [batch])
    return batch


def fresh(lake: Lake) -> None:
    """Back to a batch that was only taken in: nothing of it was sent before, as nothing of a new batch was."""
    empty(lake, "transmitted", "telemetry")
    empty(lake, "synopsis")
    (batch,) = load_batches(lake.settings, "telemetry")
    save_batches(
        lake,
        [
            batch.becomes(
                batch.updated_at,
                status=TAKEN_IN,
                models={},
                capacity_kbps=None,
                frame_origin=None,
                frame_tuples=None,
            )
        ],
    )


def empty(lake: Lake, table: str, stream: str | None = None) -> None:
    """No rows, so that nothing is read in order to be replaced; a plain copy reads nothing of what it replaces."""
    if lake.exists(table, stream):
        lake.delete(table, "true", stream)


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def shed_again(lake: Lake, given: Contracts) -> None:
    done = shed_channel(lake, given, "line", "bench", dates=(DAY, DAY))
    assert [batch.status for batch in done] == [DONE]


def copy(lake: Lake, table: str, target: str) -> None:
    lake.read(table, "telemetry").write.format("delta").mode("overwrite").save(target)


Contestant = tuple[Callable[[], Any], Callable[[], Any]]
"""What makes things ready, and what is timed."""


def alternate(contestants: dict[str, Contestant]) -> dict[str, float]:
    """Best of the rounds for each; the order alternates; one warm-up round does not count."""
    best = dict.fromkeys(contestants, math.inf)
    for turn in range(ROUNDS + 1):
        names = list(contestants) if turn % 2 else list(reversed(contestants))
        for name in names:
            ready, work = contestants[name]
            ready()
            took = seconds(work)
            print(f"  round {turn}: {name} {took:.1f} s", flush=True)
            if turn:
                best[name] = min(best[name], took)
    return best


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


def shed_and_recover(rows: int) -> dict[str, float]:
    """Ratios to a copy with one, two, three and four attributes shed; the worst counts."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, open_lake("bench", settings_in(folder)) as lake:
        print(f"attributes: {rows:,} tuples")
        make_raw(lake, rows)
        ratios: list[tuple[float, float]] = []
        for shed in (1, 2, 4):
            given = contracts(shed, error_pct=2.0)
            took = seconds(lambda given=given: train_stream(lake, given, "telemetry"))
            found["attributes.train_10mb_seconds"] = min(
                took, found.get("attributes.train_10mb_seconds", math.inf)
            )
            fresh(lake)
            shed_again(lake, given)
            (batch,) = load_batches(lake.settings, "telemetry")
            best = alternate(
                {
                    "copy": (lambda: None, lambda: copy(lake, "raw", f"{folder}/copy")),
                    f"shed {shed}": (lambda: fresh(lake), lambda given=given: shed_again(lake, given)),
                    f"recover {shed}": (
                        lambda: empty(lake, "recovered", "telemetry"),
                        lambda given=given, batch=batch: recover_batches(
                            lake, given.streams["telemetry"], [batch]
                        ),
                    ),
                }
            )
            one = best[f"shed {shed}"] / best["copy"], best[f"recover {shed}"] / best["copy"]
            found[f"attributes.shed_over_copy.{shed}"], found[f"attributes.recover_over_copy.{shed}"] = one
            ratios.append(one)
        found |= validation(lake, given, best[f"shed {shed}"], best[f"recover {shed}"])
    found["attributes.shed_over_copy"] = max(ratio for ratio, _ in ratios)
    found["attributes.recover_over_copy"] = max(ratio for _, ratio in ratios)
    return found


def validation(lake: Lake, given: Contracts, shed: float, recover: float) -> dict[str, float]:
    """Certificates and suites over the time of shedding; what it recovers for them is measured as recovery."""
    took = math.inf
    for _ in range(2):
        empty(lake, "recovered", "telemetry")
        took = min(took, seconds(lambda: validate(lake, given, "bench", print, every=True)))
    return {
        "attributes.validation_over_shed": (took - recover) / shed,
        "attributes.recovery_and_validation_over_shed": took / shed,
    }


def lookup_seconds(entries: int) -> dict[str, float]:
    """A point look-up, warm, on a synopsis of so many entries (noise, so that about every value is stored)."""
    rows = entries // 4
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_in(folder)
        given = contracts(4, error_pct=0.01)
        with open_lake("bench look-up", settings) as lake:
            print(f"look-up: a synopsis of about {entries:,} entries")
            make_raw(lake, rows, noise=0.2)
            train_stream(lake, given, "telemetry")
            shed_channel(lake, given, "line", "bench", dates=(DAY, DAY))
            stored = lake.read("synopsis").groupBy().sum("entries").first()[0]
        took = []
        for turn in range(7):
            seq = (turn * 7_919_911) % rows
            took.append(
                seconds(
                    lambda seq=seq: look_up(
                        settings,
                        given.streams["telemetry"],
                        ["heat"],
                        {"sensor": str(seq % SENSORS)},
                        (seq, seq),
                    )
                )
            )
        return {
            "attributes.lookup_seconds": statistics.median(took[1:]),
            "attributes.lookup_entries": float(stored),
        }


def one_size(rows: int) -> tuple[float, float]:
    """Seconds of a shed pass over so many tuples, and the peak memory in MB, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "evidence.bench.bench_attributes", str(rows)],
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
        with open_lake("bench size", settings_in(folder)) as lake:
            make_raw(lake, rows)
            given = contracts(2, error_pct=2.0)
            train_stream(lake, given, "telemetry")
            fresh(lake)
            shed_again(lake, given)
            watcher = threading.Thread(target=watch)
            watcher.start()
            took = math.inf
            for _ in range(2):
                fresh(lake)
                took = min(took, seconds(lambda: shed_again(lake, given)))
            over.set()
            watcher.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(took, peak[0])


def growth(most: int) -> dict[str, float]:
    """How time grows with tuples (log-log slope), and the memory of the smallest and the largest."""
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


def figures(rows: int, most_rows: int, entries: int) -> dict[str, float]:
    """Everything `build/bench.json` says of the attribute lever."""
    return {**shed_and_recover(rows), **growth(most_rows), **lookup_seconds(entries)}


if __name__ == "__main__":
    _child(int(sys.argv[1]))
