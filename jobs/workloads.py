"""Compute joins and queries: every closed window that is not computed yet.

spark-submit jobs/workloads.py                        # every join and query
spark-submit jobs/workloads.py --subject crossings    # these alone
"""

from __future__ import annotations

import argparse
from pathlib import Path

from spillway.contracts import load_usable
from spillway.engine.spark import spark_engine
from spillway.job import run_job, say
from spillway.report.page import build_report
from spillway.settings import Settings
from spillway.store.tables import Tables
from spillway.workloads.run import run_workloads


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--subject", action="append", help="only this join or query (may be repeated)")
    asked = parser.parse_args()

    settings = Settings.from_environment()
    contracts, tables = load_usable(settings.schemas), Tables(settings)
    try:
        with spark_engine("spillway workloads") as engine:
            done = run_workloads(tables, engine, contracts, asked.subject, say)
        say(f"{len(done)} windows computed")
    finally:
        say(f"report: {build_report(tables.now(), Path(settings.build, 'report.html'))}")


if __name__ == "__main__":
    run_job(main)
