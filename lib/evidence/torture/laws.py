"""Check laws of a lake from landing files and tables alone, without the product.

Nothing is lost or doubled: every delivered record is in `transmitted` once (compared by its key, time and protected
text, which are never shed), or in `rejected` once, and in `raw` unless its batch was retired. The ledger balances by
row, by stage, and against the delivered files and the tables.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from evidence.torture.reader import Row, table_rows
from evidence.torture.world import AWKWARD, TortureWorld

KEPT = ("site", "at", "note")
"""Columns that nothing may shed."""


def broken_laws(world: TortureWorld) -> list[str]:
    """Return a sentence for each law that the awkward stream violates."""
    lake = world.lake
    batches = [row for row in table_rows(lake / "batches") if row["stream"] == AWKWARD]
    good, bad, records = _delivered(world)
    return [
        *_of_batches(batches),
        *_of_rows(lake, batches, good, bad),
        *_of_ledger(lake, batches, records),
    ]


def _delivered(world: TortureWorld) -> tuple[Counter[tuple[Any, ...]], int, int]:
    """Return usable tuples with the number of files that delivered each, unusable lines, and all lines."""
    good: Counter[tuple[Any, ...]] = Counter()
    bad = records = 0
    seen: set[bytes] = set()
    for path in sorted((world.folder / "landing" / AWKWARD).rglob("*.json")):
        content = path.read_bytes()
        lines = content.decode().splitlines()
        records += len(lines)
        if content in seen:
            continue
        seen.add(content)
        for line in lines:
            row = _record(line)
            if row is None:
                bad += 1
            else:
                good[tuple(_text(row[name]) for name in KEPT)] += 1
    return good, bad, records


def _record(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    usable = isinstance(row, dict) and row.get("site") is not None and row.get("at") is not None
    return row if usable and isinstance(row.get("level"), float | int | None) else None


def _text(value: Any) -> str:
    return value.strftime("%Y-%m-%dT%H:%M:%SZ") if hasattr(value, "strftime") else str(value)


def _of_batches(batches: list[Row]) -> Iterator[str]:
    for number, times in Counter(row["batch"] for row in batches).items():
        if times > 1:
            yield f"batch {number} stands {times} times in batches"
    digests = Counter(
        file["digest"] for row in batches for file in row["files"] if file["status"] == "ingested"
    )
    for digest, times in digests.items():
        if times > 1:
            yield f"a file of digest {digest[:12]} was taken in {times} times"
    for row in batches:
        if row["status"] not in ("done", "retired"):
            yield f"batch {row['batch']} is {row['status']} after everything was done"


def _of_rows(lake: Path, batches: list[Row], good: Counter[tuple[Any, ...]], bad: int) -> Iterator[str]:
    sent, raw = (table_rows(lake / table / AWKWARD) for table in ("transmitted", "raw"))
    for name, rows in (("transmitted", sent), ("raw", raw)):
        twice = [seq for seq, times in Counter(row["seq"] for row in rows).items() if times > 1]
        if twice:
            yield f"{name} has {len(twice)} numbers twice, {twice[0]} the first"
    found = Counter(tuple(_text(row[name]) for name in KEPT) for row in sent)
    if found != good:
        lost, strange = (good - found).total(), (found - good).total()
        yield f"transmitted lacks {lost} delivered tuples and has {strange} that were not"
    retired = {row["batch"] for row in batches if row["status"] == "retired"}
    wanted = {row["seq"] for row in sent if row["batch"] not in retired}
    held = {row["seq"] for row in raw}
    if held != wanted:
        yield f"raw lacks {len(wanted - held)} tuples that were not retired and has {len(held - wanted)} others"
    refused, _ = _rejected(lake)
    if refused != bad:
        yield f"rejected has {refused} records for {bad}"


def _rejected(lake: Path) -> tuple[int, int]:
    """Return the number of rejected records, and how many were replayed and rejected again by another batch."""
    rows = [row for row in table_rows(lake / "rejected") if row["stream"] == AWKWARD]
    different = len({(row["file"], row["line"]) for row in rows})
    return different, len(rows) - different


def _of_ledger(lake: Path, batches: list[Row], records: int) -> Iterator[str]:
    lines = [row for row in table_rows(lake / "ledger") if row["subject"] == AWKWARD]
    totals = [row for row in lines if row["dimension_kind"] == "total"]
    for row in lines:
        if row["offered"] != row["kept"] + row["shed"] + row["deduplicated"] + row["rejected"]:
            yield f"{row['stage']} of batch {row['batch']} does not balance"
    places = Counter((row["batch"], row["stage"], row["unit"]) for row in totals)
    for place, times in places.items():
        if times > 1:
            yield f"the ledger has {place} {times} times"
    way: dict[tuple[int, str], list[Row]] = {}
    for row in totals:
        if row["ordinal"] >= 0:
            way.setdefault((row["batch"], row["unit"]), []).append(row)
    for (batch, unit), stages in way.items():
        ordered = sorted(stages, key=lambda row: row["ordinal"])
        for before, then in pairwise(ordered):
            if before["kept"] != then["offered"]:
                yield f"batch {batch}: {then['stage']} was offered other {unit} than {before['stage']} kept"
    taken = sum(row["offered"] for row in totals if row["stage"] == "intake" and row["unit"] == "rows")
    _, again = _rejected(lake)
    if taken != records + again:
        yield f"intake was offered {taken} records of {records} that were delivered and {again} that were replayed"
    sent = Counter(row["batch"] for row in table_rows(lake / "transmitted" / AWKWARD))
    kept = {row["batch"]: row["kept"] for row in totals if row["stage"] == "sent" and row["unit"] == "rows"}
    for batch in {row["batch"] for row in batches if row["rows"]}:
        if kept.get(batch) != sent.get(batch, 0):
            yield f"batch {batch}: {kept.get(batch)} rows were told to be sent, {sent.get(batch, 0)} lie there"
