"""Measure the gain of knowing the utility of row types (Figures 16 and 17), over the same join without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evidence.book import Book
from evidence.joins.driver import ADAPTS, JoinRun, overlap, run_join, with_own_counts
from evidence.joins.gains import CAPACITY, WARM, budget_of
from evidence.joins.workload import Numbers, PaperStreams, constant_rate

SECONDS, RATE = 45.0, 500.0
WORTH_SKEWS = (1.0, 2.0, 3.0)


def utilities(book: Book, seeds: int) -> dict[str, float]:
    """Compute Figures 16 and 17: utility with types over without, by skew, frequency and number of types."""
    found: dict[str, float] = {}
    rows = []
    matches = _matches()
    cases = [
        (
            f"{how}_skew_{skew:g}",
            f"3 types, {how} to utility, skew {skew:g}",
            1.0 / np.arange(1, 4) ** skew,
            how,
        )
        for how in ("uniform", "inverse", "direct")
        for skew in WORTH_SKEWS
    ] + [
        (
            f"types_{types}_{times:g}_times",
            f"{types} types, the best worth {times:g} times the least",
            1.0 / np.arange(1, types + 1) ** (np.log(times) / np.log(types)),
            "inverse",
        )
        for times in (2.0, 10.0)
        for types in (2, 8, 32)
    ]
    for name, told, worth, how in cases:
        few = max(1, seeds // 2) if name.startswith("types") else seeds
        gains = [_utility_gain(worth, how, seed) for seed in range(few)]
        possible = possible_gain(*matches, worth, _shares(worth, how))
        found[f"joins.utility_gain_pct.{name}"] = float(np.mean(gains))
        found[f"joins.utility_gain_possible_pct.{name}"] = possible
        rows.append((told, float(np.mean(gains)), min(gains), possible))
    book.table(
        "Utility with types over without (Figures 16 and 17)",
        ("types", "gain %", "least of the seeds %", "possible %"),
        rows,
        notes=[
            "Possible: what the best allocation by the true curve and true frequencies adds, nothing to be learned. "
            "Where frequent types are the dear ones, more skew leaves less of it: a pair is worth the better of its "
            "rows, and most rows are of the best type then. It is no bound: the join that does not know types "
            "is not the best either, and may lose more where it errs.",
            f"Means of {seeds} seeds, windows full. The paper: most where frequent types are the cheap ones, more the "
            "more utilities differ, flat where frequent types are the dear ones; of more types first less, then flat.",
        ],
    )
    return found


def _shares(worth: Numbers, how: str) -> Numbers:
    """Return the frequencies of types, by their utility."""
    shares = {"uniform": np.ones(len(worth)), "inverse": 1 / worth, "direct": worth}[how]
    found: Numbers = shares / shares.sum()
    return found


def _matches() -> tuple[Numbers, Numbers]:
    """Return, by basic window, pairs per comparison and the number of comparisons; independent of types."""
    left, right = PaperStreams(rates=constant_rate(RATE, SECONDS)).both(0)
    fast = overlap(20, True, adapt={"memory": 0.0})
    whole = with_own_counts(run_join(left, right, fast, 0, SECONDS), 0.0).outcomes[WARM:]
    pairs, volumes = (sum(one.row[name] for one in whole) for name in ("own_matches", "own_volumes"))
    return pairs / np.maximum(volumes, 1e-12), volumes / len(whole)


def possible_gain(curve: Numbers, volumes: Numbers, worth: Numbers, shares: Numbers) -> float:
    """Return the gain in % of the best choice by basic windows and types, over the best by basic windows alone.

    >>> flat, volumes = np.ones(2), np.full(2, CAPACITY * ADAPTS)
    >>> possible_gain(flat, volumes, np.ones(3), np.full(3, 1 / 3))
    0.0
    >>> round(possible_gain(flat, volumes, np.array([1.0, 0.0]), np.array([0.5, 0.5])), 1)
    33.3
    """
    u = np.maximum.outer(worth, worth) @ shares
    blind = _filled(volumes, curve * float(shares @ u))
    aware = _filled(np.outer(volumes, shares).ravel(), np.outer(curve, u).ravel())
    return 100.0 * (aware / blind - 1.0)


def _filled(volumes: Numbers, values: Numbers) -> float:
    """Return the yield of a window's comparisons, the best first."""
    order = np.argsort(-values, kind="stable")
    before = np.cumsum(volumes[order]) - volumes[order]
    used = np.clip(CAPACITY * ADAPTS - before, 0.0, volumes[order])
    return float(used @ values[order])


def _utility_gain(worth: Numbers, how: str, seed: int) -> float:
    shares = _shares(worth, how)
    streams = PaperStreams(
        rates=constant_rate(RATE, SECONDS), types=len(worth), type_shares=tuple(float(x) for x in shares)
    )
    left, right = streams.both(seed)
    types = [{"name": f"t{i}", "utility": float(value)} for i, value in enumerate(worth)]
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
    return float(100 * (JoinRun(ours.outcomes[WARM:]).sum("utility") / theirs - 1))
