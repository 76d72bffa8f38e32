"""The layout: how values of dimensions lie on lines of places, for volumes, cuts and look-up (see `regions`).

    place of a value v:  (v - low) / (high - low), no less than 0 and no more than 1;   null: -1/16;   NaN: 1 + 1/32

A category's word lies at its number, and is as wide as any other. The domain is what the contract states, else where
the sample lies, a few odd values aside, and where queries look: beyond it everything is at the end.

>>> line = Axis.of(Dimension("temp", "double"), np.array([10.0, 20.0, 30.0]), nulls=True)
>>> line.low, line.high, line.place_of_values(np.array([20.0, 99.0])).tolist()
(10.0, 30.0, [0.5, 1.0])
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.errors import Refused
from spillway.levers.sifters.dimensions import Dimension, whole_type
from spillway.levers.sifters.spans import END, NAN, NULL, key_floats

STRIP = 1.0 / 16.0
"""How wide nulls lie, and NaN; values take 1."""
_NULL_PLACE, _NAN_PLACE = -STRIP, 1.0 + STRIP / 2.0
OUTLYING = 0.005
"""This share of the sample at either end does not stretch the domain beyond half its width."""


@dataclass(frozen=True)
class Axis:
    """The line that one dimension's values lie on."""

    dimension: Dimension
    low: float
    high: float
    nulls: bool = False
    nans: bool = False

    @staticmethod
    def of(
        dimension: Dimension,
        values: np.ndarray,
        edges: Sequence[float] = (),
        nulls: bool = False,
        nans: bool = False,
    ) -> Axis:
        """The line of a sample's values and the finite edges of queries."""
        if dimension.is_text:
            return Axis(dimension, 0.0, float(dimension.other + 1), nulls, nans)
        if dimension.type == "boolean":
            return Axis(dimension, 0.0, 2.0, nulls, nans)
        known = np.asarray(values, float)
        known = known[np.isfinite(known)]
        low, high = dimension.low, dimension.high
        if low is None or high is None:
            found = _domain(known, [edge for edge in edges if math.isfinite(edge)])
            low = found[0] if low is None else low
            # a whole number is as wide as the step to the next
            high = (found[1] + (1.0 if whole_type(dimension.type) else 0.0)) if high is None else high
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise Refused(
                dimension.name, "have a domain from low to high", [low, high], "write between: [low, high]"
            )
        return Axis(dimension, float(low), float(high), nulls, nans)

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the line."""
        return -STRIP if self.nulls else 0.0, 1.0 + STRIP if self.nans else 1.0

    @property
    def constant(self) -> bool:
        """Whether all values lie at one place, so that nothing can be cut."""
        return self.low == self.high and not self.nulls and not self.nans

    def place_of_values(self, values: np.ndarray) -> np.ndarray:
        """The places of values that are neither null nor NaN."""
        span = self.high - self.low
        if span <= 0 or not math.isfinite(span):
            halves = np.asarray(values) / 2 - self.low / 2
            return (
                np.clip(halves / (self.high / 2 - self.low / 2), 0.0, 1.0)
                if span > 0
                else np.where(np.asarray(values) > self.low, 1.0, 0.0)
            )
        with np.errstate(over="ignore"):
            return np.clip((np.asarray(values, float) - self.low) / span, 0.0, 1.0)

    def places_of(self, keys: np.ndarray) -> np.ndarray:
        """The places of keys of `dimension`."""
        values = key_floats(np.minimum(keys, NAN - 1)) if self.dimension.type == "double" else keys
        finite = np.where(keys == NULL, self.low, values) if self.dimension.type == "double" else values
        found = self.place_of_values(np.nan_to_num(finite, nan=self.high))
        found = np.where(keys == NULL, _NULL_PLACE, found)
        return np.where(keys >= NAN, _NAN_PLACE, found) if self.dimension.type == "double" else found

    def edges_of(self, keys: np.ndarray) -> np.ndarray:
        """The places of edges of boxes: the first key of a box, or the one behind its last."""
        low, high = self.ends
        values = key_floats(np.clip(keys, NULL + 1, NAN - 1)) if self.dimension.type == "double" else keys
        found = self.place_of_values(np.nan_to_num(values, nan=self.low, posinf=math.inf, neginf=-math.inf))
        found = np.where(keys <= NULL + 1, 0.0, found)
        found = np.where(keys == NULL, low, found)
        found = np.where(keys >= NAN, 1.0, found)
        return np.where(keys == END, high, found)

    def value_at(self, place: float) -> float:
        """The value that lies at a place; infinite at the ends of the line."""
        if place <= 0.0:
            return -math.inf
        if place >= 1.0:
            return math.inf
        return self.low + place * (self.high - self.low)

    def to_dict(self) -> dict[str, Any]:
        """The line as plain values."""
        return asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Axis:
        """A line from plain values."""
        stated = dict(values["dimension"])
        stated["words"] = tuple(stated["words"])
        return Axis(**{**values, "dimension": Dimension(**stated)})


@dataclass(frozen=True)
class Layout:
    """The lines of all dimensions."""

    lines: tuple[Axis, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes, in order."""
        return tuple(line.dimension.name for line in self.lines)

    @property
    def space(self) -> np.ndarray:
        """By dimension, the ends of its line."""
        return np.array([line.ends for line in self.lines], float).reshape(-1, 2)

    def keys(self, rows: pa.Table) -> np.ndarray:
        """By dimension and row, its key."""
        found = np.empty((len(self.lines), rows.num_rows), np.int64)
        for place, line in enumerate(self.lines):
            found[place] = line.dimension.keys_of(rows[line.dimension.name])
        return found

    def places(self, keys: np.ndarray) -> np.ndarray:
        """By dimension and row, where such keys lie."""
        found = np.empty(keys.shape)
        for place, line in enumerate(self.lines):
            found[place] = line.places_of(keys[place])
        return found

    def boxes(self, keys: np.ndarray) -> np.ndarray:
        """Boxes of keys as boxes of places."""
        found = np.empty(keys.shape, float)
        for place, line in enumerate(self.lines):
            found[:, place, :] = line.edges_of(keys[:, place, :])
        return found


def _domain(known: np.ndarray, edges: Sequence[float]) -> tuple[float, float]:
    """Where a sample lies: odd values at its ends, and what queries name far outside, do not stretch it."""
    if not len(known):
        return (min(edges), max(edges)) if edges else (0.0, 0.0)
    low, high = np.quantile(known, [OUTLYING, 1.0 - OUTLYING])
    with np.errstate(over="ignore"):
        half = (high - low) / 2.0
        least, most = max(known.min(), low - half), min(known.max(), high + half)
        inside = [edge for edge in edges if least - half <= edge <= most + half]
    return float(min([least, *inside])), float(max([most, *inside]))
