"""`make torture`: kill it, race it, and write down what came of it in `build/torture.json`.

Every part says what it does and returns figures; a part that fails is named and keeps no other from running. What
counts as wrong is decided by reading the tables without the product.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

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
    figures: dict[str, float] = {"torture.seed": given.seed}
    failed = []
    for name in given.only or PARTS:
        begun = time.monotonic()
        say(name)
        try:
            figures |= PARTS[name](say, given.seed)
        except Exception:  # the others must not be lost with it
            traceback.print_exc()
            failed.append(name)
        figures[f"torture.{name}_seconds"] = round(time.monotonic() - begun, 1)
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


def write_figures(figures: Mapping[str, float], build: Path) -> Path:
    """`torture.json`: figures of parts that were not run this time stay, with versions and machine."""
    build.mkdir(parents=True, exist_ok=True)
    path = build / "torture.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(
        json.dumps(dict(sorted({**known, **figures}.items())) | machine(), indent=2) + "\n", encoding="utf-8"
    )
    return path
