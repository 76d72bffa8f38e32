"""Predict a shed value from what the destination knows at its row.

Let h1, h2, ... be the values of the row's key that the destination knows in this frame (transmitted or recovered,
numbers only), newest first. Let f be the value of a regression on the row as transmitted, and f' that on the row of h1.
The prediction is

* `previous`: h1;
* `trend`: h1 + slope (h1 - h2);
* `season`: hS + persistence (h1 - h(S+1)), S the season in rows of the key;
* `level`: L + persistence (h1 - L), L the smoothed values of the key: L becomes L + smoothing (v - L) at each value v,
  starting with the first;
* `any`: the last known value of any key, moved by persistence towards h1;
* `regression`: f + persistence (h1 - f'), f a sum of `Term`s: products and ratios of other attributes of this row and
  of the key's previous row, or parts of a time (`model.clock_part`);

each times (1 + common x surprise). The surprise is (v - b) / b at the row just before, of any key, with the known value
v and the prediction b. So a change that affects all keys is seen at the first of them.

A `blend` is the mean of all predictors that can be evaluated, each with the weight 1 / m^3. m is the predictor's
relative error so far, smoothed over the rows of the key (for a new key: over all rows). So every key uses the
predictors that were best for it, and others after a change. The model stores nothing about single keys. `last` (the
paper's: the last value *stored*) has its own kernel in `entries`.

Only +, -, *, / are used, elementwise and in a fixed order, so that every machine computes the same bits.

A new predictor touches five places:

1. `model.PARAMETERS`: its name and parameters (a new parameter is a field of `model.Predictor` and `PREDICTOR`);
2. here: its formula above, its kind in `KINDS`, a small compiled function, and its branch in `base_value`;
3. here, if it remembers something of each key: a field of `PAST`, and its update in `remember`;
4. `training.candidates.without_regressors`: the parameters that training tries;
5. `option.PREDICTORS`, only if a contract may choose it by name (then `make schema`).

>>> rows = Frame(np.arange(2), np.zeros(2, int), {"last": Column.real([50.0, 51.0]), "chg": Column.real([1.0, 0.0])})
>>> regression_values((Term(100.0, ("chg",), ("last",)),), rows).tolist()
[2.0, 0.0]
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import ref

import numpy as np
from numba import njit

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.synopsis.model import AttributeModel, Predictor, Term, clock_part, part_of

inner = njit(cache=True, error_model="numpy", _nrt=False)
"""Compile a function that allocates nothing: numba then counts no references to the arrays that it gets."""
inlined = njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
"""The same, for a function that LLVM would not inline but should: what it takes would be copied at each call."""
PREVIOUS, TREND, SEASON, LEVEL, ANY, REGRESSION = range(6)
KINDS = {
    "previous": PREVIOUS,
    "trend": TREND,
    "season": SEASON,
    "level": LEVEL,
    "any": ANY,
    "regression": REGRESSION,
}
"""The kind of a predictor in the kernels, by its name."""


PREDICTOR = np.dtype(
    [
        ("kind", "i8"),
        ("season", "i8"),
        ("persistence", "f8"),
        ("slope", "f8"),
        ("common", "f8"),
        ("smoothing", "f8"),
    ]
)
"""A predictor in the kernels: its kind and its parameters."""
PAST = np.dtype([("level", "f8"), ("regression", "f8"), ("miss", "f8")])
"""What a predictor remembers of a key: L, f', and its smoothed relative error m; NaN at first."""


class PredictorArrays(NamedTuple):
    """The predictors of a model over a frame, in the order of preference."""

    predictors: np.ndarray
    """Records of `PREDICTOR`."""
    regressions: np.ndarray
    """By predictor and row, the value of a regression (f); NaN if it cannot be evaluated."""


class Known(NamedTuple):
    """What the destination knows before a row."""

    key: int
    seen: int
    """The number of values of the key so far."""
    newest: float
    """h1; NaN if there is none."""
    newest_of_all: float
    """The last value of any key."""


_last_arrays: tuple[ref[Frame], tuple[Predictor, ...], PredictorArrays] | None = None


def predictor_arrays(predictors: tuple[Predictor, ...], frame: Frame) -> PredictorArrays:
    """Return the predictors as records, and the values of their regressions on every row.

    The last result is reused: training sheds one frame by the same predictors at dozens of precisions.
    """
    global _last_arrays
    last = _last_arrays
    if last is not None and last[0]() is frame and last[1] == predictors:
        return last[2]
    found = _predictor_arrays(predictors, frame)
    _last_arrays = (ref(frame), predictors, found)
    return found


def _predictor_arrays(predictors: tuple[Predictor, ...], frame: Frame) -> PredictorArrays:
    regressions = np.full((len(predictors), len(frame)), np.nan)
    for i, predictor in enumerate(predictors):
        if predictor.terms:
            regressions[i] = regression_values(predictor.terms, frame)
    records = [(KINDS[p.name], p.season, p.persistence, p.slope, p.common, p.smoothing) for p in predictors]
    return PredictorArrays(np.array(records, PREDICTOR), regressions)


@inner
def _value_before(history, known, lag):  # type: ignore[no-untyped-def]
    """Return the key's value number `lag` before this row; it must have as many."""
    return history[known.key, (known.seen - lag) % history.shape[1]]


@inner
def _trend(predictor, known, history):  # type: ignore[no-untyped-def]
    if predictor.slope == 0.0 or known.seen < 2:
        return known.newest
    return known.newest + predictor.slope * (known.newest - _value_before(history, known, 2))


@inner
def _season(predictor, known, history):  # type: ignore[no-untyped-def]
    if known.seen < predictor.season + 1:
        return np.nan
    value = _value_before(history, known, predictor.season)
    if predictor.persistence == 0.0:
        return value
    then = _value_before(history, known, predictor.season + 1)
    return value + predictor.persistence * (known.newest - then)


@inner
def _level(predictor, known, level):  # type: ignore[no-untyped-def]
    return level if predictor.persistence == 0.0 else level + predictor.persistence * (known.newest - level)


@inner
def _any(predictor, known):  # type: ignore[no-untyped-def]
    if predictor.persistence == 1.0:
        return known.newest
    if known.seen == 0:
        return known.newest_of_all
    return known.newest_of_all + predictor.persistence * (known.newest - known.newest_of_all)


@inner
def _regression(predictor, known, value, then):  # type: ignore[no-untyped-def]
    return value if predictor.persistence == 0.0 else value + predictor.persistence * (known.newest - then)


@inlined
def base_value(predictor, past, known, history, regression):  # type: ignore[no-untyped-def]
    """Return what a predictor predicts before the factor of the surprise; NaN if it cannot be evaluated.

    `history` has by key its newest values in a ring: value number v is at v % depth. `regression` is f.
    """
    kind = predictor.kind
    if kind == REGRESSION:
        return _regression(predictor, known, regression, past.regression)
    if kind == SEASON:
        return _season(predictor, known, history)
    if kind == LEVEL:
        return _level(predictor, known, past.level)
    if kind == ANY:
        return _any(predictor, known)
    if kind == TREND:
        return _trend(predictor, known, history)
    return known.newest


@inlined
def remember(predictor, past, value, regression):  # type: ignore[no-untyped-def]
    """Add a number that the destination knows now to what a predictor remembers of its key."""
    if predictor.kind == REGRESSION:
        past.regression = regression
    elif predictor.kind == LEVEL:
        level = past.level
        past.level = level + predictor.smoothing * (value - level) if np.isfinite(level) else value


@njit(cache=True, error_model="numpy")
def same_key_before(key):  # type: ignore[no-untyped-def]
    """Return for each row the previous row of its key; -1 if it is the first."""
    n = len(key)
    at = np.full(key.max() + 1 if n else 0, -1, np.int64)
    before = np.empty(n, np.int64)
    for i in range(n):
        before[i] = at[key[i]]
        at[key[i]] = i
    return before


def regression_values(terms: tuple[Term, ...], frame: Frame) -> np.ndarray:
    """Return the sum of the terms at every row; NaN if a regressor is null or shed, or the sum is not finite."""
    total = np.zeros(len(frame))
    reader = RegressorReader(frame)
    with np.errstate(all="ignore"):
        for term in terms:
            total = total + term.weight * reader.product(term)
    return np.asarray(np.where(np.isfinite(total), total, np.nan))


class RegressorReader:
    """The regressors of a frame as float64: of this row, and of the key's previous row ("name@1")."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._cache: dict[str, np.ndarray] = {}
        self._before: np.ndarray | None = None

    def values(self, name: str) -> np.ndarray:
        """Return one regressor, NaN where it is unknown."""
        if name not in self._cache:
            self._cache[name] = self._previous(name) if name.endswith("@1") else self._present(name)
        return self._cache[name]

    def _present(self, name: str) -> np.ndarray:
        column = self._frame.columns.get(name.partition("#")[0])
        if column is None or column.kind == "text":
            return np.full(len(self._frame), np.nan)
        if "#" in name:
            return np.where(column.valid, clock_part(column.values, part_of(name)).astype(np.float64), np.nan)
        return np.where(column.valid, column.values.astype(np.float64), np.nan)

    def _previous(self, name: str) -> np.ndarray:
        if self._before is None:
            self._before = same_key_before(self._frame.key)
        present = self.values(name.removesuffix("@1"))
        if not len(present):
            return present
        return np.where(self._before >= 0, present[np.maximum(self._before, 0)], np.nan)

    def product(self, term: Term) -> np.ndarray:
        """Return the term without its weight."""
        result = np.ones(len(self._frame))
        for name in term.numerators:
            result = result * self.values(name)
        for name in term.denominators:
            result = result / self.values(name)
        return result


def scale_of(model: AttributeModel) -> float:
    """Return the scale for rounding recovered values: 10^decimals, 1 for integers, 0 for no rounding."""
    if model.kind == "integer":
        return 1.0
    return 0.0 if model.decimals is None else float(10**model.decimals)


def column_as_floats(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a numeric column as float64, and exactly as int64 for integers (zeros for reals)."""
    if column.kind == "integer":
        return column.values.astype(np.float64), column.values.copy()
    return column.values.copy(), np.zeros(len(column), np.int64)
