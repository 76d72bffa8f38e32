"""Several streams on one channel: how much each gives up (3.3).

- Drop rate (R - C) / R with R the sum of the rates, 0 when R <= C; stream n gives up R'_n = drop rate x R_n
  (equation 3.8) and ceil(R'_n / R_n x N_n) of its N_n attributes (equation 3.9, whose ceiling the print lost).
  Example 6: 64.4, 80.6, 76.6, 72.2 kbps with 6, 8, 10, 9 attributes into 256.6 kbps give up 1, 2, 2, 2.
A bit of one stream may be worth more than a bit of another: `divide_by: utility` chooses among all ways of all
streams at once (`levers.rate_distortion`), and needs nothing of this.

Guarantee: exact rationals (`levers.exact`). A share is stored as a double and read back as the same rational, so
`plan: prefix, fit: count` sheds as many attributes as equation 3.9 says.

>>> proportional([64.4, 80.6, 76.6, 72.2], [6, 8, 10, 9], 256.6).attributes_to_shed
(1, 2, 2, 2)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from spillway.errors import Refused
from spillway.levers.exact import exact


@dataclass(frozen=True)
class Proportional:
    """The text's share: one drop rate for all; per stream the kbps and the attributes to give up."""

    drop_rate: Fraction
    kbps_to_shed: tuple[Fraction, ...]
    attributes_to_shed: tuple[int, ...]


def drop_rate(rates_kbps: Sequence[float], capacity_kbps: float) -> Fraction:
    """(R - C) / R, or 0 when all fits.

    >>> round(float(drop_rate([64.4, 80.6, 76.6, 72.2], 256.6)), 4)
    0.1266
    """
    _check(rates_kbps, capacity_kbps)
    total = sum((exact(rate) for rate in rates_kbps), Fraction(0))
    capacity = exact(capacity_kbps)
    return Fraction(0) if total <= capacity else (total - capacity) / total


def proportional(
    rates_kbps: Sequence[float], attributes: Sequence[int], capacity_kbps: float
) -> Proportional:
    """Every stream gives up the same share of its rate (equations 3.8 and 3.9)."""
    if len(rates_kbps) != len(attributes) or any(count < 0 for count in attributes):
        raise Refused(
            "attributes",
            f"count the attributes of each of {len(rates_kbps)} streams",
            list(attributes),
            "give one count of 0 or more a stream",
        )
    share = drop_rate(rates_kbps, capacity_kbps)
    return Proportional(
        drop_rate=share,
        kbps_to_shed=tuple(share * exact(rate) for rate in rates_kbps),
        attributes_to_shed=tuple(
            math.ceil(share * count) if rate else 0
            for rate, count in zip(rates_kbps, attributes, strict=True)
        ),
    )


def proportional_capacities(rates_kbps: Sequence[float], capacity_kbps: float) -> tuple[float, ...]:
    """What each stream may send, R_n - R'_n: together never above the channel.

    >>> proportional_capacities([60, 20], 40)
    (30.0, 10.0)
    """
    kept = 1 - drop_rate(rates_kbps, capacity_kbps)
    return tuple(float(exact(rate) * kept) for rate in rates_kbps)


def _check(rates_kbps: Sequence[float], capacity_kbps: float) -> None:
    for rate in rates_kbps:
        if not (math.isfinite(rate) and rate >= 0):
            raise Refused("rates_kbps", "be 0 or more", rate, "measure the stream again")
    if not (math.isfinite(capacity_kbps) and capacity_kbps > 0):
        raise Refused("capacity_kbps", "be above 0", capacity_kbps, "state the channel's capacity")
