"""`spillway explain STREAM ATTRIBUTE`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from spillway.cli.output import command, said, say_json, say_line, say_stages, say_table
from spillway.settings import Settings

if TYPE_CHECKING:
    from spillway.show.explain import Explanation, LeverTells


def add_explain(commands: Any) -> None:
    made = command(
        commands,
        "explain",
        "What each lever does to an attribute and why: rule, numbers, bound, how to exempt or recover it.",
        ["spillway explain weather temp", "spillway explain stocks volume --json"],
    )
    made.add_argument("stream", help="a stream with a contract")
    made.add_argument("attribute", help="one of its attributes")
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.show.explain import explain
    from spillway.store.tables import Tables

    found = explain(Tables(Settings.from_environment()), asked.stream, asked.attribute)
    if asked.json:
        say_json(found)
        return 0
    for part in found.levers:
        _say_part(found, part)
    if not found.levers:
        say_line(f"{found.stream} has no levers: it is taken in and sent on as it is", "bold")
    if found.stages:
        say_stages("\nWhat every stage did", found.stages)
    if found.trade is not None:
        from spillway.show.trades import trade_lines

        say_line("\nError against capacity", "bold")
        print("\n".join(trade_lines(found.trade)))
    return 0


def _say_part(found: Explanation, part: LeverTells) -> None:
    what = f"{found.stream}.{found.attribute}"
    by = f" by {part.lever}" if len(found.levers) > 1 else ""
    if part.told is None:
        say_line(f"{part.lever} tells nothing of {what}: the stages say what it did", "bold")
        return
    say_line(f"{what} is {part.told.way}{by}", "bold")
    say_line(f"because {part.told.because}.")
    say_table("", ["", ""], [(name, said(value)) for name, value in part.told.numbers.items()])
    for remedy in part.told.remedies:
        say_line(f"To {remedy}")
