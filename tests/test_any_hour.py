"""Run the fast suites in other zones and on 29 February. `make test-long` runs this; it takes minutes."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from tests.conftest import ROOT, asks_for_spark

FOLDERS = ("contracts", "intake", "pipeline", "records", "show", "store")


def next_leap_day(today: datetime) -> datetime:
    year = next(
        year
        for year in range(today.year, today.year + 9)
        if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    )
    day = datetime(year, 2, 29, 12, tzinfo=UTC)
    return day if day > today else next_leap_day(datetime(year + 1, 1, 1, tzinfo=UTC))


@pytest.mark.long
@pytest.mark.parametrize(
    ("zone", "clock"),
    [
        ("Pacific/Kiritimati", None),
        ("America/St_Johns", None),
        ("UTC", next_leap_day(datetime.now(UTC)).isoformat()),
    ],
    ids=["14 hours ahead", "3.5 hours behind", "29 February"],
)
def test_suites_pass_in_any_zone_and_on_any_date(zone: str, clock: str | None) -> None:
    files = [
        str(path)
        for folder in FOLDERS
        for path in sorted((ROOT / "tests" / folder).rglob("test_*.py"))
        if not asks_for_spark(path)
    ]
    environment = {**os.environ, "TZ": zone, **({"SPILLWAY_TEST_CLOCK": clock} if clock else {})}
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(run, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
