"""Implement `spillway keep`, `spillway migrate`, `spillway register` and `spillway doctor`."""

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


def add_register(commands: Any) -> None:
    made = add_command(
        commands,
        "register",
        "Register the curated tables in a catalog as external Delta tables, with their columns and comments. It may be "
        "run again at any time. The exit code is 1 if a name belongs to another table.",
        [
            "spillway register --metastore thrift://metastore:9083",
            "spillway register --database streams --dry-run   # hive-site.xml in SPARK_CONF_DIR names the metastore",
        ],
    )
    made.add_argument("--database", default="spillway", help="the database of the tables (default: spillway)")
    made.add_argument(
        "--metastore",
        help="address of a Hive metastore, thrift://HOST:PORT or jdbc:... (default: that of Spark's configuration, or "
        "the catalog of the Spark Connect server in SPILLWAY_MASTER)",
    )
    made.add_argument("--dry-run", action="store_true", help="only show the actions")
    made.set_defaults(run=_register)


def _register(asked: argparse.Namespace) -> int:
    from spillway.store.catalog import REFUSED, catalog_session, register_tables
    from spillway.store.tables import Tables

    tables = Tables(Settings.from_environment())
    say = _quiet if asked.json else print_line
    with catalog_session(asked.metastore) as spark:
        found = register_tables(spark, tables, asked.database, say, asked.dry_run)
    if asked.json:
        print_json(found)
    elif not found:
        print_line("no curated table exists yet: spillway run")
    return 1 if any(one.action == REFUSED for one in found) else 0


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
