"""What every job does around its work: say what happens, fail with a sentence and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from spillway.batch import utc_now
from spillway.errors import SpillwayError

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
    """Run a job's `main`; an error Spillway raises on purpose is a sentence and exit code 1, not a stack."""
    try:
        main()
    except SpillwayError as problem:
        say(f"failed: {problem}")
        sys.exit(1)
