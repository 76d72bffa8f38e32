"""What there is to do, found out in milliseconds: from `batches`, `models` and a listing of the landing zone.

Starting Spark to learn that nothing arrived would cost more than most batches, so the scheduler's first task asks
here. Nothing is read but directory entries and two small tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime

from spillway.batch import PENDING, UNTRAINED
from spillway.clock import utc_now
from spillway.contracts import StreamContract, load_usable
from spillway.intake.landing import landed
from spillway.intake.rate import rated_batches
from spillway.intake.take_in import can_be_rated, waits_for_a_rate
from spillway.settings import Settings
from spillway.store.batches import load_batches
from spillway.store.tables import Between, Tables
from spillway.streams.batching import waiting_to_be_sent
from spillway.streams.exemptions import exemption_of
from spillway.streams.facts import untrained
from spillway.workloads.run import chosen_workloads, waits


def is_pending(contract: StreamContract, tables: Tables, now: datetime | None = None) -> bool:
    """Whether a run would find work: a file to deal with, or a batch that is not done and can be carried on.

    What waits for somebody is no work: a file that is refused or has not settled, a batch that was set aside, one whose
    rate nothing tells, one whose stream is not trained. Nor is a batch that still waits for later ones (`batching:`).
    """
    together = waiting_to_be_sent(tables, contract, now or utc_now())
    mine = together.batches if together is not None else ()
    begun = [b for b in load_batches(tables, contract.stream, status=PENDING) if b.batch not in mine]
    quick = {batch.status for batch in begun if not waits_for_a_rate(batch)}
    slow = [batch for batch in begun if waits_for_a_rate(batch)]
    rated = rated_batches(tables, contract.stream) if slow else []
    able = quick | {batch.status for batch in slow if can_be_rated(contract, batch, rated)}
    if able - {UNTRAINED}:
        return True
    if able and (
        not untrained(tables, contract) or exemption_of(tables, contract.stream, utc_now()) is not None
    ):
        return True
    return bool(landed(contract, tables, now).waiting)


def _may_be_pending(contract: StreamContract, tables: Tables, now: datetime | None) -> bool:
    """What cannot be found out of one stream is for its channel's run to tell, beside the others."""
    try:
        return is_pending(contract, tables, now)
    except Exception:
        return True


def pending_channels(settings: Settings, now: datetime | None = None) -> list[str]:
    """The channels with a stream that has something to do, by name; empty when a run would find nothing."""
    contracts, tables = load_usable(settings.schemas), Tables(settings)
    waiting = {c.channel for c in contracts.streams.values() if _may_be_pending(c, tables, now)}
    return sorted({contracts.planned_with(channel) for channel in waiting})


def channels_of_dates(settings: Settings, from_date: date, to_date: date) -> list[str]:
    """The channels with a batch of one of the dates, both ends included: what a backfill recomputes."""
    contracts = load_usable(settings.schemas)
    found = Tables(settings).at("batches").rows(["stream"], batch_date=Between(from_date, to_date))
    streams = set(found["stream"].to_pylist())
    return sorted(
        {contracts.planned_with(c.channel) for c in contracts.streams.values() if c.stream in streams}
    )


def unsketched_channels(settings: Settings, dates: tuple[date, date] | None = None) -> list[str]:
    """The channels with a stream that lacks a sketch its contract asks for, or that has batches of the dates."""
    contracts, tables = load_usable(settings.schemas), Tables(settings)
    asking = [contract for contract in contracts.streams.values() if contract.sketches]
    if dates is not None:
        there = set(channels_of_dates(settings, *dates))
        return sorted({contracts.planned_with(one.channel) for one in asking} & there)
    # its kernels take a moment to load, and few streams have sketches
    lacking = [one for one in asking if _may_be_unsketched(one, tables)]
    return sorted({contracts.planned_with(one.channel) for one in lacking})


def _may_be_unsketched(contract: StreamContract, tables: Tables) -> bool:
    """What cannot be found out is for the step to tell, beside the others."""
    from spillway.streams.sketching import unsketched

    try:
        return bool(unsketched(tables, contract))
    except Exception:
        return True


def pending_workloads(settings: Settings, names: Sequence[str] | None = None) -> list[str]:
    """The joins and queries (all, or those named) with a window that is closed and not worked out, by name."""
    contracts, tables = load_usable(settings.schemas), Tables(settings)
    found = []
    for contract in chosen_workloads(contracts, names):
        try:
            pending = waits(tables, contracts, contract)
        except Exception:  # what cannot be found out is for its run to tell, beside the others
            pending = True
        if pending:
            found.append(contract.subject)
    return sorted(found)
