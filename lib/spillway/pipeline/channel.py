"""A channel's run: take in what is new, sketch it, and shed what its streams have waiting."""

from __future__ import annotations

from datetime import date

from spillway.batch import Batch
from spillway.contracts import Contracts
from spillway.engine.protocol import Engine
from spillway.intake.take_in import take_in
from spillway.job import side_by_side
from spillway.levers.protocol import Say
from spillway.pipeline.shed import shed_channel
from spillway.pipeline.sketch import sketch_stream
from spillway.store.tables import Tables


def bring_through(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    channel: str,
    run_id: str,
    say: Say = lambda _: None,
    dates: tuple[date, date] | None = None,
) -> list[Batch]:
    """Bring the channel's new and pending batches (or those of the dates `from..to`) through; the ones done."""
    streams = contracts.streams_of(channel)
    if dates is None:
        side_by_side(lambda contract: take_in(tables, engine, contract, run_id, say), streams)
    side_by_side(lambda contract: sketch_stream(tables, engine, contract, say, dates), streams)
    return shed_channel(tables, engine, contracts, channel, say, dates)
