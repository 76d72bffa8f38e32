"""A destination that is elsewhere: what crosses is counted to the byte, and gives back there what was sent."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.pipeline.streams import FIRST_DAY, SITES, World, json_lines, sites

from spillway.batch import RETIRED
from spillway.engine import ProcessEngine
from spillway.pipeline.resend import resend
from spillway.store.batches import load_batches, save_batches
from spillway.store.maintenance import compact
from spillway.store.tables import Tables
from spillway.streams.destination import BatchMetadata, destination_tables
from spillway.streams.query import StreamQuery
from spillway.streams.recover import look_up
from spillway.streams.retention import maintain_lake

NAMES = ("temp", "level", "pulses", "sky")


def brought_across(folder: Path, capacity: str = "4.5 kbps", **lever: Any) -> World:
    """Two batches that share a frame, shed by a source whose destination is elsewhere."""
    contract = {**SITES, "levers": [{"lever": "attributes", "training": {"tuples": 240}, **lever}]}
    world = World.begin(
        ProcessEngine(), folder, contract, capacity=capacity, SPILLWAY_DESTINATION=str(folder / "there")
    )
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 1980)))
    world.shed()
    world.train("sites")
    world.shed()
    world.deliver("sites/2020-01-01/b.json", json_lines(sites(1980, 2100)))
    world.shed()
    return world


def at_the_destination(world: World) -> Tables:
    """Only what lies there, for somebody whose own lake is empty."""
    return destination_tables(replace(world.settings, lake=str(world.folder / "nothing")))


def values(tables: Tables, world: World) -> dict[str, list[Any]]:
    contract = world.contracts.streams["sites"]
    found = look_up(tables, contract, StreamQuery.parse(contract, from_seq=0, to_seq=4200))
    assert found.rows.num_rows == 4080
    return {name: found.rows[name].to_pylist() for name in found.rows.column_names}


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> World:
    return brought_across(tmp_path_factory.mktemp("sent"), synopsis="send", treatments=["keep", "shed"])


def test_what_was_sent_is_given_back_there_by_itself_as_it_is_at_the_source(sent: World) -> None:
    (sent.folder / "lake").rename(sent.folder / "away")
    try:
        there = values(at_the_destination(sent), sent)
    finally:
        (sent.folder / "away").rename(sent.folder / "lake")
    assert there == values(sent.tables.now(), sent)
    shed = {way["attribute"] for row in sent.rows("schemes") for way in row["attributes"] if way["sent"]}
    assert shed
    raw = sent.frame("raw", "sites")
    for name in ("temp", "level"):
        for truth, given in zip(raw[name].tolist(), there[name], strict=True):
            assert given is None if truth is pd.NA else given == pytest.approx(truth, rel=0.02)


def test_what_is_held_is_absent_there_and_comes_back_at_the_source(tmp_path: Path) -> None:
    world = brought_across(tmp_path, synopsis="hold", treatments=["keep", "shed"])
    held = {
        way["attribute"]
        for row in world.rows("schemes")
        for way in row["attributes"]
        if way["treatment"] == "shed"
    }
    assert held
    there, here = values(at_the_destination(world), world), values(world.tables.now(), world)
    for name in held:
        assert sum(value is not None for value in there[name]) < sum(
            value is not None for value in here[name]
        )
    for name in set(NAMES) - held:
        assert there[name] == here[name]


def test_what_is_counted_is_what_lies_there(sent: World) -> None:
    counted = sum(
        row["bytes_kept"]
        for row in sent.rows("ledger")
        if (row["stage"], row["unit"], row["dimension_kind"]) == ("sent", "rows", "total")
    )
    lies = 0
    for path in Path(sent.settings.destination).rglob("*"):
        if path.suffix == ".parquet" or (path.suffix == ".json" and path.stem.strip("0")):
            lies += path.stat().st_size
    assert counted == pytest.approx(lies, rel=0.01)


def test_a_batch_that_is_shed_again_is_told_again_with_the_facts_that_it_was_the_first_to_tell(
    tmp_path: Path,
) -> None:
    world = brought_across(tmp_path, synopsis="send", treatments=["keep", "shed"])
    before = values(at_the_destination(world), world)
    world.shed(dates=(FIRST_DAY, FIRST_DAY))
    there = at_the_destination(world)
    assert sorted(row["batch"] for row in there.at("batches").rows(stream="sites").to_pylist()) == [1, 2]
    assert {row["version"] for row in there.at("models").rows(["version"]).to_pylist()} == {1}
    assert values(there, world) == before


def test_facts_stay_at_the_destination_while_a_later_batch_needs_them(tmp_path: Path) -> None:
    world = sent_one_by_one(tmp_path, [NARROW, NARROW, NARROW], days=3)
    assert [batch.models for batch in world.batches("sites")] == [{"attributes": 1}] * 3
    early = datetime(2020, 1, 1, tzinfo=UTC)
    first, second, third = (replace(batch, created_at=early) for batch in world.batches("sites"))
    save_batches(world.tables.now(), [replace(first, status=RETIRED), second, third])
    before = every_value(at_the_destination(world), world)
    world.at("raw", "sites").delete(batch=[1])
    world.at("recovered", "sites").delete(batch=[1])
    world.contract_becomes({**SITES, "levers": LEVERS, "retain": {"transmitted_days": 1}}, capacity=NARROW)
    maintain_lake(world.tables.now(), world.contracts, now=datetime(2020, 1, 3, 12, tzinfo=UTC))
    there = at_the_destination(world)
    assert set(there.at("transmitted", "sites").rows(["batch"])["batch"].to_pylist()) == {2, 3}
    found = every_value(there, world)
    later = [at for at, seq in enumerate(before["seq"]) if seq in set(found["seq"])]
    assert found == {name: [values[at] for at in later] for name, values in before.items()}
    world.deliver("sites/2020-01-04/4.json", json_lines(sites(6180, 2100)))
    world.shed()
    found = every_value(at_the_destination(world), world)
    assert found["seq"] == [*range(1980, 8280)]
    assert found == every_value(world.tables.now(), world)


def test_when_and_by_whom_a_batch_was_taken_in_changes_no_byte_that_crosses(
    sent: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("streams.shed", "streams.facts", "intake.ingest"):
        monkeypatch.setattr(f"spillway.{module}.utc_now", lambda: datetime(1999, 12, 31, tzinfo=UTC))
    later = brought_across(tmp_path, synopsis="send", treatments=["keep", "shed"])
    assert later.rows("destination_metadata") == sent.rows("destination_metadata")
    assert later.rows("ledger") == sent.rows("ledger")


def test_what_is_told_is_as_large_as_it_was_counted_though_a_shortfall_came_out(tmp_path: Path) -> None:
    world = brought_across(tmp_path, synopsis="hold", capacity="1 kbps")
    told = {
        row["batch"]: BatchMetadata("sites", row["batch"], row["payload"])
        for row in world.rows("destination_metadata")
    }
    for row in world.rows("schemes"):
        batch = next(one for one in world.batches("sites") if one.batch == row["batch"])
        counted = {
            (line["stage"], line["batch"]): line["bytes_kept"]
            for line in world.rows("ledger")
            if line["dimension_kind"] == "total" and line["unit"] == "rows"
        }["sent", row["batch"]]
        lies = sum(file.size for file in world.at("transmitted", "sites").files(batch=row["batch"]))
        assert counted > lies + told[row["batch"]].size
        # what is on record is no less than what is too much by what lies there
        kbps = counted * 8 / 1000 / (batch.seconds_covered or 0.0)
        assert row["shortfall_kbps"] >= kbps - batch.allowed_kbps > 0
        assert f"it came out {kbps - batch.allowed_kbps:.4g} kbps above the part" in row["reason"]


def test_where_source_and_destination_are_one_place_nothing_is_told(tmp_path: Path) -> None:
    world = World.begin(ProcessEngine(), tmp_path, SITES)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 240)))
    world.shed()
    world.train("sites")
    world.shed()
    assert not world.at("destination_metadata").exists
    assert destination_tables(world.settings).settings == world.settings


LEVERS = [
    {"lever": "attributes", "training": {"tuples": 240}, "synopsis": "send", "treatments": ["keep", "shed"]}
]


def sent_one_by_one(folder: Path, capacities: list[str], frame: int = 100, days: int = 1) -> World:
    """Batches of one date or of several in turn, each sent at its own capacity to a destination elsewhere."""
    contract = {**SITES, "frame": {"tuples": frame}, "levers": LEVERS}
    world = World.begin(ProcessEngine(), folder, contract, SPILLWAY_DESTINATION=str(folder / "there"))
    first = 0
    for number, capacity in enumerate(capacities):
        world.contract_becomes(contract, capacity=capacity)
        rows = 2100 if number else 1980
        world.deliver(f"sites/2020-01-{number % days + 1:02}/{number}.json", json_lines(sites(first, rows)))
        first += rows
        world.shed()
        if not number:
            world.train("sites")
            world.shed()
    return world


def every_value(tables: Tables, world: World) -> dict[str, list[Any]]:
    contract = world.contracts.streams["sites"]
    found = look_up(tables, contract, StreamQuery.parse(contract, from_seq=0, to_seq=2**40)).rows
    return {name: found[name].to_pylist() for name in found.column_names}


WIDE, NARROW = "1 Mbps", "4.5 kbps"


def test_batch_without_loss_needs_no_metadata_and_is_read_there(tmp_path: Path) -> None:
    world = sent_one_by_one(tmp_path, [WIDE, WIDE])
    assert not world.at("destination_metadata").exists
    there = at_the_destination(world)
    assert every_value(there, world) == every_value(world.tables.now(), world)
    of_source = [(one.batch, one.batch_date, one.rows) for one in world.batches("sites")]
    assert [(one.batch, one.batch_date, one.rows) for one in load_batches(there, "sites")] == of_source


def test_batch_that_sheds_sends_the_metadata_of_earlier_batches_of_its_frame(tmp_path: Path) -> None:
    world = sent_one_by_one(tmp_path, [WIDE, WIDE, NARROW, WIDE], frame=5500)
    assert [row["batch"] for row in world.rows("destination_metadata")] == [3]
    assert any(way["treatment"] == "shed" for row in world.rows("schemes") for way in row["attributes"])
    there = at_the_destination(world)
    assert every_value(there, world) == every_value(world.tables.now(), world)
    assert [one.batch for one in load_batches(there, "sites")] == [1, 2, 3, 4]
    # only batches 1 and 2 have rows in the frame with which batch 3 begins
    held = there.at("schemes").rows(["batch"])["batch"].to_pylist()
    assert sorted(set(held)) == [1, 2, 3]


def test_batch_of_another_frame_is_not_in_the_metadata(tmp_path: Path) -> None:
    world = sent_one_by_one(tmp_path, [WIDE, WIDE, NARROW], frame=3000)
    there = at_the_destination(world)
    assert sorted(set(there.at("schemes").rows(["batch"])["batch"].to_pylist())) == [2, 3]
    assert every_value(there, world) == every_value(world.tables.now(), world)


def test_batch_that_had_metadata_has_it_again_if_it_is_sent_without_loss(tmp_path: Path) -> None:
    world = sent_one_by_one(tmp_path, [NARROW, NARROW])
    assert [row["batch"] for row in world.rows("destination_metadata")] == [1, 2]
    dates = (FIRST_DAY, FIRST_DAY)
    resend(world.tables, world.engine, world.contracts, "sites", dates, world.said.append)
    assert [row["batch"] for row in world.rows("destination_metadata")] == [1, 2]
    assert every_value(at_the_destination(world), world) == every_value(world.tables.now(), world)


def test_changed_rows_whose_metadata_is_missing_are_not_shown_as_exact(tmp_path: Path) -> None:
    world = sent_one_by_one(tmp_path, [WIDE, NARROW, WIDE], frame=100)
    world.tables.now().at("destination_metadata").delete(stream="sites", batch=2)
    assert [one.batch for one in load_batches(at_the_destination(world), "sites")] == [1, 3]
    compact(world.at("transmitted", "sites"), lambda file: True)
    assert [one.batch for one in load_batches(at_the_destination(world), "sites")] == [1, 3]


def test_batches_that_share_a_file_are_read_there_one_by_one(tmp_path: Path) -> None:
    world = sent_one_by_one(tmp_path, [WIDE, WIDE])
    before = every_value(at_the_destination(world), world)
    compact(world.at("transmitted", "sites"), lambda file: True)
    assert len(world.at("transmitted", "sites").files()) == 1
    assert every_value(at_the_destination(world), world) == before
