"""Fuzzing: hostile inputs from a seed, each taken or refused by name, in bounded time and memory.

A child process works on a stretch of inputs under a limit of its address space, and says which one it begins; one that
does not come back in time, or brings the process down, is a fault, and another child goes on behind it. What an input
may take: `SECONDS_MOST` of a processor, and `MEMORY_MOST` above what the process had before.
"""

from __future__ import annotations

import gc
import os
import random
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
MEMORY_MOST = 512 << 20
_ADDRESSES_MOST = 4 << 30
TORTURE_INPUTS = 20_000


@dataclass
class FuzzCounts:
    """How many inputs there were, what became of them, and every fault with the number that makes it again."""

    inputs: int = 0
    taken: int = 0
    peak_mb: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """As `build/torture.json` has them."""
        return {
            "torture.fuzz_inputs": self.inputs,
            "torture.fuzz_taken": self.taken,
            "torture.fuzz_unhandled": len(self.faults),
            "torture.fuzz_most_memory_mb": round(self.peak_mb, 1),
        }


def torture_by_fuzzing(say: Callable[[str], None], seed: int) -> Mapping[str, float]:
    """The part of `make torture`."""
    counts = fuzz(TORTURE_INPUTS, seed, say=say)
    for fault in counts.faults:
        say(fault)
    return counts.figures()


def kind_of_input(number: int) -> str:
    """Kinds take turns."""
    kinds = tuple(JUDGES)
    return kinds[number % len(kinds)]


def judge(seed: int, number: int) -> bool:
    """One input; whether it was taken. Raises what is a fault."""
    kind = kind_of_input(number)
    return JUDGES[kind](random.Random(f"{seed}/{number}"))


def fuzz(
    inputs: int,
    seed: int = 1,
    start: int = 0,
    seconds: float = SECONDS_MOST,
    say: Callable[[str], None] = lambda _: None,
) -> FuzzCounts:
    """That many inputs, in child processes."""
    counts, number = FuzzCounts(), start
    while number < start + inputs:
        number = _stretch(counts, seed, number, start + inputs, seconds)
        if number < start + inputs:
            say(f"{counts.inputs:,} inputs, {len(counts.faults)} unhandled")
    say(f"{counts.inputs:,} hostile inputs: {counts.taken:,} taken, {len(counts.faults)} unhandled")
    return counts


def _stretch(counts: FuzzCounts, seed: int, first: int, end: int, seconds: float) -> int:
    """Let one child work from `first` on; returns where the next one begins."""
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
                at = _heard(counts, line, at)
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


def _heard(counts: FuzzCounts, line: str, at: int) -> int:
    """Takes down what a child says of its input; the number of the one it works on now."""
    what, number, *rest = line.split(" ", 2)
    if what == "fault":
        counts.faults.append(rest[0])
    if what in ("taken", "refused", "fault"):
        counts.inputs += 1
        counts.taken += what == "taken"
        counts.kinds[kind_of_input(int(number))] += 1
        return int(number) + 1
    if what == "peak":
        counts.peak_mb = max(counts.peak_mb, float(number))
    return at


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def work(seed: int, first: int, end: int) -> None:
    """The child: one input after the other."""
    with tempfile.TemporaryDirectory() as folder:
        prepare_lake(Path(folder))
        for number in range(len(JUDGES)):
            judge(0, number)  # whatever is only loaded once is loaded now
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES_MOST, _ADDRESSES_MOST))
        before = _peak()
        for number in range(first, end):
            try:
                told = "taken" if judge(seed, number) else "refused"
                print(f"{told} {number}", flush=True)
            except BaseException as fault:
                where = traceback.extract_tb(fault.__traceback__)[-1]
                text = " ".join(f"{type(fault).__name__}: {fault}".split())[:300]
                place = f"{Path(where.filename).name}:{where.lineno}"
                print(f"fault {number} {kind_of_input(number)} {seed}/{number}: {text} ({place})", flush=True)
            grown = _peak() - before
            if grown > MEMORY_MOST:
                print(
                    f"fault {number} {kind_of_input(number)} {seed}/{number}: took {grown >> 20} MB",
                    flush=True,
                )
                before = _peak()
            if number % 500 == 0:
                gc.collect()
        print(f"peak {(_peak() - before) / (1 << 20):.1f}", flush=True)


if __name__ == "__main__":
    work(*(int(word) for word in sys.argv[1:4]))
