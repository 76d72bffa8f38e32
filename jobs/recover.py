"""Give shed values of a range back, each with its bound; printed, or written as Parquet or CSV.

    spark-submit jobs/recover.py --stream weather --attributes temp,dewp --key origin=JFK \\
        --from-time 2013-02-01 --to-time 2013-02-02
    spark-submit jobs/recover.py --stream weather --output recovered/     # all of it, into the table `recovered`
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet

from spillway.contracts import load_contracts
from spillway.errors import SpillwayError
from spillway.job import run_job, say
from spillway.pipeline.recover import look_up, parse_key, parse_range
from spillway.settings import Settings


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stream", required=True)
    parser.add_argument("--attributes", help="comma separated; default: all")
    parser.add_argument(
        "--key", action="append", default=[], metavar="NAME=VALUE", help="only tuples of this key"
    )
    parser.add_argument("--from-seq", type=int)
    parser.add_argument("--to-seq", type=int)
    parser.add_argument("--from-time")
    parser.add_argument("--to-time")
    parser.add_argument(
        "--output", type=Path, help="a .parquet or .csv file; default: the first rows are printed"
    )
    asked = parser.parse_args()

    settings = Settings.from_environment()
    contract = load_contracts(settings.schemas).stream(asked.stream)
    attributes = asked.attributes.split(",") if asked.attributes else None
    seq, time = parse_range(asked.from_seq, asked.to_seq), parse_range(asked.from_time, asked.to_time)
    found = look_up(settings, contract, attributes, parse_key(asked.key), seq, time)
    say(
        f"{asked.stream}: {found.rows.num_rows:,} tuples from {found.frames} frames, "
        f"{found.synopsis_bytes_read:,} bytes of synopsis read"
    )
    if asked.output is None:
        print(found.rows.slice(0, 20).to_pandas().to_string(index=False))
        return
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    writers = {".parquet": pyarrow.parquet.write_table, ".csv": pyarrow.csv.write_csv}
    if asked.output.suffix not in writers:
        raise SpillwayError(f"`output` must end in .parquet or .csv, got {asked.output.name!r}; name it so")
    writers[asked.output.suffix](found.rows, asked.output)
    say(f"written to {asked.output}")


if __name__ == "__main__":
    run_job(main)
