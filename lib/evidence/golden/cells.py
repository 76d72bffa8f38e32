"""Compare one golden value with ours, and read the golden files.

A cell is compared *against* one of three values: the printed value; a value recomputed by hand from the thesis, if the
print is wrong, rounded or gives only the method; or arithmetic, a sum or quotient of printed numbers without any of our
kernels. Only the first kind shows that the thesis was reproduced.

>>> Cell("example 3", "attributes to shed", "2", "2").equal
True
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PRINT, RECOMPUTED, ARITHMETIC = AGAINST = ("print", "recomputed", "arithmetic")


@dataclass(frozen=True)
class Cell:
    """One golden value, and our value."""

    group: str
    name: str
    expected: str
    got: str
    erratum: str = ""
    against: str = PRINT

    @property
    def equal(self) -> bool:
        """Whether our value equals the golden value, with its erratum applied."""
        return self.expected == self.got


def numbers(rows: Sequence[dict[str, str]], name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a column of a golden table."""
    return np.array([float(row[name]) for row in rows])


def read_csv(directory: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of a golden table."""
    with (directory / name).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def read_json(directory: Path, name: str) -> dict[str, Any]:
    """Return a golden document."""
    loaded: dict[str, Any] = json.loads((directory / name).read_text(encoding="utf-8"))
    return loaded
