"""Roots for tests of the store: each test of behaviour runs over Delta tables on a disk and over tables in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from spillway.settings import Settings
from spillway.store.tables import Tables


@pytest.fixture(params=["delta", "memory"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    if request.param == "delta":
        yield Settings.from_environment(
            {"SPILLWAY_HOME": str(tmp_path), "SPILLWAY_LAKE": str(tmp_path / "lake")}
        )
        return
    held = Settings.in_memory(str(uuid4()))
    yield held
    Tables(held).forget()
