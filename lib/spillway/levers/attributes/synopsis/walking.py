"""The kernel that both ends run: predict, compare and correct, row by row.

`walk` processes a frame in `seq` order. At each row it evaluates the first predictor that can be evaluated there, or
blends all of them (formulas in `predictors`). Then

* encoding keeps the prediction if its error is at most the aim, else stores a step away from it, else the whole value;
* decoding applies the entry, or keeps the prediction if there is none.

The same statements update the state in both directions (values known to the destination, their classes, the last
surprise), in float64, without fused or reordered arithmetic. So the destination gets exactly what the source decided,
bit for bit.

Values have classes: number, null, NaN, +inf, -inf. A row without entry has the class of the key's previous row. The
first shed value of a key in a frame is always an entry.

A step q moves a prediction p, with g = 1 + step_pct / 100:

* without `unit`: to p g^q for q > 0, to p / g^-q for q < 0. The powers are made by repeated multiplication, because a
  library's pow may differ between machines.
* with a `unit` u and no step_pct: to (round(p / u) + q) u.
* with both: q levels up or down the ladder of `ladder_of`, from the level nearest to p. The ladder passes zero, so
  steps can change sign and scale, too. A whole value is stored as the level nearest to it.

Results are rounded to `decimals`, and to whole numbers for integers.

Every row has a precision: its aim, step and unit. The state does not depend on precisions, so they may change from row
to row; a value is always compared with what the destination has.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from spillway.levers.attributes.synopsis.bounds import within_integer, within_real
from spillway.levers.attributes.synopsis.predictors import PAST, Known, base_value, inner, remember

UNKNOWN, NUMBER, NULL, NAN, PLUS, MINUS = range(6)
KEPT, STEP, WHOLE = range(3)
LARGEST_POWER = 4096
LARGEST_STEP = 1 << 40
_WHOLE = 4503599627370496.0  # 2^52: every float64 from here on is whole, and scaling would only lose bits
_INT64_END = 9.2e18
_TINY_MISS = 1e-15
_MISS_RATE, _ANY_MISS_RATE = 0.1, 0.02
MOST_LEVELS = 1 << 15


class Rows(NamedTuple):
    """The rows of a frame in `seq` order."""

    key: np.ndarray
    is_shed: np.ndarray
    precision: np.ndarray
    """By row, an index into the `Precisions`."""


class TargetColumn(NamedTuple):
    """The attribute's own column; `walk` replaces the values of shed rows by those of the destination."""

    values: np.ndarray
    """Float64, also of integers."""
    wholes: np.ndarray
    """The exact values of integers; zeros for reals."""
    valid: np.ndarray
    is_integer: bool
    scale: float
    """10^decimals, to which values are rounded; 0: they are not rounded."""


class Corrections(NamedTuple):
    """By row, whether it has an entry, whether that is a step, and the step. Whole values are in the `TargetColumn`."""

    is_entry: np.ndarray
    is_step: np.ndarray
    steps: np.ndarray


class Precisions(NamedTuple):
    """The precisions of a model, one item each."""

    aims_pct: np.ndarray
    aims: np.ndarray
    units: np.ndarray
    is_ladder: np.ndarray
    tables: np.ndarray
    """The powers of the step, or the levels of the ladder, of all precisions, one after the other."""
    starts: np.ndarray
    """The start of each precision's table, and the end of the last."""


class Grid(NamedTuple):
    """The aims and the steps of one precision, without its table."""

    aim_pct: float
    aim: float
    unit: float
    is_ladder: bool


class Form(NamedTuple):
    """Whether values are integers, and 10^decimals, to which they are rounded (0: they are not rounded)."""

    is_integer: bool
    scale: float


def powers(step_pct: float) -> np.ndarray:
    """Return g^0 .. g^m by repeated multiplication, up to a factor of a million or LARGEST_POWER steps."""
    if not step_pct > 0:
        return np.ones(1)
    factors = np.full(LARGEST_POWER + 1, 1.0 + step_pct / 100.0)
    factors[0] = 1.0
    with np.errstate(over="ignore"):
        table = np.multiply.accumulate(factors)  # one after the other, so the same bits everywhere
    return np.asarray(table[: max(2, int(np.searchsorted(table, 1e6)))])


@njit(cache=True)
def ladder_of(step_pct: float, unit: float) -> np.ndarray:
    """Return the levels 0, u, 2u, ... as long as u is the larger step, then g times the level before.

    All levels are multiples of u.

    >>> ladder_of(50.0, 1.0)[:6].tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 6.0]
    """
    g = 1.0 + step_pct / 100.0
    levels = np.zeros(MOST_LEVELS)
    for at in range(1, MOST_LEVELS):
        below = levels[at - 1]
        levels[at] = max(below + unit, np.rint(below * g / unit) * unit)
        if levels[at] > 1e12 * unit:
            return levels[: at + 1]
    return levels


@lru_cache(maxsize=64)
def step_tables(steps: tuple[tuple[float, float], ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the powers (or ladders) of several (step, unit) pairs, one after the other, and the start of each.

    The starts end with the end of the last table.

    >>> tables, starts = step_tables(((0.0, 0.0), (100.0, 0.0), (100.0, 5.0)))
    >>> [tables[low:high][:4].tolist() for low, high in zip(starts, starts[1:], strict=False)]
    [[1.0], [1.0, 2.0, 4.0, 8.0], [0.0, 5.0, 10.0, 20.0]]
    """
    tables = [
        ladder_of(step_pct, unit) if step_pct > 0 and unit > 0 else powers(step_pct)
        for step_pct, unit in steps
    ]
    return np.concatenate(tables), np.cumsum([0, *map(len, tables)])


@inner
def _class_of(value, valid):  # type: ignore[no-untyped-def]
    if not valid:
        return NULL
    if np.isnan(value):
        return NAN
    if np.isinf(value):
        return PLUS if value > 0 else MINUS
    return NUMBER


@inner
def _snap(value, scale):  # type: ignore[no-untyped-def]
    if scale > 0.0 and abs(value) * scale < _WHOLE:
        return np.rint(value * scale) / scale
    return value


@inner
def _level_of(value, levels):  # type: ignore[no-untyped-def]
    """Return the signed index of the level nearest to a value."""
    size = abs(value)
    high = min(np.searchsorted(levels, size), len(levels) - 1)
    if high > 0 and size - levels[high - 1] <= levels[high] - size:
        high -= 1
    return np.int64(high) if value >= 0.0 else -np.int64(high)


@inner
def _moved(p, q, grid, table, scale):  # type: ignore[no-untyped-def]
    """Return the prediction p moved by q steps; NaN if the result is no finite number."""
    count = len(table)
    if grid.is_ladder:
        if q == 0:
            moved = p
        else:
            at = _level_of(p, table) + q
            if abs(at) >= count:
                return np.nan
            moved = table[at] if at >= 0 else -table[-at]
    elif grid.unit > 0.0:
        moved = (np.rint(p / grid.unit) + q) * grid.unit
    elif q >= count or -q >= count:
        return np.nan
    elif q >= 0:
        moved = p * table[q]
    else:
        moved = p / table[-q]
    moved = _snap(moved, scale)
    return moved if np.isfinite(moved) else np.nan


@inner
def _is_accepted(r, value, whole, is_integer, grid):  # type: ignore[no-untyped-def]
    """Return whether the reconstruction r (a float64, whole for integers) is within both aims."""
    if not np.isfinite(r):
        return False
    if is_integer:
        return abs(r) < _INT64_END and within_integer(np.int64(r), whole, grid.aim_pct, grid.aim)
    return within_real(r, value, grid.aim_pct, grid.aim)


@inner
def _nearest_step(p, sv, grid, table):  # type: ignore[no-untyped-def]
    """Return the step that brings p nearest to sv; 0 if there is none."""
    unit = grid.unit
    if grid.is_ladder:
        return _level_of(sv, table) - _level_of(p, table)
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
    if not ratio <= table[-1]:
        return np.int64(0)
    high = np.searchsorted(table, ratio)
    low = max(high - 1, 0)
    a, b = (low, high) if up else (-low, -high)
    if abs(_moved(p, a, grid, table, 0.0) - sv) <= abs(_moved(p, b, grid, table, 0.0) - sv):
        return np.int64(a)
    return np.int64(b)


@inner
def _correction(value, whole, p, form, grid, table):  # type: ignore[no-untyped-def]
    """Return how a number is encoded (KEPT, STEP or WHOLE), the step, and what the destination has (NaN: the same)."""
    q = np.int64(0)
    if np.isfinite(p):
        r = _moved(p, q, grid, table, form.scale)
        if _is_accepted(r, value, whole, form.is_integer, grid):
            return KEPT, q, r
        q = _nearest_step(p, value, grid, table)
        r = _moved(p, q, grid, table, form.scale)
        if _is_accepted(r, value, whole, form.is_integer, grid):
            return STEP, q, r
    if grid.is_ladder:  # a whole value is stored as the level nearest to it
        r = _moved(0.0, _level_of(value, table), grid, table, form.scale)
        if _is_accepted(r, value, whole, form.is_integer, grid):
            return WHOLE, q, r + 0.0
    return WHOLE, q, np.nan


@inner
def _recovered(is_step, step, p, class_before, form, grid, table):  # type: ignore[no-untyped-def]
    """Return the class and the value of a row with a step or without an entry; UNKNOWN for lack of a start."""
    if not is_step and class_before == UNKNOWN:
        return UNKNOWN, np.nan
    if not is_step and class_before != NUMBER:
        return class_before, _value_of_class(class_before)
    if not np.isfinite(p):
        return UNKNOWN, np.nan
    r = _moved(p, step if is_step else np.int64(0), grid, table, form.scale)
    if is_step and (not np.isfinite(r) or (form.is_integer and abs(r) >= _INT64_END)):
        return UNKNOWN, np.nan
    return NUMBER, r


@inner
def _value_of_class(its_class):  # type: ignore[no-untyped-def]
    """Return what is in the column for a class other than numbers."""
    if its_class == NAN:
        return np.nan
    if its_class == PLUS:
        return np.inf
    return -np.inf if its_class == MINUS else 0.0


@inner
def _with_surprise(base, weight, surprise):  # type: ignore[no-untyped-def]
    return base * (1.0 + weight * surprise) if weight != 0.0 else base


@inner
def _surprise(value, base, p):  # type: ignore[no-untyped-def]
    """Return the relative difference of a value from the prediction; 0 if there was none, or it is 100 % and more."""
    if not np.isfinite(p) or base == 0.0:
        return 0.0
    surprise = (value - base) / base
    return surprise if abs(surprise) < 1.0 else 0.0


@inner
def _weight(miss_of_key, miss_of_all):  # type: ignore[no-untyped-def]
    """Return the weight of a predictor in a blend."""
    miss = miss_of_key if miss_of_key >= 0.0 else miss_of_all
    if not miss >= 0.0:
        miss = 1.0
    return 1.0 / (miss * miss * miss + _TINY_MISS)


@inner
def _miss(prediction, value):  # type: ignore[no-untyped-def]
    """Return the relative error of a prediction, at most 1."""
    miss, size = abs(prediction - value), abs(value)
    return miss / size if miss < size else (0.0 if miss == 0.0 else 1.0)


@inner
def _depth(predictors):  # type: ignore[no-untyped-def]
    """Return the number of values of a key that the predictors read."""
    depth = np.int64(2)
    for m in range(len(predictors)):
        depth = max(depth, predictors[m].season + 1)
    return depth


@njit(cache=True, error_model="numpy")
def _no_pasts(count, keys):  # type: ignore[no-untyped-def]
    pasts = np.empty((count, keys), PAST)
    for m in range(count):
        for k in range(keys):
            past = pasts[m, k]
            past.level, past.regression, past.miss = np.nan, np.nan, np.nan
    return pasts


@njit(cache=True, error_model="numpy")
def walk(decode, rows, column, corrections, predictor_arrays, blend, precisions):  # type: ignore[no-untyped-def]
    """Encode (fills `corrections`) or decode a frame; `column` becomes that of the destination.

    Returns the row at which decoding failed for lack of a start, or -1.
    """
    # an array that is read from a tuple is counted as one more reference, which is slow: read each once
    key, is_shed, precision = rows
    values, wholes, valid, is_integer, scale = column
    is_entry, is_step, steps = corrections
    predictors, regressions = predictor_arrays
    aims_pct, aims, units, is_ladder, tables, starts = precisions
    n, count, form = len(key), len(predictors), Form(is_integer, scale)
    keys, depth = key.max() + 1 if n else 0, _depth(predictors)
    history, pasts = np.full((keys, depth), np.nan), _no_pasts(count, keys)
    counts, class_of, was_shed = np.zeros(keys, np.int64), np.zeros(keys, np.int64), np.zeros(keys, np.bool_)
    miss_of_all, predictions = np.full(count, np.nan), np.full(count, np.nan)
    surprise, newest_of_all = 0.0, np.nan
    several, now = len(aims) > 1, np.int64(0)
    grid, table = Grid(aims_pct[0], aims[0], units[0], is_ladder[0]), tables[starts[0] : starts[1]]
    for i in range(n):
        if several and is_shed[i] and precision[i] != now:
            now = precision[i]
            grid = Grid(aims_pct[now], aims[now], units[now], is_ladder[now])
            table = tables[starts[now] : starts[now + 1]]
        k = key[i]
        newest = history[k, (counts[k] - 1) % depth] if counts[k] > 0 else np.nan
        known = Known(k, counts[k], newest, newest_of_all)
        base, p, total = np.nan, np.nan, 0.0
        for m in range(count):
            base_m = base_value(predictors[m], pasts[m, k], known, history, regressions[m, i])
            p_m = _with_surprise(base_m, predictors[m].common, surprise)
            if not blend:
                base, p = base_m, p_m
                if np.isfinite(p):
                    break
                continue
            predictions[m] = p_m
            if np.isfinite(p_m):
                weight = _weight(pasts[m, k].miss, miss_of_all[m])
                base = base_m * weight if total == 0.0 else base + base_m * weight
                p = p_m * weight if total == 0.0 else p + p_m * weight
                total += weight
        if total > 0.0:
            base, p = base / total, p / total
        its_class = _class_of(values[i], valid[i])
        if is_shed[i]:
            class_before = class_of[k] if was_shed[k] else UNKNOWN
            if not decode:
                is_entry[i] = class_before != its_class
                if its_class == NUMBER:
                    treatment, q, r = _correction(values[i], wholes[i], p, form, grid, table)
                    is_entry[i] |= treatment != KEPT
                    if treatment != WHOLE:
                        is_step[i], steps[i] = is_entry[i], q
                    if np.isfinite(r):
                        values[i], wholes[i] = r, np.int64(r) if is_integer else 0
            elif is_step[i] or not is_entry[i]:
                its_class, r = _recovered(
                    is_entry[i] and is_step[i], steps[i], p, class_before, form, grid, table
                )
                if its_class == UNKNOWN:
                    return i
                values[i], valid[i] = r, its_class != NULL
                wholes[i] = np.int64(r) if is_integer and its_class == NUMBER else 0
            was_shed[k] = True
        class_of[k] = its_class
        surprise = 0.0
        if its_class == NUMBER:
            value = values[i]
            surprise, newest_of_all = _surprise(value, base, p), value
            history[k, counts[k] % depth] = value
            counts[k] += 1
            for m in range(count):
                past = pasts[m, k]
                remember(predictors[m], past, value, regressions[m, i])
                if blend and np.isfinite(predictions[m]):
                    miss = _miss(predictions[m], value)
                    before = miss_of_all[m]
                    miss_of_all[m] = before + _ANY_MISS_RATE * (miss - before) if before >= 0.0 else miss
                    before = past.miss if past.miss >= 0.0 else miss_of_all[m]
                    past.miss = before + _MISS_RATE * (miss - before)
    return -1
