"""Compare sketch kernels with Apache DataSketches and rbloom, and builds in Spark with Spark's own, in one run.

`kernel_figures()` measures the kernels, `spark_figures(spark)` the builds in Spark. Contestants alternate; the best of
all rounds counts.
"""

from __future__ import annotations

import datetime
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evidence.sketches.data_models import shuffled_stream, zipf_frequencies
from evidence.sketches.repeats import batch_of, stream_of
from evidence.sketches.stable_bloom import StableBloom, choose
from evidence.timing import best_seconds
from spillway.engine.protocol import run_alone
from spillway.intake.dedupe import filter_spec, find_repeats
from spillway.sketches.alternating_bloom import AlternatingBloom, parameters_of_memory
from spillway.sketches.count_min import CountMin, CountMinParameters
from spillway.sketches.fast_agms import FastAgms, FastAgmsParameters
from spillway.sketches.heavy_hitters import HeavyHitters
from spillway.sketches.kll import Kll, KllParameters
from spillway.sketches.pair_count import PairCount, PairCountParameters
from spillway.sketches.query import read_sketch, wrap_sketch
from spillway.sketches.specification import SketchSpec
from spillway.store.file_writer import write_file
from spillway.store.files import DataFile, rows_of

WIDTH, DEPTH = 2048, 5


def kernel_figures(keys_count: int = 5_000_000, rounds: int = 3) -> dict[str, float]:
    """Return million keys a second and core of every kernel and of the peers from Python, and latencies of queries.

    These are not user times: `sketches.ask_seconds` (`bench_commands`), `sketches.query_ms` (`bench_year`) and the
    builds from files below are what users wait for.
    """
    from datasketches import count_min_sketch, frequent_items_sketch, hll_sketch, kll_doubles_sketch
    from rbloom import Bloom

    frequencies = zipf_frequencies(keys_count, 1_000_000, 1.0, seed=1)
    keys = shuffled_stream(frequencies, seed=2) * np.uint64(0x9E3779B97F4A7C15)
    few = keys[: keys_count // 20].view(np.int64).tolist()
    ordered = keys.astype(np.float64)
    filter_, large = choose(1 << 20, 0.01), choose(1 << 28, 0.01)
    turns, large_turns = parameters_of_memory(1 << 20, 0.01), parameters_of_memory(1 << 28, 0.01)
    records = keys[: keys_count // 60 * 6].reshape(-1, 6)

    def datasketches() -> None:
        sketch = count_min_sketch(DEPTH, WIDTH)
        for key in few:
            sketch.update(key)

    def frequent_items() -> None:
        sketch = frequent_items_sketch(11)
        for key in few:
            sketch.update(key)

    def library_hll() -> None:
        sketch = hll_sketch(12)
        for key in few:
            sketch.update(key)

    def empty_loop() -> None:
        for _ in few:
            pass

    def rbloom() -> None:
        bloom = Bloom(len(few), 0.01)
        for key in few:
            if key not in bloom:
                bloom.add(key)

    contestants: dict[str, tuple[int, Callable[[], object]]] = {
        "kernel_cmm": (keys.size, lambda: CountMin(CountMinParameters(WIDTH, DEPTH)).update(keys)),
        "kernel_heavy_hitters": (
            keys.size,
            lambda: HeavyHitters(CountMinParameters(WIDTH, DEPTH), 0.001).update(keys),
        ),
        "kernel_fast_agms": (keys.size, lambda: FastAgms(FastAgmsParameters(WIDTH, DEPTH)).update(keys)),
        "kernel_sbf": (keys.size, lambda: StableBloom(filter_).observe(keys)),
        "kernel_sbf_32mib": (keys.size, lambda: StableBloom(large).observe(keys)),
        "kernel_turns": (keys.size, lambda: AlternatingBloom(turns).observe(keys)),
        "kernel_turns_32mib": (keys.size, lambda: AlternatingBloom(large_turns).observe(keys)),
        # the library takes whole arrays here alone; its count-min, frequent items and HLL take keys one by one
        "kernel_quantiles": (keys.size, lambda: Kll(KllParameters(1000)).update(ordered).compacted_to(1000)),
        "datasketches_kll": (keys.size, lambda: kll_doubles_sketch(1000).update(ordered)),
        "datasketches_frequent_items": (len(few), frequent_items),
        "datasketches_hll": (len(few), library_hll),
        "python_loop": (len(few), empty_loop),
        "kernel_pair_count_records": (
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
    # the peers' loops are Python's, key by key: this is what Python users of them get, not what their C++ can do
    found["sketches.kernel_cmm_over_datasketches_from_python_speed"] = (
        found["sketches.kernel_cmm_million_per_second"] / found["sketches.datasketches_million_per_second"]
    )
    found["sketches.kernel_quantiles_over_datasketches_kll_speed"] = (
        found["sketches.kernel_quantiles_million_per_second"]
        / found["sketches.datasketches_kll_million_per_second"]
    )
    found["sketches.kernel_turns_over_kernel_sbf_speed"] = (
        found["sketches.kernel_turns_million_per_second"] / found["sketches.kernel_sbf_million_per_second"]
    )
    found["sketches.kernel_sbf_over_rbloom_from_python_speed"] = (
        found["sketches.kernel_sbf_million_per_second"] / found["sketches.rbloom_million_per_second"]
    )
    return found | latencies(keys, rounds)


def latencies(keys: np.ndarray, rounds: int) -> dict[str, float]:
    """Return the milliseconds of a query to a filled sketch: cold from its bytes, and warm; and of the exact count."""
    found: dict[str, float] = {}
    for name, memory in (("", 64), ("_1mib", 1024)):
        spec = SketchSpec("count_min", ("k",), ("integer",), memory_kib=memory)
        tracked: Any = spec.empty()
        tracked.update(keys)
        payload, counts = tracked.to_bytes(), wrap_sketch(tracked)
        questions: dict[str, Callable[[], object]] = {
            "cold": partial(_ask_bytes, payload),
            "warm": partial(counts.frequency, 7),
        }
        seconds = best_seconds(questions, rounds)
        found |= {
            f"sketches.kernel_query_ms_filled_{how}{name}": 1e3 * value for how, value in seconds.items()
        }
    ordered = wrap_sketch(SketchSpec("quantiles", ("k",), ("integer",), memory_kib=4096).empty())
    ordered.sketch.update((keys % np.uint64(1_000_003)).astype(np.int64)[:500_000])
    seconds = best_seconds(
        {
            "kernel_top_query": lambda: counts.top(10),
            "kernel_quantile_query": lambda: ordered.quantile(0.5),
            "kernel_self_join_query": lambda: counts.self_join_size(),
            "kernel_exact_scan": lambda: int((keys == keys[0]).sum()),
        },
        rounds,
    )
    return found | {f"sketches.{name}_ms": 1e3 * value for name, value in seconds.items()}


def _ask_bytes(payload: bytes) -> object:
    return wrap_sketch(read_sketch(payload)).frequency(7)


def spark_figures(spark: Any, rows: int = 20_000_000, rounds: int = 3) -> dict[str, float]:
    """Compare builds over a column of `rows` keys with Spark's own sketches and exact queries."""
    from spillway.engine.spark import SparkEngine
    from spillway.streams.sketch_builder import build_sketch_rows

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
        ordered = SketchSpec("quantiles", ("k",), ("integer",))
        different = SketchSpec("distinct", ("k",), ("integer",))
        # Spark's width is ceil(2 / eps), its depth ceil(-log2(1 - confidence)): the same table of 2048 x 5
        spark_table = (2.0 / WIDTH, 1.0 - 2.0**-DEPTH)
        seconds = best_seconds(
            {
                "cmm_build": lambda: run_alone(engine, build_sketch_rows(files, {1: day}, "keys", [spec])),
                "heavy_build": lambda: run_alone(engine, build_sketch_rows(files, {1: day}, "keys", [heavy])),
                "quantiles_build": lambda: run_alone(
                    engine, build_sketch_rows(files, {1: day}, "keys", [ordered])
                ),
                "distinct_build": lambda: run_alone(
                    engine, build_sketch_rows(files, {1: day}, "keys", [different])
                ),
                "spark_cms": lambda: frame.selectExpr(
                    f"count_min_sketch(k, {spark_table[0]!r}D, {spark_table[1]!r}D, 1)"
                ).collect(),
                "spark_hll": lambda: frame.selectExpr("hll_sketch_agg(k)").collect(),
                "spark_kll": lambda: frame.selectExpr("kll_sketch_agg_bigint(k)").collect(),
                # bloom_filter_agg, by the way that Spark lets people call it
                "spark_bloom": lambda: frame._jdf.stat().bloomFilter("k", domain, 0.01),
                "group_by": lambda: frame.groupBy("k").count().selectExpr("max(count)").collect(),
                "exact_query": lambda: frame.where("k = 7").count(),
            },
            rounds,
        )
    return {
        "sketches.cmm_build_over_spark_cms": seconds["cmm_build"] / seconds["spark_cms"],
        "sketches.cmm_build_over_spark_hll": seconds["cmm_build"] / seconds["spark_hll"],
        "sketches.cmm_build_over_spark_bloom_filter": seconds["cmm_build"] / seconds["spark_bloom"],
        "sketches.quantiles_build_over_spark_kll": seconds["quantiles_build"] / seconds["spark_kll"],
        "sketches.distinct_build_over_spark_hll": seconds["distinct_build"] / seconds["spark_hll"],
        "sketches.cmm_build_over_group_by": seconds["cmm_build"] / seconds["group_by"],
        "sketches.heavy_build_over_group_by": seconds["heavy_build"] / seconds["group_by"],
        "sketches.exact_query_ms": 1e3 * seconds["exact_query"],
        **{f"sketches.{name}_seconds": value for name, value in seconds.items() if "query" not in name},
        **repeats_figures(spark, engine, rows // 2, rounds),
    }


def repeats_figures(spark: Any, engine: Any, rows: int, rounds: int = 3) -> dict[str, float]:
    """Compare the deduplication of intake with `dropDuplicates`; one row in a hundred is a repeat.

    Ours finds suspects, looks them up, and writes the kept and the removed rows; `dropDuplicates` writes the kept rows.
    Rows have a key and two more columns. The window is a million rows, which is all that ours remembers; the batch is
    ten times as long.
    """
    window = 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        again = f"id % 100 = 99 AND id > {window}"
        key = f"xxhash64(CASE WHEN {again} THEN id - 1 - id % {window // 2} ELSE id END)"
        made = spark.range(rows).selectExpr("id AS seq", "1L AS batch", f"{key} AS k", "id AS at")
        made.write.parquet(f"{folder}/keys")
        frame = spark.read.parquet(f"{folder}/keys")
        files = [_data_file(path) for path in sorted(Path(folder, "keys").glob("*.parquet"))]
        contract, batch = stream_of("filter", window), batch_of(1, 0, rows - 1)
        found: dict[str, int] = {}

        def ours() -> None:
            one = find_repeats(engine, contract, batch, files, [])
            found["ours"] = len(one.rows)
            engine.map(partial(_without, f"{folder}/left", one.rows), files)

        def theirs() -> None:
            frame.dropDuplicates(["k"]).write.mode("overwrite").parquet(f"{folder}/theirs")

        def only_found() -> None:
            frame.dropDuplicates(["k"]).count()

        seconds = best_seconds({"ours": ours, "theirs": theirs, "count": only_found}, rounds)
        stayed = spark.read.parquet(f"{folder}/theirs").count()
    return {
        "sketches.repeats_pass_over_drop_duplicates": seconds["ours"] / seconds["theirs"],
        "sketches.repeats_pass_over_drop_duplicates_counted": seconds["ours"] / seconds["count"],
        "sketches.repeats_pass_seconds": seconds["ours"],
        "sketches.drop_duplicates_seconds": seconds["theirs"],
        "sketches.repeats_pass_found": float(found["ours"]),
        "sketches.drop_duplicates_dropped": float(rows - stayed),
        "sketches.repeats_filter_kib": filter_spec(contract).empty().parameters.memory_bits / 8192,  # type: ignore[attr-defined]
    }


def _without(folder: str, seqs: np.ndarray, file: DataFile) -> None:
    """Rewrite a file as two, as intake does when it removes repeats."""
    schema = pq.read_schema(file.path)

    def rows(repeated: bool) -> Iterator[pa.Table]:
        for part in rows_of(file, schema.names, 131_072):
            hit = np.isin(np.asarray(part["seq"]), seqs)
            yield part.filter(pa.array(hit if repeated else ~hit))

    for repeated in (False, True):
        write_file(folder, {}, schema, rows(repeated))


def _data_file(path: Path) -> DataFile:
    """Return a file of rows in the order of `seq`, with the statistics that a table has of it."""
    statistics = pq.read_metadata(path)
    edges = [statistics.row_group(group).column(0).statistics for group in range(statistics.num_row_groups)]
    low, high = min(edge.min for edge in edges), max(edge.max for edge in edges)
    size = path.stat().st_size
    return DataFile(str(path), size, (), (("seq", low),), (("seq", high),), statistics.num_rows)
