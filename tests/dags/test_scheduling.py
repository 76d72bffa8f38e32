"""What a run recomputes and what its job is told: the rules behind the DAGs."""

from __future__ import annotations

import json
import re
from datetime import date, timedelta
from pathlib import Path

import pytest
from tests.dags.conftest import SECRET, SECRETS
from tests.pipeline.streams import SITES, World, brought_through, json_lines, sites
from tests.small_lake import batch_row, deliver, small_settings, write_table

from spillway.batch import DONE
from spillway.clock import utc_now
from spillway.engine import ProcessEngine
from spillway.engine.spark_conf import spark_conf
from spillway.errors import SpillwayError
from spillway.report.overview import measured_loss, stream_overviews
from spillway.scheduling import (
    JOB_VARIABLES,
    NothingToDo,
    assets_written_since,
    channel_groups,
    dates_to_backfill,
    recover_arguments,
    shed_arguments,
    sketch_arguments,
    spark_step,
    stream_arguments,
    stream_names,
    workload_names,
)
from spillway.settings import Settings

DAY = date(2013, 2, 1)


@pytest.fixture
def two_channels(tmp_path: Path) -> Settings:
    return small_settings(tmp_path, {"river": "uplink", "harbour": "market"})


def test_one_date_of_the_form_alone_means_that_date() -> None:
    assert dates_to_backfill("2013-02-01", "2013-02-03") == (DAY, date(2013, 2, 3))
    assert dates_to_backfill("2013-02-01") == (DAY, DAY)
    assert dates_to_backfill(None, "2013-02-01") == (DAY, DAY)


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        ("2013-02-02", "2013-02-01", "`to_date` must not be before"),
        ("1 Feb", None, "`from_date` must be a date"),
        (None, None, "`from_date` must be a date like 2013-02-01, got nothing"),
    ],
)
def test_dates_that_mean_nothing_are_refused_by_name(
    first: str | None, last: str | None, message: str
) -> None:
    with pytest.raises(SpillwayError, match=message):
        dates_to_backfill(first, last)


def test_a_run_without_work_says_so_instead_of_starting_spark(two_channels: Settings) -> None:
    with pytest.raises(NothingToDo, match="nothing new in the landing zone"):
        shed_arguments(two_channels, "run", None)
    with pytest.raises(NothingToDo, match="no batch has a date from 2013-02-01 to 2013-02-01"):
        shed_arguments(two_channels, "run", (DAY, DAY))


def test_each_channel_with_work_gets_one_list_of_arguments(two_channels: Settings) -> None:
    deliver(two_channels, "river/part-1.json")
    assert shed_arguments(two_channels, "r1", None) == {"uplink": ["--channel", "uplink", "--run-id", "r1"]}


def test_streams_of_a_form_are_told_room_by_room(two_channels: Settings) -> None:
    assert stream_arguments(two_channels, None, ["--all"]) == {
        "market": ["--stream", "harbour", "--all"],
        "uplink": ["--stream", "river", "--all"],
    }
    assert stream_arguments(two_channels, ["river"]) == {"uplink": ["--stream", "river"]}
    with pytest.raises(
        SpillwayError, match=r"`stream` must have a contract, got 'rivver'; did you mean river\?"
    ):
        stream_arguments(two_channels, ["rivver"])


def test_a_channel_that_goes_into_another_shares_its_room_and_broken_channels_have_none(
    two_channels: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPILLWAY_SCHEMAS", two_channels.schemas)
    assert channel_groups() == ("market", "uplink")
    channels = Path(two_channels.schemas, "channels.yaml")
    channels.write_text("channels: {uplink: {capacity: 1 kbps, into: market}, market: {capacity: 1 kbps}}")
    assert channel_groups() == ("market",)
    channels.write_text("channels: [")
    assert channel_groups() == ()


def test_a_backfill_names_exactly_its_dates(two_channels: Settings) -> None:
    write_table(two_channels, "batches", [batch_row("harbour", 2, DONE)])
    deliver(two_channels, "river/part-1.json")
    second = date(2026, 1, 2)
    dates = ["--from-date", "2026-01-02", "--to-date", "2026-01-02"]
    assert shed_arguments(two_channels, "r1", (second, second)) == {
        "market": ["--channel", "market", *dates, "--run-id", "r1"]
    }


def test_a_backfill_of_some_channels_leaves_the_others_alone(two_channels: Settings) -> None:
    write_table(two_channels, "batches", [batch_row("harbour", 2, DONE), batch_row("river", 2, DONE)])
    second = date(2026, 1, 2)
    assert list(shed_arguments(two_channels, "r1", (second, second), [])) == ["market", "uplink"]
    assert list(shed_arguments(two_channels, "r1", (second, second), ["uplink"])) == ["uplink"]
    with pytest.raises(NothingToDo, match="no batch of uplink has a date from 2030-01-01 to"):
        shed_arguments(two_channels, "r1", (date(2030, 1, 1), date(2030, 1, 1)), ["uplink"])
    with pytest.raises(SpillwayError, match="`channels` must name channels, got 'uplnk'; use market, uplink"):
        shed_arguments(two_channels, "r1", (second, second), ["uplnk"])


def test_forms_offer_the_names_of_contract_files(
    two_channels: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A contract that is not valid is offered too: its run says what is wrong with it."""
    monkeypatch.setenv("SPILLWAY_SCHEMAS", two_channels.schemas)
    Path(two_channels.schemas, "streams", "broken.yaml").write_text("stream: [")
    Path(two_channels.schemas, "streams", "river.expected.yaml").write_text("{}")
    assert stream_names() == ["broken", "harbour", "river"]
    assert workload_names() == []


def test_each_channel_that_lacks_a_sketch_gets_one_list_of_arguments(two_channels: Settings) -> None:
    write_table(two_channels, "batches", [batch_row("harbour", 2, DONE), batch_row("river", 2, DONE)])
    with pytest.raises(NothingToDo, match="has the sketches of its contract"):
        sketch_arguments(two_channels)
    contract = Path(two_channels.schemas, "streams", "harbour.yaml")
    contract.write_text(contract.read_text() + "sketches: [{kind: distinct, attributes: [site]}]\n")
    assert sketch_arguments(two_channels) == {"market": ["--channel", "market"]}
    second, third = date(2026, 1, 2), date(2026, 1, 3)
    dates = ["--from-date", "2026-01-02", "--to-date", "2026-01-02"]
    assert sketch_arguments(two_channels, (second, second)) == {"market": ["--channel", "market", *dates]}
    with pytest.raises(NothingToDo):
        sketch_arguments(two_channels, (third, third))


def test_the_recover_form_becomes_the_jobs_arguments(two_channels: Settings) -> None:
    form = {
        "stream": "river",
        "attributes": None,
        "keys": ["site=a", "site=b"],
        "from_seq": 0,
        "to_seq": 9,
        "from_time": None,
        "output": "",
    }
    assert recover_arguments(two_channels, form) == [
        *("--stream", "river", "--key", "site=a", "--key", "site=b"),
        *("--from-seq", "0", "--to-seq", "9"),
    ]


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"stream": ""}, "`stream` must name a stream"),
        ({"stream": "rivr"}, "`stream` must have a contract, got 'rivr'"),
        ({"stream": "river", "keys": ["JFK"]}, "`key` must be NAME=VALUE with NAME one of site, got 'JFK'"),
        ({"stream": "river", "from_time": "noon"}, "`from_time` must be an ISO date or time"),
        ({"stream": "river", "output": "recovered.xlsx"}, "`output` must end in .parquet, .csv or .json"),
    ],
)
def test_a_form_that_means_nothing_is_refused_by_name(
    two_channels: Settings, form: dict[str, object], message: str
) -> None:
    with pytest.raises(SpillwayError, match=message):
        recover_arguments(two_channels, form)


@pytest.mark.long
def test_the_assets_of_a_run_are_the_tables_that_were_written_since_it_began(tmp_path: Path) -> None:
    world = brought_through(ProcessEngine(), tmp_path)
    of = {f"spillway/{table}/sites" for table in ("raw", "recovered", "transmitted")}
    found = assets_written_since(world.settings, utc_now() - timedelta(hours=1))
    assert of <= set(found)
    began = utc_now()
    assert assets_written_since(world.settings, began + timedelta(seconds=1)) == {}
    world.at("transmitted", "sites").delete(seq=[331])  # which writes the other rows of its file anew
    assert list(assets_written_since(world.settings, began)) == ["spillway/transmitted/sites"]
    raw, recovered = found["spillway/raw/sites"], found["spillway/recovered/sites"]
    rows = world.at("raw", "sites").rows(["seq"]).num_rows
    assert (raw["rows"], recovered["rows"]) == (rows, rows)
    assert raw["bytes"] == sum(file.size for file in world.at("raw", "sites").files())
    assert set(raw) == {"rows", "bytes"}
    (one,) = stream_overviews(world.tables.now(), {"sites": world.contracts.stream("sites")})
    assert recovered["loss_pct"] == measured_loss([one])
    assert (recovered["rows_lost"], recovered["values_held"]) == (0, sum(a.absent for a in one.attributes))
    json.dumps(found, allow_nan=False)


def test_the_loss_of_an_asset_is_unknown_until_its_batches_are_validated(tmp_path: Path) -> None:
    world = World.begin(ProcessEngine(), tmp_path, SITES, capacity="3 kbps")
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.shed()
    world.train("sites")
    world.shed()
    extra = assets_written_since(world.settings, utc_now() - timedelta(hours=1))["spillway/transmitted/sites"]
    assert (extra["rows"], extra["rows_lost"], extra["loss_pct"]) == (330, 0, None)
    world.validate()
    found = assets_written_since(world.settings, utc_now() - timedelta(hours=1))
    (one,) = stream_overviews(world.tables.now(), {"sites": world.contracts.stream("sites")})
    assert found["spillway/recovered/sites"]["loss_pct"] == measured_loss([one]) > 0


READ_BY_OTHERS = {
    "SPILLWAY_FAILURE_FILE": "a local file that SubmitJob names to the process that it starts",
    "SPILLWAY_HOOK_": "Airflow calls the hooks",
    "SPILLWAY_HOOK_NAME": "only in messages",
    "SPILLWAY_JOBS": "read when a DAG is parsed",
    "SPILLWAY_MASTER": "the connection names the master",
    "SPILLWAY_POOL": "read when a DAG is parsed",
}


def test_what_a_job_reads_from_its_environment_travels_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {
        **{f"SPILLWAY_{name}": f"s3a://bucket/{name}" for name in ("LAKE", "DESTINATION", "LANDING")},
        **{f"SPILLWAY_{name}": f"/srv/{name}" for name in ("HOME", "SCHEMAS", "BUILD", "OUTPUT", "JARS")},
        "SPILLWAY_PYTHON": "/srv/python",
        "SPILLWAY_SHUFFLE_PARTITIONS": "64",
        "SPILLWAY_DRIVER_MEMORY": "8g",
        "SPILLWAY_JAVA_OPTIONS": "-Xss4m",
        "SPILLWAY_SPARK_UI": "true",
    }
    for name, value in (given | SECRETS | {"SPILLWAY_JOBS": "/srv/jobs"}).items():
        monkeypatch.setenv(name, value)
    step = spark_step("shed")
    assert step["env_vars"] == given
    assert SECRET not in json.dumps(step)
    assert Settings.from_environment(step["env_vars"]) == Settings.from_environment()
    assert spark_conf(environment=step["env_vars"]) == spark_conf()


def test_every_variable_that_the_package_reads_travels_or_has_a_reason_not_to() -> None:
    """A variable that a job comes to read must be listed, or the job would not find it on a cluster."""
    home = Path(__file__).resolve().parents[2]
    files = [*(home / "lib" / "spillway").rglob("*.py"), *(home / "jobs").glob("*.py")]
    named = {name for file in files for name in re.findall(r"[\"'](SPILLWAY_[A-Z_]+)[\"']", file.read_text())}
    assert set(JOB_VARIABLES) - {"SPILLWAY_OUTPUT"} <= named, "the pattern finds none of them"
    assert named - set(JOB_VARIABLES) <= set(READ_BY_OTHERS)
