"""What the tests of the jobs share: a lake, and the jobs run in this process."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.streams import ROOT, World, brought_through

from spillway.engine import ProcessEngine

Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="session")
def through(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Taken in, trained, shed in two runs, validated; to be read, or copied and changed."""
    return brought_through(ProcessEngine(), tmp_path_factory.mktemp("through"))


@pytest.fixture
def world(through: World, tmp_path: Path) -> World:
    """A copy of this test's own."""
    return through.copy(tmp_path)


@pytest.fixture
def started(world: World) -> list[str]:
    """The names of the applications for which an engine was asked."""
    return []


@pytest.fixture
def run(
    world: World, started: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Run:
    """A job by name with its arguments, on the world's lake; its engine is this process."""
    from spillway.engine import spark

    @contextmanager
    def here(name: str) -> Iterator[Any]:
        started.append(name)
        yield ProcessEngine()

    monkeypatch.setattr(spark, "spark_engine", here)
    for name in ("home", "lake", "destination", "landing", "schemas", "build", "output"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", getattr(world.settings, name))

    def job(name: str, *arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        capfd.readouterr()
        code = 0
        try:
            runpy.run_path(str(ROOT / "jobs" / f"{name}.py"), run_name="__main__")
        except SystemExit as end:
            code = int(end.code or 0)
        return code, capfd.readouterr().out

    return job
