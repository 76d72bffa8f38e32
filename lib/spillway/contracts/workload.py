# ruff: noqa: RUF009 - `rule` is dataclasses.field with a shape; it makes no shared value
"""The contract of a workload: a join or a query, which reads one or more streams, window by window.

Each file of `schemas/joins/*.yaml` and `schemas/queries/*.yaml` has one workload. The contract of a stream does not
refer to workloads.

>>> from spillway.contracts.loader import read_workload
>>> gusts = read_workload({
...     "name": "gusts", "inputs": ["weather", "network"], "window": {"seconds": 60},
...     "levers": [{"lever": "attributes"}],
... })
>>> gusts.inputs, gusts.window.seconds, gusts.lever_names
(('weather', 'network'), 60.0, ('attributes',))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spillway.contracts.fields import (
    DRAFT,
    SUBJECT_NAME,
    Broken,
    Choice,
    Listing,
    Number,
    OptionalValue,
    Record,
    Text,
    rule,
)
from spillway.contracts.levers import LeverEntry, Levers, Subject
from spillway.contracts.sections import RETAINED, AlertHook

LONGEST_SECONDS = 1e10
"""About 300 years: longer than any data, and short enough for a 64-bit count of microseconds."""


MOST_OVERLAP = 1000
"""The maximum number of windows that contain the same moment."""


@dataclass(frozen=True, kw_only=True)
class TimeSpan:
    """The windows of a workload: their length in seconds of event time, and the step between them."""

    seconds: float = rule(
        Number(above=0, most=LONGEST_SECONDS), "length of a window, in seconds of event time"
    )
    rows_of: str = rule(
        Choice(("any", "all")),
        "any: a window exists if any input has rows in it; all: only if all inputs have",
        "any",
    )
    waits_seconds: float | None = rule(
        OptionalValue(Number(above=0, most=LONGEST_SECONDS)),
        "a window is closed without slower inputs if the fastest input is this number of seconds (event time) "
        "past its end; rows that arrive later open it again; null: the window waits for all inputs",
        None,
    )

    slide_seconds: float | None = rule(
        OptionalValue(Number(above=0, most=LONGEST_SECONDS)),
        "seconds from the start of a window to the start of the next; `seconds` must be a multiple of it; if it "
        "is smaller than `seconds`, windows overlap; null: same as `seconds`",
        None,
    )

    @property
    def step(self) -> int:
        """Microseconds from the start of a window to the start of the next."""
        return max(1, round((self.slide_seconds or self.seconds) * 1e6))

    @property
    def overlap(self) -> int:
        """The number of windows that contain the same moment."""
        return round(self.seconds * 1e6 / self.step) if self.slide_seconds else 1

    def rules(self) -> Iterator[Broken]:
        if self.slide_seconds is None or not isinstance(self.seconds, int | float):
            return
        times = self.seconds / self.slide_seconds
        if times < 1 or abs(self.overlap * self.step - self.seconds * 1e6) > 0.5 or times > MOST_OVERLAP:
            yield (
                "slide_seconds",
                f"divide window.seconds into a whole number of parts, from 1 to {MOST_OVERLAP:,}",
                self.slide_seconds,
                f"write e.g. {self.seconds / 2:g}",
            )


@dataclass(frozen=True, kw_only=True)
class Workload(Subject):
    """A join or a query: the streams it reads, its windows, and its levers, which reduce its input."""

    name: str = rule(SUBJECT_NAME, "name of the join or query, its tables and its folders")
    description: str = rule(Text(blank=True), "description in one sentence", "")
    inputs: tuple[str, ...] = rule(
        Listing(Text(), least=1),
        "the input streams, in order; a stream that is listed twice is joined with itself",
    )
    window: TimeSpan = rule(Record(TimeSpan), "the windows of event time")
    capacity_group: str | None = rule(
        OptionalValue(Text()),
        "name of the capacity group; all queries of the group share its capacity, for example that of a cluster; "
        "null: the query has its own capacity",
        None,
        former="room",
    )
    levers: tuple[LeverEntry, ...] = rule(Levers(least=1), "the levers, in order")
    alerts: tuple[AlertHook, ...] = rule(
        Listing(Record(AlertHook)),
        "hooks that receive alerts about the join or query, including failed expectations",
        (),
    )
    retain_days: int | None = rule(
        RETAINED, "retention of the results, in days after their window; null: without limit", None
    )

    @property
    def subject(self) -> str:
        return self.name

    @staticmethod
    def schema_extra() -> dict[str, Any]:
        return {"$schema": DRAFT, "title": "Spillway join or query"}
