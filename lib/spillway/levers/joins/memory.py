"""What a join remembers from window to window, as a row that is replaced with its window.

Everything here follows from windows that are done, so whoever works the next one out, on however many machines and
after whatever death, begins with the same. What was measured in time is pinned here too: a rerun spends what the first
run would have spent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spillway.levers.joins.operands import Array
from spillway.levers.joins.type_worth import TypePairs


@dataclass(frozen=True)
class LearnedSide:
    """One window: what its comparisons told of it, and of the types of rows."""

    matches: Array = field(default_factory=lambda: np.zeros(0))
    comparisons: Array = field(default_factory=lambda: np.zeros(0))
    """By basic window."""
    squares: float = 0.0
    """Matches by probing row, squared, and summed."""
    types: TypePairs = field(default_factory=TypePairs)
    sample: tuple[float, ...] = ()
    """Of the last window alone: the chance of a comparison to be drawn, and the pairs that nothing else found."""


@dataclass(frozen=True)
class Memory:
    """What is known when a window begins. Left: of the window over the left stream, which right rows probe."""

    r: float = 1.0
    debt_steps: float = 0.0
    free_at: float = 0.0
    core_seconds: float = 0.0
    core_steps: float = 0.0
    left: LearnedSide = field(default_factory=LearnedSide)
    right: LearnedSide = field(default_factory=LearnedSide)

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> Memory:
        """As a window left it."""
        return Memory(
            row["r_next"],
            row["debt_steps"],
            row["free_at"],
            row["core_seconds"],
            row["core_steps"],
            _side(row["left_learned"]),
            _side(row["right_learned"]),
        )

    def row(self) -> dict[str, Any]:
        """Its columns of the table."""
        return {
            "r_next": self.r,
            "debt_steps": self.debt_steps,
            "free_at": self.free_at,
            "core_seconds": self.core_seconds,
            "core_steps": self.core_steps,
            "left_learned": _row(self.left),
            "right_learned": _row(self.right),
        }


def _side(row: Mapping[str, Any]) -> LearnedSide:
    pairs, expected, worth = (np.array(row[name], np.float64) for name in ("pairs", "expected", "worth"))
    return LearnedSide(
        np.array(row["matches"], np.float64),
        np.array(row["comparisons"], np.float64),
        row["squares"],
        TypePairs(pairs, expected, worth, row["type_squares"]),
        tuple(row["sample"]),
    )


def _row(side: LearnedSide) -> dict[str, Any]:
    return {
        "matches": side.matches.tolist(),
        "comparisons": side.comparisons.tolist(),
        "squares": side.squares,
        "pairs": side.types.pairs.tolist(),
        "expected": side.types.expected.tolist(),
        "worth": side.types.worth.tolist(),
        "type_squares": side.types.squares,
        "sample": list(side.sample),
    }
