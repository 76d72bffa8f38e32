"""Answers of sketches. Every estimate has an interval, the method, and the data that it covers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Coverage:
    """The range of data that an answer covers."""

    stream: str = ""
    name: str = ""
    from_date: str | None = None
    to_date: str | None = None
    batches: int = 0
    rows: int = 0
    missing: int = 0
    """The number of batches of the range without a readable sketch. They are not part of the answer."""

    @property
    def missing_text(self) -> str:
        """The missing batches in words; empty if none is missing."""
        return (
            f"{self.missing} of {self.batches + self.missing} batches have no sketch" if self.missing else ""
        )


@dataclass(frozen=True)
class Answer:
    """One number with its interval, how it was computed, and the data it covers.

    >>> print(Answer(12.0, 10.0, 14.0, 0.95, "cmm_median", Coverage("weather", "origin", rows=100)))
    12 (10 to 14 with 95 % confidence, cmm_median, weather/origin, 100 rows)
    """

    estimate: float
    low: float
    high: float
    confidence: float
    method: str
    covers: Coverage = Coverage()
    note: str = ""
    kind: str = "double"
    """The type of the values: a date is a number of days, a timestamp a number of microseconds since 1970."""

    def __str__(self) -> str:
        dates = f", {self.covers.from_date} to {self.covers.to_date}" if self.covers.from_date else ""
        told = [self.note] * bool(self.note) + [self.covers.missing_text] * bool(self.covers.missing)
        note = "".join(f"; {one}" for one in told)
        return (
            f"{self.estimate:.6g} ({self.low:.6g} to {self.high:.6g} with {100 * self.confidence:g} % "
            f"confidence, {self.method}, {self.covers.stream}/{self.covers.name}{dates}, "
            f"{self.covers.rows} rows{note})"
        )


@dataclass(frozen=True)
class HeavyKey:
    """A key above the sketch's share of the rows, with its values if they are stored."""

    key: tuple[Any, ...] | None
    answer: Answer
