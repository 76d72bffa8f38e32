"""Round a column within its error bound, so that it compresses well; nothing is recovered.

* `grid`: each value is rounded to the nearest of J even levels per octave, J = ceil(1 / (2 E)) with E as a share. So
  the relative error is at most E, and few distinct values remain for the dictionary. If a bound in the attribute's own
  unit is tighter, the levels are twice that bound apart.
* `hold`: the key's previously sent value as long as it is within E, else the value of the grid. This gives repeats,
  which compress well.

These values are sent unchanged: a value whose level misses it by more than E (in the arithmetic of `bounds`), zeros and
values that would become zero, nulls, NaN, infinities and text. Levels are computed only by multiplication and exact
scaling by powers of two, so every machine rounds equally. Every row has a precision: an index into the model's
roundings.

>>> from spillway.levers.attributes.synopsis.model import Rounding
>>> frame = Frame(np.arange(3), np.zeros(3, int), {"max": Column.real([101.0, 103.0, 0.0])})
>>> model = AttributeModel("max", "real", error_pct=10, way="round", roundings=(Rounding("grid", 10.0),))
>>> round_rows(model, frame, np.ones(3, bool)).to_list()
[102.4, 102.4, 0.0]
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numba import njit

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.synopsis.bounds import recovered_bound_pct, within_integer, within_real
from spillway.levers.attributes.synopsis.entries import checked_precision
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.parquet import compressed_widths


def levels_per_octave(error_pct: float) -> int:
    """Return J for a bound: neighbouring levels are 1/J of the octave's start apart, and half of that is E.

    >>> levels_per_octave(5.0)
    10
    """
    return max(1, math.ceil(100.0 / (2.0 * error_pct))) if error_pct > 0 else 1


@njit(cache=True, error_model="numpy")
def _level(value, levels, error_pct, error):  # type: ignore[no-untyped-def]
    if error < abs(value) * (error_pct / 100.0):  # the bound in the own unit is tighter here
        return np.rint(value / (2.0 * error)) * (2.0 * error)
    mantissa, exponent = math.frexp(value)
    return math.ldexp(np.rint(mantissa * 2.0 * levels) / (2.0 * levels), exponent)


@njit(cache=True, error_model="numpy")
def _round_real(key, wanted, values, valid, precision, errors_pct, errors, every_levels, holds):  # type: ignore[no-untyped-def]
    n = len(values)
    sent = np.full((key.max() + 1) if n else 0, np.nan)
    out = values.copy()
    for i in range(n):
        if not wanted[i] or not valid[i] or not np.isfinite(values[i]):
            continue
        at = precision[i]
        error_pct, error, levels, hold = errors_pct[at], errors[at], every_levels[at], holds[at]
        held = sent[key[i]]
        if error_pct == 0.0 or error == 0.0:
            pass
        elif hold and np.isfinite(held) and within_real(held, values[i], error_pct, error):
            out[i] = held
        else:
            level = _level(values[i], levels, error_pct, error)
            if np.isfinite(level) and within_real(level, values[i], error_pct, error):
                out[i] = level
        sent[key[i]] = out[i]
    return out


@njit(cache=True, error_model="numpy")
def _round_integer(key, wanted, values, valid, precision, errors_pct, errors, every_levels, holds):  # type: ignore[no-untyped-def]
    n = len(values)
    keys = (key.max() + 1) if n else 0
    sent = np.zeros(keys, np.int64)
    known = np.zeros(keys, np.bool_)
    out = values.copy()
    for i in range(n):
        if not wanted[i] or not valid[i]:
            continue
        k = key[i]
        at = precision[i]
        error_pct, error, levels, hold = errors_pct[at], errors[at], every_levels[at], holds[at]
        if error_pct == 0.0 or error == 0.0:
            pass
        elif hold and known[k] and within_integer(sent[k], values[i], error_pct, error):
            out[i] = sent[k]
        else:
            level = np.rint(_level(np.float64(values[i]), levels, error_pct, error))
            if abs(level) < 9.2e18 and within_integer(np.int64(level), values[i], error_pct, error):
                out[i] = np.int64(level)
        sent[k] = out[i]
        known[k] = True
    return out


def round_rows(
    model: AttributeModel, frame: Frame, is_rounded: np.ndarray, precision: np.ndarray | None = None
) -> Column:
    """Return the attribute's column with the rows of the mask rounded, and the others unchanged.

    `precision` has the index of each row's rounding in the model (default: the first). The state of `hold` starts new
    in every frame. For a later batch of an open frame, pass the rows from the start of the frame and use the new ones.
    """
    column = frame.columns[model.attribute]
    bounds = [one.bound for one in model.roundings]
    if column.kind == "text" or not any(min(one.error_pct, one.error) for one in bounds):
        return column
    kernel = _round_real if column.kind == "real" else _round_integer
    values = kernel(
        frame.key,
        np.ascontiguousarray(is_rounded, np.bool_),
        column.values,
        column.valid,
        checked_precision(precision, len(frame), len(bounds)),
        np.array([one.error_pct for one in bounds]),
        np.array([one.error for one in bounds]),
        np.array([float(levels_per_octave(one.error_pct)) for one in bounds]),
        np.array([one.method == "hold" for one in model.roundings]),
    )
    return Column(column.kind, values, column.valid)


def rounded_bound_pct(
    model: AttributeModel, sent: Column, is_rounded: np.ndarray, precision: np.ndarray
) -> np.ndarray:
    """Return the bound of each rounded value in %, from the values as sent; NaN if a value was sent unchanged.

    >>> from spillway.levers.attributes.synopsis.model import Rounding
    >>> model = AttributeModel("max", "real", error_pct=10, way="round", roundings=(Rounding("grid", 10.0),))
    >>> rows, first = np.array([True, True, False]), np.zeros(3, int)
    >>> rounded_bound_pct(model, Column.real([102.4, 0.0, 7.0]), rows, first).tolist()
    [10.0, nan, nan]
    """
    bounds = [one.bound for one in model.roundings]
    if sent.kind == "text" or not bounds:
        return np.full(len(sent), np.nan)
    told = recovered_bound_pct(bounds, precision, sent.values)
    inexact = is_rounded & sent.valid & np.isfinite(sent.values) & (sent.values != 0) & (told > 0)
    return np.where(inexact, told, np.nan)


def sent_frame(
    frame: Frame,
    models: Mapping[str, AttributeModel],
    is_shed: Mapping[str, np.ndarray],
    is_rounded: Mapping[str, np.ndarray],
    truth_of: str | None = None,
    precision: Mapping[str, np.ndarray] | None = None,
) -> Frame:
    """Return the frame as the destination sees it: rounded values rounded at their `precision`, shed values null.

    With `truth_of`, the shed values of that attribute stay, as `entries.shed` requires for it. Predictors read the
    other columns, so both ends must compute them by this function.

    >>> from spillway.levers.attributes.synopsis.model import Rounding
    >>> frame = Frame(np.arange(2), np.zeros(2, int), {"a": Column.real([101.0, 7.0])})
    >>> model = AttributeModel("a", "real", error_pct=10, roundings=(Rounding("grid", 10.0),))
    >>> masks = {"a": np.array([False, True])}, {"a": np.array([True, False])}
    >>> sent_frame(frame, {"a": model}, *masks).columns["a"].to_list()
    [102.4, None]
    >>> sent_frame(frame, {"a": model}, *masks, truth_of="a").columns["a"].to_list()
    [102.4, 7.0]
    """
    places = precision or {}
    rounded = {
        name: round_rows(models[name], frame, rows, places.get(name)) for name, rows in is_rounded.items()
    }
    hidden = {name: rows for name, rows in is_shed.items() if name != truth_of}
    return frame.with_columns(rounded).as_transmitted(hidden)


def parquet_bytes(column: Column) -> int:
    """Return the bytes of the column as it is sent (Parquet)."""
    return compressed_widths(pa.table({"a": column.to_arrow()}))["a"] if len(column) else 0
