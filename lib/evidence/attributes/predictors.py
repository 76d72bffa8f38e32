"""Our predictors against what others would store at the same bound, in packed bytes, the column beside each.

Every attribute that the plan really sheds, on all frames of the stream, at its trained threshold. What differs is
what is stored: last stored value (the paper), the fewest constants (PMC-midrange, which looks ahead), connected lines
(swing filter, swinging door), every value rounded, ours. Euclidean recovery (3.2.4.1) stores nothing and promises
nothing; it is given the other attributes as they are, which no scheme here transmits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from evidence.attributes.baselines import BASELINES, baseline
from evidence.attributes.lab import Lab
from evidence.attributes.neighbours import recover_nearest
from evidence.book import Book
from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.synopsis.certificate import relative_errors_pct
from spillway.levers.attributes.training.search import describe

NEIGHBOUR_REFERENCE, NEIGHBOUR_ROWS = 1000, 4000
PIECEWISE = tuple(name for name in BASELINES if name != "last")


def rivals(lab: Lab, attribute: str, error_pct: float) -> dict[str, tuple[int, float, int]]:
    """Packed bytes, mean error and violations of every piecewise baseline over all frames."""
    found = {}
    numeric = lab.models[attribute].kind != "text"
    for name in PIECEWISE if numeric else ():
        every = [baseline(name, frame, attribute, error_pct) for frame in lab.frames]
        rows = sum(len(frame) for frame in lab.frames)
        mean = sum(
            one.errors.mean_error_pct * len(f) for one, f in zip(every, lab.frames, strict=True)
        ) / max(1, rows)
        found[name] = (
            sum(one.packed_bytes for one in every), mean, sum(one.errors.violations for one in every)
        )  # fmt: skip
    return found


def nearest(lab: Lab, attribute: str) -> tuple[float, float] | None:
    """Median relative error of the Euclidean neighbour, and the share of values beyond E, on later tuples."""
    numeric = [n for n in lab.measures if lab.models[n].kind != "text"]
    if attribute not in numeric or len(numeric) < 2:
        return None
    train, later = lab.frames[0], lab.frames[-1]
    reference, lost = train.rows(0, NEIGHBOUR_REFERENCE), later.rows(0, NEIGHBOUR_ROWS)
    others = [name for name in numeric if name != attribute]
    column = lost.columns[attribute]
    given = recover_nearest(
        np.stack([_floats(lost.columns[name]) for name in others], axis=1),
        np.stack([_floats(reference.columns[name]) for name in others], axis=1),
        _floats(reference.columns[attribute]),
        scale="range",
    )
    known = column.valid
    errors = relative_errors_pct(Column.real(_floats(column)[known]), Column.real(given[known]))
    beyond = 100.0 * float((errors > lab.error_pct[attribute]).mean()) if known.any() else 0.0
    return (float(np.median(errors)) if known.any() else 0.0), beyond


def predictors(book: Book, labs: Mapping[str, Lab]) -> dict[str, float]:
    """The table of packed bytes, errors beside, and the ratios of the issue."""
    book.section(
        "Predictors at the same bound",
        "Packed bytes of what has to be stored so that no value misses its threshold, and the compressed column.",
    )
    sizes: list[tuple[Any, ...]] = []
    errors: list[tuple[Any, ...]] = []
    figures: dict[str, float] = {}
    ratios: dict[str, dict[str, float]] = {}
    for name, lab in labs.items():
        shed = list(lab.plan.shed)
        # what is shed in some windows only is compared over the whole column, under the same models
        everywhere = dict.fromkeys(shed, "shed")
        plan, paper = lab.given(everywhere), lab.given(everywhere, lab.paper_models())
        every_rounded = lab.given(dict.fromkeys(lab.measures, "round"))
        for attribute in shed:
            error_pct = lab.error_pct[attribute]
            last_bytes, ours = paper.synopsis_bytes[attribute], plan.synopsis_bytes[attribute]
            others = rivals(lab, attribute, error_pct)
            euclid = nearest(lab, attribute)
            column = lab.column_bytes[attribute]
            rounded = every_rounded.sent_bytes[attribute]
            model = lab.models[attribute]
            sizes.append(
                (name, attribute, error_pct, describe(model.predictors[0])[:48], column, rounded,
                 ours, last_bytes, *(others[n][0] if n in others else None for n in PIECEWISE), ours / last_bytes)
            )  # fmt: skip
            errors.append(
                (name, attribute, error_pct, plan.shed[attribute].mean_error_pct, paper.shed[attribute].mean_error_pct,
                 *(others[n][1] if n in others else None for n in PIECEWISE), *(euclid or (None, None)))
            )  # fmt: skip
            ratios.setdefault(name, {})[attribute] = ours / last_bytes
            figures[f"attributes.stored_bytes_over_last_value.{name}.{attribute}"] = ours / last_bytes
            figures[f"attributes.synopsis_over_column_bytes.{name}.{attribute}"] = ours / column
            for rival, (size, _, _) in others.items():
                figures[f"attributes.stored_bytes_over_{rival}.{name}.{attribute}"] = ours / size
    every = [ratio for found in ratios.values() for ratio in found.values()]
    if every:
        figures["attributes.stored_bytes_over_last_value_mean"] = sum(every) / len(every)
        figures["attributes.stored_bytes_over_last_value_largest"] = max(every)
    for name, mine in ratios.items():
        figures[f"attributes.stored_bytes_over_last_value_smallest.{name}"] = min(mine.values())
    book.table(
        "Packed bytes at the trained threshold, attributes that the plan sheds",
        ("stream", "attribute", "E %", "ours predicts by", "column", "column rounded", "ours", "last value",
         *(n.replace("_", " ") for n in PIECEWISE), "ours / last"),
        sizes,
        [
            "`rounded` is every value rounded and packed; `column rounded` the same on the wire. All packed by our "
            "packer."
        ],
    )  # fmt: skip
    book.table(
        "Mean relative error in % at the same bound",
        ("stream", "attribute", "E %", "ours", "last value", *(n.replace("_", " ") for n in PIECEWISE),
         "Euclidean, median", "Euclidean, values beyond E %"),
        errors,
    )  # fmt: skip
    return figures


def _floats(column: Column) -> np.ndarray:
    return np.where(column.valid, column.values.astype(np.float64), np.nan)
