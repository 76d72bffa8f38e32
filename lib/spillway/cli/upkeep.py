"""Implement `spillway keep`, `spillway migrate` and `spillway doctor`."""

from __future__ import annotations

import argparse
from typing import Any

from spillway.cli.output import add_command, print_json, print_line, print_table
from spillway.settings import Settings


def add_keep(commands: Any) -> None:
    made = add_command(
        commands,
        "keep",
        "Delete rows past their retention, compact small files, and delete files that no table needs.",
        ["spillway keep --dry-run   # show the actions", "spillway keep"],
    )
    made.add_argument("--dry-run", action="store_true", help="only show the actions")
    made.set_defaults(run=_keep)


def add_migrate(commands: Any) -> None:
    made = add_command(
        commands,
        "migrate",
        "Convert tables of an earlier version of Spillway to the formats of this version.",
        ["spillway migrate --dry-run   # show the changes of each table", "spillway migrate"],
    )
    made.add_argument("--dry-run", action="store_true", help="only show the actions")
    made.set_defaults(run=_migrate)


def _keep(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_contracts
    from spillway.store.tables import Tables
    from spillway.streams.retention import maintain_lake

    settings = Settings.from_environment()
    contracts = load_contracts(settings.schemas)
    found = maintain_lake(Tables(settings), contracts, _quiet if asked.json else print_line, asked.dry_run)
    if asked.json:
        print_json(found)
    return 0


def _migrate(asked: argparse.Namespace) -> int:
    from spillway.streams.migrate import migrate

    found = migrate(Settings.from_environment(), _quiet if asked.json else print_line, asked.dry_run)
    if asked.json:
        print_json(found)
    return 0


def _quiet(_: str) -> None:
    """Print nothing: with `--json`, only the document is printed."""


def add_doctor(commands: Any) -> None:
    made = add_command(
        commands,
        "doctor",
        "Check Java, jars, Spark, Airflow, packages and write access. Each problem has a remedy.",
        [
            "spillway doctor",
            "spillway doctor --deep   # also start Spark, by Python and by spark-submit (40 s)",
        ],
    )
    made.add_argument(
        "--deep",
        action="store_true",
        help="also start Spark, by Python and by spark-submit; each writes and reads a Delta table",
    )
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.doctor.checks import run_checks

    checks = run_checks(deep=asked.deep)
    wrong = [check for check in checks if not check.ok]
    if asked.json:
        print_json({"ok": not wrong, "checks": checks})
    else:
        print_table("", ["", "what", "found"], [("ok" if c.ok else "WRONG", c.name, c.found) for c in checks])
        for check in wrong:
            print_line(f"{check.name}: {check.remedy}", "bold red")
        if not wrong:
            print_line("All is well.", "green")
    return 1 if wrong else 0
