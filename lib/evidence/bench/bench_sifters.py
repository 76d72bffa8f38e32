"""Sifters: building a filter, look-ups a core, and a sifted pass beside a plain filter.

`sifter_kernels()` needs no Spark: process time of one thread, so that others on the machine do not count. The pass
reads a Delta table of generated probes on Spark and writes what stays of it: once by the lever in its tasks,
once by Spark's own filter of a condition that keeps as many rows, written as Delta. Contestants take turns, the best of
the rounds counts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from functools import partial

import numpy as np

from evidence.bench.bench_attributes import settings_in
from evidence.sifters.contest import built_and_configured
from evidence.sifters.linear_program import Instance, by_solver
from evidence.sifters.on_spark import prepared, probes
from evidence.sifters.workload import WorkloadSettings, generate
from evidence.timed import best_seconds
from spillway.engine.session import spark_engine
from spillway.levers.pieces import pieces
from spillway.levers.protocol import Room
from spillway.levers.sifters.configure import configured
from spillway.levers.sifters.consolidate import consolidated
from spillway.levers.sifters.schemes import frequencies_of, partitioned
from spillway.pipeline.drafting import draft, own_table
from spillway.pipeline.planning import plan_all
from spillway.pipeline.shed import shed_channel
from spillway.pipeline.stages import SendDown
from spillway.store.batches import load_batches
from spillway.store.tables import Piece, Tables

LOOKED_UP = 1_000_000
"""More than a core has at hand."""
SIZES = ((16, 1000), (100, 100), (100, 1000), (100, 10_000), (100, 100_000), (1000, 1000))
"""(regions, queries)."""


def sifter_kernels(rounds: int = 5) -> Mapping[str, float]:
    """Building times and look-ups."""
    found: dict[str, float] = {}
    for regions, queries in SIZES:
        one = generate(WorkloadSettings(regions=regions, query_count=queries), 1, 1000)

        schemes = ("data_depth", "query_data", "demand", "auto")
        seconds = best_seconds(
            {name: partial(built_and_configured, one, name) for name in schemes}, rounds, time.process_time
        )
        for name in schemes:
            found[f"sifters.build_{name}_ms.l{regions}_q{queries}"] = 1e3 * seconds[name]
    # what a contract has that names no scheme, the dearest of all
    found["sifters.build_ms"] = found["sifters.build_auto_ms.l100_q1000"]
    return {**found, **_beside_solver(rounds), **look_ups(rounds)}


def _beside_solver(rounds: int) -> Mapping[str, float]:
    one = generate(WorkloadSettings(regions=100), 1, 1000)
    tree = partitioned("data_depth", one.space, one.sample, one.asked, 100)
    worth = consolidated(tree, frequencies_of(tree, one.sample), one.asked)
    instance = Instance(worth.worths, worth.frequencies, worth.touched, 0.5, 0.5, np.ones(tree.count))
    seconds = best_seconds(
        {
            "configure": lambda: configured(worth.worths, worth.frequencies, worth.touched, 0.5, 0.5),
            "solver": lambda: by_solver(instance),
        },
        rounds,
        time.process_time,
    )
    return {
        "sifters.configure_ms": 1e3 * seconds["configure"],
        "sifters.solver_over_configure_time": seconds["solver"] / seconds["configure"],
    }


def look_ups(rounds: int) -> Mapping[str, float]:
    """Million look-ups a second and core, along regions and dimensions; rows as they come, in places."""
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
        tree = partitioned(scheme, one.space, one.sample, one.asked, regions)
        seconds = best_seconds({"look": partial(tree.regions_of, one.test)}, rounds, time.process_time)
        name = f"sifters.lookup_million_per_second.l{regions}_n{dimensions}_{scheme}"
        found[name] = LOOKED_UP / seconds["look"] / 1e6
    found["sifters.lookup_million_per_second"] = found["sifters.lookup_million_per_second.l100_n2_query_data"]
    return found


def sifter_pass(rows: int = 20_000_000, rounds: int = 3) -> Mapping[str, float]:
    """The sifted pass over a Delta table beside Spark's own filter of it; both read and write as many rows.

    `pass_`: what is sent, made and written by the lever's decision in tasks. `draft_`: a whole draft, with the second
    pass over the dimensions that counts what went of every region and query.
    """
    with tempfile.TemporaryDirectory() as folder, spark_engine("bench sifters") as engine:
        tables, contracts = Tables(settings_in(folder)), probes(capacity="100 Gbps")
        prepared(tables, engine, contracts, rows)
        shed_channel(tables, engine, contracts, "line")
        now = tables.now()
        (batch,) = load_batches(now, "probes")
        raw, sent = (
            now.path("raw", "probes"),
            sum(file.records for file in now.at("transmitted", "probes").files()),
        )
        (way,) = plan_all(Room("line", contracts, now), {("probes", batch.levers): [batch]})
        table = own_table(now, way.contract, "transmitted", batch.levers)
        columns = ("weight", "in_sample", *way.contract.names)
        cut = [Piece({"batch_date": str(batch.batch_date)}, 1, piece) for piece in pieces(batch)]
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
                "sifted": lambda: table.discard(table.draft(engine, cut, SendDown(way.down, columns))),
                "draft": lambda: draft(now, engine, way).discard(),
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
