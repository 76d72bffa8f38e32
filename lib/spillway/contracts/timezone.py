"""Times without an offset are local times in the contract's `timezone`, by the same rule for records and queries.

When clocks are set back, a local time occurs twice: the earlier one is meant. When clocks are set forward, some local
times do not exist: such a time is refused.

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

from spillway.contracts.fields import Report, suggest

UTC_NAME = "UTC"


def utc_moment(local: datetime, zone: str) -> datetime | None:
    """Return the time in UTC; None if it has no offset and does not exist in the zone."""
    if local.tzinfo is not None:
        return local.astimezone(UTC)
    there = ZoneInfo(zone)
    moment = local.replace(tzinfo=there, fold=0).astimezone(UTC)
    return moment if moment.astimezone(there).replace(tzinfo=None) == local.replace(fold=0) else None


def in_zone(moment: datetime, zone: str) -> datetime:
    """Return the moment as a local time in the zone."""
    return moment.astimezone(ZoneInfo(zone))


@cache
def _known_zones() -> frozenset[str]:
    return frozenset(available_timezones())


_REGIONS_OF = {
    "WET WEST": "Europe/Lisbon", "BST": "Europe/London", "CET CEST MEZ MESZ": "Europe/Berlin",
    "EET EEST": "Europe/Athens", "MSK": "Europe/Moscow", "IST": "Asia/Kolkata", "SGT": "Asia/Singapore",
    "JST": "Asia/Tokyo", "KST": "Asia/Seoul", "AEST AEDT": "Australia/Sydney", "NZST NZDT": "Pacific/Auckland",
    "EST EDT": "America/New_York", "CST CDT": "America/Chicago", "MST MDT": "America/Denver",
    "PST PDT": "America/Los_Angeles", "BRT": "America/Sao_Paulo",
}  # fmt: skip
"""An example of a region for each abbreviation; most abbreviations are used in several regions."""


def zone_remedy(value: object) -> str:
    """Return what to write instead of a name that is not a zone. It is never an abbreviation: that may be hours off.

    >>> zone_remedy("CEST")
    'write the region whose clocks are meant, e.g. Europe/Berlin, or UTC'
    >>> zone_remedy("Europe/Berln"), zone_remedy("utc")
    ('did you mean Europe/Berlin?', 'did you mean UTC?')
    """
    text = str(value).strip().upper()
    if text == UTC_NAME:
        return f"did you mean {UTC_NAME}?"
    regions = sorted(one for one in _known_zones() if "/" in one and not one.startswith("Etc/"))
    near = suggest(value, regions) if "/" in text else ""
    if near.startswith("did you mean"):
        return near
    region = next((region for names, region in _REGIONS_OF.items() if text in names.split()), "Europe/Berlin")
    return f"write the region whose clocks are meant, e.g. {region}, or UTC"


@dataclass(frozen=True)
class ZoneName:
    """The shape of a time zone's name in the IANA database; this machine's database must have the zone."""

    def read(self, value: object, path: str, report: Report) -> Any:
        if not isinstance(value, str) or value not in _known_zones():
            return report.add(path, "be a time zone of the IANA database", value, zone_remedy(value))
        return value

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_+/-]*$"}
