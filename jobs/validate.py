"""Validate what changed: recover it, certify it, run the expectation suites, retire raw dates, write the report.

spark-submit jobs/validate.py                     # every stream, what changed
spark-submit jobs/validate.py --stream weather --all
"""

from __future__ import annotations

import argparse
from pathlib import Path

from spillway.contracts import load_usable
from spillway.engine.spark import spark_engine
from spillway.job import run_job, run_name, say
from spillway.pipeline.validate import validate
from spillway.report.page import build_report
from spillway.settings import Settings
from spillway.store.tables import Tables


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stream", action="append", help="only this stream (may be repeated)")
    parser.add_argument("--all", action="store_true", help="also what was validated before")
    parser.add_argument("--run-id", default=run_name("validate"))
    asked = parser.parse_args()

    settings = Settings.from_environment()
    contracts, tables = load_usable(settings.schemas), Tables(settings)
    try:
        with spark_engine("spillway validate") as engine:
            validate(tables, engine, contracts, asked.run_id, say, asked.stream, asked.all)
    finally:
        report = build_report(tables.now(), Path(settings.build, "report.html"))
        say(f"report: {report}")


if __name__ == "__main__":
    run_job(main)
