"""What every job does around its work: say what happens, fail with a sentence and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn, TypeVar

from spillway.clock import utc_now
from spillway.errors import Problem, SpillwayError

FAILURE_FILE = "SPILLWAY_FAILURE_FILE"
"""Environment variable: where a job that fails leaves its sentences, for whoever started it."""

One = TypeVar("One")
Made = TypeVar("Made")


def say(message: str) -> None:
    """A line of progress, marked so that it can be told from the engines' logs."""
    print(f"spillway: {message}", flush=True)


def run_name(step: str) -> str:
    """A name for a run that Airflow has not named."""
    return f"{step}-{utc_now():%Y%m%dT%H%M%S}"


def side_by_side(work: Callable[[One], Made], items: Sequence[One]) -> list[Made]:
    """`work` on every item, a few at a time: streams are independent, and most of a Delta commit is waiting.

    Every item is tried; the first error is raised at the end, so that one stream's fault keeps no other back.

    >>> side_by_side(lambda number: number * 2, [1, 2, 3])
    [2, 4, 6]
    """
    with ThreadPoolExecutor(max_workers=3) as pool:
        futures = [pool.submit(work, item) for item in items]
    return [future.result() for future in futures]


def run_job(main: Callable[[], None]) -> None:
    """Run a job's `main`; an error Spillway raises on purpose is its sentences and exit code 1, not a stack.

    Any other leaves its stack, and then a sentence as well. Who started the job (`spillway.airflow`) may have named a
    file to leave the sentences in.
    """
    try:
        main()
    except SpillwayError as problem:
        _fail(str(problem))
    except Exception as problem:
        traceback.print_exc()
        first = str(problem).strip().partition("\n")[0]
        rule, got = "end without an error that nobody foresaw", f"{type(problem).__name__}: {first}"
        remedy = "its stack stands above: report it; trying again is safe"
        _fail(str(Problem("", Path(sys.argv[0]).name, rule, got, remedy)))


def _fail(sentences: str) -> NoReturn:
    for line in sentences.splitlines():
        say(f"failed: {line}")
    note = os.environ.get(FAILURE_FILE)
    if note:
        Path(note).write_text(sentences + "\n", encoding="utf-8")
    sys.exit(1)
