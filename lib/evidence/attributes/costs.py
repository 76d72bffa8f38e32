"""What a scheme costs and how far off it is, as numbers that schemes are compared by.

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
    """Bytes on the wire and in the synopsis; mean error over all measures, kept ones exact; accuracy of the others."""

    wire_bytes: float
    synopsis_bytes: float
    mean_error_pct: float
    accuracy_pct: float

    @property
    def net_bytes(self) -> float:
        """Wire and synopsis together."""
        return self.wire_bytes + self.synopsis_bytes

    def blended(self, other: SchemeCost, share: float) -> SchemeCost:
        """This for some tuples, `other` for a share of them.

        >>> SchemeCost(10, 0, 0, 100).blended(SchemeCost(0, 4, 2, 98), 0.5).mean_error_pct
        1.0
        """
        pairs = zip(astuple(self), astuple(other), strict=True)
        return SchemeCost(*(mine + share * (its - mine) for mine, its in pairs))


def cost_of(
    wire_bytes: float, synopsis_bytes: float, mean_error_pct: Mapping[str, float], measures: int
) -> SchemeCost:
    """The cost of a scheme, from the mean error of every attribute that does not travel as it is."""
    total = sum(mean_error_pct.values())
    accuracy = 100.0 - total / len(mean_error_pct) if mean_error_pct else 100.0
    return SchemeCost(float(wire_bytes), float(synopsis_bytes), total / measures, accuracy)


def mean_cost(every: Sequence[SchemeCost]) -> SchemeCost:
    """The mean of several: random choices."""
    return SchemeCost(*(sum(values) / len(every) for values in zip(*map(astuple, every), strict=True)))
