"""The sketches' tables and figures (Deng 2007), ours beside theory and baselines; returns flat figures.

`sketch_figures()` runs everything in a few minutes on two cores; `scale` below 1 shrinks the streams for a quick look.
"""

from __future__ import annotations

from evidence.book import Say
from evidence.sketches import frequency, membership, pairs


def sketch_figures(say: Say = print, scale: float = 1.0) -> dict[str, float]:
    """Every figure of the sketches, flat, names with units; `say` gets the printed tables."""
    elements = max(int((1 << 21) * scale), 1 << 16)
    records = max(int(200_000 * scale), 4_000)
    found: dict[str, float] = {}
    found |= membership.stability(say, elements)
    found |= membership.errors(say, elements)
    found |= membership.rates(say, elements // 2)
    found |= frequency.multiplicity(say)
    found |= frequency.self_joins(say)
    found |= frequency.skews(say)
    found |= frequency.interval_coverage(say, max(int(1000 * scale), 30))
    found |= pairs.offline(say, records)
    found |= pairs.online(say, records)
    found |= pairs.pair_coverage(say, seeds=max(int(200 * scale), 20))
    return found


if __name__ == "__main__":
    for name, value in sketch_figures().items():
        print(f"{name} = {value:.6g}")
