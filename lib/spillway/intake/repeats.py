"""Rows that were delivered before: looked up by their values, within as many rows back as the contract says.

Opt-in (`duplicates.rows` in the contract), because real rows repeat. A row is the same as another when the attributes
`duplicates.on` are (null equals null, NaN equals NaN, 0.0 equals -0.0). It repeats one when one that is the same stayed
in the stream and came at most `duplicates.within` rows before, in whichever batch; what came longer ago, or is not in
`raw` any more, is not looked at. The row that repeats leaves the stream and stands in `rejected` with its values: none
is lost.

Both ways find the same rows. `exact` asks the window about every row of the batch; `filter` passes the rows through two
Bloom filters that take turns, which forget nothing within the window, and asks the window about those alone that the
filter suspects: what the look-up does not confirm stays, and the ledger says how often the filter was wrong beside how
often it was expected to be.

Rows are looked up by a 64-bit fingerprint first, which is small enough to travel to every piece of the history. What
that finds is compared by its values, so that two rows of one fingerprint are never taken for one. Memory is that of
the filter (`exact`: of the batch's fingerprints) and of the values of the rows that are found.

The filter's state after a batch is a row of `sketches`, which names the state it went on from; that of the newest batch
is kept, and the one it went on from. Where the state before a batch is not there, it is made of the window's rows.
"""

from __future__ import annotations

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
from spillway.intake.alike import alike_by_values, repeated_seqs
from spillway.sketches.alternating_bloom import AlternatingBloom
from spillway.sketches.column_keys import keys_of
from spillway.sketches.specification import SketchSpec
from spillway.sketches.types import Booleans, Integers, Keys
from spillway.store.files import DataFile, RowReader, rows_of
from spillway.store.tables import Between, Tables

FILTER = "alternating_bloom"
"""The kind of the filter's rows in `sketches`."""
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
    state: AlternatingBloom


@dataclass(frozen=True)
class _Attributes:
    """What rows are compared by."""

    names: tuple[str, ...]
    types: tuple[str, ...]

    def keys(self, rows: pa.Table) -> Keys:
        return keys_of(rows, self.names, self.types, _SEED)


@dataclass(frozen=True)
class _Sides:
    """The batch's rows as stretches of its files, and the pieces of what lies within the window before it."""

    files: tuple[DataFile, ...]
    first_seq: int
    last_seq: int
    stretches: tuple[tuple[int, int], ...]
    history: tuple[tuple[DataFile, ...], ...]
    within: int | None

    @property
    def since(self) -> int | None:
        """The first `seq` of the window; None for all there is."""
        return None if self.within is None else self.first_seq - self.within


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
    spread, within = _PIECES_A_CORE * engine.cores, contract.duplicates.within
    if within is not None:
        history = [file for file in history if _reaches(file, batch.first_seq - within)]
    sides = _Sides(
        tuple(files),
        batch.first_seq,
        batch.last_seq,
        _stretches(batch.first_seq, batch.last_seq, spread),
        tuple(in_pieces(history, spread, weight=lambda file: file.size)),
        within,
    )
    if contract.duplicates.rows == "exact":
        found = _exactly(engine, compared_by(contract), sides)
        return Repeated(found, f"row delivered before{told_window(within)}")
    return _suspected(engine, contract, batch, sides, before)


def _reaches(file: DataFile, seq: int) -> bool:
    """Whether the file may hold rows from `seq` on."""
    high = file.high("seq")
    return high is None or high >= seq


def told_window(within: int | None) -> str:
    return "" if within is None else f", within {within:,} rows"


def compared_by(contract: StreamContract) -> _Attributes:
    """The attributes in which a row must differ from every earlier one."""
    types = {attribute.name: attribute.type for attribute in contract.attributes}
    names = tuple(contract.duplicates.on or contract.names)
    return _Attributes(names, tuple(types[name] for name in names))


def filter_of(contract: StreamContract) -> SketchSpec:
    """The filter a contract asks for with `duplicates`."""
    asked, on = contract.duplicates, compared_by(contract)
    return SketchSpec(
        FILTER,
        on.names,
        on.types,
        seed=_SEED,
        within=asked.within,
        false_positive_pct=asked.false_positive_pct,
        shards=asked.shards,
    )


def filter_before(tables: Tables, contract: StreamContract, batch: int) -> Mapping[str, Any] | None:
    """The row of `sketches` with the filter after the last batch that has rows before this one.

    None where it has another shape, or is not of that batch: it is then made of the window.
    """
    if contract.duplicates.rows != "filter":
        return None
    spec, table = filter_of(contract), tables.at("sketches")
    mine = {"stream": contract.stream, "kind": spec.kind, "name": spec.name}
    below = Between(high=batch - 1)
    last = tables.at("batches").rows(["batch"], stream=contract.stream, rows=Between(1), batch=below)["batch"]
    known = table.rows(["batch", "parameters"], **mine, batch=below).to_pylist()
    fitting = [row["batch"] for row in known if row["parameters"] == spec.shape_text]
    if not fitting or max(fitting) < max(last.to_pylist(), default=0):
        return None
    found: Mapping[str, Any] = table.rows(**mine, batch=max(fitting)).to_pylist()[0]
    return found


def keep_states(tables: Tables, stream: str, states: Sequence[Mapping[str, Any]]) -> None:
    """Keep the last of these, and what the first went on from, so that a run that dies ends in the same rows."""
    if states:
        mine = {"stream": stream, "kind": FILTER}
        before = states[0]["started_from"]
        rows = tables.at("sketches").rows(batch=before, **mine).to_pylist() if before is not None else []
        tables.at("sketches").replace([*rows, states[-1]], **mine)


def _exactly(engine: Engine, on: _Attributes, sides: _Sides) -> Integers:
    found = engine.map(partial(_fingerprints, on, sides.files), sides.stretches)
    mine, counts = np.unique(np.concatenate([np.empty(0, np.uint64), *found]), return_counts=True)
    known = engine.map(partial(_known, on, mine, sides), sides.history)
    wanted = np.unique(np.concatenate([mine[counts > 1], *known]))
    return _confirmed(engine, on, sides, wanted)


def _suspected(
    engine: Engine, contract: StreamContract, batch: Batch, sides: _Sides, before: Mapping[str, Any] | None
) -> Repeated:
    spec, on = filter_of(contract), compared_by(contract)
    start = bytes(before["payload"]) if before is not None else _of_window(engine, spec, sides)
    passed = pass_through(engine, spec, sides.files, (sides.first_seq, sides.last_seq), start)
    truly = np.intersect1d(passed.suspects, _confirmed(engine, on, sides, np.unique(passed.keys)))
    row = spec.row(
        contract.stream,
        batch.batch,
        batch.batch_date,
        passed.rows,
        passed.state.to_bytes(),
        before["batch"] if before is not None else None,
        before["digest"] if before is not None else None,
    )
    return Repeated(truly, _told(contract.duplicates.within, passed, truly.size), row)


def _of_window(engine: Engine, spec: SketchSpec, sides: _Sides) -> bytes | None:
    """The state before the batch where none is kept: a filter that has seen the window."""
    files = [file for piece in sides.history for file in piece]
    if not files or sides.since is None:
        return None
    return pass_through(engine, spec, files, (sides.since, sides.first_seq - 1)).state.to_bytes()


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
    state = AlternatingBloom.from_bytes(start)
    for task, part in enumerate(parts):
        state.absorb_shards(part.state, range(task, spec.shards, tasks))
    suspects, keys = (
        np.concatenate(all_) for all_ in zip(*((p.suspects, p.keys) for p in parts), strict=True)
    )
    return Passed(sum(part.rows for part in parts), suspects, keys, state)


def _told(within: int | None, passed: Passed, truly: int) -> str:
    """How often the filter was wrong, beside the bound of its theory."""
    wrong = 100.0 * (passed.suspects.size - truly) / max(1, passed.rows - truly)
    parameters = passed.state.parameters
    return (
        f"row delivered before{told_window(within)}; a filter of {parameters.memory_bits // 8192:,} KiB suspected "
        f"{wrong:.3g} % of the new rows too, at most {100 * parameters.false_positive_bound:.3g} % expected, and they "
        "stayed"
    )


def _confirmed(engine: Engine, on: _Attributes, sides: _Sides, wanted: Keys) -> Integers:
    """The batch's rows that truly repeat an earlier one, among those of the wanted fingerprints."""
    if not wanted.size:
        return np.empty(0, np.int64)
    mine = engine.map(partial(_alike, on, wanted, sides.files), sides.stretches)
    before = engine.map(partial(_alike_before, on, wanted, sides), sides.history)
    return repeated_seqs([*mine, *before], on.names, on.types, sides.first_seq, sides.within)


def _shards_passed(
    spec: SketchSpec,
    start: bytes,
    files: Sequence[DataFile],
    seq: tuple[int, int],
    tasks: int,
    task: int,
) -> Passed:
    """Every task reads all rows and takes those of its shards, so that none is moved or sorted."""
    sketch, read = AlternatingBloom.from_bytes(start), RowReader(files)
    suspects, doubtful, rows = [np.empty(0, np.int64)], [np.empty(0, np.uint64)], 0
    for low in range(seq[0], seq[1] + 1, RowReader.AT_A_TIME):
        part = read(spec.attributes, low, min(seq[1], low + RowReader.AT_A_TIME - 1))
        keys, places = keys_of(part, spec.attributes, spec.types, spec.seed), np.asarray(part["seq"])
        if tasks > 1:
            mine = sketch.shard_of(keys) % tasks == task
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
    return np.concatenate([np.empty(0, np.uint64), *map(on.keys, _stretch(on, files, stretch))])


def _known(on: _Attributes, mine: Keys, sides: _Sides, files: Sequence[DataFile]) -> Keys:
    """Which of the batch's (sorted) fingerprints earlier rows of these files have."""
    found = [np.empty(0, np.uint64)]
    for rows in _earlier(on, sides, files):
        keys = on.keys(rows)
        found.append(np.unique(keys[_among(keys, mine)]))
    return np.unique(np.concatenate(found))


def _alike(on: _Attributes, wanted: Keys, files: Sequence[DataFile], stretch: tuple[int, int]) -> pa.Table:
    found = [rows.filter(pa.array(_among(on.keys(rows), wanted))) for rows in _stretch(on, files, stretch)]
    return pa.concat_tables([_nothing(on), *found], promote_options="permissive")


def _alike_before(on: _Attributes, wanted: Keys, sides: _Sides, files: Sequence[DataFile]) -> pa.Table:
    """The last row of each value of the wanted fingerprints: none before it reaches further."""
    found = [_nothing(on)]
    for rows in _earlier(on, sides, files):
        found.append(rows.filter(pa.array(_among(on.keys(rows), wanted))))
    rows = pa.concat_tables(found, promote_options="permissive")
    if not rows.num_rows:
        return rows
    alike = alike_by_values(rows, on.names, on.types)
    order = np.lexsort((np.asarray(rows["seq"]), alike))
    last = np.flatnonzero(np.r_[alike[order][1:] != alike[order][:-1], True])
    return rows.take(pa.array(order[last]))


def _stretch(on: _Attributes, files: Sequence[DataFile], stretch: tuple[int, int]) -> Iterator[pa.Table]:
    """The rows of a stretch, some at a time."""
    read = RowReader(files)
    for low in range(stretch[0], stretch[1] + 1, RowReader.AT_A_TIME):
        rows = read(on.names, low, min(stretch[1], low + RowReader.AT_A_TIME - 1))
        yield rows.select(["seq", *on.names])


def _earlier(on: _Attributes, sides: _Sides, files: Sequence[DataFile]) -> Iterator[pa.Table]:
    edges = (sides.since, sides.first_seq - 1)
    for file in files:
        for rows in rows_of(file, ["seq", *on.names], _ROWS_AT_A_TIME, [("seq", *edges)]):
            kept = pc.less(rows["seq"], sides.first_seq)
            if sides.since is not None:
                kept = pc.and_(kept, pc.greater_equal(rows["seq"], sides.since))
            yield rows.filter(kept)


def _nothing(on: _Attributes) -> pa.Table:
    return pa.table({"seq": pa.array([], pa.int64()), **{name: pa.nulls(0) for name in on.names}})


def _among(keys: Keys, known: Keys) -> Booleans:
    """Which keys are in the sorted `known`."""
    if not known.size:
        return np.zeros(keys.size, np.bool_)
    found: Booleans = known[np.minimum(np.searchsorted(known, keys), known.size - 1)] == keys
    return found
