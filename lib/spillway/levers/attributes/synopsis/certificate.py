"""A certificate made: what shedding and rounding cost an attribute, measured against the truth while it is held.

Errors are those of `bounds`, value by value; null and text have error 0 when given back as they were, else infinity.
What is measured of parts (tasks, batches) adds up to that of the whole, see `levers.certificate`.

>>> truth, given = Column.real([100.0, 0.0, -5.2]), Column.real([98.0, 0.0, -5.0])
>>> certificate = certify(truth, given, error_pct=4.5)
>>> round(certificate.max_error_pct, 4), round(certificate.mean_error_pct, 4), certificate.violations
(3.8462, 1.9487, 0)
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.synopsis.bounds import integer_error_pct, real_error_pct
from spillway.levers.certificate import Certificate


@njit(cache=True)
def _error_pct(truth, known, given, here, is_integer):  # type: ignore[no-untyped-def]
    if not known or not here:
        return 0.0 if known == here else np.inf
    return integer_error_pct(given, truth) if is_integer else real_error_pct(given, truth)


@njit(cache=True)
def _errors_pct(truth, known, given, here, is_integer):  # type: ignore[no-untyped-def]
    found = np.empty(len(truth))
    for i in range(len(truth)):
        found[i] = _error_pct(truth[i], known[i], given[i], here[i], is_integer)
    return found


@njit(cache=True)
def _sums(truth, known, given, here, is_integer, chosen, error_pct):  # type: ignore[no-untyped-def]
    """Largest and summed error of the chosen rows, and how many are above the threshold."""
    most, total, violations = 0.0, 0.0, 0
    for i in range(len(truth)):
        if chosen[i]:
            error = _error_pct(truth[i], known[i], given[i], here[i], is_integer)
            most = max(most, error)
            total += error
            violations += error > error_pct
    return most, total, violations


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


def certify(
    truth: Column,
    given: Column,
    error_pct: float,
    is_shed: np.ndarray | None = None,
    stored_values: int = 0,
    is_rounded: np.ndarray | None = None,
) -> Certificate:
    """Measure the column `given` back against the `truth` at the rows that were shed (all, if not said) or rounded."""
    shed = np.ones(len(truth), np.bool_) if is_shed is None else is_shed
    rounded = np.zeros(len(truth), np.bool_) if is_rounded is None else is_rounded & ~shed
    chosen = shed | rounded
    if truth.kind == "text":
        errors = relative_errors_pct(truth.take(chosen), given.take(chosen))
        most, total = float(errors.max(initial=0.0)), float(errors.sum())
        violations = int((errors > error_pct).sum())
    else:
        most, total, violations = _sums(*_numbers(truth, given), chosen, error_pct)
    return Certificate(error_pct, int(shed.sum()), int(rounded.sum()), stored_values, total, most, violations)
