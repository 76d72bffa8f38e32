"""Joins and queries as a whole: who has something to do, what they read, and one fault that stays one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import yaml
from tests.levers.test_toy_window_lever import NEIGHBOURS, begun
from tests.pipeline.streams import World

from spillway import registry
from spillway.contracts import load_contracts
from spillway.engine import ProcessEngine
from spillway.errors import RunFailed, SpillwayError
from spillway.levers.protocol import CapacityGroup
from spillway.levers.windows import PLANNED, Window
from spillway.pipeline.pending import pending_workloads
from spillway.scheduling import NothingToDo, assets_written_since, workload_arguments
from spillway.workloads.inputs import WindowRows, load_inputs, plan_inputs, window_groups
from spillway.workloads.run import run_workloads
from spillway.workloads.windows import pinned_windows


@pytest.fixture(autouse=True)
def the_toy_has_its_line() -> Iterator[None]:
    with registry.extra_levers(meet="tests.levers.meet"):
        yield


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> World:
    with registry.extra_levers(meet="tests.levers.meet"):
        return begun(tmp_path_factory.mktemp("lake"), ProcessEngine())


@pytest.fixture
def world(lake: World, tmp_path: Path) -> World:
    return lake.copy(tmp_path)


def with_another(world: World, **changes: Any) -> None:
    other = {**NEIGHBOURS, "name": "others", **changes}
    (world.folder / "schemas" / "joins" / "others.yaml").write_text(yaml.safe_dump(other))
    world.contracts = load_contracts(world.folder / "schemas")


def test_a_run_of_the_dag_is_told_whose_windows_are_closed_and_ends_where_none_is(world: World) -> None:
    assert workload_arguments(world.settings, None) == ["--subject", "neighbours"]
    run_workloads(world.tables, world.engine, world.contracts)
    assert pending_workloads(world.settings) == []
    with pytest.raises(NothingToDo, match="all closed windows of the joins and queries are computed"):
        workload_arguments(world.settings, ["neighbours"])
    with pytest.raises(SpillwayError, match=r"workload.*nobody"):
        workload_arguments(world.settings, ["nobody"])


def test_what_cannot_be_worked_out_keeps_no_other_back(world: World) -> None:
    with_another(world, levers=[{"lever": "meet", "on": "nowhere"}])
    with pytest.raises(SpillwayError) as caught:
        run_workloads(world.tables, world.engine, world.contracts, None, world.said.append)
    assert not isinstance(caught.value, RunFailed) or len(caught.value.sentences) == 1
    assert "others" in str(caught.value)
    status = {row["subject"]: row["status"] for row in world.rows("windows") if row["status"] != "open"}
    assert status == {"neighbours": "done", "others": "planned"}
    assert pending_workloads(world.settings) == ["others"], (
        "what was pinned and not worked out is tried again"
    )


def test_the_tables_of_results_are_assets_too(world: World) -> None:
    began = datetime.now().astimezone() - timedelta(seconds=1)
    run_workloads(world.tables, world.engine, world.contracts)
    assert "spillway/meet_results/neighbours" in assets_written_since(world.settings, began)


def inputs_of(world: World, back: float, most: int) -> list[tuple[list[int], dict[int, dict[str, Any]]]]:
    contract, tables = world.contracts.joins["neighbours"], world.tables.now()
    windows = pinned_windows(tables, world.contracts, contract)
    room = CapacityGroup("neighbours", world.contracts, tables)
    found = []
    for some in window_groups(windows):
        planned = plan_inputs(tables, room, contract, some, back)
        columns = {stream: ["seq", "at", "site"] for stream in ("lefts", "rights")}
        for part, held in load_inputs(contract, some, planned, columns, back, most):
            found.append(([one.window for one in part], held))
    return found


def test_a_window_is_handed_the_rows_that_it_looks_back_at(world: World) -> None:
    ((numbers, held),) = inputs_of(world, back=120.0, most=10_000)
    first, second = (held[number]["lefts"](["seq", "at"]) for number in numbers)
    assert first.num_rows == 60
    assert second["seq"].to_pylist() == list(range(48, 120)), "six rows a minute, two minutes back"


def test_a_window_is_handed_rows_of_the_batches_alone_that_it_was_pinned_with(world: World) -> None:
    contract, tables = world.contracts.joins["neighbours"], world.tables.now()
    first, second = pinned_windows(tables, world.contracts, contract)
    windows = [first, replace(second, inputs=())]
    planned = plan_inputs(
        tables, CapacityGroup("neighbours", world.contracts, tables), contract, windows, 0.0
    )
    ((_, held),) = load_inputs(contract, windows, planned, {"lefts": ["seq"]}, 0.0, 10_000)
    for rows in (held, planned):
        assert [rows[one.window]["lefts"](["seq"]).num_rows for one in windows] == [60, 0]


def test_what_was_rounded_in_batches_of_others_makes_nothing_of_a_window_inexact() -> None:
    def stretch(batch: int, *bounded: str) -> Any:
        decision = SimpleNamespace(bounded_attributes=frozenset(bounded))
        return SimpleNamespace(
            parts=(SimpleNamespace(batch=batch),), way=SimpleNamespace(decisions=(decision,))
        )

    rows = WindowRows("s", (stretch(1, "temp"), stretch(2, "level")), pa.schema([]), "at", (1, 3))
    assert rows.inexact == {"temp"}


def test_windows_are_read_together_as_long_as_they_lie_close_and_are_not_too_many() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    windows = [
        Window("join", "j", number, PLANNED, at, at, (), at, at) for number in (-90, 0, 1, 2, 3, 6, 10)
    ]
    found = [[one.window for one in some] for some in window_groups(windows, together=3)]
    assert found == [[-90], [0, 1, 2], [3, 6], [10]]


def test_windows_are_read_apart_where_they_hold_too_many_rows_and_one_that_does_is_refused(
    world: World,
) -> None:
    assert [len(numbers) for numbers, _ in inputs_of(world, back=120.0, most=100)] == [1, 1]
    with pytest.raises(SpillwayError, match=r"`windows` must hold at most 50 rows of an input at a time"):
        inputs_of(world, back=120.0, most=50)
