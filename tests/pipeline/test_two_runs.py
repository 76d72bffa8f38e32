"""Two runs of the same join or query at once: wherever one of them stands still, no older answer ends over a newer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.levers.joins import lake
from tests.levers.quality import worlds
from tests.pipeline.streams import World, json_lines, own_settings, sites

from spillway.engine import ProcessEngine
from spillway.errors import ConcurrentRun
from spillway.store.tables import Table, Tables
from spillway.workloads.run import run_workloads

WRITES = ("publish", "replace")


def run(world: World) -> int:
    return len(run_workloads(world.tables, world.engine, world.contracts, None, world.said.append))


class StandsStill:
    """After the k-th write of tables something else is done before anything is opened."""

    def __init__(self, patch: pytest.MonkeyPatch, k: int, meanwhile: Callable[[], Any]) -> None:
        self.count, self.k, self.meanwhile = 0, k, meanwhile
        for name in WRITES:
            patch.setattr(Table, name, self.waiting(getattr(Table, name)))

    def waiting(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def waits(table: Table, *args: Any, **where: Any) -> Any:
            found = write(table, *args, **where)
            self.count += 1
            if self.count == self.k:
                self.meanwhile()
            return found

        return waits


@pytest.fixture(scope="module")
def query_lake(tmp_path_factory: pytest.TempPathFactory) -> World:
    query = worlds.query("means", "SELECT count(*) AS n FROM sites HAVING count(*) <= 240")
    return worlds.begun(tmp_path_factory.mktemp("query"), query)


@pytest.fixture(scope="module")
def join_lake(tmp_path_factory: pytest.TempPathFactory) -> World:
    return lake.begun(tmp_path_factory.mktemp("join"), ProcessEngine())


def told(world: World, results: str, subject: str, record: str, *columns: str) -> dict[str, Any]:
    """What a run leaves behind."""
    return {
        "results": world.rows(results, subject),
        "windows": [row for row in world.rows("windows") if row["status"] != "open"],
        "ledger": [row for row in world.rows("ledger") if row["subject"] == subject],
        record: [{name: row[name] for name in columns} for row in world.rows(record)],
    }


def stands_still(
    folder: Path,
    begun: World,
    late: tuple[str, bytes],
    tables: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    after: Iterable[int],
) -> None:
    """After: 1 the pins, 2 the claim, 3 results, 4 the lever's rows, 5 the ledger."""

    def comes_late(world: World) -> None:
        world.deliver(*late)
        world.shed()

    one_by_one = begun.copy(folder / "one")
    comes_late(one_by_one)
    run(one_by_one)
    wanted = told(one_by_one, *tables)
    for k in after:
        world = begun.copy(folder / str(k))

        def another(world: World = world) -> None:
            other = World(world.folder, ProcessEngine(), Tables(own_settings(world.folder)), world.contracts)
            comes_late(other)
            run(other)

        with monkeypatch.context() as patch:
            StandsStill(patch, k, another)
            with pytest.raises(ConcurrentRun, match="run it again"):
                run(world)
        run(world)
        assert told(world, *tables) == wanted, f"where it stood still after write {k}"


@pytest.mark.long
def test_an_older_run_of_a_query_puts_nothing_over_a_newer_one(
    query_lake: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the late rows there is no answer at all, of which no table shows a trace."""
    late = ("sites/2020-02-01/late.json", json_lines(sites(0, 5)))
    tables = ("results", "means", "coverage", "window", "sic", "arrived", "rows")
    stands_still(tmp_path, query_lake, late, tables, monkeypatch, after=(1, 2, 4))


def test_an_older_answer_does_not_stay_where_a_newer_one_is_empty(
    query_lake: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer run answers none of these windows, so that it commits nothing where results are."""
    for k in (2, 3):  # behind its claim, and behind its results
        world = query_lake.copy(tmp_path / str(k))

        def another(world: World = world) -> None:
            other = world.copy(world.folder / "contracts")
            worlds.put_queries(other, worlds.query("means", "SELECT 1 AS n FROM sites WHERE temp < -999"))
            tables = Tables(own_settings(world.folder))
            assert len(run_workloads(tables, ProcessEngine(), other.contracts)) == 2

        with monkeypatch.context() as patch:
            StandsStill(patch, k, another)
            with pytest.raises(ConcurrentRun, match="run it again"):
                run(world)
        assert not world.at("results", "means").exists or not world.rows("results", "means")
        assert [row["status"] for row in world.rows("windows")].count("done") == 2


def test_an_older_run_of_a_join_puts_nothing_over_a_newer_one(
    join_lake: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = ("east/2026-02-01/late.json", json_lines(lake.alarms(0, 20, seed=9, begin=3.0)))
    tables = ("joined", "alike", "join_windows", "window", "pairs", "possible", "compared")
    stands_still(tmp_path, join_lake, late, tables, monkeypatch, after=(1,))
