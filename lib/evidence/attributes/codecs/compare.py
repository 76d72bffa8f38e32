"""Compare our synopses with SZ3 and pcodec: at the same bound, at the same mean error, and at every precision.

At the same bound (E of `ERROR_PCT` for every quantity, codes exact), each contestant is measured at its loosest
setting. At the same mean error, ours uses the coarsest precision within `MEAN_ERROR_PCT`; the bound of a rival is
searched within E until its mean error equals ours. Training tuples and later ones are separate; ratios are those of
later tuples, summed over all measures.

At every precision from exact to E, our bytes are those of a plan that keeps, rounds or sheds each measure. Each rival
gets the mean error that this plan has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evidence.attributes.codecs.absolute import SHARE, bounds_in_unit, smallest_within
from evidence.attributes.codecs.compressors import COMPRESSORS, Compressed, smallest
from evidence.attributes.codecs.ours import (
    Synopsis,
    Trained,
    model_bytes,
    plan_within,
    rounded_bytes,
    synopses_in_unit,
    synopses_within,
    train_in_unit,
    train_sample,
)
from evidence.attributes.codecs.samples import HELD_BACK, REAL, Sample, of_lab, of_source, real_sample
from evidence.attributes.generated import sources
from evidence.attributes.lab import Lab
from evidence.book import Book
from spillway.levers.attributes.columns import Frame
from spillway.levers.attributes.training.search import describe
from spillway.report.page.svg import Line, line_chart

ERROR_PCT, MEAN_ERROR_PCT = 4.5, 1.0
TERMS = {"equal_bound": ERROR_PCT, "equal_error": MEAN_ERROR_PCT}
CURVE = (0.0, 0.1, 0.3, 0.5, 0.7, 1.0, 1.5, ERROR_PCT)
ABSOLUTE = "absolute_bound"
ANY = "any_precision"
LEAST_VALUES = 10_000
"""Streams with fewer values do not count in the largest ratio at any precision: headers take most of their bytes."""
_Row = tuple[Any, ...]


def compressors(book: Book, labs: Mapping[str, Lab], directory: Path) -> dict[str, float]:
    """Write the tables and curves; return `attributes.bytes_over_<rival>.<stream>.<term>`."""
    book.section(
        "Synopses against error-bounded compressors",
        f"Every measure shed; E {ERROR_PCT:g} % for quantities, codes exact. SZ3 and pcodec get whole columns, by "
        "arrival or by key, whichever is smaller, and all that decoding needs is counted.",
    )
    return compare_samples(book, samples(labs, directory))


def samples(labs: Mapping[str, Lab], directory: Path) -> Iterable[Sample]:
    """Yield the demo's, the generated and the real streams; the held-out ones come last."""
    yield from (of_lab(lab) for lab in labs.values())
    yield from (of_source(source) for source in sources(directory))
    yield from (real_sample(name) for name in REAL)


def compare_samples(book: Book, every: Iterable[Sample]) -> dict[str, float]:
    """Compare some samples; return the figures."""
    totals: list[_Row] = []
    columns: list[_Row] = []
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    besides: list[_Row] = []
    precisions: list[_Row] = []
    figures: dict[str, float] = {}
    for sample in every:
        parts = sample.parts
        trained = train_sample(sample, parts["training"], ERROR_PCT)
        for term, mean_error_pct in TERMS.items():
            ratios: list[float] = []
            for part, frame in parts.items():
                ours = synopses_within(trained, frame, mean_error_pct)
                rivals = {name: _rivals(name, trained, frame, ours, term) for name in COMPRESSORS}
                columns += _by_column(sample, term, part, trained, ours, rivals)
                mine = sum(one.packed_bytes for one in ours.values())
                theirs = [sum(one.packed_bytes for one in rivals[name].values()) for name in COMPRESSORS]
                ratios += [mine / one for one in theirs]
                if part == "later":
                    for name, one in zip(COMPRESSORS, theirs, strict=True):
                        figures[f"attributes.bytes_over_{name}.{sample.name}.{term}"] = mine / one
                figures[f"attributes.violations_beside_compressors.{sample.name}.{term}.{part}"] = sum(
                    one.violations for one in ours.values()
                )
            totals.append((_title(sample), term, *ratios))
        points, violations = at_every_precision(trained, parts["later"])
        figures[f"attributes.violations_beside_compressors.{sample.name}.{ANY}.later"] = violations
        curves[sample.name] = {
            name: sorted({at[name] for at in points.values()}) for name in next(iter(points.values()))
        }
        more = over_rivals(sample, points)
        figures |= more
        if more:
            precisions.append((_title(sample), *more.values()))
        more = extra_figures(sample, trained)
        figures |= more
        besides.append((_title(sample), *more.values()))
    for name in COMPRESSORS:
        for term in (*TERMS, ABSOLUTE):
            found = [figures[f"attributes.bytes_over_{name}.{sample}.{term}"] for sample in curves]
            figures[f"attributes.bytes_over_{name}_mean.{term}"] = sum(found) / max(1, len(found))
            figures[f"attributes.bytes_over_{name}_largest.{term}"] = max(found, default=0.0)
        found = [figures[place] for place in figures if place.startswith(f"attributes.bytes_over_{name}_at.")]
        figures[f"attributes.bytes_over_{name}_largest.{ANY}"] = max(found, default=0.0)
    book.table(
        "Bytes over a compressor's, all measures of a stream",
        ("stream", "terms", *(f"{part}: over {name}" for part in ("training", "later") for name in COMPRESSORS)),
        totals,
        ["* held back: not looked at while predictors and packing were made. Equal error: of "
         f"{MEAN_ERROR_PCT:g} % at most."],
    )  # fmt: skip
    book.table(
        "Bytes of a plan over a compressor's, at every precision",
        ("stream", *(f"{_mark(mark)}: over {name}" for name in COMPRESSORS for mark in CURVE)),
        precisions,
        ["Each measure has the treatment that took the fewest bytes in training within a mean error. A rival gets the "
         f"same mean error, or the bound itself at {ERROR_PCT:g} %. Streams of {LEAST_VALUES:,} values and more."],
    )  # fmt: skip
    book.table(
        "Bounds in an attribute's own unit, and models",
        ("stream", *(f"own unit: over {name}" for name in COMPRESSORS), "outside", "models / synopsis"),
        besides,
        [f"Own unit: {100 * SHARE:g} % of what lies between the 5th and the 95th percentile. Models "
         "travel once a training; the tables above leave them out."],
    )  # fmt: skip
    book.table(
        "The same by measure",
        ("stream", "terms", "tuples", "measure", "E %", "mean error %", "ours", *COMPRESSORS, "predicted by"),
        columns,
    )
    _show(book, curves)
    return figures


def extra_figures(sample: Sample, trained: Trained) -> dict[str, float]:
    """Measure bounds in an attribute's own unit, and the bytes of models, on later tuples."""
    parts, name = sample.parts, sample.name
    errors = bounds_in_unit(parts["training"], trained.error_pct)
    ours = synopses_in_unit(train_in_unit(sample, parts["training"], errors), parts["later"])
    mine = sum(one.packed_bytes for one in ours.values())
    found = {}
    for rival in COMPRESSORS:
        columns = parts["later"].columns
        theirs = sum(smallest_within(rival, columns[one], parts["later"].key, errors[one]) for one in ours)
        found[f"attributes.bytes_over_{rival}.{name}.{ABSOLUTE}"] = mine / theirs
    found[f"attributes.violations_beside_compressors.{name}.{ABSOLUTE}.later"] = float(
        sum(one.violations for one in ours.values())
    )
    synopsis = sum(one.packed_bytes for one in synopses_within(trained, parts["later"], ERROR_PCT).values())
    return found | {f"attributes.models_over_synopsis.{name}": model_bytes(trained) / max(1, synopsis)}


def _title(sample: Sample) -> str:
    return sample.name + ("*" if sample.name in HELD_BACK else "")


def _rivals(
    name: str, trained: Trained, frame: Frame, ours: Mapping[str, Synopsis], term: str
) -> dict[str, Compressed]:
    return {
        measure: smallest(
            name,
            frame.columns[measure],
            frame.key,
            trained.error_pct[measure],
            mean_error_pct=one.mean_error_pct if term == "equal_error" else None,
        )
        for measure, one in ours.items()
    }


def _by_column(
    sample: Sample,
    term: str,
    part: str,
    trained: Trained,
    ours: Mapping[str, Synopsis],
    rivals: Mapping[str, Mapping[str, Compressed]],
) -> list[_Row]:
    return [
        (
            _title(sample), term, part, name, trained.error_pct[name], one.mean_error_pct, one.packed_bytes,
            *(rivals[rival][name].packed_bytes for rival in COMPRESSORS),
            describe(trained.attributes[name].model.predictors[0])[:60],
        )
        for name, one in ours.items()
    ]  # fmt: skip


def at_every_precision(
    trained: Trained, frame: Frame
) -> tuple[dict[float, dict[str, tuple[float, float]]], int]:
    """Return (mean error in %, bytes) of all measures by contestant for each mean error of `CURVE`, and violations.

    Our plan stays within the mean error, and each rival gets the mean error that the plan has. At E a rival gets the
    bound E instead.
    """
    found: dict[float, dict[str, tuple[float, float]]] = {}
    violations = 0
    for mark in CURVE:
        ours = plan_within(trained, frame, mark)
        violations += sum(one.violations for one in ours.values())
        found[mark] = {"ours": _point([(one.packed_bytes, one.mean_error_pct) for one in ours.values()])}
        for name in COMPRESSORS:
            theirs = [
                smallest(
                    name,
                    frame.columns[measure],
                    frame.key,
                    trained.error_pct[measure] if one.mean_error_pct or mark == ERROR_PCT else 0.0,
                    mean_error_pct=None if mark == ERROR_PCT else one.mean_error_pct,
                )
                for measure, one in ours.items()
            ]
            found[mark][name] = _point([(one.packed_bytes, one.mean_error_pct) for one in theirs])
        size, mean = rounded_bytes(trained, frame, mark)
        found[mark]["rounding"] = (mean, float(size))
    return found, violations


def over_rivals(
    sample: Sample, points: Mapping[float, Mapping[str, tuple[float, float]]]
) -> dict[str, float]:
    """Return the ratio of our bytes to each rival's at every precision, for a stream that has enough values."""
    if sample.rows.num_rows * len(sample.measures) < LEAST_VALUES:
        return {}
    return {
        f"attributes.bytes_over_{name}_at.{sample.name}.{_mark(mark)}": at["ours"][1] / at[name][1]
        for name in COMPRESSORS
        for mark, at in points.items()
    }


def _mark(mark: float) -> str:
    """Return the name of a place of `CURVE`.

    >>> _mark(0.0), _mark(0.5), _mark(ERROR_PCT)
    ('exact', 'mean_0.5', 'bound')
    """
    return {0.0: "exact", ERROR_PCT: "bound"}.get(mark, f"mean_{mark:g}")


def _point(found: list[tuple[int, float]]) -> tuple[float, float]:
    return float(np.mean([mean for _, mean in found])), float(sum(size for size, _ in found))


def _show(book: Book, curves: Mapping[str, Mapping[str, list[tuple[float, float]]]]) -> None:
    book.table(
        "Bytes against mean error, later tuples",
        ("stream", "contestant", "mean error %: bytes"),
        [
            (stream, name, ", ".join(f"{mean:.3g}: {size:,.0f}" for mean, size in points))
            for stream, found in curves.items()
            for name, points in found.items()
        ],
        [
            "Each point has all measures in the fewest bytes within a mean error. Rounding counts bytes of Parquet."
        ],
    )
    for stream, found in curves.items():
        book.figure(
            f"bytes_against_mean_error_{stream}",
            f"{stream}: bytes against mean error",
            line_chart(
                [Line(points, f"c{i}", name, dots=True) for i, (name, points) in enumerate(found.items())],
                x_label="mean relative error in %",
                y_label="bytes",
                from_zero=True,
            ),
            dict(found),
        )
