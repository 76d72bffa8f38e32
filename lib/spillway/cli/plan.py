"""`spillway plan STREAM|CHANNEL`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from spillway.cli.output import command, say_json
from spillway.errors import UsageError
from spillway.settings import Settings


def add_plan(commands: Any) -> None:
    made = command(
        commands,
        "plan",
        "Say what would be kept, rounded and shed, at which error; write nothing.",
        [
            "spillway plan weather",
            "spillway plan messages --capacity '8 kB/month'   # what if the channel were narrower?",
            "spillway plan stocks --batch 2 --json",
            "spillway plan weather --compare            # next to gzip, xz and Parquet",
        ],
    )
    made.add_argument("name", help="a stream or a channel with a contract", metavar="STREAM|CHANNEL")
    made.add_argument(
        "--capacity", help="of the channel, instead of what channels.yaml says: '30 kbps', '2 GB/day'"
    )
    made.add_argument(
        "--batch", default="latest", help="the number of a batch of the stream (default: latest)"
    )
    made.add_argument(
        "--compare",
        action="store_true",
        help="also measure the bytes of the batch as CSV with gzip and xz, as Parquet, and as sent by Spillway without "
        "loss and within the bounds; takes about 10 seconds for 50,000 rows, and stores the result for the report",
    )
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    if asked.batch != "latest" and not asked.batch.isdecimal():
        raise UsageError(f"`--batch` must be a number or latest, got {asked.batch!r}; see the table batches")
    from spillway.engine import InProcess
    from spillway.show.compared import keep_comparison
    from spillway.show.planned import plan_lines, plan_of
    from spillway.show.progress import Progress
    from spillway.store.tables import Tables

    settings = Settings.from_environment()
    batch = None if asked.batch == "latest" else int(asked.batch)
    say = Progress.here(sys.stderr).detail
    found = plan_of(Tables(settings), InProcess(), asked.name, asked.capacity, batch, asked.compare, say)
    kept = [keep_comparison(settings, one) for one in found.comparisons]
    if asked.json:
        say_json(found)
        return 0
    print("\n".join(plan_lines(found)))
    for path in kept:
        print(f"Stored in {path}; the next report shows it.")
    return 0
