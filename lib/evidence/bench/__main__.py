"""Run `make bench`: print every benchmark and write `build/bench.json`."""

from __future__ import annotations

import argparse
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

from spillway.engine.spark import spark_session
from spillway.settings import Settings

PACKAGES = ("pyspark", "numpy", "numba", "pyarrow", "deltalake", "datasketches", "rbloom")


def bench() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        choices=[
            "attributes",
            "commands",
            "encoding",
            "engine",
            "joins",
            "quality",
            "reads",
            "sifters",
            "sketches",
        ],
        help="only these; commands: what a user waits for, from contract and files to the result; reads: what each "
        "step reads, and a run with nothing to do for 300 streams",
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="tuples of the attribute benchmark")
    parser.add_argument("--most-rows", type=int, default=30_000_000, help="tuples of its longest run")
    parser.add_argument("--run-rows", type=int, default=1_000_000, help="tuples of the timed `spillway run`")
    parser.add_argument("--entries", type=int, default=100_000_000, help="entries of the look-up benchmark")
    parser.add_argument("--sifted-rows", type=int, default=20_000_000, help="rows of the sifters' pass")
    parser.add_argument("--streams", type=int, default=60, help="streams of the training benchmark")
    asked = parser.parse_args()
    out = Path(Settings.from_environment().build, "bench.json")
    # one part is measured again: what an earlier run left of the others stays
    kept = asked.only is not None and out.exists()
    figures: dict[str, object] = json.loads(out.read_text()) if kept else {}
    if asked.only in (None, "attributes"):
        from evidence.bench import bench_attributes

        figures |= bench_attributes.attribute_bench(asked.rows, asked.most_rows, asked.entries)
    if asked.only in (None, "commands"):
        from evidence.bench import bench_commands

        figures |= bench_commands.command_figures(spark_session("bench commands"), asked.run_rows)
    if asked.only in (None, "encoding"):
        from evidence.bench import bench_encoding

        figures |= bench_encoding.encoding_bench(Settings.from_environment().home)
    if asked.only in (None, "engine"):
        from evidence.bench import bench_engine, bench_latency

        figures |= bench_engine.engine_bench(asked.streams)
        figures |= bench_latency.latency_figures()
    if asked.only in (None, "joins"):
        from evidence.bench import bench_joins

        figures |= bench_joins.join_bench(spark_session("bench joins"))
    if asked.only in (None, "quality"):
        from evidence.bench import bench_quality

        figures |= bench_quality.quality_bench(spark_session("bench quality"))
    if asked.only in (None, "reads"):
        from evidence.bench import bench_reads, many_streams

        figures |= bench_reads.read_figures()
        figures |= many_streams.many_streams()
    if asked.only in (None, "sifters"):
        from evidence.bench import bench_sifters

        figures |= bench_sifters.user_timings()
        figures |= bench_sifters.sifter_kernels()
        figures |= bench_sifters.sifter_pass(asked.sifted_rows)
    if asked.only in (None, "sketches"):
        from evidence.bench import bench_sketches, bench_year

        figures |= bench_sketches.kernel_figures()
        figures |= bench_sketches.spark_figures(spark_session("bench sketches"))
        figures |= bench_year.year_of_sketches()
    figures |= {f"version.{name}": version(name) for name in PACKAGES}
    figures |= {"machine.cores": os.cpu_count() or 0, "machine.platform": platform.platform()}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")
    width = max(map(len, figures))
    for name, value in sorted(figures.items()):
        print(f"{name:{width}}  {value:.4g}" if isinstance(value, float) else f"{name:{width}}  {value}")
    print(f"written to {out}")


if __name__ == "__main__":
    bench()
