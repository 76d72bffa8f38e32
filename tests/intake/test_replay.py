"""What was refused is taken in again after its contract or its file was mended: once, balanced, whatever is killed."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.intake.landing_world import CONTRACT, LandingWorld, contract, lines
from tests.whole_reads import whole_reads

from spillway.batch import DONE, INGESTED, PLANNED, QUARANTINED, RETIRED
from spillway.errors import SpillwayError
from spillway.intake import raw
from spillway.report.recent import read_recent
from spillway.store.batches import save_batches
from spillway.store.tables import Table
from spillway.streams.migrate import migrate

STRICT = [{**one, "nullable": one["name"] != "delay_ms"} for one in CONTRACT["attributes"]]
"""A delay must be there; in `CONTRACT` it may be null."""
WIDER = [*CONTRACT["attributes"], {"name": "hops", "type": "integer"}]
DAY = date(2026, 3, 1)


def without_delay(at: int) -> bytes:
    return json.dumps({"router": "r", "at": at}).encode() + b"\n"


def mended(world: LandingWorld, **more: Any) -> None:
    world.contract = contract(world_source(world), **more)


def world_source(world: LandingWorld) -> dict[str, Any]:
    return {"format": world.contract.source.format}


@pytest.fixture
def world(tmp_path: Path) -> LandingWorld:
    """A file with two refused records, and one that is refused whole, under a contract that is too strict."""
    world = LandingWorld(tmp_path, contract(attributes=STRICT))
    world.deliver("2026-03-01/a.json", lines(range(30)) + without_delay(30) + lines([31]) + without_delay(32))
    world.deliver("2026-03-01/b.json", b"".join(without_delay(at) for at in range(40, 43)))
    world.take_in()
    assert world.fates() == [("2026-03-01/a.json", "ingested"), ("2026-03-01/b.json", "refused")]
    assert world.totals() == [(36, 31, 5, 0)]
    return world


def test_refused_files_and_records_are_taken_in_once_under_numbers_of_their_own(world: LandingWorld) -> None:
    (before,) = world.batches()
    mended(world)
    done = world.replay()
    assert (done.files, done.records, [batch.rows for batch in done.batches]) == (1, 2, [3, 2])
    assert sorted(world.ats()) == [*range(33), *range(40, 43)]
    assert world.ats()[-2:] == [30, 32]
    assert world.batches()[0] == before
    assert {batch.batch_date for batch in world.batches()} == {DAY}
    assert [batch.first_seq > before.last_seq for batch in done.batches] == [True, True]
    assert world.totals() == [(36, 31, 5, 0), (3, 3, 0, 0), (2, 2, 0, 0)]
    assert len(world.rejected()) == 3, "what was refused once stays on record under its batch"
    assert world.replay() == type(done)(0, 0, (), ())
    assert world.is_quiet()


def waiting(world: LandingWorld) -> list[tuple[int, str, int | None]]:
    """What `rejected` says is still to be read again: batch, file and line."""
    return [
        (row["batch"], row["file"].removeprefix("delays/"), row["line"])
        for row in world.rejected()
        if row["replayed_by"] is None
    ]


def test_rejected_shows_what_still_waits_and_which_batch_read_the_rest_again(world: LandingWorld) -> None:
    records, whole = [(1, "2026-03-01/a.json", n) for n in (31, 33)], (1, "2026-03-01/b.json", 0)
    assert waiting(world) == [*records, whole]
    world.replay(file="a.json")
    assert waiting(world) == [whole, *((2, name, line) for _, name, line in records)], "refused again"
    mended(world)
    world.replay(file="a.json")
    assert waiting(world) == [whole]
    world.replay()
    assert waiting(world) == []
    assert world.replay().batches == ()
    noted = [(row["batch"], row["line"], row["replayed_by"]) for row in world.rejected()]
    assert noted == [(1, 31, 2), (1, 33, 2), (1, 0, 4), (2, 31, 3), (2, 33, 3)]
    assert sorted(world.ats()) == [*range(33), *range(40, 43)]
    assert world.totals() == [(36, 31, 5, 0), (2, 0, 2, 0), (2, 2, 0, 0), (3, 3, 0, 0)]
    assert all(row["original"] for row in world.rejected() if row["line"]), "nothing of it is lost"


def test_what_was_read_again_is_counted_once_as_refused_or_not_at_all(world: LandingWorld) -> None:
    def refused() -> int:
        return read_recent(world.tables, "delays").rejected

    assert refused() == 5
    world.replay(file="a.json")
    assert refused() == 5, "refused again: two records, and a file of three that waits"
    world.replay()
    assert refused() == 5
    mended(world)
    world.replay(file="a.json")
    assert refused() == 3
    world.replay()
    assert refused() == 0
    assert sorted(world.ats()) == [*range(33), *range(40, 43)]


def test_a_file_that_was_mended_and_delivered_again_waits_no_longer(world: LandingWorld) -> None:
    world.deliver("2026-03-01/b.json", lines(range(40, 43)))
    world.take_in()
    assert waiting(world) == [(1, "2026-03-01/a.json", n) for n in (31, 33)]
    assert read_recent(world.tables, "delays").rejected == 2
    assert sorted(world.ats()) == [*range(30), 31, *range(40, 43)]


def test_migrating_notes_what_was_read_again_before_that_was_noted(world: LandingWorld) -> None:
    world.replay(file="a.json")
    mended(world)
    world.replay()
    noted = world.rejected()
    world.tables.at("rejected").replace([{**row, "replayed_by": None} for row in noted], stream="delays")
    assert len(waiting(world)) == 5
    dry = [one.sentence for one in migrate(world.settings, dry_run=True)]
    assert (len(waiting(world)), dry) == (
        5,
        ["rejected: version 2 to 2: 5 rows are noted as read again since"],
    )
    assert [one.sentence for one in migrate(world.settings)] == dry
    assert world.rejected() == noted
    assert migrate(world.settings) == []


def test_what_is_refused_again_is_named_by_its_line_and_may_be_replayed_once_more(
    world: LandingWorld,
) -> None:
    done = world.replay()
    assert [(batch.rows, batch.rejected) for batch in done.batches] == [(0, 3), (0, 2)]
    again = [row for row in world.rejected() if row["batch"] == 3]
    assert [(row["file"], row["line"]) for row in again] == [
        ("delays/2026-03-01/a.json", n) for n in (31, 33)
    ]
    assert again[0]["reason"].startswith("delays/2026-03-01/a.json:31: `delay_ms` must be there")
    assert world.fates()[2:] == [("2026-03-01/b.json", "refused"), ("2026-03-01/a.json", "replayed")]
    mended(world)
    world.replay()
    assert sorted(world.ats()) == [*range(33), *range(40, 43)]
    assert [total[:3] for total in world.totals()] == [
        (36, 31, 5), (3, 0, 3), (2, 0, 2), (3, 3, 0), (2, 2, 0),
    ]  # fmt: skip
    assert world.replay().records == 0


@pytest.mark.parametrize(
    ("asked", "files", "records"),
    [
        ({"file": "a.json"}, 0, 2),
        ({"file": "2026-03-01/b.json"}, 1, 0),
        ({"file": "delays/2026-03-01/b.json"}, 1, 0),
        ({"file": "c.json"}, 0, 0),
        ({"reason": "delay_ms must be there"}, 0, 2),
        ({"reason": "can be used"}, 1, 0),
        ({"reason": "must be young"}, 0, 0),
        ({"day": DAY}, 1, 2),
        ({"day": date(2026, 3, 2)}, 0, 0),
        ({"day": DAY, "file": "a.json", "reason": "delay_ms"}, 0, 2),
    ],
)
def test_only_what_is_asked_for_is_replayed(
    world: LandingWorld, asked: dict[str, Any], files: int, records: int
) -> None:
    mended(world)
    done = world.replay(**asked)
    assert (done.files, done.records) == (files, records)
    world.replay()
    assert sorted(world.ats()) == [*range(33), *range(40, 43)], "and the rest by whoever asks next"


def test_a_reason_takes_its_records_and_leaves_those_of_others(tmp_path: Path) -> None:
    world = LandingWorld(tmp_path, contract(attributes=STRICT))
    odd = b'{"router": "r", "at": 31, "delay_ms": 1.0, "hops": 3}\n'
    world.deliver("a.json", lines(range(30)) + without_delay(30) + odd)
    world.take_in()
    world.contract = contract(attributes=WIDER)
    kinds = {f"{row['field']} must {row['rule']}" for row in world.rejected()}
    if len(kinds) > 1:
        assert world.replay(reason="delay_ms must be there").records == 1
    world.replay()
    assert sorted(world.ats()) == list(range(32))


@pytest.mark.parametrize("gone", [False, True], ids=["there", "gone"])
def test_records_of_csv_are_read_by_the_header_they_came_with(tmp_path: Path, gone: bool) -> None:
    world = LandingWorld(tmp_path, contract({"format": "csv"}, attributes=STRICT))
    rows = b"".join(b'%d,"r, ""%d""",%.1f\n' % (at, at, at / 2) for at in range(30))
    path = world.deliver("a.csv", b"at,router,delay_ms\n" + rows + b'30,"r\nx",\n31,r,1.0\n32,r,\n')
    world.take_in()
    if gone:
        path.unlink()
    mended(world)
    assert world.replay().records == 2
    assert sorted(world.ats()) == list(range(33))
    rows_now = world.tables.at("raw", "delays").rows(["at", "router"]).to_pylist()
    assert {row["router"] for row in rows_now if row["at"] in (30, 32)} == {"r\nx", "r"}


def test_rows_of_parquet_are_read_by_their_values(tmp_path: Path) -> None:
    attributes = [{**one, "type": "timestamp"} if one["name"] == "at" else one for one in STRICT]
    world = LandingWorld(tmp_path, contract({"format": "parquet"}, attributes=attributes))
    sink = io.BytesIO()
    times = pa.array([1_700_000_000_000_000 + i for i in range(30)], pa.timestamp("us", "UTC"))
    delays = pa.array([None if i == 7 else i / 2 for i in range(30)])
    pq.write_table(pa.table({"router": ["r"] * 30, "at": times, "delay_ms": delays}), sink)
    world.deliver("a.parquet", sink.getvalue())
    world.take_in()
    world.contract = contract(
        {"format": "parquet"}, attributes=[{**one, "nullable": True} for one in attributes]
    )
    assert world.replay().records == 1
    assert sorted(world.ats()) == sorted(times.to_pylist())


def test_rows_that_were_delivered_before_are_replayed_only_when_that_is_asked_for(tmp_path: Path) -> None:
    world = LandingWorld(tmp_path, contract(duplicates={"rows": "exact"}))
    world.deliver("a.json", lines([1, 2, 3]))
    world.deliver("b.json", lines([3, 4]))
    world.take_in()
    assert world.ats() == [1, 2, 3, 4]
    world.contract = contract()
    assert world.replay().records == 0
    assert world.replay(reason="delivered before").records == 1
    assert world.ats() == [1, 2, 3, 4, 3]
    assert world.totals() == [(5, 4, 0, 1), (1, 1, 0, 0)]


def test_beside_rows_that_were_delivered_before_those_that_were_refused_are_replayed_alone(
    tmp_path: Path,
) -> None:
    world = LandingWorld(tmp_path, contract(attributes=STRICT, duplicates={"rows": "exact"}))
    world.deliver("a.json", lines([1, 2, 3]))
    world.deliver("b.json", lines(range(3, 40)) + without_delay(40))
    world.take_in()
    mended(world)
    assert world.replay().records == 1
    assert world.ats() == list(range(1, 41))


def test_records_whose_header_nobody_knows_are_refused_by_the_name_of_their_file(tmp_path: Path) -> None:
    world = LandingWorld(tmp_path, contract({"format": "csv"}, attributes=STRICT))
    rows = b"".join(b"%d,r,%.1f\n" % (at, at / 2) for at in range(30))
    world.deliver("a.csv", b"at,router,delay_ms\n" + rows + b"30,r,\n")
    (batch,) = world.take_in()
    files = tuple(replace(file, header=None) for file in batch.files)
    save_batches(world.tables, [replace(batch, files=files)])
    mended(world)
    with pytest.raises(
        SpillwayError, match=r"`--file` must be one whose header is known, got 'delays/a.csv'"
    ):
        world.replay()


def test_of_batches_that_nothing_waits_of_nothing_but_columns_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeats = {"rows": "exact", "on": ["at"]}
    world = LandingWorld(tmp_path, contract(attributes=STRICT, duplicates=repeats))
    for day in range(1, 5):
        delivered = world.deliver(f"2026-03-0{day}/a.json", lines([day, day, 5]))
        world.take_in()
        delivered.unlink()  # put away and done: what lies there or waits is looked at
        save_batches(world.tables, [one.with_changes(world.now, status=DONE) for one in world.batches()])
    world.deliver("2026-03-05/a.json", lines([6]) + without_delay(7))
    world.take_in()
    world.contract = contract(duplicates=repeats)
    assert whole_reads(monkeypatch, world.replay, "batches") <= {5, 6}
    assert world.ats() == [1, 5, 2, 3, 4, 6, 7]
    world.deliver("2026-03-07/a.json", lines([1, 8]))
    assert whole_reads(monkeypatch, world.take_in, "batches") <= {5, 6, 7}
    assert world.ats() == [1, 5, 2, 3, 4, 6, 7, 8]


@pytest.mark.parametrize("way", ["exact", "filter"])
def test_one_row_of_a_repeat_stays_whatever_order_its_batches_are_written_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    world = LandingWorld(tmp_path, contract(duplicates={"rows": way, "on": ["at"], "within": 30}))
    whole, broken = raw.time_covered, {2, 4}

    def failing(tables: Any, of: Any, batch: Any, *more: Any) -> Any:
        # by then its rows lie in `raw`
        if batch.batch in broken:
            raise SpillwayError("`at` must be kind, got unkind; mend it")
        return whole(tables, of, batch, *more)

    monkeypatch.setattr(raw, "time_covered", failing)
    for day, ats in enumerate(([1, 2], [2, 3, 4, 9], [3, 5], [3, 4, 5, 6], [4, 6, 7]), 1):
        world.deliver(f"2026-01-0{day}/{day}.json", lines(ats))
    assert "batch 2 could not be written" in world.fails()
    assert [one.rows for one in world.batches()] == [2, None, 2, None, 3], "what failed counts for nothing"
    broken.discard(2)
    assert "batch 4 failed a second time" in world.fails()
    with pytest.raises(SpillwayError, match="batch 4 could not be written"):
        world.replay()
    broken.discard(4)
    world.replay()
    assert sorted(world.ats()) == [1, 2, 3, 4, 5, 6, 7, 9]
    assert world.totals() == [(2, 2, 0, 0), (4, 1, 0, 3), (2, 2, 0, 0), (4, 0, 0, 4), (3, 3, 0, 0)]
    world.deliver("2026-01-06/6.json", lines(range(1, 10)))
    world.take_in()
    assert sorted(world.ats()) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert world.totals()[5] == (9, 1, 0, 8)


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    "write", [one if one % 4 == 0 else pytest.param(one, marks=pytest.mark.long) for one in range(16)]
)
def test_a_replay_that_is_killed_before_any_write_ends_in_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int
) -> None:
    def fresh(folder: Path) -> LandingWorld:
        made = LandingWorld(folder, contract(attributes=STRICT))
        made.deliver("a.json", lines(range(30)) + without_delay(30))
        made.deliver("b.json", without_delay(40))
        made.take_in()
        mended(made)
        return made

    broken = fresh(tmp_path)
    left = write
    with monkeypatch.context() as patch:
        for method in ("publish", "replace"):
            whole = getattr(Table, method)

            def until_then(self: Table, *args: Any, _whole: Any = whole, **more: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return _whole(self, *args, **more)

            patch.setattr(Table, method, until_then)
        with suppress(Killed):
            broken.replay()
    broken.replay()
    assert sorted(broken.ats()) == [*range(31), 40]
    assert [total[1] for total in broken.totals()] == [30, 1, 1]
    assert all(offered == sum(parts) for offered, *parts in broken.totals())
    assert waiting(broken) == []
    assert broken.replay().records == 0
    assert broken.is_quiet()


def test_a_batch_that_was_set_aside_while_it_was_shed_goes_on_with_all_that_came_after_it_that_day(
    world: LandingWorld,
) -> None:
    world.deliver("2026-03-01/c.json", lines(range(50, 53)))
    world.deliver("2026-03-02/d.json", lines(range(60, 63)))
    world.take_in()
    now = world.now
    first, second, third = world.batches()
    pinned = {"frame_origin": 0, "frame_tuples": 100}
    aside = first.with_changes(now, status=QUARANTINED, attempts=2, reason="a kernel failed", **pinned)
    save_batches(
        world.tables, [aside, *(b.with_changes(now, status=DONE, **pinned) for b in (second, third))]
    )
    assert world.replay(day=date(2026, 3, 2)).reopened == ()
    assert world.replay(file="a.json", reason="another").reopened == ()
    assert world.replay(file="a.json", reason="kernel").reopened == (1,)
    assert [b.status for b in world.batches()][:3] == [PLANNED, PLANNED, DONE]
    assert (world.batches()[0].attempts, world.batches()[0].reason) == (0, None)
    stands = world.batches()[0].revision
    save_batches(world.tables, [aside.with_changes(now, frame_origin=None, revision=stands)])
    world.replay(reason="kernel")
    (first, second, *_) = world.batches()
    assert first.status == INGESTED
    save_batches(
        world.tables,
        [aside.with_changes(now, revision=first.revision), second.with_changes(now, status=RETIRED)],
    )
    with pytest.raises(SpillwayError, match=r"batch 1 must go before batch 2 of its date 2026-03-01"):
        world.replay(reason="kernel")
