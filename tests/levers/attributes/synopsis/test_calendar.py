from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.errors import InvalidValue
from spillway.levers.attributes.synopsis.model import PARTS, TICKS, ClockPart, clock_part, part_of


def by_datetime(seconds, part):
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    if part == "weekday":
        return at.weekday()
    return at.timetuple().tm_yday if part == "yearday" else getattr(at, part)


@given(
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 28)),
    st.integers(-14 * 4, 14 * 4),
    st.sampled_from(PARTS),
    st.sampled_from(["s", "ms", "us"]),
)
def test_every_part_is_what_python_says(at, quarters, part, unit):
    seconds = int((at.replace(microsecond=0) - datetime(1970, 1, 1)).total_seconds())
    ticks = np.array([seconds * TICKS[unit] + TICKS[unit] - 1])
    wanted = ClockPart(unit, quarters * 900, part)
    assert clock_part(ticks, wanted).tolist() == [by_datetime(seconds + quarters * 900, part)]
    assert part_of(wanted.of("at")) == wanted


@given(st.dates(), st.sampled_from(["year", "month", "day", "weekday", "yearday"]))
def test_dates_have_parts_too(date, part):
    days = (date - datetime(1970, 1, 1).date()).days
    assert clock_part(np.array([days]), ClockPart("d", 0, part)).tolist() == [by_datetime(days * 86400, part)]


@pytest.mark.parametrize("name", ["at", "at#hour", "at#us+0.century", "at#y+0.hour"])
def test_a_name_that_says_no_part_is_refused(name):
    with pytest.raises(InvalidValue, match="name a unit, an offset and a part"):
        part_of(name)
