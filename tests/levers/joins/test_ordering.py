"""Pairs in the order of the rows they are of, against sorting them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.levers.joins.matching import pairs_in_order

SEED = st.integers(0, 2**31)


@settings(max_examples=150, deadline=None)
@given(SEED, st.integers(1, 9), st.integers(1, 9), st.integers(0, 40), st.booleans(), st.booleans())
def test_it_is_the_order_of_seq_left_before_right_whatever_the_order_of_time_and_of_finding(
    seed: int, left: int, right: int, pairs: int, in_time: bool, found_in_order: bool
) -> None:
    chance = np.random.default_rng(seed)
    seqs = [chance.permutation(5 * many)[:many] for many in (left, right)]
    if in_time:
        seqs = [np.sort(one) for one in seqs]
    rows = [chance.integers(0, many, pairs) for many in (left, right)]
    if found_in_order:  # as kernels find them: by probing row, rows of the window ascending
        order = np.lexsort(rows[:: 1 if seed % 2 else -1])
        rows = [one[order] for one in rows]
    found = pairs_in_order((seqs[0], rows[0]), (seqs[1], rows[1]))
    assert found.tolist() == np.lexsort((seqs[1][rows[1]], seqs[0][rows[0]])).tolist()
