"""Rows that repeat, as `rejected` holds them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from spillway.batch import Batch
from spillway.contracts import StreamContract
from spillway.intake.repeats import compared_by, told_window
from spillway.sketches.values import json_values

DELIVERED_BEFORE = "delivered before"
"""The reason of such rows in `rejected`; all others are defects."""


def kept_aside(contract: StreamContract, batch: Batch, rows: pa.Table) -> pa.Table:
    """The batch's repeated `rows` as `rejected` has them: file and line they came from, and their values as JSON."""
    seqs = np.asarray(rows["seq"].cast(pa.int64()))
    taken = sorted(batch.taken, key=lambda file: file.base_seq)
    bases = np.array([file.base_seq for file in taken], np.int64)
    # record n of a file has seq base + n
    places = np.searchsorted(bases, seqs, side="left") - 1
    return pa.table(
        {
            "stream": pa.repeat(contract.stream, len(seqs)),
            "batch": pa.repeat(pa.scalar(batch.batch, pa.int64()), len(seqs)),
            "batch_date": pa.repeat(pa.scalar(batch.batch_date, pa.date32()), len(seqs)),
            "seq": pa.array(seqs),
            "file": pa.array([taken[place].name for place in places], pa.string()),
            "line": pa.array(seqs - bases[places] if len(seqs) else seqs),
            "field": pa.nulls(len(seqs), pa.string()),
            "rule": pa.repeat(
                f"differ from every earlier row{told_window(contract.duplicates.within)} in "
                f"{', '.join(compared_by(contract).names)}",
                len(seqs),
            ),
            "value": pa.nulls(len(seqs), pa.string()),
            "remedy": pa.repeat(
                "nothing, if it was delivered twice; otherwise set duplicates.rows: none in the contract",
                len(seqs),
            ),
            "reason": pa.repeat(DELIVERED_BEFORE, len(seqs)),
            "original": pa.array(_as_json(contract, rows), pa.binary()),
        }
    )


def _as_json(contract: StreamContract, rows: pa.Table) -> list[bytes]:
    """Each row as one JSON object; an attribute that is null is left out."""
    columns = [json_values(rows[a.name], a.type) for a in contract.attributes]
    return [
        json.dumps(
            {name: value for name, value in zip(contract.names, values, strict=True) if value is not None},
            ensure_ascii=False,
            separators=(",", ":"),
        ).encode("utf-8", "surrogatepass")
        for values in zip(*columns, strict=True)
    ]
