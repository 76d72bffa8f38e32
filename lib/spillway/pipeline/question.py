"""What somebody wants given back: a stream's attributes, a key, a range; parsed here for whoever asks.

Command line, job and form ask by words (`Question.parse`), programs by a mapping of columns (`Question.where`).

A time without an offset is read on the clocks of the contract's `timezone` (as records are), one with an offset is
brought to UTC. A range includes both its ends; one end alone is a
single value. A key attribute that is named several times may have any of the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.contracts import StreamContract
from spillway.contracts.fields import suggest
from spillway.contracts.timezone import in_zone, utc_moment
from spillway.errors import UsageError

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
