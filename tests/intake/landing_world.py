"""A stream that lands on a disk under a clock that a test sets. Not a test."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from spillway.batch import Batch, LandingFile
from spillway.contracts import StreamContract, read_stream
from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError
from spillway.intake.ingest import ingest
from spillway.intake.landing import Landing, find_landing_files
from spillway.intake.replay import ReplayResult, Selection, replay
from spillway.ledger import total_imbalance
from spillway.settings import Settings
from spillway.store.batches import load_batches
from spillway.store.tables import Tables

HERE = ProcessEngine()
START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
CONTRACT: dict[str, Any] = {
    "stream": "delays",
    "channel": "uplink",
    "source": {"kind": "files", "path": "delays", "format": "json"},
    "attributes": [
        {"name": "router", "type": "string", "role": "key"},
        {"name": "at", "type": "integer", "role": "order"},
        {"name": "delay_ms", "type": "double"},
    ],
    "rate": {"from": "declared", "tuples_per_second": 10},
}


def contract(source: dict[str, Any] | None = None, **more: Any) -> StreamContract:
    return read_stream({**CONTRACT, "source": {**CONTRACT["source"], **(source or {})}, **more})


def lines(ats: Iterable[int], **more: Any) -> bytes:
    rows = [{"router": f"r{at % 3}", "at": at, "delay_ms": at / 2, **more} for at in ats]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@dataclass
class LandingWorld:
    """One stream's landing folder and lake, the clock in the test's hand."""

    folder: Path
    contract: StreamContract = field(default_factory=contract)
    now: datetime = START
    said: list[str] = field(default_factory=list)
    runs: int = 0

    def __post_init__(self) -> None:
        roots = {name: str(self.folder / name.lower()) for name in ("LAKE", "LANDING", "BUILD")}
        home = str(Path(__file__).resolve().parents[2])
        self.settings = Settings.from_environment(
            {"SPILLWAY_HOME": home, **{f"SPILLWAY_{name}": path for name, path in roots.items()}}
        )

    @property
    def zone(self) -> Path:
        return self.folder / "landing" / "delays"

    @property
    def tables(self) -> Tables:
        return Tables(self.settings)

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def touch(self, path: Path) -> None:
        moment = self.now.timestamp()
        os.utime(path, (moment, moment))

    def deliver(self, name: str, content: bytes, settled: bool = True) -> Path:
        """Write a file now; the clock goes on until it has settled unless it is not to."""
        path = self.zone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self.touch(path)
        self.later(61 if settled else 0)
        return path

    def take_in(self) -> list[Batch]:
        self.runs += 1
        return ingest(
            self.tables, HERE, self.contract, f"run {self.runs}", self.said.append, lambda: self.now
        )

    def fails(self) -> str:
        """What the run says as it ends."""
        try:
            self.take_in()
        except SpillwayError as problem:
            return str(problem)
        return ""

    def replay(self, **asked: Any) -> ReplayResult:
        self.runs += 1
        selection = Selection(**asked)
        return replay(
            self.tables,
            HERE,
            self.contract,
            selection,
            f"run {self.runs}",
            self.said.append,
            lambda: self.now,
        )

    def look(self) -> Landing:
        return find_landing_files(self.contract, self.tables, self.now)

    def batches(self) -> list[Batch]:
        return load_batches(self.tables, "delays")

    def files(self) -> list[LandingFile]:
        return [file for batch in self.batches() for file in batch.files]

    def fates(self) -> list[tuple[str, str]]:
        return [(file.name.removeprefix("delays/"), file.status) for file in self.files()]

    def ats(self) -> list[int]:
        """What `raw` holds, in `seq` order."""
        if not any(batch.rows for batch in self.batches()):
            return []
        rows = self.tables.at("raw", "delays").rows(["seq", "at"]).sort_by("seq")
        assert len(set(rows["seq"].to_pylist())) == rows.num_rows
        found: list[int] = rows["at"].to_pylist()
        return found

    def rejected(self) -> list[dict[str, Any]]:
        rows = self.tables.at("rejected").rows(stream="delays").to_pylist()
        return sorted(rows, key=lambda row: (row["batch"], row["file"], row["line"]))

    def totals(self) -> list[tuple[int, int, int, int]]:
        """By batch what the first stage was offered, kept, rejected, deduplicated; the ledger must balance."""
        rows = self.tables.at("ledger").rows(subject="delays").to_pylist()
        assert total_imbalance(rows) == 0
        told = sorted((row for row in rows if row["dimension_kind"] == "total"), key=lambda row: row["batch"])
        return [(row["offered"], row["kept"], row["rejected"], row["deduplicated"]) for row in told]

    def is_quiet(self) -> bool:
        """Whether one more run would find nothing, and does."""
        return not self.look().files_to_process and self.take_in() == []
