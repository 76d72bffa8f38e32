"""What training learned about one attribute: its bound, its way, its predictors. JSON in and out.

A model is enough, with the rows as transmitted and the entries of a frame, to give every shed value back.
`predictors` is a preference list: at each row the first predictor that the destination can evaluate there is
used (its regressors transmitted and not null, its history known), so the same model serves every scheme and
every gap in the data, and the two ends agree without a word about it. The list ``(last,)`` is the paper's
form: compared with the last *stored* value, corrections exact.

A bound may also be absolute, in the attribute's own unit (`error`), instead of relative or beside it; then both hold.
Round and shed come in several *precisions*, finest first, from exact to the bound E; a scheme says which one each
row has. Both ends read the same list, so an index is all that crosses.

>>> from dataclasses import replace
>>> model = AttributeModel("dewp", "real", error_pct=4.5)
>>> model.paper_form, AttributeModel.from_dict(model.to_dict()) == model
(True, True)
>>> from dataclasses import replace
>>> fine = replace(model, precisions=(Precision(0.0), Precision(1.5), Precision()))
>>> [fine.bound_at(place).error_pct for place in range(3)]
[0.0, 1.5, 4.5]
>>> half = AttributeModel("temp", "real", math.inf, precisions=(Precision(aim=0.1), Precision()), error=0.5)
>>> [half.bound_at(place).error for place in range(2)], AttributeModel.from_dict(half.to_dict()) == half
([0.1, 0.5], True)

Parts of a time as regressors: "polled_at#us-18000.hour" is the hour, five hours behind UTC, of `polled_at`.

Columns that say when a tuple is from (year, month, day, hour, weekday) follow from its order attribute, which always
travels. The name of such a regressor is the attribute, `#`, the unit of its stored whole numbers (d, s, ms, us, ns),
the offset from UTC in seconds with its sign, a dot, and the part. Whole numbers throughout, the proleptic Gregorian
calendar (days to dates: Hinnant's `civil_from_days`), so every machine finds the same.

>>> at = np.array([1_357_012_800_000_000, 1_362_196_799_000_000])  # 2013-01-01T04:00:00Z, 2013-03-02T03:59:59Z
>>> [clock_part(at, part_of("t#us-18000." + part)).tolist() for part in ("year", "month", "day", "hour", "weekday")]
[[2012, 2013], [12, 3], [31, 1], [23, 22], [0, 4]]
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from spillway.errors import Refused
from spillway.levers.attributes.option import PREDICTORS, WAYS
from spillway.levers.attributes.synopsis.bounds import ErrorBound

ROUNDINGS = ("grid", "hold")
NAMES = (*PREDICTORS, "previous", "level")
"""`previous` is what a model falls back on, `level` a trend that stands still: not for contracts to choose."""


@dataclass(frozen=True)
class Term:
    """`weight` times the product of `numerators` over the product of `denominators` of this row, or of the
    same key's previous row for names that end in "@1", or of a part of a time (`calendar`).

    >>> str(Term(100.0, ("change",), ("last",)))
    '100*change/last'
    """

    weight: float
    numerators: tuple[str, ...] = ()
    denominators: tuple[str, ...] = ()

    def __str__(self) -> str:
        over = "".join(f"/{name}" for name in self.denominators)
        return "*".join([f"{self.weight:.6g}", *self.numerators]) + over

    @property
    def names(self) -> frozenset[str]:
        """The attributes read, of whichever row."""
        every = self.numerators + self.denominators
        return frozenset(name.removesuffix("@1").partition("#")[0] for name in every)

    def to_dict(self) -> dict[str, Any]:
        """JSON; floats survive it exactly."""
        return {"weight": self.weight, "numerators": [*self.numerators], "denominators": [*self.denominators]}

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Term:
        """The inverse of `to_dict`."""
        return Term(float(facts["weight"]), tuple(facts["numerators"]), tuple(facts["denominators"]))


@dataclass(frozen=True)
class Predictor:
    """A named predictor with its parameters (see `predictors` for the formulas).

    `persistence` is the share of a regression's (or season's) last miss that is carried over, `slope` the
    weight of the key's last change, `season` a lag in rows of the key, `common` the weight of the relative
    surprise at the row just before, whatever its key, `smoothing` how fast a key's level follows its values.
    """

    name: str = "last"
    terms: tuple[Term, ...] = ()
    persistence: float = 1.0
    slope: float = 0.0
    season: int = 0
    common: float = 0.0
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise Refused("name", f"be one of {', '.join(NAMES)}", self.name, "retrain")
        if (self.name == "regression") != bool(self.terms):
            raise Refused(
                "terms",
                f"belong to a regression, not to {self.name}" if self.terms else "make a regression",
                len(self.terms),
                "retrain",
            )
        if self.season < 0 or (self.name == "season") != (self.season > 0):
            raise Refused("season", "be a positive lag of a season", self.season, "retrain")

    @property
    def regressors(self) -> frozenset[str]:
        """Attributes that must be transmitted for this predictor to be used."""
        return frozenset().union(*(term.names for term in self.terms))

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        return {
            "name": self.name,
            "terms": [term.to_dict() for term in self.terms],
            "persistence": self.persistence,
            "slope": self.slope,
            "season": self.season,
            "common": self.common,
            "smoothing": self.smoothing,
        }

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Predictor:
        """The inverse of `to_dict`."""
        return Predictor(
            str(facts["name"]),
            tuple(Term.from_dict(term) for term in facts["terms"]),
            float(facts["persistence"]),
            float(facts["slope"]),
            int(facts["season"]),
            float(facts["common"]),
            float(facts.get("smoothing", 0.0)),
        )


@dataclass(frozen=True)
class Precision:
    """How closely shed values are given back.

    `aim_pct` <= E is the bound the kernels hold themselves to (None: E itself), `step_pct` how fine corrections
    are (0: exact values). `unit` > 0 makes steps even, `unit` wide, instead of relative; with both, steps go along a
    ladder of levels that is even near zero and relative beyond (`walking.ladder_of`). `aim` is the bound in the
    attribute's own unit (None: the model's `error`, if it has one).

    >>> Precision.from_dict(Precision(0.5, 1.0).to_dict())
    Precision(aim_pct=0.5, step_pct=1.0, unit=0.0, aim=None)
    """

    aim_pct: float | None = None
    step_pct: float = 0.0
    unit: float = 0.0
    aim: float | None = None

    def __post_init__(self) -> None:
        for name in ("aim_pct", "aim"):
            aim = getattr(self, name)
            if aim is not None and not (aim >= 0 and math.isfinite(aim)):
                raise Refused(name, "be a finite number >= 0", aim, "retrain")
        if not (self.step_pct >= 0 and math.isfinite(self.step_pct)):
            raise Refused("step_pct", "be a finite number >= 0", self.step_pct, "retrain")
        if not (self.unit >= 0 and math.isfinite(self.unit)):
            raise Refused("unit", "be a finite number >= 0", self.unit, "retrain")

    @property
    def ladder(self) -> bool:
        """Whether steps lead along a ladder of levels, even near zero and relative beyond."""
        return self.step_pct > 0 and self.unit > 0

    def to_dict(self) -> dict[str, Any]:
        """JSON; floats survive it exactly."""
        return {"aim_pct": self.aim_pct, "step_pct": self.step_pct, "unit": self.unit, "aim": self.aim}

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Precision:
        """The inverse of `to_dict`."""
        return Precision(
            _maybe(facts["aim_pct"]),
            float(facts["step_pct"]),
            float(facts["unit"]),
            _maybe(facts.get("aim")),
        )


@dataclass(frozen=True)
class Rounding:
    """How closely rounded values keep to the truth, and by which method of `rounding`; 0: sent as they are.

    `error_pct` is infinity where the bound is in the attribute's own unit alone (`error`).

    >>> Rounding.from_dict(Rounding("hold", 3.1).to_dict())
    Rounding(method='hold', error_pct=3.1, error=None)
    """

    method: str = "grid"
    error_pct: float = 0.0
    error: float | None = None

    def __post_init__(self) -> None:
        if self.method not in ROUNDINGS:
            raise Refused("method", f"be one of {', '.join(ROUNDINGS)}", self.method, "retrain")
        _check_bound(self.error_pct, self.error)

    @property
    def bound(self) -> ErrorBound:
        """What rounded values keep to."""
        return ErrorBound(self.error_pct, math.inf if self.error is None else self.error)

    def to_dict(self) -> dict[str, Any]:
        """JSON, which knows no infinity."""
        return {"method": self.method, "error_pct": _finite(self.error_pct), "error": self.error}

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Rounding:
        """The inverse of `to_dict`."""
        return Rounding(str(facts["method"]), _or_infinity(facts["error_pct"]), _maybe(facts.get("error")))


def _check_bound(error_pct: float, error: float | None) -> None:
    if not error_pct >= 0 or (math.isinf(error_pct) and error is None):
        raise Refused("error_pct", "be a finite number >= 0", error_pct, "state it in the contract")
    if error is not None and not (error >= 0 and math.isfinite(error)):
        raise Refused("error", "be a finite number >= 0", error, "state it in the contract")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _or_infinity(value: Any) -> float:
    return math.inf if value is None else float(value)


def _maybe(value: Any) -> float | None:
    return None if value is None else float(value)


@dataclass(frozen=True)
class AttributeModel:
    """Trained facts of one attribute.

    `error_pct` (E) is the promise, and so is `error`, in the attribute's own unit, where there is one; with `error`,
    `error_pct` may be infinity: no relative bound. `precisions` are how closely it may be shed, `roundings` how
    closely it may be rounded, each finest first and within E; without `roundings` rounding saves nothing.
    `decimals`: recovered values are rounded to so many, when the attribute has no more. `cycle_length` is what
    training saw, for the reader. `rank` is the attribute's place in the order of recovery: where attributes of
    lower rank are shed, predictors read them as recovered. `blend`: at each row not the first predictor that
    can be evaluated, but a mean of all, weighed by how well each has served the key.
    """

    attribute: str
    kind: str
    error_pct: float
    way: str = "shed"
    predictors: tuple[Predictor, ...] = field(default_factory=lambda: (Predictor(),))
    precisions: tuple[Precision, ...] = (Precision(),)
    roundings: tuple[Rounding, ...] = ()
    decimals: int | None = None
    cycle_length: int = 0
    rank: int = 0
    error: float | None = None
    blend: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("real", "integer", "text"):
            raise Refused("kind", "be real, integer or text", self.kind, "retrain")
        if self.way not in WAYS:
            raise Refused("way", f"be one of {', '.join(WAYS)}", self.way, "retrain")
        _check_bound(self.error_pct, self.error)
        if not self.precisions:
            raise Refused("precisions", "name at least one", (), "retrain")
        self._check_order("precisions", [self.bound_at(place) for place in range(len(self.precisions))])
        self._check_order("roundings", [one.bound for one in self.roundings])
        if not self.predictors:
            raise Refused("predictors", "name at least one predictor", (), "last is the paper's")
        if self.predictors[-1].terms:
            raise Refused("predictors", "end with one that needs no regressor", "regression", "add previous")
        if any(p.name == "last" for p in self.predictors) and len(self.predictors) > 1:
            raise Refused(
                "predictors", "be last alone or none of it", [p.name for p in self.predictors], "use previous"
            )
        if self.kind == "text" and not self.paper_form:
            raise Refused("predictors", "be last for text", self.predictors[0].name, "retrain")

    @property
    def paper_form(self) -> bool:
        """Whether values are compared with the last stored one and stored as they are (Algorithm 3)."""
        return self.predictors[0].name == "last"

    @property
    def coarsest(self) -> int:
        """The index of the precision that spends most."""
        return len(self.precisions) - 1

    @property
    def bound(self) -> ErrorBound:
        """The promise."""
        return ErrorBound(self.error_pct, _or_infinity(self.error))

    def bound_at(self, precision: int) -> ErrorBound:
        """What values recovered at a precision really keep to: its aims, or the promise."""
        one, promise = self.precisions[precision], self.bound
        return ErrorBound(
            promise.error_pct if one.aim_pct is None else one.aim_pct,
            promise.error if one.aim is None else one.aim,
        )

    def bound_pct(self, precision: int) -> float:
        """The relative part of `bound_at`."""
        return self.bound_at(precision).error_pct

    def _check_order(self, name: str, bounds: Sequence[ErrorBound]) -> None:
        for what, unit, most in (("error_pct", " %", self.error_pct), ("error", "", self.bound.error)):
            # what is exact in one measure is so in the other
            found = [0.0 if not min(one.error_pct, one.error) else getattr(one, what) for one in bounds]
            if any(bound > most for bound in found):
                raise Refused(name, f"lie within 0..{most:g}{unit}", found, "retrain")
            if any(coarse < fine for fine, coarse in pairwise(found)):
                raise Refused(name, "be finest first", found, "retrain")

    def to_dict(self) -> dict[str, Any]:
        """JSON for the `models` table."""
        return {
            "attribute": self.attribute,
            "kind": self.kind,
            "error_pct": _finite(self.error_pct),
            "error": self.error,
            "way": self.way,
            "predictors": [predictor.to_dict() for predictor in self.predictors],
            "precisions": [precision.to_dict() for precision in self.precisions],
            "roundings": [rounding.to_dict() for rounding in self.roundings],
            "decimals": self.decimals,
            "cycle_length": self.cycle_length,
            "rank": self.rank,
            "blend": self.blend,
        }

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> AttributeModel:
        """The inverse of `to_dict`; what was trained when there was one precision of each way is read as such."""
        if "precisions" in facts:
            precisions = tuple(Precision.from_dict(one) for one in facts["precisions"])
            roundings = tuple(Rounding.from_dict(one) for one in facts["roundings"])
        else:
            precisions = (Precision.from_dict(facts),)
            share = facts["rounding_pct"]
            roundings = (Rounding(str(facts["rounding"]), float(share)),) if share else ()
        return AttributeModel(
            str(facts["attribute"]),
            str(facts["kind"]),
            _or_infinity(facts["error_pct"]),
            str(facts["way"]),
            tuple(Predictor.from_dict(predictor) for predictor in facts["predictors"]),
            precisions,
            roundings,
            None if facts["decimals"] is None else int(facts["decimals"]),
            int(facts["cycle_length"]),
            int(facts.get("rank", 0)),
            _maybe(facts.get("error")),
            bool(facts.get("blend", False)),
        )


TICKS = {"d": 0, "s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks a second; 0 for days."""
PARTS = ("year", "month", "day", "weekday", "yearday", "hour", "minute", "second")
_DAY = 86_400
_NAME = re.compile(r"(?P<unit>d|s|ms|us|ns)(?P<offset>[+-]\d+)\.(?P<part>[a-z]+)")


class ClockPart(NamedTuple):
    """A part of a time: the attribute's unit, seconds ahead of UTC, and which part."""

    unit: str
    offset: int
    part: str

    def of(self, attribute: str) -> str:
        """The regressor's name.

        >>> ClockPart("us", -18000, "hour").of("polled_at")
        'polled_at#us-18000.hour'
        """
        return f"{attribute}#{self.unit}{self.offset:+d}.{self.part}"


def part_of(name: str) -> ClockPart:
    """What a regressor's name says after the `#`."""
    found = _NAME.fullmatch(name.partition("#")[2])
    if not found or found["part"] not in PARTS:
        raise Refused("name", "name a unit, an offset and a part of the calendar", name, "retrain")
    return ClockPart(found["unit"], int(found["offset"]), found["part"])


def clock_part(values: np.ndarray, wanted: ClockPart) -> np.ndarray:
    """That part of times in whole ticks since 1970, as whole numbers; Monday is weekday 0."""
    ticks = TICKS[wanted.unit]
    seconds = (values // ticks if ticks else values * _DAY) + wanted.offset
    days, second = seconds // _DAY, seconds % _DAY
    if wanted.part in ("hour", "minute", "second"):
        return {"hour": second // 3600, "minute": second // 60 % 60, "second": second % 60}[wanted.part]
    if wanted.part == "weekday":
        return (days + 3) % 7
    year, month, day = _date(days)
    if wanted.part == "yearday":
        return days - _days(year) + 1
    return {"year": year, "month": month, "day": day}[wanted.part]


def _date(days: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shifted = days + 719_468
    era, of_era = shifted // 146_097, shifted % 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    from_march = (5 * of_year + 2) // 153
    month = np.where(from_march < 10, from_march + 3, from_march - 9)
    return year + era * 400 + (month <= 2), month, of_year - (153 * from_march + 2) // 5 + 1


def _days(year: np.ndarray) -> np.ndarray:
    """Days from 1970 to the first of January."""
    before = year - 1
    return 365 * (year - 1970) + (before // 4 - before // 100 + before // 400) - 477
