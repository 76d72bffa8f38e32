"""The time that a batch covers, and so its rate: robust against single wrong clocks, with a note if it is doubtful.

`event_time`: a batch covers the time from the end of the newest batch before it to its own end, but at least the span
of its own tuples. So a delivery every 15 minutes covers 15 minutes, although its last event is a little earlier.
Silence before a batch counts for at most a day (`MOST_SILENCE`): a link that was silent for a week cannot send a week's
bytes at once. A batch that ends no later than a batch before it (late, replayed or out of order) covers the span of its
own tuples. So does the first batch of a stream.

The span of tuples: if the time from the first of k moments to the last is t, the tuples span t k/(k-1), because the
last moment counts for a step, too. One clock that says 1970, or one late tuple of last week, must not change the
result. So the span is compared with the span without the outermost 1 % of tuples on either side (at least one tuple),
scaled up to all of them. If the span of all n tuples is more than 1.25 + 8/n times that, the outermost tuples do not
count. A span that is too short sheds more than necessary. A span that is too long would send more than the channel
carries.

For the same reason, a few tuples that are far off do not count, for example a late delivery in a day's batch. If less
than a quarter of the tuples lie beyond a gap that is longer than half the span of the others, only these others count,
scaled up to all. A stream that pauses within a batch looks the same. The arrival times distinguish it: if its files
took at least as long to arrive as the tuples span, the channel had that time, and all of it counts. For history that is
delivered at once this cannot be known, and the shorter time is used.

A batch without a rate of its own (one record, one moment) borrows the last known rate of the stream, and the note says
so. The first batch of a stream covers the time since the files before it arrived. If that is unknown too, the batch
waits until another batch or the contract gives a rate. Meanwhile it sends nothing and does not stop other batches.

>>> import numpy as np
>>> seconds_spanned(np.array([10, 20, 30, 40])), seconds_spanned(np.array([7, 7, 7]))
(40.0, None)
>>> quarter = np.arange(900)
>>> [round(seconds_spanned(np.append(quarter, odd))) for odd in ([], [-1_700_000_000], [-604_800])]
[900, 901, 901]
>>> burst = np.append(quarter, np.arange(-3_600, -2_700, 9))
>>> round(seconds_spanned(burst)), round(seconds_spanned(burst, arrived_within=4_500))
(1000, 4504)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import RECORDED, Batch
from spillway.contracts import StreamContract
from spillway.intake.order_unit import SECONDS_PER, recognise_unit, stated_unit, to_steps
from spillway.store.batches import RATED
from spillway.store.files import read_rows
from spillway.store.tables import Between, Tables

Moments = npt.NDArray[np.int64]

OUTER_SHARE = 0.01
STRETCH, STRETCH_OF_FEW = 1.25, 8.0
GAP, FEW = 0.5, 0.25
"""A gap counts if it is longer than `GAP` times the span of the others.

Tuples beyond it do not count if they are less than the share `FEW` of all.
"""
MOST_SILENCE = timedelta(days=1)
"""The longest time without events before a batch that the batch covers."""
DISAGREE = 10.0
HISTORY_NOTE = "history that was delivered at once?"
HISTORY = timedelta(days=1)
"""Events that ended longer than this before they arrived are history that was delivered at once.

Their time of arrival says nothing of their rate.
"""


class Span(NamedTuple):
    """The seconds that tuples span (None: all have the same moment), and the last moment that counts."""

    seconds: float | None
    end: int


def seconds_spanned(order: Moments, arrived_within: float | None = None) -> float | None:
    """Return the seconds, where `order` counts seconds, that these tuples span; None for a single moment."""
    found = span_of(order, arrived_within)
    return None if found is None else found.seconds


def span_of(order: Moments, arrived_within: float | None = None) -> Span | None:
    """Return the span of these tuples without odd clocks and late tuples; None if there is no tuple.

    >>> span_of(np.append(np.arange(900), 2**40)).end
    899
    """
    if not len(order):
        return None
    every = np.sort(order, kind="stable")
    order = every if _fits_arrival(every, arrived_within) else _without_far_moments(every)
    seconds, end = _without_outermost(order)
    return Span(None if seconds is None else seconds * (len(every) / len(order)), end)


def _fits_arrival(order: Moments, seconds: float | None) -> bool:
    """Return whether the sorted moments span no more than the time in which their files arrived."""
    return seconds is not None and len(order) > 0 and float(order[-1]) - float(order[0]) <= seconds


def _without_far_moments(order: Moments) -> Moments:
    """Return the sorted moments without the few that are far off."""
    while len(order) > 1:
        steps = np.diff(order.astype(np.float64))
        last = int(np.argmax(steps)) + 1
        few, many = sorted((order[:last], order[last:]), key=len)
        span = float(many[-1]) - float(many[0])
        if span == 0.0 or len(few) >= FEW * len(order) or steps[last - 1] <= GAP * span:
            break
        order = many
    return order


def _without_outermost(order: Moments) -> Span:
    whole, last = _seconds(order), int(order[-1])
    outer = max(1, int(len(order) * OUTER_SHARE))
    if whole is None or len(order) < 2 * outer + 2:
        return Span(whole, last)
    inner = order[outer:-outer]
    robust = _seconds(inner)
    if robust is None:
        # one moment and odd tuples around it: many tuples have no rate, few tuples have the rate of all
        return Span(None, int(inner[-1])) if outer > 1 else Span(whole, last)
    robust = robust * len(order) / len(inner)
    is_stretched = whole > robust * (STRETCH + STRETCH_OF_FEW / len(order))
    return Span(robust, int(inner[-1])) if is_stretched else Span(whole, last)


def _seconds(order: Moments) -> float | None:
    """Return the span of sorted moments plus one step."""
    if not len(order) or order[0] == order[-1]:
        return None
    moments = 1 + int(np.count_nonzero(np.diff(order)))
    return (float(order[-1]) - float(order[0])) * moments / (moments - 1)


class RatedBatch(NamedTuple):
    """A batch with a known rate: a number of tuples in a number of seconds."""

    batch: int
    rows: int
    seconds: float


class TimeCovered(NamedTuple):
    """The seconds that a batch covers (None: unknown), a note on them, and the end of its event time."""

    seconds: float | None = None
    note: str | None = None
    event_end: datetime | None = None


def time_covered(
    tables: Tables,
    contract: StreamContract,
    batch: Batch,
    rows: int,
    known: Callable[[], Sequence[RatedBatch]],
    end_before: Callable[[], datetime | None] = lambda: None,
) -> TimeCovered:
    """Return the time that a batch of `rows` tuples covers, by the contract's `rate`.

    `batch.seconds_covered` is the time its files took to arrive, if that is known. `end_before` returns the end of the
    newest batch before it.
    """
    if not rows:
        return TimeCovered()
    if contract.rate.from_ == "declared":
        return TimeCovered(rows / float(contract.rate.tuples_per_second or 1.0))
    arrival = batch.seconds_covered
    found = TimeCovered(arrival)
    if contract.rate.from_ == "event_time":
        order, unit = _order_values(tables, contract, batch)
        if unit is None:
            return TimeCovered(*_rate_without_unit(contract, batch, rows, known(), arrival))
        found = _by_event_time(order, SECONDS_PER[unit], batch, arrival, end_before)
    if found.seconds is not None:
        return found
    return TimeCovered(*borrow_rate(contract, batch, rows, known(), arrival), found.event_end)


def _by_event_time(
    order: Moments,
    step: float,
    batch: Batch,
    arrival: float | None,
    end_before: Callable[[], datetime | None],
) -> TimeCovered:
    """Return the time covered by event times; `step` is their unit in seconds, `arrival` the seconds of arrival."""
    span = span_of(order, arrival and round(arrival / step))
    if span is None:
        return TimeCovered()
    own = None if span.seconds is None else span.seconds * step
    end, before = _moment(span.end * step), end_before()
    since = end - before if end is not None and before is not None and end > before else None
    seconds = own
    if since is not None:
        longest = timedelta(seconds=own or 0.0) + MOST_SILENCE
        seconds = max(own or 0.0, min(since, longest).total_seconds())
        if since > longest:
            return TimeCovered(seconds, None, end)
    note = None
    if seconds is not None and arrival is not None:
        note = _disagreement(seconds, arrival, float(np.median(order)) * step, batch)
    return TimeCovered(seconds, note, end)


def latest_event_end(
    tables: Tables, stream: str, before: int, others: Iterable[Batch] = ()
) -> datetime | None:
    """Return the latest end of event time of the stream's batches with a number below `before`.

    `others` are batches that are not saved yet.
    """
    stored = tables.at("batches").rows(["event_end"], stream=stream, batch=Between(high=before - 1))
    ends = [pc.max(stored["event_end"]).as_py()]
    ends += [one.event_end for one in others if one.batch < before]
    return max((end for end in ends if end is not None), default=None)


def _rate_without_unit(
    contract: StreamContract, batch: Batch, rows: int, known: Sequence[RatedBatch], arrival: float | None
) -> tuple[float | None, str | None]:
    """Return the rate from arrival times, or a borrowed rate, for an order attribute of unknown unit.

    The note has a remedy, because event time gives no rate without a unit. If files arrive more than ten times as fast
    as the stream's last known rate, they were delivered at once. Their arrival times then give no rate either: it would
    take the capacity of all other streams of the channel.
    """
    remedy = (
        f"the unit of {contract.order} is unknown, so event time gives no rate: state `unit:` of {contract.order} "
        f"(one of {', '.join(SECONDS_PER)}), or write `rate: {{from: arrival}}`"
    )
    seconds, note = borrow_rate(contract, batch, rows, known)
    if arrival is not None and (seconds is None or arrival * DISAGREE >= seconds):
        seconds, note = arrival, None
    return seconds, f"{note}; {remedy}" if note else remedy


def borrow_rate(
    contract: StreamContract,
    batch: Batch,
    rows: int,
    known: Sequence[RatedBatch],
    arrival: float | None = None,
) -> tuple[float | None, str | None]:
    """Return seconds by the rate of the nearest rated batch (before it, else after it), or by arrival, with a note."""
    if contract.rate.from_ == "declared":
        return rows / float(contract.rate.tuples_per_second or 1.0), None
    told = [one for one in known if one.batch != batch.batch]
    nearest = [one for one in told if one.batch < batch.batch][-1:] or told[:1]
    if nearest:
        (one,) = nearest
        note = f"it has no rate of its own: the last known one, of batch {one.batch}"
        return rows * one.seconds / one.rows, note
    if arrival is not None:
        return arrival, "it has no rate of its own: the time since the files before it arrived"
    return None, (
        "its rate is not known: it waits until another batch tells it, or `rate: {from: declared, "
        "tuples_per_second: ...}` in the contract does"
    )


def rated_batches(tables: Tables, stream: str, others: Iterable[Batch] = ()) -> list[RatedBatch]:
    """Return the batches whose rate other batches may borrow, in order; `others` are batches that are not saved yet."""
    columns = ["batch", "status", "rows", "seconds_covered"]
    found = tables.at("batches").rows(columns, stream=stream, rows=Between(1), seconds_covered=RATED)
    # a batch that is only recorded has a time of arrival, but no rate yet
    known = {row["batch"]: row for row in found.to_pylist() if row["status"] != RECORDED}
    known |= {
        one.batch: {"rows": one.rows, "seconds_covered": one.seconds_covered}
        for one in others
        if one.rows and one.seconds_covered
    }
    return [
        RatedBatch(number, known[number]["rows"], known[number]["seconds_covered"])
        for number in sorted(known)
    ]


def _format_seconds(seconds: float) -> str:
    """
    >>> _format_seconds(86400.0), _format_seconds(0.02054)
    ('86,400', '0.02054')
    """
    return f"{seconds:,.0f}" if seconds >= 1000 else f"{seconds:.4g}"


def _disagreement(seconds: float, arrival: float, middle: float, batch: Batch) -> str | None:
    """Return a note if event time and arrival differ by more than a factor of ten; `middle` is in epoch seconds."""
    if 1 / DISAGREE <= seconds / arrival <= DISAGREE:
        return None
    note = (
        f"event time says that it covers {_format_seconds(seconds)} s, its files arrived within "
        f"{_format_seconds(arrival)} s; where the clocks of its senders are wrong write `rate: "
        "{from: arrival}`"
    )
    arrived = max((file.modified_at for file in batch.files if file.modified_at), default=None)
    ended = _moment(middle)
    if arrived is not None and ended is not None and arrived - ended > HISTORY:
        return f"{note} (its events are {(arrived - ended).days:,} days old: {HISTORY_NOTE})"
    return note


def _moment(epoch_seconds: float) -> datetime | None:
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(epoch_seconds * 1e6))
    except OverflowError:
        return None


def _order_values(tables: Tables, contract: StreamContract, batch: Batch) -> tuple[Moments, str | None]:
    """Return the order attribute of the batch's rows in steps of its unit, and that unit (None: unknown)."""
    attribute = contract.attribute(contract.order)
    integer = attribute.type == "integer"
    where: dict[str, Any] = {"batch_date": batch.batch_date, "batch": batch.batch}
    parts = []
    for file in tables.at("raw", contract.stream).files(**where):
        order = read_rows([file], [contract.order], batch.first_seq, batch.last_seq)[contract.order]
        order = order if integer else order.cast(pa.timestamp("us"))
        parts.append(np.asarray(order.cast(pa.int64()).drop_null()))
    values = np.concatenate(parts) if parts else np.empty(0, np.int64)
    if not integer:
        return values, "us"
    unit = stated_unit(attribute.unit) if attribute.unit else recognise_unit(attribute.name, values)
    return (values, None) if unit is None else (to_steps(values, unit), unit)
