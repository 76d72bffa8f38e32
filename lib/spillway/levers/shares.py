"""Several streams on one channel: how much each gives up (3.3).

- Drop rate (R - C) / R with R the sum of the rates, 0 when R <= C; stream n gives up R'_n = drop rate x R_n
  (equation 3.8) and ceil(R'_n / R_n x N_n) of its N_n attributes (equation 3.9, whose ceiling the print lost).
  Example 6: 64.4, 80.6, 76.6, 72.2 kbps with 6, 8, 10, 9 attributes into 256.6 kbps give up 1, 2, 2, 2.
- `utility` (ours): a bit of one stream may be worth more than a bit of another. Every stream offers steps, in
  the order in which it would take them: so many kbps off, for so much loss. The steps are taken by least
  weight x loss per kbps until the channel holds the rest: at the end every stream's next step costs no less
  per kbps than any step that was taken, which is what equal marginal loss means for steps that cannot be
  split. Last, what turned out not to be needed is given back, the dearest first.

Guarantee: exact rationals of the decimals as written; under `utility`, `planned_kbps` <= capacity, or
`shortfall_kbps` says by how much not, and taking back any one stream's last step would break the channel.

>>> proportional([64.4, 80.6, 76.6, 72.2], [6, 8, 10, 9], 256.6).attributes_to_shed
(1, 2, 2, 2)
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True)
class Step:
    """Something a stream could give up: `kbps` less on the channel for `loss` (the error it brings, in %)."""

    what: str
    kbps: float
    loss: float


@dataclass(frozen=True)
class Utility:
    """Per stream the attributes to give up, and what that leaves on the channel."""

    shed: Mapping[str, tuple[str, ...]]
    capacities_kbps: Mapping[str, float]
    offered_kbps: float
    planned_kbps: float
    shortfall_kbps: float
    marginal_loss_per_kbps: float


def utility(
    rates_kbps: Mapping[str, float],
    steps: Mapping[str, Sequence[Step]],
    capacity_kbps: float,
    weights: Mapping[str, float] | None = None,
) -> Utility:
    """Equalise the marginal loss: take the cheapest next step of any stream until all fits.

    >>> plan = utility({"a": 60, "b": 60}, {"a": [Step("x", 30, 9)], "b": [Step("y", 30, 3)]}, 90)
    >>> plan.shed, plan.capacities_kbps
    ({'a': (), 'b': ('y',)}, {'a': 60.0, 'b': 30.0})
    """
    _check(tuple(rates_kbps.values()), capacity_kbps)
    weigh = {stream: 1.0 if weights is None else float(weights.get(stream, 1.0)) for stream in rates_kbps}
    _check_steps(rates_kbps, steps, weigh)
    capacity = exact(capacity_kbps)
    offered = sum((exact(rate) for rate in rates_kbps.values()), Fraction(0))
    excess = offered - capacity

    def price(stream: str, step: Step) -> float:
        return weigh[stream] * step.loss / step.kbps

    # streams in the order given break ties, so that the plan never depends on hashing
    places = {stream: place for place, stream in enumerate(rates_kbps)}
    queue = [
        (price(stream, offers[0]), places[stream], stream, 0) for stream, offers in steps.items() if offers
    ]
    heapq.heapify(queue)
    taken: list[tuple[float, str, Step]] = []
    while excess > 0 and queue:
        cost, place, stream, index = heapq.heappop(queue)
        step = steps[stream][index]
        taken.append((cost, stream, step))
        excess -= exact(step.kbps)
        if index + 1 < len(steps[stream]):
            heapq.heappush(queue, (price(stream, steps[stream][index + 1]), place, stream, index + 1))
    for one in sorted(taken, key=lambda one: (-weigh[one[1]] * one[2].loss, places[one[1]])):
        if excess + exact(one[2].kbps) <= 0:
            taken.remove(one)
            excess += exact(one[2].kbps)

    off = {
        stream: sum((exact(s.kbps) for _, of, s in taken if of == stream), Fraction(0))
        for stream in rates_kbps
    }
    return Utility(
        shed={stream: tuple(s.what for _, of, s in taken if of == stream) for stream in rates_kbps},
        capacities_kbps={stream: float(exact(rate) - off[stream]) for stream, rate in rates_kbps.items()},
        offered_kbps=float(offered),
        planned_kbps=float(capacity + excess),
        shortfall_kbps=float(max(excess, Fraction(0))),
        marginal_loss_per_kbps=max((cost for cost, _, _ in taken), default=0.0),
    )


def _check(rates_kbps: Sequence[float], capacity_kbps: float) -> None:
    for rate in rates_kbps:
        if not (math.isfinite(rate) and rate >= 0):
            raise Refused("rates_kbps", "be 0 or more", rate, "measure the stream again")
    if not (math.isfinite(capacity_kbps) and capacity_kbps > 0):
        raise Refused("capacity_kbps", "be above 0", capacity_kbps, "state the channel's capacity")


def _check_steps(
    rates_kbps: Mapping[str, float], steps: Mapping[str, Sequence[Step]], weights: Mapping[str, float]
) -> None:
    for stream, weight in weights.items():
        if not (math.isfinite(weight) and weight > 0):
            raise Refused("priority", "be above 0", weight, "1.0 is neutral", where=stream)
    for stream, offers in steps.items():
        if stream not in rates_kbps:
            raise Refused("steps", "belong to a stream of the channel", stream, "add its rate")
        for step in offers:
            if not (step.kbps > 0 and step.loss >= 0):
                raise Refused(
                    f"steps.{stream}.{step.what}",
                    "save more than 0 kbps at a loss of 0 or more",
                    (step.kbps, step.loss),
                    "leave the step out",
                )
