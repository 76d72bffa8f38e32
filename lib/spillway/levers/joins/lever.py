"""The lever `joins`: join two streams over time windows within a budget, and report the missed pairs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.clock import utc_now
from spillway.contracts.column_names import BOUND_SUFFIX
from spillway.contracts.fields import Broken
from spillway.contracts.workload import Workload
from spillway.errors import InvalidValue
from spillway.ledger import LedgerRow
from spillway.levers.joins.checks import EXAMINED_PAIRS, check_pairs
from spillway.levers.joins.decision import JoinDecision, SideBounds
from spillway.levers.joins.directions import SideRows
from spillway.levers.joins.exploration import Memory
from spillway.levers.joins.join_window import JoinWindow, LostRows
from spillway.levers.joins.operands import Array, ItemSets, Operand, SetFormat, encode_sets, encode_values
from spillway.levers.joins.settings import JoinSettings, JoinSide, column_type_problems
from spillway.levers.protocol import CapacityGroup, LeverExplanation, Picture, Views
from spillway.levers.windows import InputLoss, ReadColumns, Window, WindowLever, WindowPlan, WindowWork

if TYPE_CHECKING:
    from spillway.levers.joins.advice import JoinFigure

JOINED, JOIN_WINDOWS = "joined", "join_windows"
WEIGHT = "weight"
"""The column of an input with the row weight: the number of produced rows that a row represents."""


class JoinPlan(WindowPlan):
    """The comparisons of one window of a join."""

    def __init__(self, work: WindowWork, room: CapacityGroup) -> None:
        (window,) = work.windows
        self.work = work
        settings: JoinSettings = work.contract.lever_settings("joins")
        memory = memory_before(room.tables, work.contract.subject, window.window, work.before)
        begin, end = (round(edge.timestamp() * 1_000_000) for edge in (window.from_time, window.to_time))
        left, right, bounds, inexact = join_operands(work.contract, room, settings, work.inputs)
        given = [SideRows(one, *map(int, np.searchsorted(one.at, (begin, end)))) for one in (left, right)]
        with_itself = len(set(work.contract.inputs)) == 1
        first, second = (lost_rows(work, stream) for stream in input_streams(work.contract))
        self.join_window = JoinWindow(
            settings,
            memory,
            given[0],
            given[1],
            (end - begin) / 1e6,
            with_itself,
            bounds,
            (first, second),
            inexact,
        )

    @property
    def decision(self) -> JoinDecision:
        return self.join_window.decision

    def account(self, window: Window, results: int, counts: Mapping[str, int]) -> Iterable[LedgerRow]:
        possible, compared = self.join_window.allocation.possible, counts.get("compared", 0)
        dropped = self.join_window.overflow_comparisons
        place = (window.scope, window.subject, window.window, window.day, "joins", self.work.ordinal)
        left = possible - compared
        seconds = counts.get("nanoseconds", 0) / 1e9
        yield LedgerRow(
            *place, "comparisons", offered=possible, kept=compared, shed=left, lost=left, seconds=seconds
        )
        for reason, shed in (("beyond the budget", left - dropped), ("out of the input buffer", dropped)):
            if shed:
                yield LedgerRow(
                    *place, "comparisons", "reason", reason, reason, offered=shed, shed=shed, lost=shed
                )
        if compared:
            yield LedgerRow(
                *place, "comparisons", "reason", "compared", "compared", offered=compared, kept=compared
            )

    def records(
        self, window: Window, results: int, counts: Mapping[str, int]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        place = {"subject": window.subject, "window": window.window, "batch_date": window.day}
        said = {"updated_at": utc_now(), "rule": pair_fingerprint(self.work.contract)}
        return {JOIN_WINDOWS: [{**place, **said, **self.join_window.result_columns(counts)}]}


def pair_fingerprint(contract: Workload) -> str:
    """Return a fingerprint of the settings that define a pair. Budgets and their allocation have no influence."""
    settings: JoinSettings = contract.lever_settings("joins")
    sides = [(one.joined_by, one.lasts_seconds) for one in (settings.left, settings.right)]
    made = (contract.inputs, sides, settings.predicate, settings.threshold, settings.sets)
    return hashlib.sha256(repr(made).encode()).hexdigest()[:16]


def memory_before(
    tables: Views, subject: str, window: int, before: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Memory:
    """Return the memory that the previous window left. A window of this run has precedence over the table."""
    rows = [row for row in before.get(JOIN_WINDOWS, ()) if row["window"] < window]
    # if two rows have the same window, max takes the first: that of this run
    rows += tables.at(JOIN_WINDOWS).newest("window", below=window, subject=subject).to_pylist()
    return Memory.from_row(max(rows, key=lambda row: row["window"])) if rows else Memory()


def join_operands(
    contract: Workload, room: CapacityGroup, settings: JoinSettings, inputs: Mapping[str, ReadColumns]
) -> tuple[Operand, Operand, SideBounds, int]:
    """Return the rows of both inputs, their items as ordinals of one dictionary, and how many rows match nothing.

    A row whose value was rounded, or recovered within a bound, has no items, because it may match other rows than the
    true value would. It is left out and counted.
    """
    streams = input_streams(contract)
    tables = [
        _read(room, stream, side, inputs.get(stream))
        for stream, side in zip(streams, (settings.left, settings.right), strict=True)
    ]
    bounds = [
        _bounds(table, side) for table, side in zip(tables, (settings.left, settings.right), strict=True)
    ]
    inexact = [
        np.zeros(table.num_rows, bool) if one is None else one > 0
        for table, one in zip(tables, bounds, strict=True)
    ]
    columns = [
        [_exact(_whole(table[name]), unknown) for name in side.joined_by]
        for table, side, unknown in zip(tables, (settings.left, settings.right), inexact, strict=True)
    ]
    words = settings.sets
    sets = (
        encode_values(*columns)
        if words is None
        else encode_sets(columns[0][0], columns[1][0], SetFormat(words.separator, words.weight))
    )
    names = [one.name for one in settings.types]
    operands = [
        _operand(room, stream, table, side, mine, names)
        for stream, table, side, mine in zip(
            streams, tables, (settings.left, settings.right), sets, strict=True
        )
    ]
    exact = [
        None if one is None else np.where(unknown, np.nan, one)
        for one, unknown in zip(bounds, inexact, strict=True)
    ]
    return operands[0], operands[1], SideBounds(*exact), sum(int(one.sum()) for one in inexact)


def lost_rows(work: WindowWork, stream: str) -> LostRows:
    """Return the rows of a stream that were lost in the window, and in the windows that it looks back at."""
    (window,) = work.windows
    own = work.losses.get(window.window, {}).get(stream, InputLoss())
    reached = sum(
        (one.get(stream, InputLoss()) for number, one in work.losses.items() if number < window.window), own
    )
    return LostRows(own, reached)


def input_streams(contract: Workload) -> tuple[str, str]:
    """Return the left and the right stream."""
    if len(contract.inputs) != 2:
        raise InvalidValue(
            "inputs", "be two for a join", list(contract.inputs), "name the left and the right stream",
            where=contract.subject,
        )  # fmt: skip
    return contract.inputs[0], contract.inputs[1]


def _read(room: CapacityGroup, stream: str, side: JoinSide, read: ReadColumns | None) -> pa.Table:
    order = room.contracts.stream(stream).order
    names = list(dict.fromkeys(["seq", order, *columns_read(side)]))
    if read is None:  # an input that sent nothing in the window
        kinds = {one.name: one.arrow_type for one in room.contracts.stream(stream).attributes}
        return pa.table({name: pa.array([], kinds.get(name, pa.float64())) for name in names})
    return read(names)


def _operand(
    room: CapacityGroup, stream: str, table: pa.Table, side: JoinSide, sets: ItemSets, types: Sequence[str]
) -> Operand:
    order = room.contracts.stream(stream).order
    at = np.asarray(table[order].cast(pa.timestamp("us")).cast(pa.int64()))
    seq = np.asarray(table["seq"]).astype(np.int64)
    kinds = np.full(len(at), len(types), np.int64)
    if side.type is not None and types:
        place = pc.index_in(table[side.type].cast(pa.string()), value_set=pa.array(list(types)))
        kinds = np.asarray(pc.fill_null(place, len(types))).astype(np.int64)
    weights = np.asarray(table[WEIGHT].cast(pa.float64()).fill_null(1.0))
    return Operand(at, seq, sets, kinds, weights if (weights != 1.0).any() else None)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.chunked_array(column.chunks, type=column.type).combine_chunks()


def _exact(column: pa.Array, unknown: Array) -> pa.Array:
    if not unknown.any():
        return column
    return pc.if_else(pa.array(unknown), pa.scalar(None, column.type), column)


def _bounds(table: pa.Table, side: JoinSide) -> Array | None:
    """Return, by row, the largest bound of a joined value; NaN if all its values are exact."""
    columns = [table[name + BOUND_SUFFIX] for name in side.joined_by]
    if all(one.null_count == len(one) for one in columns):
        return None
    return np.fmax.reduce([_widest(one) for one in columns])


def _widest(bounds: pa.ChunkedArray) -> Array:
    """Return bounds in per cent; NaN for exact values, and for values that are bounded in their own unit only."""
    found = np.array(bounds.cast(pa.float64()), np.float64)
    return np.where(np.isnan(found) & np.asarray(bounds.is_valid()), np.inf, found)


def columns_read(side: JoinSide) -> list[str]:
    """Return the columns of an input that the join needs, in addition to seq and order."""
    bounds = [name + BOUND_SUFFIX for name in side.joined_by]
    return [*side.joined_by, *bounds, *([side.type] if side.type is not None else []), WEIGHT]


class JoinLever(WindowLever):
    """Lever that joins two streams within a budget."""

    name = "joins"
    results_table = JOINED
    record_tables = (JOIN_WINDOWS,)
    examined = EXAMINED_PAIRS
    in_turn = True

    def look_back_seconds(self, contract: Workload) -> float:
        settings: JoinSettings = contract.lever_settings("joins")
        return max(settings.left.lasts_seconds, settings.right.lasts_seconds)

    def columns(self, contract: Workload) -> Mapping[str, Sequence[str]]:
        settings: JoinSettings = contract.lever_settings("joins")
        found: dict[str, list[str]] = {}
        for stream, side in zip(input_streams(contract), (settings.left, settings.right), strict=True):
            found.setdefault(stream, []).extend(columns_read(side))
        return {stream: list(dict.fromkeys(names)) for stream, names in found.items()}

    def exact_columns(self, contract: Workload) -> Mapping[str, Sequence[str]]:
        settings: JoinSettings = contract.lever_settings("joins")
        found: dict[str, list[str]] = {}
        for stream, side in zip(input_streams(contract), (settings.left, settings.right), strict=True):
            found.setdefault(stream, []).extend(
                [*side.joined_by, *([side.type] if side.type is not None else [])]
            )
        return found

    def column_type_problems(
        self, contract: Workload, types: Mapping[str, Mapping[str, str]]
    ) -> Iterable[Broken]:
        return column_type_problems(contract.lever_settings("joins"), input_streams(contract), types)

    def max_rows_in_memory(self, contract: Workload) -> int:
        settings: JoinSettings = contract.lever_settings("joins")
        return settings.most_rows

    def plan_windows(self, room: CapacityGroup, work: Sequence[WindowWork]) -> Sequence[WindowPlan]:
        return [JoinPlan(one, room) for one in work]

    def examine(
        self,
        contract: Workload,
        room: CapacityGroup,
        window: Window,
        results: pa.Table,
        inputs: Mapping[str, ReadColumns] | None,
    ) -> Mapping[str, Any]:
        settings: JoinSettings = contract.lever_settings("joins")
        known = room.tables.at(JOIN_WINDOWS).rows(["rule"], subject=contract.subject, window=window.window)
        as_now = known["rule"].to_pylist() in ([pair_fingerprint(contract)], [None], [])
        sides = join_operands(contract, room, settings, inputs)[:2] if inputs is not None and as_now else None
        lasts = settings.lasts_micros if as_now else (math.inf, math.inf)
        with_itself = len(set(contract.inputs)) == 1
        return check_pairs(settings, results, (window.from_time, window.to_time), lasts, sides, with_itself)

    def advice(
        self, contract: Workload, room: CapacityGroup, inputs: Mapping[str, ReadColumns]
    ) -> Iterable[JoinFigure]:
        """Yield estimates of the size and cost of the join of these rows, without running it."""
        from spillway.levers.joins.advice import JoinFigure, estimate_join
        from spillway.sketches.answers import Answer

        settings: JoinSettings = contract.lever_settings("joins")
        left, right, _, inexact = join_operands(contract, room, settings, inputs)
        if inexact:
            count = float(inexact)
            note = "the join key was rounded, or recovered within a bound; a join by it is refused"
            yield JoinFigure("rows left out", Answer(count, count, count, 1.0, "counted", note=note))
        yield from estimate_join(left, right, settings, len(set(contract.inputs)) == 1)

    def explain(self, contract: Workload, tables: Views) -> LeverExplanation | None:
        from spillway.levers.joins.explain import explain_join

        return explain_join(contract, tables)

    def pictures(self, contract: Workload, tables: Views) -> Iterable[Picture]:
        from spillway.levers.joins.explain import join_pictures

        return join_pictures(contract, tables)


LEVER = JoinLever()
