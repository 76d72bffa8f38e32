"""What of an attribute crosses the channel, and the choice among it: spend no more error than the channel demands.

An attribute is *kept*; *rounded* in one of several precisions; or *shed* in one of several, and then its synopsis is
*sent* with the batch, or *held* at the source until it is asked for. Each of these is a `Crossing`: so many bytes a
tuple cross, and what the destination has by itself is so much in error (the *loss*, in %; what is absent counts 100).
Subject to what crosses <= the room, a plan minimises, in this order (specs/attributes.md, section 4),

    minimize: error    1. sum of worth x loss    2. measures that do not arrive as they are    3. bytes in all
    minimize: bytes    1. bytes paid for         2. sum of worth x loss                         3. measures touched

over all attributes at once (`levers.knapsack`). Paid for is what is sent, and of what is held the share that
is expected to be asked back, at the price of sending; and what is held at that of keeping. The smallest form of a
synopsis within E is the one that is held. A synopsis that is not smaller than its column is no way to shed it.

Where the next better way of an attribute takes more than is left, a part of the tuples has it and the rest not
(`Crossings.finer`): the room is filled.

`synopsis: send` is kept to as long as anything that keeps to it fits. Where nothing does, what is worth least stays at
the source, for no more may cross than there is room for.

Guarantee: with room for everything nothing is touched; the loss never grows with the room.

>>> temp = [Option("temp", "keep", 2.0), Option("temp", "round", 1.0, 0.0, 0.5), Option("temp", "shed", 0.0, 0.4, 1.0)]
>>> for room in (2.0, 1.5, 1.0, 0.4, 0.1):
...     found = cross({"temp": temp}, {"temp": 1.0}, room, Terms(), dearer={"temp": 1.0})
...     finer = f", {found.finer.share:.0%} {found.finer.way.name}" if found.finer else ""
...     print(f"{found.ways['temp'].name}{finer}: {found.loss:.4g}")
keep: 0
round, 50% keep: 0.25
round: 0.5
shed, its synopsis sent: 1
shed, its synopsis held, 25% shed, its synopsis sent: 75.25

What bytes came to over what was planned, and what is hoped of ways that were never tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spillway.errors import Refused
from spillway.levers.attributes.loss import option_loss
from spillway.levers.attributes.option import CROSSINGS, WAYS, Option, of_way
from spillway.levers.knapsack import Alternative, least_cost, least_mixed

_OBJECTIVES = ("error", "bytes")


@dataclass(frozen=True)
class Terms:
    """What is asked of a plan, and what may be done."""

    minimize: str = "error"
    synopsis: str = "auto"
    ways: tuple[str, ...] = WAYS
    asked_back: float = 0.0
    """Share of what is held that is expected to be asked for."""
    sent_price: float = 1.0
    kept_price: float = 0.0
    """Of sending a byte, and of keeping one at the source."""

    def __post_init__(self) -> None:
        for name, known in (("minimize", _OBJECTIVES), ("synopsis", CROSSINGS)):
            if getattr(self, name) not in known:
                raise Refused(name, f"be one of {', '.join(known)}", getattr(self, name), f"write {known[0]}")
        if not set(self.ways) <= set(WAYS) or "keep" not in self.ways:
            raise Refused("ways", "be keep and any of round and shed", list(self.ways), "write ways: [keep]")
        if not 0.0 <= self.asked_back <= 1.0:
            raise Refused("asked_back_pct", "lie within 0..100", 100 * self.asked_back, "write 1")
        prices = (self.sent_price, self.kept_price)
        if not all(price >= 0 and math.isfinite(price) for price in prices):
            raise Refused("prices", "be 0 or more", prices, "state both prices")


@dataclass(frozen=True)
class Crossing:
    """One way for an attribute: its option, and whether its synopsis, if it has one, is sent with the batch."""

    option: Option
    sent: bool = False
    asked_back: float = 0.0
    last_resort: bool = False
    """Whether it is for where nothing else fits."""

    @property
    def name(self) -> str:
        """The way in words."""
        if self.option.way != "shed":
            return self.option.way
        return f"shed, its synopsis {'sent' if self.sent else 'held'}"

    @property
    def crosses(self) -> float:
        """Bytes a tuple that cross: the column's, or the synopsis's as far as it is sent or asked back."""
        stored = self.option.synopsis_bytes_per_tuple
        return self.option.wire_bytes_per_tuple + (stored if self.sent else stored * self.asked_back)

    @property
    def loss(self) -> float:
        """The error in % of what the destination has by itself."""
        return option_loss(self.option, self.sent)

    @property
    def touched(self) -> bool:
        """Whether a reader of the destination finds something else than what arrived."""
        return self.option.way != "keep"


@dataclass(frozen=True)
class Finer:
    """What a part of the tuples has of one attribute, instead of the way that the rest has."""

    attribute: str
    way: Crossing
    share: float


@dataclass(frozen=True)
class Crossings:
    """How every attribute crosses, what that comes to a tuple, and how far from the best it may be."""

    ways: Mapping[str, Crossing]
    crosses: float
    loss: float
    """The sum of worth x loss."""
    over: float
    exact: bool
    gap: float
    cost: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """What it costs, part by part, as the terms order them."""
    finer: Finer | None = None
    """Of one attribute, what a part of the tuples has instead."""

    @property
    def sends_any(self) -> bool:
        """Whether a synopsis crosses."""
        every = [*self.ways.values(), *([self.finer.way] if self.finer else [])]
        return any(one.sent for one in every)

    @property
    def holds_any(self) -> bool:
        """Whether a synopsis stays."""
        return any(one.option.way == "shed" and not one.sent for one in self.ways.values())


def crossings_of(options: Sequence[Option], terms: Terms) -> list[Crossing]:
    """Every way of one attribute that is allowed and pays, what is kept first.

    >>> options = [Option("a", "keep", 1.0), Option("a", "shed", 0.0, 0.7, 0.0), Option("a", "shed", 0.0, 2.0, 0.0)]
    >>> [one.name for one in crossings_of(options, Terms(synopsis="send"))]
    ['keep', 'shed, its synopsis sent', 'shed, its synopsis held']
    """
    kept = of_way(options, "keep")
    if kept is None:
        ways = [one.way for one in options]
        raise Refused("options", "offer to keep the attribute", ways, "add its measured width")
    width = kept.wire_bytes_per_tuple
    found = [Crossing(kept)]
    if "round" in terms.ways:
        found += [Crossing(one) for one in options if one.way == "round" and one.wire_bytes_per_tuple < width]
    forms = [one for one in options if one.way == "shed" and one.synopsis_bytes_per_tuple < width]
    if "shed" in terms.ways and forms:
        if terms.synopsis != "hold":
            found += [Crossing(one, sent=True) for one in forms]
        smallest = min(forms, key=lambda one: (one.synopsis_bytes_per_tuple, one.mean_error_pct))
        found.append(Crossing(smallest, asked_back=terms.asked_back, last_resort=terms.synopsis == "send"))
    return found


def cost_of(one: Crossing, worth: float, terms: Terms) -> tuple[float, float, float]:
    """What a way costs, part by part, as the terms order them."""
    lost, touched, option = worth * one.loss, float(one.touched), one.option
    if terms.minimize == "error":
        return lost, touched, option.bytes_per_tuple
    held = 0.0 if one.sent else option.synopsis_bytes_per_tuple * terms.kept_price
    return one.crosses * terms.sent_price + held, lost, touched


def choices_of(
    options: Mapping[str, Sequence[Option]], worths: Mapping[str, float], terms: Terms
) -> Iterator[tuple[list[Crossing], list[Alternative]]]:
    """Attribute by attribute, the ways there are and the same as the knapsack takes them."""
    for name, found in options.items():
        ways = crossings_of(found, terms)
        yield (
            ways,
            [
                Alternative(
                    one.crosses,
                    cost_of(one, worths[name], terms),
                    last_resort=one.last_resort,
                    divisible=terms.minimize == "error",
                )
                for one in ways
            ],
        )


def cross(
    options: Mapping[str, Sequence[Option]],
    worths: Mapping[str, float],
    room_bytes: float,
    terms: Terms,
    around_sent_bytes: float = 0.0,
    dearer: Mapping[str, float] | None = None,
) -> Crossings:
    """The best way of every attribute into a room of so many bytes a tuple; what crosses least where none fits.

    `around_sent_bytes`: what sending any synopsis takes beside it, which is taken once: the best that sends none is
    set against the best that sends some. `dearer`: by attribute, how much more it takes than the mean of its parts
    where these are treated otherwise; what is not named is not divided.

    >>> temp = [Option("temp", "keep", 2.0), Option("temp", "round", 1.0, 0.0, 0.5), Option("temp", "shed", 0.0, 0.4)]
    >>> for around in (0.5, 0.7):
    ...     print(cross({"temp": temp}, {"temp": 1.0}, 1.0, Terms(), around).ways["temp"].name)
    shed, its synopsis sent
    round
    """
    whole = _best(options, worths, room_bytes, terms, 0.0, dearer or {})
    if not whole.sends_any or not around_sent_bytes:
        return whole
    with_file = _best(options, worths, room_bytes, terms, around_sent_bytes, dearer or {})
    held = replace(terms, synopsis="hold")
    found = [with_file, _best(options, worths, room_bytes, held, 0.0, dearer or {})]
    if terms.synopsis == "send":
        # nothing stays at the source while there is another way
        none = replace(held, ways=tuple(way for way in terms.ways if way != "shed"))
        found.append(_best(options, worths, room_bytes, none, 0.0, dearer or {}))
    return min(found, key=lambda one: (one.over, terms.synopsis == "send" and one.holds_any, one.cost))


def _best(
    options: Mapping[str, Sequence[Option]],
    worths: Mapping[str, float],
    room_bytes: float,
    terms: Terms,
    around: float,
    dearer: Mapping[str, float],
) -> Crossings:
    """The best choice where `around` is taken off the room first."""
    offered = list(choices_of(options, worths, terms))
    # what always travels may take more than there is
    items = [choices for _, choices in offered]
    found = least_cost(items, room_bytes - around)
    mixed = least_mixed(items, room_bytes - around, found, [dearer.get(name, math.inf) for name in options])
    better, finer = mixed or found, None
    ways = {name: ways[at] for name, (ways, _), at in zip(options, offered, better.picks, strict=True)}
    lost = math.fsum(worths[name] * one.loss for name, one in ways.items())
    if mixed is not None:
        name, way = list(options)[mixed.place], offered[mixed.place][0][mixed.finer]
        finer = Finer(name, way, mixed.share)
        lost -= mixed.share * worths[name] * (ways[name].loss - way.loss)
    first, second, third = better.cost
    cost = (
        (first + around * terms.sent_price, second, third)
        if terms.minimize == "bytes"
        else (first, second, third + around)
    )
    crosses = better.crosses + around
    over = crosses - room_bytes if crosses > room_bytes * (1 + 1e-12) else 0.0
    exact, gap = (True, 0.0) if mixed is not None else (found.exact, found.gap)
    return Crossings(ways, crosses, lost, max(0.0, over), exact, gap, cost, finer)


def why(one: Crossing, options: Sequence[Option]) -> str:
    """A way in a sentence: what crosses instead of what, and what that brings.

    >>> temp = [Option("temp", "keep", 2.0), Option("temp", "round", 1.0, 0.0, 0.5)]
    >>> print(why(Crossing(temp[1]), temp))
    rounded: 1 bytes a tuple instead of 2, mean error 0.5 %
    """
    kept = of_way(options, "keep")
    instead = f"{one.crosses:.3g} bytes a tuple instead of {kept.wire_bytes_per_tuple:.3g}" if kept else ""
    if not one.touched:
        return f"kept: {one.crosses:.3g} bytes a tuple"
    if one.option.way == "round":
        return f"rounded: {instead}, mean error {one.option.mean_error_pct:.3g} %"
    stored = f"{one.option.synopsis_bytes_per_tuple:.3g} bytes of synopsis"
    if one.sent:
        return f"shed, {stored} sent: {instead}, mean error {one.option.mean_error_pct:.3g} %"
    return f"shed, {stored} held at the source: {instead}; absent until it is asked for"


Paid = Mapping[str, Mapping[str, float]]
"""By attribute and way, and by way and precision, what its bytes came to over what was planned, as last seen."""
DIVIDED = "divided"
"""As a way in `Paid`: of an attribute whose tuples were not all treated alike."""
UNTRIED_DIVIDED = 1.05
"""The same of an attribute whose tuples were all treated alike so far."""
UNTRIED = 1.02
"""How much more than planned is expected of what was not tried yet, of an attribute of which something was."""
HOPED = 1.1
"""A mixture that took so much more than the mean of its parts packs badly, and what was never tried may take less than
was estimated: the finer way is tried for all tuples where it is estimated to take up to so much of the room."""


def corrected(options: Sequence[Option], paid: Mapping[str, float]) -> list[Option]:
    """The options with what their bytes really came to; what is kept is measured, not planned."""
    found, tried = [], bool(paid.keys() - {DIVIDED})
    for one in options:
        known = paid.get(f"{one.way}/{one.precision}")
        factor = known if known is not None else paid.get(one.way, 1.0) * (UNTRIED if tried else 1.0)
        found.append(one if one.way == "keep" else one.scaled(factor))
    return found


def hoped(found: Crossings, room_bytes: float, worths: Mapping[str, float], paid: Paid) -> Crossings | None:
    """The same with the finer way for all tuples, where that was never tried and may come out small enough.

    >>> from spillway.levers.attributes.capacity.crossings import Terms, cross
    >>> coarse, fine = Option("a", "round", 1.0, 0.0, 2.0, precision=1), Option("a", "round", 2.0, 0.0, 1.0)
    >>> options = {"a": [Option("a", "keep", 4.0), fine, coarse]}
    >>> divided = cross(options, {"a": 1.0}, 1.9, Terms(), dearer={"a": 1.2})
    >>> whole = hoped(divided, 1.9, {"a": 1.0}, {"a": {DIVIDED: 1.2}})
    >>> whole.crosses, whole.loss, hoped(divided, 1.9, {"a": 1.0}, {"a": {DIVIDED: 1.0}})
    (2.0, 1.0, None)
    """
    if found.finer is None:
        return None
    name, better = found.finer.attribute, found.finer.way
    known, coarser = paid.get(name, {}), found.ways[name]
    ways = {**found.ways, name: better}
    takes = math.fsum(one.crosses for one in ways.values())
    tried = f"{better.option.way}/{better.option.precision}" in known
    if known.get(DIVIDED, 1.0) < HOPED or tried or better.option.way == "keep" or takes > HOPED * room_bytes:
        return None
    gains = (1.0 - found.finer.share) * worths[name] * (coarser.loss - better.loss)
    return replace(found, ways=ways, crosses=takes, loss=found.loss - gains, finer=None)
