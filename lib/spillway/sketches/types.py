"""What a sketch answers: an estimate is never given without its interval, its method and what it covers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spillway.errors import SpillwayError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Booleans = npt.NDArray[np.bool_]


class SketchError(SpillwayError, ValueError):
    """A sketch was asked for something that it cannot do soundly."""


def refuse(name: str, rule: str, got: object, remedy: str) -> SketchError:
    """The error to raise, in the one form all of Spillway uses.

    >>> print(refuse("width", "be at least 2", 1, "ask for more memory"))
    `width` must be at least 2, got 1; ask for more memory
    """
    return SketchError(f"`{name}` must {rule}, got {got!r}; {remedy}")


def require_same(kind: str, this: object, that: object) -> None:
    """Sketches combine only when built alike; the refusal names both parameters."""
    if this != that:
        raise SketchError(
            f"`{kind}` sketches must have the same parameters and seed to be combined, "
            f"got {this} and {that}; build both with one set of parameters"
        )


@dataclass(frozen=True)
class Estimates:
    """Estimates of many keys at once, each with an interval that holds with the stated confidence."""

    estimate: Floats
    low: Floats
    high: Floats
    confidence: float
    method: str


@dataclass(frozen=True)
class Covers:
    """The range of data an answer speaks of."""

    stream: str = ""
    name: str = ""
    from_date: str | None = None
    to_date: str | None = None
    batches: int = 0
    rows: int = 0


@dataclass(frozen=True)
class Answer:
    """One number with its interval, how it was computed, and the data it covers.

    >>> print(Answer(12.0, 10.0, 14.0, 0.95, "cmm_median", Covers("weather", "origin", rows=100)))
    12 (10 to 14 with 95 % confidence, cmm_median, weather/origin, 100 rows)
    """

    estimate: float
    low: float
    high: float
    confidence: float
    method: str
    covers: Covers = Covers()
    note: str = ""

    def __str__(self) -> str:
        dates = f", {self.covers.from_date} to {self.covers.to_date}" if self.covers.from_date else ""
        note = f"; {self.note}" if self.note else ""
        return (
            f"{self.estimate:.6g} ({self.low:.6g} to {self.high:.6g} with {100 * self.confidence:g} % "
            f"confidence, {self.method}, {self.covers.stream}/{self.covers.name}{dates}, "
            f"{self.covers.rows} rows{note})"
        )
