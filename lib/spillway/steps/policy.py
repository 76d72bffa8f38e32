"""What contract, training and measurement allow a stream's planner: widths, rate, ways, the decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spillway.attributes.capacity import fit
from spillway.attributes.planner import Decision, Policy
from spillway.attributes.runs import Way
from spillway.attributes.scheme import Reevaluation
from spillway.attributes.ways import Way as MeasuredWay
from spillway.attributes.ways import choose_ways
from spillway.contracts import StreamContract
from spillway.errors import SpillwayError
from spillway.lake.batches import Batch
from spillway.lake.files import column_bytes
from spillway.settings import Settings
from spillway.steps.rows import stream_files
from spillway.steps.train import smoothing_of
from spillway.steps.trained import Trained

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
    contract: StreamContract, trained: Trained, load: Load, capacity_kbps: float, hits: bool
) -> Policy:
    """The planner's policy for one batch."""
    measures = tuple(name for name in contract.sheddable if name in trained.models)
    stated = contract.reevaluate
    return Policy(
        cycle=trained.cycle,
        attributes=measures,
        rank_by=contract.rank_by,
        smoothing=smoothing_of(contract),
        tuples_at_least=contract.window.tuples_at_least,
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
        capacity_kbps=capacity_kbps,
        decide=_decider(contract, trained, measures, load, capacity_kbps),
        measure_hits=hits,
    )


def _ranked(trained: Trained, measures: Sequence[str]) -> list[str]:
    return sorted(measures, key=lambda name: trained.ranking.get(name, 0.0))


def _decider(
    contract: StreamContract, trained: Trained, measures: Sequence[str], load: Load, capacity_kbps: float
) -> Callable[[Sequence[str]], Decision]:
    """A ranking's consequence: by the text (`fit`) where rounding is not allowed, else by measured bytes."""
    decide = _by_bytes if "round" in contract.ways else _by_ranking
    observing = contract.mode == "observe"

    def decision(ranking: Sequence[str]) -> Decision:
        found = decide(contract, trained, measures, load, capacity_kbps, ranking)
        if not observing or not found.scheme:
            return found
        kept = tuple(
            Way(way.attribute, "keep", way.stage, "", f"observed only: would be {way.way}, {way.reason}")
            if way.way != "keep"
            else way
            for way in found.ways
        )
        over = max(0.0, load.rate_kbps - capacity_kbps)
        return Decision(kept, load.rate_kbps, over, f"observed only: {found.reason}")

    return decision


def _by_ranking(
    contract: StreamContract,
    trained: Trained,
    measures: Sequence[str],
    load: Load,
    capacity_kbps: float,
    ranking: Sequence[str],
) -> Decision:
    found = fit(list(ranking), load.widths_bits, load.tuples_per_second, capacity_kbps, contract.fit)
    ways = tuple(
        Way(
            name,
            "shed" if name in found.shed else "keep",
            1,
            _predictor(trained, name) if name in found.shed else "",
            found.reasons[name],
        )
        for name in measures
    )
    return Decision(
        ways,
        found.planned_kbps,
        found.shortfall_kbps,
        _sentence(ways, load, capacity_kbps, found.planned_kbps, found.shortfall_kbps),
    )


def _by_bytes(
    contract: StreamContract,
    trained: Trained,
    measures: Sequence[str],
    load: Load,
    capacity_kbps: float,
    ranking: Sequence[str],
) -> Decision:
    per_tuple = capacity_kbps * 1000.0 / 8.0 / load.tuples_per_second
    fixed = sum(bits for name, bits in load.widths_bits.items() if name not in measures) / 8.0
    options = {name: _measured_ways(trained, name, load.widths_bits[name] / 8.0) for name in measures}
    chosen = choose_ways(options, list(ranking), per_tuple, fixed, contract.ways)
    to_kbps = load.tuples_per_second * 8.0 / 1000.0
    ways = tuple(
        Way(
            name,
            chosen.ways[name],
            1,
            _predictor(trained, name) if chosen.ways[name] == "shed" else "",
            chosen.reasons[name],
        )
        for name in measures
    )
    planned, shortfall = chosen.wire_bytes * to_kbps, chosen.shortfall_bytes * to_kbps
    return Decision(ways, planned, shortfall, _sentence(ways, load, capacity_kbps, planned, shortfall))


def _measured_ways(trained: Trained, name: str, width_bytes: float) -> list[MeasuredWay]:
    """The trained options, scaled from the training set's width of the column to this batch's."""
    options = {option["way"]: option for option in trained.options[name]["options"]}
    kept = options["keep"]["wire_bytes_per_tuple"]
    scale = width_bytes / kept if kept else 1.0
    return [
        MeasuredWay(
            way,
            option["wire_bytes_per_tuple"] * scale if way != "keep" else width_bytes,
            option["synopsis_bytes_per_tuple"] * scale,
            option["mean_error_pct"],
        )
        for way, option in options.items()
    ]


def _predictor(trained: Trained, name: str) -> str:
    return trained.models[name].predictors[0].name


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
