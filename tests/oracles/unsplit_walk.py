"""The kernel `walk` as one function, before it was split (issue 26): an oracle for one release, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from spillway.levers.attributes.synopsis.bounds import within_integer, within_real
from spillway.levers.attributes.synopsis.model import Predictor
from spillway.levers.attributes.synopsis.walking import Corrections, Precisions, Rows, TargetColumn

NUMBER, NULL, NAN, PLUS, MINUS = 1, 2, 3, 4, 5
LARGEST_STEP = 1 << 40
_WHOLE = 4503599627370496.0  # 2^52: every float64 from here on is whole, and scaling would only lose bits
_INT64_END = 9.2e18
_TINY_MISS = 1e-15


@njit(cache=True, error_model="numpy")
def _classify(value, valid):  # type: ignore[no-untyped-def]
    if not valid:
        return NULL
    if np.isnan(value):
        return NAN
    if np.isinf(value):
        return PLUS if value > 0 else MINUS
    return NUMBER


@njit(cache=True, error_model="numpy")
def _snap(value, scale):  # type: ignore[no-untyped-def]
    if scale > 0.0 and abs(value) * scale < _WHOLE:
        return np.rint(value * scale) / scale
    return value


@njit(cache=True, error_model="numpy")
def _place(value, tables, first, count):  # type: ignore[no-untyped-def]
    """Return the signed index of the level nearest to a value."""
    size = abs(value)
    high = min(np.searchsorted(tables[first : first + count], size), count - 1)
    if high > 0 and size - tables[first + high - 1] <= tables[first + high] - size:
        high -= 1
    return np.int64(high) if value >= 0.0 else -np.int64(high)


@njit(cache=True, error_model="numpy")
def _moved(p, q, tables, first, count, unit, levels, scale):  # type: ignore[no-untyped-def]
    """Return the prediction p moved by q steps; NaN if the result is no finite number."""
    if levels:
        if q == 0:
            moved = p
        else:
            at = _place(p, tables, first, count) + q
            if abs(at) >= count:
                return np.nan
            moved = tables[first + at] if at >= 0 else -tables[first - at]
    elif unit > 0.0:
        moved = (np.rint(p / unit) + q) * unit
    elif q >= count or -q >= count:
        return np.nan
    elif q >= 0:
        moved = p * tables[first + q]
    else:
        moved = p / tables[first - q]
    moved = _snap(moved, scale)
    return moved if np.isfinite(moved) else np.nan


@njit(cache=True, error_model="numpy", inline="always")
def _accepts(r, real, whole, is_integer, aim_pct, aim):  # type: ignore[no-untyped-def]
    """Return whether the reconstruction r (a float64, whole for integers) is within both aims."""
    if not np.isfinite(r):
        return False
    if is_integer:
        return abs(r) < _INT64_END and within_integer(np.int64(r), whole, aim_pct, aim)
    return within_real(r, real, aim_pct, aim)


@njit(cache=True, error_model="numpy")
def _nearest_step(p, sv, tables, first, count, unit, levels):  # type: ignore[no-untyped-def]
    """Return the step that brings p nearest to sv; 0 if there is none."""
    if levels:
        return _place(sv, tables, first, count) - _place(p, tables, first, count)
    if unit > 0.0:
        level = np.rint(sv / unit)
        if level == 0.0 and sv != 0.0:
            level = np.sign(sv)  # zero is accepted only for zero
        q = level - np.rint(p / unit)
        return np.int64(q) if abs(q) < LARGEST_STEP else np.int64(0)
    if p == 0.0 or sv == 0.0 or (p > 0.0) != (sv > 0.0):
        return np.int64(0)
    ratio = sv / p
    up = ratio >= 1.0
    if not up:
        ratio = p / sv
    if not ratio <= tables[first + count - 1]:
        return np.int64(0)
    high = np.searchsorted(tables[first : first + count], ratio)
    low = max(high - 1, 0)
    a, b = (low, high) if up else (-low, -high)
    if abs(_moved(p, a, tables, first, count, unit, levels, 0.0) - sv) <= abs(
        _moved(p, b, tables, first, count, unit, levels, 0.0) - sv
    ):
        return np.int64(a)
    return np.int64(b)


@njit(cache=True, error_model="numpy")
def walk(  # type: ignore[no-untyped-def]
    decode, key, is_shed, is_integer, values, wholes, valid, is_entry, is_step, steps,
    offsets, regresses, persistence, slope, season, common, smoothing, blend, precision, aims_pct, aims, tables, starts,
    units, ladders, scale,
):  # fmt: skip
    """Encode (fills is_entry, is_step, steps) or decode; values, wholes and valid become those of the destination.

    `values` are float64, also those of integers, whose exact values are in `wholes`. `offsets` has the value of each
    regression at each row (NaN if it cannot be evaluated). `precision` is the index of each row in `aims_pct`, `aims`,
    `units`, `ladders`, and in `starts`, which has the start of its table in `tables`. Returns the row at which decoding
    failed for lack of a start, or -1.
    """
    n = len(key)
    keys = key.max() + 1 if n else 0
    depth = max(2, season.max() + 1)
    count = len(offsets)
    history = np.full((keys, depth), np.nan)
    rows_known = np.zeros(keys, np.int64)
    offset_then = np.full((count, keys), np.nan)
    smoothed = np.full((count, keys), np.nan)
    missed = np.full((count, keys if blend else 0), np.nan)
    missed_by_any = np.full(count, np.nan)
    bases = np.full(count, np.nan)
    predictions = np.full(count, np.nan)
    class_of = np.zeros(keys, np.int8)
    shed_before = np.zeros(keys, np.bool_)
    surprise = 0.0
    last_any = np.nan
    several, now = len(aims_pct) > 1, np.int64(0)
    aim_pct, aim, unit, first, size = aims_pct[0], aims[0], units[0], starts[0], starts[1]
    levels = ladders[0]
    for i in range(n):
        if several and is_shed[i] and precision[i] != now:
            now = precision[i]
            aim_pct, aim, unit, levels = aims_pct[now], aims[now], units[now], ladders[now]
            first, size = starts[now], starts[now + 1] - starts[now]
        k = key[i]
        known = rows_known[k]
        newest = history[k, (known - 1) % depth] if known > 0 else np.nan
        base = np.nan
        p = np.nan
        total = 0.0
        for m in range(count):
            s = season[m]
            if regresses[m]:
                base_m = offsets[m, i]
                if persistence[m] != 0.0:
                    base_m += persistence[m] * (newest - offset_then[m, k])
            elif s > 0:
                base_m = history[k, (known - s) % depth] if known >= s + 1 else np.nan
                if persistence[m] != 0.0 and known >= s + 1:
                    base_m += persistence[m] * (newest - history[k, (known - s - 1) % depth])
            elif smoothing[m] != 0.0:
                base_m = smoothed[m, k]
                if persistence[m] != 0.0:
                    base_m += persistence[m] * (newest - base_m)
            else:
                base_m = newest
                if persistence[m] != 1.0:
                    base_m = last_any if not known else last_any + persistence[m] * (newest - last_any)
                if slope[m] != 0.0 and known > 1:
                    base_m += slope[m] * (newest - history[k, (known - 2) % depth])
            p_m = base_m * (1.0 + common[m] * surprise) if common[m] != 0.0 else base_m
            if not blend:
                base = base_m
                p = p_m
                if np.isfinite(p):
                    break
                continue
            bases[m] = base_m
            predictions[m] = p_m
            if not np.isfinite(p_m):
                continue
            miss = missed[m, k]
            if not miss >= 0.0:
                miss = missed_by_any[m]
            if not miss >= 0.0:
                miss = 1.0
            weight = 1.0 / (miss * miss * miss + _TINY_MISS)
            if total == 0.0:
                base, p = base_m * weight, p_m * weight
            else:
                base += base_m * weight
                p += p_m * weight
            total += weight
        if blend and total > 0.0:
            base /= total
            p /= total
        predicted = np.isfinite(p)
        here = NUMBER
        if is_shed[i]:
            if decode:
                if is_entry[i]:
                    if is_step[i]:
                        if not predicted:
                            return i
                        r = _moved(p, steps[i], tables, first, size, unit, levels, scale)
                        if not np.isfinite(r) or (is_integer and abs(r) >= _INT64_END):
                            return i
                        values[i] = r
                        wholes[i] = np.int64(r) if is_integer else 0
                        valid[i] = True
                    here = _classify(values[i], valid[i])
                else:
                    here = class_of[k]
                    if not shed_before[k]:
                        return i
                    if here == NUMBER:
                        if not predicted:
                            return i
                        values[i] = _moved(p, 0, tables, first, size, unit, levels, scale)
                        wholes[i] = np.int64(values[i]) if is_integer else 0
                        valid[i] = True
                    else:
                        valid[i] = here != NULL
                        wholes[i] = 0
                        values[i] = 0.0
                        if here == NAN:
                            values[i] = np.nan
                        elif here == PLUS:
                            values[i] = np.inf
                        elif here == MINUS:
                            values[i] = -np.inf
            else:
                here = _classify(values[i], valid[i])
                new = not shed_before[k] or class_of[k] != here
                if here == NUMBER:
                    q = np.int64(0)
                    r = np.nan
                    if predicted:
                        r = _moved(p, q, tables, first, size, unit, levels, scale)
                        if not _accepts(r, values[i], wholes[i], is_integer, aim_pct, aim):
                            new = True
                            q = _nearest_step(p, values[i], tables, first, size, unit, levels)
                            r = _moved(p, q, tables, first, size, unit, levels, scale)
                            if not _accepts(r, values[i], wholes[i], is_integer, aim_pct, aim):
                                r = np.nan
                    else:
                        new = True
                    if np.isfinite(r):
                        values[i] = r
                        wholes[i] = np.int64(r) if is_integer else 0
                        is_step[i] = new
                        steps[i] = q
                    elif levels:
                        r = _moved(
                            0.0,
                            _place(values[i], tables, first, size),
                            tables,
                            first,
                            size,
                            unit,
                            levels,
                            scale,
                        )
                        if _accepts(r, values[i], wholes[i], is_integer, aim_pct, aim):
                            values[i] = r + 0.0
                            wholes[i] = np.int64(r) if is_integer else 0
                is_entry[i] = new
            shed_before[k] = True
        else:
            here = _classify(values[i], valid[i])
        class_of[k] = here
        surprise = 0.0
        if here == NUMBER:
            value = values[i]
            if predicted and base != 0.0:
                surprise = (value - base) / base
                if not abs(surprise) < 1.0:
                    surprise = 0.0
            history[k, known % depth] = value
            rows_known[k] = known + 1
            last_any = value
            for m in range(count):
                if regresses[m]:
                    offset_then[m, k] = offsets[m, i]
                if smoothing[m] != 0.0:
                    level = smoothed[m, k]
                    smoothed[m, k] = level + smoothing[m] * (value - level) if np.isfinite(level) else value
                if blend and np.isfinite(predictions[m]):
                    miss = abs(predictions[m] - value)
                    magnitude = abs(value)
                    miss = miss / magnitude if miss < magnitude else (0.0 if miss == 0.0 else 1.0)
                    before = missed_by_any[m]
                    missed_by_any[m] = before + 0.02 * (miss - before) if before >= 0.0 else miss
                    before = missed[m, k]
                    if not before >= 0.0:
                        before = missed_by_any[m]
                    missed[m, k] = before + 0.1 * (miss - before)
    return -1


def walk_unsplit(
    decode: bool,
    rows: Rows,
    column: TargetColumn,
    corrections: Corrections,
    predictors: Sequence[Predictor],
    regressions: np.ndarray,
    blend: bool,
    precisions: Precisions,
) -> int:
    """Call `walk` with the arguments of the present kernel; `regressions` are those of `predictor_arrays`."""
    parameters = [
        np.array([getattr(p, name) for p in predictors])
        for name in ("persistence", "slope", "season", "common", "smoothing")
    ]
    return walk(
        decode, rows.key, rows.is_shed, column.is_integer, column.values, column.wholes, column.valid, *corrections,
        regressions, np.array([bool(p.terms) for p in predictors]), *parameters, blend, rows.precision,
        precisions.aims_pct, precisions.aims, precisions.tables, precisions.starts, precisions.units,
        precisions.is_ladder, column.scale,
    )  # fmt: skip
