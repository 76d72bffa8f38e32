"""Recovering: a range of batches as the table `recovered`, or a few values without starting Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.contracts import StreamContract
from spillway.errors import SpillwayError
from spillway.levers.attributes.attempt import batch_pieces, framing_of
from spillway.levers.attributes.facts import Trained, load_trained
from spillway.levers.attributes.frame_plan import Frames
from spillway.levers.attributes.plan import Recovery, given_back
from spillway.levers.attributes.schemes import load_runs
from spillway.settings import Settings
from spillway.store.batches import DONE, RETIRED, Batch, load_batches
from spillway.store.files import read_rows
from spillway.store.rows import stream_files, synopsis_files
from spillway.store.table_contracts import BOUND_SUFFIX, SPARK_TYPES
from spillway.store.tables import Lake


@dataclass(frozen=True)
class Plan:
    """What recovery of a stream needs: the kernels' part and the facts behind it."""

    recovery: Recovery
    trained: Mapping[int, Trained]
    batches: tuple[Batch, ...]


def recovery_plan(
    settings: Settings,
    contract: StreamContract,
    attributes: Sequence[str] | None = None,
    batches: Iterable[Batch] | None = None,
) -> Plan:
    """The plan for the stream's shed batches (those given, with whatever shares a frame with them)."""
    every = [b for b in load_batches(settings, contract.stream) if b.status in (DONE, RETIRED) and b.rows]
    chosen = every if batches is None else list(batches)
    days = {batch.batch_date for batch in chosen}
    framed = [batch for batch in every if batch.batch_date in days and batch.frame_origin is not None]
    versions = sorted({int(batch.models["attributes"]) for batch in framed})
    trained = {
        v: found for v in versions if (found := load_trained(settings, contract.stream, v)) is not None
    }
    missing = set(versions) - set(trained)
    if missing:
        raise SpillwayError(
            f"{contract.stream}: `models` must hold version {min(missing)}, which its batches were shed with, "
            "got none; restore the table"
        )
    keys = dict.fromkeys(name for one in trained.values() for name in one.cycle.attributes)
    measures = dict.fromkeys(name for one in trained.values() for name in one.models)
    unknown = sorted(set(attributes or ()) - set(contract.names))
    if unknown:
        raise SpillwayError(
            f"`attributes` must be of the stream {contract.stream}, got {', '.join(unknown)}; use "
            f"{', '.join(contract.names)}"
        )
    wanted = tuple(name for name in measures if attributes is None or name in attributes)
    return Plan(
        Recovery(
            tuple(keys),
            wanted,
            load_runs(settings, contract.stream, [batch.batch for batch in framed]),
            {version: one.models for version, one in trained.items()},
            Frames(
                tuple(framing_of(batch) for batch in framed),
                tuple(stream_files(settings, "transmitted", contract.stream, framed)),
            ),
            tuple(file for file in synopsis_files(settings, contract.stream)),
        ),
        trained,
        tuple(chosen),
    )


def recover_batches(lake: Lake, contract: StreamContract, batches: Sequence[Batch]) -> None:
    """Write `recovered` for these batches, replacing what was there for them."""
    lake.look_ahead(("recovered", contract.stream))
    plan = recovery_plan(lake.settings, contract, None, batches)
    columns = lake.read("transmitted", contract.stream).schema.fields
    attributes = [(attribute.name, attribute.type) for attribute in contract.attributes]
    attributes += _lost(contract, {field.name: field.dataType.simpleString() for field in columns})
    names = [name for name, _ in attributes]
    lake.replace_in_tasks(
        "recovered",
        batch_pieces(lake, batches),
        partial(given_back, plan=plan.recovery, attributes=names),
        [batch.batch for batch in batches],
        stream=contract.stream,
        attributes=attributes,
    )


def _lost(contract: StreamContract, columns: Mapping[str, str]) -> list[tuple[str, str]]:
    """Attributes that the contract has lost since they were sent: what was shed of them is still owed."""
    kinds = {spark: kind for kind, spark in SPARK_TYPES.items()}
    known = {"seq", "batch", "batch_date", "scheme", *contract.names}
    return [(name, kinds[spark]) for name, spark in columns.items() if name not in known]


@dataclass(frozen=True)
class Found:
    """The rows that were asked for, with bounds, and what was read to give them back."""

    rows: pa.Table
    synopsis_bytes_read: int
    frames: int


def look_up(
    settings: Settings,
    contract: StreamContract,
    attributes: Sequence[str] | None = None,
    key: Mapping[str, str] | None = None,
    seq: tuple[int, int] | None = None,
    time: tuple[Any, Any] | None = None,
) -> Found:
    """Shed values of a few rows, read from the few files that hold them; Spark is not started.

    The same kernels as for a whole range, so both agree value for value.
    """
    plan = recovery_plan(settings, contract, attributes)
    frames = plan.recovery.frames
    shown = [name for name in contract.names if attributes is None or name in attributes]
    base = list(dict.fromkeys([*plan.recovery.key, contract.order, *(key or {})]))
    columns = list(dict.fromkeys([*base, *shown, *plan.recovery.columns]))
    low, high = seq if seq else (0, 2**62)
    parts: list[pa.Table] = []
    read = held = 0
    for start, end, framing, frame in _frames_in(frames, low, high):
        files = [f for f in frames.files_of(framing.batch_date) if _may_hold(f, contract.order, time)]
        if not files:
            continue
        hits = _matching(read_rows(files, base, start, end), contract, key, time)
        if not hits.num_rows:
            continue
        last = hits["seq"][-1].as_py()
        rows = read_rows(frames.files_of(framing.batch_date), columns, frame, last)
        blocks = plan.recovery.blocks(framing.batch_date, (frame, frame))
        found, size = plan.recovery.give_back(rows, framing, frame, blocks)
        read += size
        held += 1
        for name in shown:
            if name in found:
                rows = rows.set_column(
                    rows.column_names.index(name),
                    name,
                    found[name].values.to_arrow(rows.schema.field(name).type),
                )
                bound = found[name].bound_pct
                rows = rows.append_column(name + BOUND_SUFFIX, pa.array(bound, mask=bound != bound))
            elif name in plan.recovery.attributes:
                rows = rows.append_column(name + BOUND_SUFFIX, pa.nulls(rows.num_rows, pa.float64()))
        wanted = pc.is_in(rows["seq"], value_set=hits["seq"].combine_chunks())
        names = ["seq", *base, *(n for n in shown if n not in base)]
        names += [name + BOUND_SUFFIX for name in shown if name + BOUND_SUFFIX in rows.column_names]
        parts.append(rows.filter(wanted).select(names))
    if not parts:
        raise SpillwayError(_nothing(contract, key, seq, time))
    return Found(pa.concat_tables(parts, promote_options="permissive"), read, held)


def _frames_in(frames: Frames, low: int, high: int) -> Iterable[tuple[int, int, Any, int]]:
    """(first seq, last seq, framing, frame) of every frame part that touches a range of seq."""
    for framing in sorted(frames.framings, key=lambda one: one.first_seq):
        start, end = max(low, framing.first_seq), min(high, framing.last_seq)
        while start <= end:
            width = framing.frame_tuples
            frame = (
                framing.origin
                if width is None
                else framing.origin + (start - framing.origin) // width * width
            )
            stop = end if width is None else min(end, frame + width - 1)
            yield start, stop, framing, frame
            start = stop + 1


def _may_hold(file: Any, order: str, time: tuple[Any, Any] | None) -> bool:
    low, high = file.low(order), file.high(order)
    if time is None or low is None or high is None:
        return True
    return bool(_moment(high) >= _moment(time[0]) and _moment(low) <= _moment(time[1]))


def _moment(value: Any) -> Any:
    """A time comparable with another, whatever spelled it."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, str):
        return datetime.fromisoformat(value).replace(tzinfo=None)
    return value


def _matching(
    rows: pa.Table, contract: StreamContract, key: Mapping[str, str] | None, time: tuple[Any, Any] | None
) -> pa.Table:
    if not rows.num_rows:  # whose columns have no types to compare with
        return rows
    for name, value in (key or {}).items():
        kind = rows.schema.field(name).type
        rows = rows.filter(pc.equal(rows[name], pa.scalar(value).cast(kind)))
    if time is not None:
        kind = rows.schema.field(contract.order).type
        low, high = (
            pa.scalar(edge) if not isinstance(edge, str) else pa.scalar(_moment(edge)) for edge in time
        )
        if pa.types.is_timestamp(kind):
            low, high = low.cast(pa.timestamp("us")).cast(kind), high.cast(pa.timestamp("us")).cast(kind)
        column = rows[contract.order]
        rows = rows.filter(
            pc.and_(pc.greater_equal(column, low.cast(kind)), pc.less_equal(column, high.cast(kind)))
        )
    return rows


def _nothing(
    contract: StreamContract,
    key: Mapping[str, str] | None,
    seq: tuple[int, int] | None,
    time: tuple[Any, Any] | None,
) -> str:
    asked = [f"{name} = {value}" for name, value in (key or {}).items()]
    if seq:
        asked.append(f"seq {seq[0]}..{seq[1]}")
    if time:
        asked.append(f"{time[0]}..{time[1]}")
    return (
        f"{contract.stream}: the range must hold transmitted tuples, got none for {', '.join(asked) or 'the stream'}; "
        "`spillway status` says what has been shed"
    )


def parse_key(pairs: Sequence[str]) -> dict[str, str]:
    """`name=value` pairs as people type them.

    >>> parse_key(["origin=JFK"])
    {'origin': 'JFK'}
    """
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise SpillwayError(
                f"`key` must be written name=value, got {pair!r}; write e.g. --key origin=JFK"
            )
        found[name] = value
    return found


def parse_range(low: Any, high: Any) -> tuple[Any, Any] | None:
    """Both edges, or one for a single value; None when none was given.

    >>> parse_range(3, None), parse_range(None, None)
    ((3, 3), None)
    """
    if low is None and high is None:
        return None
    return (low if low is not None else high, high if high is not None else low)
