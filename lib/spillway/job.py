"""Run a job: print progress, and on failure print a sentence and exit with code 1."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn, TypeVar

from spillway.clock import utc_now
from spillway.engine.task_errors import cause_of
from spillway.errors import Problem, SpillwayError

FAILURE_FILE = "SPILLWAY_FAILURE_FILE"
"""Environment variable: the file in which a failing job leaves its error messages for the process that started it."""

One = TypeVar("One")
Made = TypeVar("Made")


def say(message: str) -> None:
    """Print a line of progress with a prefix that distinguishes it from the engines' logs."""
    print(f"spillway: {message}", flush=True)


def run_name(step: str) -> str:
    """Return a name for a run that Airflow has not named."""
    return f"{step}-{utc_now():%Y%m%dT%H%M%S}"


def map_in_threads(work: Callable[[One], Made], items: Sequence[One]) -> list[Made]:
    """Call `work` on every item in three threads: streams are independent, and a Delta commit mostly waits.

    Every item is tried. The first error is raised at the end, so that a fault of one stream does not stop the
    others.

    >>> map_in_threads(lambda number: number * 2, [1, 2, 3])
    [2, 4, 6]
    """
    with ThreadPoolExecutor(max_workers=3) as pool:
        futures = [pool.submit(work, item) for item in items]
    return [future.result() for future in futures]


def run_job(main: Callable[[], None]) -> None:
    """Run a job's `main`; on an error exit with code 1.

    For an error that Spillway raises on purpose, only its sentences are printed. For any other error, the stack
    trace is printed, followed by a sentence. If the environment variable `FAILURE_FILE` names a file, the
    sentences are also written there; `spillway.airflow` sets it.
    """
    try:
        main()
    except SpillwayError as problem:
        _fail(str(problem))
    except Exception as problem:
        traceback.print_exc()
        rule, got = "end without an unexpected error", cause_of(problem)
        remedy = "its stack stands above: report it; trying again is safe"
        _fail(str(Problem("", Path(sys.argv[0]).name, rule, got, remedy)))


def _fail(sentences: str) -> NoReturn:
    for line in sentences.splitlines():
        say(f"failed: {line}")
    note = os.environ.get(FAILURE_FILE)
    if note:
        Path(note).write_text(sentences + "\n", encoding="utf-8")
    sys.exit(1)
