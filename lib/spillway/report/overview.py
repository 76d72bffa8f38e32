"""Summarise a run on one screen: every channel, every attribute, the validation, and what more capacity would buy.

Measured figures come from the tables alone. What more capacity would buy comes from the plan at another
capacity (`streams.trade_off`).

The figures of an attribute are its treatment, its bound, its error and its bytes. No lever is named here. The
ledger counts the values that were kept, rounded and shed. The certificates state their error. The levers state
how many values are absent at the destination until they are requested (`Lever.absent`).

    loss of an attribute = (100 x absent + mean error x (rounded and shed that are not absent)) / values      (in %)

For an attribute that has only a bound in its own unit, the mean error is divided by that bound and multiplied
by `Lever.loss_at_bound_pct`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from spillway.batch import PENDING
from spillway.contracts import Contracts, StreamContract, load_usable
from spillway.errors import SpillwayError
from spillway.ledger import TOTAL, Row
from spillway.levers.loss_curve import row_drop_loss_pct
from spillway.registry import lever
from spillway.report.explain import (
    WorkloadExplanation,
    explain_workload,
    find_stream_contract,
    repeated_hours,
)
from spillway.report.recent import RecentBatches, read_recent
from spillway.report.summary import StreamFigures, last_stages, recent_figures, sum_certificates
from spillway.report.text import (
    format_bytes,
    format_count,
    format_loss,
    format_pct,
    format_rate,
    sentences,
    table_lines,
)
from spillway.report.trade_off import MORE_PCT, ChannelTradeOff, load_trade_off
from spillway.store.tables import Tables
from spillway.streams.facts import newest_facts
from spillway.streams.presence import absent_values

_ABSENT_PCT = 100.0


@dataclass(frozen=True)
class AttributeFigures:
    """The figures of one attribute, summed over batches."""

    stream: str
    attribute: str
    role: str
    unit: str
    values: int
    rounded: int
    shed: int
    absent: int
    """Number of the shed values that stay at the source until they are requested."""
    offered_bytes: int
    sent_bytes: int
    held_bytes: int
    bound_pct: float | None
    bound: float | None
    """In the attribute's own unit."""
    mean_error_pct: float
    worst_error_pct: float
    mean_error: float
    worst_error: float
    """In the attribute's own unit, if its bound is in that unit."""
    mean_loss_pct: float
    """Mean loss of a rounded or shed value that is present: its relative error, or its share of an absolute bound."""
    violations: int

    @property
    def loss_pct(self) -> float:
        """Return the mean loss per value at the destination; an absent value counts 100 %."""
        if not self.values:
            return 0.0
        there = self.rounded + self.shed - self.absent
        return (_ABSENT_PCT * self.absent + self.mean_loss_pct * there) / self.values

    @property
    def treatment_shares(self) -> dict[str, float]:
        """Return the share of the values by treatment, in %."""
        counts = {
            "kept": self.values - self.rounded - self.shed,
            "rounded": self.rounded,
            "as synopsis": self.shed - self.absent,
            "at source": self.absent,
        }
        return {way: 100.0 * count / max(1, self.values) for way, count in counts.items() if count > 0}

    def flat(self) -> dict[str, float]:
        """Return the numbers by their names in `build/run.json`."""
        names = (
            "values",
            "rounded",
            "shed",
            "absent",
            "offered_bytes",
            "sent_bytes",
            "held_bytes",
            "violations",
        )
        numbers = {
            name: getattr(self, name) for name in (*names, "mean_error_pct", "worst_error_pct", "loss_pct")
        }
        return {f"{name}.{self.stream}.{self.attribute}": value for name, value in numbers.items()}


def whole_bound_pct(tables: Tables, contract: StreamContract) -> float:
    """Return the loss, in %, that the stream's levers assign to an error equal to an attribute's absolute bound."""
    found = [
        lever(name).loss_at_bound_pct(newest_facts(tables, contract.stream, name))
        for name in contract.lever_names
    ]
    return min(found, default=100.0)


def attribute_figures(
    contract: StreamContract,
    ledger: Iterable[Row],
    certificates: Iterable[Row],
    absent: Mapping[tuple[int, str], int],
    counts_pct: float = 100.0,
) -> list[AttributeFigures]:
    """Return the figures of every attribute of a stream that a stage reports on, in contract order.

    `absent`: the number of absent values by batch and attribute. `counts_pct`: see `whole_bound_pct`.
    """
    lines: dict[str, list[Row]] = {}
    for row in ledger:
        if (row["dimension_kind"], row["unit"]) == ("attribute", "values") and row["ordinal"] > 0:
            lines.setdefault(row["dimension"], []).append(row)
    proofs: dict[str, list[Row]] = {}
    for row in certificates:
        proofs.setdefault(row["attribute"], []).append(row)
    found = []
    for attribute in contract.attributes:
        own, proof = lines.get(attribute.name, []), proofs.get(attribute.name, [])
        if not own:
            continue
        # a value that several levers report on was offered once, to the first, and sent once, by the last
        way = sorted(own, key=lambda row: int(row["ordinal"]))
        last = list({row["batch"]: row for row in way}.values())
        first = list({row["batch"]: row for row in reversed(way)}.values())
        whole = sum_certificates(proof)
        found.append(
            AttributeFigures(
                contract.stream,
                attribute.name,
                attribute.role,
                attribute.unit or "",
                _sum(first, "offered"),
                _sum(own, "rounded"),
                _sum(own, "shed"),
                sum(count for (_, name), count in absent.items() if name == attribute.name),
                _sum(first, "bytes_offered"),
                _sum(last, "bytes_kept"),
                _sum(own, "bytes_source"),
                _bound(proof, "error_pct"),
                _bound(proof, "error"),
                whole.mean_error_pct,
                whole.max_error_pct,
                _mean(proof, "mean_error"),
                max((float(row.get("max_error") or 0.0) for row in proof), default=0.0),
                whole.loss_pct(counts_pct),
                whole.violations,
            )
        )
    return found


def _sum(rows: Iterable[Row], name: str) -> int:
    return sum(int(row[name]) for row in rows)


def _mean(certificates: Iterable[Row], column: str) -> float:
    """Return the mean of a column over all values that were shed or rounded."""
    parts = [(row["shed_values"] + row["rounded_values"], row.get(column) or 0.0) for row in certificates]
    values = sum(count for count, _ in parts)
    return math.fsum(count * mean for count, mean in parts) / values if values else 0.0


def _bound(certificates: Iterable[Row], column: str) -> float | None:
    """Return the loosest bound of the certificates; None if no certificate has one."""
    stated = [row.get(column) for row in certificates]
    found = [float(one) for one in stated if one is not None and math.isfinite(one)]
    return max(found, default=None)


@dataclass(frozen=True)
class StreamOverview:
    """The figures of a stream and of its attributes, and what validation compared with raw."""

    figures: StreamFigures
    attributes: tuple[AttributeFigures, ...]
    seconds: float
    values_checked: int
    rows_missing: int
    rows: int = 0
    """Rows of the batches that were sent."""
    exact_bytes: int = 0
    """Bytes of all of these rows as Parquet, with the best encoding of each column."""
    sent_bytes: int = 0
    batches: int = 0
    """Batches that were sent."""
    batches_unchecked: int = 0
    """Of these, batches that no validation has passed since they were last written."""
    queries: int = 0
    """Queries that rows were chosen for."""
    rows_asked: int = 0
    """Rows that these queries ask for; a row counts once for each query."""
    rows_answered: int = 0
    """Of these, rows that were sent."""
    rows_waiting: int = 0
    """Rows that were taken in and are not sent yet."""

    @property
    def measures(self) -> tuple[AttributeFigures, ...]:
        return tuple(one for one in self.attributes if one.role == "measure")


@dataclass(frozen=True)
class ChannelOverview:
    """A channel: the rate offered, the rate sent, the loss, and its trade-off."""

    channel: str
    streams: tuple[str, ...]
    capacity_kbps: float
    offered_kbps: float
    sent_kbps: float
    loss_pct: float
    trade: ChannelTradeOff | None
    rows_shed: int = 0
    quota: str = ""
    """The quota as stated; empty for a rate. Unspent bytes of a quota count in the capacity of several batches."""
    offered_bytes: int = 0
    sent_bytes: int = 0

    @property
    def used_pct(self) -> float:
        return 100.0 * self.sent_kbps / self.capacity_kbps if self.capacity_kbps else 0.0

    @property
    def dropping_rows_pct(self) -> float:
        """Return the loss of dropping random rows at the same capacity; for a quota, at the bytes that were sent."""
        return row_drop_loss_pct(self.offered_kbps, self.sent_kbps if self.quota else self.capacity_kbps)

    def flat(self) -> dict[str, float]:
        """Return the numbers by their names in `build/run.json`."""
        found = {
            "channel_capacity_kbps": self.capacity_kbps,
            "channel_offered_kbps": self.offered_kbps,
            "channel_sent_kbps": self.sent_kbps,
            "channel_used_pct": self.used_pct,
            "channel_loss_pct": self.loss_pct,
            "channel_loss_by_dropping_rows_pct": self.dropping_rows_pct,
        }
        if self.trade is not None and self.trade.streams:
            found["channel_loss_planned_pct"] = self.trade.loss_pct
            found[f"channel_loss_planned_with_{MORE_PCT}_pct_more_pct"] = self.trade.loss_with_more_pct
        return {f"{name}.{self.channel}": value for name, value in found.items()}


@dataclass(frozen=True)
class WorkloadOverview:
    """A join or a query: the explanations of its levers, and the work of its stages."""

    explanation: WorkloadExplanation

    def flat(self) -> dict[str, float]:
        """Return the numbers by their names in `build/run.json`."""
        found: dict[str, float] = {}
        for stage in self.explanation.stages:
            found[f"{stage.unit}_offered.{self.explanation.name}"] = stage.offered
            found[f"{stage.unit}_kept.{self.explanation.name}"] = stage.handed_on
        return found


@dataclass(frozen=True)
class Overview:
    """The content of the first screen."""

    channels: tuple[ChannelOverview, ...]
    streams: tuple[StreamOverview, ...]
    workloads: tuple[WorkloadOverview, ...] = ()

    def flat(self) -> dict[str, float]:
        """Return every number by its name in `build/run.json`."""
        found: dict[str, float] = {}
        shown: tuple[ChannelOverview | WorkloadOverview, ...] = (*self.channels, *self.workloads)
        for one in shown:
            found |= one.flat()
        for stream in self.streams:
            name = stream.figures.stream
            found |= {
                f"values_checked.{name}": stream.values_checked,
                f"rows_missing.{name}": stream.rows_missing,
            }
            for attribute in stream.attributes:
                found |= attribute.flat()
        return found


def overview(tables: Tables) -> Overview:
    """Return the overview of a lake; streams without a batch at the destination are left out."""
    contracts = load_usable(tables.settings.schemas)
    streams = stream_overviews(tables, contracts.streams)
    channels = [
        channel_overview(tables, contracts, name, [one for one in streams if one.figures.stream in mine])
        for name in sorted(contracts.channels)
        if (mine := [s.stream for s in contracts.streams.values() if s.channel == name])
    ]
    workloads = [explain_workload(tables, name) for name in sorted({**contracts.joins, **contracts.queries})]
    return Overview(
        tuple(one for one in channels if one is not None),
        tuple(streams),
        tuple(WorkloadOverview(one) for one in workloads if one is not None and one.stages),
    )


@dataclass(frozen=True)
class StreamExplanation:
    """The overview of a stream: the treatment of its attributes, and its irregularities."""

    stream: str
    mode: str
    channel: str
    levers: tuple[str, ...]
    attributes: tuple[str, ...]
    overview: StreamOverview | None
    """None: no batch was processed yet."""
    notes: tuple[str, ...]


def explain_stream(tables: Tables, stream: str) -> StreamExplanation:
    """Explain a stream attribute by attribute; refuse an unknown name and suggest the nearest one."""
    contract = find_stream_contract(load_usable(tables.settings.schemas), stream)
    found = stream_overviews(tables, {stream: contract})
    ledger = read_recent(tables, stream).ledger
    notes = [
        f"{count:,} records with {note} of {contract.timezone}"
        for note, count in repeated_hours(ledger).items()
    ]
    return StreamExplanation(
        stream, contract.mode, contract.channel, contract.lever_names, contract.names, found[0] if found else None,
        tuple(notes),
    )  # fmt: skip


def stream_overviews(tables: Tables, streams: Mapping[str, StreamContract]) -> list[StreamOverview]:
    """Return the overview of every stream with a batch at the destination, by name."""
    found = (
        _stream_overview(tables, contract, read_recent(tables, name))
        for name, contract in sorted(streams.items())
    )
    return [one for one in found if one is not None]


def overview_since(tables: Tables, contract: StreamContract, moment: datetime) -> StreamOverview | None:
    """Return the overview of the batches of a stream that were saved since a moment; None if none was sent."""
    recent = read_recent(tables, contract.stream)
    mine = {batch.batch for batch in recent.batches if batch.updated_at >= moment}
    return _stream_overview(
        tables,
        contract,
        replace(
            recent,
            batches=tuple(one for one in recent.batches if one.batch in mine),
            ledger=tuple(row for row in recent.ledger if row["batch"] in mine),
            certificates=tuple(row for row in recent.certificates if row["batch"] in mine),
        ),
    )


def _stream_overview(
    tables: Tables, contract: StreamContract, recent: RecentBatches
) -> StreamOverview | None:
    """Return the overview of some batches of a stream; None if none of them is at the destination."""
    lines, proofs = recent.ledger, recent.certificates
    sent = last_stages(lines)
    through = [batch for batch in recent.batches if batch.batch in sent]
    if not through:
        return None
    checked = {row["batch"] for row in proofs}
    rows = sum(batch.rows or 0 for batch in recent.batches if batch.batch in checked)
    back = tables.at("recovered", contract.stream).rows(["batch"], batch=sorted(checked)).num_rows
    # rows that a lever dropped for good are not missing
    lost = sum(
        line["lost"]
        for line in lines
        if line["unit"] == "rows" and line["dimension_kind"] == TOTAL and line["batch"] in checked
    )
    absent = absent_values(tables, contract, through)
    asked = [
        line
        for line in lines
        if (line["dimension_kind"], line["unit"]) == ("query", "rows") and line["batch"] in sent
    ]
    return StreamOverview(
        recent_figures(recent),
        tuple(attribute_figures(contract, lines, proofs, absent, loss_at_bound_pct(tables, contract))),
        math.fsum(batch.seconds_covered or 0.0 for batch in through),
        sum(int(row["shed_values"] + row["rounded_values"]) for row in proofs if row["attribute"]),
        abs(rows - lost - back),
        rows=sum(batch.rows or 0 for batch in through),
        exact_bytes=sum(line["bytes_offered"] for line in sent.values()),
        sent_bytes=sum(line["bytes_kept"] for line in sent.values()),
        batches=len(through),
        batches_unchecked=sum(bool(batch.rows) and not batch.is_validated for batch in through),
        queries=len({line["dimension"] for line in asked}),
        rows_asked=sum(line["offered"] for line in asked),
        rows_answered=sum(line["kept"] for line in asked),
        rows_waiting=sum(
            batch.rows or 0 for batch in recent.batches if batch.batch not in sent and batch.status in PENDING
        ),
    )


def loss_at_bound_pct(tables: Tables, contract: StreamContract) -> float:
    """Return `whole_bound_pct`; 100 if the facts of a lever cannot be read."""
    try:
        return whole_bound_pct(tables, contract)
    except SpillwayError:
        return 100.0  # the strict interpretation if facts cannot be read


def channel_overview(
    tables: Tables, contracts: Contracts, channel: str, streams: Sequence[StreamOverview], points: int = 0
) -> ChannelOverview | None:
    """Return the overview of a channel with the streams that were sent; None if there are none.

    `points`: the number of points of the curve of its trade-off.
    """
    if not streams:
        return None
    capacity = contracts.channels[channel].capacity
    return ChannelOverview(
        channel,
        tuple(one.figures.stream for one in streams),
        # a quota has no rate of its own: take the rates that its batches were allowed
        capacity.kbps if capacity.quota is None else math.fsum(one.figures.capacity_kbps for one in streams),
        math.fsum(one.figures.rate_in_kbps for one in streams),
        math.fsum(one.figures.rate_out_kbps for one in streams),
        measured_loss(streams),
        load_trade_off(tables, contracts, channel, points),
        sum(one.figures.rows_shed for one in streams),
        "" if capacity.quota is None else capacity.stated,
        sum(one.exact_bytes for one in streams),
        sum(one.sent_bytes for one in streams),
    )


def measured_loss(streams: Iterable[StreamOverview]) -> float:
    """Return the mean loss of a measure value on the channel, in %.

    Streams are weighted by their values per second.
    """
    lost = values = 0.0
    for one in streams:
        if one.seconds:
            values += sum(measure.values for measure in one.measures) / one.seconds
            lost += math.fsum(measure.values * measure.loss_pct for measure in one.measures) / one.seconds
    return lost / values if values else 0.0


def overview_lines(found: Overview) -> list[str]:
    """Return the lines of the first screen."""
    lines: list[str] = []
    for channel in found.channels:
        lines += [*channel_lines(channel), ""]
    for stream in found.streams:
        lines += [*stream_lines(stream), ""]
    for workload in found.workloads:
        lines += [*workload_lines(workload), ""]
    return [*lines, *proof_lines(found.streams)]


def workload_lines(one: WorkloadOverview) -> Iterator[str]:
    """Yield a join or a query as a few sentences."""
    told = one.explanation
    for part in told.levers:
        if part.explanation is not None:
            found = part.explanation
            yield from sentences(
                f"{told.name} (reads {', '.join(told.inputs)}): {found.treatment}; {found.because}"
            )


def channel_lines(one: ChannelOverview) -> Iterator[str]:
    """Yield a channel as a few sentences."""
    named, offered, sent = f"{one.channel} ({', '.join(one.streams)})", one.offered_kbps, one.sent_kbps
    yield from sentences(
        f"{named}, {one.quota}: {format_bytes(one.offered_bytes)} offered, {format_bytes(one.sent_bytes)} sent"
        if one.quota
        else f"{named}, {format_rate(one.capacity_kbps)}: {format_rate(offered)} offered, {format_rate(sent)} sent, "
        f"{one.used_pct:.1f} % of the capacity"
    )
    if one.loss_pct:
        yield from sentences(
            f"mean loss of a value of a measure: {format_loss(one.loss_pct)}. Dropping random rows would lose "
            f"{format_loss(one.dropping_rows_pct)}, because a dropped row loses every value",
            indent=2,
        )
    elif not one.rows_shed:
        yield from sentences("nothing is lost", indent=2)
    if one.rows_shed:
        yield from sentences(format_dropped_rows(one.rows_shed), indent=2)
    if one.trade is not None:
        said = f"for the last batch of each stream, {one.trade.buys}"
        yield from sentences(said if one.trade.streams else one.trade.buys, indent=2)


def format_dropped_rows(rows: int) -> str:
    """Return a sentence that whole rows were not sent."""
    return f"{rows:,} whole rows are dropped; spillway explain shows what each query still gets"


def stream_lines(one: StreamOverview) -> Iterator[str]:
    """Yield a stream, attribute by attribute."""
    f, waiting = one.figures, f", {one.rows_waiting:,} not sent yet" if one.rows_waiting else ""
    yield from sentences(
        f"{f.stream}: {format_count(f.tuples, 'row')}, {f.rejected:,} refused{waiting}; "
        f"{format_bytes(one.exact_bytes)} offered, {format_bytes(one.sent_bytes)} sent"
    )
    yield from attribute_lines(one.attributes, total=(one.exact_bytes, one.sent_bytes))


def attribute_lines(
    attributes: Sequence[AttributeFigures],
    tuples: int | None = None,
    total: tuple[int, int] = (0, 0),
) -> list[str]:
    """Return a table of the treatment of every measure, and sentences with the other bytes.

    `tuples`: if given, bytes are shown per tuple of this number of tuples, not in total. `total`: all bytes of the
    stream, offered and sent.
    """

    def size(count: int) -> str:
        return format_bytes(count) if tuples is None else f"{count / max(1, tuples):.3g}"

    held = any(one.held_bytes for one in attributes)
    rows = [
        [
            one.attribute,
            format_treatments(one.treatment_shares),
            format_bound(one),
            format_error(one, one.mean_error_pct, one.mean_error),
            format_worst_error(one),
            size(one.offered_bytes),
            size(one.sent_bytes),
            *([size(one.held_bytes) if one.held_bytes else "-"] if held else []),
        ]
        for one in attributes
        if one.role == "measure"
    ]
    others = [one for one in attributes if one.role != "measure"]
    heads = ["~attribute", "~treatment", "#bound", "#mean error", "#worst", "#offered", "#sent"]
    lines = table_lines([*heads, *(["#held"] if held else [])], rows, indent=2) if rows else []
    if others:
        took = sum(one.sent_bytes for one in others)
        names = ", ".join(one.attribute for one in others)
        lines += sentences(f"{names}: always exact, {size(took)}{' B/row' if tuples else ''}", indent=2)
    offered, sent = (
        all_bytes - sum(getattr(one, name) for one in attributes)
        for all_bytes, name in zip(total, ("offered_bytes", "sent_bytes"), strict=True)
    )
    if attributes and sent > 0:
        unit = " B/row" if tuples else ""
        lines += sentences(
            f"row numbers, footers, log entries and metadata: {size(max(0, offered))} offered, {size(sent)} sent{unit}",
            indent=2,
        )
    return lines


def format_treatments(ways: Mapping[str, float]) -> str:
    """Return the shares of the treatments as text.

    >>> format_treatments({"kept": 100.0}), format_treatments({"kept": 61.6, "rounded": 38.4})
    ('kept', 'kept 62 %, rounded 38 %')
    >>> format_treatments({"kept": 0.1, "rounded": 99.9})
    'kept < 1 %, rounded > 99 %'
    """
    if len(ways) == 1:
        return next(iter(ways))
    return ", ".join(
        f"{way} {'< 1' if share < 0.5 else '> 99' if share > 99.5 else f'{share:.0f}'} %"
        for way, share in ways.items()
    )


def format_bound(one: AttributeFigures) -> str:
    """Return the bound by which the values were judged, in the attribute's own unit if it is stated so."""
    relative = f"{one.bound_pct:.3g} %" if one.bound_pct is not None else ""
    own = f"{one.bound:.3g} {one.unit}".strip() if one.bound is not None else ""
    if 0 in (one.bound_pct, one.bound):
        return "exact"
    return " and ".join(filter(None, (own, relative))) or "-"


def format_error(one: AttributeFigures, error_pct: float, error: float) -> str:
    """Return an error in the unit of its bound: the own unit or per cent; "-" if no value was rounded or shed."""
    if not (one.rounded or one.shed):
        return "-"
    return format_loss(error_pct) if one.bound is None else f"{error:.2g} {one.unit}".strip()


def format_worst_error(one: AttributeFigures) -> str:
    """Return the worst error with the digits of the bound, so that rounding never shows it above the bound."""
    if not (one.rounded or one.shed) or one.bound is not None or not 0.001 <= one.worst_error_pct < math.inf:
        return format_error(one, one.worst_error_pct, one.worst_error)
    return f"{one.worst_error_pct:.3g} %"


def proof_lines(streams: Sequence[StreamOverview]) -> list[str]:
    """Return the lines on the comparison with raw and its result."""
    checked = sum(one.values_checked for one in streams)
    tuples = sum(one.figures.tuples - one.rows_waiting for one in streams)
    outside = sum(one.figures.violations for one in streams)
    missing = sum(one.rows_missing for one in streams)
    whole = sum(one.figures.rows_shed for one in streams)
    shed = f", {whole:,} dropped as their contracts allow" if whole else ""
    return sentences(
        f"Checked against the source: {checked:,} rounded or recovered values one by one, {outside:,} outside their "
        f"bound; all else by checksum; of {format_count(tuples, 'row')}{shed}, {missing:,} missing."
    ) + [line for one in streams for line in presence_lines(one.figures)]


def presence_lines(figures: StreamFigures) -> list[str]:
    """Return lines about values that are absent at the destination; none if all are present."""
    if not figures.absent_pct:
        return []
    return sentences(
        f"{figures.stream}: {format_pct(figures.present_pct or 0.0)} of the values are present at the destination "
        f"within their bound, {format_pct(figures.absent_pct)} are absent there ({figures.source_values:,} kept at the "
        f"source, {figures.lost_values:,} dropped for good)."
    )
