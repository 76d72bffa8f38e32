from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.levers.attributes.synopsis.synopsis_reference import columns

from evidence.attributes.baselines import BASELINES, baseline
from spillway.levers.attributes.columns import Column, Frame

NUMBERS = st.lists(st.floats(1.0, 200.0).map(lambda value: round(value, 1)), min_size=1, max_size=12)


def frame_of(column, keys=2):
    n = len(column)
    return Frame(np.arange(n), np.arange(n) % keys, {"a": column})


@settings(max_examples=80, deadline=None)
@given(columns("real", 14), st.sampled_from([0.5, 4.7, 13.5]), st.sampled_from(BASELINES))
def test_every_baseline_keeps_the_bound(column, bound, name):
    given_back = baseline(name, frame_of(column), "a", bound)
    assert given_back.errors.violations == 0


def fewest_constants(values, bound):
    """How many constants a sequence needs, by trying every cut (dynamic programming)."""
    n = len(values)
    best = [0] + [n] * n
    for end in range(1, n + 1):
        low, high = -np.inf, np.inf
        for start in range(end - 1, -1, -1):
            tolerance = abs(values[start]) * bound / 100.0 * (1 - 1e-9)
            low, high = max(low, values[start] - tolerance), min(high, values[start] + tolerance)
            if low > high:
                break
            best[end] = min(best[end], best[start] + 1)
    return best[n]


@settings(max_examples=60, deadline=None)
@given(NUMBERS, st.sampled_from([1.0, 4.7, 13.5]))
def test_pmc_midrange_stores_the_fewest_constants_possible(values, bound):
    stored = baseline("pmc_midrange", frame_of(Column.real(values), keys=1), "a", bound)
    assert len(stored.entries) == fewest_constants(values, bound)


def test_lines_need_two_points_where_constants_need_many():
    line = frame_of(Column.real([100.0 + 5 * i for i in range(40)]), keys=1)
    assert len(baseline("swing_filter", line, "a", 1.0).entries) == 2
    assert len(baseline("swinging_door", line, "a", 1.0).entries) == 2
    assert len(baseline("pmc_midrange", line, "a", 1.0).entries) > 10


def test_the_swinging_door_stores_only_values_that_occurred():
    rng = np.random.default_rng(6)
    values = np.round(100 + np.cumsum(rng.normal(0, 2, 300)), 1)
    stored = baseline("swinging_door", frame_of(Column.real(values)), "a", 4.0)
    assert (stored.entries.values.values == values[stored.entries.seq]).all()


def test_integers_are_approximated_as_reals_and_texts_by_last_alone():
    numbers = frame_of(Column.integer([100, 101, 150, 152]))
    assert baseline("pmc_midrange", numbers, "a", 5.0).errors.violations == 0
    texts = frame_of(Column.text(["a", "a", "b", "a"]))
    assert baseline("last", texts, "a", 5.0).errors.violations == 0
    with pytest.raises(ValueError, match="`column` must be numeric for swing_filter"):
        baseline("swing_filter", texts, "a", 5.0)


def test_an_unknown_baseline_is_refused_by_name():
    with pytest.raises(ValueError, match=r"`name` must be one of last, .* got 'magic'"):
        baseline("magic", frame_of(Column.real([1.0])), "a", 5.0)
