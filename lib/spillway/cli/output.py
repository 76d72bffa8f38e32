"""Print tables for people and JSON for programs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from spillway.errors import SpillwayError, escape_text, format_number

if TYPE_CHECKING:
    from spillway.report.text import StageSum

PLAIN_WIDTH = 120
"""Width of tables if the output is no terminal."""
MOST_OF_A_LINE = 4000


class CommandHelp(argparse.HelpFormatter):
    """Wrap descriptions; print examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(EXAMPLES):
            return text
        return super()._fill_text(text, width, indent)


EXAMPLES = "examples:\n"


def add_command(commands: Any, name: str, purpose: str, examples: Sequence[str]) -> argparse.ArgumentParser:
    """Add a subcommand with `--json`, and with examples below its help."""
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=purpose,
        description=purpose,
        epilog=EXAMPLES + "\n".join(f"  {example}" for example in examples),
        formatter_class=CommandHelp,
    )
    made.add_argument("--json", action="store_true", help="print one JSON document")
    return made


def console_width() -> int:
    """Return the width of tables: that of the terminal (or `COLUMNS`); `PLAIN_WIDTH` where there is none."""
    return get_terminal_size((PLAIN_WIDTH, 24)).columns


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


def print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]], first: int = 1) -> None:
    """Print a table; a head that starts with # is above right-aligned numbers.

    Columns of text are wrapped if the table is wider than the terminal. If its numbers alone are wider, the table is
    printed in blocks of columns, each with the `first` columns.
    """
    from spillway.report.text import blocks, table_lines

    if title:
        print_line(title, "bold")
    width = console_width()
    shown = [[format_value(value) for value in row] for row in rows]
    names = [head if head.startswith("#") else f"~{head}" for head in heads]
    lines = table_lines(names, shown, page=width)
    if max(map(len, lines)) > width:
        lines = []
        for block in blocks(first, names, shown, page=width):
            lines += [""] if lines else []
            lines += table_lines(
                [names[at] for at in block], [[row[at] for at in block] for row in shown], page=width
            )
    print("\n".join(lines if any(heads) else lines[1:]))


def print_stages(title: str, stages: Sequence[StageSum]) -> None:
    """Print the work of every stage, one line per stage and unit."""
    heads = ["stage", "unit", "of", "#batches", "#offered", "#passed on", "#rounded", "#shed", "#recoverable"]
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


STYLES = {"bold": "1", "dim": "2", "bold red": "1;31", "green": "32", "yellow": "33"}


def print_line(text: str, style: str = "", indent: int = 0) -> None:
    """Print a sentence, wrapped at the width of a page; on a terminal in a style."""
    from spillway.report.text import sentences

    code = STYLES.get(style) if sys.stdout.isatty() and "NO_COLOR" not in os.environ else None
    for given in text.split("\n"):
        for line in sentences(given, indent) or [""]:
            print(f"\x1b[{code}m{line}\x1b[0m" if code else line)


def print_error(asked: argparse.Namespace, problem: SpillwayError) -> None:
    """Print an error: as text to standard error, or as a JSON document with `--json`."""
    if getattr(asked, "json", False):
        problems = [jsonable(item) for item in getattr(problem, "problems", ())]
        print_json({"error": str(problem)} | ({"problems": problems} if problems else {}))
    else:
        # the message may quote text of a file or of another program
        lines = [escape_text(line, MOST_OF_A_LINE) for line in str(problem).split("\n")]
        print(f"spillway {asked.command}: {chr(10).join(lines)}", file=sys.stderr)
