"""`spillway run --every` on Spark: one session for all runs, and another one if its JVM dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pipeline.streams import SITES, World, json_lines, sites

from spillway.engine import ProcessEngine


def children(pid: int) -> dict[int, str]:
    """The processes that a process has started, by their command."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(") ")[2].split()
            if int(fields[1]) == pid:
                found[int(folder.name)] = (folder / "cmdline").read_text().partition("\0")[0]
        except OSError:
            continue  # it has ended
    return found


def until(true: Callable[[], bool], process: subprocess.Popen[bytes], output: Path) -> None:
    for _ in range(600):
        if true():
            return
        assert process.poll() is None, output.read_text()
        time.sleep(0.5)
    raise AssertionError(output.read_text())


@pytest.mark.long
def test_runs_share_a_session_and_go_on_after_its_jvm_was_killed(tmp_path: Path) -> None:
    world, output = World.begin(ProcessEngine(), tmp_path, SITES), tmp_path / "output.txt"
    roots = ("home", "lake", "destination", "landing", "schemas", "build")
    env = {**os.environ, **{f"SPILLWAY_{name.upper()}": getattr(world.settings, name) for name in roots}}
    env["SPILLWAY_MASTER"] = "local[2]"
    command = [sys.executable, "-m", "spillway.cli", "run", "--every", "1s", "--engine", "spark"]

    def jvms(process: subprocess.Popen[bytes]) -> list[int]:
        return [pid for pid, program in children(process.pid).items() if program.endswith("java")]

    with output.open("wb") as sink:
        process = subprocess.Popen(command, env=env, stdout=sink, stderr=subprocess.STDOUT)
    try:
        world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 330)))
        until(lambda: len(world.rows("recovered", "sites")) == 330, process, output)
        (first,) = jvms(process)
        world.deliver("sites/2020-01-01/b.json", json_lines(sites(330, 130)))
        until(lambda: len(world.rows("recovered", "sites")) == 460, process, output)
        assert jvms(process) == [first], "one session for all runs"
        os.kill(first, signal.SIGKILL)
        world.deliver("sites/2020-01-02/c.json", json_lines(sites(460, 250)))
        until(lambda: len(world.rows("recovered", "sites")) == 710, process, output)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0, output.read_text()
    finally:
        process.kill()
        process.wait()
    assert "stopped between two steps" in output.read_text()
    seq = [row["seq"] for row in world.rows("transmitted", "sites")]
    assert len(seq) == len(set(seq)) == 710
