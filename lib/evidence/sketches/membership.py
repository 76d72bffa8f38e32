"""Reproduce chapter 3: Figures 3.3 to 3.6 of the stable Bloom filter, next to theory and baselines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from evidence.book import Say
from evidence.sketches import stable_bloom_theory as theory
from evidence.sketches.bloom import Bloom, BloomParameters, optimal_hashes
from evidence.sketches.data_models import (
    b_model_stream,
    first_occurrences,
    gaps_between,
    poisson_stream,
    shuffled_stream,
    zipf_frequencies,
)
from evidence.sketches.fp_buffering import LruBuffer, with_false_positives
from evidence.sketches.stable_bloom import StableBloom, choose
from spillway.sketches.alternating_bloom import AlternatingBloom, parameters_of_memory
from spillway.sketches.types import Booleans, Keys

SPACES = (1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
ELEMENT_BITS = 32


def streams(size: int) -> dict[str, Keys]:
    """Return the data sets of Figure 3.6, and a crawl-like Zipf stream with the thesis's share of distinct elements."""
    return {
        "b_model_0.5_u1e3": b_model_stream(size, 0.1, 0.5, 6, 1e3, seed=1),
        "b_model_0.7_u1e3": b_model_stream(size, 0.1, 0.7, 6, 1e3, seed=1),
        "b_model_0.7_u1e6": b_model_stream(size, 0.1, 0.7, 6, 1e6, seed=1),
        "poisson_u1e6": poisson_stream(size, 0.5, 1e6, seed=1),
        "zipf_0.85": shuffled_stream(zipf_frequencies(size, size, 0.85, seed=1), seed=2),
    }


def stability(say: Say, size: int = 1 << 21) -> dict[str, float]:
    """Compute Figure 3.3: the share of zeros falls, faster in less space, and settles at the stable point."""
    say("Figure 3.3: share of zero cells over time (distinct elements; Max 1, K 2, P 5, FPS 10 %)")
    marks = [size >> shift for shift in (9, 6, 4, 2, 0)]
    say(f"{'bits':>9} " + " ".join(f"{mark:>9}" for mark in marks) + "    stable")
    worst = 0.0
    for space in SPACES[:4]:
        parameters = choose(space, 0.1)
        sketch = StableBloom(parameters)
        shares, taken = [], 0
        for mark in marks:
            sketch.observe(np.arange(taken, mark, dtype=np.uint64))
            taken = mark
            shares.append(sketch.zero_share())
        p = parameters
        stable = theory.stable_zero_share(p.cells, p.hashes, p.decrements, p.top)
        worst = max(worst, abs(shares[-1] - stable))
        say(f"{space:>9} " + " ".join(f"{share:9.4f}" for share in shares) + f" {stable:9.4f}")
    return {"sketches.sbf_stable_point_off_largest": worst}


def _rates(called: Booleans, new: Booleans) -> tuple[float, float]:
    return float(called[new].mean()), float(1.0 - called[~new].mean())


def errors(say: Say, size: int = 1 << 21) -> dict[str, float]:
    """Compute Figures 3.4 and 3.6: error rates of the filter, (FP-)buffering and a Bloom filter, in equal bits."""
    found: dict[str, float] = {}
    over_bound, off_theory, gains = 0.0, 0.0, []
    for name, keys in streams(size).items():
        new = first_occurrences(keys)
        gaps = gaps_between(keys)
        quantiles = [(float(gap), 1.0) for gap in np.quantile(gaps, (np.arange(50) + 0.5) / 50)]
        say(
            f"Figures 3.4 and 3.6: {name}, {size} elements, {100 * new.mean():.1f} % distinct "
            "(FP at most 10 %; rates in %)"
        )
        say(
            f"{'bits':>9} {'FPbuf FN':>9} {'SBF FN':>9} {'theory':>9} {'SBF FP':>9} {'buf FN':>9} {'BF FP':>9}"
        )
        for space in SPACES:
            parameters = choose(space, 0.1)
            p = parameters
            positive, negative = _rates(StableBloom(p).observe(keys), new)
            held = LruBuffer(space // ELEMENT_BITS).observe(keys)
            _, buffered = _rates(with_false_positives(held, positive, seed=3), new)
            _, missed = _rates(held, new)
            best = optimal_hashes(space, int(new.sum()))
            plain, _ = _rates(Bloom(BloomParameters(space, min(best, 10))).observe(keys), new)
            expected = theory.expected_false_negatives(quantiles, p.cells, p.hashes, p.decrements, p.top)
            say(
                f"{space:>9} "
                + " ".join(f"{100 * x:9.2f}" for x in (buffered, negative, expected, positive, missed, plain))
            )
            over_bound = max(over_bound, positive / p.false_positive_bound)
            off_theory = max(off_theory, abs(negative - expected))
            gains.append(100 * (buffered - negative))
            found[f"sketches.sbf_fn_minus_lru_points.{name}.{space}_bits"] = 100 * (negative - buffered)
            found[f"sketches.sbf_fp_pct.{name}.{space}_bits"] = 100 * positive
            found[f"sketches.sbf_fn_pct.{name}.{space}_bits"] = 100 * negative
    found["sketches.sbf_fp_over_bound"] = over_bound
    found["sketches.sbf_fn_off_theory_points_largest"] = 100 * off_theory
    found["sketches.sbf_fn_gain_points_largest"] = max(gains)
    found["sketches.sbf_fn_gain_points_smallest"] = min(gains)
    return found


def rates(say: Say, size: int = 1 << 20) -> dict[str, float]:
    """Compute Figure 3.5: the advantage over FP-buffering by the allowed share of false positives."""
    keys = streams(size)["zipf_0.85"]
    new = first_occurrences(keys)
    allowed = (0.005, 0.01, 0.1, 0.2)
    say("Figure 3.5: FN of FP-buffering less that of the filter, in points, by the FP rate allowed")
    say(f"{'bits':>9} " + " ".join(f"{100 * rate:8.1f}%" for rate in allowed))
    table = np.array([_gains(keys, new, space, allowed) for space in SPACES[:4]])
    for space, row in zip(SPACES[:4], table, strict=True):
        say(f"{space:>9} " + " ".join(f"{gain:9.2f}" for gain in row))
    return {
        f"sketches.sbf_fn_gain_points.fp_{100 * rate:g}_pct": float(gain)
        for rate, gain in zip(allowed, table.mean(axis=0), strict=True)
    }


def _gains(keys: Keys, new: Booleans, space: int, allowed: Iterable[float]) -> list[float]:
    held = LruBuffer(space // ELEMENT_BITS).observe(keys)
    gains = []
    for rate in allowed:
        positive, negative = _rates(StableBloom(choose(space, rate)).observe(keys), new)
        _, buffered = _rates(with_false_positives(held, positive, seed=3), new)
        gains.append(100 * (buffered - negative))
    return gains


def alternating_filters(
    say: Say, size: int = 1 << 19, spaces: Sequence[int] = (1 << 16, 1 << 18, 1 << 20)
) -> dict[str, float]:
    """Compare two alternating filters with the stable one, in equal bits, at no more false positives.

    The stable filter knows the gaps between repeats beforehand (3.4.1), or not, whichever serves it better, and may err
    as often as the other does, as measured: it is tuned until its false positives are no fewer.
    """
    say(
        f"Missed repeats (%) of {size:,} elements, equal bits; the stable filter may call no fewer new ones old"
    )
    say(f"{'stream':>18} {'bits':>9} {'FP':>6} {'turns':>7} {'stable':>7}")
    gains = []
    for name, keys in streams(size).items():
        new = first_occurrences(keys)
        known = [(float(gap), 1.0) for gap in np.quantile(gaps_between(keys), (np.arange(50) + 0.5) / 50)]
        for bits in spaces:
            for target in (0.01, 0.1):
                ours = AlternatingBloom(parameters_of_memory(bits, target)).observe(keys)
                positive, missed = _rates(ours, new)
                theirs = min(_best_stable(keys, new, bits, positive, gaps) for gaps in (None, known))
                gains.append(100 * (theirs - missed))
                say(f"{name:>18} {bits:>9} {100 * positive:6.2f} {100 * missed:7.2f} {100 * theirs:7.2f}")
    return {
        "sketches.repeats_missed_points_under_stable_bloom": float(np.mean(gains)),
        "sketches.repeats_missed_points_under_stable_bloom_smallest": min(gains),
        "sketches.repeats_settings": float(len(gains)),
        "sketches.repeats_settings_with_fewer_missed": float(sum(gain > 0 for gain in gains)),
    }


def _best_stable(
    keys: Keys, new: Booleans, bits: int, positive: float, gaps: Sequence[tuple[float, float]] | None
) -> float:
    """Return the share of repeats missed by a stable filter with at least `positive` measured false positives."""
    low, high, best = 1e-3, 0.6, 1.0
    for _ in range(8):
        middle = (low * high) ** 0.5
        found, missed = _rates(StableBloom(choose(bits, middle, gaps)).observe(keys), new)
        if found < positive:
            low = middle
        else:
            high, best = middle, missed
    return best
