"""Keeping a lake fit changes no answer: the same rows in fewer files, and nothing gone that anybody still needs."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.clock import START
from tests.pipeline.streams import METERS, SITES, World, csv_lines, json_lines, meters, sites

from spillway.batch import DONE, PLANNED, RETIRED
from spillway.cli import main
from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError
from spillway.pipeline.validate import changed_batches
from spillway.scheduling import keep_lake
from spillway.store.batches import save_batches
from spillway.store.tables import Tables
from spillway.streams import retention as keeping
from spillway.streams.query import StreamQuery
from spillway.streams.recover import look_up
from spillway.streams.retention import ARCHIVED, RetentionResult, maintain_lake
from spillway.streams.train import train_streams

NOW = START
DAYS = timedelta(days=1)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two streams of one channel, three batches a day over two days, each brought through by a run of its own.

    The meters begin at 220, where each batch takes fewer bytes by key: files of one order are put together.
    """
    world = World.begin(ProcessEngine(), tmp_path_factory.mktemp("keep"), SITES, METERS)
    for turn in range(6):
        day = f"2020-01-0{1 + turn // 3}"
        world.deliver(f"sites/{day}/{turn}.json", json_lines(sites(turn * 300, 300)))
        world.deliver(f"meters/{day}/{turn}.csv", csv_lines(meters(220 + turn * 220, 220)))
        world.shed()
        if turn == 0:
            world.train("sites", "meters")
            world.shed()
        if turn in (1, 5):
            world.validate()
    return world


def kept(world: World, **more: Any) -> RetentionResult:
    return maintain_lake(world.tables, world.contracts, world.said.append, **{"now": NOW, **more})


def live(world: World) -> dict[str, int]:
    """Files by table."""
    found = {}
    tables = world.tables.now()
    for name, contract in tables.contracts.items():
        for stream in ("sites", "meters") if contract.scope == "stream" else (None,):
            found[f"{name}/{stream}"] = len(tables.at(name, stream).files())
    return found


def answers(world: World) -> list[Any]:
    contract = world.contracts.streams["sites"]
    asked = [StreamQuery.parse(contract, key=["site=site-3"], from_seq=200, to_seq=900)]
    asked.append(StreamQuery.parse(contract, from_time="2026-01-01T01:00", to_time="2026-01-01T02:00"))
    found = [look_up(world.tables, contract, one) for one in asked]
    return [(one.rows.sort_by("seq").to_pylist(), one.synopsis_bytes_read) for one in found]


def test_every_row_and_every_answer_stays_in_a_bounded_number_of_files(lake: World, tmp_path: Path) -> None:
    world = lake.copy(tmp_path)
    before, asked, many = world.everything("sites", "meters"), answers(world), live(world)
    found = kept(world)
    assert found.tables.files_before > found.tables.files_after
    assert (found.failed, found.conflicts, found.rows_removed) == ([], [], {})
    few = live(world)
    assert {name: count for name, count in few.items() if name.startswith(("raw", "transmitted"))} == {
        "raw/sites": 2, "raw/meters": 2, "transmitted/sites": 2, "transmitted/meters": 2,
    }  # fmt: skip
    assert (few["batches/None"], few["ledger/None"], few["certificates/None"]) == (2, 2, 2)
    assert many["batches/None"] > 2
    assert world.everything("sites", "meters") == before
    assert answers(world) == asked
    assert world.said[-1] == found.sentence
    again = kept(world)
    assert again.tables.files_before == 0


PLANNED_BY_WIDTH = {"schemes": ("rate_kbps", "planned_kbps", "reason", "state"), "ledger": ("reason",)}
PLANNED_BY_WIDTH |= {"batches": ("files", "capacity_kbps")}


def without(found: dict[str, Any], columns: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    return {
        table: [{k: v for k, v in row.items() if k not in columns.get(table, ())} for row in rows]
        for table, rows in found.items()
    }


@pytest.mark.long
def test_a_lake_that_was_kept_goes_on_as_one_that_was_not(lake: World, tmp_path: Path) -> None:
    plain, tidy = lake.copy(tmp_path / "plain"), lake.copy(tmp_path / "tidy")
    kept(tidy)
    for world in (plain, tidy):
        day = world.batches("sites")[0].batch_date
        world.shed(dates=(day, day))
        world.deliver("sites/2020-01-03/6.json", json_lines(sites(1800, 300)))
        world.deliver("meters/2020-01-03/6.csv", csv_lines(meters(1540, 220)))
        world.shed()
        world.validate()
    one, other = tidy.everything("sites", "meters"), plain.everything("sites", "meters")
    assert without(one, PLANNED_BY_WIDTH) == without(other, PLANNED_BY_WIDTH)
    # what lies around columns is not known to the byte where batches share a file
    for table, columns in {"schemes": ["rate_kbps"], "batches": ["capacity_kbps"]}.items():
        for a, b in zip(one[table], other[table], strict=True):
            assert [a[name] for name in columns] == pytest.approx([b[name] for name in columns], rel=0.01)


def test_a_dry_run_says_the_same_and_does_nothing(lake: World, tmp_path: Path) -> None:
    world = lake.copy(tmp_path)
    many = live(world)
    told = kept(world, dry_run=True)
    assert live(world) == many
    assert told.tables.files_before == kept(world).tables.files_before
    assert "would be put together" in told.sentence


def test_what_somebody_still_works_on_is_left_alone(lake: World, tmp_path: Path) -> None:
    world = lake.copy(tmp_path)
    batch = world.batches("sites")[3]
    save_batches(world.tables.now(), [replace(batch, status=PLANNED)])
    today = datetime(2020, 1, 2, 12, tzinfo=UTC)
    kept(world, now=today)
    few = live(world)
    assert (few["raw/sites"], few["raw/meters"]) == (4, 4), "the second of January is not over"
    kept(world)
    few = live(world)
    assert (few["raw/sites"], few["raw/meters"]) == (4, 2), "a batch of the second day waits"
    assert sorted(file.high("batch") for file in world.at("batches").files(stream="sites")) == [2, 4, 6]


def test_another_run_comes_first_and_the_others_tables_are_kept(
    lake: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = lake.copy(tmp_path)
    compacting = keeping.compact

    def meanwhile(table: Any, *more: Any) -> Any:
        if table.contract.table == "ledger":
            table.files()
            rows = world.at("ledger").rows(subject="sites", batch=1).to_pylist()
            world.at("ledger").replace(rows, subject="sites", batch=1)
        return compacting(table, *more)

    monkeypatch.setattr(keeping, "compact", meanwhile)
    found = kept(world)
    assert [one.partition(":")[0] for one in found.conflicts] == ["ledger"]
    assert found.failed == []
    assert live(world)["batches/None"] == 2


def test_a_table_that_cannot_be_kept_keeps_no_other_back(
    lake: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = lake.copy(tmp_path)
    compacting = keeping.compact

    def breaks(table: Any, *more: Any) -> Any:
        if table.contract.table == "batches":
            raise SpillwayError("the disk is full")
        return compacting(table, *more)

    monkeypatch.setattr(keeping, "compact", breaks)
    with pytest.raises(SpillwayError, match="batches: the disk is full"):
        kept(world)
    assert live(world)["ledger/None"] == 2


def retaining(world: World, **days: int) -> None:
    world.contract_becomes({**SITES, "retain": days}, METERS)


def numbers(world: World, table: str, stream: str, column: str = "stream") -> list[int]:
    own = world.tables.contract(table).scope == "stream"
    where = {} if own else {column: stream}
    return sorted(set(world.at(table, stream if own else None).rows(["batch"], **where)["batch"].to_pylist()))


def test_rows_go_when_they_are_too_old_and_those_of_other_streams_stay(lake: World, tmp_path: Path) -> None:
    world = lake.copy(tmp_path)
    retaining(world, ledger_days=1)
    save_batches(
        world.tables.now(), [replace(b, created_at=NOW - 3 * DAYS) for b in world.batches("sites")[:3]]
    )
    found = kept(world)
    assert set(found.rows_removed) == {"ledger"}
    assert numbers(world, "ledger", "sites", "subject") == [4, 5, 6], "those came later than their date says"
    assert numbers(world, "ledger", "meters", "subject") == [1, 2, 3, 4, 5, 6]


def test_what_gives_transmitted_rows_back_goes_with_them_and_they_stay_with_raw(
    lake: World, tmp_path: Path
) -> None:
    world = lake.copy(tmp_path)
    retaining(world, transmitted_days=100)
    assert kept(world, now=NOW + 101 * DAYS).rows_removed.keys() == {"validations"}, (
        "raw is still there, and validation compares the two"
    )
    gone = world.batches("sites")[:3]
    save_batches(world.tables.now(), [replace(batch, status=RETIRED) for batch in gone])
    world.at("raw", "sites").delete(batch=[1, 2, 3])
    assert kept(world, now=NOW + 99 * DAYS).rows_removed == {}
    found = kept(world, now=NOW + 101 * DAYS)
    assert {"transmitted", "schemes"} <= set(found.rows_removed)
    of_sites = ("transmitted", "schemes", "synopsis", "sent_synopsis")
    assert all(set(numbers(world, table, "sites")) <= {4, 5, 6} for table in of_sites)
    assert numbers(world, "batches", "sites") == [1, 2, 3, 4, 5, 6], "the recovered rows are still there"
    assert numbers(world, "transmitted", "meters") == [1, 2, 3, 4, 5, 6]
    contract = world.contracts.streams["sites"]
    assert (
        look_up(world.tables, contract, StreamQuery.parse(contract, from_seq=1000, to_seq=1100)).rows.num_rows
        == 101
    )


def test_a_batch_goes_last_never_the_newest_and_not_while_its_file_lies_there(
    lake: World, tmp_path: Path
) -> None:
    world = lake.copy(tmp_path)
    retaining(world, transmitted_days=1, ledger_days=1, certificates_days=1)
    save_batches(world.tables.now(), [replace(b, status=RETIRED) for b in world.batches("sites")])
    for table in ("raw", "recovered"):
        world.at(table, "sites").delete(batch=list(range(7)))
    Path(world.settings.landing, "sites/2020-01-01/0.json").unlink()
    Path(world.settings.landing, "sites/2020-01-02/5.json").unlink()
    assert "batches" not in kept(world, now=NOW + 400 * DAYS).rows_removed
    assert kept(world, now=NOW + 401 * DAYS).rows_removed["batches"] == 1
    assert numbers(world, "batches", "sites") == [2, 3, 4, 5, 6]
    world.shed()
    assert [batch.batch for batch in world.batches("sites")] == [2, 3, 4, 5, 6], "nothing is taken in anew"


def test_facts_stay_while_a_batch_was_shed_with_them_and_the_newest_always(
    lake: World, tmp_path: Path
) -> None:
    world = lake.copy(tmp_path)
    rows = world.at("models").rows(stream="sites").to_pylist()
    for version in (2, 3):
        again = [{**row, "version": version} for row in rows]
        world.at("models").replace(again, stream="sites", version=version)
    assert kept(world).rows_removed == {}
    kept(world, now=NOW + 200 * DAYS)
    found = world.at("models").rows(["version"], stream="sites")["version"].to_pylist()
    assert set(found) == {1, 3}


def test_old_outcomes_go_and_nothing_is_validated_again_for_it(lake: World, tmp_path: Path) -> None:
    world = lake.copy(tmp_path)
    assert kept(world, now=NOW + 99 * DAYS).rows_removed == {}
    assert kept(world, now=NOW + 101 * DAYS).rows_removed.keys() == {"validations"}
    assert world.rows("validations") == []
    assert changed_batches(world.tables.now(), "sites") == []


def after(world: World, what: str) -> None:
    source = {**SITES["source"], "after_ingest": what}
    world.contract_becomes({**SITES, "source": source}, METERS)


@pytest.mark.parametrize("what", ["archive", "remove"])
def test_delivered_files_are_put_away_when_their_batch_is_done_and_are_not_taken_in_again(
    lake: World, tmp_path: Path, what: str
) -> None:
    world = lake.copy(tmp_path)
    after(world, what)
    landing = Path(world.settings.landing)
    first = landing / "sites/2020-01-01/0.json"
    content, size = first.read_bytes(), sum(f.stat().st_size for f in (landing / "sites").rglob("*.json"))
    odd = landing / "sites/2020-01-01/1.json"
    odd.write_bytes(odd.read_bytes()[:-2] + b" \n")
    waiting = world.batches("sites")[5]
    save_batches(world.tables.now(), [replace(waiting, status=PLANNED)])
    (landing / "sites/2020-01-02/new.json").write_bytes(b"{}\n")
    told = kept(world, dry_run=True)
    assert first.exists()
    found = kept(world)
    assert (found.files_archived, found.files_removed) == ((4, 0) if what == "archive" else (0, 4))
    assert (told.files_archived, told.files_removed) == (found.files_archived, found.files_removed)
    assert found.landing_bytes < size
    left = sorted(str(p.relative_to(landing / "sites")) for p in (landing / "sites").rglob("*.json"))
    there = ["2020-01-01/1.json", "2020-01-02/5.json", "2020-01-02/new.json"]
    archived = [f"{ARCHIVED}/2020-01-0{1 + n // 3}/{n}.json" for n in (0, 2, 3, 4)]
    assert left == sorted([*there, *(archived if what == "archive" else [])])
    (landing / "sites/2020-01-02/new.json").unlink()
    save_batches(world.tables.now(), [replace(world.batches("sites")[5], status=DONE)])
    before = sum(batch.rows or 0 for batch in world.batches("sites"))
    world.shed()
    batches = world.batches("sites")
    assert sum(batch.rows or 0 for batch in batches) == before, "what is put away is not taken in from there"
    refused = [file.name for batch in batches for file in batch.files if file.status == "refused"]
    assert refused == ["sites/2020-01-01/1.json"], "nor missed; what has changed is said by name"
    first.parent.mkdir(exist_ok=True)
    first.write_bytes(content)
    world.deliver("sites/2020-01-02/other.json", content)
    world.shed()
    assert sum(batch.rows or 0 for batch in world.batches("sites")) == 1800
    assert {batch.status for batch in world.batches("sites")} == {DONE}


def test_delivered_files_stay_where_the_contract_says_nothing(lake: World, tmp_path: Path) -> None:
    world = lake.copy(tmp_path)
    kept(world)
    assert len(list(Path(world.settings.landing).rglob("*.json"))) == 6


def test_a_lake_without_tables_has_nothing_to_keep(tmp_path: Path) -> None:
    world = World.begin(ProcessEngine(), tmp_path, SITES)
    found = maintain_lake(Tables(world.settings), world.contracts)
    assert found.sentence.startswith("0 small files put together to 0; 0 rows removed from 0 tables")


def test_room_by_room_and_what_all_share_is_the_whole_lake(lake: World, tmp_path: Path) -> None:
    world = lake.copy(tmp_path)
    whole = kept(world, dry_run=True)
    parts = [
        kept(world, dry_run=True, streams=["sites"], shared=False),
        kept(world, dry_run=True, streams=["meters"], shared=False),
        kept(world, dry_run=True, streams=[]),
    ]
    total = parts[0].tables + parts[1].tables + parts[2].tables
    assert total == whole.tables
    assert all(one.tables.files_before for one in parts)
    assert {name for one in parts for name in one.rows_removed} == set(whole.rows_removed)


def test_the_command_and_the_dag_do_the_same(
    lake: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = lake.copy(tmp_path)
    roots = {"LAKE": "lake", "LANDING": "landing", "SCHEMAS": "schemas", "BUILD": "build"}
    for name, folder in roots.items():
        monkeypatch.setenv(f"SPILLWAY_{name}", str(tmp_path / folder))
    assert main(["keep", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tables"]["files_before"] > 0
    assert main(["migrate"]) == 0
    assert "every table is as it should be" in capsys.readouterr().out
    said = [keep_lake(world.settings, room, dry_run=False) for room in ("narrow", None)]
    files = [int(one.split(" small files put together to ")[0]) for one in said]
    assert sum(files) == told["tables"]["files_before"]
    assert f"spillway: {said[0]}" in capsys.readouterr().out
    assert main(["keep"]) == 0
    assert capsys.readouterr().out.startswith("0 small files put together to 0")


def test_training_on_what_it_was_trained_on_makes_no_version_and_no_data_is_no_fault(
    lake: World, tmp_path: Path
) -> None:
    world = lake.copy(tmp_path)
    novel = {**SITES, "stream": "novel", "source": {"path": "novel", "format": "json"}}
    world.contract_becomes(SITES, METERS, novel)
    names = ["sites", "meters", "novel"]
    train_streams(world.tables, world.engine, world.contracts, names, "one", world.said.append)
    assert "novel: nothing to train on yet, no tuple has been taken in" in world.said
    before = world.rows("models")
    versions = {(row["stream"], row["version"]) for row in before}
    train_streams(world.tables, world.engine, world.contracts, names, "two", world.said.append)
    assert world.rows("models") == before
    assert {stream for stream, _ in versions} == {"sites", "meters"}
    assert any(said.startswith("sites: attributes learned nothing new, version") for said in world.said)
    # a bound that changed is something new
    tighter = [{**one, "error_pct": 1.0} if one["name"] == "temp" else one for one in SITES["attributes"]]
    world.contract_becomes({**SITES, "attributes": tighter}, METERS, novel)
    train_streams(world.tables, world.engine, world.contracts, ["sites"], "three", world.said.append)
    assert len({row["version"] for row in world.rows("models") if row["stream"] == "sites"}) > 1


def test_inputs_of_tasks_of_a_killed_job_are_removed_after_a_day(lake: World, tmp_path: Path) -> None:
    world = lake.copy(tmp_path)
    old, new = (Path(world.settings.lake, ".tasks", name, "0") for name in ("killed", "running"))
    for file, age in ((old, 1.5 * DAYS), (new, 0.5 * DAYS)):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"items")
        then = (NOW - age).timestamp()
        os.utime(file, (then, then))
    kept(world, dry_run=True)
    assert old.exists()
    kept(world)
    assert (old.exists(), new.exists()) == (False, True)
