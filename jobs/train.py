"""Train the levers of streams. Streams that were never trained first take in their delivered files.

spark-submit jobs/train.py                    # every stream
spark-submit jobs/train.py --stream weather
"""

from __future__ import annotations

import argparse

from spillway.contracts import load_usable
from spillway.engine.spark import spark_engine
from spillway.job import run_job, run_name, say
from spillway.settings import Settings
from spillway.store.tables import Tables
from spillway.streams.train import train_streams


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stream", action="append", help="only this stream (may be repeated)")
    parser.add_argument("--run-id", default=run_name("train"))
    asked = parser.parse_args()

    settings = Settings.from_environment()
    contracts = load_usable(settings.schemas)
    with spark_engine("spillway train") as engine:
        names = asked.stream or list(contracts.streams)
        train_streams(Tables(settings), engine, contracts, names, asked.run_id, say)


if __name__ == "__main__":
    run_job(main)
