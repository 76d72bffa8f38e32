"""Implement `spillway ask`, `spillway explain` and `spillway recover`.

`ask STREAM SKETCH QUESTION` asks a stored sketch; each kind of sketch defines its questions. `explain` explains
the treatment of an attribute, a stream, a join or a query. `recover STREAM` recovers shed values, each with its
bound, without starting Spark.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.cli.output import (
    add_command,
    format_value,
    parse_date,
    print_json,
    print_line,
    print_stages,
    print_table,
)
from spillway.errors import InvalidValue, UsageError, format_bytes, format_count
from spillway.settings import Settings
from spillway.sketches.answers import Answer
from spillway.sketches.kinds import every_kind

if TYPE_CHECKING:
    import pyarrow as pa

    from spillway.report.explain import VersionedExplanation, WorkloadExplanation
    from spillway.report.overview import StreamExplanation

QUESTIONS = {question.name: (kind.name, question) for kind in every_kind() for question in kind.questions}
"""Every question by its name, with the kind of sketch that answers it."""


def add_ask(commands: Any) -> None:
    made = add_command(
        commands,
        "ask",
        "Query a stored sketch. Every answer has a confidence interval, its method and the rows that it covers.",
        [
            "spillway ask weather                       # list the sketches and their queries",
            "spillway ask weather origin frequency JFK",
            "spillway ask weather origin frequency EWR --purpose sum",
            "spillway ask weather temp quantile 0.5 0.99 --from-date 2013-08-01",
            "spillway ask weather origin+temp+dewp+wind_dir+pressure near-duplicates --json",
            "queries:",
            *(
                f"  {name}{' ' if ':' in question.about else ': '}{question.about}"
                for name, (_, question) in QUESTIONS.items()
            ),
        ],
    )
    made.add_argument("stream", help="a stream whose contract has `sketches`")
    made.add_argument(
        "sketch",
        nargs="?",
        help="name of the sketch: its attributes, joined by + (default: list all sketches)",
    )
    made.add_argument(
        "question", nargs="?", choices=QUESTIONS, metavar="question", help="the query, see below"
    )
    made.add_argument("values", nargs="*", help="arguments of the query; dates and times as in the data")
    made.add_argument("--from-date", type=parse_date, help="first batch date")
    made.add_argument("--to-date", type=parse_date, help="last batch date")
    made.add_argument(
        "--confidence", type=float, default=0.95, help="confidence level of the interval (default: 0.95)"
    )
    made.add_argument(
        "--purpose",
        choices=("frequent", "any", "sum"),
        help="use of a frequency, which selects the estimator; frequent: one key that is expected to be frequent "
        "(default); any: one key that may be rare; sum: a sum over many keys",
    )
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.contracts import zone_of
    from spillway.contracts.timezone import utc_moment
    from spillway.sketches.values import read_value
    from spillway.store.tables import Tables
    from spillway.streams.stored_sketches import load_sketch

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
    words: Any = question.check_arguments(asked.values, sketch.types)
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
        print_json([{"question": told, **one.__dict__, **_shown(one, zone)} for told, one in answers])
        return 0
    covers = sketch.covers
    missing = f" ({covers.missing_text})" if covers.missing else ""
    print_table(
        f"{asked.stream}, {asked.sketch}, {covers.from_date} to {covers.to_date}: "
        f"{format_count(covers.rows, 'row')} in {format_count(covers.batches, 'batch', 'batches')}{missing}",
        ["", "#estimate", "#from", "#to", "#confidence", "method", "note"],
        [
            (told, *_shown(one, zone).values(), f"{100 * one.confidence:g} %", one.method, one.note or "-")
            for told, one in answers
        ],
    )
    return 0


def _list(tables: Any, asked: argparse.Namespace) -> int:
    """List the sketches of a stream (or one of them) with the questions that they answer."""
    from spillway.streams.stored_sketches import list_sketches

    found = [one for one in list_sketches(tables, asked.stream) if asked.sketch in (None, one.name)]
    if not found:
        raise UsageError(
            f"`{asked.stream}` must have sketches, got none"
            f"{f' named {asked.sketch}' if asked.sketch else ''}; add `sketches` to its contract, and take a batch in"
        )
    rows = [
        (one.name, one.kind, one.from_date, one.to_date, one.batches, one.rows, _questions(one.kind))
        for one in found
    ]
    heads = ["sketch", "kind", "from", "to", "#batches", "#rows", "questions"]
    if asked.json:
        print_json([dict(zip((head.lstrip("#") for head in heads), row, strict=True)) for row in rows])
    else:
        print_table(f"{asked.stream}: spillway ask {asked.stream} SKETCH QUESTION [VALUE ...]", heads, rows)
    return 0


def _questions(kind: str) -> str:
    return ", ".join(name for name, (of, _) in QUESTIONS.items() if of == kind)


def _shown(answer: Answer, zone: str) -> dict[str, Any]:
    """Return estimate, low and high of an answer as values of the sketched type; times are in `zone`."""
    from spillway.contracts.timezone import in_zone
    from spillway.sketches.values import as_value

    values = {name: as_value(getattr(answer, name), answer.kind) for name in ("estimate", "low", "high")}
    return {
        name: in_zone(value, zone).isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
    }


def add_explain(commands: Any) -> None:
    made = add_command(
        commands,
        "explain",
        "Explain the treatment of an attribute, a join or a query by each lever: rule, figures, bound and remedy. For "
        "a stream: an overview of its attributes.",
        ["spillway explain weather temp", "spillway explain weather", "spillway explain slow_routers --json"],
    )
    made.add_argument("stream", help="a stream, a join or a query")
    made.add_argument(
        "attribute", nargs="?", help="an attribute of the stream; default: a table of all attributes"
    )
    made.set_defaults(run=_run_explain)


def _run_explain(asked: argparse.Namespace) -> int:
    from spillway.report.explain import explain, explain_workload
    from spillway.report.overview import explain_stream
    from spillway.store.tables import Tables

    tables = Tables(Settings.from_environment())
    workload = explain_workload(tables, asked.stream) if asked.attribute is None else None
    if workload is not None:
        return _say_workload(asked, workload)
    if asked.attribute is None:
        return _say_stream(asked, explain_stream(tables, asked.stream))
    found = explain(tables, asked.stream, asked.attribute)
    if asked.json:
        print_json(found)
        return 0
    what = f"{found.stream}.{found.attribute}"
    if found.exempt is not None:
        print_line(f"{found.stream} is {found.exempt}: from its next batch on, nothing of it is shed", "bold")
        print_line("Without the exemption:")
    for part in found.levers:
        _say_part(what, part, len(found.levers) > 1)
    if not found.levers:
        print_line(f"{found.stream} has no levers: its rows are sent unchanged", "bold")
    for note in found.notes:
        print_line(note, "yellow")
    if found.stages:
        print_stages("\nCounts of every stage", found.stages)
    if found.trade is not None:
        print_line(
            f"{found.trade.channel}: {found.trade.buys}. Other capacities: spillway plan {found.stream}"
        )
    return 0


def _say_stream(asked: argparse.Namespace, found: StreamExplanation) -> int:
    from spillway.report.overview import presence_lines, stream_lines

    if asked.json:
        print_json(found)
        return 0
    print_line(
        f"{found.stream}: mode {found.mode}, channel {found.channel}, levers {', '.join(found.levers) or 'none'}"
    )
    if found.overview is None:
        print_line("No batch was processed yet: spillway run")
    else:
        from spillway.report.result import format_stream_loss

        print("\n".join([*stream_lines(found.overview), *presence_lines(found.overview.figures)]))
        print_line(f"Lost: {format_stream_loss(found.overview)}.")
    for sentence in found.notes:
        print_line(sentence, "yellow")
    print_line(
        f"For the reasons: spillway explain {found.stream} ATTRIBUTE, which is one of {', '.join(found.attributes)}",
        "dim",
    )
    return 0


def _say_workload(asked: argparse.Namespace, found: WorkloadExplanation) -> int:
    if asked.json:
        print_json(found)
        return 0
    print_line(f"{found.name}, reads {', '.join(dict.fromkeys(found.inputs))}: {found.description}")
    if found.refused is not None:
        print_line(f"It is no longer computed: {found.refused}", "bold")
    for part in found.levers:
        _say_part(found.name, part, False)
    if found.stages:
        print_stages("\nCounts of every stage", found.stages)
    return 0


def _say_part(what: str, part: VersionedExplanation, one_of_several: bool) -> None:
    by = f" by {part.lever}" if one_of_several else ""
    if part.explanation is None:
        print_line(f"{part.lever} has no explanation of {what}; see the counts of its stage", "bold")
        return
    print_line(f"{what} is {part.explanation.treatment}{by}, because {part.explanation.because}.", "bold")
    numbers = [
        (name, value)
        for name, value in part.explanation.numbers.items()
        if value not in (None, "", 0, [], {})
    ]
    print_table("", ["", ""], [(f"  {name}", format_value(value)) for name, value in numbers])
    for remedy in part.explanation.remedies:
        print_line(f"To {remedy}")


def add_recover(commands: Any) -> None:
    made = add_command(
        commands,
        "recover",
        "Recover shed values, each with its error bound. Reads only the files that it needs, without Spark.",
        [
            "spillway recover weather --attributes temp --seq 4711",
            "spillway recover weather --key origin=JFK --from-time 2013-02-01 --to-time 2013-02-02",
            "spillway recover stocks --from-seq 1 --to-seq 500 --output stocks.parquet",
        ],
    )
    made.add_argument("stream", help="a stream with a contract")
    made.add_argument("--attributes", help="attributes, separated by commas (default: all)")
    made.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only tuples with this key; may be repeated",
    )
    made.add_argument("--seq", type=int, help="seq of one tuple")
    made.add_argument("--from-seq", type=int, help="first seq, inclusive")
    made.add_argument("--to-seq", type=int, help="last seq, inclusive")
    made.add_argument(
        "--from-time",
        help="first ISO date or time, inclusive; without an offset, in the timezone of the contract",
    )
    made.add_argument("--to-time", help="last ISO date or time, inclusive")
    made.add_argument(
        "--output", help="write a file (.parquet, .csv or .json with one object per line) instead of printing"
    )
    made.add_argument("--limit", type=int, default=50, help="maximum number of printed rows (default: 50)")
    made.set_defaults(run=_run_recover)


def _run_recover(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_usable
    from spillway.streams.destination import destination_tables
    from spillway.streams.query import StreamQuery
    from spillway.streams.recover import answer_rows, output_path, plan_answer, write_output

    settings = Settings.from_environment()
    try:
        contract = load_usable(settings.schemas).stream(asked.stream)
    except InvalidValue as problem:
        raise UsageError(str(problem)) from None
    question = StreamQuery.parse(
        contract,
        asked.attributes,
        asked.key,
        asked.seq,
        asked.from_seq,
        asked.to_seq,
        asked.from_time,
        asked.to_time,
    )
    path = output_path(asked.output) if asked.output else None
    counts: dict[str, int] = {}
    rows = answer_rows(
        plan_answer(destination_tables(settings), contract, question), contract, question, counts
    )
    if path is not None:
        shown, count = None, write_output(rows, path)
    else:
        shown, count = _first_rows(rows, None if asked.json else asked.limit)
    _say(asked, shown, count, counts, contract.timezone)
    return 0


def _first_rows(rows: Iterator[pa.Table], most: int | None) -> tuple[pa.Table, int]:
    """Return the first `most` rows (None: all), and the number of all rows."""
    import pyarrow as pa

    held: list[pa.Table] = []
    count = 0
    for part in rows:
        if most is None or not held or count < most:
            held.append(part if most is None else part.slice(0, max(0, most - count)))
        count += part.num_rows
    return pa.concat_tables(held), count


def _say(
    asked: argparse.Namespace, shown: pa.Table | None, count: int, counts: dict[str, int], zone: str
) -> None:
    read = {"synopsis_bytes_read": counts["asked_back_bytes"], "frames": counts["frames"]}
    if asked.json:
        tuples = [] if shown is None else shown.to_pylist()
        print_json({"stream": asked.stream, "rows": count, "output": asked.output, **read, "tuples": tuples})
        return
    if shown is None:
        print_line(f"Wrote {format_count(count, 'row')} of {asked.stream} to {asked.output}")
    else:
        from spillway.contracts.column_names import is_bound

        fields = [field for field in shown.schema if not is_bound(field.name)]
        heads = [f"#{field.name}" if _is_number(field.type) else field.name for field in fields]
        rows = [[_cell(row, field.name, zone) for field in fields] for row in shown.to_pylist()]
        print_table("", heads, rows, first=2)
        if any(SIGN in str(cell) for row in rows for cell in row):
            print_line(
                f"{SIGN} is the bound of a value that was rounded or recovered; other values are exact.",
                "dim",
            )
        if count > shown.num_rows:
            print_line(
                f"{format_count(count - shown.num_rows, 'more row')}; raise --limit, or write them with --output",
                "dim",
            )
    if read["synopsis_bytes_read"]:
        print_line(f"Read {format_bytes(read['synopsis_bytes_read'])} of synopsis at the source.", "dim")


SIGN = "±"


def _cell(row: dict[str, Any], name: str, zone: str = "UTC") -> object:
    """Return a value for a table: all digits if it is exact, six and its bound if it has one; times in `zone`.

    >>> [_cell({"hpa": 1012.1875, "hpa__bound_pct": bound}, "hpa") for bound in (None, 0.0, 0.03)]
    ['1012.1875', '1012.1875', '1012.19 ±0.03 %']
    >>> _cell({"hpa": 1012.1875, "hpa__bound_pct": math.nan, "hpa__bound": 0.5}, "hpa")
    '1012.19 ±0.5'
    >>> _cell({"hpa": None, "hpa__bound_pct": math.inf}, "hpa")
    'absent'
    >>> _cell({"mmsi": 211253074}, "mmsi")
    '211253074'
    >>> from datetime import UTC
    >>> _cell({"at": datetime(2026, 10, 25, 0, 30, tzinfo=UTC)}, "at", "Europe/Berlin")
    '2026-10-25 02:30:00+02:00'
    """
    from spillway.contracts.column_names import BOUND_SUFFIX, OWN_BOUND_SUFFIX
    from spillway.contracts.timezone import UTC_NAME, in_zone

    value = row[name]
    pct, own = row.get(name + BOUND_SUFFIX), row.get(name + OWN_BOUND_SUFFIX)
    if value is None:
        return "absent" if pct == math.inf else None
    bound = f" {SIGN}{own:.3g}" if own else f" {SIGN}{pct:.3g} %" if pct and pct == pct else ""
    if isinstance(value, datetime) and zone != UTC_NAME:
        return in_zone(value, zone).isoformat(" ")
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value}{bound}"  # data, possibly an identifier, so without thousands separators
    if not isinstance(value, float):
        return value
    return f"{value:.6g}{bound}" if bound else f"{value:.15g}"


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
