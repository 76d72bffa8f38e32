"""The ledger: what every stage did to a batch, in counts and bytes, and it balances.

    offered = kept + shed + deduplicated + rejected,   shed = recoverable + lost

row by row, rows and values apart; the next stage is offered what the previous one kept. A ledger that does not
balance fails the run before it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import TYPE_CHECKING

from spillway.errors import SpillwayError

if TYPE_CHECKING:
    from spillway.store.tables import Lake


@dataclass(frozen=True)
class LedgerRow:
    """One line of the ledger, balanced from birth.

    >>> LedgerRow("s", 1, date(2026, 1, 1), "ingest", "taken in", offered=3, kept=2)
    Traceback (most recent call last):
        ...
    spillway.errors.SpillwayError: the ledger of s, batch 1, stage ingest (taken in) must balance: offered 3 is not \
kept 2 + shed 0 + deduplicated 0 + rejected 0; this is a fault of the stage, report it
    """

    stream: str
    batch: int
    batch_date: date
    stage: str
    reason: str
    offered: int
    unit: str = "rows"
    attribute: str = ""
    kept: int = 0
    rounded: int = 0
    shed: int = 0
    deduplicated: int = 0
    rejected: int = 0
    recoverable: int = 0
    lost: int = 0
    bytes_offered: int = 0
    bytes_kept: int = 0
    bytes_synopsis: int = 0
    compute_seconds: float = 0.0

    def __post_init__(self) -> None:
        where = f"the ledger of {self.stream}, batch {self.batch}, stage {self.stage} ({self.reason})"
        if self.offered != self.kept + self.shed + self.deduplicated + self.rejected:
            raise SpillwayError(
                f"{where} must balance: offered {self.offered} is not kept {self.kept} + shed {self.shed} + "
                f"deduplicated {self.deduplicated} + rejected {self.rejected}; this is a fault of the stage, report it"
            )
        if self.shed != self.recoverable + self.lost:
            raise SpillwayError(
                f"{where} must balance: shed {self.shed} is not recoverable {self.recoverable} + lost {self.lost}; "
                "this is a fault of the stage, report it"
            )


def write_ledger(
    lake: Lake, stream: str, batches: Sequence[int], stage: str, rows: Sequence[LedgerRow]
) -> None:
    """Replace what `stage` had written for these batches of the stream."""
    from spillway.store.tables import where

    lake.replace_rows(
        "ledger", [asdict(row) for row in rows], where(stream=stream, batch=list(batches), stage=stage)
    )
