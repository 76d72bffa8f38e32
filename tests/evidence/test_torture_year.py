"""The simulated year: what it says was brought through was, by the steps themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evidence.torture import year as years
from evidence.torture.year import STREAMS, Year
from spillway.batch import DONE
from spillway.store.batches import load_batches
from spillway.store.tables import Tables


def test_deliveries_are_taken_in_and_shed_by_runs_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validated: list[Any] = []
    monkeypatch.setattr(years, "validate", lambda *given: validated.append(given))
    year = Year.begin(tmp_path)
    year.run_batches(1, 2, train=True)
    for stream in STREAMS:
        batches = load_batches(Tables(year.settings), stream)
        assert [(one.batch, one.status, one.rows) for one in batches] == [
            (1, DONE, years.ROWS),
            (2, DONE, years.ROWS),
        ]
    assert len(validated) == 1
