"""What an adversary tried: damaged tables, contracts that change under batches, and a backfill amid a validation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.streams import (
    METERS,
    SITES,
    World,
    csv_lines,
    day,
    json_lines,
    meters,
    sites,
)

from spillway.batch import DONE, RETIRED
from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError
from spillway.levers.attributes.plan import AttributePlan
from spillway.pipeline.validate import changed_batches
from spillway.streams import certify as certifying
from spillway.streams import drafts
from spillway.streams import shed as shedding
from spillway.streams.capacity import plan_all
from spillway.streams.drafts import SendTask
from spillway.streams.query import StreamQuery
from spillway.streams.recover import RecoveredRows, look_up

NARROW = "5 kbps"
PLAIN: dict[str, Any] = {**SITES, "levers": []}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two streams of one channel, trained and shed once, each with a file that waits."""
    world = World.begin(ProcessEngine(), tmp_path_factory.mktemp("two"), SITES, METERS, capacity=NARROW)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.deliver("meters/2020-01-01/a.csv", csv_lines(meters(0, 350)))
    world.shed()
    world.train("sites", "meters")
    world.shed()
    world.deliver("sites/2020-01-01/b.json", json_lines(sites(330, 130)))
    world.deliver("meters/2020-01-01/b.csv", csv_lines(meters(350, 90)))
    return world


def looked_up(world: World, **asked: Any) -> RecoveredRows:
    contract = world.contracts.streams["sites"]
    return look_up(world.tables, contract, StreamQuery.parse(contract, **asked))


def certified(world: World) -> set[tuple[int, int]]:
    """Batches of `sites` and what was found wrong with each."""
    rows = [row for row in world.rows("certificates") if row["stream"] == "sites"]
    return {(row["batch"], row["violations"]) for row in rows}


def models_become(world: World, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    table = world.at("models")
    rows = [changed for row in table.rows(stream="sites").to_pylist() if (changed := change(row))]
    table.replace(rows, stream="sites")


def with_value(fact: str, value: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda row: {**row, "value": value} if row["fact"] == fact else row


def with_text(world: World, table: str, column: str, text: str) -> None:
    rows = [{**row, column: text} for row in world.at(table).rows(stream="sites").to_pylist()]
    world.at(table).replace(rows, stream="sites")


DAMAGE: dict[str, tuple[Callable[[World], object], str]] = {
    "a fact that is no JSON": (
        lambda world: models_become(world, with_value("attribute", "{oops")),
        r"sites: models, attributes version 1, attribute \w+: `value` must be JSON, got '\{oops'; restore",
    ),
    "evidence that is no JSON": (
        lambda world: with_text(world, "models", "evidence", "x"),
        r"`evidence` must be JSON, got 'x'",
    ),
    "a fact of another shape": (
        lambda world: models_become(world, with_value("options", '[{"way": "fly"}]')),
        r"attributes, version 1: `facts` must be as training wrote them, got .TypeError",
    ),
    "no cycle": (
        lambda world: models_become(world, lambda row: row if row["fact"] != "cycle" else None),
        "`facts` must be as training wrote them",
    ),
    "no such version": (
        lambda world: models_become(world, lambda row: {**row, "version": 7}),
        "sites: `models` must hold version 1 of attributes",
    ),
    "a planner's state that is no JSON": (
        lambda world: with_text(world, "schemes", "state", "{x"),
        r"sites: schemes, batch 1: `state` must be JSON, got '\{x'; shed its batch again",
    ),
    "raw files that are gone": (
        lambda world: [Path(file.path).unlink() for file in world.at("raw", "sites").files()],
        "`file` must exist and be complete, got .*No such file",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_stream_is_told_in_a_sentence_and_keeps_no_other_of_its_channel_back(
    two: World, tmp_path: Path, damage: str
) -> None:
    world = two.copy(tmp_path)
    harm, sentence = DAMAGE[damage]
    harm(world)
    with pytest.raises(SpillwayError, match=sentence):
        world.shed()
    assert [batch.status for batch in world.batches("meters")] == [DONE, DONE]
    assert world.batches("sites")[1].status != DONE


def test_transmitted_files_that_are_gone_or_broken_are_named(two: World, tmp_path: Path) -> None:
    world = two.copy(tmp_path)
    (file,) = world.at("transmitted", "sites").files()
    Path(file.path).write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(
        SpillwayError, match=r"part-.*`file` must exist and be complete, got .Parquet file size"
    ):
        looked_up(world, seq=3)
    Path(file.path).unlink()
    with pytest.raises(SpillwayError, match=r"part-.*`file` must exist and be complete.*do its batch again"):
        looked_up(world, seq=3)


def test_values_whose_scheme_is_gone_are_an_error_and_never_null(two: World, tmp_path: Path) -> None:
    world = two.copy(tmp_path)
    assert looked_up(world, seq=3).rows["temp"].null_count == 0
    world.at("schemes").delete(stream="sites")
    with pytest.raises(SpillwayError, match="`seq` must lie under a scheme, got 3; shed its batch again"):
        looked_up(world, seq=3)


def test_nothing_is_predicted_from_an_attribute_that_the_contract_has_lost(
    two: World, tmp_path: Path
) -> None:
    world = two.copy(tmp_path)
    world.contract_becomes(SITES, METERS, capacity="0.5 kbps")
    world.shed(dates=(day(0), day(0)))
    # `level` is an exact function of `temp`, which raw still has and the destination will not
    lost = [one for one in SITES["attributes"] if one["name"] != "temp"]
    world.contract_becomes({**SITES, "attributes": lost}, METERS, capacity="0.5 kbps")
    world.shed(dates=(day(0), day(0)))
    shed = {row["dimension"] for row in world.rows("ledger") if row["shed"] and row["subject"] == "sites"}
    assert "level" in shed
    world.validate("sites")
    assert certified(world) == {(1, 0)}


def test_a_stream_that_promises_nothing_is_validated_once_and_then_retired(tmp_path: Path) -> None:
    world = World.begin(ProcessEngine(), tmp_path, {**PLAIN, "retain_raw": {"days": 30, "retire": True}})
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 60)))
    world.shed()
    world.validate()
    assert certified(world) == {(1, 0)}
    assert changed_batches(world.tables.now(), "sites") == []
    assert [batch.status for batch in world.batches("sites")] == [RETIRED]
    world.validate()
    assert world.said[-1] == "nothing was shed since the last validation"


def test_rows_that_nobody_accounts_for_stop_the_run_and_those_lost_later_are_violations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World.begin(ProcessEngine(), tmp_path, PLAIN)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 60)))

    def loses_one(self: SendTask, *given: Any) -> Iterator[Any]:
        for found in whole(self, *given):
            yield found.slice(1)

    whole = SendTask.__call__
    with monkeypatch.context() as patch:
        patch.setattr(SendTask, "__call__", loses_one)
        with pytest.raises(SpillwayError, match="must balance: offered 60 is not kept 59"):
            world.shed()
    assert world.rows("transmitted", "sites") == []
    assert list(Path(world.settings.lake).rglob("transmitted/sites/**/*.parquet")) == []
    world.shed()
    # somebody loses one later
    sent = world.at("transmitted", "sites")
    sent.delete(seq=7)
    with pytest.raises(SpillwayError):
        world.validate()
    assert certified(world) == {(1, 1)}
    assert [batch.batch for batch in changed_batches(world.tables.now(), "sites")] == [1]


def test_what_is_shed_again_while_it_is_validated_is_validated_again(
    two: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = two.copy(tmp_path)
    measured = certifying._certificate_rows

    def amid(*given: Any) -> Iterator[Any]:
        monkeypatch.undo()
        world.shed(dates=(day(0), day(0)))
        yield from measured(*given)

    monkeypatch.setattr(certifying, "_certificate_rows", amid)
    world.validate("sites")
    assert [batch.batch for batch in changed_batches(world.tables.now(), "sites")] == [1]


def test_a_value_that_may_not_be_shed_any_more_still_comes_with_the_bound_it_was_shed_under(
    two: World, tmp_path: Path
) -> None:
    world = two.copy(tmp_path)
    before = looked_up(world, seq=3).rows
    assert before["temp__bound_pct"].null_count == 0
    guarded = [
        {"name": "temp", "type": "double", "role": "protected"} if one["name"] == "temp" else one
        for one in SITES["attributes"]
    ]
    world.contract_becomes({**SITES, "attributes": guarded}, METERS, capacity=NARROW)
    assert looked_up(world, seq=3).rows.equals(before)
    assert "site__bound_pct" not in before.column_names


def test_a_column_that_a_lever_added_is_none_of_the_contracts_when_the_lever_is_gone(
    two: World, tmp_path: Path
) -> None:
    world = two.copy(tmp_path)
    world.contract_becomes(PLAIN, METERS, capacity=NARROW)
    world.validate("sites")
    kinds = world.at("recovered", "sites").types()
    assert "scheme" in kinds
    assert "scheme__bound_pct" not in kinds


def strays(world: World) -> set[str]:
    """Files that lie in a folder of a table and never stood in it."""
    found = set()
    for table, stream in (
        ("synopsis", None),
        ("sent_synopsis", None),
        ("transmitted", "sites"),
        ("transmitted", "meters"),
    ):
        opened = world.at(table, stream)
        log = "".join(path.read_text() for path in Path(opened.path, "_delta_log").glob("*.json"))
        found |= {str(path) for path in Path(opened.path).rglob("part-*.parquet") if path.name not in log}
    return found


@pytest.mark.parametrize(
    "problem", [SpillwayError("no"), OSError("the disk is full"), KeyboardInterrupt("^C")]
)
def test_a_draft_that_cannot_be_made_leaves_no_file_behind(
    two: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: BaseException
) -> None:
    world = two.copy(tmp_path)

    def refuses(self: SendTask, *given: Any) -> Iterator[Any]:
        raise problem
        yield

    monkeypatch.setattr(SendTask, "__call__", refuses)
    with pytest.raises((SpillwayError, KeyboardInterrupt), match=re.escape(str(problem))):
        world.shed()
    assert strays(world) == set()


@pytest.mark.parametrize(
    "problem",
    [SpillwayError("no"), pytest.param(OSError("the disk is full"), marks=pytest.mark.long)],
)
@pytest.mark.parametrize("dies", ["another plan", "a record", "the ledger"])
def test_whatever_comes_between_a_draft_and_its_tables_leaves_no_file_behind(
    two: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception, dies: str
) -> None:
    world = two.copy(tmp_path)

    def refuses(*_: Any, **__: Any) -> Any:
        raise problem

    with monkeypatch.context() as patch:
        if dies == "another plan":
            patch.setattr(shedding, "_planned", lambda room, runs, *_: plan_all(room, runs))
            patch.setattr(shedding, "plan_all", refuses)
        elif dies == "a record":
            patch.setattr(AttributePlan, "records", refuses)
        else:
            patch.setattr(drafts, "write_ledger_together", refuses)
        with pytest.raises(SpillwayError, match=str(problem)):
            world.shed()
    assert strays(world) == set()
    world.shed()
    world.validate()
    assert certified(world) == {(1, 0), (2, 0)}


def test_the_last_moment_there_is_can_be_asked_for(tmp_path: Path) -> None:
    moments = ["9999-12-31T23:59:59.000Z", "9999-12-31T23:59:59.999Z"]
    world = World.begin(ProcessEngine(), tmp_path, PLAIN)
    world.deliver(
        "sites/2020-01-01/a.json",
        json_lines([{**row, "at": moments[i % 2]} for i, row in enumerate(sites(0, 6))]),
    )
    world.shed()
    found = looked_up(world, from_time=moments[1])
    assert found.rows["seq"].to_pylist() == [1, 3, 5]
