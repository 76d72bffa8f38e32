"""The trained model of one attribute: its error bound, precisions and predictors, to and from JSON.

A model, the rows as transmitted and the entries of a frame are enough to recover every shed value. `predictors` is a
preference list: each row uses the first predictor that the destination can evaluate there (its regressors are
transmitted and not null, its history is known). So the same model works for every scheme and every gap in the data,
and the two ends agree without any message. The list ``(last,)`` is the paper's form: a value is compared with the last
*stored* value, and corrections are exact.

A bound may also be absolute, in the attribute's own unit (`error`), instead of or in addition to the relative one. If
there are two, both hold. Rounding and shedding have several *precisions*, finest first, from exact to the bound E. A
scheme says which one each row has. Both ends read the same list, so only an index is sent.

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

*Parts of a time as regressors*: "polled_at#us-18000.hour" is the hour, five hours behind UTC, of `polled_at`. Columns
with a part of the tuple's time (year, month, day, hour, weekday) follow from the order attribute, which is always sent.
The name of such a regressor is the attribute, `#`, the unit of its stored whole numbers (d, s, ms, us, ns), the offset
from UTC in seconds with its sign, a dot, and the part. The calendar is the proleptic Gregorian one (days to dates:
Hinnant's `civil_from_days`), in integers only, so every machine gets the same result.

>>> at = np.array([1_357_012_800_000_000, 1_362_196_799_000_000])  # 2013-01-01T04:00:00Z, 2013-03-02T03:59:59Z
>>> [clock_part(at, part_of("t#us-18000." + part)).tolist() for part in ("year", "month", "day", "hour", "weekday")]
[[2012, 2013], [12, 3], [31, 1], [23, 22], [0, 4]]
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from spillway.errors import Refused
from spillway.levers.attributes.option import WAYS
from spillway.levers.attributes.synopsis.bounds import ErrorBound

ROUNDINGS = ("grid", "hold")
PARAMETERS: dict[str, tuple[str, ...]] = {
    "last": (),
    "previous": ("common",),
    "trend": ("slope", "common"),
    "season": ("season", "persistence", "common"),
    "level": ("smoothing", "persistence", "common"),
    "any": ("persistence", "common"),
    "regression": ("terms", "persistence", "common"),
}
"""The parameters that each predictor reads, by its name.

`previous` is the fallback of a model, and `level` belongs to `trend`; a contract cannot choose these two."""
_NEEDED = {"season": "season", "level": "smoothing", "regression": "terms"}
"""The parameter that a predictor cannot be without."""


@dataclass(frozen=True)
class Term:
    """A term of a regression: `weight` times the product of `numerators` over the product of `denominators`.

    A name that ends in "@1" is read from the key's previous row, other names from this row. A name with `#` is a part
    of a time (`ClockPart`).

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
        """Return the attributes that the term reads, from this row or the previous one."""
        every = self.numerators + self.denominators
        return frozenset(name.removesuffix("@1").partition("#")[0] for name in every)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object; floats are kept exactly."""
        return {"weight": self.weight, "numerators": [*self.numerators], "denominators": [*self.denominators]}

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Term:
        """Return the term that `to_dict` wrote."""
        return Term(float(facts["weight"]), tuple(facts["numerators"]), tuple(facts["denominators"]))


@dataclass(frozen=True)
class Predictor:
    """A named predictor with its parameters (see `predictors` for the formulas).

    `persistence` is the share of the last error of a regression or season that is carried over. `slope` is the weight
    of the key's last change, and `season` a lag in rows of the key. `common` is the weight of the relative surprise at
    the row just before, of any key. `smoothing` is the rate at which the level of a key follows its values.
    """

    name: str = "last"
    terms: tuple[Term, ...] = ()
    persistence: float = 1.0
    slope: float = 0.0
    season: int = 0
    common: float = 0.0
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in PARAMETERS:
            raise Refused("name", f"be one of {', '.join(PARAMETERS)}", self.name, "retrain")
        for one in fields(self)[1:]:
            value = getattr(self, one.name)
            if value != one.default and one.name not in PARAMETERS[self.name]:
                raise Refused(one.name, f"be {one.default} for the predictor {self.name}", value, "retrain")
        needed = _NEEDED.get(self.name)
        if needed and not (self.terms if needed == "terms" else getattr(self, needed) > 0):
            raise Refused(needed, f"be given for the predictor {self.name}", getattr(self, needed), "retrain")

    @property
    def regressors(self) -> frozenset[str]:
        """Return the attributes that must be known for this predictor to be used."""
        return frozenset().union(*(term.names for term in self.terms))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
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
        """Return the predictor that `to_dict` wrote."""
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
    """The precision of recovered values.

    `aim_pct` <= E is the bound that the kernels keep (None: E itself). `step_pct` is the relative step of corrections
    (0: exact values). With `unit` > 0, steps are even and `unit` wide instead of relative. With both, steps follow a
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
        """Return whether steps follow a ladder of levels that is even near zero and relative beyond."""
        return self.step_pct > 0 and self.unit > 0

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object; floats are kept exactly."""
        return {"aim_pct": self.aim_pct, "step_pct": self.step_pct, "unit": self.unit, "aim": self.aim}

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Precision:
        """Return the precision that `to_dict` wrote."""
        return Precision(
            _maybe(facts["aim_pct"]),
            float(facts["step_pct"]),
            float(facts["unit"]),
            _maybe(facts.get("aim")),
        )


@dataclass(frozen=True)
class Rounding:
    """The bound of rounded values, and the method (see `rounding`); with a bound of 0 they are sent unchanged.

    `error_pct` is infinity if the only bound is in the attribute's own unit (`error`).

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
        """Return the bound of rounded values."""
        return ErrorBound(self.error_pct, math.inf if self.error is None else self.error)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object; infinity becomes null."""
        return {"method": self.method, "error_pct": _finite(self.error_pct), "error": self.error}

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> Rounding:
        """Return the rounding that `to_dict` wrote."""
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
    """The trained facts of one attribute.

    - `error_pct` (E) is the guaranteed bound, and `error`, if stated, the one in the attribute's own unit. With
      `error`, `error_pct` may be infinity: no relative bound.
    - `precisions` are those at which it may be shed, `roundings` those to which it may be rounded, each finest first
      and within E. Without `roundings`, rounding saves nothing.
    - `decimals`: recovered values are rounded to this number, if the attribute has no more.
    - `cycle_length` is that of the training set, for information.
    - `rank` is the place in the order of recovery. If attributes of lower rank are shed, predictors read their
      recovered values.
    - `blend`: a row uses a weighted mean of all predictors that can be evaluated, not the first of them. The weights
      depend on the errors of each predictor for the key so far.
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
        """Return whether values are compared with the last stored one and stored exactly (Algorithm 3)."""
        return self.predictors[0].name == "last"

    @property
    def coarsest(self) -> int:
        """Return the index of the coarsest precision."""
        return len(self.precisions) - 1

    @property
    def bound(self) -> ErrorBound:
        """Return the guaranteed bound."""
        return ErrorBound(self.error_pct, _or_infinity(self.error))

    def bound_at(self, precision: int) -> ErrorBound:
        """Return the bound of values recovered at a precision: its aims, or the guaranteed bound."""
        one, promise = self.precisions[precision], self.bound
        return ErrorBound(
            promise.error_pct if one.aim_pct is None else one.aim_pct,
            promise.error if one.aim is None else one.aim,
        )

    def bound_pct(self, precision: int) -> float:
        """Return the relative part of `bound_at`."""
        return self.bound_at(precision).error_pct

    def _check_order(self, name: str, bounds: Sequence[ErrorBound]) -> None:
        for what, unit, most in (("error_pct", " %", self.error_pct), ("error", "", self.bound.error)):
            # a bound that is exact in one unit is exact in both
            found = [0.0 if not min(one.error_pct, one.error) else getattr(one, what) for one in bounds]
            if any(bound > most for bound in found):
                raise Refused(name, f"lie within 0..{most:g}{unit}", found, "retrain")
            if any(coarse < fine for fine, coarse in pairwise(found)):
                raise Refused(name, "be finest first", found, "retrain")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object for the table `models`."""
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
        """Return the model that `to_dict` wrote, also in the old form with one precision for each treatment."""
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
"""Ticks per second; 0 for days."""
PARTS = ("year", "month", "day", "weekday", "yearday", "hour", "minute", "second")
_DAY = 86_400
_NAME = re.compile(r"(?P<unit>d|s|ms|us|ns)(?P<offset>[+-]\d+)\.(?P<part>[a-z]+)")


class ClockPart(NamedTuple):
    """A part of a time: the attribute's unit, the offset from UTC in seconds, and the name of the part."""

    unit: str
    offset: int
    part: str

    def of(self, attribute: str) -> str:
        """Return the name of the regressor.

        >>> ClockPart("us", -18000, "hour").of("polled_at")
        'polled_at#us-18000.hour'
        """
        return f"{attribute}#{self.unit}{self.offset:+d}.{self.part}"


def part_of(name: str) -> ClockPart:
    """Return the part of a time from the name of a regressor (after the `#`)."""
    found = _NAME.fullmatch(name.partition("#")[2])
    if not found or found["part"] not in PARTS:
        raise Refused("name", "name a unit, an offset and a part of the calendar", name, "retrain")
    return ClockPart(found["unit"], int(found["offset"]), found["part"])


def clock_part(values: np.ndarray, wanted: ClockPart) -> np.ndarray:
    """Return that part of times in whole ticks since 1970, as whole numbers; Monday is weekday 0."""
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
    """Return the days from 1970 to the first of January of the year."""
    before = year - 1
    return 365 * (year - 1970) + (before // 4 - before // 100 + before // 400) - 477
