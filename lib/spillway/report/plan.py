"""Show the dry run of a plan for a stream or a channel, and compare it with lossless compressors.

A dry run writes nothing. The comparison compresses the rows of a batch, which takes seconds. So it runs only on
request (`spillway plan STREAM --compare`). Its result is stored in `lossless/<stream>.json` in the build
folder, and the report shows it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import Batch
from spillway.contracts import Contracts, load_usable, read_channel
from spillway.contracts.fields import suggest
from spillway.engine.protocol import Engine
from spillway.errors import ContractError, UsageError
from spillway.ledger import TOTAL
from spillway.levers.loss_curve import MORE
from spillway.levers.protocol import Picture, Say
from spillway.report.overview import (
    StreamOverview,
    attribute_lines,
    format_dropped_rows,
    measured_loss,
    stream_overviews,
)
from spillway.report.text import (
    blocks,
    format_bytes,
    format_count,
    format_loss,
    page_width,
    sentences,
    table_lines,
)
from spillway.report.trade_off import (
    MEASURES,
    ChannelTradeOff,
    load_trade_off,
    trade_off_lines,
    with_measured_losses,
)
from spillway.settings import Settings
from spillway.store.tables import Tables
from spillway.streams.drafts import SENT
from spillway.streams.dry_run import (
    Comparison,
    DryRun,
    Size,
    compare_with_lossless,
    dry_run,
    planned_sizes,
    tuples_at_both_ends,
)

FOLDER = "lossless"
FORMS = {
    "offered": "as offered",
    "gzip": "CSV, gzip -9",
    "xz": "CSV, xz -9",
    "parquet": "Parquet, zstd -19, best encodings",
    "exact": "Spillway, nothing lost",
    "bound": "Spillway, within the bounds",
    "planned": "Spillway, by the plan",
}
"""The name of each form, in the order of the table."""
COMPRESSORS = ("gzip", "xz", "parquet")
_HEADS = ("form", "#bytes", "#bytes per row", "#times the best file")


def comparison_title(one: Comparison) -> str:
    """Return which batch was compared, and of how many rows."""
    said = f"{one.stream}, batch {one.batch} of {one.batch_date}, {one.rows:,} rows, next to lossless files"
    if one.compressed_rows < one.rows:
        said += f" of its first {one.compressed_rows:,} rows"
    return said


def comparison_rows(one: Comparison) -> list[tuple[str, str, str, str]]:
    """Return form, bytes, bytes per row, and bytes per row over those of the smallest file of a compressor."""
    best = min(size.bytes_per_row for size in one.sizes if size.form in COMPRESSORS)
    return [
        (FORMS[size.form], f"{size.bytes:,}", f"{size.bytes_per_row:.3g}", f"{size.bytes_per_row / best:.2f}")
        for size in sorted(one.sizes, key=lambda size: list(FORMS).index(size.form))
    ]


def comparison_notes(one: Comparison) -> Iterator[str]:
    """Yield sentences on how to read the table, and the notes of the comparison."""
    best = min((size for size in one.sizes if size.form in COMPRESSORS), key=lambda size: size.bytes_per_row)
    yield (
        "A compressor's file counts whole, with its rows as they arrived or sorted by key and time, whichever is "
        "smaller. Of Spillway all that is sent counts: files with row numbers and footers, and log entries"
    )
    exact = next((size for size in one.sizes if size.form == "exact"), None)
    if exact is not None and exact.bytes_per_row > best.bytes_per_row:
        yield (
            f"{FORMS[best.form]} is smaller than Spillway without loss, by "
            f"{format_bytes((exact.bytes_per_row - best.bytes_per_row) * one.rows)} for the batch"
        )
    yield (
        "To send so few bytes, state `minimize: bytes` in the channel and `synopsis: send` in the lever attributes. To "
        "lose nothing, also state `error_pct: 0` in the lever, and no bound in any attribute"
    )
    yield from one.notes


def comparison_lines(one: Comparison) -> Iterator[str]:
    """Yield the comparison as lines of text."""
    yield from sentences(f"{comparison_title(one)}:")
    yield from table_lines(_HEADS, comparison_rows(one), indent=2)
    for note in comparison_notes(one):
        yield from sentences(f"{note}.", indent=2)


def comparison_picture(one: Comparison) -> Picture:
    """Return the comparison as a table of the report."""
    note = ". ".join(comparison_notes(one)) + f". Measured by spillway plan {one.stream} --compare."
    rows: Sequence[Sequence[str]] = comparison_rows(one)
    return Picture(comparison_title(one), "table", {"heads": list(_HEADS), "rows": rows}, note)


def store_comparison(settings: Settings, one: Comparison) -> Path:
    """Store the comparison for the report; return its path."""
    path = Path(settings.build, FOLDER, f"{one.stream}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({**asdict(one), "batch_date": str(one.batch_date)}, indent=2) + "\n", encoding="utf-8"
    )
    return path


def stored_comparison(settings: Settings, stream: str) -> Comparison | None:
    """Return the stored comparison of a stream; None if there is none that this version can read."""
    path = Path(settings.build, FOLDER, f"{stream}.json")
    if not path.is_file():
        return None
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        return Comparison(
            held["stream"],
            held["batch"],
            date.fromisoformat(held["batch_date"]),
            held["rows"],
            tuple(Size(one["form"], one["bytes"], one["rows"]) for one in held["sizes"]),
            tuple(held["notes"]),
        )
    except (ValueError, KeyError, TypeError):
        return None  # truncated, or written by another version: the next `--compare` replaces it


ROWS_SHOWN = 10
"""The most example rows of a plan."""
INEXACT, NOT_THERE, NOT_SENT = "~", ".", "(dropped)"


@dataclass(frozen=True)
class StreamPlan:
    """The planned treatment of one batch of a stream."""

    overview: StreamOverview
    batch: int
    batch_date: date
    tuples: int
    part_kbps: float
    part_bytes: int
    """What the batch may send."""
    fixed_bytes: int
    """Sent bytes that do not depend on the number of rows: footers, log entries, metadata."""
    loss_pct: float
    notes: tuple[str, ...]
    columns: tuple[str, ...]
    before: tuple[Mapping[str, Any], ...]
    after: tuple[Mapping[str, Any] | None, ...]
    """The same tuples at the destination; None: a tuple that was shed as a row."""


@dataclass(frozen=True)
class ShownPlan:
    """The content that `spillway plan` shows."""

    channel: str
    capacity_kbps: float
    streams: tuple[StreamPlan, ...]
    waiting: Mapping[str, str]
    """Streams for which no plan is possible, and why."""
    trade: ChannelTradeOff | None
    comparisons: tuple[Comparison, ...] = ()
    """For each stream, the batch next to files of lossless compressors, if `compare` was requested."""


def show_plan(
    tables: Tables,
    engine: Engine,
    name: str,
    capacity: str | None = None,
    batch: int | None = None,
    compare: bool = False,
    say: Say = lambda _: None,
) -> ShownPlan:
    """Return what would be done to the stream or the channel `name`, at its capacity or at another one.

    `compare`: also measure the batch of each stream as files of lossless compressors, which takes seconds.
    """
    contracts = load_usable(tables.settings.schemas)
    for one in contracts.broken:
        if one.subject == name:
            raise ContractError(list(one.problems))
    stream = name if name in contracts.streams else None
    if stream is None and name not in contracts.channels:
        names = sorted({*contracts.streams, *contracts.channels})
        raise UsageError(f"`{name}` must be a stream or a channel; {suggest(name, names)}")
    if stream is None and batch is not None:
        raise UsageError("`--batch` must go with a stream, got a channel; name one of its streams")
    channel = contracts.streams[stream].channel if stream is not None else name
    if capacity is not None:
        contracts = _with_capacity(contracts, channel, capacity)
    chosen = (stream, batch) if stream is not None and batch is not None else None
    room = contracts.planning_channel(channel)
    with dry_run(tables, engine, contracts, room, chosen) as run:
        shown = _shown(run, contracts, channel, stream)
        losses = _losses(run, channel)
        names = [one.overview.figures.stream for one in shown.streams] if compare else []
        planned = {name: planned_sizes(run, name) for name in names}
        numbers = {name: run.batches[name].batch for name in names}
    if shown.trade is not None and shown.trade.streams and shown.trade.loss_of == MEASURES:
        more = losses
        if losses.pct:
            wider = _with_kbps(contracts, channel, MORE * shown.trade.capacity_kbps)
            with dry_run(tables, engine, wider, room, chosen) as run:
                more = _losses(run, channel)
        shown = replace(
            shown, trade=with_measured_losses(shown.trade, losses.pct, more.pct, losses.above(more))
        )
    comparisons = []
    for name, sizes in planned.items():
        compared = compare_with_lossless(tables, engine, contracts, name, numbers[name], say)
        if compared is not None:
            comparisons.append(replace(compared, sizes=(*compared.sizes, *sizes)))
    return replace(shown, comparisons=tuple(comparisons))


@dataclass(frozen=True)
class _Losses:
    """The losses that a dry run measured on a channel: of all measures, and by stream and attribute."""

    pct: float
    by_attribute: Mapping[tuple[str, str], float]

    def above(self, other: _Losses) -> str:
        """Return the attributes that lose more here."""
        names = [
            f"{stream}.{name}"
            for (stream, name), pct in self.by_attribute.items()
            if pct > other.by_attribute.get((stream, name), 0.0)
        ]
        return ", ".join(names)


def _losses(run: DryRun, channel: str) -> _Losses:
    streams = {name: one for name, one in run.contracts.streams.items() if one.channel == channel}
    found = stream_overviews(run.tables, streams)
    measures = [measure for one in found for measure in one.measures]
    return _Losses(measured_loss(found), {(one.stream, one.attribute): one.loss_pct for one in measures})


def _with_kbps(contracts: Contracts, name: str, kbps: float) -> Contracts:
    """Return the contracts with another rate of a channel, also if it has a quota."""
    channel = contracts.channels[name]
    channel = replace(channel, capacity=replace(channel.capacity, kbps=kbps, quota=None))
    return replace(contracts, channels={**contracts.channels, name: channel})


def _allowed_kbps(run: DryRun, contracts: Contracts, channel: str) -> float | None:
    """Return the rate that the batches of a dry run may send, if the channel has a quota; None if it has a rate."""
    if contracts.channels[channel].capacity.quota is None:
        return None
    mine = [one for one in run.batches.values() if contracts.streams[one.stream].channel == channel]
    return math.fsum(one.capacity_kbps or 0.0 for one in mine) or None


def _with_capacity(contracts: Contracts, name: str, capacity: str) -> Contracts:
    try:
        other = read_channel(name, {"capacity": capacity})
    except ContractError as error:
        problem = replace(error.problems[0], where="", field="--capacity")
        raise UsageError(str(problem)) from None
    channel = replace(contracts.channels[name], capacity=other.capacity)
    return replace(contracts, channels={**contracts.channels, name: channel})


def _shown(run: DryRun, contracts: Contracts, channel: str, stream: str | None) -> ShownPlan:
    mine = {
        name for name, one in contracts.streams.items() if one.channel == channel and stream in (None, name)
    }
    found = stream_overviews(run.tables, run.contracts.streams)
    plans = [_stream_plan(run, one) for one in found if one.figures.stream in mine]
    return ShownPlan(
        channel,
        contracts.channels[channel].capacity_kbps,
        tuple(plans),
        {name: why for name, why in run.waiting.items() if name in mine}
        | {
            name: f"its contract cannot be used ({contracts.first_problem(name)})"
            for name in (contracts.broken_streams(channel) if stream is None else ())
        },
        load_trade_off(
            run.tables, run.contracts, channel, capacity_kbps=_allowed_kbps(run, contracts, channel)
        ),
    )


def _stream_plan(run: DryRun, one: StreamOverview) -> StreamPlan:
    stream = one.figures.stream
    batch, contract = run.batches[stream], run.contracts.streams[stream]
    middle = (batch.first_seq + batch.last_seq) // 2
    came, has = tuples_at_both_ends(run, stream, middle, batch.last_seq)
    notes = []
    if stream in run.trained:
        notes.append(
            f"{stream} is not trained: this plan uses models that were learned in memory, from this batch alone. The "
            "first run, or the nightly spillway_train, trains it. Until then nothing of it is sent"
        )
    if stream in run.observed:
        notes.append(
            f"{stream} is only observed: everything of it is sent until its contract states mode: shed"
        )
    if spent := _spent_before(run, batch):
        capacity = run.contracts.channels[contract.channel].capacity.stated
        notes.append(
            f"{contract.channel} has a quota of {capacity}. Earlier batches spent {format_bytes(spent)} of it, or wait "
            "and will spend it. This plan divides the rest as a run does"
        )
    return StreamPlan(
        one,
        batch.batch,
        batch.batch_date,
        batch.rows or 0,
        batch.allowed_kbps,
        round(batch.allowed_kbps * 125.0 * (batch.seconds_covered or 0.0)),
        _fixed_bytes(run.tables, batch),
        measured_loss([one]),
        tuple(notes),
        contract.names,
        tuple(came.select(contract.names).slice(0, ROWS_SHOWN).to_pylist()),
        tuple(_as_sent(came["seq"].slice(0, ROWS_SHOWN).to_pylist(), has, contract.names)),
    )


def _spent_before(run: DryRun, batch: Batch) -> int:
    """Return the bytes that earlier batches spend of the quota that the batch spends; 0 if its channel has no quota."""
    channel = run.contracts.streams[batch.stream].channel
    quota = run.contracts.channels[channel].capacity.quota
    if quota is None:
        return 0
    return run.spending(channel, [batch.quota_day]).spent(quota.period_of(batch.quota_day))


def _fixed_bytes(tables: Tables, batch: Batch) -> int:
    rows = tables.at("ledger").rows(
        ["bytes_fixed"],
        subject=batch.stream,
        batch=batch.batch,
        stage=SENT,
        unit="rows",
        dimension_kind=TOTAL,
    )
    return sum(row["bytes_fixed"] or 0 for row in rows.to_pylist())


def _as_sent(seq: Sequence[int], has: pa.Table, names: Sequence[str]) -> Iterator[dict[str, Any] | None]:
    """Yield the tuples with these `seq` as the destination has them; None for a tuple that was shed as a row."""
    shown = has.filter(pc.is_in(has["seq"], value_set=pa.array(seq, pa.int64())))
    rows = dict(zip(shown["seq"].to_pylist(), shown.select(names).to_pylist(), strict=True))
    yield from (rows.get(number) for number in seq)


def plan_lines(found: ShownPlan, rows: int = 0) -> Iterator[str]:
    """Yield the plan as lines of text, none wider than a page; `rows`: the number of example rows."""
    yield "A dry run: no table is written."
    for stream, why in sorted(found.waiting.items()):
        yield from sentences(f"{stream}: {why}.")
    for one in found.streams:
        yield ""
        yield from _stream_lines(found, one, rows)
    if found.trade is not None:
        yield ""
        yield from trade_off_lines(found.trade)
    for compared in found.comparisons:
        yield ""
        yield from comparison_lines(compared)


def _stream_lines(found: ShownPlan, one: StreamPlan, examples: int) -> Iterator[str]:
    f = one.overview.figures
    seen = one.overview
    yield from sentences(
        f"{f.stream}, batch {one.batch} of {one.batch_date}: {format_count(one.tuples, 'row')}, "
        f"{format_bytes(seen.exact_bytes)} offered, {format_bytes(seen.sent_bytes)} sent; {found.channel} allows "
        f"{format_bytes(one.part_bytes)}"
    )
    for note in one.notes:
        yield from sentences(f"{note}.")
    of_what = "a value of a measure" + (" in the rows that are sent" if f.rows_shed else "")
    yield from sentences(f"mean loss of {of_what}: {format_loss(one.loss_pct)}", indent=2)
    if f.rows_shed:
        yield from sentences(format_dropped_rows(f.rows_shed), indent=2)
    if f.rate_out_kbps > one.part_kbps:
        yield from sentences(
            f"{format_bytes(seen.sent_bytes - one.part_bytes)} too much; nothing more may be shed",
            indent=2,
        )
    yield from sentences(
        f"{format_bytes(one.fixed_bytes)} are fixed (footers, log entries, metadata). Bytes per row:",
        indent=2,
    )
    yield from attribute_lines(seen.attributes, one.tuples, (seen.exact_bytes, seen.sent_bytes))
    if not one.before[:examples]:
        return
    yield ""
    yield from sentences(
        f"rows at the source and at the destination ({INEXACT} within the bound, {NOT_THERE} absent until requested)",
        indent=2,
    )
    rows = []
    for was, now in list(zip(one.before, one.after, strict=False))[:examples]:
        rows.append(["source", *(_value(was[name]) for name in one.columns)])
        rows.append(
            ["sent", NOT_SENT, *[""] * (len(one.columns) - 1)]
            if now is None
            else ["sent", *(_mark_changed(was[name], now[name]) for name in one.columns)]
        )
    heads = ["", *(f"#{name}" for name in one.columns)]
    for block in blocks(1, heads, rows, page=page_width() - 2):
        yield from table_lines(
            [heads[at] for at in block], [[row[at] for at in block] for row in rows], indent=2
        )


def _value(value: object) -> str:
    """Return a value as short text.

    >>> _value(None), _value(1.25), _value(datetime(2026, 1, 2, 3)), _value("a" * 40)
    ('null', '1.25', '2026-01-02 03:00', 'aaaaaaaaaaaaaaaaaa..')
    """
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}" + (f":{value:%S}" if value.second else "")
    text = str(value)
    return text if len(text) <= 20 else f"{text[:18]}.."


def _mark_changed(was: object, now: object) -> str:
    """Return a value at the destination, marked if it differs from the original.

    >>> _mark_changed(1.5, 1.5), _mark_changed(1.52, 1.5), _mark_changed(1.5, None), _mark_changed(None, None)
    ('1.5', '~1.5', '.', 'null')
    """
    if was is not None and now is None:
        return NOT_THERE
    return _value(now) if was == now else f"{INEXACT}{_value(now)}"
