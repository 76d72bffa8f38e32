"""`spillway replay STREAM`: take in again what was refused, after its contract or its file was mended."""

from __future__ import annotations

import argparse
from typing import Any

from spillway.cli.output import command, day, jsonable, say_json, say_line
from spillway.settings import Settings


def add_replay(commands: Any) -> None:
    made = command(
        commands,
        "replay",
        "Take refused files and rejected rows in again, and batches that were set aside; each tuple once.",
        [
            "spillway replay weather",
            "spillway replay weather --file 2013-02-01/part-3.json",
            "spillway replay weather --reason 'temp must be' --date 2013-02-01",
        ],
    )
    made.add_argument("stream", help="a stream with a contract")
    made.add_argument("--file", help="only of this landing file: its name, or how it ends")
    made.add_argument("--reason", help="only what was refused for a reason that holds these words")
    made.add_argument("--date", type=day, help="only of this batch date")
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_usable
    from spillway.engine import InProcess
    from spillway.intake.replay import Selection, replay
    from spillway.job import run_name
    from spillway.store.tables import Tables

    settings = Settings.from_environment()
    contract = load_usable(settings.schemas).stream(asked.stream)
    selection = Selection(asked.file, asked.reason, asked.date)
    said: list[str] = []
    tell = said.append if asked.json else say_line
    done = replay(Tables(settings), InProcess(), contract, selection, run_name("replay"), tell)
    found = {
        "files": done.files,
        "records": done.records,
        "batches": [one.batch for one in done.batches],
        "reopened": list(done.reopened),
        "tuples": sum(one.rows or 0 for one in done.batches),
        "rejected": sum(one.rejected or 0 for one in done.batches),
    }
    if asked.json:
        say_json(jsonable(found))
    elif not (done.files or done.records or done.batches or done.reopened):
        say_line(f"{contract.stream}: nothing of what is asked for waits to be replayed")
    else:
        say_line(
            f"{contract.stream}: {done.files:,} files and {done.records:,} records replayed: {found['tuples']:,} "
            f"tuples taken in, {found['rejected']:,} refused again; spillway run (or the DAG "
            "spillway_shed) brings them through"
        )
    return 0
