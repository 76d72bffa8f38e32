"""A program and all that it started are gone when whoever asked for it is, whichever way that ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from demo.guard import guarded_process

PATIENCE_SECONDS = 60.0
DEAF = (
    "import signal; [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]; "
    "print(1, flush=True); signal.pause()"
)
ORPHAN = (
    "import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE, "
    "start_new_session=True); c.stdout.readline(); print(c.pid, flush=True)"
)
FAMILY = f"""
import os, signal, subprocess, sys
deaf, orphan = {DEAF!r}, {ORPHAN!r}
own = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True, stdout=subprocess.PIPE)
own.stdout.readline()
left = subprocess.run([sys.executable, "-c", orphan, deaf], stdout=subprocess.PIPE, text=True)
print(os.getpid(), own.pid, left.stdout.split()[0], flush=True)
"""
"""A child that hears no signal, in a session of its own, and one whose parent has ended."""
WAITS, ENDS = FAMILY + "signal.pause()", FAMILY + "sys.exit(7)"
ASKS = """
import sys
from demo.guard import exit_on_signals, guarded_process
with exit_on_signals(), guarded_process([sys.executable, "-c", sys.argv[1]], grace_seconds=0.5) as process:
    process.wait()
"""


def gone(pids: list[int]) -> bool:
    left = []
    for pid in pids:
        try:
            left.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    return not psutil.wait_procs(left, timeout=PATIENCE_SECONDS)[1]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_end_of_the_caller_ends_all_processes_of_the_program(how: signal.Signals) -> None:
    asks = subprocess.Popen([sys.executable, "-c", ASKS, WAITS], stdout=subprocess.PIPE, text=True)
    assert asks.stdout is not None
    family = [int(pid) for pid in asks.stdout.readline().split()]
    assert len(family) == 3
    assert all(psutil.pid_exists(pid) for pid in family)
    asks.send_signal(how)
    assert asks.wait(timeout=PATIENCE_SECONDS) == 128 + how
    asks.stdout.close()
    assert gone(family)


def test_one_whom_a_shell_made_deaf_to_sigint_hears_it_all_the_same() -> None:
    deaf = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731
    asks = subprocess.Popen(
        [sys.executable, "-c", ASKS, WAITS], stdout=subprocess.PIPE, text=True, preexec_fn=deaf
    )
    assert asks.stdout is not None
    family = [int(pid) for pid in asks.stdout.readline().split()]
    asks.send_signal(signal.SIGINT)
    assert asks.wait(timeout=PATIENCE_SECONDS) == 128 + signal.SIGINT
    asks.stdout.close()
    assert gone(family)


def test_what_a_program_that_ended_left_behind_is_ended_and_its_exit_code_is_told() -> None:
    with guarded_process([sys.executable, "-c", ENDS], 0.5, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        family = [int(pid) for pid in process.stdout.readline().split()]
        assert process.wait(timeout=PATIENCE_SECONDS) == 7
    assert gone(family)


def test_whoever_hears_is_asked_first_and_may_say_farewell(tmp_path: Path) -> None:
    note = tmp_path / "farewell"
    polite = (
        f"import pathlib, signal, sys; signal.signal(signal.SIGTERM, lambda *_: "
        f"(pathlib.Path({str(note)!r}).write_text('asked'), sys.exit(0))); print(1, flush=True); signal.pause()"
    )
    with guarded_process([sys.executable, "-c", polite], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
    assert note.read_text() == "asked"
    assert os.waitstatus_to_exitcode(process.returncode << 8) == 0
