"""Fuzz with hostile inputs from a seed; each must be accepted, or rejected by name, in bounded time and memory.

A child process runs a range of inputs under a limit of its address space, and reports the outcome of each. An input
that does not finish in time, or that ends the process, is a fault; another child continues after it. An input may take
`SECONDS_MOST` of processor time, and `MEMORY_MOST` of memory.

Memory is the peak resident size during an input (`VmHWM`, reset by the kernel before each one) over the size of the
process after all kinds had run once. So it covers the peak of one input and leaks of earlier ones. The peak of
`getrusage` is not usable: a child inherits that of its parent, which holds a simulated year, so no growth would be
seen.
"""

from __future__ import annotations

import gc
import os
import random
import re
import resource
import selectors
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from evidence.torture.hostile import JUDGES, prepare_lake

SECONDS_MOST = 20.0
MEMORY_MOST = 256 << 20
"""More than this is unhandled; files of some hundred records, contracts and questions need a small part of it."""
_ADDRESSES_MOST = 4 << 30
_MEGABYTE = 1 << 20
TORTURE_INPUTS = 20_000
FUZZ_SHARES = 3
"""In which the inputs of `make torture` are worked on, so that two cores have both to do until the end."""


@dataclass
class FuzzCounts:
    """The number of inputs by outcome, and every fault with the number that reproduces it."""

    inputs: int = 0
    taken: int = 0
    peak_mb: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Return the figures for `build/torture.json`."""
        return {
            "torture.fuzz_inputs": self.inputs,
            "torture.fuzz_taken": self.taken,
            "torture.fuzz_unhandled": len(self.faults),
            "torture.fuzz_most_memory_mb": round(self.peak_mb, 1),
        }


def torture_by_fuzzing(say: Callable[[str], None], seed: int, share: int) -> Mapping[str, float]:
    """Run a share of this part of `make torture`: the inputs of the seed after those of the share before."""
    first, end = (TORTURE_INPUTS * at // FUZZ_SHARES for at in (share, share + 1))
    counts = fuzz(end - first, seed, start=first, say=say)
    for fault in counts.faults:
        say(fault)
    return counts.figures()


def kind_of_input(number: int) -> str:
    """Return the kind of an input; kinds alternate."""
    kinds = tuple(JUDGES)
    return kinds[number % len(kinds)]


def run_input(seed: int, number: int) -> bool:
    """Run one input; return whether it was accepted, and raise an error for a fault."""
    kind = kind_of_input(number)
    return JUDGES[kind](random.Random(f"{seed}/{number}"))


def fuzz(
    inputs: int,
    seed: int = 1,
    start: int = 0,
    seconds: float = SECONDS_MOST,
    say: Callable[[str], None] = lambda _: None,
) -> FuzzCounts:
    """Run a number of inputs in child processes."""
    counts, number = FuzzCounts(), start
    while number < start + inputs:
        number = _run_child(counts, seed, number, start + inputs, seconds)
        if number < start + inputs:
            say(f"{counts.inputs:,} inputs, {len(counts.faults)} unhandled")
    say(f"{counts.inputs:,} hostile inputs: {counts.taken:,} taken, {len(counts.faults)} unhandled")
    return counts


def _run_child(counts: FuzzCounts, seed: int, first: int, end: int, seconds: float) -> int:
    """Run one child from `first` on; return where the next one begins."""
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", "evidence.torture.fuzz", str(seed), str(first), str(end)],
            stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1,
        )  # fmt: skip
        assert child.stdout is not None
        waiting = selectors.DefaultSelector()
        waiting.register(child.stdout, selectors.EVENT_READ)
        os.set_blocking(child.stdout.fileno(), False)
        at, begun, told = first, False, ""
        used_before = waited = 0.0
        while True:
            # a child that starts imports a good deal first
            if not waiting.select(seconds if begun else 120):
                # time that others took of the machine is none of the input's
                used, waited = _cpu_seconds(child.pid) - used_before, waited + seconds
                if begun and used < seconds and waited < 20 * seconds:
                    continue
                child.kill()
                counts.faults.append(f"{kind_of_input(at)} {seed}/{at}: took more than {seconds:g} s")
                break
            told += child.stdout.read() or ""
            *whole, rest = told.split("\n")
            if not whole and child.poll() is not None:
                if at < end:
                    errors.seek(0)
                    last = errors.read()[-500:].strip().replace("\n", " | ")
                    counts.faults.append(
                        f"{kind_of_input(at)} {seed}/{at}: the process died ({child.returncode}) {last}"
                    )
                break
            told = rest
            used_before, waited = _cpu_seconds(child.pid), 0.0
            for line in whole:
                begun = True
                at = _record_line(counts, line, at)
        child.wait()
        child.stdout.close()
        if at < end:
            counts.inputs += 1
            counts.kinds[kind_of_input(at)] += 1
        return at + 1 if at < end else end


def _cpu_seconds(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _record_line(counts: FuzzCounts, line: str, at: int) -> int:
    """Record a child's message about its input; return the number of the present one."""
    what, number, *rest = line.split(" ", 2)
    if what == "fault":
        counts.faults.append(rest[0])
    if what in ("taken", "refused", "fault"):
        counts.inputs += 1
        counts.taken += what == "taken"
        counts.kinds[kind_of_input(int(number))] += 1
        return int(number) + 1
    if what == "peak":
        counts.peak_mb = max(counts.peak_mb, float(rest[0]))
    return at


class Memory:
    """Measures the peak growth of this process's memory, from the kernel (Linux).

    >>> memory = Memory()
    >>> memory.forget_most()
    >>> len(b"x" * (64 << 20)) and memory.most >= 60 << 20
    True
    >>> memory.forget_most()
    >>> memory.most < 32 << 20
    True
    """

    def __init__(self) -> None:
        self.base = self._read_status("VmRSS")

    @property
    def most(self) -> int:
        """Return the peak in bytes since `forget_most`."""
        return self._read_status("VmHWM") - self.base

    def forget_most(self) -> None:
        """Reset the peak to the present value."""
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def _read_status(self, name: str) -> int:
        found = re.search(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
        assert found is not None
        return int(found[1]) << 10


def work(seed: int, first: int, end: int) -> None:
    """Run one input after the other, in the child process."""
    with tempfile.TemporaryDirectory() as folder:
        prepare_lake(Path(folder))
        for number in range(len(JUDGES)):
            run_input(0, number)  # whatever is only loaded once is loaded now
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES_MOST, _ADDRESSES_MOST))
        memory, most = Memory(), 0
        for number in range(first, end):
            memory.forget_most()
            told = _input_outcome(seed, number)
            taken = memory.most
            if taken > MEMORY_MOST:
                told = _fault(
                    seed, number, f"took {taken / _MEGABYTE:,.0f} MB, {MEMORY_MOST >> 20} are allowed"
                )
                gc.collect()
                memory = Memory()  # what it left behind is none of the next one's
            if taken > most:
                most = taken
                print(f"peak {number} {most / _MEGABYTE:.1f}", flush=True)
            print(told, flush=True)
            if number % 500 == 0:
                gc.collect()


def _input_outcome(seed: int, number: int) -> str:
    """Return the outcome of one input."""
    try:
        return f"{'taken' if run_input(seed, number) else 'refused'} {number}"
    except BaseException as fault:
        where = traceback.extract_tb(fault.__traceback__)[-1]
        text = " ".join(f"{type(fault).__name__}: {fault}".split())[:300]
        return _fault(seed, number, f"{text} ({Path(where.filename).name}:{where.lineno})")


def _fault(seed: int, number: int, said: str) -> str:
    return f"fault {number} {kind_of_input(number)} {seed}/{number}: {said}"


if __name__ == "__main__":
    work(*(int(word) for word in sys.argv[1:4]))
