"""Which rows of a table are read with all of their columns. Not a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spillway.store.tables import Table


def whole_reads(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], table: str, by: str = "batch"
) -> set[int]:
    """By number (`by`), the rows of which somebody reads every column while `act` runs."""
    found: set[int] = set()
    rows_of = Table.rows

    def noting(self: Table, *columns: Any, **where: Any) -> Any:
        rows = rows_of(self, *columns, **where)
        if self.contract.table == table and set(self.contract.names) <= set(rows.column_names):
            found.update(rows[by].to_pylist())
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(Table, "rows", noting)
        act()
    return found
