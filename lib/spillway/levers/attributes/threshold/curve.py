"""The error threshold E of an attribute (3.2.4.3): E = min(fixed point, category recovery error rate, 20.33 %).

- *Curve*: the share of values that the synopsis would store, against E from 0 to 100 %. The store rule is
  that of Algorithm 3 with the sign mended (errata A17, A18): per key, mv is the value last stored and sv the
  next; sv is stored when |mv - sv| / |sv| x 100 > E. The first value of a key is always stored, zero
  matches only zero (`bounds`), and a null, NaN or infinity is stored on any change.
- *Fixed point*: the smallest E of the grid beyond which the curve stays within `flatness` (1 %) of the whole
  drop, above its last value.
- *Drift*: the fixed point of a later window against the trained one, in per cent of the larger (Table 4.3).

All thresholds are followed in one pass over the values: each threshold of the grid has its own last stored
value per key, because what was stored depends on E. Cost: values x thresholds comparisons, no allocation.

Guarantee: the share at every E of the grid is exactly what Algorithm 3 would store, for the counting is the
algorithm. The curve need not fall monotonically (a larger E may store one value more), which is why the
fixed point looks at all of the curve beyond E and not at its first flat step.

Where we differ: the thesis reads the point off a drawing; "flat" is defined here so that outliers, which keep
a curve falling slowly for ever, cannot move it. The text allows streams of no known class any error; ours is never
looser than its loosest class, for the fixed point of whatever comes and goes may be 100 %. The overrule of a contract
wins over all.

>>> import numpy as np
>>> drawn = curve(np.array([100.0, 109.0, 111.0, 112.0, 90.0]), np.zeros(5, dtype=np.int64), [0, 10, 100])
>>> drawn.stored_share_pct
(100.0, 60.0, 20.0)
>>> threshold(9.2, 4.7)
Threshold(error_pct=4.7, source='category', error=None)

What may be given back inexactly: quantities, of which a little more or less means about the same (ours).

Timestamps, dates, booleans and text are none. Of whole numbers (integers, and reals that are all whole) some count or
measure and others name: a status, a postcode, a weekday. One per cent of a name is another name, so what is not plainly
a quantity is a *code*, and codes come back exactly. In the rows of training whole numbers are a quantity when they

- take more than `FEW_VALUES` different values (of type double, which is to declare a measure: `FEW_REALS`), and
- either seldom recur (more than `SELDOM_RECUR` of the rows hold another value), or fill their range: at least half of
  the steps between the least and the greatest occur, a step being their greatest common divisor.

So 200, 404 and 502 are codes, a postcode that recurs is one, and so is a small count such as people in a room: where
either reading is possible, the strict one is taken. Names that fill their range (customers numbered from 1) cannot be
told from counts; the contract says `codes: true` of them, and `error_pct` or `error` of a quantity that this takes for
codes.

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

from spillway.errors import Refused
from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.synopsis.bounds import within_real

_Reals = npt.NDArray[np.float64]
_Whole = npt.NDArray[np.int64]

# fine where curves fall, coarse where they are flat: the text's fixed points lie between 1.2 and 21.2
ERROR_GRID_PCT: tuple[float, ...] = tuple(
    [step / 20 for step in range(0, 100)]
    + [step / 10 for step in range(50, 250)]
    + [step / 2 for step in range(50, 201)]
)
FLATNESS = 0.01
LOOSEST_PCT = 20.33
"""The rate of the loosest class: what states no bound of its own is never allowed more."""


@dataclass(frozen=True)
class Curve:
    """Stored share against threshold; `values` counts what the shares are shares of."""

    error_pct: tuple[float, ...]
    stored_share_pct: tuple[float, ...]
    values: int


@dataclass(frozen=True)
class Threshold:
    """E in per cent (infinity: no relative bound) and in the attribute's unit, and where it comes from.

    That is fixed_point, category, loosest_class or contract; or why the attribute is given back exactly.
    """

    error_pct: float
    source: str
    error: float | None = None


@dataclass(frozen=True)
class ThresholdDrift:
    """A trained fixed point against a later one; `retrain` asks for new training."""

    trained_pct: float
    observed_pct: float
    deviation_points: float
    deviation_pct: float
    retrain: bool


def curve(
    values: npt.ArrayLike, keys: npt.ArrayLike, error_grid_pct: Sequence[float] = ERROR_GRID_PCT
) -> Curve:
    """The stored share at every threshold of the grid; `keys` are codes 0, 1, ... in any order."""
    column = np.ascontiguousarray(values, dtype=np.float64)
    codes = np.ascontiguousarray(keys, dtype=np.int64)
    grid = np.ascontiguousarray(error_grid_pct, dtype=np.float64)
    if codes.shape != column.shape:
        raise Refused(
            "keys",
            f"name the key of each of {column.size} values",
            codes.size,
            "pass both columns of the same rows",
        )
    if codes.size and codes.min() < 0:
        raise Refused("keys", "be codes of 0 or more", int(codes.min()), "encode the keys first")
    if grid.size == 0 or not np.all(np.diff(grid) > 0) or grid[0] < 0 or not np.isfinite(grid[-1]):
        raise Refused("error_grid_pct", "rise from 0 or more", list(error_grid_pct), "sort the thresholds")
    stored = _stored_counts(column, codes, grid, int(codes.max()) + 1 if codes.size else 0)
    shares = stored * 100.0 / max(column.size, 1)
    return Curve(tuple(grid.tolist()), tuple(shares.tolist()), int(column.size))


def fixed_point(drawn: Curve, flatness: float = FLATNESS) -> float:
    """The smallest E beyond which the curve stays within `flatness` of its whole drop.

    >>> fixed_point(Curve((0, 1, 2, 3), (100, 40, 20.5, 20), 200))
    2.0
    """
    if not 0 < flatness < 1:
        raise Refused("flatness", "lie between 0 and 1", flatness, "0.01 is one per cent")
    shares = np.asarray(drawn.stored_share_pct)
    floor = shares[-1]
    allowed = flatness * (shares.max() - floor)
    above = np.nonzero(shares - floor > allowed + 1e-12)[0]
    first_flat = int(above[-1]) + 1 if above.size else 0
    return float(drawn.error_pct[min(first_flat, shares.size - 1)])


def threshold(
    fixed_point_pct: float, category_rate_pct: float = math.inf, overrule_pct: float | None = None
) -> Threshold:
    """The lowest of fixed point, category rate and the loosest class, unless the contract overrules them.

    >>> threshold(9.5, 13.5).source, threshold(20, math.inf, overrule_pct=3).source, threshold(100.0).error_pct
    ('fixed_point', 'contract', 20.33)
    """
    if overrule_pct is not None:
        _check_error("error_pct", overrule_pct)
        if math.isinf(overrule_pct):
            raise Refused(
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
    """How far a later fixed point is from the trained one.

    The deviation is relative to the observed point, as Table 4.3 has it (1.3 against 1.2 is 8.33 %), and is
    infinite when only the observed point is 0. The thesis saw up to 8.94 %; `tolerated_pct` leaves room for
    the grid's step and asks for retraining beyond.

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
        raise Refused(name, "be 0 or more", value, "state it in per cent")


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
    """Whether the values name things, as far as can be seen; what has no values yet is in doubt, and so does."""
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
    """Whether at least half of the steps between the least and the greatest of distinct values occur."""
    gaps = np.diff(found.astype(np.float64))
    if not gaps.max() < 2.0**53:
        return False
    step = int(np.gcd.reduce(gaps.astype(np.int64)))
    return len(found) >= FILLED * (float(gaps.sum()) / step + 1)
