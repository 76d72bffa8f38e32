"""How many pairs rows can have at most, against the join done the slow obvious way; and what is said to be missed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.levers.joins.streams import SECOND, Row, is_pair, operand

from evidence.joins.driver import equality, everything, join_settings, run_join
from evidence.joins.honesty import unsteady
from spillway.levers.joins.most_pairs import most_pairs
from spillway.levers.joins.operands import Array
from spillway.levers.joins.predicates import PREDICATES
from spillway.levers.joins.ring import reach_of

rows = st.lists(
    st.builds(
        Row,
        at=st.one_of(st.integers(0, 8).map(float), st.floats(0, 8).map(lambda x: round(x, 2))),
        items=st.dictionaries(st.integers(0, 4), st.sampled_from([-1.0, 0.5, 1.0, 2.0]), max_size=4),
    ),
    max_size=14,
)


def at_most(
    mine: list[Row], other: list[Row], w: float, predicate: str, threshold: float, is_left: bool
) -> tuple[Array, list[int]]:
    """By row of `mine`: what it can have, and what it has."""
    p, o = operand(mine), operand(other)
    reach = reach_of(p, o, round(w * SECOND), is_left)
    can = most_pairs(p, o, reach, PREDICATES[predicate], threshold, is_left)
    assert (can <= reach[1] - reach[0]).all(), "a pair is a row of the window"
    p_rows, o_rows = (
        [side[i] for i in np.argsort([row.at for row in side], kind="stable")] for side in (mine, other)
    )
    has = []
    for k, row in enumerate(p_rows):
        window = o_rows[reach[0][k] : reach[1][k]]
        ends = [(row, one) if is_left else (one, row) for one in window]
        has.append(sum(is_pair(*both, predicate, threshold) for both in ends))
    return can, has


@settings(max_examples=150, deadline=None)
@given(rows, rows, st.sampled_from([1.0, 2.5, 20.0]), st.sampled_from(list(PREDICATES)), st.booleans())
@pytest.mark.parametrize("threshold", [0.6, 1.0, 2.0])
def test_no_row_has_more_pairs_than_it_can_and_equal_ones_are_counted(
    threshold: float, mine: list[Row], other: list[Row], w: float, predicate: str, is_left: bool
) -> None:
    can, has = at_most(mine, other, w, predicate, threshold, is_left)
    assert (can >= has).all()
    if predicate == "equality":
        assert can.tolist() == has
    if predicate == "overlap" and threshold <= 1:
        # what shares nothing is no pair, and nothing else can hide
        assert ((can > 0) == (np.array(has) > 0)).all()


def test_what_a_row_can_have_is_near_what_it_has_where_sets_are_alike_or_strangers() -> None:
    alike, strange = {1: 1.0, 2: 1.0, 3: 1.0}, {7: 1.0, 8: 1.0, 9: 1.0}
    other = [
        Row(float(at), alike if at % 2 else {10 + 3 * at + i: 1.0 for i in range(3)}) for at in range(10)
    ]
    mine = [Row(10.0, alike), Row(11.0, strange), Row(12.0, {1: 1.0, 7: 1.0})]
    for predicate in PREDICATES:
        can, has = at_most(mine, other, 20.0, predicate, 2.0, True)
        assert has == [5, 0, 0]
        # of common items it is known that they are 15 in all, and that a pair takes 2
        assert can[:2].tolist() == [7 if predicate in ("overlap", "inner_product") else 5, 0]
    for predicate in ("overlap", "equality", "subset"):
        can, _ = at_most(mine, other, 20.0, predicate, 2.0, True)
        assert can[2] == 0, "it shares one item with anyone at most, and nobody has the other"


def test_what_has_left_the_window_counts_no_more() -> None:
    other = [Row(0.0, {1: 2.0}), Row(10.0, {1: 0.5, 7: 1.0, 8: -1.0})]
    mine = [Row(0.5, {1: 1.0}), Row(10.5, {1: 1.0}), Row(10.5, {8: 1.0})]
    second = {"equality": 0, "subset": 1, "superset": 0, "overlap": 1, "inner_product": 0}
    for predicate, pairs in second.items():
        can, has = at_most(mine, other, 2.0, predicate, 1.0, True)
        assert can[:2].tolist() == has[:2] == [1, pairs]
        assert can[2] == (predicate in ("subset", "overlap")), "a product below nothing makes no pair"


def test_a_row_that_would_be_its_own_pair_is_not_counted() -> None:
    stream = operand([Row(0.0, {1: 1.0}), Row(0.0, {1: 1.0}), Row(1.0, {2: 1.0}), Row(2.0, {})])
    reach = reach_of(stream, stream, 5 * SECOND, False)
    assert most_pairs(stream, stream, reach, PREDICATES["equality"], 0.0, False, True).tolist() == [
        1,
        1,
        0,
        0,
    ]


@pytest.mark.parametrize("kind", ["heavy_rows", "burst", "ramp"])
def test_of_equal_values_what_was_missed_is_counted_whatever_comes(kind: str) -> None:
    left, right = (unsteady(kind, 3, which) for which in (0, 1))
    budget = {"comparisons_per_second": 3_000.0}
    tight = equality(10, False, budget=budget)
    for join in (
        tight,
        replace(tight, adapt=replace(tight.adapt, rate="followed")),
        equality(10, True, budget={"comparisons_per_second": 100.0}),
    ):
        whole = run_join(left, right, everything(replace(join, index=True)), 0, 60)
        ours = run_join(left, right, join, 0, 60)
        assert ours.sum("missed") > 0
        for full, mine in zip(whole.outcomes, ours.outcomes, strict=True):
            missed = full.row["pairs"] - mine.row["pairs"]
            assert [mine.row[f"missed{end}"] for end in ("", "_low", "_high")] == [missed] * 3


@pytest.mark.parametrize("kind", ["heavy_rows", "burst", "ramp"])
def test_of_sets_the_interval_holds_in_streams_that_are_not_as_they_were(kind: str) -> None:
    held, windows = 0, 0
    side = {"attribute": "items", "lasts_seconds": 10}
    join = join_settings(
        left=side, right=side, predicate="overlap", threshold=2, sets={}, index=False,
        budget={"comparisons_per_second": 10_000.0},
    )  # fmt: skip
    for seed in (1, 2):
        left, right = (unsteady(kind, seed, which, of_sets=True) for which in (0, 1))
        whole = run_join(left, right, everything(replace(join, index=True)), 0, 60)
        ours = run_join(left, right, join, 0, 60)
        for full, mine in zip(whole.outcomes, ours.outcomes, strict=True):
            missed = full.row["pairs"] - mine.row["pairs"]
            held += mine.row["missed_low"] <= missed <= mine.row["missed_high"]
            windows += 1
    # 24 windows of a 95 % interval: fewer than 20 with chance 0.3 %
    assert held >= 20, f"{held} of {windows}"
