"""Windows as they are probed: basic windows that hold every row in reach, clocks years apart, what a step costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.levers.joins.streams import Row, full_join, operand

from evidence.joins.driver import overlap
from spillway.contracts import read_workload
from spillway.errors import InvalidValue
from spillway.levers.joins import directions
from spillway.levers.joins.directions import SideRows, build_direction
from spillway.levers.joins.exploration import LearnedSide, Memory
from spillway.levers.joins.join_window import JoinWindow
from spillway.levers.joins.matching import basic_windows
from spillway.levers.joins.settings import Budget, JoinSettings


def equality(lasts: float, basic: float, **more: object) -> JoinSettings:
    side = {"attribute": "x", "lasts_seconds": lasts}
    lever = {"lever": "joins", "left": side, "right": side, "basic_window_seconds": basic, **more}
    join = {"name": "alike", "inputs": ["a", "b"], "window": {"seconds": 5}, "levers": [lever]}
    found: JoinSettings = read_workload(join).lever_settings("joins")
    return found


def pairs_of(left: list[Row], right: list[Row], settings: JoinSettings) -> set[tuple[int, int]]:
    """The pairs of everything that is there, as a turn finds them."""
    sides = [operand(rows) for rows in (left, right)]
    turn = JoinWindow(settings, Memory(), *(SideRows(one, 0, one.rows) for one in sides), 5.0)
    counts: dict[str, int] = {}
    window, decision = None, turn.decision
    tables = [
        table
        for part in decision.task_inputs(window, {})  # type: ignore[arg-type]
        for table in decision.results(window, part, counts)  # type: ignore[arg-type]
    ]
    turn.result_columns(counts)
    return {
        pair
        for one in tables
        for pair in zip(one["left_seq"].to_pylist(), one["right_seq"].to_pylist(), strict=True)
    }


@given(
    at=st.integers(0, 10**7),
    lasts=st.floats(1e-6, 5.0),
    basic=st.floats(1e-6, 5.0),
)
def test_no_row_in_reach_lies_further_back_than_there_are_basic_windows(
    at: int, lasts: float, basic: float
) -> None:
    micros, back = round(basic * 1e6), round(lasts * 1e6)
    assert at // micros - (at - back) // micros <= basic_windows(lasts, basic) - 1


@pytest.mark.parametrize("index", [True, False])
def test_clocks_centuries_apart_are_joined_in_the_room_that_their_rows_take(index: bool) -> None:
    century = 100 * 365 * 86_400.0
    moments = [
        0.0,
        3.0,
        0.6 * century,
        0.6 * century + 9.0,
        0.6 * century + 11.0,
        1.6 * century,
        2.9 * century,
    ]
    left, right = ([Row(at + shift, {k % 2: 1.0}) for k, at in enumerate(moments)] for shift in (0.0, 0.25))
    settings = equality(10.0, 0.4, index=index)
    assert pairs_of(left, right, settings) == full_join(left, right, 10.0, 10.0, "equality", 0.0, end=1e11)


def test_more_basic_windows_than_there_is_room_for_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directions, "MOST_SLOTS", 10)
    monkeypatch.setattr(directions, "MOST_SLOTS_APART", 20)
    rows = operand([Row(100.0 * k, {1: 1.0}) for k in range(9)])
    given_ = SideRows(rows, 0, rows.rows)
    with pytest.raises(InvalidValue, match="basic_window_seconds"):
        build_direction(given_, given_, equality(2.0, 1.0), LearnedSide(), (1.0,), probe_is_left=True)


def test_of_single_values_steps_are_counted_without_an_index_and_whole_rows_are_compared() -> None:
    chance = np.random.default_rng(3)
    rows = [
        [
            Row(float(at), {int(x): 1.0})
            for at, x in zip(np.sort(chance.random(300)) * 50, chance.integers(0, 9, 300), strict=True)
        ]
        for _ in range(2)
    ]
    left, right = (SideRows(operand(one), 100, 300) for one in rows)
    settings = equality(20.0, 2.0)
    one = build_direction(left, right, settings, LearnedSide(), (1.0,), probe_is_left=True)
    whole = JoinWindow(settings, Memory(), left, right, 5.0)
    counts: dict[str, int] = {}
    decision = whole.decision
    for part in decision.task_inputs(None, {}):  # type: ignore[arg-type]
        list(decision.results(None, part, counts))  # type: ignore[arg-type]
    assert counts["steps.1"] == pytest.approx(one.whole_steps)
    tight = replace(
        settings, budget=Budget(comparisons_per_second=0.3 * (counts["steps.0"] + counts["steps.1"]) / 5)
    )
    turn = JoinWindow(tight, Memory(), left, right, 5.0)
    for side in turn.allocation.directions:
        assert side.has_whole_rows_only, "no basic window is picked out, nothing known or not"
        assert 0 < side.probing.mean() < 1
        assert side.how.looking.chances == pytest.approx(np.full(len(side.costs), 0.3))
    assert turn.allocation.r == pytest.approx(0.3)
    assert turn.allocation.chance == 0, "what is missed is counted, and there is nothing to learn"


def test_a_peak_that_costs_more_entries_because_more_is_alike_there_still_comes_first() -> None:
    # what all rows of a second had is had again ten seconds later: the index reads most entries where all pairs are
    chance = np.random.default_rng(5)
    states = [sorted(chance.choice(60, 4, replace=False).tolist()) for _ in range(20)]
    before = [states[k // 20] for k in range(400)]
    left = [Row(k / 20, dict.fromkeys(items, 1.0)) for k, items in enumerate(before)]
    right = [Row(k / 20 + 10.5, dict.fromkeys(items, 1.0)) for k, items in enumerate(before)]
    given_ = SideRows(operand(right), 100, 200), SideRows(operand(left), 0, 400)
    settings = equality(15.0, 1.0, predicate="overlap", threshold=3, sets={})
    matches = np.zeros(16)
    matches[10:12] = 6.0
    learned = LearnedSide(matches, np.full(16, 500.0), squares=12.0)
    one = build_direction(*given_, settings, learned, (1.0,), probe_is_left=False)
    assert set(one.how.order[:4].tolist()) & {10, 11}
    assert 5 < one.how.order[0] < 16, "not those that cost least because nothing is alike there"


def test_what_lies_beside_a_peak_is_expected_to_yield_as_little_as_it_takes() -> None:
    # rows of a second have what those of the same second of the other side have: entries, and pairs, lie at no lag
    rows = [[Row(k / 20 + half, dict.fromkeys([3 * (k // 20) + i for i in range(3)], 1.0)) for k in range(400)]
            for half in (0.0, 0.02)]  # fmt: skip
    given_ = SideRows(operand(rows[0]), 200, 400), SideRows(operand(rows[1]), 0, 400)
    settings = equality(10.0, 1.0, predicate="overlap", threshold=2, sets={})
    matches = np.zeros(11)
    matches[0] = 40.0
    learned = LearnedSide(matches, np.full(11, 100.0), squares=40.0)
    one = build_direction(*given_, settings, learned, (1.0,), probe_is_left=True)
    assert one.how.order[0] == 0
    # the curve alone is smoothed over its neighbours; so are entries, and by the step they are told apart again
    assert one.curve[0] > 20 * one.curve[2]
    assert one.costs[0] > 5 * one.costs[2], "what a comparison takes is as it is"


def test_where_much_is_known_pairs_a_step_are_those_of_each_basic_window_alone() -> None:
    curve, costs = np.array([0.1, 0.4, 0.2, 0.1, 0.1]), np.array([1.0, 8.0, 2.0, 1.0, 1.0])
    known = LearnedSide(curve * 1e6, np.full(5, 1e6), 1.8e6)
    assert directions.pairs_per_step(curve, costs, known) == pytest.approx(curve / costs)
    # and where little is, entries are smoothed as pairs are, however few comparisons are remembered
    little = LearnedSide(curve * 5, np.full(5, 5.0), 9.0)
    smooth = directions.pairs_per_step(curve, costs, little)
    assert abs(curve / smooth - costs.mean()).max() < 0.8


def test_of_rows_with_many_items_fewer_say_what_basic_windows_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(1)
    asked: list[int] = []
    costed = directions._entries_of
    monkeypatch.setattr(
        directions, "_entries_of", lambda some, *told: (asked.append(len(some)), costed(some, *told))[1]
    )
    for items in (5, 1000):
        rows = [
            Row(at / 100, dict.fromkeys(chance.choice(4000, items, replace=False).tolist(), 1.0))
            for at in range(600)
        ]
        side = operand(rows)
        join = overlap(2, True, threshold=2, basic=0.5)
        found = build_direction(
            SideRows(side, 0, 600), SideRows(side, 0, 600), join, LearnedSide(), (1.0,), True
        )
        made = found.volumes.sum(axis=1)
        read = found.costs - found.looked_up
        # what is expected to be read of all basic windows is what lists hold, whoever said how it is spread
        begins, ends = found.stretches
        assert float((read * made).sum()) == pytest.approx(float((ends - begins).sum()))
        assert read[1:-1] == pytest.approx(np.full(len(read) - 2, read[1:-1].mean()), rel=0.25)
    assert asked == [300, 50]


@given(st.permutations(range(6)), st.integers(0, 6))
def test_what_is_added_in_order_is_what_the_stretches_picked_are_looked_up_for(
    order: list[int], picked: int
) -> None:
    """Entries of each, and look-ups for each stretch; less is saved where a gap is closed that has no entries."""
    costs, looked_up = np.full(6, 7.0), np.full(6, 2.0)
    added = directions.costs_in_order(costs, looked_up, np.array(order))
    mine = sorted(order[:picked])
    stretches = sum(1 for at in mine if at - 1 not in mine)
    assert sum(added[at] for at in mine) == pytest.approx(5.0 * picked + 2.0 * stretches)


@given(st.permutations(range(7)), st.integers(0, 7), st.lists(st.floats(0.05, 1.0), min_size=7, max_size=7))
def test_a_neighbour_that_has_no_row_saves_no_look_up(
    order: list[int], picked: int, shares: list[float]
) -> None:
    """A run of neighbours is looked up once by each row that has anything in it."""
    held = np.array(shares)
    # comparisons are as many as rows that have one there: a look-up each, and entries enough to stay above nothing
    added = directions.costs_in_order(np.full(7, 1e3), np.ones(7), np.array(order), held) - 999.0
    mine = set(order[:picked])
    expected, run = 0.0, 1.0
    for at in range(8):
        if at in mine:
            run *= 1.0 - held[at]
        else:
            expected, run = expected + 1.0 - run, 1.0
    assert sum(added[at] * held[at] for at in mine) == pytest.approx(expected)
