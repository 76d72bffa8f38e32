"""Maintain the lake: retention, compaction, unused files, delivered files. Needs no Spark.

python jobs/keep.py
python jobs/keep.py --dry-run    # what would be done
"""

from __future__ import annotations

import argparse

from spillway.contracts import load_usable
from spillway.job import run_job, say
from spillway.settings import Settings
from spillway.store.tables import Tables
from spillway.streams.retention import maintain_lake


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry-run", action="store_true", help="say it, and do nothing")
    asked = parser.parse_args()

    settings = Settings.from_environment()
    maintain_lake(Tables(settings), load_usable(settings.schemas), say, asked.dry_run)


if __name__ == "__main__":
    run_job(main)
