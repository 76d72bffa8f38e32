"""Run streams from end to end: take in, train untrained levers, shed, sketch, compute joins and queries, validate.

`run_through` does in one run what the DAGs do in four. It serves users without Airflow, and users who want to see a
stream through now. If a step fails for a stream, the others go on, and the stream continues with the data that it has.
At the end, the sentences of all faults are raised together. A file that the run refused whole, and a batch that exceeds
its channel, count as faults too: their tables are complete, but the run must not end with exit code 0.

`bring_through` is the run of a channel: it takes in new files and sheds the waiting batches. `sketch_channel` is a step
of its own. No other step waits for a sketch. If a sketch cannot be made, a later run of the step makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from datetime import date
from functools import partial

from spillway.batch import DONE, REFUSED, Batch
from spillway.contracts import Contracts, StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError, safely, so_many
from spillway.intake.take_in import take_in
from spillway.ledger import TOTAL, Row
from spillway.levers.protocol import Say
from spillway.pipeline.validate import validate
from spillway.store.batches import load_batches, settle_batches
from spillway.store.tables import Tables
from spillway.streams.drafts import SENT, remedy_of
from spillway.streams.facts import untrained
from spillway.streams.faults import Faults
from spillway.streams.shed import shed_channel
from spillway.streams.sketching import sketch_stream
from spillway.streams.train import train_taken_in
from spillway.workloads.run import chosen_workloads, run_workloads


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
    """Take in and shed the new and pending batches of a channel, or those of the dates `from..to`; return those done.

    Faults of a stream, at any step, are raised after all other streams are through. A stream that fails at intake is
    still shed, with what was taken in before. But if another run has committed first in a stream, this run leaves the
    stream to it. Otherwise each run could make the other give way.

    `only`: process only these streams; the others keep the channel share of their last offer.
    `at_once`: if true, no batch waits for later ones (`batching:`).
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
    """Make the sketches that the channel's streams lack, or all of the dates `from..to` again; return their number.

    Faults of a stream are raised after the sketches of all other streams are made.
    """
    faults = Faults(say)
    sharing = contracts.streams_of(channel)
    streams = {one.stream: one for one in sharing if one.sketches and (only is None or one.stream in only)}
    made = faults.each(
        "sketch", streams, lambda stream: sketch_stream(tables, engine, streams[stream], say, dates)
    )
    faults.tell()
    return sum(made.values())


def run_through(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    streams: Sequence[str],
    run_id: str,
    say: Say = lambda _: None,
    at_once: bool = False,
) -> None:
    """Run these streams from end to end; other streams on their channels count with their last offered rate.

    `at_once`: if true, also send the batches that wait for later ones (`batching:`).
    """
    faults = Faults(say)
    mine = {name: contracts.stream(name) for name in streams}
    now = tables.now()
    done_before = {name: _done(now, name) for name in mine}
    fresh = faults.each("train", mine, lambda name: bool(untrained(now, mine[name])))
    new = [name for name, missing in fresh.items() if missing]
    faults.each("take in", new, lambda name: take_in(tables, engine, mine[name], run_id, say))
    held = [name for name in new if any(batch.rows for batch in load_batches(tables.now(), name))]
    train_taken_in(tables, engine, contracts, held, faults, say)
    going = mine.keys() - faults.gave_way  # leave a stream to another run that committed first
    for room in sorted({contracts.planned_with(mine[name].channel) for name in going}):
        through = partial(bring_through, tables, engine, contracts, room, run_id, say, only=set(going))
        _noted(faults, room, partial(through, at_once=at_once))
        sketches = partial(sketch_channel, tables, engine, contracts, room, say, only=set(going))
        _noted(faults, "sketch", sketches)
    reading = [one.subject for one in chosen_workloads(contracts) if mine.keys() & set(one.inputs)]
    if reading:
        _noted(faults, "workloads", partial(run_workloads, tables, engine, contracts, reading, say))
    _noted(faults, "validate", partial(validate, tables, engine, contracts, run_id, say, list(mine)))
    for name, contract in mine.items():
        look = partial(_shortcomings, tables.now(), contract, run_id, done_before[name])
        for sentence in faults.attempt(name, "look back", look) or ():
            faults.note(name, "look back", SpillwayError(sentence))
    if set(mine) == set(contracts.streams):
        faults.broken(contracts)
    faults.tell()


def _done(tables: Tables, stream: str) -> set[int]:
    """Return the batches of a stream whose status is `done`."""
    return set(tables.at("batches").rows(["batch"], stream=stream, status=DONE)["batch"].to_pylist())


def _shortcomings(tables: Tables, contract: StreamContract, run_id: str, done_before: Set[int]) -> list[str]:
    """Return a sentence for each file that the run refused whole, and one if batches that it sent exceed their channel.

    A stream with `mode: observe`, and a batch that is sent whole on request, may exceed their channel.
    """
    stream = contract.stream
    found = [
        file.reason or f"{safely(file.name)}: the file was refused whole; the table rejected says why"
        for batch in load_batches(tables, stream, run_id=run_id)
        for file in batch.files
        if file.status == REFUSED
    ]
    fresh = sorted(_done(tables, stream) - done_before) if contract.mode == "shed" else []
    mine = {
        one.batch: one
        for one in (load_batches(tables, stream, batch=fresh) if fresh else ())
        if one.sent_whole is None
    }
    totals = tables.at("ledger").rows(
        scope="stream", subject=stream, batch=list(mine), dimension_kind=TOTAL
    ).to_pylist() if mine else []  # fmt: skip
    fitting = _fitting(contract, mine, totals)
    # the bytes as written can fit although the plan fell short of values
    lines = [
        one
        for one in totals
        if one["shortfall"] and not (one["unit"] == "values" and one["batch"] in fitting)
    ]
    if lines:
        worst = max(lines, key=lambda line: line["shortfall"] / max(1, line["kept"]))
        batches = sorted({line["batch"] for line in lines})
        reason = f" ({worst['reason']})" if worst["reason"] else ""
        remedy = (
            "; widen the channel, let more be shed, or deliver larger batches less often: spillway plan "
            f"{stream} shows what each capacity would do"
        )
        found.append(
            f"{stream}: a batch must fit into its share of channel {contract.channel}, got "
            f"{so_many(len(batches), 'batch that does', 'batches that do')} not: of the {worst['kept']:,} "
            f"{worst['unit']} that were sent of batch {worst['batch']}, about {worst['shortfall']:,} are too "
            f"many{reason}{'' if remedy_of(worst['reason'], '') else remedy}"
        )
    return found


def _fitting(contract: StreamContract, batches: Mapping[int, Batch], totals: Iterable[Row]) -> set[int]:
    """Return the batches whose bytes, as measured, fit into their share of the channel."""
    if contract.width == "declared":
        return set()
    found = set()
    for line in totals:
        batch = batches[line["batch"]]
        if line["stage"] == SENT and line["unit"] == "rows" and batch.seconds_covered:
            kbps = line["bytes_kept"] * 8.0 / 1000.0 / batch.seconds_covered
            found |= {batch.batch} if kbps <= batch.allowed_kbps else set()
    return found


def _noted(faults: Faults, step: str, work: Callable[[], object]) -> None:
    """Run work that reports its own faults, and keep each of its sentences as one fault."""
    try:
        work()
    except SpillwayError as problem:
        faults.keep(step, problem)
    except Exception as problem:
        faults.note("", step, problem)
