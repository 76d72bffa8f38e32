"""Parts of a time as regressors: "polled_at#us-18000.hour" is the hour, five hours behind UTC, of `polled_at`.

Columns that say when a tuple is from (year, month, day, hour, weekday) follow from its order attribute, which always
travels. The name of such a regressor is the attribute, `#`, the unit of its stored whole numbers (d, s, ms, us, ns),
the offset from UTC in seconds with its sign, a dot, and the part. Whole numbers throughout, the proleptic Gregorian
calendar (days to dates: Hinnant's `civil_from_days`), so every machine finds the same.

>>> at = np.array([1_357_012_800_000_000, 1_362_196_799_000_000])  # 2013-01-01T04:00:00Z, 2013-03-02T03:59:59Z
>>> [clock_part(at, part_of("t#us-18000." + part)).tolist() for part in ("year", "month", "day", "hour", "weekday")]
[[2012, 2013], [12, 3], [31, 1], [23, 22], [0, 4]]
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from spillway.errors import Refused

TICKS = {"d": 0, "s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks a second; 0 for days."""
PARTS = ("year", "month", "day", "weekday", "yearday", "hour", "minute", "second")
_DAY = 86_400
_NAME = re.compile(r"(?P<unit>d|s|ms|us|ns)(?P<offset>[+-]\d+)\.(?P<part>[a-z]+)")


class ClockPart(NamedTuple):
    """A part of a time: the attribute's unit, seconds ahead of UTC, and which part."""

    unit: str
    offset: int
    part: str

    def of(self, attribute: str) -> str:
        """The regressor's name.

        >>> ClockPart("us", -18000, "hour").of("polled_at")
        'polled_at#us-18000.hour'
        """
        return f"{attribute}#{self.unit}{self.offset:+d}.{self.part}"


def part_of(name: str) -> ClockPart:
    """What a regressor's name says after the `#`."""
    found = _NAME.fullmatch(name.partition("#")[2])
    if not found or found["part"] not in PARTS:
        raise Refused("name", "name a unit, an offset and a part of the calendar", name, "retrain")
    return ClockPart(found["unit"], int(found["offset"]), found["part"])


def clock_part(values: np.ndarray, wanted: ClockPart) -> np.ndarray:
    """That part of times in whole ticks since 1970, as whole numbers; Monday is weekday 0."""
    ticks = TICKS[wanted.unit]
    seconds = (values // ticks if ticks else values * _DAY) + wanted.offset
    days, second = seconds // _DAY, seconds % _DAY
    if wanted.part in ("hour", "minute", "second"):
        return {"hour": second // 3600, "minute": second // 60 % 60, "second": second % 60}[wanted.part]
    if wanted.part == "weekday":
        return (days + 3) % 7
    year, month, day = _date(days)
    if wanted.part == "yearday":
        return days - _days(year) + 1
    return {"year": year, "month": month, "day": day}[wanted.part]


def _date(days: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shifted = days + 719_468
    era, of_era = shifted // 146_097, shifted % 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    from_march = (5 * of_year + 2) // 153
    month = np.where(from_march < 10, from_march + 3, from_march - 9)
    return year + era * 400 + (month <= 2), month, of_year - (153 * from_march + 2) // 5 + 1


def _days(year: np.ndarray) -> np.ndarray:
    """Days from 1970 to the first of January."""
    before = year - 1
    return 365 * (year - 1970) + (before // 4 - before // 100 + before // 400) - 477
