"""The toy lever: of every so many `seq` numbers the last goes, for as long as the facts of its batch say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa

from spillway.batch import Batch
from spillway.contracts import Channel, StreamContract
from spillway.ledger import LedgerRow
from spillway.levers.certificate import Certificate
from spillway.levers.protocol import (
    CapacityGroup,
    Decision,
    Fact,
    Facts,
    FrameSlice,
    Lever,
    LeverExplanation,
    Load,
    MeasuredDraft,
    Offer,
    Plan,
    Rows,
    SliceCertificate,
    StoredFiles,
    TrainingInput,
    Views,
    Work,
)

ASIDE = "thin_aside"


@dataclass(frozen=True)
class Thin(Decision):
    """Every so many rows one goes."""

    every: int
    columns: tuple[str, ...]
    aside_rows: StoredFiles | None = None

    def goes(self, seq: np.ndarray) -> np.ndarray:
        return seq % self.every == self.every - 1

    def apply(self, before: Rows, day: date) -> Rows:
        return Left(self, before)

    def rows_kept_at_source(
        self, table: str, parts: Sequence[FrameSlice], before: Rows, counts: dict[str, int]
    ) -> Iterator[pa.Table]:
        for part in parts:
            rows = before(self.columns, part.from_seq, part.to_seq)
            gone = rows.filter(pa.array(self.goes(np.asarray(rows["seq"]))))
            if gone.num_rows:
                values = int(before.values(np.asarray(gone["seq"])).sum())
                counts["values"] = counts.get("values", 0) + values
                yield gone.append_column("batch", pa.array(np.full(gone.num_rows, part.batch)))

    def recover(self, after: Rows, day: date) -> Rows:
        assert self.aside_rows is not None
        return Whole(after, self.aside_rows, day)

    def certify(self, part: FrameSlice, truth: Rows, given: Rows) -> list[SliceCertificate]:
        was = np.asarray(truth([], part.from_seq, part.to_seq)["seq"])
        back = np.asarray(given([], part.from_seq, part.to_seq)["seq"])
        wrong = len(np.setxor1d(was, back))
        gone = int(self.goes(was).sum())
        certificate = Certificate(0.0, shed_values=gone, stored_values=gone, violations=wrong)
        return [SliceCertificate(part.batch, "", frozenset(["shed"] if gone else []), certificate)]


class Left:
    """The rows that stay."""

    def __init__(self, thin: Thin, before: Rows) -> None:
        self.thin, self.before = thin, before

    @property
    def bytes_read_at_source(self) -> int:
        return self.before.bytes_read_at_source

    def values(self, seq: np.ndarray) -> np.ndarray:
        return self.before.values(seq)

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        rows = self.before(columns, from_seq, to_seq)
        return rows.filter(pa.array(~self.thin.goes(np.asarray(rows["seq"]))))


class Whole:
    """The rows that stayed and those that were kept aside, in their order."""

    def __init__(self, after: Rows, aside: StoredFiles, day: date) -> None:
        self.after, self.aside = after, aside.reader_for(day)
        self.asked_back = 0

    @property
    def bytes_read_at_source(self) -> int:
        return self.after.bytes_read_at_source + self.asked_back

    def values(self, seq: np.ndarray) -> np.ndarray:
        return self.after.values(seq)

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        stayed, gone = (side(columns, from_seq, to_seq) for side in (self.after, self.aside))
        if not gone.num_rows:
            return stayed
        self.asked_back += gone.nbytes
        rows = pa.concat_tables([stayed, gone.select(stayed.column_names)], promote_options="permissive")
        return rows.sort_by("seq")


class ThinPlan(Plan):
    """The toy's plan: nothing to choose."""

    def __init__(self, work: Work) -> None:
        versions = {batch.models["thin"] for batch in work.batches}
        self.work, (self.every,) = work, {work.facts[version].value("every") for version in versions}

    @property
    def decision(self) -> Thin:
        return Thin(self.every, self.work.columns)

    def output_load(self, batch: int) -> Load:
        return self.work.loads[batch].for_share_of_rows(1.0 - 1.0 / self.every)

    def summary(self, batch: int) -> str:
        return f"one row in {self.every} kept aside"

    def account(self, drafted: MeasuredDraft) -> Iterable[LedgerRow]:
        batch = drafted.batch
        place = ("stream", batch.stream, batch.batch, batch.batch_date, "thin", drafted.ordinal)
        gone = {"rows": drafted.aside_rows[ASIDE], "values": drafted.counts.get("values", 0)}
        for unit, shed in gone.items():
            yield LedgerRow(
                *place,
                unit,
                offered=drafted.offered[unit],
                kept=drafted.offered[unit] - shed,
                shed=shed,
                recoverable=shed,
                bytes_source=drafted.aside_bytes[ASIDE] if unit == "rows" else 0,
            )


class ThinLever(Lever):
    """Drops every tenth row."""

    name = "thin"
    needs_training = True
    sheds_rows = True
    tables_at_source = (ASIDE,)

    def train(self, lesson: TrainingInput) -> list[Fact] | None:
        return [Fact("every", "", lesson.contract.lever_settings("thin").every)]

    def update_offer(
        self,
        offer: Offer,
        contract: StreamContract,
        channel: Channel,
        facts: Facts | None,
        own_kbps: float | None,
    ) -> Offer:
        share = 1.0 - 1.0 / contract.lever_settings("thin").every
        load = None if offer.load is None else offer.load.for_share_of_rows(share)
        return Offer(offer.rate_kbps * share, load, offer.items)

    def plan(self, room: CapacityGroup, work: Sequence[Work]) -> Sequence[Plan]:
        return [ThinPlan(one) for one in work]

    def load_decision(
        self, contract: StreamContract, batches: Sequence[Batch], facts: Mapping[int, Facts], tables: Views
    ) -> Decision:
        (every,) = {one.value("every") for one in facts.values()}
        days = sorted({batch.batch_date for batch in batches})
        aside = tables.at(ASIDE, contract.stream).stored_files(batch_date=days)
        return Thin(every, contract.names, aside)

    def explain(
        self, contract: StreamContract, attribute: str, facts: Facts | None, tables: Views
    ) -> LeverExplanation | None:
        return LeverExplanation("shed", f"one row in {contract.lever_settings('thin').every} is kept aside")


LEVER = ThinLever()
