"""The table `ledger`: what a stage writes replaces what it had written for the same batches."""

from __future__ import annotations

from collections.abc import Sequence

from spillway.ledger import LedgerRow
from spillway.store.tables import Tables


def write_ledger(
    tables: Tables, subject: str, batches: Sequence[int], stages: Sequence[str], rows: Sequence[LedgerRow]
) -> None:
    """Replace what these stages had written for these batches (or windows) of the subject."""
    tables.at("ledger").replace(
        [row.to_dict() for row in rows], subject=subject, batch=list(batches), stage=list(stages)
    )
