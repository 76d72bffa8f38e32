"""The pages of a report as one text. Not a test."""

from __future__ import annotations

from pathlib import Path


def whole_report(index: Path) -> str:
    """The index and the pages of all channels, by name."""
    pages = [index, *sorted(index.with_suffix("").glob("*.html"))]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)
