# ruff: noqa: RUF009 - `rule` is dataclasses.field with a shape; it makes no shared value
"""The contract settings of the lever `attributes`: every field with its meaning, rule and default.

>>> AttributeSettings().rank_by, AttributeSettings(window=WindowLength(tuples_at_least=8)).window.tuples_at_least
('recoverability', 8)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from spillway.contracts.fields import (
    ERROR_PCT,
    METHODS,
    PERCENT,
    Broken,
    Choice,
    Listing,
    Number,
    OptionalValue,
    Record,
    Text,
    rule,
    suggest,
)
from spillway.levers.attributes.option import (
    AVERAGES,
    BOUNDS,
    CROSSINGS,
    FITS,
    PLANS,
    PREDICTORS,
    RANK_BY,
    SEEDS,
    WAYS,
)

if TYPE_CHECKING:
    from spillway.contracts.stream import StreamContract

CRITICALITIES = ("extremely", "very", "moderately", "low", "not")
"""The classes of criticality, the strictest first."""

COLUMNS: tuple[tuple[str, str, str], ...] = (("scheme", "bigint", "number of the scheme, see `schemes`"),)
"""The columns that the lever adds to rows: name, type, meaning."""


@dataclass(frozen=True, kw_only=True)
class StatedCycle:
    """The cycle identifier stated by hand instead of found."""

    attributes: tuple[str, ...] | None = rule(
        OptionalValue(Listing(Text(), unique=True)),
        "attributes that together identify the sender; []: one sender sends all; null: found",
        None,
    )


@dataclass(frozen=True, kw_only=True)
class WindowLength:
    """The unit of ranking: whole cycles with at least `tuples_at_least` tuples, or the tuples of `seconds`."""

    tuples_at_least: int = rule(Number(least=1, whole=True), "least number of tuples in a window", 64)
    seconds: float | None = rule(
        OptionalValue(Number(above=0)),
        "a time window: as many tuples as the rate brings in it, whole cycles",
        None,
    )


@dataclass(frozen=True, kw_only=True)
class MovingAverage:
    """The moving average before ranking (Ahuja 2006, section 3.2.2)."""

    kind: str = rule(
        Choice(AVERAGES), "exponential, simple (of sma_tuples), or none: values as they are", "ema"
    )
    multiplier: float = rule(Number(above=0, most=1), "ema: weight of the newest value", 0.18)
    seed: str = rule(Choice(SEEDS), "start from the first value, zero, or the mean of the first few", "first")
    sma_tuples: int = rule(Number(least=1, whole=True), "how many sma averages", 10)


@dataclass(frozen=True, kw_only=True)
class Reevaluate:
    """How often the scheme is re-evaluated (Ahuja 2006, Algorithm 2)."""

    interval_windows: int = rule(Number(least=1, whole=True), "windows until the first re-evaluation", 1)
    factor: float = rule(Number(least=1), "the interval grows by it while the scheme stays the same", 2.0)
    cap_windows: int | None = rule(
        OptionalValue(Number(least=1, whole=True)),
        "upper limit of the interval, in windows; null: no limit, as in the paper",
        512,
    )
    hysteresis: float = rule(
        Number(least=0), "relative gain a new scheme must bring to be adopted; 0: the text", 0.0
    )
    memory_evaluations: int = rule(
        Number(least=1, whole=True),
        "evaluations whose mean score ranks where it forecasts better than the last one; 1: the text",
        8,
    )
    reach: float | None = rule(
        OptionalValue(Number(above=0)),
        "look again within this share of the time that schemes stayed so far; null: the text",
        0.2,
    )
    most_pct: float | None = rule(
        OptionalValue(Number(above=0, most=100)),
        "share of the windows evaluated at most, where doubling takes less; null: the text",
        10.0,
    )


@dataclass(frozen=True, kw_only=True)
class Training:
    """What the trained facts are learned from."""

    tuples: int = rule(Number(least=1, whole=True), "how many of the first tuples to train on", 10_000)
    candidates: int = rule(
        Number(least=1, whole=True),
        "with source.parity: number of training sets to try; a set with a line that parity cannot correct is "
        "discarded, and training fails if all are",
        8,
    )

    @staticmethod
    def former_field(name: str) -> tuple[str, str] | None:
        if name not in ("parity", "parity_attribute"):
            return None
        return (
            "be absent: it protected values after they were read, not the delivered bytes",
            "let the sender write lines with `spillway parity add FILE`, and write parity: secded under source",
        )


@dataclass(frozen=True, kw_only=True)
class AttributeSettings:
    """How measures are ranked, rounded, shed and recovered."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {
            "window": {"tuples_at_least": 1},
            "smoothing": {"kind": "ema", "multiplier": 0.18, "seed": "first"},
            "rank_by": "stddev",
            "plan": "prefix",
            "fit": "count",
            "synopsis": "hold",
            "ways": ["keep", "shed"],
            "predictors": ["last"],
            "reevaluate": {
                "interval_windows": 1,
                "factor": 2.0,
                "cap_windows": None,
                "hysteresis": 0.0,
                "memory_evaluations": 1,
                "reach": None,
                "most_pct": None,
            },
        }
    }

    method: str = rule(
        Choice(METHODS),
        "default: Spillway's rules; paper: the rules of Ahuja 2006 (windows of one cycle, `rank_by: stddev`, `plan: "
        "prefix`, `fit: count`, `synopsis: hold`, `ways: [keep, shed]`, `predictors: [last]`, and `reevaluate` as "
        "Algorithm 2 is printed); a setting that the contract states takes precedence; for her rule on a shared "
        "channel, write `divide_by: proportional` in the channel",
        "default",
    )
    criticality: str | None = rule(
        OptionalValue(Choice(CRITICALITIES)), "overrules the category found by name", None
    )
    error_pct: float | None = rule(
        OptionalValue(ERROR_PCT),
        "largest relative error of any quantity that states no bound of its own, in the place of what training finds; "
        "at most 20.33",
        None,
    )
    bounds: str = rule(
        Choice(BOUNDS),
        "trained: what states no bound has the one that training finds; stated: it is given back exactly",
        "trained",
    )
    cycle: StatedCycle = rule(Record(StatedCycle), "the cycle identifier by hand", StatedCycle())
    window: WindowLength = rule(Record(WindowLength), "the unit of ranking", WindowLength())
    smoothing: MovingAverage = rule(Record(MovingAverage), "smoothing before ranking", MovingAverage())
    rank_by: str = rule(
        Choice(RANK_BY),
        "score by which attributes are ranked for shedding; recoverability: bytes saved by shedding it, measured in "
        "training, the same for every window; stddev: standard deviation (Ahuja 2006, 3.2.3.2); relative: standard "
        "deviation / mean, without a unit. No score is best for every stream: see the evidence",
        "recoverability",
    )
    plan: str = rule(
        Choice(PLANS),
        "least_loss: what loses least of all that fits, as measured; prefix: the shortest prefix of the ranking is "
        "shed (the text)",
        "least_loss",
    )
    fit: str = rule(
        Choice(FITS), "plan: prefix: its length, bits: by measured width; count: the text's formula", "bits"
    )
    synopsis: str = rule(
        Choice(CROSSINGS),
        "send: what gives shed values back crosses with its batch and counts against the channel; hold: it stays at "
        "the source until it is asked for (the text); auto: it crosses as far as there is room, what is worth least "
        "stays",
        "auto",
    )
    asked_back_pct: float = rule(
        PERCENT,
        "share of what stays at the source that is expected to be asked for: it counts against the channel, and in "
        "what minimize: bytes spends",
        1.0,
    )
    ways: tuple[str, ...] = rule(
        Listing(Choice(WAYS), least=1, unique=True),
        "what may be done to a measure; [keep, shed]: the text",
        WAYS,
    )
    predictors: tuple[str, ...] = rule(
        Listing(Choice(PREDICTORS), least=1, unique=True),
        "which predictors may be tried; [last]: the text",
        PREDICTORS,
    )
    reevaluate: Reevaluate = rule(Record(Reevaluate), "how often the scheme is evaluated", Reevaluate())
    training: Training = rule(Record(Training), "what is learned from", Training())

    def rules(self) -> Iterator[Broken]:
        if "keep" not in self.ways:
            yield "ways", "hold keep", list(self.ways), "add keep: an attribute may have to stay"
        if self.plan == "prefix" and "shed" not in self.ways:
            yield (
                "ways",
                "hold shed when the plan is prefix",
                list(self.ways),
                "add shed: a prefix is shed whole",
            )
        if self.plan == "least_loss" and self.fit in FITS and self.fit != "bits":
            yield "fit", "be absent if the plan is not prefix", self.fit, "write plan: prefix, or fit: bits"

    @staticmethod
    def schema_extra() -> dict[str, Any]:
        return {
            "if": {"properties": {"plan": {"const": "prefix"}}, "required": ["plan"]},
            "then": {"properties": {"ways": {"contains": {"const": "shed"}}}},
            "else": {"properties": {"fit": {"const": "bits"}}},
        }

    def stream_rules(self, contract: StreamContract) -> Iterator[Broken]:
        """Yield the rules that these settings break together with the rest of the stream's contract."""
        named = [(f"cycle.attributes[{i}]", name) for i, name in enumerate(self.cycle.attributes or ())]
        for where, name in named:
            if isinstance(name, str) and name not in contract.names:
                known = [known for known in contract.names if isinstance(known, str)]
                yield where, "be an attribute of the stream", name, suggest(name, known)
        if contract.mode == "shed" and not contract.sheddable:
            yield (
                "lever",
                "find an attribute of role measure when mode is shed",
                "attributes",
                "make one role: measure, or write mode: observe, or levers: []",
            )


NEEDS_EVERY_ROW = True
"""A value is recovered from the tuples before it as they were sent, so no row may be missing."""

SETTINGS = AttributeSettings
"""The settings class that the registry uses for a contract's entry."""
