"""Check deduplication in the product's intake: no new row is removed, and no repeat within the window stays."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evidence.book import Say
from spillway.batch import INGESTED, Batch
from spillway.contracts import StreamContract, read_stream
from spillway.engine.local import ProcessEngine
from spillway.intake.dedupe import find_repeats
from spillway.sketches.types import Booleans, Integers
from spillway.store.files import DataFile


def stream_of(
    rows: str, within: int | None, false_positive_pct: float = 1.0, shards: int = 4
) -> StreamContract:
    """Return a stream of one key, by which its rows are compared."""
    return read_stream(
        {
            "stream": "keys",
            "channel": "uplink",
            "source": {"kind": "files", "format": "parquet"},
            "attributes": [
                {"name": "at", "type": "integer", "role": "order"},
                {"name": "k", "type": "integer", "role": "protected"},
            ],
            "rate": {"from": "declared", "tuples_per_second": 10},
            "mode": "observe",
            "duplicates": {
                "rows": rows, "on": ["k"], "within": within, "shards": shards,
                "false_positive_pct": false_positive_pct,
            },
        }
    )  # fmt: skip


def batch_of(number: int, first: int, last: int) -> Batch:
    now = datetime(2013, 1, 1, tzinfo=UTC)
    return Batch("keys", number, date(2013, 1, 1), INGESTED, (), first, last, "run", now, now)


def write_raw_file(folder: str | Path, keys: Integers, seqs: Integers) -> DataFile:
    """Write a file of these rows in the form of `raw`."""
    path = Path(folder, f"{seqs[0]}.parquet")
    pq.write_table(pa.table({"seq": seqs, "k": keys}), path)
    edges = (("seq", int(seqs[0])),), (("seq", int(seqs[-1])),)
    return DataFile(str(path), path.stat().st_size, (), *edges, len(seqs))


def repeats_by_search(keys: Integers, within: int) -> Booleans:
    """Return which rows repeat a kept one that came at most `within` before, by plain search."""
    stayed: dict[int, int] = {}
    found = np.zeros(keys.size, np.bool_)
    for place, key in enumerate(keys.tolist()):
        last = stayed.get(key)
        found[place] = last is not None and place - last <= within
        if not found[place]:
            stayed[key] = place
    return found


def confirm_repeats(say: Say, size: int = 400_000, batches: int = 4) -> dict[str, float]:
    """Count removed new rows and kept repeats, over streams, windows and false positives of the filter."""
    dropped = missed = suspected = 0
    for share, within, wrong in ((0.01, 50_000, 1.0), (0.3, 5_000, 50.0), (0.5, size, 10.0)):
        chance = np.random.default_rng(int(within))
        keys = chance.integers(0, 1 << 62, size)
        again = np.flatnonzero(chance.random(size) < share)[1:]
        keys[again] = keys[np.maximum(again - chance.integers(1, 2 * within, again.size), 0)]
        contract, state = stream_of("filter", within, wrong), None
        earlier: list[DataFile] = []
        truth, found = repeats_by_search(keys, within), np.zeros(size, np.bool_)
        with tempfile.TemporaryDirectory() as folder:
            for number, part in enumerate(np.array_split(np.arange(size), batches), 1):
                drafted = write_raw_file(folder, keys[part], part)
                batch = batch_of(number, int(part[0]), int(part[-1]))
                one = find_repeats(ProcessEngine(2), contract, batch, [drafted], earlier, state)
                found[one.rows] = True
                stays = part[~found[part]]
                earlier.append(write_raw_file(folder, keys[stays], stays))
                state = one.state
        dropped += int((found & ~truth).sum())
        missed += int((truth & ~found).sum())
        suspected += int(truth.sum())
        say(
            f"{share:g} of the rows come again, window {within:,}, {wrong:g} % false positives allowed: "
            f"{int(truth.sum()):,} repeats, {int((found & ~truth).sum())} new rows dropped, "
            f"{int((truth & ~found).sum())} repeats missed"
        )
    return {
        "sketches.new_rows_dropped": float(dropped),
        "sketches.repeats_within_missed": float(missed),
        "sketches.repeats_found": float(suspected - missed),
    }
