"""Compute the figures of the sketches (Deng 2007), next to theory and baselines.

`sketch_figures()` runs everything in about a quarter of an hour on two cores; `scale` below 1 shrinks the streams for a
quick look.
"""

from __future__ import annotations

from evidence.book import Say
from evidence.sketches import coverage, frequency, membership, pairs, repeats
from evidence.torture import payloads

FUZZED = 100_000


def sketch_figures(say: Say = print, scale: float = 1.0) -> dict[str, float]:
    """Return every figure of the sketches by name; `say` gets the printed tables."""
    elements = max(int((1 << 21) * scale), 1 << 16)
    records = max(int(200_000 * scale), 4_000)
    found: dict[str, float] = {}
    found |= membership.stability(say, elements)
    found |= membership.errors(say, elements)
    found |= membership.rates(say, elements // 2)
    found |= membership.alternating_filters(say, elements // 4)
    found |= repeats.confirm_repeats(say, max(int(400_000 * scale), 40_000))
    found |= frequency.multiplicity(say)
    found |= frequency.sums(say, max(int(30 * scale), 5))
    found |= frequency.over_datasketches(say)
    found |= frequency.self_joins(say)
    found |= frequency.skews(say)
    found |= frequency.interval_coverage(say, max(int(1000 * scale), 30))
    found |= pairs.offline_errors(say, records)
    found |= pairs.online_errors(say, records)
    found |= pairs.pair_coverage(say, seeds=max(int(200 * scale), 20))
    found |= coverage.cells(say, max(int(coverage.QUESTIONS * scale), 100))
    found |= fuzz_payloads(say, max(int(FUZZED * scale), 1_000))
    return found


def fuzz_payloads(say: Say, inputs: int) -> dict[str, float]:
    """Change payloads; each must be read, or rejected with one named error."""
    became = payloads.outcomes(inputs, seed=1)
    unhandled = sum(count for name, count in became.items() if name not in ("read", "refused"))
    say(f"{sum(became.values()):,} payloads with something changed: {dict(became)}")
    return {"sketches.fuzz_inputs": float(sum(became.values())), "sketches.fuzz_unhandled": float(unhandled)}


if __name__ == "__main__":
    for name, value in sketch_figures().items():
        print(f"{name} = {value:.6g}")
