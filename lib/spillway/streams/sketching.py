"""Sketching: what a contract's `sketches` name is summarised once per batch, beside all else that happens to it.

A batch has one row a sketch in `sketches`; a batch that is brought through again replaces its own and no other. A
sketch that a contract gains later, or changes, is made of every batch whose raw tuples are still there. Days merge into
any range when they are asked for (`spillway ask`, `spillway.sketches.query`).

Pieces of the stream's files are read by the engine's tasks, only the columns that the sketches need, and come back as
one small payload a batch and sketch; in the result, the number of files and pieces shows nowhere.

Stored sketches as they are asked: what a stream has, and a sketch over a range of dates.

No compiler and no engine is loaded here: a question is answered in less time than either takes to begin.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import HELD, Batch
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine, in_pieces
from spillway.errors import Refused
from spillway.sketches.binary import digest
from spillway.sketches.build import SketchPart, all_parts, heavy_labels, keys_in, parts_of, sketched_columns
from spillway.sketches.kinds import kind_of
from spillway.sketches.kinds.base import Loaded
from spillway.sketches.query import check_no_dates, load, no_such_dates, no_such_sketch
from spillway.sketches.specification import SketchSpec
from spillway.sketches.types import Integers
from spillway.store.batches import load_batches
from spillway.store.files import DataFile, rows_of
from spillway.store.filters import matching
from spillway.store.tables import Between, Tables

PAYLOAD = (
    *("stream", "kind", "name", "attributes", "batch", "batch_date", "parameters", "seed", "format_version"),
    *("rows", "payload"),
)
_OF_DAY = ("batches", "made_of")
"""What answers need; not the counters that others read."""


def load_sketch(
    tables: Tables,
    stream: str,
    name: str,
    kind: str,
    from_date: date | None = None,
    to_date: date | None = None,
) -> Loaded:
    """A stored sketch over a range of dates, ready to be asked.

    A day that has been summed up is read as one row, where that is of the very sketches that its batches have now.
    """
    tables = tables.now()
    if not kind_of(kind).merges:
        return _load_state(tables, stream, name, kind, from_date, to_date)
    where: dict[str, Any] = {"stream": stream, "kind": kind, "name": name}
    dates: dict[str, Any] = {"batch_date": Between(from_date, to_date)}
    table = tables.at("sketches")
    daily = tables.at("daily_sketches").rows([*_OF_DAY, *PAYLOAD], **where, **dates).to_pylist()
    known = known_by_date(tables, **where, **dates) if daily else {}
    days = [row for row in daily if made_of_sketches(known.get(row["batch_date"], ())) == row["made_of"]]
    summed = {row["batch_date"] for row in days}
    of_days = {row["batch"] for day in summed for row in known[day]}
    single = [row["batch"] for day, rows in known.items() if day not in summed for row in rows]
    # where no day is summed up yet, a file is opened once: for what it holds
    asked = dates if not daily else {"batch": single}
    rows = table.rows(PAYLOAD, **where, **asked).to_pylist() if single or not daily else []
    if not days and not rows:
        raise _nothing_there(tables, stream, name, kind, from_date, to_date)
    held = tables.at("batches").rows(["batch"], stream=stream, rows=Between(1), **dates)["batch"].to_pylist()
    missing = set(held) - of_days - {row["batch"] for row in rows}
    return load([*days, *rows], stream, name, kind, missing=len(missing))


def _load_state(
    tables: Tables, stream: str, name: str, kind: str, from_date: date | None, to_date: date | None
) -> Loaded:
    """The newest state, and how many batches with rows came after it."""
    check_no_dates(name, from_date, to_date)
    where = {"stream": stream, "kind": kind, "name": name}
    newest = max(tables.at("sketches").rows(["batch"], **where)["batch"].to_pylist(), default=None)
    if newest is None:
        raise _nothing_there(tables, stream, name, kind, None, None)
    rows = tables.at("sketches").rows(PAYLOAD, batch=newest, **where).to_pylist()
    later = tables.at("batches").rows(["batch"], stream=stream, rows=Between(1), batch=Between(newest + 1))
    return load(rows, stream, name, kind, missing=later.num_rows)


def _nothing_there(
    tables: Tables, stream: str, name: str, kind: str, from_date: date | None, to_date: date | None
) -> Refused:
    there = tables.at("sketches").rows(["kind", "name", "batch_date"], stream=stream).to_pylist()
    mine = [row["batch_date"] for row in there if (row["kind"], row["name"]) == (kind, name)]
    return no_such_dates(mine, from_date, to_date) if mine else no_such_sketch(there, name, kind)


@dataclass(frozen=True)
class Sketched:
    """A sketch that a stream has, and what of the stream it covers."""

    kind: str
    name: str
    from_date: date
    to_date: date
    batches: int
    rows: int


def sketched(tables: Tables, stream: str) -> list[Sketched]:
    """The sketches of a stream, by name."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in tables.at("sketches").rows(["kind", "name", "batch_date", "rows"], stream=stream).to_pylist():
        found.setdefault((row["name"], row["kind"]), []).append(row)
    return [
        Sketched(
            kind,
            name,
            min(row["batch_date"] for row in rows),
            max(row["batch_date"] for row in rows),
            len(rows),
            sum(row["rows"] for row in rows),
        )
        for (name, kind), rows in sorted(found.items())
    ]


def known_by_date(tables: Tables, **where: Any) -> dict[date, list[dict[str, Any]]]:
    """What is sketched, by date and in order, without the sketches themselves."""
    columns = ["batch", "batch_date", "digest", "parameters", "seed"]
    rows = tables.at("sketches").rows(columns, **where).to_pylist()
    found: dict[date, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda one: (one["batch_date"], one["batch"])):
        found.setdefault(row["batch_date"], []).append(row)
    return found


def made_of_sketches(rows: Sequence[Mapping[str, Any]]) -> str:
    """Names the sketches of a day; those of several seeds by these too, for some were summed up that do not unite."""
    told = [f"{row['batch']} {row['digest']} {row['parameters']}" for row in rows]
    seeds = {row["seed"] for row in rows}
    return digest("|".join([*told, *map(str, sorted(seeds) if len(seeds) > 1 else ())]).encode())


PIECE_ROWS = 1_000_000
"""About what a task reads. Never a matter of how many cores there are: a sketch of ordered values keeps other items
when its pieces are others."""
_ROWS_AT_A_TIME = 262_144
_SHAPE = ("batch", "kind", "name", "parameters", "seed")
"""What tells whether a batch has a sketch already."""

Buckets = dict[int, dict[int, Integers]]
"""Where heavy keys lie: by the spec's place, by batch."""


def specs_of(contract: StreamContract) -> list[SketchSpec]:
    """What the contract asks to be summarised."""
    types = {attribute.name: attribute.type for attribute in contract.attributes}
    return [SketchSpec.from_contract(entry, types, contract.stream) for entry in contract.sketches]


def sketch_stream(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    say: Callable[[str], None] = lambda _: None,
    dates: tuple[date, date] | None = None,
) -> int:
    """Build what is missing, or everything of the dates `from..to`; returns how many sketches were written."""
    specs = specs_of(contract)
    if not specs:
        return 0
    tables = tables.now()
    have: Collection[tuple[Any, ...]] = ()
    where: dict[str, Any] = {}
    if dates is not None:
        where["batch_date"] = Between(*dates)
    else:
        where["batch"], have = _unsketched(tables, contract.stream, specs)
    there = load_batches(tables, contract.stream, status=HELD, rows=Between(1), **where)
    written = 0
    for missing, batches in _grouped(specs, there, have):
        written += _write(engine, tables, contract.stream, missing, batches)
    sum_up_days(tables, contract.stream, specs, {batch.batch_date for batch in there})
    if written:
        say(f"{contract.stream}: sketched {', '.join(f'{spec.kind} of {spec.name}' for spec in specs)}")
    return written


def unsketched(tables: Tables, contract: StreamContract) -> set[int]:
    """The batches that a sketch the contract asks for is still to be made of: their raw tuples are needed."""
    specs = [spec for spec in specs_of(contract) if spec.made_of.merges]
    if not specs:
        return set()
    return set(_unsketched(tables, contract.stream, specs)[0])


def build(
    engine: Engine,
    files: Sequence[DataFile],
    batches: Mapping[int, date],
    stream: str,
    specs: Sequence[SketchSpec],
) -> list[dict[str, Any]]:
    """Rows of `sketches` for every one of the batches that has rows in the files, and every sketch that merges."""
    specs = [spec for spec in specs if spec.made_of.merges]
    if not specs or not files:
        return []
    total = sum(file.records for file in files)
    pieces = in_pieces(files, -(-total // PIECE_ROWS), weight=lambda file: file.records)
    parts = engine.map(partial(_parts, specs, frozenset(batches)), pieces)
    wholes = all_parts(specs, chain.from_iterable(parts))
    buckets: Buckets = {}
    for whole in wholes:
        if whole.buckets.size:
            buckets.setdefault(whole.place, {})[whole.batch] = whole.buckets
    found = engine.map(partial(_keys, specs, buckets), pieces) if buckets else []
    heavy = {}
    for place in buckets:
        rows = {whole.batch: whole.rows for whole in wholes if whole.place == place}
        heavy[place] = heavy_labels(specs[place], [tables[place] for tables in found], rows)
    made = []
    for whole in wholes:
        spec = specs[whole.place]
        sketch = spec.made_of.whole(spec, whole.sketch, heavy.get(whole.place, {}).get(whole.batch, {}))
        counters = spec.made_of.counters(sketch)
        of_batch = (stream, whole.batch, batches[whole.batch], whole.rows, sketch.to_bytes())
        made.append(spec.row(*of_batch, counters=counters))
    return sorted(made, key=lambda row: (row["batch"], row["kind"], row["name"]))


def sum_up_days(
    tables: Tables, stream: str, specs: Sequence[SketchSpec], touched: Collection[date] = ()
) -> int:
    """One row for each closed date, of every sketch that merges, where its batches were sketched alike.

    A date is closed when a later one has begun. Those since the last that was summed up are looked at, and those
    `touched`, whose batches may have other sketches now. Returns how many were written.
    """
    tables = tables.now()
    written = 0
    for spec in (spec for spec in specs if spec.made_of.merges):
        where = {"stream": stream, "kind": spec.kind, "name": spec.name}
        rows = tables.at("daily_sketches").rows(["batch_date", "made_of"], **where).to_pylist()
        have = {row["batch_date"]: row["made_of"] for row in rows}
        newest = max(have, default=None)
        known = known_by_date(tables, **where, batch_date=Between(newest))
        earlier = [day for day in touched if newest is not None and day < newest]
        known |= known_by_date(tables, **where, batch_date=earlier) if earlier else {}
        for day, mine in sorted(known.items())[:-1]:
            made_of = made_of_sketches(mine)
            if have.get(day) == made_of or len(mine) < 2 or len({row["parameters"] for row in mine}) > 1:
                continue
            batches = [row["batch"] for row in mine]
            sketched = tables.at("sketches").rows(PAYLOAD, batch=batches, **where).to_pylist()
            try:
                whole = load(sketched, stream, spec.name, spec.kind)
                of_day = spec.made_of.of_day(spec, whole.sketch)
            except Refused:
                continue  # what cannot be read is read, and told, batch by batch
            last = sketched[-1]
            one = {
                name: last[name] for name in ("attributes", "parameters", "seed", "format_version", "batch")
            }
            one |= {"batches": len(mine), "rows": whole.covers.rows, "made_of": made_of}
            one |= {"payload": of_day.to_bytes(), "counters": spec.made_of.counters(of_day)}
            tables.at("daily_sketches").replace(
                [{**where, "batch_date": day, **one}], **where, batch_date=day
            )
            written += 1
    return written


def _parts(
    specs: Sequence[SketchSpec], batches: frozenset[int], files: Sequence[DataFile]
) -> list[SketchPart]:
    return parts_of(specs, batches, _rows(files, specs))


def _keys(specs: Sequence[SketchSpec], buckets: Buckets, files: Sequence[DataFile]) -> dict[int, pa.Table]:
    return {
        place: keys_in(specs[place], mine, _rows(files, [specs[place]])) for place, mine in buckets.items()
    }


def _rows(files: Sequence[DataFile], specs: Sequence[SketchSpec]) -> Iterator[pa.Table]:
    for file in files:
        yield from rows_of(file, sketched_columns(specs), _ROWS_AT_A_TIME)


def _unsketched(
    tables: Tables, stream: str, specs: Sequence[SketchSpec]
) -> tuple[list[int], frozenset[tuple[Any, ...]]]:
    """The batches that lack a sketch, and which they have."""
    held = tables.at("batches").rows(["batch"], stream=stream, status=HELD, rows=Between(1))["batch"]
    rows = tables.at("sketches").rows(_SHAPE, stream=stream)
    lacking: set[int] = set()
    for spec in specs:
        of = {"kind": spec.kind, "name": spec.name, "parameters": spec.shape_text, "seed": spec.seed}
        mine = rows.filter(matching(rows, of))["batch"].combine_chunks()
        lacking |= set(held.filter(pc.invert(pc.is_in(held, value_set=mine))).to_pylist())
    some = rows.filter(matching(rows, {"batch": lacking}))
    return sorted(lacking), frozenset(zip(*(some[name].to_pylist() for name in _SHAPE), strict=True))


def _grouped(
    specs: Sequence[SketchSpec], batches: Sequence[Batch], have: Collection[tuple[Any, ...]]
) -> Iterable[tuple[list[SketchSpec], list[Batch]]]:
    """The batches that lack the same sketches, so that each is read once."""
    shapes = [(spec.kind, spec.name, spec.shape_text, spec.seed) for spec in specs]
    groups: dict[tuple[int, ...], list[Batch]] = {}
    for batch in batches:
        missing = tuple(place for place, shape in enumerate(shapes) if (batch.batch, *shape) not in have)
        if missing:
            groups.setdefault(missing, []).append(batch)
    return [([specs[place] for place in missing], found) for missing, found in groups.items()]


def _write(
    engine: Engine, tables: Tables, stream: str, specs: Sequence[SketchSpec], batches: Sequence[Batch]
) -> int:
    days = {batch.batch: batch.batch_date for batch in batches}
    files = tables.at("raw", stream).files(batch=sorted(days), batch_date=set(days.values()))
    rows = build(engine, files, days, stream, specs)
    for spec in specs:
        mine = [row for row in rows if (row["kind"], row["name"]) == (spec.kind, spec.name)]
        scope = {"stream": stream, "batch": sorted(days), "kind": spec.kind, "name": spec.name}
        tables.at("sketches").replace(mine, **scope)
    return len(rows)
