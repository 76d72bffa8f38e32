"""However the rows lie in files and tasks, the same synopsis, the same rows sent, the same rows given back."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import pytest
from tests.steps.streams import World

from spillway.attributes.plan import frame_tasks, recovered, synopsis, transmitted
from spillway.attributes.ride_plan import Frames
from spillway.steps.attempt import framing_of
from spillway.steps.recover import recovery_plan
from spillway.steps.rows import stream_files
from spillway.steps.schemes import load_runs
from spillway.steps.trained import load_trained

ONE_TASK_A_FILE: dict[str, str] = {}
TORN = {
    "spark.sql.files.maxPartitionBytes": "3000",
    "spark.sql.files.openCostInBytes": "1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "17",
}
"""Splits of a few row groups each, so that tasks begin and end inside frames; tiny Arrow batches."""


@pytest.fixture(scope="module")
def torn(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The same tuples in three files a date, each of many row groups."""
    hadoop = world.lake.spark.sparkContext._jsc.hadoopConfiguration()
    other = world.copy(tmp_path_factory.mktemp("torn"))
    hadoop.set("parquet.block.size", "1")  # a row group ends at the first check, after 10 rows
    hadoop.set("parquet.block.size.row.check.min", "10")
    hadoop.set("parquet.block.size.row.check.max", "10")
    hadoop.set("parquet.page.size.row.check.min", "10")
    try:
        for table in ("raw", "transmitted"):
            for stream in ("sites", "meters"):
                rows = world.lake.read(table, stream).repartitionByRange(3, "batch_date", "seq")
                path = other.lake.path(table, stream)
                rows.sortWithinPartitions("seq").write.format("delta").mode("overwrite").save(path)
        yield other
    finally:
        for name in (
            "block.size",
            "block.size.row.check.min",
            "block.size.row.check.max",
            "page.size.row.check.min",
        ):
            hadoop.unset(f"parquet.{name}")


def collected(frame: Any, conf: dict[str, str]) -> list[dict[str, Any]]:
    """The rows in `seq` order, computed under other settings, and the tasks that had any of them."""
    from pyspark.sql import functions as sql

    spark = frame.sparkSession
    before = {key: spark.conf.get(key, None) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        marked = frame.withColumn("__task", sql.spark_partition_id()).toArrow().to_pylist()
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
    return sorted(marked, key=lambda row: row["seq"])


def without_tasks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "__task"} for row in rows]


@pytest.mark.parametrize("stream", ["sites", "meters"])
def test_tuples_are_sent_alike_however_they_are_split(world: World, torn: World, stream: str) -> None:
    framings = tuple(framing_of(batch) for batch in torn.batches(stream))
    trained = load_trained(torn.settings, stream)
    assert trained is not None
    frames = Frames(framings, tuple(stream_files(torn.settings, "raw", stream)))
    sent = transmitted(
        torn.lake.read("raw", stream),
        frames,
        load_runs(torn.settings, stream),
        trained.models,
        trained.cycle.attributes,
        torn.contracts.streams[stream].names,
    )
    rows = collected(sent, TORN)
    assert len({row["__task"] for row in rows}) > 6, "files must be split for this to mean anything"
    assert without_tasks(rows) == world.rows("transmitted", stream)
    assert without_tasks(collected(sent.coalesce(1), ONE_TASK_A_FILE)) == world.rows("transmitted", stream)


@pytest.mark.parametrize("stream", ["sites", "meters"])
def test_values_are_given_back_alike_however_tuples_are_split(world: World, torn: World, stream: str) -> None:
    plan = recovery_plan(torn.settings, torn.contracts.streams[stream])
    names = torn.contracts.streams[stream].names
    given = recovered(torn.lake.read("transmitted", stream), plan.recovery, names)
    rows = collected(given, TORN)
    tasks = {row["__task"] for row in rows}
    assert len(tasks) > 6
    frames = {(row["seq"] // 100, row["batch_date"]) for row in rows}
    shared = [
        f for f in frames if len({r["__task"] for r in rows if (r["seq"] // 100, r["batch_date"]) == f}) > 1
    ]
    assert shared, "some task must begin inside a frame"
    assert without_tasks(rows) == world.rows("recovered", stream)
    assert without_tasks(collected(given.coalesce(1), ONE_TASK_A_FILE)) == world.rows("recovered", stream)


@pytest.mark.parametrize("stream", ["sites", "meters"])
def test_the_synopsis_is_the_same_bytes_in_one_task_and_in_many(
    world: World, torn: World, stream: str
) -> None:
    tasks = [
        task
        for b in torn.batches(stream)
        for task in frame_tasks(
            b.batch, b.batch_date, b.first_seq, b.last_seq, b.frame_origin or 0, b.frame_tuples
        )
    ]
    trained = load_trained(torn.settings, stream)
    assert trained is not None
    blocks = synopsis(
        torn.lake.spark,
        stream,
        tasks,
        stream_files(torn.settings, "raw", stream),
        trained.cycle.attributes,
        load_runs(torn.settings, stream),
        trained.models,
    )
    stored = [row for row in world.rows("synopsis") if row["stream"] == stream]
    assert len({(row["batch"], row["frame"]) for row in stored}) == len(tasks)
    place = itemgetter("batch", "frame", "attribute", "stage")
    for frame in (blocks, blocks.coalesce(1)):
        assert sorted(frame.toArrow().to_pylist(), key=place) == sorted(stored, key=place)


def test_a_frame_spans_the_batches_of_two_runs(world: World) -> None:
    first, second, other = world.batches("sites")
    assert (first.frame_origin, second.frame_origin, other.frame_origin) == (0, 0, 460)
    assert (first.last_seq, second.first_seq) == (329, 330)
    held = {(row["batch"], row["frame"]) for row in world.rows("synopsis") if row["stream"] == "sites"}
    assert {(1, 300), (2, 300), (3, 460)} <= held
    early, late = world.batches("meters")
    assert (early.frame_tuples, early.frame_origin, late.frame_origin) == (None, 0, 0)
