"""Shedding a channel: take in, pin, plan, shed, account, for all streams that share it.

Written in this order, each replacing its own (stream, batch): `synopsis`, `schemes`, `ledger`, `transmitted` last,
then the batch turns done. Whoever sees a transmitted row can recover it. What was transmitted is measured; a
batch that came out above its part of the channel is planned again with that much less, before it is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Any

from spillway.attributes.plan import frame_tasks, synopsis, transmitted
from spillway.attributes.planner import plan_batch
from spillway.attributes.ride_plan import Frames, Framing
from spillway.attributes.runs import Run, Runs
from spillway.contracts import Contracts, StreamContract
from spillway.errors import SpillwayError
from spillway.lake.batches import (
    DONE,
    PENDING,
    PLANNED,
    RECORDED,
    RETIRED,
    UNTRAINED,
    Batch,
    load_batches,
    save_batches,
    utc_now,
)
from spillway.lake.files import RowReader, column_bytes, read_rows, read_table
from spillway.lake.intake import take_in
from spillway.lake.ledger import LedgerRow, write_ledger
from spillway.lake.tables import Lake, where
from spillway.settings import Settings
from spillway.steps.job import side_by_side
from spillway.steps.parts import channel_parts
from spillway.steps.policy import OVERHEAD, Load, Part, measure_load, policy_of
from spillway.steps.rows import stream_files, synopsis_files
from spillway.steps.schemes import load_runs, scheme_row, state_before
from spillway.steps.sketching import sketch_stream
from spillway.steps.trained import Trained, load_trained

Say = Callable[[str], None]
MOST_ATTEMPTS = 4
HITS_UP_TO_ROWS = 300_000
"""Batches up to this size have every window ranked, to count hits; larger ones only those that are evaluated."""


def shed_channel(
    lake: Lake,
    contracts: Contracts,
    channel: str,
    run_id: str,
    say: Say = lambda _: None,
    dates: tuple[date, date] | None = None,
) -> list[Batch]:
    """Bring the channel's pending batches (or those of the dates `from..to`) through; returns the ones done."""
    if channel not in contracts.channels:
        raise SpillwayError(
            f"`channel` must be one of {', '.join(sorted(contracts.channels))}, got {channel!r}; see channels.yaml"
        )
    streams = contracts.streams_of(channel)
    if dates is None:
        side_by_side(lambda contract: take_in(lake, contract, run_id, say), streams)
    side_by_side(lambda contract: sketch_stream(lake, contract, say, dates), streams)
    work = [one for contract in streams if (one := _work(lake.settings, contract, dates, say)) is not None]
    for one in work:
        if one.trained is None:
            save_batches(
                lake, [b.becomes(utc_now(), status=UNTRAINED) for b in one.batches if b.status != UNTRAINED]
            )
    ready = [one for one in work if one.trained is not None]
    waiting = {one.contract.stream: one.batches for one in ready}
    parts = channel_parts(lake.settings, contracts, channel, waiting)
    done = side_by_side(lambda one: _shed_stream(lake, one, parts[one.contract.stream], say), ready)
    return [batch for batches in done for batch in batches]


@dataclass(frozen=True)
class _Work:
    contract: StreamContract
    batches: tuple[Batch, ...]
    trained: Trained | None


def _work(
    settings: Settings, contract: StreamContract, dates: tuple[date, date] | None, say: Say
) -> _Work | None:
    """The batches to bring through, oldest first."""
    every = load_batches(settings, contract.stream)
    if dates is None:
        batches = [batch for batch in every if batch.status in PENDING and batch.status != RECORDED]
    else:
        batches = [
            batch for batch in every if dates[0] <= batch.batch_date <= dates[1] and batch.status != RECORDED
        ]
        _refuse_retired(contract.stream, batches)
    if not batches:
        return None
    newest = load_trained(settings, contract.stream)
    if newest is None:
        rows = sum(batch.rows or 0 for batch in batches)
        say(f"{contract.stream}: untrained, {rows:,} tuples wait; spillway_train trains it")
    return _Work(contract, tuple(batches), newest)


def _refuse_retired(stream: str, batches: Sequence[Batch]) -> None:
    gone = sorted({str(batch.batch_date) for batch in batches if batch.status == RETIRED})
    if gone:
        raise SpillwayError(
            f"{stream}: a backfill must not touch retired dates, got {', '.join(gone)}, whose raw tuples were deleted "
            "after they were validated; ask for other dates"
        )


def _shed_stream(lake: Lake, work: _Work, part: Part, say: Say) -> list[Batch]:
    """Pin, plan, shed and account one stream's batches."""
    contract, settings = work.contract, lake.settings
    stream = contract.stream
    batches = _pinned(lake, work, part)
    with_rows = [batch for batch in batches if batch.rows]
    if not with_rows:
        done = [batch.becomes(utc_now(), status=DONE) for batch in batches]
        save_batches(lake, done)
        return done
    started = time.monotonic()
    loads = {batch.batch: measure_load(settings, contract, batch) for batch in with_rows}
    tightened = {batch.batch: 1.0 for batch in with_rows}
    for attempt in range(1, MOST_ATTEMPTS + 1):
        shed = _Shed(lake, contract, with_rows, loads, tightened, started)
        shed.write(say)
        over = shed.over_capacity()
        if not over:
            break
        if attempt == MOST_ATTEMPTS:
            shed.record_shortfall(over)
            say(f"{stream}: {len(over)} batches stay above the channel's part; the shortfall is in schemes")
            break
        for number, factor in over.items():
            tightened[number] *= factor
        say(f"{stream}: {len(over)} batches came out above the channel's part; shedding a little more")
    done = [batch.becomes(utc_now(), status=DONE) for batch in batches]
    save_batches(lake, done)
    return done


def _pinned(lake: Lake, work: _Work, part: Part) -> list[Batch]:
    """The batches with models, capacity and frames fixed: a rerun uses what the first run used."""
    assert work.trained is not None, "only trained streams are pinned"
    length = work.contract.frame.tuples
    version = work.trained.version
    every = load_batches(lake.settings, work.contract.stream)
    latest = {b.batch_date: b for b in every if b.frame_origin is not None and b.status != RETIRED}
    pinned: list[Batch] = []
    for batch in work.batches:
        if batch.models.get("attributes") is None:
            # frames never leave a batch date, a model version or what was retired; within them they go on
            before = latest.get(batch.batch_date)
            goes_on = before is not None and (before.models["attributes"], before.frame_tuples) == (
                version,
                length,
            )
            batch = batch.becomes(
                utc_now(),
                status=PLANNED,
                models={"attributes": version},
                capacity_kbps=part.own_kbps,
                trunk_kbps=part.trunk_kbps,
                frame_origin=before.frame_origin if before is not None and goes_on else batch.first_seq,
                frame_tuples=length,
            )
            latest[batch.batch_date] = batch
        elif batch.status != PLANNED:
            # a backfill that dies is pending, so that the next run finishes what is half rewritten
            batch = batch.becomes(utc_now(), status=PLANNED)
        pinned.append(batch)
    changed = [batch for batch, before in zip(pinned, work.batches, strict=True) if batch != before]
    save_batches(lake, changed)
    return pinned


class _Shed:
    """One attempt at a stream's batches: plan them in order, write what follows, measure what came out."""

    def __init__(
        self,
        lake: Lake,
        contract: StreamContract,
        batches: Sequence[Batch],
        loads: Mapping[int, Load],
        tightened: Mapping[int, float],
        started: float,
    ) -> None:
        self.lake, self.contract, self.batches, self.loads = lake, contract, batches, loads
        self.stream, self.settings, self.started = contract.stream, lake.settings, started
        self.numbers = [batch.batch for batch in batches]
        self.mine = where(
            stream=self.stream, batch_date={str(b.batch_date) for b in batches}, batch=self.numbers
        )
        self.trained = {
            version: found
            for version in sorted({batch.models["attributes"] for batch in batches})
            if (found := load_trained(self.settings, self.stream, version)) is not None
        }
        self.raw_files = stream_files(self.settings, "raw", self.stream)
        self.runs: dict[int, list[Run]] = {}
        self.states: dict[int, dict[str, Any]] = {}
        self.gone: dict[tuple[int, str], int] = {}
        self._plan(tightened)

    def _plan(self, tightened: Mapping[int, float]) -> None:
        state: dict[str, Any] | None = None
        for previous, batch in zip([None, *self.batches], self.batches, strict=False):
            if previous is None or previous.batch != batch.batch - 1:
                state = state_before(self.settings, self.stream, batch.batch)
            load = self.loads[batch.batch]
            policy = policy_of(
                self.contract,
                self.trained[batch.models["attributes"]],
                load,
                Part(batch.capacity_kbps or 0.0, batch.trunk_kbps),
                tightened[batch.batch],
                hits=(batch.rows or 0) <= HITS_UP_TO_ROWS,
            )
            files = stream_files(self.settings, "raw", self.stream, [batch])
            self.runs[batch.batch], state = plan_batch(
                RowReader(files),
                batch.first_seq,
                batch.last_seq,
                batch.frame_origin or 0,
                batch.frame_tuples,
                policy,
                state,
            )
            self.states[batch.batch] = state

    def write(self, say: Say) -> None:
        """`synopsis`, `schemes`, `ledger`, `transmitted`, and the ledger's last stage."""
        lake, stream = self.lake, self.stream
        attributes = [(a.name, a.type) for a in self.contract.attributes]
        for version, trained in self.trained.items():
            batches = [batch for batch in self.batches if batch.models["attributes"] == version]
            tasks = [
                task
                for b in batches
                for task in frame_tasks(
                    b.batch, b.batch_date, b.first_seq, b.last_seq, b.frame_origin or 0, b.frame_tuples
                )
            ]
            blocks = synopsis(
                lake.spark,
                stream,
                tasks,
                self.raw_files,
                trained.cycle.attributes,
                self._all_runs(batches),
                trained.models,
            )
            lake.replace(
                blocks,
                "synopsis",
                where(
                    stream=stream,
                    batch_date={str(b.batch_date) for b in batches},
                    batch=[b.batch for b in batches],
                ),
            )
        self._write_schemes()
        write_ledger(lake, stream, self.numbers, "attributes", list(self._values_ledger()))
        for version, trained in self.trained.items():
            batches = [batch for batch in self.batches if batch.models["attributes"] == version]
            numbers = [batch.batch for batch in batches]
            dates = {str(batch.batch_date) for batch in batches}
            predicate = where(batch_date=dates, batch=numbers)
            every = [b for b in load_batches(self.settings, stream) if b.frame_origin is not None]
            frames = Frames(tuple(framing_of(b) for b in every), tuple(self.raw_files))
            sent = transmitted(
                lake.read("raw", stream, predicate),
                frames,
                self._all_runs(batches),
                trained.models,
                trained.cycle.attributes,
                self.contract.names,
            )
            lake.replace(sent, "transmitted", predicate, stream=stream, attributes=attributes)
        write_ledger(lake, stream, self.numbers, "transmitted", list(self._rows_ledger()))
        for batch in self.batches:
            runs = self.runs[batch.batch]
            ways = {way: Runs(tuple(runs)).attributes(way) for way in ("round", "shed")}
            what = (
                "; ".join(f"{way} {', '.join(names)}" for way, names in ways.items() if names) or "all kept"
            )
            say(
                f"{stream}: batch {batch.batch} of {batch.batch_date}: {batch.rows:,} tuples, "
                f"{self.loads[batch.batch].rate_kbps:.4g} -> {self.sent_kbps(batch):.4g} kbps of "
                f"{batch.allowed_kbps:.4g}; {what}"
            )

    def _all_runs(self, batches: Sequence[Batch]) -> Runs:
        """The runs of these batches and of whatever shares a frame with them."""
        days = {batch.batch_date for batch in batches}
        new = tuple(run for number in self.numbers for run in self.runs[number])
        others = {
            b.batch
            for b in load_batches(self.settings, self.stream)
            if b.batch_date in days and b.batch not in self.numbers
        }
        return Runs(new) + load_runs(self.settings, self.stream, others)

    def sent_kbps(self, batch: Batch) -> float:
        """The measured rate of what was transmitted."""
        if self.contract.width == "declared":
            return max((run.planned_kbps for run in self.runs[batch.batch]), default=0.0)
        return sum(self._sent_bytes(batch).values()) * 8.0 / 1000.0 / (batch.seconds_covered or 1.0)

    def _sent_bytes(self, batch: Batch) -> dict[str, int]:
        files = stream_files(self.settings, "transmitted", self.stream, [batch])
        return column_bytes(files, [*OVERHEAD, *self.contract.names])

    def over_capacity(self) -> dict[int, float]:
        """Batches whose transmitted rate is above their part though they could shed more, and by what factor."""
        if self.contract.mode == "observe":
            return {}
        found = {}
        for batch in self.batches:
            sent, capacity = self.sent_kbps(batch), batch.allowed_kbps
            can_do_more = any(run.shortfall_kbps == 0 for run in self.runs[batch.batch])
            if sent > capacity and can_do_more:
                found[batch.batch] = 0.98 * capacity / sent
        return found

    def record_shortfall(self, over: Iterable[int]) -> None:
        """Say in `schemes` what is still too much: never silent."""
        for batch in self.batches:
            if batch.batch in over:
                excess = self.sent_kbps(batch) - batch.allowed_kbps
                self.runs[batch.batch] = [
                    replace(
                        run, shortfall_kbps=excess, reason=f"{run.reason}; {excess:.4g} kbps more came out"
                    )
                    for run in self.runs[batch.batch]
                ]
        self._write_schemes()

    def _write_schemes(self) -> None:
        rows = [
            scheme_row(batch, number, run, self.states[batch.batch])
            for batch in self.batches
            for number, run in enumerate(self.runs[batch.batch])
        ]
        self.lake.replace_rows("schemes", rows, self.mine)

    def _values_ledger(self) -> Iterable[LedgerRow]:
        """Per batch and measure: values offered, kept, rounded and shed, and the synopsis' bytes as written."""
        table = read_table(
            self.lake.path("synopsis"),
            ["batch", "attribute", "shed_values", "entries"],
            [("stream", "=", self.stream), ("batch", "in", self.numbers)],
        )
        shed = self.gone
        for row in table.to_pylist() if table is not None else []:
            place = (row["batch"], row["attribute"])
            shed[place] = shed.get(place, 0) + row["shed_values"]
        written = synopsis_bytes(self.settings, self.stream, self.numbers)
        seconds = (time.monotonic() - self.started) / max(1, len(self.batches))
        measures = sorted({name for trained in self.trained.values() for name in trained.models})
        for batch in self.batches:
            rows = batch.rows or 0
            widths = column_bytes(stream_files(self.settings, "raw", self.stream, [batch]), measures)
            runs = Runs(tuple(self.runs[batch.batch]))
            for name in measures:
                gone = shed.get((batch.batch, name), 0)
                rounded = self._rounded_rows(batch, runs, name)
                yield LedgerRow(
                    self.stream,
                    batch.batch,
                    batch.batch_date,
                    "attributes",
                    _reason(runs, name),
                    rows,
                    "values",
                    name,
                    kept=rows - gone,
                    rounded=rounded,
                    shed=gone,
                    recoverable=gone,
                    bytes_offered=widths[name],
                    bytes_synopsis=written.get((batch.batch, name), 0),
                    compute_seconds=round(seconds / max(1, len(measures)), 6),
                )

    def _rounded_rows(self, batch: Batch, runs: Runs, name: str) -> int:
        stretches = runs.stretches(name, "round")
        if stretches == [(batch.first_seq, batch.last_seq)]:
            return batch.rows or 0
        files = stream_files(self.settings, "raw", self.stream, [batch])
        return sum(int(read_rows(files, [], low, high).num_rows) for low, high in stretches)

    def _rows_ledger(self) -> Iterable[LedgerRow]:
        """Per batch: its rows all go, in fewer bytes; of its values what the attributes' stage kept."""
        for batch in self.batches:
            rows = batch.rows or 0
            columns = [*OVERHEAD, *self.contract.names]
            before = column_bytes(stream_files(self.settings, "raw", self.stream, [batch]), columns)
            after = self._sent_bytes(batch)
            line = partial(LedgerRow, self.stream, batch.batch, batch.batch_date, "transmitted")
            yield line(
                "sent", rows, kept=rows, bytes_offered=sum(before.values()), bytes_kept=sum(after.values())
            )
            for name in self.contract.names:
                left = rows - self.gone.get((batch.batch, name), 0)
                yield line(
                    "sent",
                    left,
                    "values",
                    name,
                    kept=left,
                    bytes_offered=before[name],
                    bytes_kept=after[name],
                )


def _reason(runs: Runs, name: str) -> str:
    found = [way.reason for run in runs for way in run.ways if way.attribute == name and way.way != "keep"]
    found += [way.reason for run in runs for way in run.ways if way.attribute == name]
    return found[0] if found else "kept"


def framing_of(batch: Batch) -> Framing:
    """Where the batch's frames lie, as it was pinned."""
    return Framing(
        batch.batch,
        batch.batch_date,
        batch.first_seq,
        batch.last_seq,
        batch.frame_origin if batch.frame_origin is not None else batch.first_seq,
        batch.frame_tuples,
        int(batch.models.get("attributes", 0)),
    )


def synopsis_bytes(settings: Settings, stream: str, batches: Sequence[int]) -> dict[tuple[int, str], int]:
    """Bytes of the synopsis as written, by batch and attribute: whole files, shared out by payload."""
    found: dict[tuple[int, str], float] = {}
    for file in synopsis_files(settings, stream):
        if file.low("batch") is not None and not (
            file.low("batch") <= max(batches) and file.high("batch") >= min(batches)
        ):
            continue
        rows = read_rows([file], ["batch", "attribute", "payload"], -(2**62), 2**62, order="frame")
        sizes = [len(payload) + 1 for payload in rows["payload"].to_pylist()]
        for number, name, size in zip(
            rows["batch"].to_pylist(), rows["attribute"].to_pylist(), sizes, strict=True
        ):
            place = (number, name)
            found[place] = found.get(place, 0.0) + file.size * size / sum(sizes)
    return {place: round(size) for place, size in found.items() if place[0] in batches}
