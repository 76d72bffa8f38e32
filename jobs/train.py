"""Train streams: cycle, thresholds, models. Streams that were never trained first take in what has landed.

spark-submit jobs/train.py                    # every stream
spark-submit jobs/train.py --stream weather
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from spillway.contracts import load_contracts
from spillway.engine.session import open_lake
from spillway.errors import SpillwayError
from spillway.intake.take_in import take_in
from spillway.job import run_job, run_name, say, side_by_side
from spillway.levers.attributes.facts import load_trained
from spillway.pipeline.train import train_stream
from spillway.settings import Settings


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stream", action="append", help="only this stream (may be repeated)")
    parser.add_argument("--run-id", default=run_name("train"))
    asked = parser.parse_args()

    settings = Settings.from_environment()
    contracts = load_contracts(settings.schemas)
    with open_lake("spillway train", settings) as lake:
        names = asked.stream or list(contracts.streams)
        new = [name for name in names if load_trained(settings, name) is None]
        # every stream is taken in before any is trained: a channel's parts follow from all of its streams
        failed = side_by_side(
            tried(lambda name: take_in(lake, contracts.stream(name), asked.run_id, say)), new
        )
        failed += side_by_side(tried(lambda name: train_stream(lake, contracts, name, say)), names)
        failed = [problem for problem in failed if problem]
        if failed:
            raise SpillwayError("\n".join(failed))


def tried(step: Callable[[str], object]) -> Callable[[str], str | None]:
    """The step, with an error of one stream as its result: the others go on."""

    def attempt(name: str) -> str | None:
        try:
            step(name)
        except SpillwayError as problem:
            say(f"{name}: not trained: {problem}")
            return f"{name}: {problem}"
        return None

    return attempt


if __name__ == "__main__":
    run_job(main)
