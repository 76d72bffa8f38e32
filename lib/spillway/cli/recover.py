"""`spillway recover STREAM`: shed values given back, each with its bound, without starting Spark."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spillway.cli.output import command, say_json, say_line, say_table
from spillway.errors import Refused, UsageError
from spillway.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa


def add_recover(commands: Any) -> None:
    made = command(
        commands,
        "recover",
        "Give shed values back, each with its bound. Reads the few files it needs; starts no Spark.",
        [
            "spillway recover weather --attributes temp --key origin=JFK --seq 4711",
            "spillway recover weather --key origin=JFK --from-time 2013-02-01 --to-time 2013-02-02",
            "spillway recover stocks --from-seq 1 --to-seq 500 --output stocks.parquet",
        ],
    )
    made.add_argument("stream", help="a stream with a contract")
    made.add_argument("--attributes", help="comma-separated (default: all)")
    made.add_argument(
        "--key", action="append", default=[], metavar="NAME=VALUE", help="only this key; may repeat"
    )
    made.add_argument("--seq", type=int, help="one tuple")
    made.add_argument("--from-seq", type=int, help="first seq")
    made.add_argument("--to-seq", type=int, help="last seq")
    made.add_argument(
        "--from-time", help="ISO date or time; without an offset, on the clocks of the contract's timezone"
    )
    made.add_argument("--to-time", help="ISO date or time, inclusive")
    made.add_argument("--output", help="write .parquet, .csv or .json lines")
    made.add_argument("--limit", type=int, default=50, help="rows printed (default: 50)")
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_usable
    from spillway.streams.destination import tables_there
    from spillway.streams.reading import Question
    from spillway.streams.recover import answer, found_rows, output_path, write_output

    settings = Settings.from_environment()
    try:
        contract = load_usable(settings.schemas).stream(asked.stream)
    except Refused as problem:
        raise UsageError(str(problem)) from None
    question = Question.parse(
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
    rows = found_rows(answer(tables_there(settings), contract, question), contract, question, counts)
    if path is not None:
        shown, count = None, write_output(rows, path)
    else:
        shown, count = _held(rows, None if asked.json else asked.limit)
    _say(asked, shown, count, counts, contract.timezone)
    return 0


def _held(rows: Iterator[pa.Table], most: int | None) -> tuple[pa.Table, int]:
    """The first rows, and how many there are; the rest goes by."""
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
        say_json({"stream": asked.stream, "rows": count, "output": asked.output, **read, "tuples": tuples})
        return
    if shown is None:
        say_line(f"Wrote {count:,} tuples of {asked.stream} to {asked.output}")
    else:
        heads = [f"#{field.name}" if _is_number(field.type) else field.name for field in shown.schema]
        say_table(
            "", heads, [[_cell(row, name, zone) for name in shown.column_names] for row in shown.to_pylist()]
        )
        if count > shown.num_rows:
            say_line(f"{count - shown.num_rows:,} more; raise --limit, or write them with --output", "dim")
    say_line(f"Read {read['synopsis_bytes_read']:,} bytes of synopsis in {read['frames']:,} frames.", "dim")


def _cell(row: dict[str, Any], name: str, zone: str = "UTC") -> object:
    """A value: in all its digits where exact, in six where it has a bound; a moment as clocks in the zone show it.

    >>> [_cell({"hpa": 1012.1875, "hpa__bound_pct": bound}, "hpa") for bound in (None, 0.03)]
    ['1012.1875', '1012.19']
    >>> _cell({"mmsi": 211253074}, "mmsi")
    '211253074'
    >>> from datetime import UTC
    >>> _cell({"at": datetime(2026, 10, 25, 0, 30, tzinfo=UTC)}, "at", "Europe/Berlin")
    '2026-10-25 02:30:00+02:00'
    """
    from spillway.contracts.column_names import BOUND_SUFFIX, is_bound
    from spillway.contracts.timezone import UTC_NAME, in_zone

    value = row[name]
    if isinstance(value, datetime) and zone != UTC_NAME:
        return in_zone(value, zone).isoformat(" ")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # data, and maybe an identifier: no separators, as seq has none
    if not isinstance(value, float) or is_bound(name):
        return value
    return f"{value:.15g}" if row.get(name + BOUND_SUFFIX) is None else f"{value:.6g}"


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
