"""What is delivered: settled, a regular file, known by name, size, time and digest; whatever else happens is named."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.intake.landing_world import HERE, START, LandingWorld, contract, lines

from spillway.batch import DONE, IN_WORK, Batch
from spillway.intake import new_batches as recording
from spillway.intake import parse as parsing
from spillway.intake.ingest import group_into_steps
from spillway.intake.new_batches import record_batches
from spillway.store.batches import save_batches
from spillway.store.landing_zone import LandingFileChanged, list_landing_folder, open_landing_file


@pytest.fixture
def world(tmp_path: Path) -> LandingWorld:
    return LandingWorld(tmp_path)


def test_a_file_waits_until_it_has_settled_and_is_then_taken_in_whole(world: LandingWorld) -> None:
    path = world.deliver("a.json", lines(range(4)), settled=False)
    assert world.take_in() == []
    assert (
        "1 files changed less than 60 s ago and wait until they have settled: delays/a.json" in world.said[-1]
    )
    world.later(30)
    path.write_bytes(lines(range(10)))
    world.touch(path)
    world.later(59)
    assert world.take_in() == []
    assert [one.name for one in world.look().settling] == ["delays/a.json"]
    world.later(1)
    assert [batch.rows for batch in world.take_in()] == [10]
    assert world.ats() == list(range(10))
    assert world.is_quiet()


def test_a_stream_that_is_renamed_into_place_need_not_wait(tmp_path: Path) -> None:
    world = LandingWorld(tmp_path, contract({"settle_seconds": 0}))
    world.deliver("a.json", lines(range(3)), settled=False)
    assert [batch.rows for batch in world.take_in()] == [3]


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_wrapped_file_on_a_disk_is_taken_in_and_one_that_is_cut_short_stops_no_other(
    world: LandingWorld, codec: str
) -> None:
    content = pa.compress(lines(range(40)), codec=codec, asbytes=True)
    world.deliver("whole.json", content)
    world.deliver("cut.json", content[:-5])
    assert [batch.rows for batch in world.take_in()] == [40]
    assert world.ats() == list(range(40))
    (refused,) = world.rejected()
    assert (refused["file"], refused["rule"]) == ("delays/cut.json", f"be whole and readable {codec}")


@pytest.mark.parametrize("first", [b"", b"\n\n"], ids=["no byte", "no record"])
def test_a_file_without_a_record_is_never_final(world: LandingWorld, first: bytes) -> None:
    world.deliver("a.json", first)
    world.take_in()
    assert world.fates() == [("a.json", "empty")]
    assert world.is_quiet()
    world.deliver("a.json", lines(range(3)))
    world.take_in()
    assert world.ats() == [0, 1, 2]
    assert world.is_quiet()


def test_a_header_alone_is_no_record(tmp_path: Path) -> None:
    world = LandingWorld(tmp_path, contract({"format": "csv"}))
    world.deliver("a.csv", b"router,at,delay_ms\n")
    world.take_in()
    assert world.fates() == [("a.csv", "empty")]
    world.deliver("a.csv", b"router,at,delay_ms\nr1,1,0.5\n")
    world.take_in()
    assert world.ats() == [1]


def test_a_known_name_with_other_bytes_is_refused_by_name_counted_and_its_earlier_rows_stay(
    world: LandingWorld,
) -> None:
    world.deliver("a.json", lines(range(4)))
    world.take_in()
    world.deliver("a.json", lines(range(6)))
    world.take_in()
    assert world.ats() == [0, 1, 2, 3]
    assert world.fates() == [("a.json", "ingested"), ("a.json", "refused")]
    sentence = world.files()[1].reason or ""
    assert "delays/a.json: `the file` must not change once it was taken in (batch 1" in sentence
    assert "deliver new rows in a new file, or spillway replay delays --file a.json" in sentence
    assert world.totals() == [(4, 4, 0, 0), (1, 0, 1, 0)]
    (row,) = world.rejected()
    assert (row["file"], row["line"], row["seq"], row["reason"]) == ("delays/a.json", 0, None, sentence)
    assert row["rule"].startswith("not change once it was taken in")
    assert row["remedy"].startswith("the rows that were taken in stay")
    assert world.is_quiet()
    assert world.replay().batches == (), "nobody who asks for all that waits wants its rows twice"
    assert any("not taken in again" in said and "delays/a.json; --file" in said for said in world.said)
    assert world.ats() == [0, 1, 2, 3]
    assert world.replay(file="a.json").files == 1
    assert world.ats() == [0, 1, 2, 3, *range(6)], "asked for by name, all of it is taken in beside the rows"
    assert world.is_quiet()


def test_a_known_name_with_as_many_other_bytes_is_seen_by_its_time(world: LandingWorld) -> None:
    world.deliver("a.json", lines(range(1, 4)))
    world.take_in()
    world.deliver("a.json", lines(range(4, 7)))
    world.take_in()
    assert world.fates() == [("a.json", "ingested"), ("a.json", "refused")]


def test_the_contract_may_take_a_changed_file_in_as_a_new_batch(tmp_path: Path) -> None:
    world = LandingWorld(tmp_path, contract({"changed": "new_batch"}))
    world.deliver("a.json", lines(range(3)))
    world.take_in()
    world.deliver("a.json", lines(range(3, 8)))
    world.take_in()
    assert world.ats() == list(range(8))
    assert any("has changed since batch 1 took it in" in said for said in world.said)
    assert world.is_quiet()
    world.deliver("a.json", lines(range(3)))
    world.take_in()
    assert world.ats() == list(range(8)), "the first bytes again are known"
    assert world.is_quiet()


def test_of_a_file_that_grows_only_what_is_new_is_taken_in_where_rows_are_told_apart(tmp_path: Path) -> None:
    world = LandingWorld(tmp_path, contract({"changed": "new_batch"}, duplicates={"rows": "exact"}))
    world.deliver("a.json", lines(range(3)))
    world.take_in()
    world.deliver("a.json", lines(range(5)))
    world.take_in()
    assert world.ats() == [0, 1, 2, 3, 4]
    assert world.totals() == [(3, 3, 0, 0), (5, 2, 0, 3)]


def test_a_file_that_was_only_touched_is_read_once_and_then_known_by_its_new_time(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.deliver("a.json", lines(range(3)))
    (batch,) = world.take_in()
    world.touch(path)
    world.later(61)
    read: list[str] = []
    monkeypatch.setattr(
        recording, "open_landing_file", lambda *of: read.append(of[1]) or open_landing_file(*of)
    )
    assert [one.name for one in world.look().doubtful] == ["delays/a.json"]
    assert world.take_in() == []
    assert world.is_quiet()
    assert len(read) == 1
    (known,) = world.batches()
    assert known.files[0].modified_at == START + timedelta(seconds=61)
    assert (known.updated_at, known.status, known.rows) == (batch.updated_at, batch.status, 3)


@pytest.mark.parametrize("status", IN_WORK)
def test_a_file_that_was_touched_is_given_its_time_when_its_batch_is_no_longer_in_work(
    world: LandingWorld, status: str
) -> None:
    """Or a run that is amid writing the batch would be refused for the sake of a time."""
    path = world.deliver("a.json", lines(range(3)))
    (batch,) = world.take_in()
    (in_work,) = save_batches(world.tables, [replace(batch, status=status)])
    world.touch(path)
    world.later(61)
    found = world.look().doubtful
    assert record_batches(world.tables, HERE, world.contract, found, "run", world.now) == []
    assert world.batches() == [in_work]
    save_batches(world.tables, [replace(in_work, status=DONE)])
    assert world.take_in() == []
    assert world.is_quiet()
    assert world.batches()[0].files[0].modified_at == START + timedelta(seconds=61)


def test_a_renamed_file_is_known_by_its_digest_and_its_old_name_may_be_used_again(
    world: LandingWorld,
) -> None:
    path = world.deliver("a.json", lines(range(3)))
    world.take_in()
    path.rename(path.with_name("b.json"))
    world.take_in()
    assert world.fates() == [("a.json", "ingested"), ("b.json", "duplicate")]
    assert world.ats() == [0, 1, 2]
    assert world.is_quiet()


@pytest.mark.parametrize("fate", ["gone", "changed"])
@pytest.mark.parametrize("when", ["measured", "parsed"])
def test_a_file_that_goes_or_changes_under_our_hands_is_left_for_later_and_stops_no_other(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch, fate: str, when: str
) -> None:
    world.deliver("a.json", lines(range(3)))
    path = world.deliver("b.json", lines(range(3, 6)))
    world.deliver("c.json", lines(range(6, 9)))

    def late(root: str, name: str, *more: Any) -> Any:
        if name.endswith("b.json"):
            if fate == "gone":
                path.unlink()
            else:
                path.write_bytes(lines(range(3, 7)))
                world.touch(path)
        return open_landing_file(root, name, *more)

    with monkeypatch.context() as patch:
        patch.setattr(recording if when == "measured" else parsing, "open_landing_file", late)
        (batch,) = world.take_in()
    assert (batch.rows, world.ats()) == (6, [0, 1, 2, 6, 7, 8])
    sentence = "it is gone" if fate == "gone" else "it changed"
    assert any("b.json is left for" in said and sentence in said for said in world.said)
    world.totals()
    world.deliver("b.json", lines(range(3, 6)))
    world.take_in()
    assert sorted(world.ats()) == list(range(9)), "what was missed is new once it is there"
    assert world.is_quiet()


@pytest.mark.parametrize(
    "name",
    [
        "100%.json",
        "hour=2013-01-01 00%3A00/a.json",
        "a b.json",
        "a\nb.json",
        "söft ☃.json",
        "a'b\"c.json",
        "+.json",
    ],
)
def test_whatever_letters_a_name_has_the_file_is_taken_in(world: LandingWorld, name: str) -> None:
    world.deliver(name, lines(range(3)))
    world.take_in()
    assert world.fates() == [(name, "ingested")]
    assert world.ats() == [0, 1, 2]
    assert world.is_quiet()


def test_a_name_that_is_no_text_is_refused_by_name_and_taken_in_once_renamed(world: LandingWorld) -> None:
    world.deliver("a.json", lines(range(2)))
    odd = os.path.join(os.fsencode(world.zone), b"\xff\xfe.json")
    with open(odd, "wb") as file:
        file.write(lines(range(2, 4)))
    world.take_in()
    assert world.fates() == [("\\xff\\xfe.json", "refused"), ("a.json", "ingested")]
    assert r"must have a name in UTF-8, got '\\xff\\xfe.json'; rename it" in world.rejected()[0]["reason"]
    assert world.is_quiet()
    os.rename(odd, world.zone / "b.json")
    world.touch(world.zone / "b.json")
    world.later(61)
    world.take_in()
    assert world.ats() == [0, 1, 2, 3]


def test_links_and_what_is_no_file_are_refused_by_name_and_never_opened(
    world: LandingWorld, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.json"
    secret.write_bytes(lines(range(100, 103)))
    world.deliver("a.json", lines(range(3)))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b.json").write_bytes(lines(range(103, 106)))
    os.symlink(secret, world.zone / "link.json")
    os.symlink(tmp_path / "folder", world.zone / "folder")
    os.symlink(world.zone, world.zone / "loop")
    os.symlink(world.zone / "a.json", world.zone / "inside.json")
    os.mkfifo(world.zone / "pipe.json")
    (batch,) = world.take_in()
    assert (batch.rows, world.ats()) == (3, [0, 1, 2])
    refused = {name for name, status in world.fates() if status == "refused"}
    assert refused == {"link.json", "folder", "loop", "inside.json", "pipe.json"}
    reasons = {row["file"]: row["reason"] for row in world.rejected()}
    assert "must be a regular file, got 'a link'; deliver the file itself" in reasons["delays/link.json"]
    assert "got 'a named pipe'" in reasons["delays/pipe.json"]
    assert not any(b"router" in (row["original"] or b"") for row in world.rejected())
    assert world.totals() == [(8, 3, 5, 0)]
    assert world.is_quiet()


def test_a_file_that_becomes_a_link_after_it_was_listed_is_not_opened(
    world: LandingWorld, tmp_path: Path
) -> None:
    path = world.deliver("day/a.json", lines(range(3)))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.json").write_bytes(b"secret")
    (listed,) = list_landing_folder(str(world.zone))
    path.unlink()
    os.symlink(tmp_path / "elsewhere" / "a.json", path)
    with pytest.raises(LandingFileChanged, match="a link leads to it now"):
        open_landing_file(str(world.zone), listed.path).__enter__()
    path.unlink()
    path.parent.rmdir()
    os.symlink(tmp_path / "elsewhere", path.parent)
    with pytest.raises(LandingFileChanged, match="a link leads to it now"):
        open_landing_file(str(world.zone), listed.path).__enter__()


def test_the_landing_zone_itself_may_be_reached_by_a_link(world: LandingWorld, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    os.symlink(tmp_path / "disk", tmp_path / "landing")
    world.deliver("a.json", lines(range(3)))
    world.take_in()
    assert world.ats() == [0, 1, 2]


def test_a_file_that_may_not_be_read_is_refused_by_name_until_it_is_replayed(
    world: LandingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.deliver("a.json", lines(range(3)))
    world.deliver("b.json", lines(range(3, 6)))

    def locked(root: str, name: str, *more: Any) -> Any:
        if name.endswith("b.json"):
            raise PermissionError(13, "Permission denied")
        return open_landing_file(root, name, *more)

    with monkeypatch.context() as patch:
        # whoever runs the tests may be allowed to read everything
        patch.setattr(recording, "open_landing_file", locked)
        world.take_in()
    assert world.fates() == [("a.json", "ingested"), ("b.json", "refused")]
    assert "must be readable, got 'Permission denied'" in (world.files()[1].reason or "")
    assert world.is_quiet()
    world.replay()
    assert world.ats() == list(range(6))


def test_a_backlog_is_taken_in_in_steps_of_bounded_size_each_a_commit_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(lines(range(10, 13)))
    world = LandingWorld(tmp_path, contract({"files_at_a_time": 3, "mb_at_a_time": 2.5 * size / 1e6}))
    for number in range(7):
        world.deliver(
            f"2026-01-0{1 + number // 4}/{number}.json", lines(range(3 * number + 10, 3 * number + 13))
        )
    world.deliver("2026-01-03/large.json", lines(range(100, 120)))
    steps: list[int] = []
    whole = recording.record_batches

    class Killed(BaseException):
        pass

    def third_time_dead(*args: Any, **more: Any) -> Any:
        steps.append(len(args[3]))
        if len(steps) == 3:
            raise Killed
        return whole(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr("spillway.intake.ingest.record_batches", third_time_dead)
        with pytest.raises(Killed):
            world.take_in()
    assert steps == [2, 2, 2]
    assert [batch.rows for batch in world.batches()] == [6, 6]
    assert "delays: step 3 of 5: 2 files" in [said for said in world.said if "step" in said][-1]
    world.take_in()
    assert world.ats() == [*range(10, 31), *range(100, 120)]
    assert world.is_quiet()


def test_a_step_holds_as_many_files_as_are_said_and_a_large_one_is_one_of_its_own() -> None:
    source = contract({"files_at_a_time": 3, "mb_at_a_time": 1})
    sizes = [1, 1, 1, 1, 2_000_000, 600_000, 400_000, 1]
    files: Any = [
        SimpleNamespace(name=f"delays/2026-03-01/{n}.json", size=size) for n, size in enumerate(sizes)
    ]
    steps = [
        [sizes[int(one.name[-6])] for one in step] for step in group_into_steps(source, files, START.date())
    ]
    assert steps == [[1, 1, 1], [1], [2_000_000], [600_000, 400_000], [1]]


def test_a_file_whose_time_lies_ahead_of_the_clock_waits_and_is_named(world: LandingWorld) -> None:
    path = world.deliver("a.json", lines(range(3)))
    ahead = (world.now + timedelta(days=400)).timestamp()
    os.utime(path, (ahead, ahead))
    assert world.take_in() == []
    assert "delays/a.json" in world.said[-1]


def test_of_however_many_batches_only_those_that_know_a_file_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = LandingWorld(tmp_path)
    for number in range(6):
        world.deliver(f"{number}.json", lines(range(10 * number, 10 * number + 3)))
        world.take_in()
        (world.zone / f"{number}.json").unlink()
    now = [one.with_changes(world.now, status=DONE) for one in world.batches()]
    save_batches(world.tables, now)
    world.deliver("again.json", lines(range(20, 23)))
    world.deliver("new.json", lines([70, 71]))
    read: set[int] = set()
    whole = Batch.from_row

    def noting(row: Any) -> Batch:
        read.add(row["batch"])
        return whole(row)

    with monkeypatch.context() as patch:
        patch.setattr(Batch, "from_row", noting)
        (taken,) = world.take_in()
    assert (taken.batch, taken.rows, taken.first_seq) == (7, 2, 18)
    assert [file.status for file in taken.files] == ["duplicate", "ingested"]
    assert read <= {3, 7}, "batch 3 took in the same bytes under another name"
