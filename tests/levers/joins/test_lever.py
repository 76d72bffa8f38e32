"""The join as the pipeline runs it: pairs, accounts, state, deaths, what is late, any number of parts, Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.levers.joins.lake import JOIN, alarms, begun, contract_becomes, found_pairs, run, truth
from tests.pipeline.streams import World, json_lines

from spillway.engine import InProcess
from spillway.ledger import difference
from spillway.show.status import status

BUDGET = {"budget": {"comparisons_per_second": 60}}
EAST, WEST = alarms(0, 250, 0), alarms(0, 250, 1)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> World:
    return begun(tmp_path_factory.mktemp("lake"), InProcess())


@pytest.fixture
def world(lake: World, tmp_path: Path) -> World:
    return lake.copy(tmp_path)


@pytest.fixture(scope="module")
def shed(lake: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Joined within a budget; to be read."""
    world = lake.copy(tmp_path_factory.mktemp("shed"))
    contract_becomes(world, JOIN, **BUDGET)
    run(world)
    return world


def states(world: World) -> list[dict[str, Any]]:
    rows = world.rows("join_windows")
    return [{name: v for name, v in row.items() if name != "core_seconds"} for row in rows]


def test_without_a_budget_it_is_the_full_join(world: World) -> None:
    assert run(world) == 4, "the fifth window is open"
    assert found_pairs(world) == sorted(truth(EAST, WEST, end=40.0))
    rows = world.rows("join_windows")
    assert all(row["compared"] == row["possible"] for row in rows)
    assert all((row["missed"], row["missed_low"], row["missed_high"]) == (0, 0, 0) for row in rows)
    assert {row["weight"] for row in world.rows("joined", "alike")} == {1.0}
    assert run(world) == 0


@pytest.mark.parametrize("index", [True, False])
def test_within_a_budget_there_is_no_pair_that_the_full_join_has_not_and_none_twice(
    world: World, index: bool
) -> None:
    contract_becomes(world, JOIN, **BUDGET, index=index)
    run(world)
    pairs, whole = found_pairs(world), truth(EAST, WEST, end=40.0)
    assert 0 < len(pairs) < len(whole)
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) <= whole


def test_the_budget_is_kept_over_the_windows(world: World) -> None:
    contract_becomes(world, JOIN, **BUDGET, index=False)
    run(world)
    rows = world.rows("join_windows")
    assert sum(row["steps"] for row in rows) <= 60 * 10 * 4 + rows[-1]["debt_steps"]
    # and what there is to spend is spent: rounding to whole rows is all that is left
    assert sum(row["steps"] for row in rows) > 0.93 * 60 * 10 * 4
    assert [row["may_spend"] for row in rows] == [600.0] * 4


def test_what_was_not_compared_is_in_the_ledger_and_it_balances(shed: World) -> None:
    rows = [row for row in shed.rows("ledger") if row["subject"] == "alike"]
    totals = [row for row in rows if row["dimension_kind"] == "total"]
    assert {(row["scope"], row["stage"], row["unit"]) for row in rows} == {("join", "joins", "comparisons")}
    windows = shed.rows("join_windows")
    assert [(row["offered"], row["kept"], row["lost"]) for row in totals] == [
        (row["possible"], row["compared"], row["possible"] - row["compared"]) for row in windows
    ]
    assert difference(shed.rows("ledger")) == 0
    assert not status(shed.tables.now()).wrong


def test_weights_stand_for_the_full_join_and_sic_for_what_was_compared(shed: World) -> None:
    rows = shed.rows("joined", "alike")
    by_window: dict[int, float] = {}
    for row in rows:
        assert row["weight"] >= 1.0
        by_window[row["window"]] = by_window.get(row["window"], 0.0) + row["sic"]
    assert all(0 < sic <= 1 for sic in by_window.values())
    assert any(row["weight"] > 1.0 for row in rows)


def test_a_death_anywhere_ends_in_the_same_tables(
    world: World, shed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spillway.pipeline import workloads

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    contract_becomes(world, JOIN, **BUDGET)
    for place in ("write_ledger", "save_windows", "_drafted"):
        with monkeypatch.context() as killed:
            killed.setattr(workloads, place, die)
            with pytest.raises(KeyboardInterrupt):
                run(world)
    run(world)
    assert found_pairs(world) == found_pairs(shed)
    assert world.rows("joined", "alike") == shed.rows("joined", "alike")
    assert states(world) == states(shed)


def test_window_by_window_is_as_all_at_once(shed: World, tmp_path: Path) -> None:
    world = World.begin(InProcess(), tmp_path, *_streams(), capacity="9 Mbps")
    contract_becomes(world, JOIN, **BUDGET)
    for number in range(5):
        for name, rows in (("east", EAST), ("west", WEST)):
            part = rows[number * 50 : number * 50 + 50]
            world.deliver(f"{name}/2026-01-01/{number}.json", json_lines(part))
        world.shed()
        run(world)
    assert found_pairs(world) == found_pairs(shed)
    assert [row["left_learned"] for row in states(world)] == [row["left_learned"] for row in states(shed)]


def _streams() -> list[dict[str, Any]]:
    from tests.levers.joins.lake import STREAM

    return [STREAM, {**STREAM, "stream": "west", "source": {"path": "west", "format": "json"}}]


def test_any_number_of_parts_finds_the_same(
    world: World, shed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spillway.levers.joins import deciding

    monkeypatch.setattr(deciding, "STEPS_A_PART", 10)
    world.engine = InProcess(cores=7)
    contract_becomes(world, JOIN, **BUDGET)
    run(world)
    assert len(world.at("joined", "alike").files()) > len(shed.at("joined", "alike").files())
    assert world.rows("joined", "alike") == shed.rows("joined", "alike")
    assert states(world) == states(shed)


def test_spark_and_this_process_find_the_same(
    engine: Any, world: World, shed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spillway.levers.joins import deciding

    monkeypatch.setattr(deciding, "STEPS_A_PART", 10)
    world.engine = engine
    contract_becomes(world, JOIN, **BUDGET)
    run(world)
    assert world.rows("joined", "alike") == shed.rows("joined", "alike")
    assert states(world) == states(shed)


def test_what_is_late_or_out_of_order_opens_the_windows_that_it_matters_to(world: World) -> None:
    run(world)
    before = set(found_pairs(world))
    late = [{**row, "tags": "t1 t2 t3"} for row in alarms(15, 1)]  # at 3 s: the windows of 0, 10 and 20 s
    world.deliver("west/2026-01-02/late.json", json_lines(late))
    world.shed()
    assert run(world) == 3
    whole = truth(EAST, [*WEST, *late], end=40.0)
    seq = max(row["seq"] for row in world.rows("transmitted", "west"))
    expected = {(left, seq if right == 250 else right) for left, right in whole}
    assert before < expected
    assert set(found_pairs(world)) == expected


def test_clocks_that_jump_back_or_years_ahead_make_windows_of_their_own(world: World) -> None:
    for name in ("east", "west"):
        odd = [
            {**row, "at": at}
            for row, at in zip(alarms(0, 2), ("1970-01-01T00:00:00Z", "2099-01-01T00:00:00Z"), strict=True)
        ]
        world.deliver(f"{name}/2026-01-02/odd.json", json_lines(odd))
    world.shed()
    assert run(world) == 6, "1970, and all five of today; 2099 is open"
    assert len(set(found_pairs(world)) & truth(EAST, WEST, end=50.0)) == len(truth(EAST, WEST, end=50.0))


def test_an_input_without_rows_in_a_window_joins_with_nothing(world: World) -> None:
    for name, begin in (("east", 100.0), ("west", 200.0), ("east", 300.0), ("west", 300.0)):
        world.deliver(f"{name}/2026-01-03/{begin}.json", json_lines(alarms(0, 3, begin=begin)))
    world.shed()
    run(world)
    windows = {row["window"]: row for row in world.rows("join_windows")}
    first = min(windows)
    assert (windows[first + 10]["left_rows"], windows[first + 10]["right_rows"]) == (3, 0)
    assert (windows[first + 20]["left_rows"], windows[first + 20]["right_rows"]) == (0, 3)
    assert windows[first + 20]["possible"] == 0


def test_a_stream_joined_with_itself_pairs_no_row_with_itself(world: World) -> None:
    contract_becomes(world, {**JOIN, "inputs": ["east", "east"]})
    run(world)
    whole = {pair for pair in truth(EAST, EAST, end=40.0) if pair[0] != pair[1]}
    assert set(found_pairs(world)) == whole
