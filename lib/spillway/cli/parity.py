"""`spillway parity add FILE` and `spillway parity check FILE`: add and check parity of the lines of a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.cli.output import command, say_json, say_line
from spillway.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_LINES_SHOWN = 20


def add_parity(commands: Any) -> None:
    purpose = (
        "Append parity to the lines of a file, or check it. Intake then corrects one flipped bit in a line."
    )
    made = commands.add_parser("parity", help=purpose, description=purpose)
    actions = made.add_subparsers(dest="action", metavar="ACTION", required=True)
    adds = command(
        actions,
        "add",
        "Append to each line of a CSV or JSON file the parity of its bytes. The contract must state parity: secded "
        "under source.",
        [
            "spillway parity add readings.csv --output sent.csv",
            "spillway parity add readings.jsonl > sent.jsonl",
        ],
    )
    adds.add_argument("file", help="a file of CSV or JSON lines, plain or compressed with gzip or zstd")
    adds.add_argument("--output", help="where to write the lines; default: standard output")
    adds.set_defaults(run=_add)
    checks = command(
        actions,
        "check",
        "Count the lines of a file with one flipped bit, and list the lines that cannot be corrected.",
        ["spillway parity check sent.csv"],
    )
    checks.add_argument("file", help="a file that `spillway parity add` wrote")
    checks.set_defaults(run=_check)


@contextmanager
def _opened(name: str) -> Iterator[pa.NativeFile]:
    import pyarrow as pa

    try:
        with pa.OSFile(name) as source:
            yield source
    except OSError as problem:
        reason = str(problem).partition(". Detail")[0]
        raise UsageError(
            f"`file` must be a file that can be read, got {name!r}: {reason}; correct the name"
        ) from None


def _add(asked: argparse.Namespace) -> int:
    from spillway.records.parity import file_with_parity
    from spillway.records.wrapper import plain_bytes

    if asked.json and asked.output is None:
        raise UsageError(
            "`--output` must be given with --json, got none; add --output FILE: standard output holds "
            "the JSON"
        )
    lines = 0
    with _opened(asked.file) as source:
        parts = file_with_parity(plain_bytes(source))
        if asked.output is None:
            for part in parts:
                sys.stdout.buffer.write(part)
            return 0
        whole = Path(asked.output)
        if whole.exists() and whole.samefile(asked.file):
            raise UsageError(
                f"`--output` must not be the input file, got {asked.output!r}; write another name"
            )
        # written under another name and renamed, so that no reader takes in half a file
        partial = whole.with_name(f".{whole.name}.partial")
        try:
            with partial.open("wb") as sink:
                for part in parts:
                    lines += part.count(b"\n") + (not part.endswith(b"\n"))
                    sink.write(part)
            partial.replace(whole)
        finally:
            partial.unlink(missing_ok=True)
    if asked.json:
        say_json({"lines": lines, "output": asked.output})
    else:
        say_line(f"Wrote {lines:,} lines with parity to {asked.output}.")
    return 0


def _check(asked: argparse.Namespace) -> int:
    from spillway.records.parity import check_file
    from spillway.records.wrapper import plain_bytes

    with _opened(asked.file) as source:
        found = check_file(plain_bytes(source))
    if asked.json:
        say_json(found)
        return 1 if found.refused else 0
    say_line(
        f"{found.lines:,} lines: {found.lines - found.corrected - len(found.refused):,} intact, "
        f"{found.corrected:,} with one flipped bit that is corrected, {len(found.refused):,} that cannot be corrected"
    )
    if found.refused:
        shown = ", ".join(map(str, found.refused[:_MOST_LINES_SHOWN]))
        more = len(found.refused) - _MOST_LINES_SHOWN
        say_line(f"cannot be corrected: line {shown}" + (f" and {more:,} more" if more > 0 else ""))
    return 1 if found.refused else 0
