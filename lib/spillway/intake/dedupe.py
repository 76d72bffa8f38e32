"""Rows that were delivered before: looked up by their values, within as many rows back as the contract says.

Opt-in (`duplicates.rows` in the contract), because real rows repeat. A row is the same as another when the attributes
`duplicates.on` are (null equals null, NaN equals NaN, 0.0 equals -0.0). It repeats one when one that is the same stayed
in the stream and came at most `duplicates.within` rows before, in whichever batch; what came longer ago, or is not in
`raw` any more, is not looked at. The row that repeats leaves the stream and stands in `rejected` with its values: none
is lost.

Batches may be written out of their order, where one had failed and its successors had not. What stands in `raw` stays
there: a batch that comes late is compared with the rows before it and with those after it, as far either way. So no two
rows that are the same ever stand within reach of each other, and what left has one within reach that stayed.

Both ways find the same rows. `exact` asks the window about every row of the batch; `filter` passes the rows through two
Bloom filters that take turns, which forget nothing within the window, and asks the window about those alone that the
filter suspects: what the look-up does not confirm stays, and the ledger says how often the filter was wrong beside how
often it was expected to be.

Memory is that of the filter (`exact`: of the batch's fingerprints) and of the values of the rows that are found; how
rows are looked up is told in `window`.

The filter's state after a batch is a row of `sketches`, which names the state it went on from; that of the newest batch
is kept, and the one it went on from. Where the state before a batch is not there, it is made of the window's rows; so
is the newest batch's again when one within its reach comes late, and that one is looked up row by row.

Which rows repeat others, by their values and nothing else.

>>> rows = pa.table({"seq": [4, 5, 6, 7], "k": pa.array([None, 1.0, None, 2.0])})
>>> repeated_seqs([rows], ("k",), ("double",)).tolist()
[6]
>>> repeated_seqs([rows], ("k",), ("double",), within=1).tolist()
[]

Looking rows up by their values: in the window around a batch, whose edges are given in rows.

Rows are looked up by a 64-bit fingerprint first, which is small enough to travel to every piece of the window. What
that finds is compared by its values, so that two rows of one fingerprint are never taken for one. Memory is that of the
fingerprints that are looked for, and of the values of the rows that are found.

Only what is delivered for the first time stays: drafts of `raw` are made anew without the rows that repeat.

Rows that repeat, as `rejected` holds them.
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
from spillway.engine.protocol import Engine, in_pieces
from spillway.intake.parse import Target
from spillway.sketches.alternating_bloom import AlternatingBloom
from spillway.sketches.column_keys import keys_of
from spillway.sketches.kinds.stream_filters import UNSEEN
from spillway.sketches.specification import SketchSpec
from spillway.sketches.types import Booleans, Integers, Keys
from spillway.sketches.values import json_values
from spillway.store.delta_log import data_file
from spillway.store.files import DataFile, RowReader, rows_of
from spillway.store.tables import Between, Table, Tables
from spillway.store.writing import Written, write_file


def repeated_seqs(
    parts: Sequence[pa.Table],
    names: Sequence[str],
    types: Sequence[str],
    mine: tuple[int, int] | None = None,
    within: int | None = None,
) -> Integers:
    """The `seq` of every row that repeats one which stays, at most `within` before it, by values alone.

    Rows outside `mine` (from, to) stand where they are, and those after it count as those before do.
    """
    rows = pa.concat_tables([part.select(["seq", *names]) for part in parts], promote_options="permissive")
    if not rows.num_rows:
        return np.empty(0, np.int64)
    seqs, alike = np.asarray(rows["seq"]), alike_by_values(rows, names, types)
    order = np.lexsort((seqs, alike))
    first, last = mine or (int(seqs.min()), int(seqs.max()))
    reach = np.iinfo(np.int64).max if within is None else within
    return np.sort(seqs[order[_repeats(seqs[order], alike[order], first, last, reach)]])


def alike_by_values(rows: pa.Table, names: Sequence[str], types: Sequence[str]) -> Integers:
    """A number for each row, equal for equal values and no others."""
    alike = np.zeros(rows.num_rows, np.int64)
    for name, kind in zip(names, types, strict=True):
        codes = _codes(rows[name], kind)
        # two numbers become one, and that small again before the next attribute
        _, alike = np.unique(alike * (int(codes.max()) + 1) + codes, return_inverse=True)
    return alike


@njit(cache=True)
def _repeats(seqs: Integers, alike: Integers, first: int, last: int, within: int) -> Booleans:
    """Of rows ordered by what they are alike in and then by `seq`: those from `first` to `last` that repeat another.

    Each is compared with the last like it that stays, and with the first like it after `last`.
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
    """A number for each value, equal for equal values and no others; null is a value."""
    whole = column.combine_chunks()
    if pa.types.is_null(whole.type):
        return np.zeros(len(whole), np.int64)
    if kind == "double":
        numbers = np.asarray(pc.fill_null(whole.cast(pa.float64()), 0.0)) + 0.0
        bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
        whole = pa.array(bits, mask=np.asarray(whole.is_null()))
    return np.asarray(whole.dictionary_encode("encode").indices).astype(np.int64)


HASH_SEED = 1
FIRST = int(np.iinfo(np.int64).min)
"""Before every `seq`."""
_PIECES_A_CORE = 4
_ROWS_AT_A_TIME = 262_144

SeqRange = tuple[int, int]
"""Rows by their `seq`, from and to."""


@dataclass(frozen=True)
class Compared:
    """What rows are compared by."""

    names: tuple[str, ...]
    types: tuple[str, ...]

    def keys(self, rows: pa.Table) -> Keys:
        return keys_of(rows, self.names, self.types, HASH_SEED)


@dataclass(frozen=True)
class Surroundings:
    """The batch's rows as stretches of its files, and the pieces of what stands within the window around it.

    `standing` are the `seq` (from, to) of the rows that count; others may lie in the same files.
    """

    files: tuple[DataFile, ...]
    first_seq: int
    last_seq: int
    stretches: tuple[SeqRange, ...]
    history: tuple[tuple[DataFile, ...], ...]
    standing: tuple[SeqRange, ...]
    within: int | None

    @property
    def since(self) -> int:
        """The first `seq` of the window."""
        return FIRST if self.within is None else self.first_seq - self.within

    @property
    def until(self) -> int:
        """The last `seq` of the window: that of the batch where nothing after it stands."""
        after = max((last for _, last in self.standing), default=self.last_seq)
        reach = after if self.within is None else self.last_seq + self.within
        return max(self.last_seq, min(after, reach))


def window_around(
    mine: SeqRange,
    files: Sequence[DataFile],
    history: Sequence[DataFile],
    standing: tuple[SeqRange, ...],
    within: int | None,
    cores: int,
) -> Surroundings:
    """The window around the rows `mine` in `files`, cut in pieces for so many cores."""
    first, last = mine
    pieces = _PIECES_A_CORE * cores
    found = Surroundings(tuple(files), first, last, _stretches(first, last, pieces), (), standing, within)
    near = files_between(history, found.since, found.until)
    return replace(found, history=tuple(in_pieces(near, pieces, weight=lambda file: file.size)))


def seq_ranges(standing: Sequence[BatchRows]) -> tuple[SeqRange, ...]:
    """The rows of these batches, neighbours as one.

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
    """Those that may hold rows from `first` to `last`."""

    def may(file: DataFile) -> bool:
        low, high = file.low("seq"), file.high("seq")
        return (high is None or high >= first) and (low is None or low <= last)

    return [file for file in files if may(file)]


def repeated_exactly(engine: Engine, on: Compared, window: Surroundings) -> Integers:
    """The batch's rows that repeat one that stays: all are looked up."""
    found = engine.map(partial(_fingerprints, on, window.files), window.stretches)
    mine, counts = np.unique(np.concatenate([np.empty(0, np.uint64), *found]), return_counts=True)
    known = engine.map(partial(_known, on, mine, window), window.history)
    wanted = np.unique(np.concatenate([mine[counts > 1], *known]))
    return confirmed(engine, on, window, wanted)


def confirmed(engine: Engine, on: Compared, window: Surroundings, wanted: Keys) -> Integers:
    """The batch's rows that truly repeat one that stays, among those of the wanted fingerprints."""
    if not wanted.size:
        return np.empty(0, np.int64)
    mine = engine.map(partial(_alike, on, wanted, window.files), window.stretches)
    others = engine.map(partial(_alike_beside, on, wanted, window), window.history)
    edges = (window.first_seq, window.last_seq)
    return repeated_seqs([*mine, *others], on.names, on.types, edges, window.within)


def _stretches(first: int, last: int, most: int) -> tuple[SeqRange, ...]:
    """The rows from `first` to `last` in at most `most` stretches, none of them tiny."""
    size = max(-(-(last - first + 1) // most), RowReader.AT_A_TIME)
    return tuple((low, min(last, low + size - 1)) for low in range(first, last + 1, size))


def _fingerprints(on: Compared, files: Sequence[DataFile], stretch: SeqRange) -> Keys:
    return np.concatenate([np.empty(0, np.uint64), *map(on.keys, _stretch(on, files, stretch))])


def _known(on: Compared, mine: Keys, window: Surroundings, files: Sequence[DataFile]) -> Keys:
    """Which of the batch's (sorted) fingerprints standing rows of these files have."""
    found = [np.empty(0, np.uint64)]
    for rows in _standing(on, window, files):
        keys = on.keys(rows)
        found.append(np.unique(keys[_among(keys, mine)]))
    return np.unique(np.concatenate(found))


def _alike(on: Compared, wanted: Keys, files: Sequence[DataFile], stretch: SeqRange) -> pa.Table:
    found = [rows.filter(pa.array(_among(on.keys(rows), wanted))) for rows in _stretch(on, files, stretch)]
    return pa.concat_tables([_nothing(on), *found], promote_options="permissive")


def _alike_beside(on: Compared, wanted: Keys, window: Surroundings, files: Sequence[DataFile]) -> pa.Table:
    """Of each value of the wanted fingerprints the last row before the batch, and the first after: none is nearer."""
    found = [_nothing(on)]
    for rows in _standing(on, window, files):
        found.append(rows.filter(pa.array(_among(on.keys(rows), wanted))))
    rows = pa.concat_tables(found, promote_options="permissive")
    if not rows.num_rows:
        return rows
    # one number for a value before the batch, and one for it after, whose nearest row is then the last as well
    seq = np.asarray(rows["seq"])
    after = seq > window.last_seq
    alike = 2 * alike_by_values(rows, on.names, on.types) + after
    order = np.lexsort((np.where(after, -seq, seq), alike))
    last = np.flatnonzero(np.r_[alike[order][1:] != alike[order][:-1], True])
    return rows.take(pa.array(order[last]))


def _stretch(on: Compared, files: Sequence[DataFile], stretch: SeqRange) -> Iterator[pa.Table]:
    """The rows of a stretch, some at a time."""
    read = RowReader(files)
    for low in range(stretch[0], stretch[1] + 1, RowReader.AT_A_TIME):
        rows = read(on.names, low, min(stretch[1], low + RowReader.AT_A_TIME - 1))
        yield rows.select(["seq", *on.names])


def _standing(on: Compared, window: Surroundings, files: Sequence[DataFile]) -> Iterator[pa.Table]:
    """The rows within reach of the batch that stand, and are not its own."""
    reach = [
        (max(low, window.since), min(high, window.until))
        for first, last in window.standing
        for low, high in ((first, min(last, window.first_seq - 1)), (max(first, window.last_seq + 1), last))
    ]
    for file in files:
        for rows in rows_of(file, ["seq", *on.names], _ROWS_AT_A_TIME, [("seq", window.since, window.until)]):
            yield rows.filter(pa.array(in_any(np.asarray(rows["seq"]), reach)))


def in_any(seqs: Integers, edges: Sequence[SeqRange]) -> Booleans:
    """Which of these lie in one of the ranges."""
    found = np.zeros(seqs.size, np.bool_)
    for first, last in edges:
        found |= (seqs >= first) & (seqs <= last)
    return found


def _nothing(on: Compared) -> pa.Table:
    return pa.table({"seq": pa.array([], pa.int64()), **{name: pa.nulls(0) for name in on.names}})


def _among(keys: Keys, known: Keys) -> Booleans:
    """Which keys are in the sorted `known`."""
    if not known.size:
        return np.zeros(keys.size, np.bool_)
    found: Booleans = known[np.minimum(np.searchsorted(known, keys), known.size - 1)] == keys
    return found


FILTER = "alternating_bloom"
"""The kind of the filter's rows in `sketches`."""


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


def find_repeated(
    engine: Engine,
    contract: StreamContract,
    batch: Batch,
    files: Sequence[DataFile],
    history: Sequence[DataFile],
    before: Mapping[str, Any] | None = None,
    standing: Sequence[BatchRows] | None = None,
) -> Repeated:
    """The rows of the batch that were delivered before, for a contract that asks for them.

    `files` hold the rows of the batch, `history` those of the batches that are `standing` in `raw` (or were, and are
    retired), and maybe others (None: of all before it). `before` is the state that the filter goes on from
    (`filter_before`, or that of the last `Repeated` that has one).
    """
    within, after = contract.duplicates.within, [one for one in standing or () if one.batch > batch.batch]
    gone = [one for one in standing or () if one.status == RETIRED]
    edges: tuple[SeqRange, ...] = ((FIRST, batch.first_seq - 1),)
    if standing is not None:
        edges = seq_ranges([one for one in standing if one.status != RETIRED])
    mine = (batch.first_seq, batch.last_seq)
    window = window_around(mine, files, history, edges, within, engine.cores)
    if contract.duplicates.rows == "exact":
        found = repeated_exactly(engine, compared_by(contract), window)
        return Repeated(found, f"row delivered before{told_window(within)}")
    if after:
        return _late(engine, contract, window, max(after, key=lambda one: one.batch), history, gone)
    return _suspected(engine, contract, batch, window, before, gone)


def told_window(within: int | None) -> str:
    return "" if within is None else f", within {within:,} rows"


def compared_by(contract: StreamContract) -> Compared:
    """The attributes in which a row must differ from every earlier one."""
    types = {attribute.name: attribute.type for attribute in contract.attributes}
    names = tuple(contract.duplicates.on or contract.names)
    return Compared(names, tuple(types[name] for name in names))


def filter_of(contract: StreamContract) -> SketchSpec:
    """The filter a contract asks for with `duplicates`."""
    asked, on = contract.duplicates, compared_by(contract)
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


def keep_states(
    tables: Tables, contract: StreamContract, batches: Sequence[int], states: Sequence[Mapping[str, Any]]
) -> None:
    """Keep the last of these, and what the first went on from, so that a run that dies ends in the same rows.

    Batches that are written in another way than through the filter are in no state: those of them and of later batches,
    which would know nothing of their rows, go.
    """
    mine = {"stream": contract.stream, "kind": FILTER}
    if contract.duplicates.rows != "filter":
        tables.at("sketches").delete(**mine, batch=Between(min(batches)))
    elif states:
        before = states[0]["started_from"]
        rows = tables.at("sketches").rows(batch=before, **mine).to_pylist() if before is not None else []
        tables.at("sketches").replace([*rows, states[-1]], **mine)


def _suspected(
    engine: Engine,
    contract: StreamContract,
    batch: Batch,
    window: Surroundings,
    before: Mapping[str, Any] | None,
    gone: Sequence[BatchRows],
) -> Repeated:
    spec, on = filter_of(contract), compared_by(contract)
    start = bytes(before["payload"]) if before is not None else _of_window(engine, spec, window)
    passed = pass_through(engine, spec, window.files, (window.first_seq, window.last_seq), start)
    _mark_unseen(passed.state, window.last_seq - (spec.within or 0), gone if before is None else ())
    truly = np.intersect1d(passed.suspects, confirmed(engine, on, window, np.unique(passed.keys)))
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


def _late(
    engine: Engine,
    contract: StreamContract,
    window: Surroundings,
    newest: BatchRows,
    history: Sequence[DataFile],
    gone: Sequence[BatchRows],
) -> Repeated:
    """A batch that comes after later ones: every row is looked up, and the newest one's state has its rows too."""
    spec, within = filter_of(contract), contract.duplicates.within
    found = repeated_exactly(engine, compared_by(contract), window)
    reason = (
        f"row delivered before{told_window(within)}; looked up row by row, as its batch came after later ones"
    )
    first = newest.last_seq - (within or 0) + 1
    if window.last_seq < first:
        return Repeated(found, reason)
    stand = (*window.standing, (window.first_seq, window.last_seq))
    files = [*files_between(history, first, newest.last_seq), *window.files]
    passed = pass_through(engine, spec, files, (first, newest.last_seq), standing=stand)
    _mark_unseen(passed.state, first - 1, gone)
    of_newest = (contract.stream, newest.batch, newest.batch_date, passed.rows, passed.state.to_bytes())
    return Repeated(found, reason, spec.row(*of_newest))


def _mark_unseen(state: AlternatingBloom, before: int, gone: Sequence[BatchRows]) -> None:
    """Say in the state up to which row it has not seen its window, which begins after row `before`."""
    to = max([state.context.get(UNSEEN, before), *(one.last_seq for one in gone if one.rows)])
    kept = {name: value for name, value in state.context.items() if name != UNSEEN}
    state.context = {**kept, UNSEEN: to} if to > before else kept


def _of_window(engine: Engine, spec: SketchSpec, window: Surroundings) -> bytes | None:
    """The state before the batch where none is kept: a filter that has seen the window."""
    files = [file for piece in window.history for file in piece]
    if not files or window.within is None:
        return None
    seq = (window.since, window.first_seq - 1)
    return pass_through(engine, spec, files, seq, standing=window.standing).state.to_bytes()


def pass_through(
    engine: Engine,
    spec: SketchSpec,
    files: Sequence[DataFile],
    seq: SeqRange,
    before: bytes | None = None,
    standing: Sequence[SeqRange] | None = None,
) -> Passed:
    """Pass the rows `seq` (from, to), of them those `standing`, through the filter in order, each shard by one task."""
    start = before or spec.empty().to_bytes()
    tasks = min(spec.shards, engine.cores)
    parts = engine.map(partial(_shards_passed, spec, start, tuple(files), seq, standing, tasks), range(tasks))
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


def _shards_passed(
    spec: SketchSpec,
    start: bytes,
    files: Sequence[DataFile],
    seq: SeqRange,
    standing: Sequence[SeqRange] | None,
    tasks: int,
    task: int,
) -> Passed:
    """Every task reads all rows and takes those of its shards, so that none is moved or sorted."""
    sketch, read, on = (
        AlternatingBloom.from_bytes(start),
        RowReader(files),
        Compared(spec.attributes, spec.types),
    )
    suspects, doubtful, rows = [np.empty(0, np.int64)], [np.empty(0, np.uint64)], 0
    for low in range(seq[0], seq[1] + 1, RowReader.AT_A_TIME):
        part = read(spec.attributes, low, min(seq[1], low + RowReader.AT_A_TIME - 1))
        if standing is not None:
            part = part.filter(pa.array(in_any(np.asarray(part["seq"]), standing)))
        keys, places = on.keys(part), np.asarray(part["seq"])
        if tasks > 1:
            mine = sketch.shard_of(keys) % tasks == task
            keys, places = keys[mine], places[mine]
        found = sketch.observe(keys)
        rows += keys.size
        suspects.append(places[found])
        doubtful.append(keys[found])
    return Passed(rows, np.concatenate(suspects), np.concatenate(doubtful), sketch)


DELIVERED_BEFORE = "delivered before"
"""The reason of such rows in `rejected`; all others are defects."""


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
                f"differ from every earlier row{told_window(contract.duplicates.within)} in "
                f"{', '.join(compared_by(contract).names)}",
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


_ROWS_PER_READ = 131_072


def without_repeats(
    tables: Tables,
    engine: Engine,
    contract: StreamContract,
    batches: Sequence[Batch],
    raw: Table,
    files: dict[int, list[Written]],
    aside: list[Written],
) -> dict[int, Repeated]:
    """Find rows that were delivered before; the batches' drafts of `raw` are made anew without them.

    They are compared with what stands in `raw`, of whichever batch, and with each other in their order.
    """
    if contract.duplicates.rows == "none":
        return {}
    found: dict[int, Repeated] = {}
    mine, within = {batch.batch for batch in batches}, contract.duplicates.within
    since = Between(min(batch.first_seq for batch in batches) - within if within else None)
    standing = [one for one in _batches_in_raw(tables, contract.stream, since) if one.batch not in mine]
    history = tables.at("raw", contract.stream).files(seq=since)
    state: Mapping[str, Any] | None = None
    for batch in sorted(batches, key=lambda one: one.batch):
        drafted = _drafted(raw, files[batch.batch])
        before = state if state is not None else filter_before(tables, contract, batch.batch)
        one = find_repeated(engine, contract, batch, drafted, history, before, standing)
        found[batch.batch] = one
        state = one.state if one.state is not None else state
        if len(one.rows):
            rejected = Target.of(tables.at("rejected"))
            make = partial(_parted, contract, batch, one.rows, Target.of(raw), rejected)
            parts = engine.map(make, drafted)
            raw.erase(drafted)
            files[batch.batch] = [left for left, _ in parts if left]
            aside += [gone for _, gone in parts if gone]
        history += _drafted(raw, files[batch.batch])
        standing.append(batch.numbered)
    return found


def _batches_in_raw(tables: Tables, stream: str, since: Between) -> list[BatchRows]:
    """The batches that stand in `raw` from this `seq` on, or did and are retired: of each its numbers alone."""
    columns = [item.name for item in fields(BatchRows)]
    where = {"stream": stream, "status": [*HELD, RETIRED], "last_seq": since}
    rows = tables.at("batches").rows(columns, **where).to_pylist()
    return [BatchRows(**row) for row in rows if row["rows"] is not None]


def _drafted(table: Table, written: Sequence[Written]) -> list[DataFile]:
    """Files that are in no table yet, as whoever reads files takes them."""
    return [data_file(table.path, one, table.contract.arrow_schema) for one in written]


def _parted(
    contract: StreamContract,
    batch: Batch,
    seqs: np.ndarray,
    raw: Target,
    rejected: Target,
    file: DataFile,
) -> tuple[Written | None, Written | None]:
    """A drafted file as two: the rows that stay, and those that were delivered before."""
    names = raw.schema.names

    def rows(repeated: bool) -> Iterator[pa.Table]:
        for part in rows_of(file, names, _ROWS_PER_READ):
            hit = np.isin(np.asarray(part["seq"]), seqs)
            found = part.filter(pa.array(hit if repeated else ~hit))
            if found.num_rows:
                yield kept_aside(contract, batch, found) if repeated else found

    day = {"batch_date": str(batch.batch_date)}
    left = write_file(raw.folder, day, raw.schema, rows(False))
    gone = write_file(rejected.folder, {"stream": contract.stream}, rejected.schema, rows(True))
    return left, gone
