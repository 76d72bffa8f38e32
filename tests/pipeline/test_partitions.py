"""However the rows lie in files and tasks, and whoever runs these: the same rows laid aside, sent, and given back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.streams import (
    METERS,
    OF_A_STREAM,
    SITES,
    World,
    csv_lines,
    json_lines,
    meters,
    sites,
)

from spillway.engine import Engine, ProcessEngine
from spillway.intake import parse as parsing
from spillway.levers.frame_slices import split_batch
from spillway.levers.protocol import FrameSlice
from spillway.store import file_writer
from spillway.store.file_writer import conform_to_schema, write_file
from spillway.store.files import RowReader
from spillway.streams import drafts
from spillway.streams import recover as recovering
from spillway.streams.certify import recover_and_certify
from spillway.streams.query import recovered_table
from spillway.streams.recover import RecoveryPlan, recovery_plans
from spillway.streams.stages import RecoverTask, SendTask, StoreAtSourceTask

WHOLE_BATCHES = {"most": 10**9}
FRAME_BY_FRAME = {"most": 1}
STREAMS = pytest.mark.parametrize("stream", ["sites", "meters"])
Cut = Sequence[tuple[FrameSlice, ...]]


@pytest.fixture(scope="module")
def torn(world: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The same tuples in three files a date, each of many row groups."""
    other = world.copy(tmp_path_factory.mktemp("torn"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_writer, "ROWS_IN_A_GROUP", 10)
        for table in (
            other.at(name, stream) for name in ("raw", "transmitted") for stream in ("sites", "meters")
        ):
            rows = table.rows().sort_by("seq")
            schema = pa.schema([one for one in table.schema if one.name != "batch_date"])
            for day in rows["batch_date"].unique().to_pylist():
                mine = rows.filter(pa.compute.equal(rows["batch_date"], day))
                third = mine.num_rows // 3 + 1
                parts = [mine.slice(low, third) for low in range(0, mine.num_rows, third)]
                partition = {"batch_date": str(day)}
                written = [write_file(table.path, partition, schema, [part]) for part in parts]
                table.publish([one for one in written if one], batch_date=day)
    assert len(other.files("raw", "sites")) == 6
    return other


def way_of(world: World, stream: str) -> RecoveryPlan:
    (way,) = recovery_plans(world.tables.now(), world.contracts.streams[stream])
    return way


def cut(world: World, stream: str, **sizes: int) -> Cut:
    return [piece for batch in world.batches(stream) for piece in split_batch(batch, **sizes)]


def made(
    world: World, table: str, stream: str, cuts: Cut, make: Callable[..., Iterable[pa.Table]]
) -> list[dict[str, Any]]:
    """The pieces' rows as the table's columns, its partitions included."""
    held = drafts.own_table(world.tables, world.contracts.streams[stream], table)
    if table == "recovered":
        held = recovered_table(world.tables, world.contracts.streams[stream])
    schema = held.contract.arrow_schema
    rows: list[dict[str, Any]] = []
    for piece in cuts:
        of = {"stream": stream, "batch_date": piece[0].batch_date}
        for part in make(piece, {}):
            rows += [
                row | {k: of[k] for k in of if k in row}
                for row in conform_to_schema(part, schema).to_pylist()
            ]
    return rows


def columns(world: World, stream: str, *more: str) -> tuple[str, ...]:
    return (*more, *world.contracts.streams[stream].names)


CUTS = pytest.mark.parametrize(
    ("sizes", "at_a_time"),
    [(WHOLE_BATCHES, RowReader.AT_A_TIME), (FRAME_BY_FRAME, 17)],
    ids=["whole", "frames"],
)


@STREAMS
@CUTS
def test_tuples_are_sent_alike_however_they_are_cut(
    world: World,
    torn: World,
    stream: str,
    sizes: dict[str, int],
    at_a_time: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RowReader, "AT_A_TIME", at_a_time)
    make = SendTask(way_of(torn, stream).down, columns(torn, stream, "scheme"))
    sent = made(torn, "transmitted", stream, cut(torn, stream, **sizes), make)
    assert sent == world.rows("transmitted", stream)


@STREAMS
@CUTS
def test_values_are_given_back_alike_however_tuples_are_cut(
    world: World,
    torn: World,
    stream: str,
    sizes: dict[str, int],
    at_a_time: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RowReader, "AT_A_TIME", at_a_time)
    recovered = recovered_table(torn.tables, torn.contracts.streams[stream])
    names = tuple(name for name in recovered.contract.names if name not in ("seq", "batch", "batch_date"))
    make = RecoverTask(way_of(torn, stream).up, names)
    given = made(torn, "recovered", stream, cut(torn, stream, **sizes), make)
    assert given == world.rows("recovered", stream)


@STREAMS
def test_the_synopsis_is_the_same_bytes_in_one_task_and_in_many(
    world: World, torn: World, stream: str
) -> None:
    stored = [row for row in world.rows("synopsis") if row["stream"] == stream]
    make = StoreAtSourceTask(way_of(torn, stream).down, 1, "synopsis")
    few, many = (cut(torn, stream, **sizes) for sizes in (WHOLE_BATCHES, FRAME_BY_FRAME))
    frames = {(part.batch, part.frame) for piece in many for part in piece}
    assert set() < {(row["batch"], row["frame"]) for row in stored} <= frames
    if stream == "sites":
        assert len(many) > len(few)
        assert any(piece[0].frame < piece[0].from_seq for piece in many), (
            "some piece must begin inside a frame"
        )

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["batch"], row["frame"], row["attribute"], row["stage"]

    for cuts in (few, many):
        found = made(torn, "synopsis", stream, cuts, make)
        assert sorted(found, key=place) == sorted(stored, key=place)


def test_a_frame_spans_the_batches_of_two_runs(world: World) -> None:
    first, second, other = world.batches("sites")
    assert (first.frame_origin, second.frame_origin, other.frame_origin) == (0, 0, 460)
    assert (first.last_seq, second.first_seq) == (329, 330)
    held = {(row["batch"], row["frame"]) for row in world.rows("synopsis") if row["stream"] == "sites"}
    assert {(1, 300), (2, 300), (3, 460)} <= held
    early, late = world.batches("meters")
    assert (early.frame_tuples, early.frame_origin, late.frame_origin) == (None, 0, 0)


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> World:
    """What two streams have delivered, one record of it bad."""
    # what crosses is counted in whole files, so by declared widths: tests cut files as the product never does
    declared = ({**contract, "width": "declared"} for contract in (SITES, METERS))
    world = World.begin(ProcessEngine(), tmp_path_factory.mktemp("landed"), *declared, capacity="30 kbps")
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.deliver("sites/2020-01-01/b.json", json_lines(sites(330, 130)) + b"nonsense\n")
    world.deliver("sites/2020-01-02/c.json", json_lines(sites(460, 250)))
    world.deliver("meters/2020-01-01/a.csv", csv_lines(meters(0, 350)))
    Path(world.settings.lake).mkdir()
    return world


def whole_way(landed: World, engine: Engine, folder: Path) -> World:
    """Taken in, trained, shed, recovered and certified."""
    world = landed.copy(folder)
    world.engine = engine
    world.shed()
    world.train("sites", "meters")
    world.shed()
    for stream, contract in world.contracts.streams.items():
        tables = world.tables.now()
        recover_and_certify(tables, engine, contract, world.batches(stream), world.said.append)
    return world


SAME_IN_ANY_TASKS = {
    "rejected",
    "synopsis",
    *(f"{table}/{stream}" for table in OF_A_STREAM for stream in ("sites", "meters")),
}
"""Other tables say how many bytes were written, and those depend on how many files there are."""


def test_spark_and_this_process_leave_the_same_tables_in_few_tasks_and_in_many(
    landed: World, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for tasks, files in (("few", 2), ("many", 8)):
        if tasks == "many":
            monkeypatch.setattr(parsing, "TASK_BYTES", 1)
            for module in (drafts, recovering):
                monkeypatch.setattr(module, "split_batch", partial(split_batch, most=1))
            monkeypatch.setattr(drafts, "MOST_ROWS", 1)
        here, there = (
            whole_way(landed, one, tmp_path / tasks / name)
            for name, one in (("here", ProcessEngine()), ("there", engine))
        )
        assert len(here.files("transmitted", "sites")) == len(there.files("transmitted", "sites")) == files
        mine, other = (world.everything("sites", "meters") for world in (here, there))
        for table, rows in mine.items():
            assert rows, table
            assert other[table] == rows, table
        found.append({table: rows for table, rows in mine.items() if table in SAME_IN_ANY_TASKS})
    few, many = found
    assert few == many
