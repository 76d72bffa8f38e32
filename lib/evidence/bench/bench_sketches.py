"""Sketch kernels against Apache DataSketches and rbloom, builds in Spark against Spark's own; ratios, one run.

`kernel_figures()` are the kernels', `spark_figures(spark)` those that need Spark. Contestants take turns, their order
alternates, the best of all rounds counts.
"""

from __future__ import annotations

import datetime
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from evidence.sketches.data_models import shuffled, zipf_frequencies
from evidence.sketches.stable_bloom import StableBloom, choose
from spillway.sketches.count_min import CountMin, CountMinParameters
from spillway.sketches.fast_agms import FastAgms, FastAgmsParameters
from spillway.sketches.heavy_hitters import HeavyHitters
from spillway.sketches.kll import Kll, KllParameters
from spillway.sketches.pair_count import PairCount, PairCountParameters
from spillway.sketches.query import loaded
from spillway.sketches.specification import SketchSpec
from spillway.store.files import DataFile

WIDTH, DEPTH = 2048, 5


def best_seconds(
    contestants: Mapping[str, Callable[[], object]],
    rounds: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The best of `rounds` of each contestant, the order turned around every round, after one run unmeasured."""
    for contestant in contestants.values():
        contestant()
    best = dict.fromkeys(contestants, float("inf"))
    for turn in range(rounds):
        names = list(contestants)
        for name in names if turn % 2 == 0 else reversed(names):
            begin = clock()
            contestants[name]()
            best[name] = min(best[name], clock() - begin)
    return best


def kernel_figures(keys_count: int = 5_000_000, rounds: int = 3) -> dict[str, float]:
    """Million keys a second and core of every kernel, of the peers from Python, and query latencies."""
    from datasketches import count_min_sketch
    from rbloom import Bloom

    frequencies = zipf_frequencies(keys_count, 1_000_000, 1.0, seed=1)
    keys = shuffled(frequencies, seed=2) * np.uint64(0x9E3779B97F4A7C15)
    few = keys[: keys_count // 20].view(np.int64).tolist()
    filter_ = choose(1 << 20, 0.01)
    records = keys[: keys_count // 60 * 6].reshape(-1, 6)

    def datasketches() -> None:
        sketch = count_min_sketch(DEPTH, WIDTH)
        for key in few:
            sketch.update(key)

    def rbloom() -> None:
        bloom = Bloom(len(few), 0.01)
        for key in few:
            if key not in bloom:
                bloom.add(key)

    contestants: dict[str, tuple[int, Callable[[], object]]] = {
        "cmm_kernel": (keys.size, lambda: CountMin(CountMinParameters(WIDTH, DEPTH)).update(keys)),
        "heavy_hitters": (
            keys.size,
            lambda: HeavyHitters(CountMinParameters(WIDTH, DEPTH), 0.001).update(keys),
        ),
        "fast_agms": (keys.size, lambda: FastAgms(FastAgmsParameters(WIDTH, DEPTH)).update(keys)),
        "sbf_kernel": (keys.size, lambda: StableBloom(filter_).observe(keys)),
        "quantiles": (
            len(few),
            lambda: Kll(KllParameters(1000)).update(keys[: len(few)].astype(np.float64)).narrowed(1000),
        ),
        "pair_count_records": (
            len(records),
            lambda: PairCount(PairCountParameters(6, 4, width=1000, depth=3)).update(
                records, np.arange(len(records))
            ),
        ),
        "datasketches": (len(few), datasketches),
        "rbloom": (len(few), rbloom),
    }
    # a core's seconds: every contestant is one thread, and other processes must not count
    seconds = best_seconds({name: run for name, (_, run) in contestants.items()}, rounds, time.process_time)
    found = {
        f"sketches.{name}_million_per_second": contestants[name][0] / seconds[name] / 1e6
        for name in contestants
    }
    found["sketches.cmm_kernel_over_datasketches_speed"] = (
        found["sketches.cmm_kernel_million_per_second"] / found["sketches.datasketches_million_per_second"]
    )
    found["sketches.sbf_kernel_over_rbloom_speed"] = (
        found["sketches.sbf_kernel_million_per_second"] / found["sketches.rbloom_million_per_second"]
    )
    return found | latencies(keys, rounds)


def latencies(keys: np.ndarray, rounds: int) -> dict[str, float]:
    """Milliseconds of a question to a loaded sketch, and of the exact count of one key."""
    tracked = HeavyHitters(CountMinParameters(26_214, DEPTH), 0.001)
    tracked.context = {"attributes": ["k"], "types": ["integer"], "seed": 1}
    counts = loaded(tracked)
    tracked.update(keys)
    ordered = loaded(SketchSpec("quantiles", ("k",), ("integer",), memory_kib=4096).empty())
    ordered.sketch.update((keys % np.uint64(1_000_003)).astype(np.int64)[:500_000])
    seconds = best_seconds(
        {
            "query": lambda: counts.frequency(7),
            "top_query": lambda: counts.top(10),
            "quantile_query": lambda: ordered.quantile(0.5),
            "self_join_query": lambda: counts.self_join_size(),
            "exact_scan": lambda: int((keys == keys[0]).sum()),
        },
        rounds,
    )
    return {f"sketches.{name}_ms": 1e3 * value for name, value in seconds.items()}


def spark_figures(spark: Any, rows: int = 20_000_000, rounds: int = 3) -> dict[str, float]:
    """Builds over a column of `rows` keys against Spark's own sketches and exact queries."""
    from spillway.engine.spark import SparkEngine
    from spillway.intake.repeats import pass_through
    from spillway.pipeline.sketch import build

    engine, day = SparkEngine(lambda: spark), datetime.date(2013, 1, 1)
    with tempfile.TemporaryDirectory() as folder:
        domain = rows // 20
        made = spark.range(rows).selectExpr(
            "id AS seq", "1L AS batch", f"CAST(floor(pow({domain}, rand(1))) AS bigint) AS k"
        )
        made.write.parquet(f"{folder}/keys")
        frame = spark.read.parquet(f"{folder}/keys")
        files = [_data_file(path) for path in sorted(Path(folder, "keys").glob("*.parquet"))]
        spec = SketchSpec("count_min", ("k",), ("integer",), heavy_pct=None, memory_kib=80)
        heavy = SketchSpec("count_min", ("k",), ("integer",), heavy_pct=0.1, memory_kib=80)
        filter_ = SketchSpec(
            "stable_bloom", ("k",), ("integer",), memory_kib=1024, false_positive_pct=1.0, shards=8
        )
        # Spark's width is ceil(2 / eps), its depth ceil(-log2(1 - confidence)): the same table of 2048 x 5
        spark_table = (2.0 / WIDTH, 1.0 - 2.0**-DEPTH)
        empty = loaded(spec.empty())
        seconds = best_seconds(
            {
                "cmm_build": lambda: build(engine, files, {1: day}, "keys", [spec]),
                "heavy_build": lambda: build(engine, files, {1: day}, "keys", [heavy]),
                "spark_cms": lambda: frame.selectExpr(
                    f"count_min_sketch(k, {spark_table[0]!r}D, {spark_table[1]!r}D, 1)"
                ).collect(),
                "spark_hll": lambda: frame.selectExpr("hll_sketch_agg(k)").collect(),
                "group_by": lambda: frame.groupBy("k").count().selectExpr("max(count)").collect(),
                "sbf_pass": lambda: pass_through(engine, filter_, files, (0, rows - 1)).suspects,
                "drop_duplicates": lambda: frame.dropDuplicates(["k"]).count(),
                "query": lambda: empty.frequency(7),
                "exact_query": lambda: frame.where("k = 7").count(),
            },
            rounds,
        )
    return {
        "sketches.cmm_build_over_spark_cms": seconds["cmm_build"] / seconds["spark_cms"],
        "sketches.cmm_build_over_spark_hll": seconds["cmm_build"] / seconds["spark_hll"],
        "sketches.cmm_build_over_group_by": seconds["cmm_build"] / seconds["group_by"],
        "sketches.heavy_build_over_group_by": seconds["heavy_build"] / seconds["group_by"],
        "sketches.sbf_pass_over_drop_duplicates": seconds["sbf_pass"] / seconds["drop_duplicates"],
        "sketches.query_ms": 1e3 * seconds["query"],
        "sketches.exact_query_ms": 1e3 * seconds["exact_query"],
        **{f"sketches.{name}_seconds": value for name, value in seconds.items() if "query" not in name},
    }


def _data_file(path: Path) -> DataFile:
    """A file of rows in `seq` order, known as a table knows its files."""
    statistics = pq.read_metadata(path)
    edges = [statistics.row_group(group).column(0).statistics for group in range(statistics.num_row_groups)]
    low, high = min(edge.min for edge in edges), max(edge.max for edge in edges)
    size = path.stat().st_size
    return DataFile(str(path), size, (), (("seq", low),), (("seq", high),), statistics.num_rows)
