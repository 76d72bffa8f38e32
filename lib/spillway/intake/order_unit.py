"""Recognise the unit of an integer order attribute: an epoch, a year, a month, a date, or none (a row number).

A rate is per second, so the unit must be known. The contract may state it (`unit: ms`). Otherwise it is recognised by
the attribute's name together with the magnitude of its values. If the two disagree, or if neither is conclusive, the
unit is unknown, and event time gives no rate.

>>> import numpy as np
>>> [recognise_unit(name, np.array(values)) for name, values in (
...     ("event_time", [1_700_000_000, 1_700_000_060]), ("ts", [1_700_000_000_000]), ("uptime_ms", [0, 20, 40]),
...     ("year", [2001, 2002]), ("month", [200_112, 200_201]), ("date", [20_011_231, 20_020_101]),
...     ("row_number", [1_700_000_000]), ("time_ms", [1_700_000_000]), ("month", [1, 2, 12]))]
['s', 'ms', 'ms', 'year', 'yyyymm', 'yyyymmdd', None, None, None]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

SECONDS_PER = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "minute": 60.0,
    "hour": 3_600.0,
    "day": 86_400.0,
    "yyyymmdd": 86_400.0,
    "yyyymm": 365.2425 * 86_400 / 12,
    "year": 365.2425 * 86_400,
}
"""Seconds per step of each unit, from the finest to the coarsest; a month and a year have their mean length."""

_EPOCH_DIGITS = {"s": (9, 10), "ms": (12, 13), "us": (15, 16), "ns": (18, 19)}
"""Decimal digits of an epoch between 1973 and 2286, in each unit."""

EPOCH_UNITS = frozenset([*_EPOCH_DIGITS, "yyyymmdd"])
"""Units whose values are moments, even if they are not sorted in a sample."""

_SUFFIXES = {
    "ns": "ns", "nanos": "ns", "nanoseconds": "ns",
    "us": "us", "micros": "us", "microseconds": "us",
    "ms": "ms", "millis": "ms", "milliseconds": "ms", "msec": "ms",
    "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "minute": "minute", "minutes": "minute", "hour": "hour", "hours": "hour", "day": "day", "days": "day",
}  # fmt: skip
"""Words at the end of a name, and in `unit:`, that name a unit."""
_PARTS_OF_TIME = frozenset(["second", "minute", "hour", "day"])
"""Names whose values are more often a field of a clock or calendar (0 to 59, 1 to 31) than an elapsed time."""
_TIME_WORDS = frozenset(
    ["at", "t", "ts", "time", "timestamp", "datetime", "epoch", "unix", "when", "created", "updated", "received",
     "sent", "start", "end", "started", "ended", "clock", "utc"]
)  # fmt: skip
_COUNTER_WORDS = frozenset(
    ["id", "ids", "index", "idx", "row", "rows", "rownum", "rowid", "no", "nr", "num", "number", "n", "seq", "sequence",
     "counter", "count", "offset", "ordinal", "serial", "unnamed", "line", "record", "key", "position"]
)  # fmt: skip
_ROW_WORDS = frozenset(
    ["row", "rows", "rownum", "rowid", "index", "idx", "no", "nr", "line", "record", "unnamed"]
)
"""Words in the name of a row number; `id` alone and an empty header are row numbers, too."""
_FIRST_YEAR, _LAST_YEAR = 1000, 2999


def stated_unit(text: str | None) -> str | None:
    """Return the unit that a contract's `unit:` names, or None if it names no unit of time.

    >>> stated_unit("milliseconds"), stated_unit("yyyymm"), stated_unit("degC"), stated_unit(None)
    ('ms', 'yyyymm', None, None)
    """
    word = (text or "").strip().lower()
    return word if word in SECONDS_PER else _SUFFIXES.get(word)


def recognise_unit(name: str, values: Integers) -> str | None:
    """Return the unit of an order attribute's values by its name and their magnitude, or None if it is unknown."""
    if not len(values):
        return None
    words = name.lower().split("_")
    typical = int(np.median(values))
    by_suffix = None if words[-1] in _PARTS_OF_TIME else _SUFFIXES.get(words[-1])
    by_digits = next(
        (unit for unit, digits in _EPOCH_DIGITS.items() if len(str(abs(typical))) in digits), None
    )
    if by_suffix is not None:
        # an elapsed time may be small; an epoch of another unit contradicts the name
        return by_suffix if by_digits in (None, by_suffix) else None
    if "year" in words or "yr" in words:
        return "year" if _mostly((values >= _FIRST_YEAR) & (values <= _LAST_YEAR)) else None
    calendar = _calendar_unit(values)
    if {"month", "date", "day", "yyyymm", "yyyymmdd", "period", "dt"} & set(words):
        return calendar or (by_digits if "date" in words or "dt" in words else None)
    if _COUNTER_WORDS & set(words):
        return None
    if _TIME_WORDS & set(words):
        return by_digits
    # the name gives no unit: counters of twelve digits and more are rare, counters of ten are not
    return by_digits if by_digits in ("ms", "us", "ns") else None


def is_row_number(name: str, values: Integers) -> bool:
    """Return whether a column is a row number: by its name, and because it rises by one from row to row.

    >>> is_row_number("no", np.arange(9)), is_row_number("at", np.arange(9)), is_row_number("no", np.arange(9) * 3)
    (True, False, False)
    """
    words = set(name.lower().split("_"))
    if _TIME_WORDS & words or not (_ROW_WORDS & words or name in ("id", "", "a_")):
        return False
    return len(values) > 1 and _mostly(np.diff(values) == 1)


def in_steps(values: Integers, unit: str) -> Integers:
    """Return values as steps of the unit: calendar numbers become years, months or days since 1970.

    >>> [in_steps(np.array(values), unit).tolist() for values, unit in (
    ...     ([200_112, 200_201], "yyyymm"), ([20_011_231, 20_020_101], "yyyymmdd"), ([1971], "year"))]
    [[383, 384], [11687, 11688], [1]]
    """
    if unit == "year":
        return values - 1970
    if unit == "yyyymm":
        return (values // 100 - 1970) * 12 + values % 100 - 1
    if unit == "yyyymmdd":
        months = (values // 10_000 - 1970) * 12 + values // 100 % 100 - 1
        return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + values % 100 - 1
    return values


def _calendar_unit(values: Integers) -> str | None:
    """Return `yyyymm` or `yyyymmdd` if nearly all values have that form."""
    for unit, month, day in (("yyyymm", values % 100, None), ("yyyymmdd", values // 100 % 100, values % 100)):
        year = values // (100 if day is None else 10_000)
        fits = (year >= _FIRST_YEAR) & (year <= _LAST_YEAR) & (month >= 1) & (month <= 12)
        if _mostly(fits if day is None else fits & (day >= 1) & (day <= 31)):
            return unit
    return None


def _mostly(mask: npt.NDArray[np.bool_]) -> bool:
    return float(mask.mean()) >= 0.95
