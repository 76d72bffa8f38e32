"""Read a stream as it was: recover shed values on the fly, each with its bound, and read only what a query needs.

A `QueryPlan` is planned from the tables alone, and can be read anywhere. It consists of slices (`SliceQuery`: some
frames of one batch date) that can be pickled. Each slice makes its rows with the kernels of recovery. So a look-up in
this process, a file, a table that Spark's tasks write, `spillway.read` and Spark's data source all return the same
values. Batch dates, batches, files and frames that cannot hold the requested rows are skipped before any value is
recovered. Memory is limited to some ten thousand rows, however long the range is.

The column `<attribute>__bound_pct` holds the bound of each value in per cent:

    value   bound      meaning
    any     null       the value is exact; a null was null
    any     a number   rounded, or shed and recovered, within that many per cent; a null was null
    any     NaN        rounded, or shed and recovered, within `<attribute>__bound`: no relative bound holds
    null    infinity   shed and absent here: dropped for good, or kept at the source and available there

If the contract states `error` for an attribute, the column `<attribute>__bound` holds the bound in the attribute's own
unit. It is null if the value is exact or absent. A value smaller than that bound has no bound in per cent.

A `StreamQuery` is a query of one stream: attributes, keys and a range, checked against the contract. The command line,
jobs and forms create it from text (`StreamQuery.parse`); programs create it from a mapping of columns
(`StreamQuery.where`).

A time without an offset is local time in the contract's `timezone`, as in records. A time with an offset is converted
to UTC. A range includes both its ends. One end alone stands for a single value. If a key attribute is given several
times, a row may have any of the values.
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
from spillway.levers.frame_slices import MOST_ROWS, frame_slices
from spillway.levers.protocol import Decision, Facts, FrameSlice, Rows
from spillway.registry import columns_of, lever
from spillway.store.batches import load_batches
from spillway.store.file_writer import conform_to_schema
from spillway.store.files import as_date
from spillway.store.schemas import SPARK_TYPES
from spillway.store.tables import Between, Table, Tables
from spillway.streams.facts import needed_facts
from spillway.streams.stages import AT_A_TIME, RecoveryPath

EVERYTHING = (0, 2**62)


@dataclass(frozen=True)
class StreamQuery:
    """A query of one stream, checked against its contract.

    >>> from spillway.contracts import read_stream
    >>> net = read_stream({"stream": "net", "channel": "up", "source": {"format": "csv"}, "attributes": [
    ...     {"name": "router", "type": "string", "role": "key"}, {"name": "at", "type": "timestamp", "role": "order"},
    ...     {"name": "delay", "type": "double"}]})
    >>> asked = StreamQuery.parse(net, key=["router=r1", "router=r2"], from_time="2026-01-01T05:00:00+05:00")
    >>> asked.key, asked.times[0].isoformat()
    ({'router': ('r1', 'r2')}, '2026-01-01T00:00:00+00:00')
    >>> StreamQuery.parse(net, key=["delay=3"])
    Traceback (most recent call last):
        ...
    spillway.errors.UsageError: `key` must be NAME=VALUE with NAME one of router, got 'delay=3'; write e.g. router=X
    """

    attributes: tuple[str, ...] | None = None
    key: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    seq: tuple[int, int] | None = None
    times: tuple[Any, Any] | None = None
    """First and last value of the order attribute; None means open."""
    dates: tuple[date | None, date | None] | None = None
    """First and last batch date; None means open."""

    @staticmethod
    def where(
        contract: StreamContract,
        conditions: Mapping[str, Any] | None = None,
        attributes: str | Sequence[str] | None = None,
    ) -> StreamQuery:
        """Create a query from conditions on columns.

        A condition on a key is a value, or a list of values of which a row may have any. A condition on another column
        is a value, or a pair with both ends of a range. A range includes both its ends; None means open.

        >>> from spillway.contracts import read_stream
        >>> net = read_stream({"stream": "net", "channel": "up", "source": {"format": "csv"}, "attributes": [
        ...     {"name": "router", "type": "string", "role": "key"}, {"name": "delay", "type": "double"},
        ...     {"name": "at", "type": "timestamp", "role": "order"}]})
        >>> asked = StreamQuery.where(net, {"router": ["r1", "r2"], "at": ("2026-01-01T05:00+05:00", None)})
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
        return StreamQuery(
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
    ) -> StreamQuery:
        """Create a query from the text that users type.

        If the text is invalid, raise a `UsageError` that says what is allowed.
        """
        if seq is not None and (from_seq is not None or to_seq is not None):
            raise UsageError("`seq` must not be combined with a first or a last seq; remove one of them")
        names = attributes.split(",") if isinstance(attributes, str) else attributes
        return StreamQuery(
            _attributes(contract, names),
            _keys(contract, key),
            _range(from_seq if seq is None else seq, to_seq if seq is None else seq, "seq"),
            _range(_time(contract, "from_time", from_time), _time(contract, "to_time", to_time), "time"),
        )

    @property
    def is_of_rows(self) -> bool:
        """Whether the query selects single rows of a range of `seq`, by key or time, and not all rows of it."""
        return bool(self.key) or self.times is not None

    @property
    def seq_range(self) -> tuple[int, int]:
        """The first and the last `seq` that the query may select."""
        return self.seq or EVERYTHING

    def matching(self, rows: pa.Table, contract: StreamContract) -> pa.Table:
        """Return the rows that match the keys and the times."""
        if not rows.num_rows:  # the columns of an empty table may have no types to compare with
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
        """Return the message for a query that no tuple matches."""
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
    """Return both ends of a range of a column; a single value is both ends."""
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
    """Return a value of an ordered column, given as text or as a Python value."""
    if told is None or (kind == "integer" and type(told) is int) or (kind == "date" and type(told) is date):
        return told
    try:
        if kind == "integer":
            return int(_text(told))
        if isinstance(told, date):  # a datetime is a date too
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
class SliceQuery:
    """Some frames of one batch date with the query about them; it is pickled and sent to the task that reads them."""

    day: date
    way: RecoveryPath
    parts: tuple[FrameSlice, ...]
    question: StreamQuery
    contract: StreamContract
    schema: pa.Schema

    @property
    def tuples(self) -> int:
        """The number of `seq` values that the frames span."""
        return sum(part.to_seq - part.from_seq + 1 for part in self.parts)

    def rows(self, counts: dict[str, int]) -> Iterator[pa.Table]:
        """Yield the rows that the query selects, some at a time.

        Add to `counts`: `frames`, the number of frames that were read, and `asked_back_bytes`.
        """
        rows = self.way.recovered_rows(1, self.day)
        columns = [name for name in self.schema.names if name not in _OWN]
        held: list[pa.Table] = []
        for parts in split_slices(self.parts):
            held += self._of(rows, columns, parts, counts)
            if sum(one.num_rows for one in held) >= AT_A_TIME // 2:
                yield pa.concat_tables(held)
                held = []
        counts["asked_back_bytes"] = counts.get("asked_back_bytes", 0) + rows.bytes_read_at_source
        if held:
            yield pa.concat_tables(held)

    def _of(
        self, rows: Rows, columns: Sequence[str], parts: Sequence[FrameSlice], counts: dict[str, int]
    ) -> Iterator[pa.Table]:
        """Yield the rows of adjacent slices of one batch."""
        batch, low, high = parts[0].batch, parts[0].from_seq, parts[-1].to_seq
        if self.question.is_of_rows:
            base = list(dict.fromkeys([*self.question.key, self.contract.order]))
            hits = self.question.matching(rows(base, low, high), self.contract)
            seq = np.asarray(hits["seq"])
        else:
            seq = None
        for found, frames in self._with_frames(rows, columns, parts, seq):
            counts["frames"] = counts.get("frames", 0) + frames
            if found.num_rows:
                numbers = pa.array(np.full(found.num_rows, batch))
                day = pa.repeat(pa.scalar(self.day, pa.date32()), found.num_rows)
                found = found.append_column("batch", numbers).append_column("batch_date", day)
                yield conform_to_schema(found, self.schema)

    @staticmethod
    def _with_frames(
        rows: Rows, columns: Sequence[str], parts: Sequence[FrameSlice], seq: np.ndarray | None
    ) -> Iterator[tuple[pa.Table, int]]:
        """Yield rows with the number of frames that they come from.

        `seq`: if given, only these rows, and only the frames that hold one of them are read.
        """
        if seq is None:
            yield rows(columns, parts[0].from_seq, parts[-1].to_seq), len(parts)
            return
        for part in parts:
            mine = seq[np.searchsorted(seq, part.from_seq) : np.searchsorted(seq, part.to_seq, "right")]
            if len(mine):
                found = rows(columns, int(mine[0]), int(mine[-1]))
                yield found.filter(pc.is_in(found["seq"], value_set=pa.array(mine))), 1


@dataclass(frozen=True)
class QueryPlan:
    """A planned query: the columns of the answer, and the slices to read."""

    schema: pa.Schema
    stretches: tuple[SliceQuery, ...]

    def only(self, names: Sequence[str]) -> QueryPlan:
        """Return the same reading with some of its columns."""
        schema = pa.schema([self.schema.field(name) for name in names])
        return QueryPlan(schema, tuple(replace(stretch, schema=schema) for stretch in self.stretches))

    @property
    def bounded(self) -> frozenset[str]:
        """The attributes whose values may have a bound."""
        decisions = (one for stretch in self.stretches for one in stretch.way.decisions)
        return frozenset(name for one in decisions for name in one.bounded_attributes)

    def rows(self, counts: dict[str, int]) -> Iterator[pa.Table]:
        """Yield all rows in the order of `seq`, some at a time."""
        for stretch in self.stretches:
            yield from stretch.rows(counts)


def plan_query(
    tables: Tables,
    contract: StreamContract,
    question: StreamQuery,
    names: Sequence[str] | None = None,
    most: int = MOST_ROWS,
) -> QueryPlan:
    """Plan a query as slices of about `most` tuples.

    `names`: the columns of the answer (default: all that `readable_schema` returns).
    """
    schema = readable_schema(tables, contract)
    if names is not None:
        schema = pa.schema([schema.field(name) for name in names])
    low, high = question.seq_range
    stretches: list[SliceQuery] = []
    for way, batches in _recovery_paths(tables, contract, matching_batches(tables, contract, question)):
        inside = _may_hold(tables, contract, question, batches)
        parts = [part for batch in batches for part in frame_slices(batch, low, high) if inside(part)]
        for some in _group_slices(parts, most):
            stretches.append(SliceQuery(batches[0].batch_date, way, some, question, contract, schema))
    return QueryPlan(schema, tuple(stretches))


WEIGHT = "weight"
"""The column with the number of rows that a row represents, in streams with a lever that drops rows."""


def readable_schema(tables: Tables, contract: StreamContract) -> pa.Schema:
    """Return the columns that a stream can be read with: those of its table `recovered`.

    Of the columns that levers add, only `weight` is included, because rows cannot be counted without it. Every
    attribute that may ever have been shed has a column for its bound. Keys and the order attribute were never shed and
    have none.
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


def answer_columns(contract: StreamContract, schema: pa.Schema, question: StreamQuery) -> list[str]:
    """Return the columns of the answer: `seq`, keys, order and weight, then the attributes and their bounds."""
    base = ["seq", *contract.keys, contract.order, *({WEIGHT} & set(schema.names) - set(contract.names))]
    known = [n for n in schema.names if n not in _OWN and not is_bound(n)]
    shown = [name for name in known if question.attributes is None or name in question.attributes]
    each = [name + suffix for name in shown for suffix in (BOUND_SUFFIX, OWN_BOUND_SUFFIX)]
    bounds = [name for name in each if name in schema.names]
    return list(dict.fromkeys([*base, *shown, *bounds]))


def recovered_table(tables: Tables, contract: StreamContract) -> Table:
    """Return the table `recovered` of the stream.

    It includes attributes that were sent earlier and that the contract no longer has, because their rows can still be
    read.
    """
    kinds = {spark: kind for kind, spark in SPARK_TYPES.items()}
    sent = tables.at("transmitted", contract.stream).types()
    added = tuple(column for name in _levers(tables, contract) for column in columns_of(name))
    own = {*_OWN, *(name for name, _, _ in added), *contract.names}
    attributes = [(attribute.name, attribute.type) for attribute in contract.attributes]
    attributes += [(name, kinds[kind]) for name, kind in sent.items() if name not in own]
    return tables.at("recovered", contract.stream).with_attributes(attributes, added, contract.bound_in_units)


def matching_batches(tables: Tables, contract: StreamContract, question: StreamQuery) -> list[Batch]:
    """Return the shed batches that can hold selected rows, by date, `seq`, and the statistics of `transmitted`."""
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
    # if rows were kept at the source, the statistics of the sent rows say nothing about them
    if any(lever(name).sheds_rows for name in _levers(tables, contract)):
        found = shed_batches(tables, stream, **where)
        return [b for b in found if b.batch_date in days or any(lever(n).sheds_rows for n in b.levers)]
    if question.dates is not None:
        low, high = question.dates
        days = {day for day in days if (not low or day >= low) and (not high or day <= high)}
    return shed_batches(tables, stream, **where | {"batch_date": sorted(days)}) if days else []


def shed_batches(tables: Tables, stream: str, **where: Any) -> list[Batch]:
    """Return the stream's shed batches that have rows and match `where`, in the order of their `seq`."""
    found = load_batches(tables, stream, **where, status=[DONE, RETIRED], rows=Between(1))
    return sorted(found, key=lambda batch: batch.first_seq)


def stored_decisions(
    tables: Tables, contract: StreamContract, levers: Sequence[str], batches: Sequence[Batch]
) -> tuple[Decision, ...]:
    """Return the stored decision of each lever for batches that went through these levers."""
    return tuple(
        lever(name).load_decision(contract, batches, _facts(tables, contract.stream, name, batches), tables)
        for name in levers
    )


def _facts(tables: Tables, stream: str, name: str, batches: Iterable[Batch]) -> dict[int, Facts]:
    return needed_facts(tables, stream, name, [b.models[name] for b in batches if name in b.models])


def _recovery_paths(
    tables: Tables, contract: StreamContract, batches: Sequence[Batch]
) -> Iterator[tuple[RecoveryPath, list[Batch]]]:
    """Yield consecutive batches of one date that went through the same levers, with their recovery path."""
    days = sorted({batch.batch_date for batch in batches})
    # a frame may have begun in a batch that the query does not select
    framed = [b for b in shed_batches(tables, contract.stream, batch_date=days) if b.is_pinned]
    ways: dict[tuple[date, tuple[str, ...]], RecoveryPath] = {}
    pinned = [batch for batch in batches if batch.is_pinned]
    for (day, levers), some in groupby(pinned, key=lambda batch: (batch.batch_date, batch.levers)):
        if (day, levers) not in ways:
            mine = [b for b in framed if (b.batch_date, b.levers) == (day, levers)]
            sent = tables.at("transmitted", contract.stream).stored_files(batch_date=day)
            ways[day, levers] = RecoveryPath(
                sent, stored_decisions(tables, contract, levers, mine), len(contract.attributes)
            )
        yield ways[day, levers], list(some)


def _may_hold(
    tables: Tables, contract: StreamContract, question: StreamQuery, batches: Sequence[Batch]
) -> Callable[[FrameSlice], bool]:
    """Return a test whether a slice of a frame may hold rows of the query's times, by the statistics of the files."""
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
    """Return the levers of the contract, and those that earlier batches of the stream went through."""
    held = tables.at("batches").rows(["levers"], stream=contract.stream)["levers"]
    return sorted({*contract.lever_names, *pc.list_flatten(held).unique().to_pylist()})


def _group_slices(parts: Iterable[FrameSlice], most: int) -> Iterator[tuple[FrameSlice, ...]]:
    """Yield consecutive slices in groups of about `most` tuples."""
    held: list[FrameSlice] = []
    tuples = 0
    for part in parts:
        held.append(part)
        tuples += part.to_seq - part.from_seq + 1
        if tuples >= most:
            yield tuple(held)
            held, tuples = [], 0
    if held:
        yield tuple(held)


def split_slices(parts: Iterable[FrameSlice], most: int = AT_A_TIME) -> Iterator[list[FrameSlice]]:
    """Yield adjacent slices of one batch in groups of at most `most` tuples; slices longer than that are divided.

    >>> day = date(2026, 1, 1)
    >>> cut = [FrameSlice(1, day, 0, 0, 63), FrameSlice(1, day, 64, 64, 127), FrameSlice(2, day, 128, 128, 160)]
    >>> [[(part.from_seq, part.to_seq) for part in span] for span in split_slices(cut, 150)]
    [[(0, 63), (64, 127)], [(128, 160)]]
    >>> [[(part.from_seq, part.to_seq) for part in span] for span in split_slices(cut, 50)][:2]
    [[(0, 49)], [(50, 63)]]
    """
    held: list[FrameSlice] = []
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
