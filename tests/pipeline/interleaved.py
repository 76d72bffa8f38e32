"""Runs of a channel that take turns, each stopped before a step that a test chooses. Not a test.

A step is where runs see one another: a table that is opened, and a commit. The lake lives in memory and is put back as
it was in no time, so that a test can go through every place where a run may stand still.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tests.pipeline.streams import World

from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError
from spillway.pipeline.run import run_channel
from spillway.settings import Settings
from spillway.store import blobs, delta_log
from spillway.store.tables import Table, Tables

PATIENCE_SECONDS = 60.0
END = 1 << 30
"""More steps than any run has."""


class Lake:
    """A world whose lake is in memory, and can be put back as it was when this was made."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._tables, self._held = copy.deepcopy(delta_log._tables), dict(blobs._held)

    @staticmethod
    def begin(folder: Path, *streams: Mapping[str, Any], **more: Any) -> World:
        root = f"memory://{folder.name}"
        return World.begin(
            ProcessEngine(), folder, *streams, SPILLWAY_LAKE=root, SPILLWAY_DESTINATION=root, **more
        )

    def put_back(self) -> None:
        delta_log._tables.clear()
        delta_log._tables.update(copy.deepcopy(self._tables))
        blobs._held.clear()
        blobs._held.update(self._held)


class Stepper(Protocol):
    """A run as its tables see it."""

    def step(self, what: str) -> None:
        """Called before each step of the run; it may wait, or raise."""


class Run:
    """A run of the channel in a thread of its own, as far as it was let; first of all it stands before step 0."""

    def __init__(self, world: World) -> None:
        self.steps: list[str] = []
        self.said: list[str] = []
        self.problem: BaseException | None = None
        self._world, self._allowed, self._ended = world, 0, False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.until(0)

    def until(self, step: int) -> None:
        """Let it go on until it stands before the step of this number, or has ended."""
        with self._change:
            self._allowed = max(self._allowed, step)
            self._change.notify_all()
            there = self._change.wait_for(lambda: self._ended or self._stands, PATIENCE_SECONDS)
            assert there, self.steps

    def before(self, what: str) -> None:
        """Let it go on until it stands before the next step of this name, or has ended."""
        passed = len(self.steps)
        while not self._ended and what not in self.steps[passed:]:
            self.until(len(self.steps))

    def to_the_end(self) -> None:
        self.until(END)
        self._thread.join(PATIENCE_SECONDS)

    @property
    def _stands(self) -> bool:
        return len(self.steps) > self._allowed

    def step(self, what: str) -> None:
        """Called by the run before each of its steps."""
        with self._change:
            self.steps.append(what)
            self._change.notify_all()
            if not self._change.wait_for(lambda: not self._stands, PATIENCE_SECONDS):
                raise TimeoutError(what)

    def _run(self) -> None:
        world, tables = self._world, Stepped(self._world.settings, self)
        try:
            run_channel(tables, world.engine, world.contracts, "narrow", "run", self.said.append)
        except SpillwayError as problem:
            self.problem = problem
        finally:
            with self._change:
                self._ended = True
                self._change.notify_all()


class Stepped(Tables):
    """Tables of which every first look at one, and every commit, is a step of a run."""

    def __init__(self, settings: Settings, run: Stepper) -> None:
        super().__init__(settings)
        self._run = run

    def now(self) -> Stepped:
        return Stepped(self.settings, self._run)

    def at(self, table: str, stream: str | None = None) -> Table:
        if (table, stream) in self._open:
            return super().at(table, stream)
        self._run.step(f"open {table}")
        found = super().at(table, stream)
        log: Any = SteppedLog(found._log, table, self._run)
        found._log = found._opened.log = log
        return found


class SteppedLog:
    """A table's log of which every commit is a step of a run."""

    def __init__(self, log: Any, table: str, run: Stepper) -> None:
        self._log, self._table, self._run = log, table, run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def commit(self, *given: Any, **named: Any) -> None:
        self._run.step(f"commit {self._table}")
        self._log.commit(*given, **named)


def places(steps: list[str]) -> list[int]:
    """Where standing still differs: before each commit, before what is opened after one, and at the end."""
    after = [0, *(at + 1 for at, what in enumerate(steps) if what.startswith("commit"))]
    return sorted({*after, *(at - 1 for at in after[1:])})
