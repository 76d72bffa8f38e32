"""Choose the treatment of every attribute: a multiple-choice knapsack over bytes and error.

An attribute is *kept*, *rounded* to one of several precisions, or *shed* at one of several precisions. The synopsis of
a shed attribute is *sent* with the batch, or *held* at the source until it is requested. Each of these treatments is a
`TreatmentOption`. It has the bytes per tuple that cross the channel, and a *loss*: the error in % of what the
destination has without a request (absent values count 100). A plan keeps the bytes that cross within the capacity and
minimises, in this order (specs/attributes.md, section 4),

    minimize: error    1. sum of weight x loss   2. number of measures that are not kept       3. total bytes
    minimize: bytes    1. price of the bytes     2. sum of weight x loss                       3. measures not kept

over all attributes at once (`levers.knapsack`). The price of sending applies to sent bytes, and to the share of held
bytes that is expected to be requested. The price of keeping applies to held bytes. The smallest form of a synopsis
within the error bound E is the one that is held. A synopsis that is not smaller than its column is never used.

If the next better treatment of one attribute needs more than the remaining capacity, only a share of the tuples gets it
(`TreatmentOptions.finer`). So the capacity is used up.

With `synopsis: send` every synopsis is sent as long as such a plan fits. If none fits, the synopses of least weight
stay at the source, because the capacity must not be exceeded.

Guarantee: if everything fits, nothing is rounded or shed. The loss never grows with the capacity.

>>> temp = [Option("temp", "keep", 2.0), Option("temp", "round", 1.0, 0.0, 0.5), Option("temp", "shed", 0.0, 0.4, 1.0)]
>>> for room in (2.0, 1.5, 1.0, 0.4, 0.1):
...     found = choose_treatments({"temp": temp}, {"temp": 1.0}, room, Objective(), dearer={"temp": 1.0})
...     finer = f", {found.finer.share:.0%} {found.finer.way.name}" if found.finer else ""
...     print(f"{found.ways['temp'].name}{finer}: {found.loss:.4g}")
keep: 0
round, 50% keep: 0.25
round: 0.5
shed, its synopsis sent: 1
shed, its synopsis held, 25% shed, its synopsis sent: 75.25

`correct_bytes` applies measured corrections of the bytes (`Paid`). `try_finer_for_all` tries a finer treatment for all
tuples if it was never tried before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spillway.errors import InvalidValue
from spillway.levers.attributes.loss import option_loss
from spillway.levers.attributes.option import CROSSINGS, WAYS, Option, of_way
from spillway.levers.knapsack import Alternative, least_cost, least_cost_divided

_OBJECTIVES = ("error", "bytes")


@dataclass(frozen=True)
class Objective:
    """The objective of a plan, the allowed treatments, and the prices."""

    minimize: str = "error"
    synopsis: str = "auto"
    ways: tuple[str, ...] = WAYS
    asked_back: float = 0.0
    """Share of held synopsis bytes that is expected to be requested."""
    sent_price: float = 1.0
    kept_price: float = 0.0
    """Price of keeping a byte at the source; `sent_price` is the price of sending one."""

    def __post_init__(self) -> None:
        for name, known in (("minimize", _OBJECTIVES), ("synopsis", CROSSINGS)):
            if getattr(self, name) not in known:
                raise InvalidValue(
                    name, f"be one of {', '.join(known)}", getattr(self, name), f"write {known[0]}"
                )
        if not set(self.ways) <= set(WAYS) or "keep" not in self.ways:
            raise InvalidValue(
                "ways", "be keep and any of round and shed", list(self.ways), "write ways: [keep]"
            )
        if not 0.0 <= self.asked_back <= 1.0:
            raise InvalidValue("requested_pct", "lie within 0..100", 100 * self.asked_back, "write 1")
        prices = (self.sent_price, self.kept_price)
        if not all(price >= 0 and math.isfinite(price) for price in prices):
            raise InvalidValue("prices", "be 0 or more", prices, "state both prices")


@dataclass(frozen=True)
class TreatmentOption:
    """One treatment of an attribute: its option, and whether its synopsis, if it has one, is sent with the batch."""

    option: Option
    sent: bool = False
    asked_back: float = 0.0
    last_resort: bool = False
    """Whether it may be chosen only if nothing else fits."""

    @property
    def name(self) -> str:
        """Return the treatment in words."""
        if self.option.way != "shed":
            return self.option.way
        return f"shed, its synopsis {'sent' if self.sent else 'held'}"

    @property
    def crossing_bytes(self) -> float:
        """Return the bytes per tuple that cross: those of the column, and of the synopsis if sent, or the share that is
        expected to be requested."""
        stored = self.option.synopsis_bytes_per_tuple
        return self.option.wire_bytes_per_tuple + (stored if self.sent else stored * self.asked_back)

    @property
    def loss(self) -> float:
        """Return the error in % of what the destination has without a request."""
        return option_loss(self.option, self.sent)

    @property
    def is_treated(self) -> bool:
        """Return whether the destination has other values than the source."""
        return self.option.way != "keep"


@dataclass(frozen=True)
class FinerTreatment:
    """The better treatment that a `share` of the tuples has for one attribute."""

    attribute: str
    way: TreatmentOption
    share: float


@dataclass(frozen=True)
class TreatmentPlan:
    """The treatment of every attribute, the bytes per tuple and the loss, and the gap to the best plan."""

    ways: Mapping[str, TreatmentOption]
    crosses: float
    loss: float
    """The sum of weight x loss."""
    over: float
    exact: bool
    gap: float
    cost: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The three objectives in the order of the terms."""
    finer: FinerTreatment | None = None
    """The better treatment that a share of the tuples has for one attribute."""

    @property
    def sends_synopsis(self) -> bool:
        """Return whether any synopsis is sent."""
        every = [*self.ways.values(), *([self.finer.way] if self.finer else [])]
        return any(one.sent for one in every)

    @property
    def holds_synopsis(self) -> bool:
        """Return whether any synopsis stays at the source."""
        return any(one.option.way == "shed" and not one.sent for one in self.ways.values())


def allowed_treatments(options: Sequence[Option], terms: Objective) -> list[TreatmentOption]:
    """Return the treatments of one attribute that are allowed and save bytes; `keep` comes first.

    >>> options = [Option("a", "keep", 1.0), Option("a", "shed", 0.0, 0.7, 0.0), Option("a", "shed", 0.0, 2.0, 0.0)]
    >>> [one.name for one in allowed_treatments(options, Objective(synopsis="send"))]
    ['keep', 'shed, its synopsis sent', 'shed, its synopsis held']
    """
    kept = of_way(options, "keep")
    if kept is None:
        ways = [one.way for one in options]
        raise InvalidValue("options", "offer to keep the attribute", ways, "add its measured width")
    width = kept.wire_bytes_per_tuple
    found = [TreatmentOption(kept)]
    if "round" in terms.ways:
        found += [
            TreatmentOption(one) for one in options if one.way == "round" and one.wire_bytes_per_tuple < width
        ]
    forms = [one for one in options if one.way == "shed" and one.synopsis_bytes_per_tuple < width]
    if "shed" in terms.ways and forms:
        if terms.synopsis != "hold":
            found += [TreatmentOption(one, sent=True) for one in forms]
        smallest = min(forms, key=lambda one: (one.synopsis_bytes_per_tuple, one.mean_error_pct))
        found.append(
            TreatmentOption(smallest, asked_back=terms.asked_back, last_resort=terms.synopsis == "send")
        )
    return found


def treatment_cost(one: TreatmentOption, worth: float, terms: Objective) -> tuple[float, float, float]:
    """Return the three objectives of a treatment in the order of the terms; `worth` is the weight of its loss."""
    lost, touched, option = worth * one.loss, float(one.is_treated), one.option
    if terms.minimize == "error":
        return lost, touched, option.bytes_per_tuple
    held = 0.0 if one.sent else option.synopsis_bytes_per_tuple * terms.kept_price
    return one.crossing_bytes * terms.sent_price + held, lost, touched


def knapsack_choices(
    options: Mapping[str, Sequence[Option]], worths: Mapping[str, float], terms: Objective
) -> Iterator[tuple[list[TreatmentOption], list[Alternative]]]:
    """Yield, for each attribute, its treatments and the same treatments as alternatives of the knapsack."""
    for name, found in options.items():
        ways = allowed_treatments(found, terms)
        yield (
            ways,
            [
                Alternative(
                    one.crossing_bytes,
                    treatment_cost(one, worths[name], terms),
                    last_resort=one.last_resort,
                    divisible=terms.minimize == "error",
                )
                for one in ways
            ],
        )


def choose_treatments(
    options: Mapping[str, Sequence[Option]],
    worths: Mapping[str, float],
    room_bytes: float,
    terms: Objective,
    around_sent_bytes: float = 0.0,
    dearer: Mapping[str, float] | None = None,
) -> TreatmentPlan:
    """Return the best treatments for a capacity of `room_bytes` per tuple; the fewest bytes if nothing fits.

    `around_sent_bytes` are the bytes of the file around sent synopses. They are counted once if any synopsis is sent.
    So the best plan that sends none is compared with the best plan that sends some. `dearer` has, by attribute, the
    ratio of its bytes to the mean of its slices if these have different treatments. An attribute without an entry has
    one treatment for all tuples.

    >>> temp = [Option("temp", "keep", 2.0), Option("temp", "round", 1.0, 0.0, 0.5), Option("temp", "shed", 0.0, 0.4)]
    >>> for around in (0.5, 0.7):
    ...     print(choose_treatments({"temp": temp}, {"temp": 1.0}, 1.0, Objective(), around).ways["temp"].name)
    shed, its synopsis sent
    round
    """
    whole = _choose_within(options, worths, room_bytes, terms, 0.0, dearer or {})
    if not whole.sends_synopsis or not around_sent_bytes:
        return whole
    with_file = _choose_within(options, worths, room_bytes, terms, around_sent_bytes, dearer or {})
    held = replace(terms, synopsis="hold")
    found = [with_file, _choose_within(options, worths, room_bytes, held, 0.0, dearer or {})]
    if terms.synopsis == "send":
        # nothing stays at the source as long as another plan fits
        none = replace(held, ways=tuple(way for way in terms.ways if way != "shed"))
        found.append(_choose_within(options, worths, room_bytes, none, 0.0, dearer or {}))
    return min(found, key=lambda one: (one.over, terms.synopsis == "send" and one.holds_synopsis, one.cost))


def _choose_within(
    options: Mapping[str, Sequence[Option]],
    worths: Mapping[str, float],
    room_bytes: float,
    terms: Objective,
    around: float,
    dearer: Mapping[str, float],
) -> TreatmentPlan:
    """Return the best choice for the capacity less `around`."""
    offered = list(knapsack_choices(options, worths, terms))
    # the columns that are always sent may exceed the capacity
    items = [choices for _, choices in offered]
    found = least_cost(items, room_bytes - around)
    mixed = least_cost_divided(
        items, room_bytes - around, found, [dearer.get(name, math.inf) for name in options]
    )
    better, finer = mixed or found, None
    ways = {name: ways[at] for name, (ways, _), at in zip(options, offered, better.picks, strict=True)}
    lost = math.fsum(worths[name] * one.loss for name, one in ways.items())
    if mixed is not None:
        name, way = list(options)[mixed.place], offered[mixed.place][0][mixed.finer]
        finer = FinerTreatment(name, way, mixed.share)
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
    return TreatmentPlan(ways, crosses, lost, max(0.0, over), exact, gap, cost, finer)


def describe_treatment(one: TreatmentOption, options: Sequence[Option]) -> str:
    """Describe a treatment in one line: the bytes per tuple that cross, those of the kept column, and the mean error.

    >>> temp = [Option("temp", "keep", 2.0), Option("temp", "round", 1.0, 0.0, 0.5)]
    >>> print(describe_treatment(TreatmentOption(temp[1]), temp))
    rounded: 1 bytes a tuple instead of 2, mean error 0.5 %
    """
    kept = of_way(options, "keep")
    instead = (
        f"{one.crossing_bytes:.3g} bytes a tuple instead of {kept.wire_bytes_per_tuple:.3g}" if kept else ""
    )
    if not one.is_treated:
        return f"kept: {one.crossing_bytes:.3g} bytes a tuple"
    if one.option.way == "round":
        return f"rounded: {instead}, mean error {one.option.mean_error_pct:.3g} %"
    stored = f"{one.option.synopsis_bytes_per_tuple:.3g} bytes of synopsis"
    if one.sent:
        return f"shed, {stored} sent: {instead}, mean error {one.option.mean_error_pct:.3g} %"
    return f"shed, {stored} held at the source: {instead}; absent until it is asked for"


Paid = Mapping[str, Mapping[str, float]]
"""The last measured ratio of actual to planned bytes, by attribute and treatment (with or without its precision)."""
DIVIDED = "divided"
"""Key in `Paid` for an attribute whose tuples had different treatments."""
UNTRIED_DIVIDED = 1.05
"""The ratio that is assumed for `DIVIDED` as long as all tuples of the attribute had the same treatment."""
UNTRIED = 1.02
"""Extra factor for a treatment that was never tried, if another treatment of the attribute was."""
HOPED = 1.1
"""A mixture that took `HOPED` x the mean of its slices packs badly, and an untried treatment may need fewer bytes than
estimated. Then the finer treatment is tried for all tuples if its estimate is at most `HOPED` x the capacity."""


def correct_bytes(options: Sequence[Option], paid: Mapping[str, float]) -> list[Option]:
    """Return the options with their bytes corrected by measured ratios; `keep` is exact, because its width is
    measured."""
    found, tried = [], bool(paid.keys() - {DIVIDED})
    for one in options:
        known = paid.get(f"{one.way}/{one.precision}")
        factor = known if known is not None else paid.get(one.way, 1.0) * (UNTRIED if tried else 1.0)
        found.append(one if one.way == "keep" else one.scale_bytes(factor))
    return found


def try_finer_for_all(
    found: TreatmentPlan, room_bytes: float, worths: Mapping[str, float], paid: Paid
) -> TreatmentPlan | None:
    """Return the plan with the finer treatment for all tuples, or None.

    It is None if the plan has no finer treatment, a mixture packs well (below `HOPED`), the finer treatment is `keep`
    or was tried before, or its estimate exceeds `HOPED` x the capacity.

    >>> from spillway.levers.attributes.capacity.treatments import Objective, choose_treatments
    >>> coarse, fine = Option("a", "round", 1.0, 0.0, 2.0, precision=1), Option("a", "round", 2.0, 0.0, 1.0)
    >>> options = {"a": [Option("a", "keep", 4.0), fine, coarse]}
    >>> divided = choose_treatments(options, {"a": 1.0}, 1.9, Objective(), dearer={"a": 1.2})
    >>> whole = try_finer_for_all(divided, 1.9, {"a": 1.0}, {"a": {DIVIDED: 1.2}})
    >>> whole.crosses, whole.loss, try_finer_for_all(divided, 1.9, {"a": 1.0}, {"a": {DIVIDED: 1.0}})
    (2.0, 1.0, None)
    """
    if found.finer is None:
        return None
    name, better = found.finer.attribute, found.finer.way
    known, coarser = paid.get(name, {}), found.ways[name]
    ways = {**found.ways, name: better}
    takes = math.fsum(one.crossing_bytes for one in ways.values())
    tried = f"{better.option.way}/{better.option.precision}" in known
    if known.get(DIVIDED, 1.0) < HOPED or tried or better.option.way == "keep" or takes > HOPED * room_bytes:
        return None
    gains = (1.0 - found.finer.share) * worths[name] * (coarser.loss - better.loss)
    return replace(found, ways=ways, crosses=takes, loss=found.loss - gains, finer=None)
