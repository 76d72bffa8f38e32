"""Write the demo's landing files: content by name, identical in every run."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from spillway.errors import SpillwayError


def package_file(package: str, relative: str) -> Path:
    """Return the path of a data file in an installed package, without importing the package."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    for place in places:
        if (path := Path(place) / relative).is_file():
            return path
    raise SpillwayError(
        f"`{package}` must be installed with {relative}, got {places or 'no such package'}; run make run, or "
        f"pip install -r the pinned requirements"
    )


def insert_defects(lines: Sequence[bytes], defects: Mapping[int, bytes]) -> bytes:
    """Insert each defect at its line number (from 1); no line is replaced.

    >>> insert_defects([b"a", b"b"], {2: b"?"})
    b'a\\n?\\nb\\n'
    """
    planted = list(lines)
    for number in sorted(defects):
        if not 1 <= number <= len(planted) + 1:
            raise ValueError(f"`line` must be within the file, got {number}; it has {len(planted)} lines")
        planted.insert(number - 1, defects[number])
    return b"".join(line + b"\n" for line in planted)


def write_landing(root: Path, files: Mapping[str, bytes]) -> int:
    """Write the files that do not exist with these bytes; return their number."""
    written = 0
    for name, content in files.items():
        path = root / name
        if path.is_file() and path.read_bytes() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        # whoever watches the folder must never see half a file, and skips names that start with a dot
        half = path.with_name(f".{path.name}.part")
        half.write_bytes(content)
        half.replace(path)
        written += 1
    return written
