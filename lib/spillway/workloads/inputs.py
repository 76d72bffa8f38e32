"""Read the input streams of windows as they were: shed values are recovered, each with its bound.

Reading is planned once for a range of consecutive windows. The rows of one window are a task input. If a lever computes
windows in turn, the rows of the whole range are read here at once, and each window gets its rows and those that it
looks back at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.contracts import StreamContract
from spillway.contracts.column_names import bounded_attribute, is_bound
from spillway.contracts.fields import suggest
from spillway.contracts.workload import Workload
from spillway.engine.statements import DeltaRows
from spillway.errors import InvalidValue
from spillway.levers.protocol import CapacityGroup
from spillway.levers.windows import (
    PORTION,
    Portion,
    ReadColumns,
    SqlInput,
    Window,
    micros_of,
    moment_of,
)
from spillway.registry import lever
from spillway.store.filters import match_mask
from spillway.store.schemas import spark_type
from spillway.store.tables import Tables
from spillway.streams.query import WEIGHT, QueryPlan, SliceQuery, StreamQuery, plan_query, readable_schema
from spillway.workloads.grid import times_within, window_order

MOST_WINDOWS = 64
"""The most windows that are read, computed and published at a time, which is the most that an interrupted run loses."""

FEWEST_IN_DELTA = 2_000_000
"""The fewest rows for which Spark reads a Delta table itself.

On two cores, a grouped average of one of eleven columns took 1.4 times as long as with tasks of this package for 2,000
rows, 1.7 times for 200,000 rows, and 0.98 times for 2 million rows (medians of four rounds).
"""
MOST_RANGES = 100
"""The most ranges of `seq` in the condition by which Spark reads a Delta table; with more, the kernels read."""


@dataclass(frozen=True)
class SentTable:
    """The table `transmitted` of a stream: its path, its version, and the types of its columns."""

    path: str
    version: int
    types: Mapping[str, str]


class _TooManyRows(Exception):
    """There are more rows than may be held in memory."""


def window_groups(windows: Sequence[Window], together: int = MOST_WINDOWS) -> Iterator[list[Window]]:
    """Yield groups of at most `together` windows that are close to each other, in order.

    A wrong clock, such as one that shows 1970, makes a window far from all others. Nothing in between is read for it.
    """
    held: list[Window] = []
    for window in windows:
        if held and (len(held) == together or window.window - held[-1].window > together):
            yield held
            held = []
        held.append(window)
    if held:
        yield held


@dataclass(frozen=True)
class WindowRows:
    """The rows of one input in a window, not read yet; sent to the task that reads them."""

    stream: str
    stretches: tuple[SliceQuery, ...]
    schema: pa.Schema
    order: str
    batches: tuple[int, ...]
    most: int | None = None
    sent: SentTable | None = None

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        names = list(dict.fromkeys(["seq", "batch", self.order, *columns]))
        schema = pa.schema([self.field(name) for name in names])
        parts, rows = [], 0
        for part in QueryPlan(schema, self.stretches).only(names).rows({}):
            mine = part.filter(match_mask(part, {"batch": list(self.batches)}))
            parts.append(mine)
            rows += mine.num_rows
            if self.most is not None and rows > self.most:
                raise _TooManyRows
        if not parts:
            return pa.table({name: pa.nulls(0, schema.field(name).type) for name in columns})
        rows = pa.concat_tables(parts).sort_by("seq").select(list(columns))
        if WEIGHT in rows.column_names:  # a batch without a lever that drops rows has no weights
            place = rows.schema.get_field_index(WEIGHT)
            rows = rows.set_column(place, WEIGHT, pc.fill_null(rows[WEIGHT], 1.0))
        return rows

    @property
    def inexact(self) -> frozenset[str]:
        """The attributes with a shed or rounded value in these batches."""
        mine = (one for one in self.stretches if any(part.batch in self.batches for part in one.parts))
        return frozenset(
            name for one in mine for decision in one.way.decisions for name in decision.bounded_attributes
        )

    def only(self, portion: Portion) -> WindowRows:
        """Return the rows of one portion, without opening other slices."""
        low, high = portion.from_seq, portion.to_seq
        mine = []
        for stretch in self.stretches:
            parts = tuple(
                replace(part, from_seq=max(part.from_seq, low), to_seq=min(part.to_seq, high))
                for part in stretch.parts
                if part.batch == portion.batch and part.from_seq <= high and part.to_seq >= low
            )
            if parts:
                mine.append(replace(stretch, parts=parts))
        return replace(self, stretches=tuple(mine), batches=(portion.batch,))

    def in_delta(self, read: SqlInput) -> DeltaRows | None:
        """Return where Spark can read these rows by itself: in `transmitted`, if no value must be recovered there.

        `read`: the columns and portions to read. None: the rows must be made by the kernels of recovery, or they are
        so few that opening the table takes longer.
        """
        sent, known = self.sent, self.inexact
        if sent is None or sum(one.tuples for one in read.portions) < FEWEST_IN_DELTA:
            return None
        columns = []
        for name in read.columns:
            if bounded_attribute(name) in known or name in known:
                return None
            if name in sent.types and sent.types[name] == spark_type(self.field(name).type):
                columns.append(f"`{name}`" if name != WEIGHT else f"coalesce({WEIGHT}, 1.0D) AS {WEIGHT}")
            elif name == WEIGHT:
                columns.append(f"1.0D AS {WEIGHT}")
            elif is_bound(name):
                columns.append(f"CAST(NULL AS DOUBLE) AS `{name}`")
            else:
                return None
        if read.tagged:
            if len(read.portions) > MOST_RANGES:
                return None
            cases = [
                f"WHEN batch = {one.batch} AND seq BETWEEN {one.from_seq} AND {one.to_seq} THEN {place}L"
                for place, one in enumerate(read.portions)
            ]
            columns.append(f"CASE {' '.join(cases)} END AS {PORTION}")
        ranges = sorted(
            {
                (one.day, part.batch, part.from_seq, part.to_seq)
                for portion in read.portions
                for one in self.only(portion).stretches
                for part in one.parts
            }
        )
        where = self._condition(_adjoining(ranges))
        return None if where is None else DeltaRows(sent.path, sent.version, tuple(columns), where)

    def _condition(self, ranges: Sequence[tuple[date, int, int, int]]) -> str | None:
        """Return the condition on the rows of `transmitted`, in SQL; None if there are no ranges, or too many."""
        if not 0 < len(ranges) <= MOST_RANGES:
            return None
        times = self.stretches[0].question.times
        assert times is not None, "a window has a first and a last time"
        low, high = map(_literal, times)
        days = ", ".join(sorted({_literal(day) for day, *_ in ranges}))
        spans = " OR ".join(f"batch = {batch} AND seq BETWEEN {a} AND {b}" for _, batch, a, b in ranges)
        return f"batch_date IN ({days}) AND ({spans}) AND `{self.order}` BETWEEN {low} AND {high}"

    def field(self, name: str) -> pa.Field:
        if name in self.schema.names:
            return self.schema.field(name)
        if name == WEIGHT:  # the stream loses no rows: each row represents itself
            return pa.field(WEIGHT, pa.float64())
        if bounded_attribute(name) not in self.schema.names:
            known = [one for one in self.schema.names if not is_bound(one)]
            raise InvalidValue(name, f"be a column of {self.stream}", name, suggest(name, known))
        return pa.field(name, pa.float64())  # a key was never shed: its bound is null


def _literal(value: date) -> str:
    """Return a date or a time as Spark SQL writes it.

    >>> _literal(datetime(2026, 1, 1, 12, tzinfo=UTC)), _literal(date(2026, 1, 1))
    ("TIMESTAMP'2026-01-01 12:00:00+00:00'", "DATE'2026-01-01'")
    """
    if isinstance(value, datetime):
        return f"TIMESTAMP'{value.astimezone(UTC).isoformat(' ')}'"
    return f"DATE'{value.isoformat()}'"


def _adjoining(ranges: Iterable[tuple[date, int, int, int]]) -> list[tuple[date, int, int, int]]:
    """Combine adjoining ranges of `seq` of a batch; they come in order.

    >>> day = date(2026, 1, 1)
    >>> [one[1:] for one in _adjoining([(day, 1, 0, 9), (day, 1, 10, 19), (day, 1, 30, 39), (day, 2, 40, 49)])]
    [(1, 0, 19), (1, 30, 39), (2, 40, 49)]
    """
    found: list[tuple[date, int, int, int]] = []
    for day, batch, low, high in ranges:
        if found and found[-1][:2] == (day, batch) and low <= found[-1][3] + 1:
            found[-1] = (day, batch, found[-1][2], max(high, found[-1][3]))
        else:
            found.append((day, batch, low, high))
    return found


@dataclass(frozen=True)
class LoadedRows:
    """The rows of one input of a window, already read."""

    rows: pa.Table

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        return self.rows.select(list(columns))


def plan_inputs(
    tables: Tables, room: CapacityGroup, contract: Workload, windows: Sequence[Window], back_seconds: float
) -> dict[int, dict[str, WindowRows]]:
    """Return, by window and input stream, the rows that the window reads.

    `back_seconds`: how long before its start a window begins to read.
    """
    begin, end = _begin(windows[0], back_seconds), windows[-1].to_time
    found: dict[int, dict[str, WindowRows]] = {window.window: {} for window in windows}
    for stream in dict.fromkeys(contract.inputs):
        of = room.contracts.stream(stream)
        order = window_order(room.contracts, contract, stream)
        schema, kind = readable_schema(tables, of), of.attribute(order).type
        reading = plan_query(tables, of, StreamQuery(times=times_within(kind, begin, end)))
        sent = _sent_table(tables, of)
        for window in windows:
            times = times_within(kind, _begin(window, back_seconds), window.to_time)
            mine = tuple(replace(one, question=StreamQuery(times=times)) for one in reading.stretches)
            batches = tuple(batch for name, batch in window.inputs if name == stream)
            found[window.window][stream] = WindowRows(stream, mine, schema, order, batches, sent=sent)
    return found


def _sent_table(tables: Tables, contract: StreamContract) -> SentTable | None:
    """Return the table `transmitted` of a stream, if it has every row; None if a lever drops rows."""
    table = tables.at("transmitted", contract.stream)
    used = tables.at("batches").rows(["levers"], stream=contract.stream)["levers"]
    levers = {*contract.lever_names, *pc.list_flatten(used).unique().to_pylist()}
    if not table.exists or any(lever(name).sheds_rows for name in levers):
        return None
    return SentTable(table.path, table.version, table.types())


def load_inputs(
    contract: Workload,
    windows: Sequence[Window],
    inputs: Mapping[int, Mapping[str, WindowRows]],
    columns: Mapping[str, Sequence[str]],
    back_seconds: float,
    most: int,
) -> Iterator[tuple[list[Window], dict[int, dict[str, ReadColumns]]]]:
    """Yield groups of windows with their rows in memory; a group holds at most `most` rows of an input.

    If a single window has more rows, raise.
    """
    try:
        yield list(windows), _load_group(windows, inputs, columns, back_seconds, most)
    except _TooManyRows:
        if len(windows) == 1:
            raise InvalidValue(
                "windows",
                f"hold at most {most:,} rows of an input at a time",
                f"more in window {windows[0].window}",
                "shorten the windows, or raise most_rows where a machine has the memory",
                where=contract.subject,
            ) from None
        half = len(windows) // 2
        for some in (windows[:half], windows[half:]):
            yield from load_inputs(contract, some, inputs, columns, back_seconds, most)


def _begin(window: Window, back_seconds: float) -> datetime:
    """Return the first moment of the rows that a window reads."""
    return moment_of(micros_of(window.from_time) - round(back_seconds * 1e6))


def _load_group(
    windows: Sequence[Window],
    inputs: Mapping[int, Mapping[str, WindowRows]],
    columns: Mapping[str, Sequence[str]],
    back_seconds: float,
    most: int,
) -> dict[int, dict[str, ReadColumns]]:
    found: dict[int, dict[str, ReadColumns]] = {window.window: {} for window in windows}
    for stream, names in columns.items():
        widest = inputs[windows[0].window][stream]
        kind = "date" if pa.types.is_date(widest.schema.field(widest.order).type) else "timestamp"
        times = times_within(kind, _begin(windows[0], back_seconds), windows[-1].to_time)
        spans = tuple(replace(one, question=StreamQuery(times=times)) for one in widest.stretches)
        batches = sorted({batch for window in windows for batch in inputs[window.window][stream].batches})
        whole = replace(widest, stretches=spans, batches=tuple(batches), most=most)
        order = widest.order
        rows = whole(list(dict.fromkeys(["seq", "batch", order, *names]))).sort_by(
            [(order, "ascending"), ("seq", "ascending")]
        )
        at = np.asarray(rows[order].cast(pa.timestamp("us")).cast(pa.int64()))
        for window in windows:
            edges = _begin(window, back_seconds), window.to_time
            first, last = np.searchsorted(at, [micros_of(edge) for edge in edges])
            mine = rows.slice(int(first), int(last - first))
            own = inputs[window.window][stream].batches
            found[window.window][stream] = LoadedRows(
                mine if len(own) == len(batches) else mine.filter(match_mask(mine, {"batch": list(own)}))
            )
    return found
