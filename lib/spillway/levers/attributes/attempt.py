"""One attempt at a stream's batches: plan them in order, write what follows from it, measure what came out.

Written in this order, each replacing its own (stream, batch): `synopsis`, `schemes`, `ledger`, `transmitted` last.
Whoever sees a transmitted row can recover it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spillway.contracts import StreamContract
from spillway.levers.attributes.facts import load_trained
from spillway.levers.attributes.frame_plan import Frames, Framing, pieces
from spillway.levers.attributes.plan import Shedding, sent, synopsis_of
from spillway.levers.attributes.planner import plan_batch
from spillway.levers.attributes.policy import OVERHEAD, Load, Part, policy_of
from spillway.levers.attributes.scheme import Run, Runs
from spillway.levers.attributes.schemes import load_runs, scheme_row, state_before
from spillway.settings import Settings
from spillway.store.batches import Batch, load_batches
from spillway.store.files import RowReader, column_bytes, read_rows, read_table
from spillway.store.ledger import LedgerRow, write_ledger
from spillway.store.rows import stream_files, synopsis_files
from spillway.store.tables import Lake, where
from spillway.store.task_files import Piece

Say = Callable[[str], None]
HITS_UP_TO_ROWS = 300_000
"""Batches up to this size have every window ranked, to count hits; larger ones only those that are evaluated."""


class Attempt:
    """Some batches of a stream as they are pinned; `tightened` says which came out above what is allowed."""

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
        lake.look_ahead(("synopsis", None), ("transmitted", self.stream))
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
        for batches, plan in self._plans():
            lake.replace_in_tasks(
                "synopsis",
                batch_pieces(lake, batches, stream=stream),
                partial(synopsis_of, plan=plan),
                [batch.batch for batch in batches],
                stream=stream,
            )
        self._write_schemes()
        write_ledger(lake, stream, self.numbers, "attributes", list(self._values_ledger()))
        for batches, plan in self._plans():
            lake.replace_in_tasks(
                "transmitted",
                batch_pieces(lake, batches),
                partial(sent, plan=plan),
                [batch.batch for batch in batches],
                stream=stream,
                attributes=attributes,
            )
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

    def _plans(self) -> Iterable[tuple[list[Batch], Shedding]]:
        """The batches of each version of the models, and what shedding them needs."""
        frames = Frames(tuple(framing_of(batch) for batch in self.batches), tuple(self.raw_files))
        for version, trained in self.trained.items():
            batches = [batch for batch in self.batches if batch.models["attributes"] == version]
            yield (
                batches,
                Shedding(
                    trained.cycle.attributes,
                    self.contract.names,
                    self._all_runs(batches),
                    trained.models,
                    frames,
                ),
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


def batch_pieces(lake: Lake, batches: Sequence[Batch], **partition: str) -> list[Piece]:
    """The batches cut for tasks, each piece with the partition its rows lie in."""
    cores = lake.spark.sparkContext.defaultParallelism
    return [
        Piece({**partition, "batch_date": str(batch.batch_date)}, piece)
        for batch in batches
        for piece in pieces(framing_of(batch), cores)
    ]


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
