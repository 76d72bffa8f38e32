"""Apply the plans of batches as drafts, measure them, account for them, and publish them in the one safe order.

A draft consists of files that no table refers to yet. `write_drafts` writes one. `ledger_lines` returns a ledger line
per stage; each stage is offered the rows that the stage before it kept. `publish` commits the draft.

`use_remaining_capacity` mixes two plans of a batch: a finer plan, whose draft was too large, for the first tuples, and
a plan that fits for the others. A plan treats whole attributes, so it may leave almost the bytes of one attribute
unused. Let L < capacity < H be the measured sizes of a draft that fits and of one that does not. Then the first share

    p = (capacity - L) / (H - L)

of the tuples can have the finer treatment. Bytes and loss are both interpolated linearly between the two drafts, so the
loss grows in proportion to the shortfall. Each mixed draft is measured like any other draft, and narrows the interval
of p.

That holds if the two plans differ in one attribute. If they differ in several, their mixture may take more bytes than
either of them: a column that is rounded for some tuples only has two dictionaries' worth of values. So the larger draft
is also mixed with itself, with one attribute shed: only the last tuples of that attribute are absent then, and no other
column changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Protocol

from spillway.batch import Batch
from spillway.contracts import StreamContract
from spillway.engine.protocol import Step
from spillway.errors import SpillwayError, StoreFault
from spillway.ledger import BESIDE, TOTAL, LedgerRow
from spillway.levers.frame_slices import MOST_ROWS, split_batch
from spillway.levers.protocol import OVERHEAD, FrameSlice, Lever, Load, MeasuredDraft, Plan
from spillway.registry import LEVERS, columns_of, lever
from spillway.store.batches import write_ledger_together
from spillway.store.drafts import Draft, FileMaker, FileTask, draft_files
from spillway.store.tables import Table, Tables, publish_files, replace_rows
from spillway.streams.capacity import DraftMeasurements, ShedPlan, raw_column_bytes
from spillway.streams.destination import (
    DESTINATION_METADATA,
    BatchMetadata,
    destination_metadata,
    metadata_sizes,
    write_metadata,
)
from spillway.streams.stages import SendTask, StoreAtSourceTask

SENT = "sent"
"""The last stage of the shed path in the ledger, which belongs to no lever."""
SENT_BEFORE = "sent_before"
"""A ledger stage outside the shed path: the bytes of a batch that were sent before it was sent again."""


COLLECT_MORE = "collect more per batch, for example with batching: {until_bytes: 1 MB, until_seconds: 3600}"
"""The remedy for a batch that does not fit because of its fixed bytes."""


class Measurable(Protocol):
    """Drafts that can be accounted for."""

    @property
    def sent(self) -> Draft:
        """The draft of `transmitted`."""

    @property
    def aside(self) -> Mapping[tuple[int, str], Draft]:
        """The drafts of the levers' own tables, by ordinal and table."""

    @property
    def crossing(self) -> Sequence[Draft]:
        """The drafts of all tables at the destination."""

    @property
    def metadata_bytes(self) -> Mapping[int, int]:
        """The bytes of destination metadata by batch."""


def table_bytes_sent(draft: Draft, batch: int) -> int:
    """Return the bytes that are sent for a batch in a table: whole files, and their entries in the table's log."""
    return draft.file_bytes(batch) + draft.log_bytes(batch)


def total_bytes_sent(drafts: Measurable, batch: int) -> int:
    """Return all bytes that are sent for a batch, including its destination metadata."""
    return sum(table_bytes_sent(one, batch) for one in drafts.crossing) + drafts.metadata_bytes.get(batch, 0)


def fixed_bytes(way: ShedPlan, drafts: Measurable, batch: Batch) -> int:
    """Return the bytes of a batch that are sent but do not depend on the number of its rows.

    These are the footers of files, log entries, and destination metadata.
    """
    added = [column for name in batch.levers for column, _, _ in columns_of(name)]
    columns = [*OVERHEAD, *added, *way.contract.names]
    payloads = sum(
        count
        for name, count in _counts(drafts.aside.values(), batch.batch).items()
        if name.startswith("sent.")
    )
    held = sum(drafts.sent.column_bytes(batch.batch, columns).values())
    return max(0, total_bytes_sent(drafts, batch.batch) - held - payloads)


def fixed_bytes_remedy(way: ShedPlan, drafts: Measurable) -> str:
    """Return what to do if batches do not fit because of their fixed bytes; empty if that is not the reason."""
    allowed = way.batches[0].allowed_kbps * 125.0 * covered_seconds(way.batches)
    fixed = sum(fixed_bytes(way, drafts, batch) for batch in way.batches)
    crossing = sum(total_bytes_sent(drafts, number) for number in way.numbers)
    if way.contract.width == "declared" or crossing - fixed > allowed:
        return ""
    return (
        f"; {fixed:,} bytes of the batch are fixed (footers, log entries, metadata), and the batch may send "
        f"{allowed:,.0f} bytes: {COLLECT_MORE}"
    )


def shortfall_remedy(reason: str, otherwise: str) -> str:
    """Return what to do about a batch that does not fit, by the reason in the ledger.

    >>> shortfall_remedy(f"send all; {COLLECT_MORE}", "widen the channel") == COLLECT_MORE
    True
    """
    return COLLECT_MORE if COLLECT_MORE in reason else otherwise


def drafted_batch(
    way: ShedPlan,
    drafts: Measurable,
    batch: Batch,
    ordinal: int,
    offered: Mapping[str, int],
    raw_bytes: Mapping[str, int],
    seconds: float = 0.0,
) -> MeasuredDraft:
    """Return what was written of a batch, for the lever at this position.

    `offered`: by unit, what the stage before kept. `raw_bytes`: the bytes of the batch in `raw`, by column.
    """
    columns = [*OVERHEAD, *way.contract.names]
    mine = {table: found for (at, table), found in drafts.aside.items() if at == ordinal}
    return MeasuredDraft(
        batch,
        ordinal,
        dict(offered),
        {table: found.rows(batch.batch) for table, found in mine.items()},
        {table: found.file_bytes(batch.batch) for table, found in mine.items()},
        {one.table: table_bytes_sent(one, batch.batch) for one in mine.values() if one in drafts.crossing},
        _counts(mine.values(), batch.batch),
        drafts.sent.rows(batch.batch),
        drafts.sent.column_bytes(batch.batch, columns),
        raw_bytes,
        seconds,
    )


def recorded_stages(tables: Tables, stream: str, numbers: Sequence[int]) -> list[str]:
    """Return the stages after intake that an earlier run recorded for these batches; this run may lack some."""
    rows = tables.at("ledger").rows(["stage", "ordinal"], subject=stream, batch=list(numbers)).to_pylist()
    return sorted({row["stage"] for row in rows if row["ordinal"] > 0})


def ledger_lines(
    tables: Tables,
    way: ShedPlan,
    drafts: Measurable,
    seconds: float,
    unshed: Mapping[int, Load] | None = None,
) -> list[LedgerRow]:
    """Return the ledger lines of every stage and batch; each lever is offered what the lever before it kept.

    `unshed`: by batch, the load of batches that are sent together, without shedding. Alone, as in `raw`, they would
    take more bytes.
    """
    contract, rows = way.contract, []
    share = seconds / max(1, len(way.batches))
    for batch in way.batches:
        offered = {"rows": batch.rows or 0, "values": (batch.rows or 0) * len(contract.attributes)}
        if unshed is None:
            raw_bytes, around = raw_column_bytes(tables, contract, batch)
        else:
            load, rows_here = unshed[batch.batch], batch.rows or 0
            raw_bytes = {name: round(bits * rows_here / 8.0) for name, bits in load.widths_bits.items()}
            around = round(load.fixed_kbps * 125.0 * (batch.seconds_covered or 0.0))
        for ordinal, (name, plan) in enumerate(zip(batch.levers, way.plans, strict=True), start=1):
            drafted = drafted_batch(way, drafts, batch, ordinal, offered, raw_bytes, share)
            lines = list(plan.account(drafted))
            _check_account(name, drafted, lines)
            for line in lines:
                if line.dimension_kind == TOTAL:
                    _refuse_to_drop(contract, line)
                    offered[line.unit] = line.kept
            rows += lines
        whole = sum(raw_bytes.values()) + around
        fixed = fixed_bytes(way, drafts, batch)
        too_many = _too_many(way, drafts, batch)
        why = f"no lever works on it{fixed_bytes_remedy(way, drafts)}" if too_many else ""
        rows += _sent(batch, drafts, offered, whole, too_many, why, fixed)
    return [*rows, *_sent_before(tables, way)]


def _check_account(name: str, drafted: MeasuredDraft, lines: Sequence[LedgerRow]) -> None:
    """Raise an error that names the lever if it does not account for itself, or not for every unit."""
    place = f"the lever {name}: `Plan.account`"
    for line in lines:
        if (line.stage, line.ordinal) != (name, drafted.ordinal):
            raise SpillwayError(
                f"{place} must return ledger rows of stage {name} and ordinal {drafted.ordinal}, got "
                f"{line.stage} and {line.ordinal}; take both from the lever's name and from `drafted.ordinal`"
            )
    totals = {line.unit for line in lines if line.dimension_kind == TOTAL}
    if missing := sorted(drafted.offered.keys() - totals):
        raise SpillwayError(
            f"{place} must return a total for every unit of `drafted.offered`, got none for {', '.join(missing)}; "
            "if the lever sheds nothing of a unit, return a total that keeps what was offered"
        )


def sent_kbps(way: ShedPlan, drafts: Measurable) -> float:
    """Return the measured rate of these batches: all bytes that are sent, over the time that the batches cover.

    If the stream counts declared bits, it is the planned rate.
    """
    if way.contract.width == "declared":
        rates = [(way.plans[-1].output_load(n) if way.plans else way.loads[n]).rate_kbps for n in way.numbers]
        if len(rates) == 1:
            return rates[0]
        kbits = (rate * covered_seconds([batch]) for rate, batch in zip(rates, way.batches, strict=True))
        return math.fsum(kbits) / covered_seconds(way.batches)
    crossing = sum(total_bytes_sent(drafts, number) for number in way.numbers)
    return crossing * 8.0 / 1000.0 / covered_seconds(way.batches)


def covered_seconds(batches: Iterable[Batch]) -> float:
    """Return the time that batches of one stream cover together, in seconds; 1 if it is unknown."""
    return math.fsum(batch.seconds_covered or 0.0 for batch in batches) or 1.0


def _too_many(way: ShedPlan, drafts: Measurable, batch: Batch) -> int:
    """Return about how many rows exceed the capacity, of a batch without a lever; levers count their own shortfall."""
    sent = sent_kbps(way, drafts)
    if way.plans or way.contract.mode == "observe" or sent <= batch.allowed_kbps:
        return 0
    rows = drafts.sent.rows(batch.batch)
    return min(rows, math.ceil(rows * (1.0 - batch.allowed_kbps / sent)))


def _sent_before(tables: Tables, way: ShedPlan) -> list[LedgerRow]:
    """Return lines for what was sent of batches that were shed and are now sent again without loss; it still counts.

    The numbers come from the ledger lines that are about to be replaced. After that, they come from this line itself.
    """
    mine = {batch.batch: batch for batch in way.batches if batch.sent_whole and not batch.levers}
    if not mine:
        return []
    stream = way.contract.stream
    found: dict[int, list[Mapping[str, Any]]] = {}
    for row in tables.at("ledger").rows(subject=stream, batch=list(mine)).to_pylist():
        if row["ordinal"] > 0 and row["unit"] == "rows" and row["dimension_kind"] == TOTAL:
            found.setdefault(row["batch"], []).append(row)
    lines = []
    for number, rows in found.items():
        last = max(rows, key=lambda row: int(row["ordinal"]))
        if last["ordinal"] > 1:
            batch = mine[number]
            lines.append(
                LedgerRow(
                    "stream",
                    stream,
                    number,
                    batch.batch_date,
                    SENT_BEFORE,
                    BESIDE,
                    "rows",
                    reason="had crossed shed; sent again whole",
                    offered=last["kept"],
                    kept=last["kept"],
                    bytes_requested=last["bytes_kept"],
                )
            )
    return lines


def _counts(drafts: Iterable[Draft], batch: int) -> dict[str, int]:
    """Return what tasks counted for a batch, summed over the tables."""
    found: dict[str, int] = {}
    for draft in drafts:
        for name, count in draft.counts.get(batch, {}).items():
            found[name] = found.get(name, 0) + count
    return found


def _refuse_to_drop(contract: StreamContract, line: LedgerRow) -> None:
    if contract.mode == "observe" and line.shed:
        raise SpillwayError(
            f"{contract.stream}: {line.stage} must drop nothing where the contract says mode: observe, got {line.shed} "
            f"{line.unit} of batch {line.batch}; this is a fault of the lever, report it"
        )


def _sent(
    batch: Batch,
    drafts: Measurable,
    offered: Mapping[str, int],
    whole_bytes: int,
    too_many: int,
    why: str,
    fixed: int,
) -> list[LedgerRow]:
    """Return the lines of the last stage: what it was offered, and what was written to be sent.

    Bytes are those of whole files and of their log entries; `whole_bytes` are those in `raw`. So a batch that is kept
    without loss takes as many bytes after as before, except for what the lake adds.

    If a row or a value is missing from the account of every stage, the lines do not balance, and the run stops before
    anything is published.
    """
    rows, values = drafts.sent.rows(batch.batch), drafts.sent.counts.get(batch.batch, {}).get("values", 0)
    ordinal = len(batch.levers) + 1
    place = ("stream", batch.stream, batch.batch, batch.batch_date, SENT, ordinal)
    return [
        LedgerRow(
            *place,
            "rows",
            reason=batch.sent_whole or why,
            offered=offered["rows"],
            kept=rows,
            shortfall=too_many,
            bytes_offered=whole_bytes,
            bytes_kept=total_bytes_sent(drafts, batch.batch),
            bytes_fixed=fixed,
        ),
        LedgerRow(*place, "values", offered=offered["values"], kept=values),
    ]


@dataclass(frozen=True)
class Drafts:
    """The drafts of some batches: files of `transmitted` and of the levers' own tables, in no table yet."""

    sent: Draft
    aside: Mapping[tuple[int, str], Draft]
    """The drafts of the levers' own tables, by ordinal and table."""
    tables: Mapping[str, Table]
    metadata_bytes: Mapping[int, int] = field(default_factory=dict)
    """The bytes of destination metadata by batch; empty if the destination is the source's lake."""

    @property
    def crossing(self) -> tuple[Draft, ...]:
        """The drafts of tables at the destination: `transmitted`, and the levers' tables that are stored there."""
        aside = (one for one in self.aside.values() if self.tables[one.table].contract.root == "destination")
        return (self.sent, *aside)

    @property
    def seconds(self) -> float:
        """The time that tasks spent on the files."""
        return math.fsum(draft.seconds for draft in [self.sent, *self.aside.values()])

    def discard(self) -> None:
        """Delete the files of all drafts."""
        for draft in [self.sent, *self.aside.values()]:
            self.tables[draft.table].discard(draft)


def write_drafts(tables: Tables, way: ShedPlan) -> Step[Drafts]:
    """Apply the decisions slice by slice and return the files; no table refers to them yet.

    One task writes the files of all tables for its slice. The step shares its job with other streams.
    """
    contract, stream = way.contract, way.contract.stream
    levers = way.batches[0].levers
    columns = (*(name for name, _, _ in added_columns(contract, levers)), *contract.names)
    held: dict[str, Table] = {}
    makers: dict[tuple[int, str], FileMaker] = {}
    for ordinal, name in enumerate(levers, start=1):
        for table in lever(name).tables_at_source:
            held[table] = own_table(tables, contract, table, levers)
            makers[ordinal, table] = held[table].maker(StoreAtSourceTask(way.down, ordinal, table))
    out = held["transmitted"] = own_table(tables, contract, "transmitted", levers)
    told = metadata_sizes(plan_metadata(tables, way))
    send = out.maker(SendTask(way.down, columns), None, contract.row_group_tuples, contract.keys)
    partitions = [
        {"stream": stream} if "stream" in held[maker.table].contract.partitioned_by else {}
        for maker in (*makers.values(), send)
    ]
    tasks = [
        {
            place: FileTask({**fixed, "batch_date": str(day)}, *first, tuple(more))
            for place, fixed in enumerate(partitions)
        }
        for day, (first, *more) in slices_by_file(way.batches)
    ]
    *aside, sent = yield from draft_files([*makers.values(), send], tasks)
    return Drafts(sent, dict(zip(makers, aside, strict=True)), held, told)


def slices_by_file(batches: Sequence[Batch]) -> list[tuple[date, list[tuple[int, tuple[FrameSlice, ...]]]]]:
    """Return for each file of these batches its batch date, and the slices of one or several batches that it holds.

    Small batches of one date share a file. A file holds at most `MOST_ROWS`, as the files of a single batch do.
    """
    found: list[tuple[date, list[tuple[int, tuple[FrameSlice, ...]]]]] = []
    rows = 0
    for batch in batches:
        for piece in split_batch(batch):
            more = piece[-1].to_seq - piece[0].from_seq + 1
            if not found or found[-1][0] != batch.batch_date or rows + more > MOST_ROWS:
                found.append((batch.batch_date, []))
                rows = 0
            found[-1][1].append((batch.batch, piece))
            rows += more
    return found


def stream_levers() -> list[str]:
    """Return the registered levers that work on streams; joins and queries have their own."""
    return [name for name in LEVERS if isinstance(lever(name), Lever)]


def written_tables(tables: Tables, way: ShedPlan) -> list[Table]:
    """Return all tables that `publish` writes to."""
    # a batch that is sent without loss may have been shed before; the levers' rows for it are then deleted
    whole = any(batch.sent_whole for batch in way.batches)
    levers = [lever(name) for name in (stream_levers() if whole else way.batches[0].levers)]
    own = [table for one in levers for table in (*one.tables_at_source, *one.record_tables)]
    elsewhere = tables.settings.destination != tables.settings.lake
    names = ["batches", "ledger", *own, *([DESTINATION_METADATA] if elsewhere else []), "transmitted"]
    return [own_table(tables, way.contract, name) for name in names]


def plan_metadata(tables: Tables, way: ShedPlan) -> list[BatchMetadata]:
    """Return the destination metadata of the batches; empty if the destination is the source's lake."""
    return destination_metadata(tables, way.batches, dict(zip(way.batches[0].levers, way.plans, strict=True)))


def own_table(tables: Tables, contract: StreamContract, table: str, levers: Iterable[str] = ()) -> Table:
    """Return a table that the stream's rows are written to: its own, or a shared table."""
    if tables.contract(table).scope == "shared":
        return tables.at(table)
    attributes = [(a.name, a.type) for a in contract.attributes]
    added = () if table == "raw" else added_columns(contract, levers)
    return tables.at(table, contract.stream).with_attributes(attributes, added)


def added_columns(contract: StreamContract, levers: Iterable[str] = ()) -> tuple[tuple[str, str, str], ...]:
    """Return the columns that levers add to rows: the levers of the contract, and those that batches were pinned to."""
    names = dict.fromkeys([*contract.lever_names, *levers])
    return tuple(column for name in names for column in columns_of(name))


Tried = Mapping[int, Mapping[int, tuple[Plan, MeasuredDraft]]]
"""By ordinal of the lever and batch: its plan, and what the draft of the plan measured."""


def draft_results(tables: Tables, way: ShedPlan, drafts: Drafts) -> Tried:
    """Return what each plan came to in a draft."""
    raw_bytes = {batch.batch: raw_column_bytes(tables, way.contract, batch)[0] for batch in way.batches}
    return {
        ordinal: {
            batch.batch: (plan, drafted_batch(way, drafts, batch, ordinal, {}, raw_bytes[batch.batch]))
            for batch in way.batches
        }
        for ordinal, plan in enumerate(way.plans, start=1)
    }


def draft_measurements(
    way: ShedPlan, drafts: Drafts, tried: Tried, aims: Mapping[int, float]
) -> DraftMeasurements:
    """Return the measurements of a draft for the next plan: the result of each plan, and the bytes outside columns."""
    if way.contract.width == "declared":
        return DraftMeasurements(aims, tried)
    names = [*OVERHEAD, *way.contract.names]
    beside, sizes = 0, dict.fromkeys(names, 0)
    for batch in way.batches:
        columns = drafts.sent.column_bytes(batch.batch, names)
        told = drafts.metadata_bytes.get(batch.batch, 0)
        beside += table_bytes_sent(drafts.sent, batch.batch) + told - sum(columns.values())
        sizes = {name: size + columns[name] for name, size in sizes.items()}
    around = max(0, beside) * 8.0 / 1000.0 / covered_seconds(way.batches)
    rows = max(1, sum(drafts.sent.rows(number) for number in way.numbers))
    exacts = [plan.exact_columns(number) for plan in way.plans for number in way.numbers]
    shed = {name for name in way.contract.sheddable if not all(name in one for one in exacts)}
    exact = {name: size * 8.0 / rows for name, size in sizes.items() if name not in shed}
    return DraftMeasurements(
        aims, tried, dict.fromkeys(way.numbers, around), dict.fromkeys(way.numbers, exact)
    )


def publish(
    tables: Tables,
    way: ShedPlan,
    drafts: Drafts,
    unshed: Mapping[int, Load] | None = None,
) -> Step[None]:
    """Publish the levers' own tables, their records, the ledger and, last, `transmitted`.

    The step shares the commits of shared tables with other streams. If it fails, delete the files that are not
    published yet. `unshed`: see `ledger_lines`.
    """
    left = [draft for draft in [*drafts.aside.values(), drafts.sent] if draft.written]
    try:
        yield from _publish(
            tables, way, drafts, list(ledger_lines(tables, way, drafts, drafts.seconds, unshed)), left
        )
    except StoreFault:
        raise  # the commit may have succeeded although its answer was lost: its files must stay
    except BaseException:
        for draft in left:
            drafts.tables[draft.table].discard(draft)
        raise


def _publish(
    tables: Tables, way: ShedPlan, drafts: Drafts, ledger: Sequence[LedgerRow], left: list[Draft]
) -> Step[None]:
    stream, numbers = way.contract.stream, way.numbers
    days = sorted({batch.batch_date for batch in way.batches})
    for aside in drafts.aside.values():
        shared = tables.contract(aside.table).scope == "shared"
        where = {"stream": stream} if shared else {}
        yield from _put(drafts, aside, left, **where, batch_date=days, batch=numbers)
    for plan in way.plans:
        for table, rows in plan.records().items():
            yield from replace_rows(tables.at(table), rows, stream=stream, batch_date=days, batch=numbers)
    old = recorded_stages(tables, stream, numbers)
    written = [line.stage for line in ledger if line.stage == SENT_BEFORE]
    stages = [*dict.fromkeys([*way.batches[0].levers, *old, SENT, *written])]
    yield from write_ledger_together(tables, stream, numbers, stages, ledger)
    write_metadata(tables, plan_metadata(tables, way))
    yield from _put(drafts, drafts.sent, left, batch_date=days, batch=numbers)
    if any(batch.sent_whole for batch in way.batches):
        _forget(tables, way, days)


def _forget(tables: Tables, way: ShedPlan, days: Sequence[date]) -> None:
    """Delete what levers stored and recorded earlier for batches that are now sent without loss."""
    stream = way.contract.stream
    for name in sorted(set(stream_levers()) - set(way.batches[0].levers)):
        for table in (*lever(name).tables_at_source, *lever(name).record_tables):
            shared = tables.contract(table).scope == "shared"
            own = tables.at(table) if shared else tables.at(table, stream)
            own.delete(**({"stream": stream} if shared else {}), batch_date=list(days), batch=way.numbers)


def _put(drafts: Drafts, draft: Draft, left: list[Draft], **where: Any) -> Step[None]:
    """Publish one draft into its table; if it is not known whether the commit succeeded, its files stay."""
    left[:] = [one for one in left if one is not draft]
    try:
        yield from publish_files(drafts.tables[draft.table], draft.written, **where)
    except SpillwayError:
        left.append(draft)
        raise


MOST_MIXTURES, MOST_TRIES = 2, 3
"""The most larger drafts that are mixed with the fitting one, and the most drafts that are made for each of them."""
MOST_TAILS, TAIL_BYTES = 2, 32
"""The most drafts that lose the last tuples of one attribute, and the bytes that a second treatment of an attribute
takes at least: another scheme, and marks of which values are absent."""
AIM = 0.98
"""The share of the unused capacity that a mixed draft aims to use."""


@dataclass(frozen=True)
class OversizedDraft:
    """A draft that did not fit: its plans, and the bytes that it would have sent."""

    way: ShedPlan
    bytes: int
    column_bytes: Mapping[str, int] = field(default_factory=dict)
    """The bytes of each column that may be shed."""


def oversized_draft(way: ShedPlan, drafts: Drafts) -> OversizedDraft:
    """Return the plans and the bytes of a draft that does not fit; the caller deletes its files."""
    names = way.contract.sheddable
    sizes = [drafts.sent.column_bytes(number, names) for number in way.numbers]
    return OversizedDraft(
        way, _crossing(way, drafts), {name: sum(one[name] for one in sizes) for name in names}
    )


def use_remaining_capacity(
    tables: Tables, fitting: tuple[ShedPlan, Drafts], larger: Sequence[OversizedDraft]
) -> Step[tuple[ShedPlan, Drafts]]:
    """Return a draft that fits and loses less, mixed from the fitting draft and a larger one; else the fitting draft.

    The files of all other drafts are deleted.
    """
    way, drafts = fitting
    if way.contract.width == "declared" or len(way.plans) != 1:
        return fitting
    capacity = sum(batch.allowed_kbps * 125.0 * (batch.seconds_covered or 0.0) for batch in way.batches)
    low = _crossing(way, drafts)
    if low > capacity:
        return fitting
    if any(way.plans[0].leaves_values_absent(number) for number in way.numbers):
        fitting = yield from _best_tail(tables, fitting, larger, capacity)
    tries: list[tuple[float, int, OversizedDraft]] = []
    for other in larger:
        if other.bytes > capacity:
            mixed = way.plans[0].mix(other.way.plans[0], (capacity - low) / (other.bytes - low))
            if mixed is not None:
                tries.append((max(mixed.loss_of(number) for number in way.numbers), len(tries), other))
    for _, _, finer in sorted(tries, key=lambda one: one[:2])[:MOST_MIXTURES]:
        fitting = yield from _best_mixture(tables, fitting, (way, low), finer, capacity)
    return fitting


def _best_tail(
    tables: Tables,
    fitting: tuple[ShedPlan, Drafts],
    larger: Sequence[OversizedDraft],
    capacity: float,
) -> Step[tuple[ShedPlan, Drafts]]:
    """Return the best of the fitting draft and the larger ones without the last tuples of one attribute."""
    tails: list[tuple[float, int, OversizedDraft, Plan, int]] = []
    for finer in larger:
        whole, excess = finer.way.plans[0], finer.bytes + TAIL_BYTES - capacity
        for name, size in finer.column_bytes.items():
            coarser = whole.shed_too(name) if TAIL_BYTES < excess < size else None
            if coarser is not None:
                share = excess / size
                lost = max(
                    share * coarser.loss_of(number) + (1.0 - share) * whole.loss_of(number)
                    for number in finer.way.numbers
                )
                tails.append((lost, len(tails), finer, coarser, size))
    for _, _, finer, coarser, size in sorted(tails, key=lambda one: one[:2])[:MOST_TAILS]:
        absent = (finer.bytes + TAIL_BYTES - capacity) / size
        for _ in range(MOST_TRIES):
            plan = coarser.mix(finer.way.plans[0], 1.0 - absent) if absent < 1.0 else None
            if plan is None or not _loses_less(plan, fitting):
                break
            found = replace(
                finer.way, plans=(plan,), down=replace(finer.way.down, decisions=(plan.decision,))
            )
            try:
                made = yield from write_drafts(tables, found)
            except BaseException:
                fitting[1].discard()
                raise
            came = _crossing(found, made)
            if came <= capacity and not any(_exceeds(found, made, number) for number in found.numbers):
                fitting[1].discard()
                fitting = (found, made)
                break
            made.discard()
            # bytes do not fall evenly with the tuples, so the next try sheds a little more than the excess
            absent += (1.5 * (came - capacity) + 0.25 * TAIL_BYTES) / size
    return fitting


def _loses_less(plan: Plan, fitting: tuple[ShedPlan, Drafts]) -> bool:
    before = fitting[0].plans[0]
    return max(map(plan.loss_of, fitting[0].numbers)) < max(map(before.loss_of, fitting[0].numbers))


def _best_mixture(
    tables: Tables,
    fitting: tuple[ShedPlan, Drafts],
    coarser: tuple[ShedPlan, int],
    finer: OversizedDraft,
    capacity: float,
) -> Step[tuple[ShedPlan, Drafts]]:
    """Return the best of the fitting draft and the mixtures of the two plans."""
    way, low = coarser
    (least, least_bytes), (most, most_bytes) = (0.0, low), (1.0, finer.bytes)
    for attempt in range(MOST_TRIES):
        share = least + (most - least) * AIM * (capacity - least_bytes) / max(1.0, most_bytes - least_bytes)
        if attempt and most < 1.0:
            # bytes may not be linear: a dictionary takes the same bytes for half of the tuples
            share = min(share, (least + most) / 2.0)
        plan = way.plans[0].mix(finer.way.plans[0], share)
        if plan is None or not (plan.is_worth_a_draft(fitting[0].plans[0]) and _loses_less(plan, fitting)):
            break
        found = replace(way, plans=(plan,), down=replace(way.down, decisions=(plan.decision,)))
        try:
            made = yield from write_drafts(tables, found)
        except BaseException:
            fitting[1].discard()
            raise
        came = _crossing(found, made)
        if came > capacity or any(_exceeds(found, made, number) for number in found.numbers):
            made.discard()
            most, most_bytes = share, max(came, least_bytes + 1)
        else:
            fitting[1].discard()
            fitting = (found, made)
            least, least_bytes = share, came
    return fitting


def _exceeds(way: ShedPlan, drafts: Drafts, number: int) -> bool:
    """Return whether a batch that is sent alone exceeds its share of the channel, by the rate that checks compare."""
    (batch,) = [one for one in way.batches if one.batch == number]
    kbps = total_bytes_sent(drafts, number) * 8.0 / 1000.0 / (batch.seconds_covered or 1.0)
    return len(way.batches) == 1 and kbps > batch.allowed_kbps


def _crossing(way: ShedPlan, drafts: Drafts) -> int:
    return sum(total_bytes_sent(drafts, number) for number in way.numbers)
