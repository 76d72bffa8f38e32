from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.synopsis.bounds import certify, relative_errors_pct
from spillway.levers.certificate import Certificate


@pytest.mark.parametrize(
    ("truth", "given", "error"),
    [
        (100.0, 90.0, 10.0),
        (-5.0, -5.2, abs(-5.2 - -5.0) / 5.0 * 100.0),
        (0.0, 0.0, 0.0),
        (0.0, -0.0, 0.0),
        (0.0, 5e-324, math.inf),
        (5e-324, 0.0, math.inf),
        (1.0, 0.0, math.inf),
        (-1.0, -0.0, math.inf),
        (5e-324, 1e308, 1.7976931348623157e308),
        (-6.0, 6.0, 200.0),
        (math.nan, math.nan, 0.0),
        (math.nan, 1.0, math.inf),
        (math.inf, math.inf, 0.0),
        (math.inf, -math.inf, math.inf),
        (1.0, math.inf, math.inf),
        (None, None, 0.0),
        (None, 0.0, math.inf),
        (1.0, None, math.inf),
        (None, math.nan, math.inf),
    ],
)
def test_the_relative_error_of_reals(truth, given, error):
    assert relative_errors_pct(Column.real([truth]), Column.real([given])).tolist() == [error]


@pytest.mark.parametrize(
    ("truth", "given", "error"),
    [
        (2**53 + 1, 2**53, 100.0 / (2**53 + 1)),
        (-(2**63), 2**63 - 1, 200.0),
        (-(2**63), -(2**63), 0.0),
        (0, 0, 0.0),
        (0, 1, math.inf),
        (30, 27, 10.0),
    ],
)
def test_the_relative_error_of_integers_is_taken_before_rounding(truth, given, error):
    got = relative_errors_pct(Column.integer([truth]), Column.integer([given]))[0]
    assert got == pytest.approx(error, rel=1e-12)
    assert (got == 0) == (truth == given)


def test_text_is_right_or_wrong():
    errors = relative_errors_pct(Column.text(["a", "b", None]), Column.text(["a", "c", None]))
    assert errors.tolist() == [0.0, math.inf, 0.0]


def test_a_certificate_counts_only_shed_rows_and_only_errors_over_the_threshold():
    truth, given = Column.real([100.0, 100.0, 100.0, 1.0]), Column.real([95.0, 95.1, 100.0, 9.0])
    certificate = certify(truth, given, 4.95, np.array([True, True, True, False]), stored_values=1)
    assert certificate.violations == 1
    assert certificate.shed_values == 3
    assert certificate.stored_share_pct == pytest.approx(100 / 3)
    assert certificate.max_error_pct == 5.0
    assert certificate.worst_over_threshold == pytest.approx(5.0 / 4.95)
    assert certificate.accuracy_pct == pytest.approx(100 - 9.9 / 3)


def test_an_error_equal_to_the_threshold_is_no_violation():
    assert certify(Column.real([100.0]), Column.real([90.0]), 10.0).violations == 0


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([100, 104, 95, 0, 1, None]), st.integers(95, 105), st.integers(0, 3)))
)
def test_certificates_of_parts_add_up_to_the_certificate_of_the_whole(rows: list[Any]) -> None:
    truth, back = (Column.integer([row[side] for row in rows]) for side in (0, 1))
    way = np.array([row[2] for row in rows], int)
    whole = certify(truth, back, 5.0, way == 1, 7, way == 2)
    parts = Certificate(5.0, stored_values=7)
    for row in range(len(rows)):
        here = np.arange(len(rows)) == row
        parts += certify(truth, back, 5.0, here & (way == 1), is_rounded=here & (way == 2))
    assert parts == replace(whole, sum_error_pct=parts.sum_error_pct, sum_error=parts.sum_error)
    assert parts.sum_error == pytest.approx(whole.sum_error)
    assert parts.sum_error_pct == pytest.approx(whole.sum_error_pct)
    assert (whole.shed_values, whole.rounded_values) == (int((way == 1).sum()), int((way == 2).sum()))
    assert whole.values == whole.shed_values + whole.rounded_values


def test_a_rounded_value_counts_with_the_shed_ones_and_never_twice() -> None:
    truth, back = Column.real([100.0, 100.0, 100.0]), Column.real([98.0, 99.0, 50.0])
    both = np.array([True, False, False])
    found = certify(truth, back, 5.0, both, is_rounded=np.array([True, True, False]))
    assert (found.shed_values, found.rounded_values, found.violations) == (1, 1, 0)
    assert found.sum_error_pct == 3.0
    assert found.accuracy_pct == 98.5


def test_a_column_that_came_back_as_nothing_but_nulls_has_lost_every_value() -> None:
    nothing = Column.nulls("text", 2)  # what a column of nulls is read as
    for truth in (Column.real([1.0, None]), Column.integer([1, None]), Column.text(["a", None])):
        assert relative_errors_pct(truth, nothing).tolist() == [math.inf, 0.0]
        assert certify(truth, nothing, 5.0).violations == 1


def test_nothing_shed_certifies_nothing():
    empty = certify(Column.real([]), Column.real([]), 5.0)
    assert empty == Certificate(5.0)
    assert empty.stored_share_pct == 0.0
    assert empty.worst_over_threshold == 0.0


def test_every_zero_given_for_a_value_and_every_value_given_for_zero_is_a_violation():
    truth = [0.0, 0.0, 100.0, -3.0, 1e-9, 0.0]
    back = [0.0, 1e-9, 0.0, -0.0, 0.0, -0.0]
    for made, kind in ((Column.real, "real"), (Column.integer, "integer")):
        was, given_back = truth, back
        if kind == "integer":
            was, given_back = [0, 0, 100, -3, 9, 0], [0, 1, 0, 0, 0, 0]
        for bound in ({"error_pct": 250.0}, {"error_pct": math.inf, "error": 1000.0}):
            found = certify(made(was), made(given_back), **bound)
            assert found.violations == 4
            assert found.max_error_pct == found.mean_error_pct == found.worst_over_threshold == math.inf
            assert found.accuracy_pct == -math.inf


def test_a_bound_in_the_attributes_own_unit_is_judged_beside_the_relative_one():
    truth, back = Column.real([100.0, 0.1, 10.0]), Column.real([100.5, 0.3, 10.25])
    absolute = certify(truth, back, math.inf, error=0.5)
    assert (absolute.violations, absolute.worst_over_threshold) == (0, 1.0)
    assert absolute.mean_error == pytest.approx(0.95 / 3)
    assert absolute.loss_pct(20.0) == pytest.approx(0.95 / 3 / 0.5 * 20.0)
    assert certify(truth, back, math.inf, error=0.4).violations == 1
    assert certify(truth, back, 10.0, error=0.5).violations == 1  # 0.3 for 0.1 is 200 % off
    assert certify(truth, back, 10.0).loss_pct(20.0) == certify(truth, back, 10.0).mean_error_pct
    whole = certify(Column.integer([10, 20]), Column.integer([12, 21]), math.inf, error=1.0)
    assert (whole.violations, whole.max_error, whole.sum_error) == (1, 2.0, 3.0)


def test_a_threshold_of_zero_makes_any_error_infinitely_worse():
    assert certify(Column.real([1.0]), Column.real([1.5]), 0.0).worst_over_threshold == math.inf
    assert certify(Column.real([1.0]), Column.real([1.0]), 0.0).worst_over_threshold == 0.0


AWKWARD = st.sampled_from([0.0, -0.0, 1.0, 1.02, -1.0, np.nan, np.inf, -np.inf, 5e-324, None])


@settings(deadline=None)
@given(
    st.lists(st.tuples(AWKWARD, AWKWARD, st.booleans())),
    st.sampled_from([0.0, 2.0, 50.0]),
)
def test_a_certificate_sums_up_the_errors_of_the_chosen_rows(rows: list[Any], error_pct: float) -> None:
    truth, back = (Column.real([row[side] for row in rows]) for side in (0, 1))
    chosen = np.array([row[2] for row in rows], bool)
    errors = relative_errors_pct(truth, back)[chosen]
    found = certify(truth, back, error_pct, chosen)
    assert (found.shed_values, found.violations) == (len(errors), int((errors > error_pct).sum()))
    assert found.max_error_pct == (errors.max() if len(errors) else 0.0)
    # a mean taken in parts, for the sum of what is near the end of the numbers is beyond them
    with np.errstate(over="ignore"):
        # and which may still round up beyond them, where all errors are the largest number there is
        mean = min(float((errors / max(1, len(errors))).sum()), found.max_error_pct)
        overflows = bool(np.isinf(errors.sum()))
    # then the largest is told for it, which it is not above
    assert found.mean_error_pct == pytest.approx(found.max_error_pct if overflows else mean)
    assert found.mean_error_pct >= mean * (1 - 1e-9)
