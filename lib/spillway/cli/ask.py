"""`spillway ask STREAM SKETCH QUESTION`; the questions are those of the kinds of sketches there are."""

from __future__ import annotations

import argparse
from datetime import datetime
from functools import partial
from typing import Any

from spillway.cli.output import command, day, say_json, say_table
from spillway.errors import UsageError, so_many
from spillway.settings import Settings
from spillway.sketches.answers import Answer
from spillway.sketches.kinds import every_kind

QUESTIONS = {question.name: (kind.name, question) for kind in every_kind() for question in kind.questions}
"""Every question by its name, and the kind that answers it."""


def add_ask(commands: Any) -> None:
    made = command(
        commands,
        "ask",
        "Ask a stored sketch: every answer with its interval, its method and what it covers.",
        [
            "spillway ask weather                       what may be asked",
            "spillway ask weather origin frequency JFK",
            "spillway ask weather origin frequency EWR --purpose sum",
            "spillway ask weather temp quantile 0.5 0.99 --from-date 2013-08-01",
            "spillway ask weather origin+temp+dewp+wind_dir+pressure near-duplicates --json",
            *(f"  {name} {question.about}" for name, (_, question) in QUESTIONS.items()),
        ],
    )
    made.add_argument("stream", help="a stream whose contract has `sketches`")
    made.add_argument(
        "sketch", nargs="?", help="what was sketched, attributes joined by +; without: what there is"
    )
    made.add_argument("question", nargs="?", choices=QUESTIONS, help="what to ask, see below")
    made.add_argument("values", nargs="*", help="what the question is about; dates and times as in the data")
    made.add_argument("--from-date", type=day, help="first batch date")
    made.add_argument("--to-date", type=day, help="last batch date")
    made.add_argument("--confidence", type=float, default=0.95, help="of the interval (default: 0.95)")
    made.add_argument(
        "--purpose",
        choices=("frequent", "any", "sum"),
        help="what a frequency is used for; frequent: one key that is expected to be frequent (default); any: one "
        "key that may be rare; sum: a sum over many keys",
    )
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.contracts import zone_of
    from spillway.contracts.timezone import utc_moment
    from spillway.sketches.values import read_value
    from spillway.store.tables import Tables
    from spillway.streams.sketching import load_sketch

    settings = Settings.from_environment()
    tables, zone = Tables(settings), zone_of(settings.schemas, asked.stream)
    if asked.question is None:
        return _list(tables, asked)
    kind, question = QUESTIONS[asked.question]
    if asked.purpose is not None and not question.has_purpose:
        wanted = ", ".join(name for name, (_, one) in QUESTIONS.items() if one.has_purpose)
        raise UsageError(f"`--purpose` must be used with {wanted}, got {asked.question}; leave it out")
    first, last = asked.from_date, asked.to_date
    sketch = load_sketch(tables, asked.stream, asked.sketch, kind, first, last)
    words: Any = question.checked(asked.values, sketch.types)
    if question.of_two:
        stream, name, *words = words
        other = load_sketch(tables, stream, name, kind, first, last)
        answers = question.ask(sketch, other, words, asked.confidence)
    else:
        types = sketch.types if question.typed == "key" else sketch.types[:1] * len(words)
        if question.typed:
            moment = partial(utc_moment, zone=zone)
            words = [read_value(word, kind, moment) for word, kind in zip(words, types, strict=True)]
        chosen = {} if asked.purpose is None else {"purpose": asked.purpose}
        answers = question.ask(sketch, words, asked.confidence, **chosen)
    if asked.json:
        say_json([{"question": told, **one.__dict__, **_shown(one, zone)} for told, one in answers])
        return 0
    covers = sketch.covers
    missing = f" ({covers.told_missing})" if covers.missing else ""
    say_table(
        f"{asked.stream}, {asked.sketch}, {covers.from_date} to {covers.to_date}: "
        f"{so_many(covers.rows, 'row')} in {so_many(covers.batches, 'batch', 'batches')}{missing}",
        ["", "#estimate", "#from", "#to", "#confidence", "method", "note"],
        [
            (told, *_shown(one, zone).values(), f"{100 * one.confidence:g} %", one.method, one.note or "-")
            for told, one in answers
        ],
    )
    return 0


def _list(tables: Any, asked: argparse.Namespace) -> int:
    """What may be asked of a stream (or of one sketch of it)."""
    from spillway.streams.sketching import sketched

    found = [one for one in sketched(tables, asked.stream) if asked.sketch in (None, one.name)]
    if not found:
        raise UsageError(
            f"`{asked.stream}` must have sketches to be asked, got none"
            f"{f' named {asked.sketch}' if asked.sketch else ''}; name some under `sketches` in its contract and take "
            "batches in"
        )
    rows = [
        (one.name, one.kind, one.from_date, one.to_date, one.batches, one.rows, _questions(one.kind))
        for one in found
    ]
    heads = ["sketch", "kind", "from", "to", "#batches", "#rows", "questions"]
    if asked.json:
        say_json([dict(zip((head.lstrip("#") for head in heads), row, strict=True)) for row in rows])
    else:
        say_table(f"{asked.stream}: spillway ask {asked.stream} SKETCH QUESTION [VALUE ...]", heads, rows)
    return 0


def _questions(kind: str) -> str:
    return ", ".join(name for name, (of, _) in QUESTIONS.items() if of == kind)


def _shown(answer: Answer, zone: str) -> dict[str, Any]:
    """The three numbers of an answer as what they stand for, moments on the contract's clocks."""
    from spillway.contracts.timezone import in_zone
    from spillway.sketches.values import as_value

    values = {name: as_value(getattr(answer, name), answer.kind) for name in ("estimate", "low", "high")}
    return {
        name: in_zone(value, zone).isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
    }
