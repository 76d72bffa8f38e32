"""Train the levers of streams on the tuples in `raw`; each training stores a version of its own.

Training runs in tasks of the engine, in three rounds over all streams: one task for each stream and lever, one for each
part that a lever divides its training into (`levers.protocol.Split`, e.g. an attribute), and one that puts the parts
together. A task reads the training tuples itself. If one stream fails, the others are trained. The driver computes the
shares of the channels, and commits all facts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa

from spillway.batch import HELD, Batch
from spillway.contracts import Contracts, StreamContract
from spillway.engine import ProcessEngine
from spillway.engine.protocol import Engine, map_each
from spillway.errors import ConcurrentRun
from spillway.intake.ingest import ingest
from spillway.levers.protocol import (
    CapacityGroup,
    CapacityShare,
    Fact,
    Facts,
    Lever,
    Load,
    Say,
    Split,
    TrainingInput,
)
from spillway.records.parity import RULE
from spillway.registry import lever
from spillway.settings import Settings
from spillway.store.batches import RATED, load_batches, newest_batch
from spillway.store.files import DataFile, edges_of, read_rows, row_count
from spillway.store.tables import Between, Tables
from spillway.streams.capacity import capacity_shares, measure_load
from spillway.streams.facts import Trained, has_same_values, newest_facts, save_facts, untrained_levers
from spillway.streams.faults import Faults

RECENT = 1000
"""The number of last batches of a stream among which the densest one determines its channel share for training."""


def train_streams(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    names: Sequence[str],
    run_id: str,
    say: Say = lambda _: None,
) -> None:
    """Train streams; first take in new files of streams that were never trained.

    A failure of one stream does not stop the others.
    """
    now, faults = tables.now(), Faults(say)
    for name in names:
        contracts.stream(name)
    # take in every stream before any is trained: the shares of a channel depend on all of its streams
    fresh = faults.run_each("train", names, lambda name: untrained_levers(now, contracts.stream(name)))
    new = [name for name, levers in fresh.items() if levers]
    faults.run_each("take in", new, lambda name: ingest(tables, engine, contracts.stream(name), run_id, say))
    train_taken_in(tables, engine, contracts, list(fresh), faults, say)
    faults.record_broken_contracts(contracts)
    faults.raise_all()


def train_stream(
    tables: Tables, contracts: Contracts, stream: str, say: Say = lambda _: None
) -> Mapping[str, int]:
    """Train every lever of the stream in this process; return the versions that are in force now."""
    faults = Faults()
    found = train_taken_in(tables, ProcessEngine(), contracts, [stream], faults, say)
    if faults.found:
        raise faults.found[0].problem
    return found[stream]


def train_taken_in(
    tables: Tables,
    engine: Engine,
    contracts: Contracts,
    streams: Sequence[str],
    faults: Faults,
    say: Say = lambda _: None,
) -> dict[str, dict[str, int]]:
    """Train every lever of the streams on the tuples in `raw`; return the versions in force by stream.

    A stream with a fault is noted in `faults`, and none of its levers gets a new version.
    """
    tables = tables.now()
    shares = _Shares(tables, contracts)
    prepared = {
        name: faults.attempt(name, "train", partial(_lessons, tables, shares, name, say)) for name in streams
    }
    lessons = [one for found in prepared.values() for one in found or ()]
    trained: dict[str, list[Trained]] = {name: [] for name, found in prepared.items() if found is not None}
    versions: dict[str, dict[str, int]] = {name: {} for name in trained}
    failed: set[str] = set()
    for one, outcome in zip(lessons, _learned(engine, lessons), strict=True):
        stream = one.lesson.contract.stream
        if stream in failed:
            continue
        if isinstance(outcome, Exception):
            failed.add(stream)
            faults.record(stream, "train", outcome)
            continue
        for line in outcome.said:
            say(line)
        assert not isinstance(outcome.facts, Split), "its parts were put together"
        version, facts = one.judged(outcome.facts, say)
        if version:
            versions[stream][one.lever] = version
        if facts:
            trained[stream].append(Trained(stream, one.lever, version, one.span, facts))
    kept = {stream: found for stream, found in trained.items() if stream not in failed}
    saved = _save(tables, kept, faults)
    for stream in saved:
        for new in kept[stream]:
            say(f"{stream}: trained {new.lever}, version {new.version}")
    return {stream: versions[stream] for stream in versions if stream in saved}


def _save(tables: Tables, trained: Mapping[str, Sequence[Trained]], faults: Faults) -> list[str]:
    """Store all facts in one commit; return the streams. If another run was faster in a stream, store the others."""
    try:
        save_facts(tables, [one for found in trained.values() for one in found])
        return list(trained)
    except ConcurrentRun:
        saving = {stream: partial(_save_alone, tables, found) for stream, found in trained.items()}
        return [stream for stream, work in saving.items() if faults.attempt(stream, "train", work)]


def _save_alone(tables: Tables, found: Sequence[Trained]) -> bool:
    save_facts(tables, found)
    return True


@dataclass(frozen=True)
class _LeverLesson:
    """The training of one lever of a stream; `lesson` and the lever travel to tasks."""

    lever: str
    lesson: TrainingInput
    before: Facts | None
    span: tuple[int, int]

    def judged(self, facts: Sequence[Fact] | None, say: Say) -> tuple[int, Sequence[Fact]]:
        """Return the version in force (0: none), and the facts to store; say why there is nothing to store."""
        stream, before = self.lesson.contract.stream, self.before
        if facts is None:
            assert before is not None, "a lever without facts has learned nothing, and had facts before"
            say(
                f"{stream}: nothing to train {self.lever} on, all raw tuples were retired; "
                f"version {before.version} stays"
            )
            return before.version, ()
        if not facts:
            return 0, ()
        if before is not None and has_same_values(before, facts):
            say(f"{stream}: {self.lever} learned nothing new, version {before.version} stays")
            return before.version, ()
        return (1 if before is None else before.version + 1), facts


def _lessons(tables: Tables, shares: _Shares, stream: str, say: Say) -> list[_LeverLesson]:
    """Return what each lever of the stream is to learn from; none if no tuple has been taken in yet."""
    contracts = shares.contracts
    contract = contracts.stream(stream)
    held = _batches_in_raw(tables, stream)
    if not held and len(untrained_levers(tables, contract)) == len(contract.lever_names) > 0:
        # a contract often exists before its data; that is not a fault of this run
        say(f"{stream}: nothing to train on yet, no tuple has been taken in")
        return []
    files = _files(tables, stream, held)
    load, part = shares.of(contract)
    damaged = partial(damaged_tuples, tables.settings, stream)
    found = []
    for name in contract.lever_names:
        before = newest_facts(tables, stream, name)
        again = before is not None
        edge = partial(edge_rows, files, last=again)
        channel = contracts.channels[contract.channel]
        lesson = TrainingInput(contract, again, edge, load, part, _unheard, channel, damaged)
        found.append(_LeverLesson(name, lesson, before, _span(files)))
    return found


def _unheard(sentence: str) -> None:
    """The reporter of a lesson until a task puts its own in."""


@dataclass(frozen=True)
class _Outcome:
    """What a task learned, and what it said."""

    facts: list[Fact] | Split | None
    said: tuple[str, ...]


def _learned(engine: Engine, lessons: Sequence[_LeverLesson]) -> list[_Outcome | Exception]:
    """Return the outcome of each lesson, in three rounds of tasks."""
    whole = [(lever(one.lever), one.lesson) for one in lessons]
    found = map_each(engine, _begin, whole, "train")
    split = {
        place: one.facts
        for place, one in enumerate(found)
        if not isinstance(one, Exception) and isinstance(one.facts, Split)
    }
    work = [(lessons[place].lesson, of.learn, part) for place, of in split.items() for part in of.parts]
    results = iter(map_each(engine, _learn_part, work, "train, by attribute"))
    ready: list[tuple[int, tuple[TrainingInput, Any, Sequence[Any]]]] = []
    for place, of in split.items():
        made = list(islice(results, len(of.parts)))
        problem = next((one for one in made if isinstance(one, Exception)), None)
        if problem is None:
            ready.append((place, (lessons[place].lesson, of.finish, made)))
        else:
            found[place] = problem
    facts = map_each(engine, _finish, [one for _, one in ready], "train, put together")
    for (place, _), outcome in zip(ready, facts, strict=True):
        before = found[place]
        assert isinstance(before, _Outcome)
        found[place] = (
            outcome
            if isinstance(outcome, Exception)
            else replace(outcome, said=(*before.said, *outcome.said))
        )
    return found


def _begin(work: tuple[Lever, TrainingInput]) -> _Outcome:
    said: list[str] = []
    facts = work[0].train(replace(work[1], say=said.append))
    return _Outcome(facts, tuple(said))


def _learn_part(work: tuple[TrainingInput, Callable[[TrainingInput, Any], Any], Any]) -> Any:
    lesson, learn, part = work
    return learn(lesson, part)


def _finish(
    work: tuple[TrainingInput, Callable[[TrainingInput, Sequence[Any]], list[Fact] | None], Sequence[Any]],
) -> _Outcome:
    said: list[str] = []
    facts = work[1](replace(work[0], say=said.append), work[2])
    return _Outcome(facts, tuple(said))


def damaged_tuples(settings: Settings, stream: str, from_seq: int, to_seq: int) -> int:
    """Count the tuples of a range of `seq` that were refused because parity could not correct them."""
    rows = Tables(settings).at("rejected").rows(["rule"], stream=stream, seq=Between(from_seq, to_seq))
    return rows["rule"].to_pylist().count(RULE)


def edge_rows(files: Sequence[DataFile], columns: Sequence[str], count: int, last: bool) -> pa.Table:
    """Return the first (or last) `count` rows of the files, in the order of `seq`."""
    spans = {file.path: span for file in files if (span := edges_of(file, "seq")) is not None}
    ordered = sorted(
        (file for file in files if file.path in spans), key=lambda file: spans[file.path], reverse=last
    )
    held = 0
    chosen: list[DataFile] = []
    for file in ordered:
        if held >= count:
            break
        chosen.append(file)
        held += file.records or row_count(file)
    if not chosen:
        return read_rows([], columns, 0, -1)
    ends = [spans[file.path] for file in chosen]
    rows = read_rows(chosen, columns, min(low for low, _ in ends), max(high for _, high in ends))
    return rows.slice(rows.num_rows - min(count, rows.num_rows)) if last else rows.slice(0, count)


def last_rows_reader(
    tables: Tables, stream: str, batches: Sequence[Batch]
) -> Callable[[Sequence[str], int], pa.Table]:
    """Return a function of (columns, count) that reads the last tuples of some batches; they are looked up then."""

    def edge(columns: Sequence[str], count: int) -> pa.Table:
        files = _files(tables, stream, {batch.batch: batch.batch_date for batch in batches})
        return edge_rows(files, columns, count, last=True)

    return edge


def _batches_in_raw(tables: Tables, stream: str) -> dict[int, date]:
    """Return the batches whose tuples are in `raw`, with their dates."""
    found = tables.at("batches").rows(["batch", "batch_date"], stream=stream, status=HELD, rows=Between(1))
    return dict(zip(found["batch"].to_pylist(), found["batch_date"].to_pylist(), strict=True))


def _recent(tables: Tables, stream: str) -> list[Batch]:
    """Return the last `RECENT` of the batches whose tuples are in `raw`."""
    last = newest_batch(tables, stream, status=HELD, rows=Between(1))
    if last is None:
        return []
    since = Between(last.batch - RECENT + 1)
    return load_batches(tables, stream, status=HELD, rows=Between(1), batch=since)


def _files(tables: Tables, stream: str, held: Mapping[int, date]) -> list[DataFile]:
    if not held:
        return []
    return tables.at("raw", stream).files(batch_date=set(held.values()), batch=set(held))


def _span(files: Sequence[DataFile]) -> tuple[int, int]:
    spans = [span for span in (edges_of(file, "seq") for file in files) if span is not None]
    return min((int(low) for low, _ in spans), default=0), max((int(high) for _, high in spans), default=0)


class _Shares:
    """The loads of streams and their shares of the channels, which are computed once for all streams of a channel."""

    def __init__(self, tables: Tables, contracts: Contracts) -> None:
        self.tables, self.contracts = tables, contracts
        self._rooms: dict[str, dict[str, CapacityShare]] = {}

    def of(self, contract: StreamContract) -> tuple[Load | None, CapacityShare | None]:
        """Return the load of the stream's last batch, and the stream's share of the channel next to the others."""
        rated = newest_batch(
            self.tables, contract.stream, status=HELD, rows=Between(1), seconds_covered=RATED
        )
        if rated is None:
            return None, None
        room = CapacityGroup(self.contracts.planning_channel(contract.channel), self.contracts, self.tables)
        if room.name not in self._rooms:
            sharing = self.contracts.streams_of(room.name)
            waiting = {other.stream: _recent(self.tables, other.stream) for other in sharing}
            # a fault of another stream is reported when that stream is trained, planned or shed
            self._rooms[room.name] = capacity_shares(
                self.tables, room, waiting, by_rate=True, faults=Faults()
            )
        return measure_load(self.tables, contract, rated), self._rooms[room.name][contract.stream]
