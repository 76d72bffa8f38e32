"""Two runs of one channel at once, wherever each stands still: one wins, the other says so, and never both."""

from __future__ import annotations

import os
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.interleaved import Lake, Run, places
from tests.pipeline.streams import METERS, SITES, World, csv_lines, json_lines, meters, sites

from spillway.batch import DONE, RECORDED, Batch
from spillway.contracts import StreamContract
from spillway.engine import Engine
from spillway.errors import ConcurrentRun
from spillway.intake import ingest as taking_in
from spillway.pipeline import run as channel
from spillway.store.batches import save_batches
from spillway.store.tables import Tables

BARE: dict[str, Any] = {**SITES, "levers": []}
SMALL: dict[str, Any] = {
    **SITES,
    "frame": {"tuples": 20},
    "levers": [{"lever": "attributes", "training": {"tuples": 60}, "treatments": ["keep", "shed"]}],
}
IN_STEPS: dict[str, Any] = {**BARE, "source": {**BARE["source"], "files_at_a_time": 1}}


def deliver(world: World) -> Path:
    return world.deliver("sites/2020-01-02/b.json", json_lines(sites(80, 40)) + b"nonsense\n")


@pytest.fixture
def bare(tmp_path: Path) -> Lake:
    """A file has landed; nothing is to be learned."""
    world = Lake.begin(tmp_path, BARE)
    deliver(world)
    return Lake(world)


@pytest.fixture
def shedding(tmp_path: Path) -> Lake:
    """A file has landed of a stream that is trained and sheds."""
    world = Lake.begin(tmp_path, SMALL)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 80)))
    world.shed()
    world.train("sites")
    deliver(world)
    return Lake(world)


def alone(lake: Lake) -> tuple[list[str], dict[str, Any]]:
    """The steps of a run that nothing disturbs, and what it leaves."""
    run = Run(lake.world)
    run.to_the_end()
    assert run.problem is None
    return run.steps, lake.world.everything("sites")


def one_wins(lake: Lake, first: Run, second: Run) -> None:
    """Let the first end, and then the second: at most one gave way, and said so, and no work is left."""
    first.to_the_end()
    second.to_the_end()
    problems = [one.problem for one in (first, second) if one.problem is not None]
    assert len(problems) < 2, f"both gave way: {problems}"
    assert all(isinstance(one, ConcurrentRun) and "nothing was doubled" in str(one) for one in problems)
    assert {batch.status for batch in lake.world.batches("sites")} == {DONE}


every_nth = pytest.mark.parametrize("nth", [8, pytest.param(1, marks=pytest.mark.long)])
"""Of the pairs of places, every eighth by default and all in `make test-long`."""


@every_nth
def test_wherever_two_runs_stand_still_one_of_them_wins(bare: Lake, nth: int) -> None:
    steps, wanted = alone(bare)
    for here, there in list(product(places(steps), repeat=2))[::nth]:
        bare.put_back()
        one, other = Run(bare.world), Run(bare.world)
        one.until(here)
        other.until(there)
        one_wins(bare, one, other)
        assert bare.world.everything("sites") == wanted, (here, there)


@pytest.mark.long
@every_nth
def test_a_run_that_another_outran_while_it_took_in_does_not_shed_before_that_one(
    shedding: Lake, nth: int
) -> None:
    steps, wanted = alone(shedding)
    ingested = steps.index("open exemptions")
    taking = [at for at in places(steps) if 0 < at < ingested]
    sheds = [at for at, what in enumerate(steps) if at > ingested and what.startswith("commit")]
    for here, there in list(product(taking, sheds))[::nth]:
        shedding.put_back()
        slow, quick = Run(shedding.world), Run(shedding.world)
        slow.until(here)
        quick.until(there)
        one_wins(shedding, slow, quick)
        assert quick.problem is None, "who was ahead wins"
        assert shedding.world.everything("sites") == wanted, (here, there)


@every_nth
def test_a_run_that_another_outran_at_a_step_of_a_backlog_leaves_it_all_of_it(
    tmp_path: Path, nth: int
) -> None:
    world = Lake.begin(tmp_path, IN_STEPS)
    for number in range(2):
        world.deliver(f"sites/2020-01-0{1 + number}/a.json", json_lines(sites(40 * number, 40)))
    lake = Lake(world)
    steps, wanted = alone(lake)
    # every other place here and every third there: what they stand for is looked at one by one above
    for here, there in list(product(places(steps)[::2], places(steps)[1::3]))[::nth]:
        lake.put_back()
        one, other = Run(world), Run(world)
        one.until(here)
        other.until(there)
        one_wins(lake, one, other)
        assert world.everything("sites") == wanted, (here, there)


def test_a_file_that_is_touched_while_its_batch_is_shed_takes_the_batch_from_nobody(shedding: Lake) -> None:
    """The second run finds another time of the file, and the batch planned by the first."""
    world = shedding.world
    (landed,) = Path(world.settings.landing).rglob("b.json")
    os.utime(landed, (1.6e9, 1.6e9))
    for here, there in product(("commit synopsis", "commit ledger", "commit transmitted"), repeat=2):
        shedding.put_back()
        os.utime(landed, (1.6e9, 1.6e9))
        first, second = Run(world), Run(world)
        first.before("open transmitted")
        first.before(here)
        os.utime(landed, (1.7e9, 1.7e9))
        second.before("open transmitted")
        second.before(there)
        one_wins(shedding, first, second)


@pytest.mark.long
@every_nth
def test_a_file_that_changes_while_another_run_reads_it_leaves_the_rows_that_its_batch_says(
    bare: Lake, nth: int
) -> None:
    """The first run has recorded it; the second takes the batch over, and finds another file: it misses it."""
    world = bare.world
    (landed,) = Path(world.settings.landing).rglob("b.json")
    told = os.stat(landed).st_mtime
    steps, _ = alone(bare)
    recorded = steps.index("commit batches") + 1
    ingested = recorded + steps[recorded:].index("commit batches") + 1
    reading = [at for at in places(steps) if recorded <= at <= ingested]
    for here, there in list(product(reading, places(steps)[::2]))[::nth]:
        for first_ends in (True, False):
            os.utime(landed, (told, told))
            bare.put_back()
            one, other = Run(world), None
            one.until(here)
            os.utime(landed, (told - 1e6, told - 1e6))
            other = Run(world)
            other.until(there)
            for run in (one, other) if first_ends else (other, one):
                run.to_the_end()
            problems = [run.problem for run in (one, other) if run.problem is not None]
            assert all(isinstance(problem, ConcurrentRun) for problem in problems), problems
            for _ in range(2):  # whoever gave way leaves its work to the next run
                run = Run(world)
                run.to_the_end()
                assert run.problem is None, (here, there, first_ends)
            batches = world.batches("sites")
            assert {batch.status for batch in batches} == {DONE}
            place = (here, there, first_ends)
            held = Counter(row["batch"] for row in world.rows("raw", "sites"))
            assert held == Counter({batch.batch: batch.rows for batch in batches if batch.rows}), place
            assert held.total() == 40, place
            aside = Counter(row["batch"] for row in world.rows("rejected"))
            assert aside == Counter({batch.batch: batch.rejected for batch in batches if batch.rejected}), (
                place
            )


def test_what_a_run_gives_way_in_is_all_that_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another stream of the channel goes on, and is the only one of which rows are put together."""
    world = Lake.begin(tmp_path, BARE, {**METERS, "levers": []})
    deliver(world)
    world.deliver("meters/2020-01-02/b.csv", csv_lines(meters(0, 40)))
    recorded, settled = taking_in.record_batches, []

    def overtaken(tables: Tables, engine: Engine, contract: StreamContract, *rest: Any) -> list[Batch]:
        found = recorded(tables, engine, contract, *rest)
        if contract.stream == "sites":
            save_batches(tables.now(), found)
        return found

    monkeypatch.setattr(taking_in, "record_batches", overtaken)
    monkeypatch.setattr(channel, "compact_batches", lambda _, stream: settled.append(stream))
    with pytest.raises(ConcurrentRun, match="sites: another run has changed batch 1"):
        world.shed()
    assert [batch.status for stream in ("sites", "meters") for batch in world.batches(stream)] == [
        RECORDED,
        DONE,
    ]
    assert settled == ["meters"]
