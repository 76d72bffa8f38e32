"""Load stored sketches: list what a stream has, and load a sketch over a range of dates.

No compiler and no engine is loaded here, so that a query is answered in less time than either needs to start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from spillway.errors import InvalidValue
from spillway.sketches.binary import digest
from spillway.sketches.kinds import kind_of
from spillway.sketches.kinds.base import LoadedSketch
from spillway.sketches.query import check_no_dates, load_stored_sketch, no_such_dates, no_such_sketch
from spillway.store.tables import Between, Tables

PAYLOAD = (
    *("stream", "kind", "name", "attributes", "batch", "batch_date", "parameters", "seed", "format_version"),
    *("rows", "payload"),
)
_OF_DAY = ("batches", "made_of")
"""The columns of a daily row that answers need, without the counters that other readers use."""


def load_sketch(
    tables: Tables,
    stream: str,
    name: str,
    kind: str,
    from_date: date | None = None,
    to_date: date | None = None,
) -> LoadedSketch:
    """Return the stored sketch of a range of dates, ready for queries.

    A summarised day is read as one row if it was made of the very sketches that its batches have now.
    """
    tables = tables.now()
    if not kind_of(kind).merges:
        return _load_state(tables, stream, name, kind, from_date, to_date)
    where: dict[str, Any] = {"stream": stream, "kind": kind, "name": name}
    dates: dict[str, Any] = {"batch_date": Between(from_date, to_date)}
    table = tables.at("sketches")
    daily = tables.at("daily_sketches").rows([*_OF_DAY, *PAYLOAD], **where, **dates).to_pylist()
    known = sketches_by_date(tables, **where, **dates) if daily else {}
    days = [row for row in daily if sketches_digest(known.get(row["batch_date"], ())) == row["made_of"]]
    summed = {row["batch_date"] for row in days}
    of_days = {row["batch"] for day in summed for row in known[day]}
    single = [row["batch"] for day, rows in known.items() if day not in summed for row in rows]
    # if no day is summarised yet, a file is opened once
    asked = dates if not daily else {"batch": single}
    rows = table.rows(PAYLOAD, **where, **asked).to_pylist() if single or not daily else []
    if not days and not rows:
        raise _nothing_there(tables, stream, name, kind, from_date, to_date)
    held = tables.at("batches").rows(["batch"], stream=stream, rows=Between(1), **dates)["batch"].to_pylist()
    missing = set(held) - of_days - {row["batch"] for row in rows}
    return load_stored_sketch([*days, *rows], stream, name, kind, missing=len(missing))


def _load_state(
    tables: Tables, stream: str, name: str, kind: str, from_date: date | None, to_date: date | None
) -> LoadedSketch:
    """Return the newest state, with the number of later batches with rows."""
    check_no_dates(name, from_date, to_date)
    where = {"stream": stream, "kind": kind, "name": name}
    newest = max(tables.at("sketches").rows(["batch"], **where)["batch"].to_pylist(), default=None)
    if newest is None:
        raise _nothing_there(tables, stream, name, kind, None, None)
    rows = tables.at("sketches").rows(PAYLOAD, batch=newest, **where).to_pylist()
    later = tables.at("batches").rows(["batch"], stream=stream, rows=Between(1), batch=Between(newest + 1))
    return load_stored_sketch(rows, stream, name, kind, missing=later.num_rows)


def _nothing_there(
    tables: Tables, stream: str, name: str, kind: str, from_date: date | None, to_date: date | None
) -> InvalidValue:
    there = tables.at("sketches").rows(["kind", "name", "batch_date"], stream=stream).to_pylist()
    mine = [row["batch_date"] for row in there if (row["kind"], row["name"]) == (kind, name)]
    return no_such_dates(mine, from_date, to_date) if mine else no_such_sketch(there, name, kind)


@dataclass(frozen=True)
class SketchCoverage:
    """A sketch of a stream, and what it covers."""

    kind: str
    name: str
    from_date: date
    to_date: date
    batches: int
    rows: int


def list_sketches(tables: Tables, stream: str) -> list[SketchCoverage]:
    """Return the sketches of a stream, by name."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in tables.at("sketches").rows(["kind", "name", "batch_date", "rows"], stream=stream).to_pylist():
        found.setdefault((row["name"], row["kind"]), []).append(row)
    return [
        SketchCoverage(
            kind,
            name,
            min(row["batch_date"] for row in rows),
            max(row["batch_date"] for row in rows),
            len(rows),
            sum(row["rows"] for row in rows),
        )
        for (name, kind), rows in sorted(found.items())
    ]


def sketches_by_date(tables: Tables, **where: Any) -> dict[date, list[dict[str, Any]]]:
    """Return the stored sketches without their payload, by date and in order."""
    columns = ["batch", "batch_date", "digest", "parameters", "seed"]
    rows = tables.at("sketches").rows(columns, **where).to_pylist()
    found: dict[date, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda one: (one["batch_date"], one["batch"])):
        found.setdefault(row["batch_date"], []).append(row)
    return found


def sketches_digest(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a digest of the sketches of a day, by which a summarised day is compared with them.

    If the seeds differ, they are part of it, because older versions summarised such sketches, which cannot be merged.
    """
    told = [f"{row['batch']} {row['digest']} {row['parameters']}" for row in rows]
    seeds = {row["seed"] for row in rows}
    return digest("|".join([*told, *map(str, sorted(seeds) if len(seeds) > 1 else ())]).encode())
