"""Explain a query: its coverage, its share of the capacity group, and what can be changed; draw its charts.

All figures are of the last `SHOWN_BATCHES` windows of each query, so the amount read does not grow with the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spillway.batch import SHOWN_BATCHES
from spillway.contracts.workload import Workload
from spillway.errors import format_number
from spillway.levers.protocol import LeverExplanation, Picture, Views
from spillway.levers.quality.admission import coverage_spread
from spillway.levers.quality.overload import COVERAGE, Measurements, fit_costs
from spillway.levers.quality.scaled_answer import NO_INTERVAL
from spillway.levers.quality.settings import QualitySettings

DRAWN_WINDOWS = 200
CoverageRows = Sequence[Mapping[str, Any]]


def explain_query(contract: Workload, tables: Views) -> LeverExplanation | None:
    """Return the explanation of a query; None if no window was computed yet."""
    rows = coverage_rows(tables, contract.subject)
    if not rows:
        return None
    room = room_rows(tables, rows[-1]["capacity_group"])
    shed = sum(row["tuples_shed"] for row in rows)
    arrived = sum(row["arrived"] for row in rows)
    sic = np.array([row["sic"] for row in rows])
    levels = _levels(room)
    last = rows[-1]
    way = (
        "computed from all of its rows"
        if not shed
        else f"computed from {100 * (1 - shed / max(1, arrived)):.3g} % of its rows"
    )
    return LeverExplanation(
        way,
        _because(last, shed, len(levels), _cause(contract, rows)),
        {
            "last windows": len(rows),
            "coverage, mean": float(sic.mean()),
            "coverage, lowest": float(sic.min()),
            "coverage is of": "what arrived or was refused"
            if last["relative"]
            else "what its sources produced",
            "slices offered": sum(row["portions_offered"] for row in rows),
            "slices read": sum(row["portions_kept"] for row in rows),
            "rows read": arrived - shed,
            "rows left out": shed,
            "rows lost before": sum(row["lost"] for row in rows),
            "rows that were late": sum(row["late"] for row in rows),
            "bytes offered": sum(row["bytes_offered"] for row in rows),
            "bytes kept": sum(row["bytes_kept"] for row in rows),
            "windows below its floor": sum(row["sic"] < row["floor"] - 1e-9 for row in rows),
            "windows without an answer": sum(row["rows"] == 0 for row in rows),
            "weight": last["weight"],
            "priority": last["priority"],
            "evenness of the group (Jain index of coverage / weight)": coverage_spread(
                np.array(list(levels.values()))
            ).jain,
        },
        _remedies(contract, rows, shed),
    )


def _because(last: Mapping[str, Any], shed: int, members: int, cause: Cause | None) -> str:
    if last["capacity"] is None:
        return "its capacity group has no limit"
    others = f"{members} queries share it" if members > 1 else "it is the only query"
    capacity = format_number(float(last["capacity"]), 10)
    can = f"capacity group {last['capacity_group']} has {capacity} a slice, and {others} (policy {last['policy']})"
    if cause is not None:
        return f"{can}; {cause.why}"
    return can if shed else f"{can}; it was always enough"


def _remedies(contract: Workload, rows: CoverageRows, shed: int) -> tuple[str, ...]:
    found = []
    cause = _cause(contract, rows)
    if cause is not None:
        found.append(cause.remedy)
    if shed:
        found.append(
            f"see what more capacity would give: spillway what-if {rows[-1]['capacity_group']} --capacity ..."
        )
        found.append(
            "give it more than others: `weight: 2`; strictly before them: `priority: 1`; at least: `floor: 0.8`"
        )
    if cause is None and any(row["arrived"] and not row["tuples_kept"] for row in rows):
        found.append(
            "wait for its next windows: those of which others had been given all before it joined the group, or was "
            "mended, stay as they are"
        )
    if any(row["rows"] == 0 and row["sic"] > 0.999 and row["arrived"] for row in rows):
        found.append(
            "let it answer: see whether its conditions can be met, some windows were read whole and gave no row"
        )
    return tuple(found)


@dataclass(frozen=True)
class Cause:
    """A reason within the query or the capacity why windows got no portion, and a remedy."""

    why: str
    remedy: str


def _cause(contract: Workload, rows: CoverageRows) -> Cause | None:
    """Return the cause within the query and the capacity; None if other queries are the cause."""
    return oversized_portion(contract, rows) or excessive_fixed_cost(contract, rows)


def oversized_portion(contract: Workload, rows: CoverageRows) -> Cause | None:
    """Return the cause if a single portion holds more tuples than the capacity of a slice."""
    capacity = rows[-1].get("capacity")
    in_tuples = all(row.get("cost_offered") == row.get("arrived") for row in rows)
    if capacity is None or not in_tuples:
        return None
    left_out = [(row["tuples_shed"], row["portions_offered"] - row["portions_kept"]) for row in rows]
    largest = max((tuples / portions for tuples, portions in left_out if portions), default=0.0)
    if largest <= capacity:
        return None
    stated = contract.lever_settings("quality").portion_tuples
    what = "its files" if stated is None else f"its portions (`portion_tuples: {stated}`)"
    return Cause(
        f"{what} hold {largest:,.0f} tuples or more: a single one exceeds the capacity",
        f"make portions smaller: `portion_tuples: {max(1, round(capacity / 10))}`",
    )


def excessive_fixed_cost(contract: Workload, rows: CoverageRows) -> Cause | None:
    """Return the cause if the fixed cost of an answer exceeds the capacity of a slice."""
    settings: QualitySettings = contract.lever_settings("quality")
    capacity = rows[-1].get("capacity")
    took = [(at, row) for at, row in enumerate(rows) if row["tuples_kept"] and row["seconds"] > 0]
    silent = any(row["arrived"] and not row["tuples_kept"] for row in rows)
    in_tuples = all(row["cost_offered"] == row["arrived"] for row in rows)
    if capacity is None or in_tuples or not took or not silent or settings.cost_model == "mean":
        return None
    tuples, seconds = (np.array([row[name] for _, row in took]) for name in ("tuples_kept", "seconds"))
    age = np.array([len(rows) - 1 - at for at, _ in took])
    fixed, _ = fit_costs([Measurements(tuples, seconds, age)])
    if fixed[0] <= capacity:
        return None
    promise = f"; it is tried every {settings.starve_slices} slices" if settings.starve_slices else ""
    return Cause(
        f"the fixed cost of an answer, {fixed[0]:.3g} s, exceeds the capacity{promise}",
        f"raise the capacity above {fixed[0]:.3g} seconds a slice, or make slices longer (`per_seconds`)",
    )


def query_pictures(contract: Workload, tables: Views) -> Iterator[Picture]:
    """Yield the last answer and two charts of a capacity group: its coverage and its tuples by window.

    Only the first query of the capacity group yields the charts, so that a capacity group is shown once.
    """
    rows = coverage_rows(tables, contract.subject)
    if not rows:
        return
    yield from _answer(contract, rows, tables)
    room = room_rows(tables, rows[-1]["capacity_group"])
    names = sorted({row["subject"] for row in room})
    if contract.subject != names[0]:
        return  # a room is shown once, by the first of its queries
    lines = []
    for name in names:
        mine = [row for row in room if row["subject"] == name][-DRAWN_WINDOWS:]
        points = [(at, 100 * row["sic"]) for at, row in enumerate(mine)]
        lines.append({"name": name, "points": points, "steps": True, "dots": len(points) < 40})
    spread = coverage_spread(np.array(list(_levels(room).values())))
    yield Picture(
        f"Capacity group {rows[-1]['capacity_group']}: what every answer rests on, window by window",
        "lines",
        {"lines": lines, "x": "windows", "y": "coverage in %", "from_zero": True},
        f"Jain's index of coverage by weight, over these windows: {spread.jain:.3f} (1: all alike); mean "
        f"{100 * spread.mean:.3g} %. A query below the others is brought level in the next slices.",
        wide=True,
    )
    bars = []
    for name in names:
        mine = [row for row in room if row["subject"] == name]
        kept, shed, lost = (sum(row[what] for row in mine) for what in ("tuples_kept", "tuples_shed", "lost"))
        bars.append(
            (
                name,
                [
                    (float(kept), "wire", "kept"),
                    (float(shed), "synopsis", "shed"),
                    (float(lost), "raw", "lost before"),
                ],
            )
        )
    yield Picture(
        f"Capacity group {rows[-1]['capacity_group']}: tuples kept and shed",
        "bars",
        {"rows": bars, "unit": "tuples"},
        "Files of what is shed whole are never opened.",
        wide=True,
    )


def _answer(contract: Workload, rows: CoverageRows, tables: Views) -> Iterator[Picture]:
    """Yield the answer of the last window that has one, each estimate with its interval."""
    last = next((row for row in reversed(rows) if row["rows"]), None)
    if last is None:
        return
    answer = tables.at("results", contract.subject).rows(window=last["window"], batch_date=last["batch_date"])
    names = [name for name in answer.column_names if name not in _TECHNICAL and "__" not in name]
    found = sorted(answer.to_pylist(), key=lambda row: int(row["row"]))
    if not found or not names:
        return
    numeric = {name: all(isinstance(row[name], int | float) for row in found) for name in names}
    share = 100.0 * last["sic"]
    more = f" The first {ANSWER_ROWS} of {len(found):,} rows." if len(found) > ANSWER_ROWS else ""
    shown = [[_format_estimate(row, name) for name in names] for row in found[:ANSWER_ROWS]]
    brackets = any(cell.endswith(")") for row in shown for cell in row)
    without = {
        f" {name} has no interval: {why}."
        for row in found[:ANSWER_ROWS]
        for name in names
        if (why := row.get(f"{name}{NO_INTERVAL}"))
    }
    start = last["from_time"]
    yield Picture(
        f"{contract.subject}: the answer of {start:{'%Y-%m-%d %H:%M' if start.hour or start.minute else '%Y-%m-%d'}} "
        f"represents {share:.3g} % of its input",
        "table",
        {
            "heads": [f"#{name}" if numeric[name] else name for name in names],
            "rows": shown,
        },
        f"{contract.description}{more}".strip()
        + " In brackets: the 95 % interval." * brackets
        + "".join(sorted(without)[:2]),
        section="answers",
    )


ANSWER_ROWS = 5
_TECHNICAL = frozenset(
    ("window", "batch_date", "window_start", "window_end", "result_step", "row", "sic", "coverage")
)


def _interval(row: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    low, high = row.get(f"{name}__low"), row.get(f"{name}__high")
    return None if low is None or high is None else (low, high)


def _format_estimate(row: Mapping[str, Any], name: str) -> str:
    """Return a value of an answer; the estimate over all rows and its interval, if it has one.

    >>> _format_estimate({"n": 4, "n__estimate": 9.0, "n__low": 8.04, "n__high": 10.0}, "n")
    '9 (8.04 to 10)'
    >>> _format_estimate({"n": 0.123456, "n__low": None}, "n"), _format_estimate({"n": None}, "n")
    ('0.1235', 'null')
    """
    value, interval = row.get(f"{name}__estimate"), _interval(row, name)
    if value is None:
        value = row[name]
    said = "null" if value is None else format_number(value) if isinstance(value, int | float) else str(value)
    if interval is None or interval[0] == interval[1]:
        return said
    return f"{said} ({format_number(interval[0])} to {format_number(interval[1])})"


def coverage_rows(tables: Views, subject: str) -> list[dict[str, Any]]:
    """Return the last windows of a query, in the order of time."""
    found: list[dict[str, Any]] = (
        tables.at(COVERAGE).last("window", SHOWN_BATCHES, subject=subject).to_pylist()
    )
    return sorted(found, key=lambda row: int(row["window"]))


def room_rows(tables: Views, room: str) -> list[dict[str, Any]]:
    """Return the last windows of every query of a capacity group."""
    names = tables.at(COVERAGE).rows(["subject"], capacity_group=room)["subject"].unique().to_pylist()
    return [
        row for name in sorted(names) for row in coverage_rows(tables, name) if row["capacity_group"] == room
    ]


def _levels(room: CoverageRows) -> dict[str, float]:
    """Return the mean sic / weight of each query."""
    found: dict[str, list[float]] = {}
    for row in room:
        found.setdefault(row["subject"], []).append(row["sic"] / row["weight"])
    return {name: float(np.mean(levels)) for name, levels in found.items()}
