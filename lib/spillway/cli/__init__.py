"""The `spillway` command: thin over the functions that jobs and DAGs use.

Exit codes: 0 all is well, 1 something is wrong, 2 the command was not understood. Every subcommand prints for
people, and with `--json` one JSON document for programs. Heavy packages are imported by the subcommand that
needs them, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from spillway.cli import ask, contracts, doctor, explain, recover, report, status
from spillway.cli.output import say_error
from spillway.errors import SpillwayError, UsageError

OK, WRONG, USAGE = 0, 1, 2
COMMANDS = (doctor, contracts, status, explain, recover, ask, report)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="spillway",
        description="Keeps data streams inside the capacity you have, and proves what it gives back.",
        epilog="Roots come from SPILLWAY_HOME, SPILLWAY_LAKE, SPILLWAY_DESTINATION, SPILLWAY_LANDING and "
        "SPILLWAY_SCHEMAS. Exit codes: 0 all is well, 1 something is wrong, 2 the command was not understood.",
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    asked = parser().parse_args(arguments)
    try:
        code: int = asked.run(asked)
    except UsageError as problem:
        say_error(asked, problem)
        return USAGE
    except SpillwayError as problem:
        say_error(asked, problem)
        return WRONG
    except BrokenPipeError:
        sys.stderr.close()
        return OK
    return code
