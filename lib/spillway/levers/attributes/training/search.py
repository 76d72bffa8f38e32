"""Search the predictors, precisions and roundings of one attribute, and measure the bytes and errors of each.

Candidates are ranked by estimates on a few slices of the training rows. The remaining ones are packed and measured on
all of them (at most `PROOF_ROWS`).

>>> from spillway.levers.attributes.columns import Column
>>> rows = np.arange(600)
>>> columns = {"a": Column.real((rows * 7919 % 97) + 1.0), "b": Column.real(((rows * 7919 % 97) + 1.0) * 25.4)}
>>> start = AttributeModel("b", "real", error_pct=1.0, decimals=1)
>>> found = ModelSearch(start, Frame(rows, rows % 3, columns), ["a"], ["regression"], 1.0).run(["keep", "shed"])
>>> describe(found.model.predictors[0])
'regression 25.4*a'

*Convex hull.* Of many points (mean error, bytes) only the lower convex hull is kept, from exact to coarse. A plan can
mix two points (some windows with one, some with the other), so a point above the line between two others is never
better. `hull_height` is the mean height of a curve, by which two sets of points are compared.

>>> lower_hull([(0.0, 100), (1.0, 60), (2.0, 55), (3.0, 20), (4.0, 25)])
[0, 1, 3]
>>> round(hull_height([(0.0, 100), (2.0, 25)], [0.0, 2.0])), round(hull_height([(0.0, 100)], [0.0, 2.0]))
(50, 100)

*Measurement.* `measure` returns the bytes, measured or estimated, and the errors of shedding a column by a model.

>>> from spillway.levers.attributes.columns import Column
>>> frame = Frame(np.arange(4), np.zeros(4, int), {"a": Column.real([10.0, 10.2, 12.0, 12.1])})
>>> found = measure(AttributeModel("a", "real", error_pct=5.0), frame)
>>> found.stored_share_pct, round(found.max_error_pct, 2), found.violations
(50.0, 1.96, 0)

*Parts of a time.* `clock_parts` recognises a column that is the year, month, day, weekday, hour, ... of a time, at some
offset from UTC. A column of whole numbers is such a part if their difference is constant in most rows (a week may begin
on Sunday, a clock may be put back). The offset is the one, in quarters of an hour, for which this holds in most rows. A
remaining difference, such as an hour of summer time, is carried over from the key's previous row (`persistence`).

>>> at = np.arange(2000) * 1_800_000_000 + 1_357_012_800_000_000
>>> hour = (at // 3_600_000_000 - 5) % 24
>>> frame = Frame(np.arange(2000), np.zeros(2000, int), {"at": Column.integer(at), "hour": Column.integer(hour)})
>>> str(clock_parts("hour", frame, {"at": "us"})[0].terms[0])
'1*at#us-18000.hour'
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.option import Option, of_way
from spillway.levers.attributes.packing.block import pack
from spillway.levers.attributes.synopsis.bounds import certify
from spillway.levers.attributes.synopsis.entries import Shed, shed
from spillway.levers.attributes.synopsis.model import (
    PARAMETERS,
    PARTS,
    ROUNDINGS,
    AttributeModel,
    ClockPart,
    Precision,
    Predictor,
    Rounding,
    Term,
    clock_part,
)
from spillway.levers.attributes.synopsis.rounding import parquet_bytes, round_rows
from spillway.levers.attributes.threshold.curve import LOOSEST_PCT
from spillway.levers.attributes.training.candidates import (
    Lattice,
    estimated_bytes,
    lattices_of,
    simple_predictors,
)
from spillway.levers.attributes.training.regression import regressions
from spillway.levers.certificate import Certificate

MOST = 10
"""Largest number of precisions of an attribute."""


def lower_hull(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points on the lower convex hull, by rising error and falling bytes."""
    order = sorted(range(len(points)), key=lambda place: (points[place], place))
    kept: list[int] = []
    for place in order:
        error, size = points[place]
        if kept and (size >= points[kept[-1]][1] or error <= points[kept[-1]][0]):
            continue
        while len(kept) > 1 and _above(points[kept[-2]], points[kept[-1]], (error, size)):
            kept.pop()
        kept.append(place)
    return kept


def _above(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    share = (middle[0] - left[0]) / (right[0] - left[0])
    return middle[1] >= left[1] + share * (right[1] - left[1])


def thin_hull(places: Sequence[int], sizes: Sequence[float], most: int = MOST) -> list[int]:
    """Return at most `most` of the indices: both ends, and those that differ most in bytes from their neighbours.

    >>> thin_hull([0, 1, 2, 3], [100, 99, 50, 20], most=3)
    [0, 2, 3]
    """
    kept, weights = list(places), [math.log(max(1.0, size)) for size in sizes]
    while len(kept) > max(2, most):
        gaps = [weights[i - 1] - weights[i + 1] for i in range(1, len(kept) - 1)]
        least = min(range(len(gaps)), key=lambda i: gaps[i]) + 1
        del kept[least], weights[least]
    return kept


def hull_height(points: Sequence[tuple[float, float]], marks: Sequence[float]) -> float:
    """Return the geometric mean, over the mean errors `marks`, of the fewest bytes that a mixture takes there."""
    hull = [points[place] for place in lower_hull(points)]
    if not hull:
        return math.inf
    found = 0.0
    for mark in marks:
        found += math.log(max(1.0, _at(hull, mark)))
    return math.exp(found / len(marks))


def _at(hull: Sequence[tuple[float, float]], mark: float) -> float:
    if mark <= hull[0][0]:
        return hull[0][1]
    for left, right in pairwise(hull):
        if mark <= right[0]:
            return left[1] + (mark - left[0]) / (right[0] - left[0]) * (right[1] - left[1])
    return hull[-1][1]


def loosening_bounds(bounds: Sequence[tuple[float, ...]]) -> list[int]:
    """Return the indices of the bounds that are nowhere tighter than the last one kept.

    A model has its precisions finest first.

    >>> loosening_bounds([(0.0, 0.0), (2.0, 1.0), (1.0, 1.0), (3.0, 0.5), (3.0, 1.0)])
    [0, 1, 4]
    """
    kept: list[int] = []
    for place, bound in enumerate(bounds):
        if not kept or all(now >= then for now, then in zip(bound, bounds[kept[-1]], strict=True)):
            kept.append(place)
    return kept


@dataclass(frozen=True)
class SheddingCost:
    """The size and the errors of a whole column that is shed by a model."""

    packed_bytes: int
    stored_share_pct: float
    mean_error_pct: float
    max_error_pct: float
    violations: int


def measure(
    model: AttributeModel,
    frame: Frame,
    estimate: bool = False,
    precision: int = -1,
    rate_pct: float = LOOSEST_PCT,
) -> SheddingCost:
    """Shed the whole column at a precision (-1: the coarsest), and return its packed (or estimated) size and errors."""
    result = shed_all(model, frame, precision)
    stored = len(result.entries)
    truth, bound = frame.columns[model.attribute], model.bound
    errors = certify(truth, result.reconstructed, bound.error_pct, None, stored, error=bound.error)
    size = estimated_bytes(frame, result) if estimate else len(pack(result.entries, frame))
    return SheddingCost(
        size,
        errors.stored_share_pct,
        loss_of(errors, truth, rate_pct),
        errors.max_error_pct,
        errors.violations,
    )


def loss_of(errors: Certificate, truth: Column, rate_pct: float) -> float:
    """Return the loss of a whole column with these errors: their mean over the values that are not null.

    >>> truth = Column.real([10.0, None, None, None])
    >>> loss_of(Certificate(5.0, shed_values=4, sum_error_pct=2.0), truth, 20.0)
    2.0
    """
    present = int(truth.valid.sum())
    return errors.loss_pct(rate_pct) * len(truth) / present if present else 0.0


def shed_all(model: AttributeModel, frame: Frame, precision: int = -1) -> Shed:
    """Shed the whole column at a precision (-1: the coarsest)."""
    place = model.coarsest if precision < 0 else precision
    return shed(model, frame, np.ones(len(frame), np.bool_), 0, np.full(len(frame), place))


MOST_TIMES = 2048
USUAL = 0.8
_QUARTER = 900
_OFFSETS = tuple(sorted(range(-14 * 4, 14 * 4 + 1), key=lambda q: (q % 4 != 0, abs(q))))


def clock_parts(target: str, frame: Frame, clocks: Mapping[str, str]) -> list[Predictor]:
    """Return predictors of `target` from the best parts of the times in `clocks` (attribute: its unit)."""
    column = frame.columns[target]
    found = []
    for name, unit in clocks.items():
        if name not in frame.columns or name == target:
            continue
        clock = frame.columns[name]
        rows = np.flatnonzero(column.valid & clock.valid & _is_whole(column))
        rows = rows[:: max(1, len(rows) // MOST_TIMES)]
        truth, times = column.values[rows].astype(np.float64), clock.values[rows]
        if len(rows) < 32 or len(np.unique(truth)) < 2 or np.abs(truth).max() > 10_000:
            continue
        scored: list[tuple[float, int, str, float]] = []
        for part in PARTS:
            offsets = _OFFSETS if unit != "d" else (0,)
            tried = [_usual(truth, clock_part(times, ClockPart(unit, q * _QUARTER, part))) for q in offsets]
            best = max(range(len(tried)), key=lambda i: tried[i][0])
            if tried[best][0] >= USUAL:
                wanted = ClockPart(unit, offsets[best] * _QUARTER, part)
                scored.append((-tried[best][0], len(scored), wanted.of(name), tried[best][1]))
        for _, _, regressor, more in sorted(scored)[:2]:
            terms = (Term(1.0, (regressor,)), *((Term(more),) if more else ()))
            found += [Predictor("regression", terms, persistence) for persistence in (0.0, 1.0)]
    return found


def _is_whole(column: Column) -> np.ndarray:
    if column.kind != "real":
        return np.full(len(column), column.kind == "integer")
    return np.isfinite(column.values) & (np.rint(column.values) == column.values)


def _usual(truth: np.ndarray, part: np.ndarray) -> tuple[float, float]:
    """Return the share of the most common difference, and the difference; a constant part has share 0."""
    if (part == part[0]).all():
        return 0.0, 0.0
    values, counts = np.unique(truth - part, return_counts=True)
    most = int(np.argmax(counts))
    return float(counts[most]) / len(truth), float(values[most])


SEARCH_ROWS = 6144
STRETCHES = 4
PROOF_ROWS = 20_000
MOST_FALLBACKS = 4
BLENDED = 4
PROVED = 12
"""Largest number of precisions that are packed over all training rows."""
COMPARED = 5
"""Largest number of precisions that are packed to compare sets of predictors."""
_PAPER_SHARES = (0.0, 0.13, 0.45, 1.0)
_ROUNDING_SHARES = (1.0, 0.6, 0.35, 0.2, 0.1, 0.05, 0.02, 0.008)
WORTH_IT = 0.03  # least share by which a curve must be lower than that of `last`; less may be chance


@dataclass(frozen=True)
class TrainedAttribute:
    """The model of an attribute, its treatments as options, and the evidence for both."""

    model: AttributeModel
    options: tuple[Option, ...]
    evidence: Mapping[str, Any]

    def option(self, way: str) -> Option | None:
        """Return the option of a treatment, if it is allowed."""
        return of_way(self.options, way)


def _spread(frame: Frame) -> Frame:
    """Return a few slices spread over the training rows, because seasons differ."""
    if len(frame) <= SEARCH_ROWS:
        return frame
    size = SEARCH_ROWS // STRETCHES
    starts = np.linspace(0, len(frame) - size, STRETCHES).astype(np.int64)
    return frame.take(np.unique(starts[:, None] + np.arange(size)))


_Proved = tuple[AttributeModel, list[SheddingCost]]
"""A model, and the measurements of each of its precisions."""
_Rounded = tuple[Rounding, int, tuple[float, float]]
"""A rounding, its wire bytes, its mean and its largest error."""


class ModelSearch:
    """The search for one attribute: `start` has its bounds, `names` are the attributes that regressions may read."""

    def __init__(
        self,
        start: AttributeModel,
        frame: Frame,
        names: list[str],
        allowed: Sequence[str],
        rate_pct: float,
        clocks: Mapping[str, str] | None = None,
    ) -> None:
        self.start, self.names, self.allowed, self.rate_pct = start, names, allowed, rate_pct
        self.clocks = (clocks or {}) if "regression" in allowed else {}
        self.exact = not min(start.error_pct, start.bound.error)
        self.search = _spread(frame)
        self.proof = frame.rows(0, PROOF_ROWS)
        self.tried: dict[str, int] = {}

    def run(self, ways: Sequence[str]) -> TrainedAttribute:
        """Return the model, its options for all `ways`, and the evidence."""
        column_bytes = parquet_bytes(self.proof.columns[self.start.attribute])
        paper = self._with_measured_precisions(self._paper_form_model())
        model, proofs = paper
        if self.start.kind != "text" and set(self.allowed) - {"last"} and len(self.proof):
            model, proofs = self._best(paper)
        roundings = self._roundings(column_bytes) if "round" in ways else []
        model = replace(model, roundings=tuple(rounding for rounding, _, _ in roundings))
        options = tuple(self._options(model, proofs, roundings, column_bytes, ways))
        last, coarsest = paper[1][-1], proofs[-1]
        evidence = {
            "rows": len(self.proof),
            "column_bytes": column_bytes,
            "last_packed_bytes": last.packed_bytes,
            "last_stored_share_pct": last.stored_share_pct,
            "last_mean_error_pct": last.mean_error_pct,
            "packed_bytes": coarsest.packed_bytes,
            "stored_share_pct": coarsest.stored_share_pct,
            "mean_error_pct": coarsest.mean_error_pct,
            "precisions": [[one.packed_bytes, one.mean_error_pct] for one in proofs],
            "roundings": [[size, mean] for _, size, (mean, _) in roundings],
            "searched": dict(sorted(self.tried.items(), key=lambda pair: pair[1])),
        }
        return TrainedAttribute(model, options, evidence)

    def _with(self, predictors: tuple[Predictor, ...], blend: bool, lattice: Lattice) -> AttributeModel:
        return replace(self.start, predictors=predictors, blend=blend, precisions=(lattice.precision,))

    def _paper_form_model(self) -> AttributeModel:
        """Return the model in the paper's form (`last`), exact and at shares of E."""
        if self.start.kind == "text" or self.exact:
            return replace(self.start, precisions=(Precision(0.0),))
        aims = [_share_of(self.start, "grid", share) for share in _PAPER_SHARES]
        found = [
            Precision(one.error_pct if math.isfinite(one.error_pct) else None, aim=one.error) for one in aims
        ]
        return replace(self.start, precisions=tuple(found))

    def _measure(
        self, model: AttributeModel, frame: Frame, estimate: bool = False, precision: int = -1
    ) -> SheddingCost:
        return measure(model, frame, estimate, precision, self.rate_pct)

    def _with_measured_precisions(self, model: AttributeModel) -> _Proved:
        """Return the model with its precisions on the hull, and their measurements over all training rows."""
        proofs = [self._measure(model, self.proof, precision=place) for place in range(len(model.precisions))]
        kept = lower_hull(_points(model, proofs))
        kept = thin_hull(kept, [proofs[place].packed_bytes for place in kept])
        precisions = tuple(model.precisions[place] for place in kept)
        return replace(model, precisions=precisions), [proofs[place] for place in kept]

    def _best(self, paper: _Proved) -> _Proved:
        """Return the set of predictors with the lowest curve of bytes by mean error, if it is below the paper's."""
        lattices = lattices_of(
            self.start.error_pct,
            self.search.columns[self.start.attribute],
            self.start.decimals,
            self.start.error,
        )
        found: list[tuple[float, int, tuple[Predictor, ...], bool, list[tuple[Precision, float]]]] = []
        for predictors, blend in self._contenders(lattices[0]):
            tried: list[tuple[Precision, SheddingCost]] = []
            for lattice in lattices:
                one = self._with(predictors, blend, lattice)
                facts = self._measure(one, self.search, estimate=True)
                if not facts.violations:
                    tried.append((lattice.precision, facts))
            points = [_point(self.start, precision, facts) for precision, facts in tried]
            curve = [(tried[place][0], points[place][1]) for place in lower_hull(points)]
            found.append(
                (self._packed_height(predictors, blend, curve), len(found), predictors, blend, curve)
            )
        _, _, predictors, blend, curve = min(found, key=lambda one: one[:2])
        places = loosening_bounds([_bound_of(self.start, precision) for precision, _ in curve])
        places = thin_hull(places, [curve[place][1] for place in places], most=PROVED)
        precisions = tuple(curve[place][0] for place in places)
        precisions = (self._smallest_exact(predictors, blend, lattices, precisions[0]), *precisions[1:])
        model = replace(self.start, predictors=predictors, blend=blend, precisions=precisions)
        proved = self._with_measured_precisions(model)
        heights = [hull_height(_points(model, proofs), self._marks()) for model, proofs in (proved, paper)]
        fits = proved[1][-1].packed_bytes <= paper[1][-1].packed_bytes
        sound = not any(one.violations for one in proved[1])
        return proved if fits and sound and heights[0] < heights[1] * (1 - WORTH_IT) else paper

    def _smallest_exact(
        self, predictors: tuple[Predictor, ...], blend: bool, lattices: Sequence[Lattice], finest: Precision
    ) -> Precision:
        """Return the exact precision whose packed synopsis is the smallest; if `finest` is not exact, `finest`.

        The sizes are measured, because estimates are less accurate for whole values than for steps.
        """
        if min(_bound_of(self.start, finest)):
            return finest
        exact = [finest]
        exact += [one.precision for one in lattices if not min(_bound_of(self.start, one.precision))]
        sizes: list[tuple[int, int, Precision]] = []
        for one in dict.fromkeys(exact):
            model = replace(self.start, predictors=predictors, blend=blend, precisions=(one,))
            sizes.append((self._measure(model, self.proof).packed_bytes, len(sizes), one))
        return min(sizes)[2]

    def _packed_height(
        self, predictors: tuple[Predictor, ...], blend: bool, curve: Sequence[tuple[Precision, float]]
    ) -> float:
        """Return the height of a curve by packed sizes: estimates are too coarse to compare sets of predictors."""
        places = thin_hull(range(len(curve)), [size for _, size in curve], most=COMPARED)
        points = []
        for precision in (curve[place][0] for place in places):
            model = replace(self.start, predictors=predictors, blend=blend, precisions=(precision,))
            points.append(_point(self.start, precision, self._measure(model, self.search)))
        return hull_height(points, self._marks())

    def _marks(self) -> list[float]:
        """Return the mean errors at which curves are compared: those of a uniform quantiser, from exact to E."""
        most = self.start.error_pct if math.isfinite(self.start.error_pct) else self.rate_pct
        return [most * share for share in (0.0, 0.02, 0.1, 0.25, 0.5, 1.0)]

    def _contenders(self, lattice: Lattice) -> list[tuple[tuple[Predictor, ...], bool]]:
        """Return sets of predictors: preference lists with and without regressions, and a blend."""
        last_resort = (Predictor("any", persistence=0.0),) if "any" in self.allowed else ()
        alone = [
            Predictor("previous"),
            *simple_predictors(self.search, self.start.attribute, self.allowed),
        ]
        ranked = sorted((self._size((p, *last_resort), lattice), i, p) for i, p in enumerate(alone))
        base = ranked[0][2]
        chain = self._regressions(base, lattice)
        found = [((*chain, base, *last_resort), False)] if chain else []
        found.append(((base, *last_resort), False))
        few = [p for _, _, p in ranked[:BLENDED]]
        found.append(((*chain[:2], *few), True))
        return found

    def _size(self, predictors: tuple[Predictor, ...], lattice: Lattice) -> int:
        size = self._measure(self._with(predictors, False, lattice), self.search, estimate=True).packed_bytes
        label = describe(predictors[0])
        self.tried[label] = min(size, self.tried.get(label, size))
        return size

    def _regressions(self, base: Predictor, lattice: Lattice) -> tuple[Predictor, ...]:
        """Return the best regression, then the best ones without each of its regressors, the smallest first."""
        floor = self._size((base,), lattice)
        best = self._best_regression(self.names, base, lattice, floor)
        if best is None:
            return ()
        kept = [best]
        for name in sorted(best[1].regressors & {*self.names})[:MOST_FALLBACKS]:
            others = [other for other in self.names if other != name]
            next_best = self._best_regression(others, base, lattice, floor)
            if next_best is not None and all(next_best[1] != one[1] for one in kept):
                kept.append(next_best)
        return tuple(predictor for _, predictor in [kept[0], *sorted(kept[1:], key=lambda pair: pair[0])])

    def _best_regression(
        self, names: list[str], base: Predictor, lattice: Lattice, floor: int
    ) -> tuple[int, Predictor] | None:
        target = self.start.attribute
        found = regressions(target, self.search, names) + clock_parts(target, self.search, self.clocks)
        weighed = [
            (self._size((predictor, base), lattice), i, predictor) for i, predictor in enumerate(found)
        ]
        if not weighed or min(weighed)[0] >= floor:
            return None
        size, _, best = min(weighed)
        return size, best

    def _roundings(self, column_bytes: int) -> list[_Rounded]:
        """Return the roundings that save bytes, finest first, with their wire bytes, mean and largest error."""
        if self.start.kind == "text" or self.exact or not len(self.proof):
            return []
        every = [
            _share_of(self.start, method, share)
            for share in reversed(_ROUNDING_SHARES)
            for method in ROUNDINGS
        ]
        tried = [(rounding, *self._measure_rounding(rounding, self.search)) for rounding in every]
        hull = lower_hull([(mean, size) for _, size, (mean, _) in tried])
        found = [(tried[place][0], *self._measure_rounding(tried[place][0], self.proof)) for place in hull]
        found = [one for one in found if one[1] < column_bytes]
        found = [found[place] for place in lower_hull([(mean, size) for _, size, (mean, _) in found])]
        bounds = [(one.bound.error_pct, one.bound.error) for one, _, _ in found]
        return [found[place] for place in loosening_bounds(bounds)]

    def _measure_rounding(self, rounding: Rounding, frame: Frame) -> tuple[int, tuple[float, float]]:
        given = round_rows(replace(self.start, roundings=(rounding,)), frame, np.ones(len(frame), np.bool_))
        truth, bound = frame.columns[self.start.attribute], self.start.bound
        errors = certify(truth, given, bound.error_pct, error=bound.error)
        return parquet_bytes(given), (loss_of(errors, truth, self.rate_pct), errors.max_error_pct)

    def _options(
        self,
        model: AttributeModel,
        proofs: Sequence[SheddingCost],
        roundings: Sequence[_Rounded],
        column_bytes: int,
        ways: Sequence[str],
    ) -> Iterable[Option]:
        rows, name = max(1, len(self.proof)), model.attribute
        if "keep" in ways:
            yield Option(name, "keep", column_bytes / rows, 0.0, 0.0, 0.0, "", "sent as it is")
        if "round" in ways and not roundings:
            yield Option(name, "round", column_bytes / rows, reason="rounding saves nothing")
        for place, (rounding, size, (mean, worst)) in enumerate(roundings):
            how = f"{rounding.method} at {rounding.error_pct:g} %"
            if math.isinf(rounding.error_pct):
                how = f"{rounding.method} at {rounding.error:g}"
            yield Option(name, "round", size / rows, 0.0, mean, worst, "", how, place)
        if "shed" in ways:
            label = describe(model.predictors[0])
            for place, one in enumerate(proofs):
                how = f"{label} stores {one.stored_share_pct:.1f} % of the values"
                packed = one.packed_bytes / rows
                yield Option(
                    name, "shed", 0.0, packed, one.mean_error_pct, one.max_error_pct, label, how, place
                )


def _share_of(model: AttributeModel, method: str, share: float) -> Rounding:
    """Return a rounding at a share of both bounds."""
    error = None if model.error is None else model.error * share
    return Rounding(method, model.error_pct * share if share else 0.0, error)


def _bound_of(model: AttributeModel, precision: Precision) -> tuple[float, float]:
    """Return the bound of a precision, in % and in the own unit; if it is exact in one, it is exact in both."""
    promise = model.bound
    error_pct = promise.error_pct if precision.aim_pct is None else precision.aim_pct
    error = promise.error if precision.aim is None else precision.aim
    return (error_pct, error) if min(error_pct, error) else (0.0, 0.0)


def _point(model: AttributeModel, precision: Precision, facts: SheddingCost) -> tuple[float, float]:
    """Return mean error and bytes; only an exact precision has error 0, even if training saw no error."""
    exact = not min(_bound_of(model, precision))
    return 0.0 if exact else max(facts.mean_error_pct, 1e-9), facts.packed_bytes


def _points(model: AttributeModel, weighed: Sequence[SheddingCost]) -> list[tuple[float, float]]:
    return [_point(model, one, facts) for one, facts in zip(model.precisions, weighed, strict=True)]


def describe(predictor: Predictor) -> str:
    """Describe a predictor in words: its name, and the parameters that it reads unless they are 0."""
    name = predictor.name
    if predictor.terms:
        name += " " + " + ".join(str(term) for term in predictor.terms)
    values = {one: getattr(predictor, one) for one in PARAMETERS[predictor.name] if one != "terms"}
    said = [f"{one} {value:g}" for one, value in values.items() if value]
    return name + (f" ({', '.join(said)})" if said else "")
