"""The certificate: what recovery cost an attribute, measured against the truth while it is held.

The relative error of a recovered value r against the shed value sv is

    error_pct = |r - sv| / |sv| x 100        (specs/attributes.md section 6; Algorithm 3's test, with |sv|)

computed in float64 exactly in this order of operations, here, in the kernels that decide what to store, and
wherever else a bound is checked: one arithmetic, so that no value can be a violation by rounding alone.
sv = 0 has error 0 when r = 0 and infinity otherwise; null, NaN, +inf, -inf and text have error 0 when given
back as they were and infinity otherwise. Integers differ exactly (no float64 rounding of the difference, no
overflow) before they are divided.

>>> truth, given = Column.real([100.0, 0.0, -5.2]), Column.real([98.0, 0.0, -5.0])
>>> certificate = certify(truth, given, error_pct=4.5)
>>> round(certificate.max_error_pct, 4), round(certificate.mean_error_pct, 4), certificate.violations
(3.8462, 1.9487, 0)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numba import njit

from spillway.levers.attributes.columns import Column


def relative_errors_pct(truth: Column, given: Column) -> np.ndarray:
    """Row by row, the relative error of `given` in %, infinity where no finite error describes it."""
    same = truth.same(given)
    error = np.where(same, 0.0, np.inf)
    if truth.kind == "text":
        return error
    with np.errstate(all="ignore"):
        if truth.kind == "real":
            size = np.abs(truth.values)
            percent = np.abs(given.values - truth.values) / size * 100.0
            finite = np.isfinite(truth.values) & np.isfinite(given.values)
        else:
            size = magnitude(truth.values).astype(np.float64)
            percent = distance(given.values, truth.values).astype(np.float64) / size * 100.0
            finite = np.ones(len(truth), np.bool_)
    usable = ~same & truth.valid & given.valid & finite & (size > 0)
    return np.asarray(np.where(usable, percent, error))


def magnitude(values: np.ndarray) -> np.ndarray:
    """|v| of int64 as uint64, right for the most negative one too."""
    unsigned = values.astype(np.uint64)
    return np.where(values < 0, np.uint64(0) - unsigned, unsigned)


def distance(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """|l - r| of int64 as uint64, without overflow.

    >>> distance(np.array([2**63 - 1]), np.array([-(2**63)])).tolist()
    [18446744073709551615]
    """
    a, b = left.astype(np.uint64), right.astype(np.uint64)
    return np.where(left >= right, a - b, b - a)


@dataclass(frozen=True)
class Certificate:
    """Errors of one attribute over the shed values of one batch."""

    error_pct: float
    shed_values: int
    stored_values: int
    max_error_pct: float
    mean_error_pct: float
    violations: int

    @property
    def stored_share_pct(self) -> float:
        """% stored: stored over shed values."""
        return 100.0 * self.stored_values / self.shed_values if self.shed_values else 0.0

    @property
    def worst_over_threshold(self) -> float:
        """Largest error over E: at most 1 when the promise was kept; 0 when E and the errors are 0."""
        if self.max_error_pct == 0:
            return 0.0
        return self.max_error_pct / self.error_pct if self.error_pct else float("inf")

    @property
    def accuracy_pct(self) -> float:
        """Recovery accuracy: 100 - mean relative error."""
        return 100.0 - self.mean_error_pct

    def __add__(self, other: Certificate) -> Certificate:
        """Two parts as one; the looser threshold is stated."""
        shed = self.shed_values + other.shed_values
        total = self.mean_error_pct * self.shed_values + other.mean_error_pct * other.shed_values
        return Certificate(
            max(self.error_pct, other.error_pct),
            shed,
            self.stored_values + other.stored_values,
            max(self.max_error_pct, other.max_error_pct),
            total / shed if shed else 0.0,
            self.violations + other.violations,
        )

    def to_dict(self) -> dict[str, Any]:
        """The columns of the `certificates` table that this module knows."""
        facts = asdict(self)
        facts["stored_share_pct"] = self.stored_share_pct
        facts["worst_over_threshold"] = self.worst_over_threshold
        return facts


@njit(cache=True)
def _measured(truth, known, given, here, chosen, error_pct):  # type: ignore[no-untyped-def]
    """Rows chosen, their largest and summed `relative_errors_pct`, and how many are above a threshold, of reals."""
    rows, most, total, violations = 0, 0.0, 0.0, 0
    for i in range(len(truth)):
        if not chosen[i]:
            continue
        rows += 1
        a, b = truth[i], given[i]
        error = np.inf
        if not known[i] and not here[i]:
            error = 0.0
        elif known[i] and here[i]:
            if a == b or (np.isnan(a) and np.isnan(b)):
                error = 0.0
            elif a != 0.0 and np.isfinite(a) and np.isfinite(b):
                error = abs(b - a) / abs(a) * 100.0
        most = max(most, error)
        total += error
        violations += error > error_pct
    return rows, most, total, violations


def certify(
    truth: Column, given: Column, error_pct: float, is_shed: np.ndarray | None = None, stored_values: int = 0
) -> Certificate:
    """Measure the recovered column `given` against the `truth` at the rows that were shed."""
    if truth.kind == "real" and given.kind == "real":
        chosen = np.ones(len(truth), np.bool_) if is_shed is None else is_shed
        shed, most, total, violations = _measured(
            truth.values, truth.valid, given.values, given.valid, chosen, error_pct
        )
        return Certificate(error_pct, shed, stored_values, most, total / shed if shed else 0.0, violations)
    if is_shed is not None:
        truth, given = truth.take(is_shed), given.take(is_shed)
    errors = relative_errors_pct(truth, given)
    if len(errors) == 0:
        return Certificate(error_pct, 0, stored_values, 0.0, 0.0, 0)
    violations = int((errors > error_pct).sum())
    return Certificate(
        error_pct, len(errors), stored_values, float(errors.max()), float(errors.mean()), violations
    )
