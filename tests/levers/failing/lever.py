"""The toy lever: hands everything on, and crashes where it is told to, as a kernel with a fault would."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.batch import Batch
from spillway.contracts import Channel, StreamContract
from spillway.ledger import LedgerRow
from spillway.levers.protocol import (
    CapacityGroup,
    Decision,
    Fact,
    Facts,
    FrameSlice,
    Lever,
    Load,
    MeasuredDraft,
    Offer,
    Plan,
    Rows,
    SliceCertificate,
    TrainingInput,
    Views,
    Work,
)


def reach(step: str, at: str) -> None:
    """The step begins; of the one that was chosen that is the end."""
    if step == at:
        raise ZeroDivisionError(f"a crash while it should {step}")


def crashes_at(contract: StreamContract) -> str:
    settings: Any = contract.lever_settings("failing")
    return str(settings.at)


@dataclass(frozen=True)
class Counted:
    """The rows as they are; their values are counted when they are sent, and not before."""

    at: str
    before: Rows

    @property
    def bytes_read_at_source(self) -> int:
        return self.before.bytes_read_at_source

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        return self.before(columns, from_seq, to_seq)

    def values(self, seq: np.ndarray) -> np.ndarray:
        reach("draft", self.at)
        return self.before.values(seq)


@dataclass(frozen=True)
class Failing(Decision):
    """Everything is kept."""

    at: str

    def apply(self, before: Rows, day: date) -> Rows:
        return Counted(self.at, before)

    def recover(self, after: Rows, day: date) -> Rows:
        reach("give back", self.at)
        return after

    def certify(self, part: FrameSlice, truth: Rows, given: Rows) -> list[SliceCertificate]:
        reach("certify", self.at)
        return []


class FailingPlan(Plan):
    """Nothing to choose."""

    def __init__(self, work: Work) -> None:
        self.work, self.at = work, crashes_at(work.contract)
        settings: Any = work.contract.lever_settings("failing")
        if settings.batch is None or settings.batch in [batch.batch for batch in work.batches]:
            reach("plan", self.at)

    @property
    def decision(self) -> Failing:
        return Failing(self.at)

    def output_load(self, batch: int) -> Load:
        return self.work.loads[batch]

    def records(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        reach("publish", self.at)
        return {}

    def account(self, drafted: MeasuredDraft) -> Iterable[LedgerRow]:
        reach("account", self.at)
        batch = drafted.batch
        place = ("stream", batch.stream, batch.batch, batch.batch_date, "failing", drafted.ordinal)
        return [
            LedgerRow(*place, unit, offered=offered, kept=offered)
            for unit, offered in drafted.offered.items()
        ]


class FailingLever(Lever):
    """Keeps everything."""

    name = "failing"
    needs_training = True

    def train(self, lesson: TrainingInput) -> list[Fact] | None:
        reach("train", crashes_at(lesson.contract))
        return [Fact("nothing", "", 0)]

    def update_offer(
        self,
        offer: Offer,
        contract: StreamContract,
        channel: Channel,
        facts: Facts | None,
        own_kbps: float | None,
    ) -> Offer:
        reach("offer", crashes_at(contract))
        return offer

    def plan(self, room: CapacityGroup, work: Sequence[Work]) -> Sequence[Plan]:
        return [FailingPlan(one) for one in work]

    def load_decision(
        self, contract: StreamContract, batches: Sequence[Batch], facts: Mapping[int, Facts], tables: Views
    ) -> Decision:
        return Failing(crashes_at(contract))


LEVER = FailingLever()
