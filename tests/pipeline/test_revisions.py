"""Two runs that load, decide and save: one wins, the other stops with a sentence, and nothing that was sent is lost."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.streams import METERS, SITES, WATCHED, World, json_lines, sites

from spillway.batch import DONE, INGESTED, PLANNED, RECORDED, RETIRED
from spillway.clock import utc_now
from spillway.errors import ConcurrentRun, InvalidValue, SpillwayError
from spillway.intake import ingest as taking_in
from spillway.pipeline import validate as retiring
from spillway.pipeline import validate as validating
from spillway.pipeline.validate import retire_raw_dates
from spillway.store.batches import certified_revisions, load_batches, reserve, save_batches
from spillway.store.tables import Table
from spillway.streams import shed as shedding

FIRST, SECOND = date(2020, 1, 1), date(2020, 1, 2)
RETIRING = {**SITES, "retain_raw": {"days": 30, "retire": True}}
OVERTAKEN = "sites: another run has changed batch 3 .*; nothing was doubled, run it again"


@pytest.fixture
def aged(world: World, tmp_path: Path) -> World:
    """Shed, validated, and so old that raw may go."""
    found = world.copy(tmp_path)
    found.contract_becomes(RETIRING, METERS, WATCHED)
    return found


def before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, happens: Any) -> None:
    """Once, right before a function is called, something happens."""
    whole = getattr(owner, name)

    def first(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(owner, name, whole)
        happens()
        return whole(*given, **named)

    monkeypatch.setattr(owner, name, first)


def test_of_two_who_read_a_batch_the_second_to_save_it_is_refused_whichever_tables_it_opened(
    aged: World,
) -> None:
    one, two = (load_batches(aged.tables.now(), "sites")[2] for _ in range(2))
    (saved,) = save_batches(aged.tables.now(), [one.with_changes(utc_now(), status=PLANNED)])
    assert saved.revision == one.revision + 1
    with pytest.raises(ConcurrentRun, match=OVERTAKEN):
        # long work in between, and the table opened anew: what was read is still what was decided on
        save_batches(aged.tables.now(), [two.with_changes(utc_now(), status=RETIRED)])
    assert aged.batches("sites")[2] == saved


def test_of_two_first_writes_of_a_batch_the_second_is_refused(aged: World) -> None:
    new = load_batches(aged.tables, "sites")[2].with_changes(utc_now(), batch=4, status=RECORDED, revision=0)
    slow, quick = aged.tables.now(), aged.tables.now()
    assert len(load_batches(slow, "sites")) == len(load_batches(quick, "sites")) == 3
    save_batches(quick, [new])
    for tables in (slow, aged.tables.now()):
        with pytest.raises(ConcurrentRun, match="nothing was doubled"):
            save_batches(tables, [new.with_changes(utc_now(), first_seq=7)])
    assert [(one.batch, one.first_seq) for one in aged.batches("sites")][3:] == [(4, new.first_seq)]


def test_a_backfill_that_meets_a_retirement_touches_nothing_that_was_sent(
    aged: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = aged.rows("transmitted", "sites")
    before(monkeypatch, shedding, "_pinned", lambda: aged.validate("sites"))
    with pytest.raises(ConcurrentRun, match="nothing was doubled"):
        aged.shed(dates=(SECOND, SECOND))
    assert {batch.status for batch in aged.batches("sites")} == {RETIRED}
    assert aged.files("raw", "sites") == {}
    assert aged.rows("transmitted", "sites") == sent
    with pytest.raises(SpillwayError, match="must not touch retired dates"):
        aged.shed(dates=(SECOND, SECOND))


def test_a_retirement_that_meets_a_backfill_deletes_nothing(
    aged: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = aged.rows("raw", "sites")

    def backfill() -> None:
        aged.shed(dates=(SECOND, SECOND))

    before(monkeypatch, retiring, "_files_to_delete", backfill)
    with pytest.raises(ConcurrentRun, match="nothing was doubled"):
        aged.validate("sites")
    assert {batch.status for batch in aged.batches("sites")} == {DONE}
    assert aged.rows("raw", "sites") == raw
    aged.validate("sites")
    assert {batch.status for batch in aged.batches("sites")} == {RETIRED}, "what was certified anew"


def test_a_certificate_is_of_the_revision_that_was_measured_whatever_the_clocks_say(
    aged: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shedding, "utc_now", lambda: datetime(2001, 1, 1, tzinfo=UTC))
    before(monkeypatch, validating, "certification_step", lambda: aged.shed(dates=(SECOND, SECOND)))
    aged.validate("sites", every=True)
    assert [str(b.batch_date) for b in aged.batches("sites") if b.status == RETIRED] == [str(FIRST)] * 2
    tables = aged.tables.now()
    stands = {batch.batch: batch.revision for batch in load_batches(tables, "sites")}
    assert certified_revisions(tables, "sites", [3]).get(3) != stands[3], "shed again while it was measured"
    gone = retire_raw_dates(tables, aged.contracts.streams["sites"], (), aged.said.append)
    assert 3 not in [batch.batch for batch in gone]


def test_a_run_that_stood_still_before_it_opened_its_tables_writes_nothing_over_what_another_finished(
    aged: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged.deliver("sites/2020-01-03/d.json", json_lines(sites(710, 60)))
    before(monkeypatch, shedding, "_bring_through", lambda: aged.shed())
    with pytest.raises(ConcurrentRun, match="another run has changed batch 4"):
        aged.shed()
    assert aged.batches("sites")[3].status == DONE


def test_a_run_that_stood_still_after_it_recorded_a_batch_writes_no_raw_over_what_another_finished(
    aged: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged.deliver("sites/2020-01-03/d.json", json_lines(sites(710, 60)))
    recorded = taking_in.record_batches
    raw: list[str] = []

    def stands_still(*given: Any) -> Any:
        found = recorded(*given)
        if not found:
            return found
        monkeypatch.setattr(taking_in, "record_batches", recorded)
        aged.shed()
        raw.extend(aged.files("raw", "sites"))
        return found

    monkeypatch.setattr(taking_in, "record_batches", stands_still)
    with pytest.raises(ConcurrentRun, match="another run has changed batch 4"):
        aged.shed()
    assert list(aged.files("raw", "sites")) == raw
    assert aged.batches("sites")[3].status == DONE


def test_a_batch_is_reserved_only_as_it_was_read(aged: World) -> None:
    (one,) = load_batches(aged.tables.now(), "sites")[2:]
    reserve(aged.tables.now(), [one], [])
    save_batches(aged.tables.now(), [one.with_changes(utc_now(), status=INGESTED)])
    with pytest.raises(ConcurrentRun, match=OVERTAKEN):
        reserve(aged.tables.now(), [one], [])
    reserve(aged.tables.now(), [], [])


@pytest.mark.parametrize("gone", [{"batch": 3}, {"seq": 470}], ids=["all of it", "one tuple"])
def test_what_raw_has_lost_takes_nothing_out_of_what_was_sent(aged: World, gone: dict[str, int]) -> None:
    sent = aged.rows("transmitted", "sites")
    aged.at("raw", "sites").delete(**gone)
    with pytest.raises(SpillwayError, match="must balance: offered 250 is not kept"):
        aged.shed(dates=(SECOND, SECOND))
    assert aged.rows("transmitted", "sites") == sent


def test_a_reader_of_what_is_retired_meanwhile_is_told_that_it_is_gone(aged: World) -> None:
    reading = aged.tables.now().at("raw", "sites")
    assert reading.files()
    aged.validate("sites", every=True)
    assert list(Path(reading.path).rglob("*.parquet")) == []
    with pytest.raises(
        InvalidValue, match=r"`file` must exist and be complete, .*; restore it, or do its batch again"
    ):
        reading.rows(["seq"])


def test_retiring_takes_out_its_own_files_alone_and_is_gone_on_with_after_a_death(
    aged: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = Path(aged.at("raw", "sites").path)
    stranger = raw / "batch_date=2020-01-01" / "being-written.parquet"
    stranger.write_bytes(b"not committed yet")

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Table, "erase", dies)
        with pytest.raises(KeyboardInterrupt):
            aged.validate("sites", every=True)
    leaving = [path for batch in aged.batches("sites") for path in batch.raw_leaving]
    assert {batch.status for batch in aged.batches("sites")} == {RETIRED}
    assert sorted(raw / path for path in leaving) == sorted(set(raw.rglob("*.parquet")) - {stranger})
    aged.validate("sites")
    assert list(raw.rglob("*.parquet")) == [stranger], "it may be about to be committed"
    assert [batch.raw_leaving for batch in aged.batches("sites")] == [(), (), ()]
    lines = [row for row in aged.rows("ledger") if row["stage"] == "retire"]
    assert [(row["batch"], row["recoverable"]) for row in lines] == [(1, 330), (2, 130), (3, 250)]
