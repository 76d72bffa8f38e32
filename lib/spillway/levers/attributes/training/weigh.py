"""What shedding a column by a model would take: bytes and errors, measured or estimated.

>>> from spillway.levers.attributes.columns import Column
>>> frame = Frame(np.arange(4), np.zeros(4, int), {"a": Column.real([10.0, 10.2, 12.0, 12.1])})
>>> found = measure(AttributeModel("a", "real", error_pct=5.0), frame)
>>> found.stored_share_pct, round(found.max_error_pct, 2), found.violations
(50.0, 1.96, 0)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.packing.block import pack
from spillway.levers.attributes.synopsis.certificate import certify
from spillway.levers.attributes.synopsis.entries import Shed, shed
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.threshold.curve import LOOSEST_PCT
from spillway.levers.attributes.training.candidates import estimated_bytes
from spillway.levers.certificate import Certificate


@dataclass(frozen=True)
class Weighed:
    """What shedding a whole column by a model would store."""

    packed_bytes: int
    stored_share_pct: float
    mean_error_pct: float
    max_error_pct: float
    violations: int


def measure(
    model: AttributeModel,
    frame: Frame,
    estimate: bool = False,
    precision: int = -1,
    rate_pct: float = LOOSEST_PCT,
) -> Weighed:
    """Shed the whole column at a precision (-1: the coarsest), pack it (or estimate what that takes), and compare."""
    result = all_shed(model, frame, precision)
    stored = len(result.entries)
    truth, bound = frame.columns[model.attribute], model.bound
    errors = certify(truth, result.reconstructed, bound.error_pct, None, stored, error=bound.error)
    size = estimated_bytes(frame, result) if estimate else len(pack(result.entries, frame))
    return Weighed(
        size,
        errors.stored_share_pct,
        loss_of(errors, truth, rate_pct),
        errors.max_error_pct,
        errors.violations,
    )


def loss_of(errors: Certificate, truth: Column, rate_pct: float) -> float:
    """The loss of a whole column given back with these errors: their mean over the values that there are.

    >>> truth = Column.real([10.0, None, None, None])
    >>> loss_of(Certificate(5.0, shed_values=4, sum_error_pct=2.0), truth, 20.0)
    2.0
    """
    present = int(truth.valid.sum())
    return errors.loss_pct(rate_pct) * len(truth) / present if present else 0.0


def all_shed(model: AttributeModel, frame: Frame, precision: int = -1) -> Shed:
    """The whole column shed at a precision (-1: the coarsest)."""
    place = model.coarsest if precision < 0 else precision
    return shed(model, frame, np.ones(len(frame), np.bool_), 0, np.full(len(frame), place))
