"""Reading with shed values given back on the fly is reading `recovered`, wherever and however it is done."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from tests.pipeline.streams import SITES, World, day, json_lines, sites

import spillway
from spillway.batch import RETIRED
from spillway.engine import ProcessEngine
from spillway.errors import ContractError, InvalidValue, SpillwayError, UsageError
from spillway.report.explain import explain
from spillway.store.batches import save_batches
from spillway.store.files import RowReader
from spillway.store.tables import Tables
from spillway.streams import query as query_module
from spillway.streams.query import StreamQuery, plan_query, readable_schema
from spillway.streams.reader import Streams
from spillway.streams.recover import look_up

AT = datetime(2026, 1, 1, 1, 10, tzinfo=UTC)


def read(world: World, stream: str, **asked: Any) -> pa.Table:
    roots = {name: getattr(world.settings, name) for name in ("lake", "destination", "schemas")}
    return spillway.read(stream, **roots, **asked).read_all()


def recovered(world: World, stream: str, keep: Callable[[dict[str, Any]], bool] = lambda _: True) -> pa.Table:
    """What the table `recovered` has, in the columns and the order that a stream is read in."""
    rows = world.at("recovered", stream).rows().sort_by("seq")
    names = readable_schema(world.tables.now(), world.contracts.streams[stream]).names
    mask = pa.array([keep(row) for row in rows.to_pylist()], pa.bool_())
    return rows.select(names).filter(mask)


@pytest.mark.parametrize("stream", ["sites", "meters", "watched"])
def test_a_stream_reads_as_the_table_recovered_of_it(world: World, stream: str) -> None:
    found = read(world, stream)
    assert found.equals(recovered(world, stream))
    assert "scheme" not in found.column_names


CONDITIONS: list[tuple[dict[str, Any], Callable[[dict[str, Any]], bool]]] = [
    ({"site": "site-2"}, lambda row: row["site"] == "site-2"),
    ({"site": ["site-2", "site-4"]}, lambda row: row["site"] in ("site-2", "site-4")),
    ({"seq": (95, 205)}, lambda row: 95 <= row["seq"] <= 205),
    ({"seq": 333}, lambda row: row["seq"] == 333),
    ({"at": AT}, lambda row: row["at"] == AT),
    ({"at": ("2026-01-01T01:10", None)}, lambda row: row["at"] >= AT),
    ({"at": (None, "2026-01-01T06:10+05:00"), "site": "site-0"}, lambda r: r["at"] <= AT and r["site"] == "site-0"),
    ({"batch_date": "2020-01-02"}, lambda row: row["batch_date"] == day(1)),
    ({"batch_date": (None, day(0)), "seq": (300, None)}, lambda r: r["batch_date"] == day(0) and r["seq"] >= 300),
    ({"at": ("2026-01-01T01:10", None), "batch_date": day(0)}, lambda r: r["at"] >= AT and r["batch_date"] == day(0)),
    ({"site": "nowhere"}, lambda _: False),
]  # fmt: skip


@pytest.mark.parametrize(("where", "keep"), CONDITIONS, ids=[str(where) for where, _ in CONDITIONS])
def test_conditions_leave_the_rows_that_meet_them(
    world: World, where: dict[str, Any], keep: Callable[[dict[str, Any]], bool]
) -> None:
    assert read(world, "sites", where=where).equals(recovered(world, "sites", keep))


@pytest.mark.parametrize("most", [1, 37, 100, 10_000])
@pytest.mark.parametrize("stream", ["sites", "meters"])
def test_stretches_of_any_size_that_travel_give_the_same_rows(world: World, stream: str, most: int) -> None:
    contract = world.contracts.streams[stream]
    asked = plan_query(world.tables.now(), contract, StreamQuery(), most=most)
    travelled = [pickle.loads(pickle.dumps(stretch)) for stretch in asked.stretches]
    assert pa.concat_tables([part for one in travelled for part in one.rows({})]).equals(
        recovered(world, stream)
    )
    if most == 100 and stream == "sites":
        assert [stretch.tuples for stretch in asked.stretches] == [100, 100, 100, 100, 60, 100, 100, 50]


def test_some_attributes_come_with_what_tells_tuples_apart_and_their_bounds(world: World) -> None:
    names = ["seq", "batch", "batch_date", "site", "at", "temp", "sky", "temp__bound_pct", "sky__bound_pct"]
    for attributes in ("temp,sky", ["temp", "sky"]):
        found = read(world, "sites", attributes=attributes)
        assert found.equals(recovered(world, "sites").select(names))


def test_only_files_and_frames_that_may_hold_what_is_asked_are_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract, tables = world.contracts.streams["sites"], world.tables.now()

    def frames(**asked: Any) -> int:
        counts: dict[str, int] = {}
        list(plan_query(tables, contract, StreamQuery.where(contract, asked)).rows(counts))
        return counts.get("frames", 0)

    assert frames() == 9
    assert frames(seq=(95, 205)) == 3
    assert frames(batch_date=day(1)) == 3
    assert frames(at=AT) == 1
    assert frames(at=(AT, None), seq=(0, 425)) == 1
    assert frames(at="2031-01-01") == 0

    opened: list[str] = []
    monkeypatch.setattr(RowReader, "__call__", _noting(opened, RowReader.__call__))
    list(plan_query(tables, contract, StreamQuery.where(contract, {"batch_date": day(1)})).rows({}))
    assert opened
    assert all("batch_date=2020-01-02" in path for path in opened)


def _noting(opened: list[str], read: Any) -> Any:
    def noting(self: RowReader, *asked: Any) -> pa.Table:
        opened.extend(file.path for file in self.files)
        return read(self, *asked)

    return noting


def test_memory_is_that_of_some_rows_however_many_are_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_module, "AT_A_TIME", 64)
    monkeypatch.setattr(query_module.split_slices, "__defaults__", (64,))
    contract = world.contracts.streams["sites"]
    parts = list(plan_query(world.tables.now(), contract, StreamQuery()).rows({}))
    assert max(part.num_rows for part in parts) < 64 + 32
    assert pa.concat_tables(parts).equals(recovered(world, "sites"))


def test_pandas_polars_and_duckdb_read_it_as_it_is(world: World) -> None:
    roots = {name: getattr(world.settings, name) for name in ("lake", "schemas")}
    given = recovered(world, "sites")
    assert spillway.read("sites", **roots).read_pandas().equals(given.to_pandas())
    assert (
        polars.from_arrow(spillway.read("sites", **roots)).to_arrow()["temp"].to_pylist()
        == given["temp"].to_pylist()
    )
    stream = spillway.read("sites", **roots)  # noqa: F841 - DuckDB finds it by its name
    ((mean, count),) = duckdb.sql("SELECT avg(temp), count(*) FROM stream").fetchall()
    assert (round(mean, 9), count) == (round(given.to_pandas()["temp"].mean(), 9), given.num_rows)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            {"where": {"temp": 3}},
            "`where` must be about site, at, seq, batch_date, got 'temp'; filter what is read",
        ),
        (
            {"where": {"sit": 3}},
            "`where` must be about site, at, seq, batch_date, got 'sit'; did you mean site?",
        ),
        ({"where": {"at": "noon"}}, "`at` must be an ISO date or time, got 'noon'"),
        ({"where": {"seq": (9, 5)}}, "the seq range must not end before it begins, got 9..5"),
        (
            {"where": {"seq": [1, 2, 3]}},
            "`seq` must be a value or a pair, the ends of a range, got [1, 2, 3]",
        ),
        ({"where": {"seq": "one"}}, "`seq` must be a whole number, got 'one'"),
        ({"attributes": "tmp"}, "`attributes` must be of the stream sites, got tmp"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(world: World, asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as problem:
        read(world, "sites", **asked)
    assert sentence in str(problem.value)
    with pytest.raises(InvalidValue, match="`stream` must have a contract, got 'site'"):
        read(world, "site")


def test_a_contract_that_does_not_parse_keeps_no_other_stream_from_being_read_and_explained(
    world: World, tmp_path: Path
) -> None:
    settings = replace(world.settings, schemas=str(tmp_path / "schemas"))
    shutil.copytree(world.settings.schemas, settings.schemas)
    (tmp_path / "schemas" / "streams" / "gauges.yaml").write_text("stream: `gauges\n")
    roots = {name: getattr(settings, name) for name in ("lake", "destination", "schemas")}
    assert spillway.read("sites", **roots).read_all().equals(recovered(world, "sites"))
    assert "temp" in Streams(settings).schema({"path": "sites"}).names
    assert explain(Tables(settings), "sites", "temp").attribute == "temp"
    with pytest.raises(ContractError, match=r"gauges\.yaml:1: `the file` must be YAML"):
        spillway.read("gauges", **roots)
    with pytest.raises(ContractError, match=r"gauges\.yaml:1: `the file` must be YAML"):
        explain(Tables(settings), "gauges", "temp")


def test_what_load_and_its_options_cannot_mean_is_refused_by_name(world: World) -> None:
    source = Streams(world.settings)
    with pytest.raises(
        UsageError, match="`option` must be one of attributes, destination, lake, schemas, where, got 'wher'"
    ):
        source.schema({"path": "sites", "wher": "x"})
    with pytest.raises(UsageError, match="`load` must name a stream, got nothing"):
        source.schema({})


def test_options_of_a_frame_ask_as_read_does(world: World) -> None:
    source, names = Streams(world.settings), ["seq", "temp"]

    def seqs(where: str, **more: str) -> list[int]:
        found = source.cuts({"path": "sites", "where": where, **more}, names)
        return [seq for cut in found for table in cut.tables() for seq in table["seq"].to_pylist()]

    assert seqs('{"seq": [10, 12]}') == [10, 11, 12]
    assert seqs('{"site": ["site-1", "site-2"], "seq": [null, 12]}') == [1, 2, 7, 8]
    assert seqs('{"at": "2026-01-01T06:10+05:00"}', lake=world.settings.lake) == list(range(420, 426))
    assert len(source.cuts({"path": "sites"}, names)) == 1
    for told in ("site = 'site-1'", "[1]"):
        with pytest.raises(
            UsageError, match="`where` must be a JSON object of columns and their values, got"
        ):
            source.schema({"path": "sites", "where": told})


def test_raw_that_was_retired_is_read_all_the_same(world: World, tmp_path: Path) -> None:
    aged = world.copy(tmp_path)
    before = read(aged, "sites")
    save_batches(aged.tables.now(), [replace(batch, status=RETIRED) for batch in aged.batches("sites")])
    aged.at("raw", "sites").delete(batch=[1, 2, 3])
    assert aged.rows("raw", "sites") == []
    assert read(aged, "sites").equals(before)


def brought_across(folder: Path, **lever: Any) -> World:
    contract = {**SITES, "levers": [{"lever": "attributes", "training": {"tuples": 240}, **lever}]}
    there = {"SPILLWAY_DESTINATION": str(folder / "there")}
    world = World.begin(ProcessEngine(), folder, contract, capacity="3 kbps", **there)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.shed()
    world.train("sites")
    world.shed()
    return world


def test_at_a_destination_elsewhere_it_is_read_without_the_source_and_what_is_held_is_told_from_what_was_null(
    tmp_path: Path,
) -> None:
    world = brought_across(tmp_path, synopsis="hold", treatments=["keep", "shed"])
    here = read(world, "sites")
    (tmp_path / "lake").rename(tmp_path / "away")
    there = spillway.read(
        "sites",
        lake=str(tmp_path / "none"),
        destination=world.settings.destination,
        schemas=world.settings.schemas,
    ).read_all()
    assert there["seq"].to_pylist() == here["seq"].to_pylist() == list(range(330))
    for name in ("temp", "level", "pulses", "sky"):
        truth = [row[name] for row in sites(0, 330)]
        given, bounds = (here[column].to_pylist() for column in (name, name + "__bound_pct"))
        absent, told = (there[column].to_pylist() for column in (name, name + "__bound_pct"))
        shed = [bound is not None for bound in bounds]
        # shed and given back, a null among it: within a finite bound; missing at the source: no bound, as it crossed
        assert all(bound is None or bound < float("inf") for bound in bounds)
        assert [value is None for value in given] == [value is None for value in truth]
        # lost to the destination: infinite, and never mistaken for a null that was delivered
        assert [bound == float("inf") for bound in told] == shed
        assert all(value is None for value, gone in zip(absent, shed, strict=True) if gone)
        assert [v for v, gone in zip(absent, shed, strict=True) if not gone] == [
            v for v, gone in zip(given, shed, strict=True) if not gone
        ]
    assert any(bound is not None for bound in here["temp__bound_pct"].to_pylist())


def test_a_stream_of_which_nothing_was_shed_is_empty_with_all_its_columns(tmp_path: Path) -> None:
    world = World.begin(ProcessEngine(), tmp_path, SITES)
    found = read(world, "sites")
    assert found.num_rows == 0
    assert found.column_names[:5] == ["seq", "batch", "batch_date", "site", "at"]
    assert "temp__bound_pct" in found.column_names
    with pytest.raises(
        SpillwayError, match="the range must hold transmitted tuples, got none for the stream"
    ):
        look_up(world.tables, world.contracts.streams["sites"], StreamQuery())


def test_a_look_up_reads_batches_of_the_dates_alone_that_may_hold_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[int] = []
    load = query_module.load_batches

    def noting(tables: Tables, stream: str, **where: Any) -> Any:
        found = load(tables, stream, **where)
        loaded.extend(batch.batch for batch in found)
        return found

    monkeypatch.setattr(query_module, "load_batches", noting)
    contract = world.contracts.streams["sites"]
    first = replace(StreamQuery(), times=(AT.replace(hour=0, minute=5),) * 2)
    assert look_up(world.tables, contract, first).rows.num_rows == 6
    assert set(loaded) == {1, 2}
    loaded.clear()
    assert look_up(world.tables, contract, StreamQuery(seq=(700, 705))).rows.num_rows == 6
    assert set(loaded) == {3}
