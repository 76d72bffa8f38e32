"""Run work in processes forked from this one, with modules loaded and kernels compiled.

The parent process must not have used a Delta table or a thread before it forks, because the threads of a library do
not run in the child.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spillway.errors import SpillwayError

SENTENCE, BROKEN = 3, 4
PATIENCE_SECONDS, WORKER_PATIENCE_SECONDS = 300.0, 7200.0


@dataclass(frozen=True)
class ProcessEnd:
    """The end of a process: its exit code (negative: the signal), and its message."""

    code: int
    said: str
    seconds: float

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def is_a_sentence(self) -> bool:
        """Whether it succeeded or stopped with an error sentence: no traceback, no signal, no timeout."""
        return self.code in (0, SENTENCE) and (self.code == 0) == (not self.said)


class Child:
    """A process that does some work and ends."""

    def __init__(self, work: Callable[[], object], said: Path, quiet: bool = True) -> None:
        self._said = said
        said.unlink(missing_ok=True)
        self._started = time.monotonic()
        self._pid = os.fork()
        if self._pid == 0:
            _live(work, said, quiet)
        self._handle = os.pidfd_open(self._pid)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the process has ended."""
        return self._handle

    def wait(self, kill_after: float | None = None, patience: float = PATIENCE_SECONDS) -> ProcessEnd:
        """Wait for its end, or kill it `kill_after` seconds after its start."""
        patience = patience if kill_after is None else kill_after
        left = self._started + patience - time.monotonic()
        alive, _, _ = select.select([self._handle], [], [], max(0.0, left))
        if not alive:
            os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        os.close(self._handle)
        code = os.waitstatus_to_exitcode(status)
        said = self._said.read_text(encoding="utf-8") if self._said.exists() else ""
        return ProcessEnd(code, said, time.monotonic() - self._started)


def run_forked(
    work: Callable[[int], list[str]], numbers: Sequence[int], folder: Path, workers: int = 2
) -> list[str]:
    """Return the message of `work` for every number, each in its own process, in the order of the numbers."""
    children = []
    for place in range(workers):
        mine, told = numbers[place::workers], folder / f"told-{place}.json"

        def share(mine: Sequence[int] = mine, told: Path = told) -> None:
            told.write_text(json.dumps({number: work(number) for number in mine}), encoding="utf-8")

        children.append((Child(share, folder / f"said-worker-{place}", quiet=False), told))
    found: dict[int, list[str]] = {}
    for child, told in children:
        ended = child.wait(patience=WORKER_PATIENCE_SECONDS)
        if ended.code:
            raise RuntimeError(f"who tortures must end well, got {ended.code}: {ended.said}")
        found |= {
            int(number): lines for number, lines in json.loads(told.read_text(encoding="utf-8")).items()
        }
    return [line for _, lines in sorted(found.items()) for line in lines]


def _live(work: Callable[[], object], said: Path, quiet: bool) -> None:
    code = 0
    try:
        if quiet:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
        work()
    except SpillwayError as problem:
        code = SENTENCE
        said.write_text(str(problem) or "(no word)", encoding="utf-8")
    except BaseException:
        code = BROKEN
        said.write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os._exit(code)
