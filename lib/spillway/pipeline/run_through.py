"""One run of some streams all the way: take in, train what was never trained, shed, sketch, join and query, validate.

What the DAGs do in four runs of their own, here in one go, for whoever has no Airflow or wants to see a stream through
now. A stream that fails at a step keeps no other back, and goes on with what it has; at the end the sentences of all
that went wrong are raised together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from spillway.contracts import Contracts
from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError
from spillway.intake.take_in import take_in
from spillway.levers.protocol import Say
from spillway.pipeline.channel import bring_through, sketch_channel
from spillway.pipeline.facts import untrained
from spillway.pipeline.faults import Faults
from spillway.pipeline.train import train_stream
from spillway.pipeline.validate import validate
from spillway.pipeline.workloads import chosen_workloads, run_workloads
from spillway.store.batches import load_batches
from spillway.store.tables import Tables


def run_through(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    streams: Sequence[str],
    run_id: str,
    say: Say = lambda _: None,
) -> None:
    """Bring what has landed of these streams through; others on their channels count with what they last offered."""
    faults = Faults(say)
    mine = {name: contracts.stream(name) for name in streams}
    now = tables.now()
    fresh = faults.each("train", mine, lambda name: bool(untrained(now, mine[name])))
    new = [name for name, missing in fresh.items() if missing]
    faults.each("take in", new, lambda name: take_in(tables, engine, mine[name], run_id, say))
    held = [name for name in new if any(batch.rows for batch in load_batches(tables.now(), name))]
    faults.each("train", held, lambda name: train_stream(tables, contracts, name, say))
    going = (
        mine.keys() - faults.gave_way
    )  # a stream in which another run was quicker is that run's from there on
    for room in sorted({contracts.planned_with(mine[name].channel) for name in going}):
        through = partial(bring_through, tables, engine, contracts, room, run_id, say, only=set(going))
        _noted(faults, room, through)
        sketches = partial(sketch_channel, tables, engine, contracts, room, say, only=set(going))
        _noted(faults, "sketch", sketches)
    reading = [one.subject for one in chosen_workloads(contracts) if mine.keys() & set(one.inputs)]
    if reading:
        _noted(faults, "workloads", partial(run_workloads, tables, engine, contracts, reading, say))
    _noted(faults, "validate", partial(validate, tables, engine, contracts, run_id, say, list(mine)))
    if set(mine) == set(contracts.streams):
        faults.broken(contracts)
    faults.tell()


def _noted(faults: Faults, step: str, work: Callable[[], object]) -> None:
    """Do what says all that went wrong with its streams itself, and keep its sentences one by one."""
    try:
        work()
    except SpillwayError as problem:
        faults.keep(step, problem)
    except Exception as problem:
        faults.note("", step, problem)
