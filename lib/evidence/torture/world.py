"""Create the streams of the torture tests: parts of the demo's three and an awkward one, with landing zone and
contracts.

The awkward one has nulls, numbers that are none, text in many scripts, lines that are no record, a file that is
empty, one that was delivered twice, and raw tuples that are retired as soon as they are validated.
"""

from __future__ import annotations

import io
import json
import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from evidence.narrow_links import CHANNELS, LINKS, narrow_files
from spillway.contracts import Contracts, load_contracts
from spillway.settings import Settings

AWKWARD = "awkward"
TRAINED_ON = 240
DELIVERED_AT = 1_700_000_000
"""Long enough ago for a file to have settled."""
_SLICE = 150
_FILES = {
    "weather": [
        "2013-04-30/weather-2013-01.jsonl",
        "2013-04-30/weather-2013-02.jsonl",
        "2013-08-31/weather-2013-05.jsonl",
    ],
    "stocks": ["2004-12-31/stocks-2000.csv", "2004-12-31/stocks-2001.csv", "2009-12-31/stocks-2005.csv"],
    "network": ["2024-03-04/polls-1.parquet", "2024-03-04/polls-2.parquet", "2024-03-06/polls-1.parquet"],
}
_BAD = ['{"site": "a", "at": "2020-01-03T00:00:00Z", "level": "warm"}', "no record at all", '{"site": null}']


@dataclass(frozen=True)
class TortureWorld:
    """A separate folder with landing zone, contracts and lake."""

    folder: Path

    @property
    def settings(self) -> Settings:
        here = Settings.from_environment()
        told = {"SPILLWAY_HOME": here.home, "SPILLWAY_SCHEMAS": str(self.folder / "schemas")}
        told |= {f"SPILLWAY_{name.upper()}": str(self.folder / name) for name in ("lake", "landing", "build")}
        return Settings.from_environment(told)

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def contracts(self) -> Contracts:
        return load_contracts(self.settings.schemas)

    def copy(self, folder: Path) -> TortureWorld:
        """Copy the files with their times to another folder; paths in a lake are relative."""
        shutil.copytree(self.folder, folder)
        return TortureWorld(folder)

    def deliver(self, name: str, content: bytes) -> None:
        path = self.folder / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (DELIVERED_AT, DELIVERED_AT))


def create_world(folder: Path, only: str | None = None) -> TortureWorld:
    """Create the world before anything is taken in, with all streams or only `only`."""
    world = TortureWorld(folder)
    schemas, product = folder / "schemas", Path(Settings.from_environment().schemas)
    (schemas / "streams").mkdir(parents=True)
    channels = {"channels": {**CHANNELS, "ditch": {"capacity": "8 kbps"}}}
    (schemas / "channels.yaml").write_text(yaml.safe_dump(channels), encoding="utf-8")
    (schemas / "streams" / f"{AWKWARD}.yaml").write_text(
        yaml.safe_dump(_awkward_contract()), encoding="utf-8"
    )
    landing = narrow_files() if only is None else {}
    for stream, names in _FILES.items() if only is None else ():
        contract = yaml.safe_load((product / "streams" / f"{stream}.yaml").read_text(encoding="utf-8"))
        contract["source"]["settle_seconds"] = 0
        contract["channel"], contract["rate"] = LINKS[stream]
        for entry in contract.get("levers") or []:
            entry["training"] = {**entry.get("training", {}), "tuples": TRAINED_ON}
        (schemas / "streams" / f"{stream}.yaml").write_text(yaml.safe_dump(contract), encoding="utf-8")
        for name in names:
            world.deliver(f"{stream}/{name}", _slice(name, landing[stream][name]))
    lines = awkward_lines(0, 260)
    world.deliver(f"{AWKWARD}/2020-01-01/a.json", _text([*lines[:100], *_BAD, *lines[100:]]))
    world.deliver(f"{AWKWARD}/2020-01-01/again.json", _text([*lines[:100], *_BAD, *lines[100:]]))
    world.deliver(f"{AWKWARD}/2020-01-02/b c=%20.json", _text(awkward_lines(260, 120)))
    world.deliver(f"{AWKWARD}/2020-01-02/empty.json", b"")
    return world


def awkward_lines(first: int, count: int) -> list[str]:
    """Return the tuples `first..first + count - 1`, each a function of its ordinal."""
    found = []
    for i in range(first, first + count):
        turn, site = divmod(i, 5)
        row: dict[str, Any] = {
            "site": ("a", "b b", "ß☃", "d/d", "e=%41")[site],
            "at": f"2020-01-01T{turn // 3600 % 24:02d}:{turn // 60 % 60:02d}:{turn % 60:02d}Z",
            "level": None if i % 37 == 36 else round(50 + 9 * site + 7 * math.sin(turn / 8 + site), 2),
            "twice": None if i % 37 == 36 else round(2 * (50 + 9 * site + 7 * math.sin(turn / 8 + site)), 2),
            "count": 10 * site + turn % 11,
            "note": ("", 'said "so"', "слово, 語", "x" * 40)[(turn + site) % 4],
        }
        found.append(json.dumps(row, ensure_ascii=False))
    return found


def _slice(name: str, content: bytes) -> bytes:
    if name.endswith(".parquet"):
        sink = io.BytesIO()
        pq.write_table(pq.read_table(io.BytesIO(content), use_threads=False).slice(0, _SLICE), sink)
        return sink.getvalue()
    lines = content.split(b"\n")
    return b"\n".join(lines[: _SLICE + name.endswith(".csv")]) + b"\n"


def _text(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _awkward_contract() -> dict[str, Any]:
    measures = [("level", "double"), ("twice", "double"), ("count", "integer")]
    return {
        "stream": AWKWARD,
        "description": "What is awkward of a stream.",
        "source": {"kind": "files", "path": AWKWARD, "format": "json", "settle_seconds": 0},
        "attributes": [
            {"name": "site", "type": "string", "role": "key", "nullable": False},
            {"name": "at", "type": "timestamp", "role": "order", "nullable": False},
            *({"name": name, "type": kind, "role": "measure", "error_pct": 4.0} for name, kind in measures),
            {"name": "note", "type": "string", "role": "protected"},
        ],
        "channel": "ditch",
        "rate": {"from": "declared", "tuples_per_second": 60},
        "frame": {"tuples": 100},
        "bad_records": {"action": "reject", "max_share_pct": 50},
        "retain_raw": {"days": 30, "retire": True},
        "levers": [{"lever": "attributes", "training": {"tuples": TRAINED_ON}}],
    }
