"""Generate the five data sets of Table 6.3 as one stream in files of a few tuples, and the four queries over it.

Twenty nodes report one after the other; every tuple has a value of each data set, all of mean 50: gaussian, uniform,
exponential, a random mix of the three, and a real load (PlanetLab's traces are not to be had here: the daily volumes of
a real share, as the demo's stock data has them, at one mean). A window is twenty portions of forty tuples.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from demo.landing import package_file
from evidence.attributes.lake import ENGINE, Lake
from spillway.contracts import read_channel, read_stream, read_workload
from spillway.contracts.workload import Workload
from spillway.pipeline.run import run_channel
from spillway.store import blobs

HEAVY = ("heavy", "lumps")
"""Beside the text's: values of which a few make the sum (Pareto, alpha 1.1), and portions of 40 of which one in ten is
five times the others."""
RANGES: Mapping[str, tuple[float, float]] = {
    "gaussian": (-100, 200), "uniform": (0, 100), "exponential": (0, 2000), "mixed": (-100, 2000), "load": (0, 1000),
    "heavy": (0, 100_000), "lumps": (0, 1000),
}  # fmt: skip
"""The range of values that their owner declares; it is much wider than the real one."""
DATA_SETS = ("gaussian", "uniform", "exponential", "mixed", "load")
NODES, FILES_A_WINDOW, TUPLES_A_FILE = 20, 20, 40
SECONDS_A_FILE = 1.0
FIRST_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
STREAM: dict[str, Any] = {
    "stream": "loads",
    "channel": "wide",
    "source": {"path": "loads", "format": "parquet", "settle_seconds": 0},
    "rate": {"from": "declared", "tuples_per_second": 40},
    "levers": [],
    "attributes": [
        {"name": "node", "type": "string", "role": "key", "nullable": False},
        {"name": "reported_at", "type": "timestamp", "role": "order", "nullable": False},
        {"name": "round", "type": "integer", "role": "protected"},
        {"name": "memory_kb", "type": "double", "role": "measure"},
        *(
            {
                "name": name,
                "type": "double",
                "role": "measure",
                "rules": [{"kind": "range", "least": low, "most": high}],
            }
            for name, (low, high) in RANGES.items()
        ),
    ],
}


def values_of(count: int, seed: int) -> dict[str, np.ndarray]:
    """Return a number of values of every data set."""
    chance = np.random.default_rng(seed)
    found = {
        "gaussian": chance.normal(50, 15, count),
        "uniform": chance.uniform(0, 100, count),
        "exponential": chance.exponential(50, count),
    }
    which = chance.integers(0, 3, count)
    found["mixed"] = np.choose(which, list(found.values()))
    found["heavy"] = np.minimum(20 * chance.pareto(1.1, count), RANGES["heavy"][1])
    often = np.where(chance.random(-(-count // TUPLES_A_FILE)) < 0.1, 5.0, 1.0)
    found["lumps"] = chance.normal(50, 15, count).clip(0, 150) * np.repeat(often, TUPLES_A_FILE)[:count]
    volumes = np.array(share_volumes())
    found["load"] = np.resize(volumes, count) * 50 / volumes.mean()
    return found


def share_volumes() -> list[float]:
    """Return the daily traded volumes of one share."""
    text = gzip.decompress(package_file("bokeh_sampledata", "_data/stocks.csv.gz").read_bytes()).decode()
    rows = csv.DictReader(text.splitlines())
    return [float(row["Volume"]) for row in rows if row["Ticker"] == "AAPL"]


def landed_batches(name: str, windows: int) -> Lake:
    """Return the same lake with one batch, and so one file of the table, per landing file; all of one date."""
    return landed_loads(name, windows, 1, batches=True)


def landed_loads(
    name: str, windows: int, seed: int, batches: bool = False, row_group_tuples: int | None = None
) -> Lake:
    """Return the stream in tables in memory, sent whole; the last file closes the windows before it."""
    contract = read_stream({**STREAM, "row_group_tuples": row_group_tuples})
    files = dict(_files(windows, seed))
    first = next(iter(files))
    channels = {"wide": read_channel("wide", {"capacity": "1 Gbps"})}
    lake = Lake.land(
        name, {"loads": contract}, {"loads": {first: files.pop(first)} if batches else files}, channels
    )
    for file, content in files.items() if batches else ():
        run_channel(lake.tables, ENGINE, lake.contracts, "wide", name)
        blobs.write_bytes(f"{lake.settings.landing}/{contract.path}/{file}", content)
    run_channel(lake.tables, ENGINE, lake.contracts, "wide", name)
    return lake


def _files(windows: int, seed: int) -> Iterator[tuple[str, bytes]]:
    count = (windows * FILES_A_WINDOW + 1) * TUPLES_A_FILE
    values = values_of(count, seed)
    memory = np.random.default_rng(seed + 1).uniform(50, 500, count)
    for number in range(windows * FILES_A_WINDOW + 1):
        mine = slice(number * TUPLES_A_FILE, (number + 1) * TUPLES_A_FILE)
        at = np.arange(mine.start, mine.stop)
        step = timedelta(seconds=SECONDS_A_FILE / TUPLES_A_FILE)
        table = pa.table(
            {
                "node": [f"n{one % NODES:02d}" for one in at],
                "reported_at": pa.array(
                    [FIRST_MOMENT + int(one) * step for one in at], pa.timestamp("us", "UTC")
                ),
                "round": at // NODES,
                "memory_kb": memory[mine],
                **{name: column[mine] for name, column in values.items()},
            }
        )
        sink = io.BytesIO()
        pq.write_table(table, sink)
        yield f"{FIRST_MOMENT.date()}/{number:05d}.parquet", sink.getvalue()


def load_query(name: str, sql: str, **settings: Any) -> Workload:
    """Return a query over the stream, with windows of twenty portions."""
    return read_workload(
        {
            "name": name,
            "inputs": ["loads"],
            "window": {"seconds": FILES_A_WINDOW * SECONDS_A_FILE},
            "capacity_group": "evidence",
            "levers": [{"lever": "quality", "sql": sql, "portion_tuples": TUPLES_A_FILE, **settings}],
        }
    )


def text_queries(**settings: Any) -> Mapping[str, Workload]:
    """Return AVG, COUNT, TOP-5 and COV of Table 6.2 over every data set; one TOP-5 query per data set."""
    means = ", ".join(f"avg({one}) AS {one}" for one in DATA_SETS)
    counts = ", ".join(f"sum(CASE WHEN {one} >= 50 THEN 1 ELSE 0 END) AS {one}" for one in DATA_SETS)
    covariances = ", ".join(f"covar_samp(a.{one}, b.{one}) AS {one}" for one in DATA_SETS)
    pairs = f"SELECT {covariances} FROM loads a JOIN loads b ON a.round = b.round WHERE a.node < b.node"
    found = {
        "avg": load_query("avg", f"SELECT {means} FROM loads", **settings),
        "count": load_query("count", f"SELECT {counts} FROM loads", **settings),
        "cov": load_query("cov", f"{pairs} AND a.node = 'n00' AND b.node = 'n01'", **settings),
    }
    for one in DATA_SETS:
        sql = (
            f"SELECT node, avg({one}) AS free FROM loads WHERE memory_kb >= 100 GROUP BY node "
            "ORDER BY free DESC, node LIMIT 5"
        )
        found[f"top5_{one}"] = load_query(f"top5_{one}", sql, **settings)
    return found
