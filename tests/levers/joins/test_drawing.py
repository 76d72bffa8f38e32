"""What chance draws: every comparison alike, by itself, the same wherever it is drawn; by an index each pair once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.levers.joins.streams import Row, operand

from spillway.levers.joins.directions import list_ranges
from spillway.levers.joins.matching import Drawn, drawn_comparisons, drawn_entries, index_for, nothing_drawn
from spillway.levers.joins.operands import Operand

LOW, HIGH = np.array([0, 3, 5, 5]), np.array([40, 33, 5, 45])
SEQ = np.array([11, 12, 13, 14])


def pairs_of(drawn: Drawn) -> list[tuple[int, int]]:
    return [(k, int(row)) for k in range(len(drawn.first) - 1) for row in rows_of(drawn, k)]


def rows_of(drawn: Drawn, k: int) -> np.ndarray:
    return drawn.rows[drawn.first[k] : drawn.first[k + 1]]


def entries(
    mine: Operand, other: Operand, low: np.ndarray, high: np.ndarray, chance: float, seed: int
) -> Drawn:
    index = index_for(mine.sets, other.sets)
    stretches = list_ranges(mine.sets.first, mine.sets.items, low, high, index.first, index.rows)
    return drawn_entries(mine.sets, other.sets, index.rows, stretches, mine.seq, chance, seed)


def test_every_comparison_is_as_likely_and_each_is_drawn_by_itself() -> None:
    # 4000 samples of 110 comparisons at 0.1: a share is within five standard errors of it, sums vary as a binomial does
    seen, sums = np.zeros((4, 45)), []
    for seed in range(4000):
        drawn = drawn_comparisons(LOW, HIGH, SEQ, 0.1, seed)
        found = pairs_of(drawn)
        assert len(set(found)) == len(found)
        for k, row in found:
            seen[k, row] += 1
        sums.append(drawn.many)
    there = np.array([[LOW[k] <= row < HIGH[k] for row in range(45)] for k in range(4)])
    assert (seen[~there] == 0).all()
    shares = seen[there] / 4000
    assert abs(shares - 0.1).max() < 5 * (0.09 / 4000) ** 0.5
    assert np.mean(sums) == pytest.approx(0.1 * there.sum(), rel=0.02)
    assert np.var(sums) == pytest.approx(0.09 * there.sum(), rel=0.12)


def test_a_row_draws_the_same_whoever_else_is_there() -> None:
    every = drawn_comparisons(LOW, HIGH, SEQ, 0.3, 7)
    for k in range(4):
        alone = drawn_comparisons(LOW[k : k + 1], HIGH[k : k + 1], SEQ[k : k + 1], 0.3, 7)
        assert alone.rows.tolist() == rows_of(every, k).tolist()
    part = every.cut(1, 4, 3)
    assert [(k + 1, row + 3) for k, row in pairs_of(part)] == [one for one in pairs_of(every) if one[0] >= 1]
    other = drawn_comparisons(LOW, HIGH, SEQ, 0.3, 8)
    assert pairs_of(other) != pairs_of(every), "another seed, another sample"


@pytest.mark.parametrize("chance", [1.0, 0.0, 1e-300])
def test_everything_or_nothing(chance: float) -> None:
    drawn = drawn_comparisons(LOW, HIGH, SEQ, chance, 7)
    assert drawn.many == (110 if chance == 1 else 0)
    assert nothing_drawn(4).many == 0


sets = st.lists(
    st.dictionaries(st.integers(0, 5), st.just(1.0), max_size=4).map(lambda items: Row(0.0, items)),
    max_size=9,
)


@settings(max_examples=100, deadline=None)
@given(sets, sets, st.integers(0, 3))
def test_by_the_index_each_pair_that_shares_an_item_is_drawn_once(
    mine: list[Row], other: list[Row], low: int
) -> None:
    p, o = operand(mine), operand(other)
    lows, highs = np.full(p.rows, min(low, o.rows)), np.full(p.rows, o.rows)
    drawn = entries(p, o, lows, highs, 1.0, 3)
    share = {
        (k, row)
        for k in range(p.rows)
        for row in range(min(low, o.rows), o.rows)
        if set(mine[k].items) & set(other[row].items)
    }
    assert sorted(pairs_of(drawn)) == sorted(share)
    shared = sum(len(set(mine[k].items) & set(other[row].items)) for k, row in share)
    assert drawn.read == shared, "a pair has an entry for every item that both have"


def test_by_the_index_a_pair_that_shares_much_is_as_likely_as_one_that_shares_one_item() -> None:
    mine = operand([Row(0.0, {1: 1.0, 2: 1.0, 3: 1.0})])
    other = operand([Row(0.0, {1: 1.0, 2: 1.0, 3: 1.0}), Row(0.0, {3: 1.0}), Row(0.0, {2: 1.0, 9: 1.0})])
    low, high = np.zeros(1, np.int64), np.full(1, 3)
    seen = np.zeros(3)
    for seed in range(6000):
        seen[entries(mine, other, low, high, 0.2, seed).rows] += 1
    assert abs(seen / 6000 - 0.2).max() < 4 * (0.16 / 6000) ** 0.5
