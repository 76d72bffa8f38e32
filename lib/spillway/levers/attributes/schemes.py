"""The `schemes` table read back: the runs of a stream, and the state its planner goes on from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from spillway.levers.attributes.scheme import Run, Runs, run_from_row, run_to_row
from spillway.settings import Settings
from spillway.store.batches import Batch
from spillway.store.files import read_table
from spillway.store.table_contracts import table_contracts
from spillway.store.tables import table_path


def scheme_rows(
    settings: Settings, stream: str, batches: Iterable[int] | None = None
) -> list[dict[str, Any]]:
    """The rows of a stream (of some batches) in `seq` order."""
    filters: list[Any] = [("stream", "=", stream)]
    if batches is not None:
        numbers = sorted(set(batches))
        if not numbers:
            return []
        filters.append(("batch", "in", numbers))
    table = read_table(table_path(settings, table_contracts(settings.schemas)["schemes"]), filters=filters)
    rows: list[dict[str, Any]] = table.to_pylist() if table is not None else []
    return sorted(rows, key=lambda row: int(row["from_seq"]))


def load_runs(settings: Settings, stream: str, batches: Iterable[int] | None = None) -> Runs:
    """The stream's runs over the batches."""
    return Runs(tuple(run_from_row(row) for row in scheme_rows(settings, stream, batches)))


def state_before(settings: Settings, stream: str, batch: int) -> dict[str, Any] | None:
    """The planner's state at the end of the last batch before this one; None where there is none."""
    rows = [row for row in scheme_rows(settings, stream) if row["batch"] < batch]
    return json.loads(rows[-1]["state"]) if rows else None


def scheme_row(batch: Batch, number: int, run: Run, state: dict[str, Any]) -> dict[str, Any]:
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
