"""Make the missing sketches that the contracts of a channel's streams specify.

spark-submit jobs/sketch.py --channel uplink
spark-submit jobs/sketch.py --channel uplink --from-date 2026-01-01 --to-date 2026-01-07   # again, exactly these
"""

from __future__ import annotations

import argparse
from datetime import date

from spillway.contracts import load_usable
from spillway.engine.spark import spark_engine
from spillway.job import run_job, say
from spillway.pipeline.run import sketch_channel
from spillway.settings import Settings
from spillway.store.tables import Tables


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--channel", required=True, help="the channel, as in schemas/channels.yaml")
    parser.add_argument("--from-date", type=date.fromisoformat, help="sketch batch dates from this one again")
    parser.add_argument("--to-date", type=date.fromisoformat, help="... to this one (default: the same)")
    asked = parser.parse_args()
    dates = (asked.from_date, asked.to_date or asked.from_date) if asked.from_date else None

    settings = Settings.from_environment()
    contracts = load_usable(settings.schemas)
    with spark_engine(f"spillway sketch {asked.channel}") as engine:
        made = sketch_channel(Tables(settings), engine, contracts, asked.channel, say, dates)
        say(f"{asked.channel}: {made} sketches made")


if __name__ == "__main__":
    run_job(main)
