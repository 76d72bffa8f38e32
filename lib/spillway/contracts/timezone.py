"""Times without an offset: read on the clocks of the contract's `timezone`, by one rule for records and questions.

Where clocks are set back a local time is shown twice: it means the earlier. Where they are set forward some are never
shown: such a time is refused, for whatever it was meant to be, no clock showed it.

>>> utc_moment(datetime(2026, 10, 25, 2, 30), "Europe/Berlin").isoformat()
'2026-10-25T00:30:00+00:00'
>>> utc_moment(datetime(2026, 3, 29, 2, 30), "Europe/Berlin") is None
True
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from spillway.contracts.shapes import Report, suggest

UTC_NAME = "UTC"


def utc_moment(local: datetime, zone: str) -> datetime | None:
    """The moment, in UTC; None where it has no offset and clocks in the zone never showed it."""
    if local.tzinfo is not None:
        return local.astimezone(UTC)
    there = ZoneInfo(zone)
    moment = local.replace(tzinfo=there, fold=0).astimezone(UTC)
    return moment if moment.astimezone(there).replace(tzinfo=None) == local.replace(fold=0) else None


def in_zone(moment: datetime, zone: str) -> datetime:
    """The moment as clocks in the zone show it."""
    return moment.astimezone(ZoneInfo(zone))


@cache
def _known_zones() -> frozenset[str]:
    return frozenset(available_timezones())


@dataclass(frozen=True)
class ZoneName:
    """A time zone by its name in the IANA database, which this machine must know."""

    def read(self, value: object, path: str, report: Report) -> Any:
        if not isinstance(value, str) or value not in _known_zones():
            near = suggest(value, sorted(_known_zones())) if isinstance(value, str) else ""
            remedy = near if near.startswith("did you mean") else "write e.g. Europe/Berlin, or UTC"
            return report.add(path, "be a time zone of the IANA database", value, remedy)
        return value

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_+/-]*$"}
