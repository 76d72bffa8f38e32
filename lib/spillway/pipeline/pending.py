"""What there is to do, found out in milliseconds: from `batches`, `models` and a listing of the landing zone.

Starting Spark to learn that nothing arrived would cost more than most batches, so the scheduler's first task asks
here. Nothing is read but directory entries and two small tables.
"""

from __future__ import annotations

from datetime import date

from spillway.batch import PENDING, UNTRAINED
from spillway.contracts import StreamContract, load_usable
from spillway.intake.landing import new_files
from spillway.pipeline.facts import untrained
from spillway.settings import Settings
from spillway.store.batches import load_batches
from spillway.store.tables import Tables


def is_pending(contract: StreamContract, tables: Tables) -> bool:
    """Whether a run would find work: a new file, or a batch that is not done and can be carried on."""
    batches = load_batches(tables, contract.stream)
    if new_files(contract, tables.settings, batches):
        return True
    statuses = {batch.status for batch in batches if batch.status in PENDING}
    return not untrained(tables, contract) if statuses == {UNTRAINED} else bool(statuses)


def _may_be_pending(contract: StreamContract, tables: Tables) -> bool:
    """What cannot be found out of one stream is for its channel's run to tell, beside the others."""
    try:
        return is_pending(contract, tables)
    except Exception:
        return True


def pending_channels(settings: Settings) -> list[str]:
    """The channels with a stream that has something to do, by name; empty when a run would find nothing."""
    contracts, tables = load_usable(settings.schemas), Tables(settings)
    waiting = {c.channel for c in contracts.streams.values() if _may_be_pending(c, tables)}
    return sorted({contracts.planned_with(channel) for channel in waiting})


def channels_of_dates(settings: Settings, from_date: date, to_date: date) -> list[str]:
    """The channels with a batch of one of the dates, both ends included: what a backfill recomputes."""
    contracts = load_usable(settings.schemas)
    batches = load_batches(Tables(settings))
    streams = {b.stream for b in batches if from_date <= b.batch_date <= to_date}
    return sorted(
        {contracts.planned_with(c.channel) for c in contracts.streams.values() if c.stream in streams}
    )
