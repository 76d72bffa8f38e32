"""The sifters' evidence: rivals are on equal terms, and nothing beats hindsight."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evidence.sifters.contest import RIVALS, SIFTERS, contest, rival_drop_probabilities, scale_to_mean
from evidence.sifters.workload import COMBINATIONS, WorkloadSettings, generate

SMALL = WorkloadSettings(query_count=200, sample=400)


def test_every_contestant_drops_the_same_share() -> None:
    one = generate(SMALL, 1, 5000)
    rng = np.random.default_rng(1)
    for name in RIVALS:
        lost = scale_to_mean(rival_drop_probabilities(name, one, rng), 0.5)
        assert lost.mean() == pytest.approx(0.5)
        assert ((lost >= 0) & (lost <= 1)).all()


@pytest.mark.parametrize(("data", "queries"), COMBINATIONS)
def test_nothing_beats_hindsight_and_random_is_the_throttler(data: str, queries: str) -> None:
    one = generate(replace(SMALL, data=data, queries=queries), 2, 20_000)
    found = contest(one, (*SIFTERS, *RIVALS))
    assert max(found.quality.values()) == pytest.approx(found.quality["optimum"])
    assert found.asked["random"] == pytest.approx(0.5)
    assert found.quality["random"] == pytest.approx(0.5 + 0.5 * found.empty)


def test_no_filter_held_to_fairness_beats_the_bound_that_is_told_of_it() -> None:
    one = generate(replace(SMALL, data="skew"), 2, 20_000)
    found = contest(one, (*SIFTERS, *RIVALS)).quality
    assert found["random"] < found["densities"] < found["fair"] < found["optimum"]
    assert max(found[name] for name in SIFTERS) < found["fair"]


def test_densities_are_those_that_rows_and_queries_are_drawn_by() -> None:
    """The mean over rows of the density of queries over theirs is 1 where queries lie among rows alone."""
    for data, queries in COMBINATIONS:
        one = generate(replace(SMALL, data=data, queries=queries), 4, 100_000)
        tolerance = 5.0 * one.relative_demand.std() / np.sqrt(100_000)  # five standard errors of a mean
        assert one.relative_demand.mean() == pytest.approx(1.0, abs=max(tolerance, 1e-9))


def test_sample_test_rows_and_queries_lie_in_hot_spots_and_apart() -> None:
    one = generate(replace(SMALL, data="skew"), 3, 5000)
    assert ((one.test >= 0) & (one.test < 1)).all()
    assert not set(map(tuple, one.sample.T)) & set(map(tuple, one.test.T))
    assert len(one.asked.boxes) == 200
