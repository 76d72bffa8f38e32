"""Query one day in a year of sketches: 96 batches per day, four sketches each, closed days summarised.

The query runs in a separate process, as `spillway ask` does. The figures are the time of the query without the start of
Python, its libraries and the first use of the kernels, and the peak memory of the whole process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from evidence.sketches.data_models import zipf_frequencies
from spillway.batch import DONE, Batch
from spillway.settings import Settings
from spillway.sketches.column_keys import keys_of
from spillway.sketches.specification import SketchSpec
from spillway.store.batches import save_batches
from spillway.store.file_writer import write_file
from spillway.store.schemas import table_contracts
from spillway.store.tables import Tables
from spillway.streams.sketch_builder import summarise_days

BATCHES, TEMPLATES, ROWS = 96, 24, 20_000
FIRST_OF_YEAR = date(2025, 1, 1)
_ASKS = """
import json, sys, time
from datetime import date
from spillway.streams.stored_sketches import load_sketch
from spillway.settings import Settings
from spillway.sketches.query import wrap_sketch
from spillway.sketches.specification import SketchSpec
from spillway.store.tables import Tables

# which Arrow loads as soon as it makes an array of a list
import pandas

wrap_sketch(SketchSpec("count_min", ("k",), ("integer",)).empty()).frequency(7)
def peak_mb():
    with open("/proc/self/status") as told:
        return next(int(line.split()[1]) for line in told if line.startswith("VmHWM")) / 1024

before = peak_mb()
began = time.perf_counter()
day = date.fromisoformat(sys.argv[1])
answer = load_sketch(Tables(Settings.from_environment()), "year", "k", "count_min", day, day).frequency(7)
seconds = time.perf_counter() - began
peak = peak_mb()
print(json.dumps([seconds, peak, peak - before, answer.covers.batches, answer.covers.rows]))
"""


def year_of_sketches(days: int = 365, rounds: int = 3) -> dict[str, float]:
    """Return seconds and MiB of a query for a closed day in the middle of the year, and for the open day."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.from_environment({**os.environ, "SPILLWAY_LAKE": f"{folder}/lake"})
        specs = [SketchSpec("count_min", (name,), ("integer",)) for name in ("k", "l", "m", "n")]
        _write_year(Tables(settings), specs, days)
        # the queried sketch; the others are in the same table
        summarise_days(Tables(settings), "year", specs[:1], set())
        middle, last = FIRST_OF_YEAR + timedelta(days=days // 2), FIRST_OF_YEAR + timedelta(days=days - 1)
        closed = [_query_cost(settings, middle) for _ in range(rounds)]
        still_open = [_query_cost(settings, last) for _ in range(rounds)]
    return {
        # from the tables to the answer, in a process that is up
        "sketches.query_ms": 1e3 * min(one[0] for one in closed),
        "sketches.ask_day_of_year_seconds": min(one[0] for one in closed),
        "sketches.ask_day_of_year_mb": max(one[1] for one in closed),
        "sketches.ask_day_of_year_mb_added": max(one[2] for one in closed),
        "sketches.ask_open_day_of_year_seconds": min(one[0] for one in still_open),
        "sketches.ask_open_day_of_year_mb": max(one[1] for one in still_open),
        "sketches.ask_day_of_year_batches": float(BATCHES * days),
    }


def _query_cost(settings: Settings, day: date) -> list[float]:
    env = {**os.environ, "SPILLWAY_LAKE": settings.lake, "SPILLWAY_DESTINATION": settings.lake}
    done = subprocess.run(
        [sys.executable, "-c", _ASKS, str(day)], env=env, capture_output=True, text=True, check=True
    )
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    if found[3:] != [BATCHES, BATCHES * ROWS]:
        raise AssertionError(f"a day must have {BATCHES} batches of {ROWS} rows, got {found[3:]}")
    return found


def _write_year(tables: Tables, specs: list[SketchSpec], days: int) -> None:
    """Write a year of batches and their sketches: one file per closed day, and one file per batch of the last day."""
    sketches = tables.at("sketches")
    contract = table_contracts()["sketches"]
    templates = [[_sketch_row(spec, seed) for seed in range(TEMPLATES)] for spec in specs]
    now = datetime(2025, 1, 1, tzinfo=UTC)
    files = []
    for day in range(days):
        numbers = range(day * BATCHES + 1, (day + 1) * BATCHES + 1)
        on = FIRST_OF_YEAR + timedelta(days=day)
        rows = [
            templates[place][number % TEMPLATES] | {"batch": number, "batch_date": on}
            for place in range(len(specs))
            for number in numbers
        ]
        groups = [rows] if day < days - 1 else [[row] for row in rows]
        for group in groups:
            table = pa.Table.from_pylist(group, contract.arrow_schema)
            part = {"stream": "year", "kind": "count_min"}
            one = write_file(sketches.path, part, sketches.file_schema, [table], contract.row_group_column)
            files += [one] if one is not None else []
        save_batches(
            tables,
            [
                Batch(
                    "year",
                    number,
                    on,
                    DONE,
                    (),
                    number * ROWS,
                    (number + 1) * ROWS - 1,
                    "run",
                    now,
                    now,
                    rows=ROWS,
                )
                for number in numbers
            ],
        )
        tables = tables.now()
    sketches.publish(files, batch=-1)


def _sketch_row(spec: SketchSpec, seed: int) -> dict[str, Any]:
    """Return a row of `sketches` for a batch of Zipf keys."""
    counts = zipf_frequencies(ROWS, 5_000, 0.9, seed)
    keys = pa.array(np.repeat(np.arange(5_000), counts))
    sketch: Any = spec.kind_object.empty_part(spec)
    sketch.update(keys_of(pa.table({"k": keys}), ["k"], ["integer"], spec.seed))
    whole = spec.kind_object.finish(spec, sketch, {})
    counters = spec.kind_object.counters(whole)
    return spec.row("year", 0, FIRST_OF_YEAR, ROWS, whole.to_bytes(), counters=counters)


if __name__ == "__main__":
    days = int(sys.argv[1]) if len(sys.argv) > 1 else 365
    for name, value in year_of_sketches(days).items():
        print(f"{name} = {value:.4g}")
    print(Path(__file__).name)
