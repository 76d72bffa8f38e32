"""Recover shed values, each with its bound: the requested rows, or whole batches as the table `recovered`.

    spark-submit jobs/recover.py --stream weather --attributes temp,dewp --key origin=JFK \\
        --from-time 2013-02-01 --to-time 2013-02-02 --output temps.csv
    spark-submit jobs/recover.py --stream weather --key origin=JFK --from-seq 1 --to-seq 90000 --output of_jfk
    spark-submit jobs/recover.py --stream weather --from-time 2013-02-01 --to-time 2013-02-28

With `--output` the requested rows and attributes are written below the folder `SPILLWAY_OUTPUT`. A name that ends in
.parquet, .csv or .json is a file, which this process writes. A name without a suffix is a Delta table, which Spark
writes; it replaces the table that was there. Without `--output`, Spark recovers every batch that the range touches as a
whole and replaces its rows in `recovered/<stream>`.
"""

from __future__ import annotations

import argparse

from spillway.contracts import StreamContract, load_usable
from spillway.engine.spark import spark_engine
from spillway.errors import SpillwayError
from spillway.job import run_job, say
from spillway.settings import Settings
from spillway.store.tables import Tables
from spillway.streams.destination import destination_tables
from spillway.streams.query import StreamQuery, matching_batches
from spillway.streams.recover import (
    answer_rows,
    output_within,
    plan_answer,
    recover_batches,
    write_answer_table,
    write_output,
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stream", required=True)
    parser.add_argument("--attributes", help="of the output: comma separated; default: all")
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only tuples of this key; may repeat",
    )
    parser.add_argument("--from-seq", type=int, help="first seq")
    parser.add_argument("--to-seq", type=int, help="last seq, included")
    parser.add_argument(
        "--from-time", help="ISO date or time; without an offset, on the clocks of the contract's timezone"
    )
    parser.add_argument("--to-time", help="ISO date or time, included")
    parser.add_argument(
        "--output",
        help="below SPILLWAY_OUTPUT: a .parquet, .csv or .json file, or a Delta table; default: recovered/<stream>",
    )
    asked = parser.parse_args()

    settings = Settings.from_environment()
    contract, tables = load_usable(settings.schemas).stream(asked.stream), destination_tables(settings)
    question = StreamQuery.parse(
        contract,
        asked.attributes,
        asked.key,
        from_seq=asked.from_seq,
        to_seq=asked.to_seq,
        from_time=asked.from_time,
        to_time=asked.to_time,
    )
    if asked.output is None:
        recover_whole_batches(tables, contract, question)
        return
    output = output_within(settings.output, asked.output)
    if output.is_table:
        with spark_engine(f"spillway recover {contract.stream}") as engine:
            counts = dict(write_answer_table(tables, engine, contract, question, str(output.path)))
    else:
        counts = {}
        rows = answer_rows(plan_answer(tables, contract, question), contract, question, counts)
        counts["rows"] = write_output(rows, output.path)
    say(
        f"{asked.stream}: {counts['rows']:,} tuples from {counts['frames']:,} frames written to {output.path}, "
        f"{counts['asked_back_bytes']:,} bytes of synopsis read"
    )


def recover_whole_batches(tables: Tables, contract: StreamContract, question: StreamQuery) -> None:
    """Recover every batch that the range touches, as a whole, into the table `recovered`."""
    batches = matching_batches(tables, contract, question)
    if not batches:
        raise SpillwayError(question.nothing(contract))
    with spark_engine(f"spillway recover {contract.stream}") as engine:
        recover_batches(tables, engine, contract, batches, asked=True)
    rows = sum(batch.rows or 0 for batch in batches)
    numbers = ", ".join(str(batch.batch) for batch in batches)
    place = tables.path("recovered", contract.stream)
    say(f"{contract.stream}: {rows:,} tuples of batch {numbers} given back in {place}")


if __name__ == "__main__":
    run_job(main)
