"""Reading a stream as it was: what was shed is given back on the fly, each value with its bound, as far as it is asked.

A `Reading` is planned here from the tables alone, and read anywhere: it is cut into stretches (some frames of one batch
date) that pickle, and each makes its rows by the kernels that recovery runs. So a look-up in this process, a file, a
table that Spark's tasks write, `spillway.read` and Spark's data source all give the same values. Whole batch dates,
then batches, files, and frames that cannot hold what is asked for are left out before any value is given back; memory
is that of some ten thousand rows, however long the range.

What stands in a column tells what became of a value by its bound, in the column `<attribute>__bound_pct`:

    value   bound      it
    any     null       is as it was; a null was null
    any     a number   was rounded, or shed and recovered, within that many per cent; a null was null
    any     NaN        was rounded, or shed and recovered, within `<attribute>__bound`: no relative bound holds
    null    infinity   was shed and is not here: lost, or kept at the source for whoever asks there

If the contract states `error` of an attribute, the column `<attribute>__bound` says the bound in the attribute's own
unit, null where the value is as it was or not here. A value smaller than that bound has no bound in per cent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import DONE, RETIRED, Batch
from spillway.contracts import StreamContract
from spillway.contracts.column_names import BOUND_SUFFIX, OWN_BOUND_SUFFIX, is_bound
from spillway.levers.pieces import MOST_ROWS, frame_parts
from spillway.levers.protocol import Decision, Facts, FramePart, Rows
from spillway.pipeline.facts import needed_facts
from spillway.pipeline.question import Question
from spillway.pipeline.stages import AT_A_TIME, Up
from spillway.registry import columns_of, lever
from spillway.store.batches import load_batches
from spillway.store.files import as_date
from spillway.store.schemas import SPARK_TYPES
from spillway.store.tables import Between, Table, Tables
from spillway.store.writing import shaped

_OWN = ("seq", "batch", "batch_date")


@dataclass(frozen=True)
class FrameStretch:
    """Some frames of one batch date, and what is asked of them; travels to wherever it is read."""

    day: date
    way: Up
    parts: tuple[FramePart, ...]
    question: Question
    contract: StreamContract
    schema: pa.Schema

    @property
    def tuples(self) -> int:
        """How many `seq` numbers it spans."""
        return sum(part.to_seq - part.from_seq + 1 for part in self.parts)

    def rows(self, counts: dict[str, int]) -> Iterator[pa.Table]:
        """The rows that are asked for, some at a time; counts `frames` that were read, and `asked_back_bytes`."""
        rows = self.way.given_back(1, self.day)
        columns = [name for name in self.schema.names if name not in _OWN]
        held: list[pa.Table] = []
        for parts in in_spans(self.parts):
            held += self._of(rows, columns, parts, counts)
            if sum(one.num_rows for one in held) >= AT_A_TIME // 2:
                yield pa.concat_tables(held)
                held = []
        counts["asked_back_bytes"] = counts.get("asked_back_bytes", 0) + rows.asked_back_bytes
        if held:
            yield pa.concat_tables(held)

    def _of(
        self, rows: Rows, columns: Sequence[str], parts: Sequence[FramePart], counts: dict[str, int]
    ) -> Iterator[pa.Table]:
        """The rows of adjacent parts of one batch."""
        batch, low, high = parts[0].batch, parts[0].from_seq, parts[-1].to_seq
        if self.question.is_of_rows:
            base = list(dict.fromkeys([*self.question.key, self.contract.order]))
            hits = self.question.matching(rows(base, low, high), self.contract)
            seq = np.asarray(hits["seq"])
        else:
            seq = None
        for found, frames in self._given(rows, columns, parts, seq):
            counts["frames"] = counts.get("frames", 0) + frames
            if found.num_rows:
                numbers = pa.array(np.full(found.num_rows, batch))
                day = pa.repeat(pa.scalar(self.day, pa.date32()), found.num_rows)
                found = found.append_column("batch", numbers).append_column("batch_date", day)
                yield shaped(found, self.schema)

    @staticmethod
    def _given(
        rows: Rows, columns: Sequence[str], parts: Sequence[FramePart], seq: np.ndarray | None
    ) -> Iterator[tuple[pa.Table, int]]:
        """The rows, and of how many frames; of the frames that hold one of `seq` alone where that is told."""
        if seq is None:
            yield rows(columns, parts[0].from_seq, parts[-1].to_seq), len(parts)
            return
        for part in parts:
            mine = seq[np.searchsorted(seq, part.from_seq) : np.searchsorted(seq, part.to_seq, "right")]
            if len(mine):
                found = rows(columns, int(mine[0]), int(mine[-1]))
                yield found.filter(pc.is_in(found["seq"], value_set=pa.array(mine))), 1


@dataclass(frozen=True)
class Reading:
    """What is asked of a stream, planned."""

    schema: pa.Schema
    stretches: tuple[FrameStretch, ...]

    def only(self, names: Sequence[str]) -> Reading:
        """The same rows with some of their columns."""
        schema = pa.schema([self.schema.field(name) for name in names])
        return Reading(schema, tuple(replace(stretch, schema=schema) for stretch in self.stretches))

    @property
    def bounded(self) -> frozenset[str]:
        """The attributes of which values may come with a bound."""
        decisions = (one for stretch in self.stretches for one in stretch.way.decisions)
        return frozenset(name for one in decisions for name in one.bounded)

    def rows(self, counts: dict[str, int]) -> Iterator[pa.Table]:
        """All of it, in `seq` order, some rows at a time."""
        for stretch in self.stretches:
            yield from stretch.rows(counts)


def plan_reading(
    tables: Tables,
    contract: StreamContract,
    question: Question,
    names: Sequence[str] | None = None,
    most: int = MOST_ROWS,
) -> Reading:
    """What is asked, as stretches of about `most` tuples; `names`: the columns (default: `readable`)."""
    schema = readable(tables, contract)
    if names is not None:
        schema = pa.schema([schema.field(name) for name in names])
    low, high = question.seq_range
    stretches: list[FrameStretch] = []
    for way, batches in _ways_up(tables, contract, asked_batches(tables, contract, question)):
        inside = _may_hold(tables, contract, question, batches)
        parts = [part for batch in batches for part in frame_parts(batch, low, high) if inside(part)]
        for some in _about(parts, most):
            stretches.append(FrameStretch(batches[0].batch_date, way, some, question, contract, schema))
    return Reading(schema, tuple(stretches))


WEIGHT = "weight"
"""The column in which rows of a stream that loses rows say how many they stand for."""


def readable(tables: Tables, contract: StreamContract) -> pa.Schema:
    """The columns that a stream is read with: those of its table `recovered`; of what levers add, `weight` alone.

    Nobody can count rows that does not know how many each stands for. A bound is there of every attribute that may ever
    have been shed: keys and the order attribute never were.
    """
    whole = recovered_table(tables, contract).contract
    added = {name for one in _levers(tables, contract) for name, _, _ in columns_of(one)} - {WEIGHT}
    never = {
        name + suffix
        for name in (*contract.keys, contract.order)
        for suffix in (BOUND_SUFFIX, OWN_BOUND_SUFFIX)
    }
    return pa.schema(
        [
            pa.field(one.name, one.type)
            for one in whole.arrow_schema
            if one.name not in added and one.name not in never
        ]
    )


def asked_columns(contract: StreamContract, schema: pa.Schema, question: Question) -> list[str]:
    """The columns that a question is answered with: what tells tuples apart, the attributes, their bounds."""
    base = ["seq", *contract.keys, contract.order, *({WEIGHT} & set(schema.names) - set(contract.names))]
    known = [n for n in schema.names if n not in _OWN and not is_bound(n)]
    shown = [name for name in known if question.attributes is None or name in question.attributes]
    each = [name + suffix for name in shown for suffix in (BOUND_SUFFIX, OWN_BOUND_SUFFIX)]
    bounds = [name for name in each if name in schema.names]
    return list(dict.fromkeys([*base, *shown, *bounds]))


def recovered_table(tables: Tables, contract: StreamContract) -> Table:
    """The table `recovered` of the stream, with what the contract has lost since it was sent: that is still owed."""
    kinds = {spark: kind for kind, spark in SPARK_TYPES.items()}
    sent = tables.at("transmitted", contract.stream).types()
    added = tuple(column for name in _levers(tables, contract) for column in columns_of(name))
    own = {*_OWN, *(name for name, _, _ in added), *contract.names}
    attributes = [(attribute.name, attribute.type) for attribute in contract.attributes]
    attributes += [(name, kinds[kind]) for name, kind in sent.items() if name not in own]
    return tables.at("recovered", contract.stream).with_attributes(attributes, added, contract.bound_in_units)


def asked_batches(tables: Tables, contract: StreamContract, question: Question) -> list[Batch]:
    """The shed batches that can hold what is asked for, by their date, seq, and the edges of what was transmitted."""
    stream = contract.stream
    where: dict[str, Any] = {}
    if question.dates is not None:
        where["batch_date"] = Between(*question.dates)
    if question.seq is not None:
        where |= {"first_seq": Between(None, question.seq[1]), "last_seq": Between(question.seq[0], None)}
    if question.times is None:
        return shed_batches(tables, stream, **where)
    files = tables.at("transmitted", stream).files(**{contract.order: Between(*question.times)})
    days = {day for file in files if (day := as_date(file.value("batch_date"))) is not None}
    # where rows were laid aside, the edges of those that were sent say nothing of them
    if any(lever(name).sheds_rows for name in _levers(tables, contract)):
        found = shed_batches(tables, stream, **where)
        return [b for b in found if b.batch_date in days or any(lever(n).sheds_rows for n in b.levers)]
    if question.dates is not None:
        low, high = question.dates
        days = {day for day in days if (not low or day >= low) and (not high or day <= high)}
    return shed_batches(tables, stream, **where | {"batch_date": sorted(days)}) if days else []


def shed_batches(tables: Tables, stream: str, **where: Any) -> list[Batch]:
    """The stream's shed batches that have rows, of those that match, in the order of their `seq`."""
    found = load_batches(tables, stream, **where, status=[DONE, RETIRED], rows=Between(1))
    return sorted(found, key=lambda batch: batch.first_seq)


def decided(
    tables: Tables, contract: StreamContract, levers: Sequence[str], batches: Sequence[Batch]
) -> tuple[Decision, ...]:
    """What was decided by each of the levers for batches that went through them, read back."""
    return tuple(
        lever(name).decided(contract, batches, _facts(tables, contract.stream, name, batches), tables)
        for name in levers
    )


def _facts(tables: Tables, stream: str, name: str, batches: Iterable[Batch]) -> dict[int, Facts]:
    return needed_facts(tables, stream, name, [b.models[name] for b in batches if name in b.models])


def _ways_up(
    tables: Tables, contract: StreamContract, batches: Sequence[Batch]
) -> Iterator[tuple[Up, list[Batch]]]:
    """Consecutive batches of one date that went through the same levers, with their way back up."""
    days = sorted({batch.batch_date for batch in batches})
    # a frame may have begun in a batch that was not asked for
    framed = [b for b in shed_batches(tables, contract.stream, batch_date=days) if b.is_pinned]
    ways: dict[tuple[date, tuple[str, ...]], Up] = {}
    pinned = [batch for batch in batches if batch.is_pinned]
    for (day, levers), some in groupby(pinned, key=lambda batch: (batch.batch_date, batch.levers)):
        if (day, levers) not in ways:
            mine = [b for b in framed if (b.batch_date, b.levers) == (day, levers)]
            sent = tables.at("transmitted", contract.stream).stored(batch_date=day)
            ways[day, levers] = Up(sent, decided(tables, contract, levers, mine), len(contract.attributes))
        yield ways[day, levers], list(some)


def _may_hold(
    tables: Tables, contract: StreamContract, question: Question, batches: Sequence[Batch]
) -> Callable[[FramePart], bool]:
    """Whether a part of a frame may hold rows of the times asked for, as far as the files' edges tell."""
    if question.times is None or any(lever(name).sheds_rows for name in batches[0].levers):
        return lambda _: True
    files = tables.at("transmitted", contract.stream).files(
        batch_date=batches[0].batch_date, **{contract.order: Between(*question.times)}
    )
    edges = [(file.low("seq"), file.high("seq")) for file in files]
    if any(low is None or high is None for low, high in edges):
        return lambda _: True
    return lambda part: any(low <= part.to_seq and part.from_seq <= high for low, high in edges)


def _levers(tables: Tables, contract: StreamContract) -> list[str]:
    """The levers of the contract, and those that batches of the stream went through."""
    held = tables.at("batches").rows(["levers"], stream=contract.stream)["levers"]
    return sorted({*contract.lever_names, *pc.list_flatten(held).unique().to_pylist()})


def _about(parts: Iterable[FramePart], most: int) -> Iterator[tuple[FramePart, ...]]:
    """Consecutive parts, in groups of about so many tuples."""
    held: list[FramePart] = []
    tuples = 0
    for part in parts:
        held.append(part)
        tuples += part.to_seq - part.from_seq + 1
        if tuples >= most:
            yield tuple(held)
            held, tuples = [], 0
    if held:
        yield tuple(held)


def in_spans(parts: Iterable[FramePart], most: int = AT_A_TIME) -> Iterator[list[FramePart]]:
    """Parts of one batch that follow one another, together while they are of at most so many tuples; long ones cut.

    >>> day = date(2026, 1, 1)
    >>> cut = [FramePart(1, day, 0, 0, 63), FramePart(1, day, 64, 64, 127), FramePart(2, day, 128, 128, 160)]
    >>> [[(part.from_seq, part.to_seq) for part in span] for span in in_spans(cut, 150)]
    [[(0, 63), (64, 127)], [(128, 160)]]
    >>> [[(part.from_seq, part.to_seq) for part in span] for span in in_spans(cut, 50)][:2]
    [[(0, 49)], [(50, 63)]]
    """
    held: list[FramePart] = []
    for whole in parts:
        for low in range(whole.from_seq, whole.to_seq + 1, most):
            part = replace(whole, from_seq=low, to_seq=min(whole.to_seq, low + most - 1))
            follows = bool(held) and (held[-1].batch, held[-1].to_seq + 1) == (part.batch, part.from_seq)
            if held and (not follows or part.to_seq - held[0].from_seq >= most):
                yield held
                held = []
            held.append(part)
    if held:
        yield held
