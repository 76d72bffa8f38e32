"""`spillway keep` and `spillway migrate`."""

from __future__ import annotations

import argparse
from typing import Any

from spillway.cli.output import command, say_json
from spillway.settings import Settings


def add_keep(commands: Any) -> None:
    made = command(
        commands,
        "keep",
        "Remove what is past its retention, put small files together, free what no table needs.",
        ["spillway keep --dry-run   # what would be done", "spillway keep"],
    )
    made.add_argument("--dry-run", action="store_true", help="say it, and do nothing")
    made.set_defaults(run=_keep)


def add_migrate(commands: Any) -> None:
    made = command(
        commands,
        "migrate",
        "Bring tables that an earlier Spillway wrote to the formats of this one.",
        ["spillway migrate --dry-run   # which tables, and what of them", "spillway migrate"],
    )
    made.add_argument("--dry-run", action="store_true", help="say it, and do nothing")
    made.set_defaults(run=_migrate)


def _keep(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_contracts
    from spillway.store.tables import Tables
    from spillway.streams.retention import keep

    settings = Settings.from_environment()
    contracts = load_contracts(settings.schemas)
    found = keep(Tables(settings), contracts, _quiet if asked.json else print, asked.dry_run)
    if asked.json:
        say_json(found)
    return 0


def _migrate(asked: argparse.Namespace) -> int:
    from spillway.streams.migrate import migrate

    found = migrate(Settings.from_environment(), _quiet if asked.json else print, asked.dry_run)
    if asked.json:
        say_json(found)
    return 0


def _quiet(_: str) -> None:
    """Programs read the document alone."""
