"""What judges whether the product was hurt is itself judged: it sees a loss, a double, and a ledger that lies."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from evidence.torture import parts
from evidence.torture.deaths import PHASES, Writes
from evidence.torture.kills import contents, first_difference
from evidence.torture.laws import broken_laws
from evidence.torture.parts import run_torture, write_figures
from evidence.torture.processes import BROKEN, SENTENCE, Child, ProcessEnd
from evidence.torture.reader import table_rows, tables_below
from evidence.torture.steps import bring_all
from evidence.torture.world import AWKWARD, TortureWorld, create_world
from spillway.errors import SpillwayError
from spillway.store.batches import load_batches
from spillway.store.tables import Tables


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> TortureWorld:
    """The awkward stream, taken in, trained and shed."""
    world = create_world(tmp_path_factory.mktemp("torture") / "done", only=AWKWARD)
    bring_all(world)
    return world


@pytest.fixture
def world(done: TortureWorld, tmp_path: Path) -> TortureWorld:
    return done.copy(tmp_path / "copy")


def test_tables_are_read_as_the_product_reads_them(world: TortureWorld) -> None:
    tables = Tables(world.settings)
    assert {"batches", "ledger", f"raw/{AWKWARD}", f"transmitted/{AWKWARD}"} <= tables_below(
        world.lake
    ).keys()
    for name in ("batches", "ledger", "schemes"):
        theirs = tables.at(name).rows(["batch"])["batch"].to_pylist()
        assert sorted(row["batch"] for row in table_rows(world.lake / name)) == sorted(theirs)
    sent = tables.at("transmitted", AWKWARD).rows(["seq"])["seq"].to_pylist()
    assert sorted(row["seq"] for row in table_rows(world.lake / "transmitted" / AWKWARD)) == sorted(sent)


def test_what_was_done_well_breaks_no_law_and_differs_in_nothing_from_itself(world: TortureWorld) -> None:
    assert broken_laws(world) == []
    found = contents(world.lake)
    assert found["rejected"]
    assert first_difference(found, found) == ""
    bring_all(world)
    assert first_difference(contents(world.lake), found) == ""


@pytest.mark.parametrize(
    ("table", "stream", "where", "law"),
    [
        ("transmitted", AWKWARD, {"seq": 7}, "transmitted lacks 1 delivered tuples"),
        ("raw", AWKWARD, {"seq": 7}, "raw lacks 1 tuples"),
        ("rejected", None, {"stream": AWKWARD}, "rejected has 0 records for 3"),
        ("ledger", None, {"stage": "intake"}, "intake was offered 0 records of"),
        ("ledger", None, {"stage": "sent"}, "None rows were told to be sent"),
    ],
)
def test_what_is_lost_is_seen(
    world: TortureWorld, table: str, stream: str | None, where: dict[str, object], law: str
) -> None:
    before = contents(world.lake)
    Tables(world.settings).at(table, stream).delete(**where)
    assert any(law in line for line in broken_laws(world))
    assert first_difference(contents(world.lake), before).startswith(table)


def test_what_stands_twice_is_seen(world: TortureWorld) -> None:
    tables = Tables(world.settings)
    tables.at("batches").append([load_batches(tables, AWKWARD)[0].row()])
    tables.at("ledger").append(tables.at("ledger").rows(batch=1, stage="sent").to_pylist())
    told = " ".join(broken_laws(world))
    assert "batch 1 stands 2 times in batches" in told
    assert "the ledger has (1, 'sent', 'rows') 2 times" in told
    sent = world.lake / "transmitted" / AWKWARD
    log = sorted((sent / "_delta_log").glob("*.json"))[-1]
    twice = json.loads(next(line for line in log.read_text().splitlines() if '"add"' in line))
    path = sent / twice["add"]["path"]
    shutil.copy(path, path.with_name("again.parquet"))
    twice["add"]["path"] = str(Path(twice["add"]["path"]).with_name("again.parquet"))
    (sent / "_delta_log" / f"{int(log.stem) + 1:020d}.json").write_text(json.dumps(twice) + "\n")
    assert any("numbers twice" in line for line in broken_laws(world))


def _stops() -> None:
    raise SpillwayError("`it` must stop, got on; let it")


def test_how_a_process_ended_is_told_apart(tmp_path: Path) -> None:
    said = tmp_path / "said"
    assert Child(lambda: None, said).wait().is_a_sentence
    stopped = Child(_stops, said).wait()
    assert (stopped.code, stopped.said, stopped.is_a_sentence) == (
        SENTENCE,
        "`it` must stop, got on; let it",
        True,
    )
    broke = Child(lambda: 1 // 0, said).wait()
    assert (broke.code, broke.is_a_sentence) == (BROKEN, False)
    assert "ZeroDivisionError" in broke.said
    killed = Child(signal.pause, said).wait(kill_after=0.0)
    assert (killed.was_killed, killed.is_a_sentence) == (True, False)
    assert ProcessEnd(0, "", 0.0).is_a_sentence


@pytest.mark.parametrize("phase", PHASES)
def test_a_process_dies_at_the_write_that_it_is_told(tmp_path: Path, phase: str) -> None:
    def writes() -> None:
        from spillway.store import blobs

        Writes(2, phase).watch()
        for name in "abc":
            (tmp_path / name).write_text(name)
            blobs.remove(str(tmp_path / name))

    (tmp_path / "here").mkdir()
    ended = Child(writes, tmp_path / "said").wait()
    assert ended.was_killed, ended
    assert [name for name in "abc" if (tmp_path / name).exists()] == ([] if phase == "after" else ["b"])
    assert os.path.isdir(tmp_path / "here")


def test_figures_of_parts_that_were_not_run_stay(tmp_path: Path) -> None:
    write_figures({"torture.kills": 200, "torture.races": 7}, tmp_path)
    found = json.loads(write_figures({"torture.races": 9}, tmp_path).read_text())
    assert (found["torture.kills"], found["torture.races"]) == (200, 9)
    assert found["machine.cores"] > 0


def test_a_part_that_fails_or_dies_is_named_and_the_others_are_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> dict[str, float]:
        raise ValueError("its own fault")

    made: dict[str, Any] = {
        "kills": (lambda *_: {"torture.kills": 3.0},),
        "races": (broken,),
        "landing": (broken,),
    }
    most = "torture.fuzz_most_memory_mb"
    shares = [{"torture.fuzz_inputs": inputs, most: memory} for inputs, memory in ((7.0, 9.5), (6.0, 8.5))]
    made |= {"fuzz": tuple(lambda *_, one=one: one for one in shares), "year": (lambda *_: os._exit(9),)}
    monkeypatch.setattr(parts, "PARTS", made)
    monkeypatch.setattr(parts, "prepare_process", lambda _: None)
    monkeypatch.setenv("SPILLWAY_BUILD", str(tmp_path))
    assert run_torture([]) == 1
    figures = json.loads((tmp_path / "torture.json").read_text())
    assert (figures["torture.kills"], figures["torture.fuzz_inputs"], figures[most]) == (3.0, 13.0, 9.5)
    assert "torture: races, landing, year must be none" in capfd.readouterr().err
    assert run_torture(["--only", "fuzz", "--only", "kills"]) == 0
