"""Choose the predictors and precisions of every attribute by their packed bytes on training data.

For each attribute the candidates are shed and packed as in operation: the paper's `last` (Ahuja 2006), and sets of
predictors, each at precisions from exact to the full bound E. The set with the lowest curve of bytes by mean error
wins, but never one that takes more bytes than `last` at E. Of its precisions, and of the roundings, those on the lower
convex hull are kept and thinned: no mixture of two others is better. Each of them is an option with its measurements.
The plan chooses among the options.

A model whose predictor has regressors also has predictors without each of them. So a scheme that sheds a regressor
still has the next best predictor.

>>> rows = np.arange(600)
>>> columns = {"a": Column.real((rows * 7919 % 97) + 1.0), "b": Column.real(((rows * 7919 % 97) + 1.0) * 25.4)}
>>> trained = train_attributes(Frame(rows, rows % 3, columns), {"b": 1.0})
>>> trained["b"].model.predictors[0].name, [option.way for option in trained["b"].options]
('regression', ['keep', 'round', 'shed'])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.option import PREDICTORS, WAYS
from spillway.levers.attributes.packing.whole_numbers import decimals_of
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.threshold.curve import LOOSEST_PCT
from spillway.levers.attributes.training.search import ModelSearch, TrainedAttribute, shed_all


def train_attributes(
    frame: Frame,
    error_pct: Mapping[str, float],
    *,
    regressors: Iterable[str] | None = None,
    ways: Sequence[str] = WAYS,
    predictors: Sequence[str] = PREDICTORS,
    cycle_length: int = 0,
    error: Mapping[str, float] | None = None,
    rate_pct: float = LOOSEST_PCT,
    clocks: Mapping[str, str] | None = None,
) -> dict[str, TrainedAttribute]:
    """Train every attribute named in `error_pct` (its bound E) on the rows of `frame`.

    `regressors` are the attributes that predictions may read (default: every numeric column of the frame). `predictors`
    are those of the contract; ``["last"]`` is the paper's method. `error` has bounds in an attribute's own unit; the
    loss is then mean error / bound x `rate_pct`. `clocks` has the attributes with a time that are always sent
    (attribute: unit of its whole numbers); predictions may read their parts.
    """
    usable = [*frame.columns] if regressors is None else [*regressors]
    usable = [name for name in usable if name in frame.columns and frame.columns[name].kind != "text"]
    trained = {}
    for attribute, bound in error_pct.items():
        kind = frame.columns[attribute].kind
        start = AttributeModel(
            attribute,
            kind,
            bound,
            decimals=_decimals(frame.columns[attribute]),
            cycle_length=cycle_length,
            error=(error or {}).get(attribute),
        )
        names = [name for name in usable if name != attribute] if "regression" in predictors else []
        trained[attribute] = ModelSearch(start, frame, names, predictors, rate_pct, clocks).run(ways)
    return trained


class AttributeTrainer(Protocol):
    """`train_attributes` with its settings bound."""

    def __call__(
        self, frame: Frame, error_pct: Mapping[str, float], *, regressors: Iterable[str] | None
    ) -> dict[str, TrainedAttribute]: ...


def train_cascade(
    frame: Frame,
    error_pct: Mapping[str, float],
    order: Sequence[str],
    sent: Iterable[str],
    learn: AttributeTrainer,
) -> dict[str, TrainedAttribute]:
    """Train attributes that are all shed, in the order of their recovery; `sent` are transmitted.

    The specification excludes shed attributes from the regressors. But in a fixed order both ends have the recovered
    values of the attributes before. So each attribute may use those before it as regressors, and is trained on their
    *recovered* values, not on the true ones. The guarantee stays the same, because the source reconstructs from exactly
    the values that the destination has.
    """
    trained: dict[str, TrainedAttribute] = {}
    readable = [*sent]
    for rank, attribute in enumerate(order):
        one = learn(frame, {attribute: error_pct[attribute]}, regressors=readable)[attribute]
        trained[attribute] = replace(one, model=replace(one.model, rank=rank))
        given = shed_all(one.model, frame).reconstructed
        frame = frame.with_columns({attribute: given})
        readable.append(attribute)
    return trained


def recovery_order(trained: Mapping[str, TrainedAttribute], shed_attributes: Sequence[str]) -> list[str]:
    """Return the order of recovery: first the regressors that most packed bytes depend on, then the smallest synopses.

    >>> rows = np.arange(600)
    >>> base = (rows * 7919 % 97) + 1.0
    >>> columns = {"b": Column.real(base * 25.4), "a": Column.real(base), "c": Column.real(base + 3.0)}
    >>> trained = train_attributes(Frame(rows, rows % 3, columns), {"a": 1.0, "b": 1.0, "c": 1.0})
    >>> sorted(recovery_order(trained, ["a", "b", "c"]))
    ['a', 'b', 'c']
    """
    leans = dict.fromkeys(shed_attributes, 0)
    for name in shed_attributes:
        for other in trained[name].model.predictors[0].regressors:
            if other in leans:
                leans[other] += int(trained[name].evidence["last_packed_bytes"])
    size = {name: int(trained[name].evidence["last_packed_bytes"]) for name in shed_attributes}
    return sorted(shed_attributes, key=lambda name: (-leans[name], size[name], shed_attributes.index(name)))


def _decimals(column: Column) -> int | None:
    if column.kind != "real":
        return None
    numbers = column.values[column.valid & np.isfinite(column.values)]
    return decimals_of(numbers, 6)
