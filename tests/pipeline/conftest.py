"""The lake that the tests of the steps share."""

from __future__ import annotations

import pytest
from tests.pipeline.streams import World, brought_through

from spillway.engine import ProcessEngine


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Taken in, trained, shed in two runs, validated, in this process; to be read, or copied and changed."""
    return brought_through(ProcessEngine(), tmp_path_factory.mktemp("world"))
