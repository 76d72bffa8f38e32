"""With which numbers the sources of a query's inputs ended the window before, so that a gap at its edge is seen.

The first number of a window follows the last one of the window right before it (`sequence`): a source that fell silent
over the end of a window, or for whole windows, has lost what lies between, and the window that ends the gap counts it.
The window right before is the last earlier one that is known. Where that was not worked out, or nothing of it was kept,
nobody knows how it ended, and nothing is counted at the edge. What comes late for a window is counted late there; the
next window, which may have counted it lost, stays as it is.

A source is told by the input, the attribute with its numbers, and its value of `by`; numbers travel among what is
counted of a window (`last.<input>.<attribute>.<source>`) and stand in `coverage` as `last_numbers`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spillway.levers.protocol import Views
from spillway.levers.quality.history import COVERAGE
from spillway.levers.quality.settings import Numbered
from spillway.levers.quality.sources import counted_sources, previous_sources
from spillway.levers.windows import DONE, Window

_LAST = "last"
_PARTS = ("input", "attribute", "source")
Numbers = Mapping[str, int]
"""By input, attribute and source, a number: some of what is counted of a window."""


def place_of(one: Numbered, source: object) -> str:
    """Under which name a source's last number is counted.

    >>> place_of(Numbered(input="sites", attribute="poll", by="site"), "s.1")
    'last.sites.poll.s.1'
    """
    return f"{_LAST}.{one.input}.{one.attribute}.{'' if source is None else source}"


def last_numbers(counts: Numbers) -> list[dict[str, Any]]:
    """What was counted as `coverage` keeps it.

    >>> last_numbers({"last.sites.poll.s.1": 7, "rows": 3})
    [{'input': 'sites', 'attribute': 'poll', 'source': 's.1', 'number': 7}]
    """
    mine = ((name.split(".", 3), number) for name, number in sorted(counts.items()))
    return [
        {**dict(zip(_PARTS, parts[1:], strict=True)), "number": number}
        for parts, number in mine
        if parts[0] == _LAST
    ]


@dataclass(frozen=True)
class NumbersBefore:
    """How the windows before some windows ended."""

    right_before: Mapping[int, int] = field(default_factory=dict)
    """By window, the one right before it, where that was worked out or is in this run."""
    told: Mapping[int, Numbers] = field(default_factory=dict)
    """By window that was worked out before this run, how it ended."""

    def of(self, window: int, this_run: Mapping[int, Numbers]) -> Numbers:
        """How the window right before one ended; nothing where nobody knows."""
        before = self.right_before.get(window)
        if before is None:
            return {}
        found = this_run.get(before) or self.told.get(before, {})
        numbers = {name: number for name, number in found.items() if name.startswith(_LAST + ".")}
        return numbers | previous_sources(found)


def numbers_before(tables: Views, subject: str, windows: Sequence[Window], overlap: int = 1) -> NumbersBefore:
    """Return the state at the end of the windows before these; `overlap`: number of windows that contain a moment."""
    now = {one.window for one in windows}
    rows = tables.at("windows").rows(["window", "status"], subject=subject).to_pylist()
    status = {row["window"]: row["status"] for row in rows}
    known = sorted(status.keys() | now)
    ended = {n for n in known if n in now or status[n] == DONE}
    right_before = {}
    for n in now:
        # the last window that does not reach into this one
        at = bisect_right(known, n - overlap)
        if at and known[at - 1] in ended:
            right_before[n] = known[at - 1]
    asked = sorted(set(right_before.values()) - now)
    found = (
        tables.at(COVERAGE).rows(["window", "last_numbers", "sources"], subject=subject, window=asked)
        if asked
        else None
    )
    told = {
        row["window"]: {
            f"{_LAST}.{one['input']}.{one['attribute']}.{one['source']}": one["number"]
            for one in row["last_numbers"] or ()
        }
        | counted_sources(row["sources"] or ())
        for row in (found.to_pylist() if found is not None else ())
    }
    return NumbersBefore(right_before, told)
