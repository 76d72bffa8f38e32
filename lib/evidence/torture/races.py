"""Start every pair of steps together, twenty times: nothing may be lost or doubled, and every error is a sentence.

The lake has work for every step: batches to shed, to validate and to retire, a file to take in, dates to shed again.
Two processes wait for the same signal; every second time, the second one starts after a random delay up to the duration
of a step. Then a single run completes the rest, and the laws are checked.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path

from evidence.book import Say
from evidence.torture.laws import broken_laws
from evidence.torture.processes import Child, run_forked
from evidence.torture.steps import STEPS, Step, bring_all, finish, take_in_all
from evidence.torture.world import AWKWARD, TortureWorld, awkward_lines, create_world

TIMES = 20
_LATE_SECONDS = 0.4


def torture_by_racing(say: Say, seed: int, times: int = TIMES) -> dict[str, float]:
    """Return the number of races, and how many ended with a fault."""
    pairs = [pair for pair in combinations(STEPS, 2) for _ in range(times)]
    with tempfile.TemporaryDirectory(prefix="torture-") as place:
        busy = _busy_world(Path(place))

        def race(number: int) -> list[str]:
            chance, (one, two) = random.Random(f"race {number} of {seed}"), pairs[number]
            late = chance.uniform(0.0, _LATE_SECONDS) if number % 2 else 0.0
            order = (one, two) if chance.random() < 0.5 else (two, one)
            told = _race(busy, Path(place, f"race-{number}"), order, late, STEPS)
            found = [f"{order[0]} with {order[1]}, {late:.2f} s later: {text}" for text in told[:1]]
            if found or number % 20 == 19:
                say(f"race {number + 1} of {len(pairs)}, {one} with {two}: {found[0] if found else 'well'}")
            return found

        wrong = run_forked(race, range(len(pairs)), Path(place))
    return {"torture.races": len(pairs), "torture.races_wrong": len(wrong)}


def _busy_world(folder: Path) -> TortureWorld:
    """Return a lake with work for every step."""
    world = create_world(folder / "busy", only=AWKWARD)

    def make() -> None:
        bring_all(world)
        world.deliver(f"{AWKWARD}/2020-01-03/c.json", _lines(380, 90))
        take_in_all(world)
        world.deliver(f"{AWKWARD}/2020-01-04/d.json", _lines(470, 60))

    ended = Child(make, folder / "said").wait()
    if ended.code:
        raise RuntimeError(f"a lake must be made to race on, got {ended.said}")
    return world


def _lines(first: int, count: int) -> bytes:
    return ("\n".join(awkward_lines(first, count)) + "\n").encode()


def _race(
    busy: TortureWorld, folder: Path, order: tuple[str, str], late: float, steps: Mapping[str, Step]
) -> list[str]:
    """Start two steps together; return the faults."""
    world = busy.copy(folder)
    ready, go = os.pipe()
    try:

        def run(name: str, held_back: float) -> Callable[[], None]:
            def work() -> None:
                os.close(go)
                os.read(ready, 1)
                time.sleep(held_back)
                steps[name](world)

            return work

        children = [
            Child(run(name, held_back), folder / f"said-{place}")
            for place, (name, held_back) in enumerate(zip(order, (0.0, late), strict=True))
        ]
        os.close(go)
        ends = [child.wait() for child in children]
        found = [
            f"{name}: {end.said[-900:]}"
            for name, end in zip(order, ends, strict=True)
            if not end.is_a_sentence
        ]
        laws = folder / "laws"

        def settle() -> None:
            finish(world)
            laws.write_text("\n".join(broken_laws(world)), encoding="utf-8")

        after = Child(settle, folder / "said-after").wait()
        if after.code:
            return [*found, f"what was left could not be finished: {after.said[-900:]}"]
        return found + [line for line in laws.read_text(encoding="utf-8").splitlines() if line]
    finally:
        os.close(ready)
        shutil.rmtree(folder)
