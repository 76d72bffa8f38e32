"""What a step opens and starts: each table's log once, and Spark only where there is something to run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.streams import World, json_lines, sites

from spillway.engine import ProcessEngine
from spillway.engine.spark import SparkEngine
from spillway.errors import ConcurrentRun
from spillway.intake.ingest import ingest
from spillway.levers.attributes import facts as kinds
from spillway.pipeline.validate import validate
from spillway.store import delta_log
from spillway.streams import train
from spillway.streams.query import StreamQuery
from spillway.streams.recover import look_up
from spillway.streams.shed import shed_channel
from spillway.streams.train import train_stream, train_streams

Steps = dict[str, Callable[[World], object]]
STEPS: Steps = {
    "take in": lambda w: ingest(w.tables, w.engine, w.contracts.streams["sites"], "run"),
    "shed": lambda w: shed_channel(w.tables, w.engine, w.contracts, "narrow"),
    "train": lambda w: train_stream(w.tables, w.contracts, "sites"),
    "validate": lambda w: validate(w.tables, w.engine, w.contracts, "run", streams=["sites"]),
}


def test_each_step_opens_each_tables_log_once_and_that_of_batches_to_see_who_overtook_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = world.copy(tmp_path)
    fresh.deliver("sites/2020-01-03/d.json", json_lines(sites(710, 150)))
    whole = delta_log.open_delta
    opened: Counter[str] = Counter()

    def counted(path: str) -> Any:
        opened[Path(path).relative_to(fresh.settings.lake).as_posix()] += 1
        return whole(path)

    monkeypatch.setattr(delta_log, "open_delta", counted)
    most, again = {}, {}
    for name, step in STEPS.items():
        opened.clear()
        assert step(fresh) != []
        assert {"batches", "raw/sites"} <= set(opened), name
        # before long work a step looks once more whether anybody has overtaken its batches
        again[name] = opened.pop("batches")
        most[name] = max(opened.values())
    assert most == dict.fromkeys(STEPS, 1)
    assert again == {"take in": 2, "shed": 2, "train": 1, "validate": 3}


def no_session() -> Any:
    raise AssertionError("Spark was started")


@dataclass(frozen=True)
class Recording(ProcessEngine):
    """The engine of this process; it records the label of each pass and the number of its items."""

    passes: list[tuple[str, int]] = field(default_factory=list)

    def map(self, function: Any, items: Sequence[Any], label: str = "") -> list[Any]:
        self.passes.extend([(label, len(items))] if items else [])
        return super().map(function, items, label)


def test_training_runs_in_tasks_one_an_attribute_and_is_committed_once(world: World, tmp_path: Path) -> None:
    trained, engine = world.copy(tmp_path), Recording()
    before = trained.at("models").version
    train_streams(trained.tables, engine, trained.contracts, ["sites", "meters"], "run")
    measures = sum(1 for row in trained.rows("models") if (row["fact"], row["version"]) == (kinds.MODEL, 2))
    assert engine.passes == [("train", 2), ("train, by attribute", measures), ("train, put together", 2)]
    assert {row["version"] for row in trained.rows("models") if row["stream"] != "watched"} == {1, 2}
    assert trained.at("models").version == before + 1


def test_a_stream_that_another_run_trained_meanwhile_gives_way_and_the_others_are_stored(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, learned = world.copy(tmp_path), train._learned

    def overtaken(engine: Any, lessons: Any) -> Any:
        found = learned(engine, lessons)
        monkeypatch.setattr(train, "_learned", learned)
        train_stream(trained.tables, trained.contracts, "sites")
        return found

    monkeypatch.setattr(train, "_learned", overtaken)
    with pytest.raises(ConcurrentRun, match="another run wrote stream sites at the same time"):
        train_streams(trained.tables, ProcessEngine(), trained.contracts, ["sites", "meters"], "run")
    versions = [(row["stream"], row["version"]) for row in trained.rows("models") if row["fact"] == "cycle"]
    assert sorted(set(versions)) == sorted(versions)
    assert {("sites", 2), ("meters", 2)} <= set(versions)


def test_a_run_that_finds_nothing_new_starts_no_spark(world: World) -> None:
    idle = World(world.folder, SparkEngine(no_session), world.tables, world.contracts)
    assert idle.shed() == []
    idle.validate()
    assert idle.said == ["nothing was shed since the last validation"]


def test_rows_can_be_given_back_without_an_engine(world: World) -> None:
    contract = world.contracts.streams["sites"]
    found = look_up(world.tables, contract, StreamQuery.parse(contract, seq=5))
    assert found.rows["seq"].to_pylist() == [5]
