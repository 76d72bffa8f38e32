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

What somebody wants given back: a stream's attributes, a key, a range; parsed here for whoever asks.

Command line, job and form ask by words (`Question.parse`), programs by a mapping of columns (`Question.where`).

A time without an offset is read on the clocks of the contract's `timezone` (as records are), one with an offset is
brought to UTC. A range includes both its ends; one end alone is a
single value. A key attribute that is named several times may have any of the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import DONE, RETIRED, Batch
from spillway.contracts import StreamContract
from spillway.contracts.column_names import BOUND_SUFFIX, OWN_BOUND_SUFFIX, is_bound
from spillway.contracts.fields import suggest
from spillway.contracts.timezone import in_zone, utc_moment
from spillway.errors import UsageError
from spillway.levers.pieces import MOST_ROWS, frame_parts
from spillway.levers.protocol import Decision, Facts, FramePart, Rows
from spillway.registry import columns_of, lever
from spillway.store.batches import load_batches
from spillway.store.files import as_date
from spillway.store.schemas import SPARK_TYPES
from spillway.store.tables import Between, Table, Tables
from spillway.store.writing import shaped
from spillway.streams.facts import needed_facts
from spillway.streams.stages import AT_A_TIME, Up

EVERYTHING = (0, 2**62)


@dataclass(frozen=True)
class Question:
    """A question about one stream, checked against its contract.

    >>> from spillway.contracts import read_stream
    >>> net = read_stream({"stream": "net", "channel": "up", "source": {"format": "csv"}, "attributes": [
    ...     {"name": "router", "type": "string", "role": "key"}, {"name": "at", "type": "timestamp", "role": "order"},
    ...     {"name": "delay", "type": "double"}]})
    >>> asked = Question.parse(net, key=["router=r1", "router=r2"], from_time="2026-01-01T05:00:00+05:00")
    >>> asked.key, asked.times[0].isoformat()
    ({'router': ('r1', 'r2')}, '2026-01-01T00:00:00+00:00')
    >>> Question.parse(net, key=["delay=3"])
    Traceback (most recent call last):
        ...
    spillway.errors.UsageError: `key` must be NAME=VALUE with NAME one of router, got 'delay=3'; write e.g. router=X
    """

    attributes: tuple[str, ...] | None = None
    key: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    seq: tuple[int, int] | None = None
    times: tuple[Any, Any] | None = None
    """First and last value of the order attribute; None is open."""
    dates: tuple[date | None, date | None] | None = None
    """First and last batch date; None is open."""

    @staticmethod
    def where(
        contract: StreamContract,
        conditions: Mapping[str, Any] | None = None,
        attributes: str | Sequence[str] | None = None,
    ) -> Question:
        """By column: of a key a value, or a list of which any will do; of others a value, or the two ends of a range.

        A range includes both its ends; None is open.

        >>> from spillway.contracts import read_stream
        >>> net = read_stream({"stream": "net", "channel": "up", "source": {"format": "csv"}, "attributes": [
        ...     {"name": "router", "type": "string", "role": "key"}, {"name": "delay", "type": "double"},
        ...     {"name": "at", "type": "timestamp", "role": "order"}]})
        >>> asked = Question.where(net, {"router": ["r1", "r2"], "at": ("2026-01-01T05:00+05:00", None)})
        >>> asked.key, asked.times[0].isoformat(), asked.times[1]
        ({'router': ('r1', 'r2')}, '2026-01-01T00:00:00+00:00', None)
        """
        ranges: dict[str, tuple[Any, Any]] = {}
        key: dict[str, tuple[Any, ...]] = {}
        for name, condition in (conditions or {}).items():
            if name in contract.keys:
                values = condition if isinstance(condition, list) else [condition]
                key[name] = tuple(_key(contract, name, value) for value in values)
            elif name in (contract.order, "seq", "batch_date"):
                ranges[name] = _ends(contract, name, condition)
            else:
                known = [*contract.keys, contract.order, "seq", "batch_date"]
                there = name in contract.names
                remedy = "filter what is read by it instead" if there else suggest(name, known)
                raise UsageError(f"`where` must be about {', '.join(known)}, got {name!r}; {remedy}")
        low, high = ranges.get("seq", (None, None))
        return Question(
            _attributes(contract, attributes.split(",") if isinstance(attributes, str) else attributes),
            key,
            (EVERYTHING[0] if low is None else low, EVERYTHING[1] if high is None else high)
            if "seq" in ranges
            else None,
            ranges.get(contract.order),
            ranges.get("batch_date"),
        )

    @staticmethod
    def parse(
        contract: StreamContract,
        attributes: str | Sequence[str] | None = None,
        key: Sequence[str] = (),
        seq: int | None = None,
        from_seq: int | None = None,
        to_seq: int | None = None,
        from_time: str | None = None,
        to_time: str | None = None,
    ) -> Question:
        """The question as people type it; what it cannot mean is a `UsageError` that says what it can."""
        if seq is not None and (from_seq is not None or to_seq is not None):
            raise UsageError("`seq` must stand without a first and a last seq; give one or the other")
        names = attributes.split(",") if isinstance(attributes, str) else attributes
        return Question(
            _attributes(contract, names),
            _keys(contract, key),
            _range(from_seq if seq is None else seq, to_seq if seq is None else seq, "seq"),
            _range(_time(contract, "from_time", from_time), _time(contract, "to_time", to_time), "time"),
        )

    @property
    def is_of_rows(self) -> bool:
        """Whether it asks for some rows of a range of `seq`, and not for all of them."""
        return bool(self.key) or self.times is not None

    @property
    def seq_range(self) -> tuple[int, int]:
        """First and last `seq` that are asked for."""
        return self.seq or EVERYTHING

    def matching(self, rows: pa.Table, contract: StreamContract) -> pa.Table:
        """The rows of the key and the times."""
        if not rows.num_rows:  # whose columns have no types to compare with
            return rows
        for name, values in self.key.items():
            column = rows[name]
            rows = rows.filter(pc.is_in(column, value_set=pa.array(values).cast(column.type)))
        if self.times is not None:
            column = rows[contract.order]
            for edge, keeps in zip(self.times, (pc.greater_equal, pc.less_equal), strict=True):
                if edge is not None:
                    rows = rows.filter(keeps(rows[contract.order], pa.scalar(edge).cast(column.type)))
        return rows

    def nothing(self, contract: StreamContract) -> str:
        """What to say when no tuple matches."""
        asked = [f"{name} = {' or '.join(map(str, values))}" for name, values in self.key.items()]
        if self.seq:
            asked.append(f"seq {self.seq[0]}..{self.seq[1]}")
        for ends in (self.times, self.dates):
            if ends is not None:
                asked.append("..".join("" if end is None else str(end) for end in ends))
        return (
            f"{contract.stream}: the range must hold transmitted tuples, got none for "
            f"{', '.join(asked) or 'the stream'}; `spillway status` says what has been shed"
        )


def _attributes(contract: StreamContract, names: Sequence[str] | None) -> tuple[str, ...] | None:
    if not names:
        return None
    unknown = [name for name in names if name not in contract.names]
    if unknown:
        raise UsageError(
            f"`attributes` must be of the stream {contract.stream}, got {', '.join(unknown)}; use "
            f"{', '.join(contract.names)}"
        )
    return tuple(names)


def _keys(contract: StreamContract, pairs: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for name, value in (_pair(contract, pair) for pair in pairs):
        found[name] = (*found.get(name, ()), value)
    return found


def _pair(contract: StreamContract, pair: str) -> tuple[str, Any]:
    name, found, value = pair.partition("=")
    known = contract.keys
    if not found or name not in known:
        example = f"write e.g. {known[0]}=X" if known else "the stream has no key: ask for a range"
        raise UsageError(
            f"`key` must be NAME=VALUE with NAME one of {', '.join(known) or 'none'}, got {pair!r}; {example}"
        )
    return name, _key(contract, name, value)


def _key(contract: StreamContract, name: str, value: Any) -> Any:
    try:
        return pa.scalar(value).cast(contract.attribute(name).arrow_type).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        kind = contract.attribute(name).type
        raise UsageError(f"`key` {name} must be of type {kind}, got {value!r}; write it as one") from problem


def _ends(contract: StreamContract, name: str, condition: Any) -> tuple[Any, Any]:
    """Both ends of a range of a column; one value is both."""
    if isinstance(condition, list | tuple) and len(condition) != 2:
        raise UsageError(
            f"`{name}` must be a value or a pair, the ends of a range, got {condition!r}; write (first, last)"
        )
    low, high = condition if isinstance(condition, list | tuple) else (condition, condition)
    kind = {"seq": "integer", "batch_date": "date"}.get(name) or contract.attribute(name).type
    first, last = (_value(contract, name, kind, end) for end in (low, high))
    if first is not None and last is not None:
        _range(first, last, name)
    return first, last


def _range(low: Any, high: Any, what: str) -> tuple[Any, Any] | None:
    if low is None and high is None:
        return None
    first, last = (low if low is not None else high), (high if high is not None else low)
    if last < first:
        raise UsageError(
            f"the {what} range must not end before it begins, got {first}..{last}; exchange them"
        )
    return first, last


def _time(contract: StreamContract, name: str, text: str | None) -> Any:
    return _value(contract, name, contract.attribute(contract.order).type, text, f", as {contract.order} is")


def _value(contract: StreamContract, name: str, kind: str, told: Any, why: str = "") -> Any:
    """A value of an ordered column, as somebody wrote it or as programs have it."""
    if told is None or (kind == "integer" and type(told) is int) or (kind == "date" and type(told) is date):
        return told
    try:
        if kind == "integer":
            return int(_text(told))
        if isinstance(told, date):  # a moment is one too
            at = told if isinstance(told, datetime) else datetime.combine(told, time())
        else:
            at = datetime.fromisoformat(_text(told))
    except ValueError as problem:
        what, example = (
            ("a whole number", "4711") if kind == "integer" else ("an ISO date or time", "2013-02-01T06:00")
        )
        raise UsageError(f"`{name}` must be {what}{why}, got {told!r}; write e.g. {example}") from problem
    try:
        if kind == "date":
            return (at if at.tzinfo is None else in_zone(at, contract.timezone)).date()
        moment = utc_moment(at, contract.timezone)
    except OverflowError as problem:
        raise UsageError(
            f"`{name}` must be in the years 1 to 9999 also without its offset, got {str(told)!r}; write it in UTC"
        ) from problem
    if moment is None:
        raise UsageError(
            f"`{name}` must be a time that clocks in {contract.timezone} show, got {str(told)!r}, which they skip; "
            f"write it with its offset, as {told}Z"
        )
    return moment


def _text(told: Any) -> str:
    if not isinstance(told, str):
        raise ValueError(f"{type(told).__name__} is no text")
    return told


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
