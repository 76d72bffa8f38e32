"""The table `schemes`: the runs of a stream, and the state its planner goes on from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from spillway.batch import SHOWN_BATCHES, Batch
from spillway.errors import RefusedElsewhere
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


def last_batches(tables: Views, stream: str) -> range:
    """The numbers of the stream's last batches that have runs: those that are told of."""
    newest = tables.at(SCHEMES).newest("batch", ["batch"], stream=stream)["batch"].to_pylist()
    last = newest[0] if newest else 0
    return range(max(1, last - SHOWN_BATCHES + 1), last + 1)


def load_runs(tables: Views, stream: str, batches: Iterable[int] | None = None) -> Runs:
    """The stream's runs over the batches."""
    return Runs(tuple(run_from_row(row) for row in scheme_rows(tables, stream, batches)))


def state_before(tables: Views, stream: str, batch: int) -> tuple[int, dict[str, Any] | None]:
    """The last batch before this one that has runs, and the planner's state at its end; 0 and None where none has."""
    columns = ["batch", "from_seq", "state"]
    rows = tables.at(SCHEMES).newest("batch", columns, below=batch, stream=stream).to_pylist()
    if not rows:
        return 0, None
    last = max(rows, key=lambda row: int(row["from_seq"]))
    try:
        return int(last["batch"]), json.loads(last["state"])
    except ValueError as problem:
        where = f"{stream}: schemes, batch {last['batch']}"
        raise RefusedElsewhere(
            "state", "be JSON", last["state"][:40], "shed its batch again", where
        ) from problem


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
