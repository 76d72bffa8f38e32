"""Shedding a channel: take in, pin, plan, shed, account, for all streams that share it.

Written in this order, each replacing its own (stream, batch): `synopsis`, `schemes`, `ledger`, `transmitted` last,
then the batch turns done. Whoever sees a transmitted row can recover it. What was transmitted is measured; a
batch that came out above its part of the channel is planned again with that much less, before it is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from spillway.contracts import Contracts, StreamContract
from spillway.errors import SpillwayError
from spillway.intake.take_in import take_in
from spillway.job import side_by_side
from spillway.levers.attributes.attempt import Attempt
from spillway.levers.attributes.capacity.channel_shares import channel_parts
from spillway.levers.attributes.facts import Trained, load_trained
from spillway.levers.attributes.policy import Part, measure_load
from spillway.pipeline.sketch import sketch_stream
from spillway.settings import Settings
from spillway.store.batches import (
    DONE,
    PENDING,
    PLANNED,
    RECORDED,
    RETIRED,
    UNTRAINED,
    Batch,
    load_batches,
    save_batches,
    utc_now,
)
from spillway.store.tables import Lake

Say = Callable[[str], None]
MOST_ATTEMPTS = 4


def shed_channel(
    lake: Lake,
    contracts: Contracts,
    channel: str,
    run_id: str,
    say: Say = lambda _: None,
    dates: tuple[date, date] | None = None,
) -> list[Batch]:
    """Bring the channel's pending batches (or those of the dates `from..to`) through; returns the ones done."""
    if channel not in contracts.channels:
        raise SpillwayError(
            f"`channel` must be one of {', '.join(sorted(contracts.channels))}, got {channel!r}; see channels.yaml"
        )
    streams = contracts.streams_of(channel)
    if dates is None:
        side_by_side(lambda contract: take_in(lake, contract, run_id, say), streams)
    side_by_side(lambda contract: sketch_stream(lake, contract, say, dates), streams)
    work = [one for contract in streams if (one := _work(lake.settings, contract, dates, say)) is not None]
    for one in work:
        if one.trained is None:
            save_batches(
                lake, [b.becomes(utc_now(), status=UNTRAINED) for b in one.batches if b.status != UNTRAINED]
            )
    ready = [one for one in work if one.trained is not None]
    waiting = {one.contract.stream: one.batches for one in ready}
    parts = channel_parts(lake.settings, contracts, channel, waiting)
    done = side_by_side(lambda one: _shed_stream(lake, one, parts[one.contract.stream], say), ready)
    return [batch for batches in done for batch in batches]


@dataclass(frozen=True)
class _Work:
    contract: StreamContract
    batches: tuple[Batch, ...]
    trained: Trained | None


def _work(
    settings: Settings, contract: StreamContract, dates: tuple[date, date] | None, say: Say
) -> _Work | None:
    """The batches to bring through, oldest first."""
    every = load_batches(settings, contract.stream)
    if dates is None:
        batches = [batch for batch in every if batch.status in PENDING and batch.status != RECORDED]
    else:
        batches = [
            batch for batch in every if dates[0] <= batch.batch_date <= dates[1] and batch.status != RECORDED
        ]
        _refuse_retired(contract.stream, batches)
    if not batches:
        return None
    newest = load_trained(settings, contract.stream)
    if newest is None:
        rows = sum(batch.rows or 0 for batch in batches)
        say(f"{contract.stream}: untrained, {rows:,} tuples wait; spillway_train trains it")
    return _Work(contract, tuple(batches), newest)


def _refuse_retired(stream: str, batches: Sequence[Batch]) -> None:
    gone = sorted({str(batch.batch_date) for batch in batches if batch.status == RETIRED})
    if gone:
        raise SpillwayError(
            f"{stream}: a backfill must not touch retired dates, got {', '.join(gone)}, whose raw tuples were deleted "
            "after they were validated; ask for other dates"
        )


def _shed_stream(lake: Lake, work: _Work, part: Part, say: Say) -> list[Batch]:
    """Pin, plan, shed and account one stream's batches."""
    contract, settings = work.contract, lake.settings
    stream = contract.stream
    batches = _pinned(lake, work, part)
    with_rows = [batch for batch in batches if batch.rows]
    if not with_rows:
        done = [batch.becomes(utc_now(), status=DONE) for batch in batches]
        save_batches(lake, done)
        return done
    started = time.monotonic()
    loads = {batch.batch: measure_load(settings, contract, batch) for batch in with_rows}
    tightened = {batch.batch: 1.0 for batch in with_rows}
    for attempt in range(1, MOST_ATTEMPTS + 1):
        shed = Attempt(lake, contract, with_rows, loads, tightened, started)
        shed.write(say)
        over = shed.over_capacity()
        if not over:
            break
        if attempt == MOST_ATTEMPTS:
            shed.record_shortfall(over)
            say(f"{stream}: {len(over)} batches stay above the channel's part; the shortfall is in schemes")
            break
        for number, factor in over.items():
            tightened[number] *= factor
        say(f"{stream}: {len(over)} batches came out above the channel's part; shedding a little more")
    done = [batch.becomes(utc_now(), status=DONE) for batch in batches]
    save_batches(lake, done)
    return done


def _pinned(lake: Lake, work: _Work, part: Part) -> list[Batch]:
    """The batches with models, capacity and frames fixed: a rerun uses what the first run used."""
    assert work.trained is not None, "only trained streams are pinned"
    length = work.contract.frame.tuples
    version = work.trained.version
    every = load_batches(lake.settings, work.contract.stream)
    latest = {b.batch_date: b for b in every if b.frame_origin is not None and b.status != RETIRED}
    pinned: list[Batch] = []
    for batch in work.batches:
        if batch.models.get("attributes") is None:
            # frames never leave a batch date, a model version or what was retired; within them they go on
            before = latest.get(batch.batch_date)
            goes_on = before is not None and (before.models["attributes"], before.frame_tuples) == (
                version,
                length,
            )
            batch = batch.becomes(
                utc_now(),
                status=PLANNED,
                models={"attributes": version},
                capacity_kbps=part.own_kbps,
                trunk_kbps=part.trunk_kbps,
                frame_origin=before.frame_origin if before is not None and goes_on else batch.first_seq,
                frame_tuples=length,
            )
            latest[batch.batch_date] = batch
        elif batch.status != PLANNED:
            # a backfill that dies is pending, so that the next run finishes what is half rewritten
            batch = batch.becomes(utc_now(), status=PLANNED)
        pinned.append(batch)
    changed = [batch for batch, before in zip(pinned, work.batches, strict=True) if batch != before]
    save_batches(lake, changed)
    return pinned
