"""Write and read the table `sifters`: the filter of each batch, the reason for it, and the row counts of its regions.

`FilterChoice` is the filter of one batch, `filter_row` its row in the table, and `region_words` describes a region in
words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np

from spillway.batch import SHOWN_BATCHES, Batch
from spillway.contracts import StreamContract
from spillway.levers.dropped_rows import DroppedRows, DroppedSpan
from spillway.levers.protocol import MeasuredDraft, Views
from spillway.levers.sifters.apply import SiftedBatch
from spillway.levers.sifters.configure import FilterConfiguration
from spillway.levers.sifters.filter import PIECE_SEQS, SifterFilter
from spillway.levers.sifters.learn import LearnedRegions
from spillway.levers.sifters.regions import Axis
from spillway.levers.sifters.time_cells import TimeCells


@dataclass(frozen=True)
class FilterChoice:
    """The filter of one batch, and the reason for it."""

    built_for: int
    """The number of the filter: the batch for which it was built; 0: it keeps all rows."""
    filter: SifterFilter | None
    regions: LearnedRegions | None
    scheme: str
    share: float
    """The share of the rows for which the filter was configured (the throttler z)."""
    measured: float
    """The share of this batch's rows that fits, as measured."""
    reason: str
    counts: np.ndarray
    """The number of sample rows in each region, from which the frequencies are computed."""
    outcome: FilterConfiguration | None = None
    reused: bool = False

    @property
    def kept_share(self) -> float:
        """Return the share of the rows that the filter keeps, as planned."""
        return 1.0 if self.outcome is None else self.outcome.kept_share


ASKED_BY_NONE = "asked for by no query"


def region_words(of: SifterFilter, region: int) -> str:
    """Return a region's bounds in words.

    >>> from spillway.levers.sifters.dimensions import Dimension
    >>> import numpy as np
    >>> axis = Axis(Dimension("temp", "double"), 0.0, 100.0)
    >>> axis_words(axis, 0.25, 1.0), axis_words(axis, 0.0, 0.5), axis_words(axis, 0.0, 1.0)
    ('temp 25 or more', 'temp below 50', '')
    """
    if region == of.tree.count:
        return ASKED_BY_NONE
    bounds = of.tree.bounds[region]
    said = [axis_words(line, low, high) for line, (low, high) in zip(of.layout.lines, bounds, strict=True)]
    return "; ".join(filter(None, said)) or "everything"


def axis_words(axis: Axis, low: float, high: float) -> str:
    """Return in words the values between two places of a dimension; empty if these are all values."""
    least, most = axis.ends
    name = axis.dimension.name
    if low <= least and high >= most:
        return ""
    if axis.nulls and high <= 0.0:
        return f"no {name}"
    if axis.dimension.is_text or axis.dimension.type == "boolean":
        words = [*axis.dimension.words, "any other"] if axis.dimension.is_text else ["false", "true"]
        inside = [
            word for at, word in enumerate(words) if low <= (at - axis.low) / (axis.high - axis.low) < high
        ]
        if low <= least and axis.nulls:
            inside.insert(0, "none")
        return f"{name} {', '.join(inside) or 'none'}"
    first, last = axis.value_at(low), axis.value_at(high)
    if math.isinf(first) and math.isinf(last):
        return f"{name} any" if axis.nulls else ""
    begin, end = (value_words(axis.dimension.type, value) for value in (first, last))
    if math.isinf(last):
        return f"{name} {begin} or more"
    return f"{name} below {end}" if math.isinf(first) else f"{name} {begin} to {end}"


def value_words(kind: str, value: float) -> str:
    """Return a value of a dimension in words.

    >>> value_words("date", 18_262.0), value_words("double", 0.123456)
    ('2020-01-01', '0.1235')
    """
    if math.isinf(value):
        return "any"
    if kind == "timestamp":
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(value))).strftime(
            "%Y-%m-%d %H:%M"
        )
    if kind == "date":
        return str(date(1970, 1, 1) + timedelta(days=math.ceil(value)))
    if kind == "integer":
        return f"{math.ceil(value):,}"
    return f"{value:.4g}"


SIFTERS = "sifters"


@dataclass(frozen=True)
class FilterInUse:
    """The filter that an earlier batch used."""

    batch: int
    built_for: int
    filter: SifterFilter
    share: float
    version: int
    counts: np.ndarray
    scheme: str
    digest: str


def filter_row(
    batch: Batch,
    one: FilterChoice,
    drafted: MeasuredDraft | None,
    short_kbps: float,
    drops: bool,
    keep_at_source: bool,
    cells: TimeCells | None = None,
) -> dict[str, Any]:
    """Return the row of the table `sifters` for a batch and its filter."""
    outcome = one.outcome
    return {
        "stream": batch.stream,
        "batch": batch.batch,
        "batch_date": batch.batch_date,
        "filter": one.built_for,
        "model_version": batch.models.get("sifters", 0),
        "partition": one.scheme,
        "throttle": one.share,
        "throttle_measured": one.measured,
        "fairness": None if outcome is None else outcome.fairness,
        "quality_planned": 1.0 if outcome is None else outcome.quality,
        "quality": None if drafted is None or one.filter is None else _quality(one, drafted),
        "shortfall_kbps": short_kbps,
        "reason": one.reason,
        "queries": "" if one.regions is None else one.regions.digest,
        "regions": [] if one.filter is None else _regions(one, drafted),
        "spans": None if cells is None or drafted is None else cells.spans(drafted.counts),
        "drops": drops,
        "keep_at_source": keep_at_source,
        "payload": b"" if one.filter is None else one.filter.to_bytes(),
    }


def previous_filter(tables: Views, stream: str, batch: int) -> FilterInUse | None:
    """Return the filter of the last batch before this one that has a filter; None if there is none."""
    rows = tables.at(SIFTERS).newest("filter", below=batch, stream=stream).to_pylist()
    rows = [row for row in rows if row["filter"] and row["batch"] < batch]
    if not rows:
        return None
    row = max(rows, key=lambda one: int(one["batch"]))
    return FilterInUse(
        row["batch"],
        row["filter"],
        SifterFilter.from_bytes(row["payload"], f"{stream}: sifters, batch {row['batch']}"),
        row["throttle"],
        row["model_version"],
        np.array([one["sampled_rows"] for one in row["regions"] if one["region"] >= 0], np.int64),
        row["partition"],
        row["queries"],
    )


def sifted_batches(
    tables: Views, contract: StreamContract, batches: Iterable[Batch]
) -> tuple[SiftedBatch, ...]:
    """Return batches with the filters that they used, in order of `seq`; a batch without a filter sent all rows.

    Whether rows were dropped, and stored at the source, is read from the record of the batch, because the contract may
    have changed since.
    """
    chosen = sorted(batches, key=lambda one: one.first_seq)
    if not chosen:
        return ()
    found = tables.at(SIFTERS).rows(
        ["batch", "filter", "payload", "drops", "keep_at_source"],
        stream=contract.stream,
        batch_date=sorted({batch.batch_date for batch in chosen}),
        batch=[batch.batch for batch in chosen],
    )
    rows = {row["batch"]: row for row in found.to_pylist()}
    return tuple(_sifted(contract, batch, rows.get(batch.batch)) for batch in chosen)


def _sifted(contract: StreamContract, batch: Batch, row: Mapping[str, Any] | None) -> SiftedBatch:
    if row is None or not row["filter"]:
        return SiftedBatch(batch.batch, batch.first_seq, batch.last_seq, None)
    drops, aside = row["drops"], row["keep_at_source"]
    if drops is None or aside is None:  # a row of an older Spillway
        drops = contract.mode != "observe"
        aside = SIFTERS in contract.lever_names and contract.lever_settings(SIFTERS).keep_at_source
    found = SifterFilter.from_bytes(row["payload"], f"{contract.stream}: sifters, batch {row['batch']}")
    return SiftedBatch(batch.batch, batch.first_seq, batch.last_seq, found, drops, aside)


def dropped_rows(tables: Views, stream: str, batches: Sequence[int]) -> dict[int, DroppedRows]:
    """Return the dropped rows of each batch."""
    columns = ["batch", "filter", "drops", "keep_at_source", "regions", "spans"]
    edges = (
        tables.at("batches")
        .rows(["batch", "first_seq", "last_seq"], stream=stream, batch=list(batches))
        .to_pylist()
    )
    # if a batch has several pieces, the rows that each kept of a region are not recorded
    alone = {row["batch"] for row in edges if row["last_seq"] - row["first_seq"] < PIECE_SEQS}
    rows = tables.at(SIFTERS).rows(columns, stream=stream, batch=list(batches)).to_pylist()
    return {
        row["batch"]: _dropped_rows_of(row, row["batch"] in alone)
        for row in rows
        if row["filter"] and row["drops"] is not False
    }


def _dropped_rows_of(row: Mapping[str, Any], one_piece: bool) -> DroppedRows:
    """Return the dropped rows of a batch, from its row in the table `sifters`."""
    regions = row["regions"]
    never = [one for one in regions if one["threshold"] >= 1.0]
    sampled = [one for one in regions if one["kept"] < one["offered"] and one["threshold"] < 1.0]
    spans = None
    if row["spans"] is not None:
        spans = tuple(DroppedSpan(**span) for span in row["spans"])
    return DroppedRows(
        sum(one["offered"] for one in regions),
        sum(one["kept"] for one in regions),
        sum(one["offered"] - one["kept"] for one in never),
        max((1.0 / (1.0 - one["threshold"]) for one in sampled), default=1.0),
        spans,
        min((float(one["kept"]) for one in sampled), default=math.inf) if one_piece else 0.0,
        bool(row["keep_at_source"]),
    )


def newest_record(tables: Views, stream: str) -> Mapping[str, Any] | None:
    """Return the row of the last planned batch; None if no batch was planned."""
    found = tables.at(SIFTERS).newest("batch", stream=stream).to_pylist()
    return found[0] if found else None


def recent_shares(tables: Views, stream: str) -> Sequence[Mapping[str, Any]]:
    """Return throttler, measured throttler and planned quality of the stream's last batches that have a filter."""
    columns = ["batch", "filter", "throttle", "throttle_measured", "quality_planned"]
    found = tables.at(SIFTERS).last("batch", SHOWN_BATCHES, columns, stream=stream).to_pylist()
    return sorted((row for row in found if row["filter"]), key=lambda row: int(row["batch"]))


def batch_record(tables: Views, stream: str, batch: int) -> Mapping[str, Any]:
    """Return the row of a planned batch."""
    found: list[Mapping[str, Any]] = tables.at(SIFTERS).rows(stream=stream, batch=batch).to_pylist()
    return found[0]


def _regions(one: FilterChoice, drafted: MeasuredDraft | None) -> list[dict[str, Any]]:
    assert one.filter is not None
    assert one.regions is not None
    worth = one.regions.worth(one.counts if one.counts.sum() else None)
    counts = {} if drafted is None else drafted.counts
    found = []
    for region, threshold in enumerate(one.filter.thresholds):
        found.append(
            {
                "region": region,
                "bounds": region_words(one.filter, region),
                "threshold": float(threshold),
                "frequency": float(worth.frequencies[region]),
                "utility": float(worth.worths[region]),
                "queried": bool(worth.touched[region]),
                "sampled_rows": int(one.counts[region]) if len(one.counts) else 0,
                **{name: counts.get(f"{name}.{region}", 0) for name in ("offered", "kept", "marked")},
            }
        )
    size = one.filter.count
    if one.filter.keep:
        found.append(
            {
                "region": -1,
                "bounds": "must be kept",
                "threshold": 0.0,
                "frequency": 0.0,
                "utility": 0.0,
                "queried": True,
                "sampled_rows": 0,
                **{name: counts.get(f"{name}.{size}", 0) for name in ("offered", "kept", "marked")},
            }
        )
    return found


def _quality(one: FilterChoice, drafted: MeasuredDraft) -> float | None:
    """Return the measured quality: the weighted mean over queries whose rows were counted; None if there are none."""
    assert one.regions is not None
    queries = sorted((query for query, _ in one.regions.wanted.queries), key=lambda query: -query.weight)
    total = lost = 0.0
    for place, query in enumerate(queries):
        if f"wanted.{place}" not in drafted.counts:
            break
        wanted, got = drafted.counts[f"wanted.{place}"], drafted.counts.get(f"got.{place}", 0)
        total += query.weight
        lost += query.weight * query.alpha * ((wanted - got) / wanted if wanted else 0.0)
    return 1.0 - lost / total if total else None
