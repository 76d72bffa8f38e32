"""Show up to how many similar queries a capacity group pays, from a replay (`spillway what-if ROOM --more`).

A replay runs the group's windows again, so it runs only on request. Its result is stored in the build folder
(`what_if/<room>.json`). The report draws it like Figures 6.10 and 6.11 of Fiscato (2012): how much cheaper each
query gets if more queries share the work, and how much worse its answers get.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from spillway.levers.loss_curve import tipping_point, trade_off
from spillway.levers.protocol import Picture
from spillway.workloads.what_if import QueryOutcome

FOLDER = "what_if"


@dataclass(frozen=True)
class CrowdedStep:
    """The cost and the quality for one number of queries."""

    queries: int
    cheaper_pct: float
    worse_pct: float
    coverage: float
    error_pct: float


@dataclass(frozen=True)
class CrowdedGroup:
    """A capacity group with the steps of its growing number of queries."""

    room: str
    asked_on: str
    tipping_point_queries: int
    steps: tuple[CrowdedStep, ...]

    @property
    def sentence(self) -> str:
        """Return a sentence that says up to how many queries sharing pays."""
        tips = self.tipping_point_queries
        end = (
            "more than these were not tried"
            if tips == max(step.queries for step in self.steps)
            else "beyond, answers get worse by more than that"
        )
        return (
            f"Queries like these in {self.room} get cheaper by more than they get worse up to {tips}; {end}."
        )


def crowded_group(room: str, found: Mapping[int, Mapping[str, QueryOutcome]], asked_on: date) -> CrowdedGroup:
    """Return the trade-off of a replay.

    `found`: the outcomes of each query, by the factor by which the number of queries was multiplied.

    >>> fared = {n: {"q": QueryOutcome(1.0 / n, 1.0 / n, 10.0 * (n - 1), 9, 0.1)} for n in (1, 2, 4)}
    >>> room = crowded_group("desk", fared, date(2026, 1, 1))
    >>> [(step.queries, step.cheaper_pct, round(step.worse_pct)) for step in room.steps], room.tipping_point_queries
    ([(1, 0.0, 0), (2, 50.0, 10), (4, 75.0, 30)], 4)
    """
    queries = len(next(iter(found.values())))
    outcomes = {times * queries: list(fared.values()) for times, fared in found.items()}
    coverage = {n: sum(one.coverage for one in fared) / len(fared) for n, fared in outcomes.items()}
    quality = {n: sum(1 - one.error_pct / 100 for one in fared) / len(fared) for n, fared in outcomes.items()}
    steps = [
        CrowdedStep(n, 100 * cheaper, 100 * worse, coverage[n], 100 * (1 - quality[n]))
        for n, (cheaper, worse) in trade_off(quality).items()
    ]
    return CrowdedGroup(room, asked_on.isoformat(), tipping_point(quality), tuple(steps))


def store_crowded(build: str, found: CrowdedGroup) -> Path:
    """Store the result for the report; return its path."""
    path = Path(build, FOLDER, f"{found.room}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(found), indent=2) + "\n", encoding="utf-8")
    return path


def crowding_pictures(build: str) -> Iterator[Picture]:
    """Yield a chart for each stored result."""
    for path in sorted(Path(build, FOLDER).glob("*.json")):
        held = json.loads(path.read_text(encoding="utf-8"))
        steps = tuple(CrowdedStep(**step) for step in held.pop("steps"))
        yield _picture(CrowdedGroup(**held, steps=steps))


def _picture(one: CrowdedGroup) -> Picture:
    sides = (
        ("cheaper_pct", "each query is cheaper by", "planned"),
        ("worse_pct", "answers are worse by", "offered"),
    )
    lines = [
        {
            "name": name,
            "style": style,
            "points": [(step.queries, getattr(step, side)) for step in one.steps],
            "dots": True,
        }
        for side, name, style in sides
    ]
    return Picture(
        f"Room {one.room}: cost against quality as more queries share it",
        "lines",
        {
            "lines": lines,
            "x": "queries like those of the room",
            "y": "%",
            "from_zero": True,
            "mark": (one.tipping_point_queries, f"pays up to {one.tipping_point_queries}"),
        },
        f"{one.sentence} Replayed on {one.asked_on} (spillway what-if {one.room} --more).",
        wide=True,
    )
