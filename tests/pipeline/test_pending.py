"""Who has work to do, told from tables and a listing, without Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from tests.small_lake import batch_row, deliver, small_settings, write_table

from spillway.batch import DONE, INGESTED, PENDING, QUARANTINED, RECORDED, RETIRED, UNTRAINED
from spillway.contracts import load_contracts
from spillway.contracts.sections import Rate
from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError
from spillway.intake.ingest import ingest
from spillway.intake.landing import Landing, find_landing_files
from spillway.pipeline.pending import channels_of_dates, is_pending, pending_channels
from spillway.settings import Settings
from spillway.store.batches import load_batches, save_batches
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
    row = batch_row("river", 1, DONE, [known])
    write_table(settings, "batches", [row])
    assert pending_channels(settings) == []
    deliver(settings, "river/2026-01-01/part-2.json")
    assert pending_channels(settings) == ["uplink"]


def looked(settings: Settings, stream: str) -> Landing:
    contract = load_contracts(settings.schemas).streams[stream]
    return find_landing_files(contract, Tables(settings))


def test_a_known_name_of_another_size_is_work_until_it_was_read_and_then_refused_is_none(
    settings: Settings,
) -> None:
    name, size = deliver(settings, "river/part-1.json")
    write_table(settings, "batches", [batch_row("river", 1, DONE, [(name, size - 1)])])
    assert pending_channels(settings) == ["uplink"]
    assert [(one.name, one.size) for one in looked(settings, "river").doubtful] == [(name, size)]
    contract = load_contracts(settings.schemas).streams["river"]
    ingest(Tables(settings), ProcessEngine(), contract, "run")
    assert [one.name for one, _ in looked(settings, "river").refused] == [name]
    (batch,) = load_batches(Tables(settings), "river", batch=2)
    assert [file.status for file in batch.files] == ["refused"]
    save_batches(Tables(settings), [batch.with_changes(batch.updated_at, status=DONE)])
    assert pending_channels(settings) == []


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
    assert [one.name for one in looked(settings, "river").fresh] == ["river/part-1.json"]


def test_what_waits_for_somebody_is_no_work(settings: Settings) -> None:
    rows = [batch_row("river", 1, QUARANTINED), batch_row("river", 2, INGESTED, seconds_covered=None)]
    contract = load_contracts(settings.schemas).streams["river"]
    timed = replace(contract, rate=Rate(from_="event_time"))
    write_table(settings, "batches", [batch_row("river", 1, QUARANTINED, seconds_covered=None), rows[1]])
    assert not is_pending(timed, Tables(settings))
    assert is_pending(contract, Tables(settings)), "declared since: it can go on"


def test_a_file_is_no_work_until_it_has_settled(settings: Settings) -> None:
    contract = load_contracts(settings.schemas).streams["river"]
    slow = replace(contract, source=replace(contract.source, settle_seconds=60.0))
    deliver(settings, "river/part-1.json")
    written = datetime.fromtimestamp(Path(settings.landing, "river/part-1.json").stat().st_mtime, UTC)
    tables = Tables(settings)
    assert not is_pending(slow, tables, written + timedelta(seconds=30))
    assert is_pending(slow, tables, written + timedelta(seconds=61))


def test_a_stream_whose_landing_folder_cannot_be_looked_at_is_work_and_hides_no_other(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    Path(settings.landing).mkdir()
    Path(settings.landing, "harbour").symlink_to(tmp_path / "elsewhere")
    deliver(settings, "river/part-1.json")
    assert pending_channels(settings) == ["market", "uplink"]
    with pytest.raises(SpillwayError, match=r"harbour: `source.path` must lead to a folder below"):
        looked(settings, "harbour")


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
