"""The table `schemes`: the runs of a stream, and the state its planner goes on from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from spillway.batch import Batch
from spillway.errors import Refused
from spillway.levers.attributes.scheme import Run, Runs, run_from_row, run_to_row
from spillway.levers.protocol import Views

SCHEMES = "schemes"


def scheme_rows(tables: Views, stream: str, batches: Iterable[int] | None = None) -> list[dict[str, Any]]:
    """The rows of a stream (of some batches) in `seq` order."""
    where: dict[str, Any] = {"stream": stream}
    if batches is not None:
        where["batch"] = sorted(set(batches))
        if not where["batch"]:
            return []
    rows: list[dict[str, Any]] = tables.at(SCHEMES).rows(**where).to_pylist()
    return sorted(rows, key=lambda row: int(row["from_seq"]))


def load_runs(tables: Views, stream: str, batches: Iterable[int] | None = None) -> Runs:
    """The stream's runs over the batches."""
    return Runs(tuple(run_from_row(row) for row in scheme_rows(tables, stream, batches)))


def state_before(rows: Iterable[Mapping[str, Any]], batch: int) -> dict[str, Any] | None:
    """The planner's state at the end of the last batch before this one; None where there is none."""
    before = [row for row in rows if row["batch"] < batch]
    if not before:
        return None
    text = before[-1]["state"]
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError as problem:
        where = f"{before[-1]['stream']}: schemes, batch {before[-1]['batch']}"
        raise Refused("state", "be JSON", text[:40], "shed its batch again", where) from problem
    return found


def scheme_row(batch: Batch, number: int, run: Run, state: Mapping[str, Any]) -> dict[str, Any]:
    """A run as a row; all runs of a batch carry the state at its end."""
    return {
        "stream": batch.stream,
        "batch": batch.batch,
        "batch_date": batch.batch_date,
        "run": number,
        "frame_origin": batch.frame_origin,
        "frame_tuples": batch.frame_tuples,
        "model_version": batch.models["attributes"],
        "state": json.dumps(state, sort_keys=True),
        **run_to_row(run),
    }
