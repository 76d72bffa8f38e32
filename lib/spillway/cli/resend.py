"""`spillway resend STREAM --from D --to D`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from spillway.cli.output import command, day, say_json
from spillway.cli.run import add_engine, engine_of
from spillway.settings import Settings


def add_resend(commands: Any) -> None:
    made = command(
        commands,
        "resend",
        "Send the exact tuples of some batch dates across, while raw is held; counted against the capacity.",
        [
            "spillway resend weather --from 2013-02-01",
            "spillway resend weather --from 2013-02-01 --to 2013-02-28",
        ],
    )
    made.add_argument("stream", help="a stream with a contract")
    made.add_argument("--from", dest="first", type=day, required=True, help="first batch date")
    made.add_argument("--to", dest="last", type=day, help="last batch date (default: the first)")
    add_engine(made)
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_usable
    from spillway.pipeline.resend import resend
    from spillway.show.progress import Progress
    from spillway.store.tables import Tables

    settings = Settings.from_environment()
    contracts, dates = load_usable(settings.schemas), (asked.first, asked.last or asked.first)
    progress = Progress.here(sys.stderr if asked.json else sys.stdout)
    with engine_of(asked) as engine:
        done = resend(Tables(settings), engine, contracts, asked.stream, dates, progress.detail)
    numbers = [batch.batch for batch in done]
    if asked.json:
        say_json(
            {"stream": asked.stream, "batches": numbers, "tuples": sum(batch.rows or 0 for batch in done)}
        )
    else:
        what = (
            f"batch {', '.join(map(str, numbers))} sent again, whole"
            if numbers
            else "nothing was left to send"
        )
        progress.step(
            f"{asked.stream}: {what}; spillway run, or the nightly validation, compares it with raw"
        )
    return 0
