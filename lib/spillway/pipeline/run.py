"""Run streams from end to end: take in, train untrained levers, shed, sketch, compute joins and queries, validate.

`run_streams` does in one run what the DAGs do in four. It serves users without Airflow, and users who want to see a
stream through now. If a step fails for a stream, the others go on, and the stream continues with the data that it has.
At the end, the sentences of all faults are raised together. A file that the run refused whole, and a batch that exceeds
its channel, count as faults too: their tables are complete, but the run must not end with exit code 0.

`run_channel` is the run of a channel: it takes in new files and sheds the waiting batches. `sketch_channel` is a step
of its own. No other step waits for a sketch. If a sketch cannot be made, a later run of the step makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial

from spillway.batch import DONE, REFUSED, Batch
from spillway.contracts import Contracts, StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import SpillwayError, escape_text, format_count
from spillway.intake.ingest import has_intake, ingest
from spillway.ledger import TOTAL, Row
from spillway.levers.protocol import Say
from spillway.pipeline.validate import validate
from spillway.store.batches import compact_batches, load_batches
from spillway.store.tables import Tables
from spillway.streams.drafts import SENT, shortfall_remedy
from spillway.streams.facts import untrained_levers
from spillway.streams.faults import Faults
from spillway.streams.shed import shed_channel
from spillway.streams.sketch_builder import sketch_stream
from spillway.streams.train import train_taken_in
from spillway.workloads.run import run_workloads, select_workloads


def run_channel(
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
        take_in_new(tables.now(), engine, streams, run_id, say, faults)
    going_on = streams.keys() - faults.conflicting_streams
    mine = lambda batch: batch.stream in going_on  # noqa: E731
    done = shed_channel(tables, engine, contracts, channel, say, dates, faults, mine, at_once)
    now = tables.now()
    for stream in sorted(going_on - faults.conflicting_streams):
        compact_batches(now, stream)
    faults.record_broken_contracts(contracts, channel)
    faults.raise_all()
    return done


def take_in_new(
    tables: Tables,
    engine: Engine,
    streams: Mapping[str, StreamContract],
    run_id: str,
    say: Say,
    faults: Faults,
) -> None:
    """Take in the new files of the streams; a stream without new files costs a look at `tables` and its folder."""

    def take(stream: str) -> None:
        if has_intake(tables, streams[stream]):
            ingest(tables, engine, streams[stream], run_id, say)

    faults.run_each("take in", streams, take)


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
    now = tables.now()
    steps = {name: sketch_stream(now, contract, say, dates) for name, contract in streams.items()}
    made = faults.run_steps("sketch", engine, steps, label=lambda _: f"sketch {channel}")
    faults.raise_all()
    return sum(made.values())


def run_streams(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    streams: Sequence[str],
    run_id: str,
    say: Say = lambda _: None,
    at_once: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Run these streams from end to end; other streams on their channels count with their last offered rate.

    `at_once`: if true, also send the batches that wait for later ones (`batching:`). `stopped`: asked before each step;
    if true, the remaining steps are left to the next run.
    """
    faults = Faults(say)
    mine = {name: contracts.stream(name) for name in streams}
    now = tables.now()
    now.at("batches")  # opened before anything changes
    for step in _steps(tables, now, engine, contracts, mine, run_id, say, at_once, faults):
        if stopped():
            break
        step()
    after = tables.now()
    for name, contract in mine.items():
        look = partial(_shortcomings, now, after, contract, run_id)
        for sentence in faults.attempt(name, "look back", look) or ():
            faults.record(name, "look back", SpillwayError(sentence))
    if set(mine) == set(contracts.streams):
        faults.record_broken_contracts(contracts)
    faults.raise_all()


def _steps(
    tables: Tables,
    now: Tables,
    engine: Engine,
    contracts: Contracts,
    mine: Mapping[str, StreamContract],
    run_id: str,
    say: Say,
    at_once: bool,
    faults: Faults,
) -> Iterator[Callable[[], object]]:
    """Yield the steps of a run, in order; a step is planned when the steps before it are done.

    `now`: the tables as they are before the first step.
    """

    def begin() -> None:
        fresh = faults.run_each("train", mine, lambda name: bool(untrained_levers(now, mine[name])))
        new = [name for name, missing in fresh.items() if missing]
        faults.run_each("take in", new, lambda name: ingest(tables, engine, mine[name], run_id, say))
        held = [name for name in new if any(batch.rows for batch in load_batches(tables.now(), name))]
        train_taken_in(tables, engine, contracts, held, faults, say)

    yield begin
    going = mine.keys() - faults.conflicting_streams  # leave a stream to another run that committed first
    for room in sorted({contracts.planning_channel(mine[name].channel) for name in going}):
        through = partial(run_channel, tables, engine, contracts, room, run_id, say, only=set(going))
        yield partial(_collect_faults, faults, room, partial(through, at_once=at_once))
        sketches = partial(sketch_channel, tables, engine, contracts, room, say, only=set(going))
        yield partial(_collect_faults, faults, "sketch", sketches)
    reading = [one.subject for one in select_workloads(contracts) if mine.keys() & set(one.inputs)]
    if reading:
        work = partial(run_workloads, tables, engine, contracts, reading, say)
        yield partial(_collect_faults, faults, "workloads", work)
    judge = partial(validate, tables, engine, contracts, run_id, say, list(mine))
    yield partial(_collect_faults, faults, "validate", judge)


def _paths(tables: Tables, stream: str) -> list[str]:
    """Return the files with the batches of a stream."""
    return [file.path for file in tables.at("batches").files(stream=stream)]


def _done(tables: Tables, stream: str) -> set[int]:
    """Return the batches of a stream whose status is `done`."""
    return set(tables.at("batches").rows(["batch"], stream=stream, status=DONE)["batch"].to_pylist())


def _shortcomings(before: Tables, tables: Tables, contract: StreamContract, run_id: str) -> list[str]:
    """Return a sentence for each file that the run refused whole, and one if batches that it sent exceed their channel.

    `before`: the tables as they were before the run.

    A stream with `mode: observe`, and a batch that is sent whole on request, may exceed their channel.
    """
    stream = contract.stream
    if _paths(before, stream) == _paths(tables, stream):
        return []  # the run has changed no batch of the stream
    found = [
        file.reason
        or f"{escape_text(file.name)}: the whole file was refused; the table rejected has the reason"
        for batch in load_batches(tables, stream, run_id=run_id)
        for file in batch.files
        if file.status == REFUSED
    ]
    fresh = sorted(_done(tables, stream) - _done(before, stream)) if contract.mode == "shed" else []
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
            f"{format_count(len(batches), 'batch that does', 'batches that do')} not: of the {worst['kept']:,} "
            f"{worst['unit']} that were sent of batch {worst['batch']}, about {worst['shortfall']:,} are too "
            f"many{reason}{'' if shortfall_remedy(worst['reason'], '') else remedy}"
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


def _collect_faults(faults: Faults, step: str, work: Callable[[], object]) -> None:
    """Run work that reports its own faults, and keep each of its sentences as one fault."""
    try:
        work()
    except SpillwayError as problem:
        faults.add_reported(step, problem)
    except Exception as problem:
        faults.record("", step, problem)
