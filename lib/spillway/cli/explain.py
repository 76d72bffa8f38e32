"""`spillway explain STREAM ATTRIBUTE`, and `spillway explain JOIN`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from spillway.cli.output import command, said, say_json, say_line, say_stages, say_table
from spillway.settings import Settings

if TYPE_CHECKING:
    from spillway.show.explain import LeverTells, WorkloadExplanation
    from spillway.show.overview import StreamExplanation


def add_explain(commands: Any) -> None:
    made = command(
        commands,
        "explain",
        "Explain what each lever does to an attribute, a join or a query, and why: rule, numbers, bound, remedy. For "
        "a stream: an overview of its attributes.",
        ["spillway explain weather temp", "spillway explain weather", "spillway explain slow_routers --json"],
    )
    made.add_argument("stream", help="a stream with a contract, or a join or a query")
    made.add_argument(
        "attribute", nargs="?", help="an attribute of the stream; default: a table of all attributes"
    )
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.show.explain import explain, explain_workload
    from spillway.show.overview import explain_stream
    from spillway.store.tables import Tables

    tables = Tables(Settings.from_environment())
    workload = explain_workload(tables, asked.stream) if asked.attribute is None else None
    if workload is not None:
        return _say_workload(asked, workload)
    if asked.attribute is None:
        return _say_stream(asked, explain_stream(tables, asked.stream))
    found = explain(tables, asked.stream, asked.attribute)
    if asked.json:
        say_json(found)
        return 0
    what = f"{found.stream}.{found.attribute}"
    if found.exempt is not None:
        say_line(f"{found.stream} is {found.exempt}: from its next batch on nothing of it is shed", "bold")
        say_line("Before, and again after that:")
    for part in found.levers:
        _say_part(what, part, len(found.levers) > 1)
    if not found.levers:
        say_line(f"{found.stream} has no levers: it is taken in and sent on as it is", "bold")
    for note in found.notes:
        say_line(note, "yellow")
    if found.stages:
        say_stages("\nWhat every stage did", found.stages)
    if found.trade is not None:
        from spillway.show.trades import trade_lines

        say_line("\nError against capacity", "bold")
        print("\n".join(trade_lines(found.trade)))
    return 0


def _say_stream(asked: argparse.Namespace, found: StreamExplanation) -> int:
    from spillway.show.overview import presence_lines, stream_lines

    if asked.json:
        say_json(found)
        return 0
    say_line(
        f"{found.stream}, mode {found.mode}, channel {found.channel}: levers {', '.join(found.levers) or 'none'}"
    )
    if found.overview is None:
        say_line("No batch was processed yet: spillway run")
    else:
        print("\n".join([*stream_lines(found.overview), *presence_lines(found.overview.figures)]))
    for sentence in found.notes:
        say_line(sentence, "yellow")
    say_line(
        f"For the reasons: spillway explain {found.stream} ATTRIBUTE (one of {', '.join(found.attributes)})",
        "dim",
    )
    return 0


def _say_workload(asked: argparse.Namespace, found: WorkloadExplanation) -> int:
    if asked.json:
        say_json(found)
        return 0
    say_line(f"{found.name}, from {', '.join(found.inputs)}: {found.description}")
    if found.refused is not None:
        say_line(f"no run works it out any more: {found.refused}", "bold")
    for part in found.levers:
        _say_part(found.name, part, False)
    if found.stages:
        say_stages("\nWhat every stage did", found.stages)
    return 0


def _say_part(what: str, part: LeverTells, one_of_several: bool) -> None:
    by = f" by {part.lever}" if one_of_several else ""
    if part.told is None:
        say_line(f"{part.lever} tells nothing of {what}: the stages say what it did", "bold")
        return
    say_line(f"{what} is {part.told.way}{by}", "bold")
    say_line(f"because {part.told.because}.")
    say_table("", ["", ""], [(name, said(value)) for name, value in part.told.numbers.items()])
    for remedy in part.told.remedies:
        say_line(f"To {remedy}")
