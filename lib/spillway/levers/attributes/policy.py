"""What contract, training and measurement allow a stream's planner: widths, rate, options, the decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from spillway.contracts import StreamContract
from spillway.levers.attributes.capacity.fit import fit
from spillway.levers.attributes.capacity.optimise import choose_ways
from spillway.levers.attributes.facts import Learned
from spillway.levers.attributes.option import Option, of_way, scaled
from spillway.levers.attributes.planner import Consequence, Policy
from spillway.levers.attributes.ranking.reevaluation import Reevaluation
from spillway.levers.attributes.ranking.smoothing import Smoothing
from spillway.levers.attributes.ranking.windows import TimeWindow
from spillway.levers.attributes.scheme import Way
from spillway.levers.attributes.settings import AttributeSettings
from spillway.levers.protocol import Load, Part

OptionsByName = Mapping[str, Sequence[Option]]
"""Per measure what may be done to it, as measured in training."""


def policy_of(
    contract: StreamContract, learned: Learned, load: Load, part: Part, aim: float = 1.0, hits: bool = True
) -> Policy:
    """The planner's policy for one batch; it aims at the share `aim` of what it may send."""
    settings = own_settings(contract)
    measures = tuple(name for name in contract.sheddable if name in learned.models)
    stated = settings.reevaluate
    return Policy(
        cycle=learned.cycle,
        attributes=measures,
        rank_by=settings.rank_by,
        smoothing=smoothing_of(settings),
        tuples_at_least=tuples_in_window(settings, load),
        reevaluation=Reevaluation(
            stated.interval_windows,
            stated.factor,
            stated.cap_windows,
            stated.hysteresis,
            stated.memory_evaluations,
            stated.reach,
            stated.most_pct,
        ),
        recoverability=learned.recoverability,
        trained_ranking=tuple((name, learned.ranking.get(name, 0.0)) for name in learned.ranked(measures)),
        widths_bits={name: load.widths_bits[name] for name in measures},
        rate_kbps=load.rate_kbps,
        capacity_kbps=part.narrower_kbps,
        decide=_decider(contract, learned, measures, load, part.times(aim)),
        measure_hits=hits,
    )


def own_settings(contract: StreamContract) -> AttributeSettings:
    """What the contract says of this lever."""
    found: AttributeSettings = contract.lever_settings("attributes")
    return found


def tuples_in_window(settings: AttributeSettings, load: Load) -> int:
    """Tuples of a window: as the contract counts them, or what its seconds bring at the rate of now (3.2.1.2).

    A time window follows the line: when the rate changes, it holds more or fewer tuples, never less than is ranked by.

    >>> from spillway.levers.attributes.settings import WindowLength
    >>> tuples_in_window(AttributeSettings(window=WindowLength(seconds=2.0)), Load({"temp": 32.0}, 100.0))
    200
    """
    stated = settings.window
    if stated.seconds is None:
        return stated.tuples_at_least
    return max(stated.tuples_at_least, TimeWindow(stated.seconds, load.tuples_per_second).tuples)


def smoothing_of(settings: AttributeSettings) -> Smoothing:
    """The contract's smoothing as the kernel takes it."""
    stated = settings.smoothing
    averages = stated.kind == "sma" or stated.seed == "sma"
    return Smoothing(stated.kind, stated.multiplier, stated.seed, stated.sma_tuples if averages else None)


def _decider(
    contract: StreamContract, learned: Learned, measures: Sequence[str], load: Load, part: Part
) -> Callable[[Sequence[str]], Consequence]:
    """What a ranking leads to; a stream that is only observed keeps everything, and says what it would do."""
    options = {name: learned.options[name] for name in measures}
    settings = own_settings(contract)

    def decision(ranking: Sequence[str]) -> Consequence:
        found = decide_stages(settings, options, load, part, ranking)
        ways = tuple(
            replace(way, predictor=learned.models[way.attribute].predictors[0].name)
            if way.way == "shed"
            else way
            for way in found.ways
        )
        if contract.mode != "observe" or not found.scheme:
            return replace(found, ways=ways)
        kept = tuple(
            Way(way.attribute, "keep", way.stage, "", f"observed only: would be {way.way}, {way.reason}")
            if way.way != "keep"
            else way
            for way in ways
        )
        over = max(0.0, load.rate_kbps - part.narrower_kbps)
        return Consequence(kept, load.rate_kbps, over, f"observed only: {found.reason}")

    return decision


def decide(
    settings: AttributeSettings,
    options: OptionsByName,
    load: Load,
    capacity_kbps: float,
    ranking: Sequence[str],
) -> Consequence:
    """A ranking's consequence: by the text (`fit`) where rounding is not allowed, else by measured bytes."""
    if not options:
        over = max(0.0, load.rate_kbps - capacity_kbps)
        return Consequence((), load.rate_kbps, over, _sentence((), load, capacity_kbps, load.rate_kbps, over))
    by = _by_bytes if "round" in settings.ways else _by_ranking
    return by(settings, options, load, capacity_kbps, ranking)


def decide_stages(
    settings: AttributeSettings, options: OptionsByName, load: Load, part: Part, ranking: Sequence[str]
) -> Consequence:
    """Both stages planned before either is shed (3.3): what the own channel makes go, then what the trunk does.

    What goes at the first stage stays gone at the second, and each stage has a synopsis of its own.
    """
    first = decide(settings, options, load, part.own_kbps, ranking)
    if part.trunk_kbps is None or first.planned_kbps <= part.trunk_kbps:
        return first
    fixed = {way.attribute: way.way for way in first.ways if way.way != "keep"}
    gone = {
        name: 0.0 if way == "shed" else _rounded_bits(options[name], load.widths_bits[name])
        for name, way in fixed.items()
    }
    free = [name for name in ranking if name not in fixed]
    rest = Load({**load.widths_bits, **gone}, load.tuples_per_second)
    second = decide(settings, {name: options[name] for name in free}, rest, part.trunk_kbps, free)
    later = {way.attribute: replace(way, stage=2) if way.way != "keep" else way for way in second.ways}
    ways = tuple(later.get(way.attribute, way) for way in first.ways)
    return Consequence(
        ways, second.planned_kbps, second.shortfall_kbps, f"{first.reason}; trunk: {second.reason}"
    )


def _rounded_bits(options: Sequence[Option], width_bits: float) -> float:
    rounded = of_way(scaled(options, width_bits / 8.0), "round")
    assert rounded is not None, "what is rounded has a way to be"
    return rounded.wire_bytes_per_tuple * 8.0


def _by_ranking(
    settings: AttributeSettings,
    options: OptionsByName,
    load: Load,
    capacity_kbps: float,
    ranking: Sequence[str],
) -> Consequence:
    found = fit(list(ranking), load.widths_bits, load.tuples_per_second, capacity_kbps, settings.fit)
    ways = tuple(
        Way(name, "shed" if name in found.shed else "keep", reason=found.reasons[name]) for name in options
    )
    planned, shortfall = found.planned_kbps, found.shortfall_kbps
    return Consequence(ways, planned, shortfall, _sentence(ways, load, capacity_kbps, planned, shortfall))


def _by_bytes(
    settings: AttributeSettings,
    options: OptionsByName,
    load: Load,
    capacity_kbps: float,
    ranking: Sequence[str],
) -> Consequence:
    per_tuple = capacity_kbps * 1000.0 / 8.0 / load.tuples_per_second
    fixed = sum(bits for name, bits in load.widths_bits.items() if name not in options) / 8.0
    measured = {name: scaled(found, load.widths_bits[name] / 8.0) for name, found in options.items()}
    chosen = choose_ways(measured, list(ranking), per_tuple, fixed, settings.ways)
    to_kbps = load.tuples_per_second * 8.0 / 1000.0
    ways = tuple(Way(name, chosen.ways[name], reason=chosen.reasons[name]) for name in options)
    planned, shortfall = chosen.wire_bytes * to_kbps, chosen.shortfall_bytes * to_kbps
    return Consequence(ways, planned, shortfall, _sentence(ways, load, capacity_kbps, planned, shortfall))


def _sentence(ways: Sequence[Way], load: Load, capacity_kbps: float, planned: float, shortfall: float) -> str:
    parts = []
    for way in ("round", "shed"):
        names = [one.attribute for one in ways if one.way == way]
        if names:
            parts.append(f"{way} {', '.join(names)}")
    what = " and ".join(parts) or "keep everything"
    text = f"{load.rate_kbps:.4g} kbps into {capacity_kbps:.4g}: {what}, {planned:.4g} kbps planned"
    if shortfall > 0:
        text += f"; {shortfall:.4g} kbps too much remain, nothing more may be shed"
    return text
