"""Measure the time of a plan, and the overhead of coverage in answers.

- `plan_room_ms`: milliseconds from loaded tables to the decision (`evidence.quality.planning`).
- `kernel_decide_ms`: milliseconds of the innermost step, the choice among batches in arrays.
- `sic_overhead_pct`: a query of the product (with chosen portions and coverage on every row) against the same
  statement by the same engine over the same rows without coverage. It is the median difference of many pairs
  (`paired_difference`), by processor time of all processes with its interval, and by wall clock. There are so many rows
  that Spark's fixed time per query is a small part.
- `sic_own_work_pct`: the work for coverage alone.

For comparison, the same statement also runs over the files as Spark reads them, without recovery.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evidence.attributes.lake import ENGINE, Lake
from evidence.bench.paired_difference import paired_excess
from evidence.bench.spark_node import BATCH_TUPLES, OVERLOAD, batches_that_fit, run_node
from evidence.quality.planning import plan_figures
from evidence.timing import best_seconds
from spillway.contracts import read_channel, read_stream, read_workload
from spillway.engine.spark import SparkEngine
from spillway.engine.statements import SqlView
from spillway.levers.protocol import CapacityGroup
from spillway.levers.quality.admission import Batches, Entitlements, admit_fairly
from spillway.levers.windows import Inexact, SqlDecision, WindowLever
from spillway.pipeline.run import run_channel
from spillway.registry import lever
from spillway.workloads.inputs import WindowRows, plan_inputs
from spillway.workloads.run import window_results, window_work
from spillway.workloads.windows import pinned_windows

QUERIES, BATCHES = (10, 100, 1_000), (1_000, 10_000, 100_000)
EXACT: Inexact = {}
SQL = "SELECT site, count(*) AS n, avg(level) AS level FROM plain GROUP BY site"
STREAM: dict[str, Any] = {
    "stream": "plain",
    "channel": "wide",
    "source": {"path": "plain", "format": "parquet", "settle_seconds": 0},
    "rate": {"from": "declared", "tuples_per_second": 1000},
    "levers": [],
    "attributes": [
        {"name": "site", "type": "string", "role": "key", "nullable": False},
        {"name": "at", "type": "timestamp", "role": "order", "nullable": False},
        {"name": "level", "type": "double", "role": "measure"},
    ],
}


def decision_figures(rounds: int = 15) -> dict[str, float]:
    """Return the milliseconds of a decision with capacity for half; the last figure also for nine tenths."""
    chance = np.random.default_rng(1)
    found: dict[str, float] = {}
    for queries in QUERIES:
        for count in BATCHES:
            query = chance.integers(0, queries, count).astype(np.int32)
            size = chance.integers(10, 100, count).astype(np.float64)
            sic = size / np.bincount(query, size, queries)[query]
            batches = Batches(query, sic, size, chance.permutation(count))
            for share in (0.5, 0.9) if (queries, count) == (QUERIES[-1], BATCHES[-1]) else (0.5,):
                run = _decision_task(batches, Entitlements.equal(queries), share * float(size.sum()))
                # a core's seconds: other processes must not count
                seconds = best_seconds({"decide": run}, rounds, time.process_time)["decide"]
                name = f"quality.kernel_decide_ms.{queries}_queries.{count}_batches"
                found[name if share == 0.5 else f"{name}.room_for_90_pct"] = 1e3 * seconds
    found["quality.kernel_decide_ms"] = found[
        f"quality.kernel_decide_ms.{QUERIES[-1]}_queries.{BATCHES[-1]}_batches"
    ]
    return found


def _decision_task(batches: Batches, to: Entitlements, room: float) -> Callable[[], object]:
    return lambda: admit_fairly(batches, to, room)


def sic_figures(spark: Any, rows: int = 4_000_000, seconds: float = 90.0) -> dict[str, float]:
    """Return the overhead of coverage in a Spark query over `rows` rows, all of which are kept."""
    engine = SparkEngine(lambda: spark)
    with tempfile.TemporaryDirectory() as folder:
        lake = _landed_lake(folder, rows)
        contract = read_workload(
            {
                "name": "asked",
                "inputs": ["plain"],
                "window": {"seconds": rows / 1000 + 1000},
                "levers": [{"lever": "quality", "sql": SQL, "portion_tuples": 250_000}],
            }
        )
        contracts = replace(lake.contracts, queries={"asked": contract})
        (window,) = pinned_windows(lake.tables, contracts, contract)[:1]
        room, found = CapacityGroup("asked", contracts, lake.tables), lever("quality")
        assert isinstance(found, WindowLever)
        (plan,) = found.plan_windows(room, [window_work(lake.tables, contracts, contract, found, [window])])
        decision = plan.decision
        assert isinstance(decision, SqlDecision)
        inputs = plan_inputs(lake.tables, room, contract, [window], 0.0)[window.window]
        plain = _plain_view(inputs["plain"], decision, window)
        files = [file.path for file in lake.tables.at("transmitted", "plain").files()]
        spark.read.parquet(*files).createOrReplaceTempView("plain")

        def with_sic() -> object:
            return window_results(engine, decision, window, inputs, {}, dict)

        answer = spark.sql(SQL).toArrow()

        def own_work() -> object:
            decision.queries(window, EXACT)
            return decision.build_results(window, [answer], {}, EXACT, dict)

        def without() -> object:
            return engine.ask({"plain": plain}, (("asked", SQL),), 100_000)

        excess = paired_excess(with_sic, without, seconds)
        own = best_seconds({"own": own_work}, 15, time.process_time)["own"]
        contestants = {
            "with_sic": with_sic,
            "without": without,
            "by_spark_alone": lambda: spark.sql(SQL).toArrow(),
        }
        best = best_seconds(contestants, 3)
    processor, clock = excess["processor"], excess["clock"]
    return {
        "quality.sic_overhead_pct": 100 * processor.middle,
        "quality.sic_overhead_low_pct": 100 * processor.low,
        "quality.sic_overhead_high_pct": 100 * processor.high,
        "quality.sic_overhead_pct.by_clock": 100 * clock.middle,
        "quality.sic_overhead_low_pct.by_clock": 100 * clock.low,
        "quality.sic_overhead_high_pct.by_clock": 100 * clock.high,
        "quality.sic_overhead_rounds": processor.rounds,
        "quality.sic_overhead_rows": rows,
        "quality.sic_own_work_pct": 100 * own / best["without"],
        "quality.asked_over_plain_parquet": best["with_sic"] / best["by_spark_alone"],
        **{f"quality.{name}_seconds": value for name, value in best.items()},
    }


def _plain_view(rows: WindowRows, decision: SqlDecision, window: Any) -> SqlView:
    """Return the same rows in the same slices, without coverage."""
    (question,) = decision.queries(window, EXACT)
    (read,) = question.reads.values()
    schema = pa.schema([pa.field(name, rows.field(name).type) for name in read.columns])
    # nothing of this module, which a worker would have to import first
    return SqlView(schema, [partial(rows.only(portion), tuple(schema.names)) for portion in read.portions])


def _landed_lake(folder: str, rows: int) -> Lake:
    """Return the stream on a disk: some files of many rows, and one row that closes the window."""
    first = datetime(2026, 1, 1, tzinfo=UTC)
    parts, files = 4, {}
    for part in range(parts + 1):
        count = rows // parts if part < parts else 1
        seq = np.arange(count) + part * (rows // parts)
        late = 0 if part < parts else 10_000_000_000
        at = np.datetime64(first.replace(tzinfo=None), "us") + (seq * 1000 + late).astype("timedelta64[us]")
        table = pa.table(
            {
                "site": pa.array([f"s{one}" for one in range(100)]).take(pa.array(seq % 100)),
                "at": pa.array(at, pa.timestamp("us", "UTC")),
                "level": np.sin(seq / 1000.0),
            }
        )
        sink = io.BytesIO()
        pq.write_table(table, sink)
        day = first.date() + timedelta(days=part)
        files[f"{day}/{part}.parquet"] = sink.getvalue()
    channels = {"wide": read_channel("wide", {"capacity": "10 Gbps"})}
    lake = Lake.land(
        "bench-quality", {"plain": read_stream(STREAM)}, {"plain": files}, channels, str(Path(folder))
    )
    run_channel(lake.tables, ENGINE, lake.contracts, "wide", "bench")
    return lake


def quality_bench(spark: Any) -> dict[str, float]:
    """Return all figures: decisions, the overhead of coverage, and the thesis's node at two intervals."""
    found = plan_figures() | decision_figures() | sic_figures(spark)
    for interval, intervals_a_window in ((0.25, 40), (2.0, 8)):
        fit = batches_that_fit(spark, interval)
        found[f"quality.node.{round(1e3 * interval)}_ms.offered_tuples_a_second"] = (
            OVERLOAD * fit * BATCH_TUPLES / interval
        )
        for policy in ("fair", "random"):
            found |= run_node(spark, policy, interval, intervals_a_window, 2, fit)
    return found
