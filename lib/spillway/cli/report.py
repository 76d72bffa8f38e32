"""`spillway report`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spillway.cli.output import command, say_json, say_line
from spillway.errors import UsageError
from spillway.settings import Settings, refuse_uri


def add_report(commands: Any) -> None:
    made = command(
        commands,
        "report",
        "Write the report: one HTML page with figures and plots of every stream.",
        ["spillway report", "spillway report --output /var/www/spillway.html"],
    )
    made.add_argument("--output", help="where to write it (default: build/report.html)")
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.show.report import build_report
    from spillway.store.tables import Tables

    if asked.output is not None:
        refuse_uri("--output", asked.output)
    if asked.output is not None and not Path(asked.output).absolute().parent.is_dir():
        raise UsageError(
            f"`--output` must be a file in a folder that exists, got {asked.output!r}; make the folder first"
        )
    path = build_report(Tables(Settings.from_environment()), asked.output)
    if asked.json:
        say_json({"report": path})
    else:
        say_line(f"Wrote {path}")
    return 0
