"""Which part of a time a column is: year, month, day, weekday, hour ..., at which offset from UTC.

A column of whole numbers is a part when it differs from one by a constant in most rows (a week may begin on Sunday,
a clock may be put back): the offset among whole quarters of an hour at which that is so for the most rows. What is
left, such as an hour of summer time, is carried over from the key's row before (`persistence`) where that helps.

>>> at = np.arange(2000) * 1_800_000_000 + 1_357_012_800_000_000
>>> hour = (at // 3_600_000_000 - 5) % 24
>>> frame = Frame(np.arange(2000), np.zeros(2000, int), {"at": Column.integer(at), "hour": Column.integer(hour)})
>>> str(clock_parts("hour", frame, {"at": "us"})[0].terms[0])
'1*at#us-18000.hour'
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.synopsis.calendar import PARTS, ClockPart, clock_part
from spillway.levers.attributes.synopsis.model import Predictor, Term

MOST_TIMES = 2048
USUAL = 0.8
_QUARTER = 900
_OFFSETS = tuple(sorted(range(-14 * 4, 14 * 4 + 1), key=lambda q: (q % 4 != 0, abs(q))))


def clock_parts(target: str, frame: Frame, clocks: Mapping[str, str]) -> list[Predictor]:
    """Predictors of `target` from parts of the times in `clocks` (attribute: its unit), the best of each part."""
    column = frame.columns[target]
    found = []
    for name, unit in clocks.items():
        if name not in frame.columns or name == target:
            continue
        clock = frame.columns[name]
        rows = np.flatnonzero(column.valid & clock.valid & _is_whole(column))
        rows = rows[:: max(1, len(rows) // MOST_TIMES)]
        truth, times = column.values[rows].astype(np.float64), clock.values[rows]
        if len(rows) < 32 or len(np.unique(truth)) < 2 or np.abs(truth).max() > 10_000:
            continue
        scored: list[tuple[float, int, str, float]] = []
        for part in PARTS:
            offsets = _OFFSETS if unit != "d" else (0,)
            tried = [_usual(truth, clock_part(times, ClockPart(unit, q * _QUARTER, part))) for q in offsets]
            best = max(range(len(tried)), key=lambda i: tried[i][0])
            if tried[best][0] >= USUAL:
                wanted = ClockPart(unit, offsets[best] * _QUARTER, part)
                scored.append((-tried[best][0], len(scored), wanted.of(name), tried[best][1]))
        for _, _, regressor, more in sorted(scored)[:2]:
            terms = (Term(1.0, (regressor,)), *((Term(more),) if more else ()))
            found += [Predictor("regression", terms, persistence) for persistence in (0.0, 1.0)]
    return found


def _is_whole(column: Column) -> np.ndarray:
    if column.kind != "real":
        return np.full(len(column), column.kind == "integer")
    return np.isfinite(column.values) & (np.rint(column.values) == column.values)


def _usual(truth: np.ndarray, part: np.ndarray) -> tuple[float, float]:
    """The commonest difference's share, and it; a part that stands still says nothing."""
    if (part == part[0]).all():
        return 0.0, 0.0
    values, counts = np.unique(truth - part, return_counts=True)
    most = int(np.argmax(counts))
    return float(counts[most]) / len(truth), float(values[most])
