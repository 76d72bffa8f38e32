"""One question, parsed once: what it means on the stream's clocks, and what it cannot mean."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.contracts import StreamContract, read_stream
from spillway.contracts.timezone import utc_moment
from spillway.errors import ContractError, UsageError
from spillway.records.convert import convert
from spillway.streams.query import StreamQuery


def stream(order: str = "timestamp", **more: Any) -> StreamContract:
    return read_stream(
        {
            "stream": "tides",
            "channel": "up",
            "source": {"format": "csv"},
            "attributes": [
                {"name": "port", "type": "string", "role": "key"},
                {"name": "at", "type": order, "role": "order"},
                {"name": "level", "type": "double"},
            ],
            **more,
        }
    )


BERLIN = stream(timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-07-01T08:00", datetime(2026, 7, 1, 6, tzinfo=UTC)),
        ("2026-07-01", datetime(2026, 6, 30, 22, tzinfo=UTC)),
        ("2026-07-01T08:00+05:00", datetime(2026, 7, 1, 3, tzinfo=UTC)),
        ("2026-07-01T08:00Z", datetime(2026, 7, 1, 8, tzinfo=UTC)),
        ("2026-10-25T02:30", datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
    ],
)
def test_a_time_without_an_offset_is_read_on_the_streams_clocks(text: str, moment: datetime) -> None:
    assert StreamQuery.parse(BERLIN, from_time=text).times == (moment, moment)


def test_without_a_timezone_in_the_contract_they_are_utc() -> None:
    asked = StreamQuery.parse(stream(), from_time="2026-07-01T08:00")
    assert asked.times == (datetime(2026, 7, 1, 8, tzinfo=UTC),) * 2


def test_a_time_that_the_streams_clocks_skip_is_refused_by_name() -> None:
    with pytest.raises(UsageError) as problem:
        StreamQuery.parse(BERLIN, to_time="2026-03-29T02:30")
    assert str(problem.value) == (
        "`to_time` must be a time that clocks in Europe/Berlin show, got '2026-03-29T02:30', which they skip; "
        "write it with its offset, as 2026-03-29T02:30Z"
    )


def test_a_date_is_a_date_and_a_moment_the_date_that_the_streams_clocks_show() -> None:
    tides = stream("date", timezone="Asia/Tokyo")
    assert StreamQuery.parse(tides, from_time="2026-07-01").times == (date(2026, 7, 1),) * 2
    assert StreamQuery.parse(tides, from_time="2026-07-01T20:00Z").times == (date(2026, 7, 2),) * 2


@pytest.mark.parametrize("zone", ["Middle/Earth", "../UTC", 1, ""])
def test_a_timezone_that_nobody_knows_is_refused(zone: object) -> None:
    with pytest.raises(ContractError, match="`timezone` must be a time zone of the IANA database, got"):
        stream(timezone=zone)


@given(
    local=st.datetimes(datetime(1950, 1, 1), datetime(2037, 1, 1)),
    zone=st.sampled_from(
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]
    ),
)
def test_records_and_questions_read_the_same_text_as_the_same_moment(local: datetime, zone: str) -> None:
    import pyarrow as pa

    (value,), (bad,) = convert(pa.array([local.isoformat()]), "timestamp", zone)
    assert value.as_py() == utc_moment(local, zone)
    assert bad == (utc_moment(local, zone) is None)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_time_that_leaves_the_calendar_without_its_offset_is_refused_by_name(text: str) -> None:
    with pytest.raises(
        UsageError, match="`from_time` must be in the years 1 to 9999 also without its offset"
    ):
        StreamQuery.parse(BERLIN, from_time=text)
