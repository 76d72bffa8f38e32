"""How much is looked beyond what is selected: gamma and more while little is known, less where enough is.

Selecting can be no better than what is known of where matches lie. A comparison that chance picks finds as much, on
average, as one that is chosen in ignorance, so looking costs nothing while nothing is known, and ever more the more
is known. What is known is counted in *lumps*: matches, as many of them at a time as a popular item makes,
(sum m)^2 / sum m^2 over rows, which is their number where all match alike. K_j is a basic window's part of them by the
comparisons that were made there, those that were selected too: what is selected needs no look. How many are enough goes
by what there is to tell apart: tau^2, the variance of what basic windows yield a comparison, against their mean, beyond
what noise makes of it (`apart`), and of what may be spent, were all of it spent looking evenly, a basic window gets

    gamma_j = clip(gamma N / K_j, LEAST_LOOKED gamma, max(gamma, MOST_LOOKED)),    N = min(MOST_LUMPS, SIGNAL / tau^2)

and all of it before a match. A sharp peak is found with few lumps, a flat one needs many and loses little by looking.
So lags that nothing was known of because windows were not that full yet are looked at when they come. The paper samples
gamma r of everything from the first row to the last: a window after its start, or after a change (`changing`), it knows
next to nothing and selects by that.

>>> half, made = np.array([0.5, 0.5]), np.array([100.0, 100.0])
>>> explored(0.05, 0.0, half, made).tolist(), explored(0.05, 1e9, half, made).round(3).tolist()
([1.0, 1.0], [0.01, 0.01])
>>> explored(0.05, 10.0, np.array([50.0, 50.0]), made).round(3).tolist()
[0.32, 0.32]

Whether matches lie elsewhere now: a test of what selecting found against what was believed it would.

What is learned fades slowly, which is right as long as the streams keep their ways, and wrong for many windows after
they change them. Selecting says so at once: it compares thousands of rows a window with the basic windows that were the
best, and where the peak has moved they yield what any other would. So with F pairs found where P were expected of those
very comparisons, what was learned is dropped, and looking begins anew (`exploring`), where

    F < (1 - DROP) P    and    P - F > DEVIATIONS sqrt(phi P + P^2 / lumps),    phi = sum m^2 / sum m

phi P is the variance of F, as lumpy as a row's pairs are, and P^2 / lumps that of P, which rests on few lumps: what is
chosen because it looked best is less good than it looked, and must not be taken for a change. They are those behind
the very basic windows that P was expected of,

    P^2 / lumps = sum P_j^2 / K_j,    K_j = lumps known, by the comparisons that were made there (`exploring`)

so that a guess from what a neighbour yields, of a basic window in which hardly anything was compared, speaks as softly
as it is known. A peak that only grew elsewhere is found by looking, as what was known of it fades.

>>> moved(found=400.0, expected=1000.0, phi=3.0, lumps=200.0), moved(found=900.0, expected=1000.0, phi=3.0, lumps=200.0)
(True, False)
>>> moved(found=400.0, expected=1000.0, phi=3.0, lumps=10.0)
False

What a join remembers from window to window, as a row that is replaced with its window.

Everything here follows from windows that are done, so whoever works the next one out, on however many machines and
after whatever death, begins with the same. What was measured in time is pinned here too: a rerun spends what the first
run would have spent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spillway.levers.joins.controllers import TypePairs, apart
from spillway.levers.joins.operands import Array

SIGNAL = 0.5
"""tau^2 times the lumps of a basic window that are enough."""
MOST_LUMPS = 32.0
"""A basic window: enough, however little they differ."""
MOST_LOOKED = 0.5
"""What looking takes at most once anything was found."""
LEAST_LOOKED = 0.2
"""Of gamma: what is looked at however much is known, so that a peak that comes up elsewhere is seen."""


def explored(gamma: float, lumps: float, matches: Array, made: Array) -> Array:
    """gamma_j, the share of what may be spent on looking, by basic window.

    `matches`, `made`: pairs and comparisons, as they are remembered.
    """
    if lumps <= 0 or made.sum() <= 0:
        return np.ones(len(made))
    known = lumps * made / made.sum()
    seen = made > 0
    # what is selected is known so well that it alone would say what the mean is, and how much they differ
    heard = np.minimum(known[seen], 4 * MOST_LUMPS)
    yields = matches[seen] / made[seen]
    yields = yields / max(1e-300, float(heard @ yields / heard.sum()))
    enough = min(MOST_LUMPS, SIGNAL / max(1e-12, apart(yields, 1.0 / heard)))
    found: Array = np.clip(
        gamma * enough / np.maximum(known, 1e-12), LEAST_LOOKED * gamma, max(gamma, MOST_LOOKED)
    )
    return found


def lumps_of(matches: float, squares: float) -> float:
    """How many independent things so many matches tell: (sum m)^2 / sum m^2.

    >>> lumps_of(100.0, 1000.0)
    10.0
    """
    return matches * matches / squares if squares > 0 else 0.0


DROP = 0.25
DEVIATIONS = 3.0


def moved(found: float, expected: float, phi: float, lumps: float) -> bool:
    """Whether so few pairs, where so many were expected, say that matches have moved."""
    if expected <= 0 or lumps <= 0 or found >= (1.0 - DROP) * expected:
        return False
    spread = math.sqrt(max(1.0, phi) * expected + expected * expected / lumps)
    return expected - found > DEVIATIONS * spread


def lumps_behind(expected: Array, made: Array, lumps: float) -> float:
    """How many of the lumps that are known stand behind what is expected, by basic window; `made`: comparisons there.

    >>> import numpy as np
    >>> made = np.array([9000.0, 1000.0])
    >>> [round(lumps_behind(np.array(one), made, 100.0)) for one in ([5, 0], [5, 5], [0, 5])]
    [90, 36, 10]
    """
    some = expected > 0
    known = lumps * made[some] / max(1e-300, float(made.sum()))
    if not some.any() or (known <= 0).any():
        return 0.0
    return float(expected[some].sum() ** 2 / (expected[some] ** 2 / known).sum())


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
