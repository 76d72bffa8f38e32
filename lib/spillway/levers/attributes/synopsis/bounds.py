"""The error test, once: how far a value given back may be from the one that was shed.

    error_pct = |mv - sv| / |sv| x 100        (Algorithm 3's test, with |sv| for the text's sv: errata A17, A18)

in float64, in exactly this order of operations, wherever it is asked: by the kernels that decide what to store or how
to round, by the curve that a threshold is read off, and by the certificate. One arithmetic, so that no value can be a
violation by rounding alone.

- sv = 0 has error 0 when mv = 0, else infinity;
- NaN, +inf and -inf have error 0 when given back as they are, else infinity;
- integers are told apart exactly (no overflow, no float64 rounding of the difference). What is beyond 2^53 on the way
  to float64 is rounded *against* the value, the difference up and |sv| down, by 2048 at most: in doubt strict.

>>> real_error_pct(30.08, 29.91) < 0.6, real_error_pct(1.0, 0.0), real_error_pct(np.nan, np.nan)
(True, inf, 0.0)
>>> within_integer(104, 100, 4.0), within_integer(-1, 2**63 - 1, 100.0)
(True, False)
"""

from __future__ import annotations

import numpy as np
from numba import njit

# x / 0 is infinity, as IEEE 754 has it, and no exception that keeps a loop from being fast
_njit = njit(cache=True, error_model="numpy")
_EXACT = np.uint64(1 << 53)
_LAST_BITS = np.uint64(2047)  # what is left of 64 bits without these, a float64 holds


@_njit
def real_error_pct(mv, sv):  # type: ignore[no-untyped-def]
    """The error in % of `mv` for the real `sv`, infinity where no finite error describes it; never NaN."""
    if mv == sv:
        return 0.0
    error = abs(mv - sv) / abs(sv) * 100.0
    if error == error:
        return error
    return 0.0 if mv != mv and sv != sv else np.inf


@_njit
def within_real(mv, sv, limit_pct):  # type: ignore[no-untyped-def]
    """Whether the real `mv` stands for `sv` within the limit."""
    return real_error_pct(mv, sv) <= limit_pct


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
def integer_error_pct(mv, sv):  # type: ignore[no-untyped-def]
    """The error in % of `mv` for the integer `sv`, infinity where `sv` is 0 and `mv` is not."""
    if mv == sv:
        return 0.0
    gap = np.uint64(mv) - np.uint64(sv) if mv > sv else np.uint64(sv) - np.uint64(mv)
    size = _magnitude(sv)
    if (gap | size) < _EXACT:
        return np.float64(gap) / np.float64(size) * 100.0
    return _at_least(gap) / _at_most(size) * 100.0


@_njit
def within_integer(mv, sv, limit_pct):  # type: ignore[no-untyped-def]
    """Whether the integer `mv` stands for `sv` within the limit."""
    return integer_error_pct(mv, sv) <= limit_pct
