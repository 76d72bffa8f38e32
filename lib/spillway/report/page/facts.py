"""Gather the facts that the pages show, channel by channel, from the tables alone and without Spark.

The figures come from `spillway.report.overview`, as those of the last screen do, so that page and screen agree.
Pictures and details are gathered for the `DETAILED` streams of a channel that lose most, so that the size of a page
does not grow with the number of streams.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from spillway.contracts import Contracts, StreamContract
from spillway.contracts.capacity import Capacity
from spillway.contracts.workload import Workload
from spillway.ledger import Row, total_imbalance
from spillway.levers.protocol import Picture
from spillway.levers.windows import WindowLever
from spillway.registry import lever
from spillway.report.overview import (
    ChannelOverview,
    StreamOverview,
    attribute_figures,
    channel_overview,
    loss_at_bound_pct,
    stream_overviews,
)
from spillway.report.plan import stored_comparison
from spillway.report.recent import RecentBatches, last_windows, read_recent
from spillway.report.status import QuotaStatus, quotas_of
from spillway.report.summary import group_rows, last_outcomes, last_stages, last_validation, total_rows
from spillway.report.text import format_count
from spillway.store.tables import Tables
from spillway.streams.dry_run import Comparison
from spillway.streams.facts import newest_facts
from spillway.streams.presence import absent_values

DETAILED = 12
"""The most streams of a channel that have pictures and details."""


TREND_BATCHES = 90
"""The most batches of a stream that the trend shows."""


@dataclass(frozen=True)
class TrendPoint:
    """A batch that was sent: the share of its capacity that it used, and its losses."""

    batch: int
    end: datetime | None
    """The end of its event time; None: not known."""
    used_pct: float
    loss_pct: float | None
    """The mean loss of a value; None: the batch is not validated yet."""
    dropped_pct: float
    """The share of the rows that was dropped for good."""


@dataclass(frozen=True)
class StreamDetails:
    """The pictures of a stream's levers, its last batches, and its comparison with files of lossless compressors."""

    contract: StreamContract
    seen: StreamOverview
    recent: RecentBatches
    pictures: tuple[Picture, ...]
    trend: tuple[TrendPoint, ...] = ()
    comparison: Comparison | None = None
    """None: `spillway plan --compare` has not measured it."""


@dataclass(frozen=True)
class WorkloadFacts:
    """What the report shows of a join or a query."""

    name: str
    description: str
    ledger: tuple[Row, ...]
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class ChannelFacts:
    """What the page of a channel shows."""

    channel: str
    description: str
    capacity: Capacity
    overview: ChannelOverview | None = None
    """None: nothing was sent yet."""
    quota: QuotaStatus | None = None
    """The period of the newest batch, if the capacity is a quota."""
    in_period: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The bytes that the batches of this period offered and sent, by stream."""
    streams: tuple[StreamOverview, ...] = ()
    details: tuple[StreamDetails, ...] = ()
    waiting: tuple[str, ...] = ()
    """Sentences on streams without a batch at the destination."""
    workloads: tuple[WorkloadFacts, ...] = ()
    failed: tuple[Row, ...] = ()
    """Expectations that the last validation found broken."""

    @property
    def ledger_difference(self) -> int:
        """Return by how much the ledger of the streams, joins and queries fails to balance."""
        own = sum(one.figures.ledger_difference for one in self.streams)
        return own + sum(total_imbalance(one.ledger) for one in self.workloads)

    @property
    def uncertain(self) -> list[str]:
        """Return the streams with certificates of an older version, which do not count values at the destination."""
        return [
            one.figures.stream
            for one in self.streams
            if one.values_checked and one.figures.absent_pct is None
        ]


@dataclass(frozen=True)
class LakeFacts:
    """What the report shows: a page for each channel, and the last validation."""

    channels: tuple[ChannelFacts, ...]
    outcomes: tuple[Row, ...] = field(default=())
    broken: tuple[str, ...] = ()
    """Sentences on contracts that cannot be read."""


def gather(tables: Tables, contracts: Contracts) -> LakeFacts:
    """Return the facts of every channel that has a stream, by name."""
    outcomes = last_validation(last_outcomes(tables))
    failed = group_rows([row for row in outcomes if not row["success"]])
    rows = tables.at("batches").rows(["stream", "rows"]).to_pylist()
    taken = {name: sum(one["rows"] or 0 for one in own) for name, own in group_rows(rows).items()}
    quotas = {one.channel: one for one in quotas_of(tables, contracts)}
    workloads = group_workloads(tables, contracts)
    found = []
    for name in sorted(contracts.channels):
        streams = {s.stream: s for s in contracts.streams.values() if s.channel == name}
        if streams:
            found.append(
                _channel(
                    tables, contracts, name, streams, taken, quotas.get(name), workloads.get(name, ()), failed
                )
            )
    broken = [f"{one.subject}: {problem}" for one in contracts.broken for problem in one.problems]
    return LakeFacts(tuple(found), tuple(outcomes), tuple(broken))


def _channel(
    tables: Tables,
    contracts: Contracts,
    name: str,
    streams: Mapping[str, StreamContract],
    taken: Mapping[str, int],
    quota: QuotaStatus | None,
    workloads: Sequence[WorkloadFacts],
    failed: Mapping[str, list[Row]],
) -> ChannelFacts:
    seen = stream_overviews(tables, streams)
    sent = {one.figures.stream for one in seen}
    stated = contracts.channels[name]
    most = sorted(seen, key=_importance)[:DETAILED]
    details = [_details(tables, streams[one.figures.stream], one) for one in most]
    subjects = [*streams, *(one.name for one in workloads)]
    return ChannelFacts(
        name,
        stated.description,
        stated.capacity,
        channel_overview(tables, contracts, name, seen, points=12),
        quota,
        {} if quota is None else {one: _bytes_in_period(tables, one, quota) for one in sorted(sent)},
        tuple(seen),
        tuple(details),
        tuple(_waiting_sentence(one, taken.get(one, 0)) for one in sorted(streams.keys() - sent)),
        tuple(workloads),
        tuple(row for one in subjects for row in failed.get(one, ())),
    )


def _importance(one: StreamOverview) -> tuple[int, float, int, str]:
    """Return the sort key of a stream: a broken guarantee comes first, then what loses most, then what sends most."""
    f = one.figures
    loss = max((measure.loss_pct for measure in one.measures), default=0.0)
    return (-f.violations - f.ledger_difference, -loss - f.rows_lost, -one.sent_bytes, f.stream)


def _waiting_sentence(stream: str, rows: int) -> str:
    if not rows:
        return f"{stream}: no data yet. Put files into its landing folder and run spillway run."
    return f"{stream}: {format_count(rows, 'row')} taken in, not sent yet. They wait for training or for the next run."


def _bytes_in_period(tables: Tables, stream: str, quota: QuotaStatus) -> tuple[int, int]:
    """Return the bytes that the stream's batches of the period of a quota offered and sent."""
    recent = read_recent(tables, stream)
    spent = {
        one.batch for one in recent.batches if quota.first <= (one.spends_on or one.batch_date) <= quota.last
    }
    rows = [row for batch, row in last_stages(recent.ledger).items() if batch in spent]
    return sum(row["bytes_offered"] for row in rows), sum(row["bytes_kept"] for row in rows)


def _details(tables: Tables, contract: StreamContract, seen: StreamOverview) -> StreamDetails:
    pictures = [
        picture
        for name in contract.lever_names
        for picture in lever(name).pictures(contract, newest_facts(tables, contract.stream, name), tables)
    ]
    recent = read_recent(tables, contract.stream)
    return StreamDetails(
        contract,
        seen,
        recent,
        tuple(pictures),
        tuple(_trend(tables, contract, recent)),
        stored_comparison(tables.settings, contract.stream),
    )


def _by_batch(rows: Iterable[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["batch"], []).append(row)
    return found


def _trend(tables: Tables, contract: StreamContract, recent: RecentBatches) -> Iterator[TrendPoint]:
    """Yield the last batches that were sent and had a capacity."""
    sent, ledger, proofs = (
        last_stages(recent.ledger),
        _by_batch(recent.ledger),
        _by_batch(recent.certificates),
    )
    through = [
        one for one in recent.batches if one.batch in sent and one.seconds_covered and one.allowed_kbps
    ]
    through = through[-TREND_BATCHES:]
    absent = absent_values(tables, contract, through)
    counts_pct = loss_at_bound_pct(tables, contract)
    for batch in through:
        kbps = sent[batch.batch]["bytes_kept"] * 8 / 1000 / (batch.seconds_covered or 1.0)
        loss = None
        if batch.batch in proofs:
            mine = {place: count for place, count in absent.items() if place[0] == batch.batch}
            figures = attribute_figures(contract, ledger[batch.batch], proofs[batch.batch], mine, counts_pct)
            measures = [one for one in figures if one.role == "measure"]
            values = sum(one.values for one in measures)
            loss = math.fsum(one.values * one.loss_pct for one in measures) / values if values else 0.0
        lost = sum(row["lost"] for row in total_rows(ledger[batch.batch]) if row["unit"] == "rows")
        dropped = 100 * lost / batch.rows if batch.rows else 0.0
        yield TrendPoint(batch.batch, batch.event_end, 100 * kbps / batch.allowed_kbps, loss, dropped)


def group_workloads(tables: Tables, contracts: Contracts) -> dict[str, list[WorkloadFacts]]:
    """Return the joins and queries that have ledger rows, by the channel of the first stream that they read."""
    stated: dict[str, Workload] = {**contracts.joins, **contracts.queries}
    known = tables.at("ledger").rows(["subject"], scope=["join", "query"])["subject"].unique().to_pylist()
    found: dict[str, list[WorkloadFacts]] = {}
    for name in sorted(set(known) & set(stated)):
        contract = stated[name]
        channel = next(_channels_of(name, contracts, stated), None)
        if channel is not None:
            said = f"{contract.description} From {', '.join(contract.inputs)}.".strip()
            one = WorkloadFacts(name, said, last_windows(tables, name), tuple(_pictures(tables, contract)))
            found.setdefault(channel, []).append(one)
    return found


def _channels_of(
    name: str, contracts: Contracts, workloads: Mapping[str, Workload], seen: Iterable[str] = ()
) -> Iterator[str]:
    """Yield the channels of the streams that a join or a query reads, directly or through others."""
    for one in workloads[name].inputs:
        if one in contracts.streams:
            yield contracts.streams[one].channel
        elif one in workloads and one not in seen:
            yield from _channels_of(one, contracts, workloads, {*seen, one})


def _pictures(tables: Tables, contract: Workload) -> Iterator[Picture]:
    for name in contract.lever_names:
        one = lever(name)
        if isinstance(one, WindowLever):
            yield from one.pictures(contract, tables)
