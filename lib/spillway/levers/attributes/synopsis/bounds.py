"""Error tests and certificates: how far a recovered value is from the true value.

A recovered value `mv` is accepted for a true value `sv` if both errors are within their limits:

    error_pct = |mv - sv| / |sv| x 100        (Ahuja 2006, Algorithm 3, with |sv| instead of sv: errata A17, A18)
    error     = |mv - sv|                     (ours: in the attribute's own unit; infinity if there is no such bound)

Both are computed in float64, in exactly this order of operations. The kernels that decide what to store or how to
round, the curve from which a threshold is read, and the certificate all use this code. So a value can never be a
violation because of rounding alone.

- Zero is accepted only for zero. The error is infinite if exactly one of sv and mv is 0, at any limit. (This is ours.
  In Algorithm 3 a stored zero is off by 100 % from every value, and at E = 100 it is accepted for all of them.)
- 0.0 and -0.0 are equal, with error 0. So at a bound of 0 a recovered value has the right number, but may lose the sign
  of zero.
- NaN, +inf and -inf have error 0 if they are recovered unchanged, else infinity.
- Integers are compared exactly: without overflow, and without float64 rounding of the difference. Numbers above 2^53
  are converted to float64 *against* the value: the difference is rounded up and |sv| down, by 2048 at most. In doubt
  the test is strict.

>>> real_error_pct(30.08, 29.91) < 0.6, real_error_pct(1.0, 0.0), real_error_pct(np.nan, np.nan)
(True, inf, 0.0)
>>> within_integer(104, 100, 4.0, np.inf), within_integer(104, 100, 4.0, 3.5)
(True, False)
>>> within_integer(-1, 2**63 - 1, 100.0, np.inf)
False
>>> within_real(0.0, 0.3, np.inf, 0.5), within_real(0.2, 0.3, np.inf, 0.5)
(False, True)

`certify` measures the errors that shedding and rounding caused, against the true values while the source still has
them. Null and text have error 0 if they are recovered unchanged, else infinity. Certificates of slices (tasks, batches)
add up to that of the whole (`levers.certificate`).

>>> truth, given = Column.real([100.0, 0.0, -5.2]), Column.real([98.0, 0.0, -5.0])
>>> certificate = certify(truth, given, error_pct=4.5)
>>> round(certificate.max_error_pct, 4), round(certificate.mean_error_pct, 4), certificate.violations
(3.8462, 1.9487, 0)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from spillway.levers.attributes.columns import Column
from spillway.levers.certificate import Certificate

# x / 0 is infinity, as in IEEE 754; raising an exception instead would make the loops slow
_njit = njit(cache=True, error_model="numpy")
# a call inside a loop costs more than the test itself; a caller must have the same error model
_inlined = njit(cache=True, error_model="numpy", inline="always")
_LARGEST = np.finfo(np.float64).max  # error of finite values is finite: a bound in their unit may admit it
_EXACT = np.uint64(1 << 53)
_LAST_BITS = np.uint64(2047)  # a float64 holds a 64-bit integer exactly if these bits are 0


@dataclass(frozen=True)
class ErrorBound:
    """The largest error of a recovered value, in per cent and in its own unit; infinity means no such bound.

    >>> ErrorBound(4.5).tightest(ErrorBound(20.0, 0.5)), ErrorBound(0.0).admits(0.0, math.inf)
    (ErrorBound(error_pct=4.5, error=0.5), True)
    """

    error_pct: float = math.inf
    error: float = math.inf

    def tightest(self, other: ErrorBound) -> ErrorBound:
        """Return the bound that keeps both bounds."""
        return ErrorBound(min(self.error_pct, other.error_pct), min(self.error, other.error))

    def admits(self, error_pct: float, error: float) -> bool:
        """Return whether every value within these limits is within the bound; a limit of 0 (exact) always is."""
        return not min(error_pct, error) or (error_pct <= self.error_pct and error <= self.error)


EXACT = ErrorBound(0.0, 0.0)


def recovered_bound_pct(
    places: Sequence[ErrorBound], precision: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Return the bound of each recovered value in % of the true value; `places[precision]` is its error bound.

    A bound a in the attribute's own unit is converted to per cent of the smallest possible true value,
    100 a / (|v| - a) for |v| > a. It is infinite for other |v|. Zero is recovered only for zero, so its bound is 0.

    >>> bounds = [ErrorBound(5.0), ErrorBound(5.0, 1.0)]
    >>> recovered_bound_pct(bounds, np.array([0, 1, 1]), np.array([41.0, 41.0, 3.0])).tolist()
    [5.0, 2.5, 5.0]
    """
    limits_pct, limits = (np.array([getattr(one, name) for one in places]) for name in ("error_pct", "error"))
    if np.isinf(limits).all():
        return np.asarray(limits_pct[precision])
    limit, size = limits[precision], np.abs(values.astype(np.float64))
    with np.errstate(all="ignore"):
        least = np.where(limit < size, 100.0 * limit / (size - limit), np.inf)
    exact = (limit == 0) | ~np.isfinite(size) | (size == 0)
    return np.minimum(limits_pct[precision], np.where(exact, 0.0, least))


def own_unit_bounds(places: Sequence[ErrorBound], precision: np.ndarray, told: np.ndarray) -> np.ndarray:
    """Return the bounds in the attribute's own unit; NaN if there is none, or the value is exact.

    `told`: what `recovered_bound_pct` returns for the same values.

    >>> places, told = [ErrorBound(5.0), ErrorBound(5.0, 1.0)], np.array([5.0, 2.5, 0.0])
    >>> own_unit_bounds(places, np.array([0, 1, 1]), told).tolist()
    [nan, 1.0, nan]
    """
    limit = np.array([one.error for one in places])[precision]
    return np.where(np.isfinite(limit) & (limit > 0) & (told > 0), limit, np.nan)


@_njit
def real_error_pct(mv, sv):  # type: ignore[no-untyped-def]
    """Return the error in % of `mv` for the real `sv`; infinity if no finite error describes it, never NaN."""
    if mv == sv:
        return 0.0
    if mv == 0.0:
        return np.inf
    error = abs(mv - sv) / abs(sv) * 100.0
    if error < np.inf:
        return error
    if sv != 0.0 and np.isfinite(mv) and np.isfinite(sv):
        return _LARGEST
    if error == error:
        return error
    return 0.0 if mv != mv and sv != sv else np.inf


@_inlined
def within_real(mv, sv, limit_pct, limit):  # type: ignore[no-untyped-def]
    """Return whether the real `mv` is within both limits of `sv`; one limit may be infinity."""
    gap = abs(mv - sv)
    error_pct = gap / abs(sv) * 100.0
    if error_pct <= limit_pct:
        return gap <= limit and mv != 0.0 and sv != 0.0
    if error_pct > limit_pct:
        return False
    return mv == sv or (mv != mv and sv != sv)


@_njit
def real_error(mv, sv):  # type: ignore[no-untyped-def]
    """Return the error of `mv` for the real `sv` in its own unit; infinity if no finite error describes it, never
    NaN."""
    if mv == sv:
        return 0.0
    gap = abs(mv - sv)
    if gap == gap:
        return gap
    return 0.0 if mv != mv and sv != sv else np.inf


@_njit
def _magnitude(value):  # type: ignore[no-untyped-def]
    """Return |v| of an int64 as uint64, also for the most negative one."""
    return np.uint64(0) - np.uint64(value) if value < 0 else np.uint64(value)


@_njit
def _at_most(whole):  # type: ignore[no-untyped-def]
    """Return a uint64 as float64, rounded down."""
    return np.float64(whole if whole < _EXACT else whole & ~_LAST_BITS)


@_njit
def _at_least(whole):  # type: ignore[no-untyped-def]
    """Return a uint64 as float64, rounded up."""
    more = 2048.0 if whole >= _EXACT and (whole & _LAST_BITS) != 0 else 0.0
    return _at_most(whole) + more


@_njit
def _gap(mv, sv):  # type: ignore[no-untyped-def]
    """Return |mv - sv| of two int64 as uint64."""
    return np.uint64(mv) - np.uint64(sv) if mv > sv else np.uint64(sv) - np.uint64(mv)


@_njit
def integer_error(mv, sv):  # type: ignore[no-untyped-def]
    """Return the error of `mv` for the integer `sv` in its own unit, never too small."""
    return _at_least(_gap(mv, sv))


@_njit
def integer_error_pct(mv, sv):  # type: ignore[no-untyped-def]
    """Return the error in % of `mv` for the integer `sv`; infinity if exactly one of them is 0."""
    if mv == sv:
        return 0.0
    if mv == 0:
        return np.inf
    gap = _gap(mv, sv)
    size = _magnitude(sv)
    if (gap | size) < _EXACT:
        return np.float64(gap) / np.float64(size) * 100.0
    return _at_least(gap) / _at_most(size) * 100.0


@_inlined
def within_integer(mv, sv, limit_pct, limit):  # type: ignore[no-untyped-def]
    """Return whether the integer `mv` is within both limits of `sv`; one limit may be infinity."""
    if mv == sv:
        return True
    gap, size = _gap(mv, sv), _magnitude(sv)
    if (gap | size) < _EXACT:
        if not np.float64(gap) / np.float64(size) * 100.0 <= limit_pct:
            return False
        return np.float64(gap) <= limit and mv != 0 and sv != 0
    if not _at_least(gap) / _at_most(size) * 100.0 <= limit_pct:
        return False
    return _at_least(gap) <= limit and mv != 0 and sv != 0


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
    """Return the largest and summed errors of the chosen rows, in % and in their unit, and the number of violations."""
    most_pct, total_pct, most, total, violations = 0.0, 0.0, 0.0, 0.0, 0
    for i in range(len(truth)):
        if chosen[i]:
            error_pct = _error_pct(truth[i], known[i], given[i], here[i], is_integer)
            if error_pct != 0.0:
                error = _error(truth[i], known[i], given[i], here[i], is_integer)
                most_pct, most = max(most_pct, error_pct), max(most, error)
                total_pct += error_pct
                total += error
                # an infinite error violates every limit: zero or null for a value, or a value for zero or null
                violations += error_pct == np.inf or not (error_pct <= limit_pct and error <= limit)
    return most_pct, total_pct, most, total, violations


def _numbers(truth: Column, given: Column) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, bool]:
    """Return both columns as arrays for the kernels; a `given` column of another kind (all null) counts as null."""
    same = given if given.kind == truth.kind else Column.nulls(truth.kind, len(truth))
    return truth.values, truth.valid, same.values, same.valid, truth.kind == "integer"


def relative_errors_pct(truth: Column, given: Column) -> np.ndarray:
    """Return the error of `given` in % for each row; infinity if no finite error describes it."""
    if truth.kind == "text":
        same = given if given.kind == "text" else Column.nulls("text", len(truth))
        return np.where(truth.same(same), 0.0, np.inf)
    return np.asarray(_errors_pct(*_numbers(truth, given)))


def changed_rows(truth: Column, given: Column) -> np.ndarray:
    """Return where `given` differs from the truth in any bit; null differs from every value.

    >>> changed_rows(Column.real([1.0, 0.0, None]), Column.real([1.0, -0.0, None])).tolist()
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
    """Measure the recovered column `given` against the `truth` at the rows that were shed or rounded.

    If `is_shed` is None, all rows were shed. The bound is `error_pct` of the value and `error` in its own unit. A zero
    for a value, or a value for a zero, is a violation under every bound.
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
