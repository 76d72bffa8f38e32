"""What training learned about one attribute: its bound, its way, its predictors. JSON in and out.

A model is enough, with the rows as transmitted and the entries of a frame, to give every shed value back.
`predictors` is a preference list: at each row the first predictor that the destination can evaluate there is
used (its regressors transmitted and not null, its history known), so the same model serves every scheme and
every gap in the data, and the two ends agree without a word about it. The list ``(last,)`` is the paper's
form: compared with the last *stored* value, corrections exact.

>>> model = AttributeModel("dewp", "real", error_pct=4.5)
>>> model.paper_form, AttributeModel.from_dict(model.to_dict()) == model
(True, True)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spillway.errors import Refused
from spillway.levers.attributes.choices import PREDICTORS, WAYS

ROUNDINGS = ("grid", "hold")
NAMES = (*PREDICTORS, "previous")
"""`previous` is what a model falls back on, and is not for contracts to choose."""


@dataclass(frozen=True)
class Term:
    """`weight` times the product of `numerators` over the product of `denominators` of this row, or of the
    same key's previous row for names that end in "@1".

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
        return frozenset(name.removesuffix("@1") for name in self.numerators + self.denominators)

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
    surprise at the row just before, whatever its key.
    """

    name: str = "last"
    terms: tuple[Term, ...] = ()
    persistence: float = 1.0
    slope: float = 0.0
    season: int = 0
    common: float = 0.0

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
        )


@dataclass(frozen=True)
class AttributeModel:
    """Trained facts of one attribute.

    `error_pct` (E) is the promise. `aim_pct` <= E is the bound the kernels hold themselves to, `step_pct` how
    fine corrections are (0 = exact values); both are None for "as E" and "exact" until chosen. `decimals`:
    recovered values are rounded to so many, when the attribute has no more. `unit` > 0 makes steps even,
    `unit` wide, instead of relative. `rounding` and `rounding_pct` say how the way `round` spends its error
    (None: not at all). `cycle_length` is what training saw, for the reader. `rank` is the attribute's place in
    the order of recovery: where attributes of lower rank are shed, predictors read them as recovered.
    """

    attribute: str
    kind: str
    error_pct: float
    way: str = "shed"
    predictors: tuple[Predictor, ...] = field(default_factory=lambda: (Predictor(),))
    aim_pct: float | None = None
    step_pct: float = 0.0
    unit: float = 0.0
    decimals: int | None = None
    cycle_length: int = 0
    rounding: str = "grid"
    rounding_pct: float | None = None
    rank: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("real", "integer", "text"):
            raise Refused("kind", "be real, integer or text", self.kind, "retrain")
        if self.way not in WAYS:
            raise Refused("way", f"be one of {', '.join(WAYS)}", self.way, "retrain")
        if not (self.error_pct >= 0 and math.isfinite(self.error_pct)):
            raise Refused("error_pct", "be a finite number >= 0", self.error_pct, "state it in the contract")
        if self.aim_pct is not None and not 0 <= self.aim_pct <= self.error_pct:
            raise Refused("aim_pct", f"lie within 0..{self.error_pct}", self.aim_pct, "retrain")
        if not (self.step_pct >= 0 and math.isfinite(self.step_pct)):
            raise Refused("step_pct", "be a finite number >= 0", self.step_pct, "retrain")
        if not (self.unit >= 0 and math.isfinite(self.unit)):
            raise Refused("unit", "be a finite number >= 0", self.unit, "retrain")
        if self.rounding not in ROUNDINGS:
            raise Refused("rounding", f"be one of {', '.join(ROUNDINGS)}", self.rounding, "retrain")
        if self.rounding_pct is not None and not 0 <= self.rounding_pct <= self.error_pct:
            raise Refused("rounding_pct", f"lie within 0..{self.error_pct}", self.rounding_pct, "retrain")
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
    def bound_pct(self) -> float:
        """What recovered values really keep to: `aim_pct`, or E."""
        return self.error_pct if self.aim_pct is None else self.aim_pct

    def to_dict(self) -> dict[str, Any]:
        """JSON for the `models` table."""
        return {
            "attribute": self.attribute,
            "kind": self.kind,
            "error_pct": self.error_pct,
            "way": self.way,
            "predictors": [predictor.to_dict() for predictor in self.predictors],
            "aim_pct": self.aim_pct,
            "step_pct": self.step_pct,
            "unit": self.unit,
            "decimals": self.decimals,
            "cycle_length": self.cycle_length,
            "rounding": self.rounding,
            "rounding_pct": self.rounding_pct,
            "rank": self.rank,
        }

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> AttributeModel:
        """The inverse of `to_dict`."""
        return AttributeModel(
            str(facts["attribute"]),
            str(facts["kind"]),
            float(facts["error_pct"]),
            str(facts["way"]),
            tuple(Predictor.from_dict(predictor) for predictor in facts["predictors"]),
            None if facts["aim_pct"] is None else float(facts["aim_pct"]),
            float(facts["step_pct"]),
            float(facts["unit"]),
            None if facts["decimals"] is None else int(facts["decimals"]),
            int(facts["cycle_length"]),
            str(facts["rounding"]),
            None if facts["rounding_pct"] is None else float(facts["rounding_pct"]),
            int(facts.get("rank", 0)),
        )
