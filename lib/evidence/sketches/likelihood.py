"""Compare Ting's estimators of count-min: maximum likelihood and the optimal equivariant estimate.

Ting, "Count-Min: Optimal Estimation and Tight Error Bounds using Empirical Error Distributions", KDD 2018 (arXiv
1811.04150): the counters that a key does not touch are draws of the noise, so the noise has a known density g, and the
frequency f of a key with counters C_1..C_d is the location of d draws. The likelihood is prod_i g(C_i - f);
`maximum_likelihood` takes its largest value, `pitman` its mean over f with a flat prior on f >= 0, which has the least
mean square error of all estimators that shift with the counters (Pitman 1939).

g is a histogram of the counters smoothed by a normal kernel (Silverman's width, half a count at least). Its tail falls
with the square of the distance, so that no frequency has likelihood 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evidence.book import Say
from evidence.sketches.data_models import zipf_frequencies
from spillway.sketches.count_min import CountMin, CountMinParameters
from spillway.sketches.types import Floats, Integers, Keys

_CANDIDATES = 400
_BINS = 20_000
_AT_ONCE = 5_000
SKEWS = (0.8, 1.0, 1.2, 1.6, 2.0)
ESTIMATORS = ("cmm_mean", "cmm_order", "any", "maximum_likelihood", "pitman")


def log_density(counters: Integers) -> Callable[[Floats], Floats]:
    """Return the logarithm of the density of the noise, as the counters show it."""
    values = np.sort(counters.ravel().astype(np.float64))
    low, high = np.quantile(values, [0.25, 0.75])
    spread = min(float(values.std()), float(high - low) / 1.34) or float(values.std()) or 1.0
    width = max(0.9 * spread * values.size**-0.2, 0.5)
    first = int(values[0] - 4 * width - 1)
    last = int(np.quantile(values, 0.999) + 4 * width + 2)
    step = max(1, (last - first) // _BINS)
    counts, _ = np.histogram(values, np.arange(first, last + 2 * step, step))
    reach = int(4 * width / step) + 1
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * step / width) ** 2)
    smooth = np.convolve(counts, kernel / kernel.sum(), "same") / values.size / step

    def of(noise: Floats) -> Floats:
        place = ((noise - first) // step).astype(np.int64)
        inside = np.where(
            (place >= 0) & (place < smooth.size), smooth[np.clip(place, 0, smooth.size - 1)], 0.0
        )
        tail = 0.01 / (values.size * (1 + np.abs(noise)) * (1 + np.abs(noise) / max(1, last)))
        found: Floats = np.log(inside + tail)
        return found

    return of


def likelihood_estimates(table: CountMin, keys: Keys) -> dict[str, Floats]:
    """Return both estimates of each key, over candidates between 0 and its least counter."""
    touched = table._touched(keys).astype(np.float64)
    density, noise = log_density(table.table), table._noise_of("cm")
    least = touched.min(axis=0)
    lowest = float(table.table.min())
    steps = np.unique(np.linspace(lowest, max(noise.quantile(1, 0.9999), lowest + 1), _CANDIDATES).round())
    found = {name: np.zeros(least.size) for name in ("maximum_likelihood", "pitman")}
    for start in range(0, least.size, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        candidates = least[part, None] - steps[None, :]
        possible, candidates = candidates >= 0, np.maximum(candidates, 0.0)
        logs = np.zeros(candidates.shape)
        for row in touched:
            logs += density(row[part, None] - candidates)
        best = np.argmax(logs, axis=1)
        found["maximum_likelihood"][part] = candidates[np.arange(best.size), best]
        weights = np.where(possible, np.exp(logs - logs.max(axis=1, keepdims=True)), 0.0)
        whole = weights.sum(axis=1)
        found["pitman"][part] = (weights * candidates).sum(axis=1) / np.where(whole > 0, whole, 1.0)
    return found


def point_errors(
    frequencies: Integers, asked: Integers, width: int, depth: int, seeds: range
) -> dict[str, float]:
    """Return the mean absolute error over the keys `asked`, by estimator."""
    total = dict.fromkeys(ESTIMATORS, 0.0)
    for seed in seeds:
        keys = np.random.default_rng(seed).integers(0, 1 << 63, frequencies.size).astype(np.uint64)
        parameters = CountMinParameters(width, depth, seed, hashing="spark")
        table = CountMin(parameters).update(keys, frequencies)
        answers = {name: table.point(keys[asked], name).estimate for name in ("cmm_mean", "cmm_order")}
        answers["any"] = table.point(keys[asked], purpose="any").estimate
        answers |= likelihood_estimates(table, keys[asked])
        for name, answer in answers.items():
            total[name] += float(np.abs(answer - frequencies[asked]).mean()) / len(seeds)
    return total


def likelihoods(say: Say, seeds: int = 3, rows: int = 1_000_000, domain: int = 50_000) -> dict[str, float]:
    """Compare Ting's estimators with ours in the default table of 64 KiB, for frequent keys and for all keys."""
    found: dict[str, float] = {}
    head = " ".join(f"{name:>18}" for name in ESTIMATORS)
    streams = {skew: zipf_frequencies(rows, domain, skew, 1) for skew in SKEWS}
    for what, purpose, limit in (("top100", "cmm_order", 100), ("all", "any", None)):
        say(f"Ting 2018, mean absolute error of {what} keys that occur, w 1638, d 5\n     skew {head}")
        for skew, drawn in streams.items():
            frequencies = drawn[drawn > 0]
            asked = np.argsort(-frequencies, kind="stable")[:limit]
            errors = point_errors(frequencies, asked, 1638, 5, range(1, seeds + 1))
            say(f"{skew:9.1f} " + " ".join(f"{errors[name]:18.3f}" for name in ESTIMATORS))
            for name in ("maximum_likelihood", "pitman"):
                if errors[purpose]:
                    place = f"sketches.ting_{name}_over_ours_error.{what}.{skew:g}"
                    found[place] = errors[name] / errors[purpose]
    return found
