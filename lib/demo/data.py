"""Write the demo's landing files: `python -m demo.data`.

    landing/<stream>/<date>/<file>

The folder's date is the batch date. What is there already in the same bytes is left alone; a file of the same name that
the demo did not write is somebody's, and refused.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from demo.flights import flights_files
from demo.landing import write_landing
from demo.network import network_files
from demo.ownership import demo_files, record_demo_files
from demo.stocks import stocks_files
from demo.weather import weather_files
from spillway.errors import SpillwayError
from spillway.settings import Settings

STREAMS: dict[str, Callable[[], dict[str, bytes]]] = {
    "flights": flights_files,
    "network": network_files,
    "stocks": stocks_files,
    "weather": weather_files,
}


def write_demo(landing: str | Path, streams: Sequence[str] = tuple(STREAMS)) -> dict[str, tuple[int, int]]:
    """Write the landing files; return, by stream, the number of files and the number of files written now."""
    counts, root = {}, Path(landing)
    for stream in streams:
        files = STREAMS[stream]()
        _refuse_other_files(root, {f"{stream}/{name}": content for name, content in files.items()})
        record_demo_files(root, (f"{stream}/{name}" for name in files))
        counts[stream] = (len(files), write_landing(root / stream, files))
    return counts


def _refuse_other_files(landing: Path, files: Mapping[str, bytes]) -> None:
    """Refuse to overwrite files that the demo did not write."""
    known = demo_files(landing)
    for name, content in files.items():
        path = landing / name
        if known is not None and name not in known and path.is_file() and path.read_bytes() != content:
            raise SpillwayError(
                f"`{path}` must be free for the demo's file of that name, got another; move it away, or set "
                "SPILLWAY_LANDING to a folder of the demo's own"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.data", description=__doc__)
    parser.add_argument("--landing", help="folder to write to (default: SPILLWAY_LANDING, or ./landing)")
    parser.add_argument(
        "--stream", action="append", choices=sorted(STREAMS), help="only this one; may repeat"
    )
    given = parser.parse_args(arguments)
    try:
        landing = given.landing or Settings.from_environment().landing
        if "://" in landing:
            parser.error(f"`--landing` must be a local folder, got {landing!r}; copy the demo there from one")
        found = write_demo(landing, given.stream or tuple(STREAMS))
    except SpillwayError as problem:
        parser.error(str(problem))
    for stream, (files, written) in found.items():
        print(f"spillway: demo data: {stream}: {files} files, {written} written to {landing}/{stream}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
