"""Print tables for people and JSON for programs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from spillway.errors import SpillwayError, escape_text, format_number

if TYPE_CHECKING:
    from rich.console import Console

    from spillway.report.text import StageSum

PLAIN_WIDTH = 160
MOST_OF_A_LINE = 4000


def add_command(commands: Any, name: str, purpose: str, examples: Sequence[str]) -> argparse.ArgumentParser:
    """Add a subcommand with `--json`, and with examples below its help."""
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=purpose,
        description=purpose,
        epilog="examples:\n" + "\n".join(f"  {example}" for example in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", action="store_true", help="print one JSON document")
    return made


def console() -> Console:
    """Return Rich's console. Outside a terminal it is `PLAIN_WIDTH` wide, so that logs are not cut."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def print_json(value: Any) -> None:
    """Print one JSON document; dataclasses become objects, dates ISO text, NaN and infinities null."""
    print(json.dumps(jsonable(value), indent=2, ensure_ascii=False))


def jsonable(value: Any) -> Any:
    """Convert a value to types that JSON has.

    >>> jsonable({"at": date(2026, 1, 2), "share": float("nan"), "names": ("a",), "bytes": b"x"})
    {'at': '2026-01-02', 'share': None, 'names': ['a'], 'bytes': '78'}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: jsonable(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; a head that starts with # is above right-aligned numbers."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for head in heads:
        table.add_column(
            head.lstrip("#"), justify="right" if head.startswith("#") else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(format_value(value)) for value in row))
    console().print(table)


def print_stages(title: str, stages: Sequence[StageSum]) -> None:
    """Print the work of every stage, one line per stage and unit."""
    heads = ["stage", "unit", "of", "#batches", "#offered", "#handed on", "#rounded", "#shed", "#recoverable"]
    rows = [
        tuple(value or "all" if name == "dimension" else value for name, value in vars(one).items())
        for one in stages
    ]
    print_table(title, [*heads, "#lost"], rows)


def format_value(value: object) -> str:
    """Return a value as text for people.

    >>> [format_value(one) for one in (1234567, 0.123456, None, True, {"done": 2, "retired": 1})]
    ['1,234,567', '0.1235', '-', 'yes', '2 done, 1 retired']
    >>> format_value(33590.4), format_value(6.7e-07)
    ('33,590', '0.00000067')
    >>> format_value(["a: 1 row", "b"])
    'a: 1 row; b'
    >>> format_value(datetime(2026, 1, 1, 9, 30)), format_value(datetime(2026, 1, 1, 9, 30, 5))
    ('2026-01-01 09:30', '2026-01-01 09:30:05')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return format_number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{format_value(count)} {name}" for name, count in value.items()) or "none"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}" if value.second else f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, list):
        return "; ".join(map(format_value, value)) or "none"
    return str(value)


def parse_date(text: str) -> date:
    """Parse a date of the command line."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a date like 2026-02-01, got {text!r}") from None


def print_line(text: str, style: str = "") -> None:
    """Print a line; square brackets are printed as they are, without Rich's markup."""
    from rich.text import Text

    console().print(Text(text, style=style))


def print_error(asked: argparse.Namespace, problem: SpillwayError) -> None:
    """Print an error: as text to standard error, or as a JSON document with `--json`."""
    if getattr(asked, "json", False):
        problems = [jsonable(item) for item in getattr(problem, "problems", ())]
        print_json({"error": str(problem)} | ({"problems": problems} if problems else {}))
    else:
        # the message may quote text of a file or of another program
        lines = [escape_text(line, MOST_OF_A_LINE) for line in str(problem).split("\n")]
        print(f"spillway {asked.command}: {chr(10).join(lines)}", file=sys.stderr)
