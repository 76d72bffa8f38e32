"""Windows of joins and queries are judged with the streams they read: once, whenever they were worked out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.levers.joins.lake import JOIN, begun, contract_becomes, run
from tests.levers.quality.worlds import COUNT, put_queries, query
from tests.pipeline.streams import World

from spillway.checks import Outcome
from spillway.clock import utc_now
from spillway.contracts import Contracts, read_workload
from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError
from spillway.levers.windows import DONE, PLANNED, Window
from spillway.pipeline.validate import validate
from spillway.report.summary import expectation_figures
from spillway.settings import Settings
from spillway.store.tables import Tables
from spillway.streams.retention import RetentionResult, maintain_lake
from spillway.workloads.validation import FAILED_FOR, _last_validated, suite_tables, unvalidated_windows

PLACE = ("table", "stream", "batch_date", "expectation")
WARM = COUNT.replace("sites", "east").replace("temp", "level")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A join and a query, worked out when everything that they read was validated already."""
    world = begun(tmp_path_factory.mktemp("lake"), ProcessEngine())
    put_queries(world, query("warm", WARM, inputs=["east"], window={"seconds": 10}, portion_tuples=64))
    world.validate()
    assert run(world) > 0
    return world


@pytest.fixture
def world(lake: World, tmp_path: Path) -> World:
    return lake.copy(tmp_path)


def judged(world: World, *subjects: str) -> set[tuple[str, str]]:
    return {(row["table"], row["stream"]) for row in world.rows("validations") if row["stream"] in subjects}


def spoil(world: World, table: str, subject: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the first of the rows of a window, in the table."""
    rows = world.rows(table, subject)
    mine = [row for row in rows if row["window"] == rows[0]["window"]]
    change(mine[0])
    own = world.tables.now().at(table, subject)
    own = own.with_attributes((), [(n, t, "") for n, t in own.types().items() if n not in own.contract.names])
    own.replace(mine, batch_date=[mine[0]["batch_date"]], window=[mine[0]["window"]])


def test_what_was_worked_out_after_a_validation_is_judged_by_the_next_one_and_once(world: World) -> None:
    assert not judged(world, "alike", "warm")
    world.validate()
    assert judged(world, "alike", "warm") == {
        ("windows", "alike"), ("join_windows", "alike"), ("joined", "alike"), ("ledger", "alike"),
        ("windows", "warm"), ("coverage", "warm"), ("results", "warm"), ("ledger", "warm"),
    }  # fmt: skip
    assert all(row["success"] for row in world.rows("validations"))
    world.validate()
    assert world.said[-1] == "nothing was shed since the last validation"


def test_windows_of_the_minutes_before_the_last_validation_are_looked_at_again_with_those_since() -> None:
    tables, now = Tables(Settings.in_memory("unjudged")), utc_now()
    contracts = Contracts({}, {}, queries={"warm": read_workload(query("warm", COUNT))})
    told = Outcome("coverage", "warm", None, "coverage_is_a_share", True, "", "", "", "a sentence")
    tables.at("validations").append([told.row("run", now)])

    def unjudged(*minutes: int) -> list[int]:
        """Of windows that were worked out so many minutes after that."""
        rows = [
            Window("query", "warm", number, DONE, now, now, (), now, now + timedelta(minutes=after)).row()
            for number, after in enumerate(minutes)
        ]
        tables.now().at("windows").replace(rows, subject="warm")
        found = unvalidated_windows(tables.now(), contracts, ["sites"])
        return [window.window for window in found.get("warm", [])]

    assert unjudged(-1, -2) == [], "they were judged"
    assert unjudged(-20, -9, 1, 20) == [1, 2, 3], "a clock may be ten minutes behind"
    tables.forget()


def test_of_windows_that_are_to_be_worked_out_anew_no_result_is_judged(world: World) -> None:
    tables = world.tables.now()
    rows = tables.at("windows").rows(subject="warm", status=DONE).to_pylist()
    first, *others = (Window.from_row(row) for row in rows)
    late = first.with_changes(utc_now(), status=PLANNED, inputs=(*first.inputs, ("east", 99)))
    found = suite_tables(tables, world.contracts, "warm", [late, *others])
    assert len(found["windows"]) == len(rows)
    assert set(found["coverage"]["window"].to_pylist()) == {one.window for one in others}
    assert set(found["results/warm"].found["window"].to_pylist()) == {one.window for one in others}
    assert first.window not in found["ledger"]["batch"].to_pylist()


def test_a_stream_that_they_do_not_read_is_validated_without_them(world: World) -> None:
    world.validate("west")
    assert judged(world, "alike", "warm") == {
        (table, "alike") for table in ("windows", "join_windows", "joined", "ledger")
    }


@pytest.mark.long
def test_channels_that_are_validated_one_after_the_other_in_a_run_are_one_validation(world: World) -> None:
    run_as_one = partial(validate, world.tables, world.engine, world.contracts, "one", world.said.append)
    for stream in ("west", "east", "east"):
        run_as_one([stream], every=True)
    rows = world.tables.now().at("validations").rows(run_id="one").to_pylist()
    assert {row["stream"] for row in rows} >= {"west", "east", "alike", "warm"}
    assert len({tuple(row[name] for name in PLACE) for row in rows}) == len(rows), "and none is said twice"
    assert expectation_figures(world.tables.now().at("validations").rows().to_pylist())[
        "expectations.run"
    ] == len(rows)


@pytest.mark.parametrize(
    ("table", "subject", "change", "said"),
    [
        ("joined", "alike", {"left_seq": 100_000}, "with a row that is not in its inputs"),
        ("joined", "alike", {"weight": 0.25}, "with a weight below 1"),
        ("results", "warm", {"sic": 0.125}, "has rows whose sic adds up to 12.5 %, but its coverage is 100"),
    ],
)
def test_a_result_that_is_not_what_it_should_be_stays_red_when_it_is_tried_again(
    world: World, table: str, subject: str, change: dict[str, Any], said: str
) -> None:
    spoil(world, table, subject, lambda row: row.update(change))
    for _ in range(2):
        with pytest.raises(SpillwayError, match=said):
            world.validate()
    tables = world.tables.now()
    assert subject not in _last_validated(tables, [subject], utc_now())
    later = _last_validated(tables, [subject], utc_now() + FAILED_FOR + timedelta(minutes=1))
    assert subject in later, "what nobody can mend is not told every night"


def test_a_pair_that_does_not_match_is_found_by_the_rows_it_is_of(world: World) -> None:
    seqs = {row["right_seq"]: row for row in world.rows("joined", "alike")}

    def swapped(row: dict[str, Any]) -> None:
        """Another right row of the same window, which the left one was compared with in vain."""
        pairs = {
            one["right_seq"] for one in world.rows("joined", "alike") if one["left_seq"] == row["left_seq"]
        }
        other = next(
            one
            for seq, one in seqs.items()
            if seq not in pairs and one["window"] == row["window"] and one["right_time"] >= row["left_time"]
        )
        row.update(right_seq=other["right_seq"], right_time=other["right_time"])

    spoil(world, "joined", "alike", swapped)
    with pytest.raises(SpillwayError, match=r"alike, window [\d,]+ has 1 of [\d,]+ pairs that do not match"):
        world.validate()


def test_pairs_are_judged_by_the_rule_that_made_them_and_not_by_a_later_one(world: World) -> None:
    contract_becomes(world, JOIN, threshold=3, left={"attribute": "tags", "lasts_seconds": 2})
    spoil(world, "joined", "alike", lambda row: row.update(weight=0.25))
    with pytest.raises(SpillwayError, match="with a weight below 1"):
        world.validate()
    failed = [row["expectation"] for row in world.rows("validations") if not row["success"]]
    assert len(failed) == 1, (
        "what has nothing to do with the rule is looked at, and nothing else is held against them"
    )


def test_what_was_shed_again_since_is_not_held_against_its_pairs(world: World) -> None:
    spoil(world, "joined", "alike", lambda row: row.update(left_seq=100_000))
    (batch,) = world.batches("east")
    row = batch.with_changes(utc_now()).row()
    world.tables.now().at("batches").replace([row], stream="east", batch=[batch.batch])
    world.validate()
    assert ("joined", "alike") in judged(world, "alike")


def test_what_old_windows_left_goes_and_what_the_next_one_begins_with_stays(world: World) -> None:
    contract_becomes(world, {**JOIN, "retain_days": 30})
    tables = ("join_windows", "coverage")
    before = {name: {row["window"] for row in world.rows(name)} for name in tables}
    day = datetime(2026, 6, 1, tzinfo=UTC)
    windows = world.tables.now().at("windows")
    worked_out = [{**row, "models": {}, "updated_at": day} for row in windows.rows().to_pylist()]
    windows.replace(worked_out, subject=["alike", "warm"])
    assert max(row["to_time"] for row in worked_out) < day - timedelta(days=100)
    assert kept(world, day + timedelta(days=30)).rows_removed == {}, "it was worked out thirty days ago"
    assert kept(world, day + timedelta(days=31)).rows_removed.keys() == {"joined"}
    assert (world.rows("joined", "alike"), len(world.rows("results", "warm")) > 0) == ([], True)
    kept(world, day + timedelta(days=401))
    assert {name: {row["window"] for row in world.rows(name)} for name in tables} == {
        name: {max(windows)} for name, windows in before.items()
    }
    subjects = {row["subject"] for row in world.rows("ledger")}
    kept(world, day + timedelta(days=1101))
    left = [row["batch"] for row in world.rows("ledger") if row["subject"] in ("alike", "warm")]
    assert subjects >= {"alike", "warm"}
    assert set(left) == {max(before["join_windows"]), max(before["coverage"])}


def kept(world: World, now: datetime) -> RetentionResult:
    return maintain_lake(world.tables, world.contracts, world.said.append, now=now)
