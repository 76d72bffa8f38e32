"""Choose predictor and precisions of every attribute by what they weigh, measured on training data.

For each attribute the candidates are shed and packed as they would be (specs: chosen at training by measured packed
bytes): the paper's `last`, and sets of predictors, each in precisions from exact to the full bound E. The set whose
curve of bytes against mean error lies lowest wins, never one that weighs more than `last` at E. Of its precisions, and
of the roundings, those stay that no mixture of two others beats: the lower convex hull, thinned. Each is an option of
its own with what was measured of it; which one is worth its bytes is for the plan to say.

A model that wins with regressors also carries predictors that do without each of them, so that a scheme
which sheds one still has the next best.

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
from spillway.levers.attributes.training.search import ModelSearch, TrainedAttribute, all_shed


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

    `regressors`: attributes that predictions may read (default: every numeric column of the frame).
    `predictors` as in the contract; ``["last"]`` is the paper's method. `error`: bounds in an attribute's own
    unit, of which the loss is the mean error over the bound times `rate_pct`. `clocks`: attributes that always
    travel and say when (attribute: unit of its whole numbers), whose parts predictions may read.
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


class Learn(Protocol):
    """`train_attributes` with its settings filled in."""

    def __call__(
        self, frame: Frame, error_pct: Mapping[str, float], *, regressors: Iterable[str] | None
    ) -> dict[str, TrainedAttribute]: ...


def train_cascade(
    frame: Frame, error_pct: Mapping[str, float], order: Sequence[str], sent: Iterable[str], learn: Learn
) -> dict[str, TrainedAttribute]:
    """Train attributes that are all shed, in the order in which they will be recovered; `sent` are transmitted.

    The spec keeps shed attributes out of the regressors. Both ends do have them, though, as recovered, once an order
    is agreed on; so each may rest on those before it, and is trained on them *as recovered*, not as they were. The
    guarantee is the same, for what the source reconstructs from is what the destination has.
    """
    trained: dict[str, TrainedAttribute] = {}
    readable = [*sent]
    for rank, attribute in enumerate(order):
        one = learn(frame, {attribute: error_pct[attribute]}, regressors=readable)[attribute]
        trained[attribute] = replace(one, model=replace(one.model, rank=rank))
        given = all_shed(one.model, frame).reconstructed
        frame = frame.with_columns({attribute: given})
        readable.append(attribute)
    return trained


def recovery_order(trained: Mapping[str, TrainedAttribute], shed_attributes: Sequence[str]) -> list[str]:
    """First what most others lean on when they may lean on anything, then what is small by itself.

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
