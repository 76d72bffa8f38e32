"""The clock of unit and pipeline tests. Not a test.

It starts at noon, so that no test runs across midnight, and runs on as the wall clock does. Files that tests write
carry the wall clock's time; the test clock is never behind it, so it starts at the next noon. `SPILLWAY_TEST_CLOCK`
sets another start, for example 2028-02-29T12:00Z.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta


def next_noon(wall: datetime) -> datetime:
    """Return the first noon after a moment.

    >>> next_noon(datetime(2026, 12, 31, 23, 59, tzinfo=UTC)).isoformat()
    '2027-01-01T12:00:00+00:00'
    """
    noon = wall.replace(hour=12, minute=0, second=0, microsecond=0)
    return noon if noon > wall else noon + timedelta(days=1)


_WALL = datetime.now(UTC)
_STATED = os.environ.get("SPILLWAY_TEST_CLOCK")
START = datetime.fromisoformat(_STATED) if _STATED else next_noon(_WALL)
"""Where the clock of this process starts."""
assert START.tzinfo is not None, f"SPILLWAY_TEST_CLOCK must name its zone, got {_STATED!r}: write ...Z"
assert _WALL <= START, f"SPILLWAY_TEST_CLOCK must lie ahead, got {_STATED!r}: name a later date"


def now() -> datetime:
    """Return the test clock's present moment."""
    return START + (datetime.now(UTC) - _WALL)
