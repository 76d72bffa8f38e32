"""Compare the unshed join with Spark's on the same Parquet files, and an index with none; time the adaptation.

The join is by equality on 5000 values (Zipf 0.8) within 20 seconds. Spark runs a batch range join of both files and
counts its pairs, on all cores. Ours reads the same files window by window on one core and makes pairs as rows. The best
of three counts; the order alternates. These are kernel figures: no table is read and no pair is written. The times of
users are `joins.run_seconds` and `joins.run_over_spark_join` (`bench_commands`).
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evidence.joins.driver import equality, overlap, run_join
from evidence.joins.workload import PaperStreams, constant_rate
from evidence.timing import best_seconds
from spillway.levers.joins.operands import Operand, SetFormat, encode_sets

_NAMES = ("left_rows", "right_rows")
SECONDS, RATE, LASTS = 300.0, 500.0, 20.0
SATURATED = 3_000.0
"""Rows per second that exceed the comparisons of one core."""


def join_bench(spark: Any) -> dict[str, float]:
    """Return ratios, and pairs per second."""
    return against_spark(spark) | index_and_adapting()


def against_spark(spark: Any) -> dict[str, float]:
    """Compute the same pairs by Spark and by the product."""
    streams = PaperStreams(items=5000, mean_items=1.0, rates=constant_rate(RATE, SECONDS))
    sides = streams.both(0)
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, one in zip(_NAMES, sides, strict=True):
            table = pa.table({"at": one.at, "seq": one.seq, "k": one.sets.items})
            pq.write_table(table, Path(folder, f"{name}.parquet"))
            spark.read.parquet(str(Path(folder, f"{name}.parquet"))).createOrReplaceTempView(name)
        micros = int(LASTS * 1e6)
        query = (
            "SELECT count(*) FROM left_rows l JOIN right_rows r ON l.k = r.k "
            f"AND l.at BETWEEN r.at - {micros} AND r.at + {micros}"
        )

        def theirs() -> None:
            found["theirs"] = spark.sql(query).collect()[0][0]

        def ours() -> None:
            read = [pq.read_table(Path(folder, f"{name}.parquet")) for name in _NAMES]
            sets = encode_sets(read[0]["k"].combine_chunks(), read[1]["k"].combine_chunks(), SetFormat())
            rows = [
                Operand(np.asarray(one["at"]), np.asarray(one["seq"]), mine, np.zeros(one.num_rows, np.int64))
                for one, mine in zip(read, sets, strict=True)
            ]
            whole = run_join(rows[0], rows[1], equality(LASTS, True), 0, SECONDS, adapts=60.0)
            found["ours"] = int(whole.sum("pairs"))

        seconds = best_seconds({"theirs": theirs, "ours": ours})
    if found["ours"] != found["theirs"]:
        raise AssertionError(f"both must find the same pairs, got {found}")
    return {
        "joins.kernel_unshed_over_spark_join": seconds["ours"] / seconds["theirs"],
        "joins.kernel_unshed_million_pairs_per_second": found["ours"] / seconds["ours"] / 1e6,
        "joins.spark_million_pairs_per_second": found["theirs"] / seconds["theirs"] / 1e6,
    }


def index_and_adapting() -> dict[str, float]:
    """Return the speed-up of the overlap join by an index, and the time of adaptation on a fully loaded core."""
    left, right = PaperStreams(rates=constant_rate(RATE, 40.0)).both(0)
    seconds = best_seconds(
        {
            "indexed": lambda: run_join(left, right, overlap(LASTS, True), 30, 40),
            "plain": lambda: run_join(left, right, overlap(LASTS, False), 30, 40),
        }
    )
    busy = PaperStreams(rates=constant_rate(SATURATED, 35.0)).both(0)
    full = replace(overlap(LASTS, False, budget={"core_pct": 100}))
    run_join(*busy, full, 15, 20)
    joined = run_join(*busy, full, 15, 35)
    later = joined.outcomes[1:]
    spent = sum(one.seconds for one in later)
    return {
        "joins.kernel_indexed_over_plain_speed": seconds["plain"] / seconds["indexed"],
        "joins.kernel_adaptation_overhead_pct": 100.0 * sum(one.deciding_seconds for one in later) / spent,
        "joins.kernel_core_used_of_budget_pct": 100.0 * spent / (5.0 * len(later)),
    }
