"""The `spillway` command: a thin layer over the functions that jobs and DAGs use.

Exit codes: 0: success; 1: something is wrong (`run`: also if a file was rejected as a whole or a batch exceeds
its channel); 2: the command was not understood. Every subcommand prints text for people, or one JSON document
with `--json`. Each subcommand imports heavy packages only when it runs, so that `--help` is fast.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn

from spillway.cli.contracts import add_contracts, add_parity
from spillway.cli.output import print_error
from spillway.cli.plan import add_join_advice, add_plan, add_what_if
from spillway.cli.read import add_ask, add_explain, add_recover
from spillway.cli.run import add_exempt, add_replay, add_resend, add_run
from spillway.cli.status import add_report, add_status
from spillway.cli.upkeep import add_doctor, add_keep, add_migrate, add_register
from spillway.errors import SpillwayError, UsageError, escape_text

OK, WRONG, USAGE = 0, 1, 2
COMMANDS = (
    add_doctor,
    add_contracts,
    add_status,
    add_plan,
    add_what_if,
    add_explain,
    add_recover,
    add_ask,
    add_join_advice,
    add_report,
    add_replay,
    add_keep,
    add_migrate,
    add_register,
    add_run,
    add_exempt,
    add_resend,
    add_parity,
)


class _Parser(argparse.ArgumentParser):
    """A parser whose error messages contain no control characters of the input."""

    def error(self, message: str) -> NoReturn:
        super().error(escape_text(message, 2000))


def _version() -> str:
    try:
        return version("spillway")
    except PackageNotFoundError:
        return "(not installed: run from its sources)"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = _Parser(
        prog="spillway",
        description="Reduce data streams to the capacity of a channel; check every recovered value against its bound.",
        epilog="Root folders are in the environment variables SPILLWAY_HOME, SPILLWAY_LAKE, SPILLWAY_DESTINATION, "
        "SPILLWAY_LANDING and SPILLWAY_SCHEMAS. Exit codes: 0: success; 1: a problem was found (`run`: also if a file "
        "was refused or a batch exceeds its channel); 2: invalid command line.",
    )
    top.add_argument("--version", action="version", version=f"spillway {_version()}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in COMMANDS:
        add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    asked = parser().parse_args(arguments)
    try:
        code: int = asked.run(asked)
    except UsageError as problem:
        print_error(asked, problem)
        return USAGE
    except SpillwayError as problem:
        print_error(asked, problem)
        return WRONG
    except BrokenPipeError:
        sys.stderr.close()
        return OK
    return code
