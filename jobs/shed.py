"""Process the pending batches of a channel: take in, plan, shed, account.

spark-submit jobs/shed.py --channel uplink
spark-submit jobs/shed.py --channel uplink --from-date 2026-01-01 --to-date 2026-01-07   # again, exactly these
"""

from __future__ import annotations

import argparse
from datetime import date

from spillway.contracts import load_usable
from spillway.engine.spark import spark_engine
from spillway.job import run_job, run_name, say
from spillway.pipeline.run import run_channel
from spillway.settings import Settings
from spillway.store.tables import Tables


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--channel", required=True, help="the channel, as in schemas/channels.yaml")
    parser.add_argument("--from-date", type=date.fromisoformat, help="recompute batch dates from this one")
    parser.add_argument("--to-date", type=date.fromisoformat, help="... to this one (default: the same)")
    parser.add_argument(
        "--now", action="store_true", help="also send the batches that wait for more to arrive"
    )
    parser.add_argument("--run-id", default=run_name("shed"))
    asked = parser.parse_args()
    dates = (asked.from_date, asked.to_date or asked.from_date) if asked.from_date else None

    settings = Settings.from_environment()
    contracts = load_usable(settings.schemas)
    with spark_engine(f"spillway shed {asked.channel}") as engine:
        done = run_channel(
            Tables(settings), engine, contracts, asked.channel, asked.run_id, say, dates, at_once=asked.now
        )
        say(f"{asked.channel}: {len(done)} batches done")


if __name__ == "__main__":
    run_job(main)
