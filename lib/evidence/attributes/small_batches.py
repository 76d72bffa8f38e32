"""Measure a day of deliveries every 15 minutes: its fixed bytes, and whether it fits where the day's single file fits.

Forty devices report ten attributes every five minutes. The same rows arrive as one file for the day, or as 96 files.
The product's own steps send the 96 files as they arrive, under a test clock, on Delta tables in a folder. Bytes are
those of the ledger: whole files, their log entries, and destination metadata. The ledger does not count the checkpoint
that a log gets every `CHECKPOINT_COMMITS` commits. The figures do: the bytes of a checkpoint of the day's log, for each
commit of the day, divided by that number. A destination elsewhere needs metadata only of batches that lose something.
So that case is measured too: the same deliveries through a quota of `NARROW` of what they take without loss.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from evidence.book import Book
from spillway.batch import Batch
from spillway.clock import use_clock
from spillway.contracts import Contracts, StreamContract, read_channel, read_stream
from spillway.engine import ProcessEngine
from spillway.ledger import TOTAL
from spillway.pipeline.run import run_channel
from spillway.settings import Settings
from spillway.store.delta_log import CHECKPOINT_COMMITS, open_delta
from spillway.store.files import column_bytes
from spillway.store.tables import Between, Tables
from spillway.streams.drafts import SENT
from spillway.streams.train import train_stream

ENGINE = ProcessEngine()
DEVICES, MINUTES = 40, 5
DELIVERIES = 96
FIRST_DAY = date(2026, 3, 2)
LEARNED_FROM, SENT_ON = FIRST_DAY, FIRST_DAY + timedelta(days=1)
SEED = 25
CONTRACT: dict[str, Any] = {
    "stream": "docks",
    "channel": "street",
    "source": {"kind": "files", "path": "docks", "format": "csv", "settle_seconds": 0},
    "attributes": [
        {"name": "device", "type": "string", "role": "key"},
        {"name": "at", "type": "timestamp", "role": "order"},
        {"name": "temp_c", "type": "double", "error": 0.2},
        {"name": "humidity_pct", "type": "integer", "error": 2},
        {"name": "battery_v", "type": "double", "error": 0.005},
        {"name": "power_w", "type": "double", "error_pct": 1.0},
        {"name": "pressure_hpa", "type": "double", "error": 0.2},
        {"name": "energy_wh", "type": "double", "error_pct": 0.05},
        {"name": "bikes", "type": "integer", "role": "protected"},
        {"name": "signal_dbm", "type": "integer", "error": 2},
    ],
}  # fmt: skip


def readings(day: date) -> pa.Table:
    """Return the rows of a day in the order in which they arrive; each day has its own seed."""
    rng = np.random.default_rng([SEED, day.toordinal()])
    turns = 24 * 60 // MINUTES
    hours = np.arange(turns) * MINUTES / 60
    device = np.arange(DEVICES)
    walk = rng.normal(0, 0.08, (turns, DEVICES)).cumsum(axis=0)
    temp = 12 + 6 * np.sin((hours[:, None] - 9) / 24 * 2 * np.pi) + device % 7 / 5 + walk
    power = np.abs(80 + 25 * np.sin(hours[:, None] / 3 + device) + rng.normal(0, 4, (turns, DEVICES)))
    bikes = np.clip(10 + rng.integers(-1, 2, (turns, DEVICES)).cumsum(axis=0), 0, 20)
    start = datetime.combine(day, time())
    at = [
        start + timedelta(minutes=MINUTES * turn, seconds=float(7 * d % 240))
        for turn in range(turns)
        for d in device
    ]
    flat = {
        "temp_c": np.round(temp, 1),
        "humidity_pct": np.round(60 - 2 * (temp - 12) + rng.normal(0, 1, temp.shape)).astype(np.int64),
        "battery_v": np.round(4.1 - 0.2 * hours[:, None] / 24 - device / 400, 2),
        "power_w": np.round(power, 1),
        "pressure_hpa": np.round(1013 + walk.mean(axis=1, keepdims=True) * 3 + device / 50, 1),
        "energy_wh": np.round(1000 * device + power.cumsum(axis=0) * MINUTES / 60, 1),
        "bikes": bikes,
        "signal_dbm": -60 - device % 20 + rng.integers(-2, 3, (turns, DEVICES)),
    }
    columns = {"device": [f"dock-{d:03d}" for _ in range(turns) for d in device], "at": at}
    columns |= {name: values.reshape(-1) for name, values in flat.items()}
    return pa.table(columns)


def csv_of(rows: pa.Table) -> bytes:
    """Return rows as the content of a landing file."""
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(rows, sink)
    return bytes(sink.getvalue())


@dataclass
class Street:
    """A lake in a folder with one stream on one channel, under a test clock."""

    folder: Path
    contract: StreamContract
    capacity: str = "10 Mbps"
    destination: bool = False
    """Whether the destination is elsewhere, so that metadata for recovery is sent too."""

    def __post_init__(self) -> None:
        roots = {name: str(self.folder / name) for name in ("lake", "landing", "build")}
        roots["destination"] = str(self.folder / "destination") if self.destination else roots["lake"]
        self.settings = replace(Settings.in_memory("small batches"), **roots)
        self.said: list[str] = []

    @property
    def contracts(self) -> Contracts:
        """The stream's contract and its channel."""
        channel = read_channel("street", {"capacity": self.capacity})
        return Contracts({"docks": self.contract}, {"street": channel})

    @property
    def tables(self) -> Tables:
        """The tables as they are now."""
        return Tables(self.settings)

    def deliver(self, day: date, name: str, content: bytes, moment: datetime) -> None:
        """Write a landing file at a moment."""
        path = self.folder / "landing" / "docks" / str(day) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (moment.timestamp(), moment.timestamp()))

    def run(self, moment: datetime, at_once: bool = False) -> list[Batch]:
        """Run the pipeline on the delivered files, as the scheduled run of this moment does."""
        with use_clock(lambda: moment):
            say = self.said.append
            return run_channel(
                self.tables, ENGINE, self.contracts, "street", "evidence", say, at_once=at_once
            )

    def train_on_day_before(self) -> None:
        """Take in the day before as one file, train on it and send it."""
        moment = datetime.combine(SENT_ON, time(), UTC)
        self.deliver(LEARNED_FROM, "day.csv", csv_of(readings(LEARNED_FROM)), moment)
        self.run(moment)
        with use_clock(lambda: moment):
            train_stream(self.tables, self.contracts, "docks")
        self.run(moment, at_once=True)

    def day_at_once(self) -> list[Batch]:
        """Send the day as one file."""
        moment = datetime.combine(SENT_ON + timedelta(days=1), time(), UTC)
        self.deliver(SENT_ON, "day.csv", csv_of(readings(SENT_ON)), moment)
        return self.run(moment)

    def day_in_files(self, deliveries: int | None = None, files: int = DELIVERIES) -> list[Batch]:
        """Send the first of the day's files (default: all), one run for each, until no batch waits."""
        rows = readings(SENT_ON)
        share, every = rows.num_rows // files, timedelta(days=1) / files
        deliveries = files if deliveries is None else deliveries
        done: list[Batch] = []
        moment = datetime.combine(SENT_ON, time(), UTC)
        for number in range(deliveries):
            moment += every
            self.deliver(SENT_ON, f"{number:02d}.csv", csv_of(rows.slice(number * share, share)), moment)
            done += self.run(moment)
        while len(done) < deliveries and moment < datetime.combine(SENT_ON + timedelta(days=3), time(), UTC):
            moment += every
            done += self.run(moment)
        return done

    def crossing_bytes(self) -> int:
        """Return the bytes that were sent of the day, by the ledger."""
        rows = self.tables.at("ledger").rows(
            ["bytes_kept"], subject="docks", batch_date=SENT_ON, stage=SENT, unit="rows", dimension_kind=TOTAL
        )
        return int(sum(rows["bytes_kept"].to_pylist()))

    def fixed_bytes(self) -> int:
        """Return the bytes that were sent of the day in addition to the data of its columns."""
        data = 0
        for name in ("transmitted", "sent_synopsis"):
            stream = "docks" if name == "transmitted" else None
            for file in self.tables.at(name, stream).files(batch_date=SENT_ON):
                columns = pq.ParquetFile(file.path).schema_arrow.names
                data += sum(column_bytes([file], columns).values()) - page_header_bytes(file.path)
        return self.crossing_bytes() - data

    def metadata_bytes(self) -> int:
        """Return the bytes of destination metadata that were sent of the day."""
        table, found = self.tables.at("destination_metadata"), 0
        logs = list(Path(table.path, "_delta_log").glob("*.json"))
        for file in table.files(batch=Between(2)):
            name = Path(file.path).name
            found += file.size + sum(path.stat().st_size for path in logs if name in path.read_text())
        return found

    def checkpoint_bytes(self) -> float:
        """Return the bytes of log checkpoints that the commits of the day bring, as a mean over many days."""
        found = 0.0
        for table in (self.tables.at("transmitted", "docks"), self.tables.at("destination_metadata")):
            log = Path(table.path, "_delta_log")
            sent = str(SENT_ON)
            commits = sum(sent in path.read_text() for path in log.glob("*.json")) if table.exists else 0
            if commits:
                open_delta(table.path).create_checkpoint()
                size = sum(path.stat().st_size for path in log.glob("*checkpoint.parquet"))
                found += commits * size / CHECKPOINT_COMMITS[table.contract.root]
        return found

    def lost_pct(self) -> float:
        """Return the share of the day's values that differ at the destination, in %."""
        names = ["seq", *self.contract.names]
        raw, sent = (
            self.tables.at(table, "docks").rows(names, batch_date=SENT_ON).sort_by("seq")
            for table in ("raw", "transmitted")
        )
        alike = 0
        if raw["seq"].equals(sent["seq"]):
            alike = sum(a == b for name in self.contract.names for a, b in _pairs(raw[name], sent[name]))
        return 100.0 * (1.0 - alike / (raw.num_rows * len(self.contract.names)))


def _pairs(first: pa.ChunkedArray, second: pa.ChunkedArray) -> Iterator[tuple[Any, Any]]:
    return zip(first.to_pylist(), second.to_pylist(), strict=True)


def street(folder: Path, batching: Mapping[str, Any] | None, destination: bool = False) -> Street:
    """Return a lake that was trained on the day before."""
    contract = read_stream({**CONTRACT, **({} if batching is None else {"batching": dict(batching)})})
    found = Street(folder, contract, destination=destination)
    found.train_on_day_before()
    return found


DEFAULT = {"until_bytes": "1 MB", "until_seconds": 3600}
"""The `batching:` that `spillway contracts new` drafts for such files."""
WHOLE_DAY = {"until_bytes": "1 GB", "until_seconds": 86_400}
ALONE = 8
"""Number of deliveries that are sent alone."""
NARROW = 0.8
EXCESS_BYTES = 256
"""Bytes that the day's quota has in addition to the day's single file, for batch numbers and gaps in `seq`."""


def small_batches(book: Book) -> dict[str, float]:
    """Return the figures of small batches, and write them into the book."""
    with TemporaryDirectory() as root:
        folder = Path(root)
        single = street(folder / "single", None)
        single.day_at_once()
        alone = street(folder / "alone", None, destination=True)
        alone.day_in_files(ALONE)
        default = street(folder / "default", DEFAULT)
        default.day_in_files()
        elsewhere = street(folder / "elsewhere", DEFAULT, destination=True)
        elsewhere.day_in_files()
        narrow = street(folder / "narrow", DEFAULT, destination=True)
        narrow.capacity = f"{NARROW * elsewhere.crossing_bytes():.0f} B/day"
        narrow.day_in_files()
        fits = street(folder / "fits", WHOLE_DAY)
        fits.capacity = f"{single.crossing_bytes() + EXCESS_BYTES} B/day"
        fits.day_in_files()
        # a rule that does nothing: each delivery is sent when it arrives
        at_once = street(folder / "at once", None)
        at_once.capacity = fits.capacity
        at_once.day_in_files()
        excess = fits.crossing_bytes() - single.crossing_bytes()
        found = {
            "attributes.small_batches_day_bytes": float(single.crossing_bytes()),
            "attributes.small_batches_excess_bytes": float(excess),
            # a day that exceeds its quota loses nothing, and must not pass
            "attributes.small_batches_lost_pct": fits.lost_pct() if excess <= EXCESS_BYTES else 100.0,
            "attributes.small_batches_at_once_lost_pct": at_once.lost_pct(),
            "attributes.fixed_bytes_narrow_lost_pct": narrow.lost_pct(),
        }
        for name, lake, count in (
            ("alone_elsewhere", alone, ALONE),
            ("per_delivery", default, DELIVERIES),
            ("per_delivery_elsewhere", elsewhere, DELIVERIES),
            ("per_delivery_elsewhere_narrow", narrow, DELIVERIES),
        ):
            checkpoints = lake.checkpoint_bytes() / count
            found[f"attributes.checkpoint_bytes_{name}"] = checkpoints
            found[f"attributes.metadata_bytes_{name}"] = lake.metadata_bytes() / count
            found[f"attributes.fixed_bytes_{name}"] = lake.fixed_bytes() / count + checkpoints
    book.section(
        "Small batches",
        "A day of 96 deliveries of ten attributes. Fixed bytes are all bytes that are sent except the data of the "
        "columns: footers, page headers, log entries, commits, and the checkpoints of the logs. `elsewhere`: the "
        "destination is another place than the lake. `narrow`: the same through a quota in which values are lost, so "
        "that the destination needs metadata.",
    )
    book.table("Small batches", ("figure", "value"), list(found.items()))
    return found


def page_header_bytes(path: str) -> int:
    """Return the bytes of the page headers of a Parquet file."""
    content = Path(path).read_bytes()
    metadata, found = pq.ParquetFile(pa.BufferReader(content)).metadata, 0
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            column = metadata.row_group(group).column(place)
            at = column.dictionary_page_offset or column.data_page_offset
            end = at + column.total_compressed_size
            while at < end:
                data, sizes = _thrift_struct(content, at)
                found += data - at
                at = data + sizes[3]
    return found


def _thrift_struct(content: bytes, at: int) -> tuple[int, dict[int, int]]:
    """Return where a struct in Thrift's compact protocol ends, and its integer fields by number."""
    field, integers = 0, dict[int, int]()
    while (head := content[at]) != 0:
        at += 1
        kind, field = head & 15, field + (head >> 4)
        if not head >> 4:
            field, at = _varint(content, at)
            field = (field >> 1) ^ -(field & 1)
        if kind in (4, 5, 6):
            number, at = _varint(content, at)
            integers[field] = (number >> 1) ^ -(number & 1)
        elif kind == 8:
            size, at = _varint(content, at)
            at += size
        elif kind == 12:
            at, _ = _thrift_struct(content, at)
        elif kind not in (1, 2):
            raise ValueError(f"a page header must hold no Thrift field of kind {kind}")
    return at + 1, integers


def _varint(content: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = content[at]
        at += 1
        found |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return found, at
