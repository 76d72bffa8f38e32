"""What contract, training and measurement allow a stream's planner: widths, rate, ways, the decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spillway.contracts import StreamContract
from spillway.errors import SpillwayError
from spillway.levers.attributes.capacity.fit import fit
from spillway.levers.attributes.capacity.optimise import Way as MeasuredWay
from spillway.levers.attributes.capacity.optimise import choose_ways
from spillway.levers.attributes.facts import Trained
from spillway.levers.attributes.planner import Decision, Policy
from spillway.levers.attributes.ranking.reevaluation import Reevaluation
from spillway.levers.attributes.ranking.smoothing import Smoothing
from spillway.levers.attributes.ranking.windows import TimeWindow
from spillway.levers.attributes.scheme import Way
from spillway.settings import Settings
from spillway.store.batches import Batch
from spillway.store.files import column_bytes
from spillway.store.rows import stream_files

OVERHEAD = ("seq",)
"""Columns that travel beside the attributes and are counted like them."""


@dataclass(frozen=True)
class Load:
    """What a batch puts on the wire as it is: measured width per attribute and tuple, and the rate."""

    widths_bits: Mapping[str, float]
    tuples_per_second: float

    @property
    def rate_kbps(self) -> float:
        return sum(self.widths_bits.values()) * self.tuples_per_second / 1000.0


@dataclass(frozen=True)
class Part:
    """Kbps a stream may send into its own channel, and into the one that goes into (None: it goes into none)."""

    own_kbps: float
    trunk_kbps: float | None = None

    @property
    def narrower_kbps(self) -> float:
        """What the stream may send in the end."""
        return self.own_kbps if self.trunk_kbps is None else min(self.own_kbps, self.trunk_kbps)

    def times(self, factor: float) -> Part:
        """A share of both."""
        return Part(self.own_kbps * factor, None if self.trunk_kbps is None else self.trunk_kbps * factor)


def measure_load(settings: Settings, contract: StreamContract, batch: Batch) -> Load:
    """Width and rate of one batch: compressed bytes as written (or declared bits), tuples over its seconds."""
    rows = max(1, batch.rows or 0)
    if not batch.seconds_covered:
        raise SpillwayError(
            f"{contract.stream}: the rate of batch {batch.batch} must be known, got no span of time from "
            f"`rate: {{from: {contract.rate.from_}}}`; declare it: `rate: {{from: declared, tuples_per_second: ...}}`"
        )
    if contract.width == "declared":
        widths = {a.name: float(a.declared_bits) for a in contract.attributes} | dict.fromkeys(OVERHEAD, 64.0)
    else:
        columns = [*OVERHEAD, *contract.names]
        measured = column_bytes(stream_files(settings, "raw", contract.stream, [batch]), columns)
        widths = {name: measured[name] * 8.0 / rows for name in columns}
    return Load(widths, rows / batch.seconds_covered)


def policy_of(
    contract: StreamContract, trained: Trained, load: Load, part: Part, aim: float = 1.0, hits: bool = True
) -> Policy:
    """The planner's policy for one batch; it aims at the share `aim` of what it may send."""
    measures = tuple(name for name in contract.sheddable if name in trained.models)
    stated = contract.reevaluate
    return Policy(
        cycle=trained.cycle,
        attributes=measures,
        rank_by=contract.rank_by,
        smoothing=smoothing_of(contract),
        tuples_at_least=tuples_in_window(contract, load),
        reevaluation=Reevaluation(
            stated.interval_windows,
            stated.factor,
            stated.cap_windows,
            stated.hysteresis,
            stated.memory_evaluations,
            stated.reach,
        ),
        recoverability=trained.recoverability,
        trained_ranking=tuple((name, trained.ranking.get(name, 0.0)) for name in _ranked(trained, measures)),
        widths_bits={name: load.widths_bits[name] for name in measures},
        rate_kbps=load.rate_kbps,
        capacity_kbps=part.narrower_kbps,
        decide=_decider(contract, trained, measures, load, part.times(aim)),
        measure_hits=hits,
    )


def tuples_in_window(contract: StreamContract, load: Load) -> int:
    """Tuples of a window: as the contract counts them, or what its seconds bring at the rate of now (3.2.1.2).

    A time window follows the line: when the rate changes, it holds more or fewer tuples, never less than is ranked by.
    """
    stated = contract.window
    if stated.seconds is None:
        return stated.tuples_at_least
    return max(stated.tuples_at_least, TimeWindow(stated.seconds, load.tuples_per_second).tuples)


def _ranked(trained: Trained, measures: Sequence[str]) -> list[str]:
    return sorted(measures, key=lambda name: trained.ranking.get(name, 0.0))


def smoothing_of(contract: StreamContract) -> Smoothing:
    """The contract's smoothing as the kernel takes it."""
    stated = contract.smoothing
    return Smoothing(
        stated.kind, stated.multiplier, stated.seed, stated.sma_tuples if stated.seed == "sma" else None
    )


def _decider(
    contract: StreamContract, trained: Trained, measures: Sequence[str], load: Load, part: Part
) -> Callable[[Sequence[str]], Decision]:
    """What a ranking leads to; a stream that is only observed keeps everything, and says what it would do."""
    options = {name: trained.options[name]["options"] for name in measures}

    def decision(ranking: Sequence[str]) -> Decision:
        found = decide_stages(contract, options, load, part, ranking)
        ways = tuple(
            replace(way, predictor=trained.models[way.attribute].predictors[0].name)
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
        return Decision(kept, load.rate_kbps, over, f"observed only: {found.reason}")

    return decision


Options = Mapping[str, Sequence[Mapping[str, Any]]]
"""Per measure its ways as measured in training: way, wire_bytes_per_tuple, synopsis_bytes_per_tuple, mean_error_pct."""


def decide(
    contract: StreamContract, options: Options, load: Load, capacity_kbps: float, ranking: Sequence[str]
) -> Decision:
    """A ranking's consequence: by the text (`fit`) where rounding is not allowed, else by measured bytes."""
    if not options:
        over = max(0.0, load.rate_kbps - capacity_kbps)
        return Decision((), load.rate_kbps, over, _sentence((), load, capacity_kbps, load.rate_kbps, over))
    by = _by_bytes if "round" in contract.ways else _by_ranking
    return by(contract, options, load, capacity_kbps, ranking)


def decide_stages(
    contract: StreamContract, options: Options, load: Load, part: Part, ranking: Sequence[str]
) -> Decision:
    """Both stages planned before either is shed (3.3): what the own channel makes go, then what the trunk does.

    What goes at the first stage stays gone at the second, and each stage has a synopsis of its own.
    """
    first = decide(contract, options, load, part.own_kbps, ranking)
    if part.trunk_kbps is None or first.planned_kbps <= part.trunk_kbps:
        return first
    fixed = {way.attribute: way.way for way in first.ways if way.way != "keep"}
    left = {
        name: [option for option in ways if option["way"] == fixed.get(name, option["way"])]
        for name, ways in options.items()
    }
    gone = {
        name: 0.0 if way == "shed" else _rounded_bits(options[name], load.widths_bits[name])
        for name, way in fixed.items()
    }
    free = [name for name in ranking if name not in fixed]
    rest = Load({**load.widths_bits, **gone}, load.tuples_per_second)
    second = decide(contract, {name: left[name] for name in free}, rest, part.trunk_kbps, free)
    later = {way.attribute: replace(way, stage=2) if way.way != "keep" else way for way in second.ways}
    ways = tuple(later.get(way.attribute, way) for way in first.ways)
    return Decision(
        ways, second.planned_kbps, second.shortfall_kbps, f"{first.reason}; trunk: {second.reason}"
    )


def _rounded_bits(options: Sequence[Mapping[str, Any]], width_bits: float) -> float:
    ways = {way.way: way for way in _measured_ways(options, width_bits / 8.0)}
    return ways["round"].wire_bytes * 8.0


def _by_ranking(
    contract: StreamContract, options: Options, load: Load, capacity_kbps: float, ranking: Sequence[str]
) -> Decision:
    found = fit(list(ranking), load.widths_bits, load.tuples_per_second, capacity_kbps, contract.fit)
    ways = tuple(
        Way(name, "shed" if name in found.shed else "keep", reason=found.reasons[name]) for name in options
    )
    planned, shortfall = found.planned_kbps, found.shortfall_kbps
    return Decision(ways, planned, shortfall, _sentence(ways, load, capacity_kbps, planned, shortfall))


def _by_bytes(
    contract: StreamContract, options: Options, load: Load, capacity_kbps: float, ranking: Sequence[str]
) -> Decision:
    per_tuple = capacity_kbps * 1000.0 / 8.0 / load.tuples_per_second
    fixed = sum(bits for name, bits in load.widths_bits.items() if name not in options) / 8.0
    measured = {name: _measured_ways(ways, load.widths_bits[name] / 8.0) for name, ways in options.items()}
    chosen = choose_ways(measured, list(ranking), per_tuple, fixed, contract.ways)
    to_kbps = load.tuples_per_second * 8.0 / 1000.0
    ways = tuple(Way(name, chosen.ways[name], reason=chosen.reasons[name]) for name in options)
    planned, shortfall = chosen.wire_bytes * to_kbps, chosen.shortfall_bytes * to_kbps
    return Decision(ways, planned, shortfall, _sentence(ways, load, capacity_kbps, planned, shortfall))


def _measured_ways(options: Sequence[Mapping[str, Any]], width_bytes: float) -> list[MeasuredWay]:
    """The trained options, scaled from the training set's width of the column to this batch's."""
    by_way = {option["way"]: option for option in options}
    kept = by_way["keep"]["wire_bytes_per_tuple"]
    scale = width_bytes / kept if kept else 1.0
    return [
        MeasuredWay(
            way,
            option["wire_bytes_per_tuple"] * scale if way != "keep" else width_bytes,
            option["synopsis_bytes_per_tuple"] * scale,
            option["mean_error_pct"],
        )
        for way, option in by_way.items()
    ]


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
