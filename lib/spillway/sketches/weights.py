"""Weights of keys: integers, one per key, and small enough that 64-bit counters cannot overflow."""

from __future__ import annotations

import numpy as np

from spillway.errors import InvalidValue
from spillway.sketches.types import Integers

WEIGHT_MAX = 1 << 62
"""The limit of the sum of absolute weights. The sum is in float64, which does not wrap; 2^62 allows for rounding."""


def whole_weights(weights: object, keys: int, absolute: int) -> Integers:
    """Return the weights as 64-bit integers. `absolute`: the sum of all absolute weights that were added before.

    >>> whole_weights([2, -1], 2, 0).tolist()
    [2, -1]
    >>> whole_weights([0.5, 2.0], 2, 0)
    Traceback (most recent call last):
        ...
    spillway.errors.InvalidValue: `weights` must be whole numbers of 64 bits, got 0.5; scale the weights
    """
    given = np.asarray(weights)
    if given.shape != (keys,):
        raise InvalidValue("weights", f"be {keys}, one per key", given.shape, "repeat a constant")
    amounts = given.astype(np.int64) if given.dtype.kind in "biuf" and np.isfinite(given).all() else None
    if amounts is None or (amounts != given).any():
        odd = given if amounts is None else given[amounts != given]
        raise InvalidValue(
            "weights", "be whole numbers of 64 bits", odd.ravel()[0].item(), "scale the weights"
        )
    if float(np.abs(amounts.astype(np.float64)).sum()) + absolute >= WEIGHT_MAX:
        raise InvalidValue("weights", "sum to less than 2^62", "more", "scale the weights down")
    return amounts
