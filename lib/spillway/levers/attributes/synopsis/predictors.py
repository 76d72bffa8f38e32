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

>>> rows = Frame(np.arange(2), np.zeros(2, int), {"last": Column.real([50.0, 51.0]), "chg": Column.real([1.0, 0.0])})
>>> regression_values((Term(100.0, ("chg",), ("last",)),), rows).tolist()
[2.0, 0.0]
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import ref

import numpy as np

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.synopsis.model import AttributeModel, Predictor, Term, clock_part, part_of
from spillway.levers.attributes.synopsis.walking import same_key_before


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


_evaluated: tuple[ref[Frame], tuple[Predictor, ...], Evaluated] | None = None


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The predictors of a model over a frame, as arrays for `walking.walk`."""

    offsets: np.ndarray
    regresses: np.ndarray
    persistence: np.ndarray
    slope: np.ndarray
    season: np.ndarray
    common: np.ndarray
    smoothing: np.ndarray

    @staticmethod
    def of(predictors: tuple[Predictor, ...], frame: Frame) -> Evaluated:
        """Evaluate the parts of the predictors that do not depend on the shed attribute itself.

        The last result is reused: training sheds one frame by the same predictors at dozens of precisions.
        """
        global _evaluated
        last = _evaluated
        if last is not None and last[0]() is frame and last[1] == predictors:
            return last[2]
        found = Evaluated._of(predictors, frame)
        _evaluated = (ref(frame), predictors, found)
        return found

    @staticmethod
    def _of(predictors: tuple[Predictor, ...], frame: Frame) -> Evaluated:
        offsets = np.full((len(predictors), len(frame)), np.nan)
        for i, predictor in enumerate(predictors):
            if predictor.terms:
                offsets[i] = regression_values(predictor.terms, frame)
        return Evaluated(
            offsets,
            np.array([bool(p.terms) for p in predictors]),
            np.array([p.persistence for p in predictors]),
            np.array([p.slope for p in predictors]),
            np.array([p.season for p in predictors], np.int64),
            np.array([p.common for p in predictors]),
            np.array([p.smoothing for p in predictors]),
        )


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
