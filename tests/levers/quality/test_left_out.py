"""What nobody read could hold: ends against every way to fill the rows that were left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.levers.quality.intervals import ValueRange

ENDS = st.tuples(st.integers(-9, 9), st.integers(-9, 9)).map(sorted)


@given(ENDS, st.booleans(), st.integers(-20, 20), st.integers(0, 4), st.integers(1, 5))
def test_ends_are_the_least_and_the_most_of_every_way_to_fill_what_was_left_out(
    ends: list[int], always: bool, total: int, counted: int, unread: int
) -> None:
    """Each row is counted with its least or its most, or, where it need not be, not at all: no other way is further."""
    least, most = ends
    total *= counted > 0
    ways = [
        (total + low * least + high * most, counted + low + high)
        for low in range(unread + 1)
        for high in range(unread + 1 - low)
        if not always or low + high == unread
    ]
    reach = ValueRange(float(least), float(most), always)
    of_all = reach.total(np.array([float(total)]), np.array([1.0, unread - 1.0]))
    assert of_all == (min(one for one, _ in ways), max(one for one, _ in ways))
    means = [one / many for one, many in ways if many]
    of_each = reach.mean(float(total), float(counted), float(unread))
    assert of_each == pytest.approx((min(means), max(means)))


def test_of_batches_that_chance_may_have_hidden_the_largest_are_reckoned_with() -> None:
    unread = np.array([1.0, 10.0, 5.0])
    one_or_none = ValueRange(0.0, 1.0)
    assert [one_or_none.hidden_in_total(0.25, unread, most) for most in (0, 1, 2, 9)] == [
        (0.0, 0.0), (2.5, 7.5), (3.75, 11.25), (4.0, 12.0),
    ]  # fmt: skip
    assert ValueRange(20.0, 30.0).hidden_in_mean(24.0, unread, 1) == (40.0, 60.0)
    assert ValueRange(20.0, 30.0).hidden_in_total(24.0, unread, 1) == (240.0, 60.0), (
        "or they hold none at all"
    )
