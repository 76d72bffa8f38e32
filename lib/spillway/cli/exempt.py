"""`spillway exempt STREAM --until T --reason R`."""

from __future__ import annotations

import argparse
from typing import Any

from spillway.cli.output import command, say_json, say_line
from spillway.errors import UsageError
from spillway.settings import Settings


def add_exempt(commands: Any) -> None:
    made = command(
        commands,
        "exempt",
        "Shed nothing of a stream from its next batch on, until a moment; counted against the capacity all the same.",
        [
            "spillway exempt weather --until 2026-02-01 --reason 'the audit wants every digit'",
            "spillway exempt weather --until now --reason 'the audit is over'   # ends it",
        ],
    )
    made.add_argument("stream", help="a stream with a contract")
    made.add_argument(
        "--until", required=True, help="ISO date or time, UTC unless it says otherwise; now: at once"
    )
    made.add_argument("--reason", required=True, help="why: it stands in the ledger and in spillway status")
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from spillway.clock import utc_now
    from spillway.contracts import load_usable
    from spillway.store.tables import Tables
    from spillway.streams.exemptions import exempt

    settings, now = Settings.from_environment(), utc_now()
    contract = load_usable(settings.schemas).stream(asked.stream)
    if asked.until == "now":
        until = now
    else:
        try:
            until = datetime.fromisoformat(asked.until)
        except ValueError:
            raise UsageError(
                f"`--until` must be a date or time like 2026-02-01T12:00, got {asked.until!r}; correct it"
            ) from None
        until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
        if until <= now:
            raise UsageError(
                f"`--until` must be later than now, got {asked.until!r}; to end it say --until now"
            )
    found = exempt(Tables(settings), contract.stream, until, asked.reason, now)
    if asked.json:
        say_json(found)
    elif until == now:
        say_line(f"{contract.stream} is exempt no more: its next batch is shed as its contract says")
    else:
        say_line(f"{contract.stream} is {found.sentence}. Nothing is shed of it from its next batch on.")
    return 0
