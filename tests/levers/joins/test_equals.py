"""Pairs of equal values are counted, against the join done the slow obvious way; and what is said to be missed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.levers.joins.streams import SECOND, Row, full_join, operand

from evidence.joins.driver import equality, join_settings, run_join, without_budget
from evidence.joins.honesty import unsteady_stream
from spillway.levers.joins.directions import SideRows
from spillway.levers.joins.estimates import equal_pairs
from spillway.levers.joins.exploration import Memory
from spillway.levers.joins.join_window import JoinWindow
from spillway.levers.joins.matching import reach_of

rows = st.lists(
    st.builds(
        Row,
        at=st.one_of(st.integers(0, 8).map(float), st.floats(0, 8).map(lambda x: round(x, 2))),
        items=st.dictionaries(st.integers(0, 2), st.just(1.0), max_size=2),
    ),
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(rows, rows, st.sampled_from([1.0, 2.5, 20.0]))
def test_pairs_of_equal_values_are_counted_by_row(left: list[Row], right: list[Row], w: float) -> None:
    truth = full_join(left, right, w, w, "equality", 0.0)
    found = 0
    for is_left in (True, False):
        mine, other = (operand(one) for one in ((left, right) if is_left else (right, left)))
        reach = reach_of(mine, other, round(w * SECOND), is_left)
        pairs = equal_pairs(mine, other, reach)
        assert (pairs <= reach[1] - reach[0]).all(), "a pair is a row of the window"
        assert (pairs[mine.sets.first[1:] == mine.sets.first[:-1]] == 0).all(), "who has no value has no pair"
        found += int(pairs.sum())
    assert found == len(truth)


def test_what_has_left_the_window_counts_no_more() -> None:
    other = operand([Row(0.0, {1: 1.0}), Row(10.0, {1: 1.0}), Row(10.0, {2: 1.0})])
    mine = operand([Row(0.5, {1: 1.0}), Row(10.5, {1: 1.0}), Row(10.5, {3: 1.0})])
    assert equal_pairs(mine, other, reach_of(mine, other, 2 * SECOND, True)).tolist() == [1, 1, 0]


def test_a_row_that_would_be_its_own_pair_is_not_counted() -> None:
    stream = operand([Row(0.0, {1: 1.0}), Row(0.0, {1: 1.0}), Row(1.0, {2: 1.0}), Row(2.0, {})])
    reach = reach_of(stream, stream, 5 * SECOND, False)
    assert equal_pairs(stream, stream, reach, True).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("index", [True, False])
def test_of_a_stream_joined_with_itself_no_row_misses_itself(index: bool) -> None:
    stream = operand([Row(k / 10, {k % 7: 1.0}) for k in range(300)])
    side, said = SideRows(stream, 0, stream.rows), []
    for budget in (None, {"comparisons_per_second": 30.0}):
        turn = JoinWindow(equality(5, index, budget=budget), Memory(), side, side, 30.0, with_itself=True)
        counts: dict[str, int] = {}
        decision = turn.decision
        for part in decision.task_inputs(None, {}):  # type: ignore[arg-type]
            list(decision.results(None, part, counts))  # type: ignore[arg-type]
        said.append(turn.result_columns(counts))
    assert said[0]["missed"] == 0
    assert 0 < said[1]["missed"] == said[1]["missed_high"] == said[0]["pairs"] - said[1]["pairs"]


def test_counting_what_was_missed_is_paid_from_the_share_of_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = operand([Row(k / 10, {k % 7: 1.0}) for k in range(300)])
    side = SideRows(stream, 0, stream.rows)
    owed = []
    for seconds in (0.0, 2.0):
        monkeypatch.setattr(JoinWindow, "_equals", (10_000, seconds))
        memory = Memory(core_seconds=1.0, core_steps=1e3)  # a slow core: not everything can be compared
        turn = JoinWindow(equality(5, False, budget={"core_pct": 1.0}), memory, side, side, 30.0)
        owed.append(turn.result_columns({"steps.0": 300, "nanoseconds": 1_000_000})["debt_steps"])
    assert owed[1] - owed[0] > 0.9 * (2.0 - 0.3) * 800 / 0.501, "a hundredth of 30 s was there to spend"


@pytest.mark.parametrize("kind", ["heavy_rows", "burst", "ramp"])
def test_of_equal_values_what_was_missed_is_counted_whatever_comes(kind: str) -> None:
    left, right = (unsteady_stream(kind, 3, which) for which in (0, 1))
    budget = {"comparisons_per_second": 3_000.0}
    tight = equality(10, False, budget=budget)
    for join in (
        tight,
        replace(tight, adapt=replace(tight.adapt, rate="followed")),
        equality(10, True, budget={"comparisons_per_second": 100.0}),
    ):
        whole = run_join(left, right, without_budget(replace(join, index=True)), 0, 60)
        ours = run_join(left, right, join, 0, 60)
        assert ours.sum("missed") > 0
        for full, mine in zip(whole.outcomes, ours.outcomes, strict=True):
            missed = full.row["pairs"] - mine.row["pairs"]
            assert [mine.row[f"missed{end}"] for end in ("", "_low", "_high")] == [missed] * 3


@pytest.mark.parametrize("kind", ["heavy_rows", "burst", "ramp"])
def test_of_sets_the_interval_holds_in_streams_that_are_not_as_they_were(kind: str) -> None:
    held, windows, widths = 0, 0, []
    side = {"attribute": "items", "lasts_seconds": 10}
    join = join_settings(
        left=side, right=side, predicate="overlap", threshold=2, sets={}, index=False,
        budget={"comparisons_per_second": 10_000.0},
    )  # fmt: skip
    for seed in (1, 2):
        left, right = (unsteady_stream(kind, seed, which, of_sets=True) for which in (0, 1))
        whole = run_join(left, right, without_budget(replace(join, index=True)), 0, 60)
        ours = run_join(left, right, join, 0, 60)
        for full, mine in zip(whole.outcomes, ours.outcomes, strict=True):
            missed = full.row["pairs"] - mine.row["pairs"]
            held += mine.row["missed_low"] <= missed <= mine.row["missed_high"]
            windows += 1
            widths.append((mine.row["missed_high"] - mine.row["missed_low"]) / max(1, missed))
    # 24 windows of a 95 % interval: fewer than 20 with chance 0.3 %
    assert held >= 20, f"{held} of {windows}"
    assert sorted(widths)[12] < 2, "and it is no interval of everything that could be"
