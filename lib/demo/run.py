"""`make run`: the demo streams through the real DAGs, on local Spark and a local lake, in one command.

The output of Airflow and Spark goes to `build/logs`. On a terminal, the messages of jobs are shown as they come, each
in place of the one before; `VERBOSE=1` keeps them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from demo import airflow_home
from demo.guard import exit_on_signals, guarded_process
from demo.ownership import MARKER, other_streams
from demo.pipeline import STEP
from spillway.contracts import load_usable
from spillway.engine.spark_conf import SHORT_LIVED_JVM
from spillway.errors import SpillwayError
from spillway.report.overview import overview
from spillway.report.result import Progress, result_lines, run_result, workload_lines
from spillway.report.summary import write_run
from spillway.report.text import sentences
from spillway.settings import Settings
from spillway.store.tables import Tables

DAGS = ("spillway_train", "spillway_shed", "spillway_workloads", "spillway_validate")
TITLES = {
    "spillway_train": "Take in and learn the streams",
    "spillway_shed": "Shed to capacity, one application per channel",
    "spillway_workloads": "Join within a budget, answer queries that share a capacity",
    "spillway_validate": "Recover, validate, report",
}
REPLANNED = "planned again with the measured sizes"
"""How the lines end that stay in the log: they say how a plan was found; the screen shows the plan itself."""
SAID = re.compile(r"spillway: (.*)")
LOGGER = re.compile(r"\s+\[[\w.]+\](?:\s+\w+=\S+)*\s*$")
TROUBLE = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception|Run|Failed)): (.+)")


class StepFailed(SpillwayError):
    """A failed step: its name, the error sentence, and the path of the whole log."""


def job_message(line: str) -> str | None:
    """Return the message of a job to its users in a line of the log; None for all other lines.

    >>> job_message("2026-01-01T00:00:00Z [info     ] spillway: weather: took in 9 tuples   [airflow.hooks] loc=x:9")
    'weather: took in 9 tuples'
    >>> job_message("26/01/01 00:00:00 WARN NativeCodeLoader: nothing for people") is None
    True
    """
    found = SAID.search(line)
    return LOGGER.sub("", found.group(1)).rstrip() if found else None


def sentence(lines: Iterable[str]) -> str:
    """Return the error sentence of a failed log: the job's own, or the last error that Airflow reports.

    >>> sentence(["spillway: failed: `rate` must be known, got None; declare it", "ValueError: later"])
    '`rate` must be known, got None; declare it'

    >>> log = [
    ...     "spillway.errors.SpillwayError: `rate` must be known, got None; declare it",
    ...     "airflow.exceptions.AirflowException: Cannot execute: spark-submit",
    ... ]
    >>> sentence(log)
    '`rate` must be known, got None; declare it'
    """
    lines = list(lines)
    told = [text for line in lines if (text := job_message(line)) and text.startswith("failed: ")]
    if told:
        # a job that is told in several sentences says each on a line of its own
        return "\n".join(dict.fromkeys(text.removeprefix("failed: ") for text in told))
    errors = []
    for line in lines:
        found = TROUBLE.search(LOGGER.sub("", line))
        if found and not found.group(1).endswith(("AirflowException", "Py4JJavaError", "CalledProcessError")):
            errors.append((found.group(1), found.group(2).strip()))
    ours = [text for name, text in errors if name.startswith("spillway.")]
    return (ours or [text for _, text in errors] or ["no error was logged"])[-1]


def reset_lake(settings: Settings, ours: Collection[str], keep: bool) -> str:
    """Empty the demo's own lake, never another one; return a sentence that says what was done.

    A lake is the demo's own when it is a local folder that the demo made (it left a marker in it) and holds
    no other streams.
    """
    if "://" in settings.lake:
        return f"{settings.lake} is kept: only what is new is processed"
    lake = Path(settings.lake)
    marker = lake / MARKER
    if lake.is_dir() and any(lake.iterdir()):
        if not marker.is_file():
            return f"{settings.lake} is not the demo's and is kept: only what is new is processed"
        others = other_streams(lake, ours)
        if others:
            return f"the lake also holds {', '.join(others)} and is kept: only what is new is processed"
        if keep:
            return "the lake of the last run is kept: only what is new is processed"
        shutil.rmtree(lake)
    lake.mkdir(parents=True, exist_ok=True)
    marker.write_text("Made by `make run`, which may empty this folder.\n", encoding="utf-8")
    return f"a fresh lake in {settings.lake}"


def run_dags(env: Mapping[str, str], logs: Path, progress: Progress) -> dict[str, float]:
    """Run the DAGs in one Airflow process; return the seconds of each, or raise `StepFailed`."""
    logs.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}
    began = progress.elapsed()
    current = "airflow"
    lines: list[str] = []
    log = (logs / f"{current}.log").open("w", encoding="utf-8", buffering=1)
    pipes: dict[str, Any] = {"text": True, "encoding": "utf-8", "errors": "replace"}
    pipes |= {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = [sys.executable, "-m", "demo.pipeline", *DAGS]
    with guarded_process(command, env=dict(env), **pipes) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(f"{STEP} start "):
                log.close()
                current, began, lines = line.split()[2], progress.elapsed(), []
                log = (logs / f"{current}.log").open("w", encoding="utf-8", buffering=1)
                progress.step(TITLES.get(current, current))
            elif line.startswith(f"{STEP} end "):
                seconds[current.removeprefix("spillway_")] = progress.elapsed() - began
            else:
                log.write(line)
                lines.append(line)
                told = job_message(line)
                if told and not told.endswith(REPLANNED):
                    progress.detail(told)
        code = process.wait()
    log.close()
    if code:
        raise StepFailed(f"{current} failed: {sentence(lines)}\nthe whole log: {logs / (current + '.log')}")
    return seconds


def where_to_look(settings: Settings, figures: Mapping[str, float], streams: Iterable[str]) -> list[str]:
    """Return where the results are, and what to try next."""
    build = Path(settings.build)
    some = next(iter(streams), "weather")
    return [
        *sentences(
            f"{figures['expectations.run']:.0f} expectations, {figures['expectations.failed']:.0f} failed; "
            f"{figures['seconds.total']:.0f} s in all"
        ),
        "",
        f"  report   {build / 'report.html'}",
        f"  checks   {build / 'data_docs' / 'index.html'}",
        f"  tables   {settings.lake}",
        f"Details: .venv/bin/spillway status --details. Next: .venv/bin/spillway plan {some}, or make ui",
    ]


def main() -> int:
    from demo import data

    progress = Progress.for_stream(sys.stdout, verbose=os.environ.get("VERBOSE", "") not in ("", "0"))
    console = progress.console
    try:
        settings = Settings.from_environment()
        progress.step("Write the demo data")
        for stream, (files, written) in data.write_demo(settings.landing).items():
            progress.detail(f"{stream}: {files} landing files, {written} of them written now")
        progress.detail(reset_lake(settings, data.STREAMS, keep=os.environ.get("KEEP", "") not in ("", "0")))
        progress.step("Start Airflow")
        env = airflow_home.environment(settings)
        env.setdefault("SPILLWAY_JAVA_OPTIONS", SHORT_LIVED_JVM)
        if airflow_home.prepare(env):
            progress.detail(f"made its database in {env['AIRFLOW_HOME']}, once")
        with exit_on_signals():
            seconds = run_dags(env, Path(settings.build) / "logs", progress)
    except SpillwayError as problem:
        progress.failed(str(problem))
        return 1
    timings = {("validation" if name == "validate" else name): value for name, value in seconds.items()}
    tables = Tables(settings)
    seen = overview(tables)
    result = run_result(tables, load_usable(settings.schemas), data.STREAMS, seen.streams, rivals=True)
    more = seen.flat() | result.flat()
    figures = write_run(tables, timings | {"total": progress.elapsed()}, more)
    streams = [one.figures.stream for one in result.seen]
    progress.clear()
    screen = [*result_lines(result), *workload_lines(seen.workloads)]
    for line in ["", *screen, "", *where_to_look(settings, figures, streams)]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
