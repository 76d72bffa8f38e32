"""Run `make evidence`: compute and print the evidence of every paper, write `build/evidence.json` and `.html`.

A paper whose evidence fails does not take the others with it; it is named, and the command fails at the end.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evidence.attributes.figures import attribute_figures
from evidence.attributes.same_bytes import bytes_before_and_after
from evidence.book import Book
from evidence.joins.figures import join_figures
from evidence.papers import papers
from evidence.quality.figures import quality_figures
from evidence.queries import query_figures
from evidence.seams import seam_figures
from evidence.sifters.figures import sifter_figures
from evidence.sketches.figures import sketch_figures
from spillway.report.summary import machine
from spillway.settings import Settings

Evidence = Callable[[Book, Settings, int], Mapping[str, float]]
DEFAULT_SEEDS = 20


def _sketches(book: Book, settings: Settings, seeds: int) -> Mapping[str, float]:
    book.section("Sketches", "Duplicates, frequencies and near-duplicate pairs in little space.")
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(str(line))
        book.say(line)

    found = sketch_figures(say, scale=min(1.0, seeds / DEFAULT_SEEDS))
    book.sections[-1].parts.append("\n".join([*lines, ""]))
    return found


MODULES: Mapping[str, Evidence] = {
    "attributes": attribute_figures,
    "bytes": bytes_before_and_after,
    "joins": join_figures,
    "quality": quality_figures,
    "queries": query_figures,
    "seams": seam_figures,
    "sifters": sifter_figures,
    "sketches": _sketches,
    "papers": lambda book, settings, seeds: papers(book),
}


def gather(
    names: Sequence[str],
    settings: Settings,
    seeds: int,
    book: Book,
    modules: Mapping[str, Evidence] = MODULES,
) -> tuple[dict[str, float], list[str]]:
    """Return the figures of the named modules, and the names of those that failed."""
    figures: dict[str, float] = {}
    failed = []
    for name in names:
        started = time.monotonic()
        try:
            figures |= modules[name](book, settings, seeds)
        except Exception as problem:  # the others' evidence must not be lost with it
            traceback.print_exc()
            book.section(name, f"failed: {problem}")
            failed.append(name)
        figures[f"{name}.evidence_seconds"] = round(time.monotonic() - started, 1)
    return figures, failed


def write(figures: Mapping[str, float], book: Book, build: Path) -> tuple[Path, Path]:
    """Write `evidence.json` (flat, with versions and machine) and the page; return both paths."""
    build.mkdir(parents=True, exist_ok=True)
    numbers = {name: _plain(value) for name, value in sorted(figures.items())}
    path = build / "evidence.json"
    path.write_text(json.dumps(numbers | machine(), indent=2) + "\n", encoding="utf-8")
    return path, book.write(build, numbers)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence", description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(MODULES), help="only this one; may repeat")
    parser.add_argument(
        "--seeds", type=int, default=DEFAULT_SEEDS, help="noisy streams a demo stream (default: 20)"
    )
    given = parser.parse_args(arguments)
    if given.seeds < 1:
        parser.error(f"`--seeds` must be 1 or more, got {given.seeds}; 20 is the default")
    settings = Settings.from_environment()
    book = Book()
    figures, failed = gather(given.only or tuple(MODULES), settings, given.seeds, book)
    json_path, page = write(figures, book, Path(settings.build))
    print(f"\nspillway: evidence: {len(figures)} figures in {json_path}, the page in {page}")
    if failed:
        print(f"spillway: evidence: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _plain(value: float) -> float:
    """Return a number as JSON can hold it: no numpy type and no infinity."""
    number = float(value)
    return int(number) if number.is_integer() else number
