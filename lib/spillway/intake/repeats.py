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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.batch import RETIRED, Batch, BatchRows
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.intake.window import (
    FIRST,
    HASH_SEED,
    Compared,
    SeqRange,
    Surroundings,
    confirmed,
    files_between,
    in_any,
    repeated_exactly,
    seq_ranges,
    window_around,
)
from spillway.sketches.alternating_bloom import AlternatingBloom
from spillway.sketches.kinds.stream_filters import UNSEEN
from spillway.sketches.specification import SketchSpec
from spillway.sketches.types import Integers, Keys
from spillway.store.files import DataFile, RowReader
from spillway.store.tables import Between, Tables

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
