"""Measure sifters: the time from a contract to a shed batch, single kernels, and a sifted pass next to a plain filter.

`user_timings()` measures what a user waits for. A contract file of 1,000 queries is read, regions are learned and a
batch is shed, first in a new process, then again. It also measures the throughput of such a filter in rows per second,
from an Arrow table on. `sifter_kernels()` times single kernels on prepared arrays; its figures are named `kernel_...`.
Both use process time, so that other load on the machine does not count.

The pass reads a Delta table of generated probes on Spark and writes the kept rows as Delta: once with the lever in
Spark's tasks, once with a filter of Spark itself whose condition keeps as many rows. The contestants take turns, and
the best round counts.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from evidence.attributes.lake import Lake
from evidence.bench.bench_attributes import settings_in
from evidence.sifters.contest import build_and_configure
from evidence.sifters.linear_program import Instance, solver_cost
from evidence.sifters.on_spark import prepare_batch, probe_contracts
from evidence.sifters.workload import WorkloadSettings, generate
from evidence.timing import best_seconds
from spillway.contracts import read_channel, read_stream
from spillway.contracts.fields import Report
from spillway.contracts.yaml import read_yaml
from spillway.engine.protocol import run_alone
from spillway.engine.spark import spark_engine
from spillway.levers.frame_slices import split_batch
from spillway.levers.protocol import CapacityGroup
from spillway.levers.sifters import parsed_queries, predicates
from spillway.levers.sifters.choose import partition_space, region_frequencies
from spillway.levers.sifters.configure import optimal_thresholds
from spillway.levers.sifters.consolidate import consolidate_queries
from spillway.levers.sifters.learn import learn_regions
from spillway.store.batches import load_batches
from spillway.store.tables import FileTask, Tables
from spillway.streams.capacity import plan_all
from spillway.streams.drafts import own_table, write_drafts
from spillway.streams.shed import shed_channel
from spillway.streams.stages import SendTask

QUERIED: Mapping[str, Any] = {
    "stream": "queried",
    "channel": "wide",
    "source": {"kind": "files", "path": "queried", "format": "json", "settle_seconds": 0},
    "attributes": [
        {"name": "site", "type": "string", "role": "key", "nullable": False},
        {"name": "at", "type": "timestamp", "role": "order", "nullable": False},
        {"name": "x", "type": "double", "role": "measure"},
        {"name": "y", "type": "double", "role": "measure"},
    ],
    "rate": {"from": "declared", "tuples_per_second": 1},
}
_LAKES = count(1)
"""Lakes in memory are known by name: each is a new one."""
LOOKED_UP = 1_000_000
"""More than a core has at hand."""
SIZES = ((16, 1000), (100, 100), (100, 1000), (100, 10_000), (100, 100_000), (1000, 1000))
"""(regions, queries)."""


def sifter_kernels(rounds: int = 5) -> Mapping[str, float]:
    """Time building and look-ups."""
    found: dict[str, float] = {}
    for regions, queries in SIZES:
        one = generate(WorkloadSettings(regions=regions, query_count=queries), 1, 1000)

        schemes = ("data_depth", "query_data", "demand")
        seconds = best_seconds(
            {name: partial(build_and_configure, one, name) for name in schemes}, rounds, time.process_time
        )
        for name in schemes:
            found[f"sifters.kernel_build_{name}_ms.l{regions}_q{queries}"] = 1e3 * seconds[name]
    # what a contract has that names no scheme
    found["sifters.kernel_build_ms"] = found["sifters.kernel_build_demand_ms.l100_q1000"]
    return {**found, **_beside_solver(rounds), **look_ups(rounds)}


def user_timings(rounds: int = 3, queries: tuple[int, ...] = (10, 1000)) -> Mapping[str, float]:
    """Return milliseconds until 2,000 rows are shed, and million rows filtered per second and core."""
    found: dict[str, float] = {}
    for stated in queries:
        best = dict.fromkeys(("first", "again", "rows"), float("inf"))
        for _ in range(rounds):
            best |= {name: min(best[name], taken) for name, taken in _shed_once(stated).items()}
        found[f"sifters.contract_to_sent_ms.q{stated}"] = 1e3 * best["first"]
        found[f"sifters.batch_ms.q{stated}"] = 1e3 * best["again"]
        found[f"sifters.rows_told_apart_million_per_second.q{stated}"] = LOOKED_UP / best["rows"] / 1e6
    found["sifters.contract_to_sent_ms"] = found[f"sifters.contract_to_sent_ms.q{queries[-1]}"]
    return found


def _shed_once(queries: int) -> dict[str, float]:
    """Return the seconds of a first batch with the contract's reading and training, of a second, and of look-ups."""
    chance = np.random.default_rng(0)
    corners = chance.random((queries, 2)) * 99
    text = json.dumps(
        {
            **QUERIED,
            "levers": [
                {
                    "lever": "sifters",
                    "rows_per_second": 0.1,
                    "queries": [
                        {"where": f"x >= {a:.3f} and x < {a + 1:.3f} and y >= {b:.3f} and y < {b + 1:.3f}"}
                        for a, b in corners
                    ],
                }
            ],
        }
    )
    for cache in (predicates._condition, parsed_queries._parse_queries, parsed_queries._problems_of):
        cache.cache_clear()
    begin = time.process_time()
    contract = read_stream(read_yaml(text, Report("queried.yaml")))
    read = time.process_time() - begin
    files = {f"2026-01-0{day}/a.json": _rows(chance, 2_000 * day, 2_000) for day in (1, 2)}
    channels = {"wide": read_channel("wide", {"capacity": "1 Gbps"})}
    (first, one), (second, other) = sorted(files.items())
    lake = Lake.land(
        f"bench-sifters-{next(_LAKES)}", {"queried": contract}, {"queried": {first: one}}, channels
    )
    begin = time.process_time()
    lake.train()
    lake.send()
    shed = time.process_time() - begin
    lake = Lake.land(
        f"bench-sifters-{next(_LAKES)}", {"queried": contract}, {"queried": {second: other}}, channels
    )
    lake.train()
    begin = time.process_time()
    lake.send()
    again = time.process_time() - begin
    (sifted,) = lake.tables.at("sifters").rows(["throttle"])["throttle"].to_pylist()
    assert sifted < 1.0, "a batch that fits whole would time nothing"
    rows = pa.table(
        {
            "seq": np.arange(LOOKED_UP),
            "x": chance.random(LOOKED_UP) * 100,
            "y": chance.random(LOOKED_UP) * 100,
        }
    )
    regions = learn_regions(contract, contract.lever_settings("sifters"), rows.slice(0, 100_000), 0.5)
    begin = time.process_time()
    regions.base.regions_of(rows)
    return {"first": read + shed, "again": again, "rows": time.process_time() - begin}


def _rows(chance: np.random.Generator, first: int, rows: int) -> bytes:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    places = chance.random((rows, 2)) * 100
    lines = [
        json.dumps({"site": "a", "at": (begin + timedelta(seconds=first + at)).isoformat(), "x": x, "y": y})
        for at, (x, y) in enumerate(places.tolist())
    ]
    return "\n".join(lines).encode() + b"\n"


def _beside_solver(rounds: int) -> Mapping[str, float]:
    one = generate(WorkloadSettings(regions=100), 1, 1000)
    tree = partition_space("data_depth", one.space, one.sample, one.asked, 100)
    worth = consolidate_queries(tree, region_frequencies(tree, one.sample), one.asked)
    instance = Instance(worth.worths, worth.frequencies, worth.touched, 0.5, 0.5, np.ones(tree.count))
    seconds = best_seconds(
        {
            "configure": lambda: optimal_thresholds(worth.worths, worth.frequencies, worth.touched, 0.5, 0.5),
            "solver": lambda: solver_cost(instance),
        },
        rounds,
        time.process_time,
    )
    return {
        "sifters.kernel_configure_ms": 1e3 * seconds["configure"],
        "sifters.kernel_solver_over_configure_time": seconds["solver"] / seconds["configure"],
    }


def look_ups(rounds: int) -> Mapping[str, float]:
    """Return million look-ups per second and core, by regions and dimensions."""
    found: dict[str, float] = {}
    for regions, dimensions, scheme in (
        (16, 2, "query_data"),
        (100, 2, "data_depth"),
        (100, 2, "query_data"),
        (1000, 2, "query_data"),
        (100, 1, "query_data"),
        (100, 4, "data_depth"),
        (100, 6, "data_depth"),
    ):
        one = generate(WorkloadSettings(regions=regions, dimensions=dimensions), 1, LOOKED_UP)
        tree = partition_space(scheme, one.space, one.sample, one.asked, regions)
        seconds = best_seconds({"look": partial(tree.regions_of, one.test)}, rounds, time.process_time)
        name = f"sifters.kernel_lookup_million_per_second.l{regions}_n{dimensions}_{scheme}"
        found[name] = LOOKED_UP / seconds["look"] / 1e6
    found["sifters.kernel_lookup_million_per_second"] = found[
        "sifters.kernel_lookup_million_per_second.l100_n2_query_data"
    ]
    return found


def sifter_pass(rows: int = 20_000_000, rounds: int = 3) -> Mapping[str, float]:
    """Time the sifted pass over a Delta table next to Spark's own filter; both read and write as many rows.

    `pass_`: the sent rows, written by the lever's decision in tasks. `draft_`: a whole draft, including the second pass
    over the dimensions, which counts the dropped rows of every region and query.
    """
    with tempfile.TemporaryDirectory() as folder, spark_engine("bench sifters") as engine:
        tables, contracts = Tables(settings_in(folder)), probe_contracts(capacity="100 Gbps")
        prepare_batch(tables, engine, contracts, rows)
        shed_channel(tables, engine, contracts, "line")
        now = tables.now()
        (batch,) = load_batches(now, "probes")
        raw, sent = (
            now.path("raw", "probes"),
            sum(file.records for file in now.at("transmitted", "probes").files()),
        )
        (way,) = plan_all(CapacityGroup("line", contracts, now), {("probes", batch.levers): [batch]})
        table = own_table(now, way.contract, "transmitted", batch.levers)
        columns = ("weight", "in_sample", *way.contract.names)
        cut = [FileTask({"batch_date": str(batch.batch_date)}, 1, piece) for piece in split_batch(batch)]
        spark = engine.spark
        # as many rows as the sifter keeps, by a condition of one column
        edge = float(
            spark.read.format("delta").load(raw).approxQuantile("delay", [1.0 - sent / rows], 0.001)[0]
        )

        def plain() -> None:
            frame = spark.read.format("delta").load(raw).where(f"delay > {edge!r}")
            frame.write.format("delta").mode("overwrite").save(f"{folder}/plain")

        seconds = best_seconds(
            {
                "sifted": lambda: table.discard(table.draft(engine, cut, SendTask(way.down, columns))),
                "draft": lambda: run_alone(engine, write_drafts(now, way)).discard(),
                "plain": plain,
            },
            rounds,
        )
    return {
        "sifters.pass_over_plain_filter": seconds["sifted"] / seconds["plain"],
        "sifters.draft_over_plain_filter": seconds["draft"] / seconds["plain"],
        "sifters.pass_seconds": seconds["sifted"],
        "sifters.plain_filter_seconds": seconds["plain"],
        "sifters.pass_rows": rows,
        "sifters.pass_rows_sent": sent,
    }
