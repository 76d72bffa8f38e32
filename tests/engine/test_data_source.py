"""Spark reads a stream as a frame: shed values given back in its tasks, as far as it is asked, in parallel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from tests.pipeline.streams import SITES, World, json_lines, sites

import spillway
from spillway.engine import ProcessEngine


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("frames")
    world = World.begin(ProcessEngine(), folder, SITES)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.shed()
    world.train("sites")
    world.shed()
    world.deliver("sites/2020-01-02/b.json", json_lines(sites(330, 130)))
    world.shed()
    return world


@pytest.fixture(scope="module")
def frame(spark: Any, world: World) -> Any:
    spillway.register(spark)
    return reader(spark, world).load("sites")


def reader(spark: Any, world: World) -> Any:
    return (
        spark.read.format("spillway")
        .option("lake", world.settings.lake)
        .option("schemas", world.settings.schemas)
    )


def read(world: World, **asked: Any) -> pa.Table:
    return spillway.read(
        "sites", lake=world.settings.lake, schemas=world.settings.schemas, **asked
    ).read_all()


def plain(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: int(row["seq"]))


def test_it_is_a_frame_of_the_stream_as_it_was(frame: Any, world: World) -> None:
    whole = read(world)
    assert frame.columns == whole.column_names
    assert plain(frame.toArrow()) == whole.to_pylist()
    assert frame.where("temp__bound_pct IS NOT NULL").count() > 0


def test_no_query_is_answered_by_what_another_one_asked(spark: Any, frame: Any) -> None:
    """As Spark 4.2.0 does where filters are pushed down to a source written in Python."""
    low, middle = frame.where("seq < 10"), frame.where("seq >= 10 AND seq < 40")
    assert [low.count(), frame.count(), low.union(middle).count(), middle.union(frame).count()] == [
        10,
        460,
        40,
        490,
    ]
    assert low.join(frame, "seq").count() == 10
    frame.createOrReplaceTempView("frame")
    both = (
        "SELECT (SELECT count(*) FROM frame WHERE site = 'site-1' AND seq < 12), (SELECT count(*) FROM frame)"
    )
    assert [tuple(row) for row in spark.sql(both).collect()] == [(2, 460)]


def test_what_is_not_asked_for_is_not_even_opened(spark: Any, world: World) -> None:
    spillway.register(spark)
    (file,) = [Path(one) for one in world.files("transmitted", "sites") if "2020-01-01" in one]
    away = file.rename(file.with_suffix(".away"))
    try:
        for where, count in (
            ({"batch_date": "2020-01-02"}, 130),
            ({"seq": [330, None], "site": "site-1"}, 22),
            ({"at": ["2026-01-01T00:55:00Z", None]}, 130),
        ):
            found = reader(spark, world).option("where", json.dumps(where)).load("sites")
            assert found.count() == count
        with pytest.raises(PySparkException, match="`file` must exist and be complete"):
            reader(spark, world).load("sites").count()
    finally:
        away.rename(file)


def test_columns_are_named_by_attributes_or_by_a_schema(spark: Any, frame: Any, world: World) -> None:
    some = reader(spark, world).option("attributes", "temp").load("sites")
    assert some.columns == ["seq", "batch", "batch_date", "site", "at", "temp", "temp__bound_pct"]
    assert plain(some.toArrow()) == read(world, attributes="temp").to_pylist()
    two = reader(spark, world).schema("temp double, seq bigint").load("sites")
    assert plain(two.toArrow()) == read(world).select(["temp", "seq"]).to_pylist()


def test_what_cannot_be_meant_is_said_in_the_sentence(
    spark: Any, frame: Any, world: World, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="`stream` must have a contract, got 'site'"):
        reader(spark, world).load("site")
    with pytest.raises(PySparkException, match="`attributes` must be of the stream sites, got tmp"):
        reader(spark, world).option("attributes", "tmp").load("sites")
