"""Sketching: what a contract's `sketches` name is summarised once per batch, beside all else that happens to it.

A batch has one row a sketch in `sketches`; a batch that is brought through again replaces its own and no other. A
sketch that a contract gains later, or changes, is made of every batch whose raw tuples are still there. Days merge into
any range when they are asked for (`spillway ask`, `spillway.sketches.query`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import Any

from spillway.contracts import StreamContract
from spillway.settings import Settings
from spillway.sketches.plan import Tuples, build
from spillway.sketches.query import Loaded, load
from spillway.sketches.specification import SketchSpec
from spillway.store.batches import RECORDED, RETIRED, Batch, load_batches
from spillway.store.files import read_table
from spillway.store.rows import stream_files
from spillway.store.table_contracts import table_contracts
from spillway.store.tables import Lake, table_path, where

Say = Callable[[str], None]


def specs_of(contract: StreamContract) -> list[SketchSpec]:
    """What the contract asks to be summarised."""
    types = {attribute.name: attribute.type for attribute in contract.attributes}
    return [SketchSpec.from_contract(entry, types) for entry in contract.sketches]


def sketch_stream(
    lake: Lake, contract: StreamContract, say: Say = lambda _: None, dates: tuple[date, date] | None = None
) -> int:
    """Build what is missing, or everything of the dates `from..to`; returns how many sketches were written."""
    specs = specs_of(contract)
    if not specs:
        return 0
    every = [b for b in load_batches(lake.settings, contract.stream) if b.rows and b.status != RECORDED]
    there = [batch for batch in every if batch.status != RETIRED]
    if dates is not None:
        there = [batch for batch in there if dates[0] <= batch.batch_date <= dates[1]]
    have = set() if dates is not None else _have(lake.settings, contract.stream)
    written = 0
    for missing, batches in _grouped(specs, there, have):
        written += _write(lake, contract, missing, batches)
    if written:
        say(f"{contract.stream}: sketched {', '.join(f'{spec.kind} of {spec.name}' for spec in specs)}")
    return written


def _have(settings: Settings, stream: str) -> set[tuple[int, str, str, str, int]]:
    columns = ["batch", "kind", "name", "parameters", "seed"]
    table = read_table(_path(settings), columns, [("stream", "=", stream)])
    return {tuple(row[name] for name in columns) for row in table.to_pylist()} if table is not None else set()


def _grouped(
    specs: Sequence[SketchSpec], batches: Sequence[Batch], have: set[tuple[int, str, str, str, int]]
) -> Iterable[tuple[list[SketchSpec], list[Batch]]]:
    """The batches that lack the same sketches, so that each is read once."""
    shapes = {id(spec): json.dumps(spec.parameters, sort_keys=True) for spec in specs}
    groups: dict[tuple[int, ...], list[Batch]] = {}
    for batch in batches:
        missing = tuple(
            place
            for place, spec in enumerate(specs)
            if (batch.batch, spec.kind, spec.name, shapes[id(spec)], spec.seed) not in have
        )
        if missing:
            groups.setdefault(missing, []).append(batch)
    return [([specs[place] for place in missing], found) for missing, found in groups.items()]


def _write(
    lake: Lake, contract: StreamContract, specs: Sequence[SketchSpec], batches: Sequence[Batch]
) -> int:
    numbers = [batch.batch for batch in batches]
    files = tuple(stream_files(lake.settings, "raw", contract.stream, batches))
    tuples = Tuples(files, {batch.batch: batch.batch_date for batch in batches})
    rows = build(lake.spark, tuples, contract.stream, specs)
    for spec in specs:
        mine = [row for row in rows if (row["kind"], row["name"]) == (spec.kind, spec.name)]
        lake.replace_rows(
            "sketches", mine, where(stream=contract.stream, batch=numbers, kind=spec.kind, name=spec.name)
        )
    return len(rows)


def load_sketch(
    settings: Settings,
    stream: str,
    name: str,
    kind: str,
    from_date: date | None = None,
    to_date: date | None = None,
) -> Loaded:
    """A stored sketch over a range of dates, ready to be asked."""
    filters: list[Any] = [("stream", "=", stream)]
    table = read_table(_path(settings), filters=filters)
    return load(table.to_pylist() if table is not None else [], stream, name, kind, from_date, to_date)


def _path(settings: Settings) -> str:
    return table_path(settings, table_contracts(settings.schemas)["sketches"])
