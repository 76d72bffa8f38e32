"""A certificate made: what shedding and rounding cost an attribute, measured against the truth while it is held.

Errors are those of `bounds`, value by value; null and text have error 0 when given back as they were, else infinity.
What is measured of parts (tasks, batches) adds up to that of the whole, see `levers.certificate`.

>>> truth, given = Column.real([100.0, 0.0, -5.2]), Column.real([98.0, 0.0, -5.0])
>>> certificate = certify(truth, given, error_pct=4.5)
>>> round(certificate.max_error_pct, 4), round(certificate.mean_error_pct, 4), certificate.violations
(3.8462, 1.9487, 0)
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.synopsis.bounds import (
    integer_error,
    integer_error_pct,
    real_error,
    real_error_pct,
)
from spillway.levers.certificate import Certificate


@njit(cache=True)
def _error_pct(truth, known, given, here, is_integer):  # type: ignore[no-untyped-def]
    if not known or not here:
        return 0.0 if known == here else np.inf
    return integer_error_pct(given, truth) if is_integer else real_error_pct(given, truth)


@njit(cache=True)
def _error(truth, known, given, here, is_integer):  # type: ignore[no-untyped-def]
    if not known or not here:
        return 0.0 if known == here else np.inf
    return integer_error(given, truth) if is_integer else real_error(given, truth)


@njit(cache=True)
def _errors_pct(truth, known, given, here, is_integer):  # type: ignore[no-untyped-def]
    found = np.empty(len(truth))
    for i in range(len(truth)):
        found[i] = _error_pct(truth[i], known[i], given[i], here[i], is_integer)
    return found


@njit(cache=True)
def _sums(truth, known, given, here, is_integer, chosen, limit_pct, limit):  # type: ignore[no-untyped-def]
    """Largest and summed errors of the chosen rows, in % and in their unit, and how many are outside the limits."""
    most_pct, total_pct, most, total, violations = 0.0, 0.0, 0.0, 0.0, 0
    for i in range(len(truth)):
        if chosen[i]:
            error_pct = _error_pct(truth[i], known[i], given[i], here[i], is_integer)
            if error_pct != 0.0:
                error = _error(truth[i], known[i], given[i], here[i], is_integer)
                most_pct, most = max(most_pct, error_pct), max(most, error)
                total_pct += error_pct
                total += error
                # what no finite error describes is outside of every limit: a zero for a value, none for one
                violations += error_pct == np.inf or not (error_pct <= limit_pct and error <= limit)
    return most_pct, total_pct, most, total, violations


def _numbers(truth: Column, given: Column) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, bool]:
    """Both columns as the kernels take them; a column of another kind (all null, as read) has nothing of this one's."""
    same = given if given.kind == truth.kind else Column.nulls(truth.kind, len(truth))
    return truth.values, truth.valid, same.values, same.valid, truth.kind == "integer"


def relative_errors_pct(truth: Column, given: Column) -> np.ndarray:
    """Row by row, the error of `given` in %, infinity where no finite error describes it."""
    if truth.kind == "text":
        same = given if given.kind == "text" else Column.nulls("text", len(truth))
        return np.where(truth.same(same), 0.0, np.inf)
    return np.asarray(_errors_pct(*_numbers(truth, given)))


def changed(truth: Column, given: Column) -> np.ndarray:
    """Where `given` is not what the truth is to the bit; null is a value of its own.

    >>> changed(Column.real([1.0, 0.0, None]), Column.real([1.0, -0.0, None])).tolist()
    [False, True, False]
    """
    if truth.kind == "text":
        same = given if given.kind == "text" else Column.nulls("text", len(truth))
        return ~np.asarray(truth.same(same))
    was, known, now, here, _ = _numbers(truth, given)
    return np.asarray((known != here) | (known & (was.view(np.int64) != now.view(np.int64))))


def certify(
    truth: Column,
    given: Column,
    error_pct: float,
    is_shed: np.ndarray | None = None,
    stored_values: int = 0,
    is_rounded: np.ndarray | None = None,
    error: float = math.inf,
) -> Certificate:
    """Measure the column `given` back against the `truth` at the rows that were shed (all, if not said) or rounded.

    The bound is `error_pct` of the value and `error` in its unit. A zero for a value, or a value for a zero, is a
    violation whatever the bound.
    """
    shed = np.ones(len(truth), np.bool_) if is_shed is None else is_shed
    rounded = np.zeros(len(truth), np.bool_) if is_rounded is None else is_rounded & ~shed
    chosen = shed | rounded
    if truth.kind == "text":
        wrong = int(np.isinf(relative_errors_pct(truth.take(chosen), given.take(chosen))).sum())
        worst = math.inf if wrong else 0.0
        sums = (worst, worst, worst, worst, wrong)
    else:
        sums = _sums(*_numbers(truth, given), chosen, error_pct, error)
    most_pct, total_pct, most, total, violations = sums
    shed_values, rounded_values = int(shed.sum()), int(rounded.sum())
    return Certificate(
        error_pct,
        shed_values,
        rounded_values,
        stored_values,
        total_pct,
        most_pct,
        violations,
        error,
        total,
        most,
    )
