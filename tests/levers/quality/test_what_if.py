"""What a room would have come to under other rules, and who is told when a query falls below its floor."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from tests.levers.quality.worlds import COUNT, MEAN, begun, put_queries, query, run
from tests.pipeline.streams import World
from tests.report.page.pages import whole_report
from tests.whole_reads import whole_reads

from spillway.cli import main
from spillway.clock import utc_now
from spillway.errors import SpillwayError, UsageError, format_number
from spillway.levers.quality import explain as telling
from spillway.levers.quality.lever import LEVER
from spillway.report.alerts import recorded_alerts, send_alerts
from spillway.report.explain import explain_workload
from spillway.report.page import build_report
from spillway.workloads.what_if import RuleChanges, answer_error, what_if

SMALL = {"capacity": {"tuples": 300}}


def test_other_rules_are_compared_and_nothing_is_written(tmp_path: Path) -> None:
    world = begun(tmp_path, query("means", MEAN, **SMALL), query("warm", COUNT, bounds=False))
    run(world)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "lake").rglob("*") if path.is_file()}
    found = what_if(world.tables, world.engine, world.contracts, "desk", RuleChanges(capacity=480))
    assert (found.first, found.windows, found.offered) == (date(2026, 1, 1), 4, 960)
    assert {name: one.coverage for name, one in found.as_would_be.items()} == {"means": 1.0, "warm": 1.0}
    assert all(one.error_pct == 0 for one in found.as_would_be.values())
    assert sum(one.tuples for one in found.as_is.values()) == sum(
        row["tuples_kept"] for row in world.rows("coverage")
    )
    assert found.as_is["warm"].error_pct > 10
    assert found.as_is["means"].error_pct < found.as_is["warm"].error_pct
    assert before == {
        path: path.stat().st_mtime_ns for path in (tmp_path / "lake").rglob("*") if path.is_file()
    }


def test_a_capacity_is_in_the_unit_of_the_room_whoever_names_it(tmp_path: Path) -> None:
    room = {"capacity": {"seconds": 500, "per_seconds": 4800}}
    world = begun(tmp_path, query("means", MEAN), query("warm", COUNT, **room))
    run(world)
    much = what_if(world.tables, world.engine, world.contracts, "desk", RuleChanges(capacity=400))
    assert {one.coverage for one in much.as_would_be.values()} == {1.0}, "400 seconds; as tuples too few"
    little = what_if(world.tables, world.engine, world.contracts, "desk", RuleChanges(capacity=1e-9))
    tuples = sorted(one.tuples for one in little.as_would_be.values())
    assert tuples == [0, 60], "a portion of one query is tried, whatever it is estimated to cost"


@pytest.mark.long
def test_policies_and_weights_can_be_tried(tmp_path: Path) -> None:
    world = begun(
        tmp_path, query("means", MEAN, portion_tuples=6, **SMALL), query("warm", COUNT, portion_tuples=6)
    )
    run(world)
    changes = RuleChanges(policy="priority")
    strict = what_if(world.tables, world.engine, world.contracts, "desk", changes)
    assert strict.as_would_be["means"].coverage == 1.0
    assert strict.as_would_be["warm"].coverage == pytest.approx(0.25, abs=0.03)
    weighed = what_if(world.tables, world.engine, world.contracts, "desk", RuleChanges(weights={"warm": 3.0}))
    assert weighed.as_would_be["warm"].coverage > 2 * weighed.as_would_be["means"].coverage


def test_an_answer_of_all_that_a_sifter_left_is_no_error() -> None:
    """Its estimate covers the rows that were dropped: against the count of those that came it was off by 100 %."""
    whole = pa.table({"n": [479], "n__estimate": [1500.0]})
    assert answer_error(whole, whole) == 0.0
    half = pa.table({"n": [240], "n__estimate": [1200.0]})
    assert answer_error(half, whole) == pytest.approx(0.2)
    assert answer_error(pa.table({"n": [5]}), pa.table({"n": [10]})) == 0.5


def test_what_cannot_be_replayed_is_refused_by_name(tmp_path: Path) -> None:
    world = begun(tmp_path, query("means", MEAN, **SMALL))
    with pytest.raises(UsageError, match="`capacity_group` must have computed windows"):
        what_if(world.tables, world.engine, world.contracts, "desk", RuleChanges())
    with pytest.raises(
        UsageError, match="`capacity_group` must be one that queries share, got 'dekk'; did you mean desk"
    ):
        what_if(world.tables, world.engine, world.contracts, "dekk", RuleChanges())
    run(world)
    with pytest.raises(
        SpillwayError, match=r"`levers\[0\]\.capacity\.tuples` must be a number above 0, got 0"
    ):
        what_if(world.tables, world.engine, world.contracts, "desk", RuleChanges(capacity=0))
    day = date(2020, 1, 1)
    with pytest.raises(UsageError, match="`dates` must have computed windows"):
        what_if(world.tables, world.engine, world.contracts, "desk", RuleChanges(), (day, day))


def test_windows_of_another_length_are_refused_as_a_run_refuses_them(tmp_path: Path) -> None:
    world = begun(tmp_path, query("means", MEAN, **SMALL))
    run(world)
    put_queries(world, query("means", MEAN, window={"seconds": 1200}, **SMALL))
    with pytest.raises(SpillwayError, match=r"`window\.seconds` must stay the length of the windows"):
        what_if(world.tables, world.engine, world.contracts, "desk", RuleChanges())


@pytest.mark.long
def test_the_command_says_it_for_people_and_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = begun(tmp_path, query("means", MEAN, **SMALL), query("warm", COUNT))
    run(world)
    for name in ("lake", "landing", "build", "schemas"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", str(tmp_path / name))
    assert main(["what-if", "desk", "--capacity", "480", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["as_would_be"]["means"]["coverage"] == 1.0
    assert main(["what-if", "desk", "--weight", "warm=2"]) == 0
    assert "what if" in capsys.readouterr().out
    assert main(["what-if", "desk", "--weight", "warm"]) == 2


def test_a_query_below_its_floor_fails_its_expectation_and_somebody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = [{"hook": "oncall", "on": ["violation"]}]
    world = begun(tmp_path, query("means", MEAN, floor=0.9, alerts=hook, capacity={"tuples": 120}))
    run(world)
    world.deliver("sites/2020-02-01/more.json", b"")
    with pytest.raises(SpillwayError, match=r"means, window [\d,]+ .*50 %.* floor of 90 %"):
        world.validate()
    failed = [row for row in world.rows("validations") if not row["success"]]
    assert {(row["table"], row["expectation"], row["stream"]) for row in failed} == {
        ("coverage", "no_query_falls_below_its_floor", "means")
    }
    since = world.batches("sites")[0].created_at
    assert "means" in {alert.stream for alert in recorded_alerts(world.tables.now(), since)}
    told: list[str] = []
    count = send_alerts(
        world.tables,
        world.contracts,
        utc_now(),
        told.append,
        address=lambda _: "http://127.0.0.1:9/",
        pause=lambda _: None,
    )
    assert count == 0
    assert any("oncall" in line for line in told)
    put_queries(world, query("means", MEAN, floor=0.9, capacity={"tuples": 120}))


def test_it_shows_in_explain_and_in_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = begun(tmp_path, query("means", MEAN, **SMALL), query("warm", COUNT))
    run(world)
    found = explain_workload(world.tables.now(), "means")
    assert found is not None
    (tells,) = found.levers
    assert tells.explanation is not None
    assert "of its rows" in tells.explanation.treatment
    assert (
        "capacity group desk has 300 a slice, and 2 queries share it (policy fair)"
        in tells.explanation.because
    )
    assert tells.explanation.numbers["bytes kept"] < tells.explanation.numbers["bytes offered"]
    pictures = list(LEVER.pictures(world.contracts.queries["means"], world.tables.now()))
    assert [(one.kind, one.section) for one in pictures] == [
        ("table", "answers"), ("lines", "details"), ("bars", "details"),
    ]  # fmt: skip
    (answer,) = LEVER.pictures(world.contracts.queries["warm"], world.tables.now())
    last = [row for row in world.rows("coverage") if row["subject"] == "warm"][-1]
    assert f"represents {100 * last['sic']:.3g} % of its input" in answer.title
    assert answer.data["heads"] == ["#warm"]
    ((shown,),) = answer.data["rows"]
    (row,) = [row for row in world.rows("results", "warm") if row["window"] == last["window"]]
    assert shown.split()[0] == format_number(row["warm__estimate"])
    page = whole_report(build_report(world.tables.now(), tmp_path / "report.html"))
    assert "Capacity group desk: what every answer rests on" in page
    _nothing_of_older_windows_is_read_but_columns(world, monkeypatch)


def _nothing_of_older_windows_is_read_but_columns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "SHOWN_BATCHES", 1)
    contract, tables = world.contracts.queries["means"], world.tables.now()

    def tell() -> None:
        told = LEVER.explain(contract, tables)
        assert told is not None
        assert told.numbers["last windows"] == 1
        assert list(LEVER.pictures(contract, tables))

    windows = {row["window"] for row in world.rows("coverage")}
    assert len(windows) == 2
    assert whole_reads(monkeypatch, tell, "coverage", "window") == {max(windows)}
