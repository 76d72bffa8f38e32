"""Make the sections of the pages from the facts, with a finding as the title of each.

A section without content has a sentence that says why. The levers supply pictures as data. There is one renderer for
each kind of picture:

    lines     {lines: [{name, points: [(x, y)], style?, steps?, dots?}], x, y, from_zero?, band?, mark?, is_time?}
    recovery  {x: [...], original: [...], recovered: [...], bound: [...], y, unit, is_time, used_pct?}
    timeline  {rows: [(name, [(from, to, style, words)])], x, legend?: {style: words}}
    bars      {rows: [(name, [(value, style, words)])], unit?}
    regions   {rects: [(from x, to x, from y, to y, darkness, words)], x, y, x_ticks?, y_ticks?: [(at, words)]}
    table     {heads: [...], rows: [[...]]}; a head that starts with # is above numbers

A style is a class of the page's style sheet. A line without a style gets a colour of its own. The styles c0 to c9
have no fixed meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

from spillway.errors import InvalidValue
from spillway.ledger import TOTAL, Row, imbalances, total_imbalance
from spillway.levers.certificate import Certificate
from spillway.levers.protocol import Picture
from spillway.report.overview import (
    AttributeFigures,
    ChannelOverview,
    StreamOverview,
    format_bound,
    format_error,
    format_treatments,
    format_worst_error,
)
from spillway.report.page import svg
from spillway.report.page.facts import ChannelFacts, LakeFacts, StreamDetails, WorkloadFacts
from spillway.report.plan import comparison_picture
from spillway.report.result import format_query_share
from spillway.report.summary import certificate_of
from spillway.report.text import (
    format_bytes,
    format_count,
    format_loss,
    format_rate,
    stages_of,
)
from spillway.report.trade_off import trade_off_pictures
from spillway.streams.presence import Presence, presence_of_row

COLOURS = 10
SHOWN_COLUMNS = 10
"""The most columns in the table of losses; the others are folded."""
SHOWN_VALUES = 2
"""The most pictures of original and recovered values; the others are folded."""
SHOWN_ANSWERS = 4
TREND_STREAMS = 6
BAR_STREAMS = 7
SHOWN_OUTCOMES = 60
MOST_OFFERED = 3
"""If the capacity is this many times what the streams offer, its curve shows nothing."""


@dataclass(frozen=True)
class Table:
    """A table; a head that starts with # is above numbers. `bad`: the rows that are marked."""

    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    bad: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Card:
    """A framed part of a section: a chart (markup that `svg` made) or a table, and a note."""

    title: str
    chart: str = ""
    table: Table | None = None
    note: str = ""
    wide: bool = False
    side_note: bool = False
    """The note is at the right of the chart, not below it."""


@dataclass(frozen=True)
class Section:
    """A section of a page. Its title says the finding. `absent`: why it has no content."""

    name: str
    title: str
    cards: tuple[Card, ...] = ()
    absent: str = ""


@dataclass(frozen=True)
class Fold:
    """Details that the reader unfolds: of one stream, join or query."""

    title: str
    text: str
    cards: tuple[Card, ...]


@dataclass(frozen=True)
class Headline:
    """The finding of a page, and whether it is good, partial or bad."""

    text: str
    look: str


def picture_card(picture: Picture) -> Card:
    """Return a picture as a card; its chart is empty if it has no values.

    >>> picture_card(Picture("How", "table", {"heads": ["how"], "rows": [["often"]]})).table.rows
    [['often']]
    """
    if picture.kind not in _RENDERERS:
        raise InvalidValue(
            "kind", f"be one of {', '.join(_RENDERERS)}", picture.kind, "see report.page.sections"
        )
    card = _RENDERERS[picture.kind](picture.data, picture.wide)
    return replace(card, title=picture.title, note=picture.note, wide=picture.wide)


def _is_empty(card: Card) -> bool:
    return not card.chart and (card.table is None or not card.table.rows)


def _cards(pictures: Iterable[Picture]) -> tuple[Card, ...]:
    """Return the pictures as cards, without the empty ones; a single chart has its note at its right."""
    found = [card for card in map(picture_card, pictures) if not _is_empty(card)]
    return (replace(found[0], side_note=bool(found[0].chart)),) if len(found) == 1 else tuple(found)


def _lines(data: Mapping[str, Any], wide: bool) -> Card:
    lines = [
        svg.Line(
            line["points"],
            line.get("style", f"c{place % COLOURS}"),
            line["name"],
            line.get("steps", False),
            line.get("dots", False),
        )
        for place, line in enumerate(data["lines"])
    ]
    chart = svg.line_chart(
        lines,
        x_label=data["x"],
        y_label=data["y"],
        from_zero=data.get("from_zero", False),
        band=data.get("band", ()),
        mark=data.get("mark"),
        width=svg.WIDE if wide else svg.WIDTH,
        is_time=data.get("is_time", False),
    )
    return Card("", chart)


def _recovery(data: Mapping[str, Any], wide: bool) -> Card:
    """Draw original and recovered values, and below them the error inside its bound, which is too small above."""
    x, bounds = data["x"], data["bound"]
    pairs = list(zip(x, data["original"], data["recovered"], bounds, strict=True))
    known = [(at, given, bound) for at, _, given, bound in pairs if given is not None and bound is not None]
    errors = [
        (at, None if truth is None or given is None else float(given) - float(truth))
        for at, truth, given, _ in pairs
    ]
    unit = f", {data['unit']}" if data["unit"] else ""
    values = svg.Plot(
        [
            svg.Line(list(zip(x, data["recovered"], strict=True)), "recovered", "recovered"),
            svg.Line(list(zip(x, data["original"], strict=True)), "original", "original", dots_only=True),
        ],
        f"{data['y']}{unit}",
        height=220,
        band=[(at, given - bound, given + bound) for at, given, bound in known],
    )
    error = svg.Plot(
        [svg.Line(errors, "error", "recovered minus original")],
        f"error{unit}; shaded: its bound",
        height=150,
        band=[(at, -bound, bound) for at, _, bound in known],
    )
    width = svg.WIDE if wide else svg.WIDTH
    label = "" if data["is_time"] else "seq"
    return Card("", svg.plots([values, error], label, width, data["is_time"]))


def _timeline(data: Mapping[str, Any], wide: bool) -> Card:
    return Card("", svg.timeline(data["rows"], x_label=data["x"], legend=data.get("legend", {})))


def _bars(data: Mapping[str, Any], wide: bool) -> Card:
    return Card("", svg.bars(data["rows"], unit=data.get("unit", "B")))


def _regions(data: Mapping[str, Any], wide: bool) -> Card:
    ticks = {name: data.get(name, ()) for name in ("x_ticks", "y_ticks")}
    return Card("", svg.region_map(data["rects"], x_label=data["x"], y_label=data["y"], **ticks))


def _table(data: Mapping[str, Any], wide: bool) -> Card:
    return Card("", table=Table(data["heads"], data["rows"]))


_RENDERERS: Mapping[str, Callable[[Mapping[str, Any], bool], Card]] = {
    "lines": _lines,
    "recovery": _recovery,
    "timeline": _timeline,
    "bars": _bars,
    "regions": _regions,
    "table": _table,
}


def channel_finding(channel: ChannelFacts) -> Headline:
    """Return the finding of a channel's page, with the share of the capacity that was used."""
    found = headline([channel])
    if channel.overview is None or found.look == "bad":
        return found
    of = "capacity" if channel.quota is None else "quota"
    return replace(found, text=f"{found.text}; {format_used(channel)} of the {of} used")


def headline(channels: Sequence[ChannelFacts], broken: int = 0, failed: int | None = None) -> Headline:
    """Return the finding over these channels. It claims nothing that was not checked.

    `broken`: contracts that cannot be read. `failed`: failed expectations, if there are others than the channels' own.
    """
    seen = [one for channel in channels for one in channel.streams]
    violations = sum(one.figures.violations for one in seen)
    missing = sum(one.rows_missing for one in seen)
    off = sum(channel.ledger_difference for channel in channels)
    failed = sum(len(channel.failed) for channel in channels) if failed is None else failed
    wrong = [
        *([format_count(violations, "value is", "values are") + " outside the bound"] if violations else []),
        *([format_count(missing, "row is", "rows are") + " missing"] if missing else []),
        *([f"the ledger is off by {off:,}"] if off else []),
        *([format_count(failed, "expectation") + " failed"] if failed else []),
        *([format_count(broken, "contract") + " cannot be read"] if broken else []),
    ]
    if wrong:
        said = "; ".join(wrong)
        return Headline(f"{said[0].upper()}{said[1:]}", "bad")
    if not seen:
        return Headline("Nothing has been sent yet", "part")
    sent, unchecked = sum(one.batches for one in seen), sum(one.batches_unchecked for one in seen)
    checked = sum(one.values_checked for one in seen)
    if unchecked == sent:
        said, unchecked, look = f"{format_count(sent, 'batch', 'batches')} sent, not validated yet", 0, "part"
    elif checked:
        said, look = f"All {checked:,} rounded or recovered values are inside their bound", ""
    else:
        said, look = "All values that were sent arrived exact", ""
    parts = _reservations(channels, seen, unchecked)
    return Headline("; ".join([said, *parts]), "part" if parts else look)


def _reservations(
    channels: Sequence[ChannelFacts], seen: Sequence[StreamOverview], unchecked: int
) -> list[str]:
    """Return what restricts a good finding."""
    lost = sum(one.figures.rows_lost for one in seen)
    held = sum(one.figures.source_values for one in seen)
    parts = [
        *([f"{format_count(lost, 'row')} dropped for good"] if lost else []),
        *([f"{format_count(held, 'value')} kept at the source"] if held else []),
        *([f"{format_count(unchecked, 'batch', 'batches')} not validated yet"] if unchecked else []),
    ]
    uncertain = [stream for channel in channels for stream in channel.uncertain]
    if uncertain:
        parts.append("run `spillway migrate` to count the values at the destination")
    return parts


def used_pct(channel: ChannelFacts) -> float:
    """Return the share of the capacity that was used, in %; of the quota of the newest period."""
    if channel.quota is not None:
        return 100.0 * channel.quota.spent_bytes / channel.quota.quota_bytes
    one = channel.overview
    return 100.0 * one.sent_kbps / channel.capacity.kbps if one is not None and channel.capacity.kbps else 0.0


def format_used(channel: ChannelFacts) -> str:
    """Return the share of the capacity that was used; a small one is not shown as 0."""
    pct = used_pct(channel)
    return "< 1 %" if 0 < pct < 0.5 else f"{pct:.0f} %"


def amounts(channel: ChannelFacts) -> list[tuple[str, float, float]]:
    """Return (stream, offered, sent), the largest first: bytes of the newest period of a quota, else kbps."""
    if channel.quota is not None:
        found = [(name, float(offered), float(sent)) for name, (offered, sent) in channel.in_period.items()]
    else:
        found = [
            (one.figures.stream, one.figures.rate_in_kbps, one.figures.rate_out_kbps)
            for one in channel.streams
        ]
    return sorted(found, key=lambda one: (-one[1], one[0]))


def format_amount(channel: ChannelFacts, amount: float) -> str:
    """Return bytes for a channel with a quota; else a rate, and a rate below 1 bps as bytes per day.

    >>> from spillway.contracts.capacity import Capacity
    >>> modem = ChannelFacts("modem", "", Capacity(2.4, "2.4 kbps"))
    >>> format_amount(modem, 1.2), format_amount(modem, 0.000016)
    ('1.2 kbps', '173 B/day')
    """
    if channel.quota is not None:
        return format_bytes(amount)
    return format_rate(amount) if not 0 < amount < 0.001 else f"{format_bytes(amount * 125 * 86_400)}/day"


def channel_sections(channel: ChannelFacts) -> list[Section]:
    """Return all sections of a channel's page, in order."""
    one = channel.overview
    if one is None:
        return []
    pictures = [picture for stream in channel.details for picture in stream.pictures]
    pictures += [picture for workload in channel.workloads for picture in workload.pictures]
    return [
        _bytes_section(channel),
        _trade_section(channel, one),
        _loss_section(channel, [picture for picture in pictures if picture.section == "losses"]),
        _values_section(channel, pictures),
        _answers_section(channel, pictures),
        _trend_section(channel),
    ]


def _bytes_section(channel: ChannelFacts) -> Section:
    order = amounts(channel)
    shown = order if len(order) <= BAR_STREAMS + 1 else order[:BAR_STREAMS]
    if others := order[len(shown) :]:
        name = format_count(len(others), "more stream")
        shown = [*shown, (name, math.fsum(one[1] for one in others), math.fsum(one[2] for one in others))]
    rows = [
        ("all rows, exact", [(amount, f"c{place}", name) for place, (name, amount, _) in enumerate(shown)]),
        ("sent", [(amount, f"c{place}", name) for place, (name, _, amount) in enumerate(shown)]),
    ]
    offered = math.fsum(amount for _, amount, _ in order)
    sent = math.fsum(amount for _, _, amount in order)
    note = "All rows, exact: every row as Parquet, with the best encoding of each column."
    if channel.quota is None:
        limit, of, when = channel.capacity.kbps, "capacity", ""
    else:
        limit, of = channel.quota.quota_bytes, "quota"
        when = f" from {channel.quota.first} to {channel.quota.last}"
        pace = channel.quota.sentence.partition("; ")[2]
        note += (
            f" {pace[0].upper()}{pace[1:]}." if channel.quota.spent_bytes < channel.quota.quota_bytes else ""
        )
    chart = svg.bars(
        rows,
        show=lambda amount: format_amount(channel, amount),
        width=svg.WIDTH,
        limit=(limit, f"{of} {channel.capacity.stated}"),
    )
    title = (
        f"{format_amount(channel, sent)} sent{when}: {format_used(channel)} of the {of}, "
        f"{_share(sent, offered)} of what all rows take"
    )
    return Section(
        "bytes", title, (Card("Bytes sent against the capacity", chart, note=note, side_note=True),)
    )


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _trade_section(channel: ChannelFacts, one: ChannelOverview) -> Section:
    title = "Error against capacity"
    trade = one.trade
    if trade is None:
        return Section(
            "trade", title, absent="no batch is left in raw, and the curve is planned from the last one."
        )
    if not trade.curve:
        return Section("trade", title, absent=f"{trade.buys}.")
    offered = trade.offered_kbps
    if trade.capacity_kbps > MOST_OFFERED * offered and not trade.loss_pct:
        fits = f"{_rate_words(channel, offered)} of {channel.capacity.stated}"
        return Section(
            "trade", title, absent=f"all rows take {fits}, so that everything fits without a loss."
        )
    if not any(point.loss_pct for point in trade.curve):
        return Section("trade", title, absent="no capacity that was tried would lose anything.")
    cards = _cards(trade_off_pictures(trade, *_capacity_unit(channel, trade.curve[-1].capacity_kbps)))
    return Section("trade", f"By the plan, {trade.buys}", cards)


def _rate_words(channel: ChannelFacts, kbps: float) -> str:
    """Return a rate in the unit of the channel's capacity."""
    quota = channel.capacity.quota
    if quota is None:
        return format_amount(channel, kbps)
    return f"{format_bytes(kbps / quota.kbps * quota.size_bytes)}/{quota.per}"


def _capacity_unit(channel: ChannelFacts, kbps: float) -> tuple[str, float]:
    """Return the unit in which people read a capacity of this size, and how many of it are 1 kbps.

    >>> from spillway.contracts.capacity import Capacity, Quota
    >>> _capacity_unit(ChannelFacts("x", "", Capacity(2.4, "2.4 kbps")), 2.4)
    ('kbps', 1.0)
    >>> plan = Quota(12_000, "month")
    >>> unit, each = _capacity_unit(ChannelFacts("x", "", Capacity(plan.kbps, "", plan)), plan.kbps)
    >>> unit, round(each * plan.kbps)
    ('kB per month', 12)
    """
    quota = channel.capacity.quota
    if quota is None:
        return ("Mbps", 0.001) if kbps >= 1000 else ("kbps", 1.0) if kbps >= 1 else ("bps", 1000.0)
    per_kbps = quota.size_bytes / quota.kbps
    _, unit = format_bytes(kbps * per_kbps).split()
    return f"{unit} per {quota.per}", per_kbps / {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[unit]


def _loss_section(channel: ChannelFacts, pictures: Sequence[Picture]) -> Section:
    several = len(channel.streams) > 1
    measures = [(stream, one) for stream in channel.streams for one in stream.measures]
    measures.sort(key=lambda pair: -pair[1].loss_pct)
    exact = sum(not (one.rounded or one.shed) for _, one in measures)
    changed = len(measures) - exact
    dropped = [stream for stream in channel.streams if stream.figures.rows_lost]
    said = []
    if dropped:
        said.append("; ".join(map(_dropped_sentence, dropped)))
    if changed:
        loss = channel.overview.loss_pct if channel.overview is not None else 0.0
        are = "is" if changed == 1 else "are"
        many = f"{changed:,} of {format_count(len(measures), 'column')} {are} rounded or shed"
        off = f"; a value is off by {format_loss(loss)} on average"
        if any(one.absent for _, one in measures):
            off = f"; the mean loss is {format_loss(loss)}, where a value kept at the source counts as 100 %"
        said.append(many + ("" if dropped else off))
    title = ". ".join(said) or "Nothing is lost: every value arrives exact"
    table = _loss_table(measures[:SHOWN_COLUMNS], several)
    cards = [Card("Losses by column", table=table, note=_LOSS_NOTE, wide=True)] if changed else []
    return Section(
        "losses",
        title,
        (*_cards(pictures[:SHOWN_ANSWERS]), *cards),
        absent=""
        if changed or dropped or pictures
        else "no row was dropped and no column was rounded or shed.",
    )


def _dropped_sentence(one: StreamOverview) -> str:
    rows = f"{format_count(one.figures.rows_lost, 'row')} dropped for good"
    return f"{one.figures.stream}: {rows}" + (f", {format_query_share(one)}" if one.rows_asked else "")


_LOSS_HEADS = (
    "column",
    "treatment",
    "#bound",
    "#mean error",
    "#worst error",
    "#bytes, exact",
    "#bytes sent",
)
_LOSS_NOTE = (
    "As synopsis: a small synopsis was sent instead of the column, and the destination recovered the column from it. "
    "At source: the column is kept at the source, and the destination can request it."
)


def _loss_table(measures: Sequence[tuple[StreamOverview, AttributeFigures]], several: bool) -> Table:
    """Return the columns with their treatment and their errors; those that are exact come last."""
    rows = [
        (
            f"{one.stream}.{one.attribute}" if several else one.attribute,
            format_treatments(one.treatment_shares),
            format_bound(one),
            format_error(one, one.mean_error_pct, one.mean_error),
            format_worst_error(one),
            format_bytes(one.offered_bytes),
            format_bytes(one.sent_bytes),
        )
        for _, one in measures
    ]
    bad = frozenset(place for place, (_, one) in enumerate(measures) if one.violations)
    return Table(_LOSS_HEADS, rows, bad)


def _values_section(channel: ChannelFacts, pictures: Sequence[Picture]) -> Section:
    drawn = [picture for picture in pictures if picture.section == "values"]
    # one picture of every stream before a second one of any
    first = {id(next(iter(own))) for one in channel.details if (own := _values_of(one))}
    order = sorted(drawn, key=lambda picture: id(picture) not in first)
    cards = _cards(order[:SHOWN_VALUES])
    title = "Original and recovered values over time"
    if not cards:
        changed = any(one.rounded or one.shed for stream in channel.streams for one in stream.measures)
        why = (
            "no batch with rounded or shed numbers is both recovered and still in raw."
            if changed
            else "no column was rounded or shed."
        )
        return Section("values", title, absent=why)
    worst = max((picture.data.get("used_pct", 0.0) for picture in order[:SHOWN_VALUES]), default=0.0)
    said = f": the worst of these errors is {worst:.0f} % of its bound" if worst else ""
    return Section("values", title + said, cards)


def _values_of(one: StreamDetails) -> list[Picture]:
    return [picture for picture in one.pictures if picture.section == "values"]


def _answers_section(channel: ChannelFacts, pictures: Sequence[Picture]) -> Section:
    title = "Answers of joins and queries"
    if not channel.workloads:
        return Section("answers", title, absent="no join or query of this channel's streams has run.")
    cards = _cards(picture for picture in pictures if picture.section == "answers")[:SHOWN_ANSWERS]
    if not cards:
        return Section("answers", title, absent="no join or query has an answer yet.")
    names = ", ".join(one.name for one in channel.workloads)
    return Section("answers", f"{title}: {names}", cards)


def _trend_section(channel: ChannelFacts) -> Section:
    title = "Trend over batches"
    streams = [one for one in channel.details if len(one.trend) > 1][:TREND_STREAMS]
    if not streams:
        return Section("trend", title, absent="there is no second batch yet.")
    is_time = all(point.end is not None for one in streams for point in one.trend)
    losses = any(point.loss_pct for one in streams for point in one.trend)
    dropped = any(point.dropped_pct for one in streams for point in one.trend)

    def chart(y: str, of: Callable[[Any], float | None], mark: float | None = None) -> str:
        lines = [
            svg.Line(
                [(_place(point, is_time), of(point)) for point in one.trend],
                f"c{place}",
                one.contract.stream,
                dots=len(one.trend) <= 40,
            )
            for place, one in enumerate(streams)
        ]
        if mark is not None:
            ends = [x for line in lines for x, _ in line.points]
            lines.append(svg.Line([(min(ends), mark), (max(ends), mark)], "capacity", "capacity"))
        label = "end of the batch" if is_time else "batch"
        return svg.line_chart(lines, x_label=label, y_label=y, from_zero=True, is_time=is_time)

    used = Card(
        "Share of the capacity used, by batch",
        chart("% of the stream's share", lambda point: point.used_pct, 100.0),
    )
    cards = [used]
    if losses:
        cards.append(Card("Loss, by batch", chart("mean loss of a value, %", lambda point: point.loss_pct)))
    if dropped:
        rows = chart("% of the rows", lambda point: point.dropped_pct)
        cards.append(Card("Rows dropped for good, by batch", rows))
    over = sum(point.used_pct > 100.5 for one in streams for point in one.trend)
    batches = sum(len(one.trend) for one in streams)
    said = (
        f"{over:,} of {format_count(batches, 'batch', 'batches')} used more than their share of the capacity"
        if over
        else f"Each of {batches:,} batches fits into its share of the capacity"
    )
    if len(cards) == 1:
        cards = [replace(used, note="No batch lost anything.", side_note=True)]
    return Section("trend", said, tuple(cards))


def _place(point: Any, is_time: bool) -> float:
    return float(point.end.timestamp()) if is_time else float(point.batch)


def channel_folds(channel: ChannelFacts) -> list[Fold]:
    """Return the details of a channel: all columns if there are many, streams, joins and queries."""
    folds = [_stream_fold(one) for one in channel.details]
    folds += [_workload_fold(one) for one in channel.workloads]
    measures = [(stream, one) for stream in channel.streams for one in stream.measures]
    measures.sort(key=lambda pair: -pair[1].loss_pct)
    if len(measures) > SHOWN_COLUMNS:
        table = _loss_table(measures[: 40 * SHOWN_COLUMNS], len(channel.streams) > 1)
        folds.insert(0, Fold("All columns", "", (Card("Columns", table=table, wide=True),)))
    return folds


def _stream_fold(one: StreamDetails) -> Fold:
    contract, ledger = one.contract, one.recent.ledger
    text = f"{contract.description} Mode {contract.mode}.".strip()
    cards = list(_cards(one.pictures))
    if one.comparison is not None:
        cards.append(picture_card(comparison_picture(one.comparison)))
    cards += [_stage_card(ledger), _certificate_card(one.recent.certificates), _ledger_card(ledger)]
    return Fold(f"Stream {contract.stream}", text, tuple(card for card in cards if not _is_empty(card)))


def _workload_fold(one: WorkloadFacts) -> Fold:
    cards = (*_cards(one.pictures), _stage_card(one.ledger), _ledger_card(one.ledger))
    return Fold(one.name, one.description, tuple(card for card in cards if not _is_empty(card)))


def _stage_card(ledger: Iterable[Row]) -> Card:
    """Return the work of every stage, summed over batches: passed on, shed, and of these recoverable and lost."""
    names = ("batches", "offered", "handed_on", "rounded", "shed", "recoverable", "lost")
    rows = [(one.stage, one.unit, *(getattr(one, name) for name in names)) for one in stages_of(ledger)]
    heads = ("stage", "unit", *(f"#{name.replace('_', ' ')}" for name in names))
    return Card("What every stage did", table=Table(heads, rows), note="In the order of the path.", wide=True)


def _ledger_card(ledger: Sequence[Row]) -> Card:
    """Return the ledger, summed over batches, with the difference by which it fails to balance."""
    sums: dict[tuple[str, str, str, str, str], dict[str, int]] = {}
    names = ("offered", "kept", "rounded", "shed", "deduplicated", "rejected", "recoverable", "lost")
    # stages in path order; those outside the path come last
    for row in sorted(ledger, key=lambda row: (row["ordinal"] < 0, row["ordinal"])):
        # the numbers in a reason differ from batch to batch; `spillway explain` shows them
        reason = "" if row["dimension_kind"] in (TOTAL, "reason") else row["reason"].partition(":")[0]
        at = (row["stage"], row["unit"], row["dimension_kind"], row["dimension"], reason)
        into = sums.setdefault(at, dict.fromkeys((*names, "difference"), 0))
        for name in names:
            into[name] += row[name]
        into["difference"] += sum(by for by, _ in imbalances(row))
    order = {stage: place for place, stage in enumerate(dict.fromkeys(at[0] for at in sums))}
    ordered = sorted(
        sums.items(), key=lambda pair: (order[pair[0][0]], pair[0][1], pair[0][2] != TOTAL, pair[0])
    )
    off = total_imbalance(ledger)
    return Card(
        f"Ledger: it {f'is off by {off:,}' if off else 'balances'}",
        table=Table(
            ("stage", "unit", "by", "which", "reason", *(f"#{name}" for name in (*names, "difference"))),
            [(*at, *found.values()) for at, found in ordered],
            frozenset(place for place, (_, found) in enumerate(ordered) if found["difference"]),
        ),
        note="offered = kept + shed + deduplicated + rejected; shed = recoverable + lost; each stage is offered what "
        "the stage before it kept.",
        wide=True,
    )


def _certificate_card(certificates: Sequence[Row]) -> Card:
    """Return the certificates, summed over batches; the worst error is the largest of all batches."""
    by: dict[tuple[str, str, str], list[Row]] = {}
    for row in certificates:
        by.setdefault((row["lever"], row["attribute"], row["treatment"]), []).append(row)
    rows, bad = [], set()
    for place, ((name, attribute, way), own) in enumerate(sorted(by.items())):
        whole = reduce(add, map(certificate_of, own))
        if whole.violations:
            bad.add(place)
        rows.append(
            (
                name, attribute or "whole rows", way, format_certificate_bound(whole), whole.shed_values,
                whole.rounded_values, whole.stored_values, whole.stored_share_pct, float(whole.max_error_pct),
                whole.mean_error_pct, whole.violations, *_shares(own),
                *(format_bytes(sum(row[f"{size}_bytes"] for row in own)) for size in ("column", "wire", "synopsis")),
            )
        )  # fmt: skip
    heads = (
        "lever", "column", "treatment", "bound", "#shed", "#rounded", "#stored", "#stored %", "#worst error %",
        "#mean error %", "#violations", "#present at destination %", "#absent there %", "in raw", "sent", "synopsis",
    )  # fmt: skip
    return Card("Certificates: measured against raw", table=Table(heads, rows, frozenset(bad)), wide=True)


def _shares(certificates: Sequence[Row]) -> tuple[float | str, float | str]:
    """Return the shares of values that are present and absent at the destination."""
    if any(row.get("offered_values") is None for row in certificates):
        return "?", "?"
    there = sum(map(presence_of_row, certificates), Presence(0))
    return there.present_pct, there.absent_pct


def format_certificate_bound(certificate: Certificate) -> str:
    """Return the bound in words: per cent of the value, the attribute's own unit, or both.

    >>> format_certificate_bound(Certificate(4.5)), format_certificate_bound(Certificate(math.inf, error=0.5))
    ('4.5 %', '0.5')
    """
    said = [f"{certificate.error_pct:g} %"] if math.isfinite(certificate.error_pct) else []
    said += [f"{certificate.error:g}"] if math.isfinite(certificate.error) else []
    return " and ".join(said)


@dataclass(frozen=True)
class ChannelLine:
    """A line of the index: a channel, its figures, and its finding."""

    channel: str
    description: str
    capacity: str
    streams: str
    used_pct: float
    used: str
    sent: str
    exact: str
    lost: str
    finding: Headline


def index_lines(lake: LakeFacts) -> Iterator[ChannelLine]:
    """Yield a line for each channel."""
    for channel in lake.channels:
        one, found = channel.overview, amounts(channel)
        yield ChannelLine(
            channel.channel,
            channel.description,
            channel.capacity.stated,
            _stream_names(channel),
            used_pct(channel),
            format_used(channel),
            format_amount(channel, math.fsum(row[2] for row in found)) if found else "-",
            format_amount(channel, math.fsum(row[1] for row in found)) if found else "-",
            "-" if one is None else _channel_loss(channel, one),
            headline([channel]),
        )


def _stream_names(channel: ChannelFacts) -> str:
    names = [one.figures.stream for one in channel.streams]
    more = len(channel.waiting)
    if len(names) > BAR_STREAMS:
        names, more = names[:BAR_STREAMS], more + len(names) - BAR_STREAMS
    return ", ".join([*names, *([f"{more:,} more"] if more else [])])


def _channel_loss(channel: ChannelFacts, one: ChannelOverview) -> str:
    rows = sum(stream.figures.rows_lost for stream in channel.streams)
    parts = [format_count(rows, "row")] if rows else []
    if one.loss_pct and not rows:
        parts.append(f"{format_loss(one.loss_pct)} on average")
    return "; ".join(parts) or "nothing"


def outcome_cards(outcomes: Sequence[Row]) -> tuple[Card, ...]:
    """Return the last validation: the counts by table, and what failed or was reported."""
    by: dict[str, list[Row]] = {}
    for row in outcomes:
        by.setdefault(row["table"], []).append(row)
    ordered = sorted(by.items(), key=lambda pair: (all(row["success"] for row in pair[1]), pair[0]))
    tables = Table(
        ("table", "#expectations", "#failed"),
        [
            (name, len({row["expectation"] for row in own}), sum(not row["success"] for row in own))
            for name, own in ordered
        ],
        frozenset(place for place, (_, own) in enumerate(ordered) if not all(row["success"] for row in own)),
    )
    failed = [row for row in outcomes if not row["success"]]
    # a checksum that agrees is on record with its place, too; it is no shortfall
    reported = [
        row for row in outcomes if row["success"] and row["where_"] and row["observed"] != row["expected"]
    ]
    shown = [*failed, *reported]
    found = Table(
        ("table", "batch date", "finding"),
        [(row["table"], row["batch_date"], row["sentence"]) for row in shown[:SHOWN_OUTCOMES]],
        frozenset(range(min(len(failed), SHOWN_OUTCOMES))),
    )
    left = len(shown) - SHOWN_OUTCOMES
    cards = [Card("Expectations by table", table=tables, wide=True)]
    if shown:
        title = f"{len(failed):,} failed, {len(reported):,} reported with their reason on record"
        note = f"{left:,} more in the table validations." if left > 0 else ""
        cards.insert(0, Card(title, table=found, note=note, wide=True))
    return tuple(cards)
