"""Compare the product's plan with six rankings at given capacities, by the rows at the destination.

The product's own steps send a trained stream at each capacity: they plan, draft, measure, plan again and publish. A
capacity is the size of everything that is always sent (with files, `seq`, `scheme` and log) plus a share of the bytes
of the measures that may be inexact. All other columns are always sent here. All priorities are 1, so that the plan
minimises the error that is measured here:

    error = mean over the measures that may be inexact of the mean relative error, in %, over all values

The error is that of the destination alone: values that were sent, and values recovered from sent synopses. A value that
is null there and not null in `raw` counts 100. Sent bytes are those of the ledger: batches, and whole files.

Rankings (`equal_bytes`) choose among treatments. Each treatment is measured by sending the stream with all measures
treated in this way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from evidence.attributes.equal_bytes import (
    FAR_WORSE,
    SYNOPSES,
    best_treatments_error,
    error_over_best,
    ranking_error,
)
from evidence.attributes.lab import Lab
from evidence.attributes.lake import Lake
from evidence.attributes.rankings import RANKINGS, orders
from evidence.book import Book
from spillway.ledger import TOTAL
from spillway.levers.attributes.columns import Column
from spillway.levers.attributes.loss import ABSENT
from spillway.levers.attributes.option import Option
from spillway.levers.attributes.scheme import load_runs
from spillway.levers.attributes.synopsis.bounds import relative_errors_pct
from spillway.levers.protocol import OVERHEAD
from spillway.store.files import column_bytes
from spillway.streams.drafts import SENT

CAPACITIES_PCT = (100, 90, 75, 50, 25)
"""Shares of the measures' bytes, in %; at 100 everything fits."""
FITS, SPARE = 100, 1.005
"""Relative margin at 100 %, because the size of log entries is known only to that accuracy."""
_CASES = ("hold", "send", "auto")


@dataclass(frozen=True)
class Sent:
    """The content of the destination after one run, batch by batch."""

    crossed_bytes: Mapping[int, int]
    """The bytes that the ledger counts."""
    batch_bytes: Mapping[int, Mapping[str, int]]
    """Bytes of the columns of `transmitted`."""
    payload_bytes: Mapping[tuple[int, str], int]
    """Bytes of the sent synopses, by attribute."""
    around_bytes: Mapping[int, int]
    """Bytes of the files and log of the synopses, without the synopses."""
    error_sums: Mapping[tuple[int, str], float]
    values: Mapping[tuple[int, str], int]
    absent_sums: Mapping[tuple[int, str], int]

    def error_of(self, batch: int, name: str) -> float:
        """Return the mean loss of an attribute in a batch, in %."""
        return self.error_sums[batch, name] / max(1, self.values[batch, name])

    def absent_of(self, batch: int, name: str) -> float:
        """Return the share of an attribute's values that are absent in a batch, in %."""
        return 100.0 * self.absent_sums[batch, name] / max(1, self.values[batch, name])

    def loses(self, batch: int) -> bool:
        """Return whether anything of a batch differs from `raw`."""
        return any(one > 0 for (number, _), one in self.error_sums.items() if number == batch)


@dataclass(frozen=True)
class AtCapacity:
    """The result of one run at one capacity."""

    error_pct: float
    absent_pct: float
    used_pct: float | None
    """Used share of the capacity of batches that lose something; None if no batch does."""
    over_pct: float
    """The largest excess of a batch over its capacity."""


class Trial:
    """A trained stream that is sent at every capacity."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.seconds = {one.batch: one.seconds_covered or 0.0 for one in lab.batches if one.rows}
        self.around_bytes: Mapping[int, int] = {}
        """By batch, the bytes of a file of sent synopses without the synopses; set by `options`."""

    @cached_property
    def sent_whole(self) -> Sent:
        """The result of sending everything unchanged."""
        return self._send({})

    @cached_property
    def measures(self) -> tuple[str, ...]:
        """The attributes that may be inexact; all others are always sent here."""
        return tuple(name for name in self.lab.measures if name not in self.lab.exact)

    def kbps(self, capacity_pct: float) -> dict[int, float]:
        """Return, by batch, the rate of what is always sent and of a share of the measures' bytes; at 100 % slightly
        more.
        """
        spare = SPARE if capacity_pct >= FITS else 1.0
        found = {}
        for batch, size in self.sent_whole.crossed_bytes.items():
            measures = sum(self.sent_whole.batch_bytes[batch][name] for name in self.measures)
            allowed = spare * (size - measures * (1.0 - capacity_pct / 100.0))
            found[batch] = allowed * 8.0 / 1000.0 / self.seconds[batch]
        return found

    def at(self, capacity_pct: float, synopsis: str) -> AtCapacity:
        """Send the stream by the product's plan into a capacity."""
        kbps = self.kbps(capacity_pct)
        lake = self.lab.sent(
            allowed_kbps=kbps,
            synopsis=synopsis,
            rank_by="recoverability",
            requested_pct=0.0,
            plan="least_loss",
        )
        found = self._read(lake)
        allowed = {batch: kbps[batch] * 1000.0 / 8.0 * seconds for batch, seconds in self.seconds.items()}
        losing = [batch for batch in allowed if found.loses(batch)]
        used = 100.0 * sum(found.crossed_bytes[one] for one in losing)
        over = max(found.crossed_bytes[one] / allowed[one] for one in allowed) - 1.0
        return AtCapacity(
            self.over_batches(lambda b: _mean([found.error_of(b, name) for name in self.measures])),
            self.over_batches(lambda b: _mean([found.absent_of(b, name) for name in self.measures])),
            used / sum(allowed[one] for one in losing) if losing else None,
            100.0 * max(0.0, over),
        )

    def over_batches(self, of: Callable[[int], float]) -> float:
        """Return the mean over batches, weighted by their tuples."""
        tuples = {one.batch: one.rows or 0 for one in self.lab.batches}
        return sum(of(batch) * count for batch, count in tuples.items() if count) / sum(tuples.values())

    def by_rankings(
        self,
        orders: Sequence[Sequence[str]],
        capacity_pct: float,
        synopsis: str,
        error: Callable[..., float],
        **how: Any,
    ) -> list[float]:
        """Return the error of every order, each batch in its own capacity, by `ranking_error` or the best of its
        treatments.

        The overhead of shedding (`overhead_bytes`) is subtracted from the capacity, as for the plan, which is measured
        as a whole. Otherwise an order could seem to fit that does not fit if it is sent.
        """
        found = []
        for order in orders:

            def of(batch: int, order: Sequence[str] = order) -> float:
                options = self.options[batch]
                measures = sum(self.sent_whole.batch_bytes[batch][name] for name in self.measures)
                room, around = measures * capacity_pct / 100.0, self.overhead_bytes[batch]
                if synopsis == "send":
                    around = float(self.around_bytes.get(batch, 0))
                return error(options, order, room, synopsis, around=around, **how)

            found.append(self.over_batches(of))
        return found

    @cached_property
    def overhead_bytes(self) -> dict[int, float]:
        """Return, by batch, the smallest addition of shedding one measure (synopsis not sent) to footers, schemes and
        log.
        """
        found = dict.fromkeys(self.seconds, math.inf)
        for name in self.measures:
            sent = self._send({name: "shed/0"})
            for batch, whole in self.sent_whole.crossed_bytes.items():
                saved = self.sent_whole.batch_bytes[batch][name] - sent.batch_bytes[batch][name]
                found[batch] = min(found[batch], max(0.0, sent.crossed_bytes[batch] - (whole - saved)))
        return found

    @cached_property
    def options(self) -> dict[int, dict[str, list[Option]]]:
        """Return, by batch and measure, the size and error of every treatment, with all measures treated so."""
        models = {name: self.lab.models[name] for name in self.measures}
        numbers = list(self.seconds)
        found = {
            batch: {
                name: [Option(name, "keep", float(self.sent_whole.batch_bytes[batch][name]))]
                for name in models
            }
            for batch in numbers
        }
        for way, places in (
            ("round", {name: len(one.roundings) for name, one in models.items()}),
            ("shed", {name: len(one.precisions) for name, one in models.items()}),
        ):
            for place in range(max(places.values(), default=0)):
                able = [name for name, count in places.items() if count]
                said = {name: min(place, places[name] - 1) for name in able}
                kind = "shed+" if way == "shed" else way
                sent = self._send({name: f"{kind}/{at}" for name, at in said.items()})
                if way == "shed":
                    self.around_bytes = sent.around_bytes
                for batch in numbers:
                    for name in (one for one in able if said[one] == place):
                        size = float(sent.batch_bytes[batch][name])
                        packed = float(sent.payload_bytes.get((batch, name), 0))
                        error = min(FAR_WORSE, sent.error_of(batch, name))
                        found[batch][name].append(Option(name, way, size, packed, error, precision=place))
        return found

    def _send(self, scheme: Mapping[str, str]) -> Sent:
        return self._read(self.lab.sent(scheme))

    def _read(self, lake: Lake) -> Sent:
        """Compare the rows at the destination with `raw`."""
        stream, tables = self.lab.stream, lake.tables
        names = [*OVERHEAD, *self.lab.contract.names]
        crossed, payloads, around = ledger_bytes(lake, stream), dict[tuple[int, str], int](), {}
        sums: dict[tuple[int, str], float] = {}
        values: dict[tuple[int, str], int] = {}
        absent: dict[tuple[int, str], int] = {}
        batches = [batch for batch in lake.batches(stream) if batch.rows]
        runs = {batch.batch: list(load_runs(tables, stream, [batch.batch])) for batch in batches}
        if any(way.sent for found in runs.values() for run in found for way in run.ways):
            lake.recover(stream)
        for batch in batches:
            where: dict[str, Any] = {"batch_date": batch.batch_date, "batch": batch.batch}
            packed = 0
            rows = tables.at("sent_synopsis").rows(["attribute", "payload"], stream=stream, **where)
            for row in rows.to_pylist():
                stored = (batch.batch, row["attribute"])
                payloads[stored] = payloads.get(stored, 0) + len(row["payload"])
                packed += len(row["payload"])
            if packed:
                # whole files and the log, less the payloads
                sizes = sum(file.size for file in tables.at("transmitted", stream).files(**where))
                around[batch.batch] = max(0, crossed[batch.batch] - sizes - packed)
            raw, given = lake.rows("raw", stream, batch), lake.rows("transmitted", stream, batch)
            back = None
            for name in self.lab.measures:  # of a given scheme, others may be touched
                truth, has = Column.from_arrow(raw[name]), Column.from_arrow(given[name])
                errors = _losses(truth, has)
                seq = np.asarray(raw["seq"])
                for run in runs[batch.batch]:
                    if any(way.attribute == name and way.sent for way in run.ways):
                        if back is None:
                            back = lake.rows("recovered", stream, batch)
                        low, high = np.searchsorted(seq, [run.from_seq, run.to_seq + 1])
                        errors[low:high] = _losses(truth, Column.from_arrow(back[name]))[low:high]
                place = (batch.batch, name)
                known = truth.valid
                sums[place], values[place] = float(errors[known].sum()), int(known.sum())
                absent[place] = int((errors[known] == ABSENT).sum())
        columns = {
            one.batch: column_bytes(
                tables.at("transmitted", stream).files(batch_date=one.batch_date, batch=one.batch), names
            )
            for one in batches
        }
        found = Sent(crossed, columns, payloads, around, sums, values, absent)
        lake.sweep()
        return found


def ledger_bytes(lake: Lake, stream: str) -> dict[int, int]:
    """Return, by batch, the bytes that were sent according to the ledger."""
    rows = lake.tables.at("ledger").rows(
        ["batch", "bytes_kept"], subject=stream, stage=SENT, unit="rows", dimension_kind=TOTAL
    )
    return {row["batch"]: row["bytes_kept"] for row in rows.to_pylist()}


def _losses(truth: Column, has: Column) -> np.ndarray:
    """Return the loss row by row: 100 for an absent value, and far more for a value with an infinite error."""
    here = has.valid if has.kind == truth.kind else np.zeros(len(truth), np.bool_)
    errors = np.minimum(relative_errors_pct(truth, has), FAR_WORSE)
    errors[truth.valid & ~here] = ABSENT
    return errors


def at_capacities(book: Book, labs: Mapping[str, Lab], prefix: str = "") -> dict[str, float]:
    """Return error, used capacity and absent values at every capacity, and the error over that of the best ranking."""
    figures: dict[str, float] = {}
    rows: list[tuple[Any, ...]] = []
    for lab in labs.values():
        found, lines = at_capacities_of(lab, f"{prefix}{lab.stream}")
        figures |= found
        rows += lines
    book.table(
        "Error at capacity in points, measured at the destination",
        ("stream", "synopsis", "what", *(f"{capacity} %" for capacity in CAPACITIES_PCT)),
        rows,
        [
            "The room: what always travels, as counted, and so much of the measures' bytes. Held: what is shed is "
            "absent and counts 100; sent: its synopsis counts against the room. Random is the mean of its orders; the "
            "best ranking that a plan is held against is the luckiest of them, by whichever treatments serve it best."
        ],
    )
    return figures


def at_capacities_of(lab: Lab, slug: str) -> tuple[dict[str, float], list[tuple[Any, ...]]]:
    """Return the figures of one stream, and its rows of the table."""
    trial = Trial(lab)
    ranked = {
        by: [[name for name in order if name in trial.measures] for order in every]
        for by, every in orders(lab).items()
    }
    figures: dict[str, float] = {}
    rows: list[tuple[Any, ...]] = []
    for synopsis in _CASES:
        found = {capacity: trial.at(capacity, synopsis) for capacity in CAPACITIES_PCT}
        errors = [found[capacity].error_pct for capacity in CAPACITIES_PCT]
        best: list[float] = []
        by: dict[str, list[float]] = {}
        for capacity, one in found.items():
            place = f"{slug}.{synopsis}.{capacity}"
            figures[f"attributes.absent_pct.{place}"] = one.absent_pct
            figures[f"attributes.error_at_capacity_pct.{place}"] = one.error_pct
            figures[f"attributes.over_capacity_pct.{place}"] = one.over_pct
            if one.used_pct is not None:
                figures[f"attributes.channel_used_pct.{place}"] = one.used_pct
            if synopsis not in SYNOPSES:
                continue
            every = [order for mine in ranked.values() for order in mine]
            # the result of a random order: a rule that does nothing
            first = next(at for at, order in enumerate(every) if order is ranked["random"][0])
            by_chance = slice(first, first + len(ranked["random"]))
            for what, sharing in (
                ("error_over_best_ranking", False),
                ("error_over_best_ranking_sharing_tuples", True),
            ):
                errors_by = trial.by_rankings(
                    every, capacity, synopsis, best_treatments_error, sharing=sharing
                )
                least = min(errors_by)
                figures[f"attributes.{what}.{place}"] = error_over_best(one.error_pct, least)
                if not sharing:
                    by_nothing = error_over_best(_mean(errors_by[by_chance]), least)
                    figures[f"attributes.random_over_best_ranking.{place}"] = by_nothing
                    figures[f"attributes.best_ranking_error_pct.{place}"] = least
                    best.append(least)
            for name in RANKINGS:
                mine = trial.by_rankings(ranked[name], capacity, synopsis, ranking_error, sharing=False)
                by.setdefault(name, []).append(_mean(mine))
        rises = [after - before for before, after in zip(errors[1:], errors, strict=False)]
        figures[f"attributes.error_rises_points.{slug}.{synopsis}"] = max(0.0, *rises)
        rows.append((slug, synopsis, "the plan", *errors))
        rows.append((slug, synopsis, "channel used %", *(one.used_pct for one in found.values())))
        rows.append((slug, synopsis, "absent %", *(one.absent_pct for one in found.values())))
        rows += [(slug, synopsis, f"shed by {name}", *mine) for name, mine in by.items()]
        if best:
            rows.append((slug, synopsis, "best ranking, any treatments", *best))
    return figures, rows


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
