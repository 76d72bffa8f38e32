"""However the rows lie in files and tasks, the same synopsis, the same rows sent, the same rows given back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.streams import World

from spillway.levers.attributes.attempt import framing_of
from spillway.levers.attributes.facts import load_trained
from spillway.levers.attributes.frame_plan import Frames, Piece, pieces
from spillway.levers.attributes.plan import Shedding, given_back, sent, synopsis_of
from spillway.levers.attributes.schemes import load_runs
from spillway.pipeline.recover import recovery_plan
from spillway.store.driver_writes import arrow_schema
from spillway.store.files import RowReader
from spillway.store.rows import stream_files
from spillway.store.task_files import shaped

WHOLE_BATCHES = {"most": 10**9}
FRAME_BY_FRAME = {"most": 1}
STREAMS = pytest.mark.parametrize("stream", ["sites", "meters"])


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


def cut(world: World, stream: str, **sizes: int) -> list[Piece]:
    return [piece for batch in world.batches(stream) for piece in pieces(framing_of(batch), **sizes)]


def made(
    world: World, table: str, stream: str, cuts: Sequence[Piece], make: Callable[[Piece], Iterable[pa.Table]]
) -> list[dict[str, Any]]:
    """The pieces' rows as the table's columns, its partitions included."""
    attributes = [(a.name, a.type) for a in world.contracts.streams[stream].attributes]
    schema = arrow_schema(world.lake.contract(table, attributes))
    rows = []
    for piece in cuts:
        of = {"stream": stream, "batch_date": piece[0].framing.batch_date}
        for part in make(piece):
            rows += [row | {k: of[k] for k in of if k in row} for row in shaped(part, schema).to_pylist()]
    return rows


def shedding(world: World, stream: str) -> Shedding:
    trained = load_trained(world.settings, stream)
    assert trained is not None
    return Shedding(
        trained.cycle.attributes,
        world.contracts.streams[stream].names,
        load_runs(world.settings, stream),
        trained.models,
        Frames(
            tuple(framing_of(batch) for batch in world.batches(stream)),
            tuple(stream_files(world.settings, "raw", stream)),
        ),
    )


@STREAMS
def test_tuples_are_sent_alike_however_they_are_cut(
    world: World, torn: World, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = partial(sent, plan=shedding(torn, stream))
    for sizes, at_a_time in ((WHOLE_BATCHES, RowReader.AT_A_TIME), (FRAME_BY_FRAME, 17)):
        monkeypatch.setattr(RowReader, "AT_A_TIME", at_a_time)
        cuts = cut(torn, stream, **sizes)
        assert made(torn, "transmitted", stream, cuts, make) == world.rows("transmitted", stream)


@STREAMS
def test_values_are_given_back_alike_however_tuples_are_cut(
    world: World, torn: World, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = recovery_plan(torn.settings, torn.contracts.streams[stream])
    make = partial(given_back, plan=plan.recovery, attributes=torn.contracts.streams[stream].names)
    for sizes, at_a_time in ((WHOLE_BATCHES, RowReader.AT_A_TIME), (FRAME_BY_FRAME, 17)):
        monkeypatch.setattr(RowReader, "AT_A_TIME", at_a_time)
        cuts = cut(torn, stream, **sizes)
        assert made(torn, "recovered", stream, cuts, make) == world.rows("recovered", stream)


@STREAMS
def test_the_synopsis_is_the_same_bytes_in_one_task_and_in_many(
    world: World, torn: World, stream: str
) -> None:
    stored = [row for row in world.rows("synopsis") if row["stream"] == stream]
    make = partial(synopsis_of, plan=shedding(torn, stream))
    few, many = (cut(torn, stream, **sizes) for sizes in (WHOLE_BATCHES, FRAME_BY_FRAME))
    assert {(row["batch"], row["frame"]) for row in stored} == {
        (task.framing.batch, task.frame) for piece in many for task in piece
    }
    if stream == "sites":
        assert len(many) > len(few)
        assert any(piece[0].frame < piece[0].from_seq for piece in many), (
            "some piece must begin inside a frame"
        )

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["batch"], row["frame"], row["attribute"], row["stage"]

    for cuts in (few, many):
        assert sorted(made(torn, "synopsis", stream, cuts, make), key=place) == sorted(stored, key=place)


def test_a_frame_spans_the_batches_of_two_runs(world: World) -> None:
    first, second, other = world.batches("sites")
    assert (first.frame_origin, second.frame_origin, other.frame_origin) == (0, 0, 460)
    assert (first.last_seq, second.first_seq) == (329, 330)
    held = {(row["batch"], row["frame"]) for row in world.rows("synopsis") if row["stream"] == "sites"}
    assert {(1, 300), (2, 300), (3, 460)} <= held
    early, late = world.batches("meters")
    assert (early.frame_tuples, early.frame_origin, late.frame_origin) == (None, 0, 0)
