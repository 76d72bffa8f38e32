"""Again, and nothing changes: reruns, backfills, retraining in between, and what was retired."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.streams import METERS, OF_A_STREAM, SITES, TABLES, WATCHED, World, json_lines, sites

from spillway.batch import DONE, INGESTED, PLANNED, RETIRED, UNTRAINED, Batch
from spillway.checks import ExpectationsFailed, Outcome
from spillway.clock import utc_now
from spillway.engine.protocol import run_alone
from spillway.errors import SpillwayError
from spillway.levers.protocol import CapacityShare, Facts
from spillway.pipeline import validate
from spillway.pipeline import validate as validating
from spillway.pipeline.validate import retire_raw_dates
from spillway.store.batches import save_batches
from spillway.store.tables import Table
from spillway.streams import shed as shedding
from spillway.streams.query import StreamQuery
from spillway.streams.recover import look_up
from spillway.streams.shed import _pinned

STREAMS = ("sites", "meters", "watched")
FIRST, SECOND = date(2020, 1, 1), date(2020, 1, 2)
RETIRING = {**SITES, "retain_raw": {"days": 30, "retire": True}}


class Died(BaseException):
    """The process is gone as far as the lake can tell."""


def versions(world: World) -> dict[str, int]:
    """The commit every table stands at."""
    tables = [world.at(table) for table in TABLES]
    tables += [world.at(table, stream) for table in OF_A_STREAM for stream in STREAMS]
    return {table.path: table.version for table in tables if table.exists}


def dies_before(monkeypatch: pytest.MonkeyPatch, doomed: Callable[[str], bool]) -> None:
    """From now on the first write to a table that is `doomed` is the end."""
    for method in ("publish", "replace", "append", "delete"):
        whole = getattr(Table, method)

        def until_then(self: Table, *args: Any, _whole: Any = whole, **more: Any) -> Any:
            if doomed(self.contract.table):
                raise Died(self.contract.table)
            return _whole(self, *args, **more)

        monkeypatch.setattr(Table, method, until_then)


def retired(world: World) -> list[Batch]:
    """What retiring the old dates of `sites` takes out, as a run of its own."""
    return retire_raw_dates(world.tables.now(), world.contracts.streams["sites"], (), world.said.append)


def test_a_run_with_nothing_new_writes_nothing(world: World) -> None:
    before = versions(world)
    assert len(before) > 12
    assert world.shed() == []
    world.validate()
    assert world.said[-1] == "nothing was shed since the last validation"
    assert versions(world) == before


def test_a_backfill_recomputes_the_dates_that_were_asked_for_and_leaves_the_others_files_alone(
    world: World, tmp_path: Path
) -> None:
    again = world.copy(tmp_path)
    before = {table: again.files(table, "sites") for table in ("raw", "transmitted")}
    synopsis = again.files("synopsis")
    done = again.shed(dates=(FIRST, FIRST))
    assert sorted((b.stream, b.batch, b.batch_date) for b in done) == [
        ("meters", 1, FIRST),
        ("meters", 2, FIRST),
        ("sites", 1, FIRST),
        ("sites", 2, FIRST),
    ]
    assert again.files("raw", "sites") == before["raw"]
    for was, now in (
        (before["transmitted"], again.files("transmitted", "sites")),
        (synopsis, again.files("synopsis")),
    ):
        other = {path for path, day in was.items() if day == str(SECOND)}
        assert other
        assert other <= set(now)
        assert not {path for path, day in was.items() if day == str(FIRST)} & set(now)
    expected = world.everything(*STREAMS)
    for table, rows in again.everything(*STREAMS).items():
        assert rows == expected[table], table


def test_a_backfill_that_dies_is_finished_by_the_next_run(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = world.copy(tmp_path)
    with monkeypatch.context() as patch:
        dies_before(patch, lambda table: table == "schemes")
        with pytest.raises(Died):
            again.shed(dates=(SECOND, SECOND))
    assert [b.status for b in again.batches("sites")] == [DONE, DONE, PLANNED]
    assert [(b.stream, b.batch) for b in again.shed()] == [("sites", 3)]
    expected, found = world.everything(*STREAMS), again.everything(*STREAMS)
    for table, rows in expected.items():
        assert found[table] == rows, table


def test_a_frame_goes_on_only_from_the_batch_just_before_it(world: World, tmp_path: Path) -> None:
    fresh = World.begin(world.engine, tmp_path, {**SITES, "stream": "s"})
    held = []
    for number, (tuples, first, last) in enumerate(
        [(100, 0, 149), (64, 150, 249), (None, 250, 349), (None, 350, 420)]
    ):
        framed: dict[str, Any] = {"frame_origin": first, "frame_tuples": tuples, "levers": ("attributes",)}
        status = DONE if number < 2 else INGESTED
        held.append(
            Batch(
                *("s", number + 1, FIRST, status, (), first, last, "run", utc_now(), utc_now()),
                **(framed if number < 2 else {}),
            )
        )
    save_batches(fresh.tables, held)
    pending = [batch for batch in fresh.batches("s") if batch.status == INGESTED]
    now = fresh.tables.now()
    shares = {one.batch: CapacityShare(1.0) for one in pending}
    pinned = run_alone(fresh.engine, _pinned(now, fresh.contracts.streams["s"], pending, shares, None))
    # 250 is not in a frame of 100 from 0: tuples of other frames lie in between, whose entries it would not find
    assert [batch.frame_origin for batch in pinned] == [250, 250]
    assert fresh.batches("s")[2:] == pinned


@pytest.mark.parametrize(
    ("levers", "models", "tuples", "origin"),
    [
        (("attributes",), {"attributes": 3}, 100, 0),
        (("attributes",), {"attributes": 2}, 100, 150),
        (("thin", "attributes"), {"attributes": 3}, 100, 150),
        (("attributes",), {"attributes": 3}, 99, 150),
    ],
    ids=["alike", "other facts", "other levers", "other frames"],
)
def test_a_frame_goes_on_only_under_the_same_levers_facts_and_length(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    levers: tuple[str, ...],
    models: dict[str, int],
    tuples: int,
    origin: int,
) -> None:
    fresh = World.begin(world.engine, tmp_path, {**SITES, "stream": "s"})
    monkeypatch.setattr(shedding, "newest_facts", lambda *_: Facts(3, {}))
    at = (utc_now(), utc_now())
    before = Batch(
        *("s", 1, FIRST, DONE, (), 0, 149, "run", *at),
        levers=levers,
        models=models,
        frame_origin=0,
        frame_tuples=tuples,
    )
    mine = Batch("s", 2, FIRST, INGESTED, (), 150, 249, "run", *at)
    _, mine = save_batches(fresh.tables, [before, mine])
    shares = {mine.batch: CapacityShare(1.0)}
    (pinned,) = run_alone(
        fresh.engine, _pinned(fresh.tables.now(), fresh.contracts.streams["s"], [mine], shares, None)
    )
    assert (pinned.frame_origin, pinned.levers, dict(pinned.models)) == (
        origin,
        ("attributes",),
        {"attributes": 3},
    )


@pytest.mark.long
def test_a_batch_keeps_the_models_it_was_planned_with_through_a_death_and_a_retraining(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = world.copy(tmp_path / "straight")
    straight.deliver("sites/2020-01-03/d.json", json_lines(sites(710, 160)))
    broken = straight.copy(tmp_path / "broken")
    straight.shed()
    with monkeypatch.context() as patch:
        dies_before(patch, lambda table: table == "synopsis")
        with pytest.raises(Died):
            broken.shed()
    assert (broken.batches("sites")[-1].status, dict(broken.batches("sites")[-1].models)) == (
        PLANNED,
        {"attributes": 1},
    )
    broken.train("sites")
    assert {row["version"] for row in broken.rows("models") if row["stream"] == "sites"} == {1, 2}
    broken.shed()
    assert [b.models["attributes"] for b in broken.batches("sites")] == [1, 1, 1, 1]
    expected, found = straight.everything(*STREAMS), broken.everything(*STREAMS)
    for table in expected.keys() - {"models"}:
        assert found[table] == expected[table], table
    # and the next batch takes the new ones, in frames of its own
    broken.deliver("sites/2020-01-03/e.json", json_lines(sites(870, 40)))
    broken.shed()
    newest = broken.batches("sites")[-1]
    assert (newest.models["attributes"], newest.frame_origin) == (2, newest.first_seq)
    broken.validate("sites")
    assert {row["violations"] for row in broken.rows("certificates")} == {0}


def test_only_validated_dates_that_are_old_enough_are_retired_and_then_refused_by_name(
    world: World, tmp_path: Path
) -> None:
    aged = world.copy(tmp_path)
    aged.contract_becomes(RETIRING, METERS, WATCHED)
    today = utc_now().date()
    aged.deliver(f"sites/{today}/young.json", json_lines(sites(710, 60)))
    aged.deliver(
        "sites/2020-01-02/late.json", json_lines(sites(770, 50))
    )  # not validated: its date must stay
    aged.shed()
    assert [batch.batch for batch in retired(aged)] == [1, 2]
    statuses = [(str(b.batch_date), b.status) for b in aged.batches("sites")]
    assert statuses == [
        ("2020-01-01", RETIRED),
        ("2020-01-01", RETIRED),
        ("2020-01-02", DONE),
        ("2020-01-02", DONE),
        (str(today), DONE),
    ]
    assert sorted(set(aged.files("raw", "sites").values())) == ["2020-01-02", str(today)]
    left = list(Path(aged.at("raw", "sites").path, "batch_date=2020-01-01").glob("*.parquet"))
    assert left == [], "retired tuples are gone from the disk"
    assert set(aged.files("raw", "meters").values()) == {"2020-01-01"}
    # what was sent can still be given back
    contract = aged.contracts.streams["sites"]
    found = look_up(aged.tables, contract, StreamQuery.parse(contract, from_seq=300, to_seq=340))
    assert found.rows["temp"].null_count == world.frame("raw", "sites")["temp"][300:341].isna().sum()
    with pytest.raises(
        SpillwayError, match=r"sites: a backfill must not touch retired dates, got 2020-01-01,"
    ):
        aged.shed(dates=(FIRST, SECOND))
    assert [b.batch for b in aged.shed(dates=(SECOND, SECOND)) if b.stream == "sites"] == [3, 4]


def test_a_death_while_retiring_loses_nothing_that_was_sent(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged = world.copy(tmp_path)
    aged.contract_becomes(RETIRING, METERS, WATCHED)
    sent = aged.rows("transmitted", "sites")
    for table in ("batches", "ledger", "raw"):
        with monkeypatch.context() as patch:
            dies_before(patch, lambda written, table=table: written == table)
            with pytest.raises(Died):
                retired(aged)
        raw_is_there = {str(FIRST), str(SECOND)} == set(aged.files("raw", "sites").values())
        known = all(batch.status == RETIRED for batch in aged.batches("sites"))
        assert raw_is_there or known, (
            "tuples without raw must be known as retired, or a backfill would lose them"
        )
    retired(aged)
    assert {b.status for b in aged.batches("sites")} == {RETIRED}
    assert aged.files("raw", "sites") == {}
    assert aged.rows("transmitted", "sites") == sent
    lines = [row for row in aged.rows("ledger") if row["stage"] == "retire"]
    assert [(row["batch"], row["offered"], row["recoverable"]) for row in lines] == [
        (1, 330, 330),
        (2, 130, 130),
        (3, 250, 250),
    ]
    assert all(row["bytes_offered"] > 0 for row in lines)


def test_what_failed_its_expectations_is_validated_again_and_not_retired(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged = world.copy(tmp_path)
    aged.contract_becomes(RETIRING, METERS, WATCHED)
    save_batches(aged.tables.now(), [b.with_changes(utc_now()) for b in aged.batches("sites")])
    failure: Any = type("Failure", (), {"sentence": "no", "success": False})()

    def fails(*_: Any) -> Any:
        raise ExpectationsFailed([failure])

    with monkeypatch.context() as patch:
        patch.setattr(validating, "check_changed", fails)
        with pytest.raises(ExpectationsFailed):
            aged.validate("sites")

    def waiting() -> list[int]:
        changed = validating.changed_batches(aged.tables.now(), "sites")
        return [batch.batch for batch in changed]

    assert waiting() == [1, 2, 3], "certified, and never judged"
    assert retired(aged) == []
    again = aged.copy(tmp_path / "again")
    again.contract_becomes(SITES, METERS, WATCHED)
    again.validate("sites")
    assert validating.changed_batches(again.tables.now(), "sites") == []
    with monkeypatch.context() as patch:
        patch.setattr(validating, "check_changed", fails)
        with pytest.raises(ExpectationsFailed):
            again.validate("sites", every=True)
    found = validating.changed_batches(again.tables.now(), "sites")
    assert [batch.batch for batch in found] == [1, 2, 3], "what held before and fails now is not validated"
    bad = Outcome("ledger", "sites", SECOND, "balances", False, "1", "0", "", "sites does not balance")
    with monkeypatch.context() as patch:
        patch.setattr(validate, "run_suites", lambda *_, **__: [bad])
        with pytest.raises(ExpectationsFailed, match="sites does not balance"):
            aged.validate("sites")
    assert waiting() == [3], "what holds for a date is not looked at again"
    assert [b.status for b in aged.batches("sites")] == [RETIRED, RETIRED, DONE]
    aged.shed(dates=(SECOND, SECOND))
    assert waiting() == [3], "shed again: the certificate is of another revision"
    assert retired(aged) == []
    aged.validate("sites")
    assert waiting() == []
    assert {batch.status for batch in aged.batches("sites")} == {RETIRED}


def test_batches_that_wait_for_training_do_not_stand_in_the_way_of_others(
    world: World, tmp_path: Path
) -> None:
    mixed = world.copy(tmp_path)
    new = {**SITES, "stream": "novel", "source": {"kind": "files", "path": "novel", "format": "json"}}
    mixed.contract_becomes(SITES, METERS, WATCHED, new)
    mixed.deliver("novel/2020-01-01/a.json", json_lines(sites(0, 30)))
    mixed.deliver("sites/2020-01-03/d.json", json_lines(sites(710, 30)))
    assert [(b.stream, b.batch) for b in mixed.shed()] == [("sites", 4)]
    assert [b.status for b in mixed.batches("novel")] == [UNTRAINED]
