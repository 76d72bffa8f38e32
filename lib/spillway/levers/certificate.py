"""The certificate: the measured error of shedding, compared with the true values while these are available.

Certificates of two slices add up to the certificate of both. `Certificate(E)` is the empty one. Means and shares do not
add up; they are computed from sums that do. A bound is relative to the value (`error_pct`), in the attribute's own unit
(`error`), or both. An infinite bound means that there is none.

>>> part = Certificate(5.0, shed_values=4, sum_error_pct=6.0, max_error_pct=3.0)
>>> (part + part).shed_values, (part + part).mean_error_pct, (part + part).worst_over_threshold
(8, 1.5, 0.6)
>>> half = Certificate(math.inf, shed_values=4, sum_error=0.8, max_error=0.4, error=0.5)
>>> half.worst_over_threshold, round(half.loss_pct(20.0), 3)
(0.8, 8.0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Certificate:
    """Errors of one attribute over the shed and rounded values of some rows. Certificates add up."""

    error_pct: float
    shed_values: int = 0
    rounded_values: int = 0
    stored_values: int = 0
    sum_error_pct: float = 0.0
    max_error_pct: float = 0.0
    violations: int = 0
    error: float = math.inf
    sum_error: float = 0.0
    max_error: float = 0.0

    @property
    def values(self) -> int:
        """Return the number of values that were shed or rounded."""
        return self.shed_values + self.rounded_values

    @property
    def mean_error_pct(self) -> float:
        """Return the mean relative error of shed and rounded values; 0 if there are none."""
        return _mean(self.sum_error_pct, self.max_error_pct, self.values)

    @property
    def mean_error(self) -> float:
        """Return the mean error of shed and rounded values in the attribute's own unit; 0 if there are none."""
        return _mean(self.sum_error, self.max_error, self.values)

    def loss_pct(self, rate_pct: float) -> float:
        """Return the mean relative error.

        If the only bound is in the attribute's own unit: mean error / bound x `rate_pct`, the rate of the stream's
        class (specs: attributes, 4).
        """
        if math.isfinite(self.error_pct) or not math.isfinite(self.error) or not self.error:
            return self.mean_error_pct
        return self.mean_error / self.error * rate_pct

    @property
    def accuracy_pct(self) -> float:
        """Return the recovery accuracy: 100 - mean relative error."""
        return 100.0 - self.mean_error_pct

    @property
    def stored_share_pct(self) -> float:
        """Return the stored values in % of the shed values."""
        return 100.0 * self.stored_values / self.shed_values if self.shed_values else 0.0

    @property
    def worst_over_threshold(self) -> float:
        """Return the largest error over its bound: at most 1 if the bound was kept, 0 if there is no error."""
        if math.isinf(self.max_error_pct):
            return math.inf  # zero for another value, or another value for zero
        return max(_over(self.max_error_pct, self.error_pct), _over(self.max_error, self.error))

    def __add__(self, other: Certificate) -> Certificate:
        """Return the certificate of both slices together, with the looser bounds."""
        return Certificate(
            max(self.error_pct, other.error_pct),
            self.shed_values + other.shed_values,
            self.rounded_values + other.rounded_values,
            self.stored_values + other.stored_values,
            self.sum_error_pct + other.sum_error_pct,
            max(self.max_error_pct, other.max_error_pct),
            self.violations + other.violations,
            max(self.error, other.error),
            self.sum_error + other.sum_error,
            max(self.max_error, other.max_error),
        )

    def with_stored(self, stored_values: int) -> Certificate:
        """Return a copy with the number of stored values, which is counted where the synopsis is kept."""
        return replace(self, stored_values=stored_values)

    def with_violations(self, violations: int) -> Certificate:
        """Return a copy with this number of violations."""
        return replace(self, violations=violations)


def _mean(total: float, most: float, values: int) -> float:
    """Return the mean of errors. If their sum overflows, return the largest error, an upper bound of the mean.

    >>> _mean(6.0, 3.0, 4), _mean(math.inf, 1e306, 600), _mean(0.0, 0.0, 0)
    (1.5, 1e+306, 0.0)
    """
    if not values:
        return 0.0
    return most if math.isinf(total) else total / values


def _over(error: float, bound: float) -> float:
    if error == 0 or math.isinf(bound):
        return 0.0
    return error / bound if bound else math.inf
