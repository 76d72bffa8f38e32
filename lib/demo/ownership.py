"""Determine what in the landing zone and in the lake belongs to the demo; nothing else is overwritten or removed.

Beside the streams' folders of the landing zone the demo lists every file that it wrote. The lake is its own where it
made it and left its mark, and where no stream is in it but the demo's. Everything else there is somebody's: streams of
one's own land in the same folder.

Run as a script, by any Python and without the environment, it removes what is the demo's from the folder it is run in:
that is how `make clean` does it.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

MARKER = ".spillway-demo"
DEMO_STREAMS = ("flights", "network", "stocks", "weather")
_HEAD = "# Made by `make run`, which may write these files anew; `make clean` removes them and no other.\n"


def demo_files(landing: Path) -> set[str] | None:
    """Return the files that the demo wrote, relative to the landing zone; None if there is no list."""
    try:
        lines = (landing / MARKER).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return set()
    return {line for line in lines[1:] if line} if lines and lines[0] == _HEAD.rstrip() else None


def record_demo_files(landing: Path, names: Iterable[str]) -> None:
    """Add files to the list before they are written, because a partly written file is the demo's too."""
    known = sorted({*(demo_files(landing) or ()), *names})
    landing.mkdir(parents=True, exist_ok=True)
    half = landing / f"{MARKER}.part"
    half.write_text(_HEAD + "".join(f"{name}\n" for name in known), encoding="utf-8")
    half.replace(landing / MARKER)


def other_streams(lake: Path, ours: Collection[str] = DEMO_STREAMS) -> list[str]:
    """Return the streams in the lake that the demo did not create."""
    found = {
        entry.name for table in ("raw", "transmitted") for entry in (lake / table).glob("*") if entry.is_dir()
    }
    return sorted(found - set(ours))


def clean(home: Path) -> Iterator[str]:
    """Remove the demo's lake and landing files from `home`; yield a sentence for what stays."""
    lake, landing = home / "lake", home / "landing"
    if (lake / MARKER).is_file():
        others = other_streams(lake)
        if others:
            yield f"lake/ also holds {', '.join(others)} and is kept"
        else:
            shutil.rmtree(lake)
    elif lake.is_dir():
        yield "lake/ was not made by the demo and is kept"
    names = demo_files(landing)
    if names is None:
        yield "landing/ does not say which files are the demo's and is kept; `make run` notes it"
        return
    for name in names:
        (landing / name).unlink(missing_ok=True)
    for folder in sorted({one for name in names for one in (landing / name).parents}, reverse=True):
        # the folder of a stream goes with its last file
        if landing in folder.parents and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    (landing / MARKER).unlink(missing_ok=True)
    if names and not any(landing.iterdir()):
        landing.rmdir()
    elif names:
        yield "landing/ also holds files that the demo did not write, and is kept"


if __name__ == "__main__":
    for told in clean(Path.cwd()):
        print(told)
