"""Small batches that wait to be sent together: when they are sent, in which files, and what a redo of one changes."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.levers.failing import lever as _failing
from tests.pipeline.interleaved import Lake, Run, places
from tests.pipeline.streams import SITES, World, json_lines, sites

from spillway import registry
from spillway.batch import DONE, INGESTED, PLANNED, QUARANTINED, Batch
from spillway.clock import use_clock, utc_now
from spillway.engine import ProcessEngine
from spillway.errors import ConcurrentRun, SpillwayError, format_bytes
from spillway.ledger import TOTAL, total_imbalance
from spillway.pipeline.pending import is_pending, pending_channels
from spillway.pipeline.resend import resend
from spillway.report.overview import attribute_lines, stream_overviews
from spillway.report.status import status
from spillway.store.batches import save_batches
from spillway.store.tables import Table
from spillway.streams.batching import load_waiting_batches
from spillway.streams.capacity import raw_column_bytes
from spillway.streams.shed import shed_channel

assert _failing is not None
HOUR = 3600
BATCHING = {"until_bytes": "1 MB", "until_seconds": HOUR}
TOGETHER: dict[str, Any] = {**SITES, "batching": BATCHING}
ALONE = SITES
ROWS = 40


def begun(folder: Path, contract: dict[str, Any] = TOGETHER, capacity: str = "8 kbps") -> World:
    """A trained stream whose first day is sent."""
    world = World.begin(ProcessEngine(), folder, contract, capacity=capacity)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.shed()
    world.train("sites")
    world.shed(at_once=True)
    return world


@pytest.fixture(scope="module")
def sent_first(tmp_path_factory: pytest.TempPathFactory) -> World:
    return begun(tmp_path_factory.mktemp("first"))


@pytest.fixture
def world(sent_first: World, tmp_path: Path) -> World:
    return sent_first.copy(tmp_path)


def rows_of(number: int) -> bytes:
    """Return the rows of a batch; batch 2 is the first batch of small files."""
    return json_lines(sites(330 + ROWS * (number - 2), ROWS))


def deliver(world: World, *batches: int, day: str = "2020-01-02") -> None:
    """Deliver one file per batch, and take in each one by a separate run."""
    for number in batches:
        world.deliver(f"sites/{day}/{number}.json", rows_of(number))
        world.shed()


def at(later: float, moment: datetime | None = None) -> Any:
    """Set the clock to a number of seconds later, as a scheduled run does."""
    now = (moment or utc_now()) + timedelta(seconds=later)
    return use_clock(lambda: now)


def statuses(world: World) -> list[str]:
    return [batch.status for batch in world.batches("sites")]


def held(world: World, number: int) -> Batch:
    return next(batch for batch in world.batches("sites") if batch.batch == number)


def kept_bytes(world: World, *batches: int) -> int:
    """Return the ledger lines of the stage `sent` of these batches."""
    lines = world.at("ledger").rows(
        ["bytes_kept"], subject="sites", batch=list(batches), stage="sent", unit="rows", dimension_kind=TOTAL
    )
    return sum(lines["bytes_kept"].to_pylist())


def batches_by_file(world: World, table: str, stream: str | None = None) -> list[list[int]]:
    """Return the batches of each file, from the second day on."""
    files = [file for file in world.at(table, stream).files() if str(file.value("batch_date")) > "2020-01-01"]
    if stream is None:
        files = [file for file in files if file.value("stream") == "sites"]
    return sorted(sorted(set(_column(file.path))) for file in files)


def _column(path: str) -> list[int]:
    import pyarrow.parquet as pq

    return pq.read_table(path, columns=["batch"], partitioning=None)["batch"].to_pylist()


def is_whole(world: World) -> None:
    """Check that every row is sent and recovered within its bound, and that the ledger balances."""
    world.validate()
    raw, sent = world.frame("raw", "sites"), world.frame("transmitted", "sites")
    assert sent["seq"].tolist() == raw["seq"].tolist()
    assert sent["batch"].tolist() == raw["batch"].tolist()
    assert all(row["violations"] == 0 for row in world.rows("certificates"))
    given = world.frame("recovered", "sites")
    assert given["seq"].tolist() == raw["seq"].tolist()
    assert given["site"].tolist() == raw["site"].tolist()
    away = (given["temp"] - raw["temp"]).abs() > 0.0200001 * raw["temp"].abs()
    assert not away.fillna(False).any()
    assert total_imbalance([row for row in world.rows("ledger") if row["subject"] == "sites"]) == 0
    assert all(row["success"] for row in world.rows("validations"))


def test_small_batches_wait_in_raw_and_are_sent_together_after_their_time(world: World) -> None:
    deliver(world, 2, 3, 4)
    assert statuses(world) == [DONE, INGESTED, INGESTED, INGESTED]
    assert world.at("raw", "sites").rows(["seq"]).num_rows == 330 + 3 * ROWS, (
        "joins and queries have the rows"
    )
    assert batches_by_file(world, "transmitted", "sites") == []
    assert "sites: 3 batches wait to be sent together (120 tuples, " in world.said[-1]
    assert " kB of 1 MB in raw), since " in world.said[-1]
    assert not is_pending(world.contracts.streams["sites"], world.tables.now())
    assert pending_channels(world.settings) == []

    before = world.at("transmitted", "sites").version
    due = held(world, 2).created_at
    with at(HOUR, due):
        # no file has come since: the scheduled run is started all the same
        assert pending_channels(world.settings) == ["narrow"]
        done = world.shed()
    assert [batch.batch for batch in done] == [2, 3, 4]
    assert world.at("transmitted", "sites").version == before + 1, "one commit"
    assert batches_by_file(world, "transmitted", "sites") == [[2, 3, 4]]
    assert [batch.sent_with for batch in world.batches("sites")] == [None, 2, 2, 2]
    assert [f.path for f in world.at("transmitted", "sites").files() if f.records == 3 * ROWS]
    is_whole(world)


def test_the_ledger_of_batches_that_share_a_file_adds_up_to_what_lies_there(world: World) -> None:
    deliver(world, 2, 3, 4)
    with at(HOUR, held(world, 2).created_at):
        world.shed()
    table = world.at("transmitted", "sites")
    (file,) = [one for one in table.files() if str(one.value("batch_date")) == "2020-01-02"]
    log = Path(table.path, "_delta_log", f"{table.version:020}.json").stat().st_size
    sent = [file.size for file in world.at("sent_synopsis").files(stream="sites", batch=[2, 3, 4])]
    assert not sent, "the channel is wide enough for the columns"
    assert kept_bytes(world, 2, 3, 4) == pytest.approx(file.size + log, abs=40)
    assert len({kept_bytes(world, number) for number in (2, 3, 4)}) <= 2, "equal rows, equal shares"


def test_status_shows_since_when_and_until_when_a_batch_waits(world: World) -> None:
    deliver(world, 2, 3)
    (stream,) = status(world.tables.now(), utc_now()).streams
    together = stream.waiting_together
    assert together is not None
    first = held(world, 2).created_at
    assert (together.batches, together.tuples, together.since) == ((2, 3), 2 * ROWS, first)
    assert together.until == first + timedelta(seconds=HOUR)
    assert 0 < together.raw_bytes < together.until_bytes == 1_000_000
    assert not [one for one in status(world.tables.now()).shortages if one.kind == "pending"]
    with at(HOUR, first):
        late = status(world.tables.now(), utc_now())
    assert late.streams[0].waiting_together is None
    assert [one.sentence for one in late.shortages if one.kind == "pending"]


def test_batches_that_are_large_enough_are_sent_at_once(world: World) -> None:
    deliver(world, 2)
    waiting = load_waiting_batches(world.tables.now(), world.contracts.streams["sites"], utc_now())
    assert waiting is not None
    world.contract_becomes({**SITES, "batching": {**BATCHING, "until_bytes": 2 * waiting.raw_bytes - 500}})
    deliver(world, 3)
    assert statuses(world) == [DONE] * 3
    assert batches_by_file(world, "transmitted", "sites") == [[2, 3]]


def test_backlog_is_sent_in_groups_of_about_until_bytes(world: World) -> None:
    deliver(world, 2)
    waiting = load_waiting_batches(world.tables.now(), world.contracts.streams["sites"], utc_now())
    assert waiting is not None
    deliver(world, 3, 4, 5, 6)
    world.contract_becomes({**SITES, "batching": {**BATCHING, "until_bytes": 2 * waiting.raw_bytes - 500}})
    world.shed()
    assert batches_by_file(world, "transmitted", "sites") == [[2, 3], [4, 5], [6]]
    is_whole(world)


def test_no_batch_waits_if_sent_at_once_or_without_batching(world: World) -> None:
    deliver(world, 2, 3)
    assert [batch.batch for batch in world.shed(at_once=True)] == [2, 3]
    deliver(world, 4)
    world.contract_becomes(ALONE)
    assert [batch.batch for batch in world.shed()] == [4]
    assert batches_by_file(world, "transmitted", "sites") == [[2, 3], [4]]


def test_batches_of_requested_dates_do_not_wait(world: World) -> None:
    deliver(world, 2, 3)
    day = held(world, 2).batch_date
    assert [batch.batch for batch in world.shed(dates=(day, day))] == [2, 3]


def test_group_holds_one_batch_date_and_each_date_has_its_own_wait(world: World) -> None:
    deliver(world, 2, 3)
    early = held(world, 2).created_at
    with at(HOUR - 60, early):
        deliver(world, 4, 5, day="2020-01-03")
    with at(HOUR, early):
        assert [batch.batch for batch in world.shed()] == [2, 3]
    assert statuses(world)[3:] == [INGESTED, INGESTED]
    with at(2 * HOUR, early):
        assert [batch.batch for batch in world.shed()] == [4, 5]
    assert batches_by_file(world, "transmitted", "sites") == [[2, 3], [4, 5]]
    is_whole(world)


@pytest.fixture(scope="module")
def shed_together(sent_first: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A lake whose second day is shed: three batches in one file, on a channel of 5/6 of their bytes."""
    folder = tmp_path_factory.mktemp("together")
    wide = sent_first.copy(folder / "wide")
    deliver(wide, 2, 3, 4)
    world = wide.copy(folder / "narrow")
    wide.contract_becomes(TOGETHER, capacity="10 Mbps")
    wide.shed(at_once=True)
    kbps = kept_bytes(wide, 2, 3, 4) * 8 / 1000 / (3 * ROWS / 100)
    world.contract_becomes(TOGETHER, capacity=f"{kbps * 5 / 6:.3f} kbps")
    world.shed(at_once=True)
    return world


@pytest.fixture
def narrow(shed_together: World, tmp_path: Path) -> World:
    return shed_together.copy(tmp_path)


def test_shed_values_of_a_group_are_recovered_and_its_bytes_fit(narrow: World) -> None:
    world = narrow
    shed = {
        way["treatment"] for row in world.rows("schemes") if row["batch"] > 1 for way in row["attributes"]
    }
    assert "shed" in shed
    seconds = 3 * ROWS / 100
    assert kept_bytes(world, 2, 3, 4) * 8 / 1000 / seconds <= held(world, 2).allowed_kbps
    is_whole(world)


@pytest.mark.parametrize(
    "which", [2, pytest.param(3, marks=pytest.mark.long), pytest.param(4, marks=pytest.mark.long)]
)
def test_batch_sent_again_takes_its_group_along_and_leaves_the_same_tables(narrow: World, which: int) -> None:
    world = narrow
    before, version = world.everything("sites"), world.at("transmitted", "sites").version
    save_batches(world.tables.now(), [held(world, which).with_changes(utc_now(), status=PLANNED)])
    assert [one.batch for one in world.shed()] == [2, 3, 4]
    assert world.at("transmitted", "sites").version == version + 1, "one commit"
    assert batches_by_file(world, "transmitted", "sites") == [[2, 3, 4]]
    assert world.everything("sites") == before


@pytest.mark.parametrize(
    "which", [2, pytest.param(3, marks=pytest.mark.long), pytest.param(4, marks=pytest.mark.long)]
)
def test_batch_sent_again_alone_keeps_the_rows_of_the_others(narrow: World, which: int) -> None:
    world = narrow
    tables = [("transmitted", "sites"), ("synopsis",), ("sent_synopsis",), ("schemes",), ("ledger",)]
    others = {table: [row for row in world.rows(*table) if row.get("batch") != which] for table in tables}
    version = world.at("transmitted", "sites").version
    save_batches(world.tables.now(), [held(world, which).with_changes(utc_now(), status=PLANNED)])
    only = lambda batch: batch.batch == which  # noqa: E731
    done = shed_channel(world.tables, world.engine, world.contracts, "narrow", only=only)
    assert [(one.batch, one.sent_with) for one in done] == [(which, None)]
    assert world.at("transmitted", "sites").version == version + 1, "one commit"
    rest = sorted({2, 3, 4} - {which})
    assert batches_by_file(world, "transmitted", "sites") == sorted([[which], rest])
    for table, rows in others.items():
        assert [row for row in world.rows(*table) if row.get("batch") != which] == rows, table


@pytest.mark.long
def test_a_backfill_of_the_date_leaves_the_same_tables(narrow: World) -> None:
    world = narrow
    before, day = world.everything("sites"), held(world, 2).batch_date
    world.shed(dates=(day, day))
    assert world.everything("sites") == before
    assert batches_by_file(world, "transmitted", "sites") == [[2, 3, 4]]


def test_a_date_that_is_sent_again_whole_is_exact(narrow: World) -> None:
    world = narrow
    day = held(world, 2).batch_date
    sent = resend(world.tables, world.engine, world.contracts, "sites", (day, day))
    assert [batch.batch for batch in sent] == [2, 3, 4]
    raw, there = (world.frame(table, "sites") for table in ("raw", "transmitted"))
    mine = raw["batch"] > 1
    assert there[mine]["temp"].equals(raw[mine]["temp"])
    assert not world.at("sent_synopsis").rows(["batch"], stream="sites", batch=[2, 3, 4]).num_rows
    is_whole(world)


@pytest.mark.long
def test_busy_batch_uses_the_shares_of_quiet_batches(tmp_path: Path) -> None:
    """Two batches have 20 rows and one has 80, in 24 s each. Alone the busy one must shed; together none must."""
    timed = {**TOGETHER, "rate": {"from": "event_time"}}
    lost = {}
    for name, capacity in (("wide", "10 Mbps"), ("exact", None)):
        world = begun(tmp_path / name, timed, capacity or f"{lost['wide']} kbps")
        first = 330
        for number, rows in enumerate((12, 96, 12), start=2):
            world.deliver(f"sites/2020-01-02/{number}.json", json_lines(sites(first, rows)))
            world.shed()
            first += rows
        world.shed(at_once=True)
        batches = [batch for batch in world.batches("sites") if batch.batch > 1]
        seconds = sum(batch.seconds_covered or 0.0 for batch in batches)
        lost[name] = kept_bytes(world, 2, 3, 4) * 8 / 1000 / seconds
        raw, there = (world.frame(table, "sites") for table in ("raw", "transmitted"))
        mine = raw["batch"] > 1
        for column in ("temp", "level", "pulses"):
            assert there[mine][column].equals(raw[mine][column]), (name, column)


def poisoned(batch: int | None) -> dict[str, Any]:
    """The stream behind a lever that crashes on this batch."""
    at = "plan" if batch is not None else "nowhere"
    levers = [{"lever": "failing", "at": at, "batch": batch}, SITES["levers"][0]]
    return {**TOGETHER, "levers": levers}


@pytest.mark.long
def test_batch_that_cannot_be_sent_does_not_block_its_group(tmp_path: Path) -> None:
    with registry.extra_levers(failing="tests.levers.failing"):
        world = begun(tmp_path, poisoned(None))
        deliver(world, 2, 3, 4, 5, 6)
        world.contract_becomes(poisoned(4))
        with pytest.raises(SpillwayError, match="batch 4"):
            world.shed(at_once=True)
        assert statuses(world)[:3] == [DONE, DONE, DONE], "what comes before it"
        with pytest.raises(SpillwayError, match="batch 4 failed a second time and is quarantined"):
            world.shed()
        assert statuses(world) == [DONE, DONE, DONE, QUARANTINED, DONE, DONE]
        assert batches_by_file(world, "transmitted", "sites") == [[2, 3], [5, 6]]
        world.contract_becomes(poisoned(None))
        from spillway.intake.replay import Selection, replay

        replay(world.tables, world.engine, world.contracts.stream("sites"), Selection(), "again")
        world.shed()
        assert statuses(world) == [DONE] * 6
        is_whole(world)


SMALL: dict[str, Any] = {
    **TOGETHER,
    "frame": {"tuples": 20},
    "levers": [{"lever": "attributes", "training": {"tuples": 60}, "treatments": ["keep", "shed"]}],
}


def waiting_group(folder: Path) -> Lake:
    """Two batches wait in a lake in memory; the run that finds them sends them together."""
    world = Lake.begin(folder, SMALL, capacity="2 kbps")
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 80)))
    world.shed()
    world.train("sites")
    world.shed(at_once=True)
    for number, first in (("b", 80), ("c", 120)):
        world.deliver(f"sites/2020-01-02/{number}.json", json_lines(sites(first, 40)))
        world.shed()
    waiting = load_waiting_batches(world.tables.now(), world.contracts.streams["sites"], utc_now())
    assert waiting is not None
    due = {**SMALL, "batching": {"until_bytes": waiting.raw_bytes, "until_seconds": HOUR}}
    world.contract_becomes(due, capacity="2 kbps")
    return Lake(world)


def test_two_concurrent_runs_send_a_group_once(tmp_path: Path) -> None:
    """The second run stops before each step, until the first run has ended. One of them wins."""
    lake = waiting_group(tmp_path)
    run = Run(lake.world)
    run.to_the_end()
    assert run.problem is None
    wanted = lake.world.everything("sites")
    assert [batch.sent_with for batch in lake.world.batches("sites")] == [None, 2, 2]
    for here in places(run.steps):
        lake.put_back()
        one, other = Run(lake.world), Run(lake.world)
        other.until(here)
        one.to_the_end()
        other.to_the_end()
        problems = [each.problem for each in (one, other) if each.problem is not None]
        assert len(problems) < 2, (here, problems)
        assert all(isinstance(each, ConcurrentRun) for each in problems), (here, problems)
        assert lake.world.everything("sites") == wanted, here


def test_a_run_that_ends_before_any_commit_of_a_group_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = waiting_group(tmp_path)
    commit, made = Table._commit, [0]

    def counted(self: Table, *given: Any, **named: Any) -> Any:
        made[0] += 1
        if made[0] == last:
            raise KeyboardInterrupt
        return commit(self, *given, **named)

    monkeypatch.setattr(Table, "_commit", counted)
    last = 0
    lake.world.shed()
    wanted, commits = lake.world.everything("sites"), made[0]
    assert commits > 5
    for last in range(1, commits + 1):
        lake.put_back()
        made[0] = 0
        with pytest.raises(KeyboardInterrupt):
            lake.world.shed()
        lake.world.shed()
        assert lake.world.everything("sites") == wanted, last


def test_only_the_chosen_batches_are_sent(world: World) -> None:
    deliver(world, 2, 3, 4)
    done = shed_channel(
        world.tables,
        world.engine,
        world.contracts,
        "narrow",
        only=lambda batch: batch.batch == 3,
        at_once=True,
    )
    assert [batch.batch for batch in done] == [3]
    assert statuses(world) == [DONE, INGESTED, DONE, INGESTED]
    assert [batch.sent_with for batch in done] == [None]


QUOTA: dict[str, Any] = {**TOGETHER, "rate": {"from": "declared", "tuples_per_second": 0.05}}


@pytest.mark.parametrize(
    "capacity",
    [
        "6 kB/day",
        pytest.param("100 kB/day", marks=pytest.mark.long),
        pytest.param("4 kB/day", marks=pytest.mark.long),
    ],
)
def test_batches_that_wait_under_a_quota_are_sent_in_one_file_and_keep_to_it(
    tmp_path: Path, capacity: str
) -> None:
    """Each batch offers other bytes, and alone a part of its own: a group has one part."""
    world = begun(tmp_path, QUOTA, "10 Mbps")
    deliver(world, 2, 3, 4, 5, 6)
    world.contract_becomes(QUOTA, capacity=capacity)
    world.shed(at_once=True)
    assert batches_by_file(world, "transmitted", "sites") == [[2, 3, 4, 5, 6]]
    assert len({held(world, number).allowed_kbps for number in range(2, 7)}) == 1
    assert kept_bytes(world, 2, 3, 4, 5, 6) <= int(capacity.split()[0]) * 1000
    is_whole(world)
    if capacity != "4 kB/day":
        raw, there = (world.frame(table, "sites") for table in ("raw", "transmitted"))
        assert there["temp"].equals(raw["temp"]), "together they fit, so nothing is lost"


@pytest.mark.parametrize("tuples", [7, pytest.param(None, marks=pytest.mark.long)])
def test_an_empty_file_that_passes_waiting_batches_moves_no_frame(tmp_path: Path, tuples: int | None) -> None:
    """It is done at once, with nothing to send; frames of the batches before it begin with these."""
    world = begun(tmp_path, {**TOGETHER, "frame": {"tuples": tuples}}, "1 kbps")
    deliver(world, 2)
    world.deliver("sites/2020-01-02/empty.json", b"")
    world.shed()
    world.deliver("sites/2020-01-02/last.json", rows_of(3))
    world.shed()
    assert statuses(world) == [DONE, INGESTED, DONE, INGESTED]
    world.shed(at_once=True)
    assert [batch.frame_origin for batch in world.batches("sites")[1:2]] == [330]
    assert statuses(world) == [DONE] * 4
    is_whole(world)


@pytest.mark.long
@pytest.mark.parametrize("tuples", [7, pytest.param(None, marks=pytest.mark.long)])
def test_batches_that_go_in_another_order_come_back_whole(tmp_path: Path, tuples: int | None) -> None:
    world = begun(tmp_path, {**TOGETHER, "frame": {"tuples": tuples}}, "1 kbps")
    deliver(world, 2, 3, 4)
    only = lambda batch: batch.batch == 3  # noqa: E731
    shed_channel(world.tables, world.engine, world.contracts, "narrow", only=only, at_once=True)
    world.shed(at_once=True)
    is_whole(world)


@pytest.mark.parametrize(("back", "status_then"), [(60, INGESTED), (3 * 365 * 86_400, DONE)])
def test_a_batch_that_was_taken_in_by_a_clock_that_was_wrong_does_not_wait_for_years(
    world: World, back: float, status_then: str
) -> None:
    deliver(world, 2, 3)
    with at(-back):
        world.shed()
    assert statuses(world) == [DONE, status_then, status_then]


def test_bytes_offered_of_batches_that_are_sent_together_are_those_of_one_file(tmp_path: Path) -> None:
    world = begun(tmp_path, capacity="1 Mbps")
    deliver(world, 2, 3, 4)
    world.shed(at_once=True)
    lines = [
        row
        for row in world.rows("ledger")
        if (row["stage"], row["unit"], row["dimension_kind"]) == ("sent", "rows", "total")
        and row["batch"] > 1
    ]
    offered, kept = (sum(row[name] for row in lines) for name in ("bytes_offered", "bytes_kept"))
    assert len(lines) == 3
    # the batches are sent whole: the same rows as one Parquet file take the same bytes, but for the column `scheme`
    assert offered < kept < offered + 100
    contract, tables = world.contracts.streams["sites"], world.tables.now()
    alone = sum(sum(raw_column_bytes(tables, contract, held(world, n))[0].values()) for n in (2, 3, 4))
    assert offered < alone + sum(raw_column_bytes(tables, contract, held(world, n))[1] for n in (2, 3, 4))
    (found,) = stream_overviews(tables, {"sites": contract})
    assert found.exact_bytes >= sum(one.offered_bytes for one in found.attributes)
    shown = " ".join(attribute_lines(found.attributes, total=(found.exact_bytes, found.sent_bytes)))
    rest = found.sent_bytes - sum(one.sent_bytes for one in found.attributes)
    assert "row numbers, footers, log entries and metadata: " in shown
    assert f"{format_bytes(rest)} sent" in " ".join(shown.split())
