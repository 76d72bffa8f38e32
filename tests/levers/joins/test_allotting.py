"""What a window is allotted, and what travels to whoever compares it: budgets to the row, bounds beside their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.levers.joins.streams import Row, operand

from evidence.joins.driver import equality
from spillway.engine import InProcess
from spillway.levers.joins import deciding
from spillway.levers.joins.allotting import Allotment, allotted
from spillway.levers.joins.deciding import JoinDecision, SideBounds
from spillway.levers.joins.facing import Given
from spillway.levers.joins.memory import LearnedSide, Memory

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
