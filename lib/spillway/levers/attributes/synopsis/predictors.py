"""Predictors: what the destination would say a shed value is, from what it knows at that row.

Let h1, h2, ... be the values of the row's key known to the destination in this frame (transmitted or
recovered, numbers only), newest first, and f a regression's value on the row as transmitted (f' at the row
of h1). Then the prediction is
* `previous`: h1;
* `trend`: h1 + slope (h1 - h2);
* `season`: hS + persistence (h1 - h(S+1)), S the season in rows of the key;
* `level`: L + persistence (h1 - L), L the key's values smoothed: L + smoothing (v - L) at each, from the first one on;
* `any`: the last value known of any key, moved by persistence towards h1;
* `regression`: f + persistence (h1 - f'), f a sum of `Term`s: products and ratios of never-shed attributes
  of this row and of the key's previous row, or parts of a time (`calendar`);
each times (1 + common x surprise), surprise = (v - b) / b at the row just before, whatever its key, with v
known there and b predicted: what moves all keys at once shows at the first of them.
A `blend` is the mean of all predictors that can be evaluated, each weighed by 1 / m^3: m is how far, relative to the
value and smoothed over the key's rows (a new key: over all rows), it missed so far. So every key gets the predictors
that have served it best, and another set when it changes, and nothing about keys has to be kept in the model.
`last` (the paper's: the last value *stored*) has a kernel of its own in `synopsis`.

Only +, -, *, / are used, elementwise and in a fixed order, so that every machine computes the same bits.

>>> rows = Frame(np.arange(2), np.zeros(2, int), {"last": Column.real([50.0, 51.0]), "chg": Column.real([1.0, 0.0])})
>>> regression_values((Term(100.0, ("chg",), ("last",)),), rows).tolist()
[2.0, 0.0]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.synopsis.model import AttributeModel, Predictor, Term, clock_part, part_of
from spillway.levers.attributes.synopsis.walking import same_key_before


def regression_values(terms: tuple[Term, ...], frame: Frame) -> np.ndarray:
    """The sum of the terms at every row; NaN where a regressor is null, shed, or makes no finite number."""
    total = np.zeros(len(frame))
    reader = RegressorReader(frame)
    with np.errstate(all="ignore"):
        for term in terms:
            total = total + term.weight * reader.product(term)
    return np.asarray(np.where(np.isfinite(total), total, np.nan))


class RegressorReader:
    """Regressors of a frame as float64, of this row and of the key's previous row ("name@1")."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._cache: dict[str, np.ndarray] = {}
        self._before: np.ndarray | None = None

    def values(self, name: str) -> np.ndarray:
        """One regressor, NaN where unknown."""
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
        """The term without its weight."""
        result = np.ones(len(self._frame))
        for name in term.numerators:
            result = result * self.values(name)
        for name in term.denominators:
            result = result / self.values(name)
        return result


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A model's predictors over a frame, as the arrays that `walking.walk` takes."""

    offsets: np.ndarray
    regresses: np.ndarray
    persistence: np.ndarray
    slope: np.ndarray
    season: np.ndarray
    common: np.ndarray
    smoothing: np.ndarray

    @staticmethod
    def of(predictors: tuple[Predictor, ...], frame: Frame) -> Evaluated:
        """Evaluate what does not depend on the shed attribute itself."""
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
    """10^decimals to round recovered values by, 1 for integers, 0 for not at all."""
    if model.kind == "integer":
        return 1.0
    return 0.0 if model.decimals is None else float(10**model.decimals)


def column_as_floats(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """A numeric column's values as float64, and exactly as int64 for integers (zeros for reals)."""
    if column.kind == "integer":
        return column.values.astype(np.float64), column.values.copy()
    return column.values.copy(), np.zeros(len(column), np.int64)
