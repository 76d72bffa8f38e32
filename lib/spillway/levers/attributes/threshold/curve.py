"""Find the error threshold E of an attribute: E = min(fixed point, category recovery error rate, 20.33 %).

This is section 3.2.4.3 of Ahuja (2006).

- *Curve*: the share of values that the synopsis stores, for E from 0 to 100 %. The store rule is that of Algorithm 3
  with the sign corrected (errata A17, A18): for each key, mv is the last stored value and sv the next value; sv is
  stored if |mv - sv| / |sv| x 100 > E. The first value of a key is always stored, zero matches only zero (`bounds`),
  and a null, NaN or infinity is stored on every change.
- *Fixed point*: the smallest E of the grid beyond which the curve stays above its last value by at most `flatness`
  (1 %) of the whole drop.
- *Drift*: the deviation of the trained fixed point from that of a later window, in per cent of the later one
  (Table 4.3).

One pass over the values computes all thresholds. Each threshold of the grid has its own last stored value per key,
because that value depends on E. Cost: values x thresholds comparisons, without allocation.

Guarantee: the share at every E of the grid is exactly what Algorithm 3 stores, because the pass runs that algorithm.
The curve may rise (a larger E may store one value more). So the fixed point uses the whole curve beyond E and not its
first flat step.

Differences from the thesis: the thesis reads the point off a drawing. "Flat" is defined here so that outliers, which
let a curve fall slowly for ever, cannot move the point. The thesis allows any error to a stream without a known class.
Here the loosest class is the limit, because the fixed point of an intermittent value may be 100 %. A bound stated in
the contract overrules all of these.

>>> import numpy as np
>>> drawn = curve(np.array([100.0, 109.0, 111.0, 112.0, 90.0]), np.zeros(5, dtype=np.int64), [0, 10, 100])
>>> drawn.stored_share_pct
(100.0, 60.0, 20.0)
>>> threshold(9.2, 4.7)
Threshold(error_pct=4.7, source='category', error=None)

*Quantities and codes* (ours). Only quantities may be recovered inexactly. Timestamps, dates, booleans and text are no
quantities. Whole numbers (integers, and reals that are all whole) may count or measure, or they may be names: a status,
a postcode, a weekday. A name that is off by one per cent is another name. So whole numbers that are not clearly a
quantity are *codes*, and codes are recovered exactly. In the training rows, whole numbers are a quantity if they

- have more than `FEW_VALUES` different values (`FEW_REALS` for type double, which suggests a measure), and
- either seldom recur (the number of different values is above `SELDOM_RECUR` of the rows), or fill their range: at
  least half of the steps between the least and the greatest value occur, with their greatest common divisor as step.

So 200, 404 and 502 are codes, as is a postcode that recurs, and a small count such as the people in a room: in doubt
the strict reading applies. Names that fill their range (customers numbered from 1) look like counts; for these the
contract states `codes: true`. For a quantity that is taken for codes, it states `error_pct` or `error`.

>>> statuses = Column.integer([200, 404, 200, 502] * 500)
>>> delays = Column.integer([(7919 * row) % 1009 for row in range(2000)])
>>> are_codes(statuses), are_codes(delays)
(True, False)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from spillway.errors import InvalidValue
from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.synopsis.bounds import within_real

_Reals = npt.NDArray[np.float64]
_Whole = npt.NDArray[np.int64]

# fine where curves fall, coarse where they are flat: the fixed points in Ahuja (2006) lie between 1.2 and 21.2
ERROR_GRID_PCT: tuple[float, ...] = tuple(
    [step / 20 for step in range(0, 100)]
    + [step / 10 for step in range(50, 250)]
    + [step / 2 for step in range(50, 201)]
)
FLATNESS = 0.01
LOOSEST_PCT = 20.33
"""The rate of the loosest class; an attribute without a stated bound never gets a larger one."""


@dataclass(frozen=True)
class Curve:
    """The stored share by threshold; `values` is the number of all values."""

    error_pct: tuple[float, ...]
    stored_share_pct: tuple[float, ...]
    values: int


@dataclass(frozen=True)
class Threshold:
    """E in per cent (infinity: no relative bound) and in the attribute's own unit, and its source.

    The source is fixed_point, category, loosest_class or contract; or the reason why the attribute is recovered
    exactly.
    """

    error_pct: float
    source: str
    error: float | None = None


@dataclass(frozen=True)
class ThresholdDrift:
    """The comparison of a trained fixed point with a later one; `retrain` says whether to train again."""

    trained_pct: float
    observed_pct: float
    deviation_points: float
    deviation_pct: float
    retrain: bool


def curve(
    values: npt.ArrayLike, keys: npt.ArrayLike, error_grid_pct: Sequence[float] = ERROR_GRID_PCT
) -> Curve:
    """Return the stored share at every threshold of the grid; `keys` are codes 0, 1, ... in any order."""
    column = np.ascontiguousarray(values, dtype=np.float64)
    codes = np.ascontiguousarray(keys, dtype=np.int64)
    grid = np.ascontiguousarray(error_grid_pct, dtype=np.float64)
    if codes.shape != column.shape:
        raise InvalidValue(
            "keys",
            f"name the key of each of {column.size} values",
            codes.size,
            "pass both columns of the same rows",
        )
    if codes.size and codes.min() < 0:
        raise InvalidValue("keys", "be codes of 0 or more", int(codes.min()), "encode the keys first")
    if grid.size == 0 or not np.all(np.diff(grid) > 0) or grid[0] < 0 or not np.isfinite(grid[-1]):
        raise InvalidValue(
            "error_grid_pct", "rise from 0 or more", list(error_grid_pct), "sort the thresholds"
        )
    stored = _stored_counts(column, codes, grid, int(codes.max()) + 1 if codes.size else 0)
    shares = stored * 100.0 / max(column.size, 1)
    return Curve(tuple(grid.tolist()), tuple(shares.tolist()), int(column.size))


def fixed_point(drawn: Curve, flatness: float = FLATNESS) -> float:
    """Return the smallest E beyond which the curve stays within `flatness` of its whole drop.

    >>> fixed_point(Curve((0, 1, 2, 3), (100, 40, 20.5, 20), 200))
    2.0
    """
    if not 0 < flatness < 1:
        raise InvalidValue("flatness", "lie between 0 and 1", flatness, "0.01 is one per cent")
    shares = np.asarray(drawn.stored_share_pct)
    floor = shares[-1]
    allowed = flatness * (shares.max() - floor)
    above = np.nonzero(shares - floor > allowed + 1e-12)[0]
    first_flat = int(above[-1]) + 1 if above.size else 0
    return float(drawn.error_pct[min(first_flat, shares.size - 1)])


def threshold(
    fixed_point_pct: float, category_rate_pct: float = math.inf, overrule_pct: float | None = None
) -> Threshold:
    """Return the smallest of fixed point, category rate and loosest class, unless the contract overrules them.

    >>> threshold(9.5, 13.5).source, threshold(20, math.inf, overrule_pct=3).source, threshold(100.0).error_pct
    ('fixed_point', 'contract', 20.33)
    """
    if overrule_pct is not None:
        _check_error("error_pct", overrule_pct)
        if math.isinf(overrule_pct):
            raise InvalidValue(
                "error_pct", "be finite in a contract", overrule_pct, "leave it out to have it trained"
            )
        return Threshold(float(overrule_pct), "contract")
    _check_error("fixed_point_pct", fixed_point_pct)
    _check_error("category_rate_pct", category_rate_pct)
    if category_rate_pct < min(fixed_point_pct, LOOSEST_PCT):
        return Threshold(float(category_rate_pct), "category")
    if fixed_point_pct > LOOSEST_PCT:
        return Threshold(LOOSEST_PCT, "category" if category_rate_pct == LOOSEST_PCT else "loosest_class")
    return Threshold(float(fixed_point_pct), "fixed_point")


def threshold_drift(trained_pct: float, observed_pct: float, tolerated_pct: float = 25.0) -> ThresholdDrift:
    """Return the deviation of the trained fixed point from a later, observed one.

    It is relative to the observed point, as in Table 4.3 (1.3 against 1.2 is 8.33 %), and infinite if only the observed
    point is 0. The thesis observed up to 8.94 %. `tolerated_pct` is larger because of the step of the grid; above it,
    the stream should be trained again.

    >>> round(threshold_drift(1.3, 1.2).deviation_pct, 2), threshold_drift(4.5, 9).retrain
    (8.33, True)
    """
    _check_error("trained_pct", trained_pct)
    _check_error("observed_pct", observed_pct)
    points = abs(trained_pct - observed_pct)
    deviation = 100.0 * points / observed_pct if observed_pct > 0 else math.inf if points > 0 else 0.0
    return ThresholdDrift(trained_pct, observed_pct, points, deviation, deviation > tolerated_pct)


def _check_error(name: str, value: float) -> None:
    if math.isnan(value) or value < 0:
        raise InvalidValue(name, "be 0 or more", value, "state it in per cent")


@njit(cache=True, error_model="numpy")
def _stored_counts(values: _Reals, keys: _Whole, grid: _Reals, key_count: int) -> _Whole:
    thresholds = grid.size
    last = np.empty((key_count, thresholds))
    seen = np.zeros(key_count, dtype=np.bool_)
    stored = np.zeros(thresholds, dtype=np.int64)
    for i in range(values.size):
        key = keys[i]
        now = values[i]
        if not seen[key]:
            seen[key] = True
            for e in range(thresholds):
                last[key, e] = now
                stored[e] += 1
            continue
        for e in range(thresholds):
            if not within_real(last[key, e], now, grid[e], np.inf):
                last[key, e] = now
                stored[e] += 1
    return stored


FEW_VALUES, FEW_REALS = 64, 16
SELDOM_RECUR = 0.05
FILLED = 0.5
QUANTITIES = ("integer", "double")
"""The contract's types whose values may be quantities."""


def are_codes(column: Column) -> bool:
    """Return whether the values look like codes; True in doubt, as for a column without values."""
    if column.kind == "text":
        return True
    values = column.values[column.valid]
    if column.kind == "real":
        values = values[np.isfinite(values)]
        if not len(values) or bool((values != np.rint(values)).any()):
            return not len(values)
    found = np.unique(values)
    if len(found) <= (FEW_REALS if column.kind == "real" else FEW_VALUES):
        return True
    if len(found) > max(FEW_VALUES, SELDOM_RECUR * len(values)):
        return False
    return not _fill_their_range(found)


def _fill_their_range(found: np.ndarray) -> bool:
    """Return whether at least half of the steps between the least and the greatest distinct value occur."""
    gaps = np.diff(found.astype(np.float64))
    if not gaps.max() < 2.0**53:
        return False
    step = int(np.gcd.reduce(gaps.astype(np.int64)))
    return len(found) >= FILLED * (float(gaps.sum()) / step + 1)
