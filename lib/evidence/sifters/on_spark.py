"""Compare the plan in Spark's tasks with the kernel row by row, over a generated stream in several slices."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from evidence.book import Book
from spillway.batch import INGESTED, Batch
from spillway.contracts import Contracts, read_channel, read_stream
from spillway.engine.protocol import Engine
from spillway.engine.spark import spark_engine
from spillway.levers.sifters.filter import PIECE_SEQS, SifterFilter
from spillway.settings import Settings
from spillway.store.batches import load_batches, save_batches
from spillway.store.tables import FileTask, Tables
from spillway.streams.drafts import own_table
from spillway.streams.shed import shed_channel
from spillway.streams.train import train_stream

PROBE_DAY = date(2026, 1, 1)
COMPARED_ROWS = 400_000
PROBES_AT_A_TIME = 131_072
PROBES_PER_SECOND, FEW_PER_SECOND = 1000.0, 50.0
"""Where tasks are compared there is room for half of what is asked for, so that every region has a threshold."""


def probe_contracts(capacity: str = "100 Mbps", rows_per_second: float = PROBES_PER_SECOND / 2) -> Contracts:
    """Return the contract of a stream of probes whose server takes in half of them."""
    queries = [
        {"where": "delay > 80 and site = 's1'", "weight": 3},
        {"where": "delay between 20 and 40 and load > 0.7", "weight": 2},
        {"where": "load < 0.1", "weight": 1},
    ]
    lever = {
        "lever": "sifters",
        "queries": queries,
        "rows_per_second": rows_per_second,
        "keep": ["delay > 150"],
    }
    stream = {
        "stream": "probes",
        "channel": "line",
        "source": {"format": "parquet"},
        "attributes": [
            {"name": "site", "type": "string", "role": "key"},
            {"name": "at", "type": "integer", "role": "order"},
            {"name": "delay", "type": "double", "role": "measure"},
            {"name": "load", "type": "double", "role": "measure"},
        ],
        "rate": {"from": "declared", "tuples_per_second": PROBES_PER_SECOND},
        "frame": {"tuples": 100_000},
        "levers": [lever],
    }
    return Contracts({"probes": read_stream(stream)}, {"line": read_channel("line", {"capacity": capacity})})


def probe_rows(stretch: tuple[int, int], counts: dict[str, int]) -> Iterator[pa.Table]:
    """Generate the rows of a slice; each slice has its own seed."""
    first, last = stretch
    random = np.random.default_rng(first)
    sites = np.array(["s0", "s1", "s2", "s3"])
    for low in range(first, last, PROBES_AT_A_TIME):
        seq = np.arange(low, min(last, low + PROBES_AT_A_TIME))
        yield pa.table(
            {
                "seq": seq,
                "batch": np.ones(len(seq), np.int64),
                "site": sites[seq % 4],
                "at": seq // 4,
                "delay": np.round(random.gamma(2.0, 15.0, len(seq)), 2),
                "load": np.round(random.beta(2.0, 3.0, len(seq)), 4),
            }
        )


def prepare_batch(tables: Tables, engine: Engine, contracts: Contracts, rows: int) -> Batch:
    """Return the rows as one batch that was taken in, with the stream trained."""
    raw = own_table(tables, contracts.streams["probes"], "raw")
    parts = max(2, rows // 2_500_000)
    edges = [rows * i // parts for i in range(parts + 1)]
    pieces = [FileTask({"batch_date": str(PROBE_DAY)}, 1, edge) for edge in pairwise(edges)]
    raw.publish(raw.draft(engine, pieces, probe_rows).written, batch_date=PROBE_DAY, batch=1)
    now = datetime.now(UTC)
    batch = Batch(
        "probes",
        1,
        PROBE_DAY,
        INGESTED,
        (),
        0,
        rows - 1,
        "evidence",
        now,
        now,
        rows,
        0,
        0,
        seconds_covered=rows / PROBES_PER_SECOND,
    )
    (saved,) = save_batches(tables.now(), [batch])
    train_stream(tables, contracts, "probes")
    return saved


def differing_rows(book: Book) -> Mapping[str, float]:
    """Count the rows that the plan on Spark sends, weights or marks differently from the kernel in one pass."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.from_environment(
            {
                "SPILLWAY_HOME": folder,
                "SPILLWAY_LAKE": f"{folder}/lake",
                "SPILLWAY_LANDING": f"{folder}/landing",
            }
        )
        tables, contracts = Tables(settings), probe_contracts(rows_per_second=FEW_PER_SECOND)
        with spark_engine("evidence sifters") as engine:
            prepare_batch(tables, engine, contracts, COMPARED_ROWS)
            shed_channel(tables, engine, contracts, "line")
            stated = contracts.streams["probes"].lever_settings("sifters")
            wanted = " or ".join(
                f"({text})" for text in (*(one.where for one in stated.queries), *stated.keep)
            )
            frame = engine.spark.read.format("delta").load(tables.now().path("raw", "probes"))
            # a condition that is null is not true of its row
            nobody = frame.where(f"not coalesce({wanted}, false)").select("seq")
            by_spark = np.array([one.seq for one in nobody.collect()], np.int64)
        now = tables.now()
        raw = now.at("raw", "probes").rows().sort_by("seq")
        sent = now.at("transmitted", "probes").rows().sort_by("seq")
        (row,) = now.at("sifters").rows(stream="probes").to_pylist()
        (batch,) = load_batches(now, "probes")
    of = SifterFilter.from_bytes(row["payload"])
    expected = kernel_rows(of, raw, batch.first_seq)
    unqueried = np.asarray(raw["seq"])[of.regions_of(raw) == of.tree.count]
    off = len(np.setxor1d(unqueried, by_spark))
    differing = len(np.setxor1d(np.asarray(sent["seq"]), expected["seq"]))
    if not differing:
        for name in ("weight", "in_sample"):
            differing += int((np.asarray(sent[name]) != expected[name]).sum())
    room = FEW_PER_SECOND / PROBES_PER_SECOND
    book.table(
        "Spark's tasks against the kernel",
        (
            "rows",
            "sent",
            "room for",
            "rows that differ",
            "asked by no query",
            "of these Spark says otherwise",
            "filter, bytes",
            "filter says",
        ),
        [
            (
                COMPARED_ROWS,
                sent.num_rows,
                COMPARED_ROWS * room,
                differing,
                len(unqueried),
                off,
                len(row["payload"]),
                row["reason"],
            )
        ],
    )
    return {
        "sifters.rows_kernel_differs_from_spark": differing,
        "sifters.rows_compared_with_spark": COMPARED_ROWS,
        "sifters.rows_unasked": len(unqueried),
        "sifters.rows_unasked_differ_from_spark": off,
        "sifters.filter_bytes": len(row["payload"]),
        "sifters.sent_over_room": sent.num_rows / (COMPARED_ROWS * room),
    }


def kernel_rows(found: SifterFilter, raw: pa.Table, first_seq: int) -> dict[str, Any]:
    """Return the rows of a batch that the kernel alone passes on."""
    seq = np.asarray(raw["seq"])
    regions = found.regions_of(raw)
    kept, marked = np.zeros(len(seq), bool), np.zeros(len(seq), bool)
    for begin in range(first_seq, int(seq[-1]) + 1, PIECE_SEQS):
        part = slice(*np.searchsorted(seq, [begin, begin + PIECE_SEQS]))
        kept[part], marked[part] = found.decide(seq[part], regions[part], first_seq, begin)
    return {"seq": seq[kept], "weight": found.weights[regions[kept]], "in_sample": marked[kept]}
