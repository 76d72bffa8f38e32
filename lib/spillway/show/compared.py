"""Show the bytes of a batch next to those of lossless compressors, as a table for people and for the report.

Compressing takes seconds, so it is done on request (`spillway plan STREAM --compare`). The result is stored in
`lossless/<stream>.json` in the build folder, and the report shows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path

from spillway.levers.protocol import Picture
from spillway.settings import Settings
from spillway.show.lines import sentences, table_lines
from spillway.show.words import bytes_said
from spillway.streams.dry_run import Comparison, Size

FOLDER = "lossless"
FORMS = {
    "offered": "as offered",
    "gzip": "CSV, gzip -9",
    "xz": "CSV, xz -9",
    "parquet": "Parquet, zstd -19, best encodings",
    "exact": "Spillway, nothing lost",
    "bound": "Spillway, within the bounds",
    "planned": "Spillway, by the plan",
}
"""The name of each form, in the order of the table."""
COMPRESSORS = ("gzip", "xz", "parquet")
_HEADS = ("form", "#bytes", "#bytes per row", "#times the best file")


def comparison_title(one: Comparison) -> str:
    """Return which batch was compared, and of how many rows."""
    said = f"{one.stream}, batch {one.batch} of {one.batch_date}, {one.rows:,} rows, next to lossless files"
    if one.compressed_rows < one.rows:
        said += f" of its first {one.compressed_rows:,} rows"
    return said


def comparison_rows(one: Comparison) -> list[tuple[str, str, str, str]]:
    """Return form, bytes, bytes per row, and bytes per row over those of the smallest file of a compressor."""
    best = min(size.bytes_per_row for size in one.sizes if size.form in COMPRESSORS)
    return [
        (FORMS[size.form], f"{size.bytes:,}", f"{size.bytes_per_row:.3g}", f"{size.bytes_per_row / best:.2f}")
        for size in sorted(one.sizes, key=lambda size: list(FORMS).index(size.form))
    ]


def comparison_notes(one: Comparison) -> Iterator[str]:
    """Yield sentences on how to read the table, and the notes of the comparison."""
    best = min((size for size in one.sizes if size.form in COMPRESSORS), key=lambda size: size.bytes_per_row)
    yield (
        "A compressor's file counts whole, with its rows as they arrived or sorted by key and time, whichever is "
        "smaller. Of Spillway all that is sent counts: files with row numbers and footers, and log entries"
    )
    exact = next((size for size in one.sizes if size.form == "exact"), None)
    if exact is not None and exact.bytes_per_row > best.bytes_per_row:
        yield (
            f"{FORMS[best.form]} is smaller than Spillway without loss, by "
            f"{bytes_said((exact.bytes_per_row - best.bytes_per_row) * one.rows)} for the batch"
        )
    yield (
        "To send so few bytes, state `minimize: bytes` in the channel and `synopsis: send` in the lever attributes. To "
        "lose nothing, also state `error_pct: 0` in the lever, and no bound in any attribute"
    )
    yield from one.notes


def comparison_lines(one: Comparison) -> Iterator[str]:
    """Yield the comparison as lines of text."""
    yield from sentences(f"{comparison_title(one)}:")
    yield from table_lines(_HEADS, comparison_rows(one), indent=2)
    for note in comparison_notes(one):
        yield from sentences(f"{note}.", indent=2)


def comparison_picture(one: Comparison) -> Picture:
    """Return the comparison as a table of the report."""
    note = ". ".join(comparison_notes(one)) + f". Measured by spillway plan {one.stream} --compare."
    rows: Sequence[Sequence[str]] = comparison_rows(one)
    return Picture(comparison_title(one), "table", {"heads": list(_HEADS), "rows": rows}, note)


def keep_comparison(settings: Settings, one: Comparison) -> Path:
    """Store the comparison for the report; return its path."""
    path = Path(settings.build, FOLDER, f"{one.stream}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({**asdict(one), "batch_date": str(one.batch_date)}, indent=2) + "\n", encoding="utf-8"
    )
    return path


def kept_comparison(settings: Settings, stream: str) -> Comparison | None:
    """Return the stored comparison of a stream; None if there is none that this version can read."""
    path = Path(settings.build, FOLDER, f"{stream}.json")
    if not path.is_file():
        return None
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        return Comparison(
            held["stream"],
            held["batch"],
            date.fromisoformat(held["batch_date"]),
            held["rows"],
            tuple(Size(one["form"], one["bytes"], one["rows"]) for one in held["sizes"]),
            tuple(held["notes"]),
        )
    except (ValueError, KeyError, TypeError):
        return None  # cut short, or written by another version: the next `--compare` replaces it
