"""A training set whose values are coded as small integers, shared by `search` and `validation`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from spillway.levers.attributes.cycle.codes import (
    Codes,
    determines,
    epoch_seconds,
    is_clock,
    joint_codes,
    value_codes,
)
from spillway.levers.attributes.cycle.trace import MOST_VALUES, replicated_period

RECURRING = 1.5
"""An order attribute recurs if its values have at least this number of tuples on average."""

Set = tuple[str, ...]
"""A set of attributes that are tested together."""


@dataclass
class CodedTrainingSet:
    """The columns of one training set, the codes of each column, and the periods of replicated attributes."""

    columns: Mapping[str, npt.NDArray[Any]]
    names: Sequence[str]
    bits: Mapping[str, int]
    order: npt.NDArray[Any] | None
    codes: dict[str, Codes] = field(default_factory=dict)
    values: dict[str, list[Any]] = field(default_factory=dict)
    periods: dict[str, int] = field(default_factory=dict)
    _timed: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.names:
            codes, values = value_codes(self.columns[name])
            missing = codes < 0
            if missing.mean() > 0.1:
                # above 10 %, null is a value of its own, such as a sub-sensor that most sites do not have
                codes = np.where(missing, len(values), codes)
                values = [*values, None]
            self.codes[name], self.values[name] = codes, values
            period = replicated_period(codes) if not (codes < 0).any() else None
            if period is not None:
                self.periods[name] = period

    @property
    def rows(self) -> int:
        """Return the number of tuples."""
        return len(self.codes[self.names[0]])

    def joint(self, attributes: Set) -> Codes:
        """Return one code per combination of values."""
        return joint_codes([self.codes[name] for name in attributes])

    def distinct(self, name: str) -> int:
        """Return the number of distinct values of an attribute."""
        return int(self.codes[name].max(initial=-1)) + 1

    def may_repeat(self, name: str) -> bool:
        """Return whether an attribute has enough values to distinguish tuples, and few enough to recur."""
        return 2 <= self.distinct(name) <= max(MOST_VALUES * self.rows, 2)

    def width(self, attributes: Set) -> float:
        """Return the sum of the declared bits; infinity if an attribute has none."""
        return sum(self.bits.get(name, inf) for name in attributes)

    def is_quantity(self, name: str) -> bool:
        """Return whether the values are numbers, which may be measurements."""
        return np.asarray(self.columns[name]).dtype.kind in "iuf"

    def is_clock(self, name: str) -> bool:
        """Return whether the values only repeat the time of the order attribute."""
        return self._seconds is not None and is_clock(self.codes[name], self._seconds)

    def tells_time(self, name: str) -> bool:
        """Return whether an attribute is a clock, or an order attribute that recurs determines it (hour -> round)."""
        if name not in self._timed:
            moments = self._moments
            follows = moments is not None and determines(moments, self.codes[name])
            self._timed[name] = follows or self.is_clock(name)
        return self._timed[name]

    @cached_property
    def _seconds(self) -> Codes | None:
        return None if self.order is None else epoch_seconds(self.order)

    @cached_property
    def _moments(self) -> Codes | None:
        """Return the codes of the order attribute if its values recur, else None; otherwise they determine
        everything."""
        if self.order is None:
            return None
        codes = value_codes(self.order)[0]
        return codes if len(codes) >= RECURRING * (int(codes.max(initial=0)) + 1) else None
