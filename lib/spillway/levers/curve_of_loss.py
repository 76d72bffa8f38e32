"""What a capacity costs in error: the curve that a channel is chosen by, and what more of it would buy.

At every capacity the plan's own choice (`levers.rate_distortion`) among all ways of all streams of the channel:

    loss(C) = sum of values x loss of the way chosen at C / sum of values          (in %; absent counts 100)

each measure value counted alike, whatever it is worth; where a plan may treat a part of the tuples better, so does the
curve. The yardstick beside it is dropping rows at random: a row that
is dropped lacks all its values, so where a share s = C / rate of the rows fits, loss = 100 x (1 - s).

Guarantee: where everything fits the loss is 0; what the plan weighs (worth x loss) never grows with the capacity.

>>> kept = Alternative(20.0, (0.0, 0.0, 20.0), "temp", "keep", 0.0, 10.0)
>>> ways = (kept, Alternative(5.0, (2.0, 1.0, 5.0), "temp", "round", 2.0, 10.0))
>>> offers = {"fields": Offer(30.0, None, (ways,))}
>>> [(one.capacity_kbps, one.loss_pct) for one in curve_of_loss(offers, [30.0, 20.0])]
[(30.0, 0.0), (20.0, 2.0)]
>>> dropping_rows_pct(30.0, 20.0) > 33
True
>>> pays_next(offers, at_capacity(offers, 20.0)).fall
2.0
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spillway.levers.protocol import Offer
from spillway.levers.rate_distortion import Alternative, least_cost, least_mixed
from spillway.levers.shares import proportional_capacities

STATES = 4_000
"""A curve has many points and is looked at, not sent by: less of a search is enough."""
MORE = 1.1
"""What a little more capacity is."""


@dataclass(frozen=True)
class Taken:
    """The way of one thing of a stream at a capacity."""

    stream: str
    choice: Alternative
    item: int
    """Its place among the stream's items."""
    share: float = 1.0
    """Of its values: another part may be taken otherwise."""


@dataclass(frozen=True)
class LossPoint:
    """A capacity, what would be sent of it, and what would be lost."""

    capacity_kbps: float
    sent_kbps: float
    loss_pct: float
    taken: tuple[Taken, ...]

    @property
    def over_kbps(self) -> float:
        """What does not fit even so."""
        over = self.sent_kbps - self.capacity_kbps
        return over if over > 1e-9 * self.capacity_kbps else 0.0


@dataclass(frozen=True)
class NextPaid:
    """What the next kbps are best spent on: from one way to another."""

    stream: str
    before: Alternative
    after: Alternative
    fall: float
    """By how many points the loss of the channel falls."""

    @property
    def kbps(self) -> float:
        """What that takes."""
        return self.after.crosses - self.before.crosses


def at_capacity(offers: Mapping[str, Offer], capacity_kbps: float, divide_by: str = "utility") -> LossPoint:
    """The choice of least cost at one capacity, all streams together, or each within its proportional part."""
    if divide_by == "proportional":
        rates = [offer.rate_kbps for offer in offers.values()]
        fits = sum(rates) <= capacity_kbps or not sum(rates)
        rooms = rates if fits else proportional_capacities(rates, capacity_kbps)
        groups = [({name: offer}, room) for (name, offer), room in zip(offers.items(), rooms, strict=True)]
    else:
        groups = [(dict(offers), capacity_kbps)]
    taken: list[Taken] = []
    for mine, room in groups:
        items = [(name, at, ways) for name, offer in mine.items() for at, ways in enumerate(offer.items)]
        fixed = math.fsum(offer.fixed_kbps for offer in mine.values())
        if items:
            offered = [ways for _, _, ways in items]
            found = least_cost(offered, room - fixed, STATES)
            mixed = least_mixed(offered, room - fixed, found)
            for place, ((name, at, ways), pick) in enumerate(zip(items, (mixed or found).picks, strict=True)):
                share = mixed.share if mixed is not None and mixed.place == place else 0.0
                if share < 1.0:
                    taken.append(Taken(name, for_share(ways[pick], 1.0 - share), at, 1.0 - share))
                if mixed is not None and share:
                    taken.append(Taken(name, for_share(ways[mixed.finer], share), at, share))
    sent = math.fsum(offer.fixed_kbps for offer in offers.values())
    sent += math.fsum(one.choice.crosses for one in taken)
    return LossPoint(capacity_kbps, sent, mean_loss([one.choice for one in taken]), tuple(taken))


def for_share(choice: Alternative, share: float) -> Alternative:
    """A choice for a share of the values only."""
    return replace(choice, crosses=choice.crosses * share, values=choice.values * share)


def mean_loss(choices: Sequence[Alternative]) -> float:
    """The mean loss of a value in %, every value counted alike.

    >>> mean_loss([Alternative(0, (0, 0, 0), lost_pct=100.0, values=1.0), Alternative(1, (0, 0, 0), values=3.0)])
    25.0
    """
    values = math.fsum(one.values for one in choices)
    return math.fsum(one.values * one.lost_pct for one in choices) / values if values else 0.0


def curve_of_loss(
    offers: Mapping[str, Offer], capacities: Sequence[float], divide_by: str = "utility"
) -> list[LossPoint]:
    """The choice at every capacity."""
    return [at_capacity(offers, capacity, divide_by) for capacity in capacities]


def capacities_of(offers: Mapping[str, Offer], used_kbps: float, points: int = 12) -> list[float]:
    """Capacities to draw a curve over: from what always travels to what is offered, the one in use among them.

    >>> offers = {"s": Offer(30.0, None, ((Alternative(20.0, (0.0, 0.0, 0.0)), Alternative(5.0, (1.0, 1.0, 0.0))),))}
    >>> capacities_of(offers, 17.0, 3)
    [15.0, 17.0, 22.5, 30.0]
    """
    high = math.fsum(offer.rate_kbps for offer in offers.values())
    low = math.fsum(
        offer.fixed_kbps + math.fsum(min(one.crosses for one in ways) for ways in offer.items)
        for offer in offers.values()
    )
    steps = [low + (high - low) * at / (points - 1) for at in range(points)]
    return sorted({*steps, used_kbps} if low <= used_kbps <= high else set(steps))


def dropping_rows_pct(offered_kbps: float, capacity_kbps: float) -> float:
    """What dropping rows at random would lose of every measure value, in %: all values of the rows that do not fit.

    >>> dropping_rows_pct(200.0, 50.0), dropping_rows_pct(40.0, 50.0)
    (75.0, 0.0)
    """
    if offered_kbps <= capacity_kbps:
        return 0.0
    return 100.0 * (1.0 - capacity_kbps / offered_kbps)


def pays_next(offers: Mapping[str, Offer], point: LossPoint) -> NextPaid | None:
    """What brings the largest fall of loss a kbps from here; None where nothing does."""
    values = math.fsum(one.choice.values for one in point.taken)
    found: list[tuple[float, NextPaid]] = []
    for one in point.taken:
        now = one.choice
        for whole in offers[one.stream].items[one.item]:
            other = for_share(whole, one.share)
            fall = (now.lost_pct - other.lost_pct) * now.values
            if fall > 0 and other.crosses > now.crosses:
                step = NextPaid(one.stream, now, other, fall / values)
                found.append((fall / step.kbps, step))
    return max(found, key=lambda pair: pair[0])[1] if found else None
