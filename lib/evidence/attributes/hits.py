"""Hits, misses and evaluations (Table 4.4, Figure 4.3): ours, Algorithm 2 as printed, and fixed intervals.

A hit is a window whose scheme is the one a fresh evaluation would give. Where rounding is allowed the product
chooses by measured bytes and the ranking only breaks ties, so its hits are easy; the paper's choice, the shortest
prefix of the ranking that fits, is the hard case, and both are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from evidence.attributes.even_intervals import evenly, fixed_interval_evaluations
from evidence.attributes.lab import Lab
from evidence.attributes.rival.lever import Scores
from evidence.bars import percent_bars
from evidence.book import Book
from evidence.golden.cells import read_csv
from spillway.levers.attributes.capacity.fit import fit
from spillway.levers.attributes.ranking.reevaluation import Chooser, Reevaluation, Replay, follow

REACHES = (None, 0.2, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Followed:
    """How a controller, and looking at even intervals, fared under one way of choosing."""

    rule: str
    record: Replay
    fixed_hits_pct: float
    evaluations_for_95: int


def followed(rule: str, controller: Reevaluation, scores: Scores, choose: Chooser) -> Followed:
    """Run a controller, and its own rule at even intervals: as many evaluations, and as many as 95 % need."""
    record = follow(controller, scores, choose)
    windows = len(scores)
    fixed = follow(controller, scores, choose, evenly(windows, record.evaluations))
    always = follow(controller, scores, choose, range(windows)).schemes
    return Followed(rule, record, fixed.hits_pct, fixed_interval_evaluations(always, 95.0))


def by_ranking(lab: Lab, how: str) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """The paper's choice at the first batch's load: the prefix of the ranking that fits."""
    load = lab.loads[0]
    known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def choose(ranking: tuple[str, ...]) -> tuple[str, ...]:
        if ranking not in known:
            known[ranking] = fit(
                list(ranking), load.widths_bits, load.tuples_per_second, lab.capacity_kbps, how
            ).shed
        return known[ranking]

    return choose


def compare_rules(lab: Lab, scores: Scores, controller: Reevaluation) -> list[Followed]:
    """Ours and the text's, on the paper's choice by count and by measured bits."""
    found = []
    for how in ("bits", "count"):
        choose = by_ranking(lab, how)
        found.append(followed(f"ours, fit by {how}", controller, scores, choose))
        found.append(followed(f"Algorithm 2, fit by {how}", Reevaluation.text(), scores, choose))
    return found


def by_reach(lab: Lab, scores: Scores, controller: Reevaluation) -> list[Replay]:
    """The contract's rule with other reaches, on the same scores."""
    choose = by_ranking(lab, "bits")
    return [follow(replace(controller, reach=reach), scores, choose) for reach in REACHES]


def hits(book: Book, labs: Mapping[str, Lab], directory: Any) -> dict[str, float]:
    """The table, the bars of Figure 4.3 and the figures."""
    book.section(
        "Hits and evaluations",
        "A hit is a window whose scheme equals what a fresh evaluation would give (3.2.3.3).",
    )
    rows: list[tuple[Any, ...]] = []
    figures: dict[str, float] = {}
    reaches: dict[str, list[Replay]] = {}
    for name, lab in labs.items():
        runs = lab.plan.runs
        windows, evaluations = sum(r.windows for r in runs), sum(r.evaluations for r in runs)
        planned = 100.0 * sum(max(r.hits, 0) for r in runs) / windows
        rows.append((name, "as planned (by measured bytes)", windows, evaluations, planned, None, None))
        figures[f"attributes.plan_hits_pct.{name}"] = planned
        figures[f"attributes.plan_evaluations_over_windows_pct.{name}"] = 100.0 * evaluations / windows
        watched = lab.watched()
        every = compare_rules(lab, watched.seen, watched.policies[0].reevaluation)
        reaches[name] = by_reach(lab, watched.seen, watched.policies[0].reevaluation)
        for one in every:
            record = one.record
            rows.append(
                (name, one.rule, len(record.schemes), record.evaluations, record.hits_pct, one.fixed_hits_pct,
                 one.evaluations_for_95)
            )  # fmt: skip
        ours, text = every[0], every[1]
        figures |= {
            f"attributes.hits_pct.{name}": ours.record.hits_pct,
            f"attributes.evaluations_over_windows_pct.{name}": ours.record.evaluations_over_windows_pct,
            f"attributes.fixed_interval_hits_pct.{name}": ours.fixed_hits_pct,
            f"attributes.evaluations_over_fixed_interval_for_95.{name}": ours.record.evaluations
            / ours.evaluations_for_95,
            f"attributes.evaluations_over_text_fixed_interval_for_95.{name}": ours.record.evaluations
            / text.evaluations_for_95,
            f"attributes.text_hits_pct.{name}": text.record.hits_pct,
            f"attributes.text_evaluations_over_windows_pct.{name}": text.record.evaluations_over_windows_pct,
            f"attributes.text_fixed_interval_hits_pct.{name}": text.fixed_hits_pct,
        }
    book.table(
        "Hits of Algorithm 2 and of looking at even intervals",
        ("stream", "rule", "windows", "evaluations", "hits %", "fixed interval, as many evaluations: hits %",
         "fixed interval: evaluations for 95 %"),
        rows,
        [
            "Ours is the contract's rule (memory, hysteresis, reach) on the paper's choice, the prefix of the ranking "
            "that fits; the fixed intervals use the same rule. A16: the print's RS := C is reversed.",
        ],
    )  # fmt: skip
    book.table(
        "What looking early costs: the setting `reach` on the paper's choice, fit by bits",
        ("stream", *(f"reach {'none' if reach is None else f'{reach:g}'}" for reach in REACHES)),
        [
            (name, *(f"{one.evaluations} evaluations, {one.hits_pct:.1f} %" for one in records))
            for name, records in reaches.items()
        ],
        [
            "The next look comes no later than `reach` times the time in which ranks could cross; none: Algorithm 2's."
        ],
    )
    printed = {
        row["source"]: sum(int(row[f"hits_s{i}"]) for i in (1, 2, 3)) / 3
        for row in read_csv(directory, "000_table4_4_hits.csv")
    }
    ours_points = {row[0]: row[4] for row in rows if str(row[1]).startswith("ours, fit by bits")}
    book.table(
        "Figure 4.3 and Table 4.4: hits in %",
        ("stream", "hits %", "from"),
        [(name, value, "ours") for name, value in ours_points.items()]
        + [(name, value, "the text, mean of three sets") for name, value in printed.items()]
        + [("all nine", sum(printed.values()) / len(printed), "the text")],
    )
    book.figure(
        "hits",
        "Figure 4.3: hits, ours on the demo streams, the text's on its nine",
        percent_bars(
            [(f"{name} (ours)", value, "c0") for name, value in ours_points.items()]
            + [(name, value, "c1") for name, value in printed.items()],
            low=50,
            label="hits in %",
        ),
        {"ours": ours_points, "text": printed},
    )
    return figures
