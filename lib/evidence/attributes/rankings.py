"""Compare our rankings with random, largest first and a fixed list, at equal bytes sent.

A ranking sheds attributes in its order until the sent bytes reach a target. The last attribute is shed for only as many
tuples as necessary, so that all rankings send the same bytes. The loss is the mean relative error over all values of
all measures (kept values have none); the cost is the synopsis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evidence.attributes.costs import SchemeCost, mean_cost
from evidence.attributes.lab import Lab
from evidence.attributes.orders import fixed_list, largest_first, random_order
from evidence.book import Book
from spillway.levers.attributes.policy import own_settings, smoothing_of
from spillway.levers.attributes.ranking.rank import rank
from spillway.levers.attributes.window_planner import ranking_values
from spillway.report.page.svg import Line, line_chart

TARGETS_PCT = (85, 70, 55, 40, 25)
ORDERS_DRAWN = 20
RANKINGS = ("stddev", "relative", "recoverability", "fixed list", "largest first", "random")


def orders(lab: Lab) -> dict[str, list[list[str]]]:
    """Return the order of every ranking on the training rows; random has many."""
    rows, names = lab.training_rows, lab.measures
    window = {name: ranking_values(rows[name]) for name in names}
    smoothing = smoothing_of(own_settings(lab.contract))
    recoverability = dict(lab.learned.recoverability)
    ranked = {
        by: [rank(window, names, by, smoothing, recoverability)]
        for by in ("stddev", "relative", "recoverability")
    }
    ranked["fixed list"] = [fixed_list(names, names)]
    ranked["largest first"] = [largest_first(names, lab.column_bytes)]
    ranked["random"] = [random_order(names, seed) for seed in range(ORDERS_DRAWN)]
    return {by: [[one.attribute for one in order] for order in every] for by, every in ranked.items()}


def at_bytes(lab: Lab, order: Sequence[str], target_bytes: float) -> SchemeCost:
    """Return the scheme that sends exactly `target_bytes` by shedding in this order, two neighbours blended."""
    before = lab.weigh({})
    for count in range(1, len(order) + 1):
        after = lab.weigh(dict.fromkeys(order[:count], "shed"))
        if after.wire_bytes <= target_bytes or count == len(order):
            saved = before.wire_bytes - after.wire_bytes
            share = min(1.0, max(0.0, (before.wire_bytes - target_bytes) / saved)) if saved > 0 else 1.0
            return before.blended(after, share)
        before = after
    return before


def rankings(book: Book, labs: Mapping[str, Lab]) -> dict[str, float]:
    """Return errors and synopsis bytes of every ranking at the same bytes sent."""
    book.section(
        "Rankings at equal bytes sent",
        "Mean relative error over all values, and synopsis bytes, when every ranking sends the same bytes.",
    )
    figures: dict[str, float] = {}
    rows: list[tuple[Any, ...]] = []
    for name, lab in labs.items():
        ranked = orders(lab)
        room = sum(lab.column_bytes.values())
        errors: dict[str, list[float]] = {by: [] for by in RANKINGS}
        stored: dict[str, list[float]] = {by: [] for by in RANKINGS}
        for target in TARGETS_PCT:
            sent = lab.fixed_bytes + room * target / 100.0
            for by in RANKINGS:
                one = mean_cost([at_bytes(lab, order, sent) for order in ranked[by]])
                errors[by].append(one.mean_error_pct)
                stored[by].append(one.synopsis_bytes)
        for by in RANKINGS:
            mean_error, mean_stored = _mean(errors[by]), _mean(stored[by])
            rows.append((name, by, *errors[by], mean_error, mean_stored))
            label = by.replace(" ", "_")
            figures[f"attributes.ranking_error_pct.{label}.{name}"] = mean_error
            figures[f"attributes.ranking_synopsis_bytes.{label}.{name}"] = mean_stored
        book.figure(
            f"rankings_{name}",
            f"{name}: error at equal bytes sent",
            line_chart(
                [
                    Line(list(zip(TARGETS_PCT, errors[by], strict=True)), f"c{i}", by, dots=True)
                    for i, by in enumerate(RANKINGS)
                ],
                x_label="bytes of measures sent, % of all",
                y_label="mean relative error in %",
            ),
            {"sent_pct": TARGETS_PCT, **errors},
        )
    book.table(
        "Mean relative error in % by share of the measures' bytes that are sent",
        ("stream", "ranking", *(f"{target} %" for target in TARGETS_PCT), "mean", "synopsis bytes, mean"),
        rows,
        [
            f"Random is the mean of {ORDERS_DRAWN} orders; the fixed list is the contract's order. Shed with our "
            "synopsis at the trained thresholds; predictors read only what is still sent.",
        ],
    )
    return figures


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
