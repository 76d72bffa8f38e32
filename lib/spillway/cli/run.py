"""Implement `spillway run`, `spillway resend`, `spillway exempt` and `spillway replay`.

`resend STREAM --from D --to D` sends the exact tuples of some dates. `exempt STREAM --until T --reason R`
suspends the shedding of a stream. `replay STREAM` reads rejected data again, after its contract or its file was
fixed.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from spillway.cli.output import add_command, jsonable, parse_date, print_json, print_line
from spillway.errors import SpillwayError, UsageError, escape_text, format_count
from spillway.settings import Settings

if TYPE_CHECKING:
    from spillway.contracts import Contracts
    from spillway.engine import Engine
    from spillway.report.result import Progress
    from spillway.store.tables import Tables

ENGINES = ("process", "spark")
AUTO = "auto"
MOST_FAILURES = 3
"""The most failures that the last screen names."""
AUTO_VALUES = 40_000_000
"""The values (rows x attributes) from which `--engine auto` uses Spark: two cores then save more time than the start of
Spark takes. An estimate; `make bench` prints the value for a machine (`engine.auto_values`)."""


def add_run(commands: Any) -> None:
    made = add_command(
        commands,
        "run",
        "Process the landed files without Airflow: take in, train, shed, sketch, compute joins and queries, validate. "
        "The exit code is 1 if a stream fails, a file is refused or a batch exceeds its channel.",
        [
            "spillway run",
            "spillway run --stream weather",
            "spillway run --channel cellular --engine spark",
            "spillway run --every 30s   # until Ctrl-C",
        ],
    )
    made.add_argument(
        "--every",
        type=_seconds,
        metavar="TIME",
        help="start a run every TIME (10s, 5m) in one process; SIGINT or SIGTERM ends the process between two "
        "steps; an error does not end it",
    )
    made.add_argument(
        "--now",
        action="store_true",
        help="also send batches that wait to be sent together (`batching:` in the contract)",
    )
    which = made.add_mutually_exclusive_group()
    which.add_argument("--stream", help="only this stream; the other streams of its channel keep their share")
    which.add_argument("--channel", help="only the streams of this channel")
    made.add_argument(
        "--engine",
        choices=(AUTO, *ENGINES),
        default=AUTO,
        help="process: in this process; spark: in tasks of Spark; auto: in tasks of Spark if at least 40 million "
        "values wait (default: auto)",
    )
    made.add_argument("--verbose", action="store_true", help="print a line for each step of each stream")
    made.set_defaults(run=_run)


def add_engine(made: argparse.ArgumentParser) -> None:
    """Add the option `--engine` to a command."""
    made.add_argument(
        "--engine",
        choices=ENGINES,
        default=ENGINES[0],
        help="process: in this process; spark: in tasks of Spark (default: process)",
    )


def chosen_engine(tables: Tables, contracts: Contracts, streams: Sequence[str]) -> str:
    """Return the engine for `--engine auto`: Spark if at least `AUTO_VALUES` values wait and Spark can start."""
    from spillway.doctor.java import find_java
    from spillway.pipeline.pending import waiting_values

    if waiting_values(tables, contracts, streams) < AUTO_VALUES:
        return "process"
    connected = os.environ.get("SPILLWAY_MASTER", "").startswith("sc://")
    return "spark" if connected or find_java() is not None else "process"


def engine_of(asked: argparse.Namespace) -> AbstractContextManager[Engine]:
    """Return a context manager with the requested engine."""
    if asked.engine == "spark":
        from spillway.engine.spark import spark_engine

        return spark_engine(f"spillway {asked.command}")
    from spillway.engine import ProcessEngine

    return nullcontext(ProcessEngine())


def _seconds(text: str) -> float:
    """Parse a time of the command line.

    >>> _seconds("30s"), _seconds("1.5m"), _seconds("10")
    (30.0, 90.0, 10.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", text)
    seconds = float(found[1]) * {"s": 1, "m": 60, "h": 3600, None: 1}[found[2]] if found else 0.0
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"must be a time like 30s, 5m or 1h, got {text!r}")
    return seconds


class StopSignal:
    """Returns true after the process got SIGINT or SIGTERM. The second signal ends the process at once."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def listen(self) -> None:
        """Handle the signals from now on; call it again after a library that handles them too was started."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, _: object) -> None:
        if self._asked.is_set():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._asked.set()

    def __call__(self) -> bool:
        return self._asked.is_set()

    def wait(self, seconds: float) -> None:
        """Wait for the signal, at most some seconds."""
        self._asked.wait(max(0.0, seconds))


SECONDS_BETWEEN_REPORTS = 60.0
"""With `--every`: while runs have work, metrics, alerts and the report are written at most this often."""


class _Loop:
    """Runs of `spillway run --every` in one process, which share kernels, caches and, on Spark, the session."""

    def __init__(self, asked: argparse.Namespace, settings: Settings, progress: Progress) -> None:
        from spillway.store.tables import Tables

        self.asked, self.settings, self.progress = asked, settings, progress
        self.stopped = StopSignal()
        self.tables = Tables(settings)
        self._said: set[str] = set()
        self._saying: set[str] = set()
        self._alerted: list[str] = []
        self._reported_at = -math.inf
        self._is_due = True

    def run(self) -> None:
        """Run until a signal ends it. If Spark is lost, it is started again."""
        self.stopped.listen()
        while not self.stopped():
            try:
                with engine_of(self.asked) as engine:
                    self._run_on(engine)
            except (
                Exception
            ) as problem:  # a lost session raises many kinds of errors, also when it is stopped
                self._say(f"the engine is started again: {escape_text(str(problem), 2000)}")
                self.stopped.wait(self.asked.every)
        self.progress.step("stopped between two steps; spillway run continues")

    def _run_on(self, engine: Engine) -> None:
        """Run until a signal ends it, or until the engine fails."""
        from spillway.checks import load_in_background

        engine.map(abs, [1])  # starts Spark now, and not when the first file has landed
        self.stopped.listen()
        load_in_background()
        while not self.stopped():
            began = time.monotonic()
            if self._run_once(engine):
                engine.map(abs, [1])
            self.stopped.wait(self.asked.every - (time.monotonic() - began))

    def _run_once(self, engine: Engine) -> list[str]:
        """Run once, and return the sentences of what failed."""
        from spillway.contracts import load_usable
        from spillway.job import run_name
        from spillway.pipeline.run import run_streams

        self._said, self._saying = self._saying, set()
        before, red, run_id = self._versions(), list[str](), run_name("run")
        try:
            contracts = load_usable(self.settings.schemas)
            streams = _streams(self.asked, contracts)
            run_streams(
                self.tables,
                engine,
                contracts,
                streams,
                run_id,
                self._say,
                self.asked.now,
                self.stopped,
            )
        except SpillwayError as problem:
            red = str(problem).splitlines()
        except Exception as problem:
            red = [
                f"unexpected {type(problem).__name__}: {escape_text(str(problem), 2000)}; the next run tries again"
            ]
        for sentence in red:
            self._say(sentence, self.progress.failed)
        has_worked = self._versions() != before
        self._is_due |= has_worked or red != self._alerted
        self._report(red, has_worked, run_id)
        return red

    def _say(self, line: str, how: Callable[[str], None] | None = None) -> None:
        """Print a line, unless the run before printed it too."""
        self._saying.add(line)
        if line not in self._said:
            (how or self.progress.detail)(line)

    def _versions(self) -> tuple[int, ...]:
        """Return the versions of the tables that every run with work writes."""
        try:
            now = self.tables.now()
            return tuple(now.at(name).version for name in ("batches", "windows", "rejected"))
        except SpillwayError:
            return ()

    def _report(self, red: list[str], has_worked: bool, run_id: str) -> None:
        """Write metrics, alerts and the report if something changed; if runs have work all the time, now and then."""
        from spillway.contracts import load_usable
        from spillway.report.metrics import alert_and_write_metrics
        from spillway.report.page import refresh_report

        is_early = time.monotonic() - self._reported_at < SECONDS_BETWEEN_REPORTS
        waits = has_worked and is_early and red == self._alerted
        if not self._is_due or waits or self.stopped():
            return
        try:
            fresh = [sentence for sentence in red if sentence not in self._alerted]
            contracts = load_usable(self.settings.schemas)
            alert_and_write_metrics(self.tables, contracts, self._say, fresh, run_id)
            refresh_report(self.tables.now(), f"{self.settings.build}/report.html")
        except Exception as problem:  # a report that cannot be written ends no run
            self._say(f"the report cannot be written: {problem}")
        self._alerted, self._is_due, self._reported_at = red, False, time.monotonic()


def _run(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_usable
    from spillway.job import run_name
    from spillway.pipeline.run import run_streams
    from spillway.report.metrics import alert_and_write_metrics
    from spillway.report.page import refresh_report
    from spillway.report.result import Progress
    from spillway.store.tables import Tables

    if asked.every is not None and asked.json:
        raise UsageError(
            "`--json` must be absent with --every, which has no end to report; see: spillway status"
        )
    settings = Settings.from_environment()
    contracts, tables, run_id = load_usable(settings.schemas), Tables(settings), run_name("run")
    streams = _streams(asked, contracts)
    stream, verbose = sys.stderr if asked.json else sys.stdout, asked.verbose or asked.every is not None
    progress = Progress.for_stream(stream, verbose)
    progress.step(_named(streams))
    if asked.engine == AUTO:
        asked.engine = chosen_engine(tables.now(), contracts, streams)
        progress.detail(f"engine: {asked.engine}")
    if asked.every is not None:
        _Loop(asked, settings, progress).run()
        return 0
    red: list[str] = []
    try:
        with engine_of(asked) as engine:
            run_streams(tables, engine, contracts, streams, run_id, progress.detail, asked.now)
    except SpillwayError as problem:
        red = str(problem).splitlines()
    progress.detail("writing metrics and the report")
    metrics = alert_and_write_metrics(tables, contracts, progress.detail, red, run_id)
    report = refresh_report(tables.now(), f"{settings.build}/report.html")
    progress.clear()
    if asked.json:
        print_json({"ok": not red, "streams": streams, "failed": red, "report": report, "metrics": metrics})
        return 1 if red else 0
    _say_result(tables.now(), contracts, streams)
    for sentence in red[:MOST_FAILURES]:
        print_line(f"FAILED: {sentence}", "bold red")
    if len(red) > MOST_FAILURES:
        print_line(f"and {len(red) - MOST_FAILURES:,} more failures: spillway status", "bold red")
    print_line(f"Report: {report}. Details: spillway status")
    return 1 if red else 0


def _named(streams: Sequence[str]) -> str:
    """Return the streams of a run by name, or how many there are."""
    if not streams:
        return "No stream has a contract"
    return ", ".join(streams) if len(streams) <= 8 else format_count(len(streams), "stream")


def _say_result(tables: Tables, contracts: Contracts, streams: Sequence[str]) -> None:
    from spillway.report.result import result_lines, run_result

    try:
        lines = result_lines(run_result(tables, contracts, streams))
    except SpillwayError as problem:
        lines = [f"the result cannot be shown: {problem}"]
    print("\n".join([*lines, ""]))


def _streams(asked: argparse.Namespace, contracts: Contracts) -> list[str]:
    if asked.stream is not None:
        return [contracts.stream(asked.stream).stream]
    if asked.channel is None:
        return sorted(contracts.streams)
    if asked.channel not in contracts.channels:
        known = ", ".join(sorted(contracts.channels))
        raise UsageError(f"`--channel` must be one of {known}, got {asked.channel!r}; see channels.yaml")
    return [contract.stream for contract in contracts.streams_of(asked.channel)]


def add_resend(commands: Any) -> None:
    made = add_command(
        commands,
        "resend",
        "Send the exact tuples of a range of batch dates again. Their raw tuples must still exist. The bytes "
        "count against the capacity.",
        [
            "spillway resend weather --from 2013-02-28",
            "spillway resend weather --from 2013-01-31 --to 2013-02-28",
        ],
    )
    made.add_argument("stream", help="a stream with a contract")
    made.add_argument("--from", dest="first", type=parse_date, required=True, help="first batch date")
    made.add_argument("--to", dest="last", type=parse_date, help="last batch date (default: the first)")
    add_engine(made)
    made.set_defaults(run=_run_resend)


def _run_resend(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_usable
    from spillway.pipeline.resend import resend
    from spillway.report.result import Progress
    from spillway.store.tables import Tables

    settings = Settings.from_environment()
    contracts, dates = load_usable(settings.schemas), (asked.first, asked.last or asked.first)
    with (
        Progress.for_stream(sys.stderr if asked.json else sys.stdout) as progress,
        engine_of(asked) as engine,
    ):
        done = resend(Tables(settings), engine, contracts, asked.stream, dates, progress.detail)
    numbers = [batch.batch for batch in done]
    if asked.json:
        print_json(
            {"stream": asked.stream, "batches": numbers, "tuples": sum(batch.rows or 0 for batch in done)}
        )
    else:
        what = (
            f"batch {', '.join(map(str, numbers))} sent again, whole" if numbers else "all rows had been sent"
        )
        print_line(f"{asked.stream}: {what}; spillway run, or the nightly validation, compares it with raw")
    return 0


def add_exempt(commands: Any) -> None:
    made = add_command(
        commands,
        "exempt",
        "Suspend the shedding of a stream until a given time. It applies from the next batch. The bytes still "
        "count against the capacity.",
        [
            "spillway exempt weather --until 2030-01-01 --reason 'the audit wants every digit'",
            "spillway exempt weather --until now --reason 'the audit is over'   # end the exemption",
        ],
    )
    made.add_argument("stream", help="a stream with a contract")
    made.add_argument(
        "--until", required=True, help="ISO date or time, in UTC if it has no offset; now: end the exemption"
    )
    made.add_argument("--reason", required=True, help="reason, shown in the ledger and by spillway status")
    made.set_defaults(run=_run_exempt)


def _run_exempt(asked: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from spillway.clock import utc_now
    from spillway.contracts import load_usable
    from spillway.store.tables import Tables
    from spillway.streams.exemptions import exempt

    settings, now = Settings.from_environment(), utc_now()
    contract = load_usable(settings.schemas).stream(asked.stream)
    if asked.until == "now":
        until = now
    else:
        try:
            until = datetime.fromisoformat(asked.until)
        except ValueError:
            raise UsageError(
                f"`--until` must be a date or time like 2026-02-01T12:00, got {asked.until!r}; correct it"
            ) from None
        until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
        if until <= now:
            raise UsageError(
                f"`--until` must be later than now, got {asked.until!r}; to end the exemption, write --until now"
            )
    found = exempt(Tables(settings), contract.stream, until, asked.reason, now)
    if asked.json:
        print_json(found)
    elif until == now:
        print_line(f"{contract.stream} is no longer exempt: its next batch is shed by its contract")
    else:
        print_line(f"{contract.stream} is {found.sentence}. From its next batch on, nothing of it is shed.")
    return 0


def add_replay(commands: Any) -> None:
    made = add_command(
        commands,
        "replay",
        "Take in refused files and rejected rows again, and retry quarantined batches. No tuple is taken in "
        "twice.",
        [
            "spillway replay weather",
            "spillway replay weather --file 2013-02-28/weather-2013-02.jsonl",
            "spillway replay weather --reason 'origin must be' --date 2013-02-28",
        ],
    )
    made.add_argument("stream", help="a stream with a contract")
    made.add_argument("--file", help="only this landing file; the name, or the end of its path")
    made.add_argument("--reason", help="only rejections whose reason contains this text")
    made.add_argument("--date", type=parse_date, help="only this batch date")
    made.set_defaults(run=_run_replay)


def _run_replay(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_usable
    from spillway.engine import ProcessEngine
    from spillway.intake.replay import Selection, replay
    from spillway.job import run_name
    from spillway.store.tables import Tables

    settings = Settings.from_environment()
    contract = load_usable(settings.schemas).stream(asked.stream)
    selection = Selection(asked.file, asked.reason, asked.date)
    said: list[str] = []
    tell = said.append if asked.json else print_line
    done = replay(Tables(settings), ProcessEngine(), contract, selection, run_name("replay"), tell)
    found = {
        "files": done.files,
        "records": done.records,
        "batches": [one.batch for one in done.batches],
        "reopened": list(done.reopened),
        "tuples": sum(one.rows or 0 for one in done.batches),
        "rejected": sum(one.rejected or 0 for one in done.batches),
    }
    if asked.json:
        print_json(jsonable(found))
    elif not (done.files or done.records or done.batches or done.reopened):
        print_line(f"{contract.stream}: nothing to replay matches these options")
    else:
        print_line(
            f"{contract.stream}: {done.files:,} files and {done.records:,} records replayed: {found['tuples']:,} "
            f"tuples taken in, {found['rejected']:,} refused again; spillway run (or the DAG "
            "spillway_shed) brings them through"
        )
    return 0
