"""What knowing the worth of types of rows adds (Figures 16 and 17), over the same join that does not know it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evidence.book import Book
from evidence.joins.driver import Joined, overlap, run_join
from evidence.joins.gains import CAPACITY, WARM, budget_of
from evidence.joins.workload import PaperStreams, steady

SECONDS, RATE = 45.0, 500.0
WORTH_SKEWS = (1.0, 2.0, 3.0)


def utilities(book: Book, seeds: int) -> dict[str, float]:
    """Figures 16 and 17: utility with types over without, by skew of utility, how frequent types are, how many."""
    found: dict[str, float] = {}
    rows = []
    for how in ("uniform", "inverse", "direct"):
        for skew in WORTH_SKEWS:
            name, worth = f"{how}_skew_{skew:g}", 1.0 / np.arange(1, 4) ** skew
            gains = [_utility_gain(worth, how, seed) for seed in range(seeds)]
            found[f"joins.utility_gain_pct.{name}"] = float(np.mean(gains))
            rows.append((f"3 types, {how} to utility, skew {skew:g}", float(np.mean(gains)), min(gains)))
    for times in (2.0, 10.0):
        for types in (2, 8, 32):
            worth = 1.0 / np.arange(1, types + 1) ** (np.log(times) / np.log(types))
            gains = [_utility_gain(worth, "inverse", seed) for seed in range(max(1, seeds // 2))]
            found[f"joins.utility_gain_pct.types_{types}_{times:g}_times"] = float(np.mean(gains))
            rows.append(
                (
                    f"{types} types, the best worth {times:g} times the least",
                    float(np.mean(gains)),
                    min(gains),
                )
            )
    book.table(
        "Utility with types over without (Figures 16 and 17)",
        ("types", "gain %", "least of the seeds %"),
        rows,
        notes=[
            f"Means of {seeds} seeds, windows full. The paper: most where frequent types are the cheap ones, more the "
            "more utilities differ, flat where frequent types are the dear ones; with more types first less, then flat."
        ],
    )
    return found


def _utility_gain(worth: np.ndarray, how: str, seed: int) -> float:
    shares = {"uniform": np.ones(len(worth)), "inverse": 1 / worth, "direct": worth}[how]
    shares = shares / shares.sum()
    streams = PaperStreams(
        rates=steady(RATE, SECONDS), types=len(worth), type_shares=tuple(float(x) for x in shares)
    )
    left, right = streams.both(seed)
    types = [{"name": f"t{i}", "worth": float(value)} for i, value in enumerate(worth)]
    side = {"type": "kind"}
    aware = overlap(20, False, budget=budget_of(CAPACITY), types=types, otherwise=0.0, side=side)
    # the same accounting, but every type is believed to be worth the same
    blind = overlap(20, False, budget=budget_of(CAPACITY))
    ours = run_join(left, right, aware, 0, SECONDS)
    even = tuple(replace(one, kinds=np.zeros_like(one.kinds)) for one in (left, right))
    other = run_join(even[0], even[1], blind, 0, SECONDS, keep_pairs=True)
    theirs = sum(
        max(worth[left.kinds[i]], worth[right.kinds[j]])
        for one in other.outcomes[WARM:]
        for i, j in one.pairs or ()
    )
    return float(100 * (Joined(ours.outcomes[WARM:]).sum("utility") / theirs - 1))
