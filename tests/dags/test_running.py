"""What a test has started is gone when the test is over."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest
from tests.dags.conftest import descendants, is_alive, running

FAMILY = """
import signal, subprocess, sys
deaf = "import signal, sys; [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM)]; "
deaf += "print(1, flush=True); signal.pause()"
orphan = "import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE); "
orphan += "c.stdout.readline(); print(c.pid, flush=True)"
own = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True, stdout=subprocess.PIPE)
own.stdout.readline()
left = subprocess.run([sys.executable, "-c", orphan, deaf], stdout=subprocess.PIPE, text=True)
print(own.pid, left.stdout.split()[0], flush=True)
signal.pause()
"""
"""A child that hears no signal in a session of its own, and one whose parent has ended."""


def test_children_that_hear_no_signal_and_orphans_are_ended_with_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.dags import conftest

    monkeypatch.setattr(conftest, "PATIENCE_SECONDS", 2.0)
    with running([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        children = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        assert len(children) == 2
        assert {one.pid for one in children} <= {one.pid for one in descendants(process.pid)}
    assert [one for one in children if is_alive(one)] == []
    assert process.poll() is not None
