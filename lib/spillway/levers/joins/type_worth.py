"""u_iz: what a comparison of a row of type z yields, in utility, from as few rows as there are (5.3).

Two things make it: how often rows of the type match, and what a pair of theirs is worth.

*How often*, against rows of all types: m_z = M_z / E_z, with M_z the pairs that rows of type z made and E_z what their
very comparisons were expected to make if types matched alike, sum_j (comparisons with basic window j) o_ij. So a type
that was compared with the best basic windows alone is not taken for a better one, and every comparison tells of it,
not the sample's alone. Few rows make many of a window's pairs, so m_z is noisy, and it is drawn to the mean of all as
far as the types' differences can be noise (DerSimonian and Laird's random effects):

    v_z = phi m / E_z,   Q = sum (m_z - m)^2 / v_z,   tau^2 = max(0, (Q - (k - 1)) / (S_1 - S_2 / S_1)),
    m_z' = m + (m_z - m) tau^2 / (tau^2 + v_z),       S_p = sum v_z^-p,  phi = sum m^2 / sum m over rows

Types that match alike, or of which too little is known, are thus told apart by their utilities alone.

*What a pair is worth*: the mean of max(V(z), V(y)) over its pairs, with `GUESSED` lumps of pairs more in which types y
come as they do in the window.

>>> import numpy as np
>>> alike = TypePairs(np.array([105.0, 95.0]), np.array([100.0, 100.0]), np.array([105.0, 95.0]), squares=800.0)
>>> types_match(alike).tolist()
[1.0, 1.0]
>>> apart = TypePairs(np.array([1500.0, 500.0]), np.array([1e3, 1e3]), np.array([1500.0, 500.0]), squares=8000.0)
>>> [round(float(m), 2) for m in types_match(apart)]
[1.5, 0.5]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from spillway.levers.joins.operands import Array

GUESSED = 10.0
"""Lumps of pairs whose partners are taken as types come in the window."""


@dataclass(frozen=True)
class TypePairs:
    """By type of the probing row: pairs made, pairs expected if types matched alike, utility; squares of m by row."""

    pairs: Array = field(default_factory=lambda: np.zeros(0))
    expected: Array = field(default_factory=lambda: np.zeros(0))
    worth: Array = field(default_factory=lambda: np.zeros(0))
    squares: float = 0.0

    def then(self, later: TypePairs, memory: float) -> TypePairs:
        """What is known a window later."""
        if len(self.pairs) != len(later.pairs):  # the contract's types are others now
            return later
        return TypePairs(
            self.pairs * memory + later.pairs,
            self.expected * memory + later.expected,
            self.worth * memory + later.worth,
            self.squares * memory + later.squares,
        )

    @property
    def phi(self) -> float:
        """Pairs that come at a time."""
        total = float(self.pairs.sum())
        return max(1.0, self.squares / total) if total > 0 else 1.0


def types_match(known: TypePairs) -> Array:
    """m_z' / m: how often rows of each type match, against all."""
    even = np.ones(len(known.pairs))
    seen = known.expected > 0
    total = float(known.expected.sum())
    if seen.sum() < 2 or known.pairs.sum() <= 0:
        return even
    mean = float(known.pairs.sum()) / total
    ratio = known.pairs[seen] / known.expected[seen] / mean
    noise = known.phi / (mean * known.expected[seen])
    between = apart(ratio, noise)
    even[seen] += (ratio - 1.0) * between / (between + noise)
    return np.maximum(even, 0.0)


def apart(ratio: Array, noise: Array) -> float:
    """tau^2: how much things of mean 1 differ beyond their noise (its variances), by DerSimonian and Laird.

    >>> apart(np.array([1.5, 0.5]), np.array([0.01, 0.01])), apart(np.array([1.05, 0.95]), np.array([0.01, 0.01]))
    (0.49, 0.0)
    """
    sums = [float((noise**-p).sum()) for p in (1, 2)]
    heterogeneity = float(((ratio - 1.0) ** 2 / noise).sum()) - (len(ratio) - 1)
    return max(0.0, heterogeneity / max(1e-12, sums[0] - sums[1] / sums[0]))


def worth_by_type(known: TypePairs, often: Array, worth: Sequence[float]) -> Array:
    """Utility of a comparison by type of the probing row, where one of any type yields one pair on average.

    `often`: how often each type is in the window.
    """
    values = np.asarray(worth, np.float64)
    alike: Array = np.maximum(values[:, None], values[None, :]) @ (often / max(1.0, float(often.sum())))
    if len(known.pairs) != len(values):
        return alike
    guessed = GUESSED * known.phi
    return types_match(known) * (known.worth + guessed * alike) / (known.pairs + guessed)
