"""What the queries of a room were offered and reached before, from the table `coverage`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spillway.levers.protocol import Views
from spillway.levers.quality.overload import TupleCost

COVERAGE = "coverage"
_COLUMNS = (
    "subject",
    "window",
    "slice",
    "sic",
    "tuples_kept",
    "cost",
    "cost_offered",
    "seconds",
    "arrived_first",
)
MEASURED = 10
"""Measurements of what a tuple costs that are averaged over."""


@dataclass
class RoomHistory:
    """By query and slice: what it reached, what it was offered, and what it was given."""

    sic: dict[str, dict[int, list[float]]] = field(default_factory=lambda: defaultdict(dict))
    offered: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    given: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    tuple_cost: dict[str, TupleCost] = field(default_factory=dict)
    arrived_first: dict[tuple[str, int], int] = field(default_factory=dict)
    """By query and window, the tuples that were here when it was first worked out."""
    kept: dict[tuple[str, int], int] = field(default_factory=dict)
    """By query and window, the tuples that it was worked out of before it is again."""

    def add(self, query: str, number: int, sic: float, offered: float, given: float) -> None:
        """A window of a slice, worked out or planned."""
        self.sic[query].setdefault(number, []).append(sic)
        self.offered[query][number] = self.offered[query].get(number, 0.0) + offered
        self.given[query][number] = self.given[query].get(number, 0.0) + given

    def reached(self, query: str, before: int, slices: int) -> list[float]:
        """What it reached in the slices right before one, on average over the windows of each."""
        told = self.sic.get(query, {})
        return [sum(told[one]) / len(told[one]) for one in range(before - slices + 1, before) if one in told]

    def waited(self, query: str, before: int) -> int:
        """For how many of its last slices it was offered something and given nothing."""
        count = 0
        for number in sorted((n for n in self.offered.get(query, {}) if n < before), reverse=True):
            if self.given[query][number] > 0 or not self.offered[query][number]:
                break
            count += 1
        return count

    def load(self, number: int, queries: Iterable[str]) -> float:
        """What the queries were offered in a slice."""
        return sum(self.offered.get(query, {}).get(number, 0.0) for query in queries)

    def last_load(self, query: str, before: int) -> float:
        """What it was last offered before a slice; nothing where it never was."""
        told = {n: load for n, load in self.offered.get(query, {}).items() if n < before}
        return told[max(told)] if told else 0.0

    def windows_in(self, query: str, number: int) -> int:
        """How many of its windows in a slice were worked out or planned."""
        return len(self.sic.get(query, {}).get(number, ()))

    def windows_last_time(self, query: str, before: int) -> int:
        """How many windows it had in the last slice before one that it had any in."""
        told = [n for n in self.sic.get(query, {}) if n < before]
        return self.windows_in(query, max(told)) if told else 0


def room_history(
    tables: Views, room: str, again: Mapping[str, Collection[int]], slice_of: Any
) -> RoomHistory:
    """What stands in `coverage` of a room, without the windows that are worked out again; of them, what they cost.

    Slices are computed anew from the windows, so that another length of slice is another division of the same past.
    """
    found = RoomHistory()
    rows = tables.at(COVERAGE).rows([*_COLUMNS, "from_time"], room=room).to_pylist()
    for row in sorted(rows, key=lambda row: (row["from_time"], row["subject"])):
        query = row["subject"]
        # what a tuple costs was measured, whatever becomes of the window
        cost = found.tuple_cost.get(query, TupleCost(MEASURED))
        found.tuple_cost[query] = cost.after(row["seconds"], row["tuples_kept"])
        if row["window"] in again.get(query, ()):
            found.arrived_first[query, row["window"]] = row["arrived_first"]
            found.kept[query, row["window"]] = row["tuples_kept"]
            continue
        found.add(query, slice_of(row["from_time"]), row["sic"], row["cost_offered"], row["cost"])
    return found
