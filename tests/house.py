"""Figures of the house: what tests have counted, in `build/house.json` of the repository."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

FIGURES = Path(__file__).resolve().parents[1] / "build" / "house.json"


def note(name: str, value: float, figures: Path = FIGURES) -> None:
    """Write one figure down beside the others; tests that run side by side wait for one another."""
    figures.parent.mkdir(parents=True, exist_ok=True)
    with figures.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        told = file.read()
        known = json.loads(told) if told else {}
        file.truncate(0)
        json.dump(dict(sorted({**known, name: value}.items())), file, indent=2)
        file.write("\n")
