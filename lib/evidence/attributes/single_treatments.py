"""Compare the plan with one treatment for all attributes, by sent and stored bytes together.

Contestants: everything rounded; shed by the paper's method (ranking by deviation until it fits, last value, exact
entries); everything shed by that method; random attributes; the largest first. Random and largest-first use our
synopsis, which favours them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evidence.attributes.contestants import thesis_settings
from evidence.attributes.costs import SchemeCost, mean_cost
from evidence.attributes.lab import Lab
from evidence.attributes.orders import largest_first, random_order
from evidence.attributes.results import RunResult
from evidence.book import Book

RANDOM_ORDERS = 10


def contestants(lab: Lab) -> dict[str, SchemeCost]:
    """Return the cost of every single treatment."""
    paper = lab.paper_models()
    widest = [one.attribute for one in largest_first(lab.measures, lab.column_bytes)]
    orders = [[one.attribute for one in random_order(lab.measures, seed)] for seed in range(RANDOM_ORDERS)]
    drawn = [lab.weigh(lab.until_it_fits(order)) for order in orders]
    return {
        "everything kept": lab.weigh({}),
        "everything rounded": lab.weigh(dict.fromkeys(lab.measures, "round")),
        "the paper's: by deviation until it fits, last value": lab.cost(run_as_in_paper(lab)),
        "everything shed, last value": lab.cost(
            lab.run_everywhere(dict.fromkeys(lab.measures, "shed"), paper)
        ),
        "random attributes, mean": mean_cost(drawn),
        "random attributes, best": min(drawn, key=lambda one: one.net_bytes),
        "largest first": lab.weigh(lab.until_it_fits(widest)),
    }


def run_as_in_paper(lab: Lab) -> RunResult:
    """Run the product as in the thesis: its treatments, models and ranking, and Algorithm 2 without memory or
    hysteresis.
    """
    return lab.run(models=lab.paper_models(), predictors=("last",), **thesis_settings())


def run_with_fewest_bytes(lab: Lab) -> RunResult:
    """Run the product's plan on a channel that is paid by the byte: a stored byte costs as much as a sent one."""
    return lab.run(paid_by_byte=True, requested_pct=0.0, synopsis="hold")


def single_treatments(book: Book, labs: Mapping[str, Lab]) -> dict[str, float]:
    """Return the net bytes of the plan over the best single treatment, by stream."""
    book.section(
        "The plan against single ways",
        "Net bytes: what goes over the wire, and what the synopsis keeps at the source, in compressed bytes. The plan "
        "is that of a channel which minimizes them.",
    )
    rows: list[tuple[Any, ...]] = []
    figures: dict[str, float] = {}
    for name, lab in labs.items():
        every = contestants(lab)
        plan = run_with_fewest_bytes(lab)
        rivals = {label: one for label, one in every.items() if label != "everything kept"}
        best = min(one.net_bytes for one in rivals.values())
        accuracy = [one.accuracy_pct for one in plan.shed.values()]
        synopsis = sum(plan.synopsis_bytes.values())
        rows.append(
            (name, "the plan", plan.wire_bytes, synopsis, plan.net_bytes, lab.kbps(plan.wire_bytes),
             lab.kbps(plan.wire_bytes) <= lab.capacity_kbps, _mean(accuracy))
        )  # fmt: skip
        for label, one in every.items():
            fits = lab.kbps(one.wire_bytes) <= lab.capacity_kbps
            rows.append(
                (name, label, one.wire_bytes, one.synopsis_bytes, one.net_bytes, lab.kbps(one.wire_bytes), fits,
                 one.accuracy_pct)
            )  # fmt: skip
        figures[f"attributes.net_bytes_over_best_single_way.{name}"] = plan.net_bytes / best
        kept = every["everything kept"].net_bytes
        figures[f"attributes.everything_kept_over_best_single_way.{name}"] = kept / best
        for label, one in every.items():
            figures[f"attributes.net_bytes_over.{_slug(label)}.{name}"] = plan.net_bytes / one.net_bytes
    book.table(
        "Net bytes of the plan and of one way for all",
        ("stream", "way", "wire bytes", "synopsis bytes", "net bytes", "kbps", "fits", "accuracy %"),
        rows,
        [
            f"Random: {RANDOM_ORDERS} orders. The wire includes key, order and seq, which always travel. Accuracy is "
            "the mean over attributes that do not travel as they are.",
        ],
    )
    return figures


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _slug(label: str) -> str:
    """
    >>> _slug("the paper's: by deviation until it fits, last value")
    'the_papers_by_deviation_until_it_fits_last_value'
    """
    return "".join(c for c in label.replace(" ", "_") if c.isalnum() or c == "_")
