"""Exploration of a join's windows, the drift test, and the memory that one window leaves to the next.

**How much to explore.** Selection can be no better than the knowledge of where matches lie. While nothing is known, a
random comparison finds as many pairs as a selected one, so exploring costs nothing. The more is known, the more it
costs. So the share of exploration is gamma or more at first, and less later.

Knowledge is counted in *lumps*, the effective number of independent matches: (sum m)^2 / sum m^2 over rows, where m is
the number of matches of a row. It equals the number of matching rows if all match alike. K_j is the share of the lumps
that belongs to basic window j, in proportion to the comparisons made there. Selected comparisons count too: a basic
window that is selected needs no exploration. How many lumps are enough depends on tau^2 (`between_group_variance`): the
variance of the yield per comparison among basic windows, relative to the mean yield and beyond noise. If all of the
budget were spent on even exploration, basic window j would get the share

    gamma_j = clip(gamma N / K_j, LEAST_LOOKED gamma, max(gamma, MOST_LOOKED)),    N = min(MOST_LUMPS, SIGNAL / tau^2)

and the share 1 before the first match. A sharp peak is found with few lumps. A flat one needs many, and loses little by
exploration. Lags that become reachable only when windows fill are explored when they appear. Gedik, Wu, Yu and Liu
(2007) sample gamma r of everything at all times, so after a start or a change their method selects with little
knowledge for a window.

>>> half, made = np.array([0.5, 0.5]), np.array([100.0, 100.0])
>>> exploration_shares(0.05, 0.0, half, made).tolist(), exploration_shares(0.05, 1e9, half, made).round(3).tolist()
([1.0, 1.0], [0.01, 0.01])
>>> exploration_shares(0.05, 10.0, np.array([50.0, 50.0]), made).round(3).tolist()
[0.32, 0.32]

**Drift test.** Learned counts fade slowly. That is right while the streams do not change, and wrong for many windows
after a change. The selection shows a change at once: it makes thousands of comparisons per window in the best basic
windows, and after the peak has moved these yield no more than others. Let F be the pairs found and P the pairs expected
of the same comparisons. What was learned is dropped, and exploration starts again, if

    F < (1 - DROP) P    and    P - F > DEVIATIONS sqrt(phi P + P^2 / lumps),    phi = sum m^2 / sum m

phi P is the variance of F, since the pairs of a row come together. P^2 / lumps is the variance of P, which rests on few
lumps. It guards against selection bias: a selection that looked best is on average less good than it looked. The lumps
are those of the basic windows that P comes from,

    P^2 / lumps = sum P_j^2 / K_j,    K_j = lumps in proportion to the comparisons made there (as above)

so that a yield guessed from a neighbour, for a basic window with few comparisons, has little weight. A second peak that
grows elsewhere is found by exploration, while the learned counts fade.

>>> [has_drifted(found, expected=1000.0, phi=3.0, lumps=200.0) for found in (400.0, 900.0)]
[True, False]
>>> has_drifted(found=400.0, expected=1000.0, phi=3.0, lumps=10.0)
False

**Memory.** A join's memory is one row per window, replaced together with its window. It follows from finished windows
alone, so every process starts the next window from the same state, on any number of machines and after any crash.
Measured times are stored too, so that a rerun spends what the first run would have spent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spillway.levers.joins.controllers import TypePairs, between_group_variance
from spillway.levers.joins.operands import Array

SIGNAL = 0.5
"""Enough lumps of a basic window x tau^2."""
MOST_LUMPS = 32.0
"""Lumps that are enough for a basic window, however little the basic windows differ."""
MOST_LOOKED = 0.5
"""Largest share of exploration once a match was found."""
LEAST_LOOKED = 0.2
"""Smallest share of exploration, relative to gamma, so that a new peak elsewhere is found."""


def exploration_shares(gamma: float, lumps: float, matches: Array, made: Array) -> Array:
    """Return gamma_j, the share of the budget to explore with, by basic window.

    `matches`, `made`: remembered pairs and comparisons.
    """
    if lumps <= 0 or made.sum() <= 0:
        return np.ones(len(made))
    known = lumps * made / made.sum()
    seen = made > 0
    # limit the weight of selected basic windows: they are known so well that they alone would set mean and variance
    heard = np.minimum(known[seen], 4 * MOST_LUMPS)
    yields = matches[seen] / made[seen]
    yields = yields / max(1e-300, float(heard @ yields / heard.sum()))
    enough = min(MOST_LUMPS, SIGNAL / max(1e-12, between_group_variance(yields, 1.0 / heard)))
    found: Array = np.clip(
        gamma * enough / np.maximum(known, 1e-12), LEAST_LOOKED * gamma, max(gamma, MOST_LOOKED)
    )
    return found


def effective_matches(matches: float, squares: float) -> float:
    """Return the effective number of independent matches: (sum m)^2 / sum m^2.

    >>> effective_matches(100.0, 1000.0)
    10.0
    """
    return matches * matches / squares if squares > 0 else 0.0


DROP = 0.25
DEVIATIONS = 3.0


def has_drifted(found: float, expected: float, phi: float, lumps: float) -> bool:
    """Return whether the number of pairs found is so low that matches must have moved (drift test)."""
    if expected <= 0 or lumps <= 0 or found >= (1.0 - DROP) * expected:
        return False
    spread = math.sqrt(max(1.0, phi) * expected + expected * expected / lumps)
    return expected - found > DEVIATIONS * spread


def supporting_matches(expected: Array, made: Array, lumps: float) -> float:
    """Return the number of lumps that the expected pairs rest on.

    `expected`, `made`: pairs and comparisons by basic window.

    >>> import numpy as np
    >>> made = np.array([9000.0, 1000.0])
    >>> [round(supporting_matches(np.array(one), made, 100.0)) for one in ([5, 0], [5, 5], [0, 5])]
    [90, 36, 10]
    """
    some = expected > 0
    known = lumps * made[some] / max(1e-300, float(made.sum()))
    if not some.any() or (known <= 0).any():
        return 0.0
    return float(expected[some].sum() ** 2 / (expected[some] ** 2 / known).sum())


@dataclass(frozen=True)
class LearnedSide:
    """What earlier comparisons showed of one window: matches by basic window, and by row type."""

    matches: Array = field(default_factory=lambda: np.zeros(0))
    comparisons: Array = field(default_factory=lambda: np.zeros(0))
    """By basic window."""
    squares: float = 0.0
    """Sum of the squared numbers of matches per probing row."""
    types: TypePairs = field(default_factory=TypePairs)
    sample: tuple[float, ...] = ()
    """Of the last window only: the sampling probability, and the pairs that only the sample found."""


@dataclass(frozen=True)
class Memory:
    """State of a join when a window begins. `left`: of the window over the left stream, which right rows probe."""

    r: float = 1.0
    debt_steps: float = 0.0
    free_at: float = 0.0
    core_seconds: float = 0.0
    core_steps: float = 0.0
    left: LearnedSide = field(default_factory=LearnedSide)
    right: LearnedSide = field(default_factory=LearnedSide)

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> Memory:
        """Return the memory that a window left, from its row."""
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
        """Return the memory as columns of the table."""
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
    pairs, expected, worth = (np.array(row[name], np.float64) for name in ("pairs", "expected", "utility"))
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
        "utility": side.types.worth.tolist(),
        "type_squares": side.types.squares,
        "sample": list(side.sample),
    }
