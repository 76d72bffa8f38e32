"""Compute the cost and the error of a scheme as numbers that can be compared.

>>> one = cost_of(100, 20, {"temp": 1.0, "humid": 3.0}, measures=4)
>>> one.net_bytes, one.mean_error_pct, one.accuracy_pct
(120.0, 1.0, 98.0)
>>> mean_cost([one, cost_of(50, 0, {}, measures=4)]).net_bytes
85.0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class SchemeCost:
    """Sent bytes and synopsis bytes; mean error over all measures (kept ones are exact); accuracy of the others."""

    wire_bytes: float
    synopsis_bytes: float
    mean_error_pct: float
    accuracy_pct: float

    @property
    def net_bytes(self) -> float:
        """The sum of the sent bytes and the synopsis."""
        return self.wire_bytes + self.synopsis_bytes

    def blended(self, other: SchemeCost, share: float) -> SchemeCost:
        """Return this cost for some tuples, and `other` for a share of them.

        >>> SchemeCost(10, 0, 0, 100).blended(SchemeCost(0, 4, 2, 98), 0.5).mean_error_pct
        1.0
        """
        pairs = zip(astuple(self), astuple(other), strict=True)
        return SchemeCost(*(mine + share * (its - mine) for mine, its in pairs))


def cost_of(
    wire_bytes: float, synopsis_bytes: float, mean_error_pct: Mapping[str, float], measures: int
) -> SchemeCost:
    """Return the cost of a scheme from the mean error of every attribute that is not sent exactly."""
    total = sum(mean_error_pct.values())
    accuracy = 100.0 - total / len(mean_error_pct) if mean_error_pct else 100.0
    return SchemeCost(float(wire_bytes), float(synopsis_bytes), total / measures, accuracy)


def mean_cost(every: Sequence[SchemeCost]) -> SchemeCost:
    """Return the mean of several costs, for random choices."""
    return SchemeCost(*(sum(values) / len(every) for values in zip(*map(astuple, every), strict=True)))
