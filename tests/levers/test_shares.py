"""Several streams on one channel."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.golden import attributes as golden_attributes
from evidence.golden.attributes import proportional_shares
from spillway.errors import InvalidValue
from spillway.levers.attributes.threshold.category import criticality_weight
from spillway.levers.loss_curve import drop_rate, proportional_capacities

GOLDEN = Path(__file__).parents[1] / "golden"


def test_example_6_is_reproduced() -> None:
    cells = list(golden_attributes.GROUPS["several streams"](GOLDEN))
    assert len(cells) == 9
    assert [cell for cell in cells if not cell.equal] == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(0, 20)), min_size=1, max_size=6), st.integers(1, 4000)
)
def test_proportional_shares_are_exact_and_leave_the_channel_full(
    streams: list[tuple[int, int]], capacity: int
) -> None:
    rates, counts = [rate / 10 for rate, _ in streams], [count for _, count in streams]
    got = proportional_shares(rates, counts, capacity / 10)
    total = sum(rate for rate, _ in streams)
    share = max(Fraction(total - capacity, total), Fraction(0))
    assert got.drop_rate == share
    assert got.attributes_to_shed == tuple(math.ceil(share * count) for count in counts)
    assert sum(got.kbps_to_shed) == max(Fraction(total - capacity, 10), 0)
    assert sum(proportional_capacities(rates, capacity / 10)) == pytest.approx(min(total, capacity) / 10)


def test_what_fits_gives_up_nothing_and_a_silent_stream_neither() -> None:
    assert drop_rate([10, 20], 30) == 0
    assert proportional_shares([10, 20], [3, 4], 30).attributes_to_shed == (0, 0)
    assert proportional_shares([0, 20], [3, 4], 10).attributes_to_shed == (0, 2)


def test_a_stream_of_no_class_weighs_as_much_as_the_most_tolerant() -> None:
    assert criticality_weight("others") == criticality_weight("not") == criticality_weight(None) == 1.0
    classes = ["extremely", "very", "moderately", "low", "not"]
    weights = [criticality_weight(name) for name in classes]
    assert weights == sorted(weights, reverse=True)


def test_nonsense_is_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match="`capacity_kbps` must be above 0"):
        drop_rate([1], 0)
    with pytest.raises(InvalidValue, match="`rates_kbps` must be"):
        drop_rate([-1], 1)
    with pytest.raises(InvalidValue, match="`attributes` must count"):
        proportional_shares([1, 2], [3], 1)
    with pytest.raises(InvalidValue, match="`criticality` must be one of"):
        criticality_weight("highly")
