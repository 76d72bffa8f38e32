"""List the candidates of a search: predictors that read no other attribute, and precisions of corrections.

Slopes and the weight of changes that are common to all keys are estimated by least squares on the relative changes of
the training rows. Seasons are the lags with the smallest relative error. So a few candidates are enough.

>>> waves = np.round(50 + 20 * np.sin(np.arange(4800) // 2 * 2 * np.pi / 24), 2)
>>> frame = Frame(np.arange(4800), np.arange(4800) % 2, {"load": Column.real(waves)})
>>> without_regressors(frame, "load", ["season"])[0].season
24
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.packing.block import LONGEST_LIST
from spillway.levers.attributes.packing.whole_numbers import WholeForm
from spillway.levers.attributes.synopsis.entries import Shed
from spillway.levers.attributes.synopsis.model import Precision, Predictor
from spillway.levers.attributes.synopsis.predictors import same_key_before

LONGEST_SEASON = 200
LEAST_DIVISOR = 5
MOST_ZEROS, MOST_DECIMALS = 6, 6
"""Units from a million down to a millionth are tried."""
USUAL_SHARE = 0.5
"""A unit is usual if at least this share of the values are multiples of it."""
NEAR_STEPS, LARGEST_POWER_OF_TWO = 15, 25
WHOLE = 2 * (NEAR_STEPS + 1 + LARGEST_POWER_OF_TWO - 4) + 3
SYMBOLS = WHOLE + 1
"""Number of symbols of the estimate: no entry, each step up to `NEAR_STEPS`, larger steps by power of two, and whole
values."""
_RATES = (0.4, 0.1, 0.03)
AIMS = (1.0, 0.7, 0.45, 0.3, 0.2, 0.13, 0.08, 0.045, 0.025, 0.012)
"""Shares of the bound. The finest has about 1 % of the bound's error, so that a small shortfall adds little error."""
WIDTHS = (2.0, 1.5, 1.0)
"""Step widths as multiples of the aim. If values move slowly, a step of twice the aim overshoots by the whole aim."""
STEPS = tuple((aim, width) for width in WIDTHS for aim in AIMS if width == 2.0 or aim > 0.1)
"""Aims and widths that are tried. At the finest aims few values move slowly, so one width is enough."""


@dataclass(frozen=True)
class Lattice:
    """The allowed error of a prediction, in per cent and in the attribute's own unit, and the step of corrections."""

    aim_pct: float | None
    step_pct: float
    unit: float = 0.0
    aim: float | None = None

    @property
    def precision(self) -> Precision:
        """Return the precision for a model."""
        return Precision(self.aim_pct, self.step_pct, self.unit, self.aim)


@njit(cache=True)
def _symbol_counts(key, symbols):  # type: ignore[no-untyped-def]
    """Count how often each symbol follows each pair of kinds: of the key's symbol before, and of the row before."""
    counts = np.zeros((16, SYMBOLS), np.int64)
    before = np.zeros(key.max() + 1, np.int64)
    beside = 0
    for i in range(len(key)):
        symbol = symbols[i]
        counts[before[key[i]] * 4 + beside, symbol] += 1
        # no entry, a step down, a step up, a whole value
        kind = 0 if symbol == 0 else (3 if symbol == WHOLE else 1 + symbol % 2)
        before[key[i]] = kind
        beside = kind
    return counts


def estimated_bytes(frame: Frame, result: Shed) -> int:
    """Estimate the bytes of a block without coding it, by the entropy of the symbols of its rows.

    Symbols are "no entry", the steps from -15 to 15, larger steps by sign and power of two, and "whole value". The
    lower bits of larger steps and the bits of whole values are added by size.
    """
    if not len(frame):
        return 0
    entries = result.entries
    symbols = np.zeros(len(frame), np.int64)
    whole = ~entries.is_step
    size = np.abs(entries.steps)
    power = np.floor(np.log2(np.maximum(size, 1).astype(np.float64))).astype(np.int64)
    near = size <= NEAR_STEPS
    place = np.where(near, size, NEAR_STEPS + 1 + np.minimum(power, LARGEST_POWER_OF_TWO) - 4)
    # odd for steps up, even for steps down
    symbols[result.positions] = np.where(whole, WHOLE, 2 * place + 1 + (entries.steps < 0))
    counts = _symbol_counts(frame.key, symbols).astype(np.float64)
    totals = np.broadcast_to(counts.sum(1, keepdims=True), counts.shape)
    used = counts > 0
    bits = float((counts[used] * np.log2(totals[used] / counts[used])).sum()) + 8.0 * int(used.sum())
    bits += float(power[~whole & ~near].sum())
    bits += _bits_of_wholes(entries.values.take(whole), frame.key[result.positions[whole]])
    return int(bits / 8) + 1


def _bits_of_wholes(column: Column, key: np.ndarray) -> float:
    """Estimate the bits of whole values: as places in a list if few are different, else as differences.

    As in the coder (`packing.entry_coder`), a difference is taken to the whole value before of the same key.
    """
    known = column.valid & np.isfinite(column.values)
    values = column.values[known]
    distinct = len(np.unique(values))
    if distinct <= min(LONGEST_LIST, len(values) // 4 + 16):
        return len(values) * (1.0 + float(np.log2(1 + distinct)))
    wholes = WholeForm.of(column.kind, values).wholes(values).astype(np.float64)
    before = same_key_before(key[known])
    # the first whole value of a key is coded against the newest one of any key
    before = np.where(before >= 0, before, np.arange(-1, len(before) - 1))
    then = np.where(before >= 0, wholes[np.maximum(before, 0)], 0.0)
    return float(np.log2(1.0 + np.abs(wholes - then)).sum()) + 2.0 * len(wholes)


def lattices_of(
    error_pct: float, column: Column, decimals: int | None, error: float | None = None
) -> list[Lattice]:
    """Return the precisions to try, a good guess first; with even steps too if the values have a common unit.

    With a bound in the attribute's own unit (`error`), steps are even and multiples of the unit of the values.
    """
    if error is not None:
        return _even_lattices(error_pct, column, decimals, error)
    found = [Lattice(error_pct * 0.45, error_pct * 0.9)]
    found += [Lattice(error_pct * aim, error_pct * aim * width) for aim, width in STEPS]
    unit = unit_of(column, decimals)
    if unit:
        found += [Lattice(error_pct * aim, 0.0, unit) for aim in (1.0, 0.6, 0.3, 0.1)]
    ground = unit or least_of(column) * error_pct / 50.0
    if ground > 0:
        found += [Lattice(error_pct * aim, error_pct * aim * width, ground) for aim, width in STEPS]
    found += [Lattice(error_pct * aim, 0.0) for aim in (1.0, 0.45, 0.13)]
    exact = _exact_lattices(column, unit)
    return list(dict.fromkeys([*found, *exact] if error_pct else exact))


def _exact_lattices(column: Column, unit: float) -> list[Lattice]:
    """Return the exact precisions: steps of the unit of all values, steps of the usual unit, and whole values."""
    units = dict.fromkeys([unit, usual_unit(column), 0.0])
    return [Lattice(0.0, 0.0, one) for one in units]


def _even_lattices(error_pct: float, column: Column, decimals: int | None, error: float) -> list[Lattice]:
    """Return precisions of even steps, as multiples of the unit of the values.

    If steps are twice the aim wide, every value is within the aim of a step. Values near zero are an exception, because
    they may not become zero. If steps are one aim wide, the first step is near enough to these.

    >>> _even_lattices(math.inf, Column.real([1.5, 2.1]), 1, 0.07)[0]
    Lattice(aim_pct=None, step_pct=0.0, unit=0.1, aim=0.07)
    """
    least = unit_of(column, decimals)
    found = []
    for share, aims in STEPS:
        aim = error * share
        width = aims * aim if not least else least * math.floor(aims * aim / least * (1 + 1e-12))
        if width > 0 and math.isfinite(width):
            found.append(Lattice(None, 0.0, width, aim))
    found += [Lattice(None, 0.0, 0.0, error * share) for share in (1.0, 0.45, 0.13) if error]
    if math.isfinite(error_pct):
        found += [one for one in lattices_of(error_pct, column, decimals) if one.aim_pct]
    return list(dict.fromkeys([*found, *_exact_lattices(column, least)]))


def unit_of(column: Column, decimals: int | None) -> float:
    """Return the greatest common divisor of the values; 0 if it is of no use.

    >>> unit_of(Column.real([350.0, 20.0, 10.0]), 0), unit_of(Column.real([1.5, 0.25]), 2)
    (10.0, 0.25)
    """
    values = column.values[column.valid]
    if column.kind == "real":
        if decimals is None:
            return 0.0
        values = np.rint(values[np.isfinite(values)] * 10.0**decimals).astype(np.int64)
    if not len(values) or bool((np.abs(values.astype(np.float64)) >= 2.0**52).any()):
        return 0.0
    divisor = int(np.gcd.reduce(values))
    if divisor < LEAST_DIVISOR:  # all values may be even by chance, and later odd ones are then expensive
        divisor = 1
    return divisor / 10.0 ** (decimals or 0) if column.kind == "real" else float(divisor)


def usual_unit(column: Column) -> float:
    """Return the largest power of ten that most values are multiples of; 0 if there is none.

    Example: most prices are in cents, a few in hundredths of a cent. Steps of cents take six bits less, and the few
    other prices are stored whole.

    >>> usual_unit(Column.real([1.25, 3.5, 2.75, 8.01, 1.0625])), usual_unit(Column.real([1 / 3, 1 / 7]))
    (0.01, 0.0)
    """
    values = column.values[column.valid].astype(np.float64)
    values = values[(values != 0) & (np.abs(values) < 2.0**40)]
    for decimals in range(-MOST_ZEROS, MOST_DECIMALS + 1) if len(values) else ():
        scale = 10.0**decimals
        if float((np.rint(values * scale) / scale == values).mean()) >= USUAL_SHARE:
            return 1.0 / scale
    return 0.0


def least_of(column: Column) -> float:
    """Return the 2 % quantile of the sizes, at which the ladder of levels becomes relative; 0 if there is none."""
    sizes = np.abs(column.values[column.valid].astype(np.float64))
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    return float(np.quantile(sizes, 0.02)) if len(sizes) else 0.0


def without_regressors(frame: Frame, attribute: str, allowed: Sequence[str]) -> list[Predictor]:
    """Return trends, seasons, levels and common changes to try, with parameters from the data."""
    column = frame.columns[attribute]
    with np.errstate(all="ignore"):
        values = np.where(column.valid, column.values.astype(np.float64), np.nan)
        values = np.where(np.isfinite(values), values, np.nan)
        before = same_key_before(frame.key)
        change = _back(values, before, 1)[0]
        found: list[Predictor] = []
        if "trend" in allowed:
            found += [Predictor("trend", slope=s) for s in _slopes(change, before)]
        if "season" in allowed:
            found += _seasons(values, before)
        if "trend" in allowed:
            found += [
                Predictor("level", persistence=share, smoothing=rate)
                for rate in _RATES
                for share in (0.0, 0.5)
            ]
        if "any" in allowed:
            found += [Predictor("any", persistence=share) for share in (0.0, 0.5)]
            found += [Predictor("any", common=weight) for weight in _common(change)]
    return found


def _back(values: np.ndarray, before: np.ndarray, lag: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the relative change since the key's value `lag` of its rows before, and that row."""
    row = np.arange(len(values))
    for _ in range(lag):
        row = np.where(row >= 0, before[np.maximum(row, 0)], -1)
    then = np.where(row >= 0, values[np.maximum(row, 0)], np.nan)
    return (values - then) / np.where(then == 0, np.nan, then), row


def _share(now: np.ndarray, then: np.ndarray) -> float:
    good = np.isfinite(now) & np.isfinite(then) & (np.abs(now) < 1) & (np.abs(then) < 1)
    power = float((then[good] ** 2).sum())
    return float((now[good] * then[good]).sum()) / power if power > 0 else 0.0


def _slopes(change: np.ndarray, before: np.ndarray) -> list[float]:
    then = np.where(before >= 0, change[np.maximum(before, 0)], np.nan)
    slope = round(_share(change, then), 2)
    return [s for s in dict.fromkeys((slope, 1.0)) if math.isfinite(s) and abs(s) >= 0.05]


def _common(change: np.ndarray) -> list[float]:
    weight = round(_share(change[1:], change[:-1]), 2)
    return [w for w in dict.fromkeys((weight, 0.5, 1.0)) if math.isfinite(w) and abs(w) >= 0.05]


def _seasons(values: np.ndarray, before: np.ndarray) -> list[Predictor]:
    """Return season predictors for the two lags (in rows of a key) with the smallest error, if at most 1.5 x that of
    lag 1."""
    first = np.flatnonzero(before < 0)
    scores: dict[int, float] = {}
    row = np.arange(len(values))
    longest = min(LONGEST_SEASON, len(values) // max(1, 3 * len(first)))
    size = np.abs(values)
    for lag in range(1, longest + 1):
        row = np.where(row >= 0, before[np.maximum(row, 0)], -1)
        good = row >= 0
        miss = np.abs(values[good] - values[row[good]]) / np.maximum(size[good], 1e-300)
        miss = miss[np.isfinite(miss)]
        if len(miss) < 16:
            break
        scores[lag] = float(np.minimum(miss, 1.0).mean())
    lags = sorted((lag for lag in scores if lag > 1), key=lambda lag: scores[lag])[:2]
    peaks = [lag for lag in lags if scores[lag] <= 1.5 * scores[1]]
    return [Predictor("season", persistence=share, season=lag) for lag in peaks for share in (0.0, 1.0)]
