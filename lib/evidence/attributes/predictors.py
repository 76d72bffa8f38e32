"""Compare our predictors with the last stored value at the same bound, in packed bytes.

Every measure is stored on all frames of the stream, at its trained threshold. Euclidean recovery (3.2.4.1) stores
nothing and has no bound; it gets the whole adjacent window and the exact other attributes, which no scheme here sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evidence.attributes.lab import Lab
from evidence.attributes.neighbours import recover_adjacent
from evidence.book import Book
from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.ranking.windows import window_tuples
from spillway.levers.attributes.synopsis.bounds import relative_errors_pct
from spillway.levers.attributes.training.search import describe


@dataclass(frozen=True)
class NearestResult:
    """The Euclidean neighbour of the adjacent window: median relative error, and the share of values beyond E."""

    median_error_pct: float
    beyond_bound_pct: float


def nearest_results(lab: Lab, attribute: str) -> tuple[NearestResult | None, NearestResult | None]:
    """Return the result of recovery by the adjacent window's nearest tuple, on training tuples and on later ones."""
    numeric = [n for n in lab.measures if lab.models[n].kind != "text"]
    if attribute not in numeric or len(numeric) < 2:
        return None, None
    others = [name for name in numeric if name != attribute]
    errors, later = [], []
    for frame in lab.frames:
        truth = _floats(frame.columns[attribute])
        seen = np.stack([_floats(frame.columns[name]) for name in others], axis=1)
        window = window_tuples(lab.cycle.length_at(int(frame.seq[0])))
        given = recover_adjacent(seen, truth, window, scale="range")
        # the first window of a frame has none before it
        known = np.flatnonzero(frame.columns[attribute].valid & (np.arange(len(truth)) >= window))
        errors.append(relative_errors_pct(Column.real(truth[known]), Column.real(given[known])))
        later.append(frame.seq[known] > lab.trained_to_seq)
    every, is_later = np.concatenate(errors), np.concatenate(later)
    return tuple(_nearest_result(every[rows], lab.error_pct[attribute]) for rows in (~is_later, is_later))  # type: ignore[return-value]


def _nearest_result(errors: np.ndarray, error_pct: float) -> NearestResult | None:
    if not errors.size:
        return None
    return NearestResult(float(np.median(errors)), 100.0 * float((errors > error_pct).mean()))


def predictors(book: Book, labs: Mapping[str, Lab]) -> dict[str, float]:
    """Write the table of packed bytes and errors; return the ratios."""
    book.section(
        "Predictors at the same bound",
        "Packed bytes of what has to be stored so that no value misses its threshold, and the compressed column.",
    )
    sizes: list[tuple[Any, ...]] = []
    errors: list[tuple[Any, ...]] = []
    figures: dict[str, float] = {}
    ratios: dict[str, dict[str, float]] = {}
    for name, lab in labs.items():
        shed = list(lab.measures)
        # an attribute that is shed in some windows only is compared over the whole column, with the same models
        everywhere = dict.fromkeys(shed, "shed")
        plan, paper = lab.run_everywhere(everywhere), lab.run_everywhere(everywhere, lab.paper_models())
        every_rounded = lab.run_everywhere(dict.fromkeys(lab.measures, "round"))
        for attribute in shed:
            error_pct = lab.error_pct[attribute]
            last_bytes, ours = paper.synopsis_bytes[attribute], plan.synopsis_bytes[attribute]
            euclid = nearest_results(lab, attribute)
            for part, fared in zip(("training", "later"), euclid, strict=True):
                if fared is not None:
                    figures[f"attributes.{part}.nearest_median_error_pct.{name}.{attribute}"] = (
                        fared.median_error_pct
                    )
            column = lab.column_bytes[attribute]
            rounded = every_rounded.sent_bytes[attribute]
            model = lab.models[attribute]
            sizes.append(
                (name, attribute, error_pct, describe(model.predictors[0])[:48], column, rounded,
                 ours, last_bytes, ours / last_bytes)
            )  # fmt: skip
            errors.append(
                (name, attribute, error_pct, plan.shed[attribute].mean_error_pct, paper.shed[attribute].mean_error_pct,
                 *(value for fared in euclid for value in _both(fared)))
            )  # fmt: skip
            ratios.setdefault(name, {})[attribute] = ours / last_bytes
            figures[f"attributes.stored_bytes_over_last_value.{name}.{attribute}"] = ours / last_bytes
            figures[f"attributes.synopsis_over_column_bytes.{name}.{attribute}"] = ours / column
    every = [ratio for found in ratios.values() for ratio in found.values()]
    if every:
        figures["attributes.stored_bytes_over_last_value_mean"] = sum(every) / len(every)
        figures["attributes.stored_bytes_over_last_value_largest"] = max(every)
    for name, mine in ratios.items():
        figures[f"attributes.stored_bytes_over_last_value_smallest.{name}"] = min(mine.values())
    book.table(
        "Packed bytes at the trained threshold, every measure shed",
        ("stream", "attribute", "E %", "ours predicts by", "column", "column rounded", "ours", "last value",
         "ours / last"),
        sizes,
        ["`column rounded`: every value rounded, on the wire."],
    )  # fmt: skip
    book.table(
        "Mean relative error in % at the same bound",
        ("stream", "attribute", "E %", "ours", "last value",
         "Euclidean, training: median", "values beyond E %", "later: median", "values beyond E %"),
        errors,
    )  # fmt: skip
    return figures


def _both(fared: NearestResult | None) -> tuple[float | None, float | None]:
    return (None, None) if fared is None else (fared.median_error_pct, fared.beyond_bound_pct)


def _floats(column: Column) -> np.ndarray:
    return np.where(column.valid, column.values.astype(np.float64), np.nan)
