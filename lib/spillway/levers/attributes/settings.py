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
        "attributes that together identify the sender; []: there is one sender; null: training finds them",
        None,
    )


@dataclass(frozen=True, kw_only=True)
class WindowLength:
    """The unit of ranking: whole cycles with at least `tuples_at_least` tuples, or the tuples of `seconds`."""

    tuples_at_least: int = rule(Number(least=1, whole=True), "minimum number of tuples in a window", 64)
    seconds: float | None = rule(
        OptionalValue(Number(above=0)),
        "length of the window in seconds, converted to whole cycles by the rate of the stream; null: "
        "tuples_at_least applies",
        None,
    )


@dataclass(frozen=True, kw_only=True)
class MovingAverage:
    """The moving average before ranking (Ahuja 2006, section 3.2.2)."""

    kind: str = rule(
        Choice(AVERAGES),
        "moving average. ema: exponential; sma: simple, over sma_tuples; none: the values themselves",
        "ema",
    )
    multiplier: float = rule(Number(above=0, most=1), "ema: weight of the newest value", 0.18)
    seed: str = rule(
        Choice(SEEDS),
        "ema: initial value. first: the first value; zero: 0; sma: the mean of the first sma_tuples values",
        "first",
    )
    sma_tuples: int = rule(Number(least=1, whole=True), "sma: number of tuples to average", 10)


@dataclass(frozen=True, kw_only=True)
class Reevaluate:
    """How often the scheme is re-evaluated (Ahuja 2006, Algorithm 2)."""

    interval_windows: int = rule(
        Number(least=1, whole=True), "number of windows until the first re-evaluation", 1
    )
    factor: float = rule(
        Number(least=1), "growth factor of the interval while the scheme stays the same", 2.0
    )
    cap_windows: int | None = rule(
        OptionalValue(Number(least=1, whole=True)),
        "maximum interval, in windows; null: no limit, as in Ahuja 2006",
        512,
    )

    @staticmethod
    def former_field(name: str) -> tuple[str, str] | None:
        if name not in ("hysteresis", "memory_evaluations", "reach", "most_pct"):
            return None
        return "be absent: on real streams it gained nothing over Algorithm 2", "remove it"


@dataclass(frozen=True, kw_only=True)
class Training:
    """What the trained facts are learned from."""

    tuples: int = rule(
        Number(least=1, whole=True), "number of tuples for training, from the start of the stream", 10_000
    )
    candidates: int = rule(
        Number(least=1, whole=True),
        "with source.parity: number of training sets to try; a set with a line that parity cannot "
        "correct is discarded; training fails if all are discarded",
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
            "treatments": ["keep", "shed"],
            "predictors": ["last"],
            "reevaluate": {
                "interval_windows": 1,
                "factor": 2.0,
                "cap_windows": None,
            },
        }
    }

    method: str = rule(
        Choice(METHODS),
        "default: Spillway's rules; paper: the rules of Ahuja 2006 (windows of one cycle, `rank_by: stddev`, "
        "`plan: prefix`, `fit: count`, `synopsis: hold`, `treatments: [keep, shed]`, `predictors: [last]`, and "
        "`reevaluate` as Algorithm 2 is printed); a setting that the contract states takes precedence; for the "
        "paper's rule for a shared channel, write `divide_by: proportional` in the channel",
        "default",
    )
    criticality: str | None = rule(
        OptionalValue(Choice(CRITICALITIES)),
        "class of criticality; replaces the class that training derives from the attribute names",
        None,
    )
    error_pct: float | None = rule(
        OptionalValue(ERROR_PCT),
        "largest relative error, in %, of attributes without a stated bound, in place of the trained "
        "bound; at most 20.33",
        None,
    )
    bounds: str = rule(
        Choice(BOUNDS),
        "bound of attributes without a stated bound. trained: the trained bound; stated: they are "
        "recovered exactly",
        "trained",
    )
    cycle: StatedCycle = rule(
        Record(StatedCycle), "cycle identifier; if stated, it replaces the trained one", StatedCycle()
    )
    window: WindowLength = rule(Record(WindowLength), "the unit of ranking", WindowLength())
    smoothing: MovingAverage = rule(Record(MovingAverage), "smoothing before ranking", MovingAverage())
    rank_by: str = rule(
        Choice(RANK_BY),
        "score that ranks attributes for shedding. recoverability: bytes saved by shedding the "
        "attribute, measured in training, the same for every window; stddev: standard deviation "
        "(Ahuja 2006, 3.2.3.2); relative: standard deviation / mean, which has no unit. No score is "
        "best for every stream: see the evidence",
        "recoverability",
    )
    plan: str = rule(
        Choice(PLANS),
        "planning algorithm. least_loss: of all schemes that fit, the one with the smallest measured "
        "loss; prefix: shed the shortest prefix of the ranking (Ahuja 2006)",
        "least_loss",
    )
    fit: str = rule(
        Choice(FITS),
        "how `plan: prefix` computes the length of the prefix. bits: from measured widths; count: with the "
        "formula of Ahuja 2006",
        "bits",
    )
    synopsis: str = rule(
        Choice(CROSSINGS),
        "place of the corrections (synopsis) that recover shed values. send: they are sent with their batch and "
        "count against the channel; hold: they stay at the source until they are requested (Ahuja 2006); auto: "
        "those with the largest utility are sent first, as long as they fit; the others stay at the source",
        "auto",
    )
    requested_pct: float = rule(
        PERCENT,
        "expected share, in %, of the synopsis kept at the source that users will request; its bytes count "
        "against the channel, and as a cost for minimize: bytes",
        1.0,
        former="asked_back_pct",
    )
    treatments: tuple[str, ...] = rule(
        Listing(Choice(WAYS), least=1, unique=True),
        "allowed treatments of a measure; [keep, shed]: as in Ahuja 2006",
        WAYS,
        former="ways",
    )
    predictors: tuple[str, ...] = rule(
        Listing(Choice(PREDICTORS), least=1, unique=True),
        "allowed predictors; [last]: as in Ahuja 2006",
        PREDICTORS,
    )
    reevaluate: Reevaluate = rule(
        Record(Reevaluate), "frequency of re-evaluation of the scheme", Reevaluate()
    )
    training: Training = rule(Record(Training), "the training data", Training())

    def rules(self) -> Iterator[Broken]:
        if "keep" not in self.treatments:
            yield "treatments", "hold keep", list(self.treatments), "add keep: an attribute may have to stay"
        if self.plan == "prefix" and "shed" not in self.treatments:
            yield (
                "treatments",
                "hold shed when the plan is prefix",
                list(self.treatments),
                "add shed: a prefix is shed whole",
            )
        if self.plan == "least_loss" and self.fit in FITS and self.fit != "bits":
            yield "fit", "be absent if the plan is not prefix", self.fit, "write plan: prefix, or fit: bits"

    @staticmethod
    def schema_extra() -> dict[str, Any]:
        return {
            "if": {"properties": {"plan": {"const": "prefix"}}, "required": ["plan"]},
            "then": {"properties": {"treatments": {"contains": {"const": "shed"}}}},
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
