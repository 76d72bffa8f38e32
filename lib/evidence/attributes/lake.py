"""Run streams through the product's own steps on tables in memory, in this process.

Delivered files are taken in, trained, shed, recovered and certified exactly as by the jobs, except that the roots are
in memory and tasks run in this process. All measurements are read from the tables afterwards.

>>> from evidence.attributes.generated import Source, generate_stream
>>> made = generate_stream(Source("a.net", "internet", ("Router", "Response Time"), 9), cycles=40, seed=1)
>>> lake = Lake.land("doctest", {made.contract.stream: made.contract}, {made.contract.stream: made.files})
>>> [(batch.batch, batch.rows, batch.seconds_covered) for batch in lake.batches("a_net")]
[(1, 180, 0.45), (2, 180, 0.45)]
>>> lake.forget()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from spillway.batch import Batch
from spillway.contracts import Channel, Contracts, StreamContract
from spillway.engine import ProcessEngine
from spillway.intake.ingest import ingest
from spillway.levers.protocol import Load
from spillway.settings import Settings
from spillway.store import blobs
from spillway.store.batches import load_batches
from spillway.store.tables import Tables
from spillway.streams.capacity import measure_load
from spillway.streams.certify import recover_and_certify
from spillway.streams.recover import recover_batches
from spillway.streams.shed import shed_channel
from spillway.streams.train import train_stream

ENGINE = ProcessEngine()


@dataclass(frozen=True)
class Lake:
    """Tables in memory and the contracts of the streams in them."""

    settings: Settings
    contracts: Contracts

    @staticmethod
    def land(
        name: str,
        contracts: Mapping[str, StreamContract],
        files: Mapping[str, Mapping[str, bytes]],
        channels: Mapping[str, Channel] | None = None,
        folder: str | None = None,
    ) -> Lake:
        """Deliver the landing files of the streams and take them in; `folder`: on a disk instead of in memory."""
        settings = Settings.in_memory(f"evidence/{name}")
        if folder is not None:
            roots = {root: f"{folder}/{root}" for root in ("lake", "destination", "landing")}
            settings = replace(settings, **roots)
        whole = {
            name: replace(one, source=replace(one.source, settle_seconds=0.0))
            for name, one in contracts.items()
        }
        lake = Lake(settings, Contracts(whole, dict(channels or {})))
        for stream, delivered in files.items():
            contract = lake.contracts.stream(stream)
            for file, content in delivered.items():
                blobs.write_bytes(f"{lake.settings.landing}/{contract.path}/{file}", content)
            ingest(lake.tables, ENGINE, contract, name)
        return lake

    @property
    def tables(self) -> Tables:
        """The tables in their present state."""
        return Tables(self.settings)

    def with_channels(self, channels: Mapping[str, Channel]) -> Lake:
        """Return the same tables under other channels."""
        return replace(self, contracts=replace(self.contracts, channels=dict(channels)))

    def with_contract(self, contract: StreamContract) -> Lake:
        """Return the same tables under another contract of one stream."""
        streams = {**self.contracts.streams, contract.stream: contract}
        return replace(self, contracts=replace(self.contracts, streams=streams))

    def train(self) -> None:
        """Train every stream."""
        for stream in self.contracts.streams:
            train_stream(self.tables, self.contracts, stream)

    def send(self, streams: Sequence[str] | None = None) -> None:
        """Shed the pending batches on the streams' channels (default: all)."""
        names = list(self.contracts.streams) if streams is None else list(streams)
        rooms = {self.contracts.planning_channel(self.contracts.streams[name].channel) for name in names}
        for room in sorted(rooms):
            shed_channel(self.tables, ENGINE, self.contracts, room)

    def recover(self, stream: str) -> None:
        """Write the recovered rows of all batches of a stream."""
        recover_batches(self.tables, ENGINE, self.contracts.streams[stream], self.batches(stream))

    def shed(self, streams: Sequence[str] | None = None) -> None:
        """Shed the pending batches on the streams' channels (default: all), recover and certify them."""
        names = list(self.contracts.streams) if streams is None else list(streams)
        self.send(names)
        for name in names:
            contract, tables = self.contracts.streams[name], self.tables
            recover_and_certify(tables.now(), ENGINE, contract, self.batches(name), lambda _: None)

    def batches(self, stream: str) -> list[Batch]:
        """Return the batches of the stream, oldest first."""
        return load_batches(self.tables, stream)

    def loads(self, stream: str) -> list[Load]:
        """Return the load of each batch, as the plan measures it."""
        contract = self.contracts.streams[stream]
        return [measure_load(self.tables, contract, batch) for batch in self.batches(stream)]

    def rows(self, table: str, stream: str, batch: Batch | None = None) -> pa.Table:
        """Return the rows of a stream's table (or of one batch) in the order of `seq`."""
        where: dict[str, Any] = (
            {} if batch is None else {"batch_date": batch.batch_date, "batch": batch.batch}
        )
        return self.tables.at(table, stream).rows(**where).sort_by("seq")

    def sweep(self) -> None:
        """Free the files in memory that no table refers to any more."""
        tables = self.tables
        live = {
            file.path
            for name, contract in tables.contracts.items()
            for stream in (self.contracts.streams if contract.scope == "stream" else (None,))
            for file in tables.at(name, stream).files()
        }
        for root in {self.settings.lake, self.settings.destination}:
            for one in blobs.list_files(root):
                if one.path not in live:
                    blobs.remove(one.path)

    def forget(self) -> None:
        """Free all memory of the lake."""
        self.tables.forget()
