"""What a window is allotted, and what travels to whoever compares it: budgets to the row, bounds beside their rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.levers.joins.streams import Row, operand

from evidence.joins.driver import equality, join_settings
from spillway.engine import InProcess
from spillway.levers.joins import deciding
from spillway.levers.joins.allotting import Allotment, allotted
from spillway.levers.joins.deciding import JoinDecision, SideBounds
from spillway.levers.joins.facing import Given
from spillway.levers.joins.memory import LearnedSide, Memory
from spillway.levers.joins.operands import Operand
from spillway.levers.joins.settings import Budget, JoinSettings
from spillway.levers.joins.turn import JoinTurn

ROWS, SECONDS = 400, 400.0
SIDES = [operand([Row(at + half, {1: 1.0}) for at in range(ROWS)]) for half in (0.0, 0.5)]
"""A row a second, so that a window of four seconds holds four of the other side."""


def allot(budget: float, window: float = 4, **memory: Any) -> Allotment:
    join = equality(window, False, budget={"comparisons_per_second": budget / SECONDS})
    left, right = (Given(rows, 0, ROWS) for rows in SIDES)
    return allotted(left, right, join, Memory(**memory), (1.0,), SECONDS)


def known(window: int) -> LearnedSide:
    """So much was seen of it that all but the stated share goes to what is picked out."""
    basic = np.full(window + 1, 1e6)
    return LearnedSide(basic, 10 * basic, float(basic.sum()))


def planned(found: Allotment) -> float:
    return float(sum(one.steps_by_row().sum() for one in found.facing))


def test_what_was_spent_too_much_is_taken_off_the_next_window() -> None:
    possible = allot(100.0).possible
    found = [allot(800.0, debt_steps=debt).r for debt in (0.0, 300.0, 5000.0)]
    assert found[:2] == [800 / possible, 500 / possible]
    assert 0 < found[2] < 1e-5, "something is looked at all the same"


@pytest.mark.parametrize("learned", [LearnedSide(), known(4)], ids=["nothing", "much"])
def test_the_sample_and_what_is_picked_out_take_what_may_be_spent_together(learned: LearnedSide) -> None:
    """Windows of four rows, of which a fifth may be compared: rounded down, none ever would be. The sample is drawn by
    chance: of 800 rows a fifth within 4 standard errors, 45 rows of four comparisons."""
    found = allot(640.0, left=learned, right=learned)
    assert found.possible == pytest.approx(3200, rel=0.01)
    assert planned(found) == pytest.approx(640, abs=180)
    selected = sum(int(one.selected_volumes().sum()) for one in found.facing)
    assert (selected > 400) == (len(learned.matches) > 0)


@pytest.mark.parametrize("cores", [1, 3])
def test_every_row_travels_once_with_its_own_bound_and_those_of_what_it_can_reach(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "STEPS_A_PART", 10)
    bounds = SideBounds(np.arange(ROWS) / ROWS, 1.0 + np.arange(ROWS) / ROWS)
    found = allot(1600.0)
    decision = JoinDecision(found, 0, 0.0, (1.0,), False, bounds, 2 * ROWS)
    parts = [one for some in decision.parts(None, {}, InProcess(cores)) for one in some]  # type: ignore[arg-type]
    assert (len(parts) > 2) == (cores > 1)
    seqs: dict[bool, list[int]] = {True: [], False: []}
    for part in parts:
        one = part.facing
        mine, other = (bounds.left, bounds.right) if one.probe_is_left else (bounds.right, bounds.left)
        assert mine is not None
        assert other is not None
        seqs[one.probe_is_left] += one.probes.seq.tolist()
        assert part.probe_bounds.tolist() == mine[one.probes.seq].tolist()  # type: ignore[union-attr]
        assert part.window_bounds.tolist() == other[one.window.seq].tolist()  # type: ignore[union-attr]
        assert int(one.how.high.max()) <= one.window.rows
    assert seqs == {True: [*range(ROWS)], False: [*range(ROWS)]}


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
    turn = JoinTurn(join, memory, Given(left, 0, left.rows), Given(right, 0, right.rows), 12.0)
    counts: dict[str, int] = {}
    decision, total = turn.decision, 0.0
    for part in decision.parts(None, {}, InProcess()):  # type: ignore[arg-type]
        for table in decision.results(None, part, counts):  # type: ignore[arg-type]
            total += float(np.sum(table["weight"].to_numpy()))
    return total, turn.came_to(counts)["steps"]


def test_where_rows_fall_out_a_sample_tells_what_they_would_have_found_though_r_allows_everything() -> None:
    """Of two rows a second, each of four pairs, one in eight is fetched: the first windows of a followed rate."""
    join = equality(4, False, budget={"comparisons_per_second": 1.0}, adapt={"rate": "followed"}, sets={})
    pairs = replace(join, predicate="subset")
    turn = JoinTurn(pairs, Memory(), *(Given(rows, 0, ROWS) for rows in SIDES), SECONDS)
    counts: dict[str, int] = {}
    decision = turn.decision
    for part in decision.parts(None, {}, InProcess()):  # type: ignore[arg-type]
        list(decision.results(None, part, counts))  # type: ignore[arg-type]
    said = turn.came_to(counts)
    assert said["r"] == 1
    assert said["passed_over"] > 0
    missed = said["possible"] - said["pairs"]
    assert missed > 1000
    assert said["missed_low"] <= missed <= said["missed_high"] < 2 * missed
    # where none falls out everything is compared, and nothing is drawn
    roomy = replace(pairs, budget=Budget(comparisons_per_second=1000.0))
    whole = allotted(*(Given(rows, 0, ROWS) for rows in SIDES), roomy, Memory(), (1.0,), SECONDS)
    assert all(one.everything and not one.drawn.many for one in whole.facing)
