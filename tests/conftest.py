"""One Spark session for the whole suite, and a lake of its own for every test that asks for one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spillway.settings import Settings

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The shared session: two cores, small everything."""
    from spillway.engine.session import spark_session
    from spillway.engine.spark_conf import SHORT_LIVED_JVM

    os.environ.setdefault("SPILLWAY_JAVA_OPTIONS", SHORT_LIVED_JVM)
    session = spark_session("tests", "local[2]")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def engine(spark: Any) -> Any:
    """Spark as an engine; most tests run in this process and need none."""
    from spillway.engine.spark import SparkEngine

    return SparkEngine(lambda: spark)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Roots in a folder of this test's own; the repository's schemas."""
    return Settings.from_environment(
        {
            "SPILLWAY_HOME": str(ROOT),
            "SPILLWAY_LAKE": str(tmp_path / "lake"),
            "SPILLWAY_LANDING": str(tmp_path / "landing"),
            "SPILLWAY_BUILD": str(tmp_path / "build"),
        }
    )
