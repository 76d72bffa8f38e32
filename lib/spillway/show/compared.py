"""Show what a batch takes next to files of lossless compressors: a table for people, kept for the report.

Compressing takes seconds, so it is done when somebody asks for it (`spillway plan STREAM --compare`). The result is
kept in `lossless/<stream>.json` in the build folder, and the report shows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path

from spillway.levers.protocol import Picture
from spillway.pipeline.comparison import Comparison, Size
from spillway.settings import Settings
from spillway.show.lines import sentences, table_lines
from spillway.show.words import bytes_said

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
"""What each form is called, in the order of the table."""
COMPRESSORS = ("gzip", "xz", "parquet")
_HEADS = ("form", "#bytes", "#bytes per row", "#of the best file")


def comparison_title(one: Comparison) -> str:
    """Return what was compared, in a sentence."""
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
    """Yield what the table does not say by itself."""
    best = min((size for size in one.sizes if size.form in COMPRESSORS), key=lambda size: size.bytes_per_row)
    yield (
        "Each file counts whole, in the smaller of arrival and key order. Spillway counts what crosses: files, row "
        "numbers, footers and log entries"
    )
    exact = next((size for size in one.sizes if size.form == "exact"), None)
    if exact is not None and exact.bytes_per_row > best.bytes_per_row:
        yield (
            f"{FORMS[best.form]} is smaller than Spillway without loss, by "
            f"{bytes_said((exact.bytes_per_row - best.bytes_per_row) * one.rows)} for the batch"
        )
    yield (
        "Spillway sends so if its channel says `minimize: bytes` and its lever attributes `synopsis: send`; without "
        "loss if the lever also says `error_pct: 0` and no attribute states a bound"
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
    """Keep the comparison for the report; return its path."""
    path = Path(settings.build, FOLDER, f"{one.stream}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({**asdict(one), "batch_date": str(one.batch_date)}, indent=2) + "\n", encoding="utf-8"
    )
    return path


def kept_comparison(settings: Settings, stream: str) -> Comparison | None:
    """Return the comparison that was kept of a stream; None if there is none, or none that this version can read."""
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
