"""Make the frozen lake by the `spillway` command, at fixed times, and record what it prints. Not a test.

The lake is made by the command line, by contracts on disk (`tests/frozen/schemas`) and by landing files. The product's
modules that are imported stand in `prepare_product` and `run_command`, so that moving modules leaves the rest as it is.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from tests.frozen import inputs

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = Path(__file__).parent / "schemas"
START = datetime(2026, 1, 4, 6, tzinfo=UTC)
"""Time of the first command; each command is an hour later, and its clock stands still."""
TOYS = {"thin": "tests.levers.thin", "failing": "tests.levers.failing"}
"""Levers of the tests that contracts of the frozen lake name."""
ROOTS = ("lake", "destination", "landing", "build", "output", "schemas")


def prepare_product() -> None:
    """Register the levers of the tests."""
    from spillway.registry import LEVERS

    LEVERS.update(TOYS)


def run_command(arguments: list[str], moment: datetime) -> tuple[int, str]:
    """Run the `spillway` command in this process at a moment; return its exit code and what it printed.

    If it prints JSON, what it logs to standard error in addition is left out: its order depends on threads.
    """
    from spillway.cli import main
    from spillway.clock import use_clock

    said, logged = io.StringIO(), io.StringIO()
    errors = logged if "--json" in arguments else said
    with use_clock(lambda: moment), contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        try:
            code = main(arguments)
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return code, said.getvalue()


def die_in_command(arguments: list[str], moment: datetime, table: str, place: str) -> None:
    """Run the command, and kill this process at its first commit to a table, `place` (before or after) the commit."""
    from deltalake import DeltaTable

    commit = DeltaTable.create_write_transaction

    def commit_and_die(self: Any, *given: Any, **named: Any) -> None:
        last = self.table_uri.rstrip("/").endswith(f"/{table}")
        if last and place == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self, *given, **named)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    DeltaTable.create_write_transaction = commit_and_die
    prepare_product()
    run_command(arguments, moment)


class FrozenLake:
    """A lake in a folder of its own, and by command its exit code and the lines that it printed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.exit_codes: dict[str, int] = {}
        self.lines: dict[str, list[str]] = {}
        self._count = 0
        self._later = timedelta()

    @property
    def environment(self) -> dict[str, str]:
        """The roots, all in the folder, and what could change words or times."""
        found = {f"SPILLWAY_{name.upper()}": str(self.folder / name) for name in ROOTS}
        return {**found, "SPILLWAY_HOME": str(ROOT), "TZ": "UTC", "COLUMNS": "160", "NO_COLOR": "1"}

    @property
    def moment(self) -> datetime:
        """The time of the present command."""
        return START + timedelta(hours=self._count) + self._later

    def make(self) -> None:
        """Make the lake from nothing."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(SCHEMAS, self.folder / "schemas")
        for name in ("landing", "build"):
            (self.folder / name).mkdir()
        os.environ.update(self.environment)
        prepare_product()
        landing = self.folder / "landing"
        self._look_at_nothing()
        inputs.first_day(landing)
        self.run("run", "--json")
        inputs.second_day(landing)
        self.run_killed("destination/transmitted/sites", "before", "run", "--stream", "sites")
        self.run_killed("lake/ledger", "after", "run", "--stream", "meters")
        self.run("run", "--json")
        self.run("run", "--json")  # the batch of `crashing` fails a second time
        with self.contract("crashing") as contract:
            contract["levers"][0]["at"] = "nowhere"
        with self.contract("awkward") as contract:
            contract["unknown_fields"] = "note"
        self.run("replay", "crashing", "--json")
        self.run("replay", "awkward", "--json")
        self.run("exempt", "meters", "--until", "2026-01-08", "--reason", "an audit", "--json")
        with self.contract("sites") as contract:
            contract["attributes"].append({"name": "wind", "type": "double", "error_pct": 2.0})
            contract["levers"][0]["treatments"] = ["keep", "round"]
        inputs.third_day(landing)
        self.run("run", "--json")
        self.run("resend", "sites", "--from", "2026-01-02", "--json")
        self.run("run", "--now", "--json")
        self._look_at_all()
        self._keep()

    def _look_at_nothing(self) -> None:
        """Run commands on an empty lake, and commands that are refused."""
        self.run("contracts", "check")
        self.run("contracts", "check", "--json")
        with self.contract("polls") as contract:
            contract["mode"], contract["colour"] = "drop", "red"
        self.run("contracts", "check")
        self.run("contracts", "check", "--json")
        shutil.copy(SCHEMAS / "streams" / "polls.yaml", self.folder / "schemas" / "streams")
        self.run("status")
        self.run("plan", "sites")
        self.run("explain", "sites", "temp")
        self.run("explain", "nobody", "temp")
        self.run("run", "--stream", "nobody")
        self.run("run", "--channel", "nowhere")
        self.run("run", "--no-such-option")
        self.run("no-such-command")
        self.run("exempt", "sites", "--until", "yesterday", "--reason", "none")

    def _look_at_all(self) -> None:
        """Run the commands that read."""
        for stream, attribute in (
            ("sites", "temp"), ("sites", "level"), ("sites", "sky"), ("sites", "wind"), ("meters", "count"),
            ("classic", "pulses"), ("watched", "temp"), ("logs", "latency"), ("thinned", "level"), ("awkward", "note"),
            ("polls", "power"), ("small", "temp"), ("orders", "amount"),
        ):  # fmt: skip
            self.run("explain", stream, attribute)
        self.run("explain", "sites", "temp", "--json")
        self.run("explain", "logs", "latency", "--json")
        for name in ("sites", "alike", "same_level", "mean_temp", "alarms", "nobody"):
            self.run("explain", name)
        self.run("status", "--details")
        self.run("status", "--json")
        self.run("status", "--metrics", str(self.folder / "build" / "frozen.prom"))
        metrics = (self.folder / "build" / "frozen.prom").read_text(encoding="utf-8")
        self.lines["metrics"] = self._normal(metrics)
        self.run("plan", "sites")
        self.run("plan", "narrow", "--capacity", "6 kbps")
        self.run("plan", "logs", "--json")
        self.run("plan", "sites", "--batch", "soon")
        self.run("what-if", "desk", "--capacity", "300", "--json")
        self.run("ask", "sites")
        self.run("ask", "sites", "site", "frequency", "site-3")
        self.run("ask", "sites", "temp", "quantile", "0.5", "0.9", "--json")
        self.run("ask", "sites", "site+sky", "distinct")
        self.run("ask", "sites", "site", "no-such-question")
        self.run("recover", "sites", "--attributes", "temp,level", "--from-seq", "40", "--to-seq", "60")
        self.run("recover", "logs", "--key", "host=web-1", "--from-seq", "1", "--to-seq", "90", "--json")
        self.run("recover", "thinned", "--seq", "9")
        self.run("recover", "nobody", "--seq", "9")
        self.run("join-advice", "east", "west", "--on", "tags", "--lasts", "20", "--predicate", "overlap",
                 "--threshold", "2")  # fmt: skip
        self.run("migrate", "--dry-run")
        self.run("report", "--json")

    def _keep(self) -> None:
        """Retire raw rows four days later, maintain the lake, and look at it again."""
        self._later = timedelta(days=4)
        self.run("run", "--json")
        self.run("keep", "--dry-run", "--json")
        self.run("keep", "--json")
        self.run("status")

    def run(self, *arguments: str) -> int:
        """Run a command at its time, and record its exit code and its lines."""
        self._count += 1
        name = self._name(self._without_folder(" ".join(arguments)))
        code, text = run_command(list(arguments), self.moment)
        self.exit_codes[name] = code
        self.lines[name] = self._normal(text)
        return code

    def run_killed(self, table: str, place: str, *arguments: str) -> None:
        """Run a command in a process that is killed before or after its first commit to a table."""
        self._count += 1
        moment = self.moment.isoformat()
        command = [sys.executable, "-m", "tests.frozen", "die", moment, table, place, *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != -signal.SIGKILL:
            raise AssertionError(
                f"the run made no commit to {table}, so it was not killed:\n{done.stdout}{done.stderr}"
            )
        self.exit_codes[self._name(f"{' '.join(arguments)} (killed)")] = done.returncode

    def _name(self, command: str) -> str:
        """Return a command with its number among equal ones."""
        name, number = f"spillway {command}", 1
        while name in self.exit_codes:
            number += 1
            name = f"spillway {command} #{number}"
        return name

    @contextlib.contextmanager
    def contract(self, stream: str) -> Iterator[dict[str, Any]]:
        """Change a stream's contract in the lake's folder."""
        path = self.folder / "schemas" / "streams" / f"{stream}.yaml"
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        yield found
        path.write_text(yaml.safe_dump(found, sort_keys=False), encoding="utf-8")

    def _without_folder(self, text: str) -> str:
        return text.replace(str(self.folder), "FOLDER").replace(str(ROOT), "HOME")

    def _normal(self, text: str) -> list[str]:
        """Return the lines of a text without what differs from run to run: see `VARYING`."""
        text = self._without_folder(text)
        with contextlib.suppress(ValueError):
            text = json.dumps(json.loads(text), indent=1, ensure_ascii=False, sort_keys=True)
        lines = text.splitlines()
        for varies, instead in VARYING:
            lines = [varies.sub(instead, line) for line in lines]
        return [line.rstrip() for line in lines if line.strip()]


VARYING = (
    (re.compile(r"^(core[ _]\w+).*"), r"\1 (measured)"),  # join-advice
    (re.compile(r'("(?:\w+_)?seconds(?:_\w+)?"): [0-9.e+-]+'), r"\1: 0"),  # what-if, explain
    (
        re.compile(r"windows (\d+ open), (\d+ done)"),
        r"windows \2, \1",
    ),  # in the order of files, which have random names
)
"""What differs from run to run in lines, and what stands in its place: measured seconds, an order of files."""


def json_lines(value: Any) -> str:
    """Return JSON text with one line for each entry."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
