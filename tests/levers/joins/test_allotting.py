"""What a window is allotted, and what travels to whoever compares it: budgets to the row, bounds beside their rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.levers.joins.streams import Row, operand

from evidence.joins.driver import equality, join_settings, overlap, run_join
from evidence.joins.workload import PaperStreams, constant_rate
from spillway.levers.joins import budget as allotting
from spillway.levers.joins import decision as deciding
from spillway.levers.joins.budget import Allocation, allocate_budget
from spillway.levers.joins.controllers import TypePairs, relative_match_rates
from spillway.levers.joins.decision import JoinDecision, SideBounds
from spillway.levers.joins.directions import SideRows
from spillway.levers.joins.estimates import estimate_missed_pairs
from spillway.levers.joins.exploration import LearnedSide, Memory
from spillway.levers.joins.join_window import JoinWindow
from spillway.levers.joins.operands import ItemSets, Operand
from spillway.levers.joins.settings import Budget, JoinSettings

ROWS, SECONDS = 400, 400.0
SIDES = [operand([Row(at + half, {1: 1.0}) for at in range(ROWS)]) for half in (0.0, 0.5)]
"""A row a second, so that a window of four seconds holds four of the other side."""


def allot(budget: float, window: float = 4, **memory: Any) -> Allocation:
    join = equality(window, False, budget={"comparisons_per_second": budget / SECONDS})
    left, right = (SideRows(rows, 0, ROWS) for rows in SIDES)
    return allocate_budget(left, right, join, Memory(**memory), (1.0,), SECONDS)


def known(window: int) -> LearnedSide:
    """So much was seen of it that all but the stated share goes to what is picked out."""
    basic = np.full(window + 1, 1e6)
    return LearnedSide(basic, 10 * basic, float(basic.sum()))


def planned(found: Allocation) -> float:
    return float(sum(one.steps_by_row().sum() for one in found.directions))


def test_what_was_spent_too_much_is_taken_off_the_next_window() -> None:
    possible = allot(100.0).possible
    found = [allot(800.0, debt_steps=debt).r for debt in (0.0, 300.0, 5000.0)]
    assert found[:2] == [800 / possible, 500 / possible]
    assert found[2] == 200 / possible, "no window goes without, and what is owed is saved in several"


@pytest.mark.parametrize("learned", [LearnedSide(), known(4)], ids=["nothing", "much"])
def test_the_sample_and_what_is_picked_out_take_what_may_be_spent_together(learned: LearnedSide) -> None:
    """Windows of four rows, of which a fifth may be compared: rounded down, none ever would be. The sample is drawn by
    chance: of 800 rows a fifth within 4 standard errors, 45 rows of four comparisons."""
    found = allot(640.0, left=learned, right=learned)
    assert found.possible == pytest.approx(3200, rel=0.01)
    assert planned(found) == pytest.approx(640, abs=180)
    selected = sum(int(one.selected_volumes.sum()) for one in found.directions)
    assert (selected > 400) == (len(learned.matches) > 0), "chance alone picks while nothing is known"


@pytest.mark.parametrize(("steps", "are_many"), [(10**9, False), (400, True)])
def test_every_row_travels_once_with_its_own_bound_and_those_of_what_it_can_reach(
    steps: int, are_many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "STEPS_A_PART", steps)
    bounds = SideBounds(np.arange(ROWS) / ROWS, 1.0 + np.arange(ROWS) / ROWS)
    found = allot(1600.0)
    decision = JoinDecision(found, 0, 0.0, (1.0,), False, bounds, 2 * ROWS)
    parts = [one for some in decision.task_inputs(None, {}) for one in some]  # type: ignore[arg-type]
    assert (len(parts) > 2) == are_many
    seqs: dict[bool, list[int]] = {True: [], False: []}
    for part in parts:
        one = part.direction
        mine, other = (bounds.left, bounds.right) if one.probe_is_left else (bounds.right, bounds.left)
        assert mine is not None
        assert other is not None
        seqs[one.probe_is_left] += one.probes.seq.tolist()
        assert part.probe_bounds.tolist() == mine[one.probes.seq].tolist()  # type: ignore[union-attr]
        assert part.window_bounds.tolist() == other[one.window.seq].tolist()  # type: ignore[union-attr]
        assert int(one.how.high.max()) <= one.window.rows
    assert seqs == {True: [*range(ROWS)], False: [*range(ROWS)]}


@pytest.mark.long
@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("predicate", ["equality", "overlap"])
def test_sums_of_weights_stand_for_the_full_join_whatever_is_compared(predicate: str, index: bool) -> None:
    """Over 400 seeds of the sample, by what is known and not: the mean is within four standard errors of all pairs."""
    chance = np.random.default_rng(4)
    left, right = (
        operand(
            [
                Row(at / 10 + half, dict.fromkeys(chance.choice(6, 3, replace=False).tolist(), 1.0))
                if predicate == "overlap"
                else Row(at / 10 + half, {int(chance.integers(0, 6)): 1.0})
                for at in range(120)
            ]
        )
        for half in (0.0, 0.05)
    )
    side = {"attribute": "x", "lasts_seconds": 4}
    more: dict[str, Any] = {"sets": {}, "threshold": 2} if predicate == "overlap" else {}
    join = join_settings(left=side, right=side, predicate=predicate, index=index, **more)
    whole = weights(join, left, right, Memory())
    budget = Budget(comparisons_per_second=whole[1] * (0.4 if index else 0.2) / 12)
    learned = LearnedSide(np.array([9.0, 1.0, 1.0, 1.0, 1.0]), np.full(5, 100.0), 13.0)
    for memory in (Memory(), Memory(left=learned, right=learned)):
        found = np.array(
            [weights(replace(join, budget=budget, seed=seed), left, right, memory)[0] for seed in range(400)]
        )
        assert found.std() > 0
        assert abs(found.mean() - whole[0]) < 4 * found.std() / 20


def weights(join: JoinSettings, left: Operand, right: Operand, memory: Memory) -> tuple[float, int]:
    """What the weights of the pairs found add up to, and the steps that took."""
    turn = JoinWindow(join, memory, SideRows(left, 0, left.rows), SideRows(right, 0, right.rows), 12.0)
    counts: dict[str, int] = {}
    decision, total = turn.decision, 0.0
    for part in decision.task_inputs(None, {}):  # type: ignore[arg-type]
        for table in decision.results(None, part, counts):  # type: ignore[arg-type]
            total += float(np.sum(table["weight"].to_numpy()))
    return total, turn.result_columns(counts)["steps"]


def test_where_rows_fall_out_a_sample_tells_what_they_would_have_found_though_r_allows_everything() -> None:
    """Of two rows a second, each of four pairs, one in eight is fetched: the first windows of a followed rate."""
    join = equality(4, False, budget={"comparisons_per_second": 1.0}, adapt={"rate": "followed"}, sets={})
    pairs = replace(join, predicate="subset")
    turn = JoinWindow(pairs, Memory(), *(SideRows(rows, 0, ROWS) for rows in SIDES), SECONDS)
    counts: dict[str, int] = {}
    decision = turn.decision
    for part in decision.task_inputs(None, {}):  # type: ignore[arg-type]
        list(decision.results(None, part, counts))  # type: ignore[arg-type]
    said = turn.result_columns(counts)
    assert said["r"] == 1
    assert said["passed_over"] > 0
    out_of_budget = said["possible"] - said["compared"] - turn.overflow_comparisons
    assert out_of_budget >= 0, "what chance drew for rows that fell out was compared"
    missed = said["possible"] - said["pairs"]
    assert missed > 1000
    assert said["missed_low"] <= missed <= said["missed_high"] < 2 * missed
    # where none falls out everything is compared, and nothing is drawn
    roomy = replace(pairs, budget=Budget(comparisons_per_second=1000.0))
    whole = allocate_budget(*(SideRows(rows, 0, ROWS) for rows in SIDES), roomy, Memory(), (1.0,), SECONDS)
    assert all(one.is_complete and not one.drawn.many for one in whole.directions)


def sets_alike(seed: int = 2, rows: int = 400) -> tuple[Operand, Operand]:
    """Two streams of sets of three out of nine items, ten rows a second."""
    chance = np.random.default_rng(seed)
    left, right = (
        operand(
            [
                Row(at / 10 + half, dict.fromkeys(chance.choice(9, 3, replace=False).tolist(), 1.0), at % 2)
                for at in range(rows)
            ]
        )
        for half in (0.0, 0.05)
    )
    return left, right


def sets_join(index: bool, budget: float | None, **more: Any) -> JoinSettings:
    side = {"attribute": "x", "lasts_seconds": 10, **more.pop("side", {})}
    stated = {"predicate": "overlap", "threshold": 2, "sets": {}} | more
    if budget is not None:
        stated["budget"] = {"comparisons_per_second": budget / 40}
    return join_settings(left=side, right=side, index=index, basic_window_seconds=2, **stated)


def turn_of(join: JoinSettings, memory: Memory = Memory()) -> tuple[JoinWindow, dict[str, Any]]:  # noqa: B008
    """The turn of one window of 40 seconds, and what it came to."""
    left, right = sets_alike()
    if not join.types:
        left, right = (replace(one, kinds=np.zeros_like(one.kinds)) for one in (left, right))
    if not join.sets:
        left, right = (replace(one, sets=firsts(one.sets)) for one in (left, right))
    turn = JoinWindow(join, memory, SideRows(left, 0, left.rows), SideRows(right, 0, right.rows), 40.0)
    counts: dict[str, int] = {}
    decision = turn.decision
    for part in decision.task_inputs(None, {}):  # type: ignore[arg-type]
        list(decision.results(None, part, counts))  # type: ignore[arg-type]
    return turn, turn.result_columns(counts)


def firsts(sets: ItemSets) -> ItemSets:
    """The first item of each row alone."""
    rows = len(sets.first) - 1
    return ItemSets(np.arange(rows + 1), sets.items[sets.first[:-1]], np.ones(rows))


KNOWN = LearnedSide(np.full(6, 60.0), np.full(6, 300.0), 360.0)


@pytest.mark.parametrize("learned", [LearnedSide(), KNOWN], ids=["nothing", "much"])
@pytest.mark.parametrize(
    ("index", "more"),
    [
        (True, {}),
        (False, {}),
        (True, {"predicate": "equality", "threshold": None, "sets": None, "side": {"type": "kind"}}),
    ],
    ids=["index", "plain", "single values of types"],
)
def test_what_is_drawn_and_what_is_selected_take_the_budget_together(
    index: bool, more: dict[str, Any], learned: LearnedSide
) -> None:
    if "side" in more:
        more = more | {"types": [{"name": "a", "utility": 1.0}], "otherwise": 0.5}
    whole = turn_of(sets_join(index, None, **more))[1]["steps"]
    join = sets_join(index, 0.3 * whole, adapt={"sample_pct": 40}, **more)
    turn, row = turn_of(join, Memory(left=learned, right=learned))
    # rows by chance, of 800, and a row's whole window at a time
    assert row["steps"] == pytest.approx(0.3 * whole, rel=0.12)
    drawn = sum(one.drawn.many for one in turn.allocation.directions)
    assert (drawn > 0) == (turn.allocation.chance > 0) == (join.predicate != "equality"), (
        "equal pairs are counted"
    )
    assert row["sampled"] > 0


def test_by_an_index_no_more_than_gamma_is_drawn_one_by_one_also_where_nothing_is_known() -> None:
    whole = turn_of(sets_join(True, None))[1]["steps"]
    turn, row = turn_of(sets_join(True, 0.3 * whole))
    drawn = sum(one.drawn.many for one in turn.allocation.directions)
    assert drawn < 0.05 * 0.3 * whole, "whole rows find more for it"
    # and the others are whole rows: where nothing is known what costs least is no better
    for one in turn.allocation.directions:
        there = one.how.high - one.how.low
        assert ((one.comparisons_by_row == 0) | (one.comparisons_by_row == there)).all()
        assert one.how.looking.chances == pytest.approx(np.full(6, 0.29), abs=0.01)
    assert row["missed_low"] < row["missed_high"]
    # without an index basic windows by chance, which takes no more and tells of more rows
    for one in turn_of(sets_join(False, 9000.0))[0].allocation.directions:
        there = one.how.high - one.how.low
        assert ((one.comparisons_by_row > 0) & (one.comparisons_by_row < there)).mean() > 0.2


def test_windows_that_are_cut_otherwise_now_are_not_known() -> None:
    whole = turn_of(sets_join(True, None))[1]["steps"]
    other = LearnedSide(KNOWN.matches[:4], KNOWN.comparisons[:4], KNOWN.squares)
    turn, _ = turn_of(sets_join(True, 0.3 * whole), Memory(left=other, right=KNOWN))
    assert not any(one.selected_volumes.sum() for one in turn.allocation.directions)
    turn, _ = turn_of(sets_join(False, 0.3 * whole), Memory(left=KNOWN, right=KNOWN))
    assert all(one.selected_volumes.sum() for one in turn.allocation.directions)


@pytest.mark.parametrize("index", [True, False])
def test_what_is_learned_is_how_many_comparisons_are_a_pair(index: bool) -> None:
    """Of whole rows by chance and of comparisons that were drawn beside them: over 60 samples, and all of one size."""
    _, whole = turn_of(sets_join(index, None))
    truth = whole["pairs"] / whole["possible"]
    assert whole["left_learned"]["comparisons"] == pytest.approx(
        (turn_of(sets_join(index, None))[0].allocation.directions[0].volumes.sum(axis=1)).tolist()
    )
    budget = 0.5 * whole["steps"]
    found = []
    for seed in range(60):
        row = turn_of(sets_join(index, budget, adapt={"sample_pct": 60}, seed=seed))[1]
        sides = [row["left_learned"], row["right_learned"]]
        pairs = sum(sum(one["matches"]) for one in sides)
        found.append(pairs / sum(sum(one["comparisons"]) for one in sides))
    assert np.std(found) > 0
    assert abs(np.mean(found) - truth) < 4 * np.std(found) / 60**0.5


def test_shares_say_what_is_selected_and_drawn() -> None:
    left, right = sets_alike()
    one = allocate_budget(
        SideRows(left, 0, 400), SideRows(right, 0, 400), sets_join(False, None), Memory(), (1.0,), 40.0
    ).directions[0]
    assert one.compared_shares() == [1.0]
    none = replace(one, how=replace(one.how, take=np.zeros(400, np.int64)))
    assert none.with_sample(0.25, 3).compared_shares() == [pytest.approx(0.25)]
    half = replace(one, how=replace(one.how, take=(one.how.high - one.how.low) // 2))
    assert half.with_sample(0.5, 3).compared_shares() == [pytest.approx(0.75, abs=0.01)]


def test_once_enough_is_found_no_more_is_looked_for_and_never_more_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    basic = np.full(6, 1e6)
    known = LearnedSide(0.2 * basic, basic, 0.2 * float(basic.sum()))
    turn, row = turn_of(sets_join(False, 30_000.0), Memory(left=known, right=known))
    # 14,000 pairs are expected where a fifth of 70,000 comparisons is one: 250 of them are enough
    expected_pairs = sum(float(one.volumes.sum(axis=1) @ one.curve) for one in turn.allocation.directions)
    assert turn.allocation.chance == pytest.approx(allotting.ENOUGH_FOUND / expected_pairs)
    assert row["sampled"] < 0.95 * 0.05 * 30_000
    monkeypatch.setattr(allotting, "MOST_DRAWN", 50.0)
    few, _ = turn_of(sets_join(False, 9000.0))
    assert 0 < sum(one.drawn.many for one in few.allocation.directions) < 50 + 5 * 50**0.5


def test_no_more_is_missed_than_was_left_out_and_sic_says_how_much_was_compared() -> None:
    _, row = turn_of(sets_join(False, 12.0))
    left_out = row["possible"] - row["compared"]
    assert row["missed_low"] <= row["missed"] <= row["missed_high"] <= left_out
    _, row = turn_of(sets_join(False, 9000.0))
    # rows weigh alike in sic, those of windows that fill as much as others
    assert row["sic"] == pytest.approx(row["compared"] / row["possible"], rel=0.1)


def test_what_is_drawn_and_selected_is_one_comparison_of_sic() -> None:
    """Every row has a window of ten rows, so that all weigh alike."""
    side, every = {"attribute": "x", "lasts_seconds": 10}, {1: 1.0}
    left, right = (operand([Row(at + half, every) for at in range(200)]) for half in (0.0, 0.5))
    budget = {"comparisons_per_second": 10.0}
    join = join_settings(
        left=side, right=side, predicate="overlap", threshold=2, sets={}, index=False, budget=budget,
        adapt={"sample_pct": 50},
    )  # fmt: skip
    basic = np.full(11, 1e6)
    known = LearnedSide(1e-5 * basic, basic, 10.0)
    turn = JoinWindow(
        join, Memory(left=known, right=known), SideRows(left, 50, 150), SideRows(right, 50, 150), 100.0
    )
    counts: dict[str, int] = {}
    for part in turn.decision.task_inputs(None, {}):  # type: ignore[arg-type]
        list(turn.decision.results(None, part, counts))  # type: ignore[arg-type]
    row = turn.result_columns(counts)
    made = sum(int(one.comparisons_by_row.sum()) + one.drawn.many for one in turn.allocation.directions)
    assert made > row["compared"] + 50
    assert row["sic"] == pytest.approx(row["compared"] / row["possible"], abs=1e-6)


def test_no_more_is_missed_than_was_left_out_however_little_was_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allotting, "MOST_DRAWN", 1.0)
    turn, row = turn_of(sets_join(False, 9000.0))
    assert estimate_missed_pairs(0, turn.allocation.chance).high > 2 * row["possible"], (
        "what one comparison or two can tell"
    )
    assert row["missed_high"] == row["possible"] - row["compared"]


def test_what_was_believed_is_forgotten_where_matches_have_moved_and_fades_elsewhere() -> None:
    believed = LearnedSide(np.array([9000.0, 10.0, 10.0, 10.0, 10.0, 10.0]), np.full(6, 1e4), 9050.0)
    alike = LearnedSide(np.full(6, 2000.0), np.full(6, 1e4), 12_000.0)
    lumpy = replace(alike, squares=1e12)
    for before, moved in ((believed, True), (alike, False), (lumpy, False)):
        row = turn_of(sets_join(False, 15_000.0), Memory(left=before, right=before))[1]
        assert row["drift_detected"] == moved
        faded = 0.0 if moved else 0.9
        sides = [row[f"{side}_learned"] for side in ("left", "right")]
        compared = sum(sum(one["comparisons"]) for one in sides) - faded * 12e4
        assert compared == pytest.approx(15_000, rel=0.1)
        found = sum(sum(one["matches"]) for one in sides) - faded * 2 * before.matches.sum()
        assert found == pytest.approx(row["pairs"])
        for one in sides:
            own = one["squares"] - faded * before.squares
            assert 0 < own < max(1e6, 1e-3 * before.squares)


def test_entries_that_were_read_to_draw_by_are_steps() -> None:
    whole = turn_of(sets_join(True, None))[1]["steps"]
    turn, _ = turn_of(sets_join(True, 0.3 * whole, adapt={"sample_pct": 40}))
    read = sum(one.drawn.read for one in turn.allocation.directions)
    assert read > 0
    assert turn.result_columns({"steps.0": 10, "steps.1": 5})["steps"] == 15 + read


def test_of_a_full_join_chance_picked_everything_and_of_another_what_was_not_selected() -> None:
    turn, row = turn_of(sets_join(False, None))
    assert row["sampled"] == row["compared"] == row["possible"]
    turn, row = turn_of(sets_join(False, 15_000.0), Memory(left=KNOWN, right=KNOWN))
    selected = sum(int(one.selected_volumes.sum()) for one in turn.allocation.directions)
    assert 0 < selected == row["compared"] - row["sampled"]


def test_rows_of_a_type_that_matches_more_make_more_comparisons_of_an_average_one() -> None:
    types = TypePairs(np.array([1500.0, 500.0]), np.full(2, 1e3), np.array([1500.0, 500.0]), 8000.0)
    known = replace(KNOWN, types=types)
    side = {"side": {"type": "kind"}, "types": [{"name": "a", "utility": 1.0}], "otherwise": 0.5}
    turn, row = turn_of(sets_join(False, 15_000.0, **side), Memory(left=known, right=known))
    assert not row["drift_detected"]
    for name, one in zip(("left", "right"), turn.allocation.directions, strict=True):
        made = one.expected_comparisons @ relative_match_rates(types)
        assert made != pytest.approx(one.expected_comparisons.sum(axis=1), rel=0.01)
        assert row[f"{name}_learned"]["comparisons"] == pytest.approx(
            (0.9 * known.comparisons + made).tolist()
        )
        # and as many pairs were expected of both types as there were
        learned = row[f"{name}_learned"]
        own = [learned[what] - 0.9 * getattr(types, what) for what in ("pairs", "expected")]
        assert own[1].sum() == pytest.approx(own[0].sum())
        assert own[1] / own[1].sum() == pytest.approx(
            one.curve @ one.expected_comparisons / (one.curve @ one.expected_comparisons).sum()
        )


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("single", [True, False])
def test_a_full_join_is_not_told_that_matches_have_moved_window_by_window(index: bool, single: bool) -> None:
    join = sets_join(index, None)
    if single:
        join = equality(10, index, basic=2)
    memory, learned = Memory(), 0.0
    for _ in range(3):
        _, row = turn_of(join, memory)
        assert not row["drift_detected"]
        memory = Memory.from_row(row)
        assert memory.left.matches.sum() > learned, "nothing was forgotten"
        learned = float(memory.left.matches.sum())


def test_what_chance_finds_does_not_hide_that_matches_have_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allotting, "ENOUGH_FOUND", 1e9)
    believed = LearnedSide(np.array([900.0, 10.0, 10.0, 10.0, 10.0, 10.0]), np.full(6, 1000.0), 950.0)
    join = sets_join(False, 15_000.0, adapt={"sample_pct": 85})
    turn, row = turn_of(join, Memory(left=believed, right=believed))
    assert row["sampled"] > 0.8 * 15_000
    assert sum(one.how.take.sum() for one in turn.allocation.directions) > 1000
    assert row["drift_detected"], "a fifth of what is selected are pairs, not nine tenths"


def test_where_everything_is_compared_nothing_has_moved_and_what_is_learned_adds_up() -> None:
    for join in (sets_join(True, None), sets_join(False, None), equality(10, True, basic=2.0)):
        _, first = turn_of(join)
        _, row = turn_of(join, Memory.from_row(first))
        assert not row["drift_detected"]
        for side in ("left_learned", "right_learned"):
            assert sum(row[side]["matches"]) == pytest.approx(1.9 * sum(first[side]["matches"]))


@pytest.mark.parametrize(("part", "elsewhere"), [(1.0, False), (0.5, True)])
def test_rows_of_a_type_that_matches_rarely_do_not_say_that_matches_have_moved(
    part: float, elsewhere: bool
) -> None:
    """A quarter as often as others, and worth twenty times as much: they alone are selected."""
    made = np.full(6, 10_000.0)
    types = TypePairs(
        np.array([400.0, 1600.0]), np.array([1000.0, 1000.0]), np.array([8000.0, 1600.0]), 2000.0
    )
    known = LearnedSide(0.1 * made, made, 0.1 * float(made.sum()), types)
    join = sets_join(
        False, 15_000.0, side={"type": "kind"}, types=[{"name": "a", "utility": 20.0}], otherwise=0.01
    )
    turn, _ = turn_of(join, Memory(left=known, right=known))
    counts: dict[str, int] = {}
    for side, one in enumerate(turn.allocation.directions):
        rare, others = one.selected_volumes.sum(axis=0)
        assert rare > 1000 > others
        found = round(part * 0.1 * (0.4 * rare + 1.6 * others))
        counts |= {f"selected.{side}": found, f"selected_squares.{side}": found}
    assert turn.result_columns(counts)["drift_detected"] == elsewhere


def test_what_is_guessed_of_a_basic_window_from_its_neighbours_does_not_say_that_matches_have_moved() -> None:
    """All pairs lie within a quarter of a second, so that beside the newest basic window hardly anything is compared:
    in 37 of 70 windows of streams that never change they were said to have moved, most of them because what was learned
    had been dropped the window before. Of noise beyond three deviations two were."""
    said = 0
    for seed in range(2, 7):
        chance = np.random.default_rng(seed)
        moments = [np.sort(chance.random(1800)) * 90 for _ in range(2)]
        left, right = (
            operand(
                [Row(float(at), dict.fromkeys([int(at * 4) * 3 + k for k in range(3)], 1.0)) for at in mine]
            )
            for mine in moments
        )
        join = overlap(20, False, threshold=2, budget={"comparisons_per_second": 1000.0})
        said += sum(one.row["drift_detected"] for one in run_join(left, right, join, 20, 90).outcomes)
    assert said <= 2


def test_what_is_picked_side_by_side_is_looked_up_together_so_that_the_budget_is_spent() -> None:
    """Few entries a list, so that look-ups are most of what picking out takes: 0.82 of it was spent, 0.95 is.

    Some 20 pairs a window, so that little can be learned: over five seeds.
    """
    found, there = 0.0, 0.0
    for seed in range(1000, 1005):
        streams = PaperStreams(items=300, mean_items=3.0, window_seconds=100.0, rates=constant_rate(8, 300))
        left, right = streams.both(seed)
        join = overlap(100, True, threshold=2, basic=5)
        whole = run_join(left, right, join, 100, 200)
        budget = Budget(comparisons_per_second=whole.sum("steps") * 0.3 / 100)
        ours = run_join(left, right, replace(join, budget=budget), 100, 200)
        assert 0.88 < ours.sum("steps") / ours.sum("budget_steps") < 1.02
        found, there = found + ours.sum("pairs"), there + whole.sum("pairs")
    assert found > 0.31 * there, "more than whole rows would find with as much"


def test_a_window_in_which_nothing_was_compared_does_not_make_steps_dearer() -> None:
    """Each takes some time all the same: with it the price of a step rose until nothing was compared ever again."""
    join = replace(sets_join(False, None), budget=Budget(core_pct=1.0))
    known = Memory(core_seconds=0.5, core_steps=1e6)
    turn, row = turn_of(join, known)
    assert row["steps"] > 0
    idle = turn.result_columns({"nanoseconds": 3_000_000})
    assert idle["steps"] == 0
    assert (idle["core_seconds"], idle["core_steps"]) == (0.5, 1e6)
    assert turn.result_columns({"nanoseconds": 3_000_000, "steps.0": 10})["core_steps"] == 0.5e6 + 10
