"""Compute hits, regret and evaluations (Ahuja 2006, Table 4.4) of Algorithm 2, even intervals, never, always.

All rules have the same yardstick (`contestants`), also under the product's plan, which decides by rounding, capacity
and measured bytes. If all windows of a stream require the same treatment, the ranking cannot change the plan, and every
rule always hits. Then hits and regret are not reported, and count for no target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evidence.attributes.contestants import MEASURES_PCT, RuleResult, contestants_of, rule_result
from evidence.attributes.lab import Lab
from evidence.bars import percent_bars
from evidence.book import Book
from evidence.golden.cells import read_csv

SAID = {
    "algorithm_2": "Algorithm 2 as printed",
    "fixed": "even intervals, as many",
    "never": "never: what training ranked",
    "always": "every window",
}
COLUMNS = (
    "stream", "rule", "windows", "evaluated", "hits %", "regret, points", "training: hits %", "regret", "later: hits %",
    "regret", "treatments asked for",
)  # fmt: skip


def hits(book: Book, labs: Mapping[str, Lab], directory: Any) -> dict[str, float]:
    """Write the tables and the bars of Table 4.4; return the figures."""
    book.section(
        "Hits, regret and evaluations",
        "A hit is a window whose scheme in force is the one that its own data, ranked afresh, would give (3.2.3.3); "
        "regret is what it loses beyond that one.",
    )
    figures: dict[str, float] = {}
    rows: list[tuple[Any, ...]] = []
    planned: list[tuple[Any, ...]] = []
    for name, lab in labs.items():
        found = contestants_of(lab)
        rows += [row_of(name, one) for one in found]
        figures |= figures_of(name, found)
        plan = rule_result(lab, "plan", lab.watched_plan().looks)
        planned.append(row_of(name, plan))
        figures |= plan_figures(name, plan)
    book.table(
        "Rules of re-evaluation on the thesis's choice",
        COLUMNS,
        rows,
        [
            f"The shortest prefix of the ranking by deviation, into what always travels and {MEASURES_PCT:g} % of the "
            "measures' bytes. Windows count by what was in force on them. A16: the print's RS := C is reversed.",
        ],
    )
    book.table(
        "The product's own plan by the same yardstick",
        COLUMNS,
        planned,
        [
            "Treatments and capacity are the product's defaults; the ranking is by deviation, as in the thesis; an "
            "absent value counts 100. The default ranking, recoverability, is the same for every window and is not "
            "evaluated.",
            "Hits and regret are left out: all windows require the same treatment, so no rule can miss.",
        ],
    )
    printed = {
        row["source"]: sum(int(row[f"hits_s{i}"]) for i in (1, 2, 3)) / 3
        for row in read_csv(directory, "000_table4_4_hits.csv")
    }
    measured = {name: figures.get(f"attributes.hits_own_ranking_pct.{name}") for name in labs}
    ours = {name: value for name, value in measured.items() if value is not None}
    book.table(
        "Table 4.4: hits in %",
        ("stream", "hits %", "from"),
        [(name, value, "ours") for name, value in ours.items()]
        + [(name, value, "the text, mean of three sets") for name, value in printed.items()]
        + [("all nine", sum(printed.values()) / len(printed), "the text")],
    )
    book.figure(
        "hits",
        "Table 4.4 as bars: hits, ours on the demo streams, the text's on its nine",
        percent_bars(
            [(f"{name} (ours)", value, "c0") for name, value in ours.items()]
            + [(name, value, "c1") for name, value in printed.items()],
            low=0,
            label="hits in %",
        ),
        {"ours": ours, "text": printed},
    )
    return figures


def row_of(stream: str, one: RuleResult) -> tuple[Any, ...]:
    """Return a row of the tables; without hits and regret if they are not conclusive."""
    parts = [
        (part.hits_pct, part.regret_points) if part.windows and one.is_conclusive else (None, None)
        for part in (one.all, one.training, one.later)
    ]
    said = SAID.get(one.rule, one.rule)
    standings = [value for part in parts for value in part]
    return (stream, said, one.all.windows, one.all.evaluations, *standings, one.treatments_asked)


def figures_of(stream: str, found: list[RuleResult]) -> dict[str, float]:
    """Return hits, regret and share of evaluated windows of every rule; none if no rule can miss."""
    figures: dict[str, float] = {f"attributes.treatments_asked.{stream}": found[0].treatments_asked}
    if not found[0].is_conclusive:
        return figures
    for one in found:
        rule = "" if one.rule == "algorithm_2" else f"{one.rule}."
        figures |= {
            f"attributes.hits_own_ranking_pct.{rule}{stream}": one.all.hits_pct,
            f"attributes.regret_points.{rule}{stream}": one.all.regret_points,
            f"attributes.evaluations_over_windows_pct.{rule}{stream}": one.all.evaluated_pct,
        }
        if one.training.windows and one.later.windows:
            figures |= {
                f"attributes.training.hits_own_ranking_pct.{rule}{stream}": one.training.hits_pct,
                f"attributes.later.hits_own_ranking_pct.{rule}{stream}": one.later.hits_pct,
                f"attributes.training.regret_points.{rule}{stream}": one.training.regret_points,
                f"attributes.later.regret_points.{rule}{stream}": one.later.regret_points,
            }
    return figures


def plan_figures(stream: str, plan: RuleResult) -> dict[str, float]:
    """Return the same figures of the product's own plan."""
    asked: dict[str, float] = {f"attributes.plan_treatments_asked.{stream}": plan.treatments_asked}
    if not plan.is_conclusive:
        return asked
    return asked | {
        f"attributes.plan_hits_own_ranking_pct.{stream}": plan.all.hits_pct,
        f"attributes.plan_regret_points.{stream}": plan.all.regret_points,
        f"attributes.plan_evaluations_over_windows_pct.{stream}": plan.all.evaluated_pct,
    }
