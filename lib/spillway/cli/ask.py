"""`spillway ask STREAM SKETCH QUESTION`; the questions are those of the kinds of sketches there are."""

from __future__ import annotations

import argparse
from datetime import date
from typing import Any

from spillway.cli.output import command, say_json, say_table
from spillway.errors import UsageError
from spillway.settings import Settings
from spillway.sketches.kinds import every_kind

QUESTIONS = {question.name: (kind.name, question) for kind in every_kind() for question in kind.questions}
"""Every question by its name, and the kind that answers it."""


def add_ask(commands: Any) -> None:
    made = command(
        commands,
        "ask",
        "Ask a stored sketch: every answer with its interval, its method and what it covers.",
        [
            "spillway ask weather origin frequency JFK",
            "spillway ask weather temp quantile 0.5 0.99 --from-date 2013-08-01",
            "spillway ask weather origin+temp+dewp+wind_dir+pressure near-duplicates --json",
            *(f"  {name} {question.about}" for name, (_, question) in QUESTIONS.items()),
        ],
    )
    made.add_argument("stream", help="a stream whose contract has `sketches`")
    made.add_argument("sketch", help="what was sketched: attributes joined by +")
    made.add_argument("question", choices=QUESTIONS, help="what to ask, see below")
    made.add_argument("values", nargs="*", help="what the question is about")
    made.add_argument("--from-date", type=date.fromisoformat, help="first batch date")
    made.add_argument("--to-date", type=date.fromisoformat, help="last batch date")
    made.add_argument("--confidence", type=float, default=0.95, help="of the interval (default: 0.95)")
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.pipeline.sketch import load_sketch
    from spillway.store.tables import Tables

    tables = Tables(Settings.from_environment())
    kind, question = QUESTIONS[asked.question]
    first, last = asked.from_date, asked.to_date
    sketch = load_sketch(tables, asked.stream, asked.sketch, kind, first, last)
    about: Any = asked.values
    if question.of_two:
        if len(asked.values) != 2:
            raise UsageError(
                f"`{asked.question}` must name the other STREAM and SKETCH; see spillway ask --help"
            )
        stream, name = asked.values
        about = load_sketch(tables, stream, name, kind, first, last)
    answers = question.ask(sketch, about, asked.confidence)
    if asked.json:
        say_json([{"question": told, **one.__dict__} for told, one in answers])
        return 0
    say_table(
        f"{asked.stream}, {asked.sketch}, {sketch.covers.from_date} to {sketch.covers.to_date}: "
        f"{sketch.covers.rows:,} rows in {sketch.covers.batches} batches",
        ["", "#estimate", "#from", "#to", "#confidence", "method", "note"],
        [
            (
                told,
                one.estimate,
                one.low,
                one.high,
                f"{100 * one.confidence:g} %",
                one.method,
                one.note or "-",
            )
            for told, one in answers
        ],
    )
    return 0
