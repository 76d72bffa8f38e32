"""`spillway run`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from spillway.cli.output import command, say_json, say_line
from spillway.errors import SpillwayError, UsageError
from spillway.settings import Settings

if TYPE_CHECKING:
    from spillway.contracts import Contracts
    from spillway.engine import Engine
    from spillway.store.tables import Tables

ENGINES = ("process", "spark")


def add_run(commands: Any) -> None:
    made = command(
        commands,
        "run",
        "Bring what has landed all the way through, without Airflow: take in, train, shed, sketch, work out joins and "
        "queries, validate. Exits with 1 if a stream fails, a file is refused whole or a batch exceeds its channel.",
        ["spillway run", "spillway run --stream weather", "spillway run --channel cellular --engine spark"],
    )
    made.add_argument(
        "--now",
        action="store_true",
        help="also send the batches that wait for more to arrive (`batching:` of their contract)",
    )
    which = made.add_mutually_exclusive_group()
    which.add_argument("--stream", help="only this stream; others on its channel keep their part")
    which.add_argument("--channel", help="only the streams of this channel")
    add_engine(made)
    made.set_defaults(run=_run)


def add_engine(made: argparse.ArgumentParser) -> None:
    """`--engine`, for commands that bring rows through."""
    made.add_argument(
        "--engine",
        choices=ENGINES,
        default=ENGINES[0],
        help="process: in this process; spark: in Spark's tasks",
    )


def engine_of(asked: argparse.Namespace) -> AbstractContextManager[Engine]:
    """The engine that was asked for, while the block lasts."""
    if asked.engine == "spark":
        from spillway.engine.spark import spark_engine

        return spark_engine(f"spillway {asked.command}")
    from spillway.engine import InProcess

    return nullcontext(InProcess())


def _run(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_usable
    from spillway.job import run_name
    from spillway.pipeline.run import run_through
    from spillway.show.after_run import after_run
    from spillway.show.progress import Progress
    from spillway.show.report import build_report
    from spillway.store.tables import Tables

    settings = Settings.from_environment()
    contracts, tables, run_id = load_usable(settings.schemas), Tables(settings), run_name("run")
    streams = _streams(asked, contracts)
    progress = Progress.here(sys.stderr if asked.json else sys.stdout)
    progress.step(f"{', '.join(streams) or 'no stream has a contract'}")
    red: list[str] = []
    try:
        with engine_of(asked) as engine:
            run_through(tables, engine, contracts, streams, run_id, progress.detail, asked.now)
    except SpillwayError as problem:
        red = str(problem).splitlines()
    metrics = after_run(tables, contracts, progress.detail, red, run_id)
    report = build_report(tables.now(), f"{settings.build}/report.html")
    if asked.json:
        say_json({"ok": not red, "streams": streams, "failed": red, "report": report, "metrics": metrics})
        return 1 if red else 0
    progress.detail(f"report: {report}")
    _say_result(tables.now(), contracts, streams)
    for sentence in red:
        progress.failed(sentence)
    if not red:
        progress.step("done; see: spillway status")
    return 1 if red else 0


def _say_result(tables: Tables, contracts: Contracts, streams: Sequence[str]) -> None:
    from spillway.show.result import result_lines, run_result

    try:
        lines = result_lines(run_result(tables, contracts, streams))
    except SpillwayError as problem:
        lines = [f"the result cannot be shown: {problem}"]
    for line in ["", *lines, ""]:
        say_line(line)


def _streams(asked: argparse.Namespace, contracts: Contracts) -> list[str]:
    if asked.stream is not None:
        return [contracts.stream(asked.stream).stream]
    if asked.channel is None:
        return sorted(contracts.streams)
    if asked.channel not in contracts.channels:
        known = ", ".join(sorted(contracts.channels))
        raise UsageError(f"`--channel` must be one of {known}, got {asked.channel!r}; see channels.yaml")
    return [contract.stream for contract in contracts.streams_of(asked.channel)]
