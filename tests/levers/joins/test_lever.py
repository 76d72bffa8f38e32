"""The join as the pipeline runs it: pairs, accounts, state, deaths, what is late, any number of parts, Spark."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.levers.joins.lake import (
    JOIN,
    STREAM,
    alarms,
    as_rows,
    begun,
    contract_becomes,
    found_pairs,
    run,
    truth,
)
from tests.levers.joins.streams import full_join
from tests.pipeline.streams import World, json_lines

from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError
from spillway.ledger import total_imbalance
from spillway.levers.joins.lever import LEVER
from spillway.report.status import status
from spillway.workloads import run as workloads
from spillway.workloads.inputs import window_groups
from spillway.workloads.windows import workload_problems

BUDGET = {"budget": {"comparisons_per_second": 60}}
EAST, WEST = alarms(0, 250, 0), alarms(0, 250, 1)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> World:
    return begun(tmp_path_factory.mktemp("lake"), ProcessEngine())


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
    ledger = [row for row in world.rows("ledger") if row["subject"] == "alike"]
    by_kind = [
        sum(row["offered"] for row in ledger if row["dimension_kind"] == kind) for kind in ("total", "reason")
    ]
    assert by_kind[0] == by_kind[1] > 0, "what was compared has a reason, also where nothing was left out"
    assert found_pairs(world) == sorted(truth(EAST, WEST, end=40.0))
    rows = world.rows("join_windows")
    assert all(row["compared"] == row["possible"] for row in rows)
    assert all((row["missed"], row["missed_low"], row["missed_high"]) == (0, 0, 0) for row in rows)
    assert {row["weight"] for row in world.rows("joined", "alike")} == {1.0}
    assert {row["sic"] for row in rows} == {1.0}, "nothing of the source information was left out"
    assert {(row["inexact_pairs"], row["bound_pct"]) for row in rows} == {(0, None)}
    assert run(world) == 0


def test_of_many_windows_it_is_said_how_far_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "window_groups", partial(window_groups, together=2))
    run(world)
    assert [said for said in world.said if "computed by" in said] == [
        "alike: 2 windows computed by joins, up to 2026-01-01 00:00:20; 2 to go",
        "alike: 2 windows computed by joins",
    ]


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
    assert [row["budget_steps"] for row in rows] == [600.0] * 4
    debt = 0.0
    for row in rows:
        debt = max(0.0, debt + row["steps"] - 600.0)
        assert row["debt_steps"] == debt, "what was saved is not kept"
    # the pairs of a row that looked for them carry together what it was compared with, of its window
    there = {row["window"]: row["left_rows"] + row["right_rows"] for row in rows}
    compared: dict[tuple[Any, ...], float] = {}
    for pair in world.rows("joined", "alike"):
        later = pair["left_time"] > pair["right_time"]
        row_of = (pair["window"], later, pair["left_seq"] if later else pair["right_seq"])
        compared[row_of] = compared.get(row_of, 0.0) + pair["sic"] * there[pair["window"]]
    assert max(compared.values()) <= 1 + 1e-9
    assert min(compared.values()) < 0.6


def test_what_was_not_compared_is_in_the_ledger_and_it_balances(shed: World) -> None:
    rows = [row for row in shed.rows("ledger") if row["subject"] == "alike"]
    totals = [row for row in rows if row["dimension_kind"] == "total"]
    assert {(row["scope"], row["stage"], row["unit"]) for row in rows} == {("join", "joins", "comparisons")}
    windows = shed.rows("join_windows")
    assert [(row["offered"], row["kept"], row["lost"]) for row in totals] == [
        (row["possible"], row["compared"], row["possible"] - row["compared"]) for row in windows
    ]
    for window in {row["batch"] for row in rows}:
        mine = [row for row in rows if row["batch"] == window]
        for count in ("offered", "kept", "shed", "lost"):
            parts = sum(row[count] for row in mine if row["dimension_kind"] == "reason")
            assert parts == sum(row[count] for row in mine if row["dimension_kind"] == "total"), count
    assert total_imbalance(shed.rows("ledger")) == 0
    assert not status(shed.tables.now()).wrong


def test_weights_stand_for_the_full_join_and_sic_for_what_was_compared(shed: World) -> None:
    rows = shed.rows("joined", "alike")
    by_window: dict[int, float] = {}
    for row in rows:
        assert row["weight"] >= 1.0
        by_window[row["window"]] = by_window.get(row["window"], 0.0) + row["sic"]
    windows = {row["window"]: row["sic"] for row in shed.rows("join_windows")}
    assert all(0 < sic <= windows[at] + 1e-9 < 1 for at, sic in by_window.items())
    assert any(row["weight"] > 1.0 for row in rows)


def test_a_death_anywhere_ends_in_the_same_tables(
    world: World, shed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spillway.workloads import run as workloads

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    contract_becomes(world, JOIN, **BUDGET)
    for place in ("write_ledger", "save_windows", "_draft_results"):
        with monkeypatch.context() as killed:
            killed.setattr(workloads, place, die)
            with pytest.raises(KeyboardInterrupt):
                run(world)
    run(world)
    assert found_pairs(world) == found_pairs(shed)
    assert world.rows("joined", "alike") == shed.rows("joined", "alike")
    assert states(world) == states(shed)


def test_window_by_window_is_as_all_at_once(shed: World, tmp_path: Path) -> None:
    world = World.begin(ProcessEngine(), tmp_path, *_streams(), capacity="9 Mbps")
    contract_becomes(world, JOIN, **BUDGET)
    for number, (first, last) in enumerate(((0, 110), (110, 150), (150, 250))):
        for name, rows in (("east", EAST), ("west", WEST)):
            part = rows[first:last]
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
    from spillway.levers.joins import decision

    monkeypatch.setattr(decision, "STEPS_A_PART", 500)
    contract_becomes(world, JOIN, **BUDGET)
    run(world)
    assert len(world.at("joined", "alike").files()) > len(shed.at("joined", "alike").files())
    assert world.rows("joined", "alike") == shed.rows("joined", "alike")
    assert states(world) == states(shed)


def test_spark_and_this_process_find_the_same(
    engine: Any, world: World, shed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spillway.levers.joins import decision

    monkeypatch.setattr(decision, "STEPS_A_PART", 500)
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


def test_windows_that_are_worked_out_anew_go_on_from_one_another_and_not_from_what_stood_there(
    world: World, tmp_path: Path
) -> None:
    late = json_lines(alarms(250, 60, seed=1, begin=-40.0))
    at_once = world.copy(tmp_path / "at_once")
    for one, before in ((world, True), (at_once, False)):
        contract_becomes(one, JOIN, **BUDGET)
        if before:
            run(one)
        one.deliver("west/2026-01-02/late.json", late)
        one.shed()
        run(one)
    assert world.rows("joined", "alike") == at_once.rows("joined", "alike")
    assert [row["left_learned"] for row in states(world)] == [row["left_learned"] for row in states(at_once)]


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


def test_rows_of_a_type_that_nobody_named_are_counted_and_worth_what_others_are(world: World) -> None:
    side = {"attribute": "tags", "lasts_seconds": 20, "type": "urgency"}
    types = [{"name": "high", "utility": 5.0}]
    contract_becomes(world, JOIN, left=side, right=side, types=types, otherwise=0.5, **BUDGET)
    run(world)
    kinds = {"high": 5.0}
    worth = [[kinds.get(row["urgency"], 0.5) for row in rows] for rows in (EAST, WEST)]
    pairs = world.rows("joined", "alike")
    assert pairs
    for row in pairs:
        assert row["utility"] == max(worth[0][row["left_seq"]], worth[1][row["right_seq"]])
    windows = world.rows("join_windows")
    assert sum(row["other_types"] for row in windows) == sum(
        value == 0.5 for rows in worth for value in rows[:200]
    )
    assert sum(row["utility"] for row in windows) == pytest.approx(sum(row["utility"] for row in pairs))
    # what is worth more is compared more
    shares = [row[f"{name}_shares"] for row in windows[1:] for name in ("left", "right")]
    assert sum(high for high, _ in shares) > sum(other for _, other in shares)


def test_a_join_by_an_attribute_that_may_be_inexact_is_refused_by_name(world: World, tmp_path: Path) -> None:
    lossy = {**STREAM, "levers": [{"lever": "attributes"}]}
    side = {"attribute": "level", "lasts_seconds": 20}
    by_level = {"left": side, "right": side, "predicate": "equality", "threshold": None, "sets": None}
    world.contract_becomes(lossy, {**lossy, "stream": "west", "source": {"path": "west", "format": "json"}})
    contract_becomes(world, JOIN, **by_level)
    with pytest.raises(
        SpillwayError, match=r"alike: `level` must be exact, .* got 'east.level'; write role: prot"
    ):
        run(world)
    (problem,) = {one.field for one in workload_problems(world.contracts)}
    assert problem == "level"
    kept = {**lossy, "levers": [{"lever": "attributes", "treatments": ["keep"]}]}
    world.contract_becomes(kept, {**kept, "stream": "west", "source": {"path": "west", "format": "json"}})
    contract_becomes(world, JOIN, **by_level)
    assert run(world) == 4


def test_rows_with_an_inexact_value_match_nothing_and_leave_no_upper_end(tmp_path: Path) -> None:
    """Batches that were shed when the contract still allowed a bound."""
    stream = {
        **STREAM,
        "levers": [{"lever": "attributes", "training": {"tuples": 100}, "treatments": ["keep", "shed"]}],
    }
    world = begun(tmp_path, ProcessEngine(), stream=stream)
    west = {"stream": "west", "source": {"path": "west", "format": "json"}}
    world.train("east", "west")
    world.contract_becomes(stream, {**stream, **west}, capacity="1500 bps")
    world.shed()
    exact = {**STREAM, "levers": []}
    world.contract_becomes(exact, {**exact, **west}, capacity="1500 bps")
    side = {"attribute": "level", "lasts_seconds": 20}
    contract_becomes(world, JOIN, left=side, right=side, predicate="equality", threshold=None, sets=None)
    run(world)
    levels = [{row: one["level"] for row, one in enumerate(rows)} for rows in (EAST, WEST)]
    pairs = found_pairs(world)
    assert all(levels[0][left] == levels[1][right] for left, right in pairs), "no pair of values that differ"
    windows = world.rows("join_windows")
    assert sum(row["inexact_rows"] for row in windows) > 0, "something was shed"
    assert all(row["missed_high"] == float("inf") for row in windows if row["inexact_rows"])
    assert {row["left_bound_pct"] or 0.0 for row in world.rows("joined", "alike")} <= {0.0}
    told = LEVER.explain(world.contracts.joins["alike"], world.tables.now())
    assert told is not None
    assert "rows match nothing, because a value of the join key was rounded" in told.treatment
    assert "at least " in told.treatment
    assert "no upper end: rows with inexact values match nothing" in told.treatment
    assert told.numbers["... at most"] is None


def test_a_window_that_outgrows_its_memory_is_refused_by_name_with_the_way_out(world: World) -> None:
    contract_becomes(world, JOIN, most_rows=100)
    with pytest.raises(
        SpillwayError, match=r"alike: `windows` must hold at most 100 rows of an input .*most_rows"
    ):
        run(world)


def test_sets_of_any_size_and_none_are_joined(world: World) -> None:
    huge = " ".join(f"t{i}" for i in range(20_000))
    for name in ("east", "west"):
        rows = [
            {**row, "tags": tags}
            for row, tags in zip(alarms(0, 4, begin=100.0), (huge, "", None, "t1  t1 t2"), strict=True)
        ]
        world.deliver(f"{name}/2026-01-02/odd.json", json_lines([*rows, *alarms(0, 1, begin=120.0)]))
    world.shed()
    run(world)
    last = [row for row in world.rows("joined", "alike") if row["left_seq"] >= 250]
    assert sorted((row["left_seq"] - 250, row["right_seq"] - 250) for row in last) == [
        (0, 0),
        (0, 3),
        (3, 0),
        (3, 3),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left": {"attribute": "tgas"}}, "`tgas` must be an attribute of east, got 'tgas'; did you mean tags?"),
        (
            {"left": {"attribute": "level"}},
            "`levers[0].left.attribute` must be text where it holds sets, and level of east is none, got 'double'",
        ),
        (
            {"left": {"attribute": "level"}, "predicate": "equality", "threshold": None, "sets": None},
            "`levers[0].right.attribute` must be of a type that compares with double, as east's level is, got 'string'",
        ),
    ],
)  # fmt: skip
def test_a_join_by_what_is_not_there_is_refused_by_name(
    world: World, changes: dict[str, Any], message: str
) -> None:
    contract_becomes(world, JOIN, **changes)
    with pytest.raises(SpillwayError) as caught:
        run(world)
    assert message in str(caught.value)
    assert "alike" in str(caught.value)
    found = status(world.tables.now())
    assert found.wrong
    (told,) = [one for one in found.shortages if one.wrong]
    assert (told.stream, told.kind) == ("alike", "refused")
    assert message in told.sentence + "; " + told.remedy


def test_rows_alike_in_so_many_of_several_attributes_are_pairs(world: World) -> None:
    by = {"attributes": ["site", "level", "urgency"], "lasts_seconds": 15}
    contract_becomes(world, JOIN, left=by, right=by, sets=None, threshold=2)
    run(world)
    words = [[{**row, "tags": " ".join(_as_tags(row))} for row in rows] for rows in (EAST, WEST)]
    whole = full_join(as_rows(words[0]), as_rows(words[1]), 15, 15, "overlap", 2, end=40.0)
    assert set(found_pairs(world)) == whole
    world.validate()
    assert all(row["success"] for row in world.rows("validations")), "pairs are examined by all attributes"


def _as_tags(row: dict[str, Any]) -> list[str]:
    """Its three attributes as tags that no two of them share."""
    kinds = {"high": "t901", "low": "t902", None: ""}
    return [f"t7{row['site'][1:]}", f"t8{row['level']:g}", kinds[row["urgency"]]]


def test_a_join_of_one_input_or_three_is_refused_by_name(world: World) -> None:
    contract_becomes(world, {**JOIN, "inputs": ["east"]})
    with pytest.raises(SpillwayError, match=r"`inputs` must be two for a join"):
        run(world)


def test_the_suite_holds_of_what_a_run_leaves_and_catches_what_it_would_not(
    shed: World, tmp_path: Path
) -> None:
    from spillway.checks import failures, run_suites

    rows = shed.at("join_windows").rows()
    outcomes = run_suites(ProcessEngine(), {"join_windows": rows}, {}, shed.settings)
    assert len(outcomes) >= 5
    assert not failures(outcomes)
    wrong = rows.set_column(rows.schema.get_field_index("compared"), "compared", rows["possible"])
    wrong = wrong.set_column(rows.schema.get_field_index("possible"), "possible", rows["compared"])
    told = failures(run_suites(ProcessEngine(), {"join_windows": wrong}, {}, shed.settings))
    assert "no_more_is_compared_than_there_is" in {one.expectation for one in told}
