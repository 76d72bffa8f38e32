"""Measure a sample's synopsis: every measure shed by the product's training, on training tuples and on later ones.

As in the product, a measure is predicted from the recovered values of the measures before it. So each measure is
measured with all others shed at the same precision.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from evidence.attributes.codecs.samples import Sample
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.option import PREDICTORS, options_of
from spillway.levers.attributes.packing.block import pack
from spillway.levers.attributes.synopsis.bounds import certify
from spillway.levers.attributes.synopsis.entries import shed
from spillway.levers.attributes.synopsis.rounding import parquet_bytes, round_rows
from spillway.levers.attributes.threshold.curve import LOOSEST_PCT
from spillway.levers.attributes.training.cascade import recovery_order, train_attributes, train_cascade
from spillway.levers.attributes.training.search import TrainedAttribute, loss_of

CODES = 32


@dataclass(frozen=True)
class Synopsis:
    """The bytes of one measure, and its error; `violations` must be 0."""

    packed_bytes: int
    mean_error_pct: float
    violations: int


@dataclass(frozen=True)
class Trained:
    """The models of a sample's measures, in the order of their recovery."""

    order: tuple[str, ...]
    attributes: Mapping[str, TrainedAttribute]
    error_pct: Mapping[str, float]


def bounds_of(frame: Frame, measures: tuple[str, ...], error_pct: float) -> dict[str, float]:
    """Return the bound of each measure; whole numbers with few values are codes, which stay exact.

    >>> frame = Frame(np.arange(3), np.zeros(3, int), {"a": Column.real([1.0] * 3), "b": Column.integer([1, 2, 1])})
    >>> bounds_of(frame, ("a", "b"), 4.5)
    {'a': 4.5, 'b': 0.0}
    """
    return {name: 0.0 if _is_code(frame.columns[name]) else error_pct for name in measures}


def _is_code(column: Column) -> bool:
    return column.kind == "integer" and len(np.unique(column.values[column.valid])) <= CODES


def train_sample(sample: Sample, frame: Frame, error_pct: float) -> Trained:
    """Train the product on the sample with everything shed."""
    return train_within_bounds(sample, frame, bounds_of(frame, sample.measures, error_pct))


def train_within_bounds(
    sample: Sample, frame: Frame, bounds: Mapping[str, float], predictors: Sequence[str] = PREDICTORS
) -> Trained:
    """Return the product's training within given bounds, everything shed; `predictors` as in a contract."""
    learn = partial(train_attributes, clocks=sample.clocks, predictors=predictors)
    first = learn(frame, bounds, regressors=[*sample.measures, *sample.sent])
    order = recovery_order(first, list(sample.measures))
    models = train_cascade(frame, bounds, order, sample.sent, learn)
    return Trained(tuple(order), models, bounds)


def train_in_unit(sample: Sample, frame: Frame, error: Mapping[str, float]) -> Trained:
    """Train with bounds in each attribute's own unit and no relative ones; exact if an attribute has no bound."""
    bounds = {name: math.inf if bound else 0.0 for name, bound in error.items()}
    stated = {name: bound for name, bound in error.items() if bound}
    learn = partial(train_attributes, clocks=sample.clocks, error=stated)
    first = learn(frame, bounds, regressors=[*sample.measures, *sample.sent])
    order = recovery_order(first, list(sample.measures))
    return Trained(tuple(order), train_cascade(frame, bounds, order, sample.sent, learn), bounds)


def synopses_in_unit(trained: Trained, frame: Frame) -> dict[str, Synopsis]:
    """Shed every measure at its coarsest precision within its own bound; the mean error is in %."""
    found = {}
    for name in trained.order:
        model = trained.attributes[name].model
        result = shed(model, frame, np.ones(len(frame), np.bool_), 0, np.full(len(frame), model.coarsest))
        column, bound = frame.columns[name], model.bound
        errors = certify(
            column, result.reconstructed, bound.error_pct, None, len(result.entries), error=bound.error
        )
        mean = loss_of(errors, column, LOOSEST_PCT)
        found[name] = Synopsis(len(pack(result.entries, frame)), mean, errors.violations)
        frame = frame.with_columns({name: result.reconstructed})
    return found


def model_bytes(trained: Trained) -> int:
    """Return the deflated bytes of the models that recovery needs; they are sent once per training."""
    plain = json.dumps([one.model.to_dict() for one in trained.attributes.values()])
    return len(zlib.compress(plain.encode(), 9))


def place_within(trained: TrainedAttribute, mean_error_pct: float) -> int:
    """Return the coarsest precision within a mean error as measured in training; the finest if there is none."""
    options = options_of(trained.options, "shed")
    return max(
        (one.precision for one in options if one.mean_error_pct <= mean_error_pct),
        default=options[0].precision,
    )


def synopses_within(trained: Trained, frame: Frame, mean_error_pct: float) -> dict[str, Synopsis]:
    """Shed every measure at its coarsest precision within a mean error."""
    found = {}
    for name in trained.order:
        one = trained.attributes[name]
        place = place_within(one, mean_error_pct)
        result = shed(one.model, frame, np.ones(len(frame), np.bool_), 0, np.full(len(frame), place))
        errors = certify(
            frame.columns[name], result.reconstructed, one.model.error_pct, None, len(result.entries)
        )
        mean = loss_of(errors, frame.columns[name], LOOSEST_PCT)
        found[name] = Synopsis(len(pack(result.entries, frame)), mean, errors.violations)
        frame = frame.with_columns({name: result.reconstructed})
    return found


def plan_within(trained: Trained, frame: Frame, mean_error_pct: float) -> dict[str, Synopsis]:
    """Return each measure within a mean error in the treatment with the fewest bytes: kept, rounded or shed.

    The bytes are those that training measured, as in the product: a column that takes fewer bytes than its synopsis is
    kept exact.
    """
    found = {}
    for name in trained.order:
        one, column = trained.attributes[name], frame.columns[name]
        everything = np.ones(len(frame), np.bool_)
        within = [
            option
            for option in one.options
            if option.mean_error_pct <= mean_error_pct and (option.way != "round" or one.model.roundings)
        ]
        chosen = min(within, key=lambda option: option.bytes_per_tuple)
        place = np.full(len(frame), chosen.precision)
        if chosen.way == "shed":
            result = shed(one.model, frame, everything, 0, place)
            given, size = result.reconstructed, len(pack(result.entries, frame))
        else:
            given = round_rows(one.model, frame, everything, place) if chosen.way == "round" else column
            size = parquet_bytes(given)
        errors = certify(column, given, one.model.error_pct)
        found[name] = Synopsis(size, loss_of(errors, column, LOOSEST_PCT), errors.violations)
        frame = frame.with_columns({name: given})
    return found


def rounded_bytes(trained: Trained, frame: Frame, mean_error_pct: float) -> tuple[int, float]:
    """Return the sent bytes of all measures, each at its coarsest rounding within a mean error, and that mean error."""
    total, errors = 0, []
    for name in trained.order:
        one = trained.attributes[name]
        column = frame.columns[name]
        options = [o for o in options_of(one.options, "round") if o.mean_error_pct <= mean_error_pct]
        given = column
        if options and one.model.roundings:
            place = np.full(len(frame), max(o.precision for o in options))
            given = round_rows(one.model, frame, np.ones(len(frame), np.bool_), place)
        total += parquet_bytes(given)
        errors.append(loss_of(certify(column, given, one.model.error_pct), column, LOOSEST_PCT))
    return total, sum(errors) / max(1, len(errors))
