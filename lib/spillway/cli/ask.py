"""`spillway ask STREAM SKETCH QUESTION`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from spillway.cli.output import UsageError, command, say_json, say_table
from spillway.settings import Settings

if TYPE_CHECKING:
    from spillway.sketches.query import Loaded
    from spillway.sketches.types import Answer

Answers = list[tuple[str, "Answer"]]


def _frequency(sketch: Loaded, values: Sequence[str], confidence: float) -> Answers:
    key = [None if value == "null" else value for value in values]
    return [(f"rows with {', '.join(values)}", sketch.frequency(*key, confidence=confidence))]


def _top(sketch: Loaded, values: Sequence[str], confidence: float) -> Answers:
    (count,) = _numbers("top", values or ["10"], 1)
    found = sketch.top(int(count), confidence)
    return [(", ".join(map(str, heavy.key or ("?",))), heavy.answer) for heavy in found]


def _quantile(sketch: Loaded, values: Sequence[str], confidence: float) -> Answers:
    shares = _numbers("quantile", values or ["0.5"])
    return [(f"{share:g} of the values lie below", sketch.quantile(share, confidence)) for share in shares]


def _between(sketch: Loaded, values: Sequence[str], confidence: float) -> Answers:
    low, high = _numbers("between", values, 2)
    return [(f"values from {low:g} to {high:g}", sketch.between(low, high, confidence))]


def _no_values(ask: Callable[[Loaded, float], Answer], told: str) -> Callable[..., Answers]:
    return lambda sketch, values, confidence: [(told, ask(sketch, confidence))]


def _pairs(sketch: Loaded, values: Sequence[str], confidence: float) -> Answers:
    least = int(_numbers("near-duplicates", values, 1)[0]) if values else None
    return [
        ("pairs that agree in so many attributes", sketch.near_duplicate_pairs(least, confidence)),
        ("as a share of all pairs", sketch.near_duplicate_share(least, confidence)),
    ]


QUESTIONS: dict[str, tuple[str, str, Callable[..., Answers]]] = {
    "frequency": (
        "count_min",
        "VALUE ...: rows with these values, one an attribute (null for null)",
        _frequency,
    ),
    "top": ("count_min", "[COUNT]: the most frequent keys", _top),
    "distinct": ("count_min", "different keys", _no_values(lambda s, c: s.distinct(c), "different keys")),
    "skew": (
        "count_min",
        "equally frequent keys that would be as skewed",
        _no_values(lambda s, c: s.skew(c), "equally frequent keys that would be as skewed"),
    ),
    "self-join": (
        "count_min",
        "pairs of rows with equal keys",
        _no_values(lambda s, c: s.self_join_size(c), "pairs of rows with equal keys"),
    ),
    "quantile": ("quantiles", "[SHARE ...]: the value below which that share lies", _quantile),
    "between": ("quantiles", "LOW HIGH: values from LOW to HIGH", _between),
    "near-duplicates": ("pair_count", "[ATTRIBUTES]: pairs of rows that agree in so many attributes", _pairs),
    "join": ("count_min", "STREAM SKETCH: pairs of rows of both with equal keys", lambda *_: []),
    "similarity-join": (
        "pair_count",
        "STREAM SKETCH: pairs of rows of both that are near-duplicates; ask before you run such a join",
        lambda *_: [],
    ),
}


def add(commands: Any) -> None:
    made = command(
        commands,
        "ask",
        "Ask a stored sketch: every answer with its interval, its method and what it covers.",
        [
            "spillway ask weather origin frequency JFK",
            "spillway ask weather temp quantile 0.5 0.99 --from-date 2013-08-01",
            "spillway ask weather origin+temp+dewp+wind_dir+pressure near-duplicates --json",
            *(f"  {name} {told}" for name, (_, told, _) in QUESTIONS.items()),
        ],
    )
    made.add_argument("stream", help="a stream whose contract has `sketches`")
    made.add_argument("sketch", help="what was sketched: attributes joined by +")
    made.add_argument("question", choices=QUESTIONS, help="what to ask, see below")
    made.add_argument("values", nargs="*", help="what the question is about")
    made.add_argument("--from-date", type=date.fromisoformat, help="first batch date")
    made.add_argument("--to-date", type=date.fromisoformat, help="last batch date")
    made.add_argument("--confidence", type=float, default=0.95, help="of the interval (default: 0.95)")
    made.set_defaults(run=run)


def run(asked: argparse.Namespace) -> int:
    from spillway.pipeline.sketch import load_sketch

    settings = Settings.from_environment()
    kind, _, answer = QUESTIONS[asked.question]
    dates = asked.from_date, asked.to_date
    sketch = load_sketch(settings, asked.stream, asked.sketch, kind, *dates)
    if asked.question.endswith("join") and asked.question != "self-join":
        if len(asked.values) != 2:
            raise UsageError(
                f"`{asked.question}` must name the other STREAM and SKETCH; see spillway ask --help"
            )
        other = load_sketch(settings, asked.values[0], asked.values[1], kind, *dates)
        if kind == "count_min":
            answers = [("pairs of rows of both with equal keys", sketch.join_size(other, asked.confidence))]
        else:
            found = sketch.near_duplicate_join(other, confidence=asked.confidence)
            answers = [("pairs of rows of both that are near-duplicates", found)]
    else:
        answers = answer(sketch, asked.values, asked.confidence)
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


def _numbers(question: str, values: Sequence[str], count: int | None = None) -> list[float]:
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        numbers = []
    if len(numbers) != (count or len(values)) or not numbers:
        wanted, got = f"{count or 'some'} number{'s' * (count != 1)}", " ".join(values) or "none"
        raise UsageError(f"`{question}` must be given {wanted}, got {got}; see spillway ask --help")
    return numbers
