"""`spillway explain STREAM ATTRIBUTE`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from spillway.cli.output import command, said, say, say_json, say_table
from spillway.settings import Settings

if TYPE_CHECKING:
    from spillway.show.explain import Explanation

PAST = {"keep": "kept", "round": "rounded", "shed": "shed", None: "not planned yet"}


def add(commands: Any) -> None:
    made = command(
        commands,
        "explain",
        "Why an attribute was kept, rounded or shed: rule, numbers, bound, how to exempt or recover it.",
        ["spillway explain weather temp", "spillway explain stocks volume --json"],
    )
    made.add_argument("stream", help="a stream with a contract")
    made.add_argument("attribute", help="one of its attributes")
    made.set_defaults(run=run)


def run(asked: argparse.Namespace) -> int:
    from spillway.show.explain import explain

    found = explain(Settings.from_environment(), asked.stream, asked.attribute)
    if asked.json:
        say_json(found)
        return 0
    say(f"{found.stream}.{found.attribute} is {PAST[found.way]}", "bold")
    say(f"because {found.rule}.")
    if found.reason:
        say(f"The plan says: {found.reason}.".replace("..", "."))
    say_table("", ["", ""], [row for row in _numbers(found) if row[1] != "-"])
    for remedy in found.remedies:
        say(f"To {remedy}")
    return 0


def _numbers(found: Explanation) -> list[tuple[str, str]]:
    rank = (
        None
        if found.rank is None
        else f"{found.rank} of {found.ranked} (score {said(found.score)}, {found.rank_by})"
    )
    source = f" (from {found.error_source.replace('_', ' ')})" if found.error_source else ""
    rates = (
        None
        if found.rate_kbps is None
        else f"{said(found.rate_kbps)} kbps offered, {said(found.planned_kbps)} under the scheme, "
        f"{said(found.capacity_kbps)} of capacity, {said(found.shortfall_kbps)} too much"
    )
    scheme = (
        None
        if found.batch is None
        else f"batch {found.batch}, seq {said(found.from_seq)} to {said(found.to_seq)}"
    )
    return [
        ("newest scheme", said(scheme)),
        ("rank", said(rank)),
        ("width", "-" if found.width_bits is None else f"{said(found.width_bits)} bits a tuple"),
        ("rate", said(rates)),
        ("bound", "-" if found.error_pct is None else f"{said(found.error_pct)} %{source}"),
        ("predictor", said(found.predictor)),
        ("stage", {1: "1: the stream's own", 2: "2: its channel's"}.get(found.stage or 0, "-")),
        ("worst error", "-" if found.worst_error_pct is None else f"{said(found.worst_error_pct)} %"),
        ("mean error", "-" if found.mean_error_pct is None else f"{said(found.mean_error_pct)} %"),
        ("stored", "-" if found.stored_share_pct is None else f"{said(found.stored_share_pct)} % of shed values"),
        ("outside bound", said(found.violations)),
        ("so far", "-" if not found.tuples_by_way else _so_far(found)),
    ]  # fmt: skip


def _so_far(found: Explanation) -> str:
    return ", ".join(f"{said(count)} tuples {PAST[way]}" for way, count in found.tuples_by_way.items())
