"""What every job does around its work: say what happens, fail with a sentence and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

from spillway.errors import SpillwayError
from spillway.lake.batches import utc_now


def say(message: str) -> None:
    """A line of progress, marked so that it can be told from the engines' logs."""
    print(f"spillway: {message}", flush=True)


def run_name(step: str) -> str:
    """A name for a run that Airflow has not named."""
    return f"{step}-{utc_now():%Y%m%dT%H%M%S}"


def run_job(main: Callable[[], None]) -> None:
    """Run a job's `main`; an error Spillway raises on purpose is a sentence and exit code 1, not a stack."""
    try:
        main()
    except SpillwayError as problem:
        say(f"failed: {problem}")
        sys.exit(1)
