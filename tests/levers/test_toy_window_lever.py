"""A lever with two input streams and windows goes through with its package, its line and its contract alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.pipeline.streams import SITES, World, json_lines, sites

from spillway import registry
from spillway.contracts import load_contracts
from spillway.engine import Engine, ProcessEngine
from spillway.errors import InvalidValue
from spillway.ledger import total_imbalance
from spillway.report.status import status
from spillway.workloads.run import run_workloads

LEFT = {**SITES, "stream": "lefts", "source": {"path": "lefts", "format": "json"}, "levers": []}
RIGHT = {**SITES, "stream": "rights", "source": {"path": "rights", "format": "json"}, "levers": []}
NEIGHBOURS = {
    "name": "neighbours",
    "inputs": ["lefts", "rights"],
    "window": {"seconds": 600},
    "levers": [{"lever": "meet", "on": "site"}],
}


@pytest.fixture(autouse=True)
def the_toy_has_its_line() -> Iterator[None]:
    with registry.extra_levers(meet="tests.levers.meet"):
        yield


def begun(folder: Path, engine: Engine, left: Mapping[str, Any] = LEFT) -> World:
    world = World.begin(engine, folder, left, RIGHT, capacity="900 kbps")
    (folder / "schemas" / "joins").mkdir()
    (folder / "schemas" / "joins" / "neighbours.yaml").write_text(yaml.safe_dump(NEIGHBOURS))
    world.contracts = load_contracts(folder / "schemas")
    for stream in ("lefts", "rights"):
        rows = sites(0, 180)
        if stream == "lefts" and left is not LEFT:
            rows = [{**row, "at": number} for number, row in enumerate(rows)]
        world.deliver(f"{stream}/2020-01-01/a.json", json_lines(rows))
    world.shed()
    return world


def run(world: World) -> int:
    return len(run_workloads(world.tables, world.engine, world.contracts, None, world.said.append))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return begun(tmp_path, ProcessEngine())


def test_closed_windows_are_worked_out_once_and_the_open_one_waits(world: World) -> None:
    assert run(world) == 2
    assert run(world) == 0
    rows = world.rows("windows")
    assert [row["status"] for row in rows] == ["done", "done", "open"]
    assert rows[0]["inputs"] == [{"stream": "lefts", "batch": 1}, {"stream": "rights", "batch": 1}]
    world.deliver("lefts/2020-01-01/b.json", json_lines(sites(180, 60)))
    world.deliver("rights/2020-01-01/b.json", json_lines(sites(180, 60)))
    world.shed()
    assert run(world) == 1


def test_what_is_left_undone_is_in_the_ledger_and_it_balances(world: World) -> None:
    run(world)
    rows = [row for row in world.rows("ledger") if row["subject"] == "neighbours"]
    assert [(row["scope"], row["stage"], row["unit"]) for row in rows] == [
        ("join", "meet", "comparisons")
    ] * 2
    assert [(row["offered"], row["kept"], row["lost"]) for row in rows] == [(3600, 3240, 360)] * 2
    assert total_imbalance(world.rows("ledger")) == 0


def test_no_pair_is_met_that_a_full_join_would_not(world: World) -> None:
    run(world)
    left, right = (world.frame("raw", stream).set_index("seq")["site"] for stream in ("lefts", "rights"))
    pairs = world.rows("meet_results", "neighbours")
    assert pairs
    assert all(left[row["left_seq"]] == right[row["right_seq"]] for row in pairs)


def test_a_rerun_after_death_ends_in_the_same_tables(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from spillway.workloads import run as workloads

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(workloads, "write_ledger", die)
        with pytest.raises(KeyboardInterrupt):
            run(world)
    assert [row["status"] for row in world.rows("windows")] == ["planned", "planned", "open"]
    assert run(world) == 2
    assert len(world.rows("meet_results", "neighbours")) == len(
        {(row["left_seq"], row["right_seq"]) for row in world.rows("meet_results", "neighbours")}
    )


def test_spark_and_this_process_find_the_same_pairs(engine: Any, tmp_path: Path) -> None:
    here, there = begun(tmp_path / "here", ProcessEngine()), begun(tmp_path / "there", engine)
    assert run(here) == run(there) == 2
    assert here.rows("meet_results", "neighbours") == there.rows("meet_results", "neighbours")
    assert here.rows("ledger") == there.rows("ledger")


def test_it_shows_in_status(world: World) -> None:
    run(world)
    now = status(world.tables.now())
    assert not now.wrong
    assert "neighbours" in str(now)


def test_a_join_that_nobody_has_declared_is_refused_by_name(world: World) -> None:
    with pytest.raises(InvalidValue, match=r"workload.*nobody"):
        run_workloads(world.tables, world.engine, world.contracts, ["nobody"])


def test_a_join_has_one_lever(world: World) -> None:
    two = {**NEIGHBOURS, "levers": [{"lever": "meet", "on": "site"}, {"lever": "attributes"}]}
    path = world.folder / "schemas" / "joins" / "neighbours.yaml"
    path.write_text(yaml.safe_dump(two))
    world.contracts = load_contracts(world.folder / "schemas")
    with pytest.raises(InvalidValue, match="be a single lever for a join or a query"):
        run(world)


def test_what_is_late_opens_its_window_again_and_nothing_is_lost(world: World) -> None:
    run(world)
    before = len(world.rows("meet_results", "neighbours"))
    world.deliver("lefts/2020-01-01/late.json", json_lines(sites(0, 6)))
    world.shed()
    assert run(world) == 1
    first = next(row for row in world.rows("windows") if row["inputs"] != world.rows("windows")[1]["inputs"])
    assert {"stream": "lefts", "batch": 2} in first["inputs"]
    assert len(world.rows("meet_results", "neighbours")) > before
    assert run(world) == 0


def test_a_clock_that_says_1970_makes_no_windows_in_between(world: World) -> None:
    for stream in ("lefts", "rights"):
        rows = [{**sites(0, 1)[0], "at": "1970-01-01T00:00:00Z"}, *sites(180, 60)]
        world.deliver(f"{stream}/2020-01-01/odd.json", json_lines(rows))
    world.shed()
    assert run(world) == 4
    assert min(row["from_time"].year for row in world.rows("windows")) == 1970


def test_a_stream_that_has_no_times_is_refused_by_name(tmp_path: Path) -> None:
    attributes = [{**a, "type": "integer"} if a["name"] == "at" else a for a in LEFT["attributes"]]
    world = begun(tmp_path, ProcessEngine(), left={**LEFT, "attributes": attributes})
    with pytest.raises(InvalidValue, match="be ordered by a timestamp"):
        run(world)
