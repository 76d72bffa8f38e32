"""What there is to do, found out in milliseconds: from `batches`, `models` and a listing of the landing zone.

Starting Spark to learn that nothing arrived would cost more than most batches, so the scheduler's first task asks
here. Nothing is read but directory entries and two small tables.
"""

from __future__ import annotations

from datetime import date, datetime

from spillway.batch import PENDING, UNTRAINED, utc_now
from spillway.contracts import StreamContract, load_usable
from spillway.intake.landing import look
from spillway.intake.take_in import can_be_rated, waits_for_a_rate
from spillway.pipeline.exemptions import exemption_of
from spillway.pipeline.facts import untrained
from spillway.settings import Settings
from spillway.store.batches import load_batches
from spillway.store.tables import Tables


def is_pending(contract: StreamContract, tables: Tables, now: datetime | None = None) -> bool:
    """Whether a run would find work: a file to deal with, or a batch that is not done and can be carried on.

    What waits for somebody is no work: a file that is refused or has not settled, a batch that was set aside, one whose
    rate nothing tells, one whose stream is not trained.
    """
    batches = load_batches(tables, contract.stream)
    if look(contract, tables.settings, batches, now).waiting:
        return True
    begun = [batch for batch in batches if batch.status in PENDING]
    able = {b.status for b in begun if not waits_for_a_rate(b) or can_be_rated(contract, b, batches)}
    if able != {UNTRAINED}:
        return bool(able)
    return not untrained(tables, contract) or exemption_of(tables, contract.stream, utc_now()) is not None


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
    batches = load_batches(Tables(settings))
    streams = {b.stream for b in batches if from_date <= b.batch_date <= to_date}
    return sorted(
        {contracts.planned_with(c.channel) for c in contracts.streams.values() if c.stream in streams}
    )
