"""The smallest period against trying them all, and the golden cases of Algorithm 1."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.levers.attributes.cycle.codes import first_appearance, joint_codes, value_codes
from spillway.levers.attributes.cycle.identifier import find_cycle
from spillway.levers.attributes.cycle.trace import is_unique_in_cycle, replicated_period, smallest_period

CASES = json.loads((Path(__file__).parents[3] / "golden" / "000_cid_cases.json").read_text())["cases"]


def slow_period(values: list[int]) -> int:
    return next(
        period
        for period in range(1, len(values) + 1)
        if all(values[i + period] == values[i] for i in range(len(values) - period))
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.integers(1, 40))
def test_the_smallest_period_is_the_first_of_all_that_holds(pattern: list[int], rows: int) -> None:
    values = (pattern * rows)[:rows]
    assert smallest_period(np.array(values)) == slow_period(values)


def test_a_period_needs_two_full_cycles_and_more_than_one_value() -> None:
    assert replicated_period(np.array([0, 1, 2] * 2)) == 3
    assert replicated_period(np.array([0, 1, 2, 0, 1])) is None
    assert replicated_period(np.zeros(50, dtype=np.int64)) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 2)), min_size=1, max_size=30))
def test_joint_codes_are_equal_exactly_where_the_values_are(pairs: list[tuple[int, int]]) -> None:
    parts = [np.array([p[k] for p in pairs]) for k in (0, 1)]
    joint = joint_codes([first_appearance(part)[0] for part in parts])
    for i, one in enumerate(pairs):
        assert (joint[i] == -1) == (-1 in one)
        for j, other in enumerate(pairs):
            if -1 not in one and -1 not in other:
                assert (joint[i] == joint[j]) == (one == other)


def test_null_and_nan_have_no_code() -> None:
    assert value_codes(np.array(["a", None, "b", "a"], dtype=object))[0].tolist() == [0, -1, 1, 0]
    assert value_codes(np.array([1.5, np.nan, 1.5]))[0].tolist() == [0, -1, 0]


def columns_of(case: str) -> dict[str, np.ndarray]:
    golden = CASES[case]
    return {
        name: np.array([row[k] for row in golden["tuples"]], dtype=object)
        for k, name in enumerate(golden["attributes"])
    }


@pytest.mark.parametrize(
    ("case", "attributes", "length", "product"),
    [
        ("example_1", ("A1", "A3"), 12, 12),
        ("constructed_non_coprime_4_6", ("P", "Q"), 12, 24),
        ("constructed_non_coprime_2_4", ("Q",), 4, 4),
        ("constructed_value_repeats_inside_cycle", ("P",), 4, 4),
        ("constructed_same_length_not_one_to_one", ("Q",), 3, 3),
        ("constructed_constant_attribute", ("Q",), 3, 3),
    ],
)
def test_golden_cases_give_their_cycle(
    case: str, attributes: tuple[str, ...], length: int, product: int
) -> None:
    columns = columns_of(case)
    tuples = len(CASES[case]["tuples"])
    cycle = find_cycle(columns, np.arange(tuples), CASES[case].get("bit_length_bytes", {}))
    assert (cycle.attributes, cycle.length, cycle.product, cycle.form) == (
        attributes,
        length,
        product,
        "strict",
    )
    expected = CASES[case]["expected"]
    periods = expected.get("cycle_length", {})
    assert all(cycle.periods[name] == periods.get(name, length) for name in attributes)


def test_example_1_lays_out_all_twelve_members_with_the_periods_of_the_text() -> None:
    columns = columns_of("example_1")
    cycle = find_cycle(columns, np.arange(15), CASES["example_1"]["bit_length_bytes"])
    assert [member.values for member in cycle.members] == [
        (columns["A1"][k], columns["A3"][k]) for k in range(12)
    ]
    found = {name: replicated_period(value_codes(columns[name])[0]) for name in ("A1", "A2", "A3")}
    assert found == CASES["example_1"]["expected"]["cycle_length"]
    assert replicated_period(value_codes(columns["A4"])[0]) is None


def test_equal_length_is_not_one_to_one() -> None:
    codes = {
        name: value_codes(c)[0] for name, c in columns_of("constructed_same_length_not_one_to_one").items()
    }
    periods = {"P": 3, "Q": 3}
    assert not is_unique_in_cycle(codes, periods, ["P"])
    assert is_unique_in_cycle(codes, periods, ["Q"])


def test_a_cycle_whose_values_repeat_is_reported_as_not_unique() -> None:
    columns = columns_of("constructed_value_repeats_inside_cycle")
    cycle = find_cycle(columns, np.arange(16), {"P": 8})
    assert not cycle.unique
    # the wrap is told by a value that comes once: it alone has place 0
    once = cycle.members[0].values[0]
    assert (cycle.positions(columns) == 0).tolist() == (columns["P"] == once).tolist()
    assert list(columns["P"]).count(once) == 4
