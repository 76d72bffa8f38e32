"""The loss curve of a channel (loss in % as a function of capacity), and proportional shares.

**Loss curve.** It shows which capacity to choose, and what more capacity would improve. At each capacity the plan's
solver (`levers.knapsack`) chooses among all alternatives of all streams of the channel:

    loss(C) = sum of values x loss of the alternative chosen at C / sum of values          (in %; absent counts 100)

Each measure value counts the same, whatever its utility. If a plan may treat a share of the tuples better, so may the
curve. The baseline is dropping rows at random: a dropped row lacks all its values, so if a share s = C / rate of the
rows fits, loss = 100 x (1 - s).

Guarantee: if everything fits, the loss is 0. The objective of the plan (utility x loss) never grows with capacity.

>>> kept = Alternative(20.0, (0.0, 0.0, 20.0), "temp", "keep", 0.0, 10.0)
>>> ways = (kept, Alternative(5.0, (2.0, 1.0, 5.0), "temp", "round", 2.0, 10.0))
>>> offers = {"fields": Offer(30.0, None, (ways,))}
>>> [(one.capacity_kbps, one.loss_pct) for one in loss_curve(offers, [30.0, 20.0])]
[(30.0, 0.0), (20.0, 2.0)]
>>> row_drop_loss_pct(30.0, 20.0) > 33
True
>>> best_next_change(offers, loss_at_capacity(offers, 20.0)).fall
2.0

**Proportional shares.** They say how much each of several streams on one channel gives up (Ahuja 2006, 3.3).

- Drop rate (R - C) / R, where R is the sum of the rates; 0 when R <= C. Stream n gives up R'_n = drop rate x R_n
  (equation 3.8) and ceil(R'_n / R_n x N_n) of its N_n attributes (equation 3.9; the ceiling is missing in print).
  Example 6: 64.4, 80.6, 76.6, 72.2 kbps with 6, 8, 10, 9 attributes into 256.6 kbps give up 1, 2, 2, 2.

A bit of one stream may have a higher utility than a bit of another. `divide_by: utility` therefore chooses among all
alternatives of all streams at once (`levers.knapsack`), without these shares.

Guarantee: exact rationals (`levers.exact`). A share is stored as a double and read back as the same rational, so
`plan: prefix, fit: count` sheds as many attributes as equation 3.9 says.

>>> [round(kbps, 1) for kbps in proportional_capacities([64.4, 80.6, 76.6, 72.2], 256.6)]
[56.2, 70.4, 66.9, 63.1]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from spillway.errors import InvalidValue
from spillway.levers.exact import exact_fraction
from spillway.levers.knapsack import Alternative, least_cost, least_cost_divided
from spillway.levers.protocol import Offer


def drop_rate(rates_kbps: Sequence[float], capacity_kbps: float) -> Fraction:
    """Return (R - C) / R, or 0 if everything fits.

    >>> round(float(drop_rate([64.4, 80.6, 76.6, 72.2], 256.6)), 4)
    0.1266
    """
    _check(rates_kbps, capacity_kbps)
    total = sum((exact_fraction(rate) for rate in rates_kbps), Fraction(0))
    capacity = exact_fraction(capacity_kbps)
    return Fraction(0) if total <= capacity else (total - capacity) / total


def proportional_capacities(rates_kbps: Sequence[float], capacity_kbps: float) -> tuple[float, ...]:
    """Return what each stream may send, R_n - R'_n. The sum never exceeds the channel.

    >>> proportional_capacities([60, 20], 40)
    (30.0, 10.0)
    """
    kept = 1 - drop_rate(rates_kbps, capacity_kbps)
    return tuple(float(exact_fraction(rate) * kept) for rate in rates_kbps)


def _check(rates_kbps: Sequence[float], capacity_kbps: float) -> None:
    for rate in rates_kbps:
        if not (math.isfinite(rate) and rate >= 0):
            raise InvalidValue("rates_kbps", "be 0 or more", rate, "measure the stream again")
    if not (math.isfinite(capacity_kbps) and capacity_kbps > 0):
        raise InvalidValue("capacity_kbps", "be above 0", capacity_kbps, "state the channel's capacity")


STATES = 4_000
"""Limit on states of the solver. A curve has many points and is only looked at, so a smaller search is enough."""
MORE = 1.1
"""Factor for a slightly larger capacity."""


@dataclass(frozen=True)
class ItemChoice:
    """The alternative chosen for one item of a stream at a capacity."""

    stream: str
    choice: Alternative
    item: int
    """Index of the item among the stream's items."""
    share: float = 1.0
    """Share of its values; the rest of them may have another alternative."""


@dataclass(frozen=True)
class LossPoint:
    """A capacity, the kbps that would be sent, and the loss."""

    capacity_kbps: float
    sent_kbps: float
    loss_pct: float
    choices: tuple[ItemChoice, ...]

    @property
    def excess_kbps(self) -> float:
        """Return by how much the sent kbps exceed the capacity."""
        over = self.sent_kbps - self.capacity_kbps
        return over if over > 1e-9 * self.capacity_kbps else 0.0


@dataclass(frozen=True)
class NextChange:
    """The best use of the next kbps: a change from one alternative to another."""

    stream: str
    before: Alternative
    after: Alternative
    fall: float
    """Reduction of the channel's loss, in percentage points."""

    @property
    def kbps(self) -> float:
        """Return the kbps that the change takes."""
        return self.after.crosses - self.before.crosses


def loss_at_capacity(
    offers: Mapping[str, Offer], capacity_kbps: float, divide_by: str = "utility"
) -> LossPoint:
    """Return the choice of least cost at one capacity: all streams together, or each within its proportional share."""
    if divide_by == "proportional":
        rates = [offer.rate_kbps for offer in offers.values()]
        fits = sum(rates) <= capacity_kbps or not sum(rates)
        rooms = rates if fits else proportional_capacities(rates, capacity_kbps)
        groups = [({name: offer}, room) for (name, offer), room in zip(offers.items(), rooms, strict=True)]
    else:
        groups = [(dict(offers), capacity_kbps)]
    taken: list[ItemChoice] = []
    for mine, room in groups:
        items = [(name, at, ways) for name, offer in mine.items() for at, ways in enumerate(offer.items)]
        fixed = math.fsum(offer.fixed_kbps for offer in mine.values())
        if items:
            offered = [ways for _, _, ways in items]
            found = least_cost(offered, room - fixed, STATES)
            mixed = least_cost_divided(offered, room - fixed, found)
            for place, ((name, at, ways), pick) in enumerate(zip(items, (mixed or found).picks, strict=True)):
                share = mixed.share if mixed is not None and mixed.place == place else 0.0
                if share < 1.0:
                    taken.append(
                        ItemChoice(name, alternative_for_share(ways[pick], 1.0 - share), at, 1.0 - share)
                    )
                if mixed is not None and share:
                    taken.append(ItemChoice(name, alternative_for_share(ways[mixed.finer], share), at, share))
    sent = math.fsum(offer.fixed_kbps for offer in offers.values())
    sent += math.fsum(one.choice.crosses for one in taken)
    return LossPoint(capacity_kbps, sent, mean_loss([one.choice for one in taken]), tuple(taken))


def alternative_for_share(choice: Alternative, share: float) -> Alternative:
    """Return a choice for a share of the values only."""
    return replace(choice, crosses=choice.crosses * share, values=choice.values * share)


def mean_loss(choices: Sequence[Alternative]) -> float:
    """Return the mean loss per value in %. Every value counts the same.

    >>> mean_loss([Alternative(0, (0, 0, 0), lost_pct=100.0, values=1.0), Alternative(1, (0, 0, 0), values=3.0)])
    25.0
    """
    values = math.fsum(one.values for one in choices)
    return math.fsum(one.values * one.lost_pct for one in choices) / values if values else 0.0


def loss_curve(
    offers: Mapping[str, Offer], capacities: Sequence[float], divide_by: str = "utility"
) -> list[LossPoint]:
    """Return the choice at every capacity."""
    return [loss_at_capacity(offers, capacity, divide_by) for capacity in capacities]


def curve_capacities(offers: Mapping[str, Offer], used_kbps: float, points: int = 12) -> list[float]:
    """Return capacities for a curve: from the rate that is always sent to the offered rate, and the one in use.

    A capacity in use below the rate that is always sent is left out, because no choice fits it.

    >>> offers = {"s": Offer(30.0, None, ((Alternative(20.0, (0.0, 0.0, 0.0)), Alternative(5.0, (1.0, 1.0, 0.0))),))}
    >>> curve_capacities(offers, 17.0, 3)
    [15.0, 17.0, 22.5, 30.0]
    """
    high = math.fsum(offer.rate_kbps for offer in offers.values())
    low = math.fsum(
        offer.fixed_kbps + math.fsum(min(one.crosses for one in ways) for ways in offer.items)
        for offer in offers.values()
    )
    steps = [low + (high - low) * at / (points - 1) for at in range(points)]
    return sorted({*steps, used_kbps} if low <= used_kbps else set(steps))


def row_drop_loss_pct(offered_kbps: float, capacity_kbps: float) -> float:
    """Return the loss in % of dropping rows at random: all measure values of the rows that do not fit.

    >>> row_drop_loss_pct(200.0, 50.0), row_drop_loss_pct(40.0, 50.0)
    (75.0, 0.0)
    """
    if offered_kbps <= capacity_kbps:
        return 0.0
    return 100.0 * (1.0 - capacity_kbps / offered_kbps)


def best_next_change(offers: Mapping[str, Offer], point: LossPoint) -> NextChange | None:
    """Return the change with the largest reduction of loss per kbps; None if no change reduces it."""
    values = math.fsum(one.choice.values for one in point.choices)
    found: list[tuple[float, NextChange]] = []
    for one in point.choices:
        now = one.choice
        for whole in offers[one.stream].items[one.item]:
            other = alternative_for_share(whole, one.share)
            fall = (now.lost_pct - other.lost_pct) * now.values
            if fall > 0 and other.crosses > now.crosses:
                step = NextChange(one.stream, now, other, fall / values)
                found.append((fall / step.kbps, step))
    return max(found, key=lambda pair: pair[0])[1] if found else None
