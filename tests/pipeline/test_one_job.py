"""A step of a channel is one job of the engine for all streams, and a task reads the file of its slice once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.streams import World, csv_lines, json_lines, meters, sites

from evidence.bench.bench_reads import counted_reads
from spillway.batch import DONE
from spillway.engine import ProcessEngine
from spillway.engine.task_errors import JobFailed
from spillway.intake.ingest import ingest
from spillway.streams.shed import shed_channel


@dataclass(frozen=True)
class Jobs(ProcessEngine):
    """Notes the label of each job and the streams of its tasks; the tasks of one stream kill their job."""

    found: list[tuple[str, list[str]]] = field(default_factory=list)
    deadly: str = ""

    def map(self, function: Callable[[Any], Any], items: Sequence[Any], label: str = "") -> list[Any]:
        if not label.startswith(("shed", "recover")):
            return super().map(function, items, label)
        # a task has the makers of its files; the last one writes a table of the stream alone
        streams = [files[-1][0].folder.rpartition("/")[2] for _, files in items]
        self.found.append((label, streams))
        if self.deadly in streams:
            raise JobFailed("a worker was killed")
        return super().map(function, items, label)


@pytest.fixture
def delivered(world: World, tmp_path: Path) -> World:
    world = world.copy(tmp_path)
    world.deliver("sites/2020-01-03/d.json", json_lines(sites(710, 300)))
    world.deliver("meters/2020-01-03/d.csv", csv_lines(meters(350, 200)))
    for stream in ("sites", "meters"):
        ingest(world.tables, world.engine, world.contracts.streams[stream], "run")
    return world


def test_the_drafts_of_all_streams_and_their_recovery_are_one_job_each(delivered: World) -> None:
    world, engine = delivered, Jobs()
    world.engine = engine
    before = {name: world.at(name).version for name in ("batches", "schemes", "synopsis", "ledger")}
    with counted_reads(world.settings) as reads:
        done = shed_channel(world.tables.now(), engine, world.contracts, "narrow")
    assert sorted(batch.stream for batch in done) == ["meters", "sites"]
    drafts = [label for label, _ in engine.found]
    assert drafts == [f"shed narrow, draft {number}" for number in range(1, len(drafts) + 1)]
    assert {"meters", "sites"} == set(engine.found[0][1]), "the first job has the drafts of both"
    for batch in done:
        (file,) = world.at("raw", batch.stream).files(batch=batch.batch)
        assert reads.paths[file.path] <= 2
    commits = {name: world.at(name).version - version for name, version in before.items()}
    # batches are pinned, and done; the others are written once
    assert commits == {"batches": 2, "schemes": 1, "synopsis": 1, "ledger": 1}
    engine.found.clear()
    version = world.at("certificates").version
    world.validate()
    assert world.at("certificates").version == version + 1
    assert [(label, set(streams)) for label, streams in engine.found] == [("recover", {"meters", "sites"})]
    assert all(batch.is_validated for stream in ("meters", "sites") for batch in world.batches(stream))


def test_a_stream_whose_tasks_kill_the_job_is_named_and_the_other_is_shed(delivered: World) -> None:
    world = delivered
    with pytest.raises(Exception, match=r"meters, batch .*a worker was killed"):
        shed_channel(world.tables.now(), Jobs(deadly="meters"), world.contracts, "narrow")
    assert world.batches("sites")[-1].status == DONE
    assert world.batches("meters")[-1].status != DONE
    left = {Path(path) for path in Path(world.tables.path("transmitted", "meters")).rglob("*.parquet")}
    assert left == {Path(file.path) for file in world.at("transmitted", "meters").files()}, "no draft is left"
    (again,) = shed_channel(world.tables.now(), ProcessEngine(), world.contracts, "narrow")
    assert (again.stream, again.status) == ("meters", DONE)
