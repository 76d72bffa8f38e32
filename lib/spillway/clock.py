"""The clock. Only this module reads the wall clock, so that tests can run at any hour and date."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime


def _wall_clock() -> datetime:
    return datetime.now(UTC)


_clock: Callable[[], datetime] = _wall_clock


def utc_now() -> datetime:
    """Return the present moment in UTC. Results that depend on it are recorded and never recomputed."""
    return _clock()


@contextmanager
def use_clock(clock: Callable[[], datetime]) -> Iterator[None]:
    """Replace the clock of `utc_now` in this process until the block ends.

    >>> with use_clock(lambda: datetime(2028, 2, 29, tzinfo=UTC)):
    ...     utc_now().date().isoformat()
    '2028-02-29'
    """
    global _clock
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before
