"""Run a program, and end all of its processes when the block ends.

Airflow starts a scheduler, a server, workers and Spark. Some of them have sessions of their own, so a signal to their
parent does not reach them. All inherit an environment variable (`MARK`) that is unique to the program, and are found
by it, also if their parent has ended.

Guarantee: no process of the program exists after the block of `guarded_process`, however the block ends. If the process
that entered the block is killed (SIGKILL), they stay.

>>> import sys
>>> with guarded_process([sys.executable, "-c", "print(7)"], stdout=subprocess.PIPE, text=True) as process:
...     print(process.communicate()[0].strip())
7
"""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import psutil

GRACE_SECONDS = 10.0
"""How long processes that were asked to end may take before they are killed."""
MARK = "SPILLWAY_STARTED_BY"
_ASKED_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def guarded_process(
    command: Sequence[str],
    grace_seconds: float = GRACE_SECONDS,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> Iterator[subprocess.Popen[Any]]:
    """Start the program in a session of its own, with the arguments of `subprocess.Popen`."""
    mark = uuid.uuid4().hex
    # SPT_NOENV: programs that set their title, as Airflow does, leave their environment readable
    environment = {**(os.environ if env is None else env), "SPT_NOENV": "1"}
    environment[MARK] = os.environ.get(MARK, "") + mark
    process = subprocess.Popen(list(command), env=environment, start_new_session=True, **options)
    try:
        yield process
    finally:
        while left := _marked_processes(mark):
            for one in left:
                with suppress(psutil.NoSuchProcess):
                    one.terminate()
            for one in psutil.wait_procs(left, grace_seconds)[1]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        process.wait()


def _marked_processes(mark: str) -> list[psutil.Process]:
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if mark in one.environ().get(MARK, "") and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


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
