"""Who has work to do, told from tables and a listing, without Spark."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from tests.small_lake import batch_row, deliver, small_settings, write_table

from spillway.batch import DONE, PENDING, RECORDED, RETIRED, UNTRAINED
from spillway.contracts import load_contracts
from spillway.intake.landing import changed_files, new_files
from spillway.pipeline.pending import channels_of_dates, pending_channels
from spillway.settings import Settings
from spillway.store.batches import load_batches
from spillway.store.tables import Tables


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return small_settings(tmp_path, {"river": "uplink", "harbour": "market", "canal": "uplink"})


def test_nothing_landed_and_nothing_pending_is_no_work(settings: Settings) -> None:
    assert pending_channels(settings) == []


def test_a_new_file_gives_its_channel_work(settings: Settings) -> None:
    deliver(settings, "river/2026-01-01/part-1.json")
    assert pending_channels(settings) == ["uplink"]


def test_two_streams_of_a_channel_are_one_piece_of_work(settings: Settings) -> None:
    for stream in ("river", "canal", "harbour"):
        deliver(settings, f"{stream}/part-1.json")
    assert pending_channels(settings) == ["market", "uplink"]


def test_a_file_that_a_batch_knows_is_no_work(settings: Settings) -> None:
    known = deliver(settings, "river/2026-01-01/part-1.json")
    write_table(settings, "batches", [batch_row("river", 1, DONE, [known])])
    assert pending_channels(settings) == []
    deliver(settings, "river/2026-01-01/part-2.json")
    assert pending_channels(settings) == ["uplink"]


def test_a_known_name_with_another_size_is_no_work_and_told_as_changed(settings: Settings) -> None:
    name, size = deliver(settings, "river/part-1.json")
    write_table(settings, "batches", [batch_row("river", 1, DONE, [(name, size - 1)])])
    assert pending_channels(settings) == []
    contract = load_contracts(settings.schemas).streams["river"]
    batches = load_batches(Tables(settings), "river")
    assert [(one.name, one.size) for one in changed_files(contract, settings, batches)] == [(name, size)]


def test_a_file_that_was_empty_and_is_filled_is_work_and_one_that_stays_empty_is_not(
    settings: Settings,
) -> None:
    known = deliver(settings, "river/part-1.json", "")
    row = batch_row("river", 1, DONE, [known])
    row["files"][0]["status"] = "empty"
    write_table(settings, "batches", [row])
    assert pending_channels(settings) == []
    deliver(settings, "river/part-1.json")
    assert pending_channels(settings) == ["uplink"]
    contract = load_contracts(settings.schemas).streams["river"]
    batches = load_batches(Tables(settings), "river")
    assert changed_files(contract, settings, batches) == []
    assert [one.name for one in new_files(contract, settings, batches)] == ["river/part-1.json"]


@pytest.mark.parametrize(
    "name",
    ["river/_SUCCESS", "river/.part-1.json.crc", "river/_tmp/part-1.json", "river/part-1.json._COPYING_"],
)
def test_hidden_files_are_no_work(settings: Settings, name: str) -> None:
    deliver(settings, name)
    assert pending_channels(settings) == []


def test_a_partition_folder_that_begins_with_an_underscore_is_not_hidden(settings: Settings) -> None:
    deliver(settings, "river/_day=1/part-1.json")
    assert pending_channels(settings) == ["uplink"]


@pytest.mark.parametrize("status", sorted(set(PENDING) - {UNTRAINED}))
def test_a_batch_that_was_begun_is_work(settings: Settings, status: str) -> None:
    write_table(settings, "batches", [batch_row("harbour", 1, DONE), batch_row("harbour", 2, status)])
    assert pending_channels(settings) == ["market"]


@pytest.mark.parametrize("status", [DONE, RETIRED])
def test_a_batch_that_is_over_is_no_work(settings: Settings, status: str) -> None:
    write_table(settings, "batches", [batch_row("harbour", 1, status)])
    assert pending_channels(settings) == []


def test_an_untrained_batch_is_work_once_its_stream_is_trained(settings: Settings) -> None:
    write_table(settings, "batches", [batch_row("harbour", 1, UNTRAINED)])
    fact = {"lever": "attributes", "fact": "cycle", "version": 1}
    write_table(settings, "models", [{"stream": "river", **fact}])
    assert pending_channels(settings) == []
    write_table(settings, "models", [{"stream": "harbour", **fact}])
    assert pending_channels(settings) == ["market"]


def test_an_untrained_batch_does_not_hide_one_that_was_begun(settings: Settings) -> None:
    write_table(settings, "batches", [batch_row("harbour", 1, UNTRAINED), batch_row("harbour", 2, RECORDED)])
    assert pending_channels(settings) == ["market"]


def test_a_stream_read_from_outside_the_landing_zone_is_named_by_its_whole_path(
    settings: Settings, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    contract = Path(settings.schemas) / "streams" / "river.yaml"
    contract.write_text(contract.read_text().replace("path: river", f"path: {elsewhere}"))
    elsewhere.mkdir()
    (elsewhere / "part-1.json").write_text("{}\n")
    assert pending_channels(settings) == ["uplink"]
    write_table(settings, "batches", [batch_row("river", 1, DONE, [(str(elsewhere / "part-1.json"), 3)])])
    assert pending_channels(settings) == []


def test_dates_name_the_channels_that_have_batches_of_them(settings: Settings) -> None:
    rows = [batch_row("river", 1, DONE), batch_row("harbour", 2, DONE), batch_row("harbour", 3, RETIRED)]
    write_table(settings, "batches", rows)
    first, second, third, fourth = (date(2026, 1, day) for day in (1, 2, 3, 4))
    assert channels_of_dates(settings, first, first) == ["uplink"]
    assert channels_of_dates(settings, first, second) == ["market", "uplink"]
    assert channels_of_dates(settings, third, third) == ["market"]
    assert channels_of_dates(settings, fourth, fourth) == []
