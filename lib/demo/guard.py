"""Run a program, and end all of its processes when it or its caller ends.

Airflow starts a scheduler, a server, workers and Spark. These processes have their own sessions, so a signal to their
parent does not reach them. The guard is a process that starts the program, adopts its orphaned processes (Linux: child
subreaper), and watches a pipe whose other end the caller holds. Nothing is written to the pipe; it closes when the
caller ends, also by SIGKILL. Then, or when the program ends, the guard sends SIGTERM to every process of the program,
and SIGKILL to those that do not end.

Guarantee: no process of the program exists after the block of `guarded_process`. If the process that entered the block
is killed, they end within `GRACE_SECONDS` plus the time of the system. Without a subreaper (macOS), this holds only for
the processes of the program's own group. A guard that is itself killed by SIGKILL takes the program's first process
with it (Linux: parent death signal), and no other.

>>> with guarded_process([sys.executable, "-c", "print(7)"], stdout=subprocess.PIPE, text=True) as process:
...     print(process.communicate()[0].strip())
7
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

GRACE_SECONDS = 10.0
"""How long processes that were asked to end may take before they are ended."""
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
_LOOK_SECONDS = 0.1
_ASKED_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def guarded_process(
    command: Sequence[str], grace_seconds: float = GRACE_SECONDS, **told: Any
) -> Iterator[subprocess.Popen[Any]]:
    """Start the program under a guard, with the arguments of `subprocess.Popen`; its exit code is the program's."""
    watched, held = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", __file__, str(watched), str(grace_seconds), *command],
            pass_fds=(watched,),
            start_new_session=True,
            **told,
        )
    except BaseException:
        os.close(held)
        raise
    finally:
        os.close(watched)
    try:
        yield process
    finally:
        os.close(held)
        process.wait()


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise an exception on a request to end, until the block ends, so that all blocks clean up.

    Also where a shell started us in the background, and so deaf to SIGINT.
    """

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in _ASKED_TO_END}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _prctl(option: int, value: int) -> bool:
    """Set a process option of Linux; return whether it succeeded."""
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)


def _descendants() -> list[int]:
    """Return all running processes below this one, from the system's list."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # the name stands in brackets and may hold anything
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in ("Z", "X"):
                children.setdefault(int(parent), []).append(int(folder.name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        mine = children.get(waiting.pop(), [])
        found += mine
        waiting += mine
    return found


class _Guard:
    def __init__(self, watched: int, grace_seconds: float, command: Sequence[str]) -> None:
        self.watched, self.grace_seconds, self.command = watched, grace_seconds, command
        self.adopts = _prctl(_SET_CHILD_SUBREAPER, 1)
        self.code: int | None = None

    def run(self) -> int:
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        for number in (*_ASKED_TO_END, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        end_with_me = partial(_prctl, _SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        self.child = subprocess.Popen(list(self.command), preexec_fn=end_with_me, process_group=0)
        with selectors.DefaultSelector() as selector:
            selector.register(self.watched, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while self.code is None:
                ready = {key.fd for key, _ in selector.select()}
                if self.watched in ready or self._reap() or _is_end_requested(woken, ready):
                    break
        self._end_all()
        return self.code if self.code is not None else 128 + signal.SIGTERM

    def _reap(self) -> bool:
        """Reap ended processes; return whether the program itself has ended."""
        with suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    break
                if process == self.child.pid:
                    self.code = self.child.returncode = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def _left(self) -> list[int]:
        self._reap()
        if self.adopts:
            return _descendants()
        return [self.child.pid] if self.code is None else []

    def _end_all(self) -> None:
        asked: set[int] = set()
        deadline = time.monotonic() + self.grace_seconds
        while left := self._left():
            late = time.monotonic() > deadline
            for one in left if late else [one for one in left if one not in asked]:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL if late else signal.SIGTERM)
            asked.update(left)
            time.sleep(_LOOK_SECONDS)
        if not self.adopts:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child.pid, signal.SIGKILL)


def _is_end_requested(woken: int, ready: set[int]) -> bool:
    """Return whether a signal that requests the end has arrived."""
    return woken in ready and any(number in _ASKED_TO_END for number in os.read(woken, 4096))


if __name__ == "__main__":
    code = _Guard(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]).run()
    sys.exit(code if code >= 0 else 128 - code)
