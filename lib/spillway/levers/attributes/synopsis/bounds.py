"""The error test, once: how far a value given back may be from the one that was shed.

    error_pct = |mv - sv| / |sv| x 100        (Algorithm 3's test, with |sv| for the text's sv: errata A17, A18)
    error     = |mv - sv|                     (ours: in the attribute's own unit; infinity where no such bound is)

in float64, in exactly this order of operations, wherever it is asked: by the kernels that decide what to store or how
to round, by the curve that a threshold is read off, and by the certificate. One arithmetic, so that no value can be a
violation by rounding alone. A value stands for another within both limits.

- zero stands for zero alone: sv = 0 has infinite error unless mv = 0, and so has mv = 0 unless sv = 0, at any limit
  (ours; by the text a stored zero is off by 100 % from every value, and at E = 100 stands for all of them);
- 0.0 and -0.0 stand for each other, with error 0: at a bound of 0 a value that was shed has its number, not its sign
  of zero;
- NaN, +inf and -inf have error 0 when given back as they are, else infinity;
- integers are told apart exactly (no overflow, no float64 rounding of the difference). What is beyond 2^53 on the way
  to float64 is rounded *against* the value, the difference up and |sv| down, by 2048 at most: in doubt strict.

>>> real_error_pct(30.08, 29.91) < 0.6, real_error_pct(1.0, 0.0), real_error_pct(np.nan, np.nan)
(True, inf, 0.0)
>>> within_integer(104, 100, 4.0, np.inf), within_integer(104, 100, 4.0, 3.5)
(True, False)
>>> within_integer(-1, 2**63 - 1, 100.0, np.inf)
False
>>> within_real(0.0, 0.3, np.inf, 0.5), within_real(0.2, 0.3, np.inf, 0.5)
(False, True)

A certificate made: what shedding and rounding cost an attribute, measured against the truth while it is held.

Errors are those of `bounds`, value by value; null and text have error 0 when given back as they were, else infinity.
What is measured of parts (tasks, batches) adds up to that of the whole, see `levers.certificate`.

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

# x / 0 is infinity, as IEEE 754 has it, and no exception that keeps a loop from being fast
_njit = njit(cache=True, error_model="numpy")
# a call in the middle of a loop costs it more than the test does; whoever calls these must be of the same error model
_inlined = njit(cache=True, error_model="numpy", inline="always")
_LARGEST = np.finfo(np.float64).max  # what is finite has a finite error, for a bound in its unit may admit it
_EXACT = np.uint64(1 << 53)
_LAST_BITS = np.uint64(2047)  # what is left of 64 bits without these, a float64 holds


@dataclass(frozen=True)
class ErrorBound:
    """How far a value given back may be off: in per cent of it, and in its own unit; infinity: not bounded so.

    >>> ErrorBound(4.5).tightest(ErrorBound(20.0, 0.5)), ErrorBound(0.0).admits(0.0, math.inf)
    (ErrorBound(error_pct=4.5, error=0.5), True)
    """

    error_pct: float = math.inf
    error: float = math.inf

    def tightest(self, other: ErrorBound) -> ErrorBound:
        """Both bounds at once."""
        return ErrorBound(min(self.error_pct, other.error_pct), min(self.error, other.error))

    def admits(self, error_pct: float, error: float) -> bool:
        """Whether what keeps to these limits keeps to the bound; what is exact does."""
        return not min(error_pct, error) or (error_pct <= self.error_pct and error <= self.error)


EXACT = ErrorBound(0.0, 0.0)


def told_pct(places: Sequence[ErrorBound], precision: np.ndarray, values: np.ndarray) -> np.ndarray:
    """What values that were given back keep to, each at the place of its `precision`, in % of the truth.

    A bound in the attribute's own unit is told in per cent of the least that the truth can be, 100 a / (|v| - a) for
    |v| > a; infinity where that is nothing. Zero stands for zero alone.

    >>> told_pct([ErrorBound(5.0), ErrorBound(5.0, 1.0)], np.array([0, 1, 1]), np.array([41.0, 41.0, 3.0])).tolist()
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

    `told`: what `told_pct` returns for the same values.

    >>> places, told = [ErrorBound(5.0), ErrorBound(5.0, 1.0)], np.array([5.0, 2.5, 0.0])
    >>> own_unit_bounds(places, np.array([0, 1, 1]), told).tolist()
    [nan, 1.0, nan]
    """
    limit = np.array([one.error for one in places])[precision]
    return np.where(np.isfinite(limit) & (limit > 0) & (told > 0), limit, np.nan)


@_njit
def real_error_pct(mv, sv):  # type: ignore[no-untyped-def]
    """The error in % of `mv` for the real `sv`, infinity where no finite error describes it; never NaN."""
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
    """Whether the real `mv` stands for `sv` within both limits, of which one may be infinity."""
    gap = abs(mv - sv)
    error_pct = gap / abs(sv) * 100.0
    if error_pct <= limit_pct:
        return gap <= limit and mv != 0.0 and sv != 0.0
    if error_pct > limit_pct:
        return False
    return mv == sv or (mv != mv and sv != sv)


@_njit
def real_error(mv, sv):  # type: ignore[no-untyped-def]
    """The error of `mv` for the real `sv` in its own unit, infinity where no finite error describes it; never NaN."""
    if mv == sv:
        return 0.0
    gap = abs(mv - sv)
    if gap == gap:
        return gap
    return 0.0 if mv != mv and sv != sv else np.inf


@_njit
def _magnitude(value):  # type: ignore[no-untyped-def]
    """|v| of an int64 as uint64, right for the most negative one too."""
    return np.uint64(0) - np.uint64(value) if value < 0 else np.uint64(value)


@_njit
def _at_most(whole):  # type: ignore[no-untyped-def]
    """A uint64 as float64, or a little less."""
    return np.float64(whole if whole < _EXACT else whole & ~_LAST_BITS)


@_njit
def _at_least(whole):  # type: ignore[no-untyped-def]
    """A uint64 as float64, or a little more."""
    more = 2048.0 if whole >= _EXACT and (whole & _LAST_BITS) != 0 else 0.0
    return _at_most(whole) + more


@_njit
def _gap(mv, sv):  # type: ignore[no-untyped-def]
    """|mv - sv| of two int64 as uint64."""
    return np.uint64(mv) - np.uint64(sv) if mv > sv else np.uint64(sv) - np.uint64(mv)


@_njit
def integer_error(mv, sv):  # type: ignore[no-untyped-def]
    """The error of `mv` for the integer `sv` in its own unit, never too small."""
    return _at_least(_gap(mv, sv))


@_njit
def integer_error_pct(mv, sv):  # type: ignore[no-untyped-def]
    """The error in % of `mv` for the integer `sv`, infinity where one of them is 0 and the other is not."""
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
    """Whether the integer `mv` stands for `sv` within both limits, of which one may be infinity."""
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
