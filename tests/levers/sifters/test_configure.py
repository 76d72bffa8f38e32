"""Configuration is exact: equal to an LP solver, within its constraints, and it says what cannot be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evidence.sifters.linear_program import compare, random_instance, solver_cost, violation
from spillway.errors import InvalidValue
from spillway.levers.sifters.configure import (
    configure_filter,
    least_fairness,
    optimal_thresholds,
    total_variation,
)

YES = np.array([True, True])


def test_thresholds_cost_what_a_solver_says_the_least_is() -> None:
    """1e-9: the solver's own tolerance on these sums; 10,000 of them are in the evidence."""
    found = compare(400, seed=13)
    assert found.largest_off < 1e-9
    assert found.largest_broken < 1e-9
    assert found.disagree == 0
    assert 10 < found.infeasible < 200


def test_a_thousand_regions_are_as_exact_as_ten() -> None:
    rng = np.random.default_rng(5)
    for _ in range(3):
        one = random_instance(rng, 1000)
        one = type(one)(one.worths, one.frequencies, one.touched, 0.37, 0.4, np.ones(1000))
        found = optimal_thresholds(
            one.worths, one.frequencies, one.touched, one.throttle, one.fairness, one.most
        )
        assert abs(float(one.worths @ found) - (solver_cost(one) or 0.0)) < 1e-9
        assert violation(one, found) < 1e-9


def test_worth_per_row_decides_and_not_worth() -> None:
    """Erratum B3: by A alone the first region would go, though the second loses less for the same rows."""
    worths, frequencies = np.array([0.3, 0.4]), np.array([0.2, 0.8])
    found = optimal_thresholds(worths, frequencies, YES, 0.5)
    assert found.round(6).tolist() == [0.0, 0.625]
    assert worths @ found < worths @ np.array([1.0, 0.375])


def test_what_nobody_asks_for_goes_first_even_when_all_are_to_lose_alike() -> None:
    """Erratum B4: Delta = 0 is not random dropping."""
    found = optimal_thresholds(
        np.array([0.5, 0.5, 0.0]), np.array([0.4, 0.4, 0.2]), np.array([True, True, False]), 0.6, 0.0
    )
    assert found.round(6).tolist() == [0.25, 0.25, 1.0]


@pytest.mark.parametrize("throttle", [0.0, 1.0])
@pytest.mark.parametrize("fairness", [0.0, 0.3, 1.0])
def test_with_room_for_all_nothing_goes_and_with_none_everything(throttle: float, fairness: float) -> None:
    found = optimal_thresholds(np.array([0.2, 0.8]), np.array([0.5, 0.5]), YES, throttle, fairness)
    assert found.tolist() == [1.0 - throttle] * 2


def test_a_region_that_the_sample_does_not_know_is_spared() -> None:
    found = optimal_thresholds(
        np.array([0.6, 0.4, 0.0]), np.array([0.5, 0.5, 0.0]), np.array([True] * 3), 0.5, 1.0
    )
    assert found[2] == 0.0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"throttle": -0.1}, "`throttle` must be from 0 to 1, got -0.1"),
        ({"throttle": 1.5}, "`throttle` must be from 0 to 1, got 1.5"),
        ({"throttle": float("nan")}, "`throttle` must be from 0 to 1, got nan"),
        ({"fairness": 1.5}, "`fairness` must be from 0 to 1, got 1.5"),
        ({"worths": np.array([np.inf, 0.0])}, "`worths` must be finite"),
        ({"frequencies": np.array([-1.0, 2.0])}, "`frequencies` must be finite and 0 or more"),
        ({"touched": np.array([True])}, "`regions` must be at least one"),
        ({"most": np.array([0.1, 2.0])}, "`most` must be at most 1, got 2.0"),
        (
            {"most": np.array([0.2, 1.0]), "throttle": 0.5, "fairness": 0.1},
            "`fairness` must be at least 0.6 for so much to be dropped, got 0.1; write fairness: 0.6",
        ),
        ({"most": np.array([0.2, 0.2])}, "`throttle` must be at least 0.8: what must be delivered"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(changed: dict[str, object], said: str) -> None:
    stated = {
        "worths": np.array([0.5, 0.5]), "frequencies": np.array([0.5, 0.5]), "touched": YES, "throttle": 0.5,
    }  # fmt: skip
    with pytest.raises(InvalidValue, match=said):
        optimal_thresholds(**{**stated, **changed})  # type: ignore[arg-type]


def test_the_smallest_fairness_is_feasible_and_no_smaller_one() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        one = random_instance(rng, 8)
        touched, most = np.ones(8, bool), np.where(rng.random(8) < 0.5, 0.3, 1.0)
        drop = float(rng.random() * (one.frequencies @ most))
        least = least_fairness(one.frequencies, most, drop)
        assert least is not None
        optimal_thresholds(one.worths, one.frequencies, touched, 1 - drop, min(1.0, least + 1e-9), most)
        if least > 1e-6:
            with pytest.raises(InvalidValue, match="fairness"):
                optimal_thresholds(one.worths, one.frequencies, touched, 1 - drop, least - 1e-6, most)


def worth(frequencies: list[float], most: list[float], touched: list[bool]) -> Any:
    """Regions of which all rows are worth the same."""
    given = np.array(frequencies)
    return SimpleNamespace(
        frequencies=given, worths=given * touched, touched=np.array(touched), max_thresholds=np.array(most),
        overall=lambda thresholds: 1.0,
    )  # fmt: skip


def test_as_much_is_dropped_as_queries_allow_and_what_is_too_much_then_is_told() -> None:
    found = configure_filter(worth([0.5, 0.5], [0.4, 0.4], [True, True]), 0.1, 0.0, 1.0, 0.0)
    assert found.thresholds.tolist() == pytest.approx([0.4, 0.4])
    assert (found.kept_share, found.short) == pytest.approx((0.6, 0.5))
    # half of all rows must be kept, and what is sampled of the rest
    found = configure_filter(worth([1.0], [1.0], [True]), 0.55, 0.5, 1.0, 0.2)
    assert (found.thresholds.tolist(), found.kept_share, found.short) == (
        pytest.approx([0.8]),
        pytest.approx(0.6),
        pytest.approx(0.05),
    )


def test_fairness_is_widened_as_little_as_must_be_once_what_nobody_asks_for_has_gone() -> None:
    alone = configure_filter(worth([0.5, 0.5], [0.2, 1.0], [True, True]), 0.65, 0.0, 0.1, 0.0)
    assert (alone.fairness, alone.kept_share, alone.short) == (pytest.approx(0.3), pytest.approx(0.65), 0.0)
    beside = configure_filter(
        worth([0.4, 0.4, 0.2], [0.2, 1.0, 1.0], [True, True, False]), 0.65, 0.0, 0.1, 0.0
    )
    assert (beside.fairness, beside.kept_share) == (0.1, pytest.approx(0.65))


def test_the_noise_between_two_samples_is_that_of_both() -> None:
    few, many = np.array([10, 10]), np.array([600, 400])
    assert total_variation(few, many) == pytest.approx(total_variation(many, few))
    assert total_variation(few, many)[1] > total_variation(few * 50, many)[1]
