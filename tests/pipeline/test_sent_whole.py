"""Exempt streams and batches that are asked for again cross whole, counted, and are exact at the other end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.levers.quality.worlds import MEAN, put_queries, query
from tests.pipeline.streams import METERS, SITES, World, brought_through, day, json_lines, sites

from spillway.batch import DONE, RETIRED
from spillway.clock import utc_now
from spillway.engine import ProcessEngine
from spillway.errors import InvalidValue, SpillwayError
from spillway.ledger import BESIDE
from spillway.pipeline.pending import is_pending
from spillway.pipeline.resend import resend
from spillway.report.status import status
from spillway.store.batches import load_batches, save_batches
from spillway.streams import shed as shedding
from spillway.streams.exemptions import exempt, exemption_of

LATER = datetime(2100, 1, 1, tzinfo=UTC)
NAMES = ("site", "at", "temp", "level", "pulses", "sky")


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> World:
    return brought_through(ProcessEngine(), tmp_path_factory.mktemp("whole"), capacity="8 kbps")


@pytest.fixture
def world(through: World, tmp_path: Any) -> World:
    return through.copy(tmp_path)


def values(world: World, table: str, *batches: int) -> list[tuple[Any, ...]]:
    rows = [row for row in world.rows(table, "sites") if row["batch"] in batches]
    return [tuple(row[name] for name in ("seq", *NAMES)) for row in sorted(rows, key=lambda row: row["seq"])]


def sent_line(world: World, batch: int) -> dict[str, Any]:
    (found,) = [
        row
        for row in world.rows("ledger")
        if (row["subject"], row["batch"], row["stage"], row["unit"]) == ("sites", batch, "sent", "rows")
    ]
    return found


@pytest.mark.long
def test_of_an_exempt_stream_nothing_is_shed_from_the_next_batch_on_until_it_ends(world: World) -> None:
    before = world.rows("transmitted", "sites")
    exempt(world.tables.now(), "sites", LATER, "the audit wants every digit", utc_now())
    world.deliver("sites/2020-01-03/d.json", json_lines(sites(710, 200)))
    world.shed()
    (batch,) = [one for one in world.batches("sites") if one.batch == 4]
    assert (batch.status, batch.levers, dict(batch.models)) == (DONE, (), {})
    assert batch.sent_whole == "exempt until 2100-01-01 00:00 UTC: the audit wants every digit"
    assert values(world, "transmitted", 4) == values(world, "raw", 4) != []
    assert [row for row in world.rows("transmitted", "sites") if row["batch"] < 4] == before

    line = sent_line(world, 4)
    assert line["reason"] == batch.sent_whole
    assert line["bytes_kept"] * 8 / 1000 / batch.seconds_covered > batch.allowed_kbps
    assert 0 < line["shortfall"] <= line["kept"]
    assert any("above the channel's part" in said for said in world.said)
    found = status(world.tables.now())
    (short,) = [one for one in found.shortages if (one.stream, one.kind) == ("sites", "exempt")]
    assert "exempt until 2100-01-01 00:00 UTC: the audit wants every digit" in short.sentence
    assert any("the audit wants" in one.sentence for one in found.shortages if one.kind == "capacity")

    world.validate()
    assert values(world, "recovered", 4) == values(world, "raw", 4)

    exempt(world.tables.now(), "sites", utc_now(), "the audit is over", utc_now())
    world.deliver("sites/2020-01-03/e.json", json_lines(sites(910, 200)))
    world.shed()
    last = world.batches("sites")[-1]
    assert (last.levers, last.sent_whole) == (("attributes",), None)
    assert values(world, "transmitted", 5) != values(world, "raw", 5)
    world.validate()
    # a backfill does what the first run did, whatever holds by now
    world.shed(dates=(day(2), day(2)))
    assert values(world, "transmitted", 4) == values(world, "raw", 4)
    world.validate()


def test_what_is_kept_whole_goes_out_at_the_rate_it_came_in(tmp_path: Any) -> None:
    world = World.begin(ProcessEngine(), tmp_path, {**SITES, "levers": []}, capacity="9000 kbps")
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 600)))
    world.shed()
    (one,) = status(world.tables.now()).streams
    assert one.figures.rate_out_kbps > 0
    # of what a log will say of the file, which is small here, the one is counted and the other estimated
    assert 0.9 * one.figures.rate_in_kbps < one.figures.rate_out_kbps <= one.figures.rate_in_kbps


def test_an_exempt_stream_needs_no_training(tmp_path: Any) -> None:
    world = World.begin(ProcessEngine(), tmp_path, SITES, METERS, capacity="40 kbps")
    exempt(world.tables, "sites", LATER, "new", utc_now())
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 300)))
    contract = world.contracts.stream("sites")
    assert is_pending(contract, world.tables.now())
    world.shed()
    (batch,) = world.batches("sites")
    assert (batch.status, batch.levers) == (DONE, ())
    assert values(world, "transmitted", 1) == values(world, "raw", 1) != []


def test_a_stream_that_waits_untrained_is_pending_once_it_is_exempt(tmp_path: Any) -> None:
    world = World.begin(ProcessEngine(), tmp_path, SITES)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 300)))
    world.shed()
    assert not is_pending(world.contracts.stream("sites"), world.tables.now())
    exempt(world.tables.now(), "sites", LATER, "new", utc_now())
    assert is_pending(world.contracts.stream("sites"), world.tables.now())


def test_of_two_exemptions_the_later_one_holds(tmp_path: Any) -> None:
    world = World.begin(ProcessEngine(), tmp_path, SITES)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    exempt(world.tables, "sites", now + timedelta(days=9), "long", now)
    exempt(world.tables.now(), "sites", now + timedelta(days=1), "short", now + timedelta(hours=1))
    tables = world.tables.now()
    found = exemption_of(tables, "sites", now + timedelta(hours=2))
    assert found is not None
    assert found.reason == "short"
    assert exemption_of(tables, "sites", now + timedelta(days=1)) is None


@pytest.mark.parametrize("reason", ["", "  ", "x" * 501, "a\x1b[31mred"])
def test_a_reason_that_says_nothing_or_too_much_is_refused(tmp_path: Any, reason: str) -> None:
    world = World.begin(ProcessEngine(), tmp_path, SITES)
    with pytest.raises(InvalidValue, match="`reason` must be a sentence of at most 500 letters"):
        exempt(world.tables, "sites", LATER, reason, utc_now())


def again(world: World, first: int, last: int) -> list[int]:
    dates = (day(first), day(last))
    done = resend(world.tables, world.engine, world.contracts, "sites", dates, world.said.append)
    return [batch.batch for batch in done]


@pytest.mark.long
def test_what_is_asked_for_again_is_exact_at_recovery_and_counted_beside_what_had_crossed(
    world: World,
) -> None:
    crossed = {number: sent_line(world, number)["bytes_kept"] for number in (1, 2, 3)}
    others = values(world, "transmitted", 3)
    assert values(world, "recovered", 1, 2) != values(world, "raw", 1, 2)

    assert again(world, 0, 0) == [1, 2]
    assert values(world, "transmitted", 1, 2) == values(world, "raw", 1, 2)
    assert values(world, "transmitted", 3) == others
    for number in (1, 2):
        before = [
            row["bytes_requested"]
            for row in world.rows("ledger")
            if (row["subject"], row["batch"], row["stage"]) == ("sites", number, "sent_before")
        ]
        assert before == [crossed[number]]
        line = sent_line(world, number)
        assert line["bytes_kept"] > crossed[number]
        assert line["reason"] == "asked for again, whole"
        assert line["shortfall"] > 0
    for table in ("synopsis", "sent_synopsis", "schemes"):
        assert {r["batch"] for r in world.rows(table) if r["stream"] == "sites"} <= {3}, table

    world.validate()
    assert values(world, "recovered", 1, 2, 3) != values(world, "raw", 1, 2, 3)
    assert values(world, "recovered", 1, 2) == values(world, "raw", 1, 2)
    assert all(batch.status == DONE for batch in world.batches("sites"))


def test_asked_for_a_second_time_nothing_crosses_again(world: World) -> None:
    again(world, 0, 0)
    everything, said = world.everything("sites"), len(world.said)
    versions = world.at("transmitted", "sites").version
    assert again(world, 0, 0) == []
    assert world.everything("sites") == everything
    assert world.at("transmitted", "sites").version == versions
    assert world.said[said:] == ["sites: batch 1, 2 is there whole, and is not sent again"]


@pytest.mark.parametrize("step", ["publish", "save_batches"])
def test_one_that_dies_is_finished_by_the_next_run_and_counts_the_same(
    world: World, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    undisturbed = world.copy(tmp_path / "other")
    again(undisturbed, 0, 0)
    real, calls = getattr(shedding, step), []

    def dies(*given: Any) -> Any:
        calls.append(step)
        if len(calls) == 1:
            if step == "publish":
                real(*given)
            raise KeyboardInterrupt
        return real(*given)

    with monkeypatch.context() as patched:
        patched.setattr(shedding, step, dies)
        with pytest.raises(KeyboardInterrupt):
            again(world, 0, 0)
    assert any(batch.status != DONE for batch in world.batches("sites"))
    world.shed()
    assert world.everything("sites") == undisturbed.everything("sites")


def test_it_is_said_that_answers_stay_as_they_were_made(world: World) -> None:
    put_queries(world, query("means", MEAN))
    assert again(world, 0, 0) == [1, 2]
    assert [
        said for said in world.said if "the results of means for these batches are not recomputed" in said
    ]


def test_what_cannot_be_sent_again_is_refused_by_name(world: World) -> None:
    with pytest.raises(
        InvalidValue, match="sites: `--from` must be a date that has batches, got '2020-02-01 to"
    ):
        resend(world.tables, world.engine, world.contracts, "sites", (day(31), day(31)))
    with pytest.raises(InvalidValue, match="sites: `--to` must not be before --from"):
        resend(world.tables, world.engine, world.contracts, "sites", (day(1), day(0)))
    retired = [one for one in world.batches("sites") if one.batch == 3]
    save_batches(world.tables.now(), [one.with_changes(utc_now(), status=RETIRED) for one in retired])
    before = world.everything("sites")
    with pytest.raises(
        InvalidValue, match="must be dates with raw tuples, got '2020-01-02'; its raw tuples were deleted"
    ):
        resend(world.tables, world.engine, world.contracts, "sites", (day(0), day(1)))
    assert world.everything("sites") == before
    world.deliver("sites/2020-01-01/late.json", json_lines(sites(900, 30)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shedding, "publish", lambda *_: (_ for _ in ()).throw(SpillwayError("not now")))
        with pytest.raises(SpillwayError, match="not now"):
            world.shed()
    with pytest.raises(
        InvalidValue, match="must be dates whose batches are done, got 'batch 4 that is not'; bring it"
    ):
        resend(world.tables, world.engine, world.contracts, "sites", (day(0), day(0)))


def test_what_crosses_again_is_spent_of_the_quota(world: World) -> None:
    from spillway.streams.capacity import _crossed

    def crossed_bytes() -> dict[int, int]:
        found = _crossed(world.tables.now(), "sites", {b.batch: b for b in world.batches("sites")})
        return {number: sent for number, (sent, _) in found.items()}

    crossed = crossed_bytes()
    again(world, 0, 0)
    now = crossed_bytes()
    for number in (1, 2):
        assert now[number] == crossed[number] + sent_line(world, number)["bytes_kept"]
    assert now[3] == crossed[3]
    beside = [row for row in world.rows("ledger") if row["stage"] == "sent_before"]
    assert {row["ordinal"] for row in beside} == {BESIDE}
    assert load_batches(world.tables.now(), "sites")[0].sent_whole == "asked for again, whole"
