"""`spillway plan STREAM|CHANNEL`."""

from __future__ import annotations

import argparse
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
        ],
    )
    made.add_argument("name", help="a stream or a channel with a contract", metavar="STREAM|CHANNEL")
    made.add_argument(
        "--capacity", help="of the channel, instead of what channels.yaml says: '30 kbps', '2 GB/day'"
    )
    made.add_argument(
        "--batch", default="latest", help="the number of a batch of the stream (default: latest)"
    )
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    if asked.batch != "latest" and not asked.batch.isdecimal():
        raise UsageError(f"`--batch` must be a number or latest, got {asked.batch!r}; see the table batches")
    from spillway.engine import InProcess
    from spillway.show.planned import plan_lines, plan_of
    from spillway.store.tables import Tables

    batch = None if asked.batch == "latest" else int(asked.batch)
    found = plan_of(Tables(Settings.from_environment()), InProcess(), asked.name, asked.capacity, batch)
    if asked.json:
        say_json(found)
    else:
        print("\n".join(plan_lines(found)))
    return 0
