"""Reproduce chapter 4: Figures 4.1 to 4.7 of count-min with mean correction, and the coverage of its intervals."""

from __future__ import annotations

import numpy as np

from evidence.book import Say
from evidence.sketches.data_models import shuffled_stream, zipf_frequencies
from spillway.sketches.answers import Answer
from spillway.sketches.count_min import (
    CountMin,
    CountMinParameters,
    effective_keys,
    parameters_for_memory,
)
from spillway.sketches.fast_agms import FastAgms, FastAgmsParameters
from spillway.sketches.hll import Hll
from spillway.sketches.kll import Kll, KllParameters
from spillway.sketches.query import wrap_sketch
from spillway.sketches.types import Estimates, Floats, Integers

SKEWS = (0.0, 0.4, 0.8, 1.0, 1.2, 1.6, 2.0)
METHODS = ("cm", "cmm_mean", "cmm_median", "cmm_order", "any", "by_skew", "fast_agms", "mi")
DOMAIN = 1_000_000
URL_SKEW = 0.85


def estimator_by_skew(sketch: CountMin) -> str:
    """Return `cm` for skewed streams and for conservative tables, which support no other, else `cmm_median`."""
    if sketch.parameters.conservative or sketch.total <= 0:
        return "cm"
    return "cmm_median" if effective_keys(sketch) >= sketch.parameters.width else "cm"


def point_errors(
    frequencies: Integers, width: int, depth: int, seeds: range, asked: Integers | None, mi: bool = True
) -> dict[str, float]:
    """Return the mean absolute error of each estimator over the keys `asked` (default: the whole domain)."""
    present = np.flatnonzero(frequencies)
    keys, weights = present.astype(np.uint64), frequencies[present]
    queries = (np.arange(frequencies.size) if asked is None else asked).astype(np.uint64)
    truth = frequencies[queries.astype(np.int64)]
    total = dict.fromkeys(METHODS, 0.0)
    for seed in seeds:
        counts = CountMin(CountMinParameters(width, depth, seed)).update(keys, weights)
        signed = FastAgms(FastAgmsParameters(width, depth, seed)).update(keys, weights)
        answers: dict[str, Floats] = {
            name: counts.point(queries, name).estimate
            for name in ("cm", "cmm_mean", "cmm_median", "cmm_order")
        }
        answers["any"] = counts.point(queries, purpose="any").estimate
        answers["by_skew"] = answers[estimator_by_skew(counts)]
        answers["fast_agms"] = signed.point(queries).estimate
        if mi:
            conservative = CountMin(CountMinParameters(width, depth, seed, conservative=True))
            answers["mi"] = (
                conservative.update(shuffled_stream(frequencies, seed)).point(queries, "cm").estimate
            )
        for name, answer in answers.items():
            total[name] += float(np.abs(answer - truth).mean()) / len(seeds)
    return total


def _row(label: object, values: dict[str, float]) -> str:
    return f"{label!s:>9} " + " ".join(f"{values[name]:11.3f}" for name in METHODS)


def multiplicity(say: Say) -> dict[str, float]:
    """Compute Figures 4.1 to 4.4: average absolute errors of point queries over skew, width and depth."""
    found: dict[str, float] = {}
    head = " ".join(f"{name:>11}" for name in METHODS)
    streams = {skew: zipf_frequencies(1_000_000, DOMAIN, skew, seed=1) for skew in SKEWS}
    say("Figure 4.1: mean absolute error, all elements of the domain, w 64, d 3\n     skew " + head)
    for skew, frequencies in streams.items():
        errors = point_errors(frequencies, 64, 3, range(1), None)
        say(_row(skew, errors))
        better = min(errors["cmm_mean"], errors["cmm_order"])
        found[f"sketches.cmm_order_over_better_error_all_keys.{skew:g}"] = errors["cmm_order"] / better
        found[f"sketches.any_over_better_error_all_keys.{skew:g}"] = errors["any"] / better
    say("Figure 4.2: mean absolute error, top 100 elements, w 256, d 5\n     skew " + head)
    over_agms = []
    for skew, frequencies in streams.items():
        top = np.argsort(-frequencies, kind="stable")[:100]
        errors = point_errors(frequencies, 256, 5, range(8), top)
        say(_row(skew, errors))
        better = min(errors["cm"], errors["cmm_median"])
        found[f"sketches.cmm_over_cm_error.{skew:g}"] = errors["cmm_order"] / errors["cm"]
        found[f"sketches.paper_cmm_over_cm_error.{skew:g}"] = errors["cmm_mean"] / errors["cm"]
        found[f"sketches.cmm_median_over_cm_error.{skew:g}"] = errors["cmm_median"] / errors["cm"]
        found[f"sketches.choice_by_skew_over_better_error.{skew:g}"] = errors["by_skew"] / better
        found[f"sketches.cmm_order_over_better_error.{skew:g}"] = errors["cmm_order"] / better
        names = ("cmm_order", "cmm_median", "cmm_mean")
        over_agms.append([errors[name] / errors["fast_agms"] for name in names])
    order, median, papers = np.array(over_agms).T
    say("cmm_order is ours; the paper's own CMM is cmm_mean (4.2.2), and its variant cmm_median (4.2.4)")
    found["sketches.paper_cmm_over_agms_error"] = float(np.exp(np.mean(np.log(papers))))
    found["sketches.paper_cmm_over_agms_error_largest"] = float(papers.max())
    found["sketches.cmm_over_agms_error"] = float(np.exp(np.mean(np.log(order))))
    found["sketches.cmm_over_agms_error_largest"] = float(order.max())
    found["sketches.cmm_median_over_agms_error"] = float(np.exp(np.mean(np.log(median))))
    urls = zipf_frequencies(1_000_000, DOMAIN, URL_SKEW, seed=2)
    top = np.argsort(-urls, kind="stable")[:100]
    say(f"Figure 4.3: the same by width, d 5, Zipf {URL_SKEW} for the URLs\n    width " + head)
    for width in (64, 256, 1024, 4096):
        say(_row(width, point_errors(urls, width, 5, range(3), top)))
    say(f"Figure 4.4: the same by depth, w 256, Zipf {URL_SKEW}\n    depth " + head)
    for depth in (1, 3, 5, 9):
        say(_row(depth, point_errors(urls, 256, depth, range(3), top)))
    return found


def sums(say: Say, seeds: int = 30, rows: int = 1_000_000, domain: int = 50_000) -> dict[str, float]:
    """Return the error of a sum over all keys below the average frequency, with and without exact heavy keys."""
    drawn = zipf_frequencies(rows, domain, 1.0, 1)
    frequencies = drawn[drawn > 0]
    rare = np.flatnonzero(frequencies <= frequencies.mean())
    heavy = np.flatnonzero(frequencies >= rows / 1000)
    truth = float(frequencies[rare].sum())
    errors: dict[str, list[float]] = {}
    for seed in range(1, seeds + 1):
        keys = np.random.default_rng(seed).integers(0, 1 << 63, frequencies.size).astype(np.uint64)
        table = CountMin(CountMinParameters(1638, 5, seed, hashing="spark")).update(keys, frequencies)
        rest = table.without(dict(zip(keys[heavy].tolist(), frequencies[heavy].tolist(), strict=True)))
        for name, counts, purpose in (
            ("frequent", table, "frequent"),
            ("any", table, "any"),
            ("sum", table, "sum"),
            ("sum_heavy_counted", rest, "sum"),
        ):
            found = counts.point(keys[rare], purpose=purpose).estimate.sum() / truth - 1.0
            errors.setdefault(name, []).append(100 * float(found))
    say(
        f"Sum over {rare.size:,} keys below the average, Zipf 1, w 1638, d 5: error in % over {seeds} hash functions"
    )
    for name, each in errors.items():
        say(f"{name:>18} mean {np.mean(each):+8.1f} sd {np.std(each):7.1f}")
    means = {f"sketches.sum_error_mean_pct.{name}": float(np.mean(each)) for name, each in errors.items()}
    return means | {f"sketches.sum_error_sd_pct.{name}": float(np.std(each)) for name, each in errors.items()}


def over_datasketches(say: Say, memory: int = 65_536, seeds: int = 5) -> dict[str, float]:
    """Compare the top 100 keys by cmm_order, the paper's CMM and DataSketches' count-min, of equal allocated bytes.

    Its frequent items are included too, at the same bytes or more: a map of 2^lg slots of key, count and state.
    """
    import datasketches

    depth, domain, rows = 5, 50_000, 500_000
    width = memory // (8 * depth)
    say(f"Top 100 of {rows:,} rows, {memory:,} bytes each: mean absolute errors")
    say("     skew   cmm_order   cmm_mean          cm  DS count-min  DS frequent items")
    found: dict[str, float] = {}
    for skew in (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0):
        errors: dict[str, list[float]] = {}
        for seed in range(1, seeds + 1):
            frequencies = zipf_frequencies(rows, domain, skew, seed)
            keys = np.random.default_rng(seed).integers(-(1 << 62), 1 << 62, domain)
            present, top = np.flatnonzero(frequencies), np.argsort(-frequencies, kind="stable")[:100]
            table = CountMin(CountMinParameters(width, depth, seed, hashing="spark"))
            table.update(keys[present], frequencies[present])
            theirs = datasketches.count_min_sketch(depth, width, seed)
            items = datasketches.frequent_items_sketch(11)
            for place in np.random.default_rng(seed).permutation(present).tolist():
                theirs.update(int(keys[place]), int(frequencies[place]))
                items.update(int(keys[place]), int(frequencies[place]))
            answers = {
                name: table.point(keys[top], name).estimate for name in ("cmm_order", "cmm_mean", "cm")
            }
            answers["datasketches"] = np.array([theirs.get_estimate(int(key)) for key in keys[top]])
            answers["frequent items"] = np.array([items.get_estimate(int(key)) for key in keys[top]])
            for name, answer in answers.items():
                errors.setdefault(name, []).append(float(np.abs(answer - frequencies[top]).mean()))
        row = {name: float(np.mean(each)) for name, each in errors.items()}
        say(f"{skew:9.1f} " + " ".join(f"{value:11.3f}" for value in row.values()))
        found[f"sketches.cmm_top100_error_over_datasketches.{skew:g}"] = (
            row["cmm_order"] / row["datasketches"]
        )
        if row["frequent items"]:
            over = row["cmm_order"] / row["frequent items"]
            found[f"sketches.cmm_top100_error_over_frequent_items.{skew:g}"] = over
    return found


def self_join_errors(frequencies: Integers, width: int, depth: int, seeds: range) -> dict[str, float]:
    """Return the mean relative error of the self-join size by CM, CMM and Fast-AGMS."""
    present = np.flatnonzero(frequencies)
    keys, weights = present.astype(np.uint64), frequencies[present]
    truth = float((weights.astype(np.float64) ** 2).sum())
    total = {"cm": 0.0, "cmm": 0.0, "fast_agms": 0.0}
    for seed in seeds:
        counts = CountMin(CountMinParameters(width, depth, seed)).update(keys, weights)
        signed = FastAgms(FastAgmsParameters(width, depth, seed)).update(keys, weights)
        for name in ("cm", "cmm"):
            total[name] += abs(counts.self_join_size(name).estimate / truth - 1.0) / len(seeds)
        total["fast_agms"] += abs(signed.self_join_size().estimate / truth - 1.0) / len(seeds)
    return total


def self_joins(say: Say) -> dict[str, float]:
    """Compute Figures 4.5 to 4.7: relative errors of the self-join size over skew, width and depth."""
    ratios = []

    def row(label: object, errors: dict[str, float]) -> None:
        say(f"{label!s:>9} " + " ".join(f"{errors[name]:11.4f}" for name in ("cm", "cmm", "fast_agms")))
        ratios.append(errors["cmm"] / errors["fast_agms"])

    head = " ".join(f"{name:>11}" for name in ("cm", "cmm", "fast_agms"))
    say("Figure 4.5: relative error of the self-join size, w 16, d 5\n     skew " + head)
    for skew in (0.0, 0.6, 1.0, 1.4, 2.0):
        row(skew, self_join_errors(zipf_frequencies(1_000_000, 100_000, skew, seed=1), 16, 5, range(20)))
    urls = zipf_frequencies(1_000_000, 200_000, URL_SKEW, seed=2)
    say(f"Figure 4.6: the same by width, d 3, Zipf {URL_SKEW}\n    width " + head)
    for width in (16, 64, 256, 1024):
        row(width, self_join_errors(urls, width, 3, range(20)))
    say(f"Figure 4.7: the same by depth, w 16, Zipf {URL_SKEW}\n    depth " + head)
    for depth in (1, 3, 5, 9):
        row(depth, self_join_errors(urls, 16, depth, range(20)))
    return {"sketches.cmm_over_agms_self_join_error": float(np.exp(np.mean(np.log(ratios))))}


def skews(say: Say) -> dict[str, float]:
    """Return the number of effective keys by F2, and whether mean correction or the minimum is chosen."""
    say("Skew by the self-join size: effective keys N^2/F2 (w 1024, d 5)")
    found = {}
    for skew in SKEWS:
        frequencies = zipf_frequencies(1_000_000, 100_000, skew, seed=1)
        present = np.flatnonzero(frequencies)
        sketch = CountMin(CountMinParameters(1024, 5)).update(present.astype(np.uint64), frequencies[present])
        chosen = estimator_by_skew(sketch)
        truth = 1e12 / float((frequencies.astype(np.float64) ** 2).sum())
        found[f"sketches.effective_keys_ratio.{skew:g}"] = effective_keys(sketch) / truth
        say(f"{skew:9.1f} {effective_keys(sketch):12.1f} (truth {truth:12.1f})  {chosen}")
    return found


def _inside(answer: Answer, truth: float) -> bool:
    return bool(answer.low <= truth <= answer.high)


def _share_inside(found: Estimates, truth: Integers) -> float:
    return float(np.mean((found.low <= truth) & (truth <= found.high)))


def interval_coverage(say: Say, seeds: int = 1000) -> dict[str, float]:
    """Return how often 95 % intervals contain the truth, over `seeds` hash functions, per estimator."""
    domain, ordered_seeds = 1000, max(seeds // 5, 1)
    counts = [zipf_frequencies(20_000, domain, skew, seed=5) for skew in (0.4, 0.9, 1.4)]
    other = zipf_frequencies(20_000, domain, 0.7, seed=6)
    keys = np.arange(domain, dtype=np.uint64)
    shape = parameters_for_memory(5 * 8 * 256, depth=5)
    hits: dict[str, list[float]] = {}
    for seed in range(seeds):
        frequencies = counts[seed % len(counts)]
        table = CountMin(CountMinParameters(shape.width, shape.depth, seed)).update(keys, frequencies)
        second = CountMin(CountMinParameters(shape.width, shape.depth, seed)).update(keys, other)
        signed = FastAgms(FastAgmsParameters(shape.width, shape.depth, seed)).update(keys, frequencies)
        signed_second = FastAgms(FastAgmsParameters(shape.width, shape.depth, seed)).update(keys, other)
        moment, join = float((frequencies**2).sum()), float((frequencies * other).sum())
        cases: dict[str, float] = {
            name: _share_inside(table.point(keys, name), frequencies)
            for name in ("cm", "cmm_mean", "cmm_median", "cmm_order")
        }
        cases |= {
            "fast_agms": _share_inside(signed.point(keys), frequencies),
            "self_join_cm": _inside(table.self_join_size("cm"), moment),
            "self_join_cmm": _inside(table.self_join_size(), moment),
            "self_join_fast_agms": _inside(signed.self_join_size(), moment),
            "join_cmm": _inside(table.join_size(second), join),
            "join_fast_agms": _inside(signed.join_size(signed_second), join),
        }
        present = np.random.default_rng(seed).integers(0, 1 << 62, int((frequencies > 0).sum()))
        cases["distinct"] = _inside(Hll(8).update(present.tolist()).count(), float(present.size))
        if seed < ordered_seeds:
            cases |= _ordered_coverage(frequencies, seed)
            stream = shuffled_stream(frequencies, seed)
            careful = CountMin(CountMinParameters(shape.width, shape.depth, seed, conservative=True))
            cases["mi"] = _share_inside(careful.update(stream).point(keys), frequencies)
        for name, inside in cases.items():
            hits.setdefault(name, []).append(float(inside))
    say(f"Coverage of 95 % intervals over {seeds} hash functions (ranges, quantiles and MI: {ordered_seeds})")
    found = {}
    for name, inside_each in hits.items():
        found[f"sketches.interval_coverage_pct.{name}"] = 100 * float(np.mean(inside_each))
        say(f"{name:>22} {100 * np.mean(inside_each):7.2f} %")
    return found


def _ordered_coverage(frequencies: Integers, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    values = np.repeat(np.arange(frequencies.size, dtype=np.float64), frequencies)
    rng.shuffle(values)
    sketch = wrap_sketch(Kll(KllParameters(128)).update(values).compacted_to(128))
    low, high = np.sort(rng.integers(0, frequencies.size, 2))
    truth = float(frequencies[low : high + 1].sum())
    share = rng.uniform(0.05, 0.95)
    wanted = np.sort(values)[int(np.ceil(share * values.size)) - 1]
    return {
        "range": _inside(sketch.between(float(low), float(high)), truth),
        "quantile": _inside(sketch.quantile(share), float(wanted)),
    }
