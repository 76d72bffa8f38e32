"""Rows that were delivered before: found exactly, or suspected by a stable Bloom filter, and kept aside.

Opt-in (`duplicates.rows` in the contract), because real rows repeat. A row is the same as another when the attributes
`duplicates.on` are (null equals null, NaN equals NaN, 0.0 equals -0.0), whenever the other came. `exact` looks into
all of `raw` that is still there. `stable_bloom` keeps `memory_kib` for a stream of any length and looks into that
alone; it may take a new row for an old one, so that what it suspects is looked up afterwards, and the ledger says how
often it was wrong beside how often it was expected to be. Either way the row leaves the stream and stands in `rejected`
with its values: none is lost.

Rows are looked up by a 64-bit fingerprint first, which is small enough to travel to every piece of the history. What
that finds is compared by its values, so that two rows of one fingerprint are never taken for one. Memory is that of
the batch's fingerprints and of the values of the rows that are found.

The filter's state after each batch is a row of `sketches`, which names the state it went on from. A batch written again
starts where it had started, so it ends in the same rows.

>>> import pyarrow as pa
>>> rows = pa.table({"seq": [4, 5, 6, 7], "k": pa.array([None, 1.0, None, 2.0])})
>>> repeated_seqs([rows], ("k",), ("double",)).tolist()
[6]
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import Batch
from spillway.contracts import StreamContract
from spillway.engine.dividing import in_pieces
from spillway.engine.protocol import Engine
from spillway.sketches.column_keys import keys_of
from spillway.sketches.specification import SketchSpec
from spillway.sketches.stable_bloom import StableBloom
from spillway.sketches.types import Booleans, Integers, Keys
from spillway.sketches.values import json_values
from spillway.store.files import DataFile, RowReader, rows_of
from spillway.store.tables import Between, Tables

DELIVERED_BEFORE = "delivered before"
"""The reason of such rows in `rejected`; all others are defects."""
_SEED = 1
_PIECES_A_CORE = 4
_ROWS_AT_A_TIME = 262_144


@dataclass(frozen=True)
class Repeated:
    """What one batch repeats: the `seq` of those rows in order, what the ledger says, and the filter's new state.

    `state` is a row of `sketches`, to be written in the place of the batch's, and what the next batch goes on from.
    """

    rows: Integers
    reason: str
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Passed:
    """Rows after a filter: how many there were, the `seq` and fingerprints of the suspects, and its state."""

    rows: int
    suspects: Integers
    keys: Keys
    state: StableBloom


@dataclass(frozen=True)
class _Attributes:
    """What rows are compared by."""

    names: tuple[str, ...]
    types: tuple[str, ...]

    def keys(self, rows: pa.Table) -> Keys:
        return keys_of(rows, self.names, self.types, _SEED)


@dataclass(frozen=True)
class _Sides:
    """The batch's rows as stretches of its files, and the pieces of all that came before it."""

    files: tuple[DataFile, ...]
    first_seq: int
    last_seq: int
    stretches: tuple[tuple[int, int], ...]
    history: tuple[tuple[DataFile, ...], ...]


def find_repeated(
    engine: Engine,
    contract: StreamContract,
    batch: Batch,
    files: Sequence[DataFile],
    history: Sequence[DataFile],
    before: Mapping[str, Any] | None = None,
) -> Repeated | None:
    """The rows of the batch that were delivered before; None where the contract does not ask.

    `files` hold the rows of the batch, `history` those of all batches before it (rows of others in them do not count).
    `before` is the state that the filter goes on from (`filter_before`, or the last batch's `Repeated.state`).
    """
    if contract.duplicates.rows == "none":
        return None
    spread = _PIECES_A_CORE * engine.cores
    sides = _Sides(
        tuple(files),
        batch.first_seq,
        batch.last_seq,
        _stretches(batch.first_seq, batch.last_seq, spread),
        tuple(in_pieces(history, spread, weight=lambda file: file.size)),
    )
    if contract.duplicates.rows == "exact":
        return Repeated(_exactly(engine, compared_by(contract), sides), "row delivered before")
    return _suspected(engine, contract, batch, sides, before)


def compared_by(contract: StreamContract) -> _Attributes:
    """The attributes in which a row must differ from every earlier one."""
    types = {attribute.name: attribute.type for attribute in contract.attributes}
    names = tuple(contract.duplicates.on or contract.names)
    return _Attributes(names, tuple(types[name] for name in names))


def filter_of(contract: StreamContract) -> SketchSpec:
    """The filter a contract asks for with `duplicates`."""
    asked, on = contract.duplicates, compared_by(contract)
    return SketchSpec(
        "stable_bloom",
        on.names,
        on.types,
        memory_kib=asked.memory_kib,
        seed=_SEED,
        false_positive_pct=asked.false_positive_pct,
        shards=asked.shards,
    )


def filter_before(tables: Tables, contract: StreamContract, batch: int) -> Mapping[str, Any] | None:
    """The row of `sketches` with the filter after the last batch before this one; None where none has its shape."""
    if contract.duplicates.rows != "stable_bloom":
        return None
    spec, table = filter_of(contract), tables.at("sketches")
    mine = {"stream": contract.stream, "kind": spec.kind, "name": spec.name}
    known = table.rows(["batch", "parameters"], **mine, batch=Between(high=batch - 1)).to_pylist()
    fitting = [row["batch"] for row in known if row["parameters"] == spec.shape_text]
    if not fitting:
        return None
    found: Mapping[str, Any] = table.rows(**mine, batch=max(fitting)).to_pylist()[0]
    return found


def repeated_seqs(parts: Sequence[pa.Table], names: Sequence[str], types: Sequence[str]) -> Integers:
    """The `seq` of every row whose values an earlier row has had, in order: by values and nothing else."""
    rows = pa.concat_tables([part.select(["seq", *names]) for part in parts], promote_options="permissive")
    if not rows.num_rows:
        return np.empty(0, np.int64)
    seqs = np.asarray(rows["seq"])
    alike = np.zeros(len(seqs), np.int64)
    for name, kind in zip(names, types, strict=True):
        codes = _codes(rows[name], kind)
        # two numbers become one, and that small again before the next attribute
        _, alike = np.unique(alike * (int(codes.max()) + 1) + codes, return_inverse=True)
    firsts = np.full(int(alike.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(firsts, alike, seqs)
    return np.sort(seqs[seqs > firsts[alike]])


def kept_aside(contract: StreamContract, batch: Batch, rows: pa.Table) -> pa.Table:
    """The batch's repeated `rows` as `rejected` has them: file and line they came from, and their values as JSON."""
    seqs = np.asarray(rows["seq"].cast(pa.int64()))
    taken = sorted(batch.taken, key=lambda file: file.base_seq)
    bases = np.array([file.base_seq for file in taken], np.int64)
    # record n of a file has seq base + n
    places = np.searchsorted(bases, seqs, side="left") - 1
    return pa.table(
        {
            "stream": pa.repeat(contract.stream, len(seqs)),
            "batch": pa.repeat(pa.scalar(batch.batch, pa.int64()), len(seqs)),
            "batch_date": pa.repeat(pa.scalar(batch.batch_date, pa.date32()), len(seqs)),
            "seq": pa.array(seqs),
            "file": pa.array([taken[place].name for place in places], pa.string()),
            "line": pa.array(seqs - bases[places] if len(seqs) else seqs),
            "field": pa.nulls(len(seqs), pa.string()),
            "rule": pa.repeat(
                f"differ from every earlier row in {', '.join(compared_by(contract).names)}", len(seqs)
            ),
            "value": pa.nulls(len(seqs), pa.string()),
            "remedy": pa.repeat(
                "nothing, if it was delivered twice; otherwise set duplicates.rows: none in the contract",
                len(seqs),
            ),
            "reason": pa.repeat(DELIVERED_BEFORE, len(seqs)),
            "original": pa.array(_as_json(contract, rows), pa.binary()),
        }
    )


def _exactly(engine: Engine, on: _Attributes, sides: _Sides) -> Integers:
    found = engine.map(partial(_fingerprints, on, sides.files), sides.stretches)
    mine, counts = np.unique(np.concatenate([np.empty(0, np.uint64), *found]), return_counts=True)
    known = engine.map(partial(_known, on, mine, sides.first_seq), sides.history)
    wanted = np.unique(np.concatenate([mine[counts > 1], *known]))
    return _confirmed(engine, on, sides, wanted)


def _suspected(
    engine: Engine, contract: StreamContract, batch: Batch, sides: _Sides, before: Mapping[str, Any] | None
) -> Repeated:
    spec, on = filter_of(contract), compared_by(contract)
    start = bytes(before["payload"]) if before is not None else None
    passed = pass_through(engine, spec, sides.files, (sides.first_seq, sides.last_seq), start)
    truly = np.intersect1d(passed.suspects, _confirmed(engine, on, sides, np.unique(passed.keys))).size
    row = spec.row(
        contract.stream,
        batch.batch,
        batch.batch_date,
        passed.rows,
        passed.state.to_bytes(),
        before["batch"] if before is not None else None,
        before["digest"] if before is not None else None,
    )
    return Repeated(np.sort(passed.suspects), _told(spec, passed, truly), row)


def pass_through(
    engine: Engine,
    spec: SketchSpec,
    files: Sequence[DataFile],
    seq: tuple[int, int],
    before: bytes | None = None,
) -> Passed:
    """Pass the rows `seq` (from, to) through the filter in their order, each shard by one task."""
    start = before or spec.empty().to_bytes()
    tasks = min(spec.shards, engine.cores)
    parts = engine.map(partial(_shards_passed, spec, start, tuple(files), seq, tasks), range(tasks))
    state = StableBloom.from_bytes(start)
    for task, part in enumerate(parts):
        state.absorb_shards(part.state, range(task, spec.shards, tasks))
    suspects, keys = (
        np.concatenate(all_) for all_ in zip(*((p.suspects, p.keys) for p in parts), strict=True)
    )
    return Passed(sum(part.rows for part in parts), suspects, keys, state)


def _told(spec: SketchSpec, passed: Passed, truly: int) -> str:
    """How often the filter was wrong, beside the bound of its theory."""
    wrong = 100.0 * (passed.suspects.size - truly) / max(1, passed.rows - truly)
    bound = 100.0 * passed.state.parameters.false_positive_bound
    return (
        f"row suspected by a filter of {spec.memory_kib:,} KiB: {truly:,} were truly delivered before; "
        f"{wrong:.3g} % of the new rows taken for old, at most {bound:.3g} % "
        "expected"
    )


def _confirmed(engine: Engine, on: _Attributes, sides: _Sides, wanted: Keys) -> Integers:
    """The batch's rows that truly repeat an earlier one, among those of the wanted fingerprints."""
    if not wanted.size:
        return np.empty(0, np.int64)
    mine = engine.map(partial(_alike, on, wanted, sides.files), sides.stretches)
    before = engine.map(partial(_alike_before, on, wanted, sides.first_seq), sides.history)
    found = repeated_seqs([*mine, *before], on.names, on.types)
    return found[found >= sides.first_seq]


def _shards_passed(
    spec: SketchSpec,
    start: bytes,
    files: Sequence[DataFile],
    seq: tuple[int, int],
    tasks: int,
    task: int,
) -> Passed:
    """Every task reads all rows and takes those of its shards, so that none is moved or sorted."""
    sketch, read = StableBloom.from_bytes(start), RowReader(files)
    suspects, doubtful, rows = [np.empty(0, np.int64)], [np.empty(0, np.uint64)], 0
    for low in range(seq[0], seq[1] + 1, RowReader.AT_A_TIME):
        part = read(spec.attributes, low, min(seq[1], low + RowReader.AT_A_TIME - 1))
        keys, places = keys_of(part, spec.attributes, spec.types, spec.seed), np.asarray(part["seq"])
        if tasks > 1:
            mine = sketch.shard_of(keys) % np.uint64(tasks) == task
            keys, places = keys[mine], places[mine]
        found = sketch.observe(keys)
        rows += keys.size
        suspects.append(places[found])
        doubtful.append(keys[found])
    return Passed(rows, np.concatenate(suspects), np.concatenate(doubtful), sketch)


def _stretches(first: int, last: int, most: int) -> tuple[tuple[int, int], ...]:
    """The rows from `first` to `last` in at most `most` stretches, none of them tiny."""
    size = max(-(-(last - first + 1) // most), RowReader.AT_A_TIME)
    return tuple((low, min(last, low + size - 1)) for low in range(first, last + 1, size))


def _fingerprints(on: _Attributes, files: Sequence[DataFile], stretch: tuple[int, int]) -> Keys:
    return on.keys(_stretch(on, files, stretch))


def _known(on: _Attributes, mine: Keys, first_seq: int, files: Sequence[DataFile]) -> Keys:
    """Which of the batch's (sorted) fingerprints earlier rows of these files have."""
    found = [np.empty(0, np.uint64)]
    for rows in _earlier(on, first_seq, files):
        keys = on.keys(rows)
        found.append(np.unique(keys[_among(keys, mine)]))
    return np.unique(np.concatenate(found))


def _alike(on: _Attributes, wanted: Keys, files: Sequence[DataFile], stretch: tuple[int, int]) -> pa.Table:
    rows = _stretch(on, files, stretch)
    return rows.filter(pa.array(_among(on.keys(rows), wanted)))


def _alike_before(on: _Attributes, wanted: Keys, first_seq: int, files: Sequence[DataFile]) -> pa.Table:
    """The first row of each value of the wanted fingerprints."""
    found = [_nothing(on)]
    for rows in _earlier(on, first_seq, files):
        found.append(rows.filter(pa.array(_among(on.keys(rows), wanted))))
    alike = pa.concat_tables(found, promote_options="permissive")
    again = repeated_seqs([alike], on.names, on.types)
    return alike.filter(pc.invert(pc.is_in(alike["seq"], value_set=pa.array(again))))


def _stretch(on: _Attributes, files: Sequence[DataFile], stretch: tuple[int, int]) -> pa.Table:
    rows = RowReader(files)(on.names, *stretch)
    return rows.select(["seq", *on.names])


def _earlier(on: _Attributes, first_seq: int, files: Sequence[DataFile]) -> Iterator[pa.Table]:
    for file in files:
        for rows in rows_of(file, ["seq", *on.names], _ROWS_AT_A_TIME):
            yield rows.filter(pc.less(rows["seq"], first_seq))


def _nothing(on: _Attributes) -> pa.Table:
    return pa.table({"seq": pa.array([], pa.int64()), **{name: pa.nulls(0) for name in on.names}})


def _among(keys: Keys, known: Keys) -> Booleans:
    """Which keys are in the sorted `known`."""
    if not known.size:
        return np.zeros(keys.size, np.bool_)
    found: Booleans = known[np.minimum(np.searchsorted(known, keys), known.size - 1)] == keys
    return found


def _codes(column: pa.ChunkedArray, kind: str) -> Integers:
    """A number for each value, equal for equal values and no others; null is a value."""
    whole = column.combine_chunks()
    if pa.types.is_null(whole.type):
        return np.zeros(len(whole), np.int64)
    if kind == "double":
        numbers = np.asarray(pc.fill_null(whole.cast(pa.float64()), 0.0)) + 0.0
        bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
        whole = pa.array(bits, mask=np.asarray(whole.is_null()))
    return np.asarray(whole.dictionary_encode("encode").indices).astype(np.int64)


def _as_json(contract: StreamContract, rows: pa.Table) -> list[bytes]:
    """Each row as one JSON object; an attribute that is null is left out."""
    columns = [json_values(rows[a.name], a.type) for a in contract.attributes]
    return [
        json.dumps(
            {name: value for name, value in zip(contract.names, values, strict=True) if value is not None},
            ensure_ascii=False,
            separators=(",", ":"),
        ).encode("utf-8", "surrogatepass")
        for values in zip(*columns, strict=True)
    ]
