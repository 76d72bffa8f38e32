"""A channel's run: take in what is new and shed what its streams have waiting; and, a step of its own, sketch it.

Nothing waits for a sketch: one that cannot be made keeps no tuple back, and is made by a later run of its step.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from spillway.batch import Batch
from spillway.contracts import Contracts
from spillway.engine.protocol import Engine
from spillway.intake.take_in import take_in
from spillway.levers.protocol import Say
from spillway.pipeline.faults import Faults
from spillway.pipeline.shed import shed_channel
from spillway.pipeline.sketch import sketch_stream
from spillway.store.batches import settle_batches
from spillway.store.tables import Tables


def bring_through(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    channel: str,
    run_id: str,
    say: Say = lambda _: None,
    dates: tuple[date, date] | None = None,
    only: Collection[str] | None = None,
    at_once: bool = False,
) -> list[Batch]:
    """Bring the channel's new and pending batches (or those of the dates `from..to`) through; the ones done.

    What goes wrong with a stream, at whichever step, is raised when all others are through: what it has taken in is
    shed though something new cannot be taken in. But a stream in which another run was quicker is left to that run from
    there on: taken up again at a later step, it would be taken from a run that is ahead, and each would have given way
    to the other. `only`: of these streams; the others keep the part of the channel that their last offer gives them.
    `at_once`: no batch waits for later ones (`batching:`).
    """
    faults = Faults(say)
    sharing = contracts.streams_of(channel)
    streams = {one.stream: one for one in sharing if only is None or one.stream in only}
    if dates is None:
        faults.each("take in", streams, lambda stream: take_in(tables, engine, streams[stream], run_id, say))
    going_on = streams.keys() - faults.gave_way
    mine = lambda batch: batch.stream in going_on  # noqa: E731
    done = shed_channel(tables, engine, contracts, channel, say, dates, faults, mine, at_once)
    now = tables.now()
    for stream in sorted(going_on - faults.gave_way):
        settle_batches(now, stream)
    faults.broken(contracts, channel)
    faults.tell()
    return done


def sketch_channel(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    channel: str,
    say: Say = lambda _: None,
    dates: tuple[date, date] | None = None,
    only: Collection[str] | None = None,
) -> int:
    """Make what sketches the channel's streams lack, or all of the dates `from..to` again; returns how many.

    What goes wrong with a stream is raised when those of all others are made.
    """
    faults = Faults(say)
    sharing = contracts.streams_of(channel)
    streams = {one.stream: one for one in sharing if one.sketches and (only is None or one.stream in only)}
    made = faults.each(
        "sketch", streams, lambda stream: sketch_stream(tables, engine, streams[stream], say, dates)
    )
    faults.tell()
    return sum(made.values())
