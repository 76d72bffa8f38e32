"""Whole commands that the benchmark times: they bring the files through, and both joins find the same pairs."""

from __future__ import annotations

from typing import Any

import pytest

from evidence.bench.bench_commands import attribute_commands, best_of, join_commands
from evidence.bench.bench_latency import latency_figures

pytestmark = pytest.mark.long  # the figures of `make evidence`, not the product


def test_best_of_some_rounds_starts_each_from_what_makes_ready() -> None:
    made = []
    took = iter([3.0, 1.0, 2.0])
    assert best_of(3, lambda: next(took), lambda: made.append("ready")) == 1.0
    assert made == ["ready"] * 3


def test_a_timed_run_takes_in_trains_sheds_sketches_and_is_asked(spark: Any) -> None:
    found = attribute_commands(spark, rows=20_000, rounds=1)
    assert set(found) == {
        "attributes.run_seconds",
        "attributes.run_over_copy",
        "attributes.run_thousand_tuples_per_second",
        "engine.idle_run_seconds",
        "sketches.ask_seconds",
    }
    assert all(value > 0 for value in found.values())


def test_a_timed_join_finds_what_spark_finds_in_the_same_files(spark: Any) -> None:
    # the figures raise where pairs differ
    found = join_commands(spark, rounds=1, rate=4.0)
    assert found["joins.run_pairs"] > 0


def test_latency_is_measured_while_files_land_and_the_process_ends_cleanly() -> None:
    found = latency_figures(files=2)
    assert 0 < found["engine.latency_transmitted_p50_s"] <= found["engine.latency_p50_s"]
    assert found["engine.latency_p50_s"] <= found["engine.latency_p95_s"]
    assert found["engine.latency_processor_s_a_file"] > 0
