"""What cannot be used is refused by file, by name, and the stream goes on; what fails twice is set aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.intake.landing_world import CONTRACT, LandingWorld, contract, lines

from spillway.batch import INGESTED, QUARANTINED, RECORDED
from spillway.contracts import StreamContract
from spillway.errors import InvalidExternalValue, SpillwayError
from spillway.intake import parse, raw
from spillway.intake import parse as tasks
from spillway.records import parse_blocks
from spillway.store.blobs import list_files
from spillway.store.landing_zone import open_landing_file

BAD = b'{"router": "r", "at": 9, "delay_ms": "fast"}\n'


@pytest.fixture
def world(tmp_path: Path) -> LandingWorld:
    return LandingWorld(tmp_path)


def test_a_file_with_too_many_bad_records_is_refused_and_the_rest_of_its_batch_goes_on(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.deliver("a.json", lines(range(20)))
    world.deliver("b.json", lines(range(20, 30)) + 10 * BAD)
    world.deliver("c.json", lines(range(30, 49)) + BAD)
    (batch,) = world.take_in()
    assert world.fates() == [("a.json", "ingested"), ("b.json", "refused"), ("c.json", "ingested")]
    assert world.ats() == [*range(20), *range(30, 49)]
    assert (batch.rows, batch.rejected) == (39, 21)
    assert world.totals() == [(60, 39, 21, 0)]
    whole, bad = world.rejected()
    assert (whole["file"], whole["line"], whole["seq"]) == ("delays/b.json", 0, None)
    assert whole["rule"] == "have at most 10 % bad records"
    assert "50.00 % (10 of 20); the first: delays/b.json:11: `delay_ms` must be a number" in whole["reason"]
    assert (
        "correct the file; or correct the contract (or its bad_records), then spillway replay delays"
        in whole["reason"]
    )
    assert (bad["file"], bad["line"], bad["original"]) == ("delays/c.json", 20, BAD.strip())
    assert world.is_quiet()
    assert [one.name for one, _ in world.look().refused] == ["delays/b.json"]


def test_where_the_batch_as_a_whole_is_sound_no_file_of_it_is_refused(world: LandingWorld) -> None:
    world.deliver("a.json", lines(range(100)))
    world.deliver("b.json", lines(range(100, 102)) + BAD)
    world.take_in()
    assert world.fates() == [("a.json", "ingested"), ("b.json", "ingested")]
    assert world.totals() == [(103, 102, 1, 0)]


def test_a_strict_contract_refuses_every_file_with_a_defect(tmp_path: Path) -> None:
    world = LandingWorld(tmp_path, contract(bad_records={"action": "fail"}))
    world.deliver("a.json", lines(range(100)) + BAD)
    world.deliver("b.json", lines(range(100, 103)))
    world.take_in()
    assert world.fates() == [("a.json", "refused"), ("b.json", "ingested")]
    assert world.ats() == [100, 101, 102]


@pytest.mark.parametrize(
    ("form", "name", "content", "said"),
    [
        ("parquet", "a.parquet", b"nonsense", "must be readable Parquet"),
        ("json", "a.json", BAD, "must have a record that can be used, got 100.00 % (1 of 1)"),
        ("csv", "a.csv", b"router,at\nr1,1\n\xff", "must have a record that can be used"),
    ],
)
def test_a_file_of_which_nothing_can_be_used_is_refused_and_stands_in_rejected_once(
    tmp_path: Path, form: str, name: str, content: bytes, said: str
) -> None:
    world = LandingWorld(
        tmp_path,
        contract(
            {"format": form},
            attributes=[
                {"name": "router", "type": "string", "role": "key"},
                {"name": "at", "type": "integer", "role": "order"},
                {"name": "delay_ms", "type": "double", "nullable": False},
            ],
        ),
    )
    world.deliver(name, content)
    (batch,) = world.take_in()
    assert world.fates() == [(name, "refused")]
    assert (batch.rows, world.ats()) == (0, [])
    (row,) = world.rejected()
    assert row["line"] == 0 or row["reason"] == world.files()[0].reason
    assert said in (world.files()[0].reason or "")
    world.totals()
    assert world.is_quiet()


def test_a_refused_file_that_is_mended_is_a_delivery_like_any_other(world: LandingWorld) -> None:
    world.deliver("a.json", BAD + lines(range(3)))
    world.take_in()
    assert world.fates() == [("a.json", "refused")]
    world.deliver("a.json", lines(range(4)))
    world.take_in()
    assert world.fates() == [("a.json", "refused"), ("a.json", "ingested")]
    assert world.ats() == [0, 1, 2, 3]
    assert world.look().refused == ()


def test_a_refused_file_that_is_removed_is_forgotten(world: LandingWorld) -> None:
    world.deliver("a.json", BAD).unlink()
    world.take_in()
    assert world.look().refused == ()


def test_a_file_on_which_the_parser_itself_fails_stops_no_other(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.deliver("a.json", lines(range(3)))
    world.deliver("b.json", lines(range(3, 6)))

    def crashing(of: Any, name: str, *more: Any) -> Any:
        for part in parse_blocks(of, name, *more):
            yield part
            if name.endswith("a.json"):
                raise RecursionError("maximum depth")

    monkeypatch.setattr(parse, "parse_blocks", crashing)
    world.take_in()
    assert world.fates() == [("a.json", "refused"), ("b.json", "ingested")]
    assert "`the file` must be one that can be read, got 'RecursionError: maximum depth'" in (
        world.files()[0].reason or ""
    )
    assert world.ats() == [3, 4, 5]
    assert world.totals() == [(4, 3, 1, 0)]


def test_a_file_that_changes_while_its_task_is_done_anew_without_a_refused_one_is_missed_and_not_lost(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.deliver("a.json", lines(range(3)))
    world.deliver("b.json", lines(range(3, 6)) + BAD)
    opened: list[str] = []

    def third_time_changed(root: str, name: str, *more: Any) -> Any:
        opened.append(name)
        if opened.count(name) == 2 and name.endswith("a.json"):
            world.touch(path)
        return open_landing_file(root, name, *more)

    with monkeypatch.context() as patch:
        patch.setattr(tasks, "open_landing_file", third_time_changed)
        (batch,) = world.take_in()
    assert world.fates() == [("a.json", "missed"), ("b.json", "refused")]
    assert (batch.rows, world.ats()) == (0, [])
    world.totals()
    world.later(61)
    world.take_in()
    assert world.ats() == [0, 1, 2]


def test_drafts_that_held_a_refused_file_leave_nothing_behind(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.deliver("a.json", lines(range(3)) + BAD)
    world.deliver("b.json", lines(range(3, 6)))
    world.take_in()
    live = {file.path for file in world.tables.at("raw", "delays").files()}
    live |= {file.path for file in world.tables.at("rejected").files()}
    there = {
        one.path
        for one in list_files(world.settings.lake)
        if one.path.endswith(".parquet") and ("/raw/" in one.path or "/rejected/" in one.path)
    }
    assert there == live


@pytest.mark.parametrize("was", ["double", "string", "date"])
def test_a_changed_type_is_refused_by_name_before_rows_are_looked_up(tmp_path: Path, was: str) -> None:
    def of_type(kind: str) -> StreamContract:
        attributes = [*CONTRACT["attributes"][:2], {"name": "delay_ms", "type": kind, "nullable": True}]
        return contract(attributes=attributes, duplicates={"rows": "exact"})

    value = {"double": 1.5, "string": "x", "date": "2026-01-01"}[was]
    world = LandingWorld(tmp_path, of_type(was))
    world.deliver("a.json", lines(range(3), delay_ms=value))
    world.take_in()
    world.contract = of_type("integer")
    world.deliver("b.json", lines(range(3), delay_ms=7))
    told = f"column `delay_ms` must stay {was}, got bigint; give the changed attribute a new name in the contract"
    assert told in world.fails()
    assert [one.attempts for one in world.batches()] == [0, 0], "it is the contract's fault"


def test_a_table_that_cannot_be_read_is_no_fault_of_the_batch(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        raise InvalidExternalValue("_delta_log", "be a log that can be read", "nothing", "restore it")

    world.deliver("a.json", lines(range(3)))
    with monkeypatch.context() as patch:
        patch.setattr(raw, "time_covered", failing)
        for _ in range(3):
            assert "`_delta_log` must be a log" in world.fails()
    assert [(b.status, b.attempts) for b in world.batches()] == [(RECORDED, 0)]
    world.take_in()
    assert world.ats() == [0, 1, 2]


def test_a_batch_that_fails_twice_is_set_aside_by_name_and_the_stream_goes_on(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = raw.time_covered

    def failing(tables: Any, of: Any, batch: Any, *more: Any) -> Any:
        if batch.batch == 1:
            raise SpillwayError("`at` must be kind, got unkind; mend it")
        return whole(tables, of, batch, *more)

    world.deliver("2026-01-01/a.json", lines(range(3)))
    world.deliver("2026-01-02/b.json", lines(range(3, 6)))
    with monkeypatch.context() as patch:
        patch.setattr(raw, "time_covered", failing)
        assert "batch 1 could not be written and is tried once more: `at` must be kind" in world.fails()
        assert [(b.status, b.attempts) for b in world.batches()] == [(RECORDED, 1), (INGESTED, 0)]
        assert "batch 1 failed a second time and is quarantined: `at` must be kind" in world.fails()
        (first, _) = world.batches()
        assert (first.status, first.attempts) == (QUARANTINED, 2)
        assert first.reason == "`at` must be kind, got unkind; mend it"
        world.deliver("2026-01-03/c.json", lines(range(6, 9)))
        assert world.fails() == ""
        assert [b.status for b in world.batches()] == [QUARANTINED, INGESTED, INGESTED]
    assert world.replay().reopened == (1,)
    assert [(b.status, b.attempts, b.reason) for b in world.batches()] == 3 * [(INGESTED, 0, None)]
    assert sorted(world.ats()) == list(range(9))
    world.totals()


def test_names_in_sentences_cannot_be_taken_for_lines_of_their_own(world: LandingWorld) -> None:
    world.deliver("a\nspillway: all is well.json", json.dumps({"router": 1}).encode())
    world.take_in()
    assert not any("\n" in said.partition("; the first")[0] for said in world.said)
