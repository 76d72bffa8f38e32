"""Write to a landing zone while it is read: files grow, are replaced, renamed, truncated, deleted, and return.

A test clock and a seed determine everything. The world changes files on a disk one after the other, also while a file
is read (before it is opened, and while it is open). Runs take files in between. The expected result is recorded
separately:

- Bytes that were unchanged under a name for `settle_seconds` when a run listed them are *settled*. Every tuple of them
  must be in `raw`, or the file must be refused by name (as with `changed: refuse` for other bytes under a known name).
  Otherwise the tuple is *lost*.
- `raw` must hold exactly the tuples of the contents that are accepted in `batches`, each content once. A missing tuple
  is also lost, an additional one is *doubled*.

At the end all writing stops, and all files are settled.

>>> counts = landing_torture(seed=1, steps=40)
>>> counts["landing_lost_tuples"], counts["landing_doubled_tuples"], counts["landing_unbalanced"]
(0, 0, 0)
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from spillway.batch import FILE_INGESTED, REFUSED
from spillway.contracts import StreamContract, read_stream
from spillway.engine.local import ProcessEngine
from spillway.intake import new_batches, parse
from spillway.intake.ingest import ingest
from spillway.ledger import total_imbalance
from spillway.settings import Settings
from spillway.store.batches import load_batches
from spillway.store.landing_zone import open_landing_file
from spillway.store.tables import Tables

SETTLE_SECONDS = 60
NAMES = 6
STREAM = "torn"
CONTRACT = {
    "stream": STREAM,
    "channel": "uplink",
    "source": {"kind": "files", "format": "json", "settle_seconds": SETTLE_SECONDS},
    "attributes": [
        {"name": "sender", "type": "string", "role": "key"},
        {"name": "number", "type": "integer", "role": "order"},
    ],
    "rate": {"from": "declared", "tuples_per_second": 10},
    "levers": [],
}


def torn_contract(changed: str) -> StreamContract:
    """Return the contract of the stream, with its rule for changed files."""
    plain = read_stream(CONTRACT)
    return replace(plain, source=replace(plain.source, changed=changed))


@dataclass
class WorldOfFiles:
    """The landing folder, and its expected contents by the rule; every tuple ever written has a unique number."""

    folder: Path
    chance: random.Random
    changed: str
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    written: int = 0
    deeds: Counter[str] = field(default_factory=Counter)
    contents: dict[str, bytes] = field(default_factory=dict)
    """Whatever a file has ever held, by its digest."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)

    def records(self) -> bytes:
        """Return some new tuples."""
        count = self.chance.randint(1, 5)
        numbers = range(self.written, self.written + count)
        self.written += count
        return b"".join(json.dumps({"sender": "s", "number": n}).encode() + b"\n" for n in numbers)

    def path(self) -> Path:
        return (
            self.folder / f"2026-01-0{self.chance.randint(1, 2)}" / f"f {self.chance.randrange(NAMES)}%.json"
        )

    def put(self, path: Path, content: bytes, append: bool = False) -> None:
        path.parent.mkdir(exist_ok=True)
        with path.open("ab" if append else "wb") as file:
            file.write(content)
        whole = path.read_bytes()
        self.contents[_digest(whole)] = whole
        self.touch(path)

    def touch(self, path: Path) -> None:
        # no two deeds at one moment, as on a clock of nanoseconds
        self.now += timedelta(microseconds=1)
        moment = round(self.now.timestamp() * 1e6) * 1000
        os.utime(path, ns=(moment, moment))

    def present_files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*.json") if path.is_file())

    def change_files(self) -> None:
        """Change some files once."""
        there = self.present_files()
        what = self.chance.choice(
            (
                "new",
                "new",
                "half",
                "empty",
                "grow",
                "grow",
                "replace",
                "rename",
                "truncate",
                "delete",
                "copy",
                "touch",
            )
        )
        path = self.path()
        if what in ("grow", "replace", "rename", "truncate", "delete", "copy", "touch"):
            if not there:
                return
            path = self.chance.choice(there)
        self.deeds[what] += 1
        if what == "new":
            hidden = path.with_name(f".{path.name}.part")
            self.put(hidden, self.records())
            hidden.replace(path)
        elif what == "half":
            self.put(path, self.records()[: self.chance.randint(1, 30)])
        elif what == "empty":
            self.put(path, b"")
        elif what == "grow":
            self.put(path, self.records(), append=True)
        elif what == "replace":
            self.put(path, self.records())
        elif what == "rename":
            other = self.path()
            other.parent.mkdir(exist_ok=True)
            path.replace(other)
        elif what == "truncate":
            content = path.read_bytes()
            self.put(path, content[: content.find(b"\n") + 1 if b"\n" in content else 0])
        elif what == "delete":
            path.unlink()
        elif what == "copy":
            other = self.path()
            if other != path:
                self.put(other, path.read_bytes())
        elif what == "touch":
            self.touch(path)

    def settled_files(self) -> dict[str, bytes]:
        """Return, by name, the contents that have been unchanged for long enough."""
        limit = self.now - timedelta(seconds=SETTLE_SECONDS)
        return {
            str(path.relative_to(self.folder.parent)): path.read_bytes()
            for path in self.present_files()
            if datetime.fromtimestamp(path.stat().st_mtime_ns // 1000 / 1e6, UTC) <= limit
        }


@contextmanager
def change_while_reading(chance: random.Random, world: WorldOfFiles, most: float) -> Iterator[None]:
    """Change files between a listing and each opening of a file, and while one is open."""
    whole = open_landing_file

    @contextmanager
    def opened(*of: Any) -> Iterator[Any]:
        if chance.random() < most:
            world.change_files()
        with whole(*of) as source:
            yield source
            if chance.random() < most:
                world.change_files()

    modules: Sequence[Any] = (new_batches, parse)
    for module in modules:
        module.open_landed = opened
    try:
        yield
    finally:
        for module in modules:
            module.open_landed = whole


def landing_torture(
    seed: int = 0, steps: int = 300, seconds: float | None = None, changed: str | None = None
) -> dict[str, int]:
    """Run on a new landing zone with changes in between; count lost and doubled tuples."""
    chance = random.Random(seed)
    rule = changed or chance.choice(("refuse", "new_batch"))
    contract = torn_contract(rule)
    root = Path(tempfile.mkdtemp(prefix="spillway-landing-"))
    try:
        settings = Settings.from_environment(
            {
                "SPILLWAY_HOME": str(root),
                "SPILLWAY_LAKE": f"memory://torture/{root.name}",
                "SPILLWAY_LANDING": str(root / "landing"),
            }
        )
        tables = Tables(settings)
        world = WorldOfFiles(root / "landing" / STREAM, chance, rule)
        until = None if seconds is None else time.monotonic() + seconds
        runs = deeds = 0
        seen: dict[str, set[bytes]] = {}

        def run(most: float) -> None:
            nonlocal runs
            runs += 1
            for name, content in (world.settled_files() if most == 0 else {}).items():
                seen.setdefault(name, set()).add(content)
            with change_while_reading(chance, world, most):
                ingest(tables, ProcessEngine(), contract, f"run {runs}", clock=lambda: world.now)

        while deeds < steps if until is None else time.monotonic() < until:
            deeds += 1
            world.change_files()
            world.now += timedelta(seconds=chance.choice((0, 1, 20, 45, 61, 300)))
            if chance.random() < 0.3:
                run(chance.choice((0, 0, 0.3)))
        for _ in range(3):
            # files that changed while they were read are taken in at the end
            world.now += timedelta(seconds=SETTLE_SECONDS + 1)
            run(0)
        counts = _compare_with_files(tables, seen, world.contents)
        tables.forget()
        return {"landing_runs": runs, "landing_deeds": sum(world.deeds.values()), **counts}
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _compare_with_files(
    tables: Tables, seen: Mapping[str, set[bytes]], contents: Mapping[str, bytes]
) -> dict[str, int]:
    """Compare `raw` and `batches` with the settled contents that runs have seen."""
    batches = load_batches(tables.now(), STREAM)
    rows = tables.now().at("raw", STREAM).rows(["number"]) if any(one.rows for one in batches) else None
    there = Counter(rows["number"].to_pylist() if rows is not None else ())
    refused = {file.digest for batch in batches for file in batch.files if file.status == REFUSED}
    taken = [file.digest for batch in batches for file in batch.files if file.status == FILE_INGESTED]
    expected = Counter(number for digest in set(taken) for number in _numbers(contents[digest]))
    settled = {content for found in seen.values() for content in found}
    owed = {n for content in settled if _digest(content) not in refused for n in _numbers(content)}
    return {
        "landing_tuples": sum(there.values()),
        "landing_settled_tuples": len({n for content in settled for n in _numbers(content)}),
        "landing_refused_files": len(refused),
        "landing_lost_tuples": len({n for n in owed if not there[n]} | set(expected - there)),
        "landing_doubled_tuples": (there - expected).total() + len(taken) - len(set(taken)),
        "landing_unbalanced": total_imbalance(tables.now().at("ledger").rows(subject=STREAM).to_pylist()),
    }


def _numbers(content: bytes) -> list[int]:
    found = []
    for line in content.splitlines():
        try:
            found.append(int(json.loads(line)["number"]))
        except (ValueError, TypeError, KeyError):
            continue
    return found


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


LANDING_SECONDS = 180.0
"""How long `make torture` writes in landing zones while they are read."""


def torture_by_landing(say: Callable[[str], None], seed: int) -> Mapping[str, float]:
    """Run this part of `make torture`: count lost or doubled tuples, and batches that do not balance."""
    counts = run_landing_zones(["--seed", str(seed), "--seconds", str(LANDING_SECONDS)])
    for name, count in counts.items():
        say(f"{name.removeprefix('landing_').replace('_', ' ')}: {count:,}")
    return {f"torture.{name}": float(count) for name, count in counts.items()}


def run_landing_zones(arguments: Sequence[str] | None = None) -> dict[str, int]:
    """Run landing zones from one seed on for some seconds; return the sum of their counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--steps", type=int, default=200, help="deeds in one landing zone")
    asked = parser.parse_args(arguments)
    total: Counter[str] = Counter()
    seed, until = asked.seed, time.monotonic() + asked.seconds
    while time.monotonic() < until:
        total.update(landing_torture(seed, asked.steps))
        seed += 1
    total["landing_zones"] = seed - asked.seed
    return dict(total)


if __name__ == "__main__":
    print(json.dumps(run_landing_zones(), indent=2))
