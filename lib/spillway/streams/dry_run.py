"""Run the steps of a batch on tables in memory, and compare its size with lossless compressors.

`dry_run` copies what is needed from the lake: the batch's raw files, the facts, and the rows that the levers continue
from. Then it plans, drafts, measures, publishes, recovers and certifies there, with `streams.shed` and
`streams.certify` themselves. No step gets a table of the lake, so the lake stays unchanged. A stream that was never
trained is trained in memory, on this batch. A stream with `mode: observe` is shed like the others. Frames start with
this batch, also if earlier tuples of its date were shed. Its bounds are those of the lake; its bytes differ slightly.

Quotas: the bytes that earlier batches sent, and those that were promised to them, are spent. Earlier batches that still
wait get their shares first, as in a run (`spending_before`).

`compare_with_lossless` compares the bytes that are sent of a batch, without loss and within the bounds, with files of
lossless compressors. It sends the batch alone, once without loss and once within the bounds. The channel has capacity
for all of it, and each byte costs money (`minimize: bytes`). The levers send as few bytes as they can and keep nothing
at the source (`Lever.with_fewest_bytes`). Levers that drop rows are left out. The bytes are those of the ledger: whole
files, `seq`, footers, schemes and log entries.

Compressors get the same rows (`spillway.lossless`). If a batch has more than `MOST_ROWS` rows, they get the first
`MOST_ROWS`, so that xz does not take minutes; sizes are then compared per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from itertools import count

import pyarrow as pa

from spillway.batch import DONE, HELD, INGESTED, UNPLANNED, UNTRAINED, Batch
from spillway.clock import utc_now
from spillway.contracts import Contracts, StreamContract, read_channel
from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError, UsageError
from spillway.ledger import TOTAL
from spillway.levers.protocol import CapacityGroup, Rows, Say
from spillway.lossless import lossless_sizes
from spillway.registry import lever
from spillway.settings import Settings
from spillway.store.batches import load_batches, newest_batch, save_batches
from spillway.store.drafts import FileTask
from spillway.store.files import read_rows
from spillway.store.tables import Between, Tables
from spillway.streams.capacity import QuotaSpending, batch_shares, promised_to, quota_spending
from spillway.streams.certify import recover_and_certify
from spillway.streams.drafts import SENT, own_table
from spillway.streams.facts import untrained_levers
from spillway.streams.faults import Faults
from spillway.streams.recover import recovery_plans
from spillway.streams.shed import shed_channel
from spillway.streams.stages import TableRows
from spillway.streams.train import train_stream

_RUNS = count(1)


@dataclass(frozen=True)
class DryRun:
    """The result of a dry run: tables in memory, and the batch of every stream that was sent."""

    tables: Tables
    contracts: Contracts
    batches: Mapping[str, Batch]
    trained: tuple[str, ...]
    """Streams that were trained first, in memory."""
    observed: tuple[str, ...]
    """Streams that drop nothing, because their contracts say `mode: observe`."""
    waiting: Mapping[str, str]
    """By stream that could not be sent: the reason."""
    spending: Callable[[str, Iterable[date]], QuotaSpending]
    """What is spent of the quota of a channel before these batches."""


@contextmanager
def dry_run(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    channel: str,
    batch: tuple[str, int] | None = None,
    say: Say = lambda _: None,
) -> Iterator[DryRun]:
    """Run the last batch of every stream of the channel in memory; `batch` selects another one of one stream."""
    tables = tables.now()
    home = tables.settings
    root = f"memory://dry-run-{next(_RUNS)}"
    lake = f"{root}/lake"
    # a remote destination needs metadata, which is counted: so if the destination is remote, it is remote here too
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
        found = select_batch(tables, stream, batch[1] if batch is not None and batch[0] == stream else None)
        if found is None:
            waiting[stream] = "nothing of it is at hand: deliver a file, then spillway run"
        else:
            chosen[stream] = found
    observed = tuple(name for name in chosen if streams[name].mode == "observe")
    shed_contracts = {
        name: replace(one, mode="shed", on_overflow="fail") for name, one in streams.items() if name in chosen
    }
    alone = replace(contracts, streams=shed_contracts)
    for stream, one in chosen.items():
        _copy_batch(tables, memory, engine, shed_contracts[stream], one)
    trained = [name for name in chosen if untrained_levers(memory.now(), shed_contracts[name])]
    for stream in trained:
        try:
            train_stream(memory, alone, stream, say)
        except SpillwayError as problem:
            waiting[stream] = f"it is untrained, and nothing can be learned from this batch alone: {problem}"
    spending = spending_before(tables, contracts, channel, chosen, batch is not None)
    shed_channel(memory, engine, alone, channel, say, at_once=True, spending=spending)
    through: dict[str, Batch] = {}
    for stream in chosen:
        now = memory.now()
        (one,) = load_batches(now, stream)
        if one.status == DONE:
            through[stream] = one
            recover_and_certify(now, engine, shed_contracts[stream], [one], lambda _: None)
    learned = tuple(name for name in trained if name in through)
    return DryRun(memory.now(), alone, through, learned, observed, waiting, spending)


def spending_before(
    tables: Tables, contracts: Contracts, channel: str, chosen: Mapping[str, Batch], is_stated: bool = False
) -> Callable[[str, Iterable[date]], QuotaSpending]:
    """Return a function that finds what is spent of a quota before the chosen batches.

    Of a stream with a chosen batch, only the batches before it count. `is_stated`: the user named a batch, which may be
    old; of other streams, only batches that were taken in before the chosen ones count.
    """
    latest = max((one.created_at for one in chosen.values()), default=None)
    if is_stated:
        latest = min((one.created_at for one in chosen.values()), default=None)

    def is_before(one: Batch) -> bool:
        if one.stream in chosen:
            return one.batch < chosen[one.stream].batch
        return latest is None or one.created_at <= latest

    room = CapacityGroup(channel, contracts, tables)
    waiting = {
        stream: [one for one in found if is_before(one) and not one.is_pinned]
        for stream in chosen
        if (found := load_batches(tables, stream, status=[INGESTED, UNTRAINED], rows=Between(1)))
    }
    has_quota = any(one.capacity.quota for one in contracts.channels.values())
    shares = batch_shares(tables, room, waiting, Faults()) if has_quota and any(waiting.values()) else {}
    promised = [
        promised_to(one, shares[stream][one.batch])
        for stream, found in waiting.items()
        for one in found
        if one.batch in shares.get(stream, {})
    ]

    def spending(name: str, days: Iterable[date]) -> QuotaSpending:
        found = quota_spending(tables, contracts, name, days)
        mine = [one for one in promised if name in (channel, contracts.streams[one.stream].channel)]
        return replace(found, batches=tuple(one for one in found.batches if is_before(one))).including(mine)

    return spending


def select_batch(tables: Tables, stream: str, number: int | None) -> Batch | None:
    """Return the requested batch, or else the last one; its tuples must be in `raw`."""
    if number is None:
        return newest_batch(tables, stream, status=HELD, rows=Between(1))
    for batch in load_batches(tables, stream, status=HELD, rows=Between(1), batch=number):
        return batch
    held = tables.at("batches").rows(["batch"], stream=stream, status=HELD, rows=Between(1))["batch"]
    there = ", ".join(map(str, sorted(held.to_pylist())[-12:])) or "none"
    raise UsageError(
        f"`batch` must be one of {stream} whose raw tuples are there ({there}), got {number}; name one, or latest"
    )


def _copy_batch(
    tables: Tables, memory: Tables, engine: Engine, contract: StreamContract, batch: Batch
) -> None:
    """Copy what a batch needs: its raw files, one by one, the facts, and the levers' records of earlier batches."""
    stream = contract.stream
    files = tables.at("raw", stream).files(batch_date=batch.batch_date, batch=batch.batch)
    raw = own_table(memory, contract, "raw")
    names = [name for name in raw.contract.file_schema.names if name != "batch_date"]

    def read(path: str, _: dict[str, int]) -> Iterator[pa.Table]:
        (file,) = [one for one in files if one.path == path]
        yield read_rows([file], names, batch.first_seq, batch.last_seq)

    cut = [FileTask({"batch_date": str(batch.batch_date)}, batch.batch, file.path) for file in files]
    raw.publish(raw.draft(engine, cut, read).written, batch_date=batch.batch_date, batch=batch.batch)
    memory.at("models").append(tables.at("models").rows(stream=stream).to_pylist())
    for name in contract.lever_names:
        for table in lever(name).record_tables:
            rows = tables.at(table).rows(stream=stream).to_pylist()
            memory.at(table).append([row for row in rows if row["batch"] < batch.batch])
    ledger = tables.at("ledger").rows(subject=stream, batch=batch.batch).to_pylist()
    memory.at("ledger").append([row for row in ledger if row["ordinal"] == 0])
    fresh = batch.with_changes(
        utc_now(),
        **UNPLANNED,
        revision=0,
    )
    save_batches(memory, [fresh])


def tuples_at_both_ends(run: DryRun, stream: str, from_seq: int, to_seq: int) -> tuple[pa.Table, pa.Table]:
    """Return a range of tuples as they are in `raw`, and as the destination has them by itself."""
    contract, batch = run.contracts.streams[stream], run.batches[stream]
    columns = ["seq", *contract.names]
    files = run.tables.at("raw", stream).files(batch_date=batch.batch_date, batch=batch.batch)
    ingested = read_rows(files, columns, from_seq, to_seq)
    (plan,) = recovery_plans(run.tables, contract, [batch])
    sent = run.tables.at("transmitted", stream).stored_files(batch_date=[batch.batch_date])
    rows: Rows = TableRows(sent.reader_for(batch.batch_date), len(contract.attributes))
    for decision in reversed(plan.decisions):
        rows = decision.rows_at_destination(rows, batch.batch_date)
    return ingested, rows(columns[1:], from_seq, to_seq)


MOST_ROWS = 50_000
_PLENTY_KBPS = "1000000000 kbps"


@dataclass(frozen=True)
class Size:
    """The bytes of one form of the batch, and its number of rows."""

    form: str
    """`gzip`, `xz`, `parquet`: files of a compressor. `exact`, `bound`, `planned`: what Spillway sends without loss,
    within the bounds, and by the plan for the present capacity. `offered`: what it would send without any lever."""
    bytes: int
    rows: int

    @property
    def bytes_per_row(self) -> float:
        return self.bytes / self.rows


@dataclass(frozen=True)
class Comparison:
    """One batch of a stream in every form."""

    stream: str
    batch: int
    batch_date: date
    rows: int
    sizes: tuple[Size, ...]
    notes: tuple[str, ...] = ()

    @property
    def compressed_rows(self) -> int:
        """The number of rows that compressors were given."""
        return self.sizes[0].rows


def compare_with_lossless(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    stream: str,
    batch: int | None = None,
    say: Say = lambda _: None,
    most_rows: int = MOST_ROWS,
) -> Comparison | None:
    """Compare a batch of the stream (default: the newest whose raw rows are there); None if there is none."""
    tables = tables.now()
    contract = contracts.stream(stream)
    found = select_batch(tables, stream, batch)
    if found is None:
        return None
    files = tables.at("raw", stream).files(batch_date=found.batch_date, batch=found.batch)
    rows = read_rows(files, ["seq", *contract.names], found.first_seq, found.last_seq)
    rows = rows.sort_by("seq").select(list(contract.names)).slice(0, most_rows)
    say(f"{stream}: compressing {rows.num_rows:,} rows with gzip, xz and Parquet")
    compressed = lossless_sizes(rows, contract.keys, contract.order)
    sizes = [Size(form, size, rows.num_rows) for form, size in compressed.items()]
    notes = []
    for form, stated in _lossless_contracts(contract).items():
        say(
            f"{stream}: sending batch {found.batch} {'without loss' if form == 'exact' else 'within its bounds'}"
        )
        try:
            sizes.append(
                Size(form, _bytes_without_limit(tables, engine, stated, found.batch), found.rows or 0)
            )
        except SpillwayError as problem:
            notes.append(str(problem))
    return Comparison(stream, found.batch, found.batch_date, found.rows or 0, tuple(sizes), tuple(notes))


def _lossless_contracts(contract: StreamContract) -> dict[str, StreamContract]:
    """Return the contract that loses nothing (`exact`) and, if a lever uses bounds, the one within them (`bound`)."""
    exact = bound = contract
    for name in contract.lever_names:
        stated = lever(name).with_fewest_bytes(exact, exact=True)
        exact = _without(exact, name) if stated is None else stated
        stated = lever(name).with_fewest_bytes(bound, exact=False)
        bound = _without(bound, name) if stated is None else stated
    return {"exact": exact, "bound": bound} if bound.lever_names else {"exact": exact}


def _without(contract: StreamContract, name: str) -> StreamContract:
    return replace(contract, levers=tuple(one for one in contract.levers if one.lever != name))


def _bytes_without_limit(tables: Tables, engine: Engine, contract: StreamContract, batch: int) -> int:
    """Return the bytes that are sent of a batch under this contract, through a channel with capacity for all of it."""
    stream = contract.stream
    channel = read_channel(contract.channel, {"capacity": _PLENTY_KBPS, "minimize": "bytes"})
    alone = Contracts({stream: contract}, {contract.channel: channel})
    with dry_run(tables, engine, alone, contract.channel, (stream, batch)) as run:
        if stream not in run.batches:
            why = run.waiting.get(stream, "it did not go through")
            raise SpillwayError(f"{stream}: batch {batch} cannot be compared: {why}")
        return _sent_totals(run, stream)["bytes_kept"]


def planned_sizes(run: DryRun, stream: str) -> tuple[Size, Size]:
    """Return the bytes that a batch of a dry run offered, and the bytes that the plan sends."""
    rows, sent = run.batches[stream].rows or 0, _sent_totals(run, stream)
    return Size("offered", sent["bytes_offered"], rows), Size("planned", sent["bytes_kept"], rows)


def _sent_totals(run: DryRun, stream: str) -> Mapping[str, int]:
    """Return the bytes that the ledger of a dry run counts for a stream's batch."""
    where = {"subject": stream, "batch": run.batches[stream].batch, "stage": SENT, "unit": "rows"}
    rows = run.tables.at("ledger").rows(["bytes_offered", "bytes_kept"], dimension_kind=TOTAL, **where)
    (row,) = rows.to_pylist()
    return row
