"""Spark reads a stream as a frame: shed values given back in its tasks, filters pushed down, in parallel."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from tests.pipeline.streams import SITES, World, json_lines, sites

import spillway
from spillway.engine import InProcess


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("frames")
    world = World.begin(InProcess(), folder, SITES)
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


def test_filters_are_pushed_down_and_hold(spark: Any, frame: Any, world: World) -> None:
    noon = "at >= timestamp'2026-01-01 00:50:00Z' AND at < timestamp'2026-01-01 01:00:00Z'"
    (first, *_), last = plain(read(world, where={"batch_date": date(2020, 1, 2)})), frame.where("seq > 458")
    assert frame.where("batch_date = date'2020-01-02'").agg({"seq": "min"}).collect()[0][0] == first["seq"]
    assert [row["seq"] for row in last.collect()] == [459]
    found = [row for row in read(world).to_pylist() if 50 <= (row["at"].hour * 60 + row["at"].minute) < 60]
    assert plain(frame.where(noon).toArrow()) == found
    here = [row for row in found if row["site"] in ("site-1", "site-2")]
    assert plain(frame.where(noon).where("site IN ('site-1', 'site-2')").toArrow()) == here
    assert frame.where("seq = 1 AND seq = 2").count() == 0


def test_what_no_filter_asks_for_is_not_even_opened(frame: Any, world: World) -> None:
    (file,) = [Path(one) for one in world.files("transmitted", "sites") if "2020-01-01" in one]
    away = file.rename(file.with_suffix(".away"))
    try:
        assert frame.where("batch_date = date'2020-01-02'").count() == 130
        assert frame.where("seq >= 330 AND site = 'site-1'").count() == 22
        assert frame.where("at >= timestamp'2026-01-01 00:55:00Z'").count() == 130
        with pytest.raises(PySparkException, match="`file` must be there and whole"):
            frame.count()
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
