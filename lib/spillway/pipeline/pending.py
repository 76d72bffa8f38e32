"""Find out in milliseconds what a run has to do, from `batches`, `models` and a listing of the landing zone.

The scheduler's first task calls this module. Starting Spark only to find that no file arrived would cost more than most
batches. Only directory entries and two small tables are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime

from spillway.batch import PENDING, UNTRAINED
from spillway.clock import utc_now
from spillway.contracts import Contracts, StreamContract, load_usable
from spillway.intake.ingest import can_be_rated, is_waiting_for_rate
from spillway.intake.landing import find_landing_files
from spillway.intake.rate import rated_batches
from spillway.settings import Settings
from spillway.store.batches import load_batches
from spillway.store.tables import Between, Tables
from spillway.streams.batching import load_waiting_batches
from spillway.streams.exemptions import exemption_of
from spillway.streams.facts import untrained_levers
from spillway.workloads.run import has_pending_window, select_workloads


def is_pending(contract: StreamContract, tables: Tables, now: datetime | None = None) -> bool:
    """Return whether a run has work: a file to take in, or a batch that is not done and can be continued.

    Work that needs a person does not count: a file that is refused or not final, a quarantined batch, a batch with an
    unknown rate, or one of an untrained stream. A batch that waits for later ones (`batching:`) does not count either.
    """
    together = load_waiting_batches(tables, contract, now or utc_now())
    mine = together.batches if together is not None else ()
    begun = [b for b in load_batches(tables, contract.stream, status=PENDING) if b.batch not in mine]
    quick = {batch.status for batch in begun if not is_waiting_for_rate(batch)}
    slow = [batch for batch in begun if is_waiting_for_rate(batch)]
    rated = rated_batches(tables, contract.stream) if slow else []
    able = quick | {batch.status for batch in slow if can_be_rated(contract, batch, rated)}
    if able - {UNTRAINED}:
        return True
    if able and (
        not untrained_levers(tables, contract) or exemption_of(tables, contract.stream, utc_now()) is not None
    ):
        return True
    return bool(find_landing_files(contract, tables, now).files_to_process)


def _may_be_pending(contract: StreamContract, tables: Tables, now: datetime | None) -> bool:
    """Return whether a stream has work; True also if the check fails, so that the run of the channel reports why."""
    try:
        return is_pending(contract, tables, now)
    except Exception:
        return True


BYTES_A_VALUE = {"parquet": 4, "csv": 8, "json": 20}
"""About how many bytes one value of a landed file takes, by format. It need only be right to a factor of two."""
VALUES_A_TRAINING = 200_000
"""The values that are processed in the time of training one attribute."""


def waiting_values(tables: Tables, contracts: Contracts, streams: Sequence[str]) -> int:
    """Return about how many values (rows x attributes) a run of the streams has to process; training included.

    Only directory entries and two small tables are read. A stream that cannot be read counts nothing: its run says why.
    """
    total = 0
    for name in streams:
        with suppress(Exception):
            contract = contracts.stream(name)
            rows = sum(batch.rows or 0 for batch in load_batches(tables, name, status=PENDING))
            size = sum(file.size for file in find_landing_files(contract, tables).files_to_process)
            total += rows * len(contract.attributes)
            total += size // BYTES_A_VALUE.get(contract.source.format, BYTES_A_VALUE["json"])
            if (rows or size) and untrained_levers(tables, contract):
                total += VALUES_A_TRAINING * len(contract.sheddable)
    return total


def pending_channels(settings: Settings, now: datetime | None = None) -> list[str]:
    """Return the sorted names of channels with a stream that has work; empty if a run has nothing to do."""
    contracts, tables = load_usable(settings.schemas), Tables(settings)
    waiting = {c.channel for c in contracts.streams.values() if _may_be_pending(c, tables, now)}
    return sorted({contracts.planning_channel(channel) for channel in waiting})


def channels_of_dates(settings: Settings, from_date: date, to_date: date) -> list[str]:
    """Return the channels with a batch of one of the dates, both ends included; a backfill recomputes these batches."""
    contracts = load_usable(settings.schemas)
    found = Tables(settings).at("batches").rows(["stream"], batch_date=Between(from_date, to_date))
    streams = set(found["stream"].to_pylist())
    return sorted(
        {contracts.planning_channel(c.channel) for c in contracts.streams.values() if c.stream in streams}
    )


def unsketched_channels(settings: Settings, dates: tuple[date, date] | None = None) -> list[str]:
    """Return the channels with a stream that lacks a sketch of its contract.

    `dates`: if given, return the channels with sketched streams that have batches of these dates.
    """
    contracts, tables = load_usable(settings.schemas), Tables(settings)
    asking = [contract for contract in contracts.streams.values() if contract.sketches]
    if dates is not None:
        there = set(channels_of_dates(settings, *dates))
        return sorted({contracts.planning_channel(one.channel) for one in asking} & there)
    # the kernels take time to load, and few streams have sketches
    lacking = [one for one in asking if _may_be_unsketched(one, tables)]
    return sorted({contracts.planning_channel(one.channel) for one in lacking})


def _may_be_unsketched(contract: StreamContract, tables: Tables) -> bool:
    """Return whether a stream lacks a sketch; True also if the check fails, so that the sketch step reports why."""
    from spillway.streams.sketch_builder import batches_without_sketch

    try:
        return bool(batches_without_sketch(tables, contract))
    except Exception:
        return True


def pending_workloads(settings: Settings, names: Sequence[str] | None = None) -> list[str]:
    """Return the sorted names of joins and queries (default: all) with a closed window that is not computed."""
    contracts, tables = load_usable(settings.schemas), Tables(settings)
    found = []
    for contract in select_workloads(contracts, names):
        try:
            pending = has_pending_window(tables, contracts, contract)
        except Exception:  # the run of the workload reports the error; others are not affected
            pending = True
        if pending:
            found.append(contract.subject)
    return sorted(found)
