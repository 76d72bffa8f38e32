"""Measure the coverage of sketch intervals by kind of query, skew and type, with the product's hashing and defaults.

A cell is one query of one type at one skew, run 10,000 times. At least 94 % of its 95 % intervals must contain the
truth, without being wider than theory requires. Keys are hashed as the product hashes columns; tables have the defaults
of contracts. Queries with one answer per sketch (self-joins, joins, distinct keys, near-duplicates) use 10,000
sketches.

The width by theory: for a frequency, the variance of Lemma 2, sum_{x != q} f_x^2/(w - 1) per row; for self-joins that
of Lemma 4; for joins the same algebra, each for a median of d rows; for distinct keys the standard error of
HyperLogLog, 1.04/sqrt(m); for ranks and ranges the bound of KLL; for near-duplicates the measured standard deviation of
the estimates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from evidence.book import Say
from evidence.sketches.data_models import zipf_frequencies
from spillway.sketches.column_keys import distinct_keys, keys_of
from spillway.sketches.count_min import CountMin, CountMinParameters
from spillway.sketches.hll import Hll
from spillway.sketches.intervals import median_deviation, normal_quantile
from spillway.sketches.kll import rank_error
from spillway.sketches.pair_count import PairCount, PairCountParameters
from spillway.sketches.query import wrap_sketch
from spillway.sketches.specification import SketchSpec
from spillway.sketches.types import Floats, Integers, Keys
from spillway.sketches.values import as_value

QUESTIONS = 10_000
SKEWS_ASKED = (0.0, 0.5, 1.0, 1.5, 2.0)
TYPES_ASKED = ("string", "integer", "money", "timestamp")
DOMAIN, ROWS = 5_000, 100_000
_TWO_SIDED = 2.0 * normal_quantile(0.95)


@dataclass(frozen=True)
class IntervalCoverage:
    """How often the intervals of a cell contain the truth, and their mean width over that of theory."""

    name: str
    asked: int
    covered: float
    width: float


def column_of(kind: str, first: int, count: int) -> tuple[pa.Array, str]:
    """Return `count` different values of a type, and its name in contracts: texts, ids near 10^9, prices, times."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    if kind == "string":
        return pa.array([f"key {number}" for number in numbers.tolist()]), "string"
    if kind == "integer":
        return pa.array(1_000_000_000 + numbers), "integer"
    if kind == "money":
        return pa.array(numbers / 100), "double"
    moments = 1_357_000_000_000_000 + numbers * 37_000_000
    return pa.array(moments).cast(pa.timestamp("us", "UTC")), "timestamp"


def _keys(kind: str, first: int, count: int, seed: int) -> Keys:
    column, type_ = column_of(kind, first, count)
    return keys_of(pa.table({"k": column}), ["k"], [type_], seed)


def _table_of(seed: int) -> CountMinParameters:
    """Return the default parameters of a contract's `count_min`."""
    spec = SketchSpec("count_min", ("k",), ("integer",), heavy_pct=None, seed=seed)
    table: Any = spec.empty()
    parameters: CountMinParameters = table.parameters
    return parameters


def _width(squares: Floats | float, parameters: CountMinParameters) -> Any:
    """Return the width of a 95 % interval with the variance `squares`/(w - 1) of rows."""
    deviation = np.sqrt(np.maximum(squares, 0.0) / (parameters.width - 1))
    return _TWO_SIDED * median_deviation(parameters.depth) * deviation


def frequencies(questions: int) -> Iterator[IntervalCoverage]:
    """Yield the coverage for keys that occurred, for the most frequent hundred, and for keys that never occurred."""
    for skew in SKEWS_ASKED:
        for kind in TYPES_ASKED:
            inside: dict[str, list[Any]] = {"frequency": [], "top 100": [], "absent": []}
            widths: dict[str, list[float]] = {name: [] for name in inside}
            theory: dict[str, list[float]] = {name: [] for name in inside}
            sketches = max(questions // 100, 1)
            for seed in range(1, sketches + 1):
                counts = zipf_frequencies(ROWS, DOMAIN, skew, seed)
                keys = _keys(kind, 0, DOMAIN, seed % 10)
                table = CountMin(_table_of(seed)).update(keys, counts)
                chance, present = np.random.default_rng(seed), np.flatnonzero(counts)
                asked = {
                    "frequency": chance.choice(present, 100),
                    "top 100": np.argsort(-counts, kind="stable")[:100],
                }
                squares = float((counts.astype(np.float64) ** 2).sum())
                cases = {name: (keys[which], counts[which]) for name, which in asked.items()}
                cases["absent"] = _keys(kind, DOMAIN + 100 * seed, 100, seed % 10), np.zeros(100, np.int64)
                for name, (which, truth) in cases.items():
                    found = table.point(which)
                    inside[name].append((found.low <= truth) & (truth <= found.high))
                    widths[name].append(float((found.high - found.low).mean()))
                    other = squares - truth.astype(np.float64) ** 2
                    theory[name].append(float(_width(other, table.parameters).mean()))
            for name, hits in inside.items():
                ratio = float(np.mean(widths[name]) / np.mean(theory[name]))
                yield IntervalCoverage(
                    f"{name}, {kind}, skew {skew:g}", 100 * sketches, float(np.mean(hits)), ratio
                )


def joins(questions: int) -> Iterator[IntervalCoverage]:
    """Yield the coverage for self-joins and joins, with new sketches for each query."""
    for skew in SKEWS_ASKED:
        for kind in ("string", "timestamp"):
            hits: dict[str, list[bool]] = {"self-join": [], "join": []}
            widths: dict[str, list[float]] = {name: [] for name in hits}
            theory: dict[str, list[float]] = {name: [] for name in hits}
            counts = [zipf_frequencies(ROWS, DOMAIN, skew, seed) for seed in range(10)]
            orders = [np.random.default_rng(seed).permutation(DOMAIN) for seed in range(10)]
            keys = [_keys(kind, 0, DOMAIN, seed) for seed in range(10)]
            for seed in range(questions):
                # a table's hashes are drawn anew for every question
                f, order = counts[seed % 10].astype(np.float64), orders[seed // 10 % 10]
                mine = CountMin(_table_of(seed)).update(keys[seed % 10], counts[seed % 10])
                found = mine.self_join_size()
                truth, fourth = float((f**2).sum()), float((f**4).sum())
                hits["self-join"].append(found.low <= truth <= found.high)
                widths["self-join"].append(found.high - found.low)
                theory["self-join"].append(float(_width(2.0 * (truth**2 - fourth), mine.parameters)))
                # half of the heavy keys are the other's too
                shuffled = np.where(np.arange(DOMAIN) % 2 == 0, np.arange(DOMAIN), order)
                theirs = counts[(seed + 1) % 10][shuffled]
                g = theirs.astype(np.float64)
                other = CountMin(_table_of(seed)).update(keys[seed % 10], theirs)
                joined = mine.join_size(other)
                size = float((f * g).sum())
                hits["join"].append(joined.low <= size <= joined.high)
                widths["join"].append(joined.high - joined.low)
                spread = truth * float((g**2).sum()) + size**2 - 2.0 * float((f**2 * g**2).sum())
                theory["join"].append(float(_width(spread, mine.parameters)))
            for name, held in hits.items():
                ratio = float(np.mean(widths[name]) / np.mean(theory[name]))
                yield IntervalCoverage(
                    f"{name}, {kind}, skew {skew:g}", questions, float(np.mean(held)), ratio
                )


def distinct_counts(questions: int, size: int = 3_000) -> Iterator[IntervalCoverage]:
    """Yield the coverage for distinct keys, of one attribute of each type and of two together."""
    spec = SketchSpec("distinct", ("k",), ("integer",), memory_kib=1)
    for kind in (*TYPES_ASKED, "two attributes"):
        hits, widths = [], []
        for seed in range(questions):
            if kind == "two attributes":
                column, type_ = column_of("integer", seed * size, size)
                rows = pa.table({"k": column, "m": pa.array(np.arange(size) % 7)})
                keys = distinct_keys(rows, ["k", "m"], [type_, "integer"], 1)
            else:
                column, type_ = column_of(kind, seed * size, size)
                keys = distinct_keys(pa.table({"k": column}), ["k"], [type_], 1)
            sketch: Any = spec.empty()
            found = sketch.update(keys).count()
            hits.append(found.low <= size <= found.high)
            widths.append(found.high - found.low)
        error = 1.04 / math.sqrt(2 ** Hll(sketch.lg_k).lg_k)
        ratio = float(np.mean(widths)) / (_TWO_SIDED * error * size)
        yield IntervalCoverage(f"distinct, {kind}", questions, float(np.mean(hits)), ratio)


def ranges_and_quantiles(questions: int, size: int = 20_000) -> Iterator[IntervalCoverage]:
    """Yield the coverage for ranges and quantiles of ids, prices and times; widths in ranks."""
    for kind in ("integer", "money", "timestamp"):
        for skew in (0.0, 1.0):
            hits: dict[str, list[bool]] = {"range": [], "quantile": []}
            widths: dict[str, list[float]] = {name: [] for name in hits}
            theory: dict[str, list[float]] = {name: [] for name in hits}
            sketches = max(questions // 100, 1)
            for seed in range(sketches):
                chance = np.random.default_rng(seed)
                domain, type_ = column_of(kind, 0, 200_000)
                places = np.minimum(chance.pareto(0.5 + skew, size) * 100, 199_999).astype(np.int64)
                places = places if skew else chance.integers(0, 200_000, size)
                column = domain.take(pa.array(places))
                spec = SketchSpec("quantiles", ("k",), (type_,))
                part: Any = spec.kind_object.empty_part(spec)
                spec.kind_object.add_rows(part, spec, pa.table({"k": column}))
                sketch = spec.kind_object.finish(spec, part, {})
                sketch.context = spec.context
                asked, values = wrap_sketch(sketch), np.sort(_axis(column, type_))
                for _ in range(100):
                    low, high = np.sort(values[chance.integers(0, size, 2)])
                    truth = np.searchsorted(values, high, "right") - np.searchsorted(values, low, "left")
                    found = asked.between(as_value(low.item(), type_), as_value(high.item(), type_))
                    hits["range"].append(found.low <= truth <= found.high)
                    widths["range"].append(found.high - found.low)
                    theory["range"].append(2.0 * size * rank_error(sketch.parameters.k, of_range=True))  # type: ignore[attr-defined]
                    share = chance.uniform(0.01, 0.99)
                    found = asked.quantile(share)
                    hits["quantile"].append(found.low <= values[math.ceil(share * size) - 1] <= found.high)
                    ranks = np.searchsorted(values, [found.low, found.high], "left")
                    widths["quantile"].append(float(ranks[1] - ranks[0]))
                    theory["quantile"].append(2.0 * size * rank_error(sketch.parameters.k))  # type: ignore[attr-defined]
            for name, held in hits.items():
                ratio = float(np.mean(widths[name]) / np.mean(theory[name]))
                yield IntervalCoverage(
                    f"{name}, {kind}, skew {skew:g}", 100 * sketches, float(np.mean(held)), ratio
                )


def _axis(column: pa.Array, type_: str) -> Integers | Floats:
    from spillway.sketches.values import order_values

    found: Integers | Floats = order_values(pa.chunked_array([column]), type_)
    return found


def near_duplicates(questions: int, size: int = 300) -> Iterator[IntervalCoverage]:
    """Yield the coverage for pairs of rows that agree in 3 of 4 attributes: few, many, and clusters of ten."""
    for name, twins, clump in (("few twins", 15, 2), ("many twins", 150, 2), ("clumps of ten", 200, 10)):
        base = np.random.default_rng(1).integers(0, 1 << 62, (size, 4)).astype(np.uint64)
        base[:twins] = base[np.arange(twins) // clump * clump]
        base[:twins:3, 3] = np.arange(0, twins, 3, dtype=np.uint64)
        agree = (base[:, None, :] == base[None, :, :]).sum(axis=2) >= 3
        truth = float(np.triu(agree, 1).sum())
        hits, widths, estimates = [], [], []
        for seed in range(questions):
            parameters = PairCountParameters(4, 3, seed=seed, width=256, depth=5)
            sketch = PairCount(parameters).update(base, np.arange(size))
            found = sketch.pairs()
            hits.append(found.low <= truth <= found.high)
            widths.append(found.high - found.low)
            estimates.append(sum(value for k, value in sketch.by_similarity().items() if k >= 3) / 2)
        ratio = float(np.mean(widths) / (_TWO_SIDED * np.std(estimates)))
        yield IntervalCoverage(f"near-duplicates, {name}", questions, float(np.mean(hits)), ratio)


def cells(say: Say, questions: int = QUESTIONS) -> dict[str, float]:
    """Return the figures of every cell, and of the worst of them."""
    found = [
        *frequencies(questions), *joins(questions), *distinct_counts(questions), *ranges_and_quantiles(questions),
        *near_duplicates(questions),
    ]  # fmt: skip
    say(f"What 95 % intervals cover, {questions:,} questions a cell, and their width over theory's")
    for cell in found:
        say(f"{cell.name:>36} {100 * cell.covered:7.2f} % {cell.width:7.2f}")
    return {
        "sketches.coverage_cells": float(len(found)),
        "sketches.coverage_questions_per_cell": float(min(cell.asked for cell in found)),
        "sketches.coverage_pct_lowest": 100 * min(cell.covered for cell in found),
        "sketches.coverage_pct_mean": 100 * float(np.mean([cell.covered for cell in found])),
        "sketches.interval_width_over_theory_largest": max(cell.width for cell in found),
    }


if __name__ == "__main__":
    cells(print)
