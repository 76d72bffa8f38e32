"""What others would store: piecewise approximations and plain rounding at the same relative bound.

Per key, over the rows of a frame, each value v allowed its own tolerance E |v|:
* `pmc_midrange`: the longest run that one constant serves, the constant from the middle of what they allow
  (Lazaridis and Mehrotra 2003); it looks ahead, so it stores the fewest constants possible;
* `swing_filter`: connected lines, each as long as some slope from the end of the one before stays within
  every tolerance (Elmeleegy et al. 2009);
* `swinging_door`: connected lines between values that occurred (Bristol 1990), with the cone closed at the
  tolerances so that the bound holds for every value, which the original does not promise;
* `rounded`: every value, rounded (`rounding`, method grid).
Where a range is allowed, the number with the fewest decimals in it is stored. All are packed with our
`packing`, so that only what is stored differs. Null, NaN, infinities and zeros are stored as they are.

>>> frame = Frame(np.arange(6), np.zeros(6, int), {"x": Column.real([10.0, 10.4, 10.9, 20.0, 20.5, 21.0])})
>>> constants = baseline("pmc_midrange", frame, "x", error_pct=5.0)
>>> constants.entries.values.to_list(), constants.errors.violations
([10.4, 20.0], 0)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.packing.block import pack
from spillway.levers.attributes.synopsis.bounds import certify
from spillway.levers.attributes.synopsis.entries import Entries, shed
from spillway.levers.attributes.synopsis.model import AttributeModel, Rounding
from spillway.levers.attributes.synopsis.rounding import round_rows
from spillway.levers.certificate import Certificate

BASELINES = ("last", "pmc_midrange", "swing_filter", "swinging_door", "rounded")
_SLACK = 1.0 - 1e-9


@dataclass(frozen=True, eq=False)
class Baseline:
    """The entries of a baseline, their packed bytes, and its errors."""

    name: str
    entries: Entries
    packed_bytes: int
    errors: Certificate


@njit(cache=True)
def _shortest(low, high):  # type: ignore[no-untyped-def]
    """Return the number with the fewest decimals within [low, high], near its middle."""
    middle = low + (high - low) / 2.0
    scale = 1.0
    for _ in range(12):
        candidate = np.rint(middle * scale) / scale
        if low <= candidate <= high:
            return candidate
        scale *= 10.0
    return middle


@njit(cache=True)
def _constants(values, tolerance, number, stored, given):  # type: ignore[no-untyped-def]
    n = len(values)
    start = 0
    while start < n:
        if not number[start]:
            stored[start] = True
            given[start] = values[start]
            start += 1
            continue
        low, high = values[start] - tolerance[start], values[start] + tolerance[start]
        end = start + 1
        while end < n and number[end]:
            new_low, new_high = (
                max(low, values[end] - tolerance[end]),
                min(high, values[end] + tolerance[end]),
            )
            if new_low > new_high:
                break
            low, high = new_low, new_high
            end += 1
        constant = _shortest(low, high)
        stored[start] = True
        given[start:end] = constant
        start = end


@njit(cache=True)
def _lines(values, tolerance, number, free_ends, stored, given):  # type: ignore[no-untyped-def]
    n = len(values)
    at = 0
    open_line = False
    while at < n:
        if not number[at]:
            stored[at] = True
            given[at] = values[at]
            open_line = False
            at += 1
            continue
        if not open_line:
            stored[at] = True
            given[at] = values[at]
            open_line = True
            at += 1
            continue
        pivot = at - 1
        origin = given[pivot]
        low, high = -np.inf, np.inf
        last = pivot
        last_value = origin
        i = at
        while i < n and number[i]:
            run = np.float64(i - pivot)
            new_low = max(low, (values[i] - tolerance[i] - origin) / run)
            new_high = min(high, (values[i] + tolerance[i] - origin) / run)
            if new_low > new_high:
                break
            low, high = new_low, new_high
            if free_ends:
                last = i
                last_value = _shortest(origin + low * run, origin + high * run)
            elif low <= (values[i] - origin) / run <= high:
                last = i
                last_value = values[i]
            i += 1
        if last == pivot:
            open_line = False
            continue
        slope = (last_value - origin) / np.float64(last - pivot)
        for j in range(pivot + 1, last + 1):
            given[j] = origin + slope * np.float64(j - pivot)
        given[last] = last_value
        for j in range(pivot + 1, last + 1):
            if not abs(given[j] - values[j]) <= tolerance[j]:  # rounding, where sizes differ too much
                open_line = False
        if not open_line:
            continue
        stored[last] = True
        at = last + 1


def baseline(name: str, frame: Frame, attribute: str, error_pct: float) -> Baseline:
    """Run one of BASELINES over the whole column of a frame."""
    column = frame.columns[attribute]
    model = AttributeModel(attribute, column.kind, error_pct)
    everything = np.ones(len(frame), np.bool_)
    if name == "last":
        result = shed(model, frame, everything)
        entries, given = result.entries, result.reconstructed
    elif name == "rounded":
        given = round_rows(replace(model, roundings=(Rounding("grid", error_pct),)), frame, everything)
        entries = Entries.of_values(frame.seq, given)
    elif name in BASELINES:
        entries, given = _piecewise(name, frame, column, error_pct)
    else:
        raise ValueError(f"`name` must be one of {', '.join(BASELINES)}, got {name!r}; see the module's text")
    truth = column if given.kind == column.kind else Column("real", column.values, column.valid)
    errors = certify(truth, given, error_pct, None, len(entries))
    return Baseline(name, entries, len(pack(entries, frame)), errors)


def _piecewise(name: str, frame: Frame, column: Column, error_pct: float) -> tuple[Entries, Column]:
    if column.kind == "text":
        raise ValueError(f"`column` must be numeric for {name}, got text; use last")
    values = column.values.astype(np.float64)
    stored, given = np.zeros(len(values), np.bool_), values.copy()
    usual = (values == 0) | ((np.abs(values) > 1e-300) & (np.abs(values) < 1e300))
    number = column.valid & usual  # the rest is stored as it is: slopes between such values overflow
    tolerance = np.abs(np.where(number, values, 0.0)) * (error_pct / 100.0) * _SLACK
    order = np.argsort(frame.key, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(frame.key[order])) + 1):
        keeps, gives = np.zeros(len(rows), np.bool_), values[rows].copy()
        if name == "pmc_midrange":
            _constants(values[rows], tolerance[rows], number[rows], keeps, gives)
        else:
            _lines(values[rows], tolerance[rows], number[rows], name == "swing_filter", keeps, gives)
        stored[rows], given[rows] = keeps, gives
    at = np.flatnonzero(stored)
    approximation = Column("real", given, column.valid)
    return Entries.of_values(frame.seq[at], approximation.take(at)), approximation
