"""Reproduce Figures 7 to 14: drop rates, the gain of each adaptation, skew, windows, and basic windows."""

from __future__ import annotations

from evidence.book import Book
from evidence.joins.driver import (
    ADAPTS,
    join_with_random_drops,
    operand_window,
    overlap,
    run_join,
    sample_both,
)
from evidence.joins.gains import CAPACITY, KEPT_STEPS, budget_of, pairs_between
from evidence.joins.workload import PaperStreams, constant_rate
from spillway.levers.joins.directions import build_direction
from spillway.levers.joins.exploration import LearnedSide
from spillway.levers.joins.operands import Operand
from spillway.levers.joins.settings import JoinSettings


def drop_rates(book: Book) -> dict[str, float]:
    """Compute Figure 7: rows that a core must drop to keep up, by window and rate, with an index and without."""
    found: dict[str, float] = {}
    rows = []
    for index in (False, True):
        for rate in (50, 100):
            for window in (25, 125, 625):
                streams = PaperStreams(
                    window_seconds=float(window), rates=constant_rate(rate, window + ADAPTS)
                )
                left, right = streams.both(0)
                settings = overlap(window, index, basic=max(1.0, window / 20))
                low, high = 0.0, 1.0
                for _ in range(8 if _steps(left, right, settings) > CAPACITY * ADAPTS else 0):
                    middle = (low + high) / 2
                    taken = _steps(*sample_both(left, right, middle, 0), settings)
                    low, high = (middle, high) if taken <= CAPACITY * ADAPTS else (low, middle)
                name = "indexed" if index else "plain"
                dropped = 100.0 * (1.0 - (low if low else 1.0))
                found[f"joins.rows_to_drop_pct.{name}_{rate}_rows_{window}_s"] = dropped
                rows.append((name, rate, window, dropped))
    book.table(
        "Rows that have to be dropped (Figure 7)",
        ("join", "rows a second", "window, s", "dropped %"),
        rows,
        notes=[
            "Within 900,000 steps a second. The paper's machine: a half at 50 rows and 125 s without an index."
        ],
    )
    return found


def _steps(left: Operand, right: Operand, settings: JoinSettings) -> float:
    """Return the steps of all comparisons in the window after both are full."""
    lasts = settings.left.lasts_seconds
    given = [operand_window(one, 0.0, lasts, lasts + ADAPTS) for one in (left, right)]
    learned = LearnedSide()
    return sum(
        build_direction(given[1 - side], given[side], settings, learned, (1.0,), side == 1).whole_steps
        for side in (0, 1)
    )


def rate_by_window(book: Book) -> dict[str, float]:
    """Compute Figure 10: the gain of rate adaptation alone, averaged over the changing rates, by skew and window."""
    found: dict[str, float] = {}
    rows = []
    for kappa in (0.4, 0.8):
        for window in (10.0, 20.0, 30.0):
            streams = PaperStreams(kappa=kappa, peak=0.0, window_seconds=window)
            left, right = streams.both(0)
            way = {"rate": "followed", "correlation": False, "direction": "none"}
            ours = run_join(
                left,
                right,
                overlap(window, False, budget=budget_of(CAPACITY / 2), adapt=way),
                0,
                streams.seconds,
            )
            rival, _ = join_with_random_drops(left, right, overlap(window, True), ours, 0)
            gain = 100 * (ours.sum("pairs") / rival.sum("pairs") - 1)
            found[f"joins.rate_adaptation_by_window_pct.kappa_{kappa:g}_{window:g}_s"] = gain
            rows.append((kappa, window, gain))
    book.table(
        "Rate adaptation by skew and window, streams aligned (Figure 10)",
        ("kappa", "window, s", "gain %"),
        rows,
        notes=["The paper: more with skew, and more with larger windows."],
    )
    return found


def adaptations(book: Book) -> dict[str, float]:
    """Compute Figures 8, 9, 11 and 12: the gain of each adaptation while the rates change."""
    found: dict[str, float] = {}
    ways = {
        "rate": {"rate": "followed", "correlation": False, "direction": "none"},
        "direction_alone": {"rate": "followed", "correlation": False, "direction": "whole"},
        "correlation": {"rate": "followed", "correlation": True, "direction": "none"},
        "direction": {"rate": "followed", "correlation": True, "direction": "whole"},
        "each": {"rate": "followed", "correlation": True, "direction": "each"},
        "counted": {"rate": "counted", "correlation": True, "direction": "each"},
    }
    rows = []
    steps = (
        ("direction_alone", "rate"),
        ("correlation", "rate"),
        ("direction", "correlation"),
        ("each", "direction"),
        ("counted", "each"),
    )
    for kappa in (0.6, 0.8):
        aligned = PaperStreams(kappa=kappa, peak=0.0)
        left, right = aligned.both(0)
        settings = overlap(20, False, budget=budget_of(CAPACITY), adapt=ways["rate"])
        ours = run_join(left, right, settings, 0, aligned.seconds)
        rival, _ = join_with_random_drops(left, right, overlap(20, True), ours, 0)
        for rate, (low, high) in {500: (60, 75), 300: (75, 105)}.items():
            gain = 100 * (pairs_between(ours, low, high) / pairs_between(rival, low, high) - 1)
            found[f"joins.rate_adaptation_gain_pct.at_{rate}_kappa_{kappa:g}"] = gain
            rows.append((f"rate, aligned, {rate} rows/s, kappa {kappa:g}", gain))
        streams = PaperStreams(kappa=kappa)
        left, right = streams.both(0)
        runs = {
            name: run_join(
                left, right, overlap(20, False, budget=budget_of(CAPACITY), adapt=way), 0, streams.seconds
            )
            for name, way in ways.items()
        }
        for name, before in steps:
            gain = 100 * (pairs_between(runs[name], 60, 105) / pairs_between(runs[before], 60, 105) - 1)
            found[f"joins.{name}_adds_pct.kappa_{kappa:g}"] = gain
            rows.append((f"{name} over {before}, 500 and 300 rows/s, kappa {kappa:g}", gain))
        gain = 100 * (pairs_between(runs["direction"], 60, 105) / pairs_between(runs["rate"], 60, 105) - 1)
        found[f"joins.correlation_and_direction_add_pct.kappa_{kappa:g}"] = gain
        rows.append((f"correlation and direction over rate, kappa {kappa:g}", gain))
        if kappa == 0.8:
            book.table(
                "Fractions while rates change (Figures 8 and 11)",
                ("second", "rows", "r", "r_1", "r_2", "passed over"),
                [
                    (
                        one.begin, one.row["left_rows"] + one.row["right_rows"], one.row["r"],
                        one.row["left_shares"][0], one.row["right_shares"][0], one.row["passed_over"],
                    )
                    for one in runs["direction"].outcomes
                ],
            )  # fmt: skip
    book.table(
        "What each adaptation adds (Figures 9 and 12)",
        ("adaptation", "gain %"),
        rows,
        notes=[
            "The paper: rate +100 % at 500, +50 % at 300 (aligned); correlation +50 %, direction +40 % more, together "
            "+110 %. The more correlation finds, the less is left for direction: alone it adds what it says above."
        ],
    )
    return found


def skew_and_basic_windows(book: Book) -> dict[str, float]:
    """Compute Figures 10, 13 and 14: skew, and the number of basic windows."""
    found: dict[str, float] = {}
    rows = []
    for kappa in (0.4, 0.6, 0.8, 1.0):
        streams = PaperStreams(kappa=kappa, rates=constant_rate(500, 60))
        left, right = streams.both(0)
        ours = run_join(left, right, overlap(20, False, threshold=4, budget=budget_of(CAPACITY)), 0, 60)
        rival, _ = join_with_random_drops(left, right, overlap(20, True, threshold=4), ours, 0)
        gain = 100 * (pairs_between(ours, 30, 60) / max(1.0, pairs_between(rival, 30, 60)) - 1)
        found[f"joins.output_gain_by_skew_pct.kappa_{kappa:g}"] = gain
        rows.append((f"threshold 4, kappa {kappa:g}", gain))
    streams = PaperStreams(rates=constant_rate(500, 60))
    left, right = streams.both(0)
    for basic in (0.5, 1.0, 2.0, 5.0, 20.0):
        ours = run_join(left, right, overlap(20, False, basic=basic, budget=budget_of(CAPACITY)), 0, 60)
        found[f"joins.pairs_by_basic_window.plain_{basic:g}_s"] = pairs_between(ours, 30, 60)
        rows.append((f"pairs, basic window {basic:g} s of 20 s, no index", pairs_between(ours, 30, 60)))
    large = PaperStreams(window_seconds=200, rates=constant_rate(500, 220))
    left, right = large.both(0)
    whole = run_join(left, right, overlap(200, True, basic=10), 200, 220)
    steps = budget_of(whole.sum("steps") * KEPT_STEPS / 20)
    for basic in (1.0, 5.0, 20.0, 200.0):
        ours = run_join(left, right, overlap(200, True, basic=basic, budget=steps), 200, 220)
        found[f"joins.pairs_by_basic_window.indexed_{basic:g}_s"] = ours.sum("pairs")
        rows.append((f"pairs, basic window {basic:g} s of 200 s, index", ours.sum("pairs")))
    book.table("Skew (Figures 10, 13) and basic windows (Figure 14)", ("what", "gain % or pairs"), rows)
    return found
