"""Recognise the unit of an integer order attribute: an epoch, a year, a month, a date, or none (a row number).

A rate is per second, so the unit must be known. The contract may state it (`unit: ms`). Otherwise it is recognised by
the attribute's name together with the magnitude of its values. If the two disagree, or if neither is conclusive, the
unit is unknown, and event time gives no rate. The magnitude alone is not conclusive: an article number (EAN) looks like
an epoch in ms, and an identifier with a time in it ("snowflake") looks like an epoch in ns. Values of two magnitudes
are not conclusive either, nor are date and hour as digits (2026010112), which look like an epoch.

>>> import numpy as np
>>> [recognise_unit(name, np.array(values)) for name, values in (
...     ("event_time", [1_700_000_000, 1_700_000_060]), ("ts", [1_700_000_000_000]), ("uptime_ms", [0, 20, 40]),
...     ("year", [2001, 2002]), ("month", [200_112, 200_201]), ("date", [20_011_231, 20_020_101]),
...     ("row_number", [1_700_000_000]), ("time_ms", [1_700_000_000]), ("month", [1, 2, 12]),
...     ("reading", [1_700_000_000_000]), ("time", [2_026_010_112, 2_026_010_113]))]
['s', 'ms', 'ms', 'year', 'yyyymm', 'yyyymmdd', None, None, None, None, None]
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

_LAST_NS = 5 * 10**18
"""Year 2128; a number near the end of the 64-bit range is not a time."""
_TICKS = ((12 * 10**16, 16 * 10**16), (62 * 10**16, 66 * 10**16))
"""Times of these decades as counts of 100 ns since 1601 or since the year 1 (Windows, .NET).

Read as epochs in ns, they are 1973 to 1975, and 1989 to 1990.
"""

_SUFFIXES = {
    "ns": "ns", "nanos": "ns", "nanoseconds": "ns",
    "us": "us", "micros": "us", "microseconds": "us",
    "ms": "ms", "millis": "ms", "milliseconds": "ms", "msec": "ms",
    "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "minute": "minute", "minutes": "minute", "hour": "hour", "hours": "hour", "day": "day", "days": "day",
}  # fmt: skip
"""Words that name a unit, at the end of a name and in `unit:`."""
_PARTS_OF_TIME = frozenset(["second", "minute", "hour", "day"])
"""Names whose values are more often a field of a clock or calendar (0 to 59, 1 to 31) than an elapsed time."""
_TIME_WORDS = frozenset(
    ["at", "t", "ts", "time", "timestamp", "datetime", "epoch", "unix", "when", "created", "updated",
     "started", "ended", "clock", "utc"]
)  # fmt: skip
_COUNTER_WORDS = frozenset(
    ["id", "ids", "index", "idx", "row", "rows", "rownum", "rowid", "no", "nr", "num", "number", "n", "seq", "sequence",
     "counter", "count", "offset", "ordinal", "serial", "unnamed", "line", "record", "key", "position"]
)  # fmt: skip
_ROW_WORDS = frozenset(
    ["row", "rows", "rownum", "rowid", "index", "idx", "no", "nr", "line", "record", "unnamed"]
)
"""Words in the name of a row number; `id` alone and an empty header are row numbers, too."""
_MOSTLY, _MIXED = 0.95, "mixed"
_FIRST_YEAR, _LAST_YEAR = 1000, 2999
_FIRST_WRITTEN_YEAR, _LAST_WRITTEN_YEAR = 1850, 2099
"""Years that a date in digits may start with; most dates with a two-digit year (260131) start with no such year."""


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
    by_suffix = None if words[-1] in _PARTS_OF_TIME else _SUFFIXES.get(words[-1])
    if by_suffix is not None:
        # an elapsed time may be small; an epoch of another unit contradicts the name
        agrees = _epoch_units(values) <= {by_suffix, _MIXED} and not _is_written_moment(values)
        return by_suffix if agrees else None
    if "year" in words or "yr" in words:
        return "year" if _mostly((values >= _FIRST_YEAR) & (values <= _LAST_YEAR)) else None
    if {"month", "date", "day", "yyyymm", "yyyymmdd", "period", "dt"} & set(words):
        return _calendar_unit(values) or (_epoch_unit(values) if "date" in words or "dt" in words else None)
    if _COUNTER_WORDS & set(words):
        return None
    return _epoch_unit(values) if _TIME_WORDS & set(words) else None


def is_moment(unit: str | None, values: Integers) -> bool:
    """Return whether values of this unit are moments, as an epoch or a date is, and not elapsed time.

    >>> is_moment("ms", np.array([1_700_000_000_000])), is_moment("ms", np.array([0, 20]))
    (True, False)
    """
    return unit == "yyyymmdd" or (unit is not None and _epoch_unit(values) == unit)


def _epoch_unit(values: Integers) -> str | None:
    """Return the unit of an epoch if nearly all values have its number of digits and no other reading fits."""
    found = _epoch_units(values)
    return found.pop() if len(found) == 1 and not _is_written_moment(values) else None


def _epoch_units(values: Integers) -> set[str]:
    """Return the units that fit the digits; for values of two magnitudes several units, or one and `_MIXED`."""
    found, share = set[str](), 0.0
    for unit, (fewest, most) in _EPOCH_DIGITS.items():
        fits = (values >= 10 ** (fewest - 1)) & (values <= min(10**most - 1, np.iinfo(np.int64).max))
        fits |= (values <= -(10 ** (fewest - 1))) & (values >= max(1 - 10**most, -np.iinfo(np.int64).max))
        if unit == "ns":
            fits &= np.abs(values) <= _LAST_NS
            for first, last in _TICKS:
                fits &= (values < first) | (values > last)
        if fits.mean() > 1 - _MOSTLY:
            found.add(unit)
            share += float(fits.mean())
    return found | {_MIXED} if found and share < _MOSTLY else found


def _is_written_moment(values: Integers) -> bool:
    """Return whether nearly all values are a date in digits, followed by hour, hour and minute, or these and second."""
    for parts in range(1, 4):
        clock, fits = values, np.ones(len(values), bool)
        for place in range(parts, 0, -1):
            fits &= clock % 100 <= (23 if place == 1 else 59)
            clock = clock // 100
        if _mostly(fits & _is_written_date(clock)):
            return True
    return False


def is_row_number(name: str, values: Integers) -> bool:
    """Return whether a column is a row number: by its name, and because it rises by one from row to row.

    >>> is_row_number("no", np.arange(9)), is_row_number("at", np.arange(9)), is_row_number("no", np.arange(9) * 3)
    (True, False, False)
    """
    words = set(name.lower().split("_"))
    if _TIME_WORDS & words or not (_ROW_WORDS & words or name in ("id", "", "a_")):
        return False
    return len(values) > 1 and _mostly(np.diff(values) == 1)


def to_steps(values: Integers, unit: str) -> Integers:
    """Return values as steps of the unit: calendar numbers become years, months or days since 1970.

    >>> [to_steps(np.array(values), unit).tolist() for values, unit in (
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
    if _mostly(_is_written_month(values)):
        return "yyyymm"
    return "yyyymmdd" if _mostly(_is_written_date(values)) else None


def _is_written_month(values: Integers) -> npt.NDArray[np.bool_]:
    year, month = values // 100, values % 100
    fits = (year >= _FIRST_WRITTEN_YEAR) & (year <= _LAST_WRITTEN_YEAR) & (month >= 1) & (month <= 12)
    return np.asarray(fits)


def _is_written_date(values: Integers) -> npt.NDArray[np.bool_]:
    day = values % 100
    return np.asarray(_is_written_month(values // 100) & (day >= 1) & (day <= 31))


def _mostly(mask: npt.NDArray[np.bool_]) -> bool:
    return float(mask.mean()) >= _MOSTLY
