"""A wrong zone never becomes another wrong zone by its remedy (newcomer B15)."""

from __future__ import annotations

import pytest

from spillway.contracts.fields import Report
from spillway.contracts.timezone import ZoneName


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        ("CEST", "write the region whose clocks are meant, e.g. Europe/Berlin, or UTC"),
        ("PDT", "write the region whose clocks are meant, e.g. America/Los_Angeles, or UTC"),
        ("XYZT", "write the region whose clocks are meant, e.g. Europe/Berlin, or UTC"),
        ("Europe/Belrin", "did you mean Europe/Berlin?"),
        ("utc", "did you mean UTC?"),
        (7, "write the region whose clocks are meant, e.g. Europe/Berlin, or UTC"),
    ],
)
def test_an_unknown_zone_gets_a_region_as_its_remedy(written: object, remedy: str) -> None:
    report = Report("weather.yaml")
    ZoneName().read(written, "timezone", report)
    (problem,) = report.problems
    assert problem.remedy == remedy
