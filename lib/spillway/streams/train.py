"""Train the levers of streams on the tuples in `raw`; each training stores a version of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial

import pyarrow as pa

from spillway.batch import HELD, Batch
from spillway.contracts import Contracts, StreamContract
from spillway.engine.protocol import Engine
from spillway.intake.ingest import ingest
from spillway.levers.protocol import CapacityGroup, CapacityShare, Load, Say, TrainingInput
from spillway.records.parity import RULE
from spillway.registry import lever
from spillway.store.batches import RATED, load_batches, newest_batch
from spillway.store.files import DataFile, edges_of, read_rows, row_count
from spillway.store.tables import Between, Tables
from spillway.streams.capacity import capacity_shares, measure_load
from spillway.streams.facts import has_same_values, newest_facts, save_facts, untrained_levers
from spillway.streams.faults import Faults

RECENT = 1000
"""The number of last batches of a stream among which the densest one determines its channel share for training."""


def train_streams(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    names: Sequence[str],
    run_id: str,
    say: Say = lambda _: None,
) -> None:
    """Train streams; first take in new files of streams that were never trained.

    A failure of one stream does not stop the others.
    """
    now, faults = tables.now(), Faults(say)
    for name in names:
        contracts.stream(name)
    # take in every stream before any is trained: the shares of a channel depend on all of its streams
    fresh = faults.run_each("train", names, lambda name: untrained_levers(now, contracts.stream(name)))
    new = [name for name, levers in fresh.items() if levers]
    faults.run_each("take in", new, lambda name: ingest(tables, engine, contracts.stream(name), run_id, say))
    faults.run_each("train", fresh, lambda name: train_stream(tables, contracts, name, say))
    faults.record_broken_contracts(contracts)
    faults.raise_all()


def train_stream(
    tables: Tables, contracts: Contracts, stream: str, say: Say = lambda _: None
) -> Mapping[str, int]:
    """Train every lever of the stream; return the versions that are in force now."""
    tables = tables.now()
    contract = contracts.stream(stream)
    held = _batches_in_raw(tables, stream)
    if not held and len(untrained_levers(tables, contract)) == len(contract.lever_names) > 0:
        # a contract often exists before its data; that is not a fault of this run
        say(f"{stream}: nothing to train on yet, no tuple has been taken in")
        return {}
    files = _files(tables, stream, held)
    load, part = _load_and_share(tables, contracts, contract)
    channel = contracts.channels[contract.channel]
    versions: dict[str, int] = {}
    for name in contract.lever_names:
        before = newest_facts(tables, stream, name)
        again = before is not None
        edge, damaged = partial(edge_rows, files, last=again), partial(damaged_tuples, tables, stream)
        lesson = TrainingInput(contract, again, edge, load, part, say, channel, damaged)
        facts = lever(name).train(lesson)
        if facts is None:
            assert before is not None, "who has learned nothing says what is missing"
            say(
                f"{stream}: nothing to train {name} on, all raw tuples were retired; version {before.version} stays"
            )
            versions[name] = before.version
            continue
        if not facts:
            continue
        if before is not None and has_same_values(before, facts):
            say(f"{stream}: {name} learned nothing new, version {before.version} stays")
            versions[name] = before.version
            continue
        versions[name] = before.version + 1 if before is not None else 1
        save_facts(tables, stream, name, versions[name], _span(files), facts)
        say(f"{stream}: trained {name}, version {versions[name]}")
    return versions


def damaged_tuples(tables: Tables, stream: str, from_seq: int, to_seq: int) -> int:
    """Count the tuples of a range of `seq` that were refused because parity could not correct them."""
    rows = tables.at("rejected").rows(["rule"], stream=stream, seq=Between(from_seq, to_seq))
    return rows["rule"].to_pylist().count(RULE)


def edge_rows(files: Sequence[DataFile], columns: Sequence[str], count: int, last: bool) -> pa.Table:
    """Return the first (or last) `count` rows of the files, in the order of `seq`."""
    spans = {file.path: span for file in files if (span := edges_of(file, "seq")) is not None}
    ordered = sorted(
        (file for file in files if file.path in spans), key=lambda file: spans[file.path], reverse=last
    )
    held = 0
    chosen: list[DataFile] = []
    for file in ordered:
        if held >= count:
            break
        chosen.append(file)
        held += file.records or row_count(file)
    if not chosen:
        return read_rows([], columns, 0, -1)
    ends = [spans[file.path] for file in chosen]
    rows = read_rows(chosen, columns, min(low for low, _ in ends), max(high for _, high in ends))
    return rows.slice(rows.num_rows - min(count, rows.num_rows)) if last else rows.slice(0, count)


def last_rows_reader(
    tables: Tables, stream: str, batches: Sequence[Batch]
) -> Callable[[Sequence[str], int], pa.Table]:
    """Return a function of (columns, count) that reads the last tuples of some batches; they are looked up then."""

    def edge(columns: Sequence[str], count: int) -> pa.Table:
        files = _files(tables, stream, {batch.batch: batch.batch_date for batch in batches})
        return edge_rows(files, columns, count, last=True)

    return edge


def _batches_in_raw(tables: Tables, stream: str) -> dict[int, date]:
    """Return the batches whose tuples are in `raw`, with their dates."""
    found = tables.at("batches").rows(["batch", "batch_date"], stream=stream, status=HELD, rows=Between(1))
    return dict(zip(found["batch"].to_pylist(), found["batch_date"].to_pylist(), strict=True))


def _recent(tables: Tables, stream: str) -> list[Batch]:
    """Return the last `RECENT` of the batches whose tuples are in `raw`."""
    last = newest_batch(tables, stream, status=HELD, rows=Between(1))
    if last is None:
        return []
    since = Between(last.batch - RECENT + 1)
    return load_batches(tables, stream, status=HELD, rows=Between(1), batch=since)


def _files(tables: Tables, stream: str, held: Mapping[int, date]) -> list[DataFile]:
    if not held:
        return []
    return tables.at("raw", stream).files(batch_date=set(held.values()), batch=set(held))


def _span(files: Sequence[DataFile]) -> tuple[int, int]:
    spans = [span for span in (edges_of(file, "seq") for file in files) if span is not None]
    return min((int(low) for low, _ in spans), default=0), max((int(high) for _, high in spans), default=0)


def _load_and_share(
    tables: Tables, contracts: Contracts, contract: StreamContract
) -> tuple[Load | None, CapacityShare | None]:
    """Return the load of the stream's last batch, and the stream's share of the channel next to the others."""
    rated = newest_batch(tables, contract.stream, status=HELD, rows=Between(1), seconds_covered=RATED)
    if rated is None:
        return None, None
    room = CapacityGroup(contracts.planning_channel(contract.channel), contracts, tables)
    waiting = {other.stream: _recent(tables, other.stream) for other in contracts.streams_of(room.name)}
    # a fault of another stream is reported when that stream is trained, planned or shed
    shares = capacity_shares(tables, room, waiting, by_rate=True, faults=Faults())
    return measure_load(tables, contract, rated), shares[contract.stream]
