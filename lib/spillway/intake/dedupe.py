"""Deduplicate rows by value, within a window of rows that the contract states.

Deduplication is opt-in (`duplicates.rows` in the contract), because real rows repeat. Two rows are equal if they agree
in the attributes `duplicates.on` (null equals null, NaN equals NaN, 0.0 equals -0.0). A row is a repeat if an equal row
stayed in the stream and came at most `duplicates.within` rows before it, in any batch. Rows that came earlier, or are
no longer in `raw`, are not compared. A repeat leaves the stream and is stored in `rejected` with its values, so no row
is lost.

Batches may be written out of order, if one failed and its successors did not. Rows that are in `raw` stay there. A late
batch is compared with the rows before it and with the rows after it, to the same distance. So no two equal rows are
ever within the window of each other, and each removed row has an equal row within the window that stayed.

Two methods find the same rows:

- `exact` looks up every row of the batch in the window.
- `filter` passes the rows through two alternating Bloom filters, which forget no row within the window. Only rows that
  the filter suspects are looked up in the window. A suspect that the lookup does not confirm stays. The ledger states
  how often the filter was wrong, and how often it was expected to be.

A lookup compares 64-bit fingerprints first, because they are small enough to send to every task. Rows with the same
fingerprint are then compared by value, so two different rows are never taken for equal. Memory is that of the filter
(with `exact`: of the batch's fingerprints) and of the values of the rows that are found.

The filter's state after a batch is a row of `sketches`, which names the state that it continued from. Two states are
stored: that of the newest batch, and the one that its run continued from. If the state before a batch is missing, it is
computed from the window's rows. A batch that comes after later ones is looked up row by row. If it is within the window
of the newest batch, the newest batch's state is computed again.

Batches first write drafts of `raw`. A draft with repeats is rewritten without them.

>>> rows = pa.table({"seq": [4, 5, 6, 7], "k": pa.array([None, 1.0, None, 2.0])})
>>> find_repeated_seqs([rows], ("k",), ("double",)).tolist()
[6]
>>> find_repeated_seqs([rows], ("k",), ("double",), within=1).tolist()
[]
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from spillway.batch import HELD, RETIRED, Batch, BatchRows
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine, split_evenly
from spillway.intake.parse import DraftTarget
from spillway.sketches.alternating_bloom import AlternatingBloom
from spillway.sketches.column_keys import keys_of
from spillway.sketches.kinds.stream_filters import UNSEEN
from spillway.sketches.specification import SketchSpec
from spillway.sketches.types import Booleans, Integers, Keys
from spillway.sketches.values import json_values
from spillway.store.delta_log import data_file
from spillway.store.file_writer import WrittenFile, write_file
from spillway.store.files import DataFile, RowReader, rows_of
from spillway.store.tables import Between, Table, Tables


def find_repeated_seqs(
    parts: Sequence[pa.Table],
    names: Sequence[str],
    types: Sequence[str],
    mine: tuple[int, int] | None = None,
    within: int | None = None,
) -> Integers:
    """Return the `seq` of every row that repeats a row that stays, at most `within` rows before it, by value alone.

    Rows outside `mine` (from, to) always stay. Those after it count like those before it.
    """
    rows = pa.concat_tables([part.select(["seq", *names]) for part in parts], promote_options="permissive")
    if not rows.num_rows:
        return np.empty(0, np.int64)
    seqs, alike = np.asarray(rows["seq"]), value_groups(rows, names, types)
    order = np.lexsort((seqs, alike))
    first, last = mine or (int(seqs.min()), int(seqs.max()))
    reach = np.iinfo(np.int64).max if within is None else within
    return np.sort(seqs[order[_repeats(seqs[order], alike[order], first, last, reach)]])


def value_groups(rows: pa.Table, names: Sequence[str], types: Sequence[str]) -> Integers:
    """Return a number for each row; two rows have the same number if and only if their values are equal."""
    alike = np.zeros(rows.num_rows, np.int64)
    for name, kind in zip(names, types, strict=True):
        codes = _codes(rows[name], kind)
        # combine both numbers into one, and make it small again before the next attribute
        _, alike = np.unique(alike * (int(codes.max()) + 1) + codes, return_inverse=True)
    return alike


@njit(cache=True)
def _repeats(seqs: Integers, alike: Integers, first: int, last: int, within: int) -> Booleans:
    """Return which rows are repeats; rows are sorted by equal values (`alike`) and then by `seq`.

    Only rows from `first` to `last` can be repeats. Each is compared with the last equal row that stays, and with the
    first equal row after `last`.
    """
    found = np.zeros(seqs.size, np.bool_)
    after = np.full(seqs.size, -1)
    for place in range(seqs.size - 1, -1, -1):
        if seqs[place] > last:
            after[place] = place
        elif place + 1 < seqs.size and alike[place + 1] == alike[place]:
            after[place] = after[place + 1]
    stayed = 0
    for place in range(seqs.size):
        if first <= seqs[place] <= last:
            known = place > 0 and alike[place] == alike[stayed]
            found[place] = known and seqs[place] - seqs[stayed] <= within
            if not found[place] and after[place] >= 0:
                found[place] = seqs[after[place]] - seqs[place] <= within
        if not found[place]:
            stayed = place
    return found


def _codes(column: pa.ChunkedArray, kind: str) -> Integers:
    """Return a number for each value, equal if and only if the values are equal. Null is a value."""
    whole = column.combine_chunks()
    if pa.types.is_null(whole.type):
        return np.zeros(len(whole), np.int64)
    if kind == "double":
        numbers = np.asarray(pc.fill_null(whole.cast(pa.float64()), 0.0)) + 0.0
        bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
        whole = pa.array(bits, mask=np.asarray(whole.is_null()))
    return np.asarray(whole.dictionary_encode("encode").indices).astype(np.int64)


REPEATS = "look for repeated tuples"
"""The label of these tasks in Spark's UI."""
HASH_SEED = 1
FIRST = int(np.iinfo(np.int64).min)
"""A number before every `seq`."""
_PIECES_A_CORE = 4
_ROWS_AT_A_TIME = 262_144

SeqRange = tuple[int, int]
"""A range of rows by `seq`: from, to."""


@dataclass(frozen=True)
class ComparedAttributes:
    """The attributes by which rows are compared."""

    names: tuple[str, ...]
    types: tuple[str, ...]

    def keys(self, rows: pa.Table) -> Keys:
        return keys_of(rows, self.names, self.types, HASH_SEED)


@dataclass(frozen=True)
class DedupeWindow:
    """The batch's rows as slices of its files, and the files of the window around it, grouped for tasks.

    `standing` are the `seq` ranges (from, to) of the rows that count. The same files may hold other rows.
    """

    files: tuple[DataFile, ...]
    first_seq: int
    last_seq: int
    slices: tuple[SeqRange, ...]
    history: tuple[tuple[DataFile, ...], ...]
    counting_ranges: tuple[SeqRange, ...]
    within: int | None

    @property
    def since(self) -> int:
        """The first `seq` of the window."""
        return FIRST if self.within is None else self.first_seq - self.within

    @property
    def until(self) -> int:
        """The last `seq` of the window; that of the batch if no row after it is in `raw`."""
        after = max((last for _, last in self.counting_ranges), default=self.last_seq)
        reach = after if self.within is None else self.last_seq + self.within
        return max(self.last_seq, min(after, reach))


def window_around(
    mine: SeqRange,
    files: Sequence[DataFile],
    history: Sequence[DataFile],
    standing: tuple[SeqRange, ...],
    within: int | None,
    cores: int,
) -> DedupeWindow:
    """Return the window around the rows `mine` in `files`, divided into slices for a number of cores."""
    first, last = mine
    pieces = _PIECES_A_CORE * cores
    found = DedupeWindow(tuple(files), first, last, _split_range(first, last, pieces), (), standing, within)
    near = files_between(history, found.since, found.until)
    return replace(found, history=tuple(split_evenly(near, pieces, weight=lambda file: file.size)))


def seq_ranges(standing: Sequence[BatchRows]) -> tuple[SeqRange, ...]:
    """Return the `seq` ranges of these batches; adjacent ranges are merged.

    >>> from datetime import date
    >>> seqs = enumerate([(0, 4), (9, 8), (5, 7), (12, 13)])
    >>> seq_ranges([BatchRows(n, date(2026, 1, 1), "done", *seq, rows=None) for n, seq in seqs])
    ((0, 7), (12, 13))
    """
    found: list[SeqRange] = []
    for first, last in sorted(
        (one.first_seq, one.last_seq) for one in standing if one.first_seq <= one.last_seq
    ):
        if found and first == found[-1][1] + 1:
            first, _ = found.pop()
        found.append((first, last))
    return tuple(found)


def files_between(files: Sequence[DataFile], first: int, last: int) -> list[DataFile]:
    """Return the files that may hold rows from `first` to `last`."""

    def may(file: DataFile) -> bool:
        low, high = file.low("seq"), file.high("seq")
        return (high is None or high >= first) and (low is None or low <= last)

    return [file for file in files if may(file)]


def find_repeats_exactly(engine: Engine, on: ComparedAttributes, window: DedupeWindow) -> Integers:
    """Return the batch's rows that repeat a row that stays; every row is looked up."""
    found = engine.map(partial(_fingerprints, on, window.files), window.slices, REPEATS)
    mine, counts = np.unique(np.concatenate([np.empty(0, np.uint64), *found]), return_counts=True)
    known = engine.map(partial(_fingerprints_in_window, on, mine, window), window.history, REPEATS)
    wanted = np.unique(np.concatenate([mine[counts > 1], *known]))
    return confirm_repeats(engine, on, window, wanted)


def confirm_repeats(engine: Engine, on: ComparedAttributes, window: DedupeWindow, wanted: Keys) -> Integers:
    """Return the batch's rows that repeat a row that stays, among the rows with the wanted fingerprints."""
    if not wanted.size:
        return np.empty(0, np.int64)
    mine = engine.map(partial(_rows_with_fingerprints, on, wanted, window.files), window.slices, REPEATS)
    others = engine.map(partial(_nearest_equal_rows, on, wanted, window), window.history, REPEATS)
    edges = (window.first_seq, window.last_seq)
    return find_repeated_seqs([*mine, *others], on.names, on.types, edges, window.within)


def _split_range(first: int, last: int, most: int) -> tuple[SeqRange, ...]:
    """Divide the rows from `first` to `last` into at most `most` slices of at least `RowReader.AT_A_TIME` rows."""
    size = max(-(-(last - first + 1) // most), RowReader.AT_A_TIME)
    return tuple((low, min(last, low + size - 1)) for low in range(first, last + 1, size))


def _fingerprints(on: ComparedAttributes, files: Sequence[DataFile], stretch: SeqRange) -> Keys:
    return np.concatenate([np.empty(0, np.uint64), *map(on.keys, _read_slice(on, files, stretch))])


def _fingerprints_in_window(
    on: ComparedAttributes, mine: Keys, window: DedupeWindow, files: Sequence[DataFile]
) -> Keys:
    """Return which of the batch's (sorted) fingerprints occur in the counting rows of these files."""
    found = [np.empty(0, np.uint64)]
    for rows in _rows_in_window(on, window, files):
        keys = on.keys(rows)
        found.append(np.unique(keys[_is_among(keys, mine)]))
    return np.unique(np.concatenate(found))


def _rows_with_fingerprints(
    on: ComparedAttributes, wanted: Keys, files: Sequence[DataFile], stretch: SeqRange
) -> pa.Table:
    found = [
        rows.filter(pa.array(_is_among(on.keys(rows), wanted))) for rows in _read_slice(on, files, stretch)
    ]
    return pa.concat_tables([_empty_rows(on), *found], promote_options="permissive")


def _nearest_equal_rows(
    on: ComparedAttributes, wanted: Keys, window: DedupeWindow, files: Sequence[DataFile]
) -> pa.Table:
    """Return, for each value of the wanted fingerprints, the last row before the batch and the first row after it.

    No other row of that value is nearer to the batch.
    """
    found = [_empty_rows(on)]
    for rows in _rows_in_window(on, window, files):
        found.append(rows.filter(pa.array(_is_among(on.keys(rows), wanted))))
    rows = pa.concat_tables(found, promote_options="permissive")
    if not rows.num_rows:
        return rows
    # a value before the batch and the same value after it get two numbers; so the nearest row sorts last in both groups
    seq = np.asarray(rows["seq"])
    after = seq > window.last_seq
    alike = 2 * value_groups(rows, on.names, on.types) + after
    order = np.lexsort((np.where(after, -seq, seq), alike))
    last = np.flatnonzero(np.r_[alike[order][1:] != alike[order][:-1], True])
    return rows.take(pa.array(order[last]))


def _read_slice(on: ComparedAttributes, files: Sequence[DataFile], stretch: SeqRange) -> Iterator[pa.Table]:
    """Yield the rows of a slice, in tables of bounded size."""
    read = RowReader(files)
    for low in range(stretch[0], stretch[1] + 1, RowReader.AT_A_TIME):
        rows = read(on.names, low, min(stretch[1], low + RowReader.AT_A_TIME - 1))
        yield rows.select(["seq", *on.names])


def _rows_in_window(
    on: ComparedAttributes, window: DedupeWindow, files: Sequence[DataFile]
) -> Iterator[pa.Table]:
    """Yield the rows within the window that count and are not of the batch itself."""
    reach = [
        (max(low, window.since), min(high, window.until))
        for first, last in window.counting_ranges
        for low, high in ((first, min(last, window.first_seq - 1)), (max(first, window.last_seq + 1), last))
    ]
    for file in files:
        for rows in rows_of(file, ["seq", *on.names], _ROWS_AT_A_TIME, [("seq", window.since, window.until)]):
            yield rows.filter(pa.array(in_any_range(np.asarray(rows["seq"]), reach)))


def in_any_range(seqs: Integers, edges: Sequence[SeqRange]) -> Booleans:
    """Return which of these numbers lie in one of the ranges."""
    found = np.zeros(seqs.size, np.bool_)
    for first, last in edges:
        found |= (seqs >= first) & (seqs <= last)
    return found


def _empty_rows(on: ComparedAttributes) -> pa.Table:
    return pa.table({"seq": pa.array([], pa.int64()), **{name: pa.nulls(0) for name in on.names}})


def _is_among(keys: Keys, known: Keys) -> Booleans:
    """Return which keys are in the sorted `known`."""
    if not known.size:
        return np.zeros(keys.size, np.bool_)
    found: Booleans = known[np.minimum(np.searchsorted(known, keys), known.size - 1)] == keys
    return found


FILTER = "alternating_bloom"
"""The kind of the filter's rows in `sketches`."""


@dataclass(frozen=True)
class BatchRepeats:
    """The repeats of one batch: their `seq` in order, the ledger's reason, and the filter's new state.

    `state` is a row of `sketches` that replaces the batch's row. The next batch continues from it.
    """

    rows: Integers
    reason: str
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class FilterResult:
    """The result of passing rows through a filter.

    It has the number of rows, the `seq` and fingerprints of the suspects, and the filter's new state.
    """

    rows: int
    suspects: Integers
    keys: Keys
    state: AlternatingBloom


def find_repeats(
    engine: Engine,
    contract: StreamContract,
    batch: Batch,
    files: Sequence[DataFile],
    history: Sequence[DataFile],
    before: Mapping[str, Any] | None = None,
    standing: Sequence[BatchRows] | None = None,
) -> BatchRepeats:
    """Return the rows of the batch that were delivered before.

    `files` hold the rows of the batch. `history` holds the rows of the batches `standing`, and may hold others.
    `standing` are the batches that are in `raw`, or were and are retired; None means all rows before the batch.
    `before` is the state that the filter continues from: that of `filter_before`, or of the last `BatchRepeats` that
    has one.
    """
    within, after = contract.duplicates.within, [one for one in standing or () if one.batch > batch.batch]
    gone = [one for one in standing or () if one.status == RETIRED]
    edges: tuple[SeqRange, ...] = ((FIRST, batch.first_seq - 1),)
    if standing is not None:
        edges = seq_ranges([one for one in standing if one.status != RETIRED])
    mine = (batch.first_seq, batch.last_seq)
    window = window_around(mine, files, history, edges, within, engine.cores)
    if contract.duplicates.rows == "exact":
        found = find_repeats_exactly(engine, compared_attributes(contract), window)
        return BatchRepeats(found, f"row delivered before{format_window(within)}")
    if after:
        return _find_repeats_of_late_batch(
            engine, contract, window, max(after, key=lambda one: one.batch), history, gone
        )
    return _find_suspects(engine, contract, batch, window, before, gone)


def format_window(within: int | None) -> str:
    return "" if within is None else f", within {within:,} rows"


def compared_attributes(contract: StreamContract) -> ComparedAttributes:
    """Return the attributes in which a row must differ from every earlier row."""
    types = {attribute.name: attribute.type for attribute in contract.attributes}
    names = tuple(contract.duplicates.on or contract.names)
    return ComparedAttributes(names, tuple(types[name] for name in names))


def filter_spec(contract: StreamContract) -> SketchSpec:
    """Return the filter that a contract requests with `duplicates`."""
    asked, on = contract.duplicates, compared_attributes(contract)
    return SketchSpec(
        FILTER,
        on.names,
        on.types,
        seed=HASH_SEED,
        within=asked.within,
        false_positive_pct=asked.false_positive_pct,
        shards=asked.shards,
    )


def filter_before(tables: Tables, contract: StreamContract, batch: int) -> Mapping[str, Any] | None:
    """Return the row of `sketches` with the filter's state after the last batch with rows before this batch.

    Return None if the state has another shape, or belongs to an earlier batch. The state is then computed from the
    window.
    """
    if contract.duplicates.rows != "filter":
        return None
    spec, table = filter_spec(contract), tables.at("sketches")
    mine = {"stream": contract.stream, "kind": spec.kind, "name": spec.name}
    below = Between(high=batch - 1)
    last = tables.at("batches").rows(["batch"], stream=contract.stream, rows=Between(1), batch=below)["batch"]
    known = table.rows(["batch", "parameters"], **mine, batch=below).to_pylist()
    fitting = [row["batch"] for row in known if row["parameters"] == spec.shape_text]
    if not fitting or max(fitting) < max(last.to_pylist(), default=0):
        return None
    found: Mapping[str, Any] = table.rows(**mine, batch=max(fitting)).to_pylist()[0]
    return found


def save_filter_states(
    tables: Tables, contract: StreamContract, batches: Sequence[int], states: Sequence[Mapping[str, Any]]
) -> None:
    """Store the last of these states, and the state that the first one continued from.

    So a run that dies and is repeated ends in the same rows. If the contract does not use the filter, no state contains
    the rows of these batches. Their states, and those of later batches, are then deleted.
    """
    mine = {"stream": contract.stream, "kind": FILTER}
    if contract.duplicates.rows != "filter":
        tables.at("sketches").delete(**mine, batch=Between(min(batches)))
    elif states:
        before = states[0]["started_from"]
        rows = tables.at("sketches").rows(batch=before, **mine).to_pylist() if before is not None else []
        tables.at("sketches").replace([*rows, states[-1]], **mine)


def _find_suspects(
    engine: Engine,
    contract: StreamContract,
    batch: Batch,
    window: DedupeWindow,
    before: Mapping[str, Any] | None,
    gone: Sequence[BatchRows],
) -> BatchRepeats:
    spec, on = filter_spec(contract), compared_attributes(contract)
    start = bytes(before["payload"]) if before is not None else _state_from_window(engine, spec, window)
    passed = filter_rows(engine, spec, window.files, (window.first_seq, window.last_seq), start)
    _mark_unseen(passed.state, window.last_seq - (spec.within or 0), gone if before is None else ())
    truly = np.intersect1d(passed.suspects, confirm_repeats(engine, on, window, np.unique(passed.keys)))
    row = spec.row(
        contract.stream,
        batch.batch,
        batch.batch_date,
        passed.rows,
        passed.state.to_bytes(),
        before["batch"] if before is not None else None,
        before["digest"] if before is not None else None,
    )
    return BatchRepeats(truly, _ledger_reason(contract.duplicates.within, passed, truly.size), row)


def _find_repeats_of_late_batch(
    engine: Engine,
    contract: StreamContract,
    window: DedupeWindow,
    newest: BatchRows,
    history: Sequence[DataFile],
    gone: Sequence[BatchRows],
) -> BatchRepeats:
    """Find the repeats of a batch that comes after later ones: look up every row.

    If the batch is within the window of the newest batch, compute the newest batch's state again, with these rows.
    """
    spec, within = filter_spec(contract), contract.duplicates.within
    found = find_repeats_exactly(engine, compared_attributes(contract), window)
    reason = f"row delivered before{format_window(within)}; looked up row by row, as its batch came after later ones"
    first = newest.last_seq - (within or 0) + 1
    if window.last_seq < first:
        return BatchRepeats(found, reason)
    stand = (*window.counting_ranges, (window.first_seq, window.last_seq))
    files = [*files_between(history, first, newest.last_seq), *window.files]
    passed = filter_rows(engine, spec, files, (first, newest.last_seq), standing=stand)
    _mark_unseen(passed.state, first - 1, gone)
    of_newest = (contract.stream, newest.batch, newest.batch_date, passed.rows, passed.state.to_bytes())
    return BatchRepeats(found, reason, spec.row(*of_newest))


def _mark_unseen(state: AlternatingBloom, before: int, gone: Sequence[BatchRows]) -> None:
    """Note in the state the last row of the window that it has not seen; the window begins after row `before`."""
    to = max([state.context.get(UNSEEN, before), *(one.last_seq for one in gone if one.rows)])
    kept = {name: value for name, value in state.context.items() if name != UNSEEN}
    state.context = {**kept, UNSEEN: to} if to > before else kept


def _state_from_window(engine: Engine, spec: SketchSpec, window: DedupeWindow) -> bytes | None:
    """Return the state before the batch if none is stored: a filter that has seen the rows of the window."""
    files = [file for piece in window.history for file in piece]
    if not files or window.within is None:
        return None
    seq = (window.since, window.first_seq - 1)
    return filter_rows(engine, spec, files, seq, standing=window.counting_ranges).state.to_bytes()


def filter_rows(
    engine: Engine,
    spec: SketchSpec,
    files: Sequence[DataFile],
    seq: SeqRange,
    before: bytes | None = None,
    standing: Sequence[SeqRange] | None = None,
) -> FilterResult:
    """Pass the rows `seq` (from, to) through the filter in order; each shard is processed by one task.

    `standing`: ranges of `seq`; rows outside them are left out. None means all rows. `before`: the filter's state
    before.
    """
    start = before or spec.empty().to_bytes()
    tasks = min(spec.shards, engine.cores)
    passed = partial(_filter_shards, spec, start, tuple(files), seq, standing, tasks)
    parts = engine.map(passed, range(tasks), REPEATS)
    state = AlternatingBloom.from_bytes(start)
    for task, part in enumerate(parts):
        state.absorb_shards(part.state, range(task, spec.shards, tasks))
    suspects, keys = (
        np.concatenate(all_) for all_ in zip(*((p.suspects, p.keys) for p in parts), strict=True)
    )
    return FilterResult(sum(part.rows for part in parts), suspects, keys, state)


def _ledger_reason(within: int | None, passed: FilterResult, truly: int) -> str:
    """Return the ledger's reason, with the filter's false-positive rate and its theoretical bound."""
    wrong = 100.0 * (passed.suspects.size - truly) / max(1, passed.rows - truly)
    parameters = passed.state.parameters
    return (
        f"row delivered before{format_window(within)}; a filter of {parameters.memory_bits // 8192:,} KiB suspected "
        f"{wrong:.3g} % of the new rows too, at most {100 * parameters.false_positive_bound:.3g} % expected, and they "
        "stayed"
    )


def _filter_shards(
    spec: SketchSpec,
    start: bytes,
    files: Sequence[DataFile],
    seq: SeqRange,
    standing: Sequence[SeqRange] | None,
    tasks: int,
    task: int,
) -> FilterResult:
    """Pass the rows of one task's shards through the filter.

    Every task reads all rows, so that no row is moved or sorted.
    """
    sketch, read, on = (
        AlternatingBloom.from_bytes(start),
        RowReader(files),
        ComparedAttributes(spec.attributes, spec.types),
    )
    suspects, doubtful, rows = [np.empty(0, np.int64)], [np.empty(0, np.uint64)], 0
    for low in range(seq[0], seq[1] + 1, RowReader.AT_A_TIME):
        part = read(spec.attributes, low, min(seq[1], low + RowReader.AT_A_TIME - 1))
        if standing is not None:
            part = part.filter(pa.array(in_any_range(np.asarray(part["seq"]), standing)))
        keys, places = on.keys(part), np.asarray(part["seq"])
        if tasks > 1:
            mine = sketch.shard_of(keys) % tasks == task
            keys, places = keys[mine], places[mine]
        found = sketch.observe(keys)
        rows += keys.size
        suspects.append(places[found])
        doubtful.append(keys[found])
    return FilterResult(rows, np.concatenate(suspects), np.concatenate(doubtful), sketch)


DELIVERED_BEFORE = "delivered before"
"""The reason of repeats in `rejected`; every other reason is a defect."""


def rejected_repeats(contract: StreamContract, batch: Batch, rows: pa.Table) -> pa.Table:
    """Return the batch's repeated `rows` as rows of `rejected`: their file and line, and their values as JSON."""
    seqs = np.asarray(rows["seq"].cast(pa.int64()))
    taken = sorted(batch.accepted_files, key=lambda file: file.base_seq)
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
                f"differ from every earlier row{format_window(contract.duplicates.within)} in "
                f"{', '.join(compared_attributes(contract).names)}",
                len(seqs),
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


def _as_json(contract: StreamContract, rows: pa.Table) -> list[bytes]:
    """Return each row as one JSON object, without null attributes."""
    columns = [json_values(rows[a.name], a.type) for a in contract.attributes]
    return [
        json.dumps(
            {name: value for name, value in zip(contract.names, values, strict=True) if value is not None},
            ensure_ascii=False,
            separators=(",", ":"),
        ).encode("utf-8", "surrogatepass")
        for values in zip(*columns, strict=True)
    ]


_ROWS_PER_READ = 131_072


def remove_repeats(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    batches: Sequence[Batch],
    raw: Table,
    files: dict[int, list[WrittenFile]],
    aside: list[WrittenFile],
) -> dict[int, BatchRepeats]:
    """Find the rows that were delivered before, and rewrite the batches' drafts of `raw` without them.

    Rows are compared with all rows in `raw`, and with each other in the order of their batches. `files` gets the new
    drafts, and `aside` gets the files of `rejected`.
    """
    if contract.duplicates.rows == "none":
        return {}
    found: dict[int, BatchRepeats] = {}
    mine, within = {batch.batch for batch in batches}, contract.duplicates.within
    since = Between(min(batch.first_seq for batch in batches) - within if within else None)
    standing = [one for one in _batches_in_raw(tables, contract.stream, since) if one.batch not in mine]
    history = tables.at("raw", contract.stream).files(seq=since)
    state: Mapping[str, Any] | None = None
    for batch in sorted(batches, key=lambda one: one.batch):
        drafted = _as_data_files(raw, files[batch.batch])
        before = state if state is not None else filter_before(tables, contract, batch.batch)
        one = find_repeats(engine, contract, batch, drafted, history, before, standing)
        found[batch.batch] = one
        state = one.state if one.state is not None else state
        if len(one.rows):
            rejected = DraftTarget.of(tables.at("rejected"))
            make = partial(_split_draft, contract, batch, one.rows, DraftTarget.of(raw), rejected)
            parts = engine.map(make, drafted, REPEATS)
            raw.erase(drafted)
            files[batch.batch] = [left for left, _ in parts if left]
            aside += [gone for _, gone in parts if gone]
        history += _as_data_files(raw, files[batch.batch])
        standing.append(batch.row_numbers)
    return found


def _batches_in_raw(tables: Tables, stream: str, since: Between) -> list[BatchRows]:
    """Return the batches with rows in `raw` from this `seq` on, or with rows that are retired; only their numbers."""
    columns = [item.name for item in fields(BatchRows)]
    where = {"stream": stream, "status": [*HELD, RETIRED], "last_seq": since}
    rows = tables.at("batches").rows(columns, **where).to_pylist()
    return [BatchRows(**row) for row in rows if row["rows"] is not None]


def _as_data_files(table: Table, written: Sequence[WrittenFile]) -> list[DataFile]:
    """Return drafted files, which no table has yet, in the form that readers of files use."""
    return [data_file(table.path, one, table.contract.arrow_schema) for one in written]


def _split_draft(
    contract: StreamContract,
    batch: Batch,
    seqs: np.ndarray,
    raw: DraftTarget,
    rejected: DraftTarget,
    file: DataFile,
) -> tuple[WrittenFile | None, WrittenFile | None]:
    """Split a drafted file into two: the rows that stay, and those that were delivered before."""
    names = raw.schema.names

    def rows(repeated: bool) -> Iterator[pa.Table]:
        for part in rows_of(file, names, _ROWS_PER_READ):
            hit = np.isin(np.asarray(part["seq"]), seqs)
            found = part.filter(pa.array(hit if repeated else ~hit))
            if found.num_rows:
                yield rejected_repeats(contract, batch, found) if repeated else found

    day = {"batch_date": str(batch.batch_date)}
    left = write_file(raw.folder, day, raw.schema, rows(False))
    gone = write_file(rejected.folder, {"stream": contract.stream}, rejected.schema, rows(True))
    return left, gone
