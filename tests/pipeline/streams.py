"""Small streams made by formula, so that what they deliver is known before anything is taken in. Not a test.

`sites`: six sites in turn: a temperature, a level that is an exact function of it, a whole number that stands
still for a while, a text, nulls here and there; frames of 100 tuples. `meters`: four meters, CSV, one endless
frame. Both share a channel that is too narrow for them. `watched`: the sites again, merely observed, Parquet.
"""

from __future__ import annotations

import io
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from spillway import clock
from spillway.batch import Batch
from spillway.contracts import Contracts, load_contracts
from spillway.engine import Engine
from spillway.pipeline.run import run_channel, sketch_channel
from spillway.pipeline.validate import validate
from spillway.settings import Settings
from spillway.store.batches import load_batches
from spillway.store.tables import Table, Tables
from spillway.streams.train import train_stream

ROOT = Path(__file__).resolve().parents[2]
FIRST_DAY = date(2020, 1, 1)
BEGIN = datetime(2026, 1, 1)
VOLATILE = (
    "revision", "validated_revision", "run_id", "created_at", "updated_at", "validated_at", "seconds",
)  # fmt: skip
"""What a rerun may say otherwise: who did it, when, how long it took, and how often a row was saved."""
TABLES = ("batches", "rejected", "models", "schemes", "synopsis", "certificates", "ledger")
OF_A_STREAM = ("raw", "transmitted", "recovered")


def attribute(name: str, kind: str, role: str = "measure", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "role": role, **more}


SITES: dict[str, Any] = {
    "stream": "sites",
    "description": "Six sites in turn.",
    "source": {"kind": "files", "path": "sites", "format": "json"},
    "attributes": [
        attribute("site", "string", "key", nullable=False),
        attribute("at", "timestamp", "order", nullable=False),
        attribute("temp", "double", error_pct=2.0),
        attribute("level", "double", error_pct=2.0),
        attribute("pulses", "integer", error_pct=5.0),
        attribute("sky", "string"),
    ],
    "channel": "narrow",
    "rate": {"from": "declared", "tuples_per_second": 100},
    "frame": {"tuples": 100},
    "levers": [{"lever": "attributes", "training": {"tuples": 240}, "treatments": ["keep", "shed"]}],
}
METERS: dict[str, Any] = {
    "stream": "meters",
    "description": "Four meters in turn.",
    "source": {"kind": "files", "path": "meters", "format": "csv"},
    "attributes": [
        attribute("meter", "string", "key", nullable=False),
        attribute("at", "timestamp", "order", nullable=False),
        attribute("power", "double", error_pct=3.0),
        attribute("count", "integer", error_pct=1.0),
    ],
    "channel": "narrow",
    "rate": {"from": "declared", "tuples_per_second": 25},
    "frame": {"tuples": None},
    "levers": [{"lever": "attributes", "training": {"tuples": 200}, "synopsis": "hold"}],
}
WATCHED: dict[str, Any] = {
    **SITES,
    "stream": "watched",
    "description": "Sites, merely observed.",
    "source": {"kind": "files", "path": "watched", "format": "parquet"},
    "channel": "wide",
    "mode": "observe",
}


def sites(first: int, count: int, turns_of_sky: int = 5) -> list[dict[str, Any]]:
    """Return the tuples `first..first + count - 1` of the stream, each a function of its ordinal alone.

    A site's text stays the same for `turns_of_sky` tuples.
    """
    rows = []
    for i in range(first, first + count):
        turn, site = divmod(i, 6)
        temp = round(40 + 9 * site + 6 * math.sin(turn / 9 + site) + 0.37 * math.sin(i * 1.7), 2)
        rows.append(
            {
                "site": f"site-{site}",
                "at": (BEGIN + timedelta(minutes=turn)).isoformat() + "Z",
                "temp": None if i % 41 == 40 else temp,
                "level": None if i % 41 == 40 else round(temp * 1.8 + 32, 3),
                "pulses": None if i % 97 == 96 else 400 + 20 * (site % 3) + (i // 30) % 7,
                "sky": ("clear", "rain", 'söft "snow", ☃', "")[(turn // turns_of_sky + site) % 4],
            }
        )
    return rows


def meters(first: int, count: int) -> list[dict[str, Any]]:
    """The tuples `first..first + count - 1` of the stream."""
    rows = []
    for i in range(first, first + count):
        turn, meter = divmod(i, 4)
        power = round(200 * (meter + 1) + 25 * math.sin(turn / 7), 1)
        at = (BEGIN + timedelta(seconds=30 * turn)).isoformat() + "Z"
        rows.append({"meter": f"m{meter}", "at": at, "power": power, "count": 10_000 + turn * (meter + 1)})
    return rows


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def csv_lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return pd.DataFrame(rows, dtype=object).to_csv(index=False).encode()


def parquet_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    timed = [{**row, "at": datetime.fromisoformat(row["at"])} for row in rows]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(timed), sink)
    return sink.getvalue()


def write_contracts(
    folder: Path, streams: Sequence[Mapping[str, Any]], capacity: str = "12 kbps"
) -> Contracts:
    """A schemas folder of these contracts, their channels all of this capacity; what they deliver is there at once."""
    (folder / "streams").mkdir(parents=True, exist_ok=True)
    channels = {contract["channel"]: {"capacity": capacity} for contract in streams}
    (folder / "channels.yaml").write_text(yaml.safe_dump({"channels": channels}))
    for old in (folder / "streams").glob("*.yaml"):
        old.unlink()
    for contract in streams:
        source = {"settle_seconds": 0, **contract["source"]}
        (folder / "streams" / f"{contract['stream']}.yaml").write_text(
            yaml.safe_dump({**contract, "source": source})
        )
    return load_contracts(folder)


def own_settings(folder: Path, **more: str) -> Settings:
    """Every root in `folder`, schemas included; expectations are the repository's."""
    environment = {
        "SPILLWAY_HOME": str(ROOT),
        "SPILLWAY_LAKE": str(folder / "lake"),
        "SPILLWAY_LANDING": str(folder / "landing"),
        "SPILLWAY_BUILD": str(folder / "build"),
        "SPILLWAY_SCHEMAS": str(folder / "schemas"),
    }
    return Settings.from_environment(environment | more)


@dataclass
class World:
    """A lake of its own with its landing zone and contracts, and what the steps said."""

    folder: Path
    engine: Engine
    tables: Tables
    contracts: Contracts
    said: list[str] = field(default_factory=list)
    noted: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def begin(
        engine: Engine,
        folder: Path,
        *streams: Mapping[str, Any],
        capacity: str = "12 kbps",
        **settings: str,
    ) -> World:
        contracts = write_contracts(folder / "schemas", streams, capacity)
        return World(folder, engine, Tables(own_settings(folder, **settings)), contracts)

    @property
    def settings(self) -> Settings:
        return self.tables.settings

    def copy(self, folder: Path) -> World:
        """The same tables and files in another folder: Delta's paths are relative, batches know files by name."""
        for name in ("lake", "landing", "schemas"):
            shutil.copytree(self.folder / name, folder / name, symlinks=True)
        return World(folder, self.engine, Tables(own_settings(folder)), load_contracts(folder / "schemas"))

    def contract_becomes(self, *streams: Mapping[str, Any], capacity: str = "12 kbps") -> None:
        self.contracts = write_contracts(self.folder / "schemas", streams, capacity)

    def deliver(self, name: str, content: bytes) -> Path:
        """Put a file into the landing zone, under `name` (stream/date/file)."""
        path = Path(self.settings.landing, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def shed(
        self, channel: str = "narrow", dates: tuple[date, date] | None = None, at_once: bool = False
    ) -> list[Batch]:
        run = f"run {len(self.said)}"
        say = self.said.append
        return run_channel(
            self.tables, self.engine, self.contracts, channel, run, say, dates, at_once=at_once
        )

    def sketch(self, channel: str = "narrow", dates: tuple[date, date] | None = None) -> int:
        return sketch_channel(self.tables, self.engine, self.contracts, channel, self.said.append, dates)

    def train(self, *streams: str) -> None:
        for stream in streams:
            train_stream(self.tables, self.contracts, stream, self.said.append)

    def validate(self, *streams: str, every: bool = False) -> None:
        run = f"run {len(self.said)}"
        validate(
            self.tables, self.engine, self.contracts, run, self.said.append, list(streams) or None, every
        )

    def batches(self, stream: str) -> list[Batch]:
        return load_batches(self.tables.now(), stream)

    def files(self, table: str, stream: str | None = None) -> dict[str, date]:
        """The table's live files and the batch dates they hold."""
        return {file.path: str(file.value("batch_date")) for file in self.at(table, stream).files()}

    def at(self, table: str, stream: str | None = None) -> Table:
        """The table as it is now."""
        return self.tables.now().at(table, stream)

    def rows(self, table: str, stream: str | None = None) -> list[dict[str, Any]]:
        """A table's rows, read without Spark, sorted, without what a rerun may say otherwise."""
        found = self.at(table, stream).rows()
        kept = found.select([name for name in found.column_names if name not in VOLATILE])
        return sorted(kept.to_pylist(), key=_place)

    def everything(self, *streams: str) -> dict[str, list[dict[str, Any]]]:
        """Every table that taking in, training, shedding and validating write, to compare two lakes by."""
        found = {table: self.rows(table) for table in TABLES}
        for table in OF_A_STREAM:
            found |= {f"{table}/{stream}": self.rows(table, stream) for stream in streams}
        return found

    def frame(self, table: str, stream: str | None = None) -> pd.DataFrame:
        """A table as pandas sees it, in `seq` order where there is one; nulls are kept apart from NaN."""
        found = self.at(table, stream).rows()
        if "seq" in found.column_names:
            found = found.sort_by("seq")
        kinds = {pa.int64(): pd.Int64Dtype(), pa.float64(): pd.Float64Dtype()}
        return found.to_pandas(types_mapper=kinds.get)


def _place(row: Mapping[str, Any]) -> str:
    names = (
        "stream",
        "subject",
        "batch",
        "ordinal",
        "unit",
        "dimension_kind",
        "dimension",
        "attribute",
        "fact",
    )
    first = [str(row.get(name)) for name in names]
    return f"{first} {row.get('seq', row.get('from_seq', row.get('frame'))) or 0:012d} {row}"


def day(number: int) -> date:
    """The batch dates the tests deliver under."""
    return FIRST_DAY + timedelta(days=number)


_MADE: dict[str, World] = {}
_FOLDERS = tempfile.TemporaryDirectory(prefix="spillway-lakes-")
"""The lakes that this process has made, and where they lie."""


def made_once(folder: Path, make: Callable[[Path], World], *key: Any) -> World:
    """Return a copy in `folder` of the lake that `make` makes; it makes one for each key and clock."""
    of = repr((make.__module__, make.__qualname__, key, clock._clock))
    if of not in _MADE:
        _MADE[of] = make(Path(_FOLDERS.name, str(len(_MADE))))
    return replace(_MADE[of].copy(folder), noted=_MADE[of].noted, said=list(_MADE[of].said))


def brought_through(
    engine: Engine,
    folder: Path,
    streams: Sequence[Mapping[str, Any]] = (SITES, METERS, WATCHED),
    capacity: str = "12 kbps",
    sites: Callable[[int, int], list[dict[str, Any]]] = sites,
) -> World:
    """Return a lake in `folder`: taken in, trained, shed in two runs, recovered and validated.

    `sites` makes the tuples of the streams `sites` and `watched`.
    """

    def make(there: Path) -> World:
        return _bring_through(engine, there, streams, capacity, sites)

    return made_once(folder, make, type(engine), streams, capacity, sites)


def _bring_through(
    engine: Engine,
    folder: Path,
    streams: Sequence[Mapping[str, Any]],
    capacity: str,
    sites: Callable[[int, int], list[dict[str, Any]]],
) -> World:
    world = World.begin(engine, folder, *streams, capacity=capacity)
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
    world.deliver("meters/2020-01-01/a.csv", csv_lines(meters(0, 350)))
    world.deliver("watched/2020-01-01/a.parquet", parquet_bytes(sites(0, 300)))
    world.shed()  # takes in; nothing is trained yet
    world.noted["untrained"] = [b.status for b in world.batches("sites")], world.files("transmitted", "sites")
    world.shed("wide")
    world.train("sites", "meters", "watched")
    world.shed()
    world.shed("wide")
    # the same date goes on, so that its last frame spans the batches of two runs
    world.deliver("sites/2020-01-01/b.json", json_lines(sites(330, 130)))
    world.deliver("sites/2020-01-01/again.json", json_lines(sites(0, 330)))
    world.deliver("sites/2020-01-02/c.json", json_lines(sites(460, 250)))
    world.deliver("meters/2020-01-01/b.csv", csv_lines(meters(350, 90)))
    world.shed()
    world.validate()
    return world
