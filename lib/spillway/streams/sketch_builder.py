"""Sketch streams: summarise each batch as the contract's `sketches` say, and merge the sketches of each closed date.

A batch has one row per sketch in the table `sketches`. If the sketches of a batch are made again, they replace its
rows; the rows of other batches stay. If a contract gains or changes a sketch, it is made for every batch whose tuples
are still in `raw`. The sketches of days are merged into any range on request (`spillway ask`,
`streams.stored_sketches`).

Tasks of the engine read slices of the stream's files, only the columns that the sketches need. They return one small
payload per batch and sketch. The result does not depend on the number of files, of cores or of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import HELD, Batch
from spillway.contracts import StreamContract
from spillway.engine.protocol import Step, results_of, split_evenly
from spillway.errors import InvalidValue
from spillway.sketches.build import (
    PartialSketch,
    build_partial_sketches,
    count_keys_in_buckets,
    heavy_labels,
    merge_partial_sketches,
    sketched_columns,
)
from spillway.sketches.query import load_stored_sketch
from spillway.sketches.specification import SketchSpec
from spillway.sketches.types import Integers
from spillway.store.batches import load_batches
from spillway.store.files import DataFile, rows_of
from spillway.store.filters import match_mask
from spillway.store.tables import Between, Tables, replace_rows
from spillway.streams.stored_sketches import PAYLOAD, sketches_by_date, sketches_digest

PIECE_ROWS = 1_000_000
"""The approximate number of rows that a task reads.

It must not depend on the number of cores, because a quantile sketch keeps other items if the slices differ.
"""
_ROWS_AT_A_TIME = 262_144
_IDENTITY = ("batch", "kind", "name", "parameters", "seed")
"""The columns of `sketches` that say which sketch a row has."""

Buckets = dict[int, dict[int, Integers]]
"""The buckets that hold heavy keys, by position of the specification and by batch."""


def sketch_specs(contract: StreamContract) -> list[SketchSpec]:
    """Return the sketches that the contract specifies."""
    types = {attribute.name: attribute.type for attribute in contract.attributes}
    return [SketchSpec.from_contract(entry, types, contract.stream) for entry in contract.sketches]


def sketch_stream(
    tables: Tables,
    contract: StreamContract,
    say: Callable[[str], None] = lambda _: None,
    dates: tuple[date, date] | None = None,
) -> Step[int]:
    """Make the missing sketches, or all of the dates `from..to`; return the number of sketches written.

    The step shares its jobs with other streams.
    """
    specs = sketch_specs(contract)
    if not specs:
        return 0
    have: Collection[tuple[Any, ...]] = ()
    where: dict[str, Any] = {}
    if dates is not None:
        where["batch_date"] = Between(*dates)
    else:
        where["batch"], have = _missing_sketches(tables, contract.stream, specs)
    there = load_batches(tables, contract.stream, status=HELD, rows=Between(1), **where)
    written = 0
    for missing, batches in _group_by_missing(specs, there, have):
        written += yield from _write_sketches(tables, contract.stream, missing, batches)
    summarise_days(tables, contract.stream, specs, {batch.batch_date for batch in there})
    if written:
        say(f"{contract.stream}: sketched {', '.join(f'{spec.kind} of {spec.name}' for spec in specs)}")
    return written


def batches_without_sketch(tables: Tables, contract: StreamContract) -> set[int]:
    """Return the batches that a sketch of the contract is still missing for; their raw tuples are needed."""
    specs = [spec for spec in sketch_specs(contract) if spec.kind_object.merges]
    if not specs:
        return set()
    return set(_missing_sketches(tables, contract.stream, specs)[0])


def build_sketch_rows(
    files: Sequence[DataFile],
    batches: Mapping[int, date],
    stream: str,
    specs: Sequence[SketchSpec],
) -> Step[list[dict[str, Any]]]:
    """Return rows of `sketches` for each batch with rows in the files, and each sketch that can be merged."""
    specs = [spec for spec in specs if spec.kind_object.merges]
    if not specs or not files:
        return []
    total = sum(file.records for file in files)
    pieces = split_evenly(files, -(-total // PIECE_ROWS), weight=lambda file: file.records)
    parts = yield from results_of(partial(_partial_sketches, specs, frozenset(batches)), pieces)
    wholes = merge_partial_sketches(specs, chain.from_iterable(parts))
    buckets: Buckets = {}
    for whole in wholes:
        if whole.buckets.size:
            buckets.setdefault(whole.place, {})[whole.batch] = whole.buckets
    found = (yield from results_of(partial(_keys_in_buckets, specs, buckets), pieces)) if buckets else []
    heavy = {}
    for place in buckets:
        rows = {whole.batch: whole.rows for whole in wholes if whole.place == place}
        heavy[place] = heavy_labels(specs[place], [tables[place] for tables in found], rows)
    made = []
    for whole in wholes:
        spec = specs[whole.place]
        sketch = spec.kind_object.finish(spec, whole.sketch, heavy.get(whole.place, {}).get(whole.batch, {}))
        counters = spec.kind_object.counters(sketch)
        of_batch = (stream, whole.batch, batches[whole.batch], whole.rows, sketch.to_bytes())
        made.append(spec.row(*of_batch, counters=counters))
    return sorted(made, key=lambda row: (row["batch"], row["kind"], row["name"]))


def summarise_days(
    tables: Tables, stream: str, specs: Sequence[SketchSpec], touched: Collection[date] = ()
) -> int:
    """Write one row for each closed date and each mergeable sketch, if its batches have the same parameters.

    A date is closed when a later one has begun. The dates since the last summarised one are examined, and those in
    `touched`, whose batches may have new sketches. Return the number of rows written.
    """
    tables = tables.now()
    written = 0
    for spec in (spec for spec in specs if spec.kind_object.merges):
        where = {"stream": stream, "kind": spec.kind, "name": spec.name}
        rows = tables.at("daily_sketches").rows(["batch_date", "made_of"], **where).to_pylist()
        have = {row["batch_date"]: row["made_of"] for row in rows}
        newest = max(have, default=None)
        known = sketches_by_date(tables, **where, batch_date=Between(newest))
        earlier = [day for day in touched if newest is not None and day < newest]
        known |= sketches_by_date(tables, **where, batch_date=earlier) if earlier else {}
        for day, mine in sorted(known.items())[:-1]:
            made_of = sketches_digest(mine)
            if have.get(day) == made_of or len(mine) < 2 or len({row["parameters"] for row in mine}) > 1:
                continue
            batches = [row["batch"] for row in mine]
            sketched = tables.at("sketches").rows(PAYLOAD, batch=batches, **where).to_pylist()
            try:
                whole = load_stored_sketch(sketched, stream, spec.name, spec.kind)
                of_day = spec.kind_object.close_day(spec, whole.sketch)
            except InvalidValue:
                continue  # if a sketch cannot be read, the error is reported when its batch is read
            last = sketched[-1]
            one = {
                name: last[name] for name in ("attributes", "parameters", "seed", "format_version", "batch")
            }
            one |= {"batches": len(mine), "rows": whole.covers.rows, "made_of": made_of}
            one |= {"payload": of_day.to_bytes(), "counters": spec.kind_object.counters(of_day)}
            tables.at("daily_sketches").replace(
                [{**where, "batch_date": day, **one}], **where, batch_date=day
            )
            written += 1
    return written


def _partial_sketches(
    specs: Sequence[SketchSpec], batches: frozenset[int], files: Sequence[DataFile]
) -> list[PartialSketch]:
    return build_partial_sketches(specs, batches, _rows(files, specs))


def _keys_in_buckets(
    specs: Sequence[SketchSpec], buckets: Buckets, files: Sequence[DataFile]
) -> dict[int, pa.Table]:
    return {
        place: count_keys_in_buckets(specs[place], mine, _rows(files, [specs[place]]))
        for place, mine in buckets.items()
    }


def _rows(files: Sequence[DataFile], specs: Sequence[SketchSpec]) -> Iterator[pa.Table]:
    for file in files:
        yield from rows_of(file, sketched_columns(specs), _ROWS_AT_A_TIME)


def _missing_sketches(
    tables: Tables, stream: str, specs: Sequence[SketchSpec]
) -> tuple[list[int], frozenset[tuple[Any, ...]]]:
    """Return the batches that lack a sketch, and the sketches that they do have, as tuples of `_IDENTITY`."""
    held = tables.at("batches").rows(["batch"], stream=stream, status=HELD, rows=Between(1))["batch"]
    rows = tables.at("sketches").rows(_IDENTITY, stream=stream)
    lacking: set[int] = set()
    for spec in specs:
        of = {"kind": spec.kind, "name": spec.name, "parameters": spec.shape_text, "seed": spec.seed}
        mine = rows.filter(match_mask(rows, of))["batch"].combine_chunks()
        lacking |= set(held.filter(pc.invert(pc.is_in(held, value_set=mine))).to_pylist())
    some = rows.filter(match_mask(rows, {"batch": lacking}))
    return sorted(lacking), frozenset(zip(*(some[name].to_pylist() for name in _IDENTITY), strict=True))


def _group_by_missing(
    specs: Sequence[SketchSpec], batches: Sequence[Batch], have: Collection[tuple[Any, ...]]
) -> Iterable[tuple[list[SketchSpec], list[Batch]]]:
    """Return the batches in groups that lack the same sketches, so that each batch is read once."""
    shapes = [(spec.kind, spec.name, spec.shape_text, spec.seed) for spec in specs]
    groups: dict[tuple[int, ...], list[Batch]] = {}
    for batch in batches:
        missing = tuple(place for place, shape in enumerate(shapes) if (batch.batch, *shape) not in have)
        if missing:
            groups.setdefault(missing, []).append(batch)
    return [([specs[place] for place in missing], found) for missing, found in groups.items()]


def _write_sketches(
    tables: Tables, stream: str, specs: Sequence[SketchSpec], batches: Sequence[Batch]
) -> Step[int]:
    days = {batch.batch: batch.batch_date for batch in batches}
    files = tables.at("raw", stream).files(batch=sorted(days), batch_date=set(days.values()))
    rows = yield from build_sketch_rows(files, days, stream, specs)
    for spec in specs:
        mine = [row for row in rows if (row["kind"], row["name"]) == (spec.kind, spec.name)]
        scope = {"stream": stream, "batch": sorted(days), "kind": spec.kind, "name": spec.name}
        yield from replace_rows(tables.at("sketches"), mine, **scope)
    return len(rows)
