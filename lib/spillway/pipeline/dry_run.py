"""A dry run: what the product's own steps would make of a batch, on tables in memory.

What is needed is copied from the lake (the batch's raw files, facts, and what the levers go on from), and then
planned, drafted, measured, published, given back and certified there: `pipeline.shed` and `pipeline.validate`
themselves. Nothing of the lake is touched, for no step is handed a table of it. A stream that was never trained is
trained in memory, on this batch; one that is merely observed is treated as if it were not.

Where earlier tuples of the batch's date were shed, its frames start anew here: the same bounds, next to the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count

import pyarrow as pa

from spillway.batch import DONE, HELD, TAKEN_IN, Batch
from spillway.clock import utc_now
from spillway.contracts import Contracts, StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError, UsageError
from spillway.levers.protocol import Rows, Say
from spillway.pipeline.certify import recover_and_certify
from spillway.pipeline.drafting import own_table
from spillway.pipeline.facts import untrained
from spillway.pipeline.recover import ways_back
from spillway.pipeline.shed import shed_channel
from spillway.pipeline.stages import EndRows
from spillway.pipeline.train import train_stream
from spillway.registry import lever
from spillway.settings import Settings
from spillway.store.batches import load_batches, newest_batch, save_batches
from spillway.store.drafts import Piece
from spillway.store.files import read_rows
from spillway.store.tables import Between, Tables

_RUNS = count(1)


@dataclass(frozen=True)
class DryRun:
    """What came of it: tables in memory, and the batch of every stream that went through."""

    tables: Tables
    contracts: Contracts
    batches: Mapping[str, Batch]
    trained: tuple[str, ...]
    """Streams that had to be trained first, in memory."""
    observed: tuple[str, ...]
    """Streams of which, as their contracts are, nothing would be dropped."""
    waiting: Mapping[str, str]
    """Streams that could not go through, and why."""


@contextmanager
def dry_run(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    channel: str,
    batch: tuple[str, int] | None = None,
    say: Say = lambda _: None,
) -> Iterator[DryRun]:
    """Bring the last batch of every stream of the channel through, in memory; `batch` names one stream's instead."""
    tables = tables.now()
    home = tables.settings
    root = f"memory://dry-run-{next(_RUNS)}"
    lake = f"{root}/lake"
    # what a destination that is elsewhere needs is counted: it is elsewhere here where it is there
    destination = lake if home.destination == home.lake else f"{root}/destination"
    settings: Settings = replace(home, lake=lake, destination=destination, landing=f"{root}/landing")
    memory = Tables(settings)
    try:
        yield _run(tables, memory, engine, contracts, channel, batch, say)
    finally:
        memory.forget()


def _run(
    tables: Tables,
    memory: Tables,
    engine: Engine,
    contracts: Contracts,
    channel: str,
    batch: tuple[str, int] | None,
    say: Say,
) -> DryRun:
    streams = {one.stream: one for one in contracts.streams_of(channel)}
    waiting: dict[str, str] = {}
    chosen: dict[str, Batch] = {}
    for stream in streams:
        found = chosen_batch(tables, stream, batch[1] if batch is not None and batch[0] == stream else None)
        if found is None:
            waiting[stream] = "nothing of it is at hand: deliver a file, then spillway run"
        else:
            chosen[stream] = found
    observed = tuple(name for name in chosen if streams[name].mode == "observe")
    acting = {
        name: replace(one, mode="shed", on_overflow="fail") for name, one in streams.items() if name in chosen
    }
    alone = replace(contracts, streams=acting)
    for stream, one in chosen.items():
        _copy(tables, memory, engine, acting[stream], one)
    trained = [name for name in chosen if untrained(memory.now(), acting[name])]
    for stream in trained:
        try:
            train_stream(memory, alone, stream, say)
        except SpillwayError as problem:
            waiting[stream] = f"it is untrained, and nothing can be learned from this batch alone: {problem}"
    shed_channel(memory, engine, alone, channel, say, at_once=True)
    through: dict[str, Batch] = {}
    for stream in chosen:
        now = memory.now()
        (one,) = load_batches(now, stream)
        if one.status == DONE:
            through[stream] = one
            recover_and_certify(now, engine, acting[stream], [one], lambda _: None)
    learned = tuple(name for name in trained if name in through)
    return DryRun(memory.now(), alone, through, learned, observed, waiting)


def chosen_batch(tables: Tables, stream: str, number: int | None) -> Batch | None:
    """The batch asked for, or the last one; its raw must be there."""
    if number is None:
        return newest_batch(tables, stream, status=HELD, rows=Between(1))
    for batch in load_batches(tables, stream, status=HELD, rows=Between(1), batch=number):
        return batch
    held = tables.at("batches").rows(["batch"], stream=stream, status=HELD, rows=Between(1))["batch"]
    there = ", ".join(map(str, sorted(held.to_pylist())[-12:])) or "none"
    raise UsageError(
        f"`batch` must be one of {stream} whose raw tuples are there ({there}), got {number}; name one, or latest"
    )


def _copy(tables: Tables, memory: Tables, engine: Engine, contract: StreamContract, batch: Batch) -> None:
    """What a batch's way rests on: its raw files, one by one, facts, and what earlier batches left for the levers."""
    stream = contract.stream
    files = tables.at("raw", stream).files(batch_date=batch.batch_date, batch=batch.batch)
    raw = own_table(memory, contract, "raw")
    names = [name for name in raw.contract.file_schema.names if name != "batch_date"]

    def read(path: str, _: dict[str, int]) -> Iterator[pa.Table]:
        (file,) = [one for one in files if one.path == path]
        yield read_rows([file], names, batch.first_seq, batch.last_seq)

    cut = [Piece({"batch_date": str(batch.batch_date)}, batch.batch, file.path) for file in files]
    raw.publish(raw.draft(engine, cut, read).written, batch_date=batch.batch_date, batch=batch.batch)
    memory.at("models").append(tables.at("models").rows(stream=stream).to_pylist())
    for name in contract.lever_names:
        for table in lever(name).record_tables:
            rows = tables.at(table).rows(stream=stream).to_pylist()
            memory.at(table).append([row for row in rows if row["batch"] < batch.batch])
    ledger = tables.at("ledger").rows(subject=stream, batch=batch.batch).to_pylist()
    memory.at("ledger").append([row for row in ledger if row["ordinal"] == 0])
    fresh = batch.becomes(
        utc_now(),
        status=TAKEN_IN,
        levers=(),
        models={},
        capacity_kbps=None,
        trunk_kbps=None,
        frame_origin=None,
        frame_tuples=None,
        revision=0,
    )
    save_batches(memory, [fresh])


def arrived(run: DryRun, stream: str, from_seq: int, to_seq: int) -> tuple[pa.Table, pa.Table]:
    """Some tuples as they came, and as the destination has them by itself."""
    contract, batch = run.contracts.streams[stream], run.batches[stream]
    columns = ["seq", *contract.names]
    files = run.tables.at("raw", stream).files(batch_date=batch.batch_date, batch=batch.batch)
    came = read_rows(files, columns, from_seq, to_seq)
    (way,) = ways_back(run.tables, contract, [batch])
    sent = run.tables.at("transmitted", stream).stored(batch_date=[batch.batch_date])
    rows: Rows = EndRows(sent.on(batch.batch_date), len(contract.attributes))
    for decision in reversed(way.decisions):
        rows = decision.arrived(rows, batch.batch_date)
    return came, rows(columns[1:], from_seq, to_seq)
