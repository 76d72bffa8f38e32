"""Build sketches from slices of the rows, and merge the partial sketches.

A partial sketch is a payload for each batch and sketch. The result does not depend on the number of slices.

Heavy keys need two passes. The first pass counts the rows in buckets, by the lowest 16 bits of their keys. If a key has
at least the required share of the rows, its bucket has at least that number of rows as well. Few buckets have. The
second pass counts exactly the keys of these buckets and stores their values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from spillway.sketches.binary import StoredSketch
from spillway.sketches.column_keys import keys_of
from spillway.sketches.query import merge_sketches, read_sketch
from spillway.sketches.specification import SketchSpec
from spillway.sketches.types import Booleans, Integers, Keys
from spillway.sketches.values import json_values

BUCKETS = 1 << 16


@dataclass(frozen=True)
class PartialSketch:
    """The partial sketch of one slice of the rows of a batch, for the specification at index `place`.

    `buckets` and `counts`: the key buckets with rows and their numbers of rows, if heavy keys are required.
    """

    place: int
    batch: int
    rows: int
    payload: bytes
    buckets: Integers
    counts: Integers


@dataclass(frozen=True)
class MergedSketch:
    """The merged sketch of a batch for the specification at index `place`.

    `buckets`: the key buckets that may have heavy keys.
    """

    place: int
    batch: int
    rows: int
    sketch: StoredSketch
    buckets: Integers


def sketched_columns(specs: Sequence[SketchSpec]) -> list[str]:
    """Return the columns of a stream's rows that the sketches need."""
    return list(dict.fromkeys(["seq", "batch", *(name for spec in specs for name in spec.attributes)]))


def build_partial_sketches(
    specs: Sequence[SketchSpec], batches: Collection[int], tables: Iterable[pa.Table]
) -> list[PartialSketch]:
    """Return the partial sketches of these rows for each wanted batch and each specification."""
    held: dict[tuple[int, int], tuple[StoredSketch, Integers]] = {}
    rows: dict[int, int] = {}
    for table in tables:
        for batch, mine in _by_batch(table, batches):
            rows[batch] = rows.get(batch, 0) + mine.num_rows
            for place, spec in enumerate(specs):
                if (place, batch) not in held:
                    size = 0 if spec.heavy_share is None else BUCKETS
                    held[place, batch] = spec.kind_object.empty_part(spec), np.zeros(size, np.int64)
                sketch, counts = held[place, batch]
                keys = spec.kind_object.add_rows(sketch, spec, mine)
                if keys is not None and counts.size:
                    _count_buckets(keys, counts)
    found = []
    for (place, batch), (sketch, counts) in held.items():
        buckets = np.flatnonzero(counts)
        found.append(PartialSketch(place, batch, rows[batch], sketch.to_bytes(), buckets, counts[buckets]))
    return found


def merge_partial_sketches(specs: Sequence[SketchSpec], parts: Iterable[PartialSketch]) -> list[MergedSketch]:
    """Merge the partial sketches to one sketch for each batch and specification."""
    groups: dict[tuple[int, int], list[PartialSketch]] = {}
    for part in parts:
        groups.setdefault((part.place, part.batch), []).append(part)
    found = []
    for (place, batch), mine in sorted(groups.items()):
        rows = sum(part.rows for part in mine)
        counts = np.zeros(BUCKETS, np.int64)
        for part in mine:
            counts[part.buckets] += part.counts
        share = specs[place].heavy_share
        buckets = np.flatnonzero(counts >= share * rows) if share is not None else np.empty(0, np.int64)
        sketch = merge_sketches(
            [read_sketch(part.payload, specs[place].types, specs[place].attributes) for part in mine]
        )
        found.append(MergedSketch(place, batch, rows, sketch, buckets))
    return found


def count_keys_in_buckets(
    spec: SketchSpec, buckets: Mapping[int, Integers], tables: Iterable[pa.Table]
) -> pa.Table:
    """Return the keys of each batch that are in its `buckets`, with their counts and the values of one row."""
    wanted = {}
    for batch, mine in buckets.items():
        wanted[batch] = np.zeros(BUCKETS, np.bool_)
        wanted[batch][mine] = True
    found = []
    for table in tables:
        for batch, rows in _by_batch(table, wanted):
            keys = keys_of(rows, spec.attributes, spec.types, spec.seed)
            distinct, counts, firsts = _count_keys(keys, wanted[batch])
            counted = {"batch": np.full(distinct.size, batch), "key": distinct, "count": counts}
            values = rows.select(list(spec.attributes)).take(pa.array(firsts)).columns
            labels = dict(zip(_labels(spec), values, strict=True))
            found.append(pa.table({**counted, **labels}))
    return _sum_by_key(found)


def heavy_labels(
    spec: SketchSpec, found: Sequence[pa.Table], rows: Mapping[int, int]
) -> dict[int, dict[int, tuple[list[Any], int]]]:
    """Return, by batch, the keys with at least the required share of its `rows`: their values for JSON, and counts."""
    table = _sum_by_key(found)
    if not table.num_rows:
        return {}
    least = np.array([(spec.heavy_share or 0.0) * rows[batch] for batch in table["batch"].to_pylist()])
    table = table.filter(pa.array(np.asarray(table["count"]) >= least))
    columns = [json_values(table[name], kind) for name, kind in zip(_labels(spec), spec.types, strict=True)]
    labels: dict[int, dict[int, tuple[list[Any], int]]] = {}
    numbers = (table[name].to_pylist() for name in ("batch", "key", "count"))
    for batch, key, count, *values in zip(*numbers, *columns, strict=True):
        labels.setdefault(batch, {})[key] = values, count
    return labels


def _by_batch(rows: pa.Table, wanted: Collection[int]) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each wanted batch; most tables have only one batch."""
    numbers = np.asarray(rows["batch"])
    for number in numbers[:1] if (numbers == numbers[:1]).all() else np.unique(numbers):
        if int(number) in wanted:
            mine = numbers == number
            yield int(number), rows if mine.all() else rows.filter(pa.array(mine))


def _labels(spec: SketchSpec) -> list[str]:
    """Return names for the value columns that no attribute has; an attribute may have the name `count`."""
    return [f"value {place}" for place in range(len(spec.attributes))]


def _sum_by_key(tables: Sequence[pa.Table]) -> pa.Table:
    """Return one row per batch and key, with the sum of its counts."""
    filled = [table for table in tables if table.num_rows]
    if not filled:
        return pa.table({"batch": pa.array([], pa.int64())})
    table = pa.concat_tables(filled, promote_options="permissive")
    batch, key, count = (np.asarray(table[name]) for name in ("batch", "key", "count"))
    order = np.lexsort((key, batch))
    batch, key = batch[order], key[order]
    firsts = np.flatnonzero(np.r_[True, (batch[1:] != batch[:-1]) | (key[1:] != key[:-1])])
    sums = pa.array(np.add.reduceat(count[order], firsts))
    one = table.take(pa.array(order[firsts]))
    return one.set_column(one.column_names.index("count"), "count", sums)


@njit(cache=True)
def _count_buckets(keys: Keys, counts: Integers) -> None:
    for index in range(keys.size):
        counts[keys[index] & np.uint64(0xFFFF)] += 1


@njit(cache=True)
def _count_keys(keys: Keys, wanted: Booleans) -> tuple[Keys, Integers, Integers]:
    """Return the distinct keys in wanted buckets, the count of each, and the index of its first row."""
    chosen = 0
    for index in range(keys.size):
        chosen += wanted[keys[index] & np.uint64(0xFFFF)]
    capacity = 16
    while capacity < 2 * chosen:
        capacity *= 2
    mask = np.uint64(capacity - 1)
    slots = np.full(capacity, -1, dtype=np.int64)
    distinct = np.empty(chosen, dtype=np.uint64)
    counts = np.zeros(chosen, dtype=np.int64)
    firsts = np.empty(chosen, dtype=np.int64)
    held = 0
    for index in range(keys.size):
        key = keys[index]
        if not wanted[key & np.uint64(0xFFFF)]:
            continue
        # the low bits have few different values, those of the wanted buckets, so higher bits select the slot
        at = (key >> np.uint64(16)) & mask
        while slots[at] >= 0 and distinct[slots[at]] != key:
            at = (at + np.uint64(1)) & mask
        if slots[at] < 0:
            slots[at] = held
            distinct[held] = key
            firsts[held] = index
            held += 1
        counts[slots[at]] += 1
    return distinct[:held], counts[:held], firsts[:held]
