"""Measure the cost of accuracy: bytes against accuracy of every shed attribute, and the best combination.

Corrections of any precision keep the bound E; finer ones take more bytes and leave a smaller mean error. The attributes
that the plan sheds are shed again at several precisions, the same for all attributes. For each attribute one of its
measured points is chosen so that

    the mean accuracy is greatest while the mean of bytes over last-value's bytes keeps to a limit,

by a Lagrange multiplier, which is exact on the points' convex hull.

>>> offers = {"a": [Point(0.2, 90.0), Point(1.0, 99.0)], "b": [Point(0.4, 99.0)]}
>>> best_accuracy(offers, {"a": 0.5, "b": 0.5}, at_most=0.7)
(99.0, 0.7)
>>> best_accuracy(offers, {"a": 0.5, "b": 0.5}, at_most=0.6)
(94.5, 0.30000000000000004)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evidence.attributes.lab import Lab
from evidence.attributes.results import RunResult
from evidence.book import Book
from spillway.levers.attributes.synopsis.model import AttributeModel, Precision, Predictor

PRECISIONS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.13, 0.09, 0.06)
ACCURACY_PCT, RATIO = 99.0, 0.7


@dataclass(frozen=True)
class Point:
    """One precision: its bytes over those of the last value, and its accuracy."""

    ratio: float
    accuracy_pct: float


def precision(book: Book, labs: Mapping[str, Lab]) -> dict[str, float]:
    """Return the points of every shed attribute, and the best combination."""
    rows: list[tuple[Any, ...]] = []
    figures: dict[str, float] = {}
    offers: dict[Hashable, list[Point]] = {}
    weights: dict[Hashable, float] = {}
    for name, lab in labs.items():
        shed = list(lab.measures)
        everywhere = dict.fromkeys(shed, "shed")
        paper = lab.run_everywhere(everywhere, lab.paper_models())
        tried = [
            lab.run_everywhere(everywhere),
            paper,
            *(lab.run_everywhere(everywhere, one) for one in finer(lab)),
        ]
        for attribute in shed:
            last_bytes, last = paper.synopsis_bytes[attribute], paper.shed[attribute]
            points = points_of(tried, attribute, last_bytes)
            offers[name, attribute], weights[name, attribute] = points, 1.0 / len(shed) / len(labs)
            least = min(points, key=lambda p: p.ratio)
            best = max((p for p in points if p.ratio <= 1.0), key=lambda p: p.accuracy_pct)
            fine = min((p.ratio for p in points if p.accuracy_pct >= ACCURACY_PCT), default=None)
            rows.append(
                (name, attribute, lab.error_pct[attribute], last_bytes, last.accuracy_pct,
                 least.ratio, least.accuracy_pct, best.accuracy_pct, fine)
            )  # fmt: skip
        mine = {place: points for place, points in offers.items() if place[0] == name}  # type: ignore[index]
        own = dict.fromkeys(mine, 1.0 / max(1, len(mine)))
        figures[f"attributes.best_accuracy_within_last_value_bytes_pct.{name}"] = best_accuracy(
            mine, own, None
        )[0]
        figures[f"attributes.fewest_bytes_over_last_value.{name}"] = sum(
            min(p.ratio for p in points) for points in mine.values()
        ) / max(1, len(mine))
    accuracy, ratio = best_accuracy(offers, weights, RATIO)
    figures[f"attributes.best_accuracy_pct_at_{RATIO:g}_of_last_value"] = accuracy
    free, its_ratio = best_accuracy(offers, weights, None)
    figures["attributes.best_accuracy_pct_within_last_value_bytes"] = free
    least_ratio = least_bytes(offers, weights, ACCURACY_PCT)
    if least_ratio is not None:
        figures[f"attributes.bytes_over_last_value_at_{ACCURACY_PCT:g}_pct_accuracy"] = least_ratio
    book.table(
        "What accuracy costs: precisions of corrections under the plan's predictors",
        ("stream", "attribute", "E %", "last value, bytes", "its accuracy %", "fewest bytes over last", "at accuracy %",
         "most accuracy within the bytes of last %", "bytes at 99 % accuracy over last"),
        rows,
        [
            f"All together, never larger than the last value: mean accuracy {accuracy:.2f} % where the mean ratio is "
            f"at most {RATIO:g} ({ratio:.2f}), {free:.2f} % without that limit (ratio {its_ratio:.2f}); "
            + (
                f"{ACCURACY_PCT:g} % take a mean ratio of {least_ratio:.2f}."
                if least_ratio is not None
                else f"{ACCURACY_PCT:g} % are out of reach."
            ),
            "Where the right-most figure is above 1, an accuracy of 99 % and a synopsis not larger than that of the "
            "last value exclude each other.",
        ],
    )  # fmt: skip
    return figures


def finer(lab: Lab) -> Iterator[dict[str, AttributeModel]]:
    """Yield the trained models with corrections of several precisions; text and exact attributes stay unchanged."""
    for share in PRECISIONS:
        for width in (1.0, 2.0):
            yield {name: _at_precision(model, share, width) for name, model in lab.models.items()}


def _at_precision(model: AttributeModel, share: float, width: float) -> AttributeModel:
    if model.kind == "text" or not model.error_pct:
        return model
    predictors = (Predictor("previous"),) if model.paper_form else model.predictors
    aim = model.error_pct * share
    return replace(model, predictors=predictors, precisions=(Precision(aim, aim * width),))


def points_of(tried: Sequence[RunResult], attribute: str, last_bytes: int) -> list[Point]:
    """Return the bytes and the accuracy of an attribute in every run without violations."""
    found = {
        Point(one.synopsis_bytes[attribute] / last_bytes, one.shed[attribute].accuracy_pct)
        for one in tried
        if not one.shed[attribute].violations
    }
    return sorted(found, key=lambda point: (point.ratio, point.accuracy_pct))


def best_accuracy(
    offers: Mapping[Any, Sequence[Point]], weights: Mapping[Any, float], at_most: float | None
) -> tuple[float, float]:
    """Return the greatest weighted accuracy with no point above last value's bytes and a mean ratio up to `at_most`."""
    schemes = [one for one in _schemes(offers, weights) if at_most is None or one[1] <= at_most + 1e-9]
    return max(schemes, default=(0.0, 0.0))


def least_bytes(
    offers: Mapping[Any, Sequence[Point]], weights: Mapping[Any, float], accuracy_pct: float
) -> float | None:
    """Return the least mean ratio that reaches an accuracy; None if no choice reaches it."""
    return min((r for a, r in _schemes(offers, weights) if a >= accuracy_pct), default=None)


def _schemes(
    offers: Mapping[Any, Sequence[Point]], weights: Mapping[Any, float]
) -> list[tuple[float, float]]:
    """Return (accuracy, mean ratio) of the best choice at every price of a byte."""
    found = []
    for price in (0.0, *np.geomspace(1e-3, 1e3, 200).tolist()):
        accuracy = ratio = 0.0
        for place, points in offers.items():
            fitting = [p for p in points if p.ratio <= 1.0] or list(points)
            chosen = max(
                fitting,
                key=lambda p, w=weights[place]: (
                    w * p.accuracy_pct - price / len(offers) * p.ratio,
                    -p.ratio,
                ),  # type: ignore[misc]
            )
            accuracy += weights[place] * chosen.accuracy_pct
            ratio += chosen.ratio / len(offers)
        found.append((accuracy, ratio))
    return found
