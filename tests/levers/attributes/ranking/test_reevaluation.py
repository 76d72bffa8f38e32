"""Algorithm 2: step by step, on the trace of the thesis, and through JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.golden import attributes as golden_attributes
from spillway.errors import InvalidValue
from spillway.levers.attributes.ranking.reevaluation import (
    Reevaluation,
    ReevaluationState,
    Treatment,
)

GOLDEN = Path(__file__).parents[3] / "golden"
A, B = {"a": 1.0, "b": 2.0}, {"a": 2.0, "b": 1.0}


def lowest(ranking: tuple[str, ...]) -> Treatment:
    return {ranking[0]: "shed"}


def follow(controller: Reevaluation, scores: Sequence[Mapping[str, float]]) -> tuple[list[Treatment], int]:
    """The treatment that was in force on each window, and how many were evaluated."""
    state, in_force = ReevaluationState(), []
    for window, now in enumerate(scores):
        in_force.append(state.treatment)
        if controller.due(state, window):
            state = controller.evaluate(state, window, now, lowest)
    return in_force, state.evaluations


def test_the_golden_trace_of_algorithm_2_is_reproduced() -> None:
    cells = list(golden_attributes.GROUPS["re-evaluation"](GOLDEN))
    assert len(cells) == 22
    assert [cell for cell in cells if not cell.equal] == []


def test_the_same_scheme_doubles_the_interval_up_to_the_cap_and_a_change_resets_it() -> None:
    controller = Reevaluation(interval_windows=2, factor=2, cap_windows=6)
    state = ReevaluationState()
    intervals = []
    for scores in (A, A, A, A, B, B):
        state = controller.evaluate(state, state.next_window, scores, lowest)
        intervals.append(state.interval_windows)
    assert intervals == [2, 4, 6, 6, 2, 4]
    assert state.treatment == {"b": "shed"}


@pytest.mark.parametrize("factor", [1.1, 1.25, 1.5, 1.9])
def test_factor_below_two_lets_the_interval_grow(factor: float) -> None:
    """Section 4.3.2 recommends factors below 2 for fewer misses: between looking always and doubling."""
    quiet = [A] * 200
    _, always = follow(Reevaluation(factor=1.0), quiet)
    _, evaluations = follow(Reevaluation(factor=factor), quiet)
    _, doubling = follow(Reevaluation(factor=2.0), quiet)
    assert always == 200
    assert doubling < evaluations < 100


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=60), st.sampled_from([1.0, 1.5, 2.0, 3.0]))
def test_the_texts_controller_is_algorithm_2_step_by_step(regimes: list[int], factor: float) -> None:
    scores = [(A, B)[regime] for regime in regimes]
    current, looked, interval = None, 0, 1.0
    wanted: list[Treatment] = []
    evaluations = 0
    for window, regime in enumerate(regimes):
        wanted.append({} if current is None else {"ab"[current]: "shed"})
        if window >= looked:
            evaluations += 1
            interval = interval * factor if regime == current else 1.0
            current, looked = regime, window + math.floor(interval)
    assert follow(Reevaluation(factor=factor), scores) == (wanted, evaluations)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.floats(0, 9)] * 3), min_size=2, max_size=30), st.integers(1, 28))
def test_a_state_that_went_through_json_goes_on_alike(rows: list[tuple[float, ...]], cut: int) -> None:
    controller = Reevaluation()
    through, straight = ReevaluationState(), ReevaluationState()
    for window, row in enumerate(rows):
        scores = dict(zip("abc", row, strict=True))
        if window == cut:
            through = ReevaluationState.from_dict(json.loads(json.dumps(through.to_dict())))
        assert controller.due(through, window) == controller.due(straight, window)
        if controller.due(straight, window):
            through = controller.evaluate(through, window, scores, lowest)
            straight = controller.evaluate(straight, window, scores, lowest)
    assert through == straight


def test_a_new_attribute_joins_and_a_lost_one_leaves() -> None:
    controller = Reevaluation()
    state = controller.evaluate(ReevaluationState(), 0, {"a": 1.0, "b": 2.0}, lowest)
    state = controller.evaluate(state, 1, {"b": 2.0, "c": 0.5}, lowest)
    assert state.treatment == {"c": "shed"}
    assert set(state.scores) == {"b", "c"}


@pytest.mark.parametrize(
    ("settings_", "named"),
    [
        ({"interval_windows": 0}, "interval_windows"),
        ({"factor": 0.5}, "factor"),
        ({"interval_windows": 8, "cap_windows": 4}, "cap_windows"),
    ],
)
def test_a_setting_that_cannot_be_is_named(settings_: dict[str, float], named: str) -> None:
    with pytest.raises(InvalidValue, match=f"`{named}` must"):
        Reevaluation(**settings_)  # type: ignore[arg-type]


def test_windows_are_evaluated_in_order_and_with_something_to_rank() -> None:
    state = Reevaluation().evaluate(ReevaluationState(), 5, A, lowest)
    with pytest.raises(InvalidValue, match="`window` must come after 5, got 5"):
        Reevaluation().evaluate(state, 5, A, lowest)
    with pytest.raises(InvalidValue, match="`scores` must name at least one attribute"):
        Reevaluation().evaluate(ReevaluationState(), 0, {}, lowest)
