"""Plan which filter each batch of a stream gets, and account for the rows that the filter drops.

`SifterPlan` chooses a filter for each batch and records the reason. It keeps the filter in use while that filter fits
the batch (`rebuild.throttle`, `rebuild.drift`). If the throttler drifts, it configures the same regions again. If the
data drift, it learns new regions from the batch.

If other levers stand behind this one, `takes` decides whether rows or columns go first. `takes: cheaper` compares the
loss of the rows with the loss that these levers report for the same number of bytes (`column_loss_pct`).

`LedgerBuilder` returns the ledger rows of a batch: shed rows and values, rows by reason, and rows by query.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.batch import Batch
from spillway.contracts import StreamContract
from spillway.ledger import LedgerRow
from spillway.levers.loss_curve import loss_at_capacity
from spillway.levers.protocol import CapacityGroup, Lever, Load, MeasuredDraft, Offer, Plan, Work
from spillway.levers.sifters.apply import ASIDE, CountedQueries, SiftedBatch, SifterDecision
from spillway.levers.sifters.configure import (
    FilterConfiguration,
    RowCapacity,
    configure_filter,
    total_variation,
)
from spillway.levers.sifters.filter import PIECE_SEQS
from spillway.levers.sifters.learn import LearnedRegions, count_rows_by_region, learn_regions, learned_regions
from spillway.levers.sifters.record import (
    SIFTERS,
    FilterChoice,
    FilterInUse,
    filter_row,
    previous_filter,
    sifted_batches,
)
from spillway.levers.sifters.settings import SifterSettings
from spillway.levers.sifters.time_cells import TimeCells
from spillway.registry import lever


def column_loss_pct(room: CapacityGroup, work: Work, batch: Batch) -> float:
    """Return the mean loss of a value in % if the later levers fit all rows of the batch into its share of the channel.

    Return 100 if they cannot fit the batch.
    """
    load = work.loads[batch.batch]
    channel = room.contracts.channels[work.contract.channel]
    found = Offer(load.rate_kbps, load)
    for name, facts in work.behind.items():
        other: Lever = lever(name)
        found = other.update_offer(found, work.contract, channel, facts, None)
    point = loss_at_capacity({work.contract.stream: found}, batch.allowed_kbps)
    return 100.0 if point.excess_kbps > 0 else point.loss_pct


_Place = tuple[str, str, int, date, str, int]


def region_counts(drafted: MeasuredDraft, name: str, size: int) -> np.ndarray:
    """Return the rows that the tasks counted under `name`, by region; the last entry counts rows that must be kept."""
    return np.array([drafted.counts.get(f"{name}.{region}", 0) for region in range(size)], np.int64)


@dataclass(frozen=True)
class LedgerBuilder:
    """The settings and limits that the ledger rows of a batch depend on, in addition to its draft."""

    drops: bool
    aside: bool
    """Whether dropped rows are stored at the source, so that they are recoverable."""
    excess: float
    """The fraction of the sent kbps that exceeds the batch's share of the channel."""
    most_rows: int | None
    """The maximum number of rows that the server takes in; None: no limit."""
    titles: Sequence[str]
    """The names of the queries whose rows are counted."""

    def ledger_rows(self, drafted: MeasuredDraft, one: FilterChoice) -> Iterable[LedgerRow]:
        """Yield the ledger rows of a batch: shed rows and values in total, then rows by reason and by query.

        The total of the rows states the shortfall: the rows that exceed the server's or the channel's limit.
        """
        batch = drafted.batch
        place = ("stream", batch.stream, batch.batch, batch.batch_date, "sifters", drafted.ordinal)
        size = 0 if one.filter is None else one.filter.count + 1
        offered, kept = region_counts(drafted, "offered", size), region_counts(drafted, "kept", size)
        gone = offered - kept if self.drops else np.zeros(size, np.int64)
        rows, shed = drafted.offered["rows"], int(gone.sum())
        values = drafted.counts.get("values", 0) if self.drops else 0
        if self.aside and shed:
            shed = drafted.aside_rows[
                ASIDE
            ]  # the rows that were stored at the source, not the planned number
        for unit, all_, away in (("rows", rows, shed), ("values", drafted.offered["values"], values)):
            yield LedgerRow(
                *place,
                unit,
                reason=one.reason,
                offered=all_,
                kept=all_ - away,
                shed=away,
                recoverable=away if self.aside else 0,
                lost=0 if self.aside else away,
                shortfall=self._shortfall(rows - shed) if unit == "rows" else 0,
                bytes_source=drafted.aside_bytes.get(ASIDE, 0) if unit == "rows" else 0,
                seconds=drafted.seconds if unit == "rows" else 0.0,
            )
        if one.filter is not None and one.regions is not None:
            yield from self._by_reason(place, one, offered, gone)
            yield from self._by_query(place, drafted)

    def _by_reason(
        self, place: _Place, one: FilterChoice, offered: np.ndarray, gone: np.ndarray
    ) -> Iterable[LedgerRow]:
        assert one.regions is not None
        touched = one.regions.worth().touched
        groups = {
            "no query asks for them": np.append(~touched, False),
            "worth least to queries": np.append(touched, False),
            "must be kept": np.append(np.zeros(len(touched), bool), True),
        }
        for reason, of in groups.items():
            all_, away = int(offered[of].sum()), int(gone[of].sum())
            if all_:
                yield LedgerRow(
                    *place, "rows", "reason", reason, reason, offered=all_, kept=all_ - away, shed=away,
                    recoverable=away if self.aside else 0, lost=0 if self.aside else away,
                )  # fmt: skip

    def _by_query(self, place: _Place, drafted: MeasuredDraft) -> Iterable[LedgerRow]:
        for at, title in enumerate(self.titles):
            wanted, got = (drafted.counts.get(f"{name}.{at}", 0) for name in ("wanted", "got"))
            away = wanted - got if self.drops else 0
            yield LedgerRow(
                *place, "rows", "query", title, offered=wanted, kept=wanted - away, shed=away,
                recoverable=away if self.aside else 0, lost=0 if self.aside else away,
            )  # fmt: skip

    def _shortfall(self, kept: int) -> int:
        beyond = 0 if self.most_rows is None or not self.drops else max(0, kept - self.most_rows)
        return max(beyond, min(kept, math.ceil(kept * self.excess)))


OWN_BITS = 12.0
"""Estimated bits of the columns `weight` and `in_sample` in a row, used until a draft measures them."""
STRETCHES, STRETCH = 8, 512
"""The sample of a batch has about `STRETCHES` slices; each slice spans `STRETCH` values of `seq`."""
QUERIES_COUNTED = 64
"""The maximum number of queries whose rows are counted one by one: those with the largest weights."""
ROUNDED = 1e-9
"""Rounding tolerance: a product of floats may fall short of a whole row by this much."""
WORTH_MORE_ROOM = 0.02
"""A plan is worth another draft if it keeps a share of the rows that is larger by more than this."""


class SifterPlan(Plan):
    """The filters of a stream's batches, which decide the rows that are sent."""

    def __init__(self, work: Work, room: CapacityGroup) -> None:
        self.work, self.contract, self.room = work, work.contract, room
        self.settings: SifterSettings = work.contract.lever_settings("sifters")
        self.drops = work.contract.mode != "observe"
        self.chosen: dict[int, FilterChoice] = {}
        self.short_kbps: dict[int, float] = {}
        self.outcomes: dict[int, MeasuredDraft] = {}
        self._because = ""
        """Why rows of the current batch are dropped instead of columns, if the two were compared."""
        self._counted = _counted_queries(self.settings, work.contract)
        before: FilterInUse | None = None
        for batch in work.batches:
            last = previous_filter(room.tables, self.contract.stream, batch.batch)
            if before is None or (last is not None and last.batch > before.batch):
                before = last
            found = self._choose(batch, before)
            self.chosen[batch.batch] = found
            if found.filter is not None:
                before = FilterInUse(
                    batch.batch, found.built_for, found.filter, found.share, batch.models["sifters"],
                    found.counts, found.scheme, _digest(found),
                )  # fmt: skip
        mine = {batch.batch for batch in work.batches}
        others = [batch for batch in work.framed if batch.batch not in mine]
        self._others = sifted_batches(room.tables, self.contract, others)

    @property
    def decision(self) -> SifterDecision:
        mine = [
            SiftedBatch(
                batch.batch, batch.first_seq, batch.last_seq, self.chosen[batch.batch].filter,
                self.drops, self.settings.keep_at_source, self._cells(batch),
            )
            for batch in self.work.batches
        ]  # fmt: skip
        return SifterDecision(
            tuple(sorted([*mine, *self._others], key=lambda one: one.first_seq)),
            self.work.columns,
            CountedQueries(self._counted[0], self._counted[2]),
        )

    def _cells(self, batch: Batch) -> TimeCells | None:
        return TimeCells.of(self.room.contracts, self.contract, batch.seconds_covered)

    def _choose(self, batch: Batch, before: FilterInUse | None) -> FilterChoice:
        work = self.work
        tried = work.tried.get(batch.batch)
        earlier = tried[0] if tried is not None else None
        assert earlier is None or isinstance(earlier, SifterPlan)
        drafted = None if tried is None else tried[1]
        room = self._room(batch, drafted)
        share, why = self._wanted_share(batch, room, earlier)
        self._because = why if share < 1.0 else ""
        regions = learned_regions(self.contract, work.facts.get(batch.models.get("sifters", -1)))
        if share >= 1.0:
            return FilterChoice(0, None, regions, "", 1.0, room.share, why or "all rows fit", np.zeros(0))
        if drafted is not None and earlier is not None:
            return self._reconfigure(batch, share, room.share, drafted, earlier.chosen[batch.batch])
        rows = self._sample_rows(batch, regions)
        if regions is None:
            why = (
                "its regions were trained for another contract, or by an older Spillway: built of this batch"
            )
            return self._build_filter(batch, self._learn_regions(rows, share), rows, share, room.share, why)
        counts = count_rows_by_region(regions, rows)
        version = batch.models["sifters"]
        if before is None or before.version != version or before.digest != regions.digest:
            why = "the first filter" if before is None else f"version {version} of its regions is new"
            apart, noise = total_variation(regions.frequencies * regions.sample_rows, counts)
            if apart - noise > self.settings.rebuild.drift:
                why = f"{why}; {apart:.0%} of the rows lie elsewhere than in training: built of this batch"
                regions = self._learn_regions(rows, share)
            return self._build_filter(batch, regions, rows, share, room.share, why)
        mine = regions.with_regions_of(before.filter, _shares(before.counts))
        counts = count_rows_by_region(mine, rows)
        apart, noise = total_variation(before.counts, counts)
        if apart - noise > self.settings.rebuild.drift:
            why = f"data drifted: {apart:.0%} of the rows lie in other regions"
            return self._build_filter(batch, self._learn_regions(rows, share), rows, share, room.share, why)
        must = self._must_keep(rows, mine)
        keeps = must + (1 - must) * (1.0 - float(before.filter.thresholds @ _shares(counts)))
        margin = self.settings.rebuild.throttle
        # the bytes are known only after a draft; the number of rows is known now
        most = room.rows_share if room.rows_share <= share else share + margin / 2
        if before.share <= share and share - margin <= keeps <= most + ROUNDED:
            outcome = FilterConfiguration(
                before.filter.thresholds, keeps, mine.worth(counts).overall(before.filter.thresholds),
                self.settings.fairness,
            )  # fmt: skip
            why = f"the filter of batch {before.built_for} still does: there was room for {before.share:.1%}"
            return FilterChoice(
                before.built_for, before.filter, mine, before.scheme, before.share, room.share, why,
                before.counts, outcome, True,
            )  # fmt: skip
        why = f"the throttler drifted from {before.share:.1%} to {share:.1%}"
        if before.share <= share <= before.share + margin:
            why = f"the filter of batch {before.built_for} keeps {keeps:.2%} of these rows, with room for {share:.2%}"
        return self._build_filter(batch, replace(mine, scheme=before.scheme), rows, share, room.share, why)

    def _wanted_share(self, batch: Batch, room: RowCapacity, earlier: SifterPlan | None) -> tuple[float, str]:
        """Return the share of the rows to keep, and the reason if rows or columns were chosen over the other."""
        takes = self.settings.takes if self.work.behind else "first"
        share, own = room.share, room.rows_share  # dropping columns does not reduce the number of rows
        before = None if earlier is None else earlier.chosen[batch.batch]
        if takes == "first" or share >= own:
            return share, before.reason if before is not None and before.kept_share >= 1.0 else ""
        if before is not None:
            if before.share < own or self.work.aims[batch.batch] < 1.0:
                # the other levers did not fit the batch: drop rows for the excess
                return share, ""
            return own, before.reason
        if takes == "rest":
            return own, "columns go first; rows only as far as these cannot fit"
        columns = column_loss_pct(self.room, self.work, batch)
        rows = self._rows_lose_pct(batch, share)
        said = (
            f"for the same {batch.allowed_kbps:.4g} kbps columns lose {columns:.3g} % of a value, "
            f"rows {rows:.3g} % of what queries ask for"
        )
        return (
            (share, f"rows are cheaper: {said}") if rows < columns else (own, f"columns are cheaper: {said}")
        )

    def _rows_lose_pct(self, batch: Batch, share: float) -> float:
        regions = learned_regions(self.contract, self.work.facts.get(batch.models.get("sifters", -1)))
        if regions is None:
            return 100.0 * (1.0 - share)
        outcome = configure_filter(regions.worth(), share, 0.0, self.settings.fairness, regions.base.share)
        return 100.0 * (1.0 - outcome.quality)

    def _room(self, batch: Batch, drafted: MeasuredDraft | None) -> RowCapacity:
        """Return the offered rows of a batch, the width of a row, and the limits.

        If there is a draft, the width is measured in it. Otherwise it is the width in `raw` plus `OWN_BITS`.
        """
        load = self.work.loads[batch.batch]
        seconds = batch.seconds_covered or 1.0
        rows = load.tuples_per_second * seconds
        row_kbps = (sum(load.widths_bits.values()) + OWN_BITS) / 1000.0
        if drafted is not None:
            rows = sum(n for name, n in drafted.counts.items() if name.startswith("offered.")) or rows
            if drafted.sent_rows and self.contract.width != "declared":
                row_kbps = sum(drafted.sent_bytes.values()) * 8.0 / 1000.0 / drafted.sent_rows
        limit = self.rows_in_room(batch)
        if limit is not None and rows > limit + ROUNDED:
            # in each piece, rounding adds less than one row
            limit = max(0, limit - math.ceil((batch.last_seq - batch.first_seq + 1) / PIECE_SEQS) + 1)
        return RowCapacity(
            max(rows / seconds, 1e-12),
            row_kbps,
            load.fixed_kbps,
            batch.allowed_kbps * self.work.aims[batch.batch],
            None if limit is None else limit / seconds,
        )

    def rows_in_room(self, batch: Batch) -> int | None:
        """Return the maximum number of rows of a batch that the server takes in; None: no limit is stated."""
        limit = self.settings.rows_per_second
        return None if limit is None else math.floor(limit * (batch.seconds_covered or 1.0) + ROUNDED)

    def exceeds_own_limit(self, drafted: MeasuredDraft) -> bool:
        """Return whether the draft keeps more rows than the server takes in although more could be dropped."""
        limit = self.rows_in_room(drafted.batch)
        kept = sum(n for name, n in drafted.counts.items() if name.startswith("kept."))
        return limit is not None and kept > limit and self.can_shed_more(drafted.batch.batch)

    def _reconfigure(
        self, batch: Batch, share: float, measured: float, drafted: MeasuredDraft, before: FilterChoice
    ) -> FilterChoice:
        """Configure the filter again with the rows that its draft counted in every region.

        If the draft had no filter, choose one from a sample of the batch.
        """
        if before.filter is None or before.regions is None:
            rows = self._sample_rows(batch, before.regions)
            regions = before.regions or self._learn_regions(rows, share)
            why = f"what was left to others came out too large ({before.reason})"
            return self._build_filter(batch, regions, rows, share, measured, why)
        counts = region_counts(drafted, "offered", before.filter.count + 1)
        must = counts[-1] / max(1, counts.sum())
        return self._configure_filter(
            batch,
            before.regions,
            counts[:-1],
            must,
            share,
            measured,
            before.reason.split("; counted")[0] + "; counted",
        )

    def _build_filter(
        self, batch: Batch, regions: LearnedRegions, rows: pa.Table, share: float, measured: float, why: str
    ) -> FilterChoice:
        counts = count_rows_by_region(regions, rows)
        must = self._must_keep(rows, regions)
        return self._configure_filter(batch, regions, counts, must, share, measured, why)

    def _configure_filter(
        self,
        batch: Batch,
        regions: LearnedRegions,
        counts: np.ndarray,
        must_keep: float,
        share: float,
        measured: float,
        why: str,
    ) -> FilterChoice:
        worth = regions.worth(counts if counts.sum() else regions.frequencies)
        outcome = configure_filter(worth, share, must_keep, self.settings.fairness, regions.base.share)
        if outcome.fairness > self.settings.fairness:
            why = f"{why}; fairness {self.settings.fairness:g} cannot be kept, {outcome.fairness:.3g} is the least"
        if outcome.short > 0:
            why = f"{why}; what must be kept leaves {outcome.short:.1%} of the rows too many"
        if self._because and self._because not in why:
            why = f"{why}; {self._because}"
        found = regions.base.with_thresholds(outcome.thresholds)
        return FilterChoice(
            batch.batch, found, regions, regions.scheme, share, measured, why, counts, outcome
        )

    def _learn_regions(self, rows: pa.Table, share: float) -> LearnedRegions:
        return learn_regions(self.contract, self.settings, rows, share)

    def _sample_rows(self, batch: Batch, regions: LearnedRegions | None) -> pa.Table:
        """Return a sample of the batch's rows: slices spread evenly over the batch."""
        columns = _wanted_columns(self.settings, self.contract) if regions is None else regions.wanted.columns
        before = self.work.before(batch.batch_date)
        length = batch.last_seq - batch.first_seq + 1
        step = max(STRETCH, length // STRETCHES)
        parts = [
            before(list(columns), low, min(batch.last_seq, low + STRETCH - 1))
            for low in range(batch.first_seq, batch.last_seq + 1, step)
        ]
        return pa.concat_tables(parts, promote_options="permissive")

    def _must_keep(self, rows: pa.Table, regions: LearnedRegions) -> float:
        if not regions.base.keep or not rows.num_rows:
            return 0.0
        return float((regions.base.regions_of(rows) < 0).mean())

    def output_load(self, batch: int) -> Load:
        return self.work.loads[batch].for_share_of_rows(self.chosen[batch].kept_share if self.drops else 1.0)

    def summary(self, batch: int) -> str:
        one = self.chosen[batch]
        if one.filter is None or one.outcome is None:
            return ""
        dropped = "drop" if self.drops else "would drop"
        return (
            f"{dropped} {1.0 - one.outcome.kept_share:.1%} of the rows, by what {len(self.settings.queries)} queries "
            f"ask for ({one.filter.tree.count} regions, {100 * one.outcome.quality:.4g} % of it kept)"
        )

    def could_lose_less(self, batch: int) -> bool:
        one = self.chosen[batch]
        return one.kept_share < 1.0 and not one.reused

    def is_worth_a_draft(self, before: Plan) -> bool:
        assert isinstance(before, SifterPlan)
        return any(
            one.kept_share > before.chosen[number].kept_share + WORTH_MORE_ROOM
            for number, one in self.chosen.items()
        )

    def can_shed_more(self, batch: int) -> bool:
        one = self.chosen[batch]
        return one.outcome is None or one.outcome.short <= 0

    def record_shortfall(self, batch: int, excess_kbps: float, remedy: str = "") -> None:
        self.short_kbps[batch] = excess_kbps

    def account(self, drafted: MeasuredDraft) -> Iterable[LedgerRow]:
        batch = drafted.batch
        self.outcomes[batch.batch] = drafted
        excess = self.short_kbps.get(batch.batch, 0.0)
        whole = batch.allowed_kbps + excess
        return LedgerBuilder(
            self.drops,
            self.settings.keep_at_source,
            excess / whole if whole > 0 else 0.0,
            self.rows_in_room(batch),
            self._counted[1],
        ).ledger_rows(drafted, self.chosen[batch.batch])

    def records(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        return {
            SIFTERS: [
                filter_row(
                    batch,
                    self.chosen[batch.batch],
                    self.outcomes.get(batch.batch),
                    self.short_kbps.get(batch.batch, 0.0),
                    self.drops,
                    self.settings.keep_at_source,
                    self._cells(batch),
                )
                for batch in self.work.batches
            ]
        }

    def destination_records(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        # kept rows carry their own weight; dropped rows are stored at the source, or not at all
        return {}


def _counted_queries(
    settings: SifterSettings, contract: StreamContract
) -> tuple[tuple[Any, ...], tuple[str, ...], tuple[tuple[Any, ...], ...]]:
    """Return the dimensions, and the names and products of the queries whose rows are counted."""
    from spillway.levers.sifters.parsed_queries import ParsedQueries

    wanted = ParsedQueries.of(settings, contract)
    chosen = sorted(wanted.queries, key=lambda pair: -pair[0].weight)[:QUERIES_COUNTED]
    return (
        wanted.dimensions,
        tuple(query.title for query, _ in chosen),
        tuple(predicate.products for _, predicate in chosen),
    )


def _wanted_columns(settings: SifterSettings, contract: StreamContract) -> tuple[str, ...]:
    from spillway.levers.sifters.parsed_queries import ParsedQueries

    return ParsedQueries.of(settings, contract).columns


def _shares(counts: np.ndarray) -> np.ndarray:
    return counts / max(1, counts.sum())


def _digest(one: FilterChoice) -> str:
    return "" if one.regions is None else one.regions.digest
