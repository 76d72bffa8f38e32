"""What may never happen, and what is said of what was missed: false pairs, full joins that differ, coverage."""

from __future__ import annotations

from typing import Any

import numpy as np

from evidence.book import Book
from evidence.joins.driver import everything, join_settings, overlap, run_join
from evidence.joins.workload import MICROS, PaperStreams, steady
from spillway.levers.joins.operands import Operand

TIGHT = {"comparisons_per_second": 10_000.0}
"""A seventh of what everything takes; a sample of two or three rows a window."""


def coverage(book: Book, seeds: int) -> dict[str, float]:
    """How often the 95 % interval of missed pairs holds what was missed, over so many workloads; and how wide it is."""
    held, widths, windows, edges = 0, [], 0, {"below": 0, "above": 0}
    streams = PaperStreams(window_seconds=10.0, rates=steady(60, 30))
    fast = overlap(10, True, threshold=2, budget=None)
    for seed in range(seeds):
        left, right = streams.both(seed)
        whole = run_join(left, right, fast, 0, 30)
        ours = run_join(left, right, overlap(10, False, threshold=2, budget=TIGHT), 0, 30)
        # the first two windows are not full; the others are judged all alike
        for full, mine in zip(whole.outcomes[2:], ours.outcomes[2:], strict=True):
            missed = full.row["pairs"] - mine.row["pairs"]
            low, high = mine.row["missed_low"], mine.row["missed_high"]
            held += low <= missed <= high
            edges["below"] += missed < low
            edges["above"] += missed > high
            windows += 1
            if missed:
                widths.append((high - low) / missed)
    found = {
        "joins.missed_pairs_coverage_pct": 100.0 * held / windows,
        "joins.missed_pairs_width_over_missed": float(np.median(widths)),
        "joins.missed_pairs_truth_below_pct": 100.0 * edges["below"] / windows,
        "joins.missed_pairs_truth_above_pct": 100.0 * edges["above"] / windows,
        "joins.missed_pairs_coverage_seeds": seeds,
    }
    book.table("Missed pairs: what the 95 % intervals hold", ("figure", "value"), list(found.items()))
    return found


PREDICATES_TRIED: dict[str, dict[str, Any]] = {
    "equality": {},
    "subset": {"sets": {}},
    "superset": {"sets": {}},
    "overlap": {"sets": {}, "threshold": 2},
    "inner_product": {"sets": {"weight": ":"}, "threshold": 2},
}


def against_an_oracle(book: Book, seeds: int) -> dict[str, float]:
    """Pairs that the full join has not, and pairs by which r = 1 differs from it, by comparing sets of Python."""
    false, differs, compared = 0, 0, 0
    for seed in range(seeds):
        for name, more in PREDICATES_TRIED.items():
            wide = 20 if name != "equality" else 60
            streams = PaperStreams(
                items=wide,
                mean_items=1.0 if name == "equality" else 3.0,
                window_seconds=6.0,
                rates=steady(12, 20),
            )
            left, right = streams.both(seed)
            side = {"attribute": "x", "lasts_seconds": 6}
            truth = _oracle(left, right, name, 6.0, float(more.get("threshold", 0)))
            for index in (True, False):
                settings = join_settings(
                    left=side,
                    right=side,
                    predicate=name,
                    index=index,
                    budget={"comparisons_per_second": 400},
                    **more,
                )
                ours = run_join(left, right, settings, 0, 20, keep_pairs=True).pairs
                whole = run_join(left, right, everything(settings), 0, 20, keep_pairs=True).pairs
                false += len(ours - truth)
                differs += len(whole ^ truth)
                compared += len(truth)
    book.table(
        "Against an oracle, five predicates, with an index and without",
        ("figure", "value"),
        [
            ("pairs of the oracle", compared),
            ("false pairs", false),
            ("pairs by which r = 1 differs", differs),
        ],
    )
    return {"joins.false_pairs": false, "joins.full_join_differs": differs}


def _oracle(
    left: Operand, right: Operand, predicate: str, lasts: float, threshold: float
) -> set[tuple[int, int]]:
    sets = [
        [set(one.sets.items[one.sets.first[k] : one.sets.first[k + 1]].tolist()) for k in range(one.rows)]
        for one in (left, right)
    ]
    found = set()
    for i in range(left.rows):
        for j in range(right.rows):
            if abs(int(left.at[i]) - int(right.at[j])) > lasts * MICROS:
                continue
            a, b = sets[0][i], sets[1][j]
            met = {
                "equality": a == b,
                "subset": a <= b,
                "superset": a >= b,
                "overlap": len(a & b) >= threshold,
                "inner_product": len(a & b) >= threshold,
            }[predicate]
            if met and a and b:
                found.add((int(left.seq[i]), int(right.seq[j])))
    return found
