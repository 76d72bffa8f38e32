"""The lake that the tests of the steps share."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pipeline.streams import World, brought_through


@pytest.fixture(scope="session")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Taken in, trained, shed in two runs, validated; to be read, or copied and changed."""
    return brought_through(spark, lambda: tmp_path_factory.mktemp("world"))
