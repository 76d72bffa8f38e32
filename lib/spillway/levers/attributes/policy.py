"""Derive the planner's policy from contract, training and measurements: widths, rate, options, bounds, the decision.

`plan: least_loss` chooses among all treatments of all attributes at once (`capacity.treatments`). `plan: prefix` is the
rule of Ahuja (2006): it sheds the shortest prefix of the ranking (`capacity.fit`), and all synopses stay at the source.

The contract may have changed since a model was trained. The tighter of the two error bounds applies in the next plan,
to recovered values, and in every new certificate.

>>> from spillway.contracts import Attribute
>>> own_bound(Attribute(name="delay", type="double", error_pct=1.0)), own_bound(Attribute(name="delay", type="double"))
(ErrorBound(error_pct=1.0, error=inf), None)
>>> may_be_inexact(Attribute(name="seen", type="timestamp"))
False
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from spillway.contracts import Attribute, Channel, StreamContract
from spillway.levers.attributes.capacity.fit import fit_prefix
from spillway.levers.attributes.capacity.treatments import (
    DIVIDED,
    UNTRIED_DIVIDED,
    Objective,
    Paid,
    TreatmentOption,
    choose_treatments,
    correct_bytes,
    describe_treatment,
    try_finer_for_all,
)
from spillway.levers.attributes.facts import TrainedFacts
from spillway.levers.attributes.loss import ABSENT, place_weights
from spillway.levers.attributes.option import Option, options_of, saves_bytes, scale_options
from spillway.levers.attributes.ranking.reevaluation import Reevaluation
from spillway.levers.attributes.ranking.smoothing import Smoothing
from spillway.levers.attributes.ranking.windows import TimeWindow
from spillway.levers.attributes.scheme import AttributeTreatment
from spillway.levers.attributes.settings import AttributeSettings
from spillway.levers.attributes.synopsis.bounds import ErrorBound
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.threshold.category import criticality_weight
from spillway.levers.attributes.threshold.curve import LOOSEST_PCT, QUANTITIES
from spillway.levers.attributes.window_planner import Policy, SchemeDecision
from spillway.levers.exact import exact_fraction
from spillway.levers.knapsack import Alternative
from spillway.levers.protocol import OVERHEAD, CapacityShare, Load


def own_bound(attribute: Attribute) -> ErrorBound | None:
    """Return the bound that the contract states for the attribute itself; None if it states none."""
    if attribute.error_pct is None and attribute.error is None:
        return None
    relative, absolute = (math.inf if one is None else one for one in (attribute.error_pct, attribute.error))
    return ErrorBound(relative, absolute)


def may_be_inexact(attribute: Attribute) -> bool:
    """Return whether the contract allows the attribute to be a quantity: by its type, and not declared as codes."""
    return attribute.type in QUANTITIES and not attribute.codes


def inexact_names(contract: StreamContract) -> frozenset[str]:
    """Return the attributes whose values may be rounded, or recovered within a bound above 0.

    >>> from spillway.contracts import read_stream
    >>> net = read_stream({"stream": "net", "channel": "up", "source": {"format": "csv"}, "attributes": [
    ...     {"name": "at", "type": "timestamp", "role": "order"}, {"name": "router", "type": "string"},
    ...     {"name": "delay", "type": "double"}, {"name": "port", "type": "integer", "error": 0}]})
    >>> sorted(inexact_names(net))
    ['delay']
    """
    if contract.mode == "observe" or "attributes" not in contract.lever_names:
        return frozenset()
    settings: AttributeSettings = contract.lever_settings("attributes")
    if set(settings.treatments) == {"keep"}:
        return frozenset()
    found = set()
    for attribute in (one for one in contract.attributes if one.name in contract.sheddable):
        own = own_bound(attribute)
        if own is not None:
            exact = 0.0 in (own.error_pct, own.error)
        elif settings.error_pct is not None:
            exact = settings.error_pct == 0 or not may_be_inexact(attribute)
        else:
            exact = settings.bounds == "stated" or not may_be_inexact(attribute)
        if not exact:
            found.add(attribute.name)
    return frozenset(found)


def bound_now(contract: StreamContract, model: AttributeModel) -> ErrorBound:
    """Return the tighter of the model's trained bound and the bound that the contract states now."""
    if model.attribute not in contract.names:
        return model.bound
    attribute = contract.attribute(model.attribute)
    own = own_bound(attribute)
    if own is not None:
        return model.bound.tightest(own)
    # a batch may be recovered after the contract has dropped the lever
    found = [entry.settings for entry in contract.levers if entry.lever == "attributes"]
    settings: AttributeSettings = found[0] if found else AttributeSettings()
    limit_pct = LOOSEST_PCT
    if settings.error_pct is not None:
        limit_pct = min(limit_pct, settings.error_pct)
    elif settings.bounds == "stated":
        limit_pct = 0.0
    if not may_be_inexact(attribute):
        limit_pct = 0.0
    return model.bound.tightest(ErrorBound(limit_pct))


def admissible_options(
    options: Sequence[Option], model: AttributeModel, bound: ErrorBound, ways: Sequence[str]
) -> tuple[Option, ...]:
    """Return the options with an allowed treatment and a precision within the bound; `keep` is always allowed."""
    return tuple(
        one
        for one in options
        if one.way == "keep" or (one.way in ways and bound.admits(*_limits(one, model)))
    )


def _limits(option: Option, model: AttributeModel) -> tuple[float, float]:
    if option.way == "round" and not model.roundings:
        return 0.0, 0.0  # sent unchanged
    at = option.precision
    found = model.bound_at(at) if option.way == "shed" else model.roundings[at].bound
    return found.error_pct, found.error


OptionsByName = Mapping[str, Sequence[Option]]
"""The options of each measure, as measured in training."""
FEWEST_PER_SECOND = 1e-9
"""Number of tuples that the plan assumes for a batch if an earlier lever keeps none of its rows."""


@dataclass(frozen=True)
class DecisionInputs:
    """The inputs of a decision apart from the ranking and the capacity."""

    settings: AttributeSettings
    options: OptionsByName
    load: Load
    terms: Objective = field(default_factory=Objective)
    priorities: Mapping[str, float] = field(default_factory=dict)
    """By attribute, the weight of one per cent of error before the place in the ranking is applied."""
    around_sent_bytes: float = 0.0
    """Bytes per tuple that a file of sent synopses takes in addition to them; no file is written if none is sent."""
    dearer: Mapping[str, float] = field(default_factory=dict)
    """By attribute that may have several treatments in one batch, the ratio of its bytes to the mean of its slices."""
    paid: Paid = field(default_factory=dict)
    """The measured ratios by which the options are corrected."""
    trained: OptionsByName = field(default_factory=dict)
    """The options as training measured them, before corrections; empty: there were no corrections."""

    def worths(self, ranking: Sequence[str]) -> dict[str, float]:
        """Return the weight of one per cent of error of each attribute: priority x place / number of measures.

        The first attribute to be shed has place 1. A ranking by recoverability says how many bytes shedding saves, not
        how important an attribute is, so its places are not used.
        """
        ranked = self.settings.rank_by != "recoverability"
        places = place_weights([name for name in ranking if name in self.options]) if ranked else {}
        return {name: self.priorities.get(name, 1.0) * places.get(name, 1.0) for name in self.options}

    @property
    def bytes_to_kbps(self) -> float:
        """Return the factor from bytes per tuple to kbps; it is above 0 even if an earlier lever keeps no tuple."""
        return max(self.load.tuples_per_second, FEWEST_PER_SECOND) * 8.0 / 1000.0

    @property
    def fixed_kbps(self) -> float:
        """Return the rate of the columns that are always sent, in kbps."""
        bits = sum(bits for name, bits in self.load.widths_bits.items() if name not in self.options)
        return bits * self.load.tuples_per_second / 1000.0 + self.load.fixed_kbps

    @property
    def measured_options(self) -> dict[str, list[Option]]:
        """Return the options scaled to the column widths of the batch."""
        return {
            name: scale_options(found, self.load.widths_bits[name] / 8.0)
            for name, found in self.options.items()
        }

    @property
    def offered_options(self) -> dict[str, list[Option]]:
        """Return the options to choose among, for the column widths of the batch.

        An option is left out if it took at least the bytes of the exact column, both in training and as measured since.
        """
        found = {}
        for name, measured in self.measured_options.items():
            width = self.load.widths_bits[name] / 8.0
            before = self.trained.get(name, self.options[name])
            found[name] = [
                one
                for one, now, then in zip(measured, self.options[name], before, strict=True)
                if saves_bytes(now, width) or saves_bytes(then, width)
            ]
        return found


def decision_inputs(
    contract: StreamContract,
    channel: Channel,
    learned: TrainedFacts,
    load: Load,
    measures: Sequence[str],
    paid: Paid | None = None,
    around_sent_bytes: float = 0.0,
    bold: bool = True,
) -> DecisionInputs:
    """Return the inputs of a stream's decision from contract, channel and training.

    The bytes of a column with different treatments are known only after such a draft. With `bold` the plan may try it
    for attributes without a measured ratio, too.
    """
    settings = own_settings(contract)
    # an assumed class limits the error bounds, but gives the stream no larger weight than the others
    known = None if learned.category.get("assumed") else learned.category.get("criticality")
    weight = contract.priority * criticality_weight(known)
    allowed = options_now(contract, learned, measures)
    options = {name: correct_bytes(found, (paid or {}).get(name, {})) for name, found in allowed.items()}
    priorities = {name: weight * contract.attribute(name).priority for name in measures}
    told = {name: known[DIVIDED] for name, known in (paid or {}).items() if DIVIDED in known}
    dearer = {name: told.get(name, UNTRIED_DIVIDED) for name in measures if bold or name in told}
    terms = objective_of(settings, channel)
    return DecisionInputs(
        settings, options, load, terms, priorities, around_sent_bytes, dearer, paid or {}, allowed
    )


def objective_of(settings: AttributeSettings, channel: Channel) -> Objective:
    """Return the terms of the choice from the settings of contract and channel."""
    return Objective(
        channel.minimize,
        settings.synopsis,
        settings.treatments,
        settings.requested_pct / 100.0,
        channel.prices.sent_per_gb,
        channel.prices.kept_per_gb,
    )


def policy_of(
    contract: StreamContract,
    channel: Channel,
    learned: TrainedFacts,
    load: Load,
    part: CapacityShare,
    aim: float = 1.0,
    paid: Paid | None = None,
    around_sent_bytes: float = 0.0,
    bold: bool = False,
    hits: bool = False,
) -> Policy:
    """Return the planner's policy for one batch; it plans for the share `aim` of the capacity."""
    settings = own_settings(contract)
    measures = measures_now(contract, learned)
    stated = settings.reevaluate
    first = learned.scores(measures, settings.rank_by)
    rests_on = decision_inputs(contract, channel, learned, load, measures, paid, around_sent_bytes, bold)
    return Policy(
        cycle=learned.cycle,
        attributes=measures,
        rank_by=settings.rank_by,
        smoothing=smoothing_of(settings),
        tuples_at_least=tuples_in_window(settings, load),
        reevaluation=Reevaluation(stated.interval_windows, stated.factor, stated.cap_windows),
        recoverability={name: learned.recoverability.get(name, 0.0) for name in measures},
        trained_ranking=tuple(sorted(first.items(), key=lambda one: one[1])),
        widths_bits={name: load.widths_bits[name] for name in measures},
        rate_kbps=load.rate_kbps,
        capacity_kbps=part.narrower_kbps,
        decide=_cached_decision(contract, learned, rests_on, part.times(aim)),
        measure_hits=hits,
    )


def own_settings(contract: StreamContract) -> AttributeSettings:
    """Return the contract's settings of this lever."""
    found: AttributeSettings = contract.lever_settings("attributes")
    return found


def with_fewest_bytes(contract: StreamContract, exact: bool) -> StreamContract:
    """Return the contract with every synopsis sent; with `exact_fraction`, also with a bound of 0 for every attribute.

    On a channel with `minimize: bytes` each measure then gets the treatment, of those that the contract allows, that
    sends the fewest bytes.
    """
    settings = replace(own_settings(contract), synopsis="send", plan="least_loss", fit="bits")
    attributes = contract.attributes
    if exact:
        settings = replace(settings, error_pct=0.0)
        attributes = tuple(replace(one, error_pct=None, error=None) for one in attributes)
    levers = tuple(
        replace(one, settings=settings) if one.lever == "attributes" else one for one in contract.levers
    )
    return replace(contract, attributes=attributes, levers=levers)


def tuples_in_window(settings: AttributeSettings, load: Load) -> int:
    """Return the tuples of a window: stated, or its seconds at the current rate (Ahuja 2006, section 3.2.1.2).

    A time window follows the rate of the line: it holds more or fewer tuples when the rate changes, but at least
    `tuples_at_least`.

    >>> from spillway.levers.attributes.settings import WindowLength
    >>> tuples_in_window(AttributeSettings(window=WindowLength(seconds=2.0)), Load({"temp": 32.0}, 100.0))
    200
    """
    stated = settings.window
    if stated.seconds is None:
        return stated.tuples_at_least
    return max(stated.tuples_at_least, TimeWindow(stated.seconds, load.tuples_per_second).tuples)


def smoothing_of(settings: AttributeSettings) -> Smoothing:
    """Return the contract's smoothing in the form that the kernel needs."""
    stated = settings.smoothing
    averages = stated.kind == "sma" or stated.seed == "sma"
    return Smoothing(stated.kind, stated.multiplier, stated.seed, stated.sma_tuples if averages else None)


def _cached_decision(
    contract: StreamContract, learned: TrainedFacts, rests_on: DecisionInputs, part: CapacityShare
) -> Callable[[Sequence[str]], SchemeDecision]:
    """Return the decision function of rankings; results are cached.

    In mode `observe` everything is kept, and the reasons say what would be done.
    """
    known: dict[tuple[str, ...], SchemeDecision] = {}

    def decide_ranking(ranking: Sequence[str]) -> SchemeDecision:
        found = decide_stages(rests_on, part, ranking)
        ways, finer = _with_predictors(found.ways, learned), _with_predictors(found.finer, learned)
        if contract.mode != "observe" or not found.scheme:
            return replace(found, ways=ways, finer=finer)
        kept = tuple(
            AttributeTreatment(
                way.attribute, "keep", way.stage, "", f"observed only: would be {way.way}, {way.reason}"
            )
            if way.way != "keep"
            else way
            for way in ways
        )
        load = rests_on.load
        over = max(0.0, load.rate_kbps - part.narrower_kbps)
        return SchemeDecision(kept, load.rate_kbps, over, f"observed only: {found.reason}")

    def decision(ranking: Sequence[str]) -> SchemeDecision:
        place = tuple(ranking)
        if place not in known:
            known[place] = decide_ranking(ranking)
        return known[place]

    return decision


def _with_predictors(
    ways: Sequence[AttributeTreatment], learned: TrainedFacts
) -> tuple[AttributeTreatment, ...]:
    return tuple(
        replace(way, predictor=learned.models[way.attribute].predictors[0].name) if way.way == "shed" else way
        for way in ways
    )


def measures_now(contract: StreamContract, learned: TrainedFacts) -> tuple[str, ...]:
    """Return the attributes that may be rounded or shed.

    Such an attribute is a measure in the contract, was trained with the type it has there, and is not part of the
    identifier, neither the trained one nor one stated in the contract since.
    """
    fixed = {*learned.cycle.attributes, *(own_settings(contract).cycle.attributes or ())}
    usable = learned.usable_measures(contract.sheddable, {a.name: a.type for a in contract.attributes})
    return tuple(name for name in usable if name in learned.options and name not in fixed)


def options_now(
    contract: StreamContract, learned: TrainedFacts, measures: Sequence[str]
) -> dict[str, tuple[Option, ...]]:
    """Return the options of each measure that the current contract allows by treatment and error bound."""
    ways = own_settings(contract).treatments
    return {
        name: admissible_options(
            learned.options[name], learned.models[name], bound_now(contract, learned.models[name]), ways
        )
        for name in measures
    }


def decide(rests_on: DecisionInputs, capacity_kbps: float, ranking: Sequence[str]) -> SchemeDecision:
    """Return the decision for a ranking: the least loss that fits, or the shortest prefix if the contract says so."""
    load = rests_on.load
    if not rests_on.options:
        over = max(0.0, load.rate_kbps - capacity_kbps)
        return SchemeDecision(
            (), load.rate_kbps, over, _sentence((), load, capacity_kbps, load.rate_kbps, over)
        )
    by = _decide_by_prefix if rests_on.settings.plan == "prefix" else _decide_by_loss
    return by(rests_on, capacity_kbps, ranking)


def decide_stages(rests_on: DecisionInputs, part: CapacityShare, ranking: Sequence[str]) -> SchemeDecision:
    """Plan both stages before either is shed (Ahuja 2006, section 3.3): first the own channel, then the trunk.

    Each stage has a synopsis of its own. With `plan: prefix`, an attribute that is shed at the first stage stays shed
    at the second. With `plan: least_loss` the narrower channel decides; a treatment that the wider channel alone would
    not need belongs to stage 2.
    """
    first = decide(rests_on, part.own_kbps, ranking)
    if part.trunk_kbps is None or first.planned_kbps <= part.trunk_kbps:
        return first
    if rests_on.settings.plan == "prefix":
        return _prefix_at_the_trunk(rests_on, part.trunk_kbps, first, ranking)
    second = decide(rests_on, part.trunk_kbps, ranking)
    before = {way.attribute: way.treatment for way in first.ways}
    ways, finer = (
        tuple(
            way if way.way == "keep" or way.treatment == before[way.attribute] else replace(way, stage=2)
            for way in found
        )
        for found in (second.ways, second.finer)
    )
    return replace(second, ways=ways, finer=finer, reason=f"{first.reason}; trunk: {second.reason}")


def _prefix_at_the_trunk(
    rests_on: DecisionInputs, trunk_kbps: float, first: SchemeDecision, ranking: Sequence[str]
) -> SchemeDecision:
    gone = set(first.scheme)
    free = [name for name in ranking if name not in gone]
    # attributes shed at the first stage do not enter the trunk
    widths = {name: bits for name, bits in rests_on.load.widths_bits.items() if name not in gone}
    rest = replace(rests_on.load, widths_bits=widths)
    options = {name: found for name, found in rests_on.options.items() if name not in gone}
    second = decide(replace(rests_on, options=options, load=rest), trunk_kbps, free)
    later = {way.attribute: replace(way, stage=2) if way.way != "keep" else way for way in second.ways}
    ways = tuple(later.get(way.attribute, way) for way in first.ways)
    return SchemeDecision(
        ways, second.planned_kbps, second.shortfall_kbps, f"{first.reason}; trunk: {second.reason}"
    )


def _decide_by_prefix(
    rests_on: DecisionInputs, capacity_kbps: float, ranking: Sequence[str]
) -> SchemeDecision:
    settings, load = rests_on.settings, rests_on.load
    able = [
        name
        for name in ranking
        if "shed" in settings.treatments and options_of(rests_on.options[name], "shed")
    ]
    room = max(exact_fraction(capacity_kbps) - exact_fraction(load.fixed_kbps), Fraction(1, 10**9))
    attributes = len(set(load.widths_bits) - set(OVERHEAD))
    found = fit_prefix(able, load.widths_bits, load.tuples_per_second, room, settings.fit, attributes)
    ways = tuple(
        AttributeTreatment(
            name,
            "shed" if name in found.shed else "keep",
            reason=found.reasons.get(name, "the contract allows no shedding"),
            precision=_coarsest(rests_on.options[name]) if name in found.shed else 0,
        )
        for name in rests_on.options
    )
    planned, shortfall = found.planned_kbps + load.fixed_kbps, found.shortfall_kbps
    return SchemeDecision(ways, planned, shortfall, _sentence(ways, load, capacity_kbps, planned, shortfall))


def prefix_alternatives(rests_on: DecisionInputs, ranking: Sequence[str]) -> tuple[Alternative, ...]:
    """Return the alternatives of `plan: prefix`: shed the first 0, 1, 2, ... attributes of the ranking.

    Each has the kbps that cross and the loss of the absent values.
    """
    load, worths = rests_on.load, rests_on.worths(ranking)
    able = [name for name in ranking if options_of(rests_on.options[name], "shed")]
    kbps = {name: load.widths_bits[name] * load.tuples_per_second / 1000.0 for name in rests_on.options}
    whole = sum(kbps.values())
    found = []
    for count in range(len(able) + 1 if "shed" in rests_on.settings.treatments else 1):
        gone = able[:count]
        crosses = max(0.0, whole - sum(kbps[name] for name in gone))
        lost = ABSENT * sum(worths[name] for name in gone)
        share, values = count / max(1, len(rests_on.options)), len(rests_on.options) * load.tuples_per_second
        way = f"{', '.join(gone)} shed" if gone else "nothing shed"
        found.append(
            Alternative(crosses, (lost, float(count), crosses), "the ranking", way, ABSENT * share, values)
        )
    return tuple(found)


def _coarsest(options: Sequence[Option]) -> int:
    return max((one.precision for one in options_of(options, "shed")), default=0)


def _decide_by_loss(rests_on: DecisionInputs, capacity_kbps: float, ranking: Sequence[str]) -> SchemeDecision:
    load, offered = rests_on.load, rests_on.offered_options
    room = (capacity_kbps - rests_on.fixed_kbps) / rests_on.bytes_to_kbps
    worths, around = rests_on.worths(ranking), rests_on.around_sent_bytes
    found = choose_treatments(offered, worths, room, rests_on.terms, around, rests_on.dearer)
    ways = tuple(_way(one, offered[name]) for name, one in found.ways.items())
    planned = rests_on.fixed_kbps + found.crosses * rests_on.bytes_to_kbps
    shortfall = max(0.0, planned - capacity_kbps) if found.over else 0.0
    text = _sentence(ways, load, capacity_kbps, planned, shortfall)
    finer: tuple[AttributeTreatment, ...] = ()
    if (whole := try_finer_for_all(found, room, worths, rests_on.paid)) is not None:
        ways = tuple(_way(one, offered[name]) for name, one in whole.ways.items())
        text += f"; {', '.join(a for a in whole.ways if whole.ways[a] != found.ways[a])} finer, to see what it takes"
        found = whole
    elif found.finer is not None:
        better = _way(found.finer.way, offered[found.finer.attribute])
        finer = tuple(better if way.attribute == better.attribute else way for way in ways)
        text += f"; {better.attribute} {found.finer.way.name} for {found.finer.share:.0%} of the tuples"
    held = [way.attribute for way in ways if way.way == "shed" and not way.sent]
    if rests_on.terms.synopsis == "send" and held:
        text += f"; no room to send the synopses of {', '.join(held)}, which stay at the source"
    if not found.exact:
        text += f"; within {found.gap:.2g} of the least loss there is"
    return SchemeDecision(
        ways, planned, shortfall, text, found.loss, finer, found.finer.share if found.finer else 0.0
    )


def _way(one: TreatmentOption, options: Sequence[Option]) -> AttributeTreatment:
    option = one.option
    return AttributeTreatment(
        option.attribute, option.way, 1, "", describe_treatment(one, options), option.precision, one.sent
    )


def _sentence(
    ways: Sequence[AttributeTreatment], load: Load, capacity_kbps: float, planned: float, shortfall: float
) -> str:
    parts = []
    for way, sent, said in (
        ("round", False, "round"),
        ("shed", True, "send synopses of"),
        ("shed", False, "shed"),
    ):
        names = [one.attribute for one in ways if one.way == way and one.sent == sent]
        if names:
            parts.append(f"{said} {', '.join(names)}")
    what = " and ".join(parts) or "keep everything"
    text = f"{load.rate_kbps:.4g} kbps into {capacity_kbps:.4g}: {what}, {planned:.4g} kbps planned"
    if shortfall > 0:
        text += f"; {shortfall:.4g} kbps too much remain, nothing more may be shed"
    return text
