"""Types that all sketch kernels share, and the check that two sketches can be combined."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spillway.errors import InvalidValue

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Booleans = npt.NDArray[np.bool_]


def require_same(kind: str, this: object, that: object) -> None:
    """Raise `InvalidValue` if two sketches have different parameters; the error names both.

    >>> require_same("bloom", "64 cells", "128 cells")
    Traceback (most recent call last):
        ...
    spillway.errors.InvalidValue: `bloom` must have the same parameters and seed to be combined, got ('64 cells', \
'128 cells'); build both with one set of parameters
    """
    if this != that:
        rule = "have the same parameters and seed to be combined"
        raise InvalidValue(kind, rule, (this, that), "build both with one set of parameters")


@dataclass(frozen=True)
class Estimates:
    """Estimates for a number of keys, each with an interval that holds with the stated confidence."""

    estimate: Floats
    low: Floats
    high: Floats
    confidence: float
    method: str
