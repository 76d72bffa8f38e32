"""Show a channel's trade-off: loss against capacity, next to dropping random rows, and what more capacity buys."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spillway.contracts import Contracts
from spillway.errors import SpillwayError
from spillway.levers.loss_curve import MORE, row_drop_loss_pct
from spillway.levers.protocol import Picture
from spillway.report.text import format_loss, format_rate, sentences, table_lines
from spillway.store.tables import Tables
from spillway.streams.trade_off import TradeOff, measure_trade_off

MORE_PCT = round(100 * (MORE - 1))
MEASURES, ROWS, BOTH = (
    "a measure value",
    "what queries ask for",
    "a measure value, or what queries ask for of rows",
)
"""What a loss refers to: measures if columns are shed, queries if rows are shed, both if streams differ."""
YARDSTICKS = {
    MEASURES: "Loss: the mean error of a value of a measure at the destination; an absent value counts 100 %",
    ROWS: "Loss: the share of the rows that queries ask for, by their weights, that is not sent",
    BOTH: "Loss: the mean error of a value of a measure at the destination (an absent value counts 100 %); if rows are "
    "dropped, the share of the rows that queries ask for that is not sent",
}
NEAR_PCT = 5.0
MOST_POINTS = 8
"""The most points of the curve that the table on a screen shows."""
_IN_USE = "<- in use"


@dataclass(frozen=True)
class CurvePoint:
    """A capacity, the planned loss at it, and the loss of dropping random rows."""

    capacity_kbps: float
    loss_pct: float
    dropping_rows_pct: float
    in_use: bool


@dataclass(frozen=True)
class ChannelTradeOff:
    """A channel's trade-off in the form in which it is shown."""

    channel: str
    streams: tuple[str, ...]
    offered_kbps: float
    capacity_kbps: float
    loss_pct: float
    loss_with_more_pct: float
    dropping_rows_pct: float
    buys: str
    curve: tuple[CurvePoint, ...]
    loss_of: str = MEASURES
    per: str = ""
    """The unit of time in which the capacity is stated (`Capacity.per`)."""


def load_trade_off(
    tables: Tables, contracts: Contracts, channel: str, points: int = 12, capacity_kbps: float | None = None
) -> ChannelTradeOff | None:
    """Return the channel's trade-off for display; None if there is no data to measure.

    `capacity_kbps`: the capacity in use (default: that of the channel; for a quota, its mean rate).

    If the trade-off cannot be computed, the result has no curve, and `capacity_gain_sentence` says why.
    """
    try:
        found = measure_trade_off(tables, contracts, channel, points, capacity_kbps)
    except SpillwayError as problem:
        # a fault of one stream must not hide the rest of the page
        why = f"what more capacity would buy is not known: {problem}"
        return ChannelTradeOff(
            channel, (), 0.0, contracts.channels[channel].capacity_kbps, 0.0, 0.0, 0.0, why, ()
        )
    return None if found is None else to_channel_trade_off(found, contracts.channels[channel].capacity.per)


def to_channel_trade_off(found: TradeOff, per: str = "") -> ChannelTradeOff:
    """Convert a trade-off to the form in which it is shown."""
    capacity = found.in_use.capacity_kbps
    return ChannelTradeOff(
        found.channel,
        found.streams,
        found.offered_kbps,
        capacity,
        found.in_use.loss_pct,
        found.more.loss_pct,
        found.dropping_rows_pct,
        capacity_gain_sentence(found, per),
        tuple(
            CurvePoint(
                one.capacity_kbps,
                one.loss_pct,
                row_drop_loss_pct(found.offered_kbps, one.capacity_kbps),
                one.capacity_kbps == capacity,
            )
            for one in found.curve
        ),
        _loss_of(found),
        per,
    )


def with_measured_losses(
    one: ChannelTradeOff, now_pct: float, more_pct: float, of: str = ""
) -> ChannelTradeOff:
    """Return a trade-off with the losses that dry runs measured at the capacity in use and at a little more.

    A smaller capacity loses no less than was measured, whatever was planned for it. `of`: the attributes that would
    lose less.

    >>> points = (CurvePoint(4.0, 2.0, 50.0, False), CurvePoint(8.0, 2.0, 11.0, True))
    >>> found = ChannelTradeOff("up", ("s",), 9.0, 8.0, 2.0, 1.0, 11.0, "", points)
    >>> shown = with_measured_losses(found, 2.5, 0.5, "temp")
    >>> [one.loss_pct for one in shown.curve]
    [2.5, 2.5]
    >>> shown.buys
    '10 % more capacity would bring the loss of these batches from 2.5 % to 0.5 %: less of temp is lost'
    """
    if not now_pct:
        said = f"{MORE_PCT} % more capacity would buy nothing: nothing is lost for want of it"
    elif more_pct < now_pct:
        said = (
            f"{MORE_PCT} % more capacity would bring the loss of these batches from {format_loss(now_pct)} to "
            f"{format_loss(more_pct)}" + (f": less of {of} is lost" if of else "")
        )
    else:
        said = f"{MORE_PCT} % more capacity would not yet lower the loss of {format_loss(now_pct)}"
    curve = tuple(
        replace(at, loss_pct=now_pct)
        if at.in_use
        else replace(at, loss_pct=max(at.loss_pct, now_pct))
        if at.capacity_kbps < one.capacity_kbps
        else replace(at, loss_pct=max(at.loss_pct, more_pct))
        if at.capacity_kbps <= MORE * one.capacity_kbps
        else at
        for at in one.curve
    )
    return replace(one, loss_pct=now_pct, loss_with_more_pct=more_pct, buys=said, curve=curve)


def _loss_of(found: TradeOff) -> str:
    """Return what the loss on the channel refers to: measures, queries for rows, or both."""
    rows = {taken.choice.of == "rows" for taken in found.in_use.choices}
    return ROWS if rows == {True} else BOTH if True in rows else MEASURES


def capacity_gain_sentence(found: TradeOff, per: str = "") -> str:
    """Return a sentence on what a little more capacity would buy, and which attribute would benefit next.

    >>> from spillway.levers.loss_curve import loss_at_capacity
    >>> from spillway.levers.protocol import Offer
    >>> from spillway.levers.knapsack import Alternative
    >>> kept = Alternative(20.0, (0, 0, 1), "temp", "keep", 0.0, 9.0)
    >>> ways = (kept, Alternative(5.0, (2, 1, 1), "temp", "round", 2.0, 9.0))
    >>> offers = {"s": Offer(20.0, None, (ways,))}
    >>> now, more = (loss_at_capacity(offers, kbps) for kbps in (19.0, 20.9))
    >>> capacity_gain_sentence(TradeOff("up", ("s",), 20.0, now, more, None, ()))
    '10 % more capacity would bring the planned loss from 2 % to 0 %'
    """
    now, then, step = found.in_use, found.more, found.next_paid
    if not now.loss_pct:
        what = "nothing" if _loss_of(found) == MEASURES else "nothing that queries ask for"
        return f"{MORE_PCT} % more capacity would buy nothing: {what} is lost for want of it"
    better = then.loss_pct < now.loss_pct
    said = (
        f"{MORE_PCT} % more capacity would bring the planned loss from {format_loss(now.loss_pct)} to "
        f"{format_loss(then.loss_pct)}"
        if better
        else f"{MORE_PCT} % more capacity would not yet lower the planned loss of {format_loss(now.loss_pct)}"
    )
    if step is None:
        return said
    of, before = f"{step.stream}.{step.before.of}", format_loss(step.before.lost_pct)
    after = step.after.lost_pct
    would = (
        f"bring {of} from {before} off to {format_loss(after)} off"
        if after
        else f"make {of} exact (now {before} off)"
    )
    return f"{said}; the next {format_rate(step.kbps, per)} would {would}"


def trade_off_lines(one: ChannelTradeOff) -> Iterator[str]:
    """Yield the trade-off as lines of text: the curve as a table in which the current capacity is marked."""
    if not one.curve:
        yield from sentences(f"{one.channel}: {one.buys}.")
        return
    yield from sentences(
        f"{one.channel} ({', '.join(one.streams)}): {format_rate(one.offered_kbps, one.per)} offered, capacity "
        f"{format_rate(one.capacity_kbps, one.per)}. {YARDSTICKS[one.loss_of]}."
    )
    rows = [
        [
            format_rate(point.capacity_kbps, one.per),
            format_loss(point.loss_pct),
            format_loss(point.dropping_rows_pct),
            _IN_USE if point.in_use else "",
        ]
        for point in _shown_points(one.curve)
    ]
    yield from table_lines(["#capacity", "#planned loss", "#dropping rows", ""], rows, indent=2)
    if not any(point.in_use for point in one.curve):
        yield from sentences(
            f"{format_rate(one.capacity_kbps, one.per)} are in use: less than what is always sent, so no plan fits.",
            indent=2,
        )
    yield from sentences(f"{one.buys}.")


def _shown_points(curve: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return at most `MOST_POINTS` points: the one in use, the last one, and others at even distances.

    >>> points = [CurvePoint(float(at), 0.0, 0.0, at == 6) for at in range(13)]
    >>> [point.capacity_kbps for point in _shown_points(points)]
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    """
    if len(curve) <= MOST_POINTS:
        return list(curve)
    use = next((at for at, point in enumerate(curve) if point.in_use), 0)
    every = math.ceil((len(curve) - 1) / (MOST_POINTS - 2))
    places = {len(curve) - 1, *(at for at in range(len(curve)) if (at - use) % every == 0)}
    return [curve[at] for at in sorted(places)]


def trade_off_pictures(one: ChannelTradeOff, unit: str = "kbps", per_kbps: float = 1.0) -> Iterator[Picture]:
    """Yield the chart of the curve next to dropping random rows, and a second chart that enlarges small losses.

    `unit`: the unit of the capacities; 1 kbps is `per_kbps` of it.
    """
    # the enlarged chart must contain the point in use
    ground = max([NEAR_PCT, *(point.loss_pct for point in one.curve if point.in_use)])
    low = [point for point in one.curve if point.loss_pct <= ground]
    mark = (one.capacity_kbps * per_kbps, f"in use: {format_loss(one.loss_pct)} lost")

    def chart(title: str, points: Sequence[CurvePoint], note: str, *more: dict[str, Any]) -> Picture:
        plan = [(point.capacity_kbps * per_kbps, point.loss_pct) for point in points]
        lines = [{"name": "loss of the plan", "style": "planned", "points": plan, "dots": True}, *more]
        axes = {"x": f"capacity, {unit}", "y": f"loss of {one.loss_of}, %", "from_zero": True, "mark": mark}
        return Picture(title, "lines", {"lines": lines, **axes}, note)

    rows = [(point.capacity_kbps * per_kbps, point.dropping_rows_pct) for point in one.curve]
    dropping = {"name": "dropping random rows", "style": "offered", "points": rows}
    yield chart(
        "Error against capacity",
        one.curve,
        f"Planned for the last batch of each stream. {YARDSTICKS[one.loss_of]}.",
        dropping,
    )
    if len(low) > 1:
        yield chart("The same curve, small losses enlarged", low, "")
