"""The contract of a stream: every field, its meaning, its rule and its default.

The fields below are the only definition. The reader, its errors and the JSON Schema for editors follow from them. The
fields of a lever are defined by the lever (see `contracts.levers`). `Contracts` holds all contracts that were loaded,
and `BrokenContract` is one that is not valid; the other contracts can still be used.

>>> from spillway.contracts import read_stream
>>> weather = read_stream({
...     "stream": "weather", "channel": "uplink",
...     "source": {"kind": "files", "path": "weather", "format": "json"},
...     "attributes": [
...         {"name": "origin", "type": "string", "role": "key", "nullable": False},
...         {"name": "time_hour", "type": "timestamp", "role": "order"},
...         {"name": "temp", "type": "double", "role": "measure", "unit": "degF"},
...     ],
... })
>>> weather.order, weather.keys, weather.sheddable, weather.mode
('time_hour', ('origin',), ('temp',), 'shed')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spillway.contracts.channel import Channel
from spillway.contracts.column_names import ColumnName
from spillway.contracts.fields import (
    DRAFT,
    ERROR_PCT,
    SUBJECT_NAME,
    Broken,
    Choice,
    Flag,
    Listing,
    Number,
    OptionalValue,
    Record,
    Text,
    rule,
    suggest,
)
from spillway.contracts.levers import (
    LeverEntry,
    Levers,
    Subject,
    default_levers,
    lever_problems,
    misplaced_lever_setting,
)
from spillway.contracts.row_rules import RowRule, row_rule_problems, rules_of_rows
from spillway.contracts.sections import (
    AlertHook,
    BadRecords,
    Batching,
    Duplicates,
    FrameLength,
    Rate,
    Retain,
    RetainRaw,
    Sketch,
    Source,
    sketch_problems,
)
from spillway.contracts.timezone import UTC_NAME, ZoneName
from spillway.contracts.workload import Workload
from spillway.errors import ContractError, InvalidValue, Problem


@dataclass(frozen=True)
class BrokenContract:
    """A contract that is not valid: its folder and subject, its problems, and the channel that it names, if any.

    >>> broken = BrokenContract("streams", "weather", ())
    >>> broken.may_go_through("uplink", {"uplink": Channel(capacity="1 kbps", name="uplink")})
    True
    """

    folder: str
    subject: str
    problems: tuple[Problem, ...]
    channel: str | None = None

    def may_go_through(self, channel: str, channels: Mapping[str, Channel]) -> bool:
        """Return whether the stream may use the channel. If it names no existing channel, it may use any."""
        if self.folder != "streams":
            return False
        own = channels.get(self.channel or "")
        return own is None or channel in (own.name, own.into)


# ruff: noqa: RUF009 - `rule` is dataclasses.field with a shape; it makes no shared value


TYPES = ("string", "boolean", "integer", "double", "timestamp", "date")
_TYPES_ELSEWHERE = {
    "string": "text str varchar char object",
    "boolean": "bool",
    "integer": "int int8 int16 int32 int64 long bigint smallint tinyint short",
    "double": "float float32 float64 real number numeric decimal",
    "timestamp": "datetime datetime64 timestamptz timestamp_ntz time",
}
"""Names of types in other systems, by the type of a contract that has their values."""
ROLES = ("key", "order", "measure", "protected")
DEFAULT_BITS = {"boolean": 1, "integer": 64, "double": 64, "timestamp": 64, "date": 32, "string": 128}
ARROW_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """One attribute of a stream. The order of attributes in the contract breaks ties."""

    name: str = rule(ColumnName(), "column name in every table")
    type: str = rule(
        Choice(
            TYPES,
            instead=tuple(
                (other, f"did you mean {own}?")
                for own, others in _TYPES_ELSEWHERE.items()
                for other in others.split()
            ),
        ),
        "data type; integer: 64 bits; timestamp: UTC, in microseconds",
    )
    role: str = rule(
        Choice(ROLES),
        "key: identifies the sender; order: time or sequence of the tuple (exactly one attribute); "
        "measure: may be shed or rounded; protected: always sent exactly",
        "measure",
    )
    bits: int | None = rule(
        OptionalValue(Number(least=1, most=1_000_000, whole=True)),
        "declared width in bits; null: by type",
        None,
    )
    unit: str | None = rule(
        OptionalValue(Text()),
        "unit of measure; for an integer order attribute: its unit of time (ns, us, ms, s, minute, "
        "hour, day, yyyymmdd, yyyymm, year), required by rate: {from: event_time}",
        None,
    )
    nullable: bool = rule(Flag(), "whether null is valid; keys and the order attribute are never null", True)
    error_pct: float | None = rule(
        OptionalValue(ERROR_PCT),
        "largest relative error of a recovered value, in %; takes precedence over `error_pct` of the "
        "lever; null: the trained bound",
        None,
    )
    error: float | None = rule(
        OptionalValue(Number(least=0)),
        "largest absolute error of a recovered value, in the unit of the attribute (timestamps: "
        "microseconds, dates: days); if error_pct is stated too, both bounds apply",
        None,
    )
    codes: bool = rule(
        Flag(),
        "true: the numbers are identifiers (a status, a customer); if no bound is stated, they are recovered "
        "exactly",
        False,
    )
    priority: float = rule(
        Number(above=0), "weight of its error relative to other measures; 1.0: neutral", 1.0
    )
    description: str = rule(Text(blank=True), "description of the attribute", "")
    field: str | None = rule(OptionalValue(Text()), "name of the field in the source; null: `name`", None)
    row_rules: tuple[RowRule, ...] = rule(
        Listing(Record(RowRule)), "rules for its values, checked at validation", (), yaml="rules"
    )

    @property
    def source_name(self) -> str:
        return self.name if self.field is None else self.field

    @property
    def required(self) -> bool:
        """Whether a tuple without a value is rejected: for keys, the order attribute, and if `nullable` is false."""
        return self.role in ("key", "order") or not self.nullable

    @property
    def declared_bits(self) -> int:
        return DEFAULT_BITS[self.type] if self.bits is None else self.bits

    @property
    def arrow_type(self) -> pa.DataType:
        return ARROW_TYPES[self.type]

    def rules(self) -> Iterator[Broken]:
        if self.role == "order" and self.type not in ("timestamp", "date", "integer") and self.type in TYPES:
            yield (
                "type",
                "be timestamp, date or integer for the order attribute",
                self.type,
                "order by another attribute",
            )
        for name in ("error_pct", "error"):
            if self.role in ("key", "order", "protected") and getattr(self, name) is not None:
                yield (
                    name,
                    f"be absent for role {self.role}",
                    getattr(self, name),
                    "it is never shed: remove it",
                )
        if self.role in ("key", "order", "protected") and self.priority != 1:
            yield (
                "priority",
                f"be absent for role {self.role}",
                self.priority,
                "it is always sent unchanged: remove it",
            )


def _is_text(value: object) -> bool:
    """Return False for a value that could not be read; the report has that problem."""
    return isinstance(value, str)


@dataclass(frozen=True, kw_only=True)
class StreamContract(Subject):
    """The contract of one stream: its source, its attributes, and the levers that its owner allows."""

    stream: str = rule(SUBJECT_NAME, "name of the stream, its tables and its folders")
    description: str = rule(Text(blank=True), "description in one sentence", "")
    source: Source = rule(Record(Source), "source of the tuples")
    attributes: tuple[Attribute, ...] = rule(Listing(Record(Attribute), least=1), "the attributes, in order")
    channel: str = rule(Text(), "name of its channel in channels.yaml")
    timezone: str = rule(
        ZoneName(),
        "time zone of times without an offset, in records and in queries; a local time that occurs "
        "twice (end of daylight saving time) is the earlier one; a local time that does not exist is "
        "rejected",
        UTC_NAME,
    )
    rate: Rate = rule(Record(Rate), "source of the stream's rate", Rate())
    width: str = rule(
        Choice(("compressed", "declared")),
        "size of a tuple. compressed: compressed bytes as written; declared: `bits` of the attributes",
        "compressed",
    )
    mode: str = rule(
        Choice(("observe", "shed")),
        "observe: plan and record, but send everything; shed: shed to the capacity",
        "shed",
    )
    batching: Batching | None = rule(
        OptionalValue(Record(Batching)),
        "small batches wait and are sent together, because a batch that is sent alone costs 1 to 2 kB for its "
        "file and log entry. Rows are in raw while they wait. `spillway run --now` and a backfill send them at "
        "once. null: no batch waits",
        None,
    )
    on_overflow: str = rule(
        Choice(("fail", "queue")),
        "treatment of a batch that exceeds the capacity after everything that may be shed is shed. "
        "fail: send it, record the shortfall, and fail the run; queue: keep it and all later batches "
        "at the source until it fits, if necessary in a later period of the quota",
        "fail",
    )
    frame: FrameLength = rule(Record(FrameLength), "the unit of recovery", FrameLength())
    row_group_tuples: int | None = rule(
        OptionalValue(Number(least=1, whole=True)),
        "rows per row group in the transmitted files; null: 500,000. Queries can skip whole row groups. Each row "
        "group costs about 100 bytes per column on the channel",
        None,
    )
    bad_records: BadRecords = rule(
        Record(BadRecords), "treatment of records that violate the contract", BadRecords()
    )
    unknown_fields: str = rule(
        Choice(("note", "refuse")),
        "treatment of a field or column that is not in the contract. note: count it and take in the "
        "known fields; refuse: reject the record (json), or the file (csv, parquet)",
        "note",
    )
    non_finite: str = rule(
        Choice(("keep", "null", "reject")),
        "treatment of NaN and infinities. keep: as values; null: as null; reject: reject the record",
        "keep",
    )
    duplicates: Duplicates = rule(
        Record(Duplicates), "treatment of files and rows that arrive twice", Duplicates()
    )
    retain_raw: RetainRaw = rule(Record(RetainRaw), "retention of raw tuples", RetainRaw())
    retain: Retain = rule(Record(Retain), "retention in the other tables", Retain())
    priority: float = rule(
        Number(above=0),
        "weight of its error relative to other streams of its channel; 1.0: neutral",
        1.0,
    )
    alerts: tuple[AlertHook, ...] = rule(
        Listing(Record(AlertHook)),
        "hooks that receive alerts about the stream, in addition to the hooks of its channel",
        (),
    )
    sketches: tuple[Sketch, ...] = rule(Listing(Record(Sketch)), "sketches (summaries) to store", ())
    row_rules: tuple[RowRule, ...] = rule(
        Listing(Record(RowRule)), "rules for its rows, checked at validation", (), yaml="rules"
    )
    levers: tuple[LeverEntry, ...] = rule(
        Levers(),
        "the levers, in order; []: the stream is taken in and sent unchanged; default: [{lever: "
        "attributes}], or [] if no attribute is a measure and mode is observe",
        None,
    )

    def __post_init__(self) -> None:
        stated: tuple[LeverEntry, ...] | None = self.levers
        if stated is None:
            idle = self.mode == "observe" and not self.sheddable
            object.__setattr__(self, "levers", () if idle else default_levers())

    @property
    def subject(self) -> str:
        return self.stream

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.attributes)

    @property
    def order(self) -> str:
        return next(a.name for a in self.attributes if a.role == "order")

    def of_role(self, role: str) -> tuple[str, ...]:
        return tuple(a.name for a in self.attributes if a.role == role)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.of_role("key")

    @property
    def sheddable(self) -> tuple[str, ...]:
        return self.of_role("measure")

    @property
    def bound_in_units(self) -> tuple[str, ...]:
        """The attributes whose error bound is stated in their own unit (`error`)."""
        return tuple(one.name for one in self.attributes if one.error is not None)

    @property
    def checked_rules(self) -> tuple[RowRule, ...]:
        """The rules that its rows must keep, each with all attributes to which it applies."""
        return tuple(one for _, one in rules_of_rows(self.attributes, self.row_rules))

    @property
    def path(self) -> str:
        """The landing folder as the contract states it (files only); by default the stream's name."""
        return self.stream if self.source.path is None else self.source.path

    def attribute(self, name: str) -> Attribute:
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise InvalidValue("attribute", f"be one of {self.stream}'s", name, suggest(name, self.names))

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.schema([pa.field(a.name, a.arrow_type, nullable=not a.required) for a in self.attributes])

    def rules(self) -> Iterator[Broken]:
        yield from self._attribute_rules()
        names = [a.name for a in self.attributes if _is_text(a.name)]
        named = [("duplicates.on", self.duplicates.on)]
        named += [(f"sketches[{i}].attributes", s.attributes) for i, s in enumerate(self.sketches)]
        for where, used in named:
            for i, name in enumerate(used or ()):
                if _is_text(name) and name not in names:
                    yield f"{where}[{i}]", "be an attribute of the stream", name, suggest(name, names)
        types = {a.name: a.type for a in self.attributes if _is_text(a.name)}
        yield from sketch_problems(self.sketches, types, self.stream)
        yield from row_rule_problems(self.attributes, self.row_rules, self.timezone)
        yield from lever_problems(self)

    @staticmethod
    def former_field(name: str) -> tuple[str, str] | None:
        """Return rule and remedy for fields of older contracts: a lever's settings, and `share`, now `priority`."""
        if name == "share":
            return "be written as priority", "write priority: 2.0"
        return misplaced_lever_setting(name)

    def _attribute_rules(self) -> Iterator[Broken]:
        seen: dict[str, int] = {}
        fields: dict[str, int] = {}
        for i, attribute in enumerate(self.attributes):
            if not (_is_text(attribute.name) and _is_text(attribute.source_name)):
                continue
            # Spark ignores the case of column names, so two names that differ only in case are the same.
            first = seen.setdefault(attribute.name.lower(), i)
            if first != i:
                yield (
                    f"attributes[{i}].name",
                    f"differ from attributes[{first}].name",
                    attribute.name,
                    "rename one",
                )
            elif fields.setdefault(attribute.source_name, i) != i:
                yield (
                    f"attributes[{i}].field",
                    "be read by one attribute",
                    attribute.source_name,
                    "rename one",
                )
        orders = [a.name for a in self.attributes if a.role == "order"]
        if not orders:
            yield "attributes", "hold exactly one of role order", [], "give the timestamp role: order"
        if len(orders) > 1:
            yield "attributes", "hold exactly one of role order", orders, "make the others role: protected"

    @staticmethod
    def schema_extra() -> dict[str, Any]:
        order = {"properties": {"role": {"const": "order"}}, "required": ["role"]}
        return {
            "$schema": DRAFT,
            "title": "Spillway stream contract",
            "allOf": [
                {"properties": {"attributes": {"contains": order, "minContains": 1, "maxContains": 1}}}
            ],
        }


@dataclass(frozen=True)
class Contracts:
    """All contracts in `schemas/`, read and validated once.

    `broken` is empty unless the contracts were loaded by `load_usable`.
    """

    streams: Mapping[str, StreamContract]
    channels: Mapping[str, Channel]
    files: Mapping[str, str] = field(default_factory=dict)
    joins: Mapping[str, Workload] = field(default_factory=dict)
    queries: Mapping[str, Workload] = field(default_factory=dict)
    broken: tuple[BrokenContract, ...] = ()

    def broken_streams(self, channel: str) -> tuple[str, ...]:
        """Return the streams with broken contracts that use, or may use, the channel."""
        return tuple(one.subject for one in self.broken if one.may_go_through(channel, self.channels))

    def first_problem(self, name: str) -> str:
        """Return the first problem of a broken contract; empty if the contract is not broken."""
        return next((str(one.problems[0]) for one in self.broken if one.subject == name), "")

    def stream(self, name: str) -> StreamContract:
        """Return the contract of a stream.

        Raise a `ContractError` with its problems if it is broken, or `InvalidValue` with a suggestion if there is none.
        """
        for one in self.broken:
            if (one.folder, one.subject) == ("streams", name):
                raise ContractError(list(one.problems))
        if name not in self.streams:
            draft = "draft one: spillway contracts new SAMPLE --output schemas/streams/STREAM.yaml"
            raise InvalidValue(
                "stream", "have a contract", name, suggest(name, self.streams) if self.streams else draft
            )
        return self.streams[name]

    def streams_of(self, channel: str) -> tuple[StreamContract, ...]:
        """Return the streams that share a channel, sorted by name, with those of channels multiplexed into it."""
        return tuple(
            s
            for _, s in sorted(self.streams.items())
            if channel in (s.channel, self.channels[s.channel].into)
        )

    def planning_channel(self, channel: str) -> str:
        """Return the channel with which this one is planned: the channel it is multiplexed into, or itself."""
        return self.channels[channel].into or channel
