"""Run `make torture`: kill and race the product, and write the results to `build/torture.json`.

Every part reports its progress and returns figures. A failed part is named and does not stop the others. Results are
checked by reading the tables without the product.
"""

from __future__ import annotations

import argparse
import json
import select
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from evidence.torture.fuzz import FUZZ_SHARES, torture_by_fuzzing
from evidence.torture.kills import torture_by_killing
from evidence.torture.landing import torture_by_landing
from evidence.torture.preparation import prepare_process
from evidence.torture.processes import WORKER_PATIENCE_SECONDS, Child
from evidence.torture.races import torture_by_racing
from evidence.torture.year import torture_by_a_year
from spillway.report.summary import machine
from spillway.settings import Settings

DEFAULT_SEED = 11

Work = Callable[[Callable[[str], None], int], Mapping[str, float]]
"""What is done, told as it goes on, from a seed; the figures."""
PARTS: Mapping[str, Sequence[Work]] = {
    "kills": (torture_by_killing,),
    "races": (torture_by_racing,),
    "year": (torture_by_a_year,),
    "landing": (torture_by_landing,),
    "fuzz": tuple(partial(torture_by_fuzzing, share=share) for share in range(FUZZ_SHARES)),
}
"""By name, in the order they run, each in one or more shares."""
ALONE = frozenset({"year", "landing", "fuzz"})
"""What one core is enough for; the others use two by themselves."""
WORKERS = 2


def run_torture(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.torture", description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(PARTS), help="only this part; may repeat")
    parser.add_argument(
        "--seed", type=int, default=DEFAULT_SEED, help=f"of all chance (default: {DEFAULT_SEED})"
    )
    given = parser.parse_args(arguments)
    build = Path(Settings.from_environment().build)
    started = time.monotonic()

    def say(line: str) -> None:
        print(f"spillway: torture: {time.monotonic() - started:6.1f} s  {line}", flush=True)

    prepare_process(say)
    asked = [(name, work) for name, works in PARTS.items() if name in (given.only or PARTS) for work in works]
    figures: dict[str, float] = {}
    broken: set[str] = set()
    done = [_run_part(*one, say, given.seed) for one in asked if one[0] not in ALONE]
    apart = [one for one in asked if one[0] in ALONE]
    for name, more in [*done, *_run_parts_in_parallel(apart, say, given.seed)]:
        broken |= set() if more else {name}
        figures = add_figures(figures, more)
    failed = [name for name in PARTS if name in broken]
    figures["torture.seed"] = given.seed
    path = write_figures(figures, build)
    say(f"{len(figures)} figures in {path}")
    wrong = [
        name
        for name, value in figures.items()
        if value and name.endswith(("_different", "_wrong", "_lost_tuples", "_unhandled"))
    ]
    if failed or wrong:
        print(f"spillway: torture: {', '.join([*failed, *wrong])} must be none", file=sys.stderr)
    return 1 if failed or wrong else 0


def _run_part(name: str, work: Work, say: Callable[[str], None], seed: int) -> tuple[str, dict[str, float]]:
    """Run a part, or a share of it; return its figures, none if it failed."""
    begun = time.monotonic()
    say(name)
    try:
        figures = dict(work(say, seed))
    except Exception:  # the others must not be lost with it
        traceback.print_exc()
        return name, {}
    return name, figures | {f"torture.{name}_seconds": round(time.monotonic() - begun, 1)}


def add_figures(figures: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Combine the figures of shares: they add up, except maxima.

    >>> add_figures({"torture.fuzz_inputs": 7, "torture.fuzz_most_memory_mb": 3.0, "torture.kills": 1},
    ...          {"torture.fuzz_inputs": 6, "torture.fuzz_most_memory_mb": 5.0})
    {'torture.fuzz_inputs': 13, 'torture.fuzz_most_memory_mb': 5.0, 'torture.kills': 1}
    """
    found = dict(figures)
    for name, value in more.items():
        before = found.get(name, 0)
        found[name] = max(before, value) if "_most" in name else before + value
    return found


def _run_parts_in_parallel(
    works: Sequence[tuple[str, Work]], say: Callable[[str], None], seed: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """Run each part in its own process, as many at a time as there are workers; yield the figures."""
    with tempfile.TemporaryDirectory(prefix="torture-") as place:
        waiting, running = list(enumerate(works)), dict[Child, tuple[str, Path]]()
        while waiting or running:
            while waiting and len(running) < WORKERS:
                number, (name, work) = waiting.pop(0)
                told = Path(place, f"work-{number}.json")

                def share(name: str = name, work: Work = work, told: Path = told) -> None:
                    told.write_text(json.dumps(_run_part(name, work, say, seed)[1]), encoding="utf-8")

                running[Child(share, Path(place, f"said-{number}"), quiet=False)] = (name, told)
            over, _, _ = select.select(list(running), [], [], WORKER_PATIENCE_SECONDS)
            for child in over or list(running):
                name, told = running.pop(child)
                ended = child.wait(patience=WORKER_PATIENCE_SECONDS)
                if ended.code:
                    print(ended.said, file=sys.stderr)
                yield name, {} if ended.code else json.loads(told.read_text("utf-8"))


def write_figures(figures: Mapping[str, float], build: Path) -> Path:
    """Write `torture.json` with versions and machine; figures of parts that did not run now stay."""
    build.mkdir(parents=True, exist_ok=True)
    path = build / "torture.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(
        json.dumps(dict(sorted({**known, **figures}.items())) | machine(), indent=2) + "\n", encoding="utf-8"
    )
    return path
