"""`spillway doctor`."""

from __future__ import annotations

import argparse
from typing import Any

from spillway.cli.output import command, say_json, say_line, say_table


def add_doctor(commands: Any) -> None:
    made = command(
        commands,
        "doctor",
        "Look at Java, jars, Spark, Airflow, packages and write access; say what is wrong and the remedy.",
        ["spillway doctor", "spillway doctor --deep   # also starts Spark, and spark-submit (40 s)"],
    )
    made.add_argument(
        "--deep",
        action="store_true",
        help="start Spark for real, by Python and by spark-submit; each writes and reads a Delta table",
    )
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.doctor.checks import run_checks

    checks = run_checks(deep=asked.deep)
    wrong = [check for check in checks if not check.ok]
    if asked.json:
        say_json({"ok": not wrong, "checks": checks})
    else:
        say_table("", ["", "what", "found"], [("ok" if c.ok else "WRONG", c.name, c.found) for c in checks])
        for check in wrong:
            say_line(f"{check.name}: {check.remedy}", "bold red")
        if not wrong:
            say_line("All is well.", "green")
    return 1 if wrong else 0
