"""Six rankings at equal bytes: the least error that shedding in somebody's order reaches in a given room.

A ranking sheds from its front until what remains fits; the last attribute goes for only as many tuples as are needed,
so that all fill the room to the last byte. Two cases of the synopsis:

- *hold*: it stays at the source; what is shed is absent, and counts 100.
- *send*: it crosses with its batch and counts against the room; what is shed counts its mean error. What does not get
  smaller by it stays as it is. Where even all synopses are too much, they stay behind in the same order.

The room is what always travels and a share of the measures' bytes. Error is the loss of `levers.attributes.loss` with
equal weights: the mean over the measures. Options are those that a plan chooses among, so that a plan can be held
against the best of the rankings (`error_over_best`).

>>> from spillway.levers.attributes.option import Option
>>> options = {
...     "a": [Option("a", "keep", 6), Option("a", "shed", 0, 2, mean_error_pct=1.0)],
...     "b": [Option("b", "keep", 4), Option("b", "shed", 0, 1, mean_error_pct=3.0)],
... }
>>> ranking_error(options, ["a", "b"], room_bytes=7, synopsis="hold"), ranking_error(options, ["a", "b"], 7, "send")
(25.0, 0.375)
>>> best_ranking_error(options, {"ab": [["a", "b"]], "ba": [["b", "a"]]}, 7, "send")
0.375
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evidence.attributes.lab import Lab
from evidence.attributes.rankings import RANKINGS, orders
from evidence.book import Book
from spillway.errors import Refused
from spillway.levers.attributes.capacity.crossings import Terms
from spillway.levers.attributes.loss import loss, option_loss
from spillway.levers.attributes.option import Option, of_way, scaled
from spillway.levers.attributes.policy import Choosing, OptionsByName, decide, own_settings
from spillway.levers.protocol import Load

CAPACITIES_PCT = (90, 75, 50, 25)
SYNOPSES = ("hold", "send")
FAR_WORSE = 1e9
"""Of a plan that errs where some ranking does not: a number, for figures are numbers."""


def ranking_error(options: OptionsByName, order: Sequence[str], room_bytes: float, synopsis: str) -> float:
    """The mean loss when shedding in this order fills `room_bytes` a tuple, which are the measures' alone."""
    if synopsis not in SYNOPSES:
        raise Refused("synopsis", f"be one of {', '.join(SYNOPSES)}", synopsis, "write synopsis: hold")
    over = sum(_kept(options[name]).wire_bytes_per_tuple for name in options) - room_bytes
    total = 0.0
    for saves, costs in _steps(options, order, synopsis):
        if over <= 0:
            break
        share = min(1.0, over / saves)
        total += share * costs
        over -= share * saves
    return total / len(options)


def best_ranking_error(
    options: OptionsByName, ranked: Mapping[str, Sequence[Sequence[str]]], room_bytes: float, synopsis: str
) -> float:
    """The least error that any order of any ranking reaches; of random orders the luckiest counts."""
    return min(
        ranking_error(options, order, room_bytes, synopsis) for every in ranked.values() for order in every
    )


def error_over_best(error: float, best: float) -> float:
    """A plan's error over the best ranking's; 0 over 0 counts 1.

    >>> error_over_best(1.0, 4.0), error_over_best(0.0, 0.0), error_over_best(1.0, 0.0)
    (0.25, 1.0, 1000000000.0)
    """
    if best > 0:
        return error / best
    return 1.0 if error <= 0 else FAR_WORSE


def stream_options(lab: Lab) -> tuple[OptionsByName, Load]:
    """What a plan of the whole stream chooses among, as wide as its columns were written; and that load."""
    tuples = lab.rows.num_rows
    widths = {name: size / tuples for name, size in lab.plan.raw_bytes.items()}
    options = {name: scaled(found, widths[name]) for name, found in lab.learned.options.items()}
    return options, Load(
        {name: 8.0 * width for name, width in widths.items()}, lab.loads[0].tuples_per_second
    )


def equal_bytes(book: Book, labs: Mapping[str, Lab], prefix: str = "") -> dict[str, float]:
    """Every ranking's error at every capacity, held and sent; and the plan's over the best of them."""
    figures: dict[str, float] = {}
    rows: list[tuple[Any, ...]] = []
    for lab in labs.values():
        options, load = stream_options(lab)
        ranked, stream = orders(lab), f"{prefix}{lab.stream}"
        measures = sum(load.widths_bits[name] for name in options) / 8.0
        for synopsis in SYNOPSES:
            found: dict[str, list[float]] = {by: [] for by in RANKINGS}
            planned: list[float] = []
            for capacity in CAPACITIES_PCT:
                room = measures * capacity / 100.0
                for by in RANKINGS:
                    every = [ranking_error(options, order, room, synopsis) for order in ranked[by]]
                    found[by].append(sum(every) / len(every))
                best = best_ranking_error(options, ranked, room, synopsis)
                place = f"{stream}.{synopsis}.{capacity}"
                figures[f"attributes.best_ranking_error_pct.{place}"] = best
                planned.append(plan_error(lab, options, load, capacity, synopsis))
                figures[f"attributes.error_at_capacity_pct.{place}"] = planned[-1]
                figures[f"attributes.error_over_best_ranking.{place}"] = error_over_best(planned[-1], best)
            rows += [(lab.stream, synopsis, by, *errors) for by, errors in found.items()]
            rows.append((lab.stream, synopsis, "the plan", *planned))
    book.table(
        "Six rankings at equal bytes: mean loss in points",
        ("stream", "synopsis", "ranking", *(f"{capacity} %" for capacity in CAPACITIES_PCT)),
        rows,
        [
            "The room: what always travels and so much of the measures' bytes. Held: what is shed is absent and counts "
            "100; sent: its synopsis counts against the room, and what is given back its mean error. Random is the "
            "mean of its orders; the best ranking that a plan is held against is the luckiest of them."
        ],
    )
    return figures


def plan_error(lab: Lab, options: OptionsByName, load: Load, capacity_pct: float, synopsis: str) -> float:
    """The loss of what the product's decision makes of the same room and options, by the same yardstick."""
    fixed = sum(bits for name, bits in load.widths_bits.items() if name not in options)
    measures = sum(load.widths_bits[name] for name in options)
    kbps = (fixed + measures * capacity_pct / 100.0) * load.tuples_per_second / 1000.0
    settings = replace(own_settings(lab.contract), synopsis=synopsis, asked_back_pct=0.0)
    rests_on = Choosing(settings, options, load, Terms(synopsis=synopsis, ways=settings.ways))
    return loss(decide(rests_on, kbps, lab.learned.ranked(list(options))).treatment, options)


def _steps(options: OptionsByName, order: Sequence[str], synopsis: str) -> list[tuple[float, float]]:
    """Bytes that each step saves and the loss it brings, in order."""
    steps: list[tuple[float, float]] = []
    left: list[tuple[float, float]] = []
    for name in order:
        kept, shed = _kept(options[name]), of_way(options[name], "shed")
        width = kept.wire_bytes_per_tuple
        if synopsis == "hold" or shed is None or shed.synopsis_bytes_per_tuple >= width:
            absent = option_loss(shed) if shed is not None else 100.0
            (steps if synopsis == "hold" else left).append((width, absent))
            continue
        given = option_loss(shed, sent=True)
        steps.append((width - shed.synopsis_bytes_per_tuple, given))
        left.append((shed.synopsis_bytes_per_tuple, option_loss(shed) - given))
    return [step for step in (*steps, *left) if step[0] > 0]


def _kept(options: Sequence[Option]) -> Option:
    found = of_way(options, "keep")
    assert found is not None, "training measures what keeping takes"
    return found
