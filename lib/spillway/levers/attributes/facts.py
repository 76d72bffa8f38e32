"""The trained facts of the attribute lever as objects: the cycle, and a model and options for each measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from spillway.errors import InvalidExternalValue
from spillway.levers.attributes.cycle.identifier import Cycle
from spillway.levers.attributes.option import Option, of_way
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.protocol import Facts

CYCLE, CATEGORY, RANKING, THRESHOLD, MODEL, OPTIONS = (
    "cycle",
    "category",
    "ranking",
    "threshold",
    "attribute",
    "options",
)
"""The kinds of facts."""


def kind_of_type(type_: str) -> str:
    """Return the kind of column that holds a contract's type."""
    return {"string": "text", "double": "real"}.get(type_, "integer")


def recoverability(options: Sequence[Option]) -> float:
    """Return the transmitted bytes that shedding an attribute saves, per byte of synopsis and per cent of error.

    It is 0 for an attribute that cannot be shed.

    >>> recoverability([Option("temp", "keep", 4.0), Option("temp", "shed", 0.0, 1.0, mean_error_pct=1.0)])
    2.0
    """
    shed, kept = of_way(options, "shed"), of_way(options, "keep")
    if shed is None or kept is None:
        return 0.0
    cost = shed.synopsis_bytes_per_tuple * (1.0 + shed.mean_error_pct)
    return kept.wire_bytes_per_tuple / cost if cost else float(2**53)


@dataclass(frozen=True)
class TrainedFacts:
    """The facts of a stream in one version."""

    version: int
    cycle: Cycle
    models: Mapping[str, AttributeModel]
    options: Mapping[str, tuple[Option, ...]]
    category: Mapping[str, Any]
    ranking: Mapping[str, float]

    @staticmethod
    def from_facts(facts: Facts) -> TrainedFacts:
        """Return the facts as objects; raise `InvalidExternalValue` if they are not as training wrote them."""
        try:
            return facts.decode_once(TrainedFacts._from)
        except (AttributeError, KeyError, TypeError) as problem:
            rule, odd = "be as training wrote them", f"{type(problem).__name__}: {problem}"
            remedy = "restore the table, or train the stream again"
            raise InvalidExternalValue(
                "facts", rule, odd, remedy, f"attributes, version {facts.version}"
            ) from problem

    @staticmethod
    def _from(facts: Facts) -> TrainedFacts:
        return TrainedFacts(
            facts.version,
            Cycle.from_dict(facts.value(CYCLE)),
            {name: AttributeModel.from_dict(one.value) for name, one in facts.of(MODEL).items()},
            {
                name: tuple(Option.from_dict(option) for option in one.value)
                for name, one in facts.of(OPTIONS).items()
            },
            facts.value(CATEGORY) or {},
            facts.value(RANKING) or {},
        )

    @cached_property
    def recoverability(self) -> Mapping[str, float]:
        """Return the recoverability of each attribute, measured in training (see `recoverability`)."""
        return {name: recoverability(options) for name, options in self.options.items()}

    def scores(self, measures: Sequence[str], rank_by: str) -> dict[str, float]:
        """Return the initial scores by the contract's rule, in the order of the measures.

        `recoverability` is computed from the measured options, so it does not depend on the rule that was used in
        training. For the other rules the scores are those of the training set.
        """
        if rank_by == "recoverability":
            return {name: -self.recoverability.get(name, 0.0) + 0.0 for name in measures}
        return {name: self.ranking.get(name, 0.0) for name in measures}

    def usable_measures(self, measures: Sequence[str], types: Mapping[str, str]) -> tuple[str, ...]:
        """Return the measures whose trained kind matches the contract; others are kept until they are trained."""
        return tuple(
            name
            for name in measures
            if name in self.models and self.models[name].kind == kind_of_type(types[name])
        )

    def ranked_measures(self, measures: Sequence[str], rank_by: str) -> list[str]:
        """Return the measures in the order of the first ranking; the first is shed first."""
        scores = self.scores(measures, rank_by)
        return sorted(measures, key=lambda name: scores[name])
