"""Run the product's own steps on a torture world, in a process that may die at any moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from functools import partial

from evidence.torture.world import TortureWorld
from spillway.contracts import Contracts
from spillway.engine import Engine, ProcessEngine
from spillway.intake.ingest import ingest
from spillway.intake.replay import Selection, replay
from spillway.pipeline.run import run_channel, sketch_channel
from spillway.pipeline.validate import validate
from spillway.store.tables import Tables
from spillway.streams.facts import untrained_levers
from spillway.streams.retention import maintain_lake
from spillway.streams.shed import shed_channel
from spillway.streams.train import train_stream, train_streams

DAYS = (date(2000, 1, 1), date(2030, 1, 1))

Step = Callable[[TortureWorld], object]


def _quiet(_: str) -> None:
    pass


def bring_all(world: TortureWorld, engine: Engine | None = None, validated: bool = False) -> None:
    """Take in, train untrained streams, shed, and, with `validated`, validate and retire.

    All of a channel is trained before any of it is shed: its parts follow from who can be shed at all.
    """
    engine = engine or ProcessEngine()
    tables, contracts = Tables(world.settings), world.contracts()
    take_in_all(world, engine)
    for stream in contracts.streams:
        if untrained_levers(tables.now(), contracts.stream(stream)):
            train_stream(tables, contracts, stream, _quiet)
    for channel in _channels(contracts):
        run_channel(tables, engine, contracts, channel, "torture", _quiet)
        sketch_channel(tables, engine, contracts, channel)
    if validated:
        validate(tables, engine, contracts, "torture", _quiet)


def take_in_all(world: TortureWorld, engine: Engine | None = None) -> None:
    """Take in all delivered files."""
    tables, contracts = Tables(world.settings), world.contracts()
    for contract in contracts.streams.values():
        ingest(tables, engine or ProcessEngine(), contract, "take in", _quiet)


def finish(world: TortureWorld) -> None:
    """Take in and shed everything that any step has left."""
    tables, contracts = Tables(world.settings), world.contracts()
    for channel in _channels(contracts):
        run_channel(tables, ProcessEngine(), contracts, channel, "finish", _quiet)
        sketch_channel(tables, ProcessEngine(), contracts, channel)


def _shed_all(world: TortureWorld, dates: tuple[date, date] | None = None) -> None:
    tables, contracts = Tables(world.settings), world.contracts()
    for channel in _channels(contracts):
        shed_channel(tables, ProcessEngine(), contracts, channel, _quiet, dates)


def _train(world: TortureWorld) -> None:
    contracts = world.contracts()
    train_streams(
        Tables(world.settings), ProcessEngine(), contracts, list(contracts.streams), "train", _quiet
    )


def _replay(world: TortureWorld) -> None:
    tables, contracts = Tables(world.settings), world.contracts()
    for contract in contracts.streams.values():
        replay(tables, ProcessEngine(), contract, Selection(), "replay", _quiet)


def _validate(world: TortureWorld) -> None:
    validate(Tables(world.settings), ProcessEngine(), world.contracts(), "validate", _quiet)


def _keep(world: TortureWorld) -> None:
    # by a clock of its own: old dates are closed, and nothing has outlived its retention
    maintain_lake(Tables(world.settings), world.contracts(), _quiet, now=datetime(2020, 6, 1, tzinfo=UTC))


def _channels(contracts: Contracts) -> list[str]:
    return sorted({one.channel for one in contracts.streams.values()})


STEPS: Mapping[str, Step] = {
    "take in": take_in_all,
    "shed": _shed_all,
    "train": _train,
    "validate": _validate,
    "backfill": partial(_shed_all, dates=DAYS),
    "replay": _replay,
    "keep": _keep,
}
"""What may run at once, by name."""
