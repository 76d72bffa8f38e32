"""Choose way, predictor and precision of every attribute by what they weigh, measured on training data.

For each attribute the candidates are shed and packed as they would be (specs: chosen at training by measured
packed bytes): the paper's `last` with exact values, and each predictor with corrections of several
precisions. The cheapest wins, never one that weighs more than `last`; a mean error over `mean_error_pct` is
charged (CHARGE times the bytes of `last` for each time the limit is exceeded), so that recovery stays
accurate on average where that is to be had. The `Precision` of corrections trades bytes against mean error
inside the bound E.

A model that wins with regressors also carries predictors that do without each of them, so that a scheme
which sheds one still has the next best.

>>> rows = np.arange(600)
>>> columns = {"a": Column.real((rows * 7919 % 97) + 1.0), "b": Column.real(((rows * 7919 % 97) + 1.0) * 25.4)}
>>> trained = train_attributes(Frame(rows, rows % 3, columns), {"b": 1.0})
>>> trained["b"].model.predictors[0].name, [option.way for option in trained["b"].options]
('regression', ['keep', 'round', 'shed'])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from spillway.levers.attributes.choices import PREDICTORS, WAYS
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.option import Option, of_way
from spillway.levers.attributes.packing.block import pack
from spillway.levers.attributes.packing.whole_numbers import decimals_of
from spillway.levers.attributes.synopsis.certificate import certify
from spillway.levers.attributes.synopsis.entries import Shed, shed
from spillway.levers.attributes.synopsis.model import (
    ROUNDINGS,
    AttributeModel,
    Precision,
    Predictor,
    Rounding,
)
from spillway.levers.attributes.synopsis.rounding import parquet_bytes, round_rows
from spillway.levers.attributes.training.candidates import (
    Lattice,
    estimated_bytes,
    lattices_of,
    without_regressors,
)
from spillway.levers.attributes.training.regression import regressions

SEARCH_ROWS = 6144
STRETCHES = 4
PROOF_ROWS = 65536
MOST_FALLBACKS = 4
SHORTLIST = 4
_ROUNDING_SHARES = (1.0, 0.6, 0.35, 0.2, 0.1)
WORTH_IT = 0.03  # of the bytes of last: less is chance
CHARGE = 0.5


@dataclass(frozen=True)
class Weighed:
    """What shedding a whole column by a model would store."""

    packed_bytes: int
    stored_share_pct: float
    mean_error_pct: float
    max_error_pct: float
    violations: int


@dataclass(frozen=True)
class TrainedAttribute:
    """An attribute's model, its ways as options, and the evidence for both."""

    model: AttributeModel
    options: tuple[Option, ...]
    evidence: Mapping[str, Any]

    def option(self, way: str) -> Option | None:
        """The option of a way, when that way is allowed."""
        return of_way(self.options, way)


def measure(model: AttributeModel, frame: Frame, estimate: bool = False) -> Weighed:
    """Shed the whole column at the coarsest precision, pack it (or estimate what that would take), and compare."""
    result = _all_shed(model, frame)
    stored = len(result.entries)
    errors = certify(frame.columns[model.attribute], result.reconstructed, model.error_pct, None, stored)
    size = estimated_bytes(frame, result) if estimate else len(pack(result.entries, frame))
    return Weighed(
        size, errors.stored_share_pct, errors.mean_error_pct, errors.max_error_pct, errors.violations
    )


def train_attributes(
    frame: Frame,
    error_pct: Mapping[str, float],
    *,
    regressors: Iterable[str] | None = None,
    ways: Sequence[str] = WAYS,
    predictors: Sequence[str] = PREDICTORS,
    mean_error_pct: float = 1.0,
    cycle_length: int = 0,
) -> dict[str, TrainedAttribute]:
    """Train every attribute named in `error_pct` (its bound E) on the rows of `frame`.

    `regressors`: attributes that predictions may read (default: every numeric column of the frame).
    `predictors` as in the contract; ``["last"]`` is the paper's method. `mean_error_pct`: what the mean
    relative error should keep to where that is possible without weighing more than `last`.
    """
    usable = [*frame.columns] if regressors is None else [*regressors]
    usable = [name for name in usable if name in frame.columns and frame.columns[name].kind != "text"]
    trained = {}
    for attribute, bound in error_pct.items():
        kind = frame.columns[attribute].kind
        start = AttributeModel(
            attribute, kind, bound, decimals=_decimals(frame.columns[attribute]), cycle_length=cycle_length
        )
        names = [name for name in usable if name != attribute] if "regression" in predictors else []
        trained[attribute] = _Training(start, frame, names, predictors, mean_error_pct).run(ways)
    return trained


class Learn(Protocol):
    """`train_attributes` with its settings filled in."""

    def __call__(
        self, frame: Frame, error_pct: Mapping[str, float], *, regressors: Iterable[str] | None
    ) -> dict[str, TrainedAttribute]: ...


def train_cascade(
    frame: Frame, error_pct: Mapping[str, float], order: Sequence[str], sent: Iterable[str], learn: Learn
) -> dict[str, TrainedAttribute]:
    """Train attributes that are all shed, in the order in which they will be recovered; `sent` are transmitted.

    The spec keeps shed attributes out of the regressors. Both ends do have them, though, as recovered, once an order
    is agreed on; so each may rest on those before it, and is trained on them *as recovered*, not as they were. The
    guarantee is the same, for what the source reconstructs from is what the destination has.
    """
    trained: dict[str, TrainedAttribute] = {}
    readable = [*sent]
    for rank, attribute in enumerate(order):
        one = learn(frame, {attribute: error_pct[attribute]}, regressors=readable)[attribute]
        trained[attribute] = replace(one, model=replace(one.model, rank=rank))
        given = _all_shed(one.model, frame).reconstructed
        frame = frame.with_columns({attribute: given})
        readable.append(attribute)
    return trained


def recovery_order(trained: Mapping[str, TrainedAttribute], shed_attributes: Sequence[str]) -> list[str]:
    """First what most others lean on when they may lean on anything, then what is small by itself.

    >>> rows = np.arange(600)
    >>> base = (rows * 7919 % 97) + 1.0
    >>> columns = {"b": Column.real(base * 25.4), "a": Column.real(base), "c": Column.real(base + 3.0)}
    >>> trained = train_attributes(Frame(rows, rows % 3, columns), {"a": 1.0, "b": 1.0, "c": 1.0})
    >>> sorted(recovery_order(trained, ["a", "b", "c"]))
    ['a', 'b', 'c']
    """
    leans = dict.fromkeys(shed_attributes, 0)
    for name in shed_attributes:
        for other in trained[name].model.predictors[0].regressors:
            if other in leans:
                leans[other] += int(trained[name].evidence["last_packed_bytes"])
    size = {name: int(trained[name].evidence["last_packed_bytes"]) for name in shed_attributes}
    return sorted(shed_attributes, key=lambda name: (-leans[name], size[name], shed_attributes.index(name)))


def _all_shed(model: AttributeModel, frame: Frame) -> Shed:
    return shed(model, frame, np.ones(len(frame), np.bool_), 0, np.full(len(frame), model.coarsest))


def _decimals(column: Column) -> int | None:
    if column.kind != "real":
        return None
    numbers = column.values[column.valid & np.isfinite(column.values)]
    return decimals_of(numbers, 6)


def _spread(frame: Frame) -> Frame:
    """A few stretches from all over the training rows: seasons differ."""
    if len(frame) <= SEARCH_ROWS:
        return frame
    size = SEARCH_ROWS // STRETCHES
    starts = np.linspace(0, len(frame) - size, STRETCHES).astype(np.int64)
    return frame.take(np.unique(starts[:, None] + np.arange(size)))


def _rounding_facts(model: AttributeModel, frame: Frame) -> tuple[int, float, float]:
    given = round_rows(model, frame, np.ones(len(frame), np.bool_))
    errors = certify(frame.columns[model.attribute], given, model.error_pct)
    return parquet_bytes(given), errors.mean_error_pct, errors.max_error_pct


class _Training:
    """The search for one attribute."""

    def __init__(
        self, start: AttributeModel, frame: Frame, names: list[str], allowed: Sequence[str], limit_pct: float
    ) -> None:
        self.start, self.names, self.allowed, self.limit_pct = start, names, allowed, limit_pct
        self.search = _spread(frame)
        self.proof = frame.rows(0, PROOF_ROWS)
        self.tried: dict[str, int] = {}

    def run(self, ways: Sequence[str]) -> TrainedAttribute:
        paper = measure(self.start, self.proof)
        model, proof = self.start, paper
        if self.start.kind != "text" and set(self.allowed) - {"last"} and len(self.proof):
            model, proof = self._best(paper)
        model, rounding = self._rounded(model)
        options = tuple(self._options(model, proof, rounding, ways))
        evidence = {
            "rows": len(self.proof),
            "column_bytes": parquet_bytes(self.proof.columns[model.attribute]),
            "last_packed_bytes": paper.packed_bytes,
            "last_stored_share_pct": paper.stored_share_pct,
            "last_mean_error_pct": paper.mean_error_pct,
            "packed_bytes": proof.packed_bytes,
            "stored_share_pct": proof.stored_share_pct,
            "mean_error_pct": proof.mean_error_pct,
            "rounded_bytes": rounding[0],
            "rounded_mean_error_pct": rounding[1],
            "searched": dict(sorted(self.tried.items(), key=lambda pair: pair[1])),
        }
        return TrainedAttribute(model, options, evidence)

    def _with(self, predictors: tuple[Predictor, ...], lattice: Lattice) -> AttributeModel:
        return replace(
            self.start,
            predictors=predictors,
            precisions=(Precision(lattice.aim_pct, lattice.step_pct, lattice.unit),),
        )

    def _weigh(self, predictors: tuple[Predictor, ...], lattice: Lattice) -> Weighed:
        return measure(self._with(predictors, lattice), self.search, estimate=True)

    def _best(self, paper: Weighed) -> tuple[AttributeModel, Weighed]:
        lattices = lattices_of(
            self.start.error_pct, self.search.columns[self.start.attribute], self.start.decimals
        )
        first = lattices[0]
        plain = Predictor("previous")
        alone = [plain, *without_regressors(self.search, self.start.attribute, self.allowed)]
        ranked = sorted(((self._size((p,), first), i, p) for i, p in enumerate(alone)))
        base = ranked[0][2]
        chain = self._regressions(base, first)
        contenders = [(*chain, base)] if chain else []
        if not chain or self._size((*chain[:1], base), first) > 0.7 * self._size((base,), first):
            contenders.append((base,))
        found: list[tuple[AttributeModel, Weighed]] = []
        for predictors in contenders:
            for lattice in lattices:
                candidate = self._weigh(predictors, lattice)
                found.append((self._with(predictors, lattice), candidate))
        rough = measure(self.start, self.search, estimate=True).packed_bytes
        found.sort(key=lambda pair: self._cost(pair[1], rough))
        proofs = [(model, measure(model, self.proof)) for model, _ in found[:SHORTLIST]]
        good = [
            pair for pair in proofs if pair[1].packed_bytes <= paper.packed_bytes and not pair[1].violations
        ]
        best = min([*good, (self.start, paper)], key=lambda pair: self._cost(pair[1], paper.packed_bytes))
        gain = self._cost(paper, paper.packed_bytes) - self._cost(best[1], paper.packed_bytes)
        return best if gain > WORTH_IT else (self.start, paper)

    def _cost(self, facts: Weighed, last_bytes: int) -> float:
        """Bytes against those of `last`, and a charge for a mean error over the limit."""
        over = max(0.0, facts.mean_error_pct / self.limit_pct - 1.0) if self.limit_pct > 0 else 0.0
        return facts.packed_bytes / max(1, last_bytes) + CHARGE * over

    def _size(self, predictors: tuple[Predictor, ...], lattice: Lattice) -> int:
        size = self._weigh(predictors, lattice).packed_bytes
        label = describe(predictors[0])
        self.tried[label] = min(size, self.tried.get(label, size))
        return size

    def _regressions(self, base: Predictor, lattice: Lattice) -> tuple[Predictor, ...]:
        """The best regression, then the best without each of its regressors, lightest first."""
        floor = self._size((base,), lattice)
        best = self._best_regression(self.names, base, lattice, floor)
        if best is None:
            return ()
        kept = [best]
        for name in sorted(best[1].regressors)[:MOST_FALLBACKS]:
            others = [other for other in self.names if other != name]
            next_best = self._best_regression(others, base, lattice, floor)
            if next_best is not None and all(next_best[1] != one[1] for one in kept):
                kept.append(next_best)
        return tuple(predictor for _, predictor in [kept[0], *sorted(kept[1:], key=lambda pair: pair[0])])

    def _best_regression(
        self, names: list[str], base: Predictor, lattice: Lattice, floor: int
    ) -> tuple[int, Predictor] | None:
        weighed = [
            (self._size((predictor, base), lattice), i, predictor)
            for i, predictor in enumerate(regressions(self.start.attribute, self.search, names))
        ]
        if not weighed or min(weighed)[0] >= floor:
            return None
        size, _, best = min(weighed)
        return size, best

    def _rounded(self, model: AttributeModel) -> tuple[AttributeModel, tuple[int, float, float]]:
        """The model with its best rounding, and that rounding's wire bytes, mean and largest error."""
        facts = (parquet_bytes(self.proof.columns[model.attribute]), 0.0, 0.0)
        if model.kind == "text" or not model.error_pct:
            return model, facts
        tried: list[tuple[int, int, AttributeModel]] = []
        for method in ROUNDINGS:
            for share in _ROUNDING_SHARES:
                candidate = replace(model, roundings=(Rounding(method, model.error_pct * share),))
                size, mean, _ = _rounding_facts(candidate, self.search)
                if mean <= self.limit_pct:
                    tried.append((size, len(tried), candidate))
        if not tried:
            return model, facts
        best = min(tried)[2]
        proof = _rounding_facts(best, self.proof)
        return (best, proof) if proof[0] < facts[0] else (model, facts)

    def _options(
        self, model: AttributeModel, proof: Weighed, rounding: tuple[int, float, float], ways: Sequence[str]
    ) -> Iterable[Option]:
        rows = max(1, len(self.proof))
        column = parquet_bytes(self.proof.columns[model.attribute]) / rows
        name = model.attribute
        if "keep" in ways:
            yield Option(name, "keep", column, 0.0, 0.0, 0.0, "", "sent as it is")
        if "round" in ways:
            size, mean, worst = rounding
            how = "rounding saves nothing"
            if model.roundings:
                how = f"{model.roundings[-1].method} at {model.roundings[-1].error_pct:g} %"
            yield Option(name, "round", size / rows, 0.0, mean, worst, "", how)
        if "shed" in ways:
            label = describe(model.predictors[0])
            how = f"{label} stores {proof.stored_share_pct:.1f} % of the values"
            packed = proof.packed_bytes / rows
            yield Option(name, "shed", 0.0, packed, proof.mean_error_pct, proof.max_error_pct, label, how)


def describe(predictor: Predictor) -> str:
    """A predictor for people: its name, and what it is made of."""
    if predictor.terms:
        formula = " + ".join(str(term) for term in predictor.terms)
        return f"regression {formula}" + (
            f" (persistence {predictor.persistence:g})" if predictor.persistence else ""
        )
    parts = [f"{label} {value:g}" for label, value in _parameters(predictor) if value]
    return predictor.name + (f" ({', '.join(parts)})" if parts else "")


def _parameters(predictor: Predictor) -> list[tuple[str, float]]:
    return [("slope", predictor.slope), ("season", predictor.season), ("common", predictor.common)]
