"""`make torture`: kill it, race it, and write down what came of it in `build/torture.json`.

Every part says what it does and returns figures; a part that fails is named and keeps no other from running. What
counts as wrong is decided by reading the tables without the product.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from evidence.torture.forking import WORKER_PATIENCE_SECONDS, Child
from evidence.torture.fuzz import torture_by_fuzzing
from evidence.torture.kills import torture_by_killing
from evidence.torture.landing import torture_by_landing
from evidence.torture.prepared import prepare_process
from evidence.torture.races import torture_by_racing
from evidence.torture.year import torture_by_a_year
from spillway.settings import Settings
from spillway.show.summary import machine

DEFAULT_SEED = 11

PARTS: Mapping[str, Callable[[Callable[[str], None], int], Mapping[str, float]]] = {
    "kills": torture_by_killing,
    "races": torture_by_racing,
    "landing": torture_by_landing,
    "fuzz": torture_by_fuzzing,
    "year": torture_by_a_year,
}
"""By name, in the order they run."""
LANES = (("landing", "fuzz"), ("year",))
"""What one core is enough for runs side by side; all others use two by themselves."""
ALONE = frozenset(name for lane in LANES for name in lane)


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
    asked = [name for name in PARTS if name in (given.only or PARTS)]
    figures, failed = _in_turn([name for name in asked if name not in ALONE], say, given.seed)
    lanes = [lane for one in LANES if (lane := [name for name in one if name in asked])]
    for more, problems in _side_by_side(lanes, say, given.seed):
        figures |= more
        failed += problems
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


def _in_turn(
    names: Sequence[str], say: Callable[[str], None], seed: int
) -> tuple[dict[str, float], list[str]]:
    """The figures of some parts, one after the other, and the names of those that failed."""
    figures: dict[str, float] = {}
    failed = []
    for name in names:
        begun = time.monotonic()
        say(name)
        try:
            figures |= PARTS[name](say, seed)
        except Exception:  # the others must not be lost with it
            traceback.print_exc()
            failed.append(name)
        figures[f"torture.{name}_seconds"] = round(time.monotonic() - begun, 1)
    return figures, failed


def _side_by_side(
    lanes: Sequence[Sequence[str]], say: Callable[[str], None], seed: int
) -> Iterator[tuple[dict[str, float], list[str]]]:
    """What becomes of each lane, every one in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="torture-") as place:
        running = []
        for number, lane in enumerate(lanes):
            told = Path(place, f"lane-{number}.json")

            def work(lane: Sequence[str] = lane, told: Path = told) -> None:
                told.write_text(json.dumps(_in_turn(lane, say, seed)), encoding="utf-8")

            child = Child(work, Path(place, f"said-{number}"), quiet=False)
            running.append((lane, child, told))
        for lane, child, told in running:
            ended = child.ended(patience=WORKER_PATIENCE_SECONDS)
            if ended.code:
                print(ended.said, file=sys.stderr)
            figures, failed = json.loads(told.read_text("utf-8")) if not ended.code else ({}, [*lane])
            yield figures, failed


def write_figures(figures: Mapping[str, float], build: Path) -> Path:
    """`torture.json`: figures of parts that were not run this time stay, with versions and machine."""
    build.mkdir(parents=True, exist_ok=True)
    path = build / "torture.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(
        json.dumps(dict(sorted({**known, **figures}.items())) | machine(), indent=2) + "\n", encoding="utf-8"
    )
    return path
