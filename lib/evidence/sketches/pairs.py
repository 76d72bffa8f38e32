"""Reproduce chapter 5: Tables 5.1 to 5.7 of PairCount, on generated titles with known near-copies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evidence.book import Say
from evidence.sketches.data_models import titles
from spillway.sketches.min_hash import min_hash
from spillway.sketches.pair_count import PairCount, PairCountParameters
from spillway.sketches.types import Keys

NEAR_COPIES, SERIES = 0.1, 0.05


def vectors(count: int, attributes: int = 6, seed: int = 1) -> Keys:
    """Return `count` titles, some of them near-copies or of a series, as min-hash vectors."""
    tokens, ends = titles(count, NEAR_COPIES, SERIES, seed)
    return min_hash(tokens, ends, attributes, seed)


def pair_sketch(
    records: Keys, similarity: int, rate: float, seed: int, width: int = 0, depth: int = 3
) -> PairCount:
    parameters = PairCountParameters(records.shape[1], similarity, rate, seed, width=width, depth=depth)
    return PairCount(parameters).update(records, np.arange(records.shape[0]))


def true_pairs(records: Keys, similarity: int) -> dict[int, float]:
    """Return the ordered pairs that agree in exactly k attributes: PairCount at r = 1 is exact."""
    return pair_sketch(records, similarity, 1.0, 0).by_similarity()


def _percent(estimate: float, truth: float) -> float:
    return 100.0 * (estimate - truth) / truth if truth else math.nan


def offline_errors(say: Say, size: int = 200_000) -> dict[str, float]:
    """Compute Tables 5.1 to 5.4: relative errors by similarity, size, rate and attributes; r = 0.5 unless stated."""
    records = vectors(size)
    truth = true_pairs(records, 1)
    estimate = pair_sketch(records, 1, 0.5, 1).by_similarity()
    say(f"Table 5.1: ordered pairs of {size} titles, d 6, r 0.5 (k = 6 without self pairs, ERRATA E12)")
    say("   k         truth      estimate    error %")
    worst = 0.0
    for k in range(6, 0, -1):
        error = _percent(estimate[k], truth[k])
        worst = max(worst, abs(error))
        say(f"{k:4d} {truth[k]:13.0f} {estimate[k]:13.0f} {error:10.3f}")
    found = {"sketches.paircount_offline_error_pct_largest": worst}
    say("Table 5.2: the same by size, pairs agreeing in exactly 4 of 6")
    for part in (size // 8, size // 4, size // 2, size):
        exact, about = (
            true_pairs(records[:part], 4)[4],
            pair_sketch(records[:part], 4, 0.5, 1).by_similarity()[4],
        )
        say(f"{part:8d} {exact:13.0f} {_percent(about, exact):10.2f} %")
    part = size // 2
    exact_half = true_pairs(records[:part], 3)
    say(f"Table 5.3: the same by rate, {part} titles\n    r        k=5        k=4        k=3")
    for rate in (0.75, 0.5, 0.25):
        about_half = pair_sketch(records[:part], 3, rate, 1).by_similarity()
        row = [_percent(about_half[k], exact_half[k]) for k in (5, 4, 3)]
        say(f"{rate:5.2f} " + " ".join(f"{error:10.2f}" for error in row))
        found[f"sketches.paircount_error_pct.rate_{rate:g}"] = float(np.mean(np.abs(row)))
    say(f"Table 5.4: the same by attributes, 0.8 d of d agreeing, {size // 4} titles")
    for attributes in (8, 7, 6, 5, 4):
        similarity = round(0.8 * attributes)
        wide = vectors(size // 4, attributes)
        exact_pairs = sum(true_pairs(wide, similarity).values())
        about_pairs = sum(pair_sketch(wide, similarity, 0.5, 1).by_similarity().values())
        say(f"{attributes:5d} {exact_pairs:13.0f} {_percent(about_pairs, exact_pairs):10.2f} %")
    return found


def sampled_pairs(records: Keys, similarity: int, size: int, seed: int) -> float:
    """Estimate by random sampling (5.2.3): the sample's pairs times n (n - 1) / R (R - 1)."""
    n = records.shape[0]
    chosen = records[np.random.default_rng(seed).choice(n, size, replace=False)]
    # counted column by column, so that no R x R x d array is needed
    agree = np.zeros((size, size), dtype=np.int8)
    for column in chosen.T:
        agree += column[:, None] == column[None, :]
    np.fill_diagonal(agree, 0)
    return float((agree >= similarity).sum()) * n * (n - 1) / (size * (size - 1))


def online_errors(say: Say, size: int = 200_000, seeds: int = 6) -> dict[str, float]:
    """Tables 5.5 to 5.7: 1000 x 3 counters a stream against a sample of 750 records, both 36,000 bytes
    as allocated: counters of 4 bytes in 3 streams, and records of 6 hashes of 8 bytes (keys, not the titles).

    The thesis draws half of the subsets (r = 0.5). Online that saves time, not space, and costs accuracy: the sketch's
    error grows with Y_k, which the l_k n self pairs dominate, and is divided by r^2. So r = 1 is ours.
    """
    records = vectors(size)
    tables: list[Any] = list(pair_sketch(records[:9], 4, 1.0, 0, 1000).streams.values())
    allocated = sum(stream.counter.table.nbytes for stream in tables)
    held = allocated // records[0].nbytes
    say(f"Tables 5.5 to 5.7: online, w 1000, d 3, against random samples of {held} records (errors in %)")
    say("    size   at least         truth      r 0.5        r 1   sampling   (root mean square over seeds)")
    squares: dict[str, list[float]] = {"half": [], "all": [], "sampling": []}
    for part in (size // 2, size):
        exact = true_pairs(records[:part], 4)
        sketches = {
            name: [
                pair_sketch(records[:part], 4, rate, seed, width=1000).by_similarity()
                for seed in range(seeds)
            ]
            for name, rate in (("half", 0.5), ("all", 1.0))
        }
        for similarity in (6, 5, 4):
            truth = sum(value for k, value in exact.items() if k >= similarity)
            errors = {
                name: [_percent(sum(x[k] for k in x if k >= similarity), truth) for x in found]
                for name, found in sketches.items()
            }
            errors["sampling"] = [
                _percent(sampled_pairs(records[:part], similarity, held, seed), truth)
                for seed in range(4 * seeds)
            ]
            row = {name: float(np.sqrt(np.mean(np.square(each)))) for name, each in errors.items()}
            say(f"{part:8d} {similarity:10d} {truth:13.0f} " + " ".join(f"{row[n]:10.2f}" for n in squares))
            for name in squares:
                squares[name].append(row[name])
    half, whole, sampling = (float(np.mean(squares[name])) for name in ("half", "all", "sampling"))
    return {
        "sketches.paircount_online_error_pct": whole,
        "sketches.paircount_online_error_pct.rate_0.5": half,
        "sketches.paircount_sampling_error_pct": sampling,
        "sketches.paircount_over_sampling_error": whole / sampling,
        "sketches.paircount_over_sampling_error_equal_bytes": whole / sampling,
        "sketches.paircount_over_sampling_error.rate_0.5": half / sampling,
    }


def pair_coverage(say: Say, size: int = 10_000, seeds: int = 200) -> dict[str, float]:
    """Return how often the truth is within two standard deviations, by the theorems and by Y_k."""
    records = vectors(size)
    truth = sum(true_pairs(records, 4).values())
    within: dict[str, list[bool]] = {"theorem": [], "computed": []}
    unbiased = []
    for seed in range(seeds):
        sketch = pair_sketch(records, 4, 0.5, seed, width=1000 if seed % 2 else 0)
        estimate = sum(sketch.by_similarity().values())
        answer = sketch.pairs(4, confidence=0.9545)
        within["theorem"].append(abs(estimate - truth) <= 2 * sketch.theorem_stddev())
        within["computed"].append(answer.low <= truth / 2 <= answer.high)
        if not seed % 2:
            unbiased.append(estimate / truth - 1.0)
    say(f"PairCount within two standard deviations, {seeds} seeds, offline and online in turn:")
    for name, hits in within.items():
        say(f"{name:>22} {100 * np.mean(hits):7.2f} %")
    return {
        "sketches.paircount_within_two_sigma_pct": 100 * float(np.mean(within["theorem"])),
        "sketches.paircount_within_two_computed_sigma_pct": 100 * float(np.mean(within["computed"])),
        "sketches.paircount_offline_bias_pct": 100 * float(np.mean(unbiased)),
    }
